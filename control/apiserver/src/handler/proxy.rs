//! Logs, exec, attach and port-forward: carried to the kubelet of the pod's node and back.
//!
//! Upgraded connections (WebSocket, SPDY) are tunnelled as bytes; nothing inside them is read.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use podwire_api::{Part, builtin};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use super::{Call, websocket};
use crate::admission::{self, Operation};
use crate::authz::{self, Attributes};
use crate::body::{self, Body, Response};
use crate::limits::Wire;
use crate::pki::{Pki, PkiError};
use crate::query::Query;
use crate::service::read_body;
use crate::status::{ApiError, Result};

/// How long reaching a node may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Opens connections to kubelets with the API server's own client certificate.
pub(crate) struct KubeletClient {
    connector: ArcSwap<rustls::ClientConfig>,
    tasks: TaskTracker,
}

impl KubeletClient {
    /// Reads or makes the client certificate.
    pub(crate) fn new(pki: &Pki) -> Result<Self, PkiError> {
        Ok(Self { connector: ArcSwap::from(client_config(pki)?), tasks: TaskTracker::new() })
    }

    /// Replaces the client certificate when it nears its end.
    pub(crate) fn renew(&self, pki: &Pki) -> Result<(), PkiError> {
        self.connector.store(client_config(pki)?);
        Ok(())
    }

    /// What kubelets are spoken to with.
    pub(super) fn config(&self) -> Arc<rustls::ClientConfig> {
        self.connector.load_full()
    }

    /// Where connections to nodes and pods run.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Sends one request over a connection of its own.
    async fn send(
        &self,
        node: &Endpoint,
        request: Request<Body>,
    ) -> Result<hyper::Response<hyper::body::Incoming>> {
        let unreachable = |error: &dyn std::fmt::Display| {
            ApiError::internal(format!("error dialing backend: {}:{}: {error}", node.host, node.port))
        };
        let connect = async {
            let tcp = TcpStream::connect((node.host.as_str(), node.port)).await?;
            tcp.set_nodelay(true)?;
            let name = ServerName::try_from(node.host.clone()).map_err(std::io::Error::other)?;
            TlsConnector::from(self.connector.load_full()).connect(name, tcp).await
        };
        let stream = match tokio::time::timeout(CONNECT, connect).await {
            Ok(connected) => connected.map_err(|error| unreachable(&error))?,
            Err(_) => return Err(unreachable(&"i/o timeout")),
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error))?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to a kubelet ended");
            }
        });
        sender.send_request(request).await.map_err(|error| unreachable(&error))
    }
}

fn client_config(pki: &Pki) -> Result<Arc<rustls::ClientConfig>, PkiError> {
    let subject = "kube-apiserver-kubelet-client";
    let pair = pki.kept_client("apiserver-kubelet-client", subject, &[])?;
    let (chain, key) = pair.to_der(subject)?;
    let failed = |source| PkiError::Tls { subject: subject.into(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(crate::server::roots(pki)?)
        .with_client_auth_cert(chain, key)
        .map_err(failed)?;
    Ok(Arc::new(config))
}

/// Where a kubelet listens.
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Carries the request of a call to the kubelet.
pub(crate) async fn answer(call: &mut Call) -> Result<Response> {
    let log = call.part == Some(Part::Log);
    if !log {
        // To open a stream is to do something in the pod, whichever method carries it.
        authz::check(&call.context, &call.identity, &Attributes::resource("create", &call.target))?;
        admission::admit(&admission::Request::of(call, Operation::Connect), &mut Value::Null).await?;
    }
    let pod = call.context.object(&call.kind, call.namespace(), call.name()).await?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        if log {
            return tell(call, body::empty());
        }
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.name())));
    }
    let uri = kubelet_uri(call, &pod)?;
    let endpoint = find_endpoint(call, node).await?;
    if log { fetch_log(call, &endpoint, &uri).await } else { tunnel(call, &endpoint, &uri).await }
}

