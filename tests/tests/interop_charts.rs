//! The charts that are shipped, rendered by the real Helm: with their own values they are the plain manifests beside them.
#![cfg(feature = "interop")]

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use podwire_testkit::node::peer;
use serde::Deserialize;
use serde_json::Value;

fn dist(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../dist")).join(name)
}

/// The objects of a manifest, in the order of their kinds and names.
fn objects(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document)?;
        if !object.is_null() {
            all.push(object);
        }
    }
    all.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
    Ok(all)
}

/// What Helm makes of the chart with further words, or what it says.
fn render(words: &[&str]) -> Result<Result<Vec<Value>, String>> {
    let folder = tempfile::tempdir()?;
    let mut helm = Command::new(peer("helm")?);
    helm.args(["template", "net", "--namespace", "kube-system", "--kube-version", "1.34.0"]).args(words);
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(name, folder.path());
    }
    let done = helm.arg(dist("charts/netdriver")).output().context("run helm")?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Ok(if done.status.success() { Ok(objects(&String::from_utf8(done.stdout)?)?) } else { Err(said) })
}

fn driver(objects: &[Value]) -> Result<&Value> {
    let found = objects.iter().find(|object| object["kind"] == "DaemonSet");
    Ok(&found.context("a DaemonSet")?["spec"]["template"]["spec"]["containers"][0])
}

#[test]
fn helm_makes_of_the_network_drivers_chart_what_the_manifests_say() -> Result<()> {
    let plain = ["netdriver.yaml", "netdriver-policy.yaml"].map(|name| fs::read_to_string(dist(name)));
    let [driver_file, policy] = plain;
    let plain = objects(&format!("{}\n---\n{}", driver_file?, policy?))?;
    let rendered = render(&[])?.map_err(anyhow::Error::msg)?;
    ensure!(rendered.len() == plain.len(), "{} objects instead of {}", rendered.len(), plain.len());
    for (found, wanted) in rendered.iter().zip(&plain) {
        ensure!(found == wanted, "{found:#}\ninstead of\n{wanted:#}");
    }
    let words = [
        "--set",
        "offers={macvlan:eth1:16,veth:br0:8},filter=,keep={br0},policy=false,kubeletDir=/var/lib/k0s",
    ];
    let rendered = render(&words)?.map_err(anyhow::Error::msg)?;
    let all = driver(&rendered)?["command"].to_string();
    for wanted in [
        "--offer=macvlan:eth1:16",
        "--offer=veth:br0:8",
        "\"--filter=\"",
        "--keep=br0",
        "--kubelet-root-dir=/var/lib/k0s",
    ] {
        ensure!(all.contains(wanted), "{wanted} is not in {all}");
    }
    ensure!(
        rendered.iter().all(|object| object["kind"] != "ValidatingAdmissionPolicy"),
        "no policy is wanted"
    );
    for (wrong, said) in [("offers={gre:eth1}", "offers"), ("image=", "image"), ("offer=x", "offer")] {
        let refused = render(&["--set", wrong])?.expect_err(wrong);
        ensure!(refused.contains(said), "{wrong}: {refused}");
    }
    Ok(())
}
