//! Limit ranges: what pods and claims get from them and what they are refused for.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use futures::future::join_all;
use serde_json::{Value, json};
use server::start;

const PODS: &str = "/api/v1/namespaces/default/pods";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

fn range(name: &str, limits: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"limits": limits}})
}

#[tokio::test]
async fn pods_get_what_a_range_gives_and_are_refused_beyond_it() {
    let server = start().await;
    let limits = json!([
        {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "50m"}, "defaultRequest": {"cpu": "100m"}},
        {"type": "Pod", "max": {"memory": "1Gi"}}]);
    let made = server.post(RANGES, &range("bounds", limits)).await;
    assert_eq!((made.code, made.headers.get("warning")), (201, None), "{}", made.text);
    assert_eq!(made.body["spec"]["limits"][0]["default"]["cpu"], "1", "what is allowed is what is given");

    let mut given = pod("given", json!({"limits": {"memory": "1Gi"}}));
    given["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
    let given = server.post(PODS, &given).await;
    assert_eq!(given.code, 201, "{}", given.text);
    let resources = &given.body["spec"]["containers"][0]["resources"];
    assert_eq!(
        *resources,
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}})
    );
    assert_eq!(
        given.body["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c; cpu request for init container i; cpu limit for init container i"
    );

    let refused =
        server.post(PODS, &pod("more", json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "2"}}))).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        refused.body["message"],
        "pods \"more\" is forbidden: [minimum cpu usage per Container is 50m, but request is 10m, maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Pod is 1Gi.  No limit is specified]"
    );
    let mut unnamed = pod("", json!({"limits": {"memory": "2Gi"}}));
    unnamed["metadata"] = json!({"generateName": "web-"});
    let refused = server.post(PODS, &unnamed).await;
    let message = refused.body["message"].as_str().unwrap();
    assert!(
        message.ends_with("is forbidden: maximum memory usage per Pod is 1Gi, but limit is 2Gi"),
        "{message}"
    );

    let resize = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "3"}}}]}});
    let path = format!("{PODS}/given/resize");
    let resized = server.patch(&path, "application/strategic-merge-patch+json", &resize).await;
    assert_eq!(resized.code, 403, "{}", resized.text);
    assert_eq!(
        resized.body["message"],
        "pods \"given\" is forbidden: maximum cpu usage per Container is 1, but limit is 3"
    );

    assert_eq!(server.delete(&format!("{RANGES}/bounds"), &Value::Null).await.code, 200);
    let free = server.post(PODS, &pod("free", json!({"limits": {"cpu": "9"}}))).await;
    assert_eq!((free.code, free.body["metadata"].get("annotations")), (201, None), "{}", free.text);
    server.stop().await;
}

#[tokio::test]
async fn claims_stay_within_their_range() {
    let server = start().await;
    let limits =
        json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]);
    assert_eq!(server.post(RANGES, &range("storage", limits)).await.code, 201);
    let claim = |name: &str, storage: &str| json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}});
    assert_eq!(server.post(CLAIMS, &claim("fits", "2Gi")).await.code, 201);
    let refused = server.post(CLAIMS, &claim("more", "3Gi")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.body["message"],
        "persistentvolumeclaims \"more\" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_in_force_for_everybody_when_its_creation_is_answered() {
    let server = start().await;
    for round in 0..4 {
        let limits = json!([{"type": "Container", "max": {"cpu": "1"}}]);
        assert_eq!(server.post(RANGES, &range("bounds", limits)).await.code, 201);
        let names: Vec<String> = (0..64).map(|number| format!("p{round}-{number}")).collect();
        let answers = join_all(names.iter().enumerate().map(|(number, name)| {
            let resources = if number % 2 == 0 { json!({}) } else { json!({"limits": {"cpu": "2"}}) };
            let (server, pod) = (&server, pod(name, resources));
            async move { server.post(PODS, &pod).await }
        }))
        .await;
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer.code, if number % 2 == 0 { 201 } else { 403 }, "{number}: {}", answer.text);
        }
        assert!(
            answers
                .iter()
                .step_by(2)
                .all(|made| made.body["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1")
        );
        assert_eq!(server.delete(&format!("{RANGES}/bounds"), &Value::Null).await.code, 200);
        let free = server.post(PODS, &pod(&format!("free{round}"), json!({"limits": {"cpu": "2"}}))).await;
        assert_eq!(free.code, 201, "no longer than until it is gone: {}", free.text);
    }
    server.stop().await;
}
