//! The kubelet's HTTPS server as the API server uses it.

use std::{io::Write, sync::Arc};

use futures::AsyncBufReadExt;
use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::api::{Api, LogParams, PostParams};
use podwire_apiserver::pki::Pki;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::cluster::{Cluster, one};

/// Writes the log that the runtime would write.
fn log(cluster: &Cluster, pod: &k8s_openapi::api::core::v1::Pod, text: &str) {
    let (name, uid) = (pod.metadata.name.as_ref().unwrap(), pod.metadata.uid.as_ref().unwrap());
    let folder = cluster.dir.path().join(format!("kubelet/logs/default_{name}_{uid}/app"));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("0.log")).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_through_the_api_server_selected_and_followed() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    let pod = cluster.running("web").await;
    log(&cluster, &pod, "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr F two\n");
    cluster.registered().await;
    let all = cluster.pods().logs("web", &LogParams::default()).await.unwrap();
    assert_eq!(all, "one\ntwo\n");
    let tail = LogParams { tail_lines: Some(1), timestamps: true, ..Default::default() };
    assert_eq!(cluster.pods().logs("web", &tail).await.unwrap(), "2026-01-01T00:00:02Z two\n");
    let follow = LogParams { follow: true, tail_lines: Some(0), ..Default::default() };
    let mut lines = cluster.pods().log_stream("web", &follow).await.unwrap();
    log(&cluster, &pod, "2026-01-01T00:00:03Z stdout F three\n");
    let mut line = String::new();
    lines.read_line(&mut line).await.unwrap();
    assert_eq!(line, "three\n");
    cluster.delete("web", 1).await;
    let mut rest = String::new();
    futures::AsyncReadExt::read_to_string(&mut lines, &mut rest).await.unwrap();
    assert_eq!(rest, "", "the stream ends with the container");
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_a_container_that_never_ran_say_why_there_are_none() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("absent:1")).await;
    cluster.event("web", "Failed").await;
    cluster.registered().await;
    let error = cluster.pods().logs("web", &LogParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("container \"app\" in pod \"web\" is waiting to start"), "{error}");
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

/// A connection to the kubelet's server with this certificate, or none.
async fn connect(cluster: &Cluster, user: Option<(&str, &[&str])>) -> TlsStream<TcpStream> {
    let pki = Pki::open(&cluster.dir.path().join("pki")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match user {
        None => builder.with_no_client_auth(),
        Some((name, groups)) => {
            let pair = pki.issue_client(name, groups).unwrap();
            let chain = vec![CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let socket = TcpStream::connect(("127.0.0.1", cluster.kubelet_port().await)).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
}

/// Sends a request and reads until the end of the answer's head.
async fn ask(stream: &mut TlsStream<TcpStream>, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_turned_away() {
    let cluster = Cluster::start().await;
    cluster.registered().await;
    for (user, path, expected) in [
        (None, "/pods", "401"),
        (None, "/healthz", "401"),
        (Some(("system:node:other", &["system:nodes"] as &[&str])), "/pods", "403"),
        (Some(("somebody", &[] as &[&str])), "/pods", "403"),
        // The API server's own credential has upstream's role for it, and no more.
        (Some(("kube-apiserver-kubelet-client", &[] as &[&str])), "/pods", "200"),
        (Some(("anybody", &["system:masters"] as &[&str])), "/pods", "200"),
    ] {
        let mut stream = connect(&cluster, user).await;
        let head = ask(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: k\r\n\r\n")).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{user:?} {path}: {head}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_opens_what_its_account_may_use() {
    let cluster = Cluster::start().await;
    cluster.registered().await;
    let rules = json!([{"apiGroups": [""], "resources": ["nodes/metrics", "nodes/pods"], "verbs": ["get"]}]);
    let role: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": "scraper"}, "rules": rules})).unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }))
    .unwrap();
    let (params, client) = (PostParams::default(), &cluster.client);
    Api::<ClusterRole>::all(client.clone()).create(&params, &role).await.unwrap();
    Api::<ClusterRoleBinding>::all(client.clone()).create(&params, &binding).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let request = serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": []}})).unwrap();
    let token = accounts.create_token_request("default", &params, &request).await.unwrap();
    let token = token.status.unwrap().token.unwrap();
    for (token, path, expected) in [
        (token.as_str(), "/metrics", "200"),
        (&token, "/pods", "200"),
        (&token, "/stats/summary", "403"),
        (&token, "/healthz", "403"),
        (&token, "/exec/default/web/app", "403"),
        ("forged", "/metrics", "401"),
    ] {
        let mut stream = connect(&cluster, None).await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer {token}\r\n\r\n");
        let head = ask(&mut stream, &request).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{path}: {head}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_connection_is_joined_to_the_runtimes_byte_by_byte() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    cluster.registered().await;
    let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/exec/token", backend.local_addr().unwrap());
    cluster.fake.world.lock().unwrap().exec_url = url;
    let mut stream = connect(&cluster, Some(("kube-apiserver-kubelet-client", &["system:masters"]))).await;
    let client = async {
        let request = "POST /exec/default/web/app?command=echo&command=a%20b&output=1 HTTP/1.1\r\nHost: k\r\n\
            Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
        let head = ask(&mut stream, request).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.to_lowercase().contains("x-chosen: yes"), "{head}");
        stream.write_all(b"ping").await.unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.unwrap();
        answer
    };
    let runtime = async {
        let (mut socket, _) = backend.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Chosen: yes\r\n\r\n";
        socket.write_all(answer.as_bytes()).await.unwrap();
        let mut heard = [0; 4];
        socket.read_exact(&mut heard).await.unwrap();
        socket.write_all(b"pong").await.unwrap();
        (String::from_utf8(head).unwrap().to_lowercase(), heard)
    };
    let ((head, heard), answer) = tokio::join!(runtime, client);
    assert!(head.starts_with("post /exec/token http/1.1"), "{head}");
    assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
    assert_eq!((&heard, &answer), (b"ping", b"pong"));
    assert!(
        cluster
            .fake
            .world
            .lock()
            .unwrap()
            .calls
            .iter()
            .any(|c| c.starts_with("exec ctr") && c.ends_with("echo a b"))
    );
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}
