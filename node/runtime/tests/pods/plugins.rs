//! A plugin that asks for a network device of the node and for a memory policy; and when plugins can connect.

use std::{collections::HashMap, process::Command, sync::Arc};

use podwire_nri::{
    api::{
        Container, ContainerAdjustment, CreateContainerResponse, Event, LinuxContainerAdjustment,
        LinuxMemoryPolicy, LinuxNetDevice, MpolMode, PodSandbox,
    },
    stub::{Answer, Happened, Plugin, Stub},
};
use podwire_wire::cri;

use crate::world::{World, daemon_exe, eventually};

/// Asks for the same for every container.
struct Asking;

impl Plugin for Asking {
    fn events(&self) -> Vec<Event> {
        vec![Event::CreateContainer]
    }

    fn create_container(&self, _: PodSandbox, _: Container) -> Answer<'_, CreateContainerResponse> {
        let device = LinuxNetDevice { name: "net1".into() };
        let policy =
            LinuxMemoryPolicy { mode: MpolMode::MpolBind as i32, nodes: "0".into(), ..Default::default() };
        let linux = LinuxContainerAdjustment {
            net_devices: HashMap::from([("near0".to_owned(), device)]),
            memory_policy: Some(policy),
            ..Default::default()
        };
        let adjust = ContainerAdjustment { linux: Some(linux), ..Default::default() };
        Box::pin(async { Ok(CreateContainerResponse { adjust: Some(adjust), ..Default::default() }) })
    }
}

/// Runs `ip` on the test's node.
fn ip(world: &World, words: &str) -> String {
    let run = || Command::new("ip").args(words.split(' ')).output().unwrap();
    let done = world.on_node(run);
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_the_node_is_the_pods_until_the_pod_ends() {
    let mut world = World::new().await;
    ip(&world, "link add near0 type veth peer name far0");
    ip(&world, "addr add 192.0.2.7/24 dev near0");
    ip(&world, "link set near0 up");
    let stub = Stub { socket: world.dir.join("nri.sock"), ..Stub::new("asking", "10") };
    let plugin = stub.connect(Arc::new(Asking)).await.unwrap();
    let pod = world.pod("devices");
    let sandbox = world.run(&pod).await.unwrap();
    // The second attempt finds the device where the first one got it.
    for attempt in 0..2 {
        let mut config = World::shell("main", "exec sleep 1000");
        config.metadata = Some(cri::ContainerMetadata { name: "main".into(), attempt });
        let container = world.create(&sandbox, &pod, &config).await.unwrap();
        world.begin(&container).await.unwrap();
        let seen = world.exec(&container, "cat /proc/net/dev /proc/1/numa_maps", 10).await.unwrap();
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert!(seen.contains("net1:"), "the device is not there: {seen}");
        assert!(seen.contains(" bind:0 "), "the policy is not set: {seen}");
        assert_eq!(ip(&world, "-o link show near0"), "", "it is still on the node");
        let request = cri::StopContainerRequest { container_id: container.clone(), timeout: 0 };
        world.cri.clone().stop_container(request).await.unwrap();
    }
    drop(plugin);
    // The journal knows what was moved.
    world.kill();
    world.start(None).await;
    world.stop_and_remove(&sandbox).await;
    let home = ip(&world, "-o addr show near0");
    assert!(home.contains("192.0.2.7/24"), "the device did not come home: {home}");
    assert!(ip(&world, "-o link show near0").contains(",UP"), "it was up before");
    // The kernel takes the rest away with the namespace, in its own time.
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_does_not_exist_fails_the_start_with_the_reason() {
    let world = World::new().await;
    let stub = Stub { socket: world.dir.join("nri.sock"), ..Stub::new("asking", "10") };
    let _plugin = stub.connect(Arc::new(Asking)).await.unwrap();
    let pod = world.pod("nodevice");
    let sandbox = world.run(&pod).await.unwrap();
    let container = world.create(&sandbox, &pod, &World::shell("main", "true")).await.unwrap();
    let error = world.begin(&container).await.unwrap_err();
    assert!(error.message().contains("there is no network device \"near0\""), "{error}");
    world.stop_and_remove(&sandbox).await;
    // The kernel takes the rest away with the namespace, in its own time.
    eventually("nothing is left", || world.residue().is_empty());
}

/// Tells what it hears of pods, and never agrees to their start if told so.
struct Hearing {
    heard: tokio::sync::mpsc::UnboundedSender<(Event, String)>,
    agrees: bool,
}

impl Plugin for Hearing {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::StopPodSandbox, Event::RemovePodSandbox]
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        self.heard.send((what.event, what.pod.name)).ok();
        let waits = !self.agrees && what.event == Event::RunPodSandbox;
        Box::pin(async move { if waits { std::future::pending().await } else { Ok(()) } })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_hear_of_the_end_of_a_pod_the_daemon_died_in() {
    let mut world = World::new().await;
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let stub = Stub { socket: world.dir.join("nri.sock"), ..Stub::new("hearing", "10") };
    let plugin = stub.connect(Arc::new(Hearing { heard: heard.clone(), agrees: false })).await.unwrap();
    let (mut client, pod) = (world.cri.clone(), world.pod("halfway"));
    let request = cri::RunPodSandboxRequest { config: Some(pod), runtime_handler: String::new() };
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move { client.run_pod_sandbox(request).await });
    assert_eq!(hears.recv().await.unwrap(), (Event::RunPodSandbox, "halfway".to_owned()));
    world.kill();
    assert!(calls.join_next().await.unwrap().unwrap().is_err());
    drop(plugin);
    world.start(None).await;
    let _plugin = stub.connect(Arc::new(Hearing { heard, agrees: true })).await.unwrap();
    for event in [Event::StopPodSandbox, Event::RemovePodSandbox] {
        let told = tokio::time::timeout(std::time::Duration::from_secs(20), hears.recv()).await;
        assert_eq!(told.expect("nothing was told").unwrap(), (event, "halfway".to_owned()));
    }
    eventually("nothing is left", || world.residue().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_waits_for_a_plugin_costs_no_network() {
    let world = World::new().await;
    let mut pod = world.pod("waits");
    pod.annotations.insert("required-plugins.noderesource.dev/pod".into(), "- absent".into());
    let error = world.run(&pod).await.unwrap_err();
    assert!(error.message().contains("required NRI plugin absent is not connected"), "{error}");
    let log = std::fs::read_to_string(world.dir.join("log")).unwrap();
    let steps: Vec<&str> = log.lines().filter(|line| line.contains("uid-waits")).collect();
    let touched =
        |line: &&&str| ["ADD eth0", "DEL eth0", "network namespace"].iter().any(|what| line.contains(what));
    assert!(steps.iter().find(touched).is_none(), "{steps:?}");
    assert!(world.residue().is_empty());
}

/// Whoever sees CRI's socket can count on NRI's: a plugin started then does not have to try again.
#[test]
fn without_a_socket_for_plugins_there_is_none_for_cri_either() {
    let keep = tempfile::Builder::new().prefix("pwrt").tempdir().unwrap();
    let dir = keep.path().join("order");
    // Nobody can listen on a folder.
    std::fs::create_dir_all(dir.join("nri.sock")).unwrap();
    let mut daemon =
        Command::new(daemon_exe()).arg(&dir).stderr(std::process::Stdio::piped()).spawn().unwrap();
    eventually("the daemon gives up", || daemon.try_wait().unwrap().is_some());
    let said = daemon.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("listen for NRI plugins"), "{said}");
    assert!(!dir.join("cri.sock").exists(), "CRI's socket came first");
}
