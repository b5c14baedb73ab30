//! kube-apiserver and this server beside each other on one real etcd: each reads, lists, watches, changes and deletes what the other
//! has made, of every kind of the registry and of one that is defined.
//!
//! `side_by_side/objects.jsonl` has an object of each kind.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;
#[path = "differential/upstream.rs"]
#[allow(dead_code, reason = "shared with the differential test")]
mod upstream;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use podwire_api::{Kind, Registry};
use podwire_apiserver::{ApiService, Config, Identity, Transcoded};
use podwire_store::{RemoteConfig, Store};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const MERGE: &str = "application/merge-patch+json";
const WAIT: Duration = Duration::from_secs(30);

/// One of the two servers.
#[derive(Clone)]
enum Side {
    Ours(ApiService),
    Upstream(kube::Client),
}

impl Side {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ours",
            Self::Upstream(_) => "kube-apiserver",
        }
    }

    async fn ask(&self, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        match self {
            Self::Ours(service) => {
                let answer = server::send(service, method, path, &[("content-type", media)], body).await;
                (answer.code, answer.body)
            }
            Self::Upstream(client) => {
                let request = http::Request::builder().method(method).uri(path).header("content-type", media);
                let request = request.body(kube::client::Body::from(body.into_bytes())).unwrap();
                let response = client.send(request).await.unwrap();
                let code = response.status().as_u16();
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
            }
        }
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "application/json", &Value::Null).await
    }

    /// The types of what happened to one object after a version, until it was deleted.
    async fn watched(&self, collection: &str, name: &str, after: &str) -> Vec<String> {
        let path =
            format!("{collection}?watch=true&resourceVersion={after}&fieldSelector=metadata.name%3D{name}");
        match self {
            Self::Ours(service) => told(server::raw(service, "GET", &path, &[], "").await.into_body()).await,
            Self::Upstream(client) => {
                let request = http::Request::get(&path).body(kube::client::Body::empty()).unwrap();
                told(client.send(request).await.unwrap().into_body()).await
            }
        }
    }
}

/// The types of the events of a watch until the deletion, as far as they come in time.
async fn told(mut body: impl http_body_util::BodyExt<Data = bytes::Bytes> + Unpin) -> Vec<String> {
    let (mut buffer, mut types) = (Vec::new(), Vec::new());
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                types.push(event["type"].as_str().unwrap_or_default().to_owned());
                if event["type"] == "DELETED" {
                    return;
                }
            }
        }
    };
    // Ignored: what has not come by then is missed by whoever compares.
    tokio::time::timeout(WAIT, reading).await.ok();
    types
}

fn collection(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let place = if kind.namespaced { "/namespaces/default" } else { "" };
    format!("{root}/{}{place}/{}", kind.version, kind.resource)
}

fn corpus() -> Vec<(String, Value)> {
    let text = include_str!("side_by_side/objects.jsonl");
    let objects = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut known = BTreeSet::new();
    let of_kind = |object: Value| {
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap_or(("", object["apiVersion"].as_str().unwrap()));
        let kind = Registry::builtin().by_gvk(group, version, object["kind"].as_str().unwrap()).unwrap();
        known.insert((kind.api_version(), kind.kind.clone()));
        (collection(kind), object)
    };
    let corpus: Vec<_> = objects.map(of_kind).collect();
    let stored = Registry::builtin().kinds().iter().filter(|kind| kind.is_stored());
    let all: BTreeSet<_> = stored.map(|kind| (kind.api_version(), kind.kind.clone())).collect();
    assert_eq!(known, all, "there is an object of every kind that is stored");
    corpus
}

/// What came of the comparison.
#[derive(Default)]
struct Report {
    checks: usize,
    wrong: Vec<String>,
}

impl Report {
    fn check(&mut self, what: &str, found: &Value, wanted: &Value) {
        self.checks += 1;
        if found != wanted {
            self.wrong.push(format!("{what}:\n    found  {found}\n    wanted {wanted}"));
        }
    }

