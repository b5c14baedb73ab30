//! `make fuzz`: builds every target in `fuzz/` with coverage counters and runs each for a while.
//!
//! The stable compiler can do it: the counters are an LLVM pass, and libFuzzer comes with the `libfuzzer-sys` crate.
//! Nothing is installed but the C++ compiler that builds libFuzzer. Inputs found are kept in `fuzz/corpus`, failures in
//! `fuzz/artifacts`; both stay out of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::build;

/// How long each target runs when nobody says otherwise.
const SECONDS: u64 = 20;

/// What makes a program that libFuzzer can steer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Runs one target or all of them, each for `SECONDS`; words are a name and a number in any order.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let mut seconds = SECONDS;
    let mut wanted = Vec::new();
    for word in words {
        match word.parse() {
            Ok(number) => seconds = number,
            Err(_) => wanted.push((*word).to_owned()),
        }
    }
    let folder = root.join("fuzz");
    let targets = targets(&folder)?;
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        bail!("there is no fuzz target called {unknown}; there are: {}", targets.join(", "));
    }
    let chosen: Vec<&String> =
        targets.iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    println!("building {} fuzz targets ...", chosen.len());
    let programs = compile(root, &folder, &chosen)?;
    println!(
        "{:<14} {:>12} {:>9} {:>8} {:>8} {:>8}",
        "target", "executions", "per s", "edges", "inputs", "MB"
    );
    let mut failed = Vec::new();
    for name in chosen {
        let outcome = fuzz(&folder, &programs.join(name), name, seconds)?;
        println!(
            "{name:<14} {:>12} {:>9} {:>8} {:>8} {:>8}  {}",
            outcome.executions,
            outcome.executions / seconds.max(1),
            outcome.edges,
            outcome.inputs,
            outcome.memory,
            if outcome.failure.is_none() { "ok" } else { "FAILED" }
        );
        if let Some(text) = outcome.failure {
            println!("{text}");
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("these targets failed: {}; what made them is in fuzz/artifacts", failed.join(", "))
}

/// The targets by name.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets")).context("list the fuzz targets")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.display().to_string()));
        }
    }
    names.sort();
    Ok(names)
}

/// Builds the chosen targets; the folder of their programs.
fn compile(root: &Path, folder: &Path, chosen: &[&String]) -> Result<PathBuf> {
    // The same versions as everywhere else; what only fuzzing needs is added to the copy.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).context("take over the versions")?;
    let about = Command::new("rustc").arg("-vV").output().context("run rustc")?;
    let about = String::from_utf8_lossy(&about.stdout).into_owned();
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let target = build::target(root).join("fuzz");
    let mut command = Command::new("cargo");
    command.args(["build", "--quiet", "--release", "--target", host, "--manifest-path"]);
    command.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&target);
    for name in chosen {
        command.args(["--bin", name]);
    }
    // With a target named, build scripts and macros are left alone.
    let status = command.env("RUSTFLAGS", FLAGS).current_dir(root).status().context("run cargo")?;
    if !status.success() {
        bail!("the fuzz targets do not build");
    }
    Ok(target.join(host).join("release"))
}

/// How a run went.
struct Outcome {
    executions: u64,
    edges: u64,
    inputs: u64,
    memory: u64,
    /// The end of what it said, when it failed.
    failure: Option<String>,
}

fn fuzz(folder: &Path, program: &Path, name: &str, seconds: u64) -> Result<Outcome> {
    let (corpus, artifacts) = (folder.join("corpus").join(name), folder.join("artifacts").join(name));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let done = Command::new(program)
        .arg(&corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-dict={}", folder.join("words.dict").display()))
        .args(["-print_final_stats=1", "-rss_limit_mb=2048", "-timeout=25", "-max_len=16384"])
        .env("PODWIRE_FUZZ_SEEDS", &corpus)
        .env("RUST_BACKTRACE", "1")
        .output()
        .with_context(|| format!("run {program:?}"))?;
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    let stat = |key: &str| {
        let line = text.lines().rev().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    let edges =
        text.lines().rev().find_map(|line| line.split("cov: ").nth(1)?.split(' ').next()?.parse().ok());
    let lines: Vec<&str> = text.lines().collect();
    Ok(Outcome {
        executions: stat("stat::number_of_executed_units:"),
        edges: edges.unwrap_or(0),
        inputs: fs::read_dir(&corpus)?.count() as u64,
        memory: stat("stat::peak_rss_mb:"),
        failure: (!done.status.success()).then(|| lines[lines.len().saturating_sub(60)..].join("\n")),
    })
}
