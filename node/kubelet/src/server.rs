//! The kubelet's HTTPS server: health, pods, logs, and the door to exec, attach and port forwarding.
//!
//! Tasks: the accept loop and one per connection; upgraded connections live on as one copying task each.

mod auth;
mod logs;
mod metrics;
mod stream;

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use podwire_wire::ids::ContainerId;

use crate::{
    node::{Known, Node},
    runtime::CallError,
};
use auth::{Gate, User};
pub(crate) use logs::picked;

/// Longest a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer that is not the one asked for.
#[derive(Debug)]
struct Refusal {
    code: StatusCode,
    text: String,
}

impl Refusal {
    fn new(code: StatusCode, text: impl Into<String>) -> Refusal {
        Refusal { code, text: text.into() }
    }

    fn bad_request(text: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, text)
    }

    fn not_found(text: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, text)
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Refusal {
        let code =
            if error.is_not_found() { StatusCode::NOT_FOUND } else { StatusCode::INTERNAL_SERVER_ERROR };
        Refusal::new(code, error.to_string())
    }
}

/// Serves until `shutdown`; connections are then cut.
pub(crate) async fn run(
    node: Arc<Node>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let gate = Arc::new(Gate::new(node.api.clone(), &node.config.node_name));
    loop {
        let socket = tokio::select! {
            () = shutdown.cancelled() => return,
            socket = podwire_wire::accept::next(&listener, "kubelet's server") => socket,
        };
        let (node, acceptor, gate, shutdown) =
            (node.clone(), acceptor.clone(), gate.clone(), shutdown.clone());
        node.tasks.clone().spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = connection(node, acceptor, gate, socket) => {}
            }
        });
    }
}

