//! From create to delete, and everything that can go wrong between.

use std::time::Duration;

use oci_spec::runtime::{LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder};
use podwire_container::plan::ReaperRequest;
use podwire_container::{ContainerStatus, Event};

use crate::world::{World, eventually};

fn with_resources(request: &mut podwire_container::CreateRequest, resources: LinuxResources) {
    let mut linux = request.spec.linux().clone().unwrap();
    linux.set_resources(Some(resources));
    request.spec.set_linux(Some(linux));
}

#[test]
fn a_container_runs_its_program_and_its_exit_code_comes_back() {
    let world = World::new();
    let request = world.request("one", &["sh", "-c", "echo hello; echo oops >&2; exit 7"]);
    let log = request.log_path.clone().unwrap();
    let created = world.supervisor.create(request).unwrap();
    assert!(created.pid > 1);
    assert_eq!(world.status("one"), ContainerStatus::Created);
    world.supervisor.start("one").unwrap();
    let Event::Exited { code, signal, oom, .. } = world.exit_of("one") else { unreachable!() };
    assert_eq!((code, signal, oom), (7, None, false));
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<_> = text.lines().map(|l| l.split_once(' ').unwrap().1).collect();
    assert!(lines.contains(&"stdout F hello") && lines.contains(&"stderr F oops"), "{text}");
    world.supervisor.delete("one").unwrap();
    assert!(world.supervisor.list().unwrap().is_empty());
    assert_eq!(world.leftovers(), Vec::<String>::new());
    world.supervisor.delete("one").unwrap();
}

#[test]
fn a_missing_program_is_an_error_of_start_in_the_words_of_runc() {
    let world = World::new();
    for (id, argv0, text) in [
        ("bare", "no-such", "exec: \"no-such\": executable file not found in $PATH"),
        ("path", "/no/such", "exec: \"/no/such\": stat /no/such: no such file or directory"),
        ("folder", "/bin", "exec: \"/bin\": is a directory"),
        ("plain", "/etc/plain", "exec: \"/etc/plain\": permission denied"),
    ] {
        std::fs::write(world.rootfs().join("etc/plain"), "x").unwrap();
        world.supervisor.create(world.request(id, &[argv0])).unwrap();
        let error = world.supervisor.start(id).unwrap_err();
        assert_eq!(error.to_string(), text);
        let ended = || matches!(world.status(id), ContainerStatus::Exited { code: 128, .. });
        eventually(Duration::from_secs(5), ended, || format!("{:?}", world.status(id)));
        world.supervisor.delete(id).unwrap();
    }
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_container_that_cannot_be_set_up_leaves_nothing_behind() {
    let world = World::new();
    let mut request = world.request("broken", &["true"]);
    let mut mounts = request.spec.mounts().clone().unwrap();
    mounts.push(crate::world::bind(&world.dir.path().join("missing"), "/data", &["rbind"]));
    request.spec.set_mounts(Some(mounts));
    let error = world.supervisor.create(request).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("no such file"), "{error}");
    assert!(world.supervisor.list().unwrap().is_empty());
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_running_container_is_killed_by_delete_with_all_its_children() {
    let world = World::new();
    world.run(world.request("busy", &["sh", "-c", "sleep 1000 & sleep 1000 & wait"]));
    world.supervisor.delete("busy").unwrap();
    assert!(world.supervisor.list().unwrap().is_empty());
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_created_container_can_be_deleted_without_having_run() {
    let world = World::new();
    world.supervisor.create(world.request("never", &["sh", "-c", "touch /ran"])).unwrap();
    world.supervisor.delete("never").unwrap();
    assert!(!world.dir.path().join("never.upper/ran").exists());
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_signal_reaches_the_program_and_shows_in_its_exit() {
    let world = World::new();
    // As process 1 it only gets what it asked for, so it asks.
    world.run(
        world.request("term", &["sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"]),
    );
    let log = world.dir.path().join("term.log");
    let up = || std::fs::read_to_string(&log).unwrap_or_default().contains("up");
    eventually(Duration::from_secs(5), up, || "no trap yet".to_owned());
    world.supervisor.signal("term", libc::SIGTERM, false).unwrap();
    let Event::Exited { code, .. } = world.exit_of("term") else { unreachable!() };
    assert_eq!(code, 3);
    world.run(world.request("kill", &["sleep", "1000"]));
    world.supervisor.signal("kill", libc::SIGKILL, false).unwrap();
    let Event::Exited { code, signal, .. } = world.exit_of("kill") else { unreachable!() };
    assert_eq!((code, signal), (137, Some(9)));
}

#[test]
fn limits_are_in_the_cgroup_files_and_memory_runs_out_as_told() {
    let world = World::new();
    // dd fills a buffer of 200 MB in a container that may have 24.
    let mut request = world.request("hungry", &["dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]);
    let memory = LinuxMemoryBuilder::default().limit(24 << 20).swap(24 << 20).build().unwrap();
    let pids = LinuxPidsBuilder::default().limit(77).build().unwrap();
    let resources = LinuxResourcesBuilder::default().memory(memory).pids(pids).build().unwrap();
    with_resources(&mut request, resources);
    world.supervisor.create(request).unwrap();
    let group = podwire_linux::cgroup::group(&format!("{}/hungry", world.cgroup)).unwrap();
    let stats = group.stats();
    assert_eq!(stats.memory.limit, Some(24 << 20));
    assert_eq!((stats.pids_limit, stats.pids_current), (Some(77), 1));
    world.supervisor.start("hungry").unwrap();
    let Event::Exited { code, oom, .. } = world.exit_of("hungry") else { unreachable!() };
    assert_eq!((code, oom), (137, true));
}

#[test]
fn a_second_container_of_the_same_name_is_refused() {
    let world = World::new();
    world.supervisor.create(world.request("twin", &["true"])).unwrap();
    let error = world.supervisor.create(world.request("twin", &["true"])).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert!(world.supervisor.start("other").unwrap_err().is_not_found());
}

#[test]
fn a_reaper_gives_containers_one_pid_namespace_and_takes_their_orphans() {
    use oci_spec::runtime::LinuxNamespaceType;
    let world = World::new();
    let cgroup = Some(format!("{}/reaper", world.cgroup));
    let reaper = ReaperRequest { id: "pod".to_owned(), join: Vec::new(), cgroup };
    let pid = world.supervisor.create_reaper(reaper).unwrap().pid;
    let join = [(LinuxNamespaceType::Pid, format!("/proc/{pid}/ns/pid").into())].into();
    let shared = |id: &str, args: &[&str]| {
        let mut request = world.request(id, args);
        let mut linux = request.spec.linux().clone().unwrap();
        linux.set_namespaces(Some(crate::world::namespaces(&join)));
        request.spec.set_linux(Some(linux));
        request
    };
    world.run(shared("first", &["sleep", "1000"]));
    // Leaves an orphan behind, which becomes the reaper's child and ends.
    let (code, text) = world.output(shared("second", &["sh", "-c", "(true &); ps -o pid,args"]));
    assert_eq!(code, 0);
    assert!(text.contains("sleep 1000"), "{text}");
    let no_zombies = || {
        let (_, text) = world.output(shared("look", &["ps", "-o", "stat,args"]));
        !text.lines().any(|line| line.trim_start().starts_with('Z'))
    };
    eventually(Duration::from_secs(5), no_zombies, || "a zombie stays".to_owned());
    world.supervisor.delete("pod").unwrap();
    let Event::Exited { code, .. } = world.exit_of("first") else { unreachable!() };
    assert_eq!(code, 137);
}
