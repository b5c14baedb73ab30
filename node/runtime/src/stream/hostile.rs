//! A client's side of a WebSocket fed with any bytes, for fuzzing and for tests.

use bytes::Bytes;
use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;

use super::session::{FromClient, LONGEST_SIZE, Sizes};
use super::websocket;

/// What was understood of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Standard input.
    pub stdin: Vec<u8>,
    /// How often its end was told.
    pub ends: usize,
    /// Width and height of the terminal.
    pub sizes: Vec<(u16, u16)>,
}

/// Reads an exec or attach session from `io` to its end. Must never panic.
pub async fn session<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> Heard {
    let (_sink, stream) = websocket::socket(io).await.split();
    let (sender, mut receiver) = mpsc::channel(1);
    let collecting = async {
        let mut heard = Heard::default();
        while let Some(message) = receiver.recv().await {
            match message {
                FromClient::Stdin(bytes) => heard.stdin.extend_from_slice(&bytes),
                FromClient::StdinClosed => heard.ends += 1,
                FromClient::Resize(size) => heard.sizes.push((size.width, size.height)),
            }
        }
        heard
    };
    tokio::join!(websocket::read(stream, sender), collecting).1
}

/// Reads the bytes that are tunnelled in `io` to their end. Must never panic.
pub async fn tunnel<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(io: S) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Ignored: what came before an error counts.
    websocket::tunnel(io).await.read_to_end(&mut bytes).await.ok();
    bytes
}

/// The terminal sizes in these messages. Must never panic, nor keep more than a size may take.
pub fn sizes(messages: &[&[u8]]) -> Vec<(u16, u16)> {
    let mut sizes = Sizes::default();
    let mut all = Vec::new();
    for message in messages {
        all.extend(sizes.push(message).iter().map(|size| (size.width, size.height)));
        assert!(sizes.kept() <= LONGEST_SIZE, "{} bytes of a size are kept", sizes.kept());
    }
    all
}

/// A message to a client as the bytes of its channel.
pub fn channel_message(channel: u8, bytes: &[u8]) -> Option<Bytes> {
    websocket::data(websocket::channel_message(channel, bytes))
}
