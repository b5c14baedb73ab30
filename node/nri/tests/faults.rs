//! Plugins that misbehave in every way, byte by byte: the runtime stays up, other plugins and pods notice nothing, and
//! the log says what happened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "shared/runtime.rs"]
mod runtime;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use podwire_nri::api::{
    ConfigureResponse, Container, ContainerAdjustment, ContainerUpdate, CreateContainerResponse, Empty,
    Event, FailurePolicy, KeyValue, PodSandbox, RegisterPluginRequest, SynchronizeResponse,
    UpdateContainersRequest,
};
use podwire_nri::mux::{self, Demux, PLUGIN_CONN, RUNTIME_CONN};
use podwire_nri::stub::{Answer, Connection, Happened, Plugin, Stub};
use podwire_nri::{EventError, Nri};
use podwire_wire::ttrpc::{self, Kind, Request, Response, code};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use self::runtime::{DEADLINE, Runtime};

/// How long plugins may take in these tests.
const LIMIT: Duration = Duration::from_millis(400);

impl Runtime {
    async fn start(required: &[&str]) -> Self {
        Runtime::begin(|config, _| {
            config.request_timeout = LIMIT;
            config.required = required.iter().map(|name| (*name).to_owned()).collect();
            config.required_wait = LIMIT;
        })
        .await
    }

    async fn good(&self) -> (Arc<Good>, Connection) {
        let plugin = Arc::new(Good::default());
        let stub = Stub { socket: self.socket(), ..Stub::new("good", "20") };
        let connection = stub.connect(plugin.clone()).await.unwrap();
        self.until("good is there", |nri| nri.plugins().iter().any(|one| one.name == "good" && one.ready))
            .await;
        (plugin, connection)
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).await.unwrap()
    }

    /// What the log says of the bad plugin.
    fn said(&self) -> String {
        let of_bad = |one: &&podwire_nri::Entry| one.plugin == "10-bad" || one.plugin == "unnamed";
        let entries = self.nri.follow().0;
        let lines = entries
            .iter()
            .filter(of_bad)
            .map(|one| format!("{} {} {}\n", one.event, one.outcome, one.detail));
        lines.collect()
    }

    /// Waits until the log says one of two things of the bad plugin.
    async fn until_said(&self, either: &str, or: &str) {
        let begun = Instant::now();
        loop {
            let told = self.said();
            if told.contains(either) || told.contains(or) {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "neither '{either}' nor '{or}' in '{told}'");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A plugin without a fault.
#[derive(Default)]
struct Good(Mutex<Vec<String>>);

impl Plugin for Good {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::StopPodSandbox, Event::CreateContainer]
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        self.0.lock().unwrap().push(what.pod.id);
        Box::pin(std::future::ready(Ok(())))
    }

    fn create_container(&self, _: PodSandbox, _: Container) -> Answer<'_, CreateContainerResponse> {
        let env = vec![KeyValue { key: "MINE".into(), value: "good".into() }];
        let adjust = ContainerAdjustment { env, ..ContainerAdjustment::default() };
        Box::pin(std::future::ready(Ok(CreateContainerResponse {
            adjust: Some(adjust),
            ..CreateContainerResponse::default()
        })))
    }
}

/// What a bad plugin does when it is called.
#[derive(Clone)]
enum Does {
    Answer(Vec<u8>),
    Status(i32),
    Bytes(Vec<u8>),
    Late(Duration),
    Die,
}

fn response(stream: u32, payload: Vec<u8>) -> Vec<u8> {
    mux::frames(
        PLUGIN_CONN,
        &ttrpc::encode(stream, Kind::Response, &Response { status: None, payload: payload.into() }),
    )
}

fn call(stream: u32, method: &str, payload: Vec<u8>) -> Vec<u8> {
    let request = Request {
        service: "nri.pkg.api.v1alpha1.Runtime".into(),
        method: method.into(),
        payload: payload.into(),
        ..Request::default()
    };
    mux::frames(RUNTIME_CONN, &ttrpc::encode(stream, Kind::Request, &request))
}

fn register(name: &str) -> Vec<u8> {
    let request = RegisterPluginRequest {
        plugin_name: name.into(),
        plugin_idx: "10".into(),
        nri_version: String::new(),
    };
    call(1, "RegisterPlugin", request.encode_to_vec())
}

