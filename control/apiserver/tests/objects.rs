//! Objects: create, read, change and delete them, and what clients are told when they may not.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use serde_json::{Value, json};
use server::{send, start, start_in, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": value}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"containers": [{"name": "c", "image": "img:1"}]}})
}

#[tokio::test]
async fn a_creation_that_names_a_version_is_refused_unless_it_is_a_dry_run() {
    let server = start().await;
    let mut named = map("a", "1");
    named["metadata"]["resourceVersion"] = "7".into();
    let refused = server.post(MAPS, &named).await;
    assert_eq!((refused.code, server.get(&format!("{MAPS}/a")).await.code), (500, 404), "{}", refused.text);
    assert_eq!(server.post(&format!("{MAPS}?dryRun=All"), &named).await.code, 201);
    // What is invalid is told before it.
    named["data"]["not a key"] = "x".into();
    assert_eq!(server.post(MAPS, &named).await.code, 422);
    server.stop().await;
}

#[tokio::test]
async fn an_object_is_created_read_replaced_and_deleted() {
    let server = start().await;
    let made = server.post(MAPS, &map("a", "1")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(
        (made.body["kind"].as_str(), made.body["apiVersion"].as_str()),
        (Some("ConfigMap"), Some("v1"))
    );
    assert!(
        made.body["metadata"]["uid"].is_string() && made.body["metadata"]["creationTimestamp"].is_string()
    );
    let read = server.get(&format!("{MAPS}/a")).await;
    assert_eq!(read.body, made.body);

    let mut changed = read.body.clone();
    changed["data"]["a"] = "2".into();
    let put = server.put(&format!("{MAPS}/a"), &changed).await;
    assert_eq!((put.code, put.body["data"]["a"].as_str()), (200, Some("2")));
    assert!(version(&put.body) > version(&made.body));

    let stale = server.put(&format!("{MAPS}/a"), &changed).await;
    assert_eq!((stale.code, stale.body["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(
        stale.body["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let again = server.post(MAPS, &map("a", "1")).await;
    assert_eq!((again.code, again.body["message"].as_str()), (409, Some("configmaps \"a\" already exists")));

    let same = server.put(&format!("{MAPS}/a"), &put.body).await;
    assert_eq!(version(&same.body), version(&put.body), "a write without a change is no write");

    let gone = server.delete(&format!("{MAPS}/a"), &Value::Null).await;
    assert_eq!((gone.code, gone.body["status"].as_str()), (200, Some("Success")));
    assert_eq!(gone.body["details"]["uid"], made.body["metadata"]["uid"]);
    let missing = server.get(&format!("{MAPS}/a")).await;
    assert_eq!(
        missing.body,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
               "message": "configmaps \"a\" not found", "reason": "NotFound",
               "details": {"name": "a", "kind": "configmaps"}, "code": 404})
    );
    server.stop().await;
}

#[tokio::test]
async fn objects_and_versions_survive_a_restart() {
    let first = start().await;
    let made = first.post(MAPS, &map("keep", "1")).await.body;
    let dir = first.stop().await;
    let second = start_in(dir).await;
    assert_eq!(second.get(&format!("{MAPS}/keep")).await.body, made);
    let listed = second.get(MAPS).await.body;
    assert_eq!(listed["items"][0]["metadata"]["uid"], made["metadata"]["uid"]);
    let next = second.post(MAPS, &map("next", "1")).await.body;
    assert!(version(&next) > version(&made));
    second.stop().await;
}

#[tokio::test]
async fn a_new_pod_gets_defaults_account_and_tolerations() {
    let server = start().await;
    let made = server.post(PODS, &pod("p")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let spec = &made.body["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent");
    assert!(spec["volumes"][0]["name"].as_str().unwrap().starts_with("kube-api-access-"));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["priority"], 0);
    assert_eq!(made.body["status"]["phase"], "Pending");
    assert_eq!(made.body["metadata"]["generation"], 1);
    assert!(!made.text.contains("null"), "{}", made.text);
    server.stop().await;
}

#[tokio::test]
async fn generated_names_differ_and_keep_their_beginning() {
    let server = start().await;
    let mut names = Vec::new();
    for _ in 0..3 {
        let made = server.post(MAPS, &json!({"metadata": {"generateName": "web-"}})).await;
        names.push(made.body["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert!(names.iter().all(|name| name.starts_with("web-") && name.len() == 9), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_bad_pod_is_refused_with_causes_and_nothing_is_stored() {
    let server = start().await;
    let mut bad = pod("p");
    bad["spec"]["containers"] = json!([]);
    let answer = server.post(PODS, &bad).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (422, Some("Invalid")));
    assert_eq!(answer.body["message"], "Pod \"p\" is invalid: spec.containers: Required value");
    let cause = &answer.body["details"]["causes"][0];
    assert_eq!(
        (cause["reason"].as_str(), cause["field"].as_str()),
        (Some("FieldValueRequired"), Some("spec.containers"))
    );
    assert_eq!(server.get(&format!("{PODS}/p")).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn every_kind_of_patch_changes_an_object() {
    let server = start().await;
    server.post(PODS, &pod("p")).await;
    let path = format!("{PODS}/p");
    let merged = server
        .patch(&path, "application/merge-patch+json", &json!({"metadata": {"labels": {"a": "1", "b": "2"}}}))
        .await;
    assert_eq!(merged.body["metadata"]["labels"], json!({"a": "1", "b": "2"}), "{}", merged.text);
    let ops = json!([{"op": "remove", "path": "/metadata/labels/a"}]);
    let jsoned = server.patch(&path, "application/json-patch+json", &ops).await;
    assert_eq!(jsoned.body["metadata"]["labels"], json!({"b": "2"}));
    let strategic = json!({"spec": {"containers": [{"name": "c", "image": "img:2"}]}});
    let changed = server.patch(&path, "application/strategic-merge-patch+json", &strategic).await;
    assert_eq!(changed.body["spec"]["containers"][0]["image"], "img:2", "{}", changed.text);
    assert_eq!(changed.body["spec"]["containers"][0]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(changed.body["metadata"]["generation"], 2);
    let missing =
        server.patch(&path, "application/json-patch+json", &json!([{"op": "remove", "path": "/nope"}])).await;
    assert_eq!(missing.code, 422);
    assert_eq!(server.patch(&path, "text/plain", &json!({})).await.code, 415);
    let renamed =
        server.patch(&path, "application/merge-patch+json", &json!({"metadata": {"name": "q"}})).await;
    assert_eq!(renamed.code, 400);
    server.stop().await;
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = start().await;
    server.post(PODS, &pod("p")).await;
    let patch =
        json!({"status": {"phase": "Running", "podIP": "10.0.0.1"}, "metadata": {"labels": {"x": "y"}}});
    let main = server.patch(&format!("{PODS}/p"), "application/merge-patch+json", &patch).await;
    assert_eq!((main.code, main.body["status"]["phase"].as_str()), (200, Some("Pending")));
    let patch = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "evil"}});
    let status =
        server.patch(&format!("{PODS}/p/status"), "application/strategic-merge-patch+json", &patch).await;
    assert_eq!((status.code, status.body["status"]["phase"].as_str()), (200, Some("Running")));
    assert!(status.body["spec"]["nodeName"].is_null());
    assert_eq!(status.body["metadata"]["generation"], 1);
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let server = start().await;
    let answer = server.post(&format!("{MAPS}?dryRun=All"), &map("a", "1")).await;
    assert_eq!((answer.code, answer.body["data"]["a"].as_str()), (201, Some("1")));
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 404);
    let wrong = server.post(&format!("{MAPS}?dryRun=Some"), &map("a", "1")).await;
    assert_eq!(wrong.code, 422);
    server.post(MAPS, &map("a", "1")).await;
    server.delete(&format!("{MAPS}/a?dryRun=All"), &Value::Null).await;
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_about_or_refused() {
    let server = start().await;
    let mut odd = map("a", "1");
    odd["spec"] = json!({"foo": 1});
    let strict = server.post(&format!("{MAPS}?fieldValidation=Strict"), &odd).await;
    assert_eq!(strict.code, 400);
    assert!(
        strict.body["message"].as_str().unwrap().ends_with("strict decoding error: unknown field \"spec\""),
        "{}",
        strict.text
    );
    let warned = server.post(MAPS, &odd).await;
    assert_eq!((warned.code, warned.body.get("spec")), (201, None));
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"spec\\\"\"");
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_get_a_status_and_never_break_the_server() {
    let server = start().await;
    let json = [("content-type", "application/json")];
    for body in [
        "",
        "{",
        "[]",
        "7",
        "\"x\"",
        "{\"metadata\":7}",
        "{\"metadata\":{\"name\":7}}",
        "{\"data\":{\"a\":1}}",
        "{\"kind\":\"Pod\"}",
        "{\"apiVersion\":\"v2\"}",
        "\u{0}\u{1}",
    ] {
        for (method, path) in [("POST", MAPS.to_owned()), ("PUT", format!("{MAPS}/x"))] {
            let answer = send(&server.admin, method, &path, &json, body.to_owned()).await;
            assert_eq!(answer.code, 400, "{method} {body:?}: {}", answer.text);
            assert_eq!(answer.body["kind"], "Status");
        }
        for media in [
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ] {
            let answer = send(
                &server.admin,
                "PATCH",
                &format!("{PODS}/none"),
                &[("content-type", media)],
                body.to_owned(),
            )
            .await;
            assert!((400..500).contains(&answer.code), "{media} {body:?}: {}", answer.text);
        }
    }
    let big = send(&server.admin, "POST", MAPS, &json, "x".repeat((3 << 20) + 1)).await;
    assert_eq!((big.code, big.body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    let plain = send(&server.admin, "POST", MAPS, &[("content-type", "text/plain")], "a: b").await;
    assert_eq!((plain.code, plain.body["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    let html = send(&server.admin, "GET", MAPS, &[("accept", "text/html")], "").await;
    assert_eq!((html.code, html.body["reason"].as_str()), (406, Some("NotAcceptable")));
    for query in [
        "labelSelector=a%3D%3D%3Db",
        "fieldSelector=spec.foo%3Dx",
        "limit=x",
        "continue=%25",
        "resourceVersion=x",
    ] {
        let answer = server.get(&format!("{PODS}?{query}")).await;
        assert_eq!(answer.code, 400, "{query}: {}", answer.text);
    }
    assert_eq!(server.get("/api/v1/nonsense").await.code, 404);
    assert_eq!(server.get("/apis/none/v1/x").await.code, 404);
    assert_eq!(server.post("/api/v1/configmaps", &map("a", "1")).await.code, 405);
    assert_eq!(server.get("/healthz").await.text, "ok");
    server.stop().await;
}

#[tokio::test]
async fn yaml_bodies_are_read() {
    let server = start().await;
    let text = "metadata:\n  name: y\ndata:\n  a: hello\n";
    let answer = send(&server.admin, "POST", MAPS, &[("content-type", "application/yaml")], text).await;
    assert_eq!((answer.code, answer.body["data"]["a"].as_str()), (201, Some("hello")));
    let read = send(&server.admin, "GET", &format!("{MAPS}/y"), &[("accept", "application/yaml")], "").await;
    assert!(read.text.contains("a: hello"), "{}", read.text);
    server.stop().await;
}

#[tokio::test]
async fn a_secret_s_plain_text_becomes_data() {
    let server = start().await;
    let path = "/api/v1/namespaces/default/secrets";
    let made = server.post(path, &json!({"metadata": {"name": "s"}, "stringData": {"p": "word"}})).await;
    assert_eq!((made.code, &made.body["data"]), (201, &json!({"p": "d29yZA=="})), "{}", made.text);
    assert!(made.body["stringData"].is_null());
    let patch = json!({"stringData": {"q": "x"}});
    let changed = server.patch(&format!("{path}/s"), "application/merge-patch+json", &patch).await;
    assert_eq!(changed.body["data"], json!({"p": "d29yZA==", "q": "eA=="}), "{}", changed.text);
    server.stop().await;
}

#[tokio::test]
async fn both_event_groups_show_the_same_events() {
    let server = start().await;
    let (old, new) =
        ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "R", "note": "hello",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "type": "Normal", "action": "A",
        "reportingController": "x/y", "reportingInstance": "i"});
    let made = server.post(new, &event).await;
    assert_eq!((made.code, made.body["note"].as_str()), (201, Some("hello")), "{}", made.text);
    let read = server.get(&format!("{old}/e")).await.body;
    assert_eq!(
        (read["message"].as_str(), read["involvedObject"]["name"].as_str()),
        (Some("hello"), Some("p"))
    );
    let listed = server.get(&format!("{new}?fieldSelector=regarding.name%3Dp")).await.body;
    assert_eq!(listed["items"][0]["note"], "hello", "{listed}");
    server.stop().await;
}

#[tokio::test]
async fn both_versions_of_an_autoscaler_show_the_same() {
    let server = start().await;
    let (v1, v2) = (
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    );
    let target = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
    let old = json!({"metadata": {"name": "old"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}});
    let made = server.post(v1, &old).await;
    assert_eq!(
        (made.code, &made.body["spec"]["targetCPUUtilizationPercentage"]),
        (201, &json!(50)),
        "{}",
        made.text
    );
    let read = server.get(&format!("{v2}/old")).await.body;
    assert_eq!(read["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50, "{read}");
    assert_eq!(read["spec"]["targetCPUUtilizationPercentage"], json!(null), "{read}");
    let mut new = read.clone();
    new["metadata"] = json!({"name": "new"});
    let made = server.post(v2, &new).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let listed = server.get(v1).await.body;
    for item in listed["items"].as_array().unwrap() {
        assert_eq!(item["spec"]["targetCPUUtilizationPercentage"], 50, "{item}");
        assert_eq!(item["spec"]["metrics"], json!(null), "{item}");
    }
    server.stop().await;
}

#[tokio::test]
async fn applied_fields_belong_to_their_manager() {
    let server = start().await;
    let apply = "application/apply-patch+yaml";
    let config = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": {"x": value}});
    let made = server.patch(&format!("{MAPS}/s?fieldManager=m1"), apply, &config("1")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let conflict = server.patch(&format!("{MAPS}/s?fieldManager=m2"), apply, &config("2")).await;
    assert_eq!(
        (conflict.code, conflict.body["message"].as_str()),
        (409, Some("Apply failed with 1 conflict: conflict with \"m1\": .data.x"))
    );
    assert_eq!(conflict.body["details"]["causes"][0]["reason"], "FieldManagerConflict");
    let forced = server.patch(&format!("{MAPS}/s?fieldManager=m2&force=true"), apply, &config("2")).await;
    assert_eq!((forced.code, forced.body["data"]["x"].as_str()), (200, Some("2")));
    let unnamed = server.patch(&format!("{MAPS}/s"), apply, &config("2")).await;
    assert_eq!(unnamed.code, 422);
    server.stop().await;
}

#[tokio::test]
async fn protobuf_bodies_are_read_and_written() {
    let server = start().await;
    let kind = podwire_api::by_resource("", "v1", "configmaps").unwrap();
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pb"}, "data": {"a": "1"}});
    let media = "application/vnd.kubernetes.protobuf";
    let body = podwire_api::protobuf::encode(kind, &object);
    let response =
        server::raw(&server.admin, "POST", MAPS, &[("content-type", media), ("accept", media)], body).await;
    assert_eq!(
        (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()),
        (201, media)
    );
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let read = podwire_api::protobuf::decode(kind, &bytes).unwrap();
    assert_eq!(read, server.get(&format!("{MAPS}/pb")).await.body);
    let broken = send(&server.admin, "POST", MAPS, &[("content-type", media)], "k8s\0nonsense").await;
    assert_eq!(broken.code, 400);
    server.stop().await;
}

/// A list in protobuf has the objects of the JSON one, as often as it is asked for, however long it is.
#[tokio::test]
async fn a_list_in_protobuf_is_the_list_in_json() {
    let server = start().await;
    for number in 0..30 {
        let data = json!({"text": "x".repeat(5000)});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{number}")}, "data": data});
        assert_eq!(server.post(MAPS, &object).await.code, 201);
    }
    for path in [format!("{MAPS}?fieldSelector=metadata.name%3Dm7"), MAPS.to_owned(), MAPS.to_owned()] {
        let media = [("accept", "application/vnd.kubernetes.protobuf")];
        let response = server::raw(&server.admin, "GET", &path, &media, "").await;
        assert_eq!(response.status().as_u16(), 200);
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let read = podwire_api::protobuf::decode_any(&bytes).unwrap();
        assert_eq!(read, server.get(&path).await.body, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_resize_changes_the_resources_of_a_pod_and_nothing_else() {
    let server = start().await;
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}});
    let made = server.post(PODS, &wanted).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let patch = |image: Value, cpu: &str| {
        let container = json!({"name": "c", "image": image, "resources": {"limits": {"cpu": cpu}}});
        json!({"spec": {"containers": [container]}}).to_string()
    };
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let path = format!("{PODS}/a/resize");
    let resized = send(&server.admin, "PATCH", &path, &strategic, patch("img:2".into(), "500m")).await;
    assert_eq!(resized.code, 200, "{}", resized.text);
    let container = &resized.body["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}));
    assert_eq!(container["image"], "img:1", "only resources are taken through resize");
    assert_eq!(resized.body["metadata"]["generation"], 2);
    assert_eq!(server.get(&format!("{PODS}/a")).await.body, resized.body);

    let low = send(&server.admin, "PATCH", &path, &strategic, patch("img:1".into(), "50m")).await;
    assert_eq!((low.code, low.body["reason"].as_str()), (422, Some("Invalid")), "{}", low.text);
    let main =
        send(&server.admin, "PATCH", &format!("{PODS}/a"), &strategic, patch("img:1".into(), "1")).await;
    assert_eq!((main.code, main.body["reason"].as_str()), (422, Some("Invalid")), "{}", main.text);
    assert_eq!(server.get(&format!("{PODS}/a")).await.body, resized.body, "what is refused changes nothing");
    server.stop().await;
}

#[tokio::test]
async fn a_resize_takes_nothing_away_and_touches_cpu_and_memory_only() {
    let server = start().await;
    let mut wanted = pod("a");
    wanted["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "example.com/card": "1"}});
    let made = server.post(PODS, &wanted).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let path = format!("{PODS}/a/resize");
    let cases = [
        (
            json!({"requests": {"cpu": "100m"}, "limits": {"example.com/card": "1"}}),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (
            json!({"requests": {"cpu": "100m", "example.com/card": "2"}, "limits": {"cpu": "200m", "example.com/card": "2"}}),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
    ];
    for (resources, words) in cases {
        let mut body = made.body.clone();
        body["spec"]["containers"][0]["resources"] = resources;
        let refused = send(&server.admin, "PUT", &path, &[], body.to_string()).await;
        assert_eq!(refused.code, 422, "{}", refused.text);
        assert!(refused.body["message"].as_str().unwrap().contains(words), "{}", refused.text);
    }
    let mut body = made.body.clone();
    body["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("8Mi");
    let added = send(&server.admin, "PUT", &path, &[], body.to_string()).await;
    assert_eq!(added.code, 200, "{}", added.text);
    server.stop().await;
}
