//! What pods and containers do when nothing breaks, and what callers are told when they ask for nonsense.

use podwire_wire::cri;
use tonic::Code;

use crate::world::{World, eventually};

#[tokio::test]
async fn a_pod_runs_answers_and_leaves_nothing_behind() {
    let world = World::new().await;
    let pod = world.pod("web");
    let sandbox = world.run(&pod).await.unwrap();
    let status = world
        .cri
        .clone()
        .pod_sandbox_status(cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox.clone(), verbose: true })
        .await
        .unwrap()
        .into_inner();
    let network = status.status.unwrap().network.unwrap();
    assert!(network.ip.starts_with("10.77."), "{network:?}");
    let mut config = World::shell("main", "hostname; id; echo ready; exec sleep 1000");
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.run_as_user = Some(cri::Int64Value { value: 33 });
    config.linux.as_mut().unwrap().resources =
        Some(cri::LinuxContainerResources { memory_limit_in_bytes: 64 << 20, ..Default::default() });
    let container = world.create(&sandbox, &pod, &config).await.unwrap();
    world.begin(&container).await.unwrap();
    eventually("the log is written", || world.log("main").contains("ready"));
    let log = world.log("main");
    assert!(log.contains("stdout F web\n"), "{log}");
    assert!(log.contains("uid=33(web) gid=34 groups=34,50000(extra)"), "{log}");
    let seen = world.status(&container).await;
    assert_eq!(seen.state, cri::ContainerState::ContainerRunning as i32);
    assert_eq!(seen.user.unwrap().linux.unwrap().supplemental_groups, [34, 50000]);
    assert!(!seen.image_id.is_empty() && !seen.image_ref.is_empty());
    let said = world.exec(&container, "echo out; echo err >&2; exit 7", 10).await.unwrap();
    assert_eq!(
        (said.exit_code, said.stdout.as_slice(), said.stderr.as_slice()),
        (7, &b"out\n"[..], &b"err\n"[..])
    );
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn an_end_is_told_with_its_reason_and_in_order() {
    let world = World::new().await;
    let events = world.cri.clone().get_container_events(cri::GetEventsRequest {}).await.unwrap().into_inner();
    let pod = world.pod("ends");
    let sandbox = world.run(&pod).await.unwrap();
    let quick = world.create(&sandbox, &pod, &World::shell("quick", "exit 3")).await.unwrap();
    world.begin(&quick).await.unwrap();
    let status = world.exited(&quick).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    let mut greedy = World::shell("greedy", "dd if=/dev/zero of=/dev/null bs=40M");
    greedy.linux.as_mut().unwrap().resources =
        Some(cri::LinuxContainerResources { memory_limit_in_bytes: 16 << 20, ..Default::default() });
    let greedy = world.create(&sandbox, &pod, &greedy).await.unwrap();
    world.begin(&greedy).await.unwrap();
    let status = world.exited(&greedy).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    let mut absent = World::shell("absent", "");
    absent.command = vec!["/bin/nothing-here".into()];
    let absent = world.create(&sandbox, &pod, &absent).await.unwrap();
    let error = world.begin(&absent).await.unwrap_err();
    assert!(error.message().contains("/bin/nothing-here"), "{error}");
    let status = world.exited(&absent).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (128, "StartError"));
    world.stop_and_remove(&sandbox).await;
    let told = order(events, &sandbox, &quick).await;
    assert_eq!(told, ["pod 0", "pod 1", "quick 0", "quick 1", "quick 2", "quick 3", "pod 3"]);
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

/// The events about one pod and one of its containers, up to the pod's end.
async fn order(
    mut events: tonic::Streaming<cri::ContainerEventResponse>,
    sandbox: &str,
    container: &str,
) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = events.message().await.unwrap() {
        assert_eq!(event.pod_sandbox_status.as_ref().unwrap().id, sandbox);
        let who = match event.container_id.as_str() {
            id if id == sandbox => "pod",
            id if id == container => "quick",
            _ => continue,
        };
        told.push(format!("{who} {}", event.container_event_type));
        if who == "pod" && event.container_event_type == cri::ContainerEventType::ContainerDeletedEvent as i32
        {
            break;
        }
    }
    told
}

