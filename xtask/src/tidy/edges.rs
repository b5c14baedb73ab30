//! Who may know whom, in every section of every manifest, and what a crate must never be built with.

use super::metadata::{Kind, Workspace};

/// Edges that exist; a crate not listed may know none of ours.
const EDGES: &[(&str, &[&str])] = &[
    ("podwire-apiserver", &["podwire-store", "podwire-api", "podwire-cel", "podwire-trace", "podwire-wire"]),
    ("podwire-store", &["podwire-wire"]),
    ("podwire-scheduler", &["podwire-api", "podwire-cel", "podwire-client", "podwire-trace"]),
    ("podwire-controllers", &["podwire-api", "podwire-cel", "podwire-client"]),
    (
        "podwire-runtime",
        &[
            "podwire-container",
            "podwire-image",
            "podwire-cni-lib",
            "podwire-nri",
            "podwire-netdev",
            "podwire-wire",
            "podwire-linux",
            "podwire-trace",
        ],
    ),
    ("podwire-kubelet", &["podwire-api", "podwire-client", "podwire-wire", "podwire-linux", "podwire-trace"]),
    ("podwire-container", &["podwire-linux", "podwire-trace"]),
    ("podwire-cni-lib", &["podwire-linux", "podwire-netdev", "podwire-trace"]),
    ("podwire-netdev", &["podwire-linux"]),
    ("podwire-image", &["podwire-api", "podwire-linux", "podwire-trace", "podwire-wire"]),
    ("podwire-devplugin", &["podwire-linux", "podwire-wire"]),
    (
        "podwire-netplugin",
        &["podwire-api", "podwire-client", "podwire-linux", "podwire-nri", "podwire-trace"],
    ),
    (
        "podwire-netdriver",
        &[
            "podwire-api",
            "podwire-cel",
            "podwire-client",
            "podwire-linux",
            "podwire-netdev",
            "podwire-nri",
            "podwire-trace",
            "podwire-wire",
        ],
    ),
    ("podwire-nri", &["podwire-wire", "podwire-trace"]),
    ("podwire-cni", &["podwire-cni-lib"]),
    ("podwire-cel", &["podwire-api"]),
    ("podwire-client", &["podwire-wire"]),
    ("podwire-testkit", &["podwire-linux"]),
    (
        "podwire-bench",
        &[
            "podwire-testkit",
            "podwire-cni-lib",
            "podwire-linux",
            "podwire-netplugin",
            "podwire-nri",
            "podwire-wire",
        ],
    ),
    ("podwire-tests", &["podwire-image", "podwire-linux", "podwire-nri", "podwire-testkit", "podwire-wire"]),
    ("xtask", &["podwire-testkit"]),
];

/// Edges that only tests have, beside those above.
const TEST_EDGES: &[(&str, &[&str], &str)] = &[
    ("podwire-api", &["podwire-cel"], "claims carry expressions, which its tests judge too"),
    ("podwire-scheduler", &["podwire-apiserver", "podwire-store"], "tested against a real API server"),
    ("podwire-controllers", &["podwire-apiserver", "podwire-store"], "tested against a real API server"),
    ("podwire-kubelet", &["podwire-apiserver", "podwire-store"], "tested against a real API server"),
    (
        "podwire-netdriver",
        &["podwire-apiserver", "podwire-store", "podwire-testkit"],
        "tested against a real API server",
    ),
    ("podwire-container", &["podwire-testkit"], "cgroups and images of its own"),
    ("podwire-runtime", &["podwire-testkit"], "cgroups and images of its own"),
    ("podwire-tests", &["podwire-client", "podwire-netdev"], "plays every peer of the node"),
];

/// The composition root may know everybody.
const ROOT: &str = "podwire";

/// Crates that stay synchronous: neither they nor what they are built with may be built with tokio.
const SYNC: &[&str] =
    &["base/api", "base/cel", "base/linux", "node/container", "node/cni", "node/netdev", "podwire-cni"];

/// The only homes of raw system calls, and the tests' kit.
const RAW: &[&str] = &["base/linux", "node/container", "base/testkit"];

/// Crates that are raw system calls.
const RAW_CRATES: &[&str] = &["libc", "nix", "netlink-bindings", "netlink-sys"];

