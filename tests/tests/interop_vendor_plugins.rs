//! Device plugins of vendors, unchanged, where they look for a kubelet: on the node in the default folders. Without their
//! hardware Intel's is shown a tree of its own, and NVIDIA's takes the machine for a Tegra, which it offers unseen.
#![cfg(feature = "interop")]

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    Node, eventually, isolate,
    isolate::OwnFolder,
    node::{PATIENCE, peer},
};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::Value;

/// `/dev/net/tun`: whoever may open it may, without any capability.
const TUN: (u32, u32) = (10, 200);
const LOOP_CONTROL: (u32, u32) = (10, 237);

/// The node in the default folders, which are this thread's own.
struct Place {
    node: Option<Node>,
    _data: tempfile::TempDir,
    _folders: Vec<OwnFolder>,
}

impl Place {
    fn up() -> Result<Place> {
        isolate()?;
        let mut folders = Vec::new();
        for path in ["/var/lib/kubelet", "/run/cdi", "/var/lib/podwire"] {
            folders.push(OwnFolder::at(Path::new(path))?);
        }
        // Images need more room than a small file system in memory has.
        let data = tempfile::tempdir()?;
        podwire_linux::mount::bind(data.path(), Path::new("/var/lib/podwire"), false)?;
        let node = Node::at(Path::new("/var/lib/podwire"), &[])?;
        node.import_app()?;
        Ok(Place { node: Some(node), _data: data, _folders: folders })
    }

    fn node(&self) -> Result<&Node> {
        self.node.as_ref().context("the node is down")
    }

    fn offers(&self, resource: &str, amount: &str) -> Result<()> {
        let node = self.node()?;
        eventually(&format!("the node offers {amount} of {resource}"), PATIENCE, || {
            let node = node.get("node", "node1").map_err(|error| error.to_string())?;
            let told = &node["status"]["allocatable"][resource];
            if told == amount { Ok(()) } else { Err(told.to_string()) }
        })
        .with_context(|| node.log_tail())
    }

    fn down(mut self) -> Result<()> {
        self.node.take().context("the node is down already")?.down()?;
        podwire_linux::mount::detach(Path::new("/var/lib/podwire"))?;
        Ok(())
    }
}

/// A plugin's process, ended with the test.
struct Plugin(Child);

impl Plugin {
    fn start(command: &mut Command) -> Result<Plugin> {
        Ok(Plugin(command.stdin(Stdio::null()).spawn().context("start the device plugin")?))
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Ignored: one that ended by itself cannot be killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn pod(name: &str, resource: &str, folder: &Path) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    resources: {{limits: {{{resource}: 1}}}}\n    volumeMounts: [{{name: folder, mountPath: /folder}}]\n  volumes:\n  - {{name: folder, hostPath: {{path: {}}}}}\n",
        folder.display()
    )
}

fn run(node: &Node, pod: &str, args: &[&str]) -> Result<String> {
    node.podwire(["exec", pod, "--", "/pod-app"].into_iter().chain(args.iter().copied()))
}

fn is_refused(node: &Node, pod: &str, path: &str) -> bool {
    run(node, pod, &["cat", path]).is_err_and(|error| format!("{error:#}").contains("(os error 1)"))
}

fn device(path: &Path, (major, minor): (u32, u32)) -> Result<()> {
    mknodat(CWD, path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o666))?)
}

/// One graphics card as the kernel shows it, whose files are others than it says.
fn card(prefix: &Path) -> Result<()> {
    let (drm, device_dir) = (prefix.join("sys/class/drm/card0"), prefix.join("dev/dri"));
    for file in ["card0", "renderD128"] {
        fs::create_dir_all(drm.join("device/drm").join(file))?;
    }
    fs::write(drm.join("device/vendor"), "0x8086\n")?;
    fs::write(drm.join("device/device"), "0x49c5\n")?;
    let driver = prefix.join("sys/bus/pci/drivers/i915");
    fs::create_dir_all(&driver)?;
    symlink(driver, drm.join("device/driver"))?;
    fs::create_dir_all(&device_dir)?;
    device(&device_dir.join("card0"), TUN)?;
    device(&device_dir.join("renderD128"), TUN)
}

