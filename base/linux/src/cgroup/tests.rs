//! Groups on this machine's hierarchies and on trees made of plain files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use super::*;

fn unique(name: &str) -> Group {
    group(&format!("podwire-test-linux-{}-{name}", std::process::id())).unwrap()
}

/// A process that sleeps until it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Command::new("/bin/sleep").arg("1000").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_group_is_made_limited_used_and_removed_everywhere() {
    let group = unique("whole");
    group.create().unwrap();
    group.create().unwrap();
    let resources = Resources {
        cpu_shares: Some(512),
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        memory_limit: Some(64 << 20),
        memory_swap: Some(64 << 20),
        pids_limit: Some(42),
        cpuset_cpus: Some("0".to_owned()),
        ..Resources::default()
    };
    group.apply(&resources).unwrap();
    // Raised again: limit and limit with swap bound each other.
    let raised = Resources { memory_limit: Some(128 << 20), memory_swap: Some(128 << 20), ..resources };
    group.apply(&raised).unwrap();
    let sleeper = Sleeper::new();
    group.add(sleeper.0.id()).unwrap();
    assert_eq!(group.processes().unwrap(), [sleeper.0.id()]);
    let stats = group.stats();
    assert_eq!((stats.memory.limit, stats.pids_limit, stats.pids_current), (Some(128 << 20), Some(42), 1));
    assert!(!group.try_remove().unwrap());
    drop(sleeper);
    group.remove(Duration::from_secs(5)).unwrap();
    assert!(!group.exists());
    group.remove(Duration::from_secs(5)).unwrap();
}

#[test]
fn removing_a_group_kills_what_is_in_it_and_below() {
    let group = unique("deep");
    let below = group.child("a").unwrap().child("b").unwrap();
    below.create().unwrap();
    assert_eq!(group.children().unwrap(), ["a"]);
    let mut sleeper = Sleeper::new();
    below.add(sleeper.0.id()).unwrap();
    let reaper =
        std::thread::Builder::new().name("reaper".to_owned()).spawn(move || sleeper.0.wait()).unwrap();
    group.remove(Duration::from_secs(5)).unwrap();
    let status = reaper.join().unwrap().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
}

#[test]
fn a_group_can_be_used_below_one_that_somebody_made_by_hand() {
    let above = unique("byhand");
    // As mkdir leaves it: a v1 cpuset without a processor.
    for folder in above.procs_files().iter().filter_map(|file| file.parent()) {
        fs::create_dir(folder).unwrap();
    }
    let group = above.child("pod").unwrap();
    group.create().unwrap();
    let sleeper = Sleeper::new();
    group.add(sleeper.0.id()).unwrap();
    drop(sleeper);
    above.remove(Duration::from_secs(5)).unwrap();
}

#[test]
fn a_path_that_leaves_the_hierarchy_is_refused() {
    for path in ["", "/", "..", "a/../b", "a/./b"] {
        assert!(group(path).is_err(), "{path:?}");
    }
}

/// A cgroup2 tree of plain files, as far as `create` and `apply` look at it.
fn fixture_v2(dir: &Path) -> Arc<Hierarchies> {
    fs::write(dir.join("cgroup.controllers"), "cpuset cpu io memory hugetlb pids").unwrap();
    fs::write(dir.join("cgroup.subtree_control"), "cpu io memory pids cpuset hugetlb").unwrap();
    let line = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", dir.display());
    Arc::new(Hierarchies::parse(&line).unwrap())
}

fn file(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, "").unwrap();
    path
}

#[test]
fn on_v2_every_limit_goes_to_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchies = fixture_v2(dir.path());
    assert!(hierarchies.is_v2());
    let group = hierarchies.group("/pod/one").unwrap();
    let folder = dir.path().join("pod/one");
    fs::create_dir_all(&folder).unwrap();
    for name in
        ["cpu.weight", "cpu.max", "memory.max", "memory.swap.max", "memory.low", "pids.max", "cpuset.cpus"]
    {
        file(&folder, name);
    }
    file(&folder, "hugetlb.2MB.max");
    file(&folder, "memory.high");
    let unified = [("memory.high".to_owned(), "1000".to_owned())].into();
    let resources = Resources {
        cpu_shares: Some(1024),
        cpu_quota: Some(20_000),
        memory_limit: Some(100),
        memory_swap: Some(300),
        memory_reservation: Some(50),
        pids_limit: Some(0),
        cpuset_cpus: Some("0-1".to_owned()),
        hugepages: vec![("2MB".to_owned(), 4096)],
        unified,
        ..Resources::default()
    };
    group.apply(&resources).unwrap();
    let value = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!([value("cpu.weight"), value("cpu.max")], ["100", "20000 100000"]);
    assert_eq!([value("memory.max"), value("memory.swap.max"), value("memory.low")], ["100", "200", "50"]);
    assert_eq!([value("pids.max"), value("cpuset.cpus"), value("hugetlb.2MB.max")], ["max", "0-1", "4096"]);
    assert_eq!(value("memory.high"), "1000");
    let escape =
        Resources { unified: [("../memory.max".to_owned(), "1".to_owned())].into(), ..Resources::default() };
    assert!(group.apply(&escape).is_err());
}

#[test]
fn v2_statistics_are_read_in_their_own_units() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchies = fixture_v2(dir.path());
    let group = hierarchies.group("pod").unwrap();
    let folder = dir.path().join("pod");
    fs::create_dir(&folder).unwrap();
    for (name, text) in [
        ("cpu.stat", "usage_usec 7\nuser_usec 5\nsystem_usec 2\nnr_throttled 3\nthrottled_usec 9\n"),
        ("memory.current", "1000\n"),
        ("memory.max", "max\n"),
        ("memory.stat", "anon 300\nfile 600\ninactive_file 400\npgfault 12\npgmajfault 1\n"),
        ("memory.events", "low 0\noom 1\noom_kill 2\n"),
        ("pids.current", "4\n"),
        ("pids.max", "10\n"),
        (
            "io.stat",
            "8:0 rbytes=100 wbytes=200 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=3 wios=4\n",
        ),
        ("cpu.pressure", "some avg10=1.25 avg60=0.50 avg300=0.00 total=77\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    let stats = group.stats();
    assert_eq!((stats.cpu_usage_ns, stats.cpu_throttled_ns), (7000, 9000));
    let memory = &stats.memory;
    assert_eq!((memory.usage, memory.working_set, memory.limit, memory.oom_kills), (1000, 600, None, 2));
    assert_eq!((stats.pids_current, stats.pids_limit), (4, Some(10)));
    assert_eq!(stats.io, IoStats { read_bytes: 101, write_bytes: 202, reads: 4, writes: 6 });
    assert_eq!(stats.cpu_pressure.unwrap().some, ([125, 50, 0], 77));
    assert_eq!(stats.memory_pressure, None);
}

#[test]
fn hybrid_and_v2_machines_are_told_apart() {
    let v1 = "31 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
              32 1 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
    let both = format!("{v1}33 1 0:29 / /nonexistent/unified rw - cgroup2 cgroup2 rw\n");
    let hybrid = Hierarchies::parse(&both).unwrap();
    assert!(!hybrid.is_v2() && hybrid.unified().unwrap().hybrid);
    assert_eq!(hybrid.v1("cpuacct").unwrap().mount, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert!(hybrid.v1("memory").is_none());
    assert_eq!(hybrid.all().last().unwrap().version, Version::Two);
    assert!(matches!(Hierarchies::parse("1 1 0:1 / / rw - ext4 /dev/vda rw\n"), Err(Error::NotMounted)));
}
