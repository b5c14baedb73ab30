//! The workspace as cargo resolves it: packages, what each declares, and what that leads to.
//!
//! Only what the laws ask for is kept. Packages for other systems than Linux are left out, as cargo does not fetch them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What is resolved.
#[derive(Default)]
pub struct Workspace {
    /// Every package, ours first.
    pub packages: Vec<Package>,
}

/// One package, ours or another's.
#[derive(Default)]
pub struct Package {
    /// What cargo calls it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub license: Option<String>,
    /// What its library is called in source; nothing for a package without one.
    pub library: Option<String>,
    /// Where it lies under the root; nothing if it is not ours.
    pub folder: Option<String>,
    /// What its manifest asks for.
    pub dependencies: Vec<Dependency>,
    /// What is built of it.
    pub targets: Vec<Target>,
    /// The packages it is built with, by id; those for its tests are left out.
    pub leads_to: Vec<String>,
}

/// A line of a manifest.
#[derive(Clone, Default)]
pub struct Dependency {
    /// The package.
    pub name: String,
    /// What the manifest calls it, if something else.
    pub rename: Option<String>,
    /// Which section it is in.
    pub kind: Kind,
    /// Whether it asks for features beyond what the workspace's list says.
    pub features: Vec<String>,
}

/// Section of a dependency.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `[dependencies]`, for any target.
    #[default]
    Normal,
    /// `[dev-dependencies]`.
    Dev,
    /// `[build-dependencies]`.
    Build,
}

/// One thing that is built of a package.
#[derive(Clone, Default)]
pub struct Target {
    /// Its first file, from the root of the repository.
    pub file: String,
    /// Whether it is a test of its own (`tests/*.rs`).
    pub is_test: bool,
}

impl Workspace {
    /// Asks cargo.
    pub fn read(root: &Path) -> Result<Self> {
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let words = ["metadata", "--format-version=1", "--locked", "--filter-platform", &platform];
        let done =
            Command::new("cargo").args(words).current_dir(root).output().context("run cargo metadata")?;
        if !done.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        Self::parse(root, &serde_json::from_slice(&done.stdout)?)
            .context("cargo's metadata is not as expected")
    }

    /// Reads what cargo says.
    fn parse(root: &Path, said: &Value) -> Option<Self> {
        let ours: BTreeSet<&str> = list(&said["workspace_members"]).filter_map(Value::as_str).collect();
        let mut built_with: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for node in list(&said["resolve"]["nodes"]) {
            let of_product =
                |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev");
            let ids = list(&node["deps"]).filter(of_product).filter_map(|one| text(&one["pkg"]));
            built_with.insert(node["id"].as_str()?, ids.collect());
        }
        let under = |path: &Value| {
            let path = Path::new(path.as_str()?).strip_prefix(root).ok()?;
            Some(path.display().to_string())
        };
        let mut packages = Vec::new();
        for package in list(&said["packages"]) {
            let id = package["id"].as_str()?;
            let is_ours = ours.contains(id);
            packages.push(Package {
                id: id.to_owned(),
                name: text(&package["name"])?,
                version: text(&package["version"])?,
                license: text(&package["license"]),
                library: list(&package["targets"]).find(|target| is_library(target)).and_then(library_name),
                folder: if is_ours {
                    Some(under(&package["manifest_path"])?.trim_end_matches("/Cargo.toml").to_owned())
                } else {
                    None
                },
                dependencies: list(&package["dependencies"]).map(dependency).collect::<Option<_>>()?,
                targets: list(&package["targets"])
                    .filter_map(|target| {
                        let is_test = list(&target["kind"]).any(|kind| kind == "test");
                        Some(Target { file: under(&target["src_path"])?, is_test })
                    })
                    .collect(),
                leads_to: built_with.remove(id).unwrap_or_default(),
            });
        }
        packages.sort_by_key(|package| (package.folder.is_none(), package.name.clone()));
        Some(Self { packages })
    }

    /// Our packages with the folders they are in.
    pub fn members(&self) -> impl Iterator<Item = (&Package, &str)> {
        self.packages.iter().filter_map(|package| Some((package, package.folder.as_deref()?)))
    }

    /// The names of everything a package is built with, near or far.
    pub fn reach(&self, package: &Package) -> BTreeSet<&str> {
        let by_id: BTreeMap<&str, &Package> =
            self.packages.iter().map(|one| (one.id.as_str(), one)).collect();
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = package.leads_to.iter().map(String::as_str).collect();
        while let Some(id) = next.pop() {
            if let Some(one) = by_id.get(id)
                && seen.insert(one.name.as_str())
            {
                next.extend(one.leads_to.iter().map(String::as_str));
            }
        }
        seen
    }

    /// What a dependency is called in source.
    pub fn in_source(&self, dependency: &Dependency) -> String {
        let library = || {
            let package = self.packages.iter().find(|package| package.name == dependency.name)?;
            package.library.clone()
        };
        let name = dependency.rename.clone().or_else(library).unwrap_or_else(|| dependency.name.clone());
        name.replace('-', "_")
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn is_library(target: &Value) -> bool {
    list(&target["kind"]).any(|kind| ["lib", "rlib", "proc-macro"].iter().any(|name| kind == name))
}

fn library_name(target: &Value) -> Option<String> {
    text(&target["name"])
}

fn dependency(said: &Value) -> Option<Dependency> {
    Some(Dependency {
        name: text(&said["name"])?,
        rename: text(&said["rename"]),
        kind: match said["kind"].as_str() {
            Some("dev") => Kind::Dev,
            Some("build") => Kind::Build,
            _ => Kind::Normal,
        },
        features: list(&said["features"]).filter_map(text).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_read_with_its_folder_its_library_and_what_it_leads_to() {
        let said = serde_json::json!({
            "workspace_members": ["ours"],
            "packages": [
                {"id": "ours", "name": "a-b", "version": "1.0.0", "license": "MIT", "manifest_path": "/root/node/a/Cargo.toml",
                 "dependencies": [{"name": "c", "rename": "d", "kind": "dev", "features": ["x"]}],
                 "targets": [{"name": "a_b", "kind": ["lib"], "src_path": "/root/node/a/src/lib.rs"},
                             {"name": "t", "kind": ["test"], "src_path": "/root/node/a/tests/t.rs"}]},
                {"id": "theirs", "name": "c", "version": "2.0.0", "license": null, "manifest_path": "/other/Cargo.toml",
                 "dependencies": [], "targets": []},
            ],
            "resolve": {"nodes": [
                {"id": "ours", "deps": [{"pkg": "theirs", "dep_kinds": [{"kind": null}]}]},
                {"id": "theirs", "deps": [{"pkg": "ours", "dep_kinds": [{"kind": "dev"}]}]},
            ]},
        });
        let workspace = Workspace::parse(Path::new("/root"), &said).unwrap();
        let (ours, folder) = workspace.members().next().unwrap();
        assert_eq!((ours.name.as_str(), folder, ours.library.as_deref()), ("a-b", "node/a", Some("a_b")));
        assert_eq!(ours.targets[1].file, "node/a/tests/t.rs");
        assert!(ours.targets[1].is_test && !ours.targets[0].is_test);
        assert_eq!(ours.dependencies[0].kind, Kind::Dev);
        assert_eq!(workspace.in_source(&ours.dependencies[0]), "d");
        assert_eq!(workspace.reach(ours), BTreeSet::from(["c"]));
        assert!(workspace.reach(&workspace.packages[1]).is_empty(), "tests lead nowhere");
    }
}