/// Where the kubelet of a node listens.
pub(super) async fn find_endpoint(call: &Call, node: &str) -> Result<Endpoint> {
    let found = call.context.object(builtin::nodes(), "", node).await;
    let object = found.map_err(|error| match error.code {
        StatusCode::NOT_FOUND => ApiError::not_found(&call.kind, node),
        _ => error,
    })?;
    let addresses = object["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let of = |wanted: &str| {
        let found = addresses.iter().find(|address| address["type"] == wanted)?;
        found["address"].as_str().map(str::to_owned)
    };
    let host = ["InternalIP", "ExternalIP", "InternalDNS", "Hostname"].iter().find_map(|wanted| of(wanted));
    let host = host.ok_or_else(|| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let shown = |one: &Value| format!("{{{} {}}}", text(&one["type"]), text(&one["address"]));
        let known: Vec<String> = addresses.iter().map(shown).collect();
        let why = format!("no preferred addresses found; known addresses: [{}]", known.join(" "));
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why)
    })?;
    let port = object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap_or(10250);
    Ok(Endpoint { host, port: u16::try_from(port).unwrap_or(10250) })
}

/// The container meant: the one named, the only one, or the one marked as default.
fn container(call: &Call, pod: &Value) -> Result<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
    };
    let plain = names("containers");
    let pod_name = call.name();
    if let Some(asked) = call.query.text("container") {
        let known = ["containers", "initContainers", "ephemeralContainers"]
            .iter()
            .any(|list| names(list).iter().any(|n| n == asked));
        if known {
            return Ok(asked.to_owned());
        }
        return Err(ApiError::bad_request(format!("container {asked} is not valid for pod {pod_name}")));
    }
    let marked = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    match (plain.as_slice(), marked) {
        (_, Some(marked)) if plain.iter().any(|name| name == marked) => Ok(marked.to_owned()),
        ([only], _) => Ok(only.clone()),
        (many, _) => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            many.join(" ")
        ))),
    }
}

/// The path and query the kubelet understands.
fn kubelet_uri(call: &Call, pod: &Value) -> Result<String> {
    let (namespace, name) = (call.namespace(), call.name());
    let mut query = Vec::new();
    let path = match call.part {
        Some(Part::PortForward) => {
            query.extend(call.query.all("ports").map(|port| format!("port={}", escape(port))));
            format!("/portForward/{namespace}/{name}")
        }
        Some(Part::Log) => {
            check_log_options(&call.query, name)?;
            let keys = [
                "follow",
                "previous",
                "timestamps",
                "sinceSeconds",
                "sinceTime",
                "tailLines",
                "limitBytes",
                "stream",
            ];
            for key in keys {
                query.extend(call.query.text(key).map(|value| format!("{key}={}", escape(value))));
            }
            format!("/containerLogs/{namespace}/{name}/{}", container(call, pod)?)
        }
        stream => {
            let stream = stream.map(Part::as_str).unwrap_or_default();
            for (from, to) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")]
            {
                if call.query.flag(from) {
                    query.push(format!("{to}=1"));
                }
            }
            query.extend(call.query.all("command").map(|word| format!("command={}", escape(word))));
            format!("/{stream}/{namespace}/{name}/{}", container(call, pod)?)
        }
    };
    Ok(if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) })
}

fn check_log_options(query: &Query, name: &str) -> Result<()> {
    for (key, least) in [("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)] {
        if query.number(key)?.is_some_and(|number| number < least) {
            let value = query.get(key).unwrap_or_default();
            let message = format!("Invalid value: {value}: must be greater than or equal to {least}");
            let reason = podwire_api::validate::Cause::Invalid;
            let error = podwire_api::validate::FieldError { reason, field: key.into(), message };
            return Err(ApiError::invalid_of("", "PodLogOptions", name, &[error]));
        }
    }
    Ok(())
}

fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Answers with a log: over a WebSocket if the client asks for one.
fn tell(call: &mut Call, log: Body) -> Result<Response> {
    let Some(client) = call.upgrade.take().filter(|_| websocket::is_asked(&call.parts.headers)) else {
        let mut response = http::Response::new(log);
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        return Ok(response);
    };
    let Some(mut agreed) = websocket::agree(&call.parts.headers) else {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "Forbidden",
            "requested protocol(s) are not supported",
        ));
    };
    let response = std::mem::replace(&mut agreed.response, http::Response::new(body::empty()));
    let shutdown = call.context.shutdown.clone();
    let wire = call.parts.extensions.get::<Arc<Wire>>().cloned();
    call.context.kubelets.tasks.spawn(async move {
        let _wire = wire;
        let Ok(client) = client.await else { return };
        tokio::select! {
            () = shutdown.cancelled() => {}
            result = agreed.carry(TokioIo::new(client), log) => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a log over a WebSocket ended");
                }
            }
        }
    });
    Ok(response)
}

