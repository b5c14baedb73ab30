//! The store and the real etcd as whole programs: objects that move between them, snapshots that etcdctl saves, and a test
//! environment of controller-runtime on links to podwire.
#![cfg(feature = "interop")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    eventually, isolate,
    node::{bin_dir, peer},
};
use podwire_tests::programs::{Running, WAIT, etcd, etcdctl, our_etcd, podwire, real_etcd, said};

/// An API server in a data folder, ready.
fn api_server(data: &Path, flags: &[&str]) -> Result<Running> {
    let mut command = podwire();
    command.args(["apiserver", "--secure-port", "0", "--data-dir"]).arg(data).args(flags);
    let log = data.with_extension("log");
    let running = Running::start(command, &log)?;
    eventually("an API server", WAIT, || {
        let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
        if text.contains("ready server=") { Ok(()) } else { Err(text) }
    })?;
    Ok(running)
}

fn client(data: &Path, words: &[&str]) -> Result<String> {
    said(podwire().args(words).env("PODWIRE_DATA_DIR", data))
}

fn object(data: &Path, words: &[&str]) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&client(data, &[&["get"], words, &["-o", "json"]].concat())?)?)
}

fn version(object: &serde_json::Value) -> Result<u64> {
    Ok(object["metadata"]["resourceVersion"].as_str().context("no version")?.parse()?)
}

const OBJECTS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.move.example.com}
spec:
  group: move.example.com
  scope: Namespaced
  names: {plural: gears, kind: Gear, singular: gear}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {k: v}
";
const GEAR: &str = "apiVersion: move.example.com/v1
kind: Gear
metadata: {name: g}
spec: {teeth: 12}
";

/// What must be the same before and after a move, and its version.
fn seen(data: &Path) -> Result<(Vec<serde_json::Value>, u64)> {
    let mut newest = 0;
    let mut objects = Vec::new();
    for words in [["configmap", "conf"], ["gears", "g"], ["namespace", "default"]] {
        let mut object = object(data, &words)?;
        newest = newest.max(version(&object)?);
        object["metadata"]["resourceVersion"].take();
        objects.push(object);
    }
    Ok((objects, newest))
}

#[test]
fn objects_move_to_an_etcd_cluster_and_back_and_versions_never_go_back() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    fs::write(at("objects.yaml"), OBJECTS)?;
    fs::write(at("gear.yaml"), GEAR)?;
    let (first, second) = (at("first"), at("second"));
    let server = api_server(&first, &[])?;
    client(&first, &["apply", "-f", &at("objects.yaml").display().to_string()])?;
    let gear = at("gear.yaml").display().to_string();
    eventually("the defined kind", WAIT, || {
        client(&first, &["apply", "-f", &gear]).map_err(|error| format!("{error:#}"))
    })?;
    let (objects, newest) = seen(&first)?;
    server.stop()?;

    let (_etcd, url) = etcd(real_etcd()?, &at("etcd"), &at("etcd.log"))?;
    let (servers, store) = (format!("--etcd-servers={url}"), first.join("store").display().to_string());
    let told = said(podwire().args(["migrate", "to-etcd", &store, &servers]))?;
    ensure!(told.contains("moved ") && !told.contains("left behind"), "{told}");
    let again = said(podwire().args(["migrate", "to-etcd", &store, &servers]));
    ensure!(format!("{:#}", again.unwrap_err()).contains("already"), "a second time");
    let server = api_server(&first, &[&servers])?;
    let (there, later) = seen(&first)?;
    ensure!(there == objects, "{there:?}\n{objects:?}");
    ensure!(later > newest, "{later} after {newest}");
    // As upstream writes it, which is what anybody else reads.
    let raw = etcdctl(&url, &["get", "/registry/configmaps/default/conf", "--print-value-only"])?;
    ensure!(raw.starts_with("k8s\0"), "{raw:?}");
    let raw = etcdctl(&url, &["get", "/registry/move.example.com/gears/default/g", "--print-value-only"])?;
    ensure!(serde_json::from_str::<serde_json::Value>(&raw)?["kind"] == "Gear", "{raw}");
    fs::write(at("more.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: more}}")?;
    client(&first, &["apply", "-f", &at("more.yaml").display().to_string()])?;
    let more = version(&object(&first, &["configmap", "more"])?)?;
    server.stop()?;

    let store = second.join("store").display().to_string();
    said(podwire().args(["migrate", "from-etcd", &store, &servers]))?;
    let server = api_server(&second, &[])?;
    let (back, last) = seen(&second)?;
    ensure!(back == objects, "{back:?}\n{objects:?}");
    ensure!(last > more, "{last} after {more}");
    ensure!(version(&object(&second, &["configmap", "more"])?)? > more, "what was made there has come along");
    server.stop()
}

