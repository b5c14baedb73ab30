//! Log files, terminals, stdin and attach.

use std::io::{Read, Write};
use std::time::Duration;

use podwire_container::AttachRequest;

use crate::world::{World, eventually};

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn long_lines_are_cut_and_an_unfinished_one_is_a_part() {
    let world = World::new();
    let request =
        world.request("long", &["sh", "-c", "head -c 20000 /dev/zero | tr '\\0' x; echo; printf end"]);
    std::os::unix::fs::symlink("busybox", world.rootfs().join("bin/tr")).unwrap();
    let log = request.log_path.clone().unwrap();
    world.run(request);
    world.exit_of("long");
    let text = read(&log);
    let parts: Vec<_> = text.lines().map(|l| l.splitn(4, ' ').skip(2).collect::<Vec<_>>()).collect();
    let shape: Vec<_> = parts.iter().map(|p| (p[0], p[1].len())).collect();
    assert_eq!(shape, [("P", 16 << 10), ("F", 20_000 - (16 << 10)), ("P", 3)]);
}

#[test]
fn a_rotated_log_goes_on_in_a_new_file() {
    let world = World::new();
    let request = world.request(
        "rotate",
        &["sh", "-c", "echo before; while ! test -e /go; do sleep 0.02; done; echo after"],
    );
    let log = request.log_path.clone().unwrap();
    let old = log.with_extension("old");
    world.run(request);
    eventually(Duration::from_secs(5), || read(&log).contains("before"), || read(&log));
    std::fs::rename(&log, &old).unwrap();
    world.supervisor.reopen_log("rotate").unwrap();
    world.go("rotate");
    world.exit_of("rotate");
    assert!(read(&old).contains("before") && !read(&old).contains("after"));
    assert!(read(&log).contains("after") && !read(&log).contains("before"));
}

#[test]
fn a_terminal_has_its_size_and_hears_of_a_new_one() {
    let world = World::new();
    let script = "tty; stty size; read line; stty size; echo got $line; ls -l /dev/console | head -c 1";
    let mut request = world.request("term", &["sh", "-c", script]);
    request.tty = true;
    request.stdin = true;
    let log = request.log_path.clone().unwrap();
    world.supervisor.create(request).unwrap();
    world.supervisor.resize("term", None, 100, 30).unwrap();
    world.supervisor.start("term").unwrap();
    eventually(Duration::from_secs(5), || read(&log).contains("30 100"), || read(&log));
    world.supervisor.resize("term", None, 120, 40).unwrap();
    let streams = AttachRequest { stdin: true, stdout: true, stderr: true };
    let handle = world.supervisor.attach("term", streams).unwrap();
    assert!(handle.stderr.is_none());
    std::fs::File::from(handle.stdin.unwrap()).write_all(b"typed\n").unwrap();
    let mut copy = String::new();
    std::fs::File::from(handle.stdout.unwrap()).read_to_string(&mut copy).unwrap();
    world.exit_of("term");
    let text = crate::world::logged(&log, "stdout");
    assert!(text.starts_with("/dev/pts/0\n30 100\n"), "{text:?}");
    assert!(text.contains("40 120\ngot typed\nc"), "{text:?}");
    assert!(copy.contains("got typed"), "{copy:?}");
}

#[test]
fn attached_input_reaches_the_program_and_its_output_comes_back() {
    let world = World::new();
    let mut request = world.request("cat", &["cat"]);
    request.stdin = true;
    let log = request.log_path.clone().unwrap();
    world.run(request);
    let streams = AttachRequest { stdin: true, stdout: true, stderr: false };
    let handle = world.supervisor.attach("cat", streams).unwrap();
    std::fs::File::from(handle.stdin.unwrap()).write_all(b"through\n").unwrap();
    // Our end is closed, the supervisor still holds one: the program goes on.
    let mut output = std::fs::File::from(handle.stdout.unwrap());
    let mut line = [0; 8];
    output.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"through\n");
    world.supervisor.close_stdin("cat").unwrap();
    world.exit_of("cat");
    assert_eq!(output.read(&mut line).unwrap(), 0);
    assert_eq!(crate::world::logged(&log, "stdout"), "through\n");
}

#[test]
fn a_session_that_does_not_read_holds_nobody_back() {
    let world = World::new();
    let request = world
        .request("flood", &["sh", "-c", "until test -e /go; do sleep 0.02; done; yes | head -c 8000000"]);
    let log = request.log_path.clone().unwrap();
    world.run(request);
    let idle = world
        .supervisor
        .attach("flood", AttachRequest { stdin: false, stdout: true, stderr: false })
        .unwrap();
    world.go("flood");
    world.exit_of("flood");
    assert_eq!(crate::world::logged(&log, "stdout").len(), 8_000_000);
    drop(idle);
}
