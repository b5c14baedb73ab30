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

/// The tests with real peers whose names contain `part`; all of them with the comparison of the two API servers.
pub fn interop(root: &Path, part: &str) -> Result<()> {
    let binaries = build::debug(root)?;
    build::plugin_example(root)?;
    let lane = |package: &str, rest: &[&str]| {
        let mut command = Command::new("cargo");
        command
            .args(["test", "--package", package, "--features", "interop", "--no-fail-fast"])
            .args(rest)
            .args(["--", "--test-threads=1", part])
            .env("PODWIRE_BIN_DIR", &binaries)
            .env("PODWIRE_PEERS", peers::default_folder());
        finish(command.current_dir(root), &format!("interop of {package}"))
    };
    let whole = lane("podwire-tests", &[]);
    if part.is_empty() {
        lane("podwire-apiserver", &["--test", "differential"])?;
    }
    whole
}

/// The benchmark, in release; beside the peers when they are built.
pub fn bench(root: &Path, rest: &[&str]) -> Result<()> {
    let binaries = build::release(root)?;
    if rest.contains(&"cni") {
        build::attach_floor(root)?;
    }
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--release", "--package", "podwire-bench", "--"])
        .args(rest)
        .env("PODWIRE_BIN_DIR", binaries)
        .env("PODWIRE_PEERS", peers::default_folder());
    finish(command.current_dir(root), "bench")
}

/// The swap matrix: 12 cells, `all` 32, or one by its name (`ooouo`: axes in the table's order, o ours, u upstream).
pub fn matrix(root: &Path, words: &[&str]) -> Result<()> {
    if std::env::var_os("PODWIRE_BIN_DIR").is_none() {
        let binaries = build::release(root)?;
        // The cells' threads read these; a process of its own has them from the start.
        let mut again = Command::new(std::env::current_exe()?);
        again
            .arg("matrix")
            .args(words)
            .env("PODWIRE_BIN_DIR", binaries)
            .env("PODWIRE_PEERS", peers::default_folder());
        return finish(again.current_dir(root), "matrix");
    }
    let only: Vec<&str> = words.iter().copied().filter(|word| *word != "all").collect();
    crate::matrix::run(root, words.contains(&"all"), &only)
}

fn finish(command: &mut Command, what: &str) -> Result<()> {
    let status = command.status().context("run cargo")?;
    if !status.success() {
        bail!("{what} failed: {status}");
    }
    Ok(())
}
