//! The plugin to copy (`examples/nri-plugin`) as the process it is: started by the runtime, and by somebody else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/runtime.rs"]
mod runtime;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use podwire_nri::api::{Container, PodSandbox};
use rustix::process::{Pid, Signal, kill_process};

use self::runtime::Runtime;

/// Cargo builds a package's examples with its tests, unless told to build one test alone.
fn example() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let built = this.parent().unwrap().parent().unwrap().join("examples/nri-plugin");
    assert!(built.exists(), "{built:?} is missing: cargo build -p podwire-nri --example nri-plugin");
    built
}

fn pod(annotations: &[(&str, &str)]) -> PodSandbox {
    let annotations = annotations.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    PodSandbox { id: "p".into(), name: "p".into(), annotations, ..PodSandbox::default() }
}

fn container() -> Container {
    Container { id: "c".into(), name: "c".into(), pod_sandbox_id: "p".into(), ..Container::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_started_by_a_runtime_gives_what_is_allowed_and_refuses_the_rest() {
    let runtime = Runtime::begin(|config, dir| {
        let plugins = dir.join("plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        let script = plugins.join("50-nri-plugin");
        let line =
            format!("#!/bin/sh\nexec {} --allow-device /dev/null --allow-folder /srv\n", example().display());
        std::fs::write(&script, line).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        (config.plugin_dir, config.socket) = (Some(plugins), None);
    })
    .await;
    runtime.until("the example is ready", |nri| nri.plugins().iter().any(|one| one.ready)).await;
    let asks = pod(&[
        ("env.nri-plugin.example/GREETING", "hello"),
        ("device.nri-plugin.example/nothing", "/dev/null"),
        ("folder.nri-plugin.example/data", "/srv"),
        ("unrelated.example/x", "y"),
    ]);
    runtime.nri.run_pod_sandbox(asks.clone()).await.unwrap();
    let adjust = runtime.nri.create_container(asks, container()).await.unwrap().adjust;
    assert_eq!((adjust.env[0].key.as_str(), adjust.env[0].value.as_str()), ("GREETING", "hello"));
    let device = &adjust.linux.unwrap().devices[0];
    assert_eq!((device.path.as_str(), device.major, device.minor), ("/dev/null", 1, 3));
    assert_eq!((adjust.mounts[0].destination.as_str(), adjust.env.len()), ("/srv", 1));
    for (key, value) in
        [("device.nri-plugin.example/x", "/dev/mem"), ("folder.nri-plugin.example/x", "/srv/../etc")]
    {
        let error = runtime.nri.run_pod_sandbox(pod(&[(key, value)])).await.unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(value), "{error}");
    }
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_started_by_anybody_changes_containers_when_it_is_told_to() {
    let runtime = Runtime::begin(|_, _| {}).await;
    let mut child = tokio::process::Command::new(example())
        .arg("--socket")
        .arg(runtime.socket())
        .args(["--shares", "77"])
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    runtime.until("the example is ready", |nri| nri.plugins().iter().any(|one| one.ready)).await;
    runtime.nri.post_start_container(pod(&[]), container()).await.unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    let node = runtime.node.clone();
    runtime.until("the update came", |_| !node.updates.lock().unwrap().is_empty()).await;
    let update = node.updates.lock().unwrap()[0].clone();
    let shares = update.linux.unwrap().resources.unwrap().cpu.unwrap().shares.unwrap().value;
    assert_eq!((update.container_id.as_str(), shares), ("c", 77));
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().await.unwrap().success());
    runtime.stop().await;
}
