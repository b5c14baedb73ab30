//! Over the whole URL space, what is acted on is what was authorized.
//!
//! Its one test is alone in its process: it hears what authorization is asked through `tracing`, and a thread without a listener that
//! meets an event for the first time can turn it off for all threads while no more than one listener exists.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/recording.rs"]
mod recording;
#[path = "support/server.rs"]
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use http_body_util::BodyExt;
use podwire_api::Kind;
use podwire_apiserver::{ApiService, Config, Identity};
use podwire_store::{Embedded, EmbeddedConfig};
use recording::{Heard, Record, Recording};
use serde_json::{Value, json};
use server::{Answer, raw, send};

async fn post(service: &ApiService, path: &str, body: &Value) -> Answer {
    send(service, "POST", path, &[("content-type", "application/json")], body.to_string()).await
}

async fn namespace(admin: &ApiService, name: &str) {
    let made = post(admin, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

/// A small generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

const PLACES: &[&str] = &[
    "",
    "/namespaces/a",
    "/namespaces/b",
    "/namespaces/a/namespaces/b",
    "/namespaces/%61",
    "/namespaces/a%2Fb",
    "/namespaces/a%252Fb",
    "/namespaces/",
    "/namespaces//",
    "/namespaces/..",
    "/namespaces/a/..",
    "/namespaces/a/../b",
    "//namespaces/a",
    "/watch",
    "/watch/namespaces/a",
    "/proxy/namespaces/a",
];
const NAMES: &[&str] =
    &["", "/x", "//x", "/x/", "/%78", "/x%2Fy", "/x%252Fy", "/%2E%2E", "/.", "/x%zz", "/x%00"];
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The URL space of a kind: usual and odd places, names and parts, and a query.
fn url(dice: &mut Dice, kind: &Kind, method: &str) -> String {
    // Half of each is plain, so that enough requests get through to the store.
    let usual = if kind.namespaced { 1 + dice.roll(2) } else { 0 };
    let odd = dice.roll(PLACES.len() as u64);
    let place = PLACES[usize::try_from(if dice.roll(2) == 0 { usual } else { odd }).unwrap()];
    let (usual, odd) = (dice.roll(2), dice.roll(NAMES.len() as u64));
    let name = NAMES[usize::try_from(if dice.roll(2) == 0 { usual } else { odd }).unwrap()];
    let mut parts: Vec<String> =
        vec![String::new(), String::new(), String::new(), "/status/more".into(), "/bogus".into()];
    parts.extend(kind.subresources.iter().map(|part| format!("/{}", part.part.as_str())));
    let part = &parts[usize::try_from(dice.roll(parts.len() as u64)).unwrap()];
    let root = if kind.group.is_empty() { "/api".into() } else { format!("/apis/{}", kind.group) };
    let selectors = ["", "&fieldSelector=metadata.name%3Dx", "&fieldSelector=metadata.namespace%3Db"];
    let selector = selectors[usize::try_from(dice.roll(3)).unwrap()];
    let query = if method == "GET" { "limit=500&timeoutSeconds=1" } else { "dryRun=All" };
    format!("{root}/{}{place}/{}{name}{part}?{query}{selector}", kind.version, kind.resource)
}

async fn recorded() -> (Arc<tempfile::TempDir>, Embedded, Record, podwire_apiserver::ApiServer) {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
    let record = Record::default();
    let recording = Arc::new(Recording { inner: store.clone(), record: record.clone() });
    let config = Config::new(recording, dir.path().join("pki"), "127.0.0.1:0".parse().unwrap());
    (dir, store, record, config.build().await.unwrap())
}

/// Whether a key lies where the request was authorized.
fn agrees(asked: &BTreeMap<String, String>, key: &str) -> bool {
    let text = |field: &str| asked.get(field).map(String::as_str).unwrap_or_default();
    let (namespace, name, verb) = (text("namespace"), text("name"), text("verb"));
    let of = |kind: &&Arc<Kind>| kind.group == text("group") && kind.resource == text("resource");
    let Some(kind) = podwire_api::kinds().iter().find(of) else { return false };
    if !kind.storage_prefix.is_empty() && key.starts_with(&*kind.storage_prefix) {
        let place = match (kind.namespaced, namespace) {
            (true, "") | (false, _) => kind.storage_prefix.to_string(),
            (true, namespace) => format!("{}{namespace}/", kind.storage_prefix),
        };
        let alone = kind.namespaced || kind.resource == "namespaces" || namespace.is_empty();
        return alone
            && match verb {
                "create" if text("subresource").is_empty() => key == format!("{place}x"),
                "list" | "watch" | "deletecollection" => key.starts_with(&place),
                _ => !name.is_empty() && key == format!("{place}{name}"),
            };
    }
    // Creations look at their surroundings, in their own namespace or the cluster.
    let around = ["/registry/priorityclasses/", "/registry/minions/"];
    let here =
        ["serviceaccounts", "pods", "secrets"].map(|resource| format!("/registry/{resource}/{namespace}/"));
    verb == "create"
        && (key == format!("/registry/namespaces/{namespace}")
            || around.iter().any(|prefix| key.starts_with(prefix))
            || (!namespace.is_empty() && here.iter().any(|prefix| key.starts_with(prefix))))
}

fn check_recorded(request: &str, heard: &Heard) {
    let Some(asked) = heard.asked.first() else {
        assert!(heard.keys.is_empty(), "{request} was not authorized and touched {:?}", heard.keys);
        return;
    };
    for again in &heard.asked[1..] {
        for field in ["group", "resource", "namespace", "name"] {
            assert_eq!(again[field], asked[field], "{request} was authorized for two things");
        }
    }
    for key in &heard.keys {
        // A PUT or apply that creates was authorized for that, too.
        let fits = heard.asked.iter().any(|asked| agrees(asked, key));
        assert!(fits, "{request} was authorized as {asked:?} and touched {key}");
    }
}

/// What a reader is shown must be what was authorized, too.
fn check_shown(request: &str, asked: &BTreeMap<String, String>, answer: &Answer) {
    for item in answer.body["items"].as_array().into_iter().flatten() {
        for (field, key) in [("namespace", "namespace"), ("name", "name")] {
            let cluster = key == "namespace" && item["metadata"].get("namespace").is_none();
            if !asked[field].is_empty() && !cluster {
                assert_eq!(item["metadata"][key], *asked[field], "{request} shows {item}");
            }
        }
    }
}

#[tokio::test]
async fn over_the_whole_url_space_what_is_touched_is_what_was_authorized() {
    let (_dir, store, record, server) = recorded().await;
    let admin = server.client(Identity::admin());
    for name in ["a", "b"] {
        namespace(&admin, name).await;
        for resource in ["configmaps", "secrets", "serviceaccounts"] {
            for object in ["x", "y"] {
                let path = format!("/api/v1/namespaces/{name}/{resource}");
                assert_eq!(post(&admin, &path, &json!({"metadata": {"name": object}})).await.code, 201);
            }
        }
    }
    let _listening = record.listen();
    let mut dice = Dice(36);
    let (mut touched, mut found) = (0, 0);
    for round in 0..200 {
        for kind in podwire_api::kinds() {
            let method = METHODS[usize::try_from(dice.roll(METHODS.len() as u64)).unwrap()];
            let url = url(&mut dice, kind, method);
            // The path for a watch stays open; its own test looks at it.
            let watch = url.contains("/watch/");
            let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {
                "name": if round % 3 == 0 { "y" } else { "x" },
                "namespace": if round % 5 == 0 { "b" } else { "" }}});
            let body = if method == "PATCH" { json!({"metadata": {"labels": {"l": "v"}}}) } else { body };
            // What is created has the name x, so that its key is known.
            let body =
                if method == "POST" && round % 3 == 0 { json!({"metadata": {"name": "x"}}) } else { body };
            let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            record.take();
            let text = if method == "DELETE" { String::new() } else { body.to_string() };
            let response = raw(&admin, method, &url, &[("content-type", media)], text).await;
            let heard = record.take();
            let request = format!("{method} {url}");
            check_recorded(&request, &heard);
            touched += usize::from(!heard.keys.is_empty());
            found += usize::from(response.status().is_success());
            if watch || !response.status().is_success() {
                continue;
            }
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let answer = Answer { code: 200, headers: http::HeaderMap::new(), body, text: String::new() };
            check_shown(&request, &heard.asked[0], &answer);
        }
    }
    assert!(touched > 300 && found > 300, "the odd URLs drowned the plain ones: {touched} {found}");
    drop(server);
    store.close().await;
}
