//! Any request against a whole API server with its store: always an answer, never the one of a panic.
//!
//! The input is a method, a path from a list or of its own, a query, a content type and a body.

#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;
use podwire_apiserver::{ApiServer, ApiService, Config, Identity};
use podwire_store::EmbeddedConfig;
use tokio::runtime::Runtime;
use tower::ServiceExt;

const PATHS: &[&str] = &[
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/a",
    "/api/v1/namespaces/default/pods/a/status",
    "/api/v1/namespaces/default/pods/a/binding",
    "/api/v1/namespaces/default/pods/a/eviction",
    "/api/v1/namespaces/default/services",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/a/scale",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
    "/openapi/v3",
];
const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE"];
const TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    method: u8,
    path: u8,
    content: u8,
    accept: u8,
    /// Instead of a path of the list, when not empty.
    other: &'a str,
    query: &'a str,
    body: &'a [u8],
}

struct Server {
    runtime: Runtime,
    admin: ApiService,
    _server: ApiServer,
    _folder: tempfile::TempDir,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    // In memory where there is such a place: durability is not what is tried here.
    let shared = std::path::Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(base).expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let store = EmbeddedConfig::new(folder.path().join("store")).open().expect("a store");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let config = Config::new(Arc::new(store), folder.path().join("pki"), listen);
        config.build().await.expect("a server")
    });
    Server { admin: server.client(Identity::admin()), runtime, _server: server, _folder: folder }
});

fuzz_target!(|input: Input<'_>| {
    let pick = |list: &'static [&'static str], at: u8| list[usize::from(at) % list.len()];
    let path =
        if input.other.is_empty() { pick(PATHS, input.path).to_owned() } else { format!("/{}", input.other) };
    let query = if input.query.is_empty() { String::new() } else { format!("?{}", input.query) };
    let Ok(uri) = format!("{path}{query}").parse::<http::Uri>() else { return };
    let request = http::Request::builder()
        .method(pick(METHODS, input.method))
        .uri(uri)
        .header("content-type", pick(TYPES, input.content))
        .header("accept", pick(ACCEPTS, input.accept))
        .body(Full::new(Bytes::copy_from_slice(input.body)));
    let Ok(request) = request else { return };
    SERVER.runtime.block_on(async {
        let answering = async {
            let response = SERVER.admin.clone().oneshot(request).await.expect("there is always an answer");
            let code = response.status().as_u16();
            // A watch has no end: its first piece is enough.
            let mut body = response.into_body();
            let piece = tokio::time::timeout(Duration::from_millis(1), body.frame()).await;
            let bytes =
                piece.ok().flatten().and_then(|frame| frame.ok()?.into_data().ok()).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("caused apiserver to panic"), "{code}: {text}");
        };
        tokio::time::timeout(Duration::from_secs(10), answering).await.expect("an answer in time");
    });
});
