//! Devices of plugins on a whole node: what a pod may open, and every arrow of the way there.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, eventually, isolate};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::Value;

const TUN: &str = "podwire.dev/tun";
const POOLS: &str = "pools: [{resource: podwire.dev/tun, share: 3, select: [{kind: tun}]}]\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// A node whose own plugin offers `/dev/net/tun` three times.
struct Offering {
    node: Node,
    folder: tempfile::TempDir,
}

impl Offering {
    fn up() -> Result<Offering> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("devices.yaml");
        fs::write(&file, POOLS)?;
        let node = Node::up(&["--device-plugin-config", &file.display().to_string()])?;
        eventually("the node offers three", PATIENCE, || {
            let node = node.get("node", "node1").map_err(|error| error.to_string())?;
            let told = &node["status"]["allocatable"][TUN];
            if told == "3" { Ok(()) } else { Err(told.to_string()) }
        })?;
        Ok(Offering { node, folder })
    }

    /// A device file that nobody offers.
    fn other(&self) -> Result<PathBuf> {
        let path = self.folder.path().join("other");
        let loop_control = makedev(10, 237);
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), loop_control)?;
        let opened = fs::File::open(&path).map(drop);
        ensure!(
            opened.as_ref().map_or_else(std::io::Error::raw_os_error, |()| None) != Some(1),
            "{opened:?}"
        );
        Ok(path)
    }
}

fn manifest(name: &str, containers: &[&str], folder: &Path) -> String {
    let containers = containers.iter().map(|container| {
        format!(
            "  - name: {container}\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    resources: {{limits: {{{TUN}: 1}}}}\n    volumeMounts: [{{name: folder, mountPath: /folder}}]\n"
        )
    });
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  volumes: [{{name: folder, hostPath: {{path: {}}}}}]\n  containers:\n{}",
        folder.display(),
        containers.collect::<String>()
    )
}

/// What the kernel says to a read of a file in a pod: error 1 is that it may not be opened.
fn is_refused(node: &Node, pod: &str, path: &str) -> bool {
    let answer = node.podwire(["exec", pod, "--", "/pod-app", "cat", path]);
    answer.is_err_and(|error| format!("{error:#}").contains("(os error 1)"))
}

#[test]
fn a_pod_opens_the_device_it_was_given_and_no_other() -> Result<()> {
    isolate()?;
    let offering = Offering::up()?;
    let node = &offering.node;
    offering.other()?;
    node.apply(&manifest("given", &["main"], offering.folder.path()))?;
    node.apply(&manifest("plain", &["main"], Path::new("/dev/net")).replace(&format!("{TUN}: 1"), "cpu: 1"))?;
    node.pod_in_phase("given", "Running")?;
    node.pod_in_phase("plain", "Running")?;
    ensure!(!is_refused(node, "given", "/dev/net/tun"), "what it was given can be opened");
    ensure!(is_refused(node, "given", "/folder/other"), "what it was not given cannot");
    ensure!(is_refused(node, "plain", "/folder/tun"), "who was given nothing opens nothing");
    for name in ["given", "plain"] {
        node.podwire(["delete", "pod", name, "--now"])?;
    }
    node.assert_no_pod_residue()?;
    offering.node.down()
}

/// The arrows of a pod, once it is known to run.
fn arrows(node: &Node, pod: &str) -> Result<Vec<Value>> {
    let of = format!("pod/{pod}");
    eventually("the pod's status is told", PATIENCE, || {
        let text = node.podwire(["trace", &of, "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let all: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let started =
            all.iter().rposition(|arrow| is(arrow, "Kubelet", "ContainerRuntime", "StartContainer"));
        let told =
            |arrow: &Value| is(arrow, "Kubelet", "APIServer", "PATCH /api/v1/namespaces/default/pods/");
        match started.filter(|at| all[*at..].iter().any(told)) {
            Some(_) => Ok(all),
            None => Err(text),
        }
    })
}

fn is(arrow: &Value, from: &str, to: &str, what: &str) -> bool {
    let begins = arrow["what"].as_str().is_some_and(|told| told.starts_with(what));
    arrow["from"] == from && arrow["to"] == to && begins
}

fn times(arrow: &Value) -> (u64, u64) {
    let ended = arrow["ended"].as_u64().unwrap_or_default();
    (ended - arrow["micros"].as_u64().unwrap_or_default(), ended)
}

#[test]
fn the_path_of_a_pod_with_devices_shows_every_arrow_with_its_time() -> Result<()> {
    isolate()?;
    let offering = Offering::up()?;
    let node = &offering.node;
    node.apply(&manifest("two", &["first", "second"], offering.folder.path()))?;
    node.pod_in_phase("two", "Running")?;
    let arrows = arrows(node, "two")?;
    let find = |from: &str, to: &str, what: &str| {
        let found = arrows.iter().find(|arrow| is(arrow, from, to, what));
        found.cloned().with_context(|| format!("no {what} from {from} to {to} in {arrows:#?}"))
    };
    // Before the pod was there: the plugin told its devices, and the node offered them.
    let listed = find("Kubelet", TUN, "ListAndWatch")?;
    let published = find("Kubelet", "APIServer", "PATCH /api/v1/nodes/node1/status")?;
    ensure!(listed["reply"] == "3 devices, 3 healthy" && listed["side"] == "earlier", "{listed}");
    ensure!(published["reply"] == "podwire.dev/tun: capacity 3, allocatable 3", "{published}");
    // Then the pod's own arrows, each over before the next begins.
    let mut path = vec![
        listed,
        published,
        find("APIServer", "Kubelet", "watch: ADDED")?,
        find("Kubelet", "Kubelet", "admitted")?,
        find("Kubelet", "ContainerRuntime", "RunPodSandbox")?,
        find("Kubelet", "ContainerRuntime", "PodSandboxStatus")?,
    ];
    let added = find("ContainerRuntime", "CNIPlugin", "ADD eth0")?;
    let (sandbox, added) = (times(&path[4]), times(&added));
    ensure!(sandbox.0 <= added.0 && added.1 <= sandbox.1, "the network is made with the sandbox");
    for container in ["first", "second"] {
        let allocated = find("Kubelet", TUN, &format!("Allocate {container}"))?;
        ensure!(allocated["reply"].as_str().is_some_and(|ids| ids.starts_with("net/tun#")), "{allocated}");
        path.push(allocated);
        path.push(find("Kubelet", "ContainerRuntime", &format!("CreateContainer {container}"))?);
    }
    for pair in path.windows(2) {
        ensure!(times(&pair[0]).1 <= times(&pair[1]).0, "{} is not before {}", pair[0], pair[1]);
    }
    let picture = node.podwire(["trace", "pod/two", "--width", "80"])?;
    ensure!(picture.lines().nth(1).is_some_and(|line| line.starts_with('-')), "{picture}");
    node.podwire(["delete", "pod", "two", "--now"])?;
    offering.node.down()
}
