//! What hostile containers, full disks and missing descriptors do to the supervisor: nothing that lasts.

use std::io::Write;
use std::time::Duration;

use podwire_container::{ContainerStatus, Event, Supervisor};
use podwire_testkit::SmallDisk;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::world::{Events, World, eventually};

fn code(event: Event) -> i32 {
    let Event::Exited { code, .. } = event else { unreachable!() };
    code
}

#[test]
fn a_pipe_that_somebody_else_fills_without_pause_holds_nobody_up() {
    let world = World::new();
    world.run_ticker("bystander");
    let script = "echo begun; until test -e /go; do sleep 0.02; done; echo the last word; exit 4";
    let pid = world.run(world.request("victim", &["sh", "-c", script]));
    let log = world.dir.path().join("victim.log");
    // As if the container had passed its output on to another one before it ended.
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let mut pipe = std::fs::File::options().write(true).open(format!("/proc/{pid}/fd/1")).unwrap();
            let flood = "flood\n".repeat(10_000);
            let write = move || while pipe.write_all(flood.as_bytes()).is_ok() {};
            std::thread::Builder::new().name("flood".into()).spawn(write).unwrap()
        })
        .collect();
    world.goes_on("bystander", 5);
    std::fs::write(format!("/proc/{pid}/root/go"), "").unwrap();
    assert_eq!(code(world.exit_of("victim")), 4);
    world.goes_on("bystander", 5);
    assert!(
        std::fs::read_to_string(&log).unwrap().contains("the last word"),
        "its own words come before its end"
    );
    world.supervisor.delete("victim").unwrap();
    for writer in writers {
        writer.join().unwrap();
    }
    world.goes_on("bystander", 5);
}

#[test]
fn everything_a_container_wrote_is_in_its_log_before_its_end_is_told() {
    let world = World::new();
    let text = world.output(world.request("full", &["sh", "-c", "yes 0123456789 | head -n 5000; exit 0"])).1;
    assert_eq!(text.lines().count(), 5000);
}

#[test]
fn a_container_whose_log_cannot_be_opened_is_kept_and_its_log_goes_on_later() {
    let mut world = World::new();
    let folder = world.dir.path().join("logs");
    std::fs::create_dir(&folder).unwrap();
    let mut request =
        world.request("kept", &["sh", "-c", "until test -e /go; do echo tick; sleep 0.02; done; exit 9"]);
    let log = folder.join("kept.log");
    request.log_path = Some(log.clone());
    let pid = world.run(request);
    world.kill_supervisor();
    let aside = world.dir.path().join("aside");
    std::fs::rename(&folder, &aside).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    world.connect_again();
    assert_eq!(world.status("kept"), ContainerStatus::Running);
    assert_eq!(world.supervisor.list().unwrap()[0].pid, pid, "it is the same and the only one");
    let notes = || std::fs::read_to_string(world.cfg.state_dir.join("supervisor.log")).unwrap();
    assert!(notes().contains("container kept: log"), "{}", notes());
    // Without a line that is lost there is nothing to be told of later.
    eventually(Duration::from_secs(10), || notes().contains("log not written: "), notes);
    std::fs::remove_file(&folder).unwrap();
    std::fs::rename(&aside, &folder).unwrap();
    let size = || std::fs::metadata(&log).unwrap().len();
    let before = size();
    eventually(Duration::from_secs(10), || size() > before, notes);
    // The note is written after the line it is about.
    eventually(Duration::from_secs(10), || notes().contains("log written again; "), notes);
    world.go("kept");
    assert_eq!(code(world.exit_of("kept")), 9);
}

#[test]
fn a_full_state_folder_starts_nothing_new_and_loses_nothing_old() {
    let disk = SmallDisk::new(512 << 10).unwrap();
    let mut world = World::with_state_in(Some(disk.path()));
    world.run_ticker("old");
    disk.fill().unwrap();
    let long = format!("A={}", "x".repeat(20_000));
    let large = |id: &str| world.request(id, &["env", &long]);
    world.supervisor.create(large("new")).unwrap();
    let refused = world.supervisor.start("new").unwrap_err().to_string();
    assert!(refused.contains("journal cannot be written: No space left on device"), "{refused}");
    let refused = world.supervisor.create(large("newer")).unwrap_err().to_string();
    assert!(refused.contains("No space left on device"), "{refused}");
    world.supervisor.delete("new").unwrap();
    world.goes_on("old", 5);
    disk.empty().unwrap();
    world.run(world.request("late", &["sleep", "1000"]));
    disk.fill().unwrap();
    world.kill_supervisor();
    world.connect_again();
    for id in ["old", "late"] {
        assert_eq!(world.status(id), ContainerStatus::Running, "a successor on a full disk knows all");
    }
    world.goes_on("old", 5);
    world.go("old");
    assert_eq!(code(world.exit_of("old")), 7);
    disk.empty().unwrap();
}

#[test]
fn without_descriptors_the_new_is_refused_and_the_old_goes_on() {
    let world = World::new();
    world.run_ticker("old");
    let supervisor = world.supervisor_pid();
    let pid = Pid::from_raw(i32::try_from(supervisor).unwrap()).unwrap();
    let limit = |count: u64| Rlimit { current: Some(count), maximum: Some(4096) };
    // What is open stays open, and no number below is free.
    prlimit(Some(pid), Resource::Nofile, limit(3)).unwrap();
    let refused = world.supervisor.create(world.request("new", &["true"])).unwrap_err().to_string();
    assert!(refused.contains("Too many open files"), "{refused}");
    // One more connection waits until there is a descriptor for it.
    let cfg = world.cfg.clone();
    let connect = move || {
        let events = std::sync::Arc::new(Events::default());
        Supervisor::connect(&cfg, events.sink()).map(|supervisor| supervisor.list().unwrap().len())
    };
    let waiting = std::thread::Builder::new().name("connect".into()).spawn(connect).unwrap();
    world.goes_on("old", 40);
    let notes = std::fs::read_to_string(world.cfg.state_dir.join("supervisor.log")).unwrap();
    let tries = notes.lines().filter(|line| line.contains("connection not accepted")).count();
    assert!((1..20).contains(&tries), "it does not wake up for the same thing all the time: {tries}");
    assert!(!waiting.is_finished());
    prlimit(Some(pid), Resource::Nofile, limit(4096)).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 1);
    assert_eq!(world.output(world.request("new", &["echo", "here"])), (0, "here\n".to_owned()));
    world.go("old");
    assert_eq!(code(world.exit_of("old")), 7);
}
