//! Daemons come and go; containers stay.

use std::sync::Arc;
use std::time::Duration;

use podwire_container::{ContainerStatus, Event, Supervisor};

use crate::world::{Events, World, eventually};

#[test]
fn a_new_connection_finds_the_containers_and_what_it_missed() {
    let mut world = World::new();
    world.run(world.request("stays", &["sleep", "1000"]));
    world.run(world.request("ends", &["sh", "-c", "until test -e /go; do sleep 0.02; done; exit 9"]));
    let pid = world.supervisor_pid();
    let events = Arc::new(Events::default());
    let replaced = Supervisor::connect(&world.cfg, events.sink()).unwrap();
    drop(std::mem::replace(&mut world.supervisor, replaced));
    world.events = events;
    assert_eq!(world.status("stays"), ContainerStatus::Running);
    world.go("ends");
    let Event::Exited { code, .. } = world.exit_of("ends") else { unreachable!() };
    assert_eq!(code, 9);
    // Connected to the one that was there, not to a new one.
    assert_eq!(world.supervisor_pid(), pid);
}

#[test]
fn an_exit_while_nobody_is_connected_is_kept() {
    let world = World::new();
    world.run(world.request("quiet", &["sh", "-c", "sleep 0.2; exit 4"]));
    let ended = || matches!(world.status("quiet"), ContainerStatus::Exited { code: 4, .. });
    eventually(Duration::from_secs(5), ended, || format!("{:?}", world.status("quiet")));
    let again = Supervisor::connect_or_spawn(&world.cfg, Arc::new(|_| {})).unwrap();
    let list = again.list().unwrap();
    assert!(matches!(list[0].status, ContainerStatus::Exited { code: 4, signal: None, oom: false, .. }));
}

#[test]
fn connections_that_talk_nonsense_disturb_nobody() {
    use std::io::{Read, Write};
    let world = World::new();
    world.run(world.request("calm", &["sleep", "1000"]));
    for junk in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PODWSUP\n\x01\0\0\0\xff\xff\xff\xff\0\0\0\0",
        b"PODWSUP\n\x01\0\0\0\x02\0\0\0\0\0\0\0{]",
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&world.cfg.socket).unwrap();
        stream.write_all(junk).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The supervisor greets and hangs up.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    assert_eq!(world.status("calm"), ContainerStatus::Running);
}

#[test]
fn the_supervisor_sits_in_a_cgroup_of_its_own_and_is_small() {
    let world = World::new();
    world.run(world.request("some", &["sleep", "1000"]));
    let pid = world.supervisor_pid();
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    for line in cgroups.lines() {
        assert!(line.ends_with(&format!(":/{}/supervisor", world.cgroup)), "{line}");
    }
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let pss = smaps.lines().find(|l| l.starts_with("Pss:")).unwrap().split_whitespace().nth(1).unwrap();
    assert!(pss.parse::<u32>().unwrap() < 4096, "{pss} kB");
}

#[test]
fn containers_survive_the_death_of_the_supervisor_and_go_on_logging() {
    let mut world = World::new();
    let script =
        "n=0; while ! test -e /go; do n=$((n+1)); echo line $n; sleep 0.02; done; echo last $n; exit 6";
    world.run(world.request("talker", &["sh", "-c", script]));
    let short =
        world.run(world.request("short", &["sh", "-c", "until test -e /go; do sleep 0.02; done; exit 11"]));
    let log = world.dir.path().join("talker.log");
    let talks = || crate::world::logged(&log, "stdout").lines().count() > 2;
    eventually(Duration::from_secs(5), talks, || "it does not talk".to_owned());
    world.kill_supervisor();
    // One ends while nobody looks.
    std::fs::write(format!("/proc/{short}/root/go"), "").unwrap();
    let group = podwire_linux::cgroup::group(&format!("{}/short", world.cgroup)).unwrap();
    let gone = || group.processes().unwrap().is_empty();
    eventually(Duration::from_secs(5), gone, || "it does not end".to_owned());
    let events = Arc::new(Events::default());
    world.supervisor = Supervisor::connect_or_spawn(&world.cfg, events.sink()).unwrap();
    world.events = events;
    assert_eq!(world.status("talker"), ContainerStatus::Running);
    let Event::Exited { code, .. } = world.exit_of("short") else { unreachable!() };
    assert_eq!(code, 11);
    world.go("talker");
    let Event::Exited { code, .. } = world.exit_of("talker") else { unreachable!() };
    assert_eq!(code, 6);
    let text = crate::world::logged(&log, "stdout");
    let lines: Vec<_> = text.lines().collect();
    let last: usize = lines.last().unwrap().strip_prefix("last ").unwrap().parse().unwrap();
    // Every line is there once, through both supervisors.
    let expected: Vec<_> = (1..=last).map(|n| format!("line {n}")).collect();
    assert_eq!(lines[..lines.len() - 1], expected);
    world.supervisor.delete("talker").unwrap();
    world.supervisor.delete("short").unwrap();
    assert_eq!(world.leftovers(), Vec::<String>::new());
}

