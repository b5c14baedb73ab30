//! What only another kernel can show: a pod's limits on cgroup v2. Runs inside `make vm`.
#![cfg(feature = "vm")]

use std::{fs, path::Path};

use anyhow::{Context, Result};
use podwire_testkit::{Node, isolate};

#[test]
fn a_pod_runs_with_its_limits_on_cgroup_v2() -> Result<()> {
    assert!(Path::new("/sys/fs/cgroup/cgroup.controllers").exists(), "this machine has cgroup v2");
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: limited}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 250m, memory: 64Mi}}\n",
    )?;
    let pod = node.pod_in_phase("limited", "Running")?;
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let names = node.names()?;
    let folder = Path::new("/sys/fs/cgroup")
        .join(names.cgroup_root.trim_start_matches('/'))
        .join("kubepods/burstable")
        .join(format!("pod{uid}"));
    let container = fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.join("cgroup.procs").exists())
        .context("the container has no cgroup below its pod's")?;
    for (file, wanted) in [("memory.max", "67108864"), ("cpu.max", "25000 100000")] {
        let text = fs::read_to_string(container.join(file))?;
        println!("{}: {}", container.join(file).display(), text.trim());
        assert_eq!(text.trim(), wanted, "{file}");
    }
    assert!(!fs::read_to_string(container.join("cgroup.procs"))?.trim().is_empty(), "its process is in it");
    node.podwire(["delete", "pod", "limited"])?;
    node.assert_no_pod_residue()?;
    node.down()
}
