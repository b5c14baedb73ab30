//! Plugins against the runtime's side over a real socket: order, merging, faults, and failing closed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/runtime.rs"]
mod runtime;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use podwire_nri::EventError;
use podwire_nri::api::{
    ConfigureRequest, Container, ContainerAdjustment, ContainerEviction, ContainerUpdate,
    CreateContainerResponse, Event, KeyValue, LinuxContainerUpdate, LinuxResources, PodSandbox,
    ValidateContainerAdjustmentRequest,
};
use podwire_nri::stub::{Answer, Connection, Happened, Plugin, Stub};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::runtime::Runtime;

impl Runtime {
    fn stub(&self, name: &str, index: &str) -> Stub {
        Stub { socket: self.socket(), ..Stub::new(name, index) }
    }

    async fn connect(&self, name: &str, index: &str, plugin: &Arc<Recorder>) -> Connection {
        let connection = self.stub(name, index).connect(plugin.clone()).await.unwrap();
        self.until(name, |nri| nri.plugins().iter().any(|one| one.name == name && one.ready)).await;
        connection
    }
}

/// A plugin that writes down what it hears and does what the test tells it.
#[derive(Default)]
struct Recorder {
    heard: Mutex<Vec<String>>,
    env: Option<(&'static str, &'static str)>,
    refuse: Option<Event>,
    hang: Option<Event>,
    reject: bool,
    updates: Vec<ContainerUpdate>,
    evict: bool,
    concurrent: AtomicUsize,
    most: AtomicUsize,
    slow: Duration,
    hung: AtomicBool,
}

impl Recorder {
    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    async fn note(&self, event: Event, id: &str) -> Result<(), podwire_nri::stub::Refusal> {
        self.heard.lock().unwrap().push(format!("{} {id}", event.as_str_name()));
        let now = self.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(self.slow).await;
        self.concurrent.fetch_sub(1, Ordering::SeqCst);
        if self.hang == Some(event) {
            self.hung.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        if self.refuse == Some(event) { Err("not today".into()) } else { Ok(()) }
    }
}

impl Plugin for Recorder {
    fn events(&self) -> Vec<Event> {
        Vec::new()
    }

    fn configure(&self, request: ConfigureRequest) -> Answer<'_, ()> {
        self.heard.lock().unwrap().push(format!("CONFIGURE {}{}", request.runtime_name, request.config));
        Box::pin(std::future::ready(Ok(())))
    }

    fn synchronize(&self, pods: Vec<PodSandbox>, _: Vec<Container>) -> Answer<'_, Vec<ContainerUpdate>> {
        self.heard.lock().unwrap().push(format!("SYNCHRONIZE {}", pods.len()));
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        let id = what.container.map_or(what.pod.id, |container| container.id);
        Box::pin(async move { self.note(what.event, &id).await })
    }

    fn create_container(&self, _: PodSandbox, container: Container) -> Answer<'_, CreateContainerResponse> {
        Box::pin(async move {
            self.note(Event::CreateContainer, &format!("{} {:?}", container.id, container.env)).await?;
            let env = self.env.map(|(key, value)| KeyValue { key: key.into(), value: value.into() });
            let adjust =
                ContainerAdjustment { env: env.into_iter().collect(), ..ContainerAdjustment::default() };
            let evict =
                self.evict.then(|| ContainerEviction { container_id: "old".into(), ..Default::default() });
            let evict = evict.into_iter().collect();
            Ok(CreateContainerResponse { adjust: Some(adjust), update: self.updates.clone(), evict })
        })
    }

    fn validate(&self, request: ValidateContainerAdjustmentRequest) -> Answer<'_, Option<String>> {
        let seen = format!("VALIDATE {} plugins", request.plugins.len());
        self.heard.lock().unwrap().push(seen);
        let reason = self.reject.then(|| "policy".to_owned());
        Box::pin(std::future::ready(Ok(reason)))
    }
}

