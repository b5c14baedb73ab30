//! Exec and attach sessions over SPDY: one stream each for input, output, errors, sizes and status.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::negotiate::Version;
use super::session::{self, FromClient, Sizes, ToClient};
use super::spdy::{self, Connection, Stream, StreamWriter};
use super::status;
use super::{STREAM_CREATION, Work};
use crate::stream::backend::{StreamBackend, Streams};

/// The streams of a session, by their role.
#[derive(Default)]
struct Roles {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Roles {
    fn put(&mut self, stream: Stream) {
        let role = match stream.header("streamtype") {
            Some("error") => &mut self.error,
            Some("stdin") => &mut self.stdin,
            Some("stdout") => &mut self.stdout,
            Some("stderr") => &mut self.stderr,
            Some("resize") => &mut self.resize,
            other => {
                tracing::debug!(kind = other, "stream of an unknown type left alone");
                return;
            }
        };
        *role = Some(stream);
    }

    fn complete(&self, streams: Streams, version: Version) -> bool {
        self.error.is_some()
            && (!streams.stdin || self.stdin.is_some())
            && (!streams.stdout || self.stdout.is_some())
            && (!streams.stderr || self.stderr.is_some())
            && (!streams.tty || version < Version::V3 || self.resize.is_some())
    }
}

/// Runs an exec or attach session.
pub(super) async fn session<S>(io: S, version: Version, work: Work, backend: Arc<dyn StreamBackend>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (driver, connection) = spdy::start(io);
    let mut driver = std::pin::pin!(driver);
    let finished = tokio::select! {
        ended = &mut driver => {
            if let Err(error) = ended {
                tracing::debug!(%error, "streaming client broke the connection");
            }
            true
        }
        () = converse(connection, version, work, backend) => false,
    };
    if !finished && let Err(error) = driver.await {
        tracing::debug!(%error, "streaming client did not take the end of its session");
    }
}

async fn converse(mut connection: Connection, version: Version, work: Work, backend: Arc<dyn StreamBackend>) {
    let streams = match &work {
        Work::Exec { streams, .. } | Work::Attach { streams, .. } => *streams,
        Work::PortForward { .. } => return,
    };
    let mut roles = Roles::default();
    let gather = async {
        while !roles.complete(streams, version) {
            match connection.streams.recv().await {
                Some(stream) => roles.put(stream),
                None => return false,
            }
        }
        true
    };
    if !matches!(tokio::time::timeout(STREAM_CREATION, gather).await, Ok(true)) {
        tracing::info!("streaming client did not open the streams it announced");
        return;
    }
    let Some(error) = roles.error.take() else { return };
    let (from_sender, from) = mpsc::channel(16);
    let (to, to_receiver) = mpsc::channel(16);
    let stdout = roles.stdout.as_ref().map(|stream| stream.writer.clone());
    let stderr = roles.stderr.as_ref().map(|stream| stream.writer.clone());
    let stdin = roles.stdin.as_ref().map(|stream| stream.writer.clone());
    let reading = read(roles.stdin.take(), roles.resize.take(), from_sender);
    let running =
        async { tokio::join!(session::run(backend, work, from, to), write(to_receiver, stdout, stderr)).0 };
    let ended = tokio::select! {
        ended = running => ended,
        () = reading => None,
    };
    if let Some(ended) = ended {
        let code = status::encode(&ended, version);
        error.writer.send(code.into()).await;
    }
    error.writer.close().await;
    if let Some(stdin) = stdin {
        stdin.close().await;
    }
    connection.finish().await;
}

/// Passes the client's input on; never ends, the driver tells when the client is gone.
async fn read(stdin: Option<Stream>, resize: Option<Stream>, from: mpsc::Sender<FromClient>) {
    let input = async {
        let Some(mut stdin) = stdin else { return };
        while let Some(bytes) = stdin.data.recv().await {
            // Ignored: a session that has ended takes no input.
            from.send(FromClient::Stdin(bytes)).await.ok();
        }
        from.send(FromClient::StdinClosed).await.ok();
    };
    let sizes = async {
        let Some(mut resize) = resize else { return };
        let mut sizes = Sizes::default();
        while let Some(bytes) = resize.data.recv().await {
            for size in sizes.push(&bytes) {
                // Ignored: a session that has ended takes no sizes.
                from.send(FromClient::Resize(size)).await.ok();
            }
        }
    };
    tokio::join!(input, sizes);
    std::future::pending().await
}

/// Passes output on to the client; each stream is closed at its end.
async fn write(mut to: mpsc::Receiver<ToClient>, stdout: Option<StreamWriter>, stderr: Option<StreamWriter>) {
    while let Some(message) = to.recv().await {
        match (message, &stdout, &stderr) {
            (ToClient::Stdout(bytes), Some(writer), _) | (ToClient::Stderr(bytes), _, Some(writer)) => {
                writer.send(bytes).await;
            }
            (ToClient::StdoutClosed, Some(writer), _) | (ToClient::StderrClosed, _, Some(writer)) => {
                writer.close().await;
            }
            _ => {}
        }
    }
}
