//! controller-runtime's own suites, as far as they start test environments, on links to podwire.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "the times belong into the log of the run")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    isolate,
    node::{bin_dir, peer},
};
use podwire_tests::suite;
use rustix::process::{Pid, Signal, kill_process};

/// The packages of controller-runtime, below `pkg`, whose suites start an environment.
const PACKAGES: &[&str] = &[
    "builder",
    "cache",
    "client",
    "client/apiutil",
    "cluster",
    "controller",
    "controller/controllerutil",
    "envtest",
    "handler",
    "internal/controller",
    "internal/recorder",
    "internal/testing/controlplane",
    "manager",
    "manager/internal/integration",
    "metrics/filters",
    "reconcile",
    "source",
    "webhook",
];

/// The suites that are plain Go tests.
const WITHOUT_GINKGO: &[&str] = &["client/apiutil"];

/// Specs that fail, each behind the name of its package.
const EXPECTED: &str = include_str!("../peers/controller-runtime/expected.txt");

/// What became of the tests of a package.
fn outcomes(sources: &Path, assets: &Path, package: &str) -> Result<suite::Outcomes> {
    let report = sources.join("report.json");
    let mut program = Command::new(peer(&format!("envtest-suites/{}", package.replace('/', "_")))?);
    program
        .current_dir(sources.join("pkg").join(package))
        .args(["-test.v", "-test.timeout=20m"])
        .env("KUBEBUILDER_ASSETS", assets)
        .stdin(Stdio::null());
    if !WITHOUT_GINKGO.contains(&package) {
        // Many specs give things one second, which is short on a busy machine: what fails is tried again.
        program.args(["--ginkgo.no-color", "--ginkgo.timeout=20m", "--ginkgo.flake-attempts=4"]);
        program.arg(format!("--ginkgo.json-report={}", report.display()));
    }
    let told = program.output().with_context(|| format!("run the suite of {package}"))?;
    let text = String::from_utf8_lossy(&told.stdout);
    let mut all = suite::of_go(&text);
    ensure!(!all.is_empty(), "{package}: {text}\n{}", String::from_utf8_lossy(&told.stderr));
    if !WITHOUT_GINKGO.contains(&package) {
        let report: serde_json::Value = serde_json::from_slice(&fs::read(&report)?)?;
        let specs = suite::of_ginkgo(&report);
        let told = report[0]["SuiteSucceeded"] == true || specs.values().any(Result::is_err);
        ensure!(told && !specs.is_empty(), "{package}: {text}");
        // The one Go test that runs all specs tells nothing that they do not.
        let before = text.split("Running Suite: ").next().unwrap_or_default();
        let runner = before.rsplit("=== RUN ").next().unwrap_or_default().trim().lines().next();
        all.remove(runner.unwrap_or_default());
        all.extend(specs);
    }
    Ok(all.into_iter().map(|(name, outcome)| (format!("{package} {name}"), outcome)).collect())
}

/// Ends the servers that a suite has left running, as some do, also upstream's.
fn end_what_is_left(assets: &Path) -> Result<()> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if !line.starts_with(assets.as_os_str().as_encoded_bytes()) {
            continue;
        }
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // Ignored: it may have ended meanwhile.
            kill_process(pid, Signal::KILL).ok();
        }
    }
    Ok(())
}

#[test]
fn controller_runtimes_own_suites_pass_on_links_to_podwire() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let assets = folder.path().join("assets");
    fs::create_dir(&assets)?;
    for name in ["etcd", "kube-apiserver"] {
        symlink(bin_dir().join("podwire"), assets.join(name))?;
    }
    symlink(peer("kubectl")?, assets.join("kubectl"))?;
    // In a copy: suites may write beside what they read.
    let sources = folder.path().join("sources");
    let module = suite::sources("controller-runtime", "sigs.k8s.io/controller-runtime")?;
    let copied = Command::new("cp").args(["-r", "--no-preserve=mode"]).arg(module).arg(&sources).status()?;
    ensure!(copied.success(), "cp: {copied}");
    // Go's module cache forgets that files are programs.
    let programs = sources.join("pkg/internal/testing/controlplane/testdata");
    for entry in fs::read_dir(programs)? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o755))?;
    }
    let mut all = suite::Outcomes::new();
    for package in PACKAGES {
        let begun = Instant::now();
        let outcomes = outcomes(&sources, &assets, package);
        end_what_is_left(&assets)?;
        let outcomes = outcomes?;
        let failed = outcomes.values().filter(|outcome| outcome.is_err()).count();
        let seconds = begun.elapsed().as_secs_f64();
        println!("{package}: {} passed, {failed} failed, in {seconds:.1} s", outcomes.len() - failed);
        all.extend(outcomes);
    }
    suite::compare(&all, &suite::expectations(EXPECTED)?)
}