fn pod(id: &str) -> PodSandbox {
    PodSandbox { id: id.into(), name: id.into(), ..PodSandbox::default() }
}

fn container(id: &str) -> Container {
    Container { id: id.into(), pod_sandbox_id: "p".into(), name: id.into(), ..Container::default() }
}

/// Where a subscriber writes for the test to read.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl std::io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_call_of_a_plugin_is_an_arrow_under_its_own_name_also_a_refused_one() {
    let drawn = Page::default();
    let page = drawn.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("arrow=debug")
        .with_ansi(false)
        .with_writer(move || page.clone())
        .finish();
    // Where one alone listens, a thread without a listener that meets an event first turns it off for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _heard = tracing::subscriber::set_default(subscriber);
    let runtime = Runtime::begin(|_, _| {}).await;
    let named = |id: &str| PodSandbox { uid: "u".into(), namespace: "default".into(), ..pod(id) };
    runtime.nri.run_pod_sandbox(named("p")).await.unwrap();
    let fine = Arc::new(Recorder::default());
    let strict = Arc::new(Recorder { refuse: Some(Event::StartContainer), ..Recorder::default() });
    let _connections =
        (runtime.connect("net", "10", &fine).await, runtime.connect("strict", "20", &strict).await);
    runtime.nri.run_pod_sandbox(named("p")).await.unwrap();
    runtime.nri.start_container(named("p"), container("c")).await.unwrap_err();
    let lines = drawn.lines();
    let wanted = [
        ["to=\"10-net\" what=RunPodSandbox", "pod=default/p", "error=\"\""],
        ["to=\"20-strict\" what=RunPodSandbox", "pod=default/p", "error=\"\""],
        ["to=\"10-net\" what=StartContainer c", "pod=default/p", "error=\"\""],
        ["to=\"20-strict\" what=StartContainer c", "pod=default/p", "not today"],
    ];
    assert_eq!(lines.len(), wanted.len(), "nobody to tell, no arrow: {lines:#?}");
    for (line, words) in lines.iter().zip(wanted) {
        assert!(words.iter().all(|word| line.contains(word)), "{words:?} in {line}");
    }
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_is_introduced_told_what_exists_and_hears_the_whole_life_of_a_pod() {
    let runtime = Runtime::begin(|_, _| {}).await;
    runtime.node.pods.lock().unwrap().push(pod("older"));
    let plugin = Arc::new(Recorder::default());
    let connection = runtime.connect("net", "10", &plugin).await;
    let nri = &runtime.nri;
    nri.run_pod_sandbox(pod("p")).await.unwrap();
    nri.create_container(pod("p"), container("c")).await.unwrap();
    nri.post_create_container(pod("p"), container("c")).await.unwrap();
    nri.start_container(pod("p"), container("c")).await.unwrap();
    nri.post_start_container(pod("p"), container("c")).await.unwrap();
    nri.update_container(pod("p"), container("c"), LinuxResources::default()).await.unwrap();
    nri.post_update_container(pod("p"), container("c")).await.unwrap();
    nri.stop_container(pod("p"), container("c")).await.unwrap();
    nri.remove_container(pod("p"), container("c")).await.unwrap();
    nri.update_pod_sandbox(pod("p"), LinuxResources::default(), LinuxResources::default()).await.unwrap();
    nri.post_update_pod_sandbox(pod("p")).await.unwrap();
    nri.stop_pod_sandbox(pod("p")).await.unwrap();
    nri.remove_pod_sandbox(pod("p")).await.unwrap();
    assert_eq!(
        plugin.heard(),
        [
            "CONFIGURE podwire",
            "SYNCHRONIZE 1",
            "RUN_POD_SANDBOX p",
            "CREATE_CONTAINER c []",
            "VALIDATE 1 plugins",
            "POST_CREATE_CONTAINER c",
            "START_CONTAINER c",
            "POST_START_CONTAINER c",
            "POST_UPDATE_CONTAINER c",
            "REMOVE_CONTAINER c",
            "POST_UPDATE_POD_SANDBOX p",
            "STOP_POD_SANDBOX p",
            "REMOVE_POD_SANDBOX p",
        ]
    );
    connection.close().await;
    runtime.until("the plugin is gone", |nri| nri.plugins().is_empty()).await;
    assert!(nri.is_idle());
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_are_called_in_order_and_see_each_others_changes() {
    let runtime = Runtime::begin(|_, _| {}).await;
    let second = Arc::new(Recorder { env: Some(("B", "2")), evict: true, ..Recorder::default() });
    let first = Arc::new(Recorder { env: Some(("A", "1")), ..Recorder::default() });
    let _b = runtime.connect("b", "20", &second).await;
    let _a = runtime.connect("a", "10", &first).await;
    let creation = runtime.nri.create_container(pod("p"), container("c")).await.unwrap();
    let env: Vec<_> = creation.adjust.env.iter().map(|one| one.key.as_str()).collect();
    assert_eq!((env, creation.evictions.len()), (vec!["A", "B"], 1));
    assert!(second.heard().contains(&"CREATE_CONTAINER c [\"A=1\"]".to_owned()), "{:?}", second.heard());
    let third = Arc::new(Recorder { env: Some(("A", "3")), ..Recorder::default() });
    let _c = runtime.connect("c", "30", &third).await;
    let error = runtime.nri.create_container(pod("p"), container("c")).await.unwrap_err();
    assert_eq!(error.to_string(), r#"plugins "30-c" and "10-a" both tried to set Env A of container c"#);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_or_rejection_fails_the_event_in_the_plugins_words() {
    let runtime = Runtime::begin(|_, _| {}).await;
    let refusing = Arc::new(Recorder { refuse: Some(Event::RunPodSandbox), ..Recorder::default() });
    let refusal = runtime.connect("no", "10", &refusing).await;
    let error = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert_eq!(error.to_string(), "NRI plugin 10-no refused RunPodSandbox: not today");
    refusal.close().await;
    // One that is thought to be there and gives no verdict would fail the container too.
    runtime.until("the plugin is gone", |nri| nri.plugins().is_empty()).await;
    let strict = Arc::new(Recorder { reject: true, ..Recorder::default() });
    let _strict = runtime.connect("strict", "90", &strict).await;
    let error = runtime.nri.create_container(pod("p"), container("c")).await.unwrap_err();
    assert_eq!(error.to_string(), "NRI plugin 90-strict rejected the container: policy");
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_plugin_is_dropped_and_holds_up_only_who_must_wait_for_it() {
    let runtime = Runtime::begin(|config, _| config.request_timeout = Duration::from_secs(1)).await;
    let hung = Arc::new(Recorder { hang: Some(Event::RunPodSandbox), ..Recorder::default() });
    let _hung = runtime.connect("hung", "10", &hung).await;
    let begun = Instant::now();
    runtime.nri.run_pod_sandbox(pod("p")).await.expect("it is not required");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    runtime.until("the plugin is gone", |nri| nri.plugins().is_empty()).await;
    let begun = Instant::now();
    runtime.nri.run_pod_sandbox(pod("q")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(900), "nobody is left to wait for");
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_required_plugin_no_pod_starts() {
    let runtime = Runtime::begin(|config, _| {
        config.required = vec!["net".into()];
        config.required_wait = Duration::from_secs(2);
        config.request_timeout = Duration::from_secs(1);
    })
    .await;
    let absent = EventError::Absent { plugin: "net".into(), event: "RunPodSandbox" };
    assert_eq!(runtime.nri.run_pod_sandbox(pod("p")).await, Err(absent));
    // Ways out stay open.
    runtime.nri.stop_pod_sandbox(pod("p")).await.unwrap();
    // One that hangs is not passed over.
    let hung = Arc::new(Recorder { hang: Some(Event::RunPodSandbox), ..Recorder::default() });
    let _hung = runtime.connect("net", "10", &hung).await;
    let failed = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert!(matches!(failed, EventError::Failed { .. }), "{failed}");
    // A pod that waits goes on as soon as the plugin is there.
    runtime.until("the plugin is gone", |nri| nri.plugins().is_empty()).await;
    let good = Arc::new(Recorder::default());
    let stub = runtime.stub("net", "10");
    let connecting = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        stub.connect(good.clone()).await.unwrap()
    };
    let (ran, _connection) = tokio::join!(runtime.nri.run_pod_sandbox(pod("q")), connecting);
    ran.unwrap();
    assert!(good.heard().contains(&"RUN_POD_SANDBOX q".to_owned()));
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_plugin_that_dies_again_and_again_is_never_bypassed() {
    let runtime = Runtime::begin(|config, _| {
        config.required = vec!["net".into()];
        config.required_wait = Duration::from_millis(500);
    })
    .await;
    let heard = Arc::new(Recorder::default());
    let shutdown = CancellationToken::new();
    let mut chaos = JoinSet::new();
    let (stub, recorder, stop) = (runtime.stub("net", "10"), heard.clone(), shutdown.clone());
    chaos.spawn(async move {
        while !stop.is_cancelled() {
            let connection = stub.connect(recorder.clone()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(7)).await;
            connection.close().await;
        }
    });
    let mut pods = JoinSet::new();
    for n in 0..300 {
        let nri = runtime.nri.clone();
        pods.spawn(async move {
            tokio::time::sleep(Duration::from_millis(n % 100)).await;
            let id = format!("pod{n}");
            nri.run_pod_sandbox(pod(&id)).await.map(|()| id).ok()
        });
    }
    let started: Vec<_> = pods.join_all().await.into_iter().flatten().collect();
    shutdown.cancel();
    chaos.join_all().await;
    let heard = heard.heard();
    assert!(!started.is_empty());
    for id in &started {
        assert!(heard.contains(&format!("RUN_POD_SANDBOX {id}")), "{id} started without its plugin");
    }
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_run_side_by_side_and_one_pods_events_keep_their_order() {
    let runtime = Runtime::begin(|_, _| {}).await;
    let plugin = Arc::new(Recorder { slow: Duration::from_millis(100), ..Recorder::default() });
    let _connection = runtime.connect("slow", "10", &plugin).await;
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let nri = runtime.nri.clone();
        tasks.spawn(async move { nri.run_pod_sandbox(pod(&format!("p{n}"))).await.unwrap() });
    }
    tasks.join_all().await;
    assert!(begun.elapsed() < Duration::from_millis(1500), "one after another: {:?}", begun.elapsed());
    plugin.most.store(0, Ordering::SeqCst);
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let nri = runtime.nri.clone();
        tasks.spawn(async move { nri.start_container(pod("same"), container("c")).await.unwrap() });
    }
    tasks.join_all().await;
    assert_eq!(plugin.most.load(Ordering::SeqCst), 1, "events of one pod never overlap");
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_comes_in_the_middle_of_a_stream_of_pods_misses_none() {
    let runtime = Runtime::begin(|_, _| {}).await;
    let slow = Arc::new(Recorder { slow: Duration::from_millis(3), ..Recorder::default() });
    let _slow = runtime.connect("slow", "10", &slow).await;
    const WORKERS: usize = 4;
    let enough = Arc::new(AtomicBool::new(false));
    let mut pods = JoinSet::new();
    for worker in 0..WORKERS {
        let (nri, node, enough) = (runtime.nri.clone(), runtime.node.clone(), enough.clone());
        pods.spawn(async move {
            let mut count = 0;
            while !enough.load(Ordering::SeqCst) {
                let pod = pod(&format!("p{worker}-{count}"));
                nri.run_pod_sandbox(pod.clone()).await.unwrap();
                node.pods.lock().unwrap().push(pod);
                count += 1;
            }
            count
        });
    }
    let node = runtime.node.clone();
    runtime.until("pods came", |_| node.pods.lock().unwrap().len() > 20).await;
    let late = Arc::new(Recorder::default());
    let _late = runtime.connect("late", "20", &late).await;
    let told_now = || late.heard().iter().filter(|line| line.starts_with("RUN_POD_SANDBOX")).count();
    runtime.until("it was told", |_| told_now() > 20).await;
    enough.store(true, Ordering::SeqCst);
    let total: usize = pods.join_all().await.into_iter().sum();
    let heard = late.heard();
    let told: usize = heard.iter().find_map(|line| line.strip_prefix("SYNCHRONIZE ")?.parse().ok()).unwrap();
    assert!(told > 20, "it came in the middle: {told}");
    // Between a pod's event and its entry in the host's list lies a moment that belongs to the runtime.
    assert!(told + told_now() >= total - WORKERS, "{told} told and {} heard of {total}", told_now());
    assert!(told + told_now() <= total, "none is told twice: {told} + {} of {total}", told_now());
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_misbehave_disturb_nobody() {
    let runtime = Runtime::begin(|config, _| config.registration_timeout = Duration::from_secs(4)).await;
    let socket = runtime.socket();
    let mut silent = Vec::new();
    for garbage in [&b""[..], &[0xFF; 100], &[0, 0, 0, 2, 0, 0], &[0, 0, 0, 2, 0, 0x40, 0, 0x0A, 1, 2, 3]] {
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        silent.push(stream);
    }
    let begun = Instant::now();
    let plugin = Arc::new(Recorder::default());
    let _connection = runtime.connect("good", "10", &plugin).await;
    assert!(
        begun.elapsed() < Duration::from_millis(190),
        "it waited for the silent ones: {:?}",
        begun.elapsed()
    );
    for (name, index) in [("bad name", "10"), ("x", "1"), ("x", "ab"), ("", "10")] {
        let refused = runtime.stub(name, index).connect(plugin.clone()).await;
        assert!(refused.is_err(), "{name:?} {index:?}");
    }
    runtime.nri.run_pod_sandbox(pod("p")).await.unwrap();
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_may_ask_for_changes_unprompted() {
    let runtime = Runtime::begin(|_, _| {}).await;
    let plugin = Arc::new(Recorder::default());
    let connection = runtime.connect("tuner", "10", &plugin).await;
    let update = ContainerUpdate {
        container_id: "c".into(),
        linux: Some(LinuxContainerUpdate { resources: Some(LinuxResources::default()) }),
        ignore_failure: false,
    };
    let eviction = ContainerEviction { container_id: "e".into(), reason: "noisy".into() };
    assert_eq!(connection.update_containers(vec![update], vec![eviction]).await.unwrap(), []);
    assert_eq!(runtime.node.updates.lock().unwrap().len(), 1);
    assert_eq!(*runtime.node.evicted.lock().unwrap(), ["e"]);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stub_connects_anew_when_the_runtime_returns() {
    let first = Runtime::begin(|_, _| {}).await;
    let plugin = Arc::new(Recorder::default());
    let stub = first.stub("net", "10");
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let (running, stop) = (plugin.clone(), shutdown.clone());
    tasks.spawn(async move { stub.run(running, stop).await });
    first.until("the plugin is ready", |nri| nri.plugins().iter().any(|one| one.ready)).await;
    let socket = first.socket();
    let kept = tempfile::tempdir().unwrap();
    first.stop().await;
    // The same place, another runtime.
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let second = Runtime::begin(|config, _| config.socket = Some(socket.clone())).await;
    second.until("the plugin is ready", |nri| nri.plugins().iter().any(|one| one.ready)).await;
    shutdown.cancel();
    tasks.join_all().await;
    std::fs::remove_dir_all(socket.parent().unwrap()).ok();
    drop(kept);
}
