//! One test's daemon, image and names, all gone at its end.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};

use podwire_image::build::{ImageBuilder, LayerBuilder};
use podwire_linux::netns::Netns;
use podwire_wire::cri::{self, runtime_service_client::RuntimeServiceClient};
use rustix::process::{Pid, Signal};
use tonic::transport::Channel;

/// The image every container is made from.
pub(crate) const IMAGE: &str = "example.test/tools:1";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A daemon and its client.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) cri: RuntimeServiceClient<Channel>,
    name: String,
    netns: Netns,
    daemon: Option<Child>,
    _keep: tempfile::TempDir,
}

/// Waits for something to become true.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A network namespace with nothing but loopback.
fn isolated() -> Netns {
    let thread = std::thread::Builder::new().name("isolate".into()).spawn(|| {
        podwire_testkit::isolate().unwrap();
        Netns::current().unwrap()
    });
    thread.unwrap().join().unwrap()
}

/// The daemon's program.
pub(crate) fn daemon_exe() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let exe = tests.parent().unwrap().parent().unwrap().join("examples/cri_daemon");
    assert!(
        exe.exists(),
        "{} is not built: cargo build -p podwire-runtime --example cri_daemon",
        exe.display()
    );
    exe
}

/// An image of three layers that declares a volume.
pub(crate) const DATA: &str = "example.test/data:1";

fn data_image(path: &Path) {
    let busybox = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    let mut first = LayerBuilder::new().dir("bin", 0o755).file("bin/busybox", busybox, 0o755);
    for applet in ["sh", "sleep", "cat", "echo", "ls"] {
        first = first.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    let first = first.dir("dir", 0o755).dir("dir/deep", 0o755).file("dir/deep/one", "first\n", 0o644);
    let first = first.file("dir/gone", "never seen\n", 0o644).dir("declared", 0o1777);
    let second = LayerBuilder::new().dir("dir", 0o755).dir("dir/deep", 0o755);
    let second = second.file("dir/deep/two", "second\n", 0o644).file("declared/kept", "copied\n", 0o644);
    let third = LayerBuilder::new().dir("dir", 0o755).file("dir/.wh.gone", "", 0o644);
    let third = third.symlink("dir/out", "../../../../../../etc");
    let built =
        ImageBuilder::new().layer(&first).layer(&second).layer(&third).volumes(&["/declared", "/fresh"]);
    built.cmd(&["sh", "-c", "sleep 1000"]).build().write_oci_archive(path, DATA).unwrap();
}

fn image(path: &Path) {
    let busybox = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    let mut layer = LayerBuilder::new().dir("bin", 0o755).file("bin/busybox", busybox, 0o755);
    for applet in
        ["sh", "true", "false", "sleep", "cat", "echo", "id", "hostname", "dd", "ls", "head", "tail", "kill"]
    {
        layer = layer.hard_link(&format!("bin/{applet}"), "bin/busybox");
    }
    let passwd = "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:/bin/sh\n";
    let layer =
        layer.dir("etc", 0o755).dir("tmp", 0o1777).file("etc/passwd", passwd, 0o644).dir("data", 0o755);
    let layer =
        layer.file("data/note", "from the image\n", 0o644).file("etc/group", "extra:x:50000:web\n", 0o644);
    let built = ImageBuilder::new().layer(&layer).cmd(&["sh", "-c", "sleep 1000"]).build();
    built.write_oci_archive(path, IMAGE).unwrap();
}

/// Kills supervisors until it is dropped.
pub(crate) struct Killer {
    done: std::sync::Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().ok();
    }
}

impl World {
    pub(crate) async fn new() -> World {
        World::with_run_folder_of(0).await
    }

