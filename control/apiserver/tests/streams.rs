//! Logs and upgraded streams, carried through the server to a kubelet that speaks TLS.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use podwire_apiserver::pki::{KeyCert, Pki};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use server::{Server, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

fn der(pair: &KeyCert) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = vec![CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap()];
    (chain, PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap())
}

fn roots(pki: &Pki) -> rustls::RootCertStore {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca_pem().as_bytes()).unwrap()).unwrap();
    roots
}

/// A kubelet of few words: it answers logs with the URI it was asked for and echoes upgraded bytes.
async fn kubelet(pki: &Pki) -> (u16, JoinSet<()>) {
    let (chain, key) = der(&pki.issue_node_server("n1", &["127.0.0.1".to_owned()]).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pki)), provider.clone());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients.build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let stream = acceptor.accept(stream).await.expect("the API server shows its certificate");
                let service =
                    hyper::service::service_fn(|request| async { Ok::<_, hyper::Error>(answer(request)) });
                let http = hyper::server::conn::http1::Builder::new();
                // Ignored: the other side may close at any time.
                http.serve_connection(TokioIo::new(stream), service).with_upgrades().await.ok();
            });
        }
    });
    (port, tasks)
}

fn answer(mut request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let uri = request.uri().to_string();
    if !request.headers().contains_key(header::UPGRADE) {
        let missing = uri.contains("previous=true");
        let code = if missing { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        let mut response =
            Response::new(Full::from(if missing { "no previous container".into() } else { uri }));
        *response.status_mut() = code;
        return response;
    }
    assert!(!request.headers().contains_key(header::AUTHORIZATION), "a client's credentials stay here");
    let upgraded = hyper::upgrade::on(&mut request);
    let mut set = JoinSet::new();
    set.spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        stream.write_all(uri.as_bytes()).await.unwrap();
        let mut buffer = [0_u8; 64];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            stream.write_all(&buffer[..read]).await.unwrap();
        }
    });
    set.detach_all();
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
    response.headers_mut().insert(header::UPGRADE, "websocket".parse().unwrap());
    response
}

async fn place_pod(server: &Server, port: u16) {
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}});
    assert_eq!(server.post(pods, &pod).await.code, 201);
    let node = json!({"metadata": {"name": "n1"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    assert_eq!(server.post("/api/v1/nodes", &node).await.code, 201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(server.post(&format!("{pods}/p/binding"), &binding).await.code, 201);
}

#[tokio::test]
async fn logs_come_from_the_kubelet_of_the_pod() {
    let server = start().await;
    let (port, _tasks) = kubelet(&server.pki).await;
    place_pod(&server, port).await;
    let pods: Api<Pod> =
        Api::default_namespaced(server.remote("kubernetes-admin", &["system:masters"]).await);
    let options = LogParams { container: Some("d".into()), tail_lines: Some(5), ..LogParams::default() };
    assert_eq!(pods.logs("p", &options).await.unwrap(), "/containerLogs/default/p/d?tailLines=5");
    let path = "/api/v1/namespaces/default/pods/p/log";
    let unnamed = server.get(path).await;
    assert_eq!(
        (unnamed.code, unnamed.body["message"].as_str()),
        (400, Some("a container name must be specified for pod p, choose one of: [c d]"))
    );
    let unknown = server.get(&format!("{path}?container=x")).await;
    assert_eq!(unknown.body["message"], "container x is not valid for pod p");
    let refused = server.get(&format!("{path}?container=c&previous=true")).await;
    assert_eq!((refused.code, refused.body["message"].as_str()), (400, Some("no previous container")));
    server.stop().await;
}

type Sender = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;

/// A connection of the administrator's.
async fn connect(server: &Server) -> (Sender, String, JoinSet<()>) {
    let (chain, key) = der(&server.pki.issue_client("kubernetes-admin", &["system:masters"]).unwrap());
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(&server.pki))
            .with_client_auth_cert(chain, key)
            .unwrap();
    let address = server.url.trim_start_matches("https://").to_owned();
    let tcp = TcpStream::connect(&address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), tcp).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // Ignored: the test ends with the connection open.
        connection.with_upgrades().await.ok();
    });
    (sender, address, tasks)
}

fn upgrade(address: &str, path: &str, protocol: &str) -> Request<Empty<Bytes>> {
    let mut request = Request::builder()
        .uri(path)
        .header(header::HOST, address)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    if !protocol.is_empty() {
        request = request.header("sec-websocket-protocol", protocol);
    }
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn a_log_is_told_over_a_websocket_to_who_asks_for_one() {
    let server = start().await;
    let (port, _tasks) = kubelet(&server.pki).await;
    place_pod(&server, port).await;
    let log = "/api/v1/namespaces/default/pods/p/log?container=d";
    let text = "/containerLogs/default/p/d";
    let base64 = "L2NvbnRhaW5lckxvZ3MvZGVmYXVsdC9wL2Q=";
    for (protocol, opcode, payload) in
        [("", 0x82, text), ("binary.k8s.io", 0x82, text), ("base64.binary.k8s.io", 0x81, base64)]
    {
        let (mut sender, address, _connection) = connect(&server).await;
        let mut response = sender.send_request(upgrade(&address, log, protocol)).await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        let mut told = Vec::new();
        // Ignored: how the connection is closed after the close frame is up to the other side.
        stream.read_to_end(&mut told).await.ok();
        let mut expected = vec![opcode, 0, opcode, u8::try_from(payload.len()).unwrap()];
        expected.extend(payload.as_bytes());
        expected.extend([0x88, 2, 0x03, 0xe8]);
        assert_eq!(told, expected, "{protocol}");
    }
    let (mut sender, address, _connection) = connect(&server).await;
    let response = sender.send_request(upgrade(&address, log, "chat")).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    server.stop().await;
}

#[tokio::test]
async fn an_upgraded_stream_is_carried_both_ways() {
    let server = start().await;
    let (port, _tasks) = kubelet(&server.pki).await;
    place_pod(&server, port).await;
    let (mut sender, address, _connection) = connect(&server).await;
    let exec = "/api/v1/namespaces/default/pods/p/exec?container=c&command=echo&command=a%20b&stdin=true&stdout=true";
    let mut response = sender.send_request(upgrade(&address, exec, "")).await.unwrap();
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        panic!("{:?}", response.into_body().collect().await.unwrap().to_bytes());
    }
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let expected = "/exec/default/p/c?input=1&output=1&command=echo&command=a%20b";
    let mut head = vec![0; expected.len()];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(String::from_utf8(head).unwrap(), expected);
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    drop(stream);
    server.stop().await;
}
