//! A node's credential: what it opens is what its own pods need, and what it writes is its own.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use podwire_apiserver::{ApiService, Identity};
use serde_json::{Value, json};
use server::{Answer, Server, send, start};

const CORE: &str = "/api/v1/namespaces/default";

async fn call(service: &ApiService, method: &str, path: &str, body: &Value) -> Answer {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let text = if body.is_null() { String::new() } else { body.to_string() };
    send(service, method, path, &[("content-type", media)], text).await
}

/// Asks until the code is there: the graph follows the cache, which follows the store.
async fn until(service: &ApiService, path: &str, code: u16) -> Answer {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let answer = send(service, "GET", path, &[], "").await;
        if answer.code == code || tokio::time::Instant::now() > deadline {
            assert_eq!(answer.code, code, "{path}: {}", answer.text);
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

fn refusal(answer: &Answer) -> &str {
    assert_eq!(answer.code, 403, "{}", answer.text);
    answer.body["message"].as_str().unwrap()
}

/// A pod of the account `robot` on a node, with a secret, a configmap, a claim and a resource claim.
fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": node, "serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "env"}}]}],
        "volumes": [{"name": "v", "configMap": {"name": "settings"}}, {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}],
    }})
}

async fn world() -> Server {
    let server = start().await;
    for (resource, name) in
        [("secrets", "env"), ("secrets", "other"), ("configmaps", "settings"), ("serviceaccounts", "robot")]
    {
        let made = server.post(&format!("{CORE}/{resource}"), &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.code, 201, "{}", made.text);
    }
    for node in ["n1", "n2"] {
        let made =
            call(&server.as_user(node), "POST", "/api/v1/nodes", &json!({"metadata": {"name": node}})).await;
        assert_eq!(made.code, 201, "{}", made.text);
    }
    let made = server.post(&format!("{CORE}/pods"), &pod("p1", "n1")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    until(&server.as_user("n1"), &format!("{CORE}/pods/p1"), 200).await;
    server
}

#[tokio::test]
async fn a_node_reads_what_its_pods_refer_to_and_nothing_else() {
    let server = world().await;
    let (n1, n2) = (server.as_user("n1"), server.as_user("n2"));
    for path in ["secrets/env", "configmaps/settings", "serviceaccounts/robot", "pods/p1"] {
        assert_eq!(call(&n1, "GET", &format!("{CORE}/{path}"), &Value::Null).await.code, 200, "{path}");
        let refused = call(&n2, "GET", &format!("{CORE}/{path}"), &Value::Null).await;
        let (resource, name) = path.split_once('/').unwrap();
        assert_eq!(
            refusal(&refused),
            format!(
                "{resource} \"{name}\" is forbidden: User \"system:node:n2\" cannot get resource \"{resource}\" in API group \"\" \
                 in the namespace \"default\": no relationship found between node 'n2' and this object"
            )
        );
    }
    let only = format!("{CORE}/secrets?fieldSelector=metadata.name%3Denv");
    assert_eq!(call(&n1, "GET", &only, &Value::Null).await.code, 200);
    for (path, why) in [
        (format!("{CORE}/secrets/other"), "no relationship found between node 'n1' and this object"),
        (format!("{CORE}/secrets"), "No Object name found"),
        (
            "/api/v1/secrets?fieldSelector=metadata.name%3Denv".into(),
            "can only read namespaced object of this type",
        ),
        ("/api/v1/pods".into(), "can only list/watch pods with spec.nodeName field selector"),
        (
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2".into(),
            "can only list/watch pods with spec.nodeName field selector",
        ),
        ("/api/v1/nodes".into(), "node 'n1' cannot read all nodes, only its own Node object"),
        ("/api/v1/nodes/n2".into(), "node 'n1' cannot read 'n2', only its own Node object"),
        (
            "/apis/resource.k8s.io/v1/resourceslices".into(),
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/n1".into(),
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2".into(),
            "can only access node lease with the same name as the requesting node",
        ),
    ] {
        let refused = call(&n1, "GET", &path, &Value::Null).await;
        assert!(refusal(&refused).ends_with(why), "{path}: {}", refused.text);
    }
    for path in ["/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "/api/v1/nodes/n1", "/api/v1/services"] {
        assert_eq!(call(&n1, "GET", path, &Value::Null).await.code, 200, "{path}");
    }
    assert_eq!(call(&n1, "DELETE", &format!("{CORE}/secrets/env"), &Value::Null).await.code, 403);
    // With the pod goes what it opened.
    let now = json!({"gracePeriodSeconds": 0});
    assert_eq!(server.delete(&format!("{CORE}/pods/p1"), &now).await.code, 200);
    until(&n1, &format!("{CORE}/secrets/env"), 403).await;
    server.stop().await;
}

#[tokio::test]
async fn a_volume_is_reached_through_its_claim_and_its_secrets_through_it() {
    let server = world().await;
    let volume = json!({"metadata": {"name": "pv"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "default", "name": "disk"},
        "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"name": "stage", "namespace": "kube-system"},
                "controllerPublishSecretRef": {"name": "publish", "namespace": "kube-system"}}}});
    let made = server.post("/api/v1/persistentvolumes", &volume).await;
    assert_eq!(made.code, 201, "{}", made.text);
    for name in ["stage", "publish"] {
        server.post("/api/v1/namespaces/kube-system/secrets", &json!({"metadata": {"name": name}})).await;
    }
    let (n1, n2) = (server.as_user("n1"), server.as_user("n2"));
    until(&n1, "/api/v1/persistentvolumes/pv", 200).await;
    until(&n1, "/api/v1/namespaces/kube-system/secrets/stage", 200).await;
    until(&n1, "/api/v1/namespaces/kube-system/secrets/publish", 403).await;
    for path in ["/api/v1/persistentvolumes/pv", "/api/v1/namespaces/kube-system/secrets/stage"] {
        assert_eq!(call(&n2, "GET", path, &Value::Null).await.code, 403);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_node_writes_itself_and_of_that_not_everything() {
    let server = world().await;
    let (n1, n3) = (server.as_user("n1"), server.client(Identity::node("n3")));
    let other =
        call(&n1, "PATCH", "/api/v1/nodes/n2", &json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(
        refusal(&other),
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""
    );
    let other = call(&n1, "PATCH", "/api/v1/nodes/n2/status", &json!({"status": {"phase": "Running"}})).await;
    assert_eq!(
        refusal(&other),
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""
    );
    let labels = |labels: Value| json!({"metadata": {"name": "n3", "labels": labels}});
    let refused = call(
        &n3,
        "POST",
        "/api/v1/nodes",
        &labels(json!({"node-restriction.kubernetes.io/tier": "x", "node-role.kubernetes.io/master": "", "kubernetes.io/os": "linux"})),
    )
    .await;
    assert_eq!(
        refusal(&refused),
        "nodes \"n3\" is forbidden: node \"n3\" is not allowed to set the following labels: \
         node-restriction.kubernetes.io/tier, node-role.kubernetes.io/master"
    );
    let fine = labels(
        json!({"kubernetes.io/hostname": "n3", "x.node.kubernetes.io/y": "z", "example.org/own": "1"}),
    );
    assert_eq!(call(&n3, "POST", "/api/v1/nodes", &fine).await.code, 201);
    let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let refused = call(&n1, "PATCH", "/api/v1/nodes/n1", &tainted).await;
    assert_eq!(refusal(&refused), "nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints");
    let labelled = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}});
    for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
        let refused = call(&n1, "PATCH", path, &labelled).await;
        assert!(
            refusal(&refused).ends_with("is not allowed to modify labels: node-restriction.kubernetes.io/a"),
            "{path}: {}",
            refused.text
        );
    }
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(call(&n1, "PATCH", "/api/v1/nodes/n1/status", &status).await.code, 200);
    assert_eq!(call(&n1, "DELETE", "/api/v1/nodes/n1", &Value::Null).await.code, 403);
    server.stop().await;
}

