//! More processes in a running container.

use std::io::{Read, Write};

use podwire_container::WindowSize;

use crate::world::{World, exec};

#[test]
fn an_exec_runs_inside_with_the_rights_of_the_container() {
    let world = World::new();
    world.run(world.request("host", &["sleep", "1000"]));
    let script = "hostname; pwd; echo $GREETING; grep -E 'CapEff|Seccomp:' /proc/self/status; \
                  grep -c . /proc/self/cgroup; readlink /proc/self/ns/pid; unshare -m true 2>&1; exit 42";
    let (code, text) = world.exec_output("host", "look", &["sh", "-c", script]);
    assert_eq!(code, 42, "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[..5], ["tested", "/", "hi", "CapEff:\t00000000a80425fb", "Seccomp:\t2"]);
    let inside =
        std::fs::read_link(format!("/proc/{}/ns/pid", world.supervisor.list().unwrap()[0].pid)).unwrap();
    assert_eq!(lines[6], inside.to_str().unwrap());
    assert!(lines[7].contains("not permitted"), "{text}");
    let group = podwire_linux::cgroup::group(&format!("{}/host", world.cgroup)).unwrap();
    let handle = world.exec("host", "stay", &["sleep", "1000"]);
    assert!(group.processes().unwrap().contains(&handle.pid));
    world.supervisor.signal_exec("host", "stay", libc::SIGKILL).unwrap();
    assert_eq!(world.exec_exit("stay"), 137);
}

#[test]
fn an_exec_of_a_missing_program_says_so_and_leaves_the_container_alone() {
    let world = World::new();
    world.run(world.request("host", &["sleep", "1000"]));
    let error = world.supervisor.exec(exec("host", "bad", &["nope"])).unwrap_err();
    assert_eq!(error.to_string(), "exec: \"nope\": executable file not found in $PATH");
    assert_eq!(world.exec_output("host", "bad", &["true"]).0, 0);
}

#[test]
fn an_exec_has_input_user_folder_and_environment_of_its_own() {
    let world = World::new();
    world.run(world.request("host", &["sleep", "1000"]));
    let mut request = exec("host", "own", &["sh", "-c", "cat; id -u; pwd; echo $X"]);
    request.stdin = true;
    request.user = Some((77, 78, vec![]));
    request.cwd = Some("/tmp".into());
    request.env = Some(vec!["X=y".to_owned(), "PATH=/bin".to_owned()]);
    let handle = world.supervisor.exec(request).unwrap();
    std::fs::File::from(handle.stdin.unwrap()).write_all(b"fed\n").unwrap();
    let text = std::io::read_to_string(std::fs::File::from(handle.stdout.unwrap())).unwrap();
    assert_eq!(text, "fed\n77\n/tmp\ny\n");
    assert_eq!(world.exec_exit("own"), 0);
}

#[test]
fn an_exec_with_a_terminal_gets_one() {
    let world = World::new();
    world.run(world.request("host", &["sleep", "1000"]));
    let mut request = exec("host", "tty", &["sh", "-c", "stty size; read x; stty size; exit 5"]);
    request.tty = Some(WindowSize { width: 90, height: 20 });
    request.stdin = true;
    let handle = world.supervisor.exec(request).unwrap();
    let mut master = std::fs::File::from(handle.stdout.unwrap());
    let mut seen = String::new();
    let mut buffer = [0; 256];
    while !seen.contains("20 90") {
        let count = master.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    world.supervisor.resize("host", Some("tty"), 91, 21).unwrap();
    std::fs::File::from(handle.stdin.unwrap()).write_all(b"\n").unwrap();
    while !seen.contains("21 91") {
        let count = master.read(&mut buffer).unwrap();
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert_eq!(world.exec_exit("tty"), 5);
}

#[test]
fn execs_end_with_their_container() {
    let world = World::new();
    world.run(world.request("host", &["sleep", "1000"]));
    let mut handle = world.exec("host", "long", &["sleep", "1000"]);
    world.supervisor.signal("host", libc::SIGKILL, false).unwrap();
    world.exit_of("host");
    assert_eq!(world.exec_exit("long"), 137);
    let mut rest = Vec::new();
    std::fs::File::from(handle.stdout.take().unwrap()).read_to_end(&mut rest).unwrap();
    assert!(world.supervisor.exec(exec("host", "late", &["true"])).is_err());
}
