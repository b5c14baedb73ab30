//! The runtime's side of NRI against a plugin on the published Go stub: connected, started by the runtime, killed.
#![cfg(feature = "interop")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use podwire_nri::api::{
    Container, ContainerEviction, ContainerUpdate, LinuxNamespace, LinuxPodSandbox, LinuxResources,
    PodSandbox,
};
use podwire_nri::{Config, EventError, Host, Nri};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);

fn peer() -> PathBuf {
    let peers =
        std::env::var_os("PODWIRE_PEERS").expect("PODWIRE_PEERS is not set: the folder `make peers` fills");
    let peer = PathBuf::from(peers).join("nri-plugin");
    assert!(peer.is_file(), "{} is not built: run make peers", peer.display());
    peer
}

/// A node with as many pods as the test likes.
struct Node(Vec<PodSandbox>);

impl Host for Node {
    fn snapshot(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        Box::pin(std::future::ready((self.0.clone(), Vec::new())))
    }

    fn update_containers(&self, _: Vec<ContainerUpdate>) -> BoxFuture<'_, Vec<ContainerUpdate>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn evict(&self, _: ContainerEviction) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

struct Runtime {
    nri: Nri,
    dir: tempfile::TempDir,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Runtime {
    async fn start(pods: Vec<PodSandbox>, change: impl FnOnce(&mut Config, &Path)) -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let mut config = Config::new("podwire", "interop");
        config.socket = Some(dir.path().join("nri.sock"));
        change(&mut config, dir.path());
        let adaptation = config.build(Arc::new(Node(pods))).await.expect("the socket is ours");
        let (nri, shutdown) = (adaptation.handle(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(adaptation.run(shutdown.clone()));
        Self { nri, dir, shutdown, tasks }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("events")
    }

    async fn plugin(&self, more: &[&str]) -> Child {
        let child = Command::new(peer())
            .args(["-name", "go", "-index", "10", "-socket"])
            .arg(self.dir.path().join("nri.sock"))
            .arg("-log")
            .arg(self.log())
            .args(more)
            .spawn()
            .expect("the peer starts");
        self.until(|nri| nri.plugins().iter().any(|one| one.ready)).await;
        child
    }

    async fn until(&self, wanted: impl Fn(&Nri) -> bool) {
        let begun = Instant::now();
        while !wanted(&self.nri) {
            assert!(begun.elapsed() < DEADLINE, "not in time: {:?}", self.nri.plugins());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log()).expect("the plugin wrote");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, async { while self.tasks.join_next().await.is_some() {} })
            .await
            .expect("it comes to rest");
    }
}

fn pod(name: &str, annotation: usize) -> PodSandbox {
    PodSandbox {
        id: format!("id-{name}"),
        name: name.into(),
        uid: format!("uid-{name}"),
        namespace: "default".into(),
        annotations: [("large".to_owned(), "y".repeat(annotation))].into(),
        ips: vec!["10.1.2.3".into()],
        linux: Some(LinuxPodSandbox {
            namespaces: vec![LinuxNamespace { r#type: "network".into(), path: "/run/netns/x".into() }],
            ..LinuxPodSandbox::default()
        }),
        ..PodSandbox::default()
    }
}

fn container() -> Container {
    Container { id: "c".into(), pod_sandbox_id: "id-p".into(), name: "main".into(), ..Container::default() }
}

fn end(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_plugin_hears_everything_and_its_adjustments_arrive() {
    let runtime = Runtime::start(Vec::new(), |_, _| {}).await;
    let child = runtime.plugin(&["-adjust"]).await;
    let nri = &runtime.nri;
    // Larger than Go's read buffer, and larger than one frame of it.
    let large = pod("p", 300_000);
    nri.run_pod_sandbox(large.clone()).await.expect("run");
    let creation = nri.create_container(large.clone(), container()).await.expect("create");
    nri.post_create_container(large.clone(), container()).await.expect("post create");
    nri.start_container(large.clone(), container()).await.expect("start");
    nri.post_start_container(large.clone(), container()).await.expect("post start");
    let updating =
        nri.update_container(large.clone(), container(), LinuxResources::default()).await.expect("update");
    nri.post_update_container(large.clone(), container()).await.expect("post update");
    nri.stop_container(large.clone(), container()).await.expect("stop");
    nri.remove_container(large.clone(), container()).await.expect("remove");
    let none = LinuxResources::default();
    nri.update_pod_sandbox(large.clone(), none.clone(), none).await.expect("update pod");
    nri.post_update_pod_sandbox(large.clone()).await.expect("post update pod");
    nri.stop_pod_sandbox(large.clone()).await.expect("stop pod");
    nri.remove_pod_sandbox(large).await.expect("remove pod");
    let adjust = creation.adjust;
    assert_eq!((adjust.env[0].key.as_str(), adjust.annotations["nri-plugin"].len()), ("NRI_PLUGIN", 100_000));
    assert_eq!((adjust.mounts.len(), adjust.rlimits.len()), (1, 1));
    let linux = adjust.linux.expect("linux");
    assert_eq!(linux.sysctl["net.ipv4.ip_forward"], "1");
    assert_eq!(
        linux.resources.and_then(|all| all.cpu).and_then(|cpu| cpu.shares).map(|one| one.value),
        Some(77)
    );
    assert_eq!(updating.resources.cpu.and_then(|cpu| cpu.shares).map(|one| one.value), Some(88));
    let events = runtime.events();
    let names: Vec<_> = events.iter().map(|one| one["event"].as_str().unwrap_or_default()).collect();
    let expected = [
        "Configure",
        "Synchronize",
        "RunPodSandbox",
        "CreateContainer",
        "ValidateContainerAdjustment",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "UpdateContainer",
        "PostUpdateContainer",
        "StopContainer",
        "RemoveContainer",
        "UpdatePodSandbox",
        "PostUpdatePodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
    ];
    assert_eq!(names, expected);
    assert_eq!(events[2]["netns"], "/run/netns/x");
    assert_eq!((&events[2]["ips"][0], &events[2]["size"]), (&"10.1.2.3".into(), &300_000.into()));
    end(child);
    runtime.until(|nri| nri.plugins().is_empty()).await;
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_plugin_is_told_of_a_full_node_in_parts() {
    let pods = (0..4000).map(|n| pod(&n.to_string(), 3000)).collect();
    let runtime = Runtime::start(pods, |_, _| {}).await;
    let child = runtime.plugin(&[]).await;
    assert_eq!(runtime.events()[1]["pods"], 4000);
    end(child);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installed_go_plugin_is_started_with_its_configuration() {
    let runtime = Runtime::start(Vec::new(), |config, dir| {
        let (plugins, configs) = (dir.join("plugins"), dir.join("conf.d"));
        std::fs::create_dir_all(&plugins).expect("folder");
        std::fs::create_dir_all(&configs).expect("folder");
        std::os::unix::fs::symlink(peer(), plugins.join("42-installed")).expect("link");
        std::fs::write(configs.join("installed.conf"), format!("log={}\n", dir.join("events").display()))
            .expect("config");
        (config.plugin_dir, config.config_dir) = (Some(plugins), Some(configs));
    })
    .await;
    runtime.until(|nri| nri.plugins().iter().any(|one| one.ready)).await;
    let plugin = runtime.nri.plugins().remove(0);
    assert_eq!((plugin.name.as_str(), plugin.index.as_str()), ("installed", "42"));
    runtime.nri.run_pod_sandbox(pod("p", 10)).await.expect("run");
    assert_eq!(runtime.events().len(), 3);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_plugins_refusal_arrives_and_a_required_one_that_is_killed_is_not_bypassed() {
    let runtime = Runtime::start(Vec::new(), |config, _| {
        config.required = vec!["go".into()];
        config.required_wait = Duration::from_secs(1);
    })
    .await;
    let child = runtime.plugin(&[]).await;
    let mut refused = pod("p", 1);
    refused.annotations.insert("refuse/RunPodSandbox".into(), "no room".into());
    let error = runtime.nri.run_pod_sandbox(refused).await.expect_err("refused");
    assert_eq!(error.to_string(), "NRI plugin 10-go refused RunPodSandbox: no room");
    end(child);
    let error = runtime.nri.run_pod_sandbox(pod("q", 1)).await.expect_err("it is gone");
    assert!(matches!(error, EventError::Absent { .. } | EventError::Failed { .. }), "{error}");
    let child = runtime.plugin(&[]).await;
    runtime.nri.run_pod_sandbox(pod("q", 1)).await.expect("it is back");
    end(child);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_plugin_costs_little() {
    let runtime = Runtime::start(Vec::new(), |_, _| {}).await;
    let child = runtime.plugin(&[]).await;
    let mut times = Vec::new();
    for n in 0..300 {
        let begun = Instant::now();
        runtime.nri.run_pod_sandbox(pod(&n.to_string(), 100)).await.expect("run");
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("RunPodSandbox with one Go plugin: p50 {:?}, p99 {:?}", times[150], times[297]);
    assert!(times[150] < Duration::from_millis(20), "p50 {:?}", times[150]);
    end(child);
    runtime.stop().await;
}
