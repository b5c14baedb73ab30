//! Claims of a network device: an interface to claim, the drivers that offer it, and what pods claim it with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    node::{Node, peer},
    upstream::Peer,
};

/// The interface that is claimed: one end of a cable.
pub const DEVICE: &str = "claim0";
/// The other end.
pub const FAR: &str = "far0";
/// What the interface is called in a pod.
pub const INSIDE: &str = "net1";
/// The name of both network drivers.
pub const DRIVER: &str = "dra.net";
/// Where runtimes usually serve NRI, and where DRANET connects.
pub const NRI: &str = "/run/nri";

/// Runs `ip`; what it printed.
pub fn ip(args: &str) -> Result<String> {
    let done = Command::new("ip").args(args.split(' ')).output().context("run ip")?;
    ensure!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Makes the cable in the calling thread's network namespace, with an address at each end.
pub fn make_cable() -> Result<()> {
    ip(&format!("link add {DEVICE} type veth peer name {FAR}"))?;
    for (name, address) in [(FAR, "10.77.0.1/24"), (DEVICE, "10.77.0.2/24")] {
        ip(&format!("address add {address} dev {name}"))?;
        ip(&format!("link set {name} up"))?;
    }
    Ok(())
}

/// A class of all devices of a driver that a further expression chooses, and a template of a claim of one.
pub fn class_and_template(driver: &str, chosen: &str, config: &str) -> String {
    format!(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: c}}\nspec:\n  selectors: [{{cel: {{expression: 'device.driver == \"{driver}\"{chosen}'}}}}]\n---\n\
         apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: t}}\nspec:\n  spec:\n    devices:\n      \
         requests: [{{name: r, exactly: {{deviceClassName: c}}}}]\n      config: [{config}]\n"
    )
}

/// The same for the interface, which is to be called [`INSIDE`].
pub fn of_device() -> String {
    let config = format!(
        "{{requests: [r], opaque: {{driver: {DRIVER}, parameters: {{interface: {{name: {INSIDE}}}}}}}}}"
    );
    let chosen = format!(" && device.attributes[\"{DRIVER}\"].ifName == \"{DEVICE}\"");
    class_and_template(DRIVER, &chosen, &config)
}

/// Whom a network driver works with.
pub struct Beside {
    /// Credentials for the API server.
    pub kubeconfig: PathBuf,
    /// The kubelet's folder of `plugins` and `plugins_registry`.
    pub kubelet: PathBuf,
    /// Where the runtime listens for NRI plugins.
    pub nri: PathBuf,
}

impl Beside {
    /// The participants of a whole node.
    pub fn of_node(node: &Node) -> Result<Beside> {
        let instance = node.podwire(["instance", "--data-dir", &node.data_dir.display().to_string()])?;
        let instance: Value = serde_json::from_str(&instance)?;
        let field = |name: &str| instance[name].as_str().map(PathBuf::from).context("no such field");
        Ok(Beside { kubeconfig: node.kubeconfig(), kubelet: field("pluginRoot")?, nri: field("nriSocket")? })
    }
}

/// Starts DRANET below `folder`, which connects where NRI usually is: [`NRI`] must be the caller's own folder.
pub fn dranet(folder: &Path, beside: &Beside) -> Result<Peer> {
    std::os::unix::fs::symlink(&beside.nri, Path::new(NRI).join("nri.sock"))?;
    fs::create_dir_all(folder)?;
    let mut command = Command::new(peer("dranet")?);
    command
        .args(["--hostname-override", "node1", "--bind-address", "127.0.0.1:9177", "-v", "4"])
        .args(["--cloud-provider-hint", "NONE", "--inventory-max-poll-interval", "5s", "--kubeconfig"])
        .arg(&beside.kubeconfig)
        .arg("--db-path")
        .arg(folder.join("dranet.db"))
        .arg("--kubelet-root-dir")
        .arg(&beside.kubelet)
        // Of itself it leaves out interfaces of this kind, and it would offer the machine's own card.
        .arg("--filter")
        .arg(format!(
            r#""{DRIVER}/ifName" in attributes && attributes["{DRIVER}/ifName"].StringValue == "{DEVICE}""#
        ));
    Peer::start("dranet", folder, &mut command)
}
