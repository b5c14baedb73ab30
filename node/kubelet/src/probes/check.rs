//! One question to a container: by command, HTTP, TCP or gRPC health.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::net::TcpStream;

use podwire_wire::ids::ContainerId;

use crate::node::Node;

/// How much of an answer is kept.
pub(crate) const BODY_LIMIT: usize = 10 * 1024;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Good.
    Success(String),
    /// Good, with a remark.
    Warning(String),
    /// Bad.
    Failure(String),
    /// The question could not be put.
    Error(String),
}

impl Answer {
    /// The text of any answer.
    pub fn text(&self) -> &str {
        match self {
            Answer::Success(text) | Answer::Warning(text) | Answer::Failure(text) | Answer::Error(text) => {
                text
            }
        }
    }
}

/// Where an HTTP question goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// Address to connect to.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// Whether over TLS, unverified.
    pub tls: bool,
    /// Extra headers.
    pub headers: Vec<(String, String)>,
}

impl HttpTarget {
    /// Reads an action of a container whose pod has the address `ip`.
    pub fn of(action: &HTTPGetAction, container: &Container, ip: &str) -> Result<HttpTarget, BadPort> {
        let path = action.path.clone().unwrap_or_default();
        let headers =
            action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        Ok(HttpTarget {
            host: action.host.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| ip.to_owned()),
            port: port(&action.port, container)?,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            tls: action.scheme.as_deref() == Some("HTTPS"),
            headers,
        })
    }

    fn url(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{}://{host}:{}{}", if self.tls { "https" } else { "http" }, self.port, self.path)
    }
}

/// A port that the container does not have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("invalid port {0:?}")]
pub struct BadPort(IntOrString);

/// A port by number or by name among the container's ports.
fn port(port: &IntOrString, container: &Container) -> Result<u16, BadPort> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|p| p.name.as_deref() == Some(name))
            .map(|p| p.container_port)
            .or_else(|| name.parse().ok()),
    };
    number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| BadPort(port.clone()))
}

/// Puts the probe's question to container `id`, whose pod has the address `ip`.
pub(crate) async fn run(
    node: &Arc<Node>,
    container: &Container,
    probe: &Probe,
    id: &ContainerId,
    ip: &str,
    timeout: Duration,
) -> Answer {
    if let Some(exec) = &probe.exec {
        return command(node, id, exec.command.as_deref().unwrap_or_default(), timeout).await;
    }
    if let Some(action) = &probe.http_get {
        return match HttpTarget::of(action, container, ip) {
            Ok(target) => http(&target, timeout).await,
            Err(error) => Answer::Error(error.to_string()),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action.host.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| ip.to_owned());
        return match port(&action.port, container) {
            Ok(port) => tcp(&host, port, timeout).await,
            Err(error) => Answer::Error(error.to_string()),
        };
    }
    if let Some(action) = &probe.grpc {
        let Ok(port) = u16::try_from(action.port) else { return Answer::Error("invalid port".into()) };
        return super::grpc::health(ip, port, action.service.as_deref().unwrap_or_default(), timeout).await;
    }
    Answer::Error("missing probe handler".to_owned())
}

async fn command(node: &Arc<Node>, id: &ContainerId, command: &[String], timeout: Duration) -> Answer {
    match node.runtime.exec_sync(id, command, timeout).await {
        Ok(answer) => {
            let mut output = answer.stdout;
            output.extend_from_slice(&answer.stderr);
            output.truncate(BODY_LIMIT);
            let text = String::from_utf8_lossy(&output).into_owned();
            if answer.exit_code == 0 { Answer::Success(text) } else { Answer::Failure(text) }
        }
        Err(error) if error.status.code() == tonic::Code::DeadlineExceeded => Answer::Failure(format!(
            "command timed out: \"{}\" timed out after {}s",
            command.join(" "),
            timeout.as_secs()
        )),
        Err(error) => Answer::Error(error.to_string()),
    }
}

