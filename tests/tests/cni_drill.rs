//! Plugins and runtimes killed at random instants, from sixteen threads: no address is given twice, none is lost, and
//! after a garbage collection nothing is left. A short run in `make test`, two thousand operations in `make interop`.

#![allow(clippy::print_stderr, reason = "the figures of a drill belong into its log")]

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Write,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use podwire_linux::{
    netns::{self, Netns},
    rtnl::Socket,
};
use podwire_testkit::{isolate, node::bin_dir, parts::plugins};
use serde_json::{Value, json};

const THREADS: usize = 16;

/// ADDs and DELs together.
const OPERATIONS: usize = if cfg!(feature = "interop") { 2000 } else { 320 };

/// Who carries an operation out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driver {
    /// The plugin binary alone, as a runtime calls it.
    Plugin,
    /// `podwire cni`, with its journal and cache.
    Podwire,
}

/// A pseudo-random sequence: the same drill every time, in another order of events.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Pod {
    id: String,
    driver: Driver,
    netns: Netns,
}

impl Pod {
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd())
    }
}

struct World {
    dir: tempfile::TempDir,
    /// Who has which address, from the answer to ADD until DEL is begun.
    held: Mutex<HashMap<String, String>>,
    /// How long an undisturbed ADD takes here: kills fall into this span.
    span: Duration,
}

