//! Real containers, as root, with busybox as their only program.

#[path = "containers/world.rs"]
mod world;

use std::time::Duration;

use podwire_container::{ContainerStatus, Event};
use world::{World, eventually};

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
    eventually(
        Duration::from_secs(5),
        || world.leftovers().is_empty(),
        || format!("{:?}", world.leftovers()),
    );
}
