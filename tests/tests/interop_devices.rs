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
        Plugin::start_as(node, folder, "calls", &["-prefer", "-prestart", "-devices", devices])
    }

    /// One that writes its calls into a file of `name`.
    fn start_as(node: &Node, folder: &Path, name: &str, words: &[&str]) -> Result<Plugin> {
        let log = folder.join(name);
        let child = Command::new(peer("deviceplugin")?)
            .arg("-folder")
            .arg(node.data_dir.join("kubelet/device-plugins"))
            .args(["-resource", "example.com/node", "-log"])
            .arg(&log)
            .args(words)
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

/// A node and a Go plugin with four devices that does wrong what a file says.
struct Bed {
    node: Node,
    folder: tempfile::TempDir,
}

impl Bed {
    /// What the plugin does wrong from now on, one thing in a line.
    fn manners(&self, lines: &str) -> Result<()> {
        let (file, new) = (self.folder.path().join("manners"), self.folder.path().join("manners.new"));
        fs::write(&new, lines)?;
        Ok(fs::rename(new, file)?)
    }

    fn start(&self, name: &str, words: &[&str]) -> Result<Plugin> {
        let manners = self.folder.path().join("manners").display().to_string();
        let words: Vec<&str> = words.iter().copied().chain(["-manners", &manners]).collect();
        Plugin::start_as(&self.node, self.folder.path(), name, &words)
    }

    fn apply(&self, name: &str) -> Result<()> {
        self.node.apply(&pod(name, self.folder.path())).map(drop)
    }

    /// The pod runs and may open what it was given, and goes.
    fn runs_and_goes(&self, name: &str) -> Result<()> {
        self.node.pod_in_phase(name, "Running")?;
        let id = run(&self.node, name, &["env", "DEVICES"])?.trim().to_owned();
        ensure!(!is_refused(&self.node, name, &format!("/dev/{id}")), "{name} may open {id}");
        self.node.podwire(["delete", "pod", name, "--now"]).map(drop)
    }

    /// Why the pod's container is not there, once it says so in these words.
    fn says(&self, name: &str, words: &str) -> Result<()> {
        eventually(words, PATIENCE, || {
            let pod = self.node.get("pod", name).map_err(|error| error.to_string())?;
            let text = pod["status"].to_string();
            if text.contains(words) { Ok(()) } else { Err(text) }
        })
    }
}

fn logged(plugin: &Plugin, words: &str) -> Result<()> {
    eventually(words, PATIENCE, || {
        let text = plugin.calls("").join("\n");
        if text.contains(words) { Ok(()) } else { Err(text) }
    })
}

#[test]
fn a_go_plugin_that_does_everything_wrong_harms_its_own_pods_only_and_says_why() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    let bed = Bed { node, folder: tempfile::tempdir()? };
    let tun = bed.folder.path().join("tun");
    mknodat(CWD, &tun, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(TUN.0, TUN.1))?;
    fs::set_permissions(&tun, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    let devices = |ids: &[&str]| {
        let all: Vec<String> = ids.iter().map(|id| format!("{id}={}", tun.display())).collect();
        all.join(",")
    };
    let four = devices(&["n0", "n1", "n2", "n3"]);
    bed.manners("")?;
    let plugin = bed.start("calls", &["-prefer", "-prestart", "-devices", &four])?;
    allocatable(&bed.node, "4")?;
    bed.apply("kept")?;
    bed.node.pod_in_phase("kept", "Running")?;

    // Devices that vanish and flap, also the one that the pod holds.
    for lines in ["gone n0\n", "gone n0\nunhealthy n3\n", "unhealthy n3\n", "gone n3\n"].repeat(5) {
        bed.manners(lines)?;
    }
    bed.manners("gone n0\nunhealthy n3\n")?;
    allocatable(&bed.node, "2")?;
    bed.says("kept", "Unhealthy")?;
    bed.manners("")?;
    allocatable(&bed.node, "4")?;

    // Each call that fails is told by name, and tried again.
    for (number, call) in ["Allocate", "PreStartContainer"].into_iter().enumerate() {
        let name = format!("fails{number}");
        bed.manners(&format!("fail {call}\n"))?;
        bed.apply(&name)?;
        bed.says(&name, &format!("device plugin of example.com/node: {call}: rpc error: code = Internal desc = {call} fails as it was told"))?;
        bed.manners("")?;
        bed.runs_and_goes(&name)?;
    }
    bed.manners("empty Allocate\n")?;
    bed.apply("empty")?;
    bed.says("empty", "no containers return in allocation response")?;
    bed.manners("")?;
    bed.runs_and_goes("empty")?;

    // Each call that hangs holds up nobody else; a preference is not waited for.
    for (number, call) in ["Allocate", "PreStartContainer"].into_iter().enumerate() {
        let (slow, other) = (format!("hangs{number}"), format!("beside{number}"));
        let before = plugin.calls(call).len();
        bed.manners(&format!("hang {call}\n"))?;
        bed.apply(&slow)?;
        eventually("it hangs", PATIENCE, || {
            if plugin.calls(call).len() > before { Ok(()) } else { Err(plugin.calls("").join(" ")) }
        })?;
        bed.node.apply(&pod(&other, bed.folder.path()).replace("example.com/node: 1", "cpu: 1"))?;
        bed.node.pod_in_phase(&other, "Running")?;
        bed.manners("")?;
        bed.runs_and_goes(&slow)?;
        bed.node.podwire(["delete", "pod", &other, "--now"])?;
    }
    for manners in ["hang GetPreferredAllocation\n", "fail GetPreferredAllocation\n"] {
        bed.manners(manners)?;
        bed.apply("unasked")?;
        bed.runs_and_goes("unasked")?;
    }
    bed.manners("")?;

    // Those that are turned away are told why, and one that never lists offers nothing.
    let wrong = bed.start("wrong", &["-version", "v1", "-socket", "wrong.sock", "-devices", &four])?;
    logged(&wrong, "requested API version \"v1\" is not supported by kubelet")?;
    let bad = bed.start("bad", &["-resource", "kubernetes.io/node", "-devices", &four])?;
    logged(&bad, "the ResourceName \"kubernetes.io/node\" is invalid")?;
    bed.manners("hang ListAndWatch\n")?;
    let silent = bed.start("silent", &["-resource", "example.com/silent", "-devices", &four])?;
    logged(&silent, "ListAndWatch")?;
    bed.manners("")?;
    drop((wrong, bad, silent));

    // Another one takes over, and when it is killed the first serves again.
    let five = devices(&["n0", "n1", "n2", "n3", "n4"]);
    let next = bed.start("next", &["-socket", "next.sock", "-devices", &five])?;
    allocatable(&bed.node, "5")?;
    drop(next);
    allocatable(&bed.node, "4")?;
    // The same one again, under its own name.
    let twin = bed.start("twin", &["-prefer", "-prestart", "-devices", &five])?;
    allocatable(&bed.node, "5")?;
    drop(plugin);
    bed.apply("last")?;
    bed.runs_and_goes("last")?;
    let kept = bed.node.get("pod", "kept")?;
    ensure!(kept["status"]["containerStatuses"][0]["restartCount"] == 0, "{kept}");
    ensure!(run(&bed.node, "kept", &["env", "DEVICES"])?.trim() == "n3");
    drop(twin);
    bed.node.podwire(["delete", "pod", "kept", "--now"])?;
    bed.node.down()
}

#[test]
fn a_go_plugin_gives_devices_by_their_cdi_names() -> Result<()> {
    isolate()?;
    let _folder = podwire_testkit::isolate::OwnFolder::at(Path::new("/run/cdi"))?;
    let node = Node::up(&[])?;
    let folder = tempfile::tempdir()?;
    let spec = serde_json::json!({"cdiVersion": "0.6.0", "kind": "example.com/node", "devices": [{
        "name": "n0",
        "containerEdits": {"deviceNodes": [{"path": "/dev/given", "hostPath": "/dev/net/tun"}], "env": ["BY=cdi"]},
    }]});
    fs::write("/run/cdi/example.json", spec.to_string())?;
    let plugin = Plugin::start_as(
        &node,
        folder.path(),
        "calls",
        &["-cdi", "example.com/node", "-devices", "n0=/dev/null"],
    )?;
    allocatable(&node, "1")?;
    node.apply(&pod("one", folder.path()))?;
    node.pod_in_phase("one", "Running")?;
    ensure!(run(&node, "one", &["env", "BY"])?.trim() == "cdi");
    ensure!(!is_refused(&node, "one", "/dev/given"), "what CDI brings can be opened");
    node.podwire(["delete", "pod", "one", "--now"])?;
    drop(plugin);
    node.down()
}