async fn fetch_log(call: &mut Call, node: &Endpoint, uri: &str) -> Result<Response> {
    let request = Request::builder()
        .uri(uri)
        .header(header::HOST, format!("{}:{}", node.host, node.port))
        .body(body::empty())
        .map_err(ApiError::internal)?;
    let response = call.context.kubelets.send(node, request).await?;
    let status = response.status();
    let stream = response.into_body().map_err(Into::into).boxed_unsync();
    if status.is_success() {
        return tell(call, stream);
    }
    let text = read_body(stream, 4096).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Err(match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            format!("the server could not find the requested resource ( pods/log {})", call.name()),
        ),
        _ => ApiError::internal(text),
    })
}

/// Headers that belong to one hop only, or that must not leave this server.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let mut out = headers.clone();
    out.remove(header::AUTHORIZATION);
    out.remove(header::HOST);
    out
}

/// Joins the client's upgraded connection with one to the kubelet.
async fn tunnel(call: &mut Call, node: &Endpoint, uri: &str) -> Result<Response> {
    let upgrade_asked = call.parts.headers.contains_key(header::UPGRADE);
    let Some(client) = call.upgrade.take().filter(|_| upgrade_asked) else {
        return Err(ApiError::bad_request("Upgrade request required"));
    };
    let mut request = Request::builder().method(match call.parts.method {
        Method::POST => Method::POST,
        _ => Method::GET,
    });
    if let Some(headers) = request.headers_mut() {
        *headers = forwarded(&call.parts.headers);
    }
    let request = request
        .uri(uri)
        .header(header::HOST, format!("{}:{}", node.host, node.port))
        .body(body::empty())
        .map_err(ApiError::internal)?;
    let answer = call.context.kubelets.send(node, request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(answer).await;
    }
    Ok(tunnelled(call, client, answer))
}

/// The answer to an upgrade that the other side agreed to; from then on bytes are carried both ways.
pub(super) fn tunnelled(
    call: &Call,
    client: hyper::upgrade::OnUpgrade,
    mut answer: hyper::Response<hyper::body::Incoming>,
) -> Response {
    let other = hyper::upgrade::on(&mut answer);
    let shutdown = call.context.shutdown.clone();
    // The stream keeps the place of the connection that it was.
    let wire = call.parts.extensions.get::<Arc<Wire>>().cloned();
    call.context.kubelets.tasks.spawn(async move {
        let _wire = wire;
        let (Ok(client), Ok(other)) = tokio::join!(client, other) else { return };
        let (mut client, mut other) = (TokioIo::new(client), TokioIo::new(other));
        tokio::select! {
            () = shutdown.cancelled() => {}
            result = tokio::io::copy_bidirectional(&mut client, &mut other) => {
                if let Err(error) = result {
                    tracing::debug!(%error, "a stream ended");
                }
            }
        }
    });
    let mut response = http::Response::new(body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answer.headers().clone();
    response
}

/// The kubelet's refusal, in its own words.
async fn refused(answer: hyper::Response<hyper::body::Incoming>) -> Result<Response> {
    let status = answer.status();
    let stream = answer.into_body().map_err(Into::into).boxed_unsync();
    let text = read_body(stream, 4096).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Err(match status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError::new(status, "NotFound", text),
        StatusCode::FORBIDDEN => ApiError::new(status, "Forbidden", text),
        _ => ApiError::internal(format!("unable to upgrade connection: {text}")),
    })
}
