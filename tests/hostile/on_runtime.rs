//! A CRI runtime alone for a class of rows: ours, or containerd in the interop lane, with the same image and network.

use std::{
    cell::Cell,
    collections::HashMap,
    fs,
    future::Future,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use podwire_testkit::{
    cgroup_root::CgroupRoot,
    images::{Files, Image, Layer},
    isolate,
    node::bin_dir,
    runtimes::{Bed, Running},
};
use podwire_wire::cri::{
    self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient,
};
use serde_json::json;
use tonic::{Status, transport::Channel};

use crate::{
    processes,
    row::{Outcome, World},
};

/// The image of every container.
pub const IMAGE: &str = "localhost/box:latest";
/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The daemon may never have had more memory than this.
const MOST_MEMORY: u64 = 400 << 20;

/// A runtime and its client.
pub struct OnRuntime {
    /// The client of its pods and containers.
    pub cri: RuntimeServiceClient<Channel>,
    /// The client of its images.
    pub images: ImageServiceClient<Channel>,
    /// A folder of the host with a file `marker` in it.
    pub host: tempfile::TempDir,
    tokio: tokio::runtime::Runtime,
    cgroup: CgroupRoot,
    next: Cell<u32>,
    daemon: u32,
    core_pattern: String,
    running: Option<Running>,
    bed: Bed,
}

/// What became of a container.
pub enum Called {
    /// A call said no.
    Refused(Status),
    /// It ran and ended.
    Ended {
        /// What it printed.
        log: String,
        /// Its exit code.
        code: i32,
    },
}

impl Called {
    /// Passes when it was refused or ran without printing `ESCAPED`.
    pub fn harmless(self) -> Outcome {
        match self {
            Called::Refused(status) if status.code() == tonic::Code::DeadlineExceeded => bail!("{status}"),
            Called::Refused(status) => Ok(format!("refused: {}: {}", status.code(), status.message())),
            Called::Ended { log, .. } if log.contains("ESCAPED") => bail!("the container got out: {log}"),
            Called::Ended { log, code } => {
                ensure!(log.contains("PROBED"), "the probe did not come to its end ({code}): {log}");
                Ok(format!("ran and saw nothing: {}", log.replace('\n', " ")))
            }
        }
    }

    /// Passes when a call said no, and did not just let time pass.
    pub fn refused(self) -> Outcome {
        match self {
            Called::Ended { log, .. } => bail!("it ran: {log}"),
            refused => refused.harmless(),
        }
    }
}

fn image() -> Result<Vec<Image>> {
    let busybox = fs::read("/bin/busybox").context("busybox-static is not installed; run .ci/setup")?;
    let app = fs::read(bin_dir().join("pod-app")).context("read pod-app")?;
    let mut files = Files::default().folder("bin", 0o755).file("bin/busybox", busybox, 0o755);
    for applet in [
        "sh", "sleep", "cat", "echo", "ls", "ln", "readlink", "grep", "yes", "id", "head", "mv", "true",
        "seq", "mkdir",
    ] {
        files = files.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    files = files.folder("etc", 0o755).file("etc/passwd", "root:x:0:0::/:/bin/sh\n", 0o644);
    files = files.file("etc/group", "root:x:0:\n", 0o644).folder("data", 0o755).folder("tmp", 0o1777);
    let layer = Layer::new(&files.file("pause", app, 0o755))?;
    let config = json!({"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]});
    Ok(vec![
        Image::new(&["box:latest"], &layer, &config)?,
        Image::new(&["sandbox:latest"], &layer, &json!({"Entrypoint": ["/pause"]}))?,
    ])
}

impl OnRuntime {
    /// Ours, or what else `start` starts in the bed.
    pub fn with(start: impl FnOnce(&Bed) -> Result<Running>) -> Result<OnRuntime> {
        isolate()?;
        let bed = Bed::new(image()?)?;
        let running = start(&bed)?;
        let daemon = *running.pids()?.first().context("no daemon")?;
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = tokio.enter();
        let channel = podwire_wire::unix::channel(&running.socket);
        drop(inside);
        let host = tempfile::Builder::new().prefix("podwire-hostile-host-").tempdir()?;
        fs::write(host.path().join("marker"), "the host's\n")?;
        let world = OnRuntime {
            cri: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(64 << 20),
            images: ImageServiceClient::new(channel),
            host,
            tokio,
            cgroup: CgroupRoot::create()?,
            next: Cell::new(0),
            daemon,
            core_pattern: fs::read_to_string("/proc/sys/kernel/core_pattern")?,
            running: Some(running),
            bed,
        };
        let image = Some(cri::ImageSpec { image: IMAGE.to_owned(), ..Default::default() });
        let mut images = world.images.clone();
        world
            .wait(images.pull_image(cri::PullImageRequest { image, ..Default::default() }))
            .map_err(|status| anyhow::anyhow!("{status}"))?;
        Ok(world)
    }

    /// The path of the marker, as the host sees it.
    pub fn marker(&self) -> String {
        self.host.path().join("marker").display().to_string()
    }

    /// The folders of network configuration and of plugins.
    pub fn networks(&self) -> (PathBuf, PathBuf) {
        (self.bed.path().join("ours0-net.d"), self.bed.path().join("ours-bin"))
    }

    /// Where it serves CRI.
    pub fn socket(&self) -> Result<PathBuf> {
        Ok(self.running.as_ref().context("it was taken away")?.socket.clone())
    }

    /// The host-global names of our runtime.
    fn names(&self) -> Result<serde_json::Value> {
        let folder = self.bed.path().join("ours");
        let done =
            Command::new(bin_dir().join("podwire")).args(["instance", "--data-dir"]).arg(folder).output()?;
        Ok(serde_json::from_slice(&done.stdout)?)
    }

    /// The sockets of our runtime besides CRI's.
    pub fn sockets(&self) -> Result<Vec<PathBuf>> {
        let names = self.names()?;
        let folder = fs::read_dir(names["runDir"].as_str().context("no runDir")?)?;
        let mut found: Vec<PathBuf> = folder
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "sock"))
            .collect();
        // The supervisor is a process of its own.
        found.retain(|path| !path.ends_with("supervisor.sock") && !path.ends_with("cri.sock"));
        found.extend(self.nri_socket());
        Ok(found)
    }

    /// Removes pods that failed: as CRI has it, they may wait for that.
    pub fn clear(&self) -> Result<()> {
        let all = self.wait(self.cri.clone().list_pod_sandbox(cri::ListPodSandboxRequest::default()))?.items;
        for one in all.iter().filter(|one| one.state != cri::PodSandboxState::SandboxReady as i32) {
            self.down(&one.id)?;
        }
        Ok(())
    }

    /// How many sandboxes there are.
    pub fn sandboxes(&self) -> Result<usize> {
        Ok(self.wait(self.cri.clone().list_pod_sandbox(cri::ListPodSandboxRequest::default()))?.items.len())
    }

    /// Where NRI plugins register.
    pub fn nri_socket(&self) -> Result<PathBuf> {
        self.running.as_ref().and_then(|running| running.nri_socket.clone()).context("no NRI here")
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.daemon
    }

    /// A name that was not used before.
    pub fn fresh(&self) -> String {
        self.next.set(self.next.get() + 1);
        format!("h{}", self.next.get())
    }

    /// The end of a call, or of patience.
    pub fn wait<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Status> {
        self.tokio.block_on(async {
            match tokio::time::timeout(PATIENCE, call).await {
                Ok(answer) => answer.map(tonic::Response::into_inner),
                Err(_) => Err(Status::deadline_exceeded(format!("no answer within {PATIENCE:?}"))),
            }
        })
    }

    /// Where containers log.
    pub fn logs(&self) -> PathBuf {
        self.host.path().join("logs")
    }

    /// A plain pod.
    pub fn pod(&self) -> cri::PodSandboxConfig {
        let name = self.fresh();
        let metadata = cri::PodSandboxMetadata {
            name: name.clone(),
            uid: format!("uid-{name}"),
            namespace: "hostile".to_owned(),
            attempt: 0,
        };
        let pid = cri::NamespaceMode::Container as i32;
        let options = cri::NamespaceOption { pid, ..Default::default() };
        let security =
            cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        cri::PodSandboxConfig {
            metadata: Some(metadata),
            hostname: name.clone(),
            log_directory: self.logs().display().to_string(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup.path()),
                security_context: Some(security),
                ..Default::default()
            }),
            labels: HashMap::from([("of".to_owned(), "hostile".to_owned())]),
            ..Default::default()
        }
    }

    /// A plain container that runs a script, masked as a kubelet asks for.
    pub fn container(&self, script: &str) -> cri::ContainerConfig {
        let pid = cri::NamespaceMode::Container as i32;
        let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
        let security = cri::LinuxContainerSecurityContext {
            namespace_options: Some(cri::NamespaceOption { pid, ..Default::default() }),
            masked_paths: paths(&["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]),
            readonly_paths: paths(&[
                "/proc/bus",
                "/proc/fs",
                "/proc/irq",
                "/proc/sys",
                "/proc/sysrq-trigger",
            ]),
            ..Default::default()
        };
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{}.log", self.fresh()),
            linux: Some(cri::LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
            ..Default::default()
        }
    }

    /// RunPodSandbox.
    pub fn run(&self, config: &cri::PodSandboxConfig) -> Result<String, Status> {
        let request =
            cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        Ok(self.wait(self.cri.clone().run_pod_sandbox(request))?.pod_sandbox_id)
    }

    /// CreateContainer.
    pub fn create(
        &self,
        sandbox: &str,
        pod: &cri::PodSandboxConfig,
        config: &cri::ContainerConfig,
    ) -> Result<String, Status> {
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config.clone()),
            sandbox_config: Some(pod.clone()),
        };
        Ok(self.wait(self.cri.clone().create_container(request))?.container_id)
    }

    /// StartContainer.
    pub fn start(&self, container: &str) -> Result<(), Status> {
        let request = cri::StartContainerRequest { container_id: container.to_owned() };
        self.wait(self.cri.clone().start_container(request)).map(drop)
    }

    /// ExecSync of a script.
    pub fn exec(&self, container: &str, script: &str, timeout: i64) -> Result<cri::ExecSyncResponse, Status> {
        let cmd = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        self.wait(self.cri.clone().exec_sync(cri::ExecSyncRequest {
            container_id: container.to_owned(),
            cmd,
            timeout,
        }))
    }

    /// StopPodSandbox and RemovePodSandbox.
    pub fn down(&self, sandbox: &str) -> Result<()> {
        let id = sandbox.to_owned();
        let stop = cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() };
        self.wait(self.cri.clone().stop_pod_sandbox(stop))
            .map_err(|status| anyhow::anyhow!("stop: {status}"))?;
        let remove = cri::RemovePodSandboxRequest { pod_sandbox_id: id };
        self.wait(self.cri.clone().remove_pod_sandbox(remove))
            .map_err(|status| anyhow::anyhow!("remove: {status}"))?;
        Ok(())
    }

    /// A pod with one container that runs `script`, both changed by `change`; taken away again.
    pub fn tried(
        &self,
        script: &str,
        change: impl FnOnce(&mut cri::PodSandboxConfig, &mut cri::ContainerConfig),
    ) -> Result<Called> {
        let (mut pod, mut container) = (self.pod(), self.container(script));
        change(&mut pod, &mut container);
        let sandbox = match self.run(&pod) {
            Ok(id) => id,
            Err(status) => return Ok(Called::Refused(status)),
        };
        let called = self.ran(&sandbox, &pod, &container);
        self.down(&sandbox)?;
        called
    }

    fn ran(
        &self,
        sandbox: &str,
        pod: &cri::PodSandboxConfig,
        config: &cri::ContainerConfig,
    ) -> Result<Called> {
        let id = match self.create(sandbox, pod, config).and_then(|id| self.start(&id).map(|()| id)) {
            Ok(id) => id,
            Err(status) => return Ok(Called::Refused(status)),
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = cri::ContainerStatusRequest { container_id: id.clone(), verbose: false };
            let answer = self.wait(self.cri.clone().container_status(request))?;
            let status = answer.status.context("no status")?;
            if status.state == cri::ContainerState::ContainerExited as i32 {
                let text = fs::read_to_string(self.logs().join(&config.log_path)).unwrap_or_default();
                let lines = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
                return Ok(Called::Ended {
                    log: lines.collect::<Vec<_>>().join("\n"),
                    code: status.exit_code,
                });
            }
            ensure!(Instant::now() < deadline, "the container does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl World for OnRuntime {
    fn make() -> Result<OnRuntime> {
        OnRuntime::with(|bed| bed.ours(false))
    }

    fn well(&self) -> Result<()> {
        let peak = processes::peak_memory(self.daemon).context("the daemon died")?;
        fs::write(format!("/proc/{}/clear_refs", self.daemon), "5")?;
        ensure!(peak < MOST_MEMORY, "the daemon took {} MB", peak >> 20);
        ensure!(
            fs::read_to_string("/proc/sys/kernel/core_pattern")? == self.core_pattern,
            "the host's core_pattern was changed"
        );
        ensure!(fs::read_to_string(self.marker())? == "the host's\n", "the host's file was changed");
        let answer = self.wait(self.cri.clone().status(cri::StatusRequest::default()))?;
        let conditions = answer.status.unwrap_or_default().conditions;
        for one in
            conditions.iter().filter(|one| one.r#type == "RuntimeReady" || one.r#type == "NetworkReady")
        {
            ensure!(one.status, "{}: {}", one.r#type, one.message);
        }
        Ok(())
    }

    fn sound(&self) -> Result<()> {
        match self.tried("echo PROBED", |_, _| {})? {
            Called::Ended { log, .. } if log.contains("PROBED") => Ok(()),
            Called::Ended { log, code } => bail!("a plain container printed {log:?} and ended with {code}"),
            Called::Refused(status) => bail!("a plain container: {status}"),
        }
    }

    fn end(self) -> Result<()> {
        let left = self.clear().and_then(|()| self.sandboxes());
        self.destroy();
        ensure!(left? == 0, "sandboxes are left");
        Ok(())
    }

    fn destroy(mut self) {
        // A supervisor that hangs would hang `podwire down` too.
        let names = self.names().unwrap_or_default();
        let run_dir = PathBuf::from(names["runDir"].as_str().unwrap_or("/nowhere"));
        let cgroup_root = names["cgroupRoot"].as_str().unwrap_or("/nowhere");
        processes::kill_supervisor(&run_dir);
        processes::kill_group(cgroup_root);
        drop(self.running.take());
        processes::sweep(&run_dir, cgroup_root);
    }
}