    fn code(&mut self, what: &str, answer: &(u16, Value), wanted: &[u16]) -> bool {
        self.checks += 1;
        let good = wanted.contains(&answer.0);
        if !good {
            self.wrong.push(format!("{what}: {} {}", answer.0, answer.1["message"]));
        }
        good
    }
}

fn item<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["items"].as_array()?.iter().find(|item| item["metadata"]["name"] == name)
}

/// Lists say what their items are only of kinds that were defined.
fn unnamed(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
    object
}

/// What one server says of an object: alone, and in a list.
async fn seen(side: &Side, collection: &str, name: &str) -> (u16, Value, Value) {
    let (code, object) = side.get(&format!("{collection}/{name}")).await;
    let list = side.get(collection).await.1;
    (code, object, item(&list, name).map(unnamed).unwrap_or_default())
}

/// Both see the same of one object, alone and in a list, once nobody writes to it any more: a server adds conditions to
/// what it takes in by itself.
async fn agree(report: &mut Report, what: &str, sides: [&Side; 2], collection: &str, name: &str) -> Value {
    let begun = tokio::time::Instant::now();
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    loop {
        let first = seen(sides[0], collection, name).await;
        let second = seen(sides[1], collection, name).await;
        let versions = [&first.1, &first.2, &second.1, &second.2].map(version);
        let settled = versions.iter().all(|other| *other == versions[0]);
        if !settled && begun.elapsed() < Duration::from_secs(5) {
            continue;
        }
        for (side, (code, object, listed)) in sides.iter().zip([&first, &second]) {
            report.code(&format!("{what}: get by {}", side.name()), &(*code, object.clone()), &[200]);
            report.check(&format!("{what}: listed by {}", side.name()), listed, &unnamed(&first.1));
        }
        let read = format!("{what}: {} reads what {} reads", sides[1].name(), sides[0].name());
        report.check(&read, &second.1, &first.1);
        return first.1;
    }
}

