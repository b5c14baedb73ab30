//! Kinds that come and go while the server runs: every verb, patch, watch, apply, selector and page.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use podwire_api::schema::{Message, Schema};
use podwire_api::strategy::{Facts, Generation, Strategy};
use podwire_api::structural::Node;
use podwire_api::{Kind, Part, StrategyRef, Subresource, Verb, Verbs};
use serde_json::{Map, Value, json};
use server::{Server, send, start};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Behaves as a custom resource with a status does.
#[derive(Debug)]
struct Widgets;

impl Strategy for Widgets {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, updates_unconditionally: false, ..Facts::PLAIN }
    }

    fn published(&self) -> Option<Value> {
        Some(widget_schema())
    }
}

fn widget_schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 3},
            "color": {"type": "string"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"},
                    "number": {"x-kubernetes-int-or-string": true}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    }})
}

fn widgets() -> Arc<Kind> {
    let all = [
        Verb::Get,
        Verb::List,
        Verb::Watch,
        Verb::Create,
        Verb::Update,
        Verb::Patch,
        Verb::Delete,
        Verb::DeleteCollection,
    ];
    Arc::new(Kind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        resource: "widgets".into(),
        singular: "widget".into(),
        short_names: vec!["wd".into()],
        categories: vec!["all".into()],
        namespaced: true,
        verbs: Verbs::of(&all),
        subresources: vec![Subresource {
            part: Part::Status,
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Widget".into(),
            verbs: Verbs::of(&[Verb::Get, Verb::Update, Verb::Patch]),
        }],
        storage_prefix: "/registry/example.com/widgets/".into(),
        schema: Schema::Made(Arc::new(Message::structural(
            "com.example.v1.Widget",
            Arc::new(Node::root(&widget_schema())),
        ))),
        selectable_fields: vec!["spec.color".into()],
        strategy: StrategyRef::Made(Arc::new(Widgets)),
    })
}

fn widget(name: &str, color: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "labels": {"color": color}},
           "spec": {"color": color}})
}