#[tokio::test]
async fn retries_join_and_impossible_wishes_are_refused() {
    let world = World::new().await;
    let pod = world.pod("once");
    let (one, two) = tokio::join!(world.run(&pod), world.run(&pod));
    let sandbox = one.unwrap();
    assert_eq!(sandbox, two.unwrap(), "two calls, one sandbox");
    assert_eq!(world.run(&pod).await.unwrap(), sandbox, "asked again, the same sandbox");
    let mut other = pod.clone();
    other.hostname = "other".into();
    assert_eq!(world.run(&other).await.unwrap_err().code(), Code::AlreadyExists);
    let config = World::shell("main", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done");
    let container = world.create(&sandbox, &pod, &config).await.unwrap();
    assert_eq!(world.create(&sandbox, &pod, &config).await.unwrap(), container);
    world.begin(&container).await.unwrap();
    assert_eq!(world.begin(&container).await.unwrap_err().code(), Code::FailedPrecondition);
    eventually("the trap is set", || world.log("main").contains("ready"));
    let slow = world.exec(&container, "sleep 1000", 1).await.unwrap_err();
    assert_eq!(slow.code(), Code::DeadlineExceeded);
    let unknown = cri::ContainerStatusRequest { container_id: "nobody".into(), verbose: false };
    assert_eq!(world.cri.clone().container_status(unknown).await.unwrap_err().code(), Code::NotFound);
    let stop = cri::StopContainerRequest { container_id: container.clone(), timeout: 10 };
    world.cri.clone().stop_container(stop.clone()).await.unwrap();
    assert_eq!(world.status(&container).await.exit_code, 9);
    world.cri.clone().stop_container(stop).await.unwrap();
    let stop = cri::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    world.cri.clone().stop_pod_sandbox(stop.clone()).await.unwrap();
    world.cri.clone().stop_pod_sandbox(stop).await.unwrap();
    let late = world.create(&sandbox, &pod, &World::shell("late", "true")).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition);
    world.stop_and_remove(&sandbox).await;
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn containers_may_share_their_processes() {
    let world = World::new().await;
    let mut pod = world.pod("shared");
    let options = &mut pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options;
    options.as_mut().unwrap().pid = cri::NamespaceMode::Pod as i32;
    let shared = |name, script| {
        let mut config = World::shell(name, script);
        let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options.as_mut().unwrap().pid = cri::NamespaceMode::Pod as i32;
        config
    };
    let sandbox = world.run(&pod).await.unwrap();
    let one = world.create(&sandbox, &pod, &shared("one", "exec sleep 4711")).await.unwrap();
    world.begin(&one).await.unwrap();
    let two = world
        .create(&sandbox, &pod, &shared("two", "cat /proc/*/cmdline; echo; exec sleep 1000"))
        .await
        .unwrap();
    world.begin(&two).await.unwrap();
    eventually("one sees the other", || world.log("two").contains("4711"));
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}

#[tokio::test]
async fn a_pod_may_have_users_of_its_own() {
    let world = World::new().await;
    let mut pod = world.pod("users");
    let map = |length| vec![cri::IdMapping { host_id: 400_000, container_id: 0, length }];
    let users = |length| cri::UserNamespace {
        mode: cri::NamespaceMode::Pod as i32,
        uids: map(length),
        gids: map(length),
    };
    let options = |pod: &mut cri::PodSandboxConfig, users| {
        let security = pod.linux.as_mut().unwrap().security_context.as_mut().unwrap();
        security.namespace_options.as_mut().unwrap().userns_options = Some(users);
    };
    options(&mut pod, users(0));
    assert_eq!(world.run(&pod).await.unwrap_err().code(), Code::InvalidArgument);
    options(&mut pod, users(65_536));
    let sandbox = world.run(&pod).await.unwrap();
    let script = "id -u; cat /proc/self/uid_map; echo mine > /data/own; ls -ln /data; echo x >> /etc/hosts && echo ready; exec sleep 1000";
    let container = world.create(&sandbox, &pod, &World::shell("main", script)).await.unwrap();
    world.begin(&container).await.unwrap();
    eventually("it got through", || world.log("main").contains("ready"));
    let log = world.log("main");
    assert!(log.contains("stdout F 0\n") && log.contains("400000"), "{log}");
    assert!(!log.contains("65534"), "everything belongs to somebody the pod knows: {log}");
    assert_eq!(world.exec(&container, "id -u", 10).await.unwrap().stdout, b"0\n");
    world.stop_and_remove(&sandbox).await;
    eventually("the kernel has taken the last of it away", || world.residue().is_empty());
}
