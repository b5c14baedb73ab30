//! Answers that upstream gives: created by a PUT, orphaned, completed on update, refused by admission, warned about.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::sync::Arc;

use futures::future::BoxFuture;
use podwire_apiserver::{ApiService, Config, Identity};
use podwire_store::{
    Embedded, EmbeddedConfig, Guard, KeyValue, Listing, Op, Outcome, Revision, Store, StoreError, WatchStream,
};
use serde_json::{Value, json};
use server::{Server, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn a_put_creates_what_is_missing_of_the_kinds_that_allow_it() {
    let server = start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"rules": []});
    let binding =
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    let core = "/api/v1/namespaces/default";
    let event = json!({"involvedObject": {"namespace": "default"}});
    for (path, body) in [
        (LEASES.to_owned(), json!({"spec": {"holderIdentity": "me"}})),
        (format!("{core}/endpoints"), json!({})),
        (format!("{core}/events"), event),
        (format!("{core}/limitranges"), json!({"spec": {"limits": []}})),
        (format!("{core}/services"), json!({"spec": {"ports": [{"port": 80}]}})),
        ("/apis/node.k8s.io/v1/runtimeclasses".into(), json!({"handler": "h"})),
        (format!("{rbac}/clusterroles"), role.clone()),
        (format!("{rbac}/clusterrolebindings"), binding.clone()),
        (format!("{rbac}/namespaces/default/roles"), role),
        (format!("{rbac}/namespaces/default/rolebindings"), binding),
    ] {
        let mut body = body;
        body["metadata"] = json!({"name": "x", "resourceVersion": "1"});
        let made = server.put(&format!("{path}/x"), &body).await;
        assert_eq!(made.code, 201, "{path}: {}", made.text);
        assert!(made.body["metadata"]["uid"].is_string(), "{path}");
        let stale = server.put(&format!("{path}/x"), &body).await;
        assert_eq!(stale.code, 409, "{path}: it is there now");
    }
    let with_uid = json!({"metadata": {"name": "y", "uid": "u"}});
    assert_eq!(server.put(&format!("{LEASES}/y"), &with_uid).await.code, 409);
    // A lease that is there must be named with its version, one that is not need not.
    let unversioned = json!({"metadata": {"name": "z"}});
    assert_eq!(server.put(&format!("{LEASES}/z?dryRun=All"), &unversioned).await.code, 201);
    assert_eq!(server.put(&format!("{LEASES}/z"), &unversioned).await.code, 201);
    assert_eq!(server.put(&format!("{LEASES}/z"), &unversioned).await.code, 422);
    for path in ["/api/v1/namespaces/default/configmaps/x", "/apis/storage.k8s.io/v1/csinodes/x"] {
        assert_eq!(server.put(path, &json!({"metadata": {"name": "x"}})).await.code, 404, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn who_may_update_but_not_create_creates_nothing_by_a_put_or_by_applying() {
    let server = start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "writers"}, "rules": [
        {"apiGroups": ["*"], "resources": ["leases", "configmaps"], "verbs": ["update", "patch"]}]});
    assert_eq!(server.post(&format!("{rbac}/clusterroles"), &role).await.code, 201);
    let binding = json!({"metadata": {"name": "writers"}, "subjects": [{"kind": "User", "name": "jane",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writers"}});
    assert_eq!(server.post(&format!("{rbac}/clusterrolebindings"), &binding).await.code, 201);
    let headers = |media| [("content-type", media), ("impersonate-user", "jane")];
    let lease = json!({"metadata": {"name": "x"}}).to_string();
    let path = format!("{LEASES}/x");
    // The roles are heard of a moment after they are stored.
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    let answer = loop {
        let json = headers("application/json");
        let answer = send(&server.admin, "PUT", &path, &json, lease.clone()).await;
        if !answer.text.contains("cannot update") || tokio::time::Instant::now() > until {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(answer.code, 403, "{}", answer.text);
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.contains("cannot create resource \"leases\""), "{message}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}).to_string();
    let path = "/api/v1/namespaces/default/configmaps/x?fieldManager=t";
    let answer = send(&server.admin, "PATCH", path, &headers("application/apply-patch+yaml"), map).await;
    assert_eq!(answer.code, 403, "{}", answer.text);
    server.stop().await;
}

#[tokio::test]
async fn a_job_deleted_without_a_word_leaves_its_pods() {
    let server = start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    for name in ["a", "b"] {
        let job = json!({"metadata": {"name": name}, "spec": {"template": template}});
        assert_eq!(server.post(jobs, &job).await.code, 201);
    }
    let left = server.delete(&format!("{jobs}/a"), &Value::Null).await;
    assert_eq!(left.body["metadata"]["finalizers"], json!(["orphan"]), "{}", left.text);
    let gone = server.delete(&format!("{jobs}/b"), &json!({"propagationPolicy": "Background"})).await;
    assert_eq!(gone.body["status"], "Success", "{}", gone.text);
    server.stop().await;
}

async fn class(server: &Server, name: &str, default: bool) -> server::Answer {
    let class = json!({"metadata": {"name": name}, "value": 7, "globalDefault": default});
    server.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await
}

#[tokio::test]
async fn priority_comes_from_the_class_and_only_one_class_is_the_default() {
    let server = start().await;
    let mut own = pod("own");
    own["spec"]["priority"] = 1000.into();
    let answer = server.post(PODS, &own).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        answer.body["message"],
        "pods \"own\" is forbidden: the integer value of priority (1000) must not be provided in pod spec; \
         priority admission controller computed 0 from the given PriorityClass name"
    );
    assert_eq!(class(&server, "one", true).await.code, 201);
    let second = class(&server, "two", true).await;
    assert_eq!(
        (second.code, second.body["message"].as_str()),
        (
            403,
            Some(
                "priorityclasses.scheduling.k8s.io \"two\" is forbidden: PriorityClass one is already marked as default. Only one default can exist"
            )
        )
    );
    assert_eq!(class(&server, "two", false).await.code, 201);
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let merge = "application/merge-patch+json";
    let second = server.patch(&format!("{path}/two"), merge, &json!({"globalDefault": true})).await;
    assert_eq!(second.code, 403, "{}", second.text);
    let same = server.patch(&format!("{path}/one"), merge, &json!({"description": "d"})).await;
    assert_eq!(same.code, 200, "{}", same.text);
    let listed = server.get(path).await;
    assert_eq!(listed.code, 200, "and so the cache has heard of all");
    let made = server.post(PODS, &pod("plain")).await;
    assert_eq!(
        (&made.body["spec"]["priority"], &made.body["spec"]["priorityClassName"]),
        (&json!(7), &json!("one"))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_put_that_leaves_out_what_the_server_added_is_completed() {
    let server = start().await;
    let mut made = server.post(PODS, &pod("p")).await.body;
    assert_eq!(made["spec"]["tolerations"].as_array().unwrap().len(), 2);
    let mut less = made.clone();
    less["spec"].as_object_mut().unwrap().remove("tolerations");
    let same = server.put(&format!("{PODS}/p"), &less).await;
    assert_eq!(
        (same.code, &same.body),
        (200, &made),
        "completed, it is what it was: nothing counts as a change"
    );
    made["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    let spec = made["spec"].as_object_mut().unwrap();
    spec.remove("priority");
    spec.remove("preemptionPolicy");
    // What it had it must keep: upstream refuses a pod that loses a toleration, and these were completed.
    let put = server.put(&format!("{PODS}/p"), &made).await;
    assert_eq!(put.code, 200, "{}", put.text);
    let keys: Vec<&str> = put.body["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|toleration| toleration["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["k", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    assert_eq!(put.body["spec"]["priority"], 0);
    server.stop().await;
}

#[tokio::test]
async fn a_bound_pod_knows_where_its_node_is_and_forgets_the_hint() {
    let server = start().await;
    let node = json!({"metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/region": "r", "other": "x"}}});
    let made = server.post("/api/v1/nodes", &node).await;
    assert_eq!(
        made.body["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    assert_eq!(server.get("/api/v1/nodes").await.code, 200, "and so the cache has heard of it");
    let mut labelled = pod("p");
    labelled["metadata"]["labels"] = json!({"app": "a", "topology.kubernetes.io/zone": "elsewhere"});
    assert_eq!(server.post(PODS, &labelled).await.code, 201);
    let hint = json!({"status": {"nominatedNodeName": "n2"}});
    let hinted = server.patch(&format!("{PODS}/p/status"), "application/merge-patch+json", &hint).await;
    assert_eq!(hinted.body["status"]["nominatedNodeName"], "n2");
    let binding = json!({"metadata": {"name": "p", "labels": {"bound": "yes"}}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(server.post(&format!("{PODS}/p/binding"), &binding).await.code, 201);
    let bound = server.get(&format!("{PODS}/p")).await.body;
    assert_eq!(
        bound["metadata"]["labels"],
        json!({"app": "a", "bound": "yes", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"})
    );
    assert!(bound["status"].get("nominatedNodeName").is_none(), "{bound}");
    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = "n1".into();
    let placed = server.post(PODS, &placed).await;
    assert_eq!(placed.body["metadata"]["labels"]["topology.kubernetes.io/zone"], "z", "{}", placed.text);
    server.stop().await;
}

/// A signing request for a key that nobody has any more.
const SIGNING_REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QmVEQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCTXVGM0MxcVF6aTFTV3poWHlzTkRZNTQxVjJvV0QrVW4rZ2h4ZnpyTTFBZ09OSktZU2JFbExXUzViZWRBMEZjCi9Ia1VpS1BUaHJNUGc4YlgyZUVDbG1hZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpQVhHUk5sUXFVRWRUSVMKaUJab3hwWHZZUzZjaGF6WDFTenBtL2grN0VCMVFRSWhBTWJjcXdSa1piaWh1S1d4Rm51UmppN1UvSDYwNWVWVApDcWZmeWtEYk0wZlUKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

#[tokio::test]
async fn an_approval_keeps_annotations_and_only_an_approval_approves() {
    let server = start().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"metadata": {"name": "r"}, "spec": {"request": SIGNING_REQUEST,
        "signerName": "example.com/x", "usages": ["client auth"]}});
    assert_eq!(server.post(requests, &request).await.code, 201);
    let merge = "application/merge-patch+json";
    let verdict = json!([{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]);
    let forged = json!({"status": {"conditions": verdict}});
    let refused = server.patch(&format!("{requests}/r/status"), merge, &forged).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("updates may not add a condition of type \"Approved\""), "{message}");

    let approved = json!({"metadata": {"annotations": {"by": "me"}}, "status": {"conditions": verdict},
        "spec": {"signerName": "example.com/other"}});
    let approved = server.patch(&format!("{requests}/r/approval"), merge, &approved).await;
    assert_eq!(approved.code, 200, "{}", approved.text);
    assert_eq!(approved.body["metadata"]["annotations"], json!({"by": "me"}));
    assert_eq!(approved.body["spec"]["signerName"], "example.com/x");
    let condition = &approved.body["status"]["conditions"][0];
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string());
    let none = json!({"status": {"conditions": null}});
    let refused = server.patch(&format!("{requests}/r/approval"), merge, &none).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn a_review_has_no_table() {
    let server = start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let table = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let answer =
        send(&server.admin, "POST", path, &[("content-type", "application/json"), table], "{}").await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (406, Some("NotAcceptable")));
    server.stop().await;
}

#[tokio::test]
async fn what_is_stored_without_effect_is_said() {
    let server = start().await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let warned = |answer: &server::Answer| {
        answer.headers.get("warning").map(|value| value.to_str().unwrap().to_owned())
    };
    let words = Some("299 - \"NetworkPolicy: stored, but this version does not enforce it\"".to_owned());
    let made = server.post(policies, &json!({"metadata": {"name": "q"}, "spec": {"podSelector": {}}})).await;
    assert_eq!((made.code, warned(&made)), (201, words.clone()));
    assert_eq!(warned(&server.put(&format!("{policies}/q"), &made.body).await), words);
    let merge = "application/merge-patch+json";
    let patch = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
    let patched = server.patch(&format!("{policies}/q"), merge, &patch).await;
    assert_eq!(warned(&patched), words);
    assert_eq!(warned(&server.get(&format!("{policies}/q")).await), None);
    let space =
        json!({"metadata": {"name": "s", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let made = server.post("/api/v1/namespaces", &space).await;
    assert!(warned(&made).unwrap().contains("pod-security.kubernetes.io/enforce: stored, but"));
    assert_eq!(warned(&server.post("/api/v1/namespaces", &json!({"metadata": {"name": "t"}})).await), None);
    server.stop().await;
}

/// A store that is not well: its log is in doubt, and what begins with one of these keys cannot be read.
struct Broken {
    inner: Embedded,
    unreadable: &'static [&'static str],
}

fn in_doubt() -> StoreError {
    let source = Arc::new(std::io::Error::from_raw_os_error(5));
    StoreError::Poisoned { path: "log".into(), source }
}

impl Store for Broken {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        if self.unreadable.iter().any(|start| key.starts_with(start)) {
            return Box::pin(async { Err(in_doubt()) });
        }
        self.inner.get(key)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Listing, StoreError>> {
        self.inner.list(prefix, after, limit, at)
    }

    fn txn<'a>(&'a self, key: &'a str, guard: Guard, op: Op) -> BoxFuture<'a, Result<Outcome, StoreError>> {
        self.inner.txn(key, guard, op)
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<WatchStream, StoreError>> {
        self.inner.watch(prefix, after)
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.inner.revision()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Err(in_doubt()) })
    }

    fn compact<'a>(&'a self, before: Revision) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.compact(before)
    }
}

/// A server on such a store, never run.
async fn on_broken(dir: &tempfile::TempDir, unreadable: &'static [&'static str]) -> ApiService {
    let inner = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
    let store = Arc::new(Broken { inner, unreadable });
    let config = Config::new(store, dir.path().join("pki"), "127.0.0.1:0".parse().unwrap());
    config.build().await.unwrap().client(Identity::admin())
}

/// A pod of which one word of the specification, or the namespace, leads to what is not there.
fn astray(field: &str) -> (String, Value) {
    let mut pod = pod("p");
    let namespace = if field == "namespace" { "absent" } else { "default" };
    if field != "namespace" {
        pod["spec"][field] = "absent".into();
    }
    (format!("/api/v1/namespaces/{namespace}/pods"), pod)
}

#[tokio::test]
async fn a_pod_that_names_what_is_not_there_is_told_so_in_upstreams_words() {
    let server = start().await;
    for (field, code, reason, message) in [
        ("namespace", 404, "NotFound", "namespaces \"absent\" not found"),
        (
            "serviceAccountName",
            403,
            "Forbidden",
            "pods \"p\" is forbidden: error looking up service account default/absent: serviceaccount \"absent\" not found",
        ),
        (
            "priorityClassName",
            403,
            "Forbidden",
            "pods \"p\" is forbidden: no PriorityClass with name absent was found",
        ),
        (
            "runtimeClassName",
            403,
            "Forbidden",
            "pods \"p\" is forbidden: pod rejected: RuntimeClass \"absent\" not found",
        ),
    ] {
        let (path, body) = astray(field);
        let answer = server.post(&path, &body).await;
        let told = (answer.code, answer.body["reason"].as_str(), answer.body["message"].as_str());
        assert_eq!(told, (code, Some(reason), Some(message)), "{field}");
    }
    let class = json!({"metadata": {"name": "absent"}, "handler": "h"});
    assert_eq!(server.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.code, 201);
    let (path, body) = astray("runtimeClassName");
    assert_eq!(server.post(&path, &body).await.code, 201, "the class is there now");
    server.stop().await;
}

#[tokio::test]
async fn a_store_that_cannot_be_read_says_nothing_about_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let unreadable = &[
        "/registry/namespaces/absent",
        "/registry/serviceaccounts/default/absent",
        "/registry/priorityclasses/absent",
        "/registry/runtimeclasses/absent",
    ];
    let admin = on_broken(&dir, unreadable).await;
    let headers = [("content-type", "application/json")];
    assert_eq!(send(&admin, "POST", PODS, &headers, pod("plain").to_string()).await.code, 201);
    for field in ["namespace", "serviceAccountName", "priorityClassName", "runtimeClassName"] {
        let (path, body) = astray(field);
        let answer = send(&admin, "POST", &path, &headers, body.to_string()).await;
        let told = (answer.code, answer.body["reason"].as_str());
        assert_eq!(told, (500, Some("InternalError")), "{field}: {}", answer.text);
        assert!(!answer.text.contains("not found") && !answer.text.contains("forbidden"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_server_that_cannot_write_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let admin = on_broken(&dir, &[]).await;
    for path in ["/readyz", "/livez", "/healthz"] {
        let answer = send(&admin, "GET", path, &[], "").await;
        assert_eq!(answer.code, 500, "{path}");
        assert!(answer.text.contains("[-]etcd failed: reason withheld"), "{}", answer.text);
    }
    let answer = send(&admin, "GET", "/readyz/etcd", &[], "").await;
    assert!(answer.text.contains("the store refuses writes after a failed sync"), "{}", answer.text);
}
