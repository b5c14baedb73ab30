//! The plugin's side against the runtime's: staying connected, unprompted changes, time, failure policy, farewell, and
//! being started with a descriptor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/runtime.rs"]
mod runtime;

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use podwire_nri::api::{
    ConfigureRequest, ContainerEviction, ContainerUpdate, Event, FailurePolicy, LinuxContainerUpdate,
    LinuxResources, PodSandbox,
};
use podwire_nri::stub::{Answer, EnvironmentError, Error, Happened, Late, Plugin, Stub};
use podwire_nri::{CallError, EventError, Toleration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::runtime::{DEADLINE, Runtime};

const SHORT: Duration = Duration::from_millis(300);

/// A plugin that takes its time and writes down what it hears.
#[derive(Default)]
struct Slow {
    heard: Mutex<Vec<String>>,
    takes: Option<Duration>,
}

impl Slow {
    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn takes(time: Duration) -> Arc<Self> {
        Arc::new(Self { takes: Some(time), ..Self::default() })
    }
}

impl Plugin for Slow {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox]
    }

    fn configure(&self, request: ConfigureRequest) -> Answer<'_, ()> {
        self.heard.lock().unwrap().push(format!("configured {} {}", request.request_timeout, request.config));
        Box::pin(std::future::ready(Ok(())))
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        Box::pin(async move {
            tokio::time::sleep(self.takes.unwrap_or_default()).await;
            self.heard.lock().unwrap().push(what.pod.id);
            Ok(())
        })
    }

    fn shutdown(&self) -> Answer<'_, ()> {
        self.heard.lock().unwrap().push("shutdown".to_owned());
        Box::pin(std::future::ready(Ok(())))
    }
}

fn pod(id: &str) -> PodSandbox {
    PodSandbox { id: id.into(), name: id.into(), namespace: "default".into(), ..PodSandbox::default() }
}

fn update(id: &str) -> ContainerUpdate {
    let linux = LinuxContainerUpdate { resources: Some(LinuxResources::default()) };
    ContainerUpdate { container_id: id.into(), linux: Some(linux), ignore_failure: false }
}

fn at(socket: &Path, name: &str) -> Stub {
    Stub { socket: socket.into(), ..Stub::new(name, "10") }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what} in time"))
}

