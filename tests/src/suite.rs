//! Test suites of other projects, which `make peers` compiles: what became of each test, and what of that was expected.
//!
//! Expectations are lines `NAME: WHY`, `*` standing for any letters. What a line names has to fail, everything else has to pass: a
//! list that is too long is an error as well as one that is too short.

use std::{collections::BTreeMap, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};

/// Whether each test passed, with what was said of those that did not. Skipped ones are not in it.
pub type Outcomes = BTreeMap<String, Result<(), String>>;

/// Where the sources of a module lie that a go.mod of ours (the folder under tests/peers) requires.
pub fn sources(ours: &str, module: &str) -> Result<PathBuf> {
    let place = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers")).join(ours);
    let mut listing = Command::new("go");
    listing.current_dir(&place).args(["list", "-m", "-f", "{{.Dir}}", module]);
    let told = listing.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").output().context("run go")?;
    let folder = String::from_utf8(told.stdout)?.trim().to_owned();
    let said = String::from_utf8_lossy(&told.stderr);
    ensure!(told.status.success() && !folder.is_empty(), "the sources of {module} are not here: {said}");
    Ok(folder.into())
}

/// What `-test.v` of Go says, read: the tests that have no tests inside them.
pub fn of_go(text: &str) -> Outcomes {
    let mut all = Outcomes::new();
    for line in text.lines() {
        let Some(rest) = line.trim_start().strip_prefix("--- ") else { continue };
        let Some((word, name)) = rest.split_once(": ") else { continue };
        let name = name.split(" (").next().unwrap_or(name).to_owned();
        match word {
            "PASS" => all.insert(name, Ok(())),
            "FAIL" => all.insert(name, Err(String::new())),
            _ => None,
        };
    }
    let names: Vec<String> = all.keys().cloned().collect();
    all.retain(|name, _| !names.iter().any(|other| other.starts_with(&format!("{name}/"))));
    all
}

/// What Ginkgo's report in JSON says.
pub fn of_ginkgo(report: &serde_json::Value) -> Outcomes {
    let mut all = Outcomes::new();
    let suites = report.as_array().into_iter().flatten();
    for spec in suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten()) {
        let mut words: Vec<&str> = Vec::new();
        words.extend(
            spec["ContainerHierarchyTexts"].as_array().into_iter().flatten().filter_map(|w| w.as_str()),
        );
        words.extend(spec["LeafNodeText"].as_str());
        let kind = spec["LeafNodeType"].as_str().unwrap_or_default();
        let name = if kind == "It" { words.join(" ") } else { format!("[{kind}] {}", words.join(" ")) };
        match spec["State"].as_str() {
            Some("passed") => all.entry(name).or_insert(Ok(())),
            Some("skipped" | "pending") | None => continue,
            // Of specs with one name, the one that failed is what is told.
            Some(state) => {
                let why = spec["Failure"]["Message"].as_str().unwrap_or(state).to_owned();
                all.insert(name.clone(), Err(why));
                continue;
            }
        };
    }
    all
}

/// The lines of a list of expectations.
pub fn expectations(text: &str) -> Result<Vec<(&str, &str)>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").with_context(|| format!("{line:?} gives no reason"))).collect()
}

/// Fails unless exactly what is listed has failed.
pub fn compare(outcomes: &Outcomes, expected: &[(&str, &str)]) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, outcome) in outcomes {
        let listed = expected.iter().find(|(pattern, _)| matches(pattern, name));
        match (outcome, listed) {
            (Err(why), None) => wrong.push(format!("fails: {name}\n{why}")),
            (Ok(()), Some((pattern, _))) => {
                wrong.push(format!("passes, and is listed as {pattern:?}: {name}"))
            }
            _ => {}
        }
    }
    for (pattern, _) in expected {
        if !outcomes.keys().any(|name| matches(pattern, name)) {
            wrong.push(format!("is listed, and there is no such test: {pattern}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Whether a name has the form of a pattern.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_says_of_the_innermost_tests_is_read() {
        let text = "=== RUN   TestA\n--- FAIL: TestA (0.1s)\n    --- PASS: TestA/one (0.0s)\n    --- FAIL: TestA/two (0.0s)\n\
                    --- PASS: TestB (0.0s)\n--- SKIP: TestC (0.0s)\nok\n";
        let all = of_go(text);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["TestA/one", "TestA/two", "TestB"]);
        assert!(all["TestA/two"].is_err() && all["TestB"].is_ok());
    }

    #[test]
    fn a_list_must_be_neither_too_short_nor_too_long() {
        let all = of_go("--- FAIL: TestA/two (0.0s)\n--- PASS: TestB (0.0s)\n");
        let list = |text: &'static str| compare(&all, &expectations(text).unwrap());
        list("# a remark\nTest*/two: a reason\n").unwrap();
        assert!(format!("{:#}", list("").unwrap_err()).contains("fails: TestA/two"));
        assert!(format!("{:#}", list("Test*: a reason").unwrap_err()).contains("passes, and is listed"));
        let third = list("Test*/two: why\nTestC: why").unwrap_err();
        assert!(format!("{third:#}").contains("no such test: TestC"));
        assert!(expectations("TestA").is_err());
    }
}
