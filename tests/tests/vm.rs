//! What only another kernel, or a power cut, can show. Runs inside `make vm`, on cgroup v2.
#![cfg(feature = "vm")]
#![allow(clippy::print_stdout, reason = "the machine is watched through what is printed")]

#[path = "vm/apparmor.rs"]
mod apparmor;
#[path = "vm/cni.rs"]
mod cni;
#[path = "vm/devices.rs"]
mod devices;
#[path = "vm/kernels.rs"]
mod kernels;
#[path = "vm/netdriver.rs"]
mod netdriver;
#[path = "vm/sctp.rs"]
mod sctp;
#[path = "vm/sriov.rs"]
mod sriov;
#[path = "vm/vrf.rs"]
mod vrf;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{Node, eventually, isolate, residue};
use podwire_wire::cri::{self, runtime_service_client::RuntimeServiceClient};
use serde_json::Value;

/// One slow emulated CPU.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many pods are on their way when the power goes.
const PODS: usize = 8;

fn pod(name: &str, args: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: {args}\n    resources: {resources}\n"
    )
}

fn pod_cgroup(node: &Node, pod: &Value, class: &str) -> Result<PathBuf> {
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let root = node.names()?.cgroup_root;
    Ok(Path::new("/sys/fs/cgroup")
        .join(root.trim_start_matches('/'))
        .join("kubepods")
        .join(class)
        .join(format!("pod{uid}")))
}

fn container_cgroup(pod: &Path) -> Result<PathBuf> {
    fs::read_dir(pod)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.join("cgroup.procs").exists())
        .context("the container has no cgroup below its pod's")
}

#[test]
fn a_pod_runs_with_its_limits_on_cgroup_v2() -> Result<()> {
    assert!(Path::new("/sys/fs/cgroup/cgroup.controllers").exists(), "this machine has cgroup v2");
    isolate()?;
    let node = Node::up(&[])?;
    let resources = "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 250m, memory: 64Mi}}";
    node.apply(&pod("limited", "[sleep, \"600\"]", resources))?;
    let pod = node.pod_in_phase("limited", "Running")?;
    let container = container_cgroup(&pod_cgroup(&node, &pod, "burstable")?)?;
    for (file, wanted) in [("memory.max", "67108864"), ("cpu.max", "25000 100000")] {
        let text = fs::read_to_string(container.join(file))?;
        println!("{}: {}", container.join(file).display(), text.trim());
        assert_eq!(text.trim(), wanted, "{file}");
    }
    assert!(!fs::read_to_string(container.join("cgroup.procs"))?.trim().is_empty(), "its process is in it");

    assert_eq!(node.podwire(["exec", "limited", "--", "/pod-app", "hostname"])?.trim(), "limited");
    let inside = node.podwire(["exec", "limited", "--", "/pod-app", "cat", "/proc/self/cgroup"])?;
    println!("inside: {}", inside.trim());
    assert_eq!(inside.trim(), "0::/", "an exec is in the container's own cgroup");
    let code = node.podwire(["exec", "limited", "--", "/pod-app", "exit", "7"]).unwrap_err();
    assert!(code.to_string().contains("exit status: 7"), "{code}");

    node.podwire(["delete", "pod", "limited"])?;
    node.assert_no_pod_residue()?;
    assert!(!container.exists(), "its cgroup is gone");
    node.down()
}

