//! Pods whose RuntimeClass names the real runc as their maker, through the whole stack.
#![cfg(feature = "interop")]

use std::{fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    Node, eventually, isolate,
    node::{bin_dir, peer},
};
use serde_json::Value;

const CLASS: &str =
    "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: other}\nhandler: runc\n---\n";

fn pod(name: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  runtimeClassName: other\n  terminationGracePeriodSeconds: 2\n  restartPolicy: Never\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    {more}\n"
    )
}

fn container_id(pod: &Value) -> String {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

fn exit_code(pod: &Value) -> Option<i64> {
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64()
}

/// What runc itself keeps of its containers.
fn states(node: &Node) -> Result<PathBuf> {
    Ok(node.names()?.run_dir.join("oci/runc"))
}

fn kill_supervisor(node: &Node) -> Result<()> {
    let run_dir = node.names()?.run_dir;
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        if words.contains("supervisor\0--socket") && words.contains(&*run_dir.to_string_lossy()) {
            let pid = rustix::process::Pid::from_raw(pid).context("a process id")?;
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
            return Ok(());
        }
    }
    anyhow::bail!("no supervisor of {run_dir:?} runs")
}

fn log_lines(node: &Node, pod: &str) -> Result<usize> {
    Ok(node.podwire(["logs", pod])?.lines().count())
}

#[test]
fn a_runtime_class_may_name_runc() -> Result<()> {
    isolate()?;
    let handler = format!("runc={}", peer("runc")?.display());
    let mut node = Node::up(&["--handler", &handler])?;
    let limited = "args: [log, \"100000\", \"20\"]\n    resources: {limits: {memory: 64Mi}}";
    node.apply(&format!("{CLASS}{}", pod("steady", limited)))?;
    node.apply(&pod("ends", "args: [exit, \"5\"]"))?;
    node.apply(&pod("screen", "args: [tty]\n    tty: true"))?;
    let steady = node.pod_in_phase("steady", "Running")?;
    let id = container_id(&steady);
    let state = states(&node)?.join(&id).join("state.json");
    ensure!(state.is_file(), "runc knows nothing of {id}");

    assert_eq!(node.podwire(["exec", "steady", "--", "/pod-app", "echo", "inside"])?.trim(), "inside");
    assert_eq!(node.podwire(["exec", "steady", "--", "/pod-app", "hostname"])?.trim(), "steady");
    let code = node.podwire(["exec", "steady", "--", "/pod-app", "exit", "7"]).unwrap_err();
    assert!(code.to_string().contains("exit status: 7"), "{code}");
    let missing = node.podwire(["exec", "steady", "--", "/nothing-here"]).unwrap_err();
    assert!(missing.to_string().contains("no such file"), "{missing}");
    assert_eq!(exit_code(&node.pod_in_phase("ends", "Failed")?), Some(5));
    node.pod_in_phase("screen", "Succeeded")?;
    assert_eq!(node.podwire(["logs", "screen"])?.trim(), "a terminal");

    survives_the_daemon(&mut node, &id)?;
    survives_the_supervisor(&node, &id)?;
    for name in ["steady", "ends", "screen"] {
        node.podwire(["delete", "pod", name])?;
    }
    node.assert_no_pod_residue()?;
    let left: Vec<_> = fs::read_dir(states(&node)?)?.flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "runc still knows containers");
    node.down()
}

fn survives_the_daemon(node: &mut Node, id: &str) -> Result<()> {
    let lines = log_lines(node, "steady")?;
    node.kill9()?;
    node.start()?;
    let again = node.pod_in_phase("steady", "Running")?;
    assert_eq!(container_id(&again), id, "the same container after a crash of the daemon");
    eventually("it logs on", Duration::from_secs(20), || {
        let now = log_lines(node, "steady").map_err(|error| error.to_string())?;
        if now > lines + 10 { Ok(()) } else { Err(format!("{now} lines, {lines} before")) }
    })?;
    assert_eq!(node.podwire(["exec", "steady", "--", "/pod-app", "echo", "still"])?.trim(), "still");
    Ok(())
}

fn survives_the_supervisor(node: &Node, id: &str) -> Result<()> {
    kill_supervisor(node)?;
    let lines = log_lines(node, "steady")?;
    eventually("it logs on under a new supervisor", Duration::from_secs(20), || {
        let now = log_lines(node, "steady").map_err(|error| error.to_string())?;
        if now > lines + 10 { Ok(()) } else { Err(format!("{now} lines, {lines} before")) }
    })?;
    let answer = eventually("exec under a new supervisor", Duration::from_secs(20), || {
        node.podwire(["exec", "steady", "--", "/pod-app", "echo", "again"]).map_err(|e| e.to_string())
    })?;
    assert_eq!(answer.trim(), "again");
    assert_eq!(container_id(&node.pod_in_phase("steady", "Running")?), id);
    Ok(())
}

#[test]
fn an_unknown_handler_is_named_in_the_pods_events() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&format!(
        "{}{}",
        CLASS.replace("handler: runc", "handler: gone"),
        pod("stuck", "args: [serve]")
    ))?;
    eventually("the event that names the handler", Duration::from_secs(30), || {
        let events = node.list("events").map_err(|error| error.to_string())?;
        let messages: Vec<_> = events.iter().filter_map(|event| event["message"].as_str()).collect();
        let named = messages.iter().any(|text| text.contains("no runtime for \"gone\" is configured"));
        if named { Ok(()) } else { Err(messages.join("\n")) }
    })?;
    node.podwire(["delete", "pod", "stuck"])?;
    node.assert_no_pod_residue()?;
    let folder = tempfile::tempdir()?;
    let refused = Command::new(bin_dir().join("podwire"))
        .args(["runtime", "--handler", "x=/no/such/runtime", "--data-dir"])
        .arg(folder.path())
        .output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("runtime handler \"x\""), "{said}");
    node.down()
}
