//! docs/compat.md against the tests: a row that says `done` names tests that are there, in the lanes that it says.
//!
//! A word in backticks with an underscore in the cell before the lane is the name of a test.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, metadata::Workspace};

/// The lanes of each test, by its name.
pub type Lanes = BTreeMap<String, BTreeSet<&'static str>>;

/// What a row may say in its last cell, beside `-` for a row without proof.
const KNOWN: &[&str] = &["test", "smoke", "interop", "vm", "takeover"];

/// Every test of the tree with the lanes that run it.
pub fn tests(workspace: &Workspace, files: &[File]) -> Lanes {
    let by_path: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let mut all = Lanes::new();
    for (_, folder) in workspace.members() {
        for file in files.iter().filter(|file| file.path.starts_with(&format!("{folder}/src/"))) {
            for name in test_names(&file.text) {
                all.entry(name).or_default().insert("test");
            }
        }
    }
    let targets = workspace.members().flat_map(|(package, _)| &package.targets);
    for target in targets.filter(|target| target.is_test) {
        let lane = by_path.get(target.file.as_str()).map_or("test", |text| feature_lane(text));
        for path in module_files(&target.file, &by_path) {
            let text = by_path.get(path.as_str()).copied().unwrap_or_default();
            let (own, others) = split_lanes(text);
            let named = test_names(&own).into_iter().map(|name| (name, lane));
            let others =
                others.iter().flat_map(|(lane, part)| test_names(part).into_iter().map(|name| (name, *lane)));
            for (name, lane) in named.chain(others) {
                let lanes = all.entry(name.clone()).or_default();
                lanes.insert(lane);
                if lane == "interop" && name.contains("smoke") {
                    lanes.insert("smoke");
                }
                // `make vm` runs the attempts to get out of a container as well.
                if path.contains("hostile/ways_out") {
                    lanes.insert("vm");
                }
            }
        }
    }
    all
}

/// The lane of a test file: the feature it is built for, or that of everybody.
fn feature_lane(text: &str) -> &'static str {
    let feature = |name: &&&str| text.contains(&format!("#![cfg(feature = \"{name}\")]"));
    KNOWN.iter().find(feature).copied().unwrap_or("test")
}

/// A file without its modules that are built for a lane only, and these.
fn split_lanes(text: &str) -> (String, Vec<(&'static str, String)>) {
    let (mut own, mut others): (String, Vec<(&str, String)>) = (String::new(), Vec::new());
    let (mut marked, mut inside) = (None, false);
    for line in text.lines() {
        let lane = KNOWN.iter().find(|lane| line == format!("#[cfg(feature = \"{lane}\")]"));
        if let (Some(lane), true) = (marked.take(), line.starts_with("mod ") && line.ends_with('{')) {
            others.push((lane, String::new()));
            inside = true;
        }
        marked = lane.copied();
        let part = if inside { others.last_mut().map(|(_, part)| part) } else { None };
        let part = part.unwrap_or(&mut own);
        part.push_str(line);
        part.push('\n');
        inside &= line != "}";
    }
    (own, others)
}

/// A file and the modules it declares, near or far, as rustc finds them.
fn module_files(first: &str, by_path: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut found = Vec::new();
    let mut next = vec![(first.to_owned(), true)];
    while let Some((path, is_first)) = next.pop() {
        let Some(text) = by_path.get(path.as_str()) else { continue };
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let below =
            if is_first { folder.to_owned() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) };
        let mut given: Option<&str> = None;
        for line in text.lines().map(str::trim) {
            if let Some(place) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
                given = Some(place);
            } else if let Some(module) = module_name(line) {
                let file = match given.take() {
                    Some(place) => normal(&format!("{folder}/{place}")),
                    None => format!("{below}/{module}.rs"),
                };
                next.push((file, false));
            }
        }
        found.push(path);
    }
    found
}

fn module_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

/// A path without `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The functions that are marked as tests; in a file with a `main` of its own, every function at its top.
fn test_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    if text.lines().any(|line| line.starts_with("fn main()")) {
        let tops = text.lines().filter_map(|line| line.strip_prefix("fn "));
        return tops.map(identifier).collect();
    }
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        }
        if let Some((_, rest)) = line.split_once("fn ").filter(|_| marked && !line.starts_with("//")) {
            names.push(identifier(rest));
            marked = false;
        } else if !line.is_empty()
            && !line.starts_with("#[")
            && !line.starts_with("//")
            && !line.ends_with(']')
        {
            marked = false;
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

pub fn breaches(ledger: &str, tests: &Lanes) -> Vec<String> {
    let mut breaches = Vec::new();
    for (at, line) in ledger.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", .., proof, lanes, ""] = cells.as_slice() else { continue };
        let is_row = cells.iter().any(|cell| ["done", "partial", "not"].contains(cell));
        if is_row {
            let said = of_row(cells.contains(&"done"), proof, lanes, tests);
            breaches.extend(said.into_iter().map(|what| format!("docs/compat.md:{}: {what}", at + 1)));
        }
    }
    breaches
}