#[test]
fn a_container_over_its_memory_limit_is_oom_killed_on_cgroup_v2() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&pod("greedy", "[eat, \"200\"]", "{limits: {memory: 24Mi}}"))?;
    let pod = node.pod_in_phase("greedy", "Failed")?;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    println!("greedy: {ended}");
    assert_eq!(ended["reason"], "OOMKilled", "{ended}");
    assert_eq!(ended["exitCode"], 137, "{ended}");
    node.podwire(["delete", "pod", "greedy"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn stats_come_from_cgroup_v2() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&pod("busy", "[spin]", "{limits: {cpu: 300m, memory: 64Mi}}"))?;
    node.pod_in_phase("busy", "Running")?;
    let socket = node.names()?.run_dir.join("cri.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut client = RuntimeServiceClient::new(podwire_wire::unix::channel(socket));
        let (mut first, mut pids) = (None, 0);
        for _ in 0..200 {
            let listed =
                client.list_container_stats(cri::ListContainerStatsRequest::default()).await?.into_inner();
            let stats = listed.stats.first().cloned().context("no stats")?;
            let used = stats.cpu.and_then(|cpu| cpu.usage_core_nano_seconds).map_or(0, |value| value.value);
            let memory =
                stats.memory.and_then(|memory| memory.working_set_bytes).map_or(0, |value| value.value);
            let pods =
                client.list_pod_sandbox_stats(cri::ListPodSandboxStatsRequest::default()).await?.into_inner();
            let linux = pods.stats.first().and_then(|stats| stats.linux.clone()).unwrap_or_default();
            pids = linux.process.and_then(|all| all.process_count).map_or(pids, |value| value.value);
            let first = *first.get_or_insert(used);
            if used > first + 50_000_000 && memory > 0 && pids > 0 {
                println!("cpu {first} then {used} ns, working set {memory} bytes, {pids} processes");
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("the figures of a busy container do not grow")
    })?;
    node.podwire(["delete", "pod", "busy"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// Ends the machine; `make vm` cuts the power when it reads this.
fn cut() -> Result<()> {
    println!("\nvm: cut");
    std::io::stdout().flush()?;
    std::thread::sleep(Duration::from_secs(60));
    bail!("the power was not cut")
}

fn running(node: &Node) -> Result<(usize, usize)> {
    let pods = node.list("pods")?;
    Ok((pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count(), pods.len()))
}

#[test]
fn cut_pods_before() -> Result<()> {
    isolate()?;
    let node = Node::at(Path::new("/disk/node"), &[])?;
    node.import_app()?;
    rustix::fs::sync();
    let names = node.names()?;
    let all = (0..PODS).map(|number| pod(&format!("p{number}"), "[sleep, \"600\"]", "{}"));
    // What a power cut ended is started again.
    let all = all.map(|manifest| manifest.replace("restartPolicy: Never", "restartPolicy: Always"));
    node.apply(&all.collect::<Vec<_>>().join("---\n"))?;
    // Read from the disk: asking the node would take longer than the pods do.
    eventually("the first pod has its address", PATIENCE, || {
        let mut reserved = Vec::new();
        residue::reservations(&names, &mut reserved);
        if reserved.is_empty() { Err("no address yet".to_owned()) } else { Ok(()) }
    })?;
    cut()
}

#[test]
fn cut_pods_after() -> Result<()> {
    isolate()?;
    let node = Node::at(Path::new("/disk/node"), &[])?;
    assert_eq!(node.list("pods")?.len(), PODS, "what was acknowledged outlives the power cut");
    eventually("every pod Running again", PATIENCE, || {
        match running(&node).map_err(|error| format!("{error:#}"))? {
            (PODS, PODS) => Ok(()),
            (running, all) => Err(format!("{running} of {all}")),
        }
    })
    .with_context(|| node.log_tail())?;
    let names = node.names()?;
    let count = |folder: &str| fs::read_dir(names.data_dir.join(folder)).into_iter().flatten().count();
    eventually("only what the pods of this boot use", Duration::from_secs(20), || {
        let mut reserved = Vec::new();
        residue::reservations(&names, &mut reserved);
        let found = [
            ("addresses", reserved.len()),
            ("containers", count("runtime/containers")),
            ("snapshots", count("images/snapshots")),
            ("network results", count("cni/cache/results")),
        ];
        if found.iter().all(|(_, count)| *count <= PODS) { Ok(()) } else { Err(format!("{found:?}")) }
    })?;
    for number in 0..PODS {
        node.podwire(["delete", "pod", &format!("p{number}")])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}
