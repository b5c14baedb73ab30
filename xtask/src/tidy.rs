//! The laws of the tree, checked as text: who may know whom, where `unsafe` lives, how files open.
//!
//! Deliberately crude: it reads manifests and sources line by line, so that each law can be read here in one look.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

/// Edges that exist; a crate not listed may know none of ours. Test-only edges are not restricted.
const EDGES: &[(&str, &[&str])] = &[
    ("podwire-apiserver", &["podwire-store", "podwire-api", "podwire-wire"]),
    ("podwire-scheduler", &["podwire-api"]),
    ("podwire-controllers", &["podwire-api"]),
    (
        "podwire-runtime",
        &[
            "podwire-container",
            "podwire-image",
            "podwire-cni-lib",
            "podwire-nri",
            "podwire-wire",
            "podwire-linux",
        ],
    ),
    ("podwire-kubelet", &["podwire-api", "podwire-wire", "podwire-linux"]),
    ("podwire-container", &["podwire-linux"]),
    ("podwire-cni-lib", &["podwire-linux"]),
    ("podwire-image", &["podwire-linux"]),
    ("podwire-nri", &["podwire-wire"]),
    ("podwire-cni", &["podwire-cni-lib"]),
    ("podwire-testkit", &["podwire-linux"]),
    (
        "podwire-bench",
        &["podwire-testkit", "podwire-cni-lib", "podwire-linux", "podwire-nri", "podwire-wire"],
    ),
    ("podwire-tests", &["podwire-image", "podwire-testkit"]),
    ("xtask", &["podwire-testkit"]),
];

/// The composition root may know everybody.
const ROOT: &str = "podwire";

/// Crates that must stay synchronous.
const SYNC: &[&str] = &["base/api", "base/linux", "node/container", "node/cni", "podwire-cni"];

/// The only homes of `unsafe`, raw libc and raw netlink.
const RAW: &[&str] = &["base/linux", "node/container"];

/// Files over the hard limit of 800 lines, each with its reason.
const LONG: &[(&str, &str)] = &[
    ("base/api/src/schema/generated.rs", "the generated table of fields"),
    ("base/api/src/kinds/rows.rs", "one flat table, a row per kind"),
    ("base/api/src/table/columns.rs", "one flat table of printer columns"),
];

/// Checks every law; prints each breach and fails if there is one.
pub fn run(root: &Path) -> Result<()> {
    let mut breaches = Vec::new();
    for manifest in manifests(root)? {
        check_edges(root, &manifest, &mut breaches)?;
    }
    for file in sources(root)? {
        check_source(root, &file, &mut breaches)?;
    }
    check_ledger(root, &mut breaches)?;
    breaches.extend(crate::gen_proto::stale(root)?);
    for breach in &breaches {
        println!("tidy: {breach}");
    }
    if !breaches.is_empty() {
        bail!("{} breaches of the laws of the tree", breaches.len());
    }
    Ok(())
}

fn manifests(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in ["podwire", "podwire-cni", "tests", "bench", "xtask"] {
        found.push(root.join(folder).join("Cargo.toml"));
    }
    for folder in ["control", "node", "base"] {
        for entry in fs::read_dir(root.join(folder))? {
            found.push(entry?.path().join("Cargo.toml"));
        }
    }
    Ok(found)
}

fn check_edges(root: &Path, manifest: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(manifest)?;
    let shown = shown(root, manifest);
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("name = "))
        .map(|name| name.trim_matches('"').to_owned());
    let Some(name) = name else { bail!("{shown}: no package name") };
    if name == ROOT {
        return Ok(());
    }
    let allowed = EDGES.iter().find(|(from, _)| *from == name).map_or(&[][..], |(_, to)| to);
    let folder = shown.trim_end_matches("/Cargo.toml").to_owned();
    let mut section = String::new();
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.to_owned();
        }
        if section != "[dependencies]" {
            continue;
        }
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if dependency.starts_with("podwire") && !allowed.contains(&dependency) {
            breaches.push(format!("{shown}: {name} may not know {dependency}"));
        }
        if SYNC.contains(&folder.as_str()) && dependency.starts_with("tokio") {
            breaches.push(format!("{shown}: {name} must stay free of tokio"));
        }
        if !RAW.contains(&folder.as_str())
            && folder != "base/testkit"
            && matches!(dependency, "libc" | "nix" | "netlink-bindings" | "netlink-sys")
        {
            breaches.push(format!("{shown}: raw {dependency} belongs in base/linux or node/container"));
        }
    }
    Ok(())
}

fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["podwire", "podwire-cni", "control", "node", "base", "tests", "bench", "xtask", "fuzz"]
            .iter()
            .map(|folder| root.join(folder))
            .filter(|folder| folder.exists())
            .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if path
                    .file_name()
                    .is_some_and(|name| name != "target" && name != "corpus" && name != "artifacts")
                {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn check_source(root: &Path, file: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string(file)?;
    let shown = shown(root, file);
    if shown == "xtask/src/tidy.rs" {
        return Ok(());
    }
    let opening = text.lines().find(|line| !line.starts_with("#!")).unwrap_or_default();
    if !opening.starts_with("//!") {
        breaches.push(format!("{shown}: does not open with `//!`"));
    }
    if shown.ends_with("/mod.rs") {
        breaches.push(format!("{shown}: use foo.rs beside foo/"));
    }
    let generated = shown.contains("/gen/") || text.lines().take(3).any(|line| line.contains("Generated"));
    let production = text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
    if production > 800
        && !generated
        && !shown.contains("/tests")
        && !LONG.iter().any(|(path, _)| *path == shown)
    {
        breaches.push(format!("{shown}: {production} lines; split it or say why in tidy's list"));
    }
    let raw = RAW.iter().any(|home| shown.starts_with(home));
    for (at, line) in text.lines().enumerate() {
        let here = || format!("{shown}:{}", at + 1);
        let code = line.split("//").next().unwrap_or_default();
        if code.contains("#[ignore") {
            breaches.push(format!("{}: no test is ignored", here()));
        }
        if !raw
            && !shown.starts_with("base/testkit")
            && (code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl"))
        {
            breaches.push(format!("{}: unsafe belongs in base/linux or node/container", here()));
        }
        if line.contains("TODO") || line.contains("FIXME") {
            breaches.push(format!("{}: a TODO needs an issue, not a comment", here()));
        }
        if shown.ends_with("plan.rs")
            && ["async ", "std::fs", "fs::", "Instant::now", "SystemTime::now"]
                .iter()
                .any(|word| code.contains(word))
        {
            breaches.push(format!("{}: a planner has no I/O, no async, no clock", here()));
        }
    }
    Ok(())
}

/// Every row of docs/compat.md that is marked done names a test that exists.
fn check_ledger(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let ledger = root.join("docs/compat.md");
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for file in sources(root)? {
        let text = fs::read_to_string(&file)?;
        for line in text.lines() {
            if let Some(rest) = line.trim_start().split("fn ").nth(1) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                names.insert(name, shown(root, &file));
            }
        }
    }
    for (at, line) in fs::read_to_string(&ledger)?.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !cells.contains(&"done") {
            continue;
        }
        let tests: Vec<&str> =
            line.split('`').skip(1).step_by(2).filter(|word| names.contains_key(*word)).collect();
        if tests.is_empty() {
            breaches.push(format!("docs/compat.md:{}: marked done but names no test that exists", at + 1));
        }
    }
    Ok(())
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
