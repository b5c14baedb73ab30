//! A cluster of one node from any mix of our participants with upstream's, each as a process of its own.

mod api;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::api::Api;
use crate::{
    cgroup_root::CgroupRoot,
    claims,
    eventually::eventually,
    isolate::OwnFolder,
    node::{bin_dir, peer},
    parts, residue,
    upstream::{self, Containerd, ContainerdOptions, Peer},
};

/// How long the stack may take on a busy machine for what takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which participants are ours; the others are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ours {
    /// API server.
    pub api: bool,
    /// What it stores in: embedded in ours, `podwire etcd` under upstream's; the real etcd under either.
    pub store: bool,
    /// Controllers.
    pub controllers: bool,
    /// Scheduler.
    pub scheduler: bool,
    /// Kubelet.
    pub kubelet: bool,
    /// Container runtime.
    pub runtime: bool,
    /// CNI plugins.
    pub cni: bool,
    /// Driver of network devices, if [`Settings`] asks for one: upstream's is DRANET.
    pub driver: bool,
}

impl Ours {
    /// Every participant ours.
    pub const ALL: Ours = Ours {
        api: true,
        store: true,
        controllers: true,
        scheduler: true,
        kubelet: true,
        runtime: true,
        cni: true,
        driver: true,
    };

    /// Every participant upstream's.
    pub const NONE: Ours = Ours {
        api: false,
        store: false,
        controllers: false,
        scheduler: false,
        kubelet: false,
        runtime: false,
        cni: false,
        driver: false,
    };
}

/// What a stack may be told besides whose participants it has.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The blocks that pods have their addresses from, one of a family; one of IPv4 unless told.
    pub subnets: Vec<String>,
    /// NRI plugins may register at [`Stack::nri_socket`].
    pub nri: bool,
    /// A driver offers [`claims::DEVICE`], which must be there. NRI is on then, and upstream's driver takes the calling
    /// thread into a mount namespace of its own.
    pub network_driver: bool,
}

/// The running cluster; everything ends when it is dropped, in this order.
pub struct Stack {
    kubelet: Peer,
    driver: Option<Peer>,
    scheduler: Peer,
    controllers: Peer,
    api: Api,
    runtime: Runtime,
    _nri: Option<OwnFolder>,
    _cgroup: CgroupRoot,
    /// What was there before any pod.
    before: Vec<String>,
    names: residue::Names,
    folder: upstream::Scratch,
}

enum Runtime {
    Ours(parts::Runtime),
    Upstream(Containerd),
}

impl Runtime {
    fn start(
        ours: bool,
        folder: &Path,
        conf_dir: &Path,
        plugins: &Path,
        nri_socket: Option<&Path>,
    ) -> Result<Runtime> {
        let images = folder.with_extension("images");
        fs::create_dir_all(&images)?;
        let app = upstream::image_archive(&images, "localhost/pod-app:latest", "pod-app")?;
        if ours {
            let flags: Vec<(&str, &Path)> =
                nri_socket.map(|path| ("--nri-socket", path)).into_iter().collect();
            let runtime = parts::Runtime::start_with(folder, conf_dir, plugins, &flags)?;
            runtime.import(&app)?;
            return Ok(Runtime::Ours(runtime));
        }
        let options = ContainerdOptions { nri_socket, ..ContainerdOptions::default() };
        let containerd = upstream::containerd_with(folder, conf_dir, plugins, &options)?;
        upstream::containerd_import(&containerd, &app)?;
        upstream::containerd_import(
            &containerd,
            &upstream::image_archive(&images, "localhost/pause:latest", "pause")?,
        )?;
        Ok(Runtime::Upstream(containerd))
    }

    fn peer(&self) -> &Peer {
        match self {
            Runtime::Ours(runtime) => runtime.peer(),
            Runtime::Upstream(containerd) => &containerd.peer,
        }
    }

    /// Where it keeps what a reboot forgets.
    fn run_dir(&self) -> Result<PathBuf> {
        match self {
            Runtime::Ours(runtime) => runtime.run_dir(),
            Runtime::Upstream(containerd) => {
                Ok(containerd.socket.parent().map(Path::to_owned).unwrap_or_default())
            }
        }
    }

    fn socket(&self) -> &Path {
        match self {
            Runtime::Ours(runtime) => &runtime.socket,
            Runtime::Upstream(containerd) => &containerd.socket,
        }
    }
}