fn restored(file: &Path, folder: &Path) -> Result<String> {
    said(podwire().args(["snapshot", "restore"]).arg(file).arg("--to").arg(folder))
}

#[test]
fn a_snapshot_that_etcdctl_saves_of_podwire_etcd_is_restored_and_one_of_etcd_is_told() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let file = |name: &str| -> PathBuf { at(name) };
    let (running, url) = etcd(our_etcd(), &at("one"), &at("one.log"))?;
    for number in 0..50 {
        etcdctl(&url, &["put", &format!("/k/{}", number % 10), &format!("value {number}")])?;
    }
    etcdctl(&url, &["del", "/k/3"])?;
    let saved = etcdctl(&url, &["snapshot", "save", &file("by-etcdctl").display().to_string()])?;
    ensure!(saved.contains("Snapshot saved at"), "{saved}");
    said(podwire().args(["snapshot", "save", &format!("--endpoints={url}")]).arg(file("by-podwire")))?;
    let before = etcdctl(&url, &["get", "--prefix", "/k/", "--rev=30"])?;
    let hash = etcdctl(&url, &["endpoint", "hashkv"])?;
    running.stop()?;
    let status = said(podwire().args(["snapshot", "status"]).arg(file("by-etcdctl")))?;
    ensure!(status == said(podwire().args(["snapshot", "status"]).arg(file("by-podwire")))?, "{status}");
    let status: serde_json::Value = serde_json::from_str(&status)?;
    ensure!(status["totalKey"] == 9 && status["revision"] == 52, "{status}");
    restored(&file("by-etcdctl"), &at("two"))?;
    let (_running, url) = etcd(our_etcd(), &at("two"), &at("two.log"))?;
    ensure!(etcdctl(&url, &["get", "--prefix", "/k/", "--rev=30"])? == before, "history is there");
    let number = |text: &str| text.rsplit(", ").next().unwrap_or_default().trim().to_owned();
    ensure!(number(&etcdctl(&url, &["endpoint", "hashkv"])?) == number(&hash), "the same by its hash");

    let (_real, url) = etcd(real_etcd()?, &at("real"), &at("real.log"))?;
    etcdctl(&url, &["put", "/k", "v"])?;
    let told =
        said(podwire().args(["snapshot", "save", &format!("--endpoints={url}")]).arg(file("of-etcd")))?;
    ensure!(told.contains("etcdutl"), "{told}");
    let refused = restored(&file("of-etcd"), &at("three")).unwrap_err();
    ensure!(format!("{refused:#}").contains("etcdutl"), "{refused:#}");
    Ok(())
}

#[test]
fn a_test_environment_of_controller_runtime_runs_on_links_to_podwire() -> Result<()> {
    isolate()?;
    let folder = tempfile::tempdir()?;
    for name in ["etcd", "kube-apiserver"] {
        std::os::unix::fs::symlink(bin_dir().join("podwire"), folder.path().join(name))?;
    }
    let mut program = Command::new(peer("envtest")?);
    program.arg(folder.path()).env_remove("KUBEBUILDER_ASSETS");
    let told = said(&mut program)?;
    ensure!(told.starts_with("gears=1 refused=true allowed=true"), "{told}");
    Ok(())
}
