//! Upstream's path in the same run: etcd, kube-apiserver, kube-scheduler, kubelet, containerd, runc, reference plugins.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    cgroup_root::CgroupRoot,
    node::peer,
    upstream::{self, Containerd, ControlPlane, Peer},
};

/// Everything of upstream's stack; ends in this order when dropped.
pub struct Stack {
    _kubelet: Peer,
    _scheduler: Peer,
    control: ControlPlane,
    _containerd: Containerd,
    pids: Vec<u32>,
    cgroup: CgroupRoot,
    _folder: upstream::Scratch,
}

const NEEDED: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "cni/bridge",
    "cni/host-local",
    "cni/portmap",
    "cni/loopback",
];

/// True when every peer is built.
pub fn is_built() -> bool {
    NEEDED.iter().all(|name| peer(name).is_ok())
}

const CONFLIST: &str = r#"{"cniVersion":"1.0.0","name":"upstream","plugins":[
 {"type":"bridge","bridge":"up0","isGateway":true,"ipMasq":true,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"@DATA@","ranges":[[{"subnet":"10.90.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}"#;

impl Stack {
    /// Starts the whole stack and waits until its node is Ready.
    pub fn start() -> Result<Stack> {
        let folder = upstream::Scratch::new()?;
        let at = |name: &str| folder.path().join(name);
        upstream::node_address()?;
        let conf_dir = at("net.d");
        fs::create_dir_all(&conf_dir)?;
        fs::write(
            conf_dir.join("10-ref.conflist"),
            CONFLIST.replace("@DATA@", &at("ipam").display().to_string()),
        )?;
        let plugins = peer("cni/bridge")?.parent().map(Path::to_owned).context("no plugins")?;
        let containerd = upstream::containerd(&at("containerd"), &conf_dir, &plugins)?;
        for (name, program) in [("localhost/pod-app:latest", "pod-app"), ("localhost/pause:latest", "pause")]
        {
            upstream::containerd_import(
                &containerd,
                &upstream::image_archive(folder.path(), name, program)?,
            )?;
        }
        let control = upstream::control_plane(&at("control"))?;
        let scheduler = upstream::scheduler(&at("scheduler"), &control.kubeconfig)?;
        let cgroup = CgroupRoot::create()?;
        let kubelet =
            upstream::kubelet(&at("kubelet"), &control.kubeconfig, &containerd.socket, cgroup.path(), None)?;
        wait_ready(&control.kubeconfig)?;
        let mut pids = vec![containerd.peer.pid(), scheduler.pid(), kubelet.pid()];
        pids.extend(control.peers.iter().map(Peer::pid));
        Ok(Stack {
            _kubelet: kubelet,
            _scheduler: scheduler,
            control,
            _containerd: containerd,
            pids,
            cgroup,
            _folder: folder,
        })
    }

    /// Credentials of its administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.control.kubeconfig
    }

    /// Its daemons.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// CPU used inside pod cgroups so far, in nanoseconds (shims and runc are counted there or by containerd).
    pub fn pods_cpu(&self) -> u64 {
        let text = fs::read_to_string(format!("/sys/fs/cgroup/cpuacct{}/cpuacct.usage", self.cgroup.path()))
            .unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

fn wait_ready(kubeconfig: &Path) -> Result<()> {
    let mut command = Command::new(peer("kubectl")?);
    podwire_testkit::eventually("the node is registered", std::time::Duration::from_secs(60), || {
        let done = Command::new(peer("kubectl").map_err(|error| error.to_string())?)
            .args(["get", "node", "node1", "--kubeconfig"])
            .arg(kubeconfig)
            .output()
            .map_err(|error| error.to_string())?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
    })?;
    command
        .args(["wait", "--for=condition=Ready", "node/node1", "--timeout=60s", "--kubeconfig"])
        .arg(kubeconfig);
    let done = command.output()?;
    if !done.status.success() {
        bail!("upstream's node is not Ready: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
