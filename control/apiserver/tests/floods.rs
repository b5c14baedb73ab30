//! Clients that send slowly, read nothing, ask too much at once or only hold connections: none of them keeps others out.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::sync::Arc;
use std::time::Duration;

use podwire_apiserver::Limits;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::json;
use server::{Server, start_limited};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Long enough for a debug build on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

async fn start(limits: Limits) -> Server {
    start_limited(Arc::new(tempfile::tempdir().unwrap()), limits).await
}

async fn plain(server: &Server) -> TcpStream {
    TcpStream::connect(server.url.strip_prefix("https://").unwrap()).await.unwrap()
}

/// A connection that speaks HTTP/1.1 as a user.
async fn connect(server: &Server, user: &str, groups: &[&str]) -> TlsStream<TcpStream> {
    let pair = server.pki.issue_client(user, groups).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, plain(server).await).await.unwrap()
}

/// Everything up to the end of the connection.
async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    // Ignored: a connection that is cut off has ended as well.
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().ok();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One request over a connection of its own.
async fn ask(server: &Server, user: &str, groups: &[&str], head: &str, body: &str) -> String {
    let mut stream = connect(server, user, groups).await;
    let length = body.len();
    let text = format!(
        "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for_and_its_place_is_free_again() {
    let limits = Limits { writes: 1, body: Duration::from_millis(1500), ..Limits::default() };
    let server = start(limits).await;
    let masters = ["system:masters"];
    let mut slow = connect(&server, "slow", &masters).await;
    let head = format!("POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.unwrap();
    // Somebody without rights is refused for that, or because the only place is taken.
    let head = format!("POST {MAPS}");
    let mut refused = String::new();
    while !refused.starts_with("HTTP/1.1 429") {
        refused = ask(&server, "jane", &[], &head, "{}").await;
        assert!(refused.starts_with("HTTP/1.1 429") || refused.starts_with("HTTP/1.1 403"), "{refused}");
    }
    let refused = refused.to_ascii_lowercase();
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.ends_with("too many requests, please try again later.\n"), "{refused}");
    // The masters and those inside this process are served all the same.
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let made = ask(&server, "root", &masters, &head, &body).await;
    assert!(made.starts_with("HTTP/1.1 201"), "{made}");
    assert_eq!(server.post(MAPS, &json!({"metadata": {"name": "b"}})).await.code, 201);

    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(answer.contains("Timeout: request did not complete within the allotted timeout"), "{answer}");
    let after = ask(&server, "jane", &[], &head, "{}").await;
    assert!(after.starts_with("HTTP/1.1 403"), "{after}");
    server.stop().await;
}

#[tokio::test]
async fn a_request_has_a_minute_or_what_the_client_gives_it() {
    let server = start(Limits { request: Duration::from_millis(300), ..Limits::default() }).await;
    // The newest revision is waited for, and this one is far away.
    let path = format!("{MAPS}?resourceVersion=1000000&resourceVersionMatch=NotOlderThan");
    let answer = server.get(&path).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (504, Some("Timeout")));
    let words = "Timeout: request did not complete within the allotted timeout";
    assert_eq!(answer.body["message"], words);
    let answer = server.get(&format!("{path}&timeout=10ms")).await;
    assert_eq!(answer.body["message"], words);
    let answer = server.get(&format!("{path}&timeout=soon")).await;
    assert_eq!(
        (answer.code, answer.body["message"].as_str()),
        (400, Some("invalid timeout specified in the request URL - time: invalid duration \"soon\""))
    );
    server.stop().await;
}

#[tokio::test]
async fn connections_are_bounded_and_idle_ones_make_room() {
    let limits = Limits { connections: 4, idle: Duration::from_millis(1500), ..Limits::default() };
    let server = start(limits).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connect(&server, "idle", &[]).await);
    }
    let mut fifth = plain(&server).await;
    assert_eq!(rest(&mut fifth).await, "", "turned away at once");
    assert_eq!(server.get("/readyz").await.code, 200, "those inside are served");
    for stream in &mut held {
        assert_eq!(rest(stream).await, "", "ended for doing nothing");
    }
    let answer = ask(&server, "root", &["system:masters"], "GET /version", "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn who_does_not_read_its_answers_loses_its_connection() {
    let limits = Limits {
        reads: 1,
        request: Duration::from_millis(2000),
        idle: Duration::from_millis(800),
        ..Limits::default()
    };
    let server = start(limits).await;
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let object = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(1 << 20)}});
        assert_eq!(server.post(MAPS, &object).await.code, 201);
    }
    // More than fits into the buffers of a socket.
    let mut stalled = connect(&server, "root", &["system:masters"]).await;
    let many: String = (0..4).map(|_| format!("GET {MAPS} HTTP/1.1\r\nhost: x\r\n\r\n")).collect();
    stalled.write_all(many.as_bytes()).await.unwrap();
    let head = format!("GET {MAPS}");
    let mut codes = Vec::new();
    let until = tokio::time::Instant::now() + PATIENCE;
    while codes.last() != Some(&"403".to_owned()) || !codes.contains(&"429".to_owned()) {
        assert!(tokio::time::Instant::now() < until, "{codes:?}");
        codes.push(ask(&server, "jane", &[], &head, "").await[9..12].to_owned());
    }
    let read = rest(&mut stalled).await;
    assert!(read.len() < 4 * (8 << 20), "cut off before the end");
    server.stop().await;
}