/// The life of an object that one server makes, and the other changes and deletes.
async fn life(report: &mut Report, maker: &Side, other: &Side, collection: &str, object: &Value) {
    let (name, kind) = (object["metadata"]["name"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let what = format!("{kind} of {} made by {}", object["apiVersion"], maker.name());
    let made = maker.ask("POST", collection, "application/json", object).await;
    if !report.code(&format!("{what}: create"), &made, &[201]) {
        return;
    }
    agree(report, &what, [maker, other], collection, name).await;
    let path = format!("{collection}/{name}");
    let patch = json!({"metadata": {"labels": {"changed-by": other.name()}}});
    let patched = other.ask("PATCH", &path, MERGE, &patch).await;
    report.code(&format!("{what}: patch"), &patched, &[200]);
    let mut now = agree(report, &format!("{what}, changed"), [other, maker], collection, name).await;
    report.check(
        &format!("{what}: the change"),
        &now["metadata"]["labels"]["changed-by"],
        &other.name().into(),
    );
    // A replacement by who has made it, of what the other has written.
    now["metadata"]["annotations"]["replaced"] = "yes".into();
    let replaced = maker.ask("PUT", &path, "application/json", &now).await;
    report.code(&format!("{what}: put"), &replaced, &[200]);
    agree(report, &format!("{what}, replaced"), [other, maker], collection, name).await;
    gone(report, &what, maker, other, collection, name).await;
    for side in [maker, other] {
        let version = made.1["metadata"]["resourceVersion"].as_str().unwrap();
        let events = side.watched(collection, name, version).await;
        let (first, last) = (events.first().map(String::as_str), events.last().map(String::as_str));
        let shape = json!([first, last]);
        report.check(&format!("{what}: watched by {}", side.name()), &shape, &json!(["MODIFIED", "DELETED"]));
    }
}

/// Deletes by the other, finalizers and all, until both say that it is gone.
async fn gone(report: &mut Report, what: &str, maker: &Side, other: &Side, collection: &str, name: &str) {
    let path = format!("{collection}/{name}");
    let options = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
    let deleted = other.ask("DELETE", &path, "application/json", &options).await;
    report.code(&format!("{what}: delete"), &deleted, &[200, 202]);
    let begun = tokio::time::Instant::now();
    loop {
        let (code, left) = maker.get(&path).await;
        if code == 404 {
            break;
        }
        if begun.elapsed() > WAIT {
            report.wrong.push(format!("{what}: not gone: {left}"));
            return;
        }
        // What a controller would do that does not run here.
        if !left["metadata"]["finalizers"].is_null() && left["kind"] != "CustomResourceDefinition" {
            maker.ask("PATCH", &path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
        }
        if left["kind"] == "Namespace" {
            let mut left = left.clone();
            left["spec"] = json!({});
            maker.ask("PUT", &format!("{path}/finalize"), "application/json", &left).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (code, body) = other.get(&path).await;
    report.code(&format!("{what}: gone for {} too", other.name()), &(code, body), &[404]);
}

/// Waits until a server serves a kind that was defined.
async fn served(side: &Side, collection: &str) {
    let begun = tokio::time::Instant::now();
    while side.get(collection).await.0 != 200 {
        assert!(begun.elapsed() < WAIT, "{} does not serve {collection}", side.name());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The kind that is defined here.
async fn custom(report: &mut Report, maker: &Side, other: &Side) {
    let definition: Value =
        corpus().into_iter().find(|(_, object)| object["kind"] == "CustomResourceDefinition").unwrap().1;
    let place = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = maker.ask("POST", place, "application/json", &definition).await;
    if !report.code("the definition", &made, &[201]) {
        return;
    }
    let gears = "/apis/side.example.com/v1/namespaces/default/gears";
    for side in [maker, other] {
        served(side, gears).await;
    }
    let gear = json!({"apiVersion": "side.example.com/v1", "kind": "Gear", "metadata": {"name": "g"},
        "spec": {"teeth": 12}, "status": {"any": {"thing": [1, "ä", 2.5, null, true]}}});
    life(report, maker, other, gears, &gear).await;
    life(report, other, maker, gears, &gear).await;
    gone(report, "the definition", maker, other, place, "gears.side.example.com").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_server_reads_watches_changes_and_deletes_what_the_other_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let pki = podwire_apiserver::pki::Pki::open(&dir.path().join("pki")).unwrap();
    // Tokens of either are good for both.
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(pki.dir().join("sa.key"), key.serialize_pem()).unwrap();
    let flags = ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"];
    let upstream = upstream::start(&pki, &flags).await;
    let remote = RemoteConfig::new(vec![upstream.etcd.clone()]).connect().await.unwrap();
    let store: Arc<dyn Store> = Arc::new(Transcoded::new(remote));
    let config = Config::new(store, dir.path().join("pki"), "127.0.0.1:0".parse().unwrap());
    let running = config.build().await.unwrap();
    let ours = Side::Ours(running.client(Identity::admin()));
    let theirs = Side::Upstream(upstream.client(&pki).await);
    let shutdown = CancellationToken::new();
    let trial = async {
        let mut report = Report::default();
        for (collection, object) in corpus() {
            life(&mut report, &theirs, &ours, &collection, &object).await;
            life(&mut report, &ours, &theirs, &collection, &object).await;
        }
        custom(&mut report, &theirs, &ours).await;
        custom(&mut report, &ours, &theirs).await;
        shutdown.cancel();
        report
    };
    let ((), report) = tokio::join!(running.run(shutdown.clone()), trial);
    upstream.stop().await;
    assert!(
        report.wrong.is_empty(),
        "{} of {} checks failed:\n{}",
        report.wrong.len(),
        report.checks,
        report.wrong.join("\n")
    );
}
