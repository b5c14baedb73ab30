//! One SPDY connection: accepts streams, hands their data on, writes frames in order.
//!
//! Tasks: none of its own; the caller polls the driver beside what it does with the streams.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::{Decoder, Encoder, Frame, Headers};

/// Streams that may be open at once.
const MOST_STREAMS: usize = 1024;
/// Chunks of one stream that may wait to be taken.
const DEPTH: usize = 16;
const READ: usize = 32 * 1024;
/// Data frames are cut to this size, which every client's buffers take.
const FRAME: usize = 32 * 1024;
/// How long to wait for the peer's side of the good-bye.
const FAREWELL: Duration = Duration::from_secs(2);
const REFUSED_STREAM: u32 = 3;
const STREAM_IN_USE: u32 = 8;

/// What the peer opens, and the way back to it.
pub(crate) struct Connection {
    /// Streams as the peer opens them.
    pub(crate) streams: mpsc::Receiver<Stream>,
    frames: mpsc::Sender<Frame>,
}

impl Connection {
    /// Tells the peer that this is the end; the driver then drains and closes.
    pub(crate) async fn finish(self) {
        // Ignored: a peer that is gone needs no good-bye.
        self.frames.send(Frame::GoAway { last: 0, status: 0 }).await.ok();
    }
}

/// A stream that the peer opened.
pub(crate) struct Stream {
    pub(crate) id: u32,
    headers: Headers,
    /// Data as it comes; ends when the peer closes or resets the stream.
    pub(crate) data: mpsc::Receiver<Bytes>,
    pub(crate) writer: StreamWriter,
}

impl Stream {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The way to the peer on one stream.
#[derive(Clone)]
pub(crate) struct StreamWriter {
    id: u32,
    frames: mpsc::Sender<Frame>,
}

impl StreamWriter {
    /// Sends `data`; false if the connection is gone.
    pub(crate) async fn send(&self, mut data: Bytes) -> bool {
        while !data.is_empty() {
            let part = data.split_to(data.len().min(FRAME));
            let frame = Frame::Data { stream: self.id, fin: false, data: part };
            if self.frames.send(frame).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Sends nothing more.
    pub(crate) async fn close(&self) {
        // Ignored: a connection that is gone has no streams left to close.
        self.frames.send(Frame::Data { stream: self.id, fin: true, data: Bytes::new() }).await.ok();
    }
}

/// A connection over `io`, and the driver that must be polled for it to move.
///
/// The driver ends when the peer goes away, or when the connection and all writers are dropped and
/// everything was sent.
pub(crate) fn start<S>(io: S) -> (impl Future<Output = io::Result<()>> + Send, Connection)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (frames, frames_receiver) = mpsc::channel(64);
    let (streams_sender, streams) = mpsc::channel(16);
    let (reader, writer) = tokio::io::split(io);
    let weak = frames.downgrade();
    let driver = async move {
        let mut reading = std::pin::pin!(read(reader, streams_sender, weak));
        let mut writing = std::pin::pin!(write(writer, frames_receiver));
        tokio::select! {
            ended = &mut reading => ended,
            ended = &mut writing => {
                ended?;
                // Closing while the peer still sends could destroy what it has not read yet.
                match tokio::time::timeout(FAREWELL, reading).await {
                    Ok(ended) => ended,
                    Err(_) => Ok(()),
                }
            }
        }
    };
    (driver, Connection { streams, frames })
}

async fn write(mut io: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>) -> io::Result<()> {
    let mut encoder = Encoder::new();
    let mut out = BytesMut::new();
    while let Some(frame) = frames.recv().await {
        encoder.encode(&frame, &mut out);
        while out.len() < FRAME {
            match frames.try_recv() {
                Ok(frame) => encoder.encode(&frame, &mut out),
                Err(_) => break,
            }
        }
        io.write_all(&out).await?;
        io.flush().await?;
        out.clear();
    }
    io.shutdown().await
}

async fn read(
    mut io: impl AsyncRead + Unpin,
    streams: mpsc::Sender<Stream>,
    frames: mpsc::WeakSender<Frame>,
) -> io::Result<()> {
    let mut decoder = Decoder::new();
    let mut buffer = BytesMut::new();
    let mut open: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    loop {
        while let Some(frame) = decoder.decode(&mut buffer).map_err(io::Error::other)? {
            take(frame, &mut open, &streams, &frames).await;
        }
        buffer.reserve(READ);
        if io.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

async fn take(
    frame: Frame,
    open: &mut HashMap<u32, mpsc::Sender<Bytes>>,
    streams: &mpsc::Sender<Stream>,
    frames: &mpsc::WeakSender<Frame>,
) {
    match frame {
        Frame::SynStream { stream, fin, headers } => {
            let Some(frames) = frames.upgrade() else { return };
            open.retain(|_, sender| !sender.is_closed());
            let refusal = if open.contains_key(&stream) {
                Some(STREAM_IN_USE)
            } else if open.len() >= MOST_STREAMS || streams.is_closed() {
                Some(REFUSED_STREAM)
            } else {
                None
            };
            if let Some(status) = refusal {
                // Ignored: a connection that is gone refuses everything.
                frames.send(Frame::Reset { stream, status }).await.ok();
                return;
            }
            let (sender, data) = mpsc::channel(DEPTH);
            if !fin {
                open.insert(stream, sender);
            }
            let reply = Frame::SynReply { stream, fin: false, headers: vec![] };
            let writer = StreamWriter { id: stream, frames: frames.clone() };
            // Ignored: a connection that is gone has nobody to accept streams.
            frames.send(reply).await.ok();
            streams.send(Stream { id: stream, headers, data, writer }).await.ok();
        }
        Frame::Data { stream, fin, data } => {
            if !data.is_empty()
                && let Some(sender) = open.get(&stream)
            {
                // Ignored: a stream whose reader is gone swallows the rest.
                sender.send(data).await.ok();
            }
            if fin {
                open.remove(&stream);
            }
        }
        Frame::Reset { stream, .. } | Frame::Headers { stream, fin: true, .. } => {
            open.remove(&stream);
        }
        Frame::Ping { id } => {
            if id % 2 == 1
                && let Some(frames) = frames.upgrade()
            {
                // Ignored: a connection that is gone needs no answer.
                frames.send(Frame::Ping { id }).await.ok();
            }
        }
        Frame::SynReply { .. } | Frame::Headers { .. } | Frame::GoAway { .. } | Frame::Other { .. } => {}
    }
}