impl Runtime {
    async fn ready(&self, name: &str) {
        self.until(name, |nri| nri.plugins().iter().any(|one| one.name == name && one.ready)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_changes_containers_also_after_the_runtime_has_returned() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("nri.sock");
    let shutdown = CancellationToken::new();
    let serving = at(&socket, "tuner").serve(Arc::new(Slow::default()));
    let mut handle = serving.handle();
    let running = serving.run(shutdown.clone());
    let test = async {
        assert!(!handle.is_connected(), "there is no runtime yet");
        assert_eq!(handle.update_containers(vec![update("c")], Vec::new()).await, Err(CallError::Closed));
        for round in 0..2 {
            let runtime = Runtime::begin(|config, _| config.socket = Some(socket.clone())).await;
            assert!(soon("it connects", handle.connected()).await);
            let evict = ContainerEviction { container_id: "e".into(), ..ContainerEviction::default() };
            let failed = handle.update_containers(vec![update("c")], vec![evict]).await;
            assert_eq!(failed, Ok(Vec::new()), "round {round}");
            assert_eq!(runtime.node.updates.lock().unwrap().len(), 1, "round {round}");
            assert_eq!(*runtime.node.evicted.lock().unwrap(), ["e"], "round {round}");
            runtime.stop().await;
            let begun = Instant::now();
            while handle.is_connected() {
                assert!(begun.elapsed() < DEADLINE, "the runtime's end is noticed");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let refused = handle.update_containers(vec![update("c")], Vec::new()).await;
            assert_eq!(refused, Err(CallError::Closed), "round {round}");
        }
        shutdown.cancel();
    };
    let (ended, ()) = tokio::join!(running, test);
    ended.unwrap();
    assert!(!handle.connected().await, "it has ended for good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_ends_says_so_and_waits_for_nobody_who_hangs() {
    struct Hangs;
    impl Plugin for Hangs {
        fn events(&self) -> Vec<Event> {
            vec![Event::RunPodSandbox]
        }
        fn shutdown(&self) -> Answer<'_, ()> {
            Box::pin(std::future::pending())
        }
    }
    let runtime = Runtime::begin(|_, _| {}).await;
    let plugin = Arc::new(Slow::default());
    let _connection = at(&runtime.socket(), "net").connect(plugin.clone()).await.unwrap();
    let _other = at(&runtime.socket(), "hangs").connect(Arc::new(Hangs)).await.unwrap();
    runtime.ready("net").await;
    runtime.ready("hangs").await;
    let begun = Instant::now();
    runtime.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(plugin.heard().last().unwrap(), "shutdown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_plugin_has_the_time_that_was_set_for_it_and_is_told_so() {
    let runtime = Runtime::begin(|config, _| {
        config.request_timeout = SHORT;
        config.request_timeouts = [("patient".to_owned(), Duration::from_secs(20))].into();
    })
    .await;
    let (patient, hasty) = (Slow::takes(SHORT * 2), Slow::takes(SHORT * 2));
    let _patient = at(&runtime.socket(), "patient").connect(patient.clone()).await.unwrap();
    runtime.ready("patient").await;
    runtime.nri.run_pod_sandbox(pod("p")).await.unwrap();
    assert_eq!(patient.heard(), ["configured 20000 ", "p"]);
    let _hasty = at(&runtime.socket(), "hasty").connect(hasty.clone()).await.unwrap();
    runtime.ready("hasty").await;
    runtime.nri.run_pod_sandbox(pod("q")).await.unwrap();
    runtime.until("the hasty one is gone", |nri| nri.plugins().len() == 1).await;
    assert_eq!(hasty.heard(), ["configured 300 "], "it was passed over");
    assert_eq!(patient.heard(), ["configured 20000 ", "p", "q"]);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_refuses_what_it_is_late_for_is_never_passed_over() {
    let runtime = Runtime::begin(|config, _| config.request_timeout = SHORT).await;
    let slow = Slow::takes(DEADLINE * 2);
    let stub = Stub { late: Late::Refuse, ..at(&runtime.socket(), "late") };
    let _connection = stub.connect(slow.clone()).await.unwrap();
    runtime.ready("late").await;
    let error = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "NRI plugin 10-late refused RunPodSandbox: no decision about RunPodSandbox within 270ms"
    );
    assert_eq!(runtime.nri.plugins().len(), 1, "it stays connected");
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_policy_of_the_plugins_own_fails_the_pod_and_keeps_the_connection() {
    let runtime = Runtime::begin(|config, _| config.request_timeout = SHORT).await;
    let policy = FailurePolicy { fail_request: true, keep_connected: true };
    let stub = Stub { failure_policy: Some(policy), ..at(&runtime.socket(), "strict") };
    let _connection = stub.connect(Slow::takes(SHORT * 3)).await.unwrap();
    runtime.ready("strict").await;
    let error = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert!(matches!(error, EventError::Failed { .. }), "{error}");
    assert_eq!(runtime.nri.plugins().len(), 1, "it stays connected");
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_plugin_may_start_its_own_pod_and_no_other_pod_goes_around_it() {
    const KEY: &str = "tolerate-missing-plugins.noderesource.dev";
    let runtime = Runtime::begin(|config, _| {
        config.required = vec!["net".into()];
        config.required_wait = SHORT;
        config.request_timeout = SHORT;
        config.toleration =
            Some(Toleration { annotation: KEY.into(), namespaces: vec!["kube-system".into()] });
    })
    .await;
    let tolerant = |namespace: &str| PodSandbox {
        namespace: namespace.into(),
        annotations: [(KEY.to_owned(), "true".to_owned())].into(),
        ..pod(&format!("net-{namespace}"))
    };
    let nri = &runtime.nri;
    let absent = EventError::Absent { plugin: "net".into(), event: "RunPodSandbox" };
    // Everybody else waits in vain, also who claims the same elsewhere.
    assert_eq!(nri.admit_pod_sandbox(pod("p")).await, Err(absent.clone()));
    assert_eq!(nri.run_pod_sandbox(tolerant("default")).await, Err(absent.clone()));
    assert_eq!(nri.admit_pod_sandbox(tolerant("default")).await, Err(absent));
    // The plugin's own pod starts, sandbox and container.
    let own = tolerant("kube-system");
    nri.admit_pod_sandbox(own.clone()).await.unwrap();
    nri.run_pod_sandbox(own.clone()).await.unwrap();
    nri.create_container(own.clone(), podwire_nri::api::Container::default()).await.unwrap();
    nri.start_container(own.clone(), podwire_nri::api::Container::default()).await.unwrap();
    let log = nri.follow().0;
    assert_eq!(log.iter().filter(|one| one.outcome == "tolerated").count(), 3, "{log:?}");
    // Only absence is tolerated: one that is there and silent fails also this pod.
    let hung = Slow::takes(DEADLINE * 2);
    let _connection = at(&runtime.socket(), "net").connect(hung).await.unwrap();
    runtime.ready("net").await;
    let error = nri.run_pod_sandbox(own).await.unwrap_err();
    assert!(matches!(error, EventError::Failed { .. }), "{error}");
    runtime.stop().await;
}

/// What the test below starts this very program for.
const STARTED: &str = "the_body_of_a_started_plugin";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_started_with_a_descriptor_runs_unchanged_and_ends_with_the_runtime() {
    let this = std::env::current_exe().unwrap();
    let runtime = Runtime::begin(|config, dir| {
        let plugins = dir.join("plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        let script = plugins.join("42-net");
        let line = format!("#!/bin/sh\nexec {} --exact {STARTED} --nocapture\n", this.display());
        std::fs::write(&script, line).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        config.plugin_dir = Some(plugins);
        // Nobody listens: the descriptor is the only way.
        config.socket = None;
    })
    .await;
    runtime.ready("net").await;
    assert_eq!(runtime.nri.plugins()[0].index, "42", "the file's name, not the program's");
    let error = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert_eq!(error.to_string(), "NRI plugin 42-net refused RunPodSandbox: I am 42-net");
    runtime.stop().await;
}

/// Not a test by itself: the plugin that the test above has the runtime start.
#[tokio::test]
async fn the_body_of_a_started_plugin() {
    struct Started(Stub);
    impl Plugin for Started {
        fn events(&self) -> Vec<Event> {
            vec![Event::RunPodSandbox]
        }
        fn happened(&self, _: Happened) -> Answer<'_, ()> {
            Box::pin(async { Err(format!("I am {}-{}", self.0.index, self.0.name).into()) })
        }
    }
    let stub = Stub::new("other", "01").with_environment(std::env::vars_os()).unwrap();
    if stub.descriptor.is_none() {
        return;
    }
    let ended = stub.serve(Arc::new(Started(stub.clone()))).run(CancellationToken::new()).await;
    assert!(matches!(ended, Err(Error::Ended { .. })), "{ended:?}");
}

#[tokio::test]
async fn an_environment_that_makes_no_sense_is_told() {
    let with = |socket: &str| {
        Stub::new("net", "10").with_environment([("NRI_PLUGIN_SOCKET".into(), OsString::from(socket))])
    };
    for wrong in ["", "x", "0", "2", "-1", "3.5"] {
        assert!(matches!(with(wrong), Err(EnvironmentError::Number(_))), "{wrong:?}");
    }
    assert!(matches!(with("999999"), Err(EnvironmentError::Take { number: 999_999, .. })));
    let file = tempfile::tempfile().unwrap();
    let number = file.as_raw_fd();
    assert!(matches!(with(&number.to_string()), Err(EnvironmentError::NoStream { .. })));
    let plain = Stub::new("net", "10").with_environment([("PATH".into(), "/bin".into())]).unwrap();
    assert_eq!((plain.name.as_str(), plain.descriptor.is_none()), ("net", true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_connection_that_ends_is_not_dialled_anew() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let stub = Stub { descriptor: Some(Arc::new(ours.into())), ..Stub::new("net", "10") };
    let mut tasks = JoinSet::new();
    tasks.spawn(stub.serve(Arc::new(Slow::default())).run(CancellationToken::new()));
    drop(theirs);
    let ended = soon("it ends", tasks.join_next()).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::Register { .. })), "{ended:?}");
}
