//! Exec, attach and port forwarding: the runtime is asked for a URL, and the client's upgraded connection is
//! joined to it byte by byte, whatever protocol the two speak.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use podwire_wire::cri;
use tokio::net::TcpStream;

use super::{Body, Refusal, container_id, query, text};
use crate::node::{Known, Node};

/// Runs a command with its streams attached.
pub(super) async fn exec(
    node: Arc<Node>,
    request: Request<Incoming>,
    known: &Known,
    container: &str,
) -> Result<Response<Body>, Refusal> {
    let options = query(&request);
    let tty = options.flag("tty");
    let wanted = cri::ExecRequest {
        container_id: container_id(known, container)?.into_string(),
        cmd: options.every("command"),
        tty,
        stdin: options.flag("input"),
        stdout: options.flag("output"),
        stderr: options.flag("error") && !tty,
    };
    if !(wanted.stdin || wanted.stdout || wanted.stderr) {
        return Err(Refusal::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    let url = node.runtime.exec(wanted).await?;
    join(&node, request, &url).await
}

/// Attaches to the container's own streams.
pub(super) async fn attach(
    node: Arc<Node>,
    request: Request<Incoming>,
    known: &Known,
    container: &str,
) -> Result<Response<Body>, Refusal> {
    let options = query(&request);
    let spec = crate::spec::find_container(&known.pod, container);
    let tty = spec.is_some_and(|(_, c)| c.tty.unwrap_or(false));
    let wanted = cri::AttachRequest {
        container_id: container_id(known, container)?.into_string(),
        stdin: options.flag("input"),
        tty,
        stdout: options.flag("output"),
        stderr: options.flag("error") && !tty,
    };
    if !(wanted.stdin || wanted.stdout || wanted.stderr) {
        return Err(Refusal::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    let url = node.runtime.attach(wanted).await?;
    join(&node, request, &url).await
}

/// Forwards ports of the pod.
pub(super) async fn port_forward(
    node: Arc<Node>,
    request: Request<Incoming>,
    known: &Known,
) -> Result<Response<Body>, Refusal> {
    let options = query(&request);
    let mut ports = Vec::new();
    for port in options.every("port").iter().flat_map(|p| p.split(',')) {
        let number: u16 = port.parse().map_err(|_| Refusal::bad_request(format!("invalid port {port}")))?;
        ports.push(i32::from(number));
    }
    let uid = crate::spec::uid(&known.pod);
    let listings = crate::runtime::watch::list(&node.runtime).await?;
    let sandbox = listings
        .get(uid)
        .and_then(|l| l.sandboxes.iter().find(|(_, ready)| **ready))
        .map(|(id, _)| id.clone())
        .ok_or_else(|| Refusal::not_found("the pod has no sandbox that is ready"))?;
    let url = node
        .runtime
        .port_forward(cri::PortForwardRequest { pod_sandbox_id: sandbox.into_string(), port: ports })
        .await?;
    join(&node, request, &url).await
}

/// Joins the client's connection with one to the runtime's streaming server.
async fn join(
    node: &Arc<Node>,
    mut request: Request<Incoming>,
    url: &str,
) -> Result<Response<Body>, Refusal> {
    if !request.headers().contains_key(header::UPGRADE) {
        return Err(Refusal::bad_request("Upgrade request required"));
    }
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(StatusCode::BAD_GATEWAY, format!("error dialing backend: {error}"))
    };
    let url: Uri = url.parse().map_err(|e| failed(&e))?;
    let authority = url.authority().ok_or_else(|| failed(&"the runtime's URL has no host"))?.clone();
    let socket = TcpStream::connect(authority.as_str()).await.map_err(|e| failed(&e))?;
    // Ignored: without it packets are only slower.
    socket.set_nodelay(true).ok();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(|e| failed(&e))?;
    let stop = node.shutdown.clone();
    node.tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            ended = connection.with_upgrades() => if let Err(error) = ended {
                tracing::debug!(error = %error, "stream to the runtime ended");
            }
        }
    });
    let mut forwarded = Request::new(Empty::<Bytes>::new());
    *forwarded.method_mut() = request.method().clone();
    *forwarded.uri_mut() =
        url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).parse().map_err(|e| failed(&e))?;
    *forwarded.headers_mut() = without_hop(request.headers());
    let host = header::HeaderValue::from_str(authority.as_str()).map_err(|e| failed(&e))?;
    forwarded.headers_mut().insert(header::HOST, host);
    let mut answer = sender.send_request(forwarded).await.map_err(|e| failed(&e))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let code = answer.status();
        let body = answer.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        return Ok(text(code, String::from_utf8_lossy(&body).into_owned()));
    }
    let backend = hyper::upgrade::on(&mut answer);
    let client = hyper::upgrade::on(&mut request);
    let stop = node.shutdown.clone();
    node.tasks.spawn(async move {
        let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
        let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
        tokio::select! {
            () = stop.cancelled() => {}
            ended = tokio::io::copy_bidirectional(&mut client, &mut backend) => if let Err(error) = ended {
                tracing::debug!(error = %error, "a joined stream ended");
            }
        }
    });
    let mut response = Response::new(Empty::<Bytes>::new().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

/// The client's headers as the runtime should see them.
fn without_hop(headers: &HeaderMap) -> HeaderMap {
    let mut out = headers.clone();
    out.remove(header::HOST);
    out.remove(header::AUTHORIZATION);
    out
}
