//! podwire's client verbs beside the real kubectl on the same objects: output, words on stderr, exit codes.
#![cfg(feature = "interop")]

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use podwire_testkit::{Node, isolate, node::bin_dir};

const OBJECTS: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web, tier: "1"}
  annotations: {note: "a <b> & 'c'", when: "2026-01-02T03:04:05Z", flag: "true", nothing: ""}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "localhost/pod-app:latest", imagePullPolicy: Never, args: [serve, "80"]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {number: "1", lines: "one\ntwo: 3\n", plain: words with spaces}
"#;

/// What a program said and how it ended; ages differ by when it was asked.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

struct Pair<'a> {
    node: &'a Node,
    differences: Vec<String>,
}

impl Pair<'_> {
    fn said(&self, mut command: Command, args: &[&str], stdin: Option<&Path>) -> Result<Said> {
        let input = match stdin {
            Some(path) => File::open(path)?.into(),
            None => Stdio::null(),
        };
        let done = command.args(args).current_dir(&self.node.data_dir).stdin(input).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said { out: ageless(&text(&done.stdout)), err: text(&done.stderr), code: done.status.code() })
    }

    fn podwire(&self) -> Command {
        let mut command = Command::new(bin_dir().join("podwire"));
        command.env("PODWIRE_DATA_DIR", &self.node.data_dir).env_remove("KUBECONFIG");
        command
    }

    /// Asks both the same, between them whatever puts things back.
    fn same_after(
        &mut self,
        args: &[&str],
        stdin: Option<&Path>,
        again: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let theirs = self.said(self.node.kubectl_command()?, args, stdin)?;
        again()?;
        let ours = self.said(self.podwire(), args, stdin)?;
        if ours != theirs {
            self.differences.push(format!("{}\nkubectl: {theirs:#?}\npodwire: {ours:#?}", args.join(" ")));
        }
        Ok(())
    }

    fn same(&mut self, line: &str) -> Result<()> {
        let args: Vec<&str> = line.split_whitespace().collect();
        self.same_after(&args, None, &|| Ok(()))
    }
}