#[test]
fn a_terminal_survives_the_death_of_the_supervisor() {
    let mut world = World::new();
    let mut request = world.request("term", &["sh", "-c", "read line; echo got $line"]);
    request.tty = true;
    request.stdin = true;
    world.run(request);
    world.kill_supervisor();
    let events = Arc::new(Events::default());
    world.supervisor = Supervisor::connect_or_spawn(&world.cfg, events.sink()).unwrap();
    world.events = events;
    let streams = podwire_container::AttachRequest { stdin: true, stdout: false, stderr: false };
    let handle = world.supervisor.attach("term", streams).unwrap();
    std::io::Write::write_all(&mut std::fs::File::from(handle.stdin.unwrap()), b"typed\n").unwrap();
    let Event::Exited { code, .. } = world.exit_of("term") else { unreachable!() };
    assert_eq!(code, 0);
    assert!(crate::world::logged(&world.dir.path().join("term.log"), "stdout").contains("got typed"));
}

#[test]
fn a_supervisor_becomes_a_newer_program_without_anybody_noticing() {
    let mut world = World::new();
    let script = "printf half; until test -e /go; do sleep 0.02; done; echo done; exit 5";
    world.run(world.request("running", &["sh", "-c", script]));
    world.supervisor.create(world.request("created", &["sh", "-c", "echo late; exit 2"])).unwrap();
    world.run(world.request("ended", &["sh", "-c", "exit 3"]));
    world.exit_of("ended");
    let mut held =
        world.exec("running", "long", &["sh", "-c", "until test -e /go; do sleep 0.02; done; exit 8"]);
    let streams = podwire_container::AttachRequest { stdin: false, stdout: true, stderr: false };
    let attached = world.supervisor.attach("running", streams).unwrap();
    let pid = world.supervisor_pid();
    // Another file of the same program, as after an upgrade of the package.
    let newer = world.dir.path().join("newer");
    std::fs::copy(&world.cfg.exe, &newer).unwrap();
    world.cfg.exe = newer.clone();
    world.supervisor.upgrade(&world.cfg).unwrap();
    world.events.wait("the end of the connection", |e| *e == Event::Disconnected);
    let events = Arc::new(Events::default());
    world.supervisor = Supervisor::connect(&world.cfg, events.sink()).unwrap();
    world.events = events;
    assert_eq!(world.supervisor_pid(), pid);
    let comm = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(comm.starts_with(newer.as_os_str().as_encoded_bytes()));
    assert!(matches!(world.status("ended"), ContainerStatus::Exited { code: 3, .. }));
    world.supervisor.start("created").unwrap();
    let Event::Exited { code, .. } = world.exit_of("created") else { unreachable!() };
    assert_eq!(code, 2);
    world.go("running");
    let Event::Exited { code, .. } = world.exit_of("running") else { unreachable!() };
    // The exec may be ended by the end of its container before it sees the file.
    assert!(code == 5 && matches!(world.exec_exit("long"), 8 | 137));
    assert_eq!(crate::world::logged(&world.dir.path().join("running.log"), "stdout"), "halfdone\n");
    let copy = std::io::read_to_string(std::fs::File::from(attached.stdout.unwrap())).unwrap();
    assert_eq!(copy, "done\n");
    drop(held.stdout.take());
}