#[test]
fn intels_graphics_plugin_gives_its_files_and_their_cdi_names() -> Result<()> {
    let mut place = Place::up()?;
    let tree = tempfile::tempdir()?;
    card(tree.path())?;
    device(&tree.path().join("other"), LOOP_CONTROL)?;
    let mut command = Command::new(peer("intel-gpu-plugin")?);
    command.arg("-prefix").arg(tree.path()).args(["-shared-dev-num", "2", "-allocation-policy", "balanced"]);
    let _plugin = Plugin::start(&mut command)?;
    place.offers("gpu.intel.com/i915", "2")?;
    let node = place.node()?;
    node.apply(&pod("one", "gpu.intel.com/i915", tree.path()))?;
    node.pod_in_phase("one", "Running")?;
    for file in ["card0", "renderD128"] {
        let inside = tree.path().join("dev/dri").join(file).display().to_string();
        ensure!(
            run(node, "one", &["ls", &tree.path().join("dev/dri").display().to_string()])?.contains(file)
        );
        ensure!(!is_refused(node, "one", &inside), "{file} can be opened");
    }
    ensure!(is_refused(node, "one", "/folder/other"), "what is not the card's cannot");
    // The kubelet dies: the plugin ends, as it does where it is restarted by its DaemonSet, and comes back.
    drop(_plugin);
    place.node.as_mut().context("no node")?.kill9()?;
    place.node.as_mut().context("no node")?.start()?;
    let _plugin = Plugin::start(&mut command)?;
    place.offers("gpu.intel.com/i915", "2")?;
    let node = place.node()?;
    node.apply(&pod("two", "gpu.intel.com/i915", tree.path()))?;
    node.pod_in_phase("two", "Running")?;
    node.apply(&pod("three", "gpu.intel.com/i915", tree.path()))?;
    let words = "Insufficient gpu.intel.com/i915";
    eventually("the third pod finds no room", PATIENCE, || {
        let pod = node.get("pod", "three").map_err(|error| error.to_string())?;
        let text = pod["status"]["conditions"].to_string();
        if text.contains(words) { Ok(()) } else { Err(text) }
    })?;
    for name in ["three", "two", "one"] {
        node.podwire(["delete", "pod", name, "--now"])?;
    }
    drop(_plugin);
    place.offers("gpu.intel.com/i915", "0")?;
    place.down()
}

#[test]
fn nvidias_plugin_shares_its_device_and_a_stock_client_sees_who_has_it() -> Result<()> {
    let place = Place::up()?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.yaml");
    fs::write(
        &config,
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n",
    )?;
    let mut command = Command::new(peer("nvidia-device-plugin")?);
    command.args(["--device-discovery-strategy", "tegra", "--device-list-strategy", "envvar,volume-mounts"]);
    let plugin = Plugin::start(command.arg("--config-file").arg(&config))?;
    place.offers("nvidia.com/gpu", "3")?;
    let node = place.node()?;
    node.apply(&pod("one", "nvidia.com/gpu", folder.path()))?;
    node.pod_in_phase("one", "Running")?;
    let told = run(node, "one", &["env", "NVIDIA_VISIBLE_DEVICES"])?;
    ensure!(told.contains("nvidia-container-devices"), "both ways of telling are asked for: {told}");
    let mounted = run(node, "one", &["ls", "/var/run/nvidia-container-devices"])?;
    ensure!(mounted.trim() == "tegra", "{mounted}");

    let asked = Command::new(peer("podresources")?).args(["-pod", "one"]).output()?;
    ensure!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let answers: Value = serde_json::from_slice(&asked.stdout)?;
    let held = &answers["get"]["containers"][0]["devices"][0];
    ensure!(held["resource_name"] == "nvidia.com/gpu", "{answers}");
    let id = held["device_ids"][0].as_str().unwrap_or_default();
    ensure!(id.starts_with("tegra::"), "{answers}");
    ensure!(answers["list"][0] == answers["get"], "{answers}");
    ensure!(answers["allocatable"].as_array().is_some_and(|all| all.len() == 3), "{answers}");
    let asked = Command::new(peer("podresources")?).args(["-pod", "nobody"]).output()?;
    let answers: Value = serde_json::from_slice(&asked.stdout)?;
    ensure!(answers["missing"] == "pod nobody in namespace default not found", "{answers}");

    node.podwire(["delete", "pod", "one", "--now"])?;
    drop(plugin);
    place.offers("nvidia.com/gpu", "0")?;
    place.down()
}
