//! Real pods on our runtime and on containerd with the same NRI plugins: a Go one that hears every event and makes every
//! kind of adjustment, our Rust example, and DRANET; and the drill in which a required plugin is killed, hung and
//! restarted under a stream of pods.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "what a kind came to belongs into the log of the run")]
#![allow(unreachable_pub)] // A test has no public items; `pub` says what other files of it may use.

#[path = "nri_twins/client.rs"]
mod client;
#[path = "nri_twins/drill.rs"]
mod drill;
#[path = "nri_twins/facts.rs"]
mod facts;
#[path = "nri_twins/plugin.rs"]
mod plugin;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::{
    critest, eventually,
    images::{Files, Image, Layer},
    isolate,
    node::{bin_dir, peer},
    runtimes::{Bed, Running},
};
use serde_json::json;

use self::{client::Client, plugin::GoPlugin};

/// What differs between the two, and why that is right.
const EXPLAINED: &[(&str, &str)] = &[
    ("net-devices", "runc 1.3 does not know OCI network devices, and neither creator moves them yet"),
    ("hooks", "ours runs hooks itself, containerd's are runc's; both run the same ones"),
    (
        "blockio",
        "containerd refuses a class it has no configuration for, ours has no classes and passes it over",
    ),
    ("rdt", "runc refuses without the hardware, ours passes it over"),
    ("unified", "runc refuses unified keys on a node with cgroup v1, ours passes them over"),
    ("hugepages", "runc refuses a page size that the node does not have, ours passes it over"),
    ("cgroup", "containerd puts the container where the plugin says, ours keeps the pod's own group"),
];

fn bed() -> Result<Bed> {
    let app = std::fs::read(bin_dir().join("pod-app"))?;
    let tools = Files::default().file("pod-app", app.clone(), 0o755);
    let pause = Files::default().file("pause", app, 0o755);
    Bed::new(vec![
        Image::new(&["app:latest"], &Layer::new(&tools)?, &json!({"Entrypoint": ["/pod-app"]}))?,
        Image::new(&["sandbox:latest"], &Layer::new(&pause)?, &json!({"Entrypoint": ["/pause"]}))?,
    ])
}

/// Carries out async work in threads that share the test's network namespace.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}

async fn ready(runtime: &Running) -> Result<Client> {
    let client = Client::new(&runtime.socket);
    client.pull(client::IMAGE).await?;
    client.pull(critest::SANDBOX_IMAGE).await?;
    Ok(client)
}

#[test]
fn a_go_plugin_records_the_same_on_ours_and_on_containerd() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    let look = |runtime: &Running| -> Result<facts::Report> {
        let log = bed.path().join(format!("{}.events", runtime.name));
        let socket = runtime.nri_socket.as_deref().context("no NRI")?;
        let plugin = GoPlugin::start(socket, &log).with_context(|| format!("on {}", runtime.name))?;
        let folder = bed.path().join(format!("{}-facts", runtime.name));
        std::fs::create_dir_all(&folder)?;
        block_on(async { facts::gather(&ready(runtime).await?, &plugin, &folder).await })
            .with_context(|| runtime.name)
    };
    let ours = look(&bed.ours(true)?)?;
    let theirs = look(&bed.containerd(true)?)?;
    let mut unexplained = Vec::new();
    for (what, theirs) in &theirs.0 {
        let ours = ours.0.get(what);
        if ours == Some(theirs) {
            println!("same     {what}: {theirs}");
            continue;
        }
        let kind = what.split('/').next().unwrap_or(what);
        let why = EXPLAINED.iter().find(|(known, _)| *known == kind).map(|(_, why)| *why);
        println!(
            "differs  {what}:\n  ours:       {}\n  containerd: {theirs}",
            ours.map_or("-", String::as_str)
        );
        match why {
            Some(why) => println!("  because {why}"),
            None => unexplained.push(what.clone()),
        }
    }
    assert!(unexplained.is_empty(), "not explained: {unexplained:#?}");
    Ok(())
}