/// The bridge that pods are on.
pub const BRIDGE: &str = "mx0";

impl Settings {
    /// The node's network. Sources are rewritten with one block of IPv4 only: for both families nobody has asked yet.
    fn conflist(&self, data: &Path) -> String {
        let usual = ["10.90.0.0/16".to_owned()];
        let (subnets, masquerade) =
            if self.subnets.is_empty() { (&usual[..], true) } else { (&self.subnets[..], false) };
        let ranges: Vec<Value> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
        let everywhere = |subnet: &String| if subnet.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let routes: Vec<Value> = subnets.iter().map(|one| json!({"dst": everywhere(one)})).collect();
        let ipam = json!({"type": "host-local", "dataDir": data, "ranges": ranges, "routes": routes});
        json!({"cniVersion": "1.0.0", "name": "matrix", "plugins": [
            {"type": "bridge", "bridge": BRIDGE, "isGateway": true, "ipMasq": masquerade, "hairpinMode": true, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ]})
        .to_string()
    }
}

impl Stack {
    /// Starts the mix in the calling thread's network namespace, which must be its own, and waits for the node.
    pub fn start(ours: Ours) -> Result<Stack> {
        Stack::start_with(ours, &Settings::default())
    }

    /// Starts the mix with more said about it.
    pub fn start_with(ours: Ours, settings: &Settings) -> Result<Stack> {
        upstream::node_address()?;
        let folder = upstream::Scratch::new()?;
        let at = |name: &str| folder.path().join(name);
        let conf_dir = at("net.d");
        fs::create_dir_all(&conf_dir)?;
        fs::write(conf_dir.join("10-matrix.conflist"), settings.conflist(&at("ipam")))?;
        // What is mounted from here on must be seen by all of them.
        let own = settings.network_driver && !ours.driver;
        let nri = own.then(|| OwnFolder::at(Path::new(claims::NRI))).transpose()?;
        let nri_socket = (settings.nri || settings.network_driver).then(|| at("nri.sock"));
        let plugins = if ours.cni {
            parts::plugins(&at("bin"))?
        } else {
            peer("cni/bridge")?.parent().map(Path::to_owned).context("no plugins")?
        };
        let cgroup = CgroupRoot::create()?;
        let runtime =
            Runtime::start(ours.runtime, &at("runtime"), &conf_dir, &plugins, nri_socket.as_deref())?;
        let api = Api::start(ours, &at("api"))?;
        let controllers = api.controllers(ours.controllers, &at("controllers"))?;
        let scheduler = if ours.scheduler { parts::scheduler } else { upstream::scheduler };
        let scheduler = scheduler(&at("scheduler"), &api.kubeconfig("scheduler"))?;
        let (kubeconfig, serving) = (api.kubeconfig("node1"), api.serving()?);
        let kubelet = if ours.kubelet {
            parts::kubelet(&at("kubelet"), &kubeconfig, runtime.socket(), cgroup.path(), &serving)?
        } else {
            let serving = Some(&serving);
            upstream::kubelet(&at("kubelet"), &kubeconfig, runtime.socket(), cgroup.path(), serving)?
        };
        let names = residue::Names {
            data_dir: folder.path().to_owned(),
            run_dir: runtime.run_dir()?,
            cgroup_root: cgroup.path().to_owned(),
            bridge: BRIDGE.to_owned(),
        };
        let mut stack = Stack {
            kubelet,
            driver: None,
            scheduler,
            controllers,
            api,
            runtime,
            _nri: nri,
            _cgroup: cgroup,
            before: Vec::new(),
            names,
            folder,
        };
        stack.until_ready().map_err(|error| error.context(stack.log_tails()))?;
        if settings.network_driver {
            stack.driver = Some(stack.start_driver(ours.driver)?);
            stack.until_offered().map_err(|error| error.context(stack.log_tails()))?;
            if ours.driver {
                stack.until_registered().map_err(|error| error.context(stack.log_tails()))?;
            }
        }
        // The node's own, like the folder that kubelet mounts onto itself.
        stack.before = residue::of_pods(&stack.names);
        Ok(stack)
    }

