//! kube-apiserver and a server of ours on its etcd, asked the same way.

use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt;
use podwire_apiserver::pki::Pki;
use podwire_apiserver::{ApiService, Config, Identity};
use podwire_store::Store;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{server, upstream};

/// One of the two servers.
#[derive(Clone)]
pub(crate) enum Side {
    Ours(ApiService),
    Upstream(kube::Client),
}

impl Side {
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let media = ("content-type", "application/json");
        match self {
            Self::Ours(service) => {
                let answer = server::send(service, method, path, &[media], body).await;
                (answer.code, answer.body)
            }
            Self::Upstream(client) => {
                let request = http::Request::builder().method(method).uri(path).header(media.0, media.1);
                let request = request.body(kube::client::Body::from(body.into_bytes())).unwrap();
                let response = client.send(request).await.unwrap();
                let code = response.status().as_u16();
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
            }
        }
    }
}

/// The folder of our server, with a key for tokens that kube-apiserver takes too.
pub(crate) fn pki(folder: &Path) -> Pki {
    let pki = Pki::open(&folder.join("pki")).unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(pki.dir().join("sa.key"), key.serialize_pem()).unwrap();
    pki
}

/// kube-apiserver with these flags too.
pub(crate) async fn theirs(pki: &Pki, flags: &[&str]) -> (upstream::Upstream, Side) {
    let plugins = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition";
    let running = upstream::start(pki, &[&[plugins], flags].concat()).await;
    let side = Side::Upstream(running.client(pki).await);
    (running, side)
}

/// Ours on this store.
pub(crate) async fn ours(
    folder: &Path,
    store: Arc<dyn Store>,
    change: impl FnOnce(&mut Config),
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> Side {
    let mut config = Config::new(store, folder.join("pki"), "127.0.0.1:0".parse().unwrap());
    change(&mut config);
    let server = config.build().await.unwrap();
    let side = Side::Ours(server.client(Identity::admin()));
    tasks.spawn(server.run(shutdown.clone()));
    side
}
