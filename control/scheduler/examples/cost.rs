//! Prints what decisions cost in clusters of growing size: `cargo run --release -p podwire-scheduler --example cost`.
//!
//! With a path it draws there, as SVG, the median decision against nodes and against placed pods.
#![allow(clippy::print_stdout, reason = "it is its purpose")]

use std::fmt::Write;

use podwire_scheduler::cost::{Wish, measure};

const WISHES: [(Wish, &str, &str); 4] = [
    (Wish::Plain, "plain", "#1b7f5c"),
    (Wish::Social, "spread, affine, anti-affine", "#2f5fb3"),
    (Wish::Preempting, "preempting", "#b3562f"),
    (Wish::Hopeless, "fits nowhere", "#777777"),
];

/// Nodes, and pods on each.
const BY_NODES: [(usize, usize); 6] = [(100, 30), (250, 30), (500, 30), (1000, 30), (2000, 30), (5000, 30)];
const BY_PODS: [(usize, usize); 5] = [(5000, 0), (5000, 3), (5000, 6), (5000, 15), (5000, 30)];

/// Microseconds of one decision, in the order of `WISHES`.
struct Point {
    at: usize,
    medians: [f64; 4],
}

fn main() -> std::io::Result<()> {
    println!("nodes  pods    wish        decisions/s  p50 us  p99 us  max us  placed preempted  built ms");
    let by_nodes: Vec<Point> = BY_NODES.iter().map(|(nodes, pods)| point(*nodes, *pods, *nodes)).collect();
    let by_pods: Vec<Point> =
        BY_PODS.iter().map(|(nodes, pods)| point(*nodes, *pods, nodes * pods)).collect();
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, svg(&by_nodes, &by_pods))?;
    }
    Ok(())
}

fn point(nodes: usize, pods: usize, at: usize) -> Point {
    let mut medians = [0.0; 4];
    for (median, (wish, ..)) in medians.iter_mut().zip(WISHES) {
        let Some(cost) = measure(nodes, pods, wish, 1000) else { continue };
        let all = &cost.decisions;
        let sum: f64 = all.iter().map(std::time::Duration::as_secs_f64).sum();
        let at = |share: usize| all[(all.len() - 1) * share / 100].as_micros();
        println!(
            "{nodes:5} {:7}  {:10} {:12.0} {:7} {:7} {:7} {:7} {:9} {:9}",
            nodes * pods,
            format!("{wish:?}"),
            1000.0 / sum,
            at(50),
            at(99),
            at(100),
            cost.placed,
            cost.preempted,
            cost.building.as_millis()
        );
        *median = all[all.len() / 2].as_secs_f64() * 1e6;
    }
    Point { at, medians }
}

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 220.0;
/// Microseconds at the bottom and at the top, both as powers of ten.
const DECADES: (f64, f64) = (-1.0, 4.0);

fn svg(by_nodes: &[Point], by_pods: &[Point]) -> String {
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 880 320\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"880\" height=\"320\" fill=\"white\"/>\n",
    );
    panel(&mut out, 60.0, "nodes, each with 30 pods", by_nodes);
    panel(&mut out, 500.0, "placed pods on 5,000 nodes", by_pods);
    for (at, (_, name, colour)) in WISHES.iter().enumerate() {
        let x = 60.0 + at as f64 * 190.0;
        // Ignored, here and below: writing into a text cannot fail.
        writeln!(out, "<text x=\"{x}\" y=\"312\" fill=\"{colour}\">&#9632; {name}</text>").ok();
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, left: f64, title: &str, points: &[Point]) {
    let (top, bottom) = (30.0, 30.0 + HEIGHT);
    let most = points.last().map_or(1, |point| point.at.max(1)) as f64;
    let x = |at: usize| left + at as f64 / most * WIDTH;
    let y = |micros: f64| {
        let share = (micros.max(0.1).log10() - DECADES.0) / (DECADES.1 - DECADES.0);
        bottom - share.clamp(0.0, 1.0) * HEIGHT
    };
    writeln!(out, "<text x=\"{left}\" y=\"18\">median decision against {title}</text>").ok();
    for (micros, name) in
        [(0.1, "0.1 us"), (1.0, "1 us"), (10.0, "10 us"), (100.0, "100 us"), (1e3, "1 ms"), (1e4, "10 ms")]
    {
        let (y, end) = (y(micros), left + WIDTH);
        writeln!(out, "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>")
            .ok();
        writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", left - 4.0, y + 4.0)
            .ok();
    }
    for point in [points.first(), points.get(points.len() / 2), points.last()].into_iter().flatten() {
        let at = x(point.at);
        writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            point.at
        )
        .ok();
    }
    for (which, (_, _, colour)) in WISHES.iter().enumerate() {
        let line: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", x(point.at), y(point.medians[which]))).collect();
        let line = line.join(" ");
        writeln!(out, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>")
            .ok();
    }
    writeln!(out, "<line x1=\"{left}\" y1=\"{top}\" x2=\"{left}\" y2=\"{bottom}\" stroke=\"black\"/>").ok();
}
