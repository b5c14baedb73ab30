//! The laws of the tree: who may know whom, what may be depended on, where `unsafe` lives, how files open, and that the
//! ledger names real tests.
//!
//! Dependencies are read as cargo resolves them ([`metadata`]), sources as text, line by line, so that each law can be
//! read in one look. Every list of exceptions says why; an exception that nothing needs any more is itself a breach.

mod edges;
mod kinds;
mod ledger;
mod metadata;
mod packages;
mod sources;
mod unused;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::metadata::Workspace;

/// Checks every law; prints each breach and fails if there is one.
pub fn run(root: &Path) -> Result<()> {
    let workspace = Workspace::read(root)?;
    let files = rust_files(root)?;
    let mut breaches = edges::breaches(&workspace);
    breaches.extend(unused::breaches(&workspace, &files));
    breaches.extend(packages::breaches(&workspace));
    breaches.extend(kinds::breaches(&files));
    breaches.extend(sources::breaches(&files));
    breaches.extend(ledger::breaches(
        &fs::read_to_string(root.join("docs/compat.md"))?,
        &ledger::tests(&workspace, &files),
    ));
    #[cfg(feature = "proto")]
    breaches.extend(crate::gen_proto::stale(root)?);
    for breach in &breaches {
        println!("tidy: {breach}");
    }
    if !breaches.is_empty() {
        bail!("{} breaches of the laws of the tree", breaches.len());
    }
    Ok(())
}

/// A source file.
struct File {
    /// Its path from the root of the repository.
    path: String,
    text: String,
}

impl File {
    /// Its lines without comments.
    fn code(&self) -> impl Iterator<Item = &str> {
        // What follows a colon is an address in a string, not a comment.
        let comment =
            |line: &str| line.match_indices("//").map(|(at, _)| at).find(|at| !line[..*at].ends_with(':'));
        self.text.lines().map(move |line| &line[..comment(line).unwrap_or(line.len())])
    }

    /// Whether a program wrote it.
    fn is_generated(&self) -> bool {
        self.path.contains("/gen/") || self.path.ends_with("/generated.rs")
    }
}

/// Every Rust file of ours, in the order of their paths.
fn rust_files(root: &Path) -> Result<Vec<File>> {
    let tops = ["podwire", "podwire-cni", "control", "node", "base", "tests", "bench", "xtask", "fuzz"];
    let mut folders: Vec<PathBuf> = tops.iter().map(|folder| root.join(folder)).collect();
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() {
                if !["target", "corpus", "artifacts"].iter().any(|other| name == *other) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(File { path: path.strip_prefix(root).unwrap_or(&path).display().to_string(), text })
    };
    paths.into_iter().map(read).collect()
}
