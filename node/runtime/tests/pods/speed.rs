//! How long the steps of a pod take. Prints its table; fails only when a step is out of all proportion.

use std::time::{Duration, Instant};

use podwire_wire::cri;

use crate::world::World;

const ROUNDS: usize = 20;
/// An unoptimised build on a busy machine; the targets are judged by the benchmark.
const ABSURD: Duration = Duration::from_millis(500);

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::test]
async fn steps_of_a_pod_are_quick() {
    let world = World::new().await;
    let mut steps: [(&str, Vec<Duration>); 5] =
        ["RunPodSandbox", "CreateContainer", "StartContainer", "ExecSync true", "Stop+RemovePodSandbox"]
            .map(|name| (name, Vec::new()));
    for round in 0..ROUNDS {
        let pod = world.pod(&format!("quick-{round}"));
        let mut begun = Instant::now();
        let mut lap = |at: usize| {
            steps[at].1.push(begun.elapsed());
            begun = Instant::now();
        };
        let sandbox = world.run(&pod).await.unwrap();
        lap(0);
        let container = world.create(&sandbox, &pod, &World::shell("main", "exec sleep 1000")).await.unwrap();
        lap(1);
        world.begin(&container).await.unwrap();
        lap(2);
        let cmd = vec!["/bin/true".to_owned()];
        let request = cri::ExecSyncRequest { container_id: container, cmd, timeout: 10 };
        assert_eq!(world.cri.clone().exec_sync(request).await.unwrap().into_inner().exit_code, 0);
        lap(3);
        world.stop_and_remove(&sandbox).await;
        lap(4);
    }
    for (name, times) in &mut steps {
        let p50 = median(times);
        eprintln!("{name}: min {:?} p50 {p50:?}", times[0]);
        assert!(p50 < ABSURD, "{name} takes {p50:?}");
    }
}
