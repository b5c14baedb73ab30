//! `make matrix`: one scenario on mixes of our participants with upstream's, and the table of what came of it.
//!
//! Each cell starts its participants as processes of their own in a fresh network namespace, walks two pods through
//! their life with the real kubectl, one with a claim of a network interface, and ends everything.

mod cells;

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, bail, ensure};
use podwire_testkit::{
    claims::{self, DEVICE, INSIDE, ip},
    eventually, isolate, node,
    stack::{Settings, Stack},
};
use serde_json::Value;

use self::cells::{AXES, Cell};

/// How long something may take on a busy machine that takes seconds otherwise.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs the cells and prints the table; fails if a cell failed. `only` names cells (`ooouoooo`).
pub fn run(root: &Path, every: bool, only: &[&str]) -> Result<()> {
    let named: Option<Vec<Cell>> = only.iter().map(|name| Cell::named(name)).collect();
    let Some(named) = named else {
        bail!(
            "cells are named by {} letters, o ours, u upstream, for {}: ooouoooo",
            AXES.len(),
            AXES.join(", ")
        );
    };
    let mut rows = Vec::new();
    for cell in if named.is_empty() { Cell::chosen(every) } else { named } {
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

One scenario with each participant ours or upstream's (Kubernetes 1.36.4, etcd 3.6.13, containerd 2.4.2, runc 1.3.6, CNI
plugins 1.9.1, DRANET 1.4.0), each as a process of its own: two pods, one of them with a claim from a template that gives it
a network interface under a name of the claim's choice; a talk between them, exec, logs, what the claim tells, delete, the
interface home under its own name, no claim and nothing else left. Our store is the embedded one of our API server, and
`podwire etcd` under kube-apiserver; upstream's is etcd under either.

`make matrix` runs all ours, each single swap, each single one of ours and all upstream; `make matrix ALL=1` also every
combination of the first five and cells that have every pair of values of every two axes; `cargo xtask matrix ooouoooo` one. A
run replaces the rows of the cells it ran. The last column is the time from `kubectl apply` until `kubectl wait` says that
both pods are Ready, or why it failed.

";

/// The table with the rows of this run, and those of earlier runs that this one did not repeat.
fn table(before: &str, rows: &[(Cell, String, bool)]) -> String {
    let mut text = format!(
        "{HEAD}| cell | {} | both pods Ready |\n|---|{}---|\n",
        AXES.join(" | "),
        "---|".repeat(AXES.len())
    );
    for cell in Cell::all() {
        let parts: Vec<&str> = cell.values().map(|ours| if ours { "ours" } else { "upstream" }).collect();
        let start = format!("| {} | {} | ", cell.name(), parts.join(" | "));
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
    claims::make_cable()?;
    let stack = Stack::start_with(cell.ours(), &Settings { network_driver: true, ..Settings::default() })?;
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
  resourceClaims: [{name: nic, resourceClaimTemplateName: t}]
  containers:
  - name: main
    image: localhost/pod-app:latest
    imagePullPolicy: Never
    command: [/pod-app]
    args: [sleep, "3600"]
    resources: {claims: [{name: nic}]}
"#;

fn walk(stack: &Stack) -> Result<Duration> {
    let begun = stack.apply_admitted(&format!("{}---\n{PODS}", claims::of_device()))?;
    stack.kubectl(&["wait", "--for=condition=Ready", "pod/web", "pod/client", "--timeout=90s"]).map_err(
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
    eventually("the request is in the log", PATIENCE, || {
        let log = stack.kubectl(&["logs", "web"]).map_err(|error| format!("{error:#}"))?;
        if log.contains("GET /") { Ok(()) } else { Err(log) }
    })?;
    has_device(stack)?;
    stack.kubectl(&["delete", "pod", "web", "client", "--timeout=90s"])?;
    is_given_back(stack)?;
    Ok(took)
}

/// The interface is in the pod under the name that the claim says, and not on the node; the claim tells of it.
fn has_device(stack: &Stack) -> Result<()> {
    let inside = stack.kubectl(&["exec", "client", "--", "/pod-app", "ls", "/sys/class/net"])?;
    ensure!(inside.split_whitespace().any(|name| name == INSIDE), "in the pod there are {inside:?}");
    ensure!(!is_on_node(), "{DEVICE} is still on the node");
    eventually("the claim tells of the interface", PATIENCE, || {
        let said =
            stack.kubectl(&["get", "resourceclaims", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let claims: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let told = &claims["items"][0]["status"]["devices"][0]["networkData"]["interfaceName"];
        if told == INSIDE { Ok(()) } else { Err(said) }
    })
}

/// The interface is home under its own name, and the claim went with the pod.
fn is_given_back(stack: &Stack) -> Result<()> {
    eventually("the interface is home", PATIENCE, || {
        if is_on_node() { Ok(()) } else { Err(ip("-brief link").unwrap_or_default()) }
    })?;
    eventually("no claim is left", PATIENCE, || {
        let left =
            stack.kubectl(&["get", "resourceclaims", "-o", "yaml"]).map_err(|error| format!("{error:#}"))?;
        if left.contains("kind: ResourceClaim\n") { Err(left) } else { Ok(()) }
    })
}

fn is_on_node() -> bool {
    ip(&format!("link show {DEVICE}")).is_ok()
}
