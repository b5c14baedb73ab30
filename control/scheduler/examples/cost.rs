//! Prints what decisions cost in clusters of growing size: `cargo run --release -p podwire-scheduler --example cost`.
//!
//! With a folder it draws there, as SVG, the median decision against nodes and against placed pods.
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
    if let Some(folder) = std::env::args().nth(1).map(std::path::PathBuf::from) {
        let (nodes, pods) = ("nodes, each with 30 placed pods", "placed pods on 5,000 nodes");
        std::fs::write(
            folder.join("scheduler-nodes.svg"),
            svg("A decision against nodes", nodes, &by_nodes),
        )?;
        std::fs::write(
            folder.join("scheduler-pods.svg"),
            svg("A decision against placed pods", pods, &by_pods),
        )?;
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

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 340.0;
/// Where the lines are drawn: left, top, right and bottom.
const FRAME: (f64, f64, f64, f64) = (84.0, 40.0, 500.0, 250.0);
/// Microseconds at the bottom and at the top, both as powers of ten.
const DECADES: (i32, i32) = (-1, 4);

/// A plot with both axes named: time as powers of ten, so that a line that stays level costs the same at every size.
fn svg(title: &str, along: &str, points: &[Point]) -> String {
    let (left, top, right, bottom) = FRAME;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    let most = points.last().map_or(1, |point| point.at.max(1)) as f64;
    let x = |at: usize| left + at as f64 / most * (right - left);
    let y = |micros: f64| {
        let (low, high) = (f64::from(DECADES.0), f64::from(DECADES.1));
        bottom - ((micros.max(1e-9).log10() - low) / (high - low)).clamp(0.0, 1.0) * (bottom - top)
    };
    for power in DECADES.0..=DECADES.1 {
        let at = y(10_f64.powi(power));
        // Ignored, here and below: writing into a text cannot fail.
        writeln!(out, "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#dddddd\"/>").ok();
        let (end, below, name) = (left - 6.0, at + 4.5, time(power));
        writeln!(out, "<text x=\"{end}\" y=\"{below:.1}\" text-anchor=\"end\">{name}</text>").ok();
    }
    let mut before = f64::NEG_INFINITY;
    for point in points {
        let at = x(point.at);
        writeln!(out, "<path d=\"M{at:.1} {bottom}v5\" stroke=\"black\"/>").ok();
        // Names that would stand in each other are left out.
        if at - before > 62.0 {
            before = at;
            let (below, name) = (bottom + 20.0, thousands(point.at));
            writeln!(out, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>").ok();
        }
    }
    for (which, (_, name, colour)) in WISHES.iter().enumerate() {
        let line: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", x(point.at), y(point.medians[which]))).collect();
        let line = line.join(" ");
        writeln!(out, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>")
            .ok();
        for point in points {
            let (x, y) = (x(point.at), y(point.medians[which]));
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>").ok();
        }
        let (x, y) = (left + (which % 2) as f64 * 200.0, HEIGHT - 30.0 + (which / 2) as f64 * 20.0);
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">&#9679; {name}</text>").ok();
    }
    let (middle, under) = (left + (right - left) / 2.0, bottom + 40.0);
    writeln!(out, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>").ok();
    writeln!(out, "<text x=\"{middle}\" y=\"{under}\" text-anchor=\"middle\">{along}</text>").ok();
    let half = top + (bottom - top) / 2.0;
    writeln!(
        out,
        "<text transform=\"translate(20 {half}) rotate(-90)\" text-anchor=\"middle\">median decision</text>"
    )
    .ok();
    out.push_str("</svg>\n");
    out
}

/// A power of ten microseconds as people say it.
fn time(power: i32) -> String {
    match power {
        3.. => format!("{} ms", 10_i32.pow(power.unsigned_abs() - 3)),
        0..3 => format!("{} &#181;s", 10_i32.pow(power.unsigned_abs())),
        _ => format!("{} &#181;s", 10_f64.powi(power)),
    }
}

fn thousands(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}
