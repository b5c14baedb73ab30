//! Crash drills: the daemon, and separately the supervisor, killed while workers make and delete pods.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{Node, eventually, isolate, node::bin_dir, residue};
use serde_json::Value;

const WORKERS: usize = 4;
const KILLS: usize = 3;

fn pod(name: &str, args: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: {args}\n"
    )
}

/// A client of the node that a thread can have to itself.
struct Client {
    data_dir: PathBuf,
}

impl Client {
    fn run(&self, args: &[&str], input: Option<&str>) -> Option<String> {
        let mut child = Command::new(bin_dir().join("podwire"))
            .args(args)
            .env("PODWIRE_DATA_DIR", &self.data_dir)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take()?;
        if let Some(input) = input {
            std::io::Write::write_all(&mut stdin, input.as_bytes()).ok()?;
        }
        drop(stdin);
        let done = child.wait_with_output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).into_owned())
    }

    fn phase(&self, pod: &str) -> Option<String> {
        let object: Value =
            serde_json::from_str(&self.run(&["get", "pod", pod, "-o", "json"], None)?).ok()?;
        object["status"]["phase"].as_str().map(str::to_owned)
    }
}

/// Makes and deletes pods until told to stop. What fails because the node is down is tried no more: that is the drill.
fn churn(client: &Client, worker: usize, stop: &AtomicBool, ran: &AtomicUsize) {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("churn-{worker}-{round}");
        if client.run(&["apply", "-f", "-"], Some(&pod(&name, "[sleep, \"600\"]"))).is_none() {
            continue;
        }
        let begun = Instant::now();
        // Every other pod is deleted before it may have come up.
        while round % 2 == 0 && begun.elapsed() < Duration::from_secs(3) && !stop.load(Ordering::Relaxed) {
            if client.phase(&name).as_deref() == Some("Running") {
                ran.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        client.run(&["delete", "pod", &name, "--wait=false"], None);
    }
}

/// Runs `kill` again and again while workers churn, then deletes every pod of theirs.
fn drill(node: &mut Node, mut kill: impl FnMut(&mut Node) -> Result<()>) -> Result<()> {
    let (stop, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
    let data_dir = node.names()?.data_dir;
    let killed = std::thread::scope(|scope| -> Result<()> {
        for worker in 0..WORKERS {
            let client = Client { data_dir: data_dir.clone() };
            let (stop, ran) = (&stop, &ran);
            std::thread::Builder::new()
                .name(format!("worker-{worker}"))
                .spawn_scoped(scope, move || churn(&client, worker, stop, ran))?;
        }
        let done = (0..KILLS).try_for_each(|number| {
            let before = ran.load(Ordering::Relaxed);
            eventually("pods run between two kills", Duration::from_secs(120), || {
                let now = ran.load(Ordering::Relaxed);
                if now >= before + 3 { Ok(()) } else { Err(format!("{now} ran, {before} before")) }
            })?;
            kill(node).with_context(|| format!("kill {number}"))
        });
        stop.store(true, Ordering::Relaxed);
        done
    });
    killed.with_context(|| node.log_tail())?;
    for left in node.list("pods")? {
        let name = left["metadata"]["name"].as_str().unwrap_or_default();
        if name.starts_with("churn-") && left["metadata"]["deletionTimestamp"].is_null() {
            node.podwire(["delete", "pod", name, "--wait=false"])?;
        }
    }
    eventually("the workers' pods are gone", Duration::from_secs(120), || {
        let pods = node.list("pods").map_err(|error| format!("{error:#}"))?;
        let names: Vec<_> = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
        let left: Vec<_> = names.into_iter().filter(|name| name.starts_with("churn-")).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join(" ")) }
    })
    .with_context(|| node.log_tail())
}

fn container(pod: &Value) -> (String, i64) {
    let status = &pod["status"]["containerStatuses"][0];
    (status["containerID"].to_string(), status["restartCount"].as_i64().unwrap_or(-1))
}

/// The numbers the pod has logged so far, in order.
fn counted(node: &Node, pod: &str) -> Result<Vec<u64>> {
    let text = node.podwire(["logs", pod])?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect())
}

#[test]
fn a_daemon_killed_under_churn_leaves_nothing_and_loses_nothing() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    node.apply(&pod("steady", "[log, \"1000000\", \"20\"]"))?;
    let before = container(&node.pod_in_phase("steady", "Running")?);
    drill(&mut node, |node| {
        node.kill9()?;
        node.start().map(drop)
    })?;
    assert_eq!(container(&node.pod_in_phase("steady", "Running")?), before, "the same container all along");
    node.podwire(["delete", "pod", "steady"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// The supervisor's process: who holds its lock. By its command line it could not be told from a child it has just made.
fn supervisor(names: &residue::Names) -> Result<i32> {
    let inode = fs::metadata(names.run_dir.join("supervisor/supervisor.lock"))?.ino();
    let locks = fs::read_to_string("/proc/locks")?;
    let held = locks.lines().find(|line| line.contains("FLOCK") && line.contains(&format!(":{inode} ")));
    let pid = held.and_then(|line| line.split_whitespace().nth(4)).context("nobody holds the lock")?;
    Ok(pid.parse()?)
}

#[test]
fn a_supervisor_killed_under_churn_loses_no_container_and_no_exit_code() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    node.apply(&pod("steady", "[log, \"1000000\", \"20\"]"))?;
    let before = container(&node.pod_in_phase("steady", "Running")?);
    let names = node.names()?;
    let mut number = 0;
    drill(&mut node, |node| {
        let brief = format!("brief-{number}");
        number += 1;
        node.apply(&pod(&brief, "[exit-when, /go, \"9\"]"))?;
        node.pod_in_phase(&brief, "Running")?;
        let old = supervisor(&names)?;
        let pid = rustix::process::Pid::from_raw(old).context("a process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        eventually("exec under a new supervisor", Duration::from_secs(60), || {
            node.podwire(["exec", &brief, "--", "/pod-app", "write", "/here", "now"])
                .map_err(|error| format!("{error:#}"))
        })?;
        // Ignored: the container may end, and take the command with it, before the command can say how it went.
        node.podwire(["exec", &brief, "--", "/pod-app", "write", "/go", "now"]).ok();
        // Its parent was the supervisor that is gone: only the kernel still knows its exit code.
        let ended = node.pod_in_phase(&brief, "Failed")?;
        let state = &ended["status"]["containerStatuses"][0]["state"]["terminated"];
        ensure!(state["exitCode"] == 9, "the exit code was lost: {state}");
        ensure!(supervisor(&names)? != old, "nobody took over");
        node.podwire(["delete", "pod", &brief]).map(drop)
    })?;
    assert_eq!(container(&node.pod_in_phase("steady", "Running")?), before, "the same container all along");
    let numbers = counted(&node, "steady")?;
    let gap = numbers.windows(2).find(|pair| pair[1] != pair[0] + 1);
    assert_eq!(gap, None, "lines of the log were lost");
    node.podwire(["delete", "pod", "steady"])?;
    node.assert_no_pod_residue()?;
    node.down()
}
