//! Devices on cgroup v2, where a program in the kernel says who may open what, and on a machine with two NUMA nodes.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use podwire_testkit::{Node, eventually, isolate};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::PATIENCE;

/// A node whose own plugin offers what `pools` say, once it offers so many of `resource`.
fn up(folder: &Path, pools: &str, flags: &[&str], resource: &str, amount: &str) -> Result<Node> {
    let file = folder.join("devices.yaml");
    fs::write(&file, pools)?;
    let file = file.display().to_string();
    let flags: Vec<&str> =
        ["--device-plugin-config", &file].into_iter().chain(flags.iter().copied()).collect();
    let node = Node::up(&flags)?;
    eventually(&format!("the node offers {amount} of {resource}"), PATIENCE, || {
        let node = node.get("node", "node1").map_err(|error| error.to_string())?;
        let told = &node["status"]["allocatable"][resource];
        if told == amount { Ok(()) } else { Err(told.to_string()) }
    })?;
    Ok(node)
}

fn pod(name: &str, limits: &str, folder: &Path) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    resources: {{limits: {{{limits}}}}}\n    volumeMounts: [{{name: folder, mountPath: /folder}}]\n  volumes:\n  - {{name: folder, hostPath: {{path: {}}}}}\n",
        folder.display()
    )
}

fn open(node: &Node, pod: &str, path: &str) -> String {
    match node.podwire(["exec", pod, "--", "/pod-app", "cat", path]) {
        Ok(_) => "opened".to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn a_pod_opens_its_device_and_no_other_on_cgroup_v2() -> Result<()> {
    ensure!(Path::new("/sys/fs/cgroup/cgroup.controllers").exists(), "this machine has cgroup v2");
    isolate()?;
    let folder = tempfile::tempdir()?;
    let pools =
        "pools: [{resource: podwire.dev/latency, select: [{kind: node, path: /dev/cpu_dma_latency}]}]\n";
    let node = up(folder.path(), pools, &[], "podwire.dev/latency", "1")?;
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, folder.path().join("other"), FileType::CharacterDevice, mode, makedev(10, 237))?;
    let outside = fs::File::open(folder.path().join("other")).map(drop);
    println!("outside of pods: {outside:?}");
    ensure!(outside.err().and_then(|error| error.raw_os_error()) != Some(1), "only pods are refused");
    node.apply(&pod("given", "podwire.dev/latency: 1", folder.path()))?;
    node.apply(&pod("plain", "cpu: 1", Path::new("/dev")))?;
    node.pod_in_phase("given", "Running")?;
    node.pod_in_phase("plain", "Running")?;
    let seen = [
        ("given", "/dev/cpu_dma_latency", false),
        ("given", "/folder/other", true),
        ("plain", "/folder/cpu_dma_latency", true),
    ];
    for (pod, path, refused) in seen {
        let answer = open(&node, pod, path);
        println!("{pod} {path}: {answer}");
        ensure!(
            answer.contains("(os error 1)") == refused && (refused || answer == "opened"),
            "{pod} {path}"
        );
    }
    for name in ["given", "plain"] {
        node.podwire(["delete", "pod", name, "--now"])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn numa_devices_of_one_pod_come_from_one_node_or_it_is_refused() -> Result<()> {
    let nodes = fs::read_to_string("/sys/devices/system/node/online")?;
    ensure!(nodes.trim() == "0-1", "this machine has two NUMA nodes: {nodes}");
    isolate()?;
    let folder = tempfile::tempdir()?;
    let pools = "pools:\n- {resource: podwire.dev/near, numa: 0, share: 2, select: [{kind: node, path: /dev/ttyS1}]}\n\
        - {resource: podwire.dev/beside, numa: 0, share: 2, select: [{kind: node, path: /dev/ttyS2}]}\n\
        - {resource: podwire.dev/far, numa: 1, share: 2, select: [{kind: node, path: /dev/ttyS3}]}\n";
    let flags = ["--topology-manager-policy", "single-numa-node", "--topology-manager-scope", "pod"];
    let node = up(folder.path(), pools, &flags, "podwire.dev/far", "2")?;
    node.apply(&pod("aligned", "podwire.dev/near: 1, podwire.dev/beside: 1", folder.path()))?;
    node.pod_in_phase("aligned", "Running")?;
    node.apply(&pod("alone", "podwire.dev/far: 2", folder.path()))?;
    node.pod_in_phase("alone", "Running")?;
    node.podwire(["delete", "pod", "alone", "--now"])?;
    node.apply(&pod("apart", "podwire.dev/near: 1, podwire.dev/far: 1", folder.path()))?;
    let refused = node.pod_in_phase("apart", "Failed")?;
    println!("apart: {} {}", refused["status"]["reason"], refused["status"]["message"]);
    ensure!(refused["status"]["reason"] == "TopologyAffinityError", "{refused}");
    for name in ["apart", "aligned"] {
        node.podwire(["delete", "pod", name, "--now"])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}