#[test]
fn our_rust_plugin_runs_unchanged_on_both() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    for runtime in [bed.ours(true)?, bed.containerd(true)?] {
        let log = bed.path().join(format!("{}.rust", runtime.name));
        let mut plugin = Command::new(bin_dir().join("examples/logger"));
        plugin.arg("--socket").arg(runtime.nri_socket.as_deref().context("no NRI")?);
        plugin.args(["--env", "GREETING=hello"]).stdout(std::fs::File::create(&log)?);
        let _plugin = Ended(plugin.spawn().context("start examples/logger")?);
        let said = |words: &str| {
            eventually(
                &format!("{}: the plugin says {words:?}", runtime.name),
                Duration::from_secs(60),
                || {
                    let text = std::fs::read_to_string(&log).unwrap_or_default();
                    if text.contains(words) { Ok(()) } else { Err(text) }
                },
            )
        };
        said("synchronized")?;
        let environment = block_on(async {
            let client = ready(&runtime).await?;
            let sandbox = client.run("rust", &[]).await?;
            let container = client.create(&sandbox, "main").await?;
            client.start(&container).await?;
            let pid = client.pid(&container).await?;
            let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
            client.down(&sandbox.id).await?;
            Ok(environment)
        })?;
        assert!(
            environment.split('\0').any(|one| one == "GREETING=hello"),
            "{}: {environment}",
            runtime.name
        );
        for event in [
            "RUN_POD_SANDBOX",
            "CREATE_CONTAINER",
            "START_CONTAINER",
            "STOP_POD_SANDBOX",
            "REMOVE_POD_SANDBOX",
        ] {
            said(event)?;
        }
    }
    Ok(())
}

#[test]
fn dranet_registers_and_hears_of_pods() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    let api = podwire_testkit::parts::Api::start(&bed.path().join("api"))?;
    let runtime = bed.ours(true)?;
    // DRANET connects where NRI usually is; a mount namespace of its own shows it our socket there.
    let nri = runtime.nri_socket.clone().context("no NRI")?;
    let roots = bed.path().join("kubelet");
    for folder in ["plugins", "plugins_registry"] {
        std::fs::create_dir_all(roots.join(folder))?;
    }
    let log = bed.path().join("dranet.log");
    let script = format!(
        "mount -t tmpfs tmpfs /var/run/nri 2>/dev/null || (mkdir -p /var/run/nri && mount -t tmpfs tmpfs /var/run/nri); \
         touch /var/run/nri/nri.sock && mount --bind {} /var/run/nri/nri.sock && \
         exec {} --kubeconfig {} --hostname-override node1 --db-path {} --kubelet-root-dir {} --bind-address 127.0.0.1:9177 -v 4",
        nri.display(),
        peer("dranet")?.display(),
        api.kubeconfig("admin").display(),
        bed.path().join("dranet.db").display(),
        roots.display(),
    );
    let out = std::fs::File::create(&log)?;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let _dranet = Ended(command.spawn()?);
    let listed = || -> Result<Vec<serde_json::Value>> {
        let mut verb = Command::new(bin_dir().join("podwire"));
        verb.args(["nri", "list", "-o", "json", "--data-dir"]).arg(bed.path().join("ours"));
        Ok(serde_json::from_slice(&verb.output()?.stdout)?)
    };
    eventually("DRANET is registered and synchronized", Duration::from_secs(90), || match listed() {
        Ok(all) if all.iter().any(|one| one["name"] == "dra.net" && one["ready"] == true) => Ok(()),
        other => Err(format!("{other:?}\n{}", tail(&log))),
    })?;
    let before = listed()?[0]["calls"].as_u64().unwrap_or(0);
    block_on(async {
        let client = ready(&runtime).await?;
        let sandbox = client.run("for-dranet", &[]).await?;
        let container = client.create(&sandbox, "main").await?;
        client.start(&container).await?;
        client.down(&sandbox.id).await
    })?;
    let after = &listed()?[0];
    println!("DRANET: {after}");
    assert!(after["calls"].as_u64() >= Some(before + 3), "it heard of the pod: {before} then {after}");
    assert_eq!(after["errors"], 0, "{after}");
    Ok(())
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A process that is ended with its handle.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn no_pod_starts_without_a_required_plugin_that_is_killed_hung_and_restarted() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    let flags = [("--nri-required-plugins", Path::new("go")), ("--nri-required-wait", Path::new("3s"))];
    let ours = {
        let runtime = bed.ours_with(true, &flags)?;
        let log = bed.path().join("ours.drill");
        block_on(async { drill::run(ready(&runtime).await?, &runtime, &log).await })?
    };
    println!("ours:       {ours}");
    // containerd's own means: its default validator knows required plugins.
    let required = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\nrequired_plugins = [\"go\"]\n";
    let theirs = {
        let runtime = bed.containerd_with(true, required)?;
        let log = bed.path().join("containerd.drill");
        block_on(async { drill::run(ready(&runtime).await?, &runtime, &log).await })?
    };
    println!("containerd: {theirs}");
    assert_eq!((ours.sandboxes_without, ours.containers_without), (0, 0), "{ours}");
    assert!(ours.started > drill::PODS / 4, "the drill let too few through to mean anything: {ours}");
    Ok(())
}