async fn with_widgets() -> Server {
    let server = start().await;
    assert_eq!(server.get(WIDGETS).await.code, 404, "nobody serves it yet");
    server.admin.serve_kind(widgets()).await.unwrap();
    server
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_verb_works_on_a_kind_that_was_made_at_run_time() {
    let server = with_widgets().await;
    let mut wanted = widget("a", "red");
    wanted["spec"]["ports"] = json!([{"name": "web", "number": "http", "extra": 1}]);
    wanted["spec"]["free"] = json!({"any": {"thing": [1, "two"]}});
    wanted["spec"]["grid"] = json!([[1, 2], [3]]);
    wanted["spec"]["unknown"] = json!(true);
    wanted["status"] = json!({"ready": true});
    let made = server.post(WIDGETS, &wanted).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let warned: Vec<_> = made.headers.get_all("warning").iter().map(|text| text.to_str().unwrap()).collect();
    assert_eq!(
        warned,
        [
            "299 - \"unknown field \\\"spec.ports[0].extra\\\"\"",
            "299 - \"unknown field \\\"spec.unknown\\\"\""
        ]
    );
    assert_eq!(
        made.body["spec"],
        json!({"color": "red", "size": 3, "free": {"any": {"thing": [1, "two"]}}, "grid": [[1, 2], [3]],
               "ports": [{"name": "web", "number": "http", "protocol": "TCP"}]})
    );
    assert_eq!(made.body["metadata"]["generation"], 1);
    let strict = server.post(&format!("{WIDGETS}?fieldValidation=Strict"), &wanted).await;
    assert_eq!(strict.code, 400, "{}", strict.text);

    let path = format!("{WIDGETS}/a");
    assert_eq!(server.get(&path).await.body, made.body);
    let mut changed = made.body.clone();
    changed["spec"]["size"] = 7.into();
    let updated = server.put(&path, &changed).await;
    assert_eq!((updated.code, &updated.body["spec"]["size"]), (200, &json!(7)), "{}", updated.text);
    assert_eq!(updated.body["metadata"]["generation"], 2);
    assert_eq!(server.put(&path, &changed).await.code, 409, "the version is old");
    let merged = server.patch(&path, MERGE, &json!({"spec": {"color": null, "size": 8}})).await;
    assert_eq!((merged.code, merged.body["spec"].get("color")), (200, None), "{}", merged.text);
    let media = "application/json-patch+json";
    let patched =
        server.patch(&path, media, &json!([{"op": "add", "path": "/spec/tags", "value": ["x", "y"]}])).await;
    assert_eq!((patched.code, &patched.body["spec"]["tags"]), (200, &json!(["x", "y"])), "{}", patched.text);
    let strategic =
        server.patch(&path, "application/strategic-merge-patch+json", &json!({"spec": {"size": 9}})).await;
    assert_eq!(strategic.code, 415, "{}", strategic.text);

    let status = server.patch(&format!("{path}/status"), MERGE, &json!({"status": {"ready": true}})).await;
    assert_eq!((status.code, &status.body["status"]["ready"]), (200, &json!(true)), "{}", status.text);
    assert_eq!(status.body["metadata"]["generation"], patched.body["metadata"]["generation"]);
    let table = send(
        &server.admin,
        "GET",
        WIDGETS,
        &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")],
        "",
    );
    let table = table.await;
    assert_eq!(table.body["columnDefinitions"][0]["name"], "Name", "{}", table.text);
    assert_eq!(table.body["rows"][0]["cells"][0], "a");
    let both = [("accept", "application/vnd.kubernetes.protobuf,application/json")];
    let plain = send(&server.admin, "GET", &path, &both, "").await;
    assert_eq!((plain.code, plain.headers["content-type"].to_str().unwrap()), (200, "application/json"));
    let only =
        send(&server.admin, "GET", &path, &[("accept", "application/vnd.kubernetes.protobuf")], "").await;
    assert_eq!(only.code, 406, "{}", only.text);
    let gone = server.delete(&path, &Value::Null).await;
    assert_eq!(gone.code, 200, "{}", gone.text);
    assert_eq!(server.get(&path).await.code, 404);
    let missing = server.get(&path).await.body["message"].as_str().unwrap().to_owned();
    assert_eq!(missing, "widgets.example.com \"a\" not found");
    for name in ["b", "c"] {
        assert_eq!(server.post(WIDGETS, &widget(name, "blue")).await.code, 201);
    }
    assert_eq!(server.delete(&format!("{WIDGETS}?labelSelector=color%3Dblue"), &Value::Null).await.code, 200);
    assert_eq!(names(&server.get(WIDGETS).await.body), [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn fields_of_a_made_kind_have_owners() {
    let server = with_widgets().await;
    let path = |manager: &str| format!("{WIDGETS}/a?fieldManager={manager}");
    let config = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let port = |name: &str, number: i64| json!({"name": name, "number": number});
    let one = config(json!({"ports": [port("web", 80)], "tags": ["x"], "free": {"mine": {"deep": 1}}}));
    let made = server.patch(&path("one"), APPLY, &one).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let fields = &made.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(
        *fields,
        json!({"f:free": {"f:mine": {".": {}, "f:deep": {}}}, "f:tags": {"v:\"x\"": {}},
               "f:ports": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:number": {}}}})
    );
    let two = config(json!({"ports": [port("admin", 81)], "tags": ["y"], "free": {"mine": {"other": 2}}}));
    let both = server.patch(&path("two"), APPLY, &two).await;
    assert_eq!(both.code, 200, "{}", both.text);
    let ports: Vec<_> =
        both.body["spec"]["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(ports, ["web", "admin"]);
    assert_eq!(both.body["spec"]["tags"], json!(["x", "y"]));
    assert_eq!(both.body["spec"]["free"], json!({"mine": {"deep": 1, "other": 2}}));
    let conflict = server.patch(&path("two"), APPLY, &config(json!({"ports": [port("web", 82)]}))).await;
    assert_eq!(
        (conflict.code, conflict.body["message"].as_str()),
        (409, Some("Apply failed with 1 conflict: conflict with \"one\": .spec.ports[name=\"web\"].number"))
    );
    let less = server.patch(&path("one"), APPLY, &config(json!({"tags": ["x"]}))).await;
    assert_eq!(less.code, 200, "{}", less.text);
    assert_eq!(less.body["spec"]["free"], json!({"mine": {"other": 2}}), "what is applied no more goes");
    assert_eq!(less.body["spec"]["ports"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_made_kind_is_selected_and_read_page_by_page() {
    let server = with_widgets().await;
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")] {
        assert_eq!(server.post(WIDGETS, &widget(name, color)).await.code, 201);
    }
    let of = async |query: &str| server.get(&format!("{WIDGETS}?{query}")).await.body;
    assert_eq!(names(&of("labelSelector=color%3Dred").await), ["a", "c", "d"]);
    assert_eq!(names(&of("fieldSelector=spec.color%3Dblue").await), ["b"]);
    assert_eq!(names(&of("fieldSelector=metadata.name%3Dc").await), ["c"]);
    let unknown = server.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D3")).await;
    assert_eq!(unknown.code, 400, "{}", unknown.text);
    let first = of("limit=3").await;
    assert_eq!((names(&first), &first["kind"]), (vec!["a", "b", "c"], &json!("WidgetList")));
    let next = first["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&of(&format!("limit=3&continue={next}")).await), ["d"]);
    let everywhere = server.get("/apis/example.com/v1/widgets").await.body;
    assert_eq!(names(&everywhere), ["a", "b", "c", "d"]);
    server.stop().await;
}

/// A watch and what it has said that nobody has read yet.
struct Watch {
    body: podwire_apiserver::Body,
    lines: VecDeque<Value>,
}

impl Watch {
    async fn open(server: &Server, query: &str) -> Watch {
        let path = format!("{WIDGETS}?watch=true&{query}");
        let body = server::raw(&server.admin, "GET", &path, &[], "").await.into_body();
        Watch { body, lines: VecDeque::new() }
    }

    /// The next event; none when the watch has ended.
    async fn next(&mut self) -> Option<Value> {
        if self.lines.is_empty() {
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await;
            let data = frame.expect("an event or the end")?.ok()?.into_data().ok()?;
            self.lines =
                serde_json::Deserializer::from_slice(&data).into_iter().map(Result::unwrap).collect();
        }
        self.lines.pop_front()
    }
}

#[tokio::test]
async fn a_made_kind_is_watched_until_it_is_withdrawn() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", "red")).await;
    let mut all = Watch::open(&server, "").await;
    let mut red = Watch::open(&server, "fieldSelector=spec.color%3Dred").await;
    for watch in [&mut all, &mut red] {
        let first = watch.next().await.unwrap();
        assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    }
    server.post(WIDGETS, &widget("b", "blue")).await;
    server.patch(&format!("{WIDGETS}/a"), MERGE, &json!({"spec": {"color": "blue"}})).await;
    assert_eq!(all.next().await.unwrap()["object"]["metadata"]["name"], "b");
    assert_eq!(all.next().await.unwrap()["type"], "MODIFIED");
    let left = red.next().await.unwrap();
    assert_eq!((&left["type"], &left["object"]["spec"]["color"]), (&json!("DELETED"), &json!("red")));

    server.admin.withdraw_kind(&widgets());
    assert_eq!(all.next().await, None, "watches end with their kind");
    assert_eq!(red.next().await, None);
    assert_eq!(server.get(WIDGETS).await.code, 404);
    server.admin.serve_kind(widgets()).await.unwrap();
    assert_eq!(names(&server.get(WIDGETS).await.body), ["a", "b"], "what is stored is there again");
    server.stop().await;
}

#[tokio::test]
async fn discovery_and_schemas_follow_the_kinds() {
    let server = with_widgets().await;
    let groups = server.get("/apis").await.body;
    let has =
        |groups: &Value| groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "example.com");
    assert!(has(&groups));
    let resources = server.get("/apis/example.com/v1").await.body;
    let found: Vec<_> =
        resources["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(found, ["widgets", "widgets/status"]);
    let document = server.get("/openapi/v3/apis/example.com/v1").await.body;
    let spec =
        &document["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"]["properties"];
    assert_eq!(spec["ports"]["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(spec["free"]["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(spec["grid"]["items"]["items"]["type"], "integer");
    let index = async || server.get("/openapi/v3").await.body["paths"].as_object().unwrap().clone();
    let before: Map<String, Value> = index().await;
    assert!(before.contains_key("apis/example.com/v1"));
    server.admin.withdraw_kind(&widgets());
    assert!(!has(&server.get("/apis").await.body));
    assert_eq!(server.get("/apis/example.com/v1").await.code, 404);
    assert!(!index().await.contains_key("apis/example.com/v1"));
    server.stop().await;
}

#[tokio::test]
async fn a_kind_that_comes_and_goes_keeps_all_of_its_objects() {
    let server = with_widgets().await;
    server.admin.withdraw_kind(&widgets());
    for round in 0..10 {
        server.admin.serve_kind(widgets()).await.unwrap();
        let made = (0..20).map(|n| {
            let (server, object) = (&server, widget(&format!("w{round}-{n}"), "red"));
            async move { server.post(WIDGETS, &object).await.code }
        });
        assert!(futures::future::join_all(made).await.iter().all(|code| *code == 201));
        server.admin.withdraw_kind(&widgets());
    }
    server.admin.serve_kind(widgets()).await.unwrap();
    assert_eq!(names(&server.get(WIDGETS).await.body).len(), 200);
    server.stop().await;
}
