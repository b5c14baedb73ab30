//! `gen kinds`: the facts about every API message, read from the published Go modules of Kubernetes.
//!
//! The reader is a small Go program beside this crate; the table it prints is committed, so that a build needs no Go.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const VERSION: &str = "v0.36.4";

/// Writes `base/api/src/schema/generated.rs` and `base/api/src/go_types/generated.rs`.
pub fn run(root: &Path) -> Result<()> {
    for (target, words) in [("schema", &[] as &[&str]), ("go_types", &["go"])] {
        let target = root.join(format!("base/api/src/{target}/generated.rs"));
        std::fs::write(&target, generate(root, words)?)
            .with_context(|| format!("write {}", target.display()))?;
    }
    Ok(())
}

/// A table as the Go program prints it.
fn generate(root: &Path, words: &[&str]) -> Result<Vec<u8>> {
    let program = root.join("xtask/kinds");
    let api = module(&program, "k8s.io/api")?;
    let machinery = module(&program, "k8s.io/apimachinery")?;
    let extensions = module(&program, "k8s.io/apiextensions-apiserver")?;
    let output = Command::new("go")
        .args(["run", "."])
        .arg(&api)
        .arg(&machinery)
        .arg(&extensions)
        .args(words)
        .current_dir(&program)
        .output();
    let output = output.context("run go (needed only to regenerate)")?;
    if !output.status.success() {
        bail!("the reader of the Go modules failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// Downloads one module and gives the folder of its sources.
fn module(program: &Path, name: &str) -> Result<PathBuf> {
    let wanted = format!("{name}@{VERSION}");
    let output = Command::new("go").args(["mod", "download", "-json", &wanted]).current_dir(program).output();
    let output = output.context("run go (needed only to regenerate)")?;
    if !output.status.success() {
        bail!("cannot download {wanted}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).context("read what go printed")?;
    facts["Dir"].as_str().map(PathBuf::from).with_context(|| format!("go named no folder for {wanted}"))
}