#[tokio::test]
async fn a_mirror_pod_brings_no_secrets_and_pods_of_others_are_left_alone() {
    let server = world().await;
    let (n1, n2) = (server.as_user("n1"), server.as_user("n2"));
    let uid = call(&n1, "GET", "/api/v1/nodes/n1", &Value::Null).await.body["metadata"]["uid"].clone();
    let mirror = json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    let with = |path: &str, value: Value| {
        let mut pod = mirror.clone();
        *pod.pointer_mut(path).unwrap_or(&mut Value::Null) = value.clone();
        if let Some(key) = path.strip_prefix("/spec/") {
            pod["spec"][key] = value;
        }
        pod
    };
    let cases = [
        (
            with("/spec/serviceAccountName", json!("robot")),
            "node \"n1\" can not create pods that reference serviceaccounts",
        ),
        (
            with("/spec/imagePullSecrets", json!([{"name": "other"}])),
            "node \"n1\" can not create pods that reference secrets",
        ),
        (
            with("/spec/volumes", json!([{"name": "v", "secret": {"secretName": "other"}}])),
            "node \"n1\" can not create pods that reference secrets",
        ),
        (
            with(
                "/spec/volumes",
                json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
            ),
            "node \"n1\" can not create pods that reference serviceaccounts (via projected volumes)",
        ),
        (
            with("/spec/nodeName", json!("n2")),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            with("/metadata/annotations", json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (
            with("/metadata/ownerReferences", json!([])),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            with("/metadata/ownerReferences/0/uid", json!("no")),
            &format!("node n1 UID mismatch: expected no got {}", uid.as_str().unwrap()),
        ),
        (
            with("/metadata/ownerReferences/0/controller", json!(false)),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
    ];
    for (pod, why) in cases {
        let refused = call(&n1, "POST", &format!("{CORE}/pods"), &pod).await;
        assert_eq!(refusal(&refused), format!("pods \"m\" is forbidden: {why}"));
    }
    let made = call(&n1, "POST", &format!("{CORE}/pods"), &mirror).await;
    assert_eq!(made.code, 201, "{}", made.text);

    let status = json!({"status": {"phase": "Failed"}});
    let refused = call(&n2, "PATCH", &format!("{CORE}/pods/p1/status"), &status).await;
    assert!(
        refusal(&refused)
            .ends_with("node \"n2\" can only update pod status for pods with spec.nodeName set to itself")
    );
    let refused = call(&n2, "DELETE", &format!("{CORE}/pods/p1"), &Value::Null).await;
    assert!(refusal(&refused).ends_with("node \"n2\" can only delete pods with spec.nodeName set to itself"));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1"}});
    let refused = call(&n2, "POST", &format!("{CORE}/pods/p1/eviction"), &eviction).await;
    assert!(refusal(&refused).ends_with("node n2 can only evict pods with spec.nodeName set to itself"));
    let relabelled = json!({"metadata": {"labels": {"app": "x"}}});
    let refused = call(&n1, "PATCH", &format!("{CORE}/pods/p1/status"), &relabelled).await;
    assert!(
        refusal(&refused).ends_with("node \"n1\" cannot update labels through pod status"),
        "{}",
        refused.text
    );
    assert_eq!(call(&n1, "PATCH", &format!("{CORE}/pods/p1/status"), &status).await.code, 200);
    assert_eq!(call(&n1, "DELETE", &format!("{CORE}/pods/p1"), &Value::Null).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn leases_csi_nodes_and_slices_are_each_nodes_own() {
    let server = world().await;
    let (n1, n2) = (server.as_user("n1"), server.as_user("n2"));
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(call(&n1, "POST", leases, &lease("n1")).await.code, 201);
    let refused = call(&n1, "POST", leases, &lease("n2")).await;
    assert!(
        refusal(&refused).ends_with("can only access node lease with the same name as the requesting node")
    );
    let csi = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    assert_eq!(call(&n1, "POST", "/apis/storage.k8s.io/v1/csinodes", &csi("n1")).await.code, 201);
    assert_eq!(call(&n1, "POST", "/apis/storage.k8s.io/v1/csinodes", &csi("n2")).await.code, 403);
    let slice = |name: &str, node: &str| {
        json!({"metadata": {"name": name}, "spec": {
        "driver": "d.example.org", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
    };
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let made = call(&n1, "POST", slices, &slice("s1", "n1")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let refused = call(&n1, "POST", slices, &slice("s2", "n2")).await;
    assert!(
        refusal(&refused)
            .ends_with("can only create ResourceSlice with the same NodeName as the requesting node")
    );
    until(&n1, &format!("{slices}/s1"), 200).await;
    for method in ["GET", "DELETE"] {
        let refused = call(&n2, method, &format!("{slices}/s1"), &Value::Null).await;
        assert!(refusal(&refused).ends_with("no relationship found between node 'n2' and this object"));
    }
    let all = call(&n2, "DELETE", &format!("{slices}?fieldSelector=spec.nodeName%3Dn1"), &Value::Null).await;
    assert_eq!(all.code, 403);
    let own = call(&n1, "DELETE", &format!("{slices}?fieldSelector=spec.nodeName%3Dn1"), &Value::Null).await;
    assert_eq!(own.code, 200, "{}", own.text);
    server.stop().await;
}

fn token(kind: &str, name: &str, uid: &Value) -> Value {
    json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}})
}

#[tokio::test]
async fn a_node_gets_tokens_for_its_own_pods_alone() {
    let server = world().await;
    let (n1, n2) = (server.as_user("n1"), server.as_user("n2"));
    let path = format!("{CORE}/serviceaccounts/robot/token");
    let pod = server.get(&format!("{CORE}/pods/p1")).await.body;
    let uid = &pod["metadata"]["uid"];
    let refused = call(&n2, "POST", &path, &token("Pod", "p1", uid)).await;
    assert!(refusal(&refused).ends_with("no relationship found between node 'n2' and this object"));
    let cases = [
        (json!({}), "node requested token not bound to a pod"),
        (token("Node", "n1", &json!("u")), "node requested token not bound to a pod"),
        (token("Secret", "env", &json!("u")), "node requested token not bound to a pod"),
        (token("Pod", "p1", &json!("")), "node requested token with a pod binding without a uid"),
    ];
    for (body, why) in cases {
        let refused = call(&n1, "POST", &path, &body).await;
        assert_eq!(refusal(&refused), format!("serviceaccounts \"robot\" is forbidden: {why}"));
    }
    let mut foreign = token("Pod", "p1", uid);
    foreign["spec"]["audiences"] = json!(["vault"]);
    let refused = call(&n1, "POST", &path, &foreign).await;
    assert!(
        refusal(&refused).ends_with(
            "audience \"vault\" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"
        ),
        "{}",
        refused.text
    );
    let default = format!("{CORE}/serviceaccounts/default/token");
    assert_eq!(call(&n1, "POST", &default, &token("Pod", "p1", uid)).await.code, 403);
    let made = call(&n1, "POST", &path, &token("Pod", "p1", uid)).await;
    assert_eq!(made.code, 201, "{}", made.text);
    // On another node runs a pod of the same account: the right to the account is not the right to each of its pods.
    let mut second = self::pod("p2", "n2");
    second["spec"]["volumes"] = json!([]);
    assert_eq!(server.post(&format!("{CORE}/pods"), &second).await.code, 201);
    until(&n2, &format!("{CORE}/serviceaccounts/robot"), 200).await;
    let refused = call(&n2, "POST", &path, &token("Pod", "p1", uid)).await;
    assert!(refusal(&refused).ends_with("node requested token bound to a pod scheduled on a different node"));
    server.stop().await;
}

#[tokio::test]
async fn tokens_are_for_the_account_they_name_and_live_as_long_as_what_they_are_bound_to() {
    let server = world().await;
    let path = format!("{CORE}/serviceaccounts/robot/token");
    let ask = |spec: Value| json!({"spec": spec});
    for seconds in [599, (1_i64 << 32) + 1] {
        let refused = server.post(&path, &ask(json!({"expirationSeconds": seconds}))).await;
        assert_eq!(
            (refused.code, refused.body["reason"].as_str()),
            (422, Some("Invalid")),
            "{}",
            refused.text
        );
    }
    let other = server.post(&path, &json!({"metadata": {"name": "default"}})).await;
    assert_eq!(other.code, 422);
    assert!(other.text.contains("must match the service account name if specified"), "{}", other.text);
    let stale = server.post(&path, &json!({"metadata": {"uid": "no"}})).await;
    assert_eq!(stale.code, 409, "{}", stale.text);
    let deployment =
        ask(json!({"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}));
    let refused = server.post(&path, &deployment).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (400, Some("cannot bind token to object of type apps/v1, Kind=Deployment"))
    );
    let wrong = server
        .post(
            &format!("{CORE}/serviceaccounts/default/token"),
            &ask(json!({"boundObjectRef": {"kind": "Pod", "name": "p1"}})),
        )
        .await;
    assert_eq!(wrong.code, 400, "{}", wrong.text);
    let gone = ask(json!({"boundObjectRef": {"kind": "Node", "name": "n1", "uid": "no"}}));
    assert_eq!(server.post(&path, &gone).await.code, 409);

    let bound = server.post(&path, &ask(json!({"boundObjectRef": {"kind": "Node", "name": "n2"}}))).await;
    let header = format!("Bearer {}", bound.body["status"]["token"].as_str().unwrap());
    let headers = [("authorization", header.as_str())];
    assert_eq!(send(&server.nobody(), "GET", "/api", &headers, "").await.code, 200);
    assert_eq!(server.delete("/api/v1/nodes/n2", &Value::Null).await.code, 200);
    assert_eq!(send(&server.nobody(), "GET", "/api", &headers, "").await.code, 401, "its node is gone");
    server.stop().await;
}