async fn tcp(host: &str, port: u16, timeout: Duration) -> Answer {
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Answer::Success(String::new()),
        Ok(Err(error)) => Answer::Failure(not_dialled(host, port, &error)),
        Err(_) => Answer::Failure(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}

/// Why no connection came about, in the words that events have for it everywhere.
fn not_dialled(host: &str, port: u16, error: &std::io::Error) -> String {
    use std::io::ErrorKind as Kind;
    let why = match error.kind() {
        Kind::ConnectionRefused => "connection refused".to_owned(),
        Kind::HostUnreachable => "no route to host".to_owned(),
        Kind::NetworkUnreachable => "network is unreachable".to_owned(),
        Kind::ConnectionReset => "connection reset by peer".to_owned(),
        Kind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {host}:{port}: connect: {why}")
}

/// Connects, or tells why not.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, AnyError> {
    TcpStream::connect((host, port)).await.map_err(|error| not_dialled(host, port, &error).into())
}

/// Asks over HTTP; 200 to 399 is good.
pub async fn http(target: &HttpTarget, timeout: Duration) -> Answer {
    let url = target.url();
    match tokio::time::timeout(timeout, exchange(target)).await {
        Err(_) => Answer::Failure(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
        Ok(Err(error)) => Answer::Failure(format!("Get \"{url}\": {error}")),
        Ok(Ok((code, body))) => judge(code, body),
    }
}

fn judge(code: u16, body: String) -> Answer {
    match code {
        300..400 => Answer::Warning("Probe terminated redirects, Response body: ".to_owned() + &body),
        200..300 => Answer::Success(body),
        _ => Answer::Failure(format!("HTTP probe failed with statuscode: {code}")),
    }
}

pub(super) type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(target: &HttpTarget) -> Result<(u16, String), AnyError> {
    let stream = dial(&target.host, target.port).await?;
    if target.tls {
        let name = rustls::pki_types::ServerName::try_from(target.host.clone())
            .unwrap_or(rustls::pki_types::ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
        let stream = crate::tls::unverified_connector().connect(name, stream).await?;
        speak(target, TokioIo::new(stream)).await
    } else {
        speak(target, TokioIo::new(stream)).await
    }
}

async fn speak<S>(target: &HttpTarget, stream: S) -> Result<(u16, String), AnyError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let host = target.url();
    let host = host.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let mut request = http::Request::builder().uri(&target.path).header("Accept", "*/*");
    if !target.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("Host", host);
    }
    if !target.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent")) {
        request = request.header("User-Agent", "kube-probe/1.36");
    }
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    let request = request.header("Connection", "close").body(Empty::<bytes::Bytes>::new())?;
    let talk = async {
        let response = sender.send_request(request).await?;
        let code = response.status().as_u16();
        Ok::<_, AnyError>((code, beginning(response.into_body()).await))
    };
    tokio::pin!(talk);
    let mut connection = std::pin::pin!(connection);
    let mut open = true;
    loop {
        tokio::select! {
            answer = &mut talk => return answer,
            ended = &mut connection, if open => {
                open = false;
                ended?;
            }
        }
    }
}

/// The beginning of a body; a body beyond the limit is cut, not an error, and not waited for.
async fn beginning(mut body: hyper::body::Incoming) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            let room = BODY_LIMIT - bytes.len();
            bytes.extend_from_slice(&data[..data.len().min(room)]);
        }
        if bytes.len() == BODY_LIMIT {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_port_is_looked_up_among_the_containers_ports() {
        let container: Container = serde_json::from_value(
            serde_json::json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}),
        )
        .unwrap();
        assert_eq!(port(&IntOrString::String("web".into()), &container), Ok(8080));
        assert!(port(&IntOrString::String("nope".into()), &container).is_err());
        assert!(port(&IntOrString::Int(70_000), &container).is_err());
    }

    /// Answers one connection with these bytes and says what was asked.
    async fn answer(listener: tokio::net::TcpListener, bytes: &'static [u8]) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            heard.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(bytes).await.unwrap();
        String::from_utf8(heard).unwrap().to_lowercase()
    }

    #[tokio::test]
    async fn an_http_probe_asks_as_kubernetes_does_and_judges_the_answer() {
        let second = Duration::from_secs(5);
        for (bytes, good) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"[..], true),
            (&b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"[..], false),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let target = HttpTarget {
                host: "127.0.0.1".into(),
                port: listener.local_addr().unwrap().port(),
                path: "/live?x=1".into(),
                tls: false,
                headers: vec![("X-Own".into(), "yes".into())],
            };
            let (heard, got) = tokio::join!(answer(listener, bytes), http(&target, second));
            assert!(heard.starts_with("get /live?x=1 http/1.1\r\n"), "{heard}");
            assert!(heard.contains("user-agent: kube-probe/") && heard.contains("x-own: yes"), "{heard}");
            assert_eq!(matches!(got, Answer::Success(_)), good, "{got:?}");
        }
    }

    /// Answers one connection with a head and then goes on for ever.
    async fn babble(listener: tokio::net::TcpListener) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            heard.push(socket.read_u8().await.unwrap());
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n").await.unwrap();
        while socket.write_all(&[b'x'; 4096]).await.is_ok() {}
    }

    #[tokio::test]
    async fn a_body_without_end_is_cut_and_not_waited_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = HttpTarget {
            host: "127.0.0.1".into(),
            port: listener.local_addr().unwrap().port(),
            path: "/".into(),
            tls: false,
            headers: Vec::new(),
        };
        let (_, got) = tokio::join!(babble(listener), http(&target, Duration::from_secs(30)));
        assert_eq!(got, Answer::Success("x".repeat(BODY_LIMIT)));
    }

    #[tokio::test]
    async fn a_closed_port_fails_and_an_open_one_does_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(matches!(tcp("127.0.0.1", port, Duration::from_secs(5)).await, Answer::Success(_)));
        drop(listener);
        assert!(matches!(tcp("127.0.0.1", port, Duration::from_secs(5)).await, Answer::Failure(_)));
    }

    #[test]
    fn only_200_to_399_is_good() {
        assert!(matches!(judge(204, String::new()), Answer::Success(_)));
        assert!(matches!(judge(302, String::new()), Answer::Warning(_)));
        assert_eq!(
            judge(500, String::new()),
            Answer::Failure("HTTP probe failed with statuscode: 500".into())
        );
    }
}
