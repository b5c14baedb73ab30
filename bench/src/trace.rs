//! What tracing takes of a pod's start: arrows per start, the cost of one, and their share of the time.

use std::process::Command;

use anyhow::{Context, Result};
use podwire_testkit::{Node, node::bin_dir};
use serde_json::Value;

use crate::report::{self, Row};

const PODS: usize = 30;

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers: [{{name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [sleep, \"600\"]}}]\n"
    )
}

/// Arrows of one pod's start, and the microseconds from the first to the status that says Running.
fn start_of(node: &Node, name: &str) -> Result<(usize, u64)> {
    let text = node.podwire(["trace", &format!("pod/{name}"), "-o", "json"])?;
    let arrows: Vec<Value> = serde_json::from_str(&text)?;
    let number = |arrow: &Value, field: &str| arrow[field].as_u64().unwrap_or_default();
    let began =
        arrows.first().map(|arrow| number(arrow, "ended") - number(arrow, "micros")).context("no arrows")?;
    let ended = arrows.iter().map(|arrow| number(arrow, "ended")).max().unwrap_or(began);
    Ok((arrows.len(), ended - began))
}

/// Prints the table.
pub fn run() -> Result<()> {
    let node = Node::up(&[])?;
    let mut starts = Vec::new();
    for number in 0..PODS {
        let name = format!("p{number}");
        node.apply(&manifest(&name))?;
        node.pod_in_phase(&name, "Running")?;
        starts.push(start_of(&node, &name)?);
    }
    starts.sort_by_key(|(_, micros)| *micros);
    let (arrows, micros) = starts[starts.len() / 2];
    let said = Command::new(bin_dir().join("podwire")).args(["trace", "--cost"]).output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let nanos: f64 = text.split(' ').next().unwrap_or_default().parse().with_context(|| text.clone())?;
    let (arrows, start) = (arrows as f64, micros as f64 / 1000.0);
    let share = arrows * nanos / 1e6 / start * 100.0;
    report::print(&[
        Row::new("arrows of a pod's start (median pod)", "", arrows, None, None),
        Row::new("reporting one arrow", "ns", nanos, None, None),
        Row::new("pod start, first to last arrow", "ms", start, None, None),
        Row::new("share of the start that tracing takes", "%", share, None, Some(1.0)),
    ]);
    node.down()
}
