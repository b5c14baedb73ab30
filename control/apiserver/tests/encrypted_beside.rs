//! kube-apiserver and this server on one real etcd with one encryption configuration: each reads what the other has written, by every
//! provider, and what lies there says nothing.
#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;
#[path = "beside/sides.rs"]
mod sides;
#[path = "differential/upstream.rs"]
#[allow(dead_code, reason = "shared with the differential test")]
mod upstream;

use std::sync::Arc;

use podwire_apiserver::{Encrypted, Encryption, Transcoded};
use podwire_store::{RemoteConfig, Store};
use serde_json::{Value, json};
use sides::Side;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Each provider, with keys of each length, for a resource of its own; the rest by group and at all.
const CONFIGURATION: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: k1, secret: dGhpcyBpcyB0aGUga2V5IG9mIGEgc2VjcmV0Ym94ISE=}]}
  - identity: {}
- resources: [configmaps]
  providers:
  - aesgcm: {keys: [{name: k2, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz}]}
- resources: [serviceaccounts]
  providers:
  - identity: {}
  - aescbc: {keys: [{name: k5, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
- resources: ['*.apps']
  providers:
  - secretbox: {keys: [{name: k3, secret: dGhpcyBpcyB0aGUga2V5IG9mIGEgc2VjcmV0Ym94ISE=}]}
- resources: ['*.*']
  providers:
  - aesgcm: {keys: [{name: k4, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
";

/// An object with a word in it, by collection, key and what its value begins with.
fn objects() -> [(&'static str, &'static str, &'static str, Value); 5] {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "hushhush"}]}});
    [
        (
            "/api/v1/namespaces/default/secrets",
            "secrets/default",
            "k8s:enc:aescbc:v1:k1:",
            json!({"stringData": {"k": "hushhush"}}),
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            "configmaps/default",
            "k8s:enc:aesgcm:v1:k2:",
            json!({"data": {"k": "hushhush"}}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            "deployments/default",
            "k8s:enc:secretbox:v1:k3:",
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "leases/default",
            "k8s:enc:aesgcm:v1:k4:",
            json!({"spec": {"holderIdentity": "hushhush"}}),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            "serviceaccounts/default",
            "k8s\0",
            json!({"metadata": {"annotations": {"a": "hushhush"}}}),
        ),
    ]
}

async fn one(maker: &Side, reader: &Side, raw: &dyn Store, name: &str) {
    for (collection, place, begins, mut object) in objects() {
        object["metadata"]["name"] = name.into();
        let (code, made) = maker.ask("POST", collection, &object).await;
        assert_eq!(code, 201, "{collection}: {made}");
        let stored = raw.get(&format!("/registry/{place}/{name}")).await.unwrap().unwrap().value;
        assert!(stored.starts_with(begins.as_bytes()), "{collection}: {:?}", stored.slice(..40));
        let shown = stored.windows(8).any(|part| part == b"hushhush" || part == b"aHVzaGh1");
        assert_eq!(shown, begins == "k8s\0", "{collection}: only what is not encrypted can be read there");
        let path = format!("{collection}/{name}");
        let (code, read) = reader.ask("GET", &path, &Value::Null).await;
        assert_eq!(code, 200, "{collection}: {read}");
        assert_eq!(read, maker.ask("GET", &path, &Value::Null).await.1, "{collection}: the same by both");
        let list = reader.ask("GET", collection, &Value::Null).await.1;
        let listed = list["items"].as_array().unwrap().iter().any(|item| item["metadata"]["name"] == name);
        assert!(listed, "{collection}: {list}");
        let mut changed = read.clone();
        changed["metadata"]["labels"] = json!({"by": "the-other"});
        let (code, answer) = reader.ask("PUT", &path, &changed).await;
        assert_eq!(code, 200, "{collection}: {answer}");
        let again = maker.ask("GET", &path, &Value::Null).await.1;
        assert_eq!(again["metadata"]["labels"]["by"], "the-other", "{collection}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_encrypts_the_other_reads_by_every_provider() {
    let dir = tempfile::tempdir().unwrap();
    let pki = sides::pki(dir.path());
    let file = dir.path().join("encryption.yaml");
    std::fs::write(&file, CONFIGURATION).unwrap();
    let flag = format!("--encryption-provider-config={}", file.display());
    let (running, theirs) = sides::theirs(&pki, &[&flag]).await;
    let (tasks, shutdown) = (TaskTracker::new(), CancellationToken::new());
    let remote = RemoteConfig::new(vec![running.etcd.clone()]).connect().await.unwrap();
    let encryption = Arc::new(Encryption::read(&file, "/registry").unwrap());
    let store = Arc::new(Transcoded::new(Encrypted::new(remote.clone(), encryption.clone())));
    let with = |config: &mut podwire_apiserver::Config| config.encryption = Some(encryption);
    let ours = sides::ours(dir.path(), store, with, &tasks, &shutdown).await;
    one(&theirs, &ours, &remote, "theirs").await;
    one(&ours, &theirs, &remote, "ours").await;
    // What no wildcard is for: the bitmap of node ports.
    let body = json!({"metadata": {"name": "ports"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(ours.ask("POST", services, &body).await.0, 201);
    assert_eq!(theirs.ask("DELETE", &format!("{services}/ports"), &Value::Null).await.0, 200);
    assert_eq!(theirs.ask("POST", services, &body).await.0, 201);
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    running.stop().await;
}
