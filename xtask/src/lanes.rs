//! The test lanes: what each builds first, which tests it runs, and with which environment.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::{build, peers};

/// Every test that needs no peer from elsewhere.
pub fn test(root: &Path) -> Result<()> {
    let binaries = build::debug(root)?;
    let mut command = Command::new("cargo");
    command.args(["test", "--quiet", "--workspace", "--no-fail-fast"]).env("PODWIRE_BIN_DIR", binaries);
    finish(command.current_dir(root), "make test")
}

/// The tests with real peers whose names contain `part`.
pub fn interop(root: &Path, part: &str) -> Result<()> {
    let binaries = build::debug(root)?;
    let mut command = Command::new("cargo");
    command
        .args(["test", "--package", "podwire-tests", "--features", "interop", "--no-fail-fast", "--", "--test-threads=1"])
        .arg(part)
        .env("PODWIRE_BIN_DIR", binaries)
        .env("PODWIRE_PEERS", peers::default_folder());
    finish(command.current_dir(root), "interop")
}

/// The benchmark, in release; beside the peers when they are built.
pub fn bench(root: &Path, rest: &[&str]) -> Result<()> {
    let binaries = build::release(root)?;
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--release", "--package", "podwire-bench", "--"])
        .args(rest)
        .env("PODWIRE_BIN_DIR", binaries)
        .env("PODWIRE_PEERS", peers::default_folder());
    finish(command.current_dir(root), "bench")
}

fn finish(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().context("run cargo")?;
    if !status.success() {
        bail!("{what} failed: {status}");
    }
    Ok(())
}
