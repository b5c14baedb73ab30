//! critest, the CRI's own acceptance test, against our runtime and against containerd in the same setup.
//!
//! docs/critest.md explains what cannot run on this kind of machine.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "the counts belong into the log of the run")]

use std::time::Instant;

use anyhow::Result;
use podwire_testkit::{
    critest::{self, Outcome, Report},
    isolate,
    runtimes::{Bed, Running},
};

/// Specs that no runtime can pass here: words of their names, and why.
const CANNOT_PASS: &[(&str, &str)] = &[(
    "public image with digest should be pulled and removed",
    "the digest is written in critest and the image is to be had from the internet only",
)];

fn run(bed: &Bed, runtime: &Running) -> Result<Report> {
    let begun = Instant::now();
    let folder = bed.path().join(format!("{}-report", runtime.name));
    let report = critest::run(&folder, &runtime.socket, runtime.nri_socket.as_deref(), &[])?;
    println!("critest against {}: {report}, in {:.0} s", runtime.name, begun.elapsed().as_secs_f64());
    Ok(report)
}

fn both(nri: bool) -> Result<()> {
    isolate()?;
    let bed = Bed::new(critest::images()?)?;
    let ours = run(&bed, &bed.ours(nri)?)?;
    let theirs = run(&bed, &bed.containerd(nri)?)?;
    compare(&ours, &theirs);
    Ok(())
}

/// Prints what differs, and fails when ours passes fewer or a spec that could pass does not.
fn compare(ours: &Report, theirs: &Report) {
    for (name, outcome) in &ours.0 {
        if Some(outcome) != theirs.0.get(name) && theirs.0.get(name).is_none_or(|o| *o != Outcome::Passed) {
            println!("  differs: {name}\n    ours: {outcome:?}\n    containerd: {:?}", theirs.0.get(name));
        }
    }
    for (name, outcome) in ours.0.iter().filter(|(_, outcome)| **outcome != Outcome::Passed) {
        println!("  ours: {name}: {outcome:?}");
    }
    let unexplained: Vec<&str> =
        ours.failed().filter(|name| !CANNOT_PASS.iter().any(|(words, _)| name.contains(words))).collect();
    assert!(unexplained.is_empty(), "specs fail that could pass here: {unexplained:#?}");
    let (mine, others) = (ours.passed().count(), theirs.passed().count());
    assert!(mine > others, "ours passes {mine}, containerd {others}");
}

#[test]
fn critest_passes_more_specs_on_ours_than_on_containerd() -> Result<()> {
    both(false)
}

#[test]
fn critest_passes_more_specs_with_nri_on_ours_than_on_containerd() -> Result<()> {
    both(true)
}
