//! `make fuzz`: builds every target in `fuzz/` with coverage counters and runs each for a while.
//!
//! The stable compiler can do it: the counters are an LLVM pass, and libFuzzer comes with the `libfuzzer-sys` crate.
//! Nothing is installed but the C++ compiler that builds libFuzzer. Inputs found are kept in `fuzz/corpus`, failures in
//! `fuzz/artifacts`; both stay out of the repository.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, bail};

use crate::build;

/// How long each target runs when nobody says otherwise.
const SECONDS: u64 = 20;

/// What one input may take: seconds, resident megabytes, one allocation's megabytes, bytes of input.
const LIMITS: [&str; 4] = ["-timeout=5", "-rss_limit_mb=512", "-malloc_limit_mb=256", "-max_len=16384"];

/// Kilobytes of address space. libFuzzer sees allocations only with a sanitizer and looks at the resident memory once a
/// second; this is what stops a length that was believed.
const ADDRESS_SPACE: &str = "2097152";

/// What makes a program that libFuzzer can steer.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// What the words ask for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    /// No name means all targets.
    targets: Vec<String>,
    /// For each.
    seconds: u64,
    /// How many run at once.
    jobs: usize,
}

impl Wish {
    /// Names, a number of seconds and `-j2` (or `jobs=2`) in any order.
    fn of(words: &[&str]) -> Result<Wish> {
        let mut wish = Wish { targets: Vec::new(), seconds: SECONDS, jobs: 1 };
        for word in words {
            let jobs = word.strip_prefix("-j").or_else(|| word.strip_prefix("jobs="));
            match (jobs, word.parse()) {
                (Some(jobs), _) => {
                    wish.jobs = jobs.parse().with_context(|| format!("{word:?} is no number of jobs"))?;
                }
                (None, Ok(number)) => wish.seconds = number,
                (None, Err(_)) => wish.targets.push((*word).to_owned()),
            }
        }
        wish.jobs = wish.jobs.max(1);
        Ok(wish)
    }
}

/// Runs one target or all of them, each for some seconds and some at once.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let wish = Wish::of(words)?;
    let folder = root.join("fuzz");
    let targets = targets(&folder)?;
    if let Some(unknown) = wish.targets.iter().find(|name| !targets.contains(name)) {
        bail!("there is no fuzz target called {unknown}; there are: {}", targets.join(", "));
    }
    let chosen: Vec<&String> =
        targets.iter().filter(|name| wish.targets.is_empty() || wish.targets.contains(name)).collect();
    println!("building {} fuzz targets ...", chosen.len());
    let programs = compile(root, &folder, &chosen)?;
    println!(
        "{:<18} {:>12} {:>9} {:>8} {:>8} {:>8}",
        "target", "executions", "per s", "edges", "inputs", "MB"
    );
    let waiting = Mutex::new(chosen.into_iter().collect::<VecDeque<_>>());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || {
        let mut failed = Vec::new();
        while let Some(name) = next() {
            let outcome = fuzz(&folder, &programs.join(name), name, wish.seconds)?;
            println!("{}", row(name, &outcome, wish.seconds));
            if outcome.failure.is_some() {
                failed.push(name.as_str());
            }
        }
        Ok(failed)
    };
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..wish.jobs).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        results.collect::<Result<Vec<_>>>()
    })?;
    let failed = failed.concat();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("these targets failed: {}; what made them is in fuzz/artifacts", failed.join(", "))
}

/// A row of the table, and why it failed if it did.
fn row(name: &str, outcome: &Outcome, seconds: u64) -> String {
    let Outcome { executions, edges, inputs, memory, failure } = outcome;
    let speed = executions / seconds.max(1);
    let verdict = failure.as_ref().map_or("ok".to_owned(), |text| format!("FAILED\n{text}"));
    format!("{name:<18} {executions:>12} {speed:>9} {edges:>8} {inputs:>8} {memory:>8}  {verdict}")
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
    let mut command = build::command();
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
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\"", ADDRESS_SPACE])
        .arg(program)
        .arg(&corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-dict={}", folder.join("words.dict").display()))
        .arg("-print_final_stats=1")
        .args(LIMITS)
        .env("PODWIRE_FUZZ_SEEDS", &corpus)
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {program:?}"))?;
    let text = child.stderr.take().map(last_lines).transpose()?.unwrap_or_default();
    let done = child.wait()?;
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
        failure: (!done.success()).then(|| lines[lines.len().saturating_sub(60)..].join("\n")),
    })
}

/// The end of what a target says: some tell of every input that they did not understand.
fn last_lines(stderr: impl std::io::Read) -> Result<String> {
    const KEPT: usize = 400;
    let mut lines = VecDeque::new();
    for line in BufReader::new(stderr).split(b'\n') {
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line?).into_owned());
    }
    Ok(Vec::from(lines).join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_seconds_and_jobs_come_in_any_order() {
        let wish = Wish::of(&["-j2", "spdy", "600", "layer"]).unwrap();
        let targets = vec!["spdy".to_owned(), "layer".to_owned()];
        assert_eq!(wish, Wish { targets, seconds: 600, jobs: 2 });
        assert_eq!(Wish::of(&["jobs=3"]).unwrap(), Wish { targets: Vec::new(), seconds: SECONDS, jobs: 3 });
        assert!(Wish::of(&["-jmany"]).is_err());
    }
}
