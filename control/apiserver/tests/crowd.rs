//! Many watchers, slow ones, ones that vanish, and requests that are too large: nobody else notices.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::json;
use server::{Server, Watch, start, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Watches in all, spread over connections as client programs do.
const WATCHES: usize = 10_000;
const CONNECTIONS: usize = 8;
/// Long enough for a debug build on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(180);

async fn connect(server: &Server, protocol: &[u8]) -> TlsStream<TcpStream> {
    let pair = server.pki.issue_client("kubernetes-admin", &["system:masters"]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let address = server.url.strip_prefix("https://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// One connection with many watches on it; gone with its task.
struct Watchers {
    _connection: JoinSet<()>,
    bodies: Vec<Incoming>,
}

impl Watchers {
    async fn open(server: &Server, path: &str, count: usize) -> Self {
        let stream = TokioIo::new(connect(server, b"h2").await);
        let (mut sender, driver): (SendRequest<Empty<Bytes>>, _) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            // Ignored: the test ends connections as it likes.
            driver.await.ok();
        });
        let mut bodies = Vec::with_capacity(count);
        for _ in 0..count {
            let uri = format!("{}{path}", server.url);
            let request = http::Request::get(uri).body(Empty::new()).unwrap();
            sender.ready().await.unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            bodies.push(response.into_body());
        }
        Self { _connection: connection, bodies }
    }

    /// Waits until every watch has said the name.
    async fn hear(&mut self, name: &str) {
        let needle = format!("\"name\":\"{name}\"");
        let all = stream::iter(&mut self.bodies).for_each_concurrent(None, |body| {
            let needle = &needle;
            async move {
                let mut heard = Vec::new();
                while !String::from_utf8_lossy(&heard).contains(needle.as_str()) {
                    let frame = body.frame().await.expect("the watch goes on").unwrap();
                    heard.extend_from_slice(&frame.into_data().unwrap_or_default());
                }
            }
        });
        tokio::time::timeout(PATIENCE, all).await.expect("every watch hears of the change");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_watches_hear_a_change_and_half_of_them_may_vanish() {
    let server = start().await;
    let first = server.post(MAPS, &json!({"metadata": {"name": "first"}})).await;
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&first.body));
    let mut crowd = Vec::new();
    for _ in 0..CONNECTIONS {
        crowd.push(Watchers::open(&server, &path, WATCHES / CONNECTIONS).await);
    }
    assert_eq!(crowd.iter().map(|one| one.bodies.len()).sum::<usize>(), WATCHES);
    server.post(MAPS, &json!({"metadata": {"name": "second"}})).await;
    for watchers in &mut crowd {
        watchers.hear("second").await;
    }
    // Half of them go without a word.
    crowd.truncate(CONNECTIONS / 2);
    server.post(MAPS, &json!({"metadata": {"name": "third"}})).await;
    for watchers in &mut crowd {
        watchers.hear("third").await;
    }
    drop(crowd);
    assert_eq!(server.get(&format!("{MAPS}/third")).await.code, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_does_not_read_is_cut_off_and_costs_nobody_else() {
    /// More than the history of changes holds.
    const LARGE: usize = 48;
    let server = start().await;
    let first = server.post(MAPS, &json!({"metadata": {"name": "first"}})).await;
    let path = format!("{MAPS}?watch=true&resourceVersion={}", version(&first.body));
    let mut slow = connect(&server, b"http/1.1").await;
    slow.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut begun = vec![0; 12];
    slow.read_exact(&mut begun).await.unwrap();
    assert_eq!(begun, b"HTTP/1.1 200");
    let mut good = Watch::open(&server.admin, &path).await;
    let value = "x".repeat(1_000_000);
    for number in 0..LARGE {
        let name = format!("large{number}");
        let made = server.post(MAPS, &json!({"metadata": {"name": name}, "data": {"v": value}})).await;
        assert_eq!(made.code, 201, "a write does not wait for the slow watcher");
        // Nobody else misses or waits for anything.
        assert_eq!(good.brief().await, ("ADDED".into(), name, version(&made.body)));
    }
    let mut rest = 0;
    let mut buffer = vec![0; 1 << 20];
    // The end of the stream may be followed by a connection that is kept alive: silence counts as its end.
    while let Ok(Ok(count)) = tokio::time::timeout(Duration::from_secs(5), slow.read(&mut buffer)).await {
        if count == 0 {
            break;
        }
        rest += count;
    }
    assert!(rest < LARGE * 1_000_000, "the slow watcher was sent all {rest} bytes");
    server.stop().await;
}

#[tokio::test]
async fn requests_that_are_too_large_are_refused() {
    let server = start().await;
    let large = "x".repeat((3 << 20) + 1);
    let answer = server.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"v": large}})).await;
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Request entity too large: limit is 3145728", "reason": "RequestEntityTooLarge", "code": 413,
    });
    assert_eq!((answer.code, &answer.body), (413, &refusal));
    // The same for a body whose length nobody announced, before all of it has come.
    let endless =
        stream::repeat_with(|| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b' '; 64 << 10]))));
    let request = http::Request::post(MAPS).body(StreamBody::new(endless)).unwrap();
    let response = tower::ServiceExt::oneshot(server.admin.clone(), request).await.unwrap();
    assert_eq!(response.status(), 413);
    // And over a socket by its announced length alone.
    let mut stream = connect(&server, b"http/1.1").await;
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut begun = vec![0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut begun)).await.unwrap().unwrap();
    assert_eq!(begun, b"HTTP/1.1 413");
    let request =
        http::Request::get(format!("{MAPS}?x={}", "y".repeat(100))).body(Full::new(Bytes::new())).unwrap();
    let response = tower::ServiceExt::oneshot(server.admin.clone(), request).await.unwrap();
    assert_eq!(response.status(), 200, "the server goes on");
    server.stop().await;
}
