//! etcd's own tests on `podwire etcd`: the suite `common` with the real etcdctl, and `robustness` with a member that is killed.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "the counts belong into the log of the run")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Result, ensure};
use podwire_testkit::{
    isolate,
    node::{bin_dir, peer},
};
use podwire_tests::suite::{self, Outcomes};

/// Tests that fail.
const EXPECTED: &str = include_str!("../peers/etcd-tests/expected.txt");

/// A folder of programs as the suites want it, and where their certificates are.
struct Suites {
    folder: tempfile::TempDir,
    sources: PathBuf,
}

impl Suites {
    fn new() -> Result<Suites> {
        let folder = tempfile::tempdir()?;
        symlink(bin_dir().join("podwire"), folder.path().join("etcd"))?;
        symlink(peer("etcdctl")?, folder.path().join("etcdctl"))?;
        let sources = suite::sources("etcd-tests", "go.etcd.io/etcd/tests/v3")?;
        Ok(Suites { folder, sources })
    }

    /// A program of tests, run in a folder of its own.
    fn said(&self, program: &str, words: &[&str]) -> Result<String> {
        let place = self.folder.path().join("work");
        fs::create_dir_all(&place)?;
        let told = Command::new(peer(program)?)
            .current_dir(&place)
            .args(words)
            .arg(format!("--bin-dir={}", self.folder.path().display()))
            .arg(format!("--cert-dir={}", self.sources.join("fixtures").display()))
            .env("TMPDIR", &place)
            .stdin(Stdio::null())
            .output()?;
        Ok(String::from_utf8_lossy(&told.stdout).into_owned())
    }

    /// What became of the tests of a program. Each has a process of its own: what one leaves behind, as tests that fail do, makes
    /// those after it skip themselves.
    fn run(&self, program: &str) -> Result<Outcomes> {
        let begun = Instant::now();
        let mut all = Outcomes::new();
        for test in self.said(program, &["-test.list=."])?.lines().filter(|line| line.starts_with("Test")) {
            let text =
                self.said(program, &["-test.v", "-test.timeout=10m", &format!("-test.run=^{test}$")])?;
            for (name, outcome) in suite::of_go(&text) {
                let outcome = outcome.map_err(|_| said_of(&text, &name));
                all.insert(name, outcome);
            }
        }
        let passed = all.values().filter(|outcome| outcome.is_ok()).count();
        let seconds = begun.elapsed().as_secs_f64();
        println!("{program}: {passed} passed, {} failed, in {seconds:.1} s", all.len() - passed);
        ensure!(passed > 0, "no test of {program} passes");
        Ok(all)
    }
}

/// What was said between the beginning of a test and its end, as far as one wants to read it.
fn said_of(text: &str, name: &str) -> String {
    let from = text.find(&format!("=== RUN   {name}\n")).unwrap_or_default();
    let tail = &text[from..];
    let end = tail.find(&format!("--- FAIL: {name} ")).unwrap_or(tail.len());
    let lines: Vec<&str> = tail[..end].lines().filter(|line| !line.contains("logger.go")).collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[test]
fn etcds_own_suite_passes_on_podwire_etcd_but_for_what_is_listed() -> Result<()> {
    isolate()?;
    let all = Suites::new()?.run("etcd-suites/common")?;
    suite::compare(&all, &suite::expectations(EXPECTED)?)
}

#[test]
fn etcds_robustness_test_finds_nothing_when_podwire_etcd_is_killed() -> Result<()> {
    isolate()?;
    let all = Suites::new()?.run("etcd-suites/robustness")?;
    suite::compare(&all, &[])
}
