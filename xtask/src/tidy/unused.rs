//! Lines of manifests that nothing needs: crates that no source names, and lines that are there twice.
//!
//! A crate is named by its path (`serde::`) or by `use`. A module of ours with a crate's name hides that the crate is not
//! used: cheap to check, not perfect.

use super::{
    File,
    metadata::{Kind, Package, Workspace},
};

/// Crates that are needed although no source names them: package, dependency, reason.
const ALLOWED: &[(&str, &str, &str)] = &[];

pub fn breaches(workspace: &Workspace, files: &[File]) -> Vec<String> {
    unused(workspace, files, ALLOWED)
}

fn unused(workspace: &Workspace, files: &[File], allowed: &[(&str, &str, &str)]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut needed = vec![false; allowed.len()];
    for (package, folder) in workspace.members() {
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let crate_name = workspace.in_source(dependency);
            let place = match dependency.kind {
                Kind::Normal => format!("{folder}/src/"),
                Kind::Dev => format!("{folder}/"),
                Kind::Build => format!("{folder}/build.rs"),
            };
            let of_package = |file: &&File| file.path.starts_with(&place);
            if repeats(package, name, dependency.kind) {
                breaches.push(format!("{folder}/Cargo.toml: {name} is a dependency already, also of tests"));
            } else if !files.iter().filter(of_package).any(|file| names(file, &crate_name)) {
                let exception =
                    allowed.iter().position(|(from, to, _)| (*from, *to) == (package.name.as_str(), name));
                match exception {
                    Some(at) => needed[at] = true,
                    None => breaches.push(format!("{folder}/Cargo.toml: {name} is named nowhere in {place}")),
                }
            }
        }
    }
    let idle = allowed.iter().zip(needed).filter(|(_, needed)| !needed);
    breaches.extend(
        idle.map(|((from, to, _), _)| format!("xtask/src/tidy/unused.rs: {from} names {to}, or lost it")),
    );
    breaches
}

/// Whether a line for tests repeats one for all, and asks for no features of its own.
fn repeats(package: &Package, name: &str, kind: Kind) -> bool {
    let find = |kind| package.dependencies.iter().find(move |one| one.name == name && one.kind == kind);
    kind == Kind::Dev
        && find(Kind::Normal)
            .zip(find(Kind::Dev))
            .is_some_and(|(normal, dev)| dev.features.iter().all(|feature| normal.features.contains(feature)))
}

/// Whether a file names a crate.
fn names(file: &File, name: &str) -> bool {
    file.code().any(|line| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], line[at + name.len()..].trim_start());
            let begins = !before.ends_with(|last: char| last.is_alphanumeric() || last == '_')
                && !before
                    .trim_end_matches("::")
                    .ends_with(|last: char| last.is_alphanumeric() || last == '_');
            let used = before.trim_end().ends_with("use") || before.trim_end().ends_with("extern crate");
            begins && (after.starts_with("::") || (used && after.starts_with([';', ' '])))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::Dependency;

    fn workspace(dependencies: Vec<Dependency>) -> Workspace {
        let folder = Some("node/a".to_owned());
        Workspace {
            packages: vec![Package { name: "a".to_owned(), folder, dependencies, ..Package::default() }],
        }
    }

    fn on(name: &str, kind: Kind) -> Dependency {
        Dependency { name: name.to_owned(), kind, ..Dependency::default() }
    }

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_crate_that_no_source_names_is_a_breach() {
        let all = workspace(vec![on("tower-http", Kind::Normal)]);
        let with = |text| unused(&all, &[file("node/a/src/lib.rs", text)], &[]).len();
        assert_eq!(with("fn a() {}"), 1);
        assert_eq!(with("use other::tower_http::B;"), 1, "somebody else's");
        assert_eq!(with("use my_tower_http::B;"), 1);
        assert_eq!(with("// see tower_http::B"), 1);
        assert_eq!(with("use tower_http::B;"), 0);
        assert_eq!(with("let a = ::tower_http::b();"), 0);
    }

    #[test]
    fn what_only_tests_name_is_no_dependency_of_the_product() {
        let files = [file("node/a/src/lib.rs", ""), file("node/a/tests/t.rs", "use c::D;")];
        assert_eq!(unused(&workspace(vec![on("c", Kind::Normal)]), &files, &[]).len(), 1);
        assert_eq!(unused(&workspace(vec![on("c", Kind::Dev)]), &files, &[]).len(), 0);
    }

    #[test]
    fn a_line_that_is_there_twice_is_a_breach_unless_it_asks_for_more() {
        let files = [file("node/a/src/lib.rs", "use c::D;")];
        let mut more = on("c", Kind::Dev);
        assert_eq!(unused(&workspace(vec![on("c", Kind::Normal), more.clone()]), &files, &[]).len(), 1);
        more.features = vec!["test-util".to_owned()];
        assert_eq!(unused(&workspace(vec![on("c", Kind::Normal), more]), &files, &[]).len(), 0);
    }

    #[test]
    fn an_exception_that_nothing_needs_is_a_breach() {
        let allowed = [("a", "c", "a feature of it")];
        let unnamed = [file("node/a/src/lib.rs", "")];
        assert_eq!(unused(&workspace(vec![on("c", Kind::Normal)]), &unnamed, &allowed).len(), 0);
        assert_eq!(unused(&workspace(Vec::new()), &unnamed, &allowed).len(), 1);
    }
}
