//! What a kind does is in its strategy: nobody else asks a kind for its name.
//!
//! The names are read from the rows of the table. In the API server every literal that is one of them counts, in
//! `base/api`, where such words are values of fields as well, only one that a kind is found or asked by. Tests may.

use std::collections::BTreeSet;

use super::File;

/// The table of kinds.
const ROWS: &str = "base/api/src/kinds/rows.rs";

/// Where kinds are told apart on purpose.
const HOMES: &[&str] = &[
    "base/api/src/kinds",
    "base/api/src/strategy",
    "control/apiserver/src/admission/",
    "control/apiserver/src/authz/",
];

/// Files that name kinds all the same, each with its reason.
const ALLOWED: &[(&str, &str)] = &[
    ("base/api/src/convert.rs", "the two shapes of an event"),
    ("base/api/src/convert/autoscaler.rs", "the versions of an autoscaler"),
    ("control/apiserver/src/advertise.rs", "a field of slices is called as a kind is"),
    ("control/apiserver/src/endpoints.rs", "a field of slices is called as a kind is"),
    ("control/apiserver/src/handler/review.rs", "each review is a question of its own"),
    ("control/apiserver/src/handler/tokens.rs", "what a token can be bound to"),
    ("control/apiserver/src/impersonate.rs", "an account is impersonated by the resource's name"),
    ("control/apiserver/src/request.rs", "the word in a path that a namespace follows"),
];

pub fn breaches(files: &[File]) -> Vec<String> {
    let rows = files.iter().find(|file| file.path == ROWS);
    found(files, &names(rows.map_or("", |file| file.text.as_str())), ALLOWED)
}

fn found(files: &[File], names: &BTreeSet<&str>, allowed: &[(&str, &str)]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut needed = vec![false; allowed.len()];
    let elsewhere = |file: &&File| !HOMES.iter().any(|home| file.path.starts_with(home));
    for file in files.iter().filter(elsewhere).filter(|file| !file.is_generated()) {
        let lines = lines_that_name(file, names);
        match allowed.iter().position(|(path, _)| *path == file.path) {
            Some(at) => needed[at] = !lines.is_empty(),
            None => breaches.extend(lines.into_iter().map(|(line, name)| {
                format!("{}:{line}: {name:?} is a kind's name; what differs is its strategy's", file.path)
            })),
        }
    }
    let idle = allowed.iter().zip(needed).filter(|(_, needed)| !needed);
    breaches.extend(idle.map(|((path, _), _)| format!("xtask/src/tidy/kinds.rs: {path} names no kind")));
    breaches
}

/// Kinds and resources of the rows.
fn names(rows: &str) -> BTreeSet<&str> {
    let after = |key: &'static str| rows.split(key).skip(1).filter_map(|rest| rest.split('"').next());
    after(" kind: \"").chain(after(" resource: \"")).collect()
}

fn lines_that_name<'a>(file: &File, names: &BTreeSet<&'a str>) -> Vec<(usize, &'a str)> {
    let everything = file.path.starts_with("control/apiserver/src/");
    if !everything && !file.path.starts_with("base/api/src/") || file.path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let production =
        file.code().zip(file.text.lines()).take_while(|(_, line)| !line.contains("#[cfg(test)]"));
    let asked =
        [".is(\"", "by_gvk(", "by_resource(", ".resource == ", ".kind == ", "&*kind.kind", "&*kind.resource"];
    let mut lines = Vec::new();
    for (at, (code, _)) in production.enumerate() {
        if everything || asked.iter().any(|word| code.contains(word)) {
            let named = code.split('"').skip(1).step_by(2).find_map(|word| names.get(word));
            lines.extend(named.map(|name| (at + 1, *name)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let rows = r#"Row { group: "", kind: "Pod", resource: "pods", singular: "pod" },"#;
        let file = File { path: path.to_owned(), text: text.to_owned() };
        found(&[file], &names(rows), &[("base/api/src/a.rs", "a reason")])
            .into_iter()
            .filter(|line| !line.starts_with("xtask"))
            .collect()
    }

    #[test]
    fn a_kinds_name_outside_its_place_is_a_breach() {
        let server = "control/apiserver/src/handler.rs";
        assert_eq!(said(server, "//! A.\nif kind.resource == \"pods\" {}\n").len(), 1);
        assert!(said(server, "//! A.\nif kind.is(\"\", \"Pod\") {}\n")[0].contains("handler.rs:2"));
        assert!(said(server, "//! About \"pods\".\n").is_empty(), "a comment");
        assert!(said(server, "#[cfg(test)]\nlet a = \"pods\";\n").is_empty(), "a test");
        assert!(said("control/apiserver/src/admission/a.rs", "\"pods\"").is_empty());
        assert!(said("base/api/src/strategy/pod.rs", "kind.is(\"\", \"Pod\")").is_empty());
        assert!(said("base/api/src/a.rs", "kind.is(\"\", \"Pod\")").is_empty(), "an exception");
        assert_eq!(said("base/api/src/b.rs", "kind.is(\"\", \"Pod\")").len(), 1);
        assert!(said("base/api/src/b.rs", "json!({\"pods\": 1})").is_empty(), "a field");
        assert!(said("node/kubelet/src/b.rs", "\"pods\"").is_empty());
    }

    #[test]
    fn an_exception_that_nothing_needs_is_a_breach() {
        let file = File { path: "base/api/src/a.rs".to_owned(), text: String::new() };
        assert_eq!(found(&[file], &BTreeSet::new(), &[("base/api/src/a.rs", "a reason")]).len(), 1);
    }
}
