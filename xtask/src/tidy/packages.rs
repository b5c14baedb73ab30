//! What comes from elsewhere: under which licences, and in how many versions.

use std::collections::{BTreeMap, BTreeSet};

use super::metadata::Workspace;

/// Licences of which nothing is asked but to name the author, and that go with Apache-2.0.
const LICENSES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that are there in several versions, and why nothing can be done about it here.
const SEVERAL: &[(&str, &str)] = &[
    ("base64", "k8s-openapi, tonic and tower-http have not followed kube-client, pem and us to 0.23"),
    ("bitflags", "the old one is defmt's, which jiff's manifest names and nothing here builds"),
    ("cpufeatures", "crypto_secretbox has not followed sha2 to crypto-common 0.2"),
    ("crypto-common", "crypto_secretbox has not followed sha2"),
    ("foldhash", "each hashbrown has its own"),
    ("getrandom", "ring 0.2; ahash of kube-runtime 0.3; tempfile and rand 0.4"),
    ("hashbrown", "petgraph of prost-build 0.15, not in the product; kube-runtime 0.16; indexmap 0.17"),
    (
        "syn",
        "serde, thiserror, tokio-macros and clap have gone on to 3, the other macros have not; not in the product",
    ),
    ("unicode-width", "miette of protox, not in the product; annotate-snippets of kube-client's YAML"),
];

pub fn breaches(workspace: &Workspace) -> Vec<String> {
    let mut breaches = licenses(workspace);
    breaches.extend(versions(workspace, SEVERAL));
    breaches
}

fn licenses(workspace: &Workspace) -> Vec<String> {
    let refused = workspace.packages.iter().filter_map(|package| {
        let named = format!("{} {}", package.name, package.version);
        match &package.license {
            None => Some(format!("{named}: no licence")),
            Some(terms) if !is_allowed(terms) => {
                Some(format!("{named}: {terms} is not in the list of licences"))
            }
            Some(_) => None,
        }
    });
    refused.collect()
}

fn versions(workspace: &Workspace, allowed: &[(&str, &str)]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &workspace.packages {
        by_name.entry(&package.name).or_default().insert(&package.version);
    }
    let is_allowed = |name: &str| allowed.iter().any(|(other, _)| *other == name);
    let several = by_name.iter().filter(|(name, versions)| versions.len() > 1 && !is_allowed(name));
    let several = several.map(|(name, versions)| {
        let versions: Vec<&str> = versions.iter().copied().collect();
        format!(
            "{name}: in several versions ({}); see `cargo tree --invert {name}@VERSION`",
            versions.join(", ")
        )
    });
    let single = |name: &str| by_name.get(name).is_none_or(|versions| versions.len() < 2);
    let idle = allowed.iter().filter(|(name, _)| single(name));
    let idle =
        idle.map(|(name, _)| format!("xtask/src/tidy/packages.rs: {name} is there once or not at all"));
    several.chain(idle).collect()
}

/// Whether an SPDX expression can be met from the list. `/` is the old way to write `OR`.
fn is_allowed(terms: &str) -> bool {
    let spaced = terms.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = any_of(&words);
    met && rest.is_empty()
}

fn any_of<'a>(words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = all_of(words);
    while let Some((&"OR", more)) = rest.split_first() {
        let (other, after) = all_of(more);
        (met, rest) = (met || other, after);
    }
    (met, rest)
}

fn all_of<'a>(words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
    let (mut met, mut rest) = one(words);
    while let Some((&"AND", more)) = rest.split_first() {
        let (other, after) = one(more);
        (met, rest) = (met && other, after);
    }
    (met, rest)
}

fn one<'a>(words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inner @ ..] => {
            let (met, rest) = any_of(inner);
            (met, rest.get(1..).unwrap_or_default())
        }
        [license, "WITH", exception, rest @ ..] => {
            (LICENSES.contains(&format!("{license} WITH {exception}").as_str()), rest)
        }
        [license, rest @ ..] => (LICENSES.contains(license), rest),
        [] => (false, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::Package;

    fn package(name: &str, version: &str, license: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.map(str::to_owned),
            ..Package::default()
        }
    }

    #[test]
    fn an_expression_is_met_as_spdx_reads_it() {
        for good in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "MIT WITH other", "", "MIT MIT"]
        {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_licence_of_the_list_is_a_breach() {
        let packages = vec![
            package("a", "1.0.0", Some("GPL-3.0-only")),
            package("b", "1.0.0", None),
            package("c", "1.0.0", Some("MIT")),
        ];
        let said = licenses(&Workspace { packages });
        assert_eq!(said.len(), 2, "{said:?}");
    }

    #[test]
    fn a_crate_in_two_versions_is_a_breach_unless_a_reason_is_given() {
        let packages = vec![package("a", "1.0.0", None), package("a", "2.0.0", None)];
        let workspace = Workspace { packages };
        assert_eq!(versions(&workspace, &[]).len(), 1);
        assert_eq!(versions(&workspace, &[("a", "kube wants the old one")]).len(), 0);
        assert_eq!(versions(&Workspace::default(), &[("a", "kube wants the old one")]).len(), 1, "stale");
    }
}
