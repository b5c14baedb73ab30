//! A supervisor, a rootfs and unique names for one test, all gone at its end.

#![allow(dead_code)]

use std::collections::HashMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use oci_spec::runtime::{
    Capabilities, Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxNamespaceBuilder,
    LinuxNamespaceType, LinuxResources, Mount, MountBuilder, ProcessBuilder, Spec, SpecBuilder, UserBuilder,
};
use podwire_container::{
    ContainerStatus, CreateRequest, Event, ExecHandle, ExecRequest, Rootfs, Supervisor, SupervisorConfig,
};
use podwire_linux::mount::Handing;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Events as they come.
#[derive(Default)]
pub(crate) struct Events {
    seen: Mutex<Vec<Event>>,
    more: Condvar,
}

impl Events {
    pub(crate) fn sink(self: &Arc<Self>) -> Arc<dyn Fn(Event) + Send + Sync> {
        let events = Arc::clone(self);
        Arc::new(move |event| {
            events.seen.lock().unwrap().push(event);
            events.more.notify_all();
        })
    }

    pub(crate) fn wait(&self, what: &str, mut wanted: impl FnMut(&Event) -> bool) -> Event {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut seen = self.seen.lock().unwrap();
        loop {
            if let Some(event) = seen.iter().find(|event| wanted(event)) {
                return event.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for {what}, saw {seen:?}");
            seen = self.more.wait_timeout(seen, left).unwrap().0;
        }
    }
}

/// One test's supervisor and files.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cfg: SupervisorConfig,
    pub(crate) supervisor: Supervisor,
    pub(crate) events: Arc<Events>,
    pub(crate) cgroup: String,
}

impl World {
    pub(crate) fn new() -> World {
        World::with_state_in(None)
    }

