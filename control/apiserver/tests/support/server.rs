//! A real API server on a real store in a folder of its own, and ways to talk to it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and fails where it unwraps"
)]

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use podwire_apiserver::{ApiServer, ApiService, Config, Identity, Limits};
use podwire_store::{Embedded, EmbeddedConfig};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// A running server; stop it with [`Server::stop`].
pub(crate) struct Server {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) store: Embedded,
    pub(crate) admin: ApiService,
    pub(crate) url: String,
    pub(crate) pki: Arc<podwire_apiserver::pki::Pki>,
    anonymous: ApiService,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<()>,
    others: Vec<(String, ApiService)>,
}

/// An answer with its body read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

pub(crate) async fn start() -> Server {
    start_in(Arc::new(tempfile::tempdir().unwrap())).await
}

pub(crate) async fn start_in(dir: Arc<tempfile::TempDir>) -> Server {
    start_limited(dir, Limits::default()).await
}

pub(crate) async fn start_limited(dir: Arc<tempfile::TempDir>, limits: Limits) -> Server {
    let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
    let mut config =
        Config::new(Arc::new(store.clone()), dir.path().join("pki"), "127.0.0.1:0".parse().unwrap());
    config.limits = limits;
    let server: ApiServer = config.build().await.unwrap();
    let (admin, anonymous) = (server.client(Identity::admin()), server.service());
    let others = ["n1", "n2"].iter().map(|name| ((*name).to_owned(), server.client(Identity::node(name))));
    let others = others.chain([("scheduler".to_owned(), server.client(Identity::scheduler()))]).collect();
    let (url, pki) = (format!("https://{}", server.local_addr()), server.pki());
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    let mut set = tokio::task::JoinSet::new();
    set.spawn(server.run(token));
    let running =
        tokio::runtime::Handle::current().spawn(async move { while set.join_next().await.is_some() {} });
    Server { dir, store, admin, url, pki, anonymous, shutdown, running, others }
}

impl Server {
    pub(crate) async fn stop(self) -> Arc<tempfile::TempDir> {
        self.shutdown.cancel();
        self.running.await.unwrap();
        self.store.close().await;
        self.dir
    }

    pub(crate) fn kube(&self) -> kube::Client {
        kube::Client::new(self.admin.clone(), "default")
    }

    pub(crate) fn as_user(&self, name: &str) -> ApiService {
        self.others.iter().find(|(other, _)| other == name).unwrap().1.clone()
    }

    pub(crate) fn client(&self, identity: Identity) -> ApiService {
        self.anonymous.with_identity(identity)
    }

    pub(crate) fn nobody(&self) -> ApiService {
        self.anonymous.clone()
    }

    /// A client over TLS with a certificate of its own.
    pub(crate) async fn remote(&self, user: &str, groups: &[&str]) -> kube::Client {
        let pair = self.pki.issue_client(user, groups).unwrap();
        let text = self.pki.kubeconfig(&self.url, user, &pair);
        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        // A refusal is an answer.
        config.default_retry = false;
        kube::Client::try_from(config).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(&self.admin, "GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        send(&self.admin, "POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        send(&self.admin, "PUT", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, body: &Value) -> Answer {
        send(&self.admin, "PATCH", path, &[("content-type", media)], body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        send(&self.admin, "DELETE", path, &[("content-type", "application/json")], body).await
    }
}

pub(crate) async fn send(
    service: &ApiService,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answer {
    let response = raw(service, method, path, headers, body).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { code: parts.status.as_u16(), headers: parts.headers, body, text }
}

pub(crate) async fn raw(
    service: &ApiService,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> http::Response<podwire_apiserver::Body> {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    service.clone().oneshot(request).await.unwrap()
}

/// A watch that is read event by event.
pub(crate) struct Watch {
    body: podwire_apiserver::Body,
    buffer: Vec<u8>,
}

impl Watch {
    pub(crate) async fn open(service: &ApiService, path: &str) -> Self {
        let response = raw(service, "GET", path, &[], "").await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: Vec::new() }
    }

    /// The next event, `None` at the end of the stream; a minute of silence fails the test.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame =
                tokio::time::timeout(std::time::Duration::from_secs(60), self.body.frame()).await.unwrap();
            match frame {
                Some(frame) => self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default()),
                None => return None,
            }
        }
    }

    /// Type, name and version of the next event.
    pub(crate) async fn brief(&mut self) -> (String, String, u64) {
        let event = self.next().await.expect("the watch goes on");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &event["object"]["metadata"];
        let version = metadata["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0);
        (text(&event["type"]), text(&metadata["name"]), version)
    }
}

pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