pub fn breaches(workspace: &Workspace) -> Vec<String> {
    let mut breaches = Vec::new();
    for (package, folder) in workspace.members() {
        let name = package.name.as_str();
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            if is_ours(to) && !may_know(name, to, dependency.kind) {
                breaches.push(format!(
                    "{folder}/Cargo.toml: {name} may not know {to} ({:?} dependency)",
                    dependency.kind
                ));
            }
            if RAW_CRATES.contains(&to) && !RAW.contains(&folder) {
                breaches
                    .push(format!("{folder}/Cargo.toml: raw {to} belongs in base/linux or node/container"));
            }
        }
        if SYNC.contains(&folder)
            && let Some(found) = workspace.reach(package).iter().find(|name| name.starts_with("tokio"))
        {
            breaches.push(format!("{folder}/Cargo.toml: {name} must stay free of tokio and reaches {found}"));
        }
    }
    breaches.extend(needless(workspace));
    breaches
}

fn is_ours(name: &str) -> bool {
    name == "xtask" || name == ROOT || name.starts_with("podwire-")
}

fn may_know(from: &str, to: &str, kind: Kind) -> bool {
    let listed = EDGES.iter().any(|(name, others)| *name == from && others.contains(&to));
    let tested = || TEST_EDGES.iter().any(|(name, others, _)| *name == from && others.contains(&to));
    from == ROOT || listed || (kind == Kind::Dev && tested())
}

/// Rows about crates that there are none of: a table that says more than there is hides what it says.
fn needless(workspace: &Workspace) -> impl Iterator<Item = String> {
    let froms = EDGES.iter().map(|(from, _)| *from).chain(TEST_EDGES.iter().map(|(from, _, _)| *from));
    let gone = froms.filter(|from| !workspace.members().any(|(package, _)| package.name == **from));
    let lines = gone.map(|from| format!("xtask/src/tidy/edges.rs: there is no crate {from}"));
    // A part of the workspace, as tests make, says nothing about the table.
    let whole = workspace.members().any(|(package, _)| package.name == ROOT);
    if whole { lines.collect::<Vec<_>>() } else { Vec::new() }.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::{Dependency, Package};

    fn package(name: &str, folder: &str, dependencies: &[(&str, Kind)]) -> Package {
        let asks = |&(name, kind): &(&str, Kind)| Dependency {
            name: name.to_owned(),
            kind,
            ..Dependency::default()
        };
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            folder: Some(folder.to_owned()),
            dependencies: dependencies.iter().map(asks).collect(),
            leads_to: dependencies.iter().map(|(name, _)| (*name).to_owned()).collect(),
            ..Package::default()
        }
    }

    fn said(packages: Vec<Package>) -> Vec<String> {
        breaches(&Workspace { packages })
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_a_breach_in_every_section() {
        for kind in [Kind::Normal, Kind::Dev, Kind::Build] {
            let kubelet = package("podwire-kubelet", "node/kubelet", &[("podwire-runtime", kind)]);
            assert_eq!(said(vec![kubelet]).len(), 1, "{kind:?}");
        }
        let kubelet = package("podwire-kubelet", "node/kubelet", &[("podwire-api", Kind::Normal)]);
        assert!(said(vec![kubelet]).is_empty());
    }

    #[test]
    fn an_edge_of_tests_is_no_edge_of_the_product() {
        let with = |kind| package("podwire-kubelet", "node/kubelet", &[("podwire-apiserver", kind)]);
        assert!(said(vec![with(Kind::Dev)]).is_empty());
        assert_eq!(said(vec![with(Kind::Normal)]).len(), 1);
    }

    #[test]
    fn tokio_behind_another_crate_is_a_breach() {
        let api = package("podwire-api", "base/api", &[("innocent", Kind::Normal)]);
        let mut innocent = package("innocent", "", &[("tokio", Kind::Normal)]);
        innocent.folder = None;
        let mut tokio = package("tokio", "", &[]);
        tokio.folder = None;
        assert!(said(vec![api, innocent, tokio])[0].contains("free of tokio"));
    }

    #[test]
    fn raw_system_calls_have_two_homes() {
        assert_eq!(said(vec![package("podwire-image", "node/image", &[("libc", Kind::Dev)])]).len(), 1);
        assert!(said(vec![package("podwire-linux", "base/linux", &[("libc", Kind::Normal)])]).is_empty());
    }

    #[test]
    fn a_row_about_no_crate_is_a_breach() {
        let all = said(vec![package("podwire", "podwire", &[])]);
        assert!(all.iter().any(|line| line.contains("there is no crate podwire-kubelet")), "{all:?}");
    }
}
