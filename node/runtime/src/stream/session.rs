//! An exec or attach session between a backend's streams and a client, whatever the framing.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::status::Ended;
use super::{IDLE, Work};
use crate::stream::backend::{BoxRead, BoxWrite, Session, StreamBackend, TerminalSize};

/// What a client sends.
#[derive(Debug)]
pub(super) enum FromClient {
    /// Standard input.
    Stdin(Bytes),
    /// No more standard input.
    StdinClosed,
    /// A new terminal size.
    Resize(TerminalSize),
}

/// What a client gets.
#[derive(Debug)]
pub(super) enum ToClient {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// Standard output is at its end.
    StdoutClosed,
    /// Standard error is at its end.
    StderrClosed,
}

/// After the process has ended, output of processes it left behind is awaited this long at a time.
const LINGER: Duration = Duration::from_secs(1);
const CHUNK: usize = 32 * 1024;

/// A terminal size as clients write it.
#[derive(Deserialize)]
struct WireSize {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// What a client may send of a size before it is complete; a whole one takes some thirty bytes.
pub(super) const LONGEST_SIZE: usize = 1024;

/// Terminal sizes as a client sends them: one JSON object after the other, cut anywhere.
#[derive(Default)]
pub(super) struct Sizes {
    rest: BytesMut,
}

impl Sizes {
    /// How many bytes wait for their end.
    pub(super) fn kept(&self) -> usize {
        self.rest.len()
    }

    /// The sizes that are complete with `bytes`. What makes no sense, or never ends, is forgotten.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<TerminalSize> {
        self.rest.extend_from_slice(bytes);
        let sizes = parse_sizes(&mut self.rest).unwrap_or_else(|error| {
            tracing::debug!(%error, "terminal size not understood");
            self.rest = BytesMut::new();
            Vec::new()
        });
        if self.rest.len() > LONGEST_SIZE {
            tracing::debug!(bytes = self.rest.len(), "terminal size without an end forgotten");
            self.rest = BytesMut::new();
        }
        sizes
    }
}

/// Takes the complete sizes out of `buffer`, which keeps an incomplete rest.
fn parse_sizes(buffer: &mut BytesMut) -> Result<Vec<TerminalSize>, serde_json::Error> {
    let mut sizes = Vec::new();
    let mut values = serde_json::Deserializer::from_slice(buffer).into_iter::<WireSize>();
    let mut used = 0;
    let end = loop {
        match values.next() {
            Some(Ok(size)) => {
                sizes.push(TerminalSize { width: size.width, height: size.height });
                used = values.byte_offset();
            }
            Some(Err(error)) if error.is_eof() => break Ok(()),
            Some(Err(error)) => break Err(error),
            None => {
                used = buffer.len();
                break Ok(());
            }
        }
    };
    drop(values);
    // Ignored: only the length of the buffer matters, and split_to returns what is dropped.
    drop(buffer.split_to(used));
    end.map(|()| sizes)
}

/// Opens what `work` stands for and runs it until it ends, `None` if the client goes away.
///
/// Dropping the returned future ends the session and, for exec, its process.
pub(super) async fn run(
    backend: Arc<dyn StreamBackend>,
    work: Work,
    mut from: mpsc::Receiver<FromClient>,
    to: mpsc::Sender<ToClient>,
) -> Option<Ended> {
    let (verb, attach, opened) = match &work {
        Work::Exec { container, argv, streams } => {
            ("executing command in", false, backend.exec(container, argv, *streams).await)
        }
        Work::Attach { container, streams } => {
            ("attaching to", true, backend.attach(container, *streams).await)
        }
        Work::PortForward { .. } => return Some(Ended::Failed("not a session".to_owned())),
    };
    let Session { stdin, stdout, stderr, resize, exit } = match opened {
        Ok(session) => session,
        Err(error) => return Some(Ended::failed(verb, &error)),
    };
    let exited = CancellationToken::new();
    let activity = Activity::new();
    let outputs = async {
        tokio::join!(
            output(stdout, to.clone(), Which::Out, &exited, &activity),
            output(stderr, to.clone(), Which::Err, &exited, &activity),
        )
    };
    let exit = async {
        let code = exit.await;
        exited.cancel();
        code
    };
    tokio::select! {
        ended = async { tokio::join!(exit, outputs).0 } => Some(match ended {
            Ok(_) if attach => Ended::Exit(0),
            Ok(code) => Ended::Exit(code),
            Err(error) => Ended::failed(verb, &error),
        }),
        () = input(stdin, &mut from, &resize, &activity) => None,
        () = activity.idle() => {
            tracing::info!("streaming session ended: no traffic for four hours");
            None
        }
    }
}

