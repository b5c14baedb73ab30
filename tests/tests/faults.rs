//! What is wrong around a node is said where people look, disturbs nothing else, and is over when it is mended.

use std::{fs, io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use podwire_testkit::{Node, eventually, isolate};
use serde_json::Value;

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {{name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: Never, args: [sleep, \"3600\"]}}\n"
    )
}

fn container_id(pod: &Value) -> String {
    pod["status"]["containerStatuses"][0]["containerID"].to_string()
}

#[test]
fn a_broken_network_configuration_is_named_and_can_be_mended() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&pod("before"))?;
    let before = node.pod_in_phase("before", "Running")?;
    let broken = node.data_dir.join("cni/net.d/00-broken.conflist");
    fs::write(&broken, "{\"name\": \"x\", ")?;
    node.apply(&pod("meanwhile"))?;
    eventually("an event that names the broken file", Duration::from_secs(60), || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let said: Vec<String> = events
            .iter()
            .filter(|event| event["involvedObject"]["name"] == "meanwhile")
            .map(|event| event["message"].to_string())
            .collect();
        if said.iter().any(|text| text.contains("00-broken.conflist")) {
            Ok(())
        } else {
            Err(said.join("\n"))
        }
    })?;
    assert_eq!(node.get("pod", "meanwhile")?["status"]["phase"], "Pending");
    fs::remove_file(&broken)?;
    node.pod_in_phase("meanwhile", "Running")?;
    let after = node.get("pod", "before")?;
    assert_eq!(container_id(&before), container_id(&after), "the other pod is not disturbed");
    node.podwire(["delete", "pods", "--all"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(size: &str) -> Result<SmallDisk> {
        let folder = tempfile::Builder::new().prefix("podwire-disk-").tempdir()?.keep();
        let size = std::ffi::CString::new(format!("size={size}"))?;
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &folder, "tmpfs", none, size.as_c_str())
            .context("mount a small disk")?;
        Ok(SmallDisk(folder))
    }

    /// Takes every byte that is left; the file that holds them.
    fn fill(&self) -> Result<PathBuf> {
        let ballast = self.0.join("ballast");
        let mut file = fs::File::create(&ballast)?;
        for size in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        Ok(ballast)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Ignored: nothing more can be done in drop; a folder that is left shows what went wrong.
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).ok();
        fs::remove_dir(&self.0).ok();
    }
}

#[test]
fn a_full_disk_is_named_loses_nothing_and_can_be_mended() -> Result<()> {
    isolate()?;
    let disk = SmallDisk::new("256m")?;
    let node = Node::at(&disk.0.join("data"), &[])?;
    node.import_app()?;
    node.apply(&pod("before"))?;
    let before = node.pod_in_phase("before", "Running")?;
    let ballast = disk.fill()?;
    let mut refusal = None;
    // A log may have room of its own for a while; then every write is refused.
    for number in 0..20_000 {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}}}\ndata: {{k: {}}}\n",
            "x".repeat(200_000)
        );
        if let Err(error) = node.apply(&text) {
            refusal = Some((number, error.to_string()));
            break;
        }
    }
    let (number, said) = refusal.context("a full disk refused nothing")?;
    assert!(said.contains("space"), "the refusal says why: {said}");
    assert!(node.get("configmap", &format!("c{number}")).is_err(), "what was refused is not there");
    let after = node.get("pod", "before")?;
    assert_eq!(container_id(&before), container_id(&after), "the pod is not disturbed");
    assert_eq!(node.podwire(["exec", "before", "--", "/pod-app", "hostname"])?.trim(), "before");
    fs::remove_file(ballast)?;
    node.apply(&pod("later"))?;
    node.pod_in_phase("later", "Running")?;
    for kept in 0..number {
        node.get("configmap", &format!("c{kept}")).context("an acknowledged write")?;
    }
    node.podwire(["delete", "pods", "--all"])?;
    node.assert_no_pod_residue()?;
    node.down()
}
