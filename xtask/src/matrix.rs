//! `make matrix`: one scenario on every mix of our participants with upstream's, and the table of what came of it.
//!
//! Each cell starts its participants as processes of their own in a fresh network namespace, walks two pods through
//! their life with the real kubectl, and ends everything.

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, bail};
use podwire_testkit::{
    eventually, isolate, node,
    stack::{Ours, Stack},
};

/// The axes, in the order of the table.
const AXES: [&str; 5] = ["API", "scheduler", "kubelet", "runtime", "CNI"];

/// Which participants are ours, one bit per axis.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell(u8);

impl Cell {
    const ALL_OURS: u8 = 0b1_1111;

    fn ours(self, axis: &str) -> bool {
        AXES.iter().position(|known| *known == axis).is_some_and(|at| self.0 & (1 << at) != 0)
    }

    /// One letter per axis: o ours, u upstream.
    fn name(self) -> String {
        AXES.iter().map(|axis| if self.ours(axis) { 'o' } else { 'u' }).collect()
    }

    /// All ours, each single swap, each single one of ours, all upstream; or all 32.
    fn chosen(every: bool) -> Vec<Cell> {
        if every {
            return (0..=Cell::ALL_OURS).rev().map(Cell).collect();
        }
        let singles = (0..AXES.len()).map(|at| 1_u8 << at);
        let mut cells = vec![Cell(Cell::ALL_OURS)];
        cells.extend(singles.clone().map(|bit| Cell(Cell::ALL_OURS & !bit)));
        cells.extend(singles.map(Cell));
        cells.push(Cell(0));
        cells
    }
}

/// Runs the cells and prints the table; fails if a cell failed. `only` names cells (`ooouo`).
pub fn run(root: &Path, every: bool, only: &[&str]) -> Result<()> {
    let cells = Cell::chosen(every || !only.is_empty());
    let named: Vec<Cell> = cells
        .iter()
        .copied()
        .filter(|cell| only.is_empty() || only.contains(&cell.name().as_str()))
        .collect();
    if named.is_empty() || (!only.is_empty() && named.len() != only.len()) {
        bail!("cells are named by five letters, o ours, u upstream, for {}: ooouo", AXES.join(", "));
    }
    let mut rows = Vec::new();
    for cell in named {
        let name = cell.name();
        // A thread of its own, so that each cell has its own network namespace.
        let outcome = std::thread::Builder::new().name(name.clone()).spawn(move || scenario(cell))?.join();
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("the cell panicked")));
        let said = match &outcome {
            Ok(took) => format!("{:.0} ms", took.as_secs_f64() * 1000.0),
            Err(error) => format!("FAILED: {}", reason(error)),
        };
        println!("matrix {name}: {said}");
        if let Err(error) = &outcome {
            println!("{error:#}");
        }
        rows.push((cell, said, outcome.is_ok()));
    }
    let failed = rows.iter().filter(|row| !row.2).count();
    let path = root.join("docs/matrix.md");
    let mut text = table(&fs::read_to_string(&path).unwrap_or_default(), &rows);
    let profile = if node::bin_dir().ends_with("release") { "release" } else { "debug" };
    text.push_str(&format!(
        "\nThe last run was of {} cells with our binaries built for {profile}; times depend on what else the machine did.\n",
        rows.len()
    ));
    fs::write(path, &text)?;
    println!("\n{text}");
    if failed > 0 {
        bail!("{failed} of {} cells failed", rows.len());
    }
    Ok(())
}

/// The innermost sentence of an error, fit for a table.
fn reason(error: &anyhow::Error) -> String {
    let text = error.root_cause().to_string();
    text.lines().next().unwrap_or_default().replace('|', "/").chars().take(160).collect()
}

const HEAD: &str = "# The swap matrix

One scenario (two pods, a talk between them, exec, logs, delete, nothing left) with each participant ours or upstream's
(Kubernetes 1.36.4, etcd 3.6.13, containerd 2.4.2, runc 1.3.6, CNI plugins 1.9.1), each as a process of its own.
Written by `make matrix` (12 cells) and `make matrix ALL=1` (all 32); a run replaces the rows of the cells it ran.
The last column is the time from `kubectl apply` until `kubectl wait` says that both pods are Ready, or why it failed.

";

/// The table with the rows of this run, and those of earlier runs that this one did not repeat.
fn table(before: &str, rows: &[(Cell, String, bool)]) -> String {
    let mut text =
        format!("{HEAD}| {} | both pods Ready |\n|{}---|\n", AXES.join(" | "), "---|".repeat(AXES.len()));
    for cell in Cell::chosen(true) {
        let parts: Vec<&str> =
            AXES.iter().map(|axis| if cell.ours(axis) { "ours" } else { "upstream" }).collect();
        let start = format!("| {} | ", parts.join(" | "));
        if let Some((_, said, _)) = rows.iter().find(|row| row.0 == cell) {
            text.push_str(&format!("{start}{said} |\n"));
        } else if let Some(line) = before.lines().find(|line| line.starts_with(&start)) {
            text.push_str(&format!("{line}\n"));
        }
    }
    text
}

/// One cell from nothing to nothing; the time until both pods were Ready.
fn scenario(cell: Cell) -> Result<Duration> {
    isolate()?;
    let ours = Ours {
        api: cell.ours("API"),
        scheduler: cell.ours("scheduler"),
        kubelet: cell.ours("kubelet"),
        runtime: cell.ours("runtime"),
        cni: cell.ours("CNI"),
    };
    let stack = Stack::start(ours)?;
    let walked = walk(&stack).and_then(|took| stack.assert_no_pod_residue().map(|()| took));
    walked.map_err(|error| error.context(stack.log_tails()))
}

const PODS: &str = r#"apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [serve, "80"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 2
  containers: [{name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, command: [/pod-app], args: [sleep, "3600"]}]
"#;

fn walk(stack: &Stack) -> Result<Duration> {
    let begun = stack.apply_admitted(PODS)?;
    stack.kubectl(&["wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=60s"]).map_err(
        |error| {
            let events = stack.kubectl(&["get", "events"]).unwrap_or_default();
            error.context(events)
        },
    )?;
    let took = begun.elapsed();
    let address = stack.kubectl(&["get", "pod", "web", "-o", "jsonpath={.status.podIP}"])?;
    let answer =
        stack.kubectl(&["exec", "client", "--", "/pod-app", "get", &format!("http://{address}/")])?;
    if !answer.contains("hello from web") {
        bail!("pod to pod answered {answer:?}");
    }
    eventually("the request is in the log", Duration::from_secs(10), || {
        let log = stack.kubectl(&["logs", "web"]).map_err(|error| format!("{error:#}"))?;
        if log.contains("GET /") { Ok(()) } else { Err(log) }
    })?;
    stack.kubectl(&["delete", "pod", "web", "client", "--timeout=60s"])?;
    Ok(took)
}
