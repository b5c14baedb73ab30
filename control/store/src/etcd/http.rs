//! What is asked without gRPC: health, version, metrics; and gRPC's own health check.

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tonic::body::Body;

use super::maintenance::STORAGE_VERSION;
use super::{ETCD_VERSION, Etcd};

/// `SERVING` as gRPC's health check answers it: one message of one field.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];
const NOT_SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 2];

fn answer(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(Body::new(Full::new(text.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

impl Etcd {
    /// Answers a request that is not one of etcd's services.
    pub(super) fn plain(&self, method: &Method, path: &str) -> Response<Body> {
        const JSON: &str = "application/json";
        const TEXT: &str = "text/plain; version=0.0.4";
        match (method, path) {
            (&Method::GET, "/health" | "/livez" | "/readyz") => self.health(path),
            (&Method::GET, "/version") => {
                let text = format!(
                    r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{STORAGE_VERSION}","storage":"{STORAGE_VERSION}"}}"#
                );
                answer(StatusCode::OK, JSON, text)
            }
            (&Method::GET, "/metrics") => answer(StatusCode::OK, TEXT, self.metrics()),
            (&Method::POST, "/grpc.health.v1.Health/Check") => self.grpc_health(),
            _ => answer(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n"),
        }
    }

    fn reason(&self) -> Option<String> {
        if let Err(error) = self.engine().health() {
            return Some(error.to_string());
        }
        let raised = self.engine().shared().alarm.load(std::sync::atomic::Ordering::Relaxed);
        raised.then(|| "ALARM NOSPACE".to_owned())
    }

    fn health(&self, path: &str) -> Response<Body> {
        let (status, word) = match self.reason() {
            None => (StatusCode::OK, "true"),
            Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "false"),
        };
        let reason = self.reason().unwrap_or_default().replace(['"', '\\'], "'");
        if path == "/health" {
            let text = format!(r#"{{"health":"{word}","reason":"{reason}"}}"#);
            return answer(status, "application/json", text);
        }
        let text = if reason.is_empty() { "ok\n".to_owned() } else { format!("{reason}\n") };
        answer(status, "text/plain; charset=utf-8", text)
    }

    fn grpc_health(&self) -> Response<Body> {
        let message = if self.engine().health().is_ok() { SERVING } else { NOT_SERVING };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let body =
            Full::new(Bytes::from_static(message)).with_trailers(std::future::ready(Some(Ok(trailers))));
        let mut answer = Response::new(Body::new(body));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        answer
    }

    fn metrics(&self) -> String {
        let (revision, compacted, keys, held, live, leases) = {
            let index = self.engine().read();
            let compacted = index.compacted().map_or(-1, crate::engine::read::signed);
            let (held, live) = (index.held_bytes(), index.live_bytes());
            (index.revision(), compacted, index.key_count(), held, live, index.leases.len())
        };
        let mut text = String::new();
        let mut gauge = |name: &str, help: &str, value: &dyn std::fmt::Display| {
            // Ignored: writing to a string does not fail.
            writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}").ok();
        };
        gauge("etcd_server_has_leader", "Whether there is a leader; 1 is yes.", &1);
        gauge("etcd_server_is_leader", "Whether this member is it; 1 is yes.", &1);
        gauge("etcd_server_quota_backend_bytes", "Most bytes that may be held.", &self.config().quota_bytes);
        gauge("etcd_mvcc_db_total_size_in_bytes", "Bytes of every version that can be asked for.", &held);
        gauge(
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            "Bytes of every version that can be asked for.",
            &held,
        );
        gauge("etcd_debugging_mvcc_keys_total", "Keys that are or can be asked for.", &keys);
        gauge("etcd_debugging_mvcc_current_revision", "The newest revision.", &revision);
        gauge("etcd_debugging_mvcc_compact_revision", "The last revision that was compacted.", &compacted);
        gauge("etcd_debugging_lease_total", "Leases.", &leases);
        gauge("podwire_store_live_bytes", "Bytes of live keys and values.", &live);
        text
    }
}
