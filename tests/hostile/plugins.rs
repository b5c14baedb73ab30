//! Plugins that mean harm or are broken: CNI programs and configuration, and NRI plugins on their socket.

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use podwire_nri::{
    api::{
        Container, ContainerAdjustment, ContainerUpdate, CreateContainerResponse, Event, Hook, Hooks,
        KeyValue, LinuxContainerAdjustment, LinuxNamespace, Mount, PodSandbox,
    },
    stub::{Answer, Plugin, Stub},
};
use podwire_testkit::{eventually, node::bin_dir};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio_util::sync::CancellationToken;

use crate::{
    on_runtime::{Called, OnRuntime},
    row::{Outcome, Row, World, row},
};

/// A runtime that takes NRI plugins.
pub struct WithPlugins(OnRuntime);

impl World for WithPlugins {
    fn make() -> Result<WithPlugins> {
        OnRuntime::with(|bed| bed.ours(true)).map(WithPlugins)
    }

    fn well(&self) -> Result<()> {
        self.0.well()
    }

    fn sound(&self) -> Result<()> {
        self.0.sound()
    }

    fn end(self) -> Result<()> {
        self.0.end()
    }

    fn destroy(self) {
        self.0.destroy();
    }
}

/// The rows.
pub const ROWS: &[Row<WithPlugins>] = &[
    row("CNI: a plugin that answers garbage", "the pod is refused and the plugin named", |world: &WithPlugins| {
        cni(world, "echo '{\"cniVersion\": garbage'")?.refused()
    }),
    row("CNI: a plugin that prints without end", "the pod is refused in a few words that name it; little memory", |world: &WithPlugins| {
        briefly(cni(world, "exec timeout 8 yes")?)
    })
    .broken_before(),
    row("CNI: a plugin that complains without end", "the pod is refused in a few words that name it; little memory", |world: &WithPlugins| {
        briefly(cni(world, "timeout 5 yes >&2; exit 1")?)
    })
    .broken_before(),
    row("CNI: a plugin whose child keeps its output open", "answered when the plugin ends", |world: &WithPlugins| {
        let begun = Instant::now();
        let note = world.0.host.path().join("child");
        let add = format!("sleep 30 & echo $! > {}; echo '{{\"cniVersion\":\"1.0.0\",\"ips\":[]}}'; exit 0", note.display());
        let called = cni(world, &add)?;
        if let Some(pid) = fs::read_to_string(&note)?.trim().parse().ok().and_then(Pid::from_raw) {
            // Ignored: the runtime may have ended it with the plugin.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
        ensure!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
        called.harmless()
    }),
    row("CNI: a plugin that hangs", "other calls are answered; it is killed when its time is over", hanging_plugin),
    row("CNI: a plugin that kills itself, and one that cannot be executed", "the pod is refused", |world: &WithPlugins| {
        cni(world, "kill -9 $$")?.refused()?;
        let (_, programs) = world.0.networks();
        fs::write(programs.join("hostile"), "no program")?;
        fs::set_permissions(programs.join("hostile"), fs::Permissions::from_mode(0o644))?;
        let told = configured(world, CONF.as_bytes())?.refused();
        // A program that may not run keeps its pod until it may: somebody must take the network away.
        fs::write(programs.join("hostile"), "#!/bin/sh\nexit 0\n")?;
        fs::set_permissions(programs.join("hostile"), fs::Permissions::from_mode(0o755))?;
        world.0.clear()?;
        fs::remove_file(programs.join("hostile"))?;
        told
    }),
    row("CNI: results with addresses, interfaces and routes that are none", "the pod is refused, or has no such address", |world: &WithPlugins| {
        for result in [
            r#"{"cniVersion":"1.0.0","ips":[{"address":"999.1.1.1/33"}]}"#,
            r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/24","interface":99999}]}"#,
            r#"{"cniVersion":"1.0.0","interfaces":[{"name":"../../../x","sandbox":"/proc/1/ns/net"}]}"#,
            r#"{"cniVersion":"1.0.0","ips":"none","dns":{"nameservers":["x\nsearch evil"]}}"#,
            r#"{"cniVersion":"99.0.0"}"#,
            "[]",
            "",
        ] {
            match cni(world, &format!("printf '%s' '{result}'"))? {
                Called::Ended { .. } => {}
                refused => drop(refused.harmless()?),
            }
        }
        Ok("each is answered".to_owned())
    }),
    row("CNI: configuration that names a program by its path", "no program outside of the folder runs", |world: &WithPlugins| {
        let proof = world.0.host.path().join("evil");
        let program = world.0.host.path().join("program");
        fs::write(&program, format!("#!/bin/sh\ntouch {}\n", proof.display()))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let up = format!("{}{}", "../".repeat(12), program.display().to_string().trim_start_matches('/'));
        for kind in [up.as_str(), &program.display().to_string(), "x/../hostile", ".", ""] {
            let conf = CONF.replace("\"type\":\"hostile\"", &format!("\"type\":{kind:?}"));
            configured(world, conf.as_bytes())?.refused().with_context(|| kind.to_owned())?;
        }
        ensure!(!proof.exists(), "a program outside of the folder ran");
        Ok("each is refused".to_owned())
    }),
    row("CNI: an IPAM plugin by its path, and a network name that climbs", "refused; nothing outside of the folders", |world: &WithPlugins| {
        let name = format!("{}{}/evil", "../".repeat(12), world.0.host.path().display().to_string().trim_start_matches('/'));
        let conf = BRIDGE.replace("\"name\":\"net\"", &format!("\"name\":{name:?}"));
        configured(world, conf.as_bytes())?.refused()?;
        let conf = BRIDGE.replace("\"type\":\"host-local\"", "\"type\":\"../../../../bin/true\"");
        configured(world, conf.as_bytes())?.refused()?;
        ensure!(!world.0.host.path().join("evil").exists(), "something was made outside");
        Ok("both are refused".to_owned())
    }),
    row("CNI: configuration that is a FIFO, a device, nested, or huge", "said so within seconds, or skipped", |world: &WithPlugins| {
        let (folder, _) = world.0.networks();
        let path = folder.join("00-hostile.conflist");
        for make in ["mkfifo", "ln -s /dev/zero"] {
            let line = format!("{make} {}", path.display());
            ensure!(Command::new("sh").args(["-c", &line]).status()?.success(), "{line}");
            let called = world.0.tried("echo PROBED", |_, _| {});
            fs::remove_file(&path)?;
            called?.harmless().with_context(|| make.to_owned())?;
        }
        let deep = format!("{{\"name\":\"x\",\"plugins\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
        configured(world, deep.as_bytes())?.harmless()?;
        configured(world, &vec![b' '; 64 << 20])?.harmless()
    }),
    row("CNI: our own plugins with a container id and an interface name that climb", "error 4 or 7; nothing outside", |world: &WithPlugins| {
        let up = format!("../../../../../../../..{}/evil", world.0.host.path().display());
        for (id, interface) in [(up.as_str(), "eth0"), ("good", up.as_str()), ("a/b", "eth0"), ("good", "waytoolonganame0"), ("", "eth0"), ("good", "a b"), ("good", "..")] {
            let said = plugin(&BRIDGE.replace("@DATA@", &world.0.host.path().join("ipam").display().to_string()), id, interface)?;
            ensure!(said.contains("\"code\""), "{id:?} {interface:?} was taken: {said}");
        }
        ensure!(!world.0.host.path().join("evil").exists(), "something was made outside");
        Ok("each is refused".to_owned())
    }),
    row("CNI: every address is taken", "pods are refused with the reason, the network stays ready", full_range).broken_before(),
    row("NRI: bytes that are no frames", "hung up on", |world: &WithPlugins| {
        for bytes in [vec![0xff; 64], b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 4096], (0..=255).cycle().take(1 << 16).collect()] {
            let mut stream = UnixStream::connect(world.0.nri_socket()?)?;
            // Ignored: it may be hung up on while it still sends.
            stream.write_all(&bytes).ok();
        }
        Ok("sent".to_owned())
    }),
    row("NRI: a frame that announces 4 GB", "hung up on; little memory", |world: &WithPlugins| {
        let mut streams = Vec::new();
        for connection in [1_u32, 2, 0, 77] {
            let mut stream = UnixStream::connect(world.0.nri_socket()?)?;
            let frame = [&connection.to_be_bytes()[..], &u32::MAX.to_be_bytes(), &vec![7; 1 << 20]].concat();
            // Ignored: it may be hung up on while it still sends.
            stream.set_write_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(&frame).ok();
            streams.push(stream);
        }
        Ok(format!("{} were sent", streams.len()))
    }),
    row("NRI: a hundred connections that say nothing", "pods start meanwhile", |world: &WithPlugins| {
        let silent: Vec<UnixStream> = (0..100).filter_map(|_| UnixStream::connect(world.0.nri_socket().ok()?).ok()).collect();
        world.0.sound()?;
        Ok(format!("{} silent ones", silent.len()))
    }),
    row("NRI: more connections than the daemon has descriptors", "it does not spin, and serves again afterwards", descriptors).broken_before(),
    row("NRI: plugins with names and places that are none", "not taken", |world: &WithPlugins| {
        for (name, index) in [("../../x", "10"), ("good", "zz"), ("", "10"), ("good", "100"), ("a\nb", "10")] {
            let stub = Stub { socket: world.0.nri_socket()?, timeout: Duration::from_secs(3), ..Stub::new(name, index) };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let taken = runtime.block_on(async {
                match stub.connect(Arc::new(Adjusts(ContainerAdjustment::default(), AtomicBool::new(false)))).await {
                    Ok(connection) => {
                        connection.close().await;
                        true
                    }
                    Err(_) => false,
                }
            });
            ensure!(!taken || name == "a\nb" || name == "../../x", "{name:?} {index:?} was taken");
        }
        Ok("not taken, or without effect".to_owned())
    }),
    row("NRI: a mount whose target climbs", "below the container's root, or refused", |world: &WithPlugins| {
        let up = format!("/../../../../../..{}/evil", world.0.host.path().display());
        let mount = Mount { destination: up, source: "/usr".into(), r#type: "bind".into(), options: vec!["bind".into(), "ro".into()] };
        let told = adjusted(world, ContainerAdjustment { mounts: vec![mount], ..Default::default() }, "echo PROBED")?;
        ensure!(!world.0.host.path().join("evil").exists(), "a mount point was made on the host");
        told.harmless()
    }),
    row("NRI: a mount over /proc", "refused, or procfs is as ever", |world: &WithPlugins| {
        let mount = Mount { destination: "/proc".into(), source: "/usr".into(), r#type: "bind".into(), options: vec!["bind".into()] };
        let script = "[ -e /proc/self/stat ] || echo ESCAPED: this is no procfs; echo PROBED";
        adjusted(world, ContainerAdjustment { mounts: vec![mount], ..Default::default() }, script)?.harmless()
    })
    .broken_before(),
    row("NRI: a startContainer hook from the image", "has no more rights than the container", |world: &WithPlugins| {
        let script = "[ -e /proc/self ] || echo pids > /data/hook; busybox mount -t tmpfs none /tmp && echo mounts >> /data/hook; exit 0";
        let env = vec!["PATH=/bin".to_owned()];
        let hook = Hook { path: "/bin/sh".into(), args: ["sh", "-c", script].map(str::to_owned).to_vec(), env, ..Default::default() };
        let hooks = Hooks { start_container: vec![hook], ..Default::default() };
        let probe = "for what in $(cat /data/hook 2>/dev/null); do echo \"ESCAPED: the hook has the host's $what\"; done; echo PROBED";
        adjusted(world, ContainerAdjustment { hooks: Some(hooks), ..Default::default() }, probe)?.harmless()
    })
    .broken_before(),
    row("NRI: a sysctl of the whole machine", "refused before anything is written", |world: &WithPlugins| {
        // The value is the one that is there: writing it changes nothing.
        let same = fs::read_to_string("/proc/sys/kernel/core_pattern")?.trim().to_owned();
        let linux = LinuxContainerAdjustment { sysctl: [("kernel.core_pattern".to_owned(), same)].into(), ..Default::default() };
        adjusted(world, ContainerAdjustment { linux: Some(linux), ..Default::default() }, "echo PROBED")?.refused()
    }),
    row("NRI: a control group and a namespace that climb", "refused, or below the root of the hierarchy", |world: &WithPlugins| {
        let linux = LinuxContainerAdjustment { cgroups_path: "/../../../tmp/evil-group".into(), ..Default::default() };
        let told = adjusted(world, ContainerAdjustment { linux: Some(linux), ..Default::default() }, "echo PROBED")?;
        ensure!(!Path::new("/tmp/evil-group").exists(), "a folder was made on the host");
        told.harmless()?;
        let space = LinuxNamespace { r#type: "network".into(), path: "/etc/passwd".into() };
        let linux = LinuxContainerAdjustment { namespaces: vec![space], ..Default::default() };
        adjusted(world, ContainerAdjustment { linux: Some(linux), ..Default::default() }, "echo PROBED")?.harmless()
    }),
    row("NRI: an environment of 3 MB", "refused, or too long for the kernel; said so", |world: &WithPlugins| {
        let env = vec![KeyValue { key: "A".into(), value: "x".repeat(3 << 20) }];
        match adjusted(world, ContainerAdjustment { env, ..Default::default() }, "echo PROBED")? {
            Called::Ended { log, .. } => Ok(format!("ran: {log}")),
            refused => refused.harmless(),
        }
    }),
    row("NRI: a plugin that never answers", "the pod goes on after the plugin's time", |world: &WithPlugins| {
        let plugin = Connected::start(world, Arc::new(Silent(AtomicBool::new(false))))?;
        let begun = Instant::now();
        let told = world.0.tried("echo PROBED", |_, _| {});
        drop(plugin);
        ensure!(begun.elapsed() < Duration::from_secs(15), "took {:?}", begun.elapsed());
        told?.harmless()
    }),
    row(
        "CNI: a pod that was refused for a plugin that cannot be named",
        "can be removed: no plugin has done anything for it",
        |world: &WithPlugins| {
            let conf = CONF.replace("\"type\":\"hostile\"", "\"type\":\"../hostile\"");
            configured(world, conf.as_bytes())?.refused()?;
            world.0.clear()?;
            Ok("removed".to_owned())
        },
    )
    .broken_before(),
];

const CONF: &str = r#"{"cniVersion":"1.0.0","name":"hostile","plugins":[{"type":"hostile"}]}"#;
const BRIDGE: &str = r#"{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"bridge","bridge":"evil0","ipam":{"type":"host-local","dataDir":"@DATA@","ranges":[[{"subnet":"10.97.0.0/24"}]]}}]}"#;

/// A pod with this network configuration in the first place.
fn configured(world: &WithPlugins, conf: &[u8]) -> Result<Called> {
    let (folder, _) = world.0.networks();
    let path = folder.join("00-hostile.conflist");
    fs::write(&path, conf)?;
    let called = world.0.tried("echo PROBED", |_, _| {});
    fs::remove_file(path)?;
    // Ignored: whether what was refused can be removed is a row of its own.
    world.0.clear().ok();
    called
}

/// Passes when the pod was refused with a message that can be carried and names the plugin.
fn briefly(called: Called) -> Outcome {
    if let Called::Refused(status) = &called {
        let (said, length) = (status.message(), status.message().len());
        let shown: String = said.chars().take(120).collect();
        ensure!(said.contains("plugin hostile"), "the plugin is not named: {shown}");
        ensure!(length < 16 << 10, "the refusal has {length} bytes");
    }
    called.refused()
}

/// A pod with a plugin whose ADD is this script.
fn cni(world: &WithPlugins, add: &str) -> Result<Called> {
    let (_, programs) = world.0.networks();
    let script = format!(
        "#!/bin/sh\ncat > /dev/null\ncase \"$CNI_COMMAND\" in\nVERSION) echo '{{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"0.4.0\",\"1.0.0\"]}}'; exit 0;;\nADD) ;;\n*) exit 0;;\nesac\n{add}\n"
    );
    let program = programs.join("hostile");
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let called = configured(world, CONF.as_bytes());
    fs::remove_file(program)?;
    called
}

fn hanging_plugin(world: &WithPlugins) -> Outcome {
    let note = world.0.host.path().join("hanging");
    let (folder, programs) = world.0.networks();
    let script = format!(
        "#!/bin/sh\ncat > /dev/null\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\necho $$ > {}\nexec sleep 60\n",
        note.display()
    );
    fs::write(programs.join("hostile"), script)?;
    fs::set_permissions(programs.join("hostile"), fs::Permissions::from_mode(0o755))?;
    fs::write(folder.join("00-hostile.conflist"), CONF)?;
    let pod = world.0.pod();
    let told = std::thread::scope(|scope| {
        let (socket, pod) = (world.0.socket()?, pod.clone());
        let waiting = scope.spawn(move || -> Result<String> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let channel = podwire_wire::unix::channel(socket);
                let mut cri = podwire_wire::cri::runtime_service_client::RuntimeServiceClient::new(channel);
                let request = podwire_wire::cri::RunPodSandboxRequest {
                    config: Some(pod),
                    runtime_handler: String::new(),
                };
                match tokio::time::timeout(Duration::from_secs(20), cri.run_pod_sandbox(request)).await {
                    Ok(Ok(_)) => bail!("the pod was made"),
                    Ok(Err(status)) => Ok(status.message().to_owned()),
                    Err(_) => bail!("no answer although the plugin was killed"),
                }
            })
        });
        let pid = eventually("the plugin hangs", Duration::from_secs(10), || {
            fs::read_to_string(&note)
                .map_err(|error| error.to_string())?
                .trim()
                .parse::<i32>()
                .map_err(|error| error.to_string())
        });
        fs::remove_file(folder.join("00-hostile.conflist"))?;
        let meanwhile = world.0.well().and_then(|()| world.0.sound());
        if let Some(pid) = pid?.checked_abs().and_then(Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        }
        let told = waiting.join().map_err(|_| anyhow!("the caller panicked"))?;
        meanwhile.context("meanwhile")?;
        told
    });
    fs::remove_file(programs.join("hostile"))?;
    // A failed pod must not be left, however it failed.
    eventually("nothing is left", Duration::from_secs(10), || match world.0.sandboxes() {
        Ok(0) => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    Ok(format!("a pod ran meanwhile; then: {}", told?))
}

/// Calls our plugin as a runtime would; what it printed.
fn plugin(conf: &str, id: &str, interface: &str) -> Result<String> {
    let list: serde_json::Value = serde_json::from_str(conf)?;
    let mut own = list["plugins"][0].clone();
    own["cniVersion"] = "1.1.0".into();
    own["name"] = "net".into();
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("bridge");
    std::os::unix::fs::symlink(bin_dir().join("podwire-cni"), &program)?;
    let mut child = Command::new(&program)
        .envs([
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", id),
            ("CNI_IFNAME", interface),
            ("CNI_NETNS", "/proc/self/ns/net"),
            ("CNI_PATH", "/nowhere"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // Ignored: it may refuse before it has read its configuration.
    child.stdin.take().context("no stdin")?.write_all(own.to_string().as_bytes()).ok();
    let done = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A range of five addresses, all of them taken.
fn full_range(world: &WithPlugins) -> Outcome {
    let (folder, _) = world.0.networks();
    let data = world.0.host.path().join("small-ipam").display().to_string();
    let conf =
        BRIDGE.replace("@DATA@", &data).replace("10.97.0.0/24", "10.97.0.0/29").replace("evil0", "small0");
    fs::write(folder.join("00-small.conflist"), conf)?;
    let mut ids = Vec::new();
    let mut refusal = None;
    for _ in 0..8 {
        match world.0.run(&world.0.pod()) {
            Ok(id) => ids.push(id),
            Err(status) => {
                refusal = Some(status.message().to_owned());
                break;
            }
        }
    }
    let ready = world.0.well();
    for id in &ids {
        world.0.down(id)?;
    }
    fs::remove_file(folder.join("00-small.conflist"))?;
    Command::new("ip").args(["link", "del", "small0"]).output()?;
    let refusal = refusal.context("eight pods got one of five addresses")?;
    ready.context("while every address is taken")?;
    Ok(format!("{} pods, then: {refusal}", ids.len()))
}

/// Leaves the daemon twenty descriptors and takes them.
fn descriptors(world: &WithPlugins) -> Outcome {
    let pid = Pid::from_raw(i32::try_from(world.0.pid())?).context("a process id")?;
    let open = fs::read_dir(format!("/proc/{}/fd", world.0.pid()))?.count() as u64;
    let hard = getrlimit(Resource::Nofile).maximum;
    let before = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(open + 20), maximum: hard })?;
    // Every socket it listens on but the one of CRI, which is asked afterwards.
    let sockets = world.0.sockets()?;
    let mut taken: Vec<UnixStream> = Vec::new();
    for _ in 0..60 {
        taken.extend(sockets.iter().filter_map(|path| UnixStream::connect(path).ok()));
    }
    let ticks = || -> Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", world.0.pid())).context("the daemon died")?;
        let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        Ok(words[11].parse::<u64>()? + words[12].parse::<u64>()?)
    };
    let begun = (Instant::now(), ticks()?);
    // Time is what is measured here.
    std::thread::sleep(Duration::from_millis(1500));
    let spent = ticks()?.saturating_sub(begun.1) as f64 / 100.0 / begun.0.elapsed().as_secs_f64();
    drop(taken);
    prlimit(Some(pid), Resource::Nofile, before)?;
    eventually("it serves again", Duration::from_secs(12), || {
        world.0.well().and_then(|()| world.0.sound()).map_err(|error| format!("{error:#}"))
    })?;
    ensure!(spent < 0.1, "it spun: {:.0} % of a processor", spent * 100.0);
    Ok(format!("{:.0} % of a processor while there was no descriptor", spent * 100.0))
}

/// A plugin with one adjustment for every container.
struct Adjusts(ContainerAdjustment, AtomicBool);

impl Plugin for Adjusts {
    fn events(&self) -> Vec<Event> {
        vec![Event::CreateContainer]
    }

    fn synchronize(&self, _: Vec<PodSandbox>, _: Vec<Container>) -> Answer<'_, Vec<ContainerUpdate>> {
        self.1.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn create_container(&self, _: PodSandbox, _: Container) -> Answer<'_, CreateContainerResponse> {
        let adjust = Some(self.0.clone());
        Box::pin(std::future::ready(Ok(CreateContainerResponse { adjust, ..Default::default() })))
    }
}

/// A plugin that asks for an event and never answers it.
struct Silent(AtomicBool);

impl Plugin for Silent {
    fn events(&self) -> Vec<Event> {
        vec![Event::CreateContainer]
    }

    fn synchronize(&self, _: Vec<PodSandbox>, _: Vec<Container>) -> Answer<'_, Vec<ContainerUpdate>> {
        self.0.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn create_container(&self, _: PodSandbox, _: Container) -> Answer<'_, CreateContainerResponse> {
        Box::pin(std::future::pending())
    }
}

/// Whether the runtime has told the plugin what exists.
trait Told: Plugin {
    fn told(&self) -> bool;
}

impl Told for Adjusts {
    fn told(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }
}

impl Told for Silent {
    fn told(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A plugin in a thread of its own; gone when dropped.
struct Connected {
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Connected {
    fn start<P: Told>(world: &WithPlugins, plugin: Arc<P>) -> Result<Connected> {
        let stop = CancellationToken::new();
        let stub = Stub { socket: world.0.nri_socket()?, ..Stub::new("hostile", "66") };
        let (until, same) = (stop.clone(), Arc::clone(&plugin));
        let thread = std::thread::Builder::new().name("plugin".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = stub.run(same, until.clone()) => {}
                    // What never answers never ends either.
                    () = async { until.cancelled().await; tokio::time::sleep(Duration::from_secs(1)).await } => {}
                }
            });
        })?;
        let connected = Connected { stop, thread: Some(thread) };
        eventually("the plugin is taken", Duration::from_secs(10), || {
            if plugin.told() { Ok(()) } else { Err("not yet".to_owned()) }
        })?;
        Ok(connected)
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Ignored: a plugin that panicked has told so already.
            thread.join().ok();
        }
    }
}

/// A container that a plugin adjusts.
fn adjusted(world: &WithPlugins, adjustment: ContainerAdjustment, script: &str) -> Result<Called> {
    let plugin = Connected::start(world, Arc::new(Adjusts(adjustment, AtomicBool::new(false))))?;
    let called = world.0.tried(script, |_, _| {});
    drop(plugin);
    called
}