    fn until_ready(&self) -> Result<()> {
        eventually("the node is Ready", PATIENCE, || {
            let ready = self.kubectl(&["wait", "--for=condition=Ready", "node/node1", "--timeout=1s"]);
            let says = "jsonpath={.status.conditions[?(@.type==\"Ready\")].message}";
            let why = || self.kubectl(&["get", "node", "node1", "-o", says]);
            ready.map(drop).map_err(|_| why().unwrap_or_else(|error| error.to_string()))
        })
    }

    fn start_driver(&self, ours: bool) -> Result<Peer> {
        let folder = self.path().join("driver");
        let beside = claims::Beside {
            kubeconfig: self.kubeconfig(),
            kubelet: self.kubelet_root(),
            nri: self.nri_socket(),
        };
        if ours { parts::netdriver(&folder, &beside, BRIDGE) } else { claims::dranet(&folder, &beside) }
    }

    fn until_offered(&self) -> Result<()> {
        eventually("the driver offers the device", PATIENCE, || {
            let names = "jsonpath={.items[*].spec.devices[*].name}";
            match self.kubectl(&["get", "resourceslices", "-o", names]) {
                Ok(said) if said.split_whitespace().any(|name| name == claims::DEVICE) => Ok(()),
                Ok(said) => Err(said),
                Err(error) => Err(format!("{error:#}")),
            }
        })
    }

    /// Waits for our driver to be known: a pod that comes before that upstream's kubelet tries again after a minute.
    fn until_registered(&self) -> Result<()> {
        eventually("the kubelet knows the driver", PATIENCE, || {
            let said = self.driver.as_ref().map(Peer::log_tail).unwrap_or_default();
            if said.contains("registered with the kubelet") { Ok(()) } else { Err(said) }
        })
    }

    /// The kubelet's folder.
    pub fn kubelet_root(&self) -> PathBuf {
        self.folder.path().join("kubelet/root")
    }

    /// The administrator's credentials.
    pub fn kubeconfig(&self) -> PathBuf {
        self.api.kubeconfig("admin")
    }

    /// Where NRI plugins register, if that was asked for.
    pub fn nri_socket(&self) -> PathBuf {
        self.folder.path().join("nri.sock")
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the real kubectl; its output, or its complaint as the error.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(peer("kubectl")?);
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder.path());
        said(&format!("kubectl {}", args.join(" ")), &command.args(args).output()?)
    }

    /// Applies a manifest as soon as the API server admits it; when it did.
    pub fn apply_admitted(&self, manifest: &str) -> Result<Instant> {
        let path = self.folder.path().join("manifest.yaml");
        fs::write(&path, manifest)?;
        let path = path.display().to_string();
        // Our API server admits pods once the default service account is there.
        eventually("the objects are admitted", PATIENCE, || {
            let begun = Instant::now();
            self.kubectl(&["apply", "-f", &path]).map(|_| begun).map_err(|error| format!("{error:#}"))
        })
    }

    /// Runs `podwire trace` over what our participants reported.
    pub fn trace(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(bin_dir().join("podwire"));
        command.arg("trace").args(args).arg("--trace-dir").arg(self.folder.path().join("trace"));
        said(&format!("podwire trace {}", args.join(" ")), &command.output()?)
    }

    /// The ends of the participants' logs, for failure messages.
    pub fn log_tails(&self) -> String {
        let own = [&self.kubelet, &self.scheduler, &self.controllers, self.runtime.peer()];
        let tails: Vec<String> = own.into_iter().chain(&self.driver).map(Peer::log_tail).collect();
        format!("{}\n{}", tails.join("\n"), self.api.log_tails())
    }

    /// Fails unless the pods' links, mounts, cgroups, addresses and folders go soon (upstream's kubelet takes a minute).
    pub fn assert_no_pod_residue(&self) -> Result<()> {
        let at = |name: &str| self.folder.path().join(name);
        let places = [at("ipam/matrix"), self.kubelet_root().join("pods")];
        eventually("nothing is left of the pods", Duration::from_secs(90), || {
            let mut found = residue::of_pods(&self.names);
            found.retain(|one| !self.before.contains(one));
            for entry in places.iter().flat_map(fs::read_dir).flatten().flatten() {
                // IPAM keeps a lock and the last address it gave.
                let address = entry.file_name().display().to_string().parse::<std::net::IpAddr>();
                if entry.path().is_dir() || address.is_ok() {
                    found.push(entry.path().display().to_string());
                }
            }
            if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
        })
    }
}

fn said(what: &str, done: &Output) -> Result<String> {
    if !done.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
