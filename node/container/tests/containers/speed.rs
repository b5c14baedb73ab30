//! How long the common operations take. The bounds are loose: shared machines are slow at times.

use std::time::{Duration, Instant};

use podwire_container::Event;

use crate::world::World;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn create_start_exec_and_delete_take_milliseconds() {
    let world = World::new();
    let (mut creates, mut execs, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
    world.run(world.request("host", &["sleep", "1000"]));
    for round in 0..30 {
        let id = format!("c{round}");
        let request = world.request(&id, &["true"]);
        let began = Instant::now();
        world.supervisor.create(request).unwrap();
        world.supervisor.start(&id).unwrap();
        creates.push(began.elapsed());
        world.exit_of(&id);
        let began = Instant::now();
        world.supervisor.delete(&id).unwrap();
        deletes.push(began.elapsed());
        let began = Instant::now();
        let exec_id = format!("e{round}");
        assert_eq!(world.exec_output("host", &exec_id, &["true"]).0, 0);
        execs.push(began.elapsed());
    }
    for (what, times) in [("create+start", creates), ("exec", execs), ("delete", deletes)] {
        let (least, time) = (times.iter().min().copied().unwrap_or_default(), median(times));
        eprintln!("{what}: least {least:?}, median {time:?}");
        assert!(least < Duration::from_millis(50), "{what} took at least {least:?}");
    }
    let Event::Exited { code, .. } = world.exit_of("c0") else { unreachable!() };
    assert_eq!(code, 0);
}

#[test]
fn a_hundred_containers_at_once_all_run_and_leave_nothing() {
    let world = World::new();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let world = &world;
            let work = move || {
                for round in 0..13 {
                    let id = format!("c{worker}-{round}");
                    world.run(world.request(&id, &["sh", "-c", "echo up; exec sleep 1000"]));
                }
            };
            std::thread::Builder::new().name(format!("worker-{worker}")).spawn_scoped(scope, work).unwrap();
        }
    });
    eprintln!("104 containers in {:?}", began.elapsed());
    assert_eq!(world.supervisor.list().unwrap().len(), 104);
    let pid = world.supervisor_pid();
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    eprintln!("supervisor: {}", smaps.lines().find(|l| l.starts_with("Pss:")).unwrap());
    let began = Instant::now();
    for state in world.supervisor.list().unwrap() {
        world.supervisor.delete(&state.id).unwrap();
    }
    eprintln!("deleted one after the other in {:?}", began.elapsed());
    assert_eq!(world.leftovers(), Vec::<String>::new());
}