fn of_row(is_done: bool, proof: &str, lanes: &str, tests: &Lanes) -> Vec<String> {
    let lanes: Vec<&str> = lanes.split(',').map(str::trim).filter(|lane| *lane != "-").collect();
    let unknown = lanes.iter().filter(|lane| !KNOWN.contains(lane));
    let mut breaches: Vec<String> = unknown.map(|lane| format!("there is no lane {lane:?}")).collect();
    let is_name = |word: &&str| {
        word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let words: Vec<&str> = proof.split('`').skip(1).step_by(2).filter(is_name).collect();
    let mut proved: BTreeSet<&str> = BTreeSet::new();
    for word in &words {
        match tests.get(*word) {
            None => breaches.push(format!("there is no test {word}")),
            Some(run_by) => {
                let here: Vec<&str> = lanes.iter().copied().filter(|lane| run_by.contains(lane)).collect();
                if here.is_empty() {
                    breaches.push(format!("{word} runs in {run_by:?}, the row says {lanes:?}"));
                }
                proved.extend(here);
            }
        }
    }
    if is_done && words.is_empty() {
        breaches.push("marked done and names no test".to_owned());
    }
    if is_done {
        let bare = lanes.iter().filter(|lane| KNOWN.contains(lane) && !proved.contains(*lane));
        breaches.extend(bare.map(|lane| format!("no test of the row runs in {lane}")));
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::{Package, Target};

    fn lanes(list: &[(&str, &'static str)]) -> Lanes {
        let mut all = Lanes::new();
        for (name, lane) in list {
            all.entry((*name).to_owned()).or_default().insert(lane);
        }
        all
    }

    fn one(row: &str, tests: &Lanes, part: &str) {
        let said = breaches(row, tests);
        assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
    }

    #[test]
    fn a_row_needs_a_test_that_is_there_and_runs_in_its_lane() {
        let tests = lanes(&[("a_pod_runs", "test"), ("a_pod_stops", "interop")]);
        assert!(breaches("| pods | done | `a_pod_runs` | test |", &tests).is_empty());
        one("| pods | done | `a_pod_walks` and `a_pod_runs` | test |", &tests, "no test a_pod_walks");
        one("| pods | partial | `a_pod_walks` | test |", &tests, "no test a_pod_walks");
        one("| pods | done | by hand | - |", &tests, "names no test");
        assert_eq!(breaches("| pods | done | `a_pod_runs` | vm |", &tests).len(), 2, "lane of word and row");
        one("| pods | done | `a_pod_runs` | test, interop |", &tests, "no test of the row runs in interop");
        one("| pods | done | `a_pod_runs` | test, tset |", &tests, "no lane \"tset\"");
        assert!(breaches("| pods | not | | - |", &tests).is_empty());
        assert!(breaches("| thing | state | proof | lane |\n|---|---|---|---|", &tests).is_empty());
    }

    #[test]
    fn only_functions_that_are_marked_are_tests() {
        let text = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(flavor = \"x\")]\n// Why.\n#[allow(c)]\nasync fn d() {}\n";
        assert_eq!(test_names(text), ["a", "d"]);
        assert_eq!(test_names("fn main() {\n    a()\n}\nfn a() {}\n"), ["main", "a"], "a harness of its own");
    }

    #[test]
    fn a_module_that_is_built_for_a_lane_is_in_it() {
        let text = "#[test]\nfn a() {}\n#[cfg(feature = \"interop\")]\nmod b {\n    #[test]\n    fn c() {}\n}\n#[test]\nfn d() {}\n";
        let (own, others) = split_lanes(text);
        assert_eq!(test_names(&own), ["a", "d"]);
        assert_eq!(others.len(), 1);
        assert_eq!((others[0].0, test_names(&others[0].1)), ("interop", vec!["c".to_owned()]));
    }

    #[test]
    fn a_test_is_in_the_lane_of_the_file_that_declares_its_module() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(
                "tests/tests/interop_a.rs",
                "#![cfg(feature = \"interop\")]\nmod parts;\n#[path = \"../b/c.rs\"]\nmod c;\n",
            ),
            file("tests/tests/parts.rs", "mod deep;\n#[test]\nfn in_part() {}\n"),
            file("tests/tests/parts/deep.rs", "#[test]\nfn smoke_in_deep() {}\n"),
            file("tests/b/c.rs", "#[test]\nfn in_c() {}\n"),
            file("tests/src/lib.rs", "#[test]\nfn beside() {}\n"),
        ];
        let target = Target { file: "tests/tests/interop_a.rs".to_owned(), is_test: true };
        let folder = Some("tests".to_owned());
        let packages = vec![Package { folder, targets: vec![target], ..Package::default() }];
        let found = tests(&Workspace { packages }, &files);
        let expected = lanes(&[
            ("in_part", "interop"),
            ("smoke_in_deep", "interop"),
            ("smoke_in_deep", "smoke"),
            ("in_c", "interop"),
            ("beside", "test"),
        ]);
        assert_eq!(found, expected);
    }
}
