//! Our own participants one by one, each as a process of its own, for stacks that mix them with upstream's.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    claims::Beside,
    node::bin_dir,
    upstream::{self, NODE_ADDRESS, Peer, Serving},
};

fn podwire() -> Command {
    Command::new(bin_dir().join("podwire"))
}

/// A participant whose arrows `podwire trace --trace-dir` finds beside its folder, in `trace`.
fn participant(folder: &Path) -> Command {
    let mut command = podwire();
    command.env("PODWIRE_TRACE_DIR", folder.parent().unwrap_or(folder).join("trace"));
    command
}

/// Our API server, and the credentials it wrote.
pub struct Api {
    /// The process.
    pub peer: Peer,
    folder: PathBuf,
}

impl Api {
    /// Starts it below `folder` with credentials for `node1`.
    pub fn start(folder: &Path) -> Result<Api> {
        Api::start_with(folder, &[])
    }

    /// Starts it with more flags.
    pub fn start_with(folder: &Path, flags: &[&str]) -> Result<Api> {
        let mut command = participant(folder);
        command
            .args(["apiserver", "--secure-port", "6443", "--data-dir"])
            .arg(folder)
            .arg(format!("--issue-node=node1={NODE_ADDRESS}"))
            .args(flags);
        let kubeconfig = folder.join("node1.key");
        let peer =
            Peer::start("podwire-apiserver", folder, &mut command)?.until("wrote its credentials", || {
                if kubeconfig.exists() { Ok(()) } else { Err("no credentials yet".to_owned()) }
            })?;
        Ok(Api { peer, folder: folder.to_owned() })
    }

    /// Credentials of the administrator, or of `who` (`scheduler`, `controllers`, `node1`).
    pub fn kubeconfig(&self, who: &str) -> PathBuf {
        self.folder.join(format!("{who}.kubeconfig"))
    }

    /// What a kubelet shows and trusts in this cluster.
    pub fn serving(&self) -> Serving {
        Serving {
            cert: self.folder.join("node1.crt"),
            key: self.folder.join("node1.key"),
            client_ca: self.folder.join("ca.crt"),
        }
    }
}

/// Starts our store as an etcd at [`upstream::ETCD`].
pub fn etcd(folder: &Path) -> Result<Peer> {
    let mut program = podwire();
    program.arg("etcd");
    upstream::etcd_from("podwire-etcd", program, folder)
}

/// Starts our scheduler.
pub fn scheduler(folder: &Path, kubeconfig: &Path) -> Result<Peer> {
    Peer::start(
        "podwire-scheduler",
        folder,
        participant(folder).arg("scheduler").arg("--kubeconfig").arg(kubeconfig),
    )
}

/// Starts our controllers, which publish this authority: credentials need not name it.
pub fn controllers(folder: &Path, kubeconfig: &Path, authority: &Path) -> Result<Peer> {
    let mut command = podwire();
    command.arg("controllers").arg("--kubeconfig").arg(kubeconfig).arg("--root-ca-file").arg(authority);
    Peer::start("podwire-controllers", folder, &mut command)
}

/// Starts our kubelet on the runtime at `socket`.
pub fn kubelet(
    folder: &Path,
    kubeconfig: &Path,
    socket: &Path,
    cgroup_root: &str,
    serving: &Serving,
) -> Result<Peer> {
    let mut command = participant(folder);
    command
        .args([
            "kubelet",
            "--hostname-override",
            "node1",
            "--port",
            "10250",
            "--eviction-hard=",
            "--node-ip",
            NODE_ADDRESS,
        ])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--root-dir")
        .arg(folder.join("root"))
        .arg("--pod-log-dir")
        .arg(folder.join("logs"))
        .arg("--container-runtime-endpoint")
        .arg(socket)
        .args(["--cgroup-root", cgroup_root])
        .arg("--tls-cert-file")
        .arg(&serving.cert)
        .arg("--tls-private-key-file")
        .arg(&serving.key)
        .arg("--client-ca-file")
        .arg(&serving.client_ca);
    Peer::start("podwire-kubelet", folder, &mut command)
}

/// Starts our network driver, which offers everything that can go but `keep`, the bridge of pods.
pub fn netdriver(folder: &Path, beside: &Beside, keep: &str) -> Result<Peer> {
    let mut command = participant(folder);
    command
        .args(["netdriver", "--hostname-override", "node1", "--filter=", "--keep", keep])
        .args(["--bind-address", "127.0.0.1:0", "--kubeconfig"])
        .arg(&beside.kubeconfig)
        .arg("--kubelet-root-dir")
        .arg(&beside.kubelet)
        .arg("--nri-socket")
        .arg(&beside.nri)
        .arg("--state-dir")
        .arg(folder.join("state"));
    Peer::start("podwire-netdriver", folder, &mut command)
}

/// Our runtime, and where it serves CRI.
pub struct Runtime {
    /// The CRI socket.
    pub socket: PathBuf,
    /// The process; dropped before the clean-up.
    peer: Option<Peer>,
    folder: PathBuf,
}

impl Runtime {
    /// Starts it below `folder`.
    pub fn start(folder: &Path, conf_dir: &Path, bin_dir: &Path) -> Result<Runtime> {
        Runtime::start_with(folder, conf_dir, bin_dir, &[])
    }

    /// Starts it below `folder` with more flags.
    pub fn start_with(
        folder: &Path,
        conf_dir: &Path,
        bin_dir: &Path,
        flags: &[(&str, &Path)],
    ) -> Result<Runtime> {
        let socket = folder.join("cri.sock");
        let mut command = participant(folder);
        command.arg("runtime").arg("--data-dir").arg(folder).arg("--listen").arg(&socket);
        command.arg("--cni-conf-dir").arg(conf_dir).arg("--cni-bin-dir").arg(bin_dir);
        for (flag, value) in flags {
            command.arg(flag).arg(value);
        }
        let peer = Peer::start("podwire-runtime", folder, &mut command)?.until("answers", || {
            UnixStream::connect(&socket).map(|_| ()).map_err(|error| error.to_string())
        })?;
        Ok(Runtime { socket, peer: Some(peer), folder: folder.to_owned() })
    }

    /// The process.
    pub fn peer(&self) -> &Peer {
        self.peer.as_ref().expect("taken only when dropped")
    }

    /// Where it keeps sockets, pins and journals.
    pub fn run_dir(&self) -> Result<PathBuf> {
        let done = podwire().args(["instance", "--data-dir"]).arg(&self.folder).output()?;
        let names: serde_json::Value = serde_json::from_slice(&done.stdout).context("podwire instance")?;
        Ok(names["runDir"].as_str().context("no runDir")?.into())
    }

    /// Loads an image archive.
    pub fn import(&self, archive: &Path) -> Result<()> {
        let done =
            podwire().args(["image", "import", "--data-dir"]).arg(&self.folder).arg(archive).output()?;
        if !done.status.success() {
            bail!("image import: {}", String::from_utf8_lossy(&done.stderr));
        }
        Ok(())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.peer.take();
        // Ends the supervisor too; ignored: the residue scan tells if it did not work.
        podwire().args(["down", "--purge", "--data-dir"]).arg(&self.folder).output().ok();
    }
}

/// Our CNI plugins.
pub const PLUGINS: [&str; 10] = [
    "bandwidth",
    "bridge",
    "firewall",
    "host-local",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "static",
    "tuning",
];

/// A folder with our CNI plugins under their usual names.
pub fn plugins(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let program = bin_dir().join("podwire-cni");
    for name in PLUGINS {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(&program, &link).with_context(|| format!("link {link:?}"))?;
        }
    }
    Ok(folder.to_owned())
}
