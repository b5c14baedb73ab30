//! `proxy` of pods, services and nodes: what reaches a backend, what comes back, and what is refused.
//!
//! Each test runs in a network namespace of its own, as pods at loopback addresses are refused.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/backend.rs"]
mod backend;
#[path = "support/inside.rs"]
mod inside;
#[path = "support/server.rs"]
mod server;
#[path = "support/webhook.rs"]
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use inside::{ADDRESS, inside};
use podwire_apiserver::Identity;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use server::{Answer, Server, send, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tower::ServiceExt;
use webhook::{Reply, Webhook};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A pod at an address, with a container that has this port.
async fn make_pod(server: &Server, name: &str, ip: &str, port: u16) {
    let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [
        {"name": "c", "image": "i"}, {"name": "d", "image": "i", "ports": [{"containerPort": port, "name": "web"}]}]}});
    assert_eq!(server.post(PODS, &pod).await.code, 201);
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let path = format!("{PODS}/{name}/status");
    let patched = server.patch(&path, "application/merge-patch+json", &status).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
}

async fn make_service(server: &Server, name: &str, selector: &Value) {
    let service = json!({"metadata": {"name": name}, "spec": {"selector": selector, "ports": [
        {"name": "web", "port": 80, "targetPort": "web"}, {"name": "other", "port": 81}]}});
    let made = server.post(SERVICES, &service).await;
    assert_eq!(made.code, 201, "{}", made.text);
}

fn code_and_words(answer: &Answer) -> (u16, &str) {
    (answer.code, answer.body["message"].as_str().unwrap_or(&answer.text))
}