/// What became of a process.
enum Ended {
    Killed,
    Said(Result<String, String>),
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().expect("folder");
        let world = World { dir, held: Mutex::default(), span: Duration::ZERO };
        fs::create_dir(world.at("net.d")).expect("folder");
        plugins(&world.at("bin")).expect("links to our plugins");
        let list = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [world.conf()]});
        fs::write(world.at("net.d/10-net.conflist"), list.to_string()).expect("write");
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn conf(&self) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "drill0",
            "isDefaultGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
            "ipam": {
                "type": "host-local", "dataDir": self.at("ipam"),
                "ranges": [[{"subnet": "10.99.0.0/16"}], [{"subnet": "fd99::/64"}]],
            },
        })
    }

    fn command(&self, verb: &str, pod: &Pod) -> Command {
        let mut command = match pod.driver {
            Driver::Plugin => {
                let mut command = Command::new(self.at("bin/bridge"));
                command
                    .env("CNI_COMMAND", verb)
                    .env("CNI_CONTAINERID", &pod.id)
                    .env("CNI_NETNS", pod.path())
                    .env("CNI_IFNAME", "eth0")
                    .env("CNI_PATH", self.at("bin"));
                command
            }
            Driver::Podwire => {
                let mut command = self.podwire(&[&verb.to_lowercase()]);
                command.args(["--container-id", &pod.id, &pod.path()]);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn podwire(&self, words: &[&str]) -> Command {
        let mut command = Command::new(bin_dir().join("podwire"));
        command.arg("cni").args(words).arg("--data-dir").arg(self.at("data")).arg("--conf-dir");
        command.arg(self.at("net.d")).env_remove("CNI_PATH").env_remove("NETCONFPATH");
        command
    }

    /// Runs a verb; kills it after a while if one is given.
    fn run(&self, verb: &str, pod: &Pod, kill_after: Option<Duration>) -> Ended {
        let mut child = self.command(verb, pod).spawn().expect("start (are the binaries built?)");
        let mut stdin = child.stdin.take().expect("stdin");
        // Ignored: killed below, it may not read all; and podwire does not read at all.
        stdin.write_all(self.conf().to_string().as_bytes()).ok();
        drop(stdin);
        if let Some(after) = kill_after {
            std::thread::sleep(after);
            // Ignored: it may have ended already.
            child.kill().ok();
        }
        let output = child.wait_with_output().expect("end");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match (output.status.success(), output.status.code()) {
            (true, _) => Ended::Said(Ok(text(&output.stdout))),
            (false, None) => Ended::Killed,
            (false, Some(_)) => Ended::Said(Err(text(&output.stdout) + &text(&output.stderr))),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the addresses of an answer; nobody else may have them.
    fn hold(&self, pod: &Pod, answer: &str) -> Vec<String> {
        let value: Value = serde_json::from_str(answer).expect("a result");
        let ips = value["ips"].as_array().expect("ips").iter();
        let ips: Vec<String> = ips
            .map(|ip| ip["address"].as_str().expect("address").split('/').next().expect("ip").to_owned())
            .collect();
        assert_eq!(ips.len(), 2, "{answer}");
        for ip in &ips {
            if let Some(other) = self.held().insert(ip.clone(), pod.id.clone()) {
                panic!("{ip} was given to {} while {other} has it", pod.id);
            }
        }
        ips
    }

    /// The life of one pod: an ADD and perhaps a DEL, each perhaps killed. What is kept is returned.
    fn live(&self, id: String, dice: &mut Dice) -> (usize, Option<Pod>) {
        let driver = if dice.roll(2) == 0 { Driver::Plugin } else { Driver::Podwire };
        let pod = Pod { id, driver, netns: netns::create().expect("namespace") };
        let span = u64::try_from(self.span.as_micros()).expect("short");
        let mut instant =
            |often: u64| (dice.roll(often) != 0).then(|| Duration::from_micros(dice.roll(span)));
        let (kill_add, kill_del) = (instant(3), instant(2));
        let ips = match self.run("ADD", &pod, kill_add) {
            Ended::Killed => Vec::new(),
            Ended::Said(Ok(answer)) => self.hold(&pod, &answer),
            Ended::Said(Err(error)) => panic!("ADD of {} by {:?}: {error}", pod.id, pod.driver),
        };
        match dice.roll(4) {
            // Kept to the end if it is whole; else left to the garbage collection.
            0 => (1, (!ips.is_empty()).then_some(pod)),
            fate => {
                for ip in &ips {
                    self.held().remove(ip);
                }
                let mut runs = 2;
                let mut ended = self.run("DEL", &pod, kill_del);
                if matches!(ended, Ended::Killed) && fate == 1 {
                    runs += 1;
                    ended = self.run("DEL", &pod, None);
                }
                if let Ended::Said(Err(error)) = ended {
                    panic!("DEL of {} by {:?}: {error}", pod.id, pod.driver);
                }
                (runs, None)
            }
        }
    }

    fn gc(&self, keep: &[Pod]) {
        let mut command = self.podwire(&["gc"]);
        for pod in keep {
            command.args(["--keep", &format!("{}/eth0", pod.id)]);
        }
        let done = command.output().expect("gc");
        assert!(done.status.success(), "gc: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The reservations, with their owners.
    fn reserved(&self) -> HashMap<String, String> {
        let mut found = HashMap::new();
        for entry in fs::read_dir(self.at("ipam/net")).expect("reservations") {
            let entry = entry.expect("entry");
            let name = entry.file_name().display().to_string();
            if name.parse::<std::net::IpAddr>().is_ok() {
                let text = fs::read_to_string(entry.path()).expect("read");
                let (owner, ifname) =
                    text.split_once("\r\n").unwrap_or_else(|| panic!("{name} is torn: {text:?}"));
                assert_eq!(ifname, "eth0");
                found.insert(name, owner.to_owned());
            }
        }
        found
    }

    /// The containers that masquerading rules name.
    fn masqueraded(&self) -> HashSet<String> {
        let done = Command::new("nft").args(["list", "ruleset"]).output().expect("nft");
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let of_line = |line: &str| Some(line.split("id: ").nth(1)?.trim_end_matches('"').to_owned());
        text.lines().filter(|line| line.contains("net: net")).filter_map(of_line).collect()
    }

    fn names_in(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().display().to_string()).collect()
    }
}

fn veths() -> usize {
    let links = Socket::route().expect("socket").links().expect("links");
    links.iter().filter(|link| link.name.starts_with("veth")).count()
}

/// Files below a folder, by their paths in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn adds_and_dels_killed_at_random_leave_nothing() {
    let work = || {
        isolate().expect("a network namespace (needs root)");
        let mut world = World::new();
        // How long it takes undisturbed decides when kills fall.
        for driver in [Driver::Plugin, Driver::Podwire] {
            let pod =
                Pod { id: format!("first-{driver:?}"), driver, netns: netns::create().expect("namespace") };
            let begun = Instant::now();
            let Ended::Said(Ok(_)) = world.run("ADD", &pod, None) else {
                panic!("the first ADD by {driver:?}")
            };
            world.span = world.span.max(begun.elapsed());
            let Ended::Said(Ok(_)) = world.run("DEL", &pod, None) else {
                panic!("the first DEL by {driver:?}")
            };
        }
        drill(&world);
    };
    let thread = std::thread::Builder::new().name("node".into()).spawn(work).expect("thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn drill(world: &World) {
    let begun = Instant::now();
    let lives = |thread: usize| {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (thread as u64 + 1) << 20);
        let (mut runs, mut kept, mut number) = (0, Vec::new(), 0);
        while runs < OPERATIONS / THREADS {
            let (more, pod) = world.live(format!("t{thread}-{number}"), &mut dice);
            runs += more;
            number += 1;
            kept.extend(pod);
        }
        (runs, kept)
    };
    let (runs, kept) = std::thread::scope(|scope| {
        let lives = &lives;
        let start =
            |thread| std::thread::Builder::new().spawn_scoped(scope, move || lives(thread)).expect("thread");
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("a worker"));
        ended.fold((0, Vec::new()), |(runs, mut all), (more, kept)| {
            all.extend(kept);
            (runs + more, all)
        })
    });
    assert!(runs >= OPERATIONS, "{runs}");
    let before = world.reserved();
    let held = world.held().clone();
    eprintln!(
        "{runs} operations in {:?}; {} pods kept, {} addresses left to collect",
        begun.elapsed(),
        kept.len(),
        before.len() - held.len()
    );
    assert!(!kept.is_empty() && before.len() > held.len(), "kills fell where they hurt");
    for (ip, owner) in &held {
        assert_eq!(before.get(ip), Some(owner), "a held address is no longer its owner's");
    }
    world.gc(&kept);
    assert_eq!(world.reserved(), held, "after gc exactly the kept addresses are reserved");
    assert_eq!(veths(), kept.len(), "after gc exactly the kept links are there");
    let ids: HashSet<String> = kept.iter().map(|pod| pod.id.clone()).collect();
    assert_eq!(world.masqueraded(), ids, "after gc exactly the kept rules are there");
    world.gc(&[]);
    assert_nothing(world);
}

fn assert_nothing(world: &World) {
    assert!(world.reserved().is_empty());
    assert_eq!(veths(), 0);
    assert!(world.masqueraded().is_empty());
    let of_attachments = |path: &PathBuf| {
        let folders = path.parent().into_iter().flat_map(Path::iter);
        folders.into_iter().any(|name| name == "attachments" || name == "results")
    };
    let left: Vec<PathBuf> = files(&world.at("data")).into_iter().filter(of_attachments).collect();
    assert!(left.is_empty(), "journal or cache: {left:?}");
    assert_eq!(world.names_in("ipam/.podwire-ipam/net"), ["boot"], "the index");
}
