//! What survives when the daemon is killed, and what must not.

use std::time::{Duration, Instant};

use podwire_wire::cri;

use crate::world::{World, eventually};

async fn sandboxes(world: &World) -> Vec<cri::PodSandbox> {
    world
        .cri
        .clone()
        .list_pod_sandbox(cri::ListPodSandboxRequest::default())
        .await
        .unwrap()
        .into_inner()
        .items
}

#[tokio::test]
async fn containers_outlive_a_killed_daemon_and_are_adopted() {
    let mut world = World::new().await;
    let pod = world.pod("steady");
    let sandbox = world.run(&pod).await.unwrap();
    let script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done";
    let steady = world.create(&sandbox, &pod, &World::shell("steady", script)).await.unwrap();
    world.begin(&steady).await.unwrap();
    let brief = world.create(&sandbox, &pod, &World::shell("brief", "sleep 0.3; exit 5")).await.unwrap();
    world.begin(&brief).await.unwrap();
    let planned = world.create(&sandbox, &pod, &World::shell("planned", "exit 6")).await.unwrap();
    let before = world.status(&steady).await;
    world.kill();
    let lines = world.log("steady").lines().count();
    eventually("it logs on without a daemon", || world.log("steady").lines().count() > lines + 10);
    world.start(None).await;
    let after = world.status(&steady).await;
    assert_eq!(after.state, cri::ContainerState::ContainerRunning as i32);
    assert_eq!((after.started_at, after.created_at), (before.started_at, before.created_at));
    assert_eq!(world.exited(&brief).await.exit_code, 5, "an exit nobody watched is known");
    world.begin(&planned).await.unwrap();
    assert_eq!(world.exited(&planned).await.exit_code, 6, "a planned container can still be started");
    assert_eq!(world.exec(&steady, "echo here", 10).await.unwrap().stdout, b"here\n");
    assert_eq!(sandboxes(&world).await.len(), 1);
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn a_daemon_killed_amid_creations_leaks_nothing() {
    let mut world = World::new().await;
    for round in 0..3 {
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..12 {
            let pod = world.pod(&format!("pod-{round}-{number}"));
            let mut client = world.cri.clone();
            calls.spawn(async move {
                let request = cri::RunPodSandboxRequest { config: Some(pod), runtime_handler: String::new() };
                client.run_pod_sandbox(request).await.map(|reply| reply.into_inner().pod_sandbox_id)
            });
        }
        // Some are made, some are half made, some have not begun.
        let mut made = 0;
        while made <= round {
            calls.join_next().await.unwrap().unwrap().unwrap();
            made += 1;
        }
        world.kill();
        world.start(None).await;
        for sandbox in sandboxes(&world).await {
            world.stop_and_remove(&sandbox.id).await;
        }
        eventually("nothing is left", || world.residue().is_empty());
    }
}

/// Asks for a start that cannot end: the supervisor is frozen before it hears of it.
fn start_under_way(world: &World, id: &str) -> tokio::task::JoinSet<Result<(), tonic::Status>> {
    world.freeze_supervisor();
    let (mut client, asked) = (world.cri.clone(), id.to_owned());
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move {
        client.start_container(cri::StartContainerRequest { container_id: asked }).await.map(drop)
    });
    eventually("the start is under way", || world.dir.join("logs").exists());
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_the_daemon_died_in_can_be_asked_for_again() {
    let mut world = World::new().await;
    let pod = world.pod("cut");
    let sandbox = world.run(&pod).await.unwrap();
    let id = world.create(&sandbox, &pod, &World::shell("cut", "exit 3")).await.unwrap();
    let mut calls = start_under_way(&world, &id);
    world.kill();
    assert!(calls.join_next().await.unwrap().unwrap().is_err(), "nobody was told that it started");
    // What a root file system leaves that was mounted when its container was taken back.
    let mark = world.dir.join("images/snapshots").join(&id).join("work/work/incompat/volatile");
    std::fs::create_dir_all(mark).unwrap();
    world.thaw_supervisor();
    world.start(None).await;
    assert_eq!(world.status(&id).await.state, cri::ContainerState::ContainerCreated as i32, "never begun");
    world.begin(&id).await.unwrap();
    assert_eq!(world.exited(&id).await.exit_code, 3);
    world.stop_and_remove(&sandbox).await;
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_outlives_the_supervisor_that_was_asked_for_it() {
    let world = World::new().await;
    let pod = world.pod("heir");
    let sandbox = world.run(&pod).await.unwrap();
    let id = world.create(&sandbox, &pod, &World::shell("heir", "exit 3")).await.unwrap();
    let mut calls = start_under_way(&world, &id);
    world.kill_supervisor();
    calls.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(world.exited(&id).await.exit_code, 3);
    world.stop_and_remove(&sandbox).await;
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_killed_amid_starts_loses_no_container() {
    let world = World::new().await;
    let pod = world.pod("many");
    let sandbox = world.run(&pod).await.unwrap();
    for round in 0..3 {
        let mut ids = Vec::new();
        for number in 0..8 {
            let config = World::shell(&format!("c-{round}-{number}"), "sleep 1000");
            ids.push(world.create(&sandbox, &pod, &config).await.unwrap());
        }
        let mut calls = tokio::task::JoinSet::new();
        for id in ids.clone() {
            let mut client = world.cri.clone();
            let request = cri::StartContainerRequest { container_id: id.clone() };
            calls.spawn(async move { client.start_container(request).await.map(|_| id) });
        }
        // Some run, some are half made, some have not begun.
        for _ in 0..=round {
            calls.join_next().await.unwrap().unwrap().unwrap();
        }
        world.kill_supervisor();
        while let Some(started) = calls.join_next().await {
            started.unwrap().unwrap();
        }
        for id in ids {
            let status = world.status(&id).await;
            assert_eq!(status.state, cri::ContainerState::ContainerRunning as i32, "{status:?}");
            // One that was asked of the supervisor just before it died is lost, and whoever asked for it knows.
            let deadline = Instant::now() + Duration::from_secs(20);
            let answer = loop {
                match world.exec(&id, "echo here", 10).await {
                    Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(5)).await,
                    answer => break answer,
                }
            };
            assert_eq!(answer.unwrap().stdout, b"here\n");
        }
    }
    world.stop_and_remove(&sandbox).await;
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn supervisors_that_die_during_adoption_leave_no_start_without_an_end() {
    let mut world = World::new().await;
    let pod = world.pod("stuck");
    let sandbox = world.run(&pod).await.unwrap();
    let id = world.create(&sandbox, &pod, &World::shell("stuck", "sleep 1000")).await.unwrap();
    let mut calls = start_under_way(&world, &id);
    world.kill();
    assert!(calls.join_next().await.unwrap().unwrap().is_err());
    let killer = world.kill_supervisors();
    world.start(None).await;
    drop(killer);
    // Whatever became of it, it can be stopped and removed in bounded time.
    let gone = tokio::time::timeout(Duration::from_secs(60), world.stop_and_remove(&sandbox)).await;
    assert!(gone.is_ok(), "the sandbox cannot be stopped: {:?}", world.status(&id).await);
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_run_folder_refuses_what_is_new_and_keeps_what_runs() {
    let mut world = World::with_run_folder_of(1 << 20).await;
    let pod = world.pod("steady");
    let sandbox = world.run(&pod).await.unwrap();
    let script = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done";
    let steady = world.create(&sandbox, &pod, &World::shell("steady", script)).await.unwrap();
    world.begin(&steady).await.unwrap();
    let started = world.status(&steady).await.started_at;
    let brief = "while [ ! -e /proc/1/root/tmp/go ]; do sleep 0.02; done; exit 5";
    let brief = world.create(&sandbox, &pod, &World::shell("brief", brief)).await.unwrap();
    world.begin(&brief).await.unwrap();
    world.fill_run_folder();
    let refused = world.run(&world.pod("refused")).await.unwrap_err();
    assert!(refused.message().contains("No space left on device"), "{refused}");
    let mut large = World::shell("large", "true");
    large.annotations.insert("large".into(), "x".repeat(64 << 10));
    let refused = world.create(&sandbox, &pod, &large).await.unwrap_err();
    assert!(refused.message().contains("No space left on device"), "{refused}");
    world.exec(&brief, "echo > /tmp/go", 10).await.unwrap();
    assert_eq!(world.exited(&brief).await.exit_code, 5, "an exit is known although no row can say it");
    let lines = world.log("steady").lines().count();
    eventually("what runs goes on", || world.log("steady").lines().count() > lines + 5);
    assert_eq!(sandboxes(&world).await.len(), 1, "nothing of the refused pod is left");
    world.empty_run_folder();
    let late = world.run(&world.pod("late")).await.unwrap();
    world.kill();
    world.start(None).await;
    let status = world.status(&steady).await;
    assert_eq!((status.state, status.started_at), (cri::ContainerState::ContainerRunning as i32, started));
    assert_eq!(world.exited(&brief).await.exit_code, 5, "and it is remembered");
    for sandbox in [sandbox, late] {
        world.stop_and_remove(&sandbox).await;
    }
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_descriptors_pods_are_refused_and_nothing_is_lost() {
    let world = World::new().await;
    let pod = world.pod("steady");
    let sandbox = world.run(&pod).await.unwrap();
    let ticks = World::shell("steady", "while :; do echo x; sleep 0.05; done");
    let steady = world.create(&sandbox, &pod, &ticks).await.unwrap();
    world.begin(&steady).await.unwrap();
    // What is open stays open, and no number below is free.
    world.limit_descriptors(3);
    let refused = world.run(&world.pod("refused")).await.unwrap_err();
    assert!(refused.message().contains("Too many open files"), "{refused}");
    let refused = world.create(&sandbox, &pod, &World::shell("refused", "true")).await.unwrap_err();
    assert!(refused.message().contains("Too many open files"), "{refused}");
    let lines = world.log("steady").lines().count();
    eventually("what runs goes on", || world.log("steady").lines().count() > lines + 5);
    world.limit_descriptors(4096);
    assert_eq!(world.status(&steady).await.state, cri::ContainerState::ContainerRunning as i32);
    let late = world.run(&world.pod("late")).await.unwrap();
    assert_eq!(world.exec(&steady, "echo here", 10).await.unwrap().stdout, b"here\n");
    for known in sandboxes(&world).await {
        world.stop_and_remove(&known.id).await;
    }
    assert!(sandboxes(&world).await.is_empty(), "{late} and {sandbox} are gone");
    eventually("nothing is left", || world.residue().is_empty());
}
