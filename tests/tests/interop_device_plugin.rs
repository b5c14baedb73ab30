//! Our device plugin with the real kubelet: the node offers the resource, a pod gets the device, and health is followed.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "the steps belong into the log of the run")]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::{
    eventually, isolate,
    isolate::OwnFolder,
    node::bin_dir,
    stack::{Ours, Stack},
};
use serde_json::Value;

/// The real kubelet publishes its node's status every ten seconds, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the real kubelet serves device plugins, whatever its root folder is.
const KUBELET: &str = "/var/lib/kubelet";

const POOLS: &str = "pools: [{resource: podwire.dev/tun, share: 3, env: GIVEN, select: [{kind: tun}]}]\n";

const POD: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: tunnel}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    command: [/pod-app]
    args: [sleep, "600"]
    resources: {limits: {podwire.dev/tun: 1}}
"#;

/// Our plugin, ended with the test.
struct Plugin(Child);

impl Plugin {
    fn start(folder: &Path) -> Result<Plugin> {
        let file = folder.join("devices.yaml");
        std::fs::write(&file, POOLS)?;
        let mut command = Command::new(bin_dir().join("podwire"));
        command.args(["device-plugin", "--config"]).arg(file).stdin(Stdio::null());
        Ok(Plugin(command.spawn().context("start the plugin")?))
    }

    fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        assert!(self.0.wait()?.success(), "it ends well when asked");
        Ok(())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Ignored: it may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn node_offers(stack: &Stack, list: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{list} of podwire.dev/tun is {wanted}"), PATIENCE, || {
        let said =
            stack.kubectl(&["get", "node", "node1", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let node: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let found = &node["status"][list]["podwire.dev/tun"];
        if found == wanted { Ok(()) } else { Err(format!("it is {found}")) }
    })
    .with_context(|| stack.log_tails())
}

#[test]
fn the_real_kubelet_offers_what_our_plugin_has_and_gives_it_to_a_pod() -> Result<()> {
    isolate()?;
    let _kubelets = OwnFolder::at(Path::new(KUBELET))?;
    let stack = Stack::start(Ours { kubelet: false, ..Ours::ALL })?;
    let scratch = tempfile::tempdir()?;
    let plugin = Plugin::start(scratch.path())?;
    node_offers(&stack, "capacity", "3")?;
    node_offers(&stack, "allocatable", "3")?;
    println!("the node offers three");

    stack.apply_admitted(POD)?;
    stack
        .kubectl(&["wait", "--for=condition=Ready", "pod/tunnel", "--timeout=90s"])
        .with_context(|| stack.log_tails())?;
    let inside = stack.kubectl(&["exec", "tunnel", "--", "/pod-app", "ls", "/dev/net"])?;
    assert_eq!(inside.trim(), "tun", "the device file is there");
    let told = stack.kubectl(&["exec", "tunnel", "--", "/pod-app", "env", "GIVEN"])?;
    assert_eq!(told.trim(), "/dev/net/tun", "the pod is told what it was given");
    println!("the pod has it");

    plugin.stop()?;
    node_offers(&stack, "allocatable", "0")?;
    let _again = Plugin::start(scratch.path())?;
    node_offers(&stack, "allocatable", "3")?;
    println!("the plugin went and came again");
    stack.kubectl(&["delete", "pod", "tunnel", "--timeout=90s"])?;
    Ok(())
}