    /// One whose supervisor keeps its state in that folder.
    pub(crate) fn with_state_in(state: Option<&Path>) -> World {
        let dir = tempfile::Builder::new().prefix("podwire-container").tempdir().unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("podwire-test-{}-{number}", std::process::id());
        make_rootfs(&dir.path().join("rootfs"));
        let cfg = SupervisorConfig {
            exe: PathBuf::from(env!("CARGO_BIN_EXE_podwire-supervisor-test")),
            exe_args: Vec::new(),
            socket: dir.path().join("run/supervisor.sock"),
            state_dir: state.map_or_else(|| dir.path().join("state"), Path::to_owned),
            cgroup: Some(format!("{cgroup}/supervisor")),
        };
        let events = Arc::new(Events::default());
        let supervisor = Supervisor::connect_or_spawn(&cfg, events.sink()).unwrap();
        World { dir, cfg, supervisor, events, cgroup }
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    /// An ordinary container: overlay root, all namespaces, a cgroup, a log.
    pub(crate) fn request(&self, id: &str, args: &[&str]) -> CreateRequest {
        let upper = self.dir.path().join(format!("{id}.upper"));
        let work = self.dir.path().join(format!("{id}.work"));
        std::fs::create_dir_all(&upper).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        CreateRequest {
            id: id.to_owned(),
            spec: spec(args, &format!("{}/{id}", self.cgroup)),
            rootfs: Rootfs::Overlay {
                lower: vec![self.rootfs()],
                upper,
                work,
                readonly: false,
                newest: Handing::default(),
            },
            log_path: Some(self.dir.path().join(format!("{id}.log"))),
            tty: false,
            stdin: false,
            stdin_once: false,
            oom_watch: true,
            bundle: None,
        }
    }

    /// Creates and starts a container.
    pub(crate) fn run(&self, request: CreateRequest) -> u32 {
        let id = request.id.clone();
        let created = self.supervisor.create(request).unwrap();
        self.supervisor.start(&id).unwrap();
        created.pid
    }

    /// Runs a container to its end: exit code and what it wrote to stdout.
    pub(crate) fn output(&self, request: CreateRequest) -> (i32, String) {
        let id = request.id.clone();
        let log = request.log_path.clone().unwrap();
        self.run(request);
        let Event::Exited { code, .. } = self.exit_of(&id) else { unreachable!() };
        let text = logged(&log, "stdout");
        self.supervisor.delete(&id).unwrap();
        (code, text)
    }

    pub(crate) fn exit_of(&self, id: &str) -> Event {
        self.events
            .wait(&format!("the exit of {id}"), |e| matches!(e, Event::Exited { id: i, .. } if i == id))
    }

    pub(crate) fn status(&self, id: &str) -> ContainerStatus {
        self.supervisor.list().unwrap().iter().find(|c| c.id == id).unwrap().status
    }

    pub(crate) fn exec(&self, id: &str, exec_id: &str, args: &[&str]) -> ExecHandle {
        self.supervisor.exec(exec(id, exec_id, args)).unwrap()
    }

    /// Runs an exec to its end: exit code and what it wrote to stdout.
    pub(crate) fn exec_output(&self, id: &str, exec_id: &str, args: &[&str]) -> (i32, String) {
        self.exec_request(exec(id, exec_id, args))
    }

    pub(crate) fn exec_request(&self, request: ExecRequest) -> (i32, String) {
        let exec_id = request.exec_id.clone();
        let handle = self.supervisor.exec(request).unwrap();
        let text = std::io::read_to_string(std::fs::File::from(handle.stdout.unwrap())).unwrap();
        (self.exec_exit(&exec_id), text)
    }

    pub(crate) fn exec_exit(&self, exec_id: &str) -> i32 {
        let event = self.events.wait(
            &format!("the exit of exec {exec_id}"),
            |e| matches!(e, Event::ExecExited { exec_id: i, .. } if i == exec_id),
        );
        let Event::ExecExited { code, .. } = event else { unreachable!() };
        code
    }

    /// Makes the file that scripts wait for, from outside.
    pub(crate) fn go(&self, id: &str) {
        let pid = self.supervisor.list().unwrap().iter().find(|c| c.id == id).unwrap().pid;
        std::fs::write(format!("/proc/{pid}/root/go"), "").unwrap();
    }

    pub(crate) fn supervisor_pid(&self) -> u32 {
        let group = podwire_linux::cgroup::group(&format!("{}/supervisor", self.cgroup)).unwrap();
        group.processes().unwrap()[0]
    }

    /// kill -9 of the supervisor; the connection ends with it.
    pub(crate) fn kill_supervisor(&self) {
        let pidfd = podwire_linux::pidfd::open(self.supervisor_pid()).unwrap();
        podwire_linux::pidfd::signal(&pidfd, libc::SIGKILL).unwrap();
        self.events.wait("the end of the connection", |e| *e == Event::Disconnected);
    }

    /// A new connection, to a new supervisor if need be.
    pub(crate) fn connect_again(&mut self) {
        let events = Arc::new(Events::default());
        self.supervisor = Supervisor::connect_or_spawn(&self.cfg, events.sink()).unwrap();
        self.events = events;
    }

    /// Starts a container that logs a line every now and then, until there is a file `/go`.
    pub(crate) fn run_ticker(&self, id: &str) -> u32 {
        let script = "n=0; until test -e /go; do n=$((n+1)); echo tick $n; sleep 0.02; done; exit 7";
        self.run(self.request(id, &["sh", "-c", script]))
    }

    /// Waits until a log has `more` lines than now.
    pub(crate) fn goes_on(&self, id: &str, more: usize) {
        let log = self.dir.path().join(format!("{id}.log"));
        let lines = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        let before = lines();
        eventually(Duration::from_secs(20), || lines() >= before + more, || format!("{id} logs no more"));
    }

    /// Mounts below our folder and cgroups besides the supervisor's own.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<_> = podwire_linux::mount::mounts_under(self.dir.path())
            .unwrap()
            .into_iter()
            .map(|p| p.display().to_string())
            .collect();
        let group = podwire_linux::cgroup::group(&self.cgroup).unwrap();
        left.extend(group.children().unwrap().into_iter().filter(|c| c != "supervisor"));
        left
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let group = podwire_linux::cgroup::group(&self.cgroup).unwrap();
        let containers = self.supervisor.list().unwrap_or_default();
        for container in &containers {
            self.supervisor.delete(&container.id).ok();
        }
        let ended = self.supervisor.shutdown();
        let removed = group.remove(Duration::from_secs(10));
        if std::thread::panicking() {
            podwire_linux::mount::detach_all_under(self.dir.path()).ok();
        } else {
            ended.unwrap();
            removed.unwrap();
            let left = podwire_linux::mount::mounts_under(self.dir.path()).unwrap();
            assert!(left.is_empty(), "mounts left: {left:?}");
        }
    }
}

