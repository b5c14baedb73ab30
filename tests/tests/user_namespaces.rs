//! Pods with user namespaces of their own, run for real: root inside is nobody outside.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, isolate};
use serde_json::Value;

const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  hostUsers: false\n  terminationGracePeriodSeconds: 1\n  securityContext: {{fsGroup: 4321}}\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    securityContext: {{procMount: Unmasked}}\n    volumeMounts: [{{name: data, mountPath: /data}}, {{name: memory, mountPath: /memory}}, {{name: settings, mountPath: /settings}}]\n  volumes:\n  - {{name: data, emptyDir: {{}}}}\n  - {{name: memory, emptyDir: {{medium: Memory}}}}\n  - {{name: settings, configMap: {{name: settings}}}}\n"
    )
}

fn run(node: &Node, pod: &str, args: &[&str]) -> Result<String> {
    node.podwire(["exec", pod, "--", "/pod-app"].into_iter().chain(args.iter().copied()))
}

/// The node's id of the pod's root, as the kernel shows it inside.
fn root_of(node: &Node, pod: &str) -> Result<u32> {
    let maps = ["uid_map", "gid_map"].map(|file| run(node, pod, &["cat", &format!("/proc/self/{file}")]));
    let [uids, gids] = maps;
    let (uids, gids) = (uids?, gids?);
    let fields: Vec<&str> = uids.split_whitespace().collect();
    ensure!(uids == gids && fields.len() == 3, "one range of each kind: {uids:?} {gids:?}");
    ensure!((fields[0], fields[2]) == ("0", "65536"), "all ids a container may know: {uids:?}");
    fields[1].parse().with_context(|| format!("{uids:?}"))
}

fn folder(node: &Node, pod: &Value) -> Result<PathBuf> {
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    Ok(node.names()?.data_dir.join("kubelet/pods").join(uid))
}

/// The node's uid of the container's first process.
fn runs_as(first: u32) -> Result<bool> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let is_app = fs::read_to_string(entry.path().join("cmdline"))
            .is_ok_and(|line| line.contains("pod-app") && line.contains("sleep"));
        if is_app && fs::metadata(entry.path().join("root")).is_ok() {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
            if uids.split_whitespace().all(|uid| uid == first.to_string()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn owned_by_root_as_the_disk_says(path: &Path) -> Result<()> {
    let found = fs::metadata(path).with_context(|| format!("{path:?}"))?;
    ensure!((found.uid(), found.gid()) == (0, 4321), "{path:?} is {}:{}", found.uid(), found.gid());
    Ok(())
}

#[test]
fn root_in_a_pod_with_users_of_its_own_is_nobody_on_the_node() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    node.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n")?;
    let mut firsts = BTreeSet::new();
    for name in ["one", "two"] {
        node.apply(&pod(name))?;
        let object = node.pod_in_phase(name, "Running")?;
        let first = root_of(&node, name)?;
        assert!(first >= 65_536, "the node's own ids are nobody's: {first}");
        assert!(firsts.insert(first), "every pod has a range to itself: {firsts:?}");
        assert!(runs_as(first)?, "no process of the pod runs as {first}");

        run(&node, name, &["write", "/data/made", "x"])?;
        run(&node, name, &["write", "/memory/made", "x"])?;
        assert_eq!(run(&node, name, &["cat", "/settings/colour"])?.trim(), "blue");
        assert!(run(&node, name, &["write", "/settings/colour", "red"]).is_err(), "it is read-only");
        let volumes = folder(&node, &object)?.join("volumes/kubernetes.io~empty-dir");
        owned_by_root_as_the_disk_says(&volumes.join("data/made"))?;
        owned_by_root_as_the_disk_says(&volumes.join("memory/made"))?;

        // The value it has already: should this ever work, nothing changes.
        let before = fs::read_to_string(CORE_PATTERN)?;
        let refused = run(&node, name, &["write", CORE_PATTERN, before.trim()]);
        assert!(refused.is_err(), "root of a pod may not change the kernel");
        assert_eq!(fs::read_to_string(CORE_PATTERN)?, before);
    }

    node.kill9()?;
    node.start()?;
    node.apply(&pod("three"))?;
    node.pod_in_phase("three", "Running")?;
    for name in ["one", "two"] {
        assert!(firsts.contains(&root_of(&node, name)?), "{name} keeps its range");
    }
    assert!(firsts.insert(root_of(&node, "three")?), "what is in use is not given again: {firsts:?}");
    for name in ["one", "two", "three"] {
        node.podwire(["delete", "pod", name])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}
