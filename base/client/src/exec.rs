//! A command in a container, its streams on one web socket.
//!
//! A message begins with the number of its channel: 0 to 2 are the standard streams, 3 is how it ended; the version with 255
//! can also say that one of them is at its end. <https://kubernetes.io/docs/reference/using-api/api-concepts/>

use std::io;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};
use http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube_core::Status;
use kube_core::subresource::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::{Message, protocol::Role};

use crate::body::Body;
use crate::client::{Client, Error, Result, granted};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ENDED: u8 = 3;
const CLOSE: u8 = 255;

/// What we speak, the better one first.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";
/// Keeps what stands between from taking silence for the end.
const PING: Duration = Duration::from_secs(60);

/// How a command ended: what the server said of it, or nothing when the connection ended first.
pub type Ended = Option<Status>;

/// A command that runs.
pub struct Process {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    closes_streams: bool,
}

impl Process {
    /// Begins a command in a container of a pod.
    pub async fn begin(
        client: &Client,
        namespace: &str,
        pod: &str,
        command: &[String],
        params: &AttachParams,
    ) -> Result<Process> {
        let requests = kube_core::Request::new(format!("/api/v1/namespaces/{namespace}/pods"));
        let mut request = requests.exec(pod, command, params)?.map(Body::from);
        let key = generate_key();
        ask_for_socket(&mut request, &key)?;
        let answer = granted(client.send(request).await?).await?;
        let protocol = spoken(&answer, &key)?;
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| Error::Upgrade(error.to_string()))?;
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
        Ok(Process { socket, closes_streams: protocol.starts_with("v5") })
    }

    /// Moves bytes until the command has ended; not cancel safe.
    pub async fn run(
        mut self,
        input: Option<impl AsyncRead + Unpin>,
        mut output: impl AsyncWrite + Unpin,
        mut errors: impl AsyncWrite + Unpin,
    ) -> io::Result<Ended> {
        let mut pings = tokio::time::interval(PING);
        pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        pings.reset();
        let mut input = input;
        let mut buffer = vec![0; 8192];
        loop {
            let feeding = async {
                match &mut input {
                    Some(input) => input.read(&mut buffer).await,
                    // Standard input may end long before the command does.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = pings.tick() => self.tell(Message::Ping(Default::default())).await?,
                message = self.socket.next() => match message.transpose().map_err(io::Error::other)? {
                    None => return Ok(None),
                    Some(Message::Binary(bytes)) => match bytes.split_first() {
                        Some((&STDOUT, data)) => pour(&mut output, data).await?,
                        Some((&STDERR, data)) => pour(&mut errors, data).await?,
                        Some((&ENDED, data)) if !data.is_empty() => {
                            let text = String::from_utf8_lossy(data);
                            return serde_json::from_str(&text).map(Some).map_err(io::Error::other);
                        }
                        _ => {}
                    },
                    Some(_) => {}
                },
                read = feeding => match read? {
                    0 => {
                        input = None;
                        self.end_input().await?;
                    }
                    count => {
                        let mut message = vec![STDIN];
                        message.extend_from_slice(&buffer[..count]);
                        self.tell(Message::binary(message)).await?;
                    }
                },
            }
        }
    }

    async fn end_input(&mut self) -> io::Result<()> {
        match self.closes_streams {
            true => self.tell(Message::binary(vec![CLOSE, STDIN])).await,
            false => self.socket.close(None).await.map_err(io::Error::other),
        }
    }

    async fn tell(&mut self, message: Message) -> io::Result<()> {
        self.socket.send(message).await.map_err(io::Error::other)
    }
}

async fn pour(to: &mut (impl AsyncWrite + Unpin), data: &[u8]) -> io::Result<()> {
    to.write_all(data).await?;
    to.flush().await
}

fn ask_for_socket(request: &mut Request<Body>, key: &str) -> Result<()> {
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOLS));
    let key = HeaderValue::try_from(key).map_err(|error| Error::Request(error.into()))?;
    headers.insert(SEC_WEBSOCKET_KEY, key);
    Ok(())
}

/// The protocol that the server chose.
fn spoken(answer: &Response<Body>, key: &str) -> Result<String> {
    let said = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS || !said(UPGRADE).eq_ignore_ascii_case("websocket")
    {
        return Err(Error::Upgrade(format!("it answered {}", answer.status())));
    }
    if said(SEC_WEBSOCKET_ACCEPT) != derive_accept_key(key.as_bytes()) {
        return Err(Error::Upgrade("it accepted another request".to_owned()));
    }
    let protocol = said(SEC_WEBSOCKET_PROTOCOL);
    match PROTOCOLS.split(", ").any(|known| known == protocol) {
        true => Ok(protocol.to_owned()),
        false => Err(Error::Upgrade(format!("it speaks {protocol:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_speaks_our_protocol_is_taken() {
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, derive_accept_key(b"key").parse().unwrap());
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v4.channel.k8s.io"));
        assert_eq!(spoken(&answer, "key").unwrap(), "v4.channel.k8s.io");
        assert!(spoken(&answer, "other").is_err());
        answer.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("base64"));
        assert!(matches!(spoken(&answer, "key"), Err(Error::Upgrade(_))));
    }
}