/// Asks until the answer has this code: what was written is followed a moment later. Ten seconds are enough.
async fn get_until(server: &Server, path: &str, code: u16) -> Answer {
    let begun = std::time::Instant::now();
    loop {
        let answer = server.get(path).await;
        if answer.code == code || begun.elapsed() > Duration::from_secs(10) {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_pod_is_asked_by_its_name_and_port_with_every_method() {
    if !inside("a_pod_is_asked_by_its_name_and_port_with_every_method") {
        return;
    }
    let server = start().await;
    let backend = backend::plain(ADDRESS).await;
    let secure = backend::tls(ADDRESS, &server.pki, "nobody.example", false).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    let port = backend.port;
    for id in
        ["p".to_owned(), format!("p:{port}"), format!("http:p:{port}"), format!("https:p:{}", secure.port)]
    {
        let answer = server.get(&format!("{PODS}/{id}/proxy/a/b%20c?x=1&y=%2F")).await;
        assert_eq!(
            (answer.code, &answer.body["uri"]),
            (200, &json!("/a/b%20c?x=1&y=%2F")),
            "{id}: {}",
            answer.text
        );
    }
    for (method, body) in
        [("POST", "new"), ("PUT", "changed"), ("PATCH", "some"), ("DELETE", ""), ("OPTIONS", "")]
    {
        let answer = send(&server.admin, method, &format!("{PODS}/p/proxy/x"), &[], body).await;
        let told = (&answer.body["method"], &answer.body["body"]);
        assert_eq!((answer.code, told), (200, (&json!(method), &json!(body))), "{}", answer.text);
    }
    let head = send(&server.admin, "HEAD", &format!("{PODS}/p/proxy/teapot"), &[], "").await;
    assert_eq!(
        (head.code, head.headers["retry-after"].to_str().unwrap(), head.text.as_str()),
        (418, "7", "")
    );
    let trace = send(&server.admin, "TRACE", &format!("{PODS}/p/proxy/x"), &[], "").await;
    assert_eq!(trace.code, 405);
    // Nothing leaves the backend's root, and what is empty goes.
    for (asked, seen) in
        [("/../../x", "/x"), ("//a//b", "/a/b"), ("/%2e%2e/%2e%2e/etc/", "/etc/"), ("/a%2Fb", "/a/b")]
    {
        let answer = server.get(&format!("{PODS}/p/proxy{asked}")).await;
        assert_eq!(answer.body["uri"], seen, "{asked}");
    }
    let plain = send(&server.admin, "POST", &format!("{PODS}/p/proxy"), &[], "x").await;
    assert_eq!(plain.body["uri"], "/");
    let moved = server.get(&format!("{PODS}/p/proxy?q=1")).await;
    assert_eq!(
        (moved.code, moved.headers["location"].to_str().unwrap()),
        (301, "/api/v1/namespaces/default/pods/p/proxy/?q=1")
    );
    server.stop().await;
}

#[tokio::test]
async fn what_proves_who_the_client_is_stays_here() {
    if !inside("what_proves_who_the_client_is_stays_here") {
        return;
    }
    let server = start().await;
    let backend = backend::plain(ADDRESS).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    let headers = [
        ("authorization", "Bearer secret"),
        ("impersonate-user", "jane"),
        ("impersonate-group", "system:masters"),
        ("x-remote-user", "root"),
        ("x-remote-uid", "0"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-scopes", "all"),
        ("proxy-authorization", "Basic x"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("x-forwarded-for", "192.0.2.1"),
        ("cookie", "kept=1"),
        ("x-own", "kept"),
    ];
    let client = server.remote("kubernetes-admin", &["system:masters"]).await;
    let mut request = http::Request::get(format!("{PODS}/p/proxy/dir/x/"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let answer = client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let told: Value = serde_json::from_slice(&bytes).unwrap();
    let seen = told["headers"].as_object().unwrap();
    let names: Vec<&str> = seen.keys().map(String::as_str).collect();
    assert_eq!(names, ["cookie", "te", "x-forwarded-for", "x-forwarded-uri", "x-own"]);
    assert_eq!(seen["x-forwarded-for"], json!(["192.0.2.1, 127.0.0.1"]));
    assert_eq!(seen["x-forwarded-uri"], json!(["/api/v1/namespaces/default/pods/p/proxy/dir/x/"]));
    server.stop().await;
}

#[tokio::test]
async fn answers_come_back_without_what_belongs_to_the_hop_and_with_links_that_lead_here() {
    if !inside("answers_come_back_without_what_belongs_to_the_hop_and_with_links_that_lead_here") {
        return;
    }
    let server = start().await;
    let backend = backend::plain(ADDRESS).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    let at = |path: &str| format!("{PODS}/p/proxy{path}");
    let own = server.get(&at("/headers")).await;
    assert_eq!((own.text.as_str(), own.headers["x-own"].to_str().unwrap()), ("headers", "kept"));
    assert!(
        !own.headers.contains_key("access-control-allow-origin") && !own.headers.contains_key("keep-alive")
    );
    let caches: Vec<_> = own.headers.get_all("cache-control").iter().collect();
    assert_eq!(caches, ["no-cache, private", "max-age=60"]);
    let moved = server.get(&at("/redirect")).await;
    assert_eq!(
        (moved.code, moved.headers["location"].to_str().unwrap()),
        (302, at("/elsewhere?q=1").as_str())
    );
    let away = server.get(&at("/away")).await;
    assert_eq!((away.code, away.headers["location"].to_str().unwrap()), (307, "http://other/x"));
    let expected = format!(
        r#"<html><a href="{}">x</a><a href="y">y</a><img src="http://other/z"/><script>"<a href='/no'>"</script></html>"#,
        at("/x?a=1&amp;b=2")
    );
    assert_eq!(server.get(&at("/page")).await.text, expected);
    let packed = server::raw(&server.admin, "GET", &at("/packed"), &[], "").await;
    let packed = packed.into_body().collect().await.unwrap().to_bytes();
    let mut unpacked = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, expected);
    // A page that is too long to be looked through comes as it is, and whole.
    assert_eq!(server.get(&at("/endless")).await.text.len(), 160 * 65536);
    server.stop().await;
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    if !inside("bodies_are_streamed_both_ways") {
        return;
    }
    let server = start().await;
    let mut backend = backend::plain(ADDRESS).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    // More than any object may have.
    let pieces = (0..80).map(|_| Ok::<_, std::io::Error>(Frame::data(Bytes::from(vec![b'y'; 65536]))));
    let body = StreamBody::new(futures::stream::iter(pieces));
    let request = http::Request::post(format!("{PODS}/p/proxy/up")).body(body).unwrap();
    let answer = server.admin.clone().oneshot(request).await.unwrap();
    let told: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(told["length"], 80 * 65536);
    let path = format!("{PODS}/p/proxy/stream");
    let answer = server::raw(&server.admin, "GET", &path, &[], "");
    let (answer, sender) = tokio::join!(answer, backend.streams.recv());
    let (mut body, sender) = (answer.into_body(), sender.unwrap());
    for piece in ["one", "two"] {
        sender.send(piece).await.unwrap();
        let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await.unwrap();
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), piece);
    }
    // Who goes away is not waited for: the backend's connection ends too.
    drop(body);
    tokio::time::timeout(Duration::from_secs(10), sender.closed()).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_service_is_asked_at_a_ready_pod_of_its_port() {
    if !inside("a_service_is_asked_at_a_ready_pod_of_its_port") {
        return;
    }
    let server = start().await;
    let backend = backend::plain(ADDRESS).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    let uri = |answer: &Answer| answer.body["uri"].clone();
    // Nobody has written endpoints: by its selector.
    make_service(&server, "s", &json!({"app": "p"})).await;
    for id in ["s:80", "s:web", "http:s:web"] {
        let answer = get_until(&server, &format!("{SERVICES}/{id}/proxy/x"), 200).await;
        assert_eq!(uri(&answer), "/x", "{id}: {}", answer.text);
    }
    let refused = [
        ("s", 503, "no endpoints available for service \"s\""),
        ("s:7", 503, "no service port 7 found for service \"s\""),
        ("s:none", 503, "no endpoints available for service \"s:none\""),
        ("none", 404, "services \"none\" not found"),
        ("none:80", 404, "services \"none\" not found"),
        ("ftp:s:80", 400, "invalid service request \"ftp:s:80\""),
    ];
    for (id, code, words) in refused {
        let answer = server.get(&format!("{SERVICES}/{id}/proxy/")).await;
        assert_eq!(code_and_words(&answer), (code, words), "{id}");
    }
    // By slices, and only to endpoints that are pods of this address.
    make_service(&server, "t", &Value::Null).await;
    let none = server.get(&format!("{SERVICES}/t:80/proxy/")).await;
    assert_eq!(code_and_words(&none), (404, "services \"t\" not found"));
    let slice = |target: Value, ready: bool| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "t-1", "labels": {"kubernetes.io/service-name": "t"}},
            "ports": [{"name": "web", "port": backend.port}],
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": ready}, "targetRef": target}]})
    };
    let pod = json!({"kind": "Pod", "name": "p", "namespace": "default"});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let made = server.post(slices, &slice(pod.clone(), true)).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(uri(&get_until(&server, &format!("{SERVICES}/t:80/proxy/x"), 200).await), "/x");
    for wrong in [
        slice(Value::Null, true),
        slice(json!({"kind": "Pod", "name": "q", "namespace": "default"}), true),
        slice(pod.clone(), false),
    ] {
        assert_eq!(server.put(&format!("{slices}/t-1"), &wrong).await.code, 200);
        let answer = get_until(&server, &format!("{SERVICES}/t:80/proxy/"), 503).await;
        assert_eq!(code_and_words(&answer), (503, "no endpoints available for service \"t:80\""));
    }
    // By Endpoints, which upstream of this version looks at.
    let endpoints = |subsets: Value| json!({"metadata": {"name": "t"}, "subsets": subsets});
    let path = "/api/v1/namespaces/default/endpoints";
    let subsets = json!([{"addresses": [{"ip": ADDRESS, "targetRef": pod}], "ports": [{"name": "web", "port": backend.port}]}]);
    assert_eq!(server.post(path, &endpoints(subsets)).await.code, 201);
    assert_eq!(uri(&server.get(&format!("{SERVICES}/t:web/proxy/y")).await), "/y");
    server.stop().await;
}

#[tokio::test]
async fn a_node_is_asked_at_its_kubelet_with_our_certificate_or_at_a_port() {
    if !inside("a_node_is_asked_at_its_kubelet_with_our_certificate_or_at_a_port") {
        return;
    }
    let server = start().await;
    let kubelet = backend::tls(ADDRESS, &server.pki, ADDRESS, true).await;
    let (plain, other) =
        (backend::plain(ADDRESS).await, backend::tls(ADDRESS, &server.pki, "x.example", false).await);
    let node = |name: &str, address: &str, port: u16| {
        json!({"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})
    };
    assert_eq!(server.post("/api/v1/nodes", &node("n1", ADDRESS, kubelet.port)).await.code, 201);
    let ids = [
        "n1".to_owned(),
        format!("n1:{}", kubelet.port),
        format!("n1:{}", plain.port),
        format!("https:n1:{}", other.port),
    ];
    for id in ids {
        let answer = server.get(&format!("/api/v1/nodes/{id}/proxy/stats/summary")).await;
        assert_eq!(
            (answer.code, &answer.body["uri"]),
            (200, &json!("/stats/summary")),
            "{id}: {}",
            answer.text
        );
    }
    // A kubelet that is not of this cluster's authority is not believed.
    assert_eq!(server.post("/api/v1/nodes", &node("n2", ADDRESS, other.port)).await.code, 201);
    let stranger = server.get("/api/v1/nodes/n2/proxy/").await;
    assert_eq!(stranger.code, 503, "{}", stranger.text);
    for (name, address) in
        [("here", "127.0.0.1"), ("link", "169.254.169.254"), ("mapped", "::ffff:127.0.0.1")]
    {
        assert_eq!(server.post("/api/v1/nodes", &node(name, address, 10250)).await.code, 201);
        let answer = server.get(&format!("/api/v1/nodes/{name}:80/proxy/")).await;
        assert_eq!(code_and_words(&answer), (400, "address not allowed"), "{name}");
    }
    let none = server.get("/api/v1/nodes/none/proxy/").await;
    assert_eq!(code_and_words(&none), (404, "nodes \"none\" not found"));
    server.stop().await;
}

#[tokio::test]
async fn nobody_gets_to_this_machine_nor_to_its_link() {
    if !inside("nobody_gets_to_this_machine_nor_to_its_link") {
        return;
    }
    let server = start().await;
    let here = backend::plain("127.0.0.1").await;
    for (name, ip) in [("here", "127.0.0.1"), ("link", "169.254.169.254"), ("all", "0.0.0.0"), ("six", "::1")]
    {
        make_pod(&server, name, ip, here.port).await;
        for id in [name.to_owned(), format!("{name}:{}", here.port)] {
            let answer = server.get(&format!("{PODS}/{id}/proxy/")).await;
            assert_eq!(code_and_words(&answer), (400, "address not allowed"), "{id}");
        }
    }
    // A service that selects such a pod leads nowhere either.
    make_service(&server, "s", &json!({"app": "here"})).await;
    let none = "no endpoints available for service \"s:80\"";
    let begun = std::time::Instant::now();
    loop {
        let answer = server.get(&format!("{SERVICES}/s:80/proxy/")).await;
        assert_eq!(answer.code, 503);
        if answer.body["message"] == none {
            break;
        }
        // Before the pod is known to be ready, there is nobody at all.
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", answer.text);
        tokio::task::yield_now().await;
    }
    make_pod(&server, "shut", "10.77.0.9", 1).await;
    let refused = server.get(&format!("{PODS}/shut/proxy/")).await;
    let words = "error trying to reach service: dial tcp 10.77.0.9:1: connect: connection refused";
    assert_eq!(code_and_words(&refused), (503, words));
    server.stop().await;
}

#[tokio::test]
async fn each_verb_needs_its_right_and_admission_sees_the_path() {
    if !inside("each_verb_needs_its_right_and_admission_sees_the_path") {
        return;
    }
    let server = start().await;
    let backend = backend::plain(ADDRESS).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get", "patch"], "resourceNames": ["p"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    assert_eq!(server.post(&format!("{rbac}/roles"), &role).await.code, 201);
    let binding = json!({"metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}});
    assert_eq!(server.post(&format!("{rbac}/rolebindings"), &binding).await.code, 201);
    let jane = server.client(Identity::new("jane", &["system:authenticated"]));
    let asked = format!("{PODS}/p/proxy/x");
    let begun = std::time::Instant::now();
    while send(&jane, "GET", &asked, &[], "").await.code == 403 {
        assert!(begun.elapsed() < Duration::from_secs(10), "a role is in force soon");
        tokio::task::yield_now().await;
    }
    for (method, code) in [
        ("GET", 200),
        ("HEAD", 200),
        ("PATCH", 200),
        ("POST", 403),
        ("PUT", 403),
        ("DELETE", 403),
        ("OPTIONS", 403),
    ] {
        assert_eq!(send(&jane, method, &asked, &[], "").await.code, code, "{method}");
    }
    // Another port is another name.
    let port = send(&jane, "GET", &format!("{PODS}/p:{}/proxy/x", backend.port), &[], "").await;
    assert_eq!(port.code, 403);
    let dry = server.get(&format!("{asked}?dryRun=All")).await;
    assert_eq!(code_and_words(&dry), (400, "dryRun is not supported"));

    let hook = Webhook::start(&server.pki, |review| {
        let allowed = review["request"]["object"]["path"] != "/private/x";
        Reply::answer(review, json!({"allowed": allowed, "status": {"message": "not there"}}))
    })
    .await;
    let configuration = json!({"metadata": {"name": "h"}, "webhooks": [{
        "name": "h.example.com", "clientConfig": hook.client(), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/proxy"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let made = server.post(path, &configuration).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(server.get(&format!("{PODS}/p:{}/proxy/public/x", backend.port)).await.code, 200);
    let denied = server.get(&format!("{PODS}/p/proxy/private/x")).await;
    let words = "admission webhook \"h.example.com\" denied the request: not there";
    assert_eq!(code_and_words(&denied), (400, words));
    let asked = &hook.asked()[0]["request"];
    assert_eq!(asked["object"], json!({"kind": "PodProxyOptions", "apiVersion": "v1", "path": "/public/x"}));
    assert_eq!(asked["kind"], json!({"group": "", "version": "v1", "kind": "PodProxyOptions"}));
    assert_eq!((&asked["operation"], &asked["subResource"]), (&json!("CONNECT"), &json!("proxy")));
    assert_eq!(asked["name"], format!("p:{}", backend.port));
    server.stop().await;
}

/// A connection of the administrator, and its answer to an upgrade.
async fn ask_for_upgrade(
    server: &Server,
    path: &str,
) -> (http::Response<hyper::body::Incoming>, JoinSet<()>) {
    let pair = server.pki.issue_client("kubernetes-admin", &["system:masters"]).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.pki.ca_pem().as_bytes()).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(pair.cert_pem.as_bytes()).unwrap()];
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let address = server.url.strip_prefix("https://").unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { connection.with_upgrades().await.unwrap() });
    let request = http::Request::get(path)
        .header("host", address)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("authorization", "Bearer x")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    (sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap(), tasks)
}

#[tokio::test]
async fn an_upgraded_connection_is_a_tunnel() {
    if !inside("an_upgraded_connection_is_a_tunnel") {
        return;
    }
    let server = start().await;
    let backend = backend::plain(ADDRESS).await;
    make_pod(&server, "p", ADDRESS, backend.port).await;
    let (mut answer, _tasks) = ask_for_upgrade(&server, &format!("{PODS}/p/proxy/upgrade")).await;
    assert_eq!(answer.status(), 101);
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.unwrap());
    let mut greeting = Vec::new();
    while greeting.last() != Some(&b'\n') {
        greeting.push(stream.read_u8().await.unwrap());
    }
    let greeting = String::from_utf8(greeting).unwrap();
    assert!(greeting.starts_with("/upgrade ") && greeting.contains("sec-websocket-key"), "{greeting}");
    assert!(greeting.contains("x-forwarded-for") && !greeting.contains("authorization"), "{greeting}");
    stream.write_all(b"ping").await.unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).await.unwrap();
    assert_eq!(&echo, b"ping");
    drop(stream);
    let (refused, _tasks) = ask_for_upgrade(&server, &format!("{PODS}/p/proxy/no-upgrade")).await;
    assert_eq!(refused.status(), 403);
    assert_eq!(refused.into_body().collect().await.unwrap().to_bytes(), "not with you at /no-upgrade");
    let (odd, _tasks) = ask_for_upgrade(&server, &format!("{PODS}/p/proxy/x")).await;
    assert_eq!(odd.status(), 500);
    let words = odd.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&words).contains("invalid upgrade response: status code 200"));
    server.stop().await;
}

#[tokio::test]
async fn the_subresources_are_discovered() {
    let server = start().await;
    let resources = server.get("/api/v1").await;
    for (name, kind) in [
        ("pods/proxy", "PodProxyOptions"),
        ("services/proxy", "ServiceProxyOptions"),
        ("nodes/proxy", "NodeProxyOptions"),
    ] {
        let list = resources.body["resources"].as_array().unwrap();
        let found = list.iter().find(|one| one["name"] == name).unwrap();
        assert_eq!(
            (&found["kind"], &found["verbs"]),
            (&json!(kind), &json!(["create", "delete", "get", "patch", "update"]))
        );
    }
    server.stop().await;
}