#[derive(Clone, Copy)]
enum Which {
    Out,
    Err,
}

/// Copies one output to the client until its end.
async fn output(
    reader: Option<BoxRead>,
    to: mpsc::Sender<ToClient>,
    which: Which,
    exited: &CancellationToken,
    activity: &Activity,
) {
    let Some(mut reader) = reader else { return };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        let lingered = async {
            exited.cancelled().await;
            tokio::time::sleep(LINGER).await;
        };
        let read = tokio::select! {
            biased;
            read = reader.read_buf(&mut buffer) => read,
            () = lingered => Ok(0),
        };
        match read {
            // A terminal whose last user is gone ends with an error.
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        activity.seen();
        let bytes = buffer.split().freeze();
        let message = match which {
            Which::Out => ToClient::Stdout(bytes),
            Which::Err => ToClient::Stderr(bytes),
        };
        if to.send(message).await.is_err() {
            return;
        }
    }
    let closed = match which {
        Which::Out => ToClient::StdoutClosed,
        Which::Err => ToClient::StderrClosed,
    };
    // Ignored: a client that is gone needs no end mark.
    to.send(closed).await.ok();
}

/// Copies the client's input to the process; returns when the client is gone.
async fn input(
    mut stdin: Option<BoxWrite>,
    from: &mut mpsc::Receiver<FromClient>,
    resize: &mpsc::Sender<TerminalSize>,
    activity: &Activity,
) {
    while let Some(message) = from.recv().await {
        activity.seen();
        match message {
            FromClient::Stdin(bytes) => {
                if let Some(writer) = &mut stdin
                    && let Err(error) = write(writer, &bytes).await
                {
                    // The process closed its input; the client may go on sending.
                    tracing::debug!(%error, "standard input not taken");
                    stdin = None;
                }
            }
            FromClient::StdinClosed => {
                if let Some(mut writer) = stdin.take() {
                    // Ignored: an input that is closed already is what was wanted.
                    writer.shutdown().await.ok();
                }
            }
            // Ignored: a session without a terminal drops sizes.
            FromClient::Resize(size) => drop(resize.try_send(size)),
        }
    }
}

async fn write(writer: &mut BoxWrite, bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// When something was last sent or received.
pub(super) struct Activity(std::sync::Mutex<tokio::time::Instant>);

impl Activity {
    pub(super) fn new() -> Self {
        Self(std::sync::Mutex::new(tokio::time::Instant::now()))
    }

    pub(super) fn seen(&self) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = tokio::time::Instant::now();
    }

    /// Resolves once nothing was seen for [`IDLE`].
    pub(super) async fn idle(&self) {
        loop {
            let until = *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) + IDLE;
            if until <= tokio::time::Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_taken_as_they_complete() {
        let mut buffer = BytesMut::from(&br#"{"Width":80,"Height":24}{"Width":100,"#[..]);
        let size = |width, height| TerminalSize { width, height };
        assert_eq!(parse_sizes(&mut buffer).unwrap(), [size(80, 24)]);
        buffer.extend_from_slice(br#""Height":30}"#);
        assert_eq!(parse_sizes(&mut buffer).unwrap(), [size(100, 30)]);
        assert!(buffer.is_empty());
        buffer.extend_from_slice(b"nonsense");
        assert!(parse_sizes(&mut buffer).is_err());
    }
    #[test]
    fn a_size_that_never_ends_is_forgotten_and_the_next_one_counts() {
        let mut sizes = Sizes::default();
        assert!(sizes.push(br#"{"Width":80,"Name":""#).is_empty());
        for _ in 0..10_000 {
            assert!(sizes.push(&[b'x'; 100]).is_empty());
            assert!(sizes.rest.len() <= LONGEST_SIZE, "{} bytes are kept", sizes.rest.len());
        }
        assert!(sizes.push(&vec![b' '; 4 << 20]).is_empty());
        assert!(sizes.rest.capacity() <= 2 * LONGEST_SIZE);
        sizes.push(b"nonsense");
        assert_eq!(sizes.push(br#"{"Width":100,"Height":30}"#), [TerminalSize { width: 100, height: 30 }]);
    }
}
