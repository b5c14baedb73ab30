//! The test lanes: what each builds first, which tests it runs, and with which environment.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{build, peers};

/// The last commit before the files and sockets were closed to others; what people may have running.
pub const VERSION_BEFORE: &str = "29628e7";

/// Bytes that a program as shipped may have. The aim is 25 MB; this keeps it from growing until then.
const SHIPPED_MOST: u64 = 25_000_000;

/// Every test that needs no peer from elsewhere.
pub fn test(root: &Path) -> Result<()> {
    let binaries = build::beside_tests(root)?;
    let mut command = build::command();
    command.args(["test", "--quiet", "--workspace", "--no-fail-fast"]).env("PODWIRE_BIN_DIR", binaries);
    finish(command.current_dir(root), "make test")
}

/// The tests with real peers whose names contain `part`; all of them with the comparisons of the two API servers, of the
/// arithmetic, of the validation, of CEL, of the topology manager, of the scheduler and of its allocator of devices.
pub fn interop(root: &Path, part: &str) -> Result<()> {
    let binaries = build::beside_tests(root)?;
    build::plugin_example(root)?;
    let lane = |which: &[&str]| {
        let mut command = build::command();
        command
            .args(["test", "--no-fail-fast"])
            .args(which)
            .args(["--", "--test-threads=1", part])
            .env("PODWIRE_BIN_DIR", &binaries)
            .env("PODWIRE_PEERS", peers::default_folder());
        finish(command.current_dir(root), &format!("interop: cargo test {}", which.join(" ")))
    };
    if !part.is_empty() {
        // Of the whole workspace, like `make test`, so that what that has built is used again.
        return lane(&["--workspace", "--features", "podwire-tests/interop", "--test", "interop_*"]);
    }
    let whole = lane(&["--package", "podwire-tests", "--features", "interop"]);
    lane(&[
        "--package",
        "podwire-api",
        "--features",
        "interop",
        "--test",
        "arithmetic",
        "--test",
        "validation",
    ])?;
    lane(&["--package", "podwire-cel", "--features", "interop", "--test", "upstream"])?;
    lane(&["--package", "podwire-kubelet", "--features", "interop", "--test", "topology"])?;
    lane(&["--package", "podwire-scheduler", "--features", "interop", "--test", "upstream"])?;
    lane(&["--package", "podwire-scheduler", "--features", "interop", "--test", "allocator"])?;
    let store = [
        "--package",
        "podwire-store",
        "--features",
        "interop",
        "--test",
        "upstream",
        "--test",
        "conformance",
    ];
    lane(&store)?;
    lane(&["--package", "podwire-apiserver", "--features", "interop", "--test", "differential"])?;
    whole
}

/// Builds the programs of `commit` and lets this version take over what they left running.
pub fn takeover(root: &Path, commit: &str) -> Result<()> {
    let old = version(root, commit)?;
    let binaries = build::debug(root)?;
    let mut command = build::command();
    command
        .args(["test", "--package", "podwire-tests", "--features", "takeover", "--test", "takeover"])
        .args(["--", "--test-threads=1"])
        .env("PODWIRE_BIN_DIR", binaries)
        .env("PODWIRE_OLD_BIN_DIR", old);
    finish(command.current_dir(root), &format!("takeover from {commit}"))
}

/// The folder with the programs of a commit, which are built in a work tree of their own unless they are there.
fn version(root: &Path, commit: &str) -> Result<PathBuf> {
    let mut asked = Command::new("git");
    asked.args(["rev-parse", "--verify", &format!("{commit}^{{commit}}")]).current_dir(root);
    let answer = asked.output().context("run git")?;
    if !answer.status.success() {
        bail!("{commit} is no commit here: {}", String::from_utf8_lossy(&answer.stderr).trim());
    }
    let commit = String::from_utf8(answer.stdout)?.trim().to_owned();
    let home = build::target(root).join("takeover");
    let programs = home.join(&commit);
    if programs.is_dir() {
        return Ok(programs);
    }
    fs::create_dir_all(&home)?;
    let source = tempfile::Builder::new().prefix("source-").tempdir_in(&home)?;
    let worktree = |words: &[&str], after: &[&str]| {
        let mut git = Command::new("git");
        git.arg("worktree").args(words).arg(source.path()).args(after).current_dir(root);
        finish(&mut git, &format!("git worktree {}", words.join(" ")))
    };
    worktree(&["add", "--quiet", "--detach"], &[&commit])?;
    let built = programs_of(source.path(), &home.join("target"), &programs);
    worktree(&["remove", "--force"], &[])?;
    built.map(|()| programs)
}

/// Builds a work tree and puts its programs into `place`, all of them or none.
fn programs_of(source: &Path, target: &Path, place: &Path) -> Result<()> {
    let cargo = |words: &[&str]| {
        let mut cargo = build::command();
        cargo.args(words).env("CARGO_TARGET_DIR", target).current_dir(source);
        finish(&mut cargo, &format!("cargo {}", words.join(" ")))
    };
    cargo(&["build", "--quiet", "--package", "podwire", "--package", "podwire-cni"])?;
    let app = ["rustc", "--quiet", "--package", "podwire-testkit", "--bin", "pod-app"];
    cargo(&[&app[..], &["--", "-C", "target-feature=+crt-static"]].concat())?;
    let aside = place.with_extension("new");
    fs::create_dir_all(&aside)?;
    for name in ["podwire", "podwire-cni", "pod-app"] {
        fs::copy(target.join("debug").join(name), aside.join(name))
            .with_context(|| format!("copy {name}"))?;
    }
    fs::rename(&aside, place).with_context(|| format!("name {}", place.display()))
}

/// Builds what is shipped, says what it weighs, and fails if a program is heavier than it may be.
pub fn dist(root: &Path) -> Result<()> {
    let place = build::dist(root)?;
    for name in ["podwire", "podwire-cni"] {
        let size = fs::metadata(place.join(name)).with_context(|| format!("look at {name}"))?.len();
        println!("{}: {:.1} MB", place.join(name).display(), size as f64 / 1e6);
        if size > SHIPPED_MOST {
            bail!("{name} is larger than {:.0} MB", SHIPPED_MOST as f64 / 1e6);
        }
    }
    Ok(())
}

/// The benchmark, in release; beside the peers when they are built.
pub fn bench(root: &Path, rest: &[&str]) -> Result<()> {
    let binaries = build::release(root)?;
    if rest.contains(&"cni") {
        build::attach_floor(root)?;
    }
    let mut command = build::command();
    command
        .args(["run", "--quiet", "--release", "--package", "podwire-bench", "--"])
        .args(rest)
        .env("PODWIRE_BIN_DIR", binaries)
        .env("PODWIRE_PEERS", peers::default_folder());
    finish(command.current_dir(root), "bench")
}

/// The swap matrix: 18 cells, with `all` many more, or those named (`ooouoooo`: axes in the table's order, o ours, u upstream).
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