    /// One whose run folder is a file system of so many bytes; zero is no limit.
    pub(crate) async fn with_run_folder_of(bytes: u64) -> World {
        let keep = tempfile::Builder::new().prefix("pwrt").tempdir().unwrap();
        let name = format!("pwrt-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = keep.path().join(&name);
        std::fs::create_dir_all(dir.join("run")).unwrap();
        if bytes > 0 {
            podwire_linux::mount::tmpfs(&dir.join("run"), bytes, 0o755).unwrap();
        }
        let archive = keep.path().join("image.tar");
        image(&archive);
        let data = keep.path().join("data.tar");
        data_image(&data);
        let netns = isolated();
        let cri = RuntimeServiceClient::new(podwire_wire::unix::channel(dir.join("cri.sock")));
        let mut world = World { dir, cri, name, netns, daemon: None, _keep: keep };
        world.start_with(&[&archive, &data]).await;
        world
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) async fn start(&mut self, archive: Option<&Path>) {
        self.start_with(&archive.into_iter().collect::<Vec<_>>()).await;
    }

    pub(crate) async fn start_with(&mut self, archives: &[&Path]) {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("log")).unwrap();
        let mut command = Command::new(daemon_exe());
        command.arg(&self.dir).args(archives).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemon = Some(self.netns.run(|| command.spawn()).unwrap().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.cri.clone().version(cri::VersionRequest::default()).await.is_err() {
            let log = || std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the daemon does not answer: {}", log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Does something in the node's network namespace.
    pub(crate) fn on_node<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work).unwrap()
    }

    /// Takes all the room there is in the run folder.
    pub(crate) fn fill_run_folder(&self) {
        use std::io::Write;
        let mut filler = std::fs::File::create(self.dir.join("run/filler")).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    /// Gives that room back.
    pub(crate) fn empty_run_folder(&self) {
        std::fs::remove_file(self.dir.join("run/filler")).unwrap();
    }

    /// Lets the daemon have only so many descriptors from now on.
    pub(crate) fn limit_descriptors(&self, count: u64) {
        use rustix::process::{Resource, Rlimit, prlimit};
        let pid = Pid::from_child(self.daemon.as_ref().unwrap());
        let limit = Rlimit { current: Some(count), maximum: Some(4096) };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    }

    /// Kills every supervisor there is and that comes, until the answer is dropped.
    pub(crate) fn kill_supervisors(&self) -> Killer {
        let (dir, done) = (self.dir.clone(), std::sync::Arc::new(AtomicBool::new(false)));
        let told = done.clone();
        let kill = move || {
            while !told.load(Ordering::Relaxed) {
                signal_supervisor(&dir, Signal::KILL);
                std::thread::sleep(Duration::from_millis(40));
            }
        };
        let thread = std::thread::Builder::new().name("killer".into()).spawn(kill).unwrap();
        Killer { done, thread: Some(thread) }
    }

    /// Holds the supervisor up: what is asked of it stays in its socket.
    pub(crate) fn freeze_supervisor(&self) {
        signal_supervisor(&self.dir, Signal::STOP);
    }

    /// Lets the supervisor go on.
    pub(crate) fn thaw_supervisor(&self) {
        signal_supervisor(&self.dir, Signal::CONT);
    }

    /// kill -9 of the supervisor, and of nothing else: a child it has just made looks like it.
    pub(crate) fn kill_supervisor(&self) {
        let pid = self.supervisor().expect("a supervisor holds its lock");
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }

    /// Who holds the supervisor's lock.
    fn supervisor(&self) -> Option<Pid> {
        use std::os::unix::fs::MetadataExt;
        let inode = std::fs::metadata(self.dir.join("supervisor/supervisor.lock")).ok()?.ino();
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let held =
            locks.lines().find(|line| line.contains("FLOCK") && line.contains(&format!(":{inode} ")))?;
        Pid::from_raw(held.split_whitespace().nth(4)?.parse().ok()?)
    }

    /// kill -9: nothing is said goodbye to.
    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    pub(crate) fn pod(&self, name: &str) -> cri::PodSandboxConfig {
        let metadata = cri::PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "test".into(),
            attempt: 0,
        };
        let options =
            cri::NamespaceOption { pid: cri::NamespaceMode::Container as i32, ..Default::default() };
        let security =
            cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        cri::PodSandboxConfig {
            metadata: Some(metadata),
            hostname: name.into(),
            log_directory: self.dir.join("logs").to_string_lossy().into_owned(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}/{name}", self.name),
                security_context: Some(security),
                ..Default::default()
            }),
            labels: HashMap::from([("pod".to_owned(), name.to_owned())]),
            ..Default::default()
        }
    }

    pub(crate) fn shell(name: &str, script: &str) -> cri::ContainerConfig {
        let options =
            cri::NamespaceOption { pid: cri::NamespaceMode::Container as i32, ..Default::default() };
        let security = cri::LinuxContainerSecurityContext {
            namespace_options: Some(options),
            seccomp: Some(cri::SecurityProfile::default()),
            ..Default::default()
        };
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: vec!["/bin/sh".into(), "-c".into(), script.into()],
            log_path: format!("{name}.log"),
            linux: Some(cri::LinuxContainerConfig { security_context: Some(security), ..Default::default() }),
            ..Default::default()
        }
    }

    pub(crate) async fn run(&self, config: &cri::PodSandboxConfig) -> Result<String, tonic::Status> {
        let request =
            cri::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        Ok(self.cri.clone().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
    }

    pub(crate) async fn create(
        &self,
        sandbox: &str,
        pod: &cri::PodSandboxConfig,
        config: &cri::ContainerConfig,
    ) -> Result<String, tonic::Status> {
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config.clone()),
            sandbox_config: Some(pod.clone()),
        };
        Ok(self.cri.clone().create_container(request).await?.into_inner().container_id)
    }

    pub(crate) async fn begin(&self, container: &str) -> Result<(), tonic::Status> {
        let request = cri::StartContainerRequest { container_id: container.to_owned() };
        self.cri.clone().start_container(request).await.map(|_| ())
    }

    /// The folder of a container's own files.
    pub(crate) fn container_dir(&self, id: &str) -> PathBuf {
        self.dir.join("data/containers").join(id)
    }

    pub(crate) async fn stop_and_remove(&self, sandbox: &str) {
        let id = sandbox.to_owned();
        self.cri
            .clone()
            .stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() })
            .await
            .unwrap();
        self.cri
            .clone()
            .remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id })
            .await
            .unwrap();
    }

    pub(crate) async fn status(&self, container: &str) -> cri::ContainerStatus {
        let request = cri::ContainerStatusRequest { container_id: container.to_owned(), verbose: false };
        self.cri.clone().container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    pub(crate) async fn exited(&self, container: &str) -> cri::ContainerStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.status(container).await;
            if status.state == cri::ContainerState::ContainerExited as i32 {
                return status;
            }
            assert!(Instant::now() < deadline, "container never exited: {status:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn exec(
        &self,
        container: &str,
        script: &str,
        timeout: i64,
    ) -> Result<cri::ExecSyncResponse, tonic::Status> {
        let cmd = vec!["/bin/sh".into(), "-c".into(), script.into()];
        let request = cri::ExecSyncRequest { container_id: container.to_owned(), cmd, timeout };
        Ok(self.cri.clone().exec_sync(request).await?.into_inner())
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(format!("logs/{name}.log"))).unwrap_or_default()
    }

    /// Everything pods leave behind if somebody forgets it.
    pub(crate) fn residue(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["run/sandboxes", "images/snapshots", "data/containers"] {
            for entry in std::fs::read_dir(self.dir.join(folder)).into_iter().flatten().flatten() {
                found.push(entry.path().display().to_string());
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let under = self.dir.to_string_lossy();
        let run = format!(" {under}/run ");
        let ours = |line: &&str| line.contains(&*under) && !line.contains(&run);
        found.extend(mounts.lines().filter(ours).map(str::to_owned));
        let links = self.netns.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
        found.extend(links.lines().filter(|line| line.trim_start().starts_with("veth")).map(str::to_owned));
        for entry in std::fs::read_dir(self.dir.join("cni/ipam")).into_iter().flatten().flatten() {
            for address in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let name = address.file_name().to_string_lossy().into_owned();
                if name.parse::<std::net::IpAddr>().is_ok() {
                    found.push(format!("address {name}"));
                }
            }
        }
        found
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        signal_supervisor(&self.dir, Signal::KILL);
        podwire_linux::mount::detach_all_under(&self.dir).ok();
        eventually("cgroups are gone", || remove_cgroups(&self.name));
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            eprintln!("--- daemon log ---\n{log}");
        }
    }
}

/// Sends a signal to this test's supervisor, if it lives.
fn signal_supervisor(dir: &Path, signal: Signal) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command);
        if command.contains("supervisor") && command.contains(&*dir.to_string_lossy()) {
            rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).ok();
        }
    }
}

fn remove_cgroups(name: &str) -> bool {
    let group = podwire_linux::cgroup::group(name).unwrap();
    clear(&group)
}

fn clear(group: &podwire_linux::cgroup::Group) -> bool {
    if !group.exists() {
        return true;
    }
    group.signal(9).ok();
    let children: Vec<_> =
        group.children().unwrap_or_default().iter().map(|name| group.child(name).unwrap()).collect();
    let cleared = children.iter().map(clear).filter(|done| !done).count() == 0;
    cleared && group.try_remove().unwrap_or(false)
}
