//! How a source file is written: how it opens, how long it is, what it is called, and what it must not hold.

use super::File;

/// The only homes of `unsafe`, and the tests' kit.
const UNSAFE: &[&str] = &["base/linux/", "node/container/", "base/testkit/"];

/// Names that say nothing about what is inside.
const BANNED: &[&str] = &["common", "core", "helpers", "manager", "misc", "mod", "types", "util", "utils"];

/// Files that are called so all the same, each with its reason.
const CALLED_SO: &[(&str, &str)] = &[("base/api/src/validate/core.rs", "the API group of that name")];

/// Lines before the tests at which a file is split.
const LONGEST: usize = 800;

/// This folder spells out what it looks for.
const SELF: &str = "xtask/src/tidy/sources.rs";

pub fn breaches(files: &[File]) -> Vec<String> {
    let mut breaches: Vec<String> = files.iter().flat_map(|file| of_file(file, CALLED_SO)).collect();
    let idle = CALLED_SO.iter().filter(|(path, _)| !files.iter().any(|file| file.path == *path));
    breaches.extend(idle.map(|(path, _)| format!("{SELF}: there is no file {path}")));
    breaches
}

fn of_file(file: &File, called_so: &[(&str, &str)]) -> Vec<String> {
    let path = &file.path;
    let mut breaches = Vec::new();
    let opening = file.text.lines().find(|line| !line.starts_with("#!")).unwrap_or_default();
    if !opening.starts_with("//!") {
        breaches.push(format!("{path}: does not open with `//!`"));
    }
    if let Some(name) = banned_name(path)
        && !called_so.iter().any(|(other, _)| other == path)
    {
        breaches.push(format!("{path}: {name:?} says nothing about what is inside"));
    }
    let production = file.text.split("#[cfg(test)]").next().unwrap_or_default().lines().count();
    if production > LONGEST && !file.is_generated() && !path.contains("/tests/") {
        breaches.push(format!("{path}: {production} lines; split it"));
    }
    if path == SELF {
        return breaches;
    }
    let raw = UNSAFE.iter().any(|home| path.starts_with(home));
    for (at, (line, code)) in file.text.lines().zip(file.code()).enumerate() {
        if let Some(what) = of_line(path, line, code, raw) {
            breaches.push(format!("{path}:{}: {what}", at + 1));
        }
    }
    breaches
}

/// The part of a path that says nothing, if there is one.
fn banned_name(path: &str) -> Option<&str> {
    let parts = path.trim_end_matches(".rs").split('/');
    // The name of a test's folder or of a crate's is not a module's.
    let modules = parts.skip_while(|part| !["src", "tests", "examples", "benches"].contains(part)).skip(1);
    modules.into_iter().find(|part| BANNED.contains(part))
}

fn of_line(path: &str, line: &str, code: &str, raw: bool) -> Option<&'static str> {
    if code.contains("#[ignore") {
        return Some("no test is ignored");
    }
    if !raw && ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word)) {
        return Some("unsafe belongs in base/linux or node/container");
    }
    if line.contains("TODO") || line.contains("FIXME") {
        return Some("a TODO needs an issue, not a comment");
    }
    let impure = ["async ", "std::fs", "fs::", "Instant::now", "SystemTime::now"];
    if is_planner(path) && impure.iter().any(|word| code.contains(word)) {
        return Some("a planner has no I/O, no async, no clock");
    }
    None
}

/// Files that decide and do nothing: `plan.rs`, and everything in a folder `plan`.
fn is_planner(path: &str) -> bool {
    path.ends_with("/plan.rs") || path.ends_with("_plan.rs") || path.contains("/plan/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        of_file(&File { path: path.to_owned(), text: text.to_owned() }, &[("a/src/core.rs", "of the group")])
    }

    fn one(path: &str, text: &str, part: &str) {
        let said = said(path, text);
        assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
    }

    #[test]
    fn a_file_opens_with_what_it_is_for() {
        one("a/src/b.rs", "fn b() {}\n", "does not open");
        assert!(said("a/src/b.rs", "#![allow(x)]\n//! B.\n").is_empty());
    }

    #[test]
    fn a_name_that_says_nothing_is_refused_unless_a_reason_is_given() {
        one("a/src/utils.rs", "//! B.\n", "says nothing");
        one("a/src/b/mod.rs", "//! B.\n", "says nothing");
        one("a/tests/common/b.rs", "//! B.\n", "says nothing");
        assert!(said("a/src/core.rs", "//! The group.\n").is_empty());
        assert!(said("node/core/src/b.rs", "//! B.\n").is_empty(), "a crate's folder is another law's");
    }

    #[test]
    fn a_long_file_is_split_unless_a_program_wrote_it() {
        let long = "//! B.\n".to_owned() + &"fn b() {}\n".repeat(LONGEST);
        one("a/src/b.rs", &long, "split it");
        assert!(said("a/src/gen/b.rs", &long).is_empty());
        let tested = "//! B.\n#[cfg(test)]\n".to_owned() + &"fn b() {}\n".repeat(LONGEST);
        assert!(said("a/src/b.rs", &tested).is_empty());
    }

    #[test]
    fn what_must_not_be_in_a_file_is_found_on_its_line() {
        one("a/src/b.rs", "//! B.\n#[ignore]\n", "a/src/b.rs:2: no test is ignored");
        one("a/src/b.rs", "//! B.\nunsafe { b() }\n", "unsafe belongs");
        assert!(said("base/linux/src/b.rs", "//! B.\nunsafe { b() }\n").is_empty());
        one("a/src/b.rs", "//! B.\n// TODO later\n", "needs an issue");
        one("a/src/plan.rs", "//! B.\nlet now = Instant::now();\n", "a planner");
        one("a/src/plan/b.rs", "//! B.\nasync fn b() {}\n", "a planner");
        assert!(said("a/src/b.rs", "//! B.\nlet now = Instant::now();\n").is_empty());
    }
}
