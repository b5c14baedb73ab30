//! A CRI runtime alone, ours or containerd, with a network and a registry on loopback: the same setup for both.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    critest,
    images::Image,
    node::peer,
    parts,
    registry::Registry,
    upstream::{self, ContainerdOptions, Scratch},
};

/// What `podwire up` gives a node. The reference plugins ignore the names of our tables; unless nf_tables were named, they
/// would run iptables.
const CONFLIST: &str = r#"{"cniVersion":"1.0.0","name":"@BRIDGE@","plugins":[
 {"type":"bridge","bridge":"@BRIDGE@","isGateway":true,"hairpinMode":true,
  "ipMasq":true,"ipMasqBackend":"nftables","ipMasqTable":"@BRIDGE@_masquerade",
  "ipam":{"type":"host-local","dataDir":"@DATA@","ranges":[[{"subnet":"@NET@"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","backend":"nftables","nftTable":"@BRIDGE@_hostport","capabilities":{"portMappings":true}}]}"#;

/// A folder and a registry; the calling thread's network namespace is the machine.
pub struct Bed {
    registry_config: PathBuf,
    _registry: Registry,
    folder: Scratch,
}

/// A runtime that answers; ended with everything it runs when dropped.
pub struct Running {
    /// Whose it is, for what is printed.
    pub name: &'static str,
    /// The CRI socket.
    pub socket: PathBuf,
    /// Where NRI plugins register, if that was asked for.
    pub nri_socket: Option<PathBuf>,
    folder: PathBuf,
    process: Process,
}

enum Process {
    Ours(parts::Runtime),
    Containerd(upstream::Containerd),
}

impl Bed {
    /// A bed whose registry serves these images, under every host's name.
    pub fn new(images: Vec<Image>) -> Result<Bed> {
        let folder = Scratch::new()?;
        let registry = Registry::serve(images)?;
        let registry_config = folder.path().join("certs.d");
        registry.settings(&registry_config)?;
        Ok(Bed { registry_config, _registry: registry, folder })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn network(&self, name: &str, net: &str) -> Result<PathBuf> {
        let conf_dir = self.path().join(format!("{name}-net.d"));
        fs::create_dir_all(&conf_dir)?;
        let data = self.path().join(format!("{name}-ipam"));
        let text = CONFLIST
            .replace("@BRIDGE@", name)
            .replace("@NET@", net)
            .replace("@DATA@", &data.display().to_string());
        fs::write(conf_dir.join("10-bed.conflist"), text)?;
        Ok(conf_dir)
    }

    /// Starts our runtime with the plugins that are built into it: programs of the same names would take their place.
    pub fn ours(&self, nri: bool) -> Result<Running> {
        self.ours_with(nri, &[])
    }

    /// Starts our runtime with our plugins and more flags.
    pub fn ours_with(&self, nri: bool, more: &[(&str, &Path)]) -> Result<Running> {
        let conf_dir = self.network("ours0", "10.91.0.0/16")?;
        let plugins = self.path().join("ours-bin");
        fs::create_dir_all(&plugins)?;
        let folder = self.path().join("ours");
        let nri_socket = nri.then(|| folder.join("nri.sock"));
        let mut flags = vec![("--registry-config", self.registry_config.as_path())];
        flags.extend(nri_socket.iter().map(|path| ("--nri-socket", path.as_path())));
        flags.extend(more);
        let runtime = parts::Runtime::start_with(&folder, &conf_dir, &plugins, &flags)?;
        let socket = runtime.socket.clone();
        Ok(Running { name: "ours", socket, nri_socket, folder, process: Process::Ours(runtime) })
    }

    /// Starts containerd with the reference plugins.
    pub fn containerd(&self, nri: bool) -> Result<Running> {
        self.containerd_with(nri, "")
    }

    /// Starts containerd with the reference plugins and more configuration (TOML).
    pub fn containerd_with(&self, nri: bool, more: &str) -> Result<Running> {
        let conf_dir = self.network("theirs0", "10.92.0.0/16")?;
        let plugins = peer("cni/bridge")?.parent().map(Path::to_owned).context("no plugins")?;
        let folder = self.path().join("theirs");
        let nri_socket = nri.then(|| self.path().join("theirs-nri.sock"));
        let options = ContainerdOptions {
            nri_socket: nri_socket.as_deref(),
            registry_config: Some(&self.registry_config),
            sandbox_image: Some(critest::SANDBOX_IMAGE),
            more,
        };
        let containerd = upstream::containerd_with(&folder, &conf_dir, &plugins, &options)?;
        let socket = containerd.socket.clone();
        Ok(Running {
            name: "containerd",
            socket,
            nri_socket,
            folder,
            process: Process::Containerd(containerd),
        })
    }
}

impl Running {
    /// The runtime's processes besides those of pods: daemon and supervisor, or daemon and shims.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let (daemon, marker) = match &self.process {
            Process::Ours(runtime) => (runtime.peer().pid(), runtime.run_dir()?.display().to_string()),
            Process::Containerd(containerd) => (containerd.peer.pid(), self.socket.display().to_string()),
        };
        let mut pids = vec![daemon];
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().display().to_string().parse::<u32>() else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let helper = line.contains(" supervisor ") || line.contains("containerd-shim");
            if helper && line.contains(&marker) && !pids.contains(&pid) {
                pids.push(pid);
            }
        }
        Ok(pids)
    }

    /// The real crictl, pointed at this runtime by a configuration file of its own.
    pub fn crictl(&self) -> Result<Command> {
        let config = self.folder.join("crictl.yaml");
        if !config.exists() {
            let endpoint = format!("unix://{}", self.socket.display());
            let text = format!("runtime-endpoint: {endpoint}\nimage-endpoint: {endpoint}\ntimeout: 60\n");
            fs::write(&config, text)?;
        }
        let mut command = Command::new(peer("crictl")?);
        command.arg("--config").arg(config).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs crictl; what it printed, or its complaint as the error.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        said(words, &self.crictl()?.args(words).output()?)
    }
}

/// What a command printed, or its complaint as the error.
pub fn said(words: &[&str], done: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        bail!("{words:?}: {}: {text}{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    Ok(text)
}

impl Drop for Running {
    fn drop(&mut self) {
        // Shims would outlive containerd; ignored: what stays shows in the next residue scan.
        if let Ok(mut crictl) = self.crictl() {
            crictl.args(["rmp", "--all", "--force"]).output().ok();
        }
    }
}
