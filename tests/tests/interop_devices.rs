//! A device plugin on the published Go definitions, unchanged, on our kubelet and runtime: pods open what they were given.
#![cfg(feature = "interop")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    Node, eventually, isolate,
    node::{PATIENCE, peer},
};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// `/dev/net/tun` and `/dev/fuse`: whoever may open them may, without any capability.
const TUN: (u32, u32) = (10, 200);
const FUSE: (u32, u32) = (10, 229);

struct Plugin {
    child: Child,
    log: PathBuf,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Ignored: one that ended by itself cannot be killed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Plugin {
    fn start(node: &Node, folder: &Path, devices: &str) -> Result<Plugin> {
        let log = folder.join("calls");
        let child = Command::new(peer("deviceplugin")?)
            .arg("-folder")
            .arg(node.data_dir.join("kubelet/device-plugins"))
            .args(["-resource", "example.com/node", "-prefer", "-prestart", "-devices", devices, "-log"])
            .arg(&log)
            .spawn()
            .context("start the device plugin")?;
        Ok(Plugin { child, log })
    }

    fn calls(&self, start: &str) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }
}

fn pod(name: &str, others: &Path) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    resources: {{limits: {{example.com/node: 1}}}}\n    volumeMounts: [{{name: others, mountPath: /others}}]\n  volumes:\n  - {{name: others, hostPath: {{path: {}}}}}\n",
        others.display()
    )
}

fn run(node: &Node, pod: &str, args: &[&str]) -> Result<String> {
    node.podwire(["exec", pod, "--", "/pod-app"].into_iter().chain(args.iter().copied()))
}

/// What the kernel says to a read of a node in the pod: that it may not be opened is error 1.
fn is_refused(node: &Node, pod: &str, path: &str) -> bool {
    let answer = run(node, pod, &["cat", path]);
    answer.is_err_and(|error| format!("{error:#}").contains("(os error 1)"))
}

fn allocatable(node: &Node, amount: &str) -> Result<()> {
    eventually("the devices that can be used", PATIENCE, || {
        let nodes = node.list("nodes").map_err(|error| error.to_string())?;
        let told = nodes.first().map(|node| node["status"]["allocatable"]["example.com/node"].clone());
        if told.as_ref().is_some_and(|told| told == amount) { Ok(()) } else { Err(format!("{told:?}")) }
    })
}

#[test]
fn pods_open_the_device_of_a_go_plugin_that_they_were_given_and_no_other() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    let folder = tempfile::tempdir()?;
    for (name, (major, minor)) in [("tun", TUN), ("fuse", FUSE)] {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, folder.path().join(name), FileType::CharacterDevice, mode, makedev(major, minor))?;
        fs::set_permissions(folder.path().join(name), std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    }
    let at = folder.path().display();
    let plugin = Plugin::start(&node, folder.path(), &format!("n0={at}/fuse,n1={at}/tun"))?;
    allocatable(&node, "2")?;
    node.apply(&pod("one", folder.path()))?;
    node.pod_in_phase("one", "Running")?;
    // The plugin prefers the last one.
    ensure!(run(&node, "one", &["env", "DEVICES"])?.trim() == "n1");
    ensure!(!is_refused(&node, "one", "/dev/n1"), "what it was given can be opened");
    ensure!(is_refused(&node, "one", "/others/fuse"), "what it was not given cannot");
    ensure!(plugin.calls("Allocate") == ["Allocate n1"], "{:?}", plugin.calls(""));
    ensure!(plugin.calls("PreStartContainer") == ["PreStartContainer n1"]);
    // The daemon dies and comes back: the pod runs on, the plugin registers again, and the device stays the pod's.
    node.kill9()?;
    node.start()?;
    allocatable(&node, "2")?;
    node.apply(&pod("two", folder.path()))?;
    node.pod_in_phase("two", "Running")?;
    ensure!(run(&node, "two", &["env", "DEVICES"])?.trim() == "n0");
    ensure!(is_refused(&node, "two", "/others/tun") && !is_refused(&node, "one", "/dev/n1"));
    ensure!(plugin.calls("Allocate") == ["Allocate n1", "Allocate n0"]);
    for name in ["one", "two"] {
        node.podwire(["delete", "pod", name, "--now"])?;
    }
    drop(plugin);
    allocatable(&node, "0")?;
    node.down()
}
