//! Lists and watches: selectors, pages, versions, and streams without gaps.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use serde_json::{Value, json};
use server::{Server, Watch, send, start, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn make(server: &Server, name: &str, labels: Value) -> Value {
    let answer = server.post(MAPS, &json!({"metadata": {"name": name, "labels": labels}})).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    answer.body
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn pages_are_cut_from_the_state_of_the_first_one() {
    let server = start().await;
    for name in ["a", "b", "c", "d", "e"] {
        make(&server, name, json!({})).await;
    }
    let first = server.get(&format!("{MAPS}?limit=2")).await.body;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.delete(&format!("{MAPS}/c"), &Value::Null).await;
    make(&server, "bb", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.body;
    assert_eq!(names(&second), ["c", "d"], "{second}");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.body;
    assert_eq!(names(&third), ["e"]);
    assert!(third["metadata"]["continue"].is_null());
    let exact = first["metadata"]["resourceVersion"].as_str().unwrap();
    let then = server.get(&format!("{MAPS}?resourceVersion={exact}&resourceVersionMatch=Exact")).await.body;
    assert_eq!(names(&then), ["a", "b", "c", "d", "e"]);
    assert_eq!(names(&server.get(MAPS).await.body), ["a", "b", "bb", "d", "e"]);
    server.stop().await;
}

#[tokio::test]
async fn selectors_choose_by_label_and_field() {
    let server = start().await;
    make(&server, "a", json!({"tier": "web", "env": "prod"})).await;
    make(&server, "b", json!({"tier": "db"})).await;
    for (query, expected) in [
        ("labelSelector=tier%3Dweb", vec!["a"]),
        ("labelSelector=tier+in+(web,db),!env", vec!["b"]),
        ("labelSelector=env", vec!["a"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db", vec!["a"]),
    ] {
        assert_eq!(names(&server.get(&format!("{MAPS}?{query}")).await.body), expected, "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_watch_from_a_version_sees_every_later_change_once() {
    let server = start().await;
    let first = make(&server, "a", json!({})).await;
    let before = version(&first);
    let second = make(&server, "b", json!({})).await;
    let path = format!("{MAPS}?watch=true&resourceVersion={before}");
    let mut watch = Watch::open(&server.admin, &path).await;
    assert_eq!(watch.brief().await, ("ADDED".into(), "b".into(), version(&second)));
    let merge = "application/merge-patch+json";
    let changed = server.patch(&format!("{MAPS}/a"), merge, &json!({"data": {"x": "y"}})).await.body;
    assert_eq!(watch.brief().await, ("MODIFIED".into(), "a".into(), version(&changed)));
    server.delete(&format!("{MAPS}/a"), &Value::Null).await;
    let (kind, name, at) = watch.brief().await;
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "a"));
    assert!(at > version(&changed), "a deletion has a version of its own");
    server.stop().await;
}

#[tokio::test]
async fn an_object_enters_and_leaves_a_selection() {
    let server = start().await;
    let made = make(&server, "a", json!({"on": "no"})).await;
    let path = format!("{MAPS}?watch=true&resourceVersion={}&labelSelector=on%3Dyes", version(&made));
    let mut watch = Watch::open(&server.admin, &path).await;
    let merge = "application/merge-patch+json";
    for value in ["yes", "no"] {
        server.patch(&format!("{MAPS}/a"), merge, &json!({"metadata": {"labels": {"on": value}}})).await;
    }
    assert_eq!(watch.brief().await.0, "ADDED");
    let left = watch.next().await.unwrap();
    assert_eq!(
        (left["type"].as_str(), left["object"]["metadata"]["labels"]["on"].as_str()),
        (Some("DELETED"), Some("yes"))
    );
    server.stop().await;
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() {
    let server = start().await;
    make(&server, "a", json!({})).await;
    let last = make(&server, "b", json!({})).await;
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    );
    let mut watch = Watch::open(&server.admin, &path).await;
    assert_eq!(watch.brief().await.1, "a");
    assert_eq!(watch.brief().await.1, "b");
    let mark = watch.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert!(version(&mark["object"]) >= version(&last));
    let live = make(&server, "c", json!({})).await;
    assert_eq!(watch.brief().await, ("ADDED".into(), "c".into(), version(&live)));
    let wrong = server.get(&format!("{MAPS}?watch=true&sendInitialEvents=true")).await;
    assert_eq!(wrong.code, 422);
    server.stop().await;
}

#[tokio::test]
async fn a_version_from_before_the_history_is_gone() {
    let first = start().await;
    make(&first, "a", json!({})).await;
    let dir = first.stop().await;
    let server = server::start_in(dir).await;
    let mut watch = Watch::open(&server.admin, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_i64()), (Some("ERROR"), Some(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(watch.next().await, None);
    server.stop().await;
}

#[tokio::test]
async fn a_version_from_the_future_times_out() {
    let server = start().await;
    let answer = server.get(&format!("{MAPS}?resourceVersion=999999")).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (504, Some("Timeout")));
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    server.stop().await;
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout_with_a_bookmark() {
    let server = start().await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=1");
    let path = path.replace("&resourceVersion=1", "");
    let mut watch = Watch::open(&server.admin, &path).await;
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert_eq!(watch.next().await, None);
    server.stop().await;
}

#[tokio::test]
async fn many_watchers_hear_the_same_change() {
    let server = start().await;
    let made = make(&server, "a", json!({})).await;
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&made));
    let mut watches = Vec::new();
    for _ in 0..500 {
        watches.push(Watch::open(&server.admin, &path).await);
    }
    let next = make(&server, "b", json!({})).await;
    for watch in &mut watches {
        assert_eq!(watch.brief().await, ("ADDED".into(), "b".into(), version(&next)));
    }
    server.stop().await;
}

#[tokio::test]
async fn pods_of_a_node_are_found_by_their_field() {
    let server = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node) in [("p", "n1"), ("q", "n2")] {
        server
            .post(
                pods,
                &json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
            )
            .await;
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        assert_eq!(server.post(&format!("{pods}/{name}/binding"), &binding).await.code, 201);
    }
    let listed = server.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.body;
    assert_eq!(names(&listed), ["p"]);
    assert_eq!(listed["kind"], "PodList");
    assert!(listed["items"][0]["kind"].is_null());
    server.stop().await;
}

#[tokio::test]
async fn people_get_tables_and_controllers_get_metadata() {
    let server = start().await;
    make(&server, "a", json!({"x": "y"})).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let answer = send(&server.admin, "GET", MAPS, &[("accept", table)], "").await;
    assert_eq!(
        (answer.body["kind"].as_str(), answer.body["rows"][0]["cells"][0].as_str()),
        (Some("Table"), Some("a"))
    );
    assert_eq!(answer.body["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let answer = send(&server.admin, "GET", MAPS, &[("accept", partial)], "").await;
    assert_eq!(answer.body["kind"], "PartialObjectMetadataList");
    assert_eq!(answer.body["items"][0]["metadata"]["labels"]["x"], "y");
    server.stop().await;
}