/// Ages as one word, and the space after them as if all were equally long: they differ by when one asked.
fn ageless(text: &str) -> String {
    let is_age = |word: &str| {
        let mut digits = false;
        let whole = word.chars().all(|c| match c {
            '0'..='9' => {
                digits = true;
                true
            }
            's' | 'm' | 'h' => std::mem::take(&mut digits),
            _ => false,
        });
        whole && !digits && !word.is_empty()
    };
    let line = |line: &str| {
        let mut shown: Vec<&str> = Vec::new();
        for word in line.split(' ') {
            let after_age =
                shown.iter().rev().find(|word| !word.is_empty()).is_some_and(|word| *word == "AGE");
            if word.is_empty() && after_age {
                continue;
            }
            shown.push(if is_age(word) { "AGE" } else { word });
        }
        shown.join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn finish(pair: Pair<'_>) {
    assert!(pair.differences.is_empty(), "{}", pair.differences.join("\n\n"));
}

fn node_with_objects() -> Result<Node> {
    isolate()?;
    let node = Node::up(&[])?;
    fs::write(node.data_dir.join("objects.yaml"), OBJECTS)?;
    node.kubectl(["apply", "-f", &node.data_dir.join("objects.yaml").display().to_string()])?;
    node.kubectl(["wait", "--for=condition=Ready", "pod/web", "--timeout=30s"])?;
    Ok(node)
}

#[test]
fn get_prints_what_kubectl_prints() -> Result<()> {
    let node = node_with_objects()?;
    let mut pair = Pair { node: &node, differences: Vec::new() };
    for form in ["", "-o wide", "-o yaml", "-o json", "-o name", "--no-headers", "--show-labels"] {
        for what in ["pods", "pod/web", "cm conf", "po,cm"] {
            pair.same(&format!("get {what} {form}"))?;
        }
    }
    for line in [
        "get pod web",
        "get pod/web cm/conf",
        "get nodes",
        "get nodes -o wide",
        "get ns --show-labels",
        "get svc -o wide",
        "get pods -A",
        "get pods -A -o wide",
        "get pods -n kube-system",
        "get pods -n kube-system -o json",
        "get pods -n nowhere",
        "get pods -l app=web",
        "get pods -l app=other",
        "get pods -l tier=1,app!=x",
        "get pods --field-selector status.phase=Running",
        "get pods web -A",
        "get pod nope",
        "get pod web nope",
        "get pod web nope -o yaml",
        "get nonsense",
        "get sa,secrets",
        "get deploy",
        "get all",
        "get leases -A",
    ] {
        pair.same(line)?;
    }
    finish(pair);
    node.down()
}

#[test]
fn exec_and_logs_say_and_end_as_kubectl_does() -> Result<()> {
    let node = node_with_objects()?;
    let mut pair = Pair { node: &node, differences: Vec::new() };
    for line in [
        "exec web -- /pod-app echo hi there",
        "exec pod/web -c main -- /pod-app exit 7",
        "exec web -- /pod-app cat /nothing",
        "exec nope -- /pod-app",
        "exec web -c nope -- /pod-app",
        "exec web -- /not-there",
        "exec web",
        "logs web",
        "logs pod/web --tail 1",
        "logs web main",
        "logs web -c main --limit-bytes 5",
        "logs web --since=1h",
        "logs web --timestamps",
        "logs nope",
        "logs web -c nope",
        "logs web -p",
    ] {
        pair.same(line)?;
    }
    let input = node.data_dir.join("objects.yaml");
    pair.same_after(&["exec", "-i", "web", "--", "/pod-app", "cat"], Some(&input), &|| Ok(()))?;
    finish(pair);
    node.down()
}

#[test]
fn apply_creates_changes_and_complains_as_kubectl_does() -> Result<()> {
    let node = node_with_objects()?;
    let at = |name: &str| node.data_dir.join(name);
    fs::create_dir(at("folder"))?;
    fs::write(at("folder/a.yaml"), OBJECTS)?;
    fs::write(
        at("folder/b.json"),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"},"data":{"b":"2"}}"#,
    )?;
    fs::write(at("folder/readme.txt"), "not a manifest")?;
    fs::write(
        at("invalid.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n",
    )?;
    fs::write(
        at("unknown.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containres: []}\n",
    )?;
    let mut pair = Pair { node: &node, differences: Vec::new() };
    for line in
        ["apply -f objects.yaml", "apply -f missing.yaml", "apply -f invalid.yaml", "apply -f unknown.yaml"]
    {
        pair.same(line)?;
    }
    let forget = || node.kubectl(["delete", "cm", "other"]).map(drop);
    pair.same_after(&["apply", "-f", "folder"], None, &forget)?;
    pair.same("apply -f folder")?;
    pair.same_after(&["apply", "-f", "-"], Some(&at("objects.yaml")), &|| Ok(()))?;
    // Each change is made by both, and each sees what the other remembered.
    let changed = OBJECTS.replace("number: \"1\", ", "");
    fs::write(at("changed.yaml"), &changed)?;
    let back = || node.kubectl(["apply", "-f", &at("objects.yaml").display().to_string()]).map(drop);
    pair.same_after(&["apply", "-f", "changed.yaml"], None, &back)?;
    pair.same("get cm conf -o yaml")?;
    let data = node.kubectl(["get", "cm", "conf", "-o", "jsonpath={.data}"])?;
    assert!(!data.contains("number"), "a field dropped from the manifest is gone: {data}");
    finish(pair);
    node.down()
}

#[test]
fn delete_says_and_ends_as_kubectl_does() -> Result<()> {
    let node = node_with_objects()?;
    let mut pair = Pair { node: &node, differences: Vec::new() };
    let again =
        || node.kubectl(["apply", "-f", &node.data_dir.join("objects.yaml").display().to_string()]).map(drop);
    for line in [
        "delete pod web",
        "delete pod/web cm/conf",
        "delete -f objects.yaml",
        "delete pods -l app=web",
        "delete pods --all",
        "delete pod web --now",
        "delete pod web --grace-period=0 --force",
        "delete pod web -o name",
    ] {
        let args: Vec<&str> = line.split_whitespace().collect();
        pair.same_after(&args, None, &again)?;
        again()?;
    }
    for line in [
        "delete pod nope",
        "delete pod nope --ignore-not-found",
        "delete pod",
        "delete nonsense x",
        "delete -f missing.yaml",
        "delete pods -l app=other",
    ] {
        pair.same(line)?;
    }
    finish(pair);
    node.down()
}

#[test]
fn a_node_that_is_not_there_is_named_with_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let done = Command::new(bin_dir().join("podwire"))
        .args(["get", "pods", "--data-dir"])
        .arg(folder.path())
        .env_remove("KUBECONFIG")
        .output()
        .context("run podwire")?;
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.starts_with("error: no cluster to talk to") && said.contains("`podwire up`"), "{said}");
    assert_eq!(done.status.code(), Some(1));
    Ok(())
}