/// What a log file has for one stream, joined.
pub(crate) fn logged(log: &Path, stream: &str) -> String {
    let text = std::fs::read_to_string(log).unwrap();
    let mut joined = String::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (_, of, tag, content) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        if of == stream {
            joined.push_str(content);
            if tag == "F" {
                joined.push('\n');
            }
        }
    }
    joined
}

pub(crate) fn exec(id: &str, exec_id: &str, args: &[&str]) -> ExecRequest {
    ExecRequest {
        container: id.to_owned(),
        exec_id: exec_id.to_owned(),
        argv: args.iter().map(|a| (*a).to_owned()).collect(),
        env: None,
        cwd: None,
        user: None,
        caps: None,
        tty: None,
        stdin: false,
        process: None,
    }
}

/// Polls until `done`, or panics with what `otherwise` says.
pub(crate) fn eventually(patience: Duration, mut done: impl FnMut() -> bool, otherwise: impl Fn() -> String) {
    let deadline = Instant::now() + patience;
    while !done() {
        assert!(Instant::now() < deadline, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn make_rootfs(root: &Path) {
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    for dir in ["proc", "sys", "dev", "tmp", "etc", "root"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is installed");
    let applets = "sh umount cat echo ls id env pwd sleep true false mount hostname ps touch mkdir grep stat kill \
                   tty stty dd head tail ping ulimit nproc readlink chroot unshare date printf wc chmod test yes";
    for applet in applets.split_whitespace() {
        symlink("busybox", bin.join(applet)).unwrap();
    }
}

pub(crate) fn default_caps() -> Capabilities {
    use Capability as C;
    [
        C::Chown,
        C::DacOverride,
        C::Fsetid,
        C::Fowner,
        C::Mknod,
        C::NetRaw,
        C::Setgid,
        C::Setuid,
        C::Setfcap,
        C::Setpcap,
        C::NetBindService,
        C::SysChroot,
        C::Kill,
        C::AuditWrite,
    ]
    .into_iter()
    .collect()
}

pub(crate) fn mount(target: &str, typ: &str, options: &[&str]) -> Mount {
    MountBuilder::default()
        .destination(target)
        .typ(typ)
        .source(typ)
        .options(options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
        .build()
        .unwrap()
}

pub(crate) fn bind(source: &Path, target: &str, options: &[&str]) -> Mount {
    MountBuilder::default()
        .destination(target)
        .typ("bind")
        .source(source)
        .options(options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
        .build()
        .unwrap()
}

pub(crate) fn namespaces(
    joined: &HashMap<LinuxNamespaceType, PathBuf>,
) -> Vec<oci_spec::runtime::LinuxNamespace> {
    use LinuxNamespaceType as T;
    [T::Pid, T::Network, T::Ipc, T::Uts, T::Mount]
        .into_iter()
        .map(|typ| {
            let builder = LinuxNamespaceBuilder::default().typ(typ);
            match joined.get(&typ) {
                Some(path) => builder.path(path.clone()).build().unwrap(),
                None => builder.build().unwrap(),
            }
        })
        .collect()
}

/// The spec a CRI runtime would write for an ordinary container.
pub(crate) fn spec(args: &[&str], cgroup: &str) -> Spec {
    let caps = LinuxCapabilitiesBuilder::default()
        .bounding(default_caps())
        .effective(default_caps())
        .permitted(default_caps())
        .inheritable(Capabilities::new())
        .ambient(Capabilities::new())
        .build()
        .unwrap();
    let process = ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0_u32).gid(0_u32).build().unwrap())
        .args(args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
        .env(vec!["PATH=/usr/bin:/bin".to_owned(), "GREETING=hi".to_owned()])
        .cwd("/")
        .capabilities(caps)
        .no_new_privileges(true)
        .oom_score_adj(500)
        .build()
        .unwrap();
    let linux = LinuxBuilder::default()
        .namespaces(namespaces(&HashMap::new()))
        .cgroups_path(format!("/{cgroup}"))
        .resources(LinuxResources::default())
        .masked_paths(vec!["/proc/kcore".to_owned(), "/proc/acpi".to_owned(), "/proc/keys".to_owned()])
        .readonly_paths(vec!["/proc/sys".to_owned(), "/proc/bus".to_owned()])
        .seccomp(podwire_container::seccomp::default_profile(&default_caps()))
        .build()
        .unwrap();
    let mounts = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=64m"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
    ];
    SpecBuilder::default().process(process).linux(linux).mounts(mounts).hostname("tested").build().unwrap()
}
