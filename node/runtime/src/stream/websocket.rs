//! Sessions over WebSocket: each message starts with the number of its channel.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use super::Work;
use super::negotiate::Version;
use super::session::{self, FromClient, Sizes, ToClient};
use super::status;
use crate::stream::backend::StreamBackend;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// Chunks that may wait between the socket and the process.
const DEPTH: usize = 16;
/// How long to wait for the client's side of the good-bye.
const FAREWELL: Duration = Duration::from_secs(2);
/// The largest message of a tunnel; clients read with buffers of this size.
const TUNNEL_CHUNK: usize = 32 * 1024;

/// A message from the client, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientMessage {
    /// Standard input.
    Stdin(Bytes),
    /// The client has no more standard input (v5).
    StdinClosed,
    /// Bytes of a terminal size.
    Resize(Bytes),
    /// A channel that clients do not write to, or nothing.
    Other,
}

/// The bytes of a message with data. Some clients (Python's) write text messages; the channels do not care.
pub(super) fn data(message: Message) -> Option<Bytes> {
    match message {
        Message::Binary(bytes) => Some(bytes),
        Message::Text(text) => Some(text.into()),
        _ => None,
    }
}

/// Decodes one message with data.
pub(super) fn decode(message: &Bytes) -> ClientMessage {
    match message.first() {
        Some(&STDIN) => ClientMessage::Stdin(message.slice(1..)),
        Some(&RESIZE) => ClientMessage::Resize(message.slice(1..)),
        Some(&CLOSE) if message.get(1) == Some(&STDIN) => ClientMessage::StdinClosed,
        _ => ClientMessage::Other,
    }
}

pub(super) type Socket<S> = WebSocketStream<S>;

pub(super) async fn socket<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> Socket<S> {
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(4 << 20);
    config.max_frame_size = Some(4 << 20);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

pub(super) fn channel_message(channel: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.extend_from_slice(&[channel]);
    message.extend_from_slice(bytes);
    Message::Binary(message.freeze())
}

/// Runs an exec or attach session.
pub(super) async fn session<S>(io: S, version: Version, work: Work, backend: Arc<dyn StreamBackend>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sink, stream) = socket(io).await.split();
    let streams = match &work {
        Work::Exec { streams, .. } | Work::Attach { streams, .. } => *streams,
        Work::PortForward { .. } => return,
    };
    // An empty message on the first channel tells the client that it is connected.
    let first = if streams.stdout {
        STDOUT
    } else if streams.stderr {
        STDERR
    } else {
        ERROR
    };
    if sink.send(channel_message(first, b"")).await.is_err() {
        return;
    }
    let (from_sender, from) = mpsc::channel(DEPTH);
    let (to, mut to_receiver) = mpsc::channel(DEPTH);
    let reading = read(stream, from_sender);
    let writing = async {
        while let Some(message) = to_receiver.recv().await {
            if !write(&mut sink, message).await {
                break;
            }
        }
        sink
    };
    let running = session::run(backend, work, from, to);
    let mut reading = std::pin::pin!(reading);
    let mut finished = false;
    // The reader goes on to the end: it answers pings and keeps the client from blocking.
    let both = async { tokio::join!(running, writing) };
    let mut both = std::pin::pin!(both);
    let (ended, mut sink) = loop {
        tokio::select! {
            both = &mut both => break both,
            () = &mut reading, if !finished => finished = true,
        }
    };
    if let Some(ended) = ended {
        let code = status::encode(&ended, version);
        // Ignored: a client that is gone cannot be told.
        sink.send(channel_message(ERROR, &code)).await.ok();
    }
    close(&mut sink).await;
    if !finished {
        // Ignored: closing while the client's answer is under way could destroy what it has not read.
        tokio::time::timeout(FAREWELL, reading).await.ok();
    }
}

/// Says good-bye with the code for a normal end: Kubernetes clients take any other as an error.
pub(super) async fn close<S: AsyncRead + AsyncWrite + Unpin>(sink: &mut SplitSink<Socket<S>, Message>) {
    let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    // Ignored: a client that is gone needs no close.
    sink.send(Message::Close(Some(frame))).await.ok();
}

pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: SplitStream<Socket<S>>,
    from: mpsc::Sender<FromClient>,
) {
    let mut sizes = Sizes::default();
    while let Some(Ok(message)) = stream.next().await {
        if message.is_close() {
            return;
        }
        let Some(bytes) = data(message) else { continue };
        let message = match decode(&bytes) {
            ClientMessage::Stdin(bytes) => vec![FromClient::Stdin(bytes)],
            ClientMessage::StdinClosed => vec![FromClient::StdinClosed],
            ClientMessage::Resize(bytes) => sizes.push(&bytes).into_iter().map(FromClient::Resize).collect(),
            ClientMessage::Other => continue,
        };
        for message in message {
            if from.send(message).await.is_err() {
                return;
            }
        }
    }
}

async fn write<S: AsyncRead + AsyncWrite + Unpin>(
    sink: &mut SplitSink<Socket<S>, Message>,
    message: ToClient,
) -> bool {
    let message = match message {
        ToClient::Stdout(bytes) => channel_message(STDOUT, &bytes),
        ToClient::Stderr(bytes) => channel_message(STDERR, &bytes),
        // Clients know no close of single channels in this direction.
        ToClient::StdoutClosed | ToClient::StderrClosed => return true,
    };
    sink.send(message).await.is_ok()
}

/// The byte stream that a client tunnels in binary messages.
pub(super) async fn tunnel<S>(io: S) -> Tunnel<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Tunnel { socket: socket(io).await, rest: Bytes::new() }
}

/// A byte stream within WebSocket messages.
pub(super) struct Tunnel<S> {
    socket: Socket<S>,
    /// What was received and not read yet.
    rest: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match std::task::ready!(self.socket.poll_next_unpin(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.rest = bytes,
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let take = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(take));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.socket.poll_ready_unpin(cx)).map_err(io::Error::other)?;
        let bytes = &bytes[..bytes.len().min(TUNNEL_CHUNK)];
        let message = Message::Binary(Bytes::copy_from_slice(bytes));
        self.socket.start_send_unpin(message).map_err(io::Error::other)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_flush_unpin(cx).map_err(io::Error::other)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_close_unpin(cx).map_err(io::Error::other)
    }
}
