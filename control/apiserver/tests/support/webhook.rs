//! A webhook behind TLS on loopback that answers as it is told and remembers what it was asked.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and fails where it unwraps"
)]

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use podwire_apiserver::pki::{KeyCert, Pki};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// What a webhook answers.
pub(crate) enum Reply {
    Json(Value),
    Raw(u16, String),
    /// Nothing, ever.
    Hang,
}

impl Reply {
    /// A review with this response.
    pub(crate) fn answer(review: &Value, mut response: Value) -> Reply {
        response["uid"] = review["request"]["uid"].clone();
        Reply::Json(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
        )
    }

    /// A review that allows and patches.
    pub(crate) fn patch(review: &Value, patch: &Value) -> Reply {
        let patch = STANDARD.encode(patch.to_string());
        Self::answer(review, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }
}

type Behaviour = Box<dyn Fn(&Value) -> Reply + Send + Sync>;

struct State {
    behaviour: Mutex<Arc<Behaviour>>,
    asked: Mutex<Vec<Value>>,
    paths: Mutex<Vec<String>>,
}

/// A running webhook; ends when it is dropped.
pub(crate) struct Webhook {
    state: Arc<State>,
    port: u16,
    bundle: String,
    _tasks: JoinSet<()>,
}

impl Webhook {
    pub(crate) async fn start(
        pki: &Pki,
        behaviour: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Webhook {
        Self::start_named(pki, "127.0.0.1", behaviour).await
    }

    /// One whose certificate has this name.
    pub(crate) async fn start_named(
        pki: &Pki,
        name: &str,
        behaviour: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Webhook {
        let KeyCert { cert_pem, key_pem } = pki.issue_server(&[name.to_owned()]).unwrap();
        let chain = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let behaviour: Behaviour = Box::new(behaviour);
        let state = Arc::new(State {
            behaviour: Mutex::new(Arc::new(behaviour)),
            asked: Mutex::default(),
            paths: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let serving = state.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, acceptor.clone(), serving.clone()));
            }
        });
        Webhook { state, port, bundle: STANDARD.encode(pki.ca_pem()), _tasks: tasks }
    }

    /// The part of a configuration that leads here.
    pub(crate) fn client(&self) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/hook", self.port), "caBundle": self.bundle})
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Answers otherwise from now on.
    pub(crate) fn answer(&self, behaviour: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        let behaviour: Behaviour = Box::new(behaviour);
        *self.state.behaviour.lock().unwrap() = Arc::new(behaviour);
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Where it was asked.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.state.paths.lock().unwrap().clone()
    }
}

async fn serve(stream: tokio::net::TcpStream, acceptor: tokio_rustls::TlsAcceptor, state: Arc<State>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let state = state.clone();
        async move {
            state.paths.lock().unwrap().push(request.uri().to_string());
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&bytes).unwrap();
            state.asked.lock().unwrap().push(review.clone());
            let behaviour = state.behaviour.lock().unwrap().clone();
            let (code, text) = match behaviour(&review) {
                Reply::Json(value) => (200, value.to_string()),
                Reply::Raw(code, text) => (code, text),
                Reply::Hang => std::future::pending().await,
            };
            let media = if (200..300).contains(&code) { "application/json" } else { "text/plain" };
            let response = http::Response::builder().status(code).header("content-type", media);
            Ok::<_, std::convert::Infallible>(response.body(Full::new(Bytes::from(text))).unwrap())
        }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
}