/// The next message on either connection.
async fn next(stream: &mut UnixStream, demux: &mut Demux) -> Option<(u32, ttrpc::Frame)> {
    loop {
        let mut head = [0; mux::HEADER_LEN];
        stream.read_exact(&mut head).await.ok()?;
        let (conn, len) = mux::header(head).unwrap();
        let mut payload = vec![0; len];
        stream.read_exact(&mut payload).await.ok()?;
        demux.push(conn, &payload);
        if let Some(frame) = demux.next(conn).unwrap() {
            return Some((conn, frame));
        }
    }
}

/// Registers and then answers as `script` says, until the runtime or the script ends it.
async fn bad(mut stream: UnixStream, script: impl Fn(&str) -> Does + Send) {
    let mut demux = Demux::default();
    if stream.write_all(&register("bad")).await.is_err() {
        return;
    }
    while let Some((conn, frame)) = next(&mut stream, &mut demux).await {
        if conn != PLUGIN_CONN {
            continue;
        }
        let method = Request::decode(frame.data.clone()).unwrap().method;
        let bytes = match script(&method) {
            Does::Answer(payload) => response(frame.stream, payload),
            Does::Status(code) => {
                let status = Some(ttrpc::Status { code, message: "no".into() });
                let answer = Response { status, payload: Vec::new().into() };
                mux::frames(PLUGIN_CONN, &ttrpc::encode(frame.stream, Kind::Response, &answer))
            }
            Does::Bytes(bytes) => bytes,
            Does::Late(after) => {
                tokio::time::sleep(after).await;
                response(frame.stream, Vec::new())
            }
            Does::Die => return,
        };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Answers that get a plugin as far as hearing events.
fn polite(method: &str) -> Does {
    match method {
        "Configure" => Does::Answer(ConfigureResponse::default().encode_to_vec()),
        "Synchronize" => Does::Answer(SynchronizeResponse::default().encode_to_vec()),
        _ => Does::Answer(Vec::new()),
    }
}

fn pod(id: &str) -> PodSandbox {
    PodSandbox { id: id.into(), name: id.into(), namespace: "default".into(), ..PodSandbox::default() }
}

fn container(id: &str) -> Container {
    Container { id: id.into(), name: id.into(), pod_sandbox_id: "p".into(), ..Container::default() }
}

/// Bytes that are no answer, and what the log says about them.
fn nonsense() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let giant_message =
        [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1, 2, 0]].concat();
    let backwards = mux::frames(PLUGIN_CONN, &ttrpc::encode(1, Kind::Request, &Empty {}));
    vec![
        ("garbage", vec![0xFF; 64], "exceeds the limit"),
        ("half a frame", vec![0, 0, 0, 1, 0, 0, 1, 0, 1, 2, 3], "no answer within"),
        ("a giant frame", vec![0, 0, 0, 1, 0x7F, 0xFF, 0xFF, 0xFF], "exceeds the limit"),
        ("a giant message", giant_message, "exceeds the limit"),
        ("an unknown kind", mux::frames(PLUGIN_CONN, &[0, 0, 0, 0, 0, 0, 0, 1, 9, 0]), "unknown kind 9"),
        ("a request for an answer", backwards, "wrong direction"),
        ("an answer that is none", response(0, Vec::new()), "no answer within"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_comes_instead_of_an_answer_costs_only_the_plugin() {
    for (what, bytes, said) in nonsense() {
        let runtime = Runtime::start(&[]).await;
        let (good, _connection) = runtime.good().await;
        let mut tasks = JoinSet::new();
        let script = move |method: &str| match method {
            "RunPodSandbox" => Does::Bytes(bytes.clone()),
            other => polite(other),
        };
        tasks.spawn(bad(runtime.connect().await, script));
        runtime.until("bad is there", |nri| nri.plugins().iter().filter(|one| one.ready).count() == 2).await;
        let (one, other) = (pod("one"), pod("other"));
        let (first, second) =
            tokio::join!(runtime.nri.run_pod_sandbox(one), runtime.nri.run_pod_sandbox(other));
        assert_eq!((first, second), (Ok(()), Ok(())), "{what}");
        runtime.until(what, |nri| nri.plugins().len() == 1).await;
        runtime.nri.run_pod_sandbox(pod("later")).await.unwrap();
        let mut heard = good.0.lock().unwrap().clone();
        heard.sort();
        assert_eq!(heard, ["later", "one", "other"], "{what}");
        assert!(runtime.said().contains(said), "{what}: {said:?} in\n{}", runtime.said());
        let listed = runtime.nri.overview();
        let row = listed.iter().find(|one| one.name == "bad").unwrap();
        assert!(!row.connected && row.last_error.is_some(), "{what}: {row:?}");
        tasks.abort_all();
        runtime.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_plugin_that_sends_nonsense_fails_the_pod_with_the_reason() {
    for (what, bytes, said) in nonsense() {
        let runtime = Runtime::start(&["bad"]).await;
        let mut tasks = JoinSet::new();
        let script = move |method: &str| match method {
            "RunPodSandbox" => Does::Bytes(bytes.clone()),
            other => polite(other),
        };
        tasks.spawn(bad(runtime.connect().await, script));
        runtime.until("bad is there", |nri| nri.plugins().iter().any(|one| one.ready)).await;
        let error = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
        assert!(matches!(error, EventError::Failed { .. }), "{what}: {error}");
        let text = error.to_string();
        assert!(text.starts_with("required NRI plugin 10-bad failed at RunPodSandbox: "), "{what}: {text}");
        assert!(text.contains(said), "{what}: {said:?} in {text}");
        tasks.abort_all();
        runtime.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_may_die_at_any_point() {
    let points = [
        "RegisterPlugin",
        "Configure",
        "Synchronize",
        "RunPodSandbox",
        "CreateContainer",
        "ValidateContainerAdjustment",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
    ];
    for point in points {
        let runtime = Runtime::start(&[]).await;
        let (good, _connection) = runtime.good().await;
        let mut tasks = JoinSet::new();
        let stream = runtime.connect().await;
        if point == "RegisterPlugin" {
            // Half of the registration, then gone.
            let mut stream = stream;
            stream.write_all(&register("bad")[..20]).await.unwrap();
        } else {
            tasks.spawn(bad(stream, move |method| if method == point { Does::Die } else { polite(method) }));
        }
        if ["RegisterPlugin", "Configure", "Synchronize"].contains(&point) {
            // It dies while it is introduced: the pod comes once it is missed.
            while tasks.join_next().await.is_some() {}
            runtime.until_said("disconnected", "turned away").await;
            runtime.until(point, |nri| nri.plugins().iter().all(|one| one.name == "good")).await;
        } else {
            let both = |nri: &Nri| nri.plugins().iter().filter(|one| one.ready).count() == 2;
            runtime.until("both are there", both).await;
        }
        let (nri, p, c) = (&runtime.nri, pod("p"), container("c"));
        nri.run_pod_sandbox(p.clone()).await.unwrap();
        let created = nri.create_container(p.clone(), c.clone()).await;
        // Whoever validates must be heard: without its word the container is not made.
        let silent = ["CreateContainer", "ValidateContainerAdjustment"].contains(&point);
        assert_eq!(created.is_err(), silent, "{point}: {created:?}");
        nri.post_create_container(p.clone(), c.clone()).await.unwrap();
        nri.start_container(p.clone(), c.clone()).await.unwrap();
        nri.post_start_container(p.clone(), c.clone()).await.unwrap();
        nri.stop_container(p.clone(), c.clone()).await.unwrap();
        nri.remove_container(p.clone(), c.clone()).await.unwrap();
        nri.stop_pod_sandbox(p.clone()).await.unwrap();
        nri.remove_pod_sandbox(p).await.unwrap();
        runtime.until(point, |nri| nri.plugins().iter().all(|one| one.name == "good")).await;
        assert_eq!(good.0.lock().unwrap().len(), 2, "{point}: the other one heard of the pod's life");
        runtime.until_said("disconnected", "turned away").await;
        runtime.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_what_does_not_exist_are_answered_and_forgiven() {
    let runtime = Runtime::start(&[]).await;
    let mut stream = runtime.connect().await;
    let mut demux = Demux::default();
    stream.write_all(&register("bad")).await.unwrap();
    stream.write_all(&call(3, "Frobnicate", vec![1, 2, 3])).await.unwrap();
    let strange = Request { service: "no.such.Service".into(), method: "X".into(), ..Request::default() };
    stream.write_all(&mux::frames(RUNTIME_CONN, &ttrpc::encode(5, Kind::Request, &strange))).await.unwrap();
    let mut refused = Vec::new();
    while refused.len() < 2 {
        let (conn, frame) = next(&mut stream, &mut demux).await.expect("it stays connected");
        if conn == RUNTIME_CONN && frame.stream != 1 {
            refused.push(Response::decode(frame.data).unwrap().status.unwrap().code);
        } else if conn == PLUGIN_CONN {
            let method = Request::decode(frame.data.clone()).unwrap().method;
            let Does::Answer(payload) = polite(&method) else { unreachable!("polite answers") };
            stream.write_all(&response(frame.stream, payload)).await.unwrap();
        }
    }
    assert_eq!(refused, [code::UNIMPLEMENTED; 2]);
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_knows_no_event_is_asked_in_the_old_way_and_then_left_alone() {
    let runtime = Runtime::start(&[]).await;
    let mut tasks = JoinSet::new();
    let script = |method: &str| match method {
        "Configure" | "Synchronize" => polite(method),
        _ => Does::Status(code::UNIMPLEMENTED),
    };
    tasks.spawn(bad(runtime.connect().await, script));
    runtime.until("bad is there", |nri| nri.plugins().iter().any(|one| one.ready)).await;
    runtime.nri.run_pod_sandbox(pod("p")).await.unwrap();
    runtime.nri.create_container(pod("p"), container("c")).await.unwrap();
    assert_eq!(runtime.nri.plugins()[0].errors, 0, "not to know an event is no error");
    tasks.abort_all();
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contradictions_fail_that_container_only_and_name_both() {
    let runtime = Runtime::start(&[]).await;
    let (_good, _connection) = runtime.good().await;
    let mut tasks = JoinSet::new();
    let script = |method: &str| match method {
        "CreateContainer" => {
            let env = vec![KeyValue { key: "MINE".into(), value: "bad".into() }];
            let adjust = Some(ContainerAdjustment { env, ..ContainerAdjustment::default() });
            Does::Answer(
                CreateContainerResponse { adjust, ..CreateContainerResponse::default() }.encode_to_vec(),
            )
        }
        other => polite(other),
    };
    tasks.spawn(bad(runtime.connect().await, script));
    runtime.until("both are there", |nri| nri.plugins().iter().filter(|one| one.ready).count() == 2).await;
    let error = runtime.nri.create_container(pod("p"), container("c")).await.unwrap_err().to_string();
    assert!(error.contains("\"20-good\" and \"10-bad\" both tried to set Env MINE"), "{error}");
    runtime.nri.run_pod_sandbox(pod("other")).await.unwrap();
    assert_eq!(runtime.nri.plugins().len(), 2, "both stay connected");
    let log = runtime.nri.follow().0;
    assert!(log.iter().any(|one| one.outcome == "conflict" && one.detail.contains("10-bad")), "{log:?}");
    tasks.abort_all();
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_is_not_taken_for_that_of_a_later_call() {
    let runtime = Runtime::start(&["bad"]).await;
    let late = Arc::new(Mutex::new(true));
    let mut tasks = JoinSet::new();
    let script = move |method: &str| match method {
        "Configure" => {
            let policy = FailurePolicy { keep_connected: true, ..FailurePolicy::default() };
            Does::Answer(
                ConfigureResponse { failure_policy: Some(policy), ..ConfigureResponse::default() }
                    .encode_to_vec(),
            )
        }
        "RunPodSandbox" if std::mem::take(&mut *late.lock().unwrap()) => Does::Late(LIMIT * 2),
        "RunPodSandbox" => Does::Status(code::UNKNOWN),
        other => polite(other),
    };
    tasks.spawn(bad(runtime.connect().await, script));
    runtime.until("bad is there", |nri| nri.plugins().iter().any(|one| one.ready)).await;
    let error = runtime.nri.run_pod_sandbox(pod("p")).await.unwrap_err();
    assert!(error.to_string().contains("no answer within"), "{error}");
    // The late consent arrives during this call, which is refused.
    let error = runtime.nri.run_pod_sandbox(pod("q")).await.unwrap_err();
    assert!(matches!(error, EventError::Refused { .. } | EventError::Failed { .. }), "{error}");
    assert_eq!(runtime.nri.plugins().len(), 1, "it asked to stay connected");
    tasks.abort_all();
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_updates_holds_up_nobody_else() {
    let runtime = Runtime::start(&[]).await;
    let (_good, _connection) = runtime.good().await;
    let mut stream = runtime.connect().await;
    stream.write_all(&register("bad")).await.unwrap();
    let mut demux = Demux::default();
    // Polite until it is let in.
    for _ in 0..3 {
        let (conn, frame) = next(&mut stream, &mut demux).await.unwrap();
        if conn == PLUGIN_CONN {
            let method = Request::decode(frame.data.clone()).unwrap().method;
            let Does::Answer(payload) = polite(&method) else { unreachable!("polite answers") };
            stream.write_all(&response(frame.stream, payload)).await.unwrap();
        }
    }
    runtime.until("both are there", |nri| nri.plugins().iter().filter(|one| one.ready).count() == 2).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let update = ContainerUpdate { container_id: "c".into(), ..ContainerUpdate::default() };
        let update = UpdateContainersRequest { update: vec![update], evict: Vec::new() }.encode_to_vec();
        // Never reads an answer; ends when the runtime has enough of it.
        for stream_number in (3..).step_by(2) {
            if stream.write_all(&call(stream_number, "UpdateContainers", update.clone())).await.is_err() {
                return;
            }
        }
    });
    // Pods that nobody but the flood hears of are let go once it fails to answer; then it is gone.
    for n in 0..20 {
        let begun = Instant::now();
        runtime.nri.run_pod_sandbox(pod(&n.to_string())).await.unwrap();
        assert!(begun.elapsed() < LIMIT * 10, "pod {n} took {:?}", begun.elapsed());
    }
    runtime.until("the flood is dropped", |nri| nri.plugins().len() == 1).await;
    tokio::time::timeout(DEADLINE, tasks.join_all()).await.expect("its writes fail");
    assert!(runtime.node.updates.lock().unwrap().len() < 100_000, "it was slowed down");
    runtime.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_to_know_an_event_is_no_consent_of_a_required_plugin_that_asked_for_it() {
    let asked = |events: i32| {
        move |method: &str| match method {
            "Configure" => {
                Does::Answer(ConfigureResponse { events, ..ConfigureResponse::default() }.encode_to_vec())
            }
            "Synchronize" => polite(method),
            _ => Does::Status(code::UNIMPLEMENTED),
        }
    };
    let bit = |event: Event| 1 << (event as i32 - 1);
    let named = bit(Event::RunPodSandbox)
        | bit(Event::CreateContainer)
        | bit(Event::StopPodSandbox)
        | bit(Event::ValidateContainerAdjustment);
    for (required, events, consents) in [(true, named, false), (true, 0, true), (false, named, true)] {
        let runtime = Runtime::start(if required { &["bad"] } else { &[] }).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(bad(runtime.connect().await, asked(events)));
        runtime.until("bad is there", |nri| nri.plugins().iter().any(|one| one.ready)).await;
        let ran = runtime.nri.run_pod_sandbox(pod("p")).await;
        let made = runtime.nri.create_container(pod("p"), container("c")).await.map(drop);
        if consents {
            assert_eq!((ran, made), (Ok(()), Ok(())), "required {required}, events {events:#x}");
        } else {
            let text = ran.unwrap_err().to_string();
            assert!(
                text.starts_with("required NRI plugin 10-bad failed at RunPodSandbox: it asked to hear of"),
                "{text}"
            );
            assert!(matches!(made, Err(EventError::Failed { .. })), "{made:?}");
        }
        // Ways out stay open, and the plugin stays connected.
        runtime.nri.stop_pod_sandbox(pod("p")).await.unwrap();
        assert_eq!(runtime.nri.plugins().len(), 1);
        tasks.abort_all();
        runtime.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_validator_that_does_not_validate_rejects() {
    for (events, rejects) in [(1 << (Event::ValidateContainerAdjustment as i32 - 1), true), (0, false)] {
        let runtime = Runtime::start(&["bad"]).await;
        let mut tasks = JoinSet::new();
        let script = move |method: &str| match method {
            "Configure" => {
                Does::Answer(ConfigureResponse { events, ..ConfigureResponse::default() }.encode_to_vec())
            }
            "ValidateContainerAdjustment" => Does::Status(code::UNIMPLEMENTED),
            other => polite(other),
        };
        tasks.spawn(bad(runtime.connect().await, script));
        runtime.until("bad is there", |nri| nri.plugins().iter().any(|one| one.ready)).await;
        let made = runtime.nri.create_container(pod("p"), container("c")).await;
        assert_eq!(matches!(made, Err(EventError::Rejected { .. })), rejects, "{made:?}");
        tasks.abort_all();
        runtime.stop().await;
    }
}