async fn connection(node: Arc<Node>, acceptor: TlsAcceptor, gate: Arc<Gate>, socket: TcpStream) {
    // Ignored: without it packets are only slower.
    socket.set_nodelay(true).ok();
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(socket)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(error = %error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let user = certificates.and_then(|all| all.first()).and_then(|first| User::of(first.as_ref()));
    let service = service_fn(move |request| {
        let (node, gate, user) = (node.clone(), gate.clone(), user.clone());
        async move { Ok::<_, Infallible>(answer(node, &gate, user.as_ref(), request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new().timer(TokioTimer::new()).clone();
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(error = %error, "connection ended");
    }
}

async fn answer(
    node: Arc<Node>,
    gate: &Gate,
    user: Option<&User>,
    request: Request<Incoming>,
) -> Response<Body> {
    let allowed = gate.check(user, request.headers(), request.method(), request.uri().path()).await;
    let result = match allowed {
        Ok(()) => route(node, request).await,
        Err(refusal) => Err(refusal),
    };
    result.unwrap_or_else(|refusal| text(refusal.code, refusal.text + "\n"))
}

async fn route(node: Arc<Node>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let get = request.method() == Method::GET;
    match parts.as_slice() {
        ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] if get => {
            Ok(text(StatusCode::OK, "ok".to_owned()))
        }
        ["pods"] if get => Ok(json(&pods(&node))),
        ["runningpods"] if get => Ok(json(&running(&node).await?)),
        ["metrics"] if get => Ok(text(StatusCode::OK, metrics::text(&node))),
        ["stats", "summary"] if get => Ok(json(&metrics::summary(&node).await?)),
        ["containerLogs", namespace, pod, container] if get => {
            let known = find(&node, namespace, pod)?;
            logs::serve(&node, &known, container, &query(&request)).await
        }
        ["exec", namespace, pod, rest @ ..] => {
            let (known, container) = target(&node, namespace, pod, rest)?;
            stream::exec(node, request, &known, &container).await
        }
        ["attach", namespace, pod, rest @ ..] => {
            let (known, container) = target(&node, namespace, pod, rest)?;
            stream::attach(node, request, &known, &container).await
        }
        ["portForward", namespace, pod, rest @ ..] if rest.len() <= 1 => {
            let known = find(&node, namespace, pod)?;
            stream::port_forward(node, request, &known).await
        }
        ["run", namespace, pod, rest @ ..] => {
            let (known, container) = target(&node, namespace, pod, rest)?;
            run_command(&node, &query(&request), &known, &container).await
        }
        _ => Err(Refusal::not_found("404 page not found")),
    }
}

/// `[container]` or `[uid, container]` after the pod.
fn target(node: &Node, namespace: &str, pod: &str, rest: &[&str]) -> Result<(Known, String), Refusal> {
    let known = find(node, namespace, pod)?;
    match rest {
        [container] | [_, container] => Ok((known, (*container).to_owned())),
        _ => Err(Refusal::not_found("404 page not found")),
    }
}

fn find(node: &Node, namespace: &str, name: &str) -> Result<Known, Refusal> {
    let pods = node.pods.lock().expect("no holder panics");
    let fits = |known: &&Known| {
        known.pod.metadata.namespace.as_deref() == Some(namespace)
            && known.pod.metadata.name.as_deref() == Some(name)
    };
    // Of two with one name, the one that is not on its way out is meant.
    let mut all: Vec<&Known> = pods.values().filter(fits).collect();
    all.sort_by_key(|known| known.pod.metadata.deletion_timestamp.is_some());
    all.first()
        .map(|known| (*known).clone())
        .ok_or_else(|| Refusal::not_found(format!("pod \"{name}\" not found")))
}

/// The runtime's id of a container that runs.
fn container_id(known: &Known, container: &str) -> Result<ContainerId, Refusal> {
    let status = known.status.as_ref().and_then(|s| crate::status::container_entry(s, container));
    let running = status.filter(|s| s.state.as_ref().is_some_and(|state| state.running.is_some()));
    let id = running.and_then(|s| s.container_id.as_deref()).and_then(|id| id.split_once("://"));
    id.map(|(_, id)| id.into())
        .ok_or_else(|| Refusal::not_found(format!("container not found (\"{container}\")")))
}

async fn run_command(
    node: &Node,
    query: &Query,
    known: &Known,
    container: &str,
) -> Result<Response<Body>, Refusal> {
    let command: Vec<String> = query.first("cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
    let answer =
        node.runtime.exec_sync(&container_id(known, container)?, &command, Duration::from_secs(60)).await?;
    let mut output = answer.stdout;
    output.extend_from_slice(&answer.stderr);
    Ok(text(StatusCode::OK, String::from_utf8_lossy(&output).into_owned()))
}

/// Every pod of the node with the status computed last.
fn pods(node: &Node) -> serde_json::Value {
    let pods = node.pods.lock().expect("no holder panics");
    let items: Vec<_> = pods
        .values()
        .map(|known| {
            let mut pod = (*known.pod).clone();
            if let Some(status) = &known.status {
                pod.status = Some(status.clone());
            }
            pod
        })
        .collect();
    serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// Every pod the runtime has something running of.
async fn running(node: &Node) -> Result<serde_json::Value, Refusal> {
    let listings = crate::runtime::watch::list(&node.runtime).await?;
    let items: Vec<_> = listings
        .into_values()
        .filter(|listing| listing.sandboxes.values().any(|ready| *ready))
        .filter_map(|listing| listing.pod)
        .map(|pod| {
            serde_json::json!({
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid.as_str()},
                "spec": {"containers": []}, "status": {},
            })
        })
        .collect();
    Ok(serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// The parameters after the question mark.
#[derive(Debug, Default)]
struct Query {
    all: HashMap<String, Vec<String>>,
}

impl Query {
    fn first(&self, key: &str) -> Option<&str> {
        self.all.get(key).and_then(|values| values.first()).map(String::as_str)
    }

    fn every(&self, key: &str) -> Vec<String> {
        self.all.get(key).cloned().unwrap_or_default()
    }

    fn flag(&self, key: &str) -> bool {
        matches!(self.first(key), Some("1" | "true" | "t" | "T" | "True" | "TRUE"))
    }
}

fn query(request: &Request<Incoming>) -> Query {
    let mut query = Query::default();
    for pair in request.uri().query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        query.all.entry(unescape(key)).or_default().push(unescape(value));
    }
    query
}

/// Undoes the escapes of a query.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn text(code: StatusCode, text: String) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", text.into())
}

fn json(value: &serde_json::Value) -> Response<Body> {
    respond(StatusCode::OK, "application/json", value.to_string().into())
}

fn respond(code: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_a_query_are_undone() {
        assert_eq!(unescape("sh+-c%20%22a%3D1%22"), "sh -c \"a=1\"");
        assert_eq!(unescape("100%"), "100%");
    }
}
