//! One connection between a runtime and a plugin: two ttrpc directions over one multiplexed stream.
//!
//! Spawns a reader, a writer and one task per served call into the given tracker; all end when the stream
//! does, or when the link is closed. The reader waits when too many calls are being served, so that a peer that
//! floods slows down itself only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use podwire_wire::ttrpc::{self, Kind, MESSAGE_LIMIT, Request, Response, Status, code};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::mux::{self, Demux, PLUGIN_CONN, RUNTIME_CONN};
use crate::timeout;

/// Calls served at the same time; the reader waits with more.
const SERVED_AT_ONCE: usize = 256;
/// Where a message's header has the number of its call.
const STREAM_BYTES: std::ops::Range<usize> = 4..8;
/// Messages waiting to be written.
const WRITE_QUEUE: usize = 64;

/// The full name of the service that plugins offer.
pub(crate) const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The full name of the service that runtimes offer.
pub(crate) const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Which end of the link this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Runtime,
    Plugin,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The other side answered with an error.
    #[error("{message}")]
    Refused {
        /// A ttrpc status code.
        code: i32,
        /// The other side's words.
        message: String,
    },
    /// There was no answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection is gone.
    #[error("the connection is closed")]
    Closed,
    /// The message is larger than one may be.
    #[error("a message of {size} bytes exceeds the limit of {MESSAGE_LIMIT}")]
    TooLarge {
        /// Its size.
        size: usize,
    },
    /// The answer could not be understood.
    #[error("the answer is not what the call returns")]
    Malformed,
}

impl CallError {
    /// Whether the other side does not know the method.
    pub(crate) fn unimplemented(&self) -> bool {
        matches!(self, Self::Refused { code: code::UNIMPLEMENTED, .. })
    }

    /// Whether the other side answered at all.
    pub(crate) fn answered(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// What this end serves.
pub(crate) trait Service: Send + Sync + 'static {
    /// Answers one call.
    fn call(&self, method: String, payload: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>>;
}

/// A status with a code and words.
pub(crate) fn status(code: i32, message: impl Into<String>) -> Status {
    Status { code, message: message.into() }
}

/// Reads a call's argument.
pub(crate) fn argument<M: Message + Default>(payload: Bytes) -> Result<M, Status> {
    M::decode(payload)
        .map_err(|error| status(code::INVALID_ARGUMENT, format!("unreadable argument: {error}")))
}

#[derive(Default)]
struct Calls {
    next: u32,
    waiting: HashMap<u32, oneshot::Sender<Result<Bytes, CallError>>>,
}

/// A living connection; cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    side: Side,
    calls: Mutex<Calls>,
    outgoing: mpsc::Sender<(u32, Vec<u8>)>,
    closed: CancellationToken,
    /// Why the peer's bytes could not be read any further.
    broken: OnceLock<String>,
    serving: Arc<Semaphore>,
}

impl Link {
    /// Begins to speak on `stream`.
    pub(crate) fn start(
        stream: UnixStream,
        side: Side,
        service: Arc<dyn Service>,
        tasks: &TaskTracker,
    ) -> Self {
        let (outgoing, queue) = mpsc::channel(WRITE_QUEUE);
        let closed = CancellationToken::new();
        let (calls, serving) = (Mutex::new(Calls::default()), Arc::new(Semaphore::new(SERVED_AT_ONCE)));
        let shared =
            Shared { side, calls, outgoing, closed: closed.clone(), broken: OnceLock::new(), serving };
        let shared = Arc::new(shared);
        let (reader, writer) = stream.into_split();
        tasks.spawn(write(writer, queue, closed.clone()));
        let (reading, tracker) = (shared.clone(), tasks.clone());
        tasks.spawn(async move {
            let ended = tokio::select! {
                () = closed.cancelled() => Ok(()),
                ended = read(reader, &reading, &service, &tracker) => ended,
            };
            if let Err(error) = ended {
                tracing::debug!(error, "NRI connection ended");
                // Ignored: there is one reader, so nothing was written before.
                reading.broken.set(error).ok();
            }
            reading.close();
        });
        Self { shared }
    }

    /// Calls a method of the other side.
    ///
    /// Not cancel safe in one respect: a call that was given up may still be carried out.
    pub(crate) async fn call<A: Message, R: Message + Default>(
        &self,
        method: &str,
        argument: &A,
        limit: Duration,
    ) -> Result<R, CallError> {
        let (conn, service) = match self.shared.side {
            Side::Runtime => (PLUGIN_CONN, PLUGIN_SERVICE),
            Side::Plugin => (RUNTIME_CONN, RUNTIME_SERVICE),
        };
        let request = Request {
            service: service.into(),
            method: method.into(),
            payload: argument.encode_to_vec().into(),
            timeout_nano: i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX),
            metadata: Vec::new(),
        };
        let size = request.encoded_len();
        if size > MESSAGE_LIMIT {
            return Err(CallError::TooLarge { size });
        }
        let mut message = ttrpc::encode(0, Kind::Request, &request);
        let exchange = async {
            let room = self.shared.outgoing.reserve().await.map_err(|_| CallError::Closed)?;
            let (forget, answer) = self.shared.register(|stream| {
                message[STREAM_BYTES].copy_from_slice(&stream.to_be_bytes());
                room.send((conn, message));
            })?;
            let answer = answer.await.map_err(|_| CallError::Closed)?;
            drop(forget);
            answer
        };
        let payload = timeout::within(limit, exchange).await?;
        R::decode(payload).map_err(|_| CallError::Malformed)
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.shared.close();
    }

    /// Returns once the connection has ended.
    pub(crate) async fn ended(&self) {
        self.shared.closed.cancelled().await;
    }

    /// What the peer did wrong, if its bytes could not be understood.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.shared.broken.get().map(String::as_str)
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.is_cancelled()
    }
}

/// Brings the answer to a call.
type Answering = oneshot::Receiver<Result<Bytes, CallError>>;

struct Forget<'a> {
    shared: &'a Shared,
    stream: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.calls().waiting.remove(&self.stream);
    }
}

impl Shared {
    fn calls(&self) -> std::sync::MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a call its number and queues it; numbers reach the peer in order, or Go's server refuses them.
    /// In <https://github.com/containerd/ttrpc/blob/main/server.go>.
    fn register(&self, queue: impl FnOnce(u32)) -> Result<(Forget<'_>, Answering), CallError> {
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.calls();
        if self.closed.is_cancelled() {
            return Err(CallError::Closed);
        }
        // Odd numbers that only grow; a connection does not live for two thousand million calls.
        let stream = calls.next * 2 + 1;
        calls.next = calls.next.wrapping_add(1);
        calls.waiting.insert(stream, sender);
        queue(stream);
        drop(calls);
        Ok((Forget { shared: self, stream }, receiver))
    }

    fn close(&self) {
        self.closed.cancel();
        self.calls().waiting.clear();
    }

    fn answered(&self, frame: &ttrpc::Frame) {
        // A call that was given up is no longer waited for.
        let Some(sender) = self.calls().waiting.remove(&frame.stream) else { return };
        let result = match Response::decode(frame.data.clone()) {
            Err(_) => Err(CallError::Malformed),
            Ok(Response { status: Some(Status { code, message }), .. }) if code != 0 => {
                Err(CallError::Refused { code, message })
            }
            Ok(response) => Ok(response.payload),
        };
        // Ignored: the caller has just given up.
        sender.send(result).ok();
    }
}

async fn read(
    mut stream: OwnedReadHalf,
    shared: &Arc<Shared>,
    service: &Arc<dyn Service>,
    tasks: &TaskTracker,
) -> Result<(), String> {
    let mut demux = Demux::default();
    let mut payload = Vec::new();
    loop {
        let mut header = [0; mux::HEADER_LEN];
        match stream.read_exact(&mut header).await {
            Ok(_) => {}
            // An end between two frames, or within the first bytes of one, is an end.
            Err(_) => return Ok(()),
        }
        let (conn, len) = mux::header(header).map_err(|error| error.to_string())?;
        payload.resize(len, 0);
        stream.read_exact(&mut payload).await.map_err(|error| format!("half a frame: {error}"))?;
        demux.push(conn, &payload);
        while let Some(frame) = demux.next(conn).map_err(|error| error.to_string())? {
            let serves = (conn == PLUGIN_CONN) == (shared.side == Side::Plugin);
            match (serves, frame.kind) {
                (true, Kind::Request) => {
                    let Ok(turn) = shared.serving.clone().acquire_owned().await else { return Ok(()) };
                    serve(shared, service, tasks, conn, &frame, turn);
                }
                (false, Kind::Response) => shared.answered(&frame),
                _ => return Err("a message in the wrong direction".into()),
            }
        }
    }
}

fn serve(
    shared: &Arc<Shared>,
    service: &Arc<dyn Service>,
    tasks: &TaskTracker,
    conn: u32,
    frame: &ttrpc::Frame,
    turn: OwnedSemaphorePermit,
) {
    let (shared, service, stream) = (shared.clone(), service.clone(), frame.stream);
    let request = Request::decode(frame.data.clone());
    tasks.spawn(async move {
        let wanted = match shared.side {
            Side::Runtime => RUNTIME_SERVICE,
            Side::Plugin => PLUGIN_SERVICE,
        };
        let result = match request {
            Err(error) => Err(status(code::INVALID_ARGUMENT, format!("unreadable request: {error}"))),
            Ok(request) if request.service != wanted => {
                Err(status(code::UNIMPLEMENTED, format!("service {}", request.service)))
            }
            Ok(request) => {
                tokio::select! {
                    () = shared.closed.cancelled() => Err(status(code::UNKNOWN, "the connection is closed")),
                    result = service.call(request.method, request.payload) => result,
                }
            }
        };
        let response = match result {
            Ok(payload) if payload.len() + 64 > MESSAGE_LIMIT => Response {
                status: Some(status(code::RESOURCE_EXHAUSTED, "the answer is too large")),
                payload: Bytes::new(),
            },
            Ok(payload) => Response { status: None, payload: payload.into() },
            Err(status) => Response { status: Some(status), payload: Bytes::new() },
        };
        // Ignored: with the connection gone nobody waits for the answer.
        shared.outgoing.send((conn, ttrpc::encode(stream, Kind::Response, &response))).await.ok();
        drop(turn);
    });
}

async fn write(
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::Receiver<(u32, Vec<u8>)>,
    closed: CancellationToken,
) {
    let writing = async {
        while let Some((conn, message)) = queue.recv().await {
            if stream.write_all(&mux::frames(conn, &message)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = writing => closed.cancel(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use podwire_wire::nri::{Empty, RegisterPluginRequest};

    struct Echo;

    impl Service for Echo {
        fn call(&self, method: String, payload: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
            Box::pin(async move {
                match method.as_str() {
                    "Echo" => Ok(payload.to_vec()),
                    "Hang" => std::future::pending().await,
                    other => Err(status(code::UNIMPLEMENTED, format!("method {other}"))),
                }
            })
        }
    }

    fn pair() -> (Link, Link, TaskTracker) {
        let (a, b) = UnixStream::pair().unwrap();
        let tasks = TaskTracker::new();
        let runtime = Link::start(a, Side::Runtime, Arc::new(Echo), &tasks);
        (runtime, Link::start(b, Side::Plugin, Arc::new(Echo), &tasks), tasks)
    }

    fn sized(len: usize) -> RegisterPluginRequest {
        RegisterPluginRequest { plugin_name: "x".repeat(len), ..RegisterPluginRequest::default() }
    }

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn messages_of_every_size_pass_in_both_directions() {
        let (runtime, plugin, _tasks) = pair();
        for len in [0, 1, 4000, 4096, 5000, 100_000, 4_000_000] {
            for link in [&runtime, &plugin] {
                let back: RegisterPluginRequest = link.call("Echo", &sized(len), SOON).await.unwrap();
                assert_eq!(back.plugin_name.len(), len);
            }
        }
        let error = runtime.call::<_, Empty>("Echo", &sized(5 << 20), SOON).await.unwrap_err();
        assert!(matches!(error, CallError::TooLarge { .. }));
    }

    #[tokio::test]
    async fn calls_run_side_by_side_and_a_hung_one_times_out_alone() {
        let (runtime, _plugin, _tasks) = pair();
        let hung = runtime.call::<_, Empty>("Hang", &Empty {}, Duration::from_millis(100));
        let quick = async {
            for _ in 0..50 {
                runtime.call::<_, RegisterPluginRequest>("Echo", &sized(10), SOON).await.unwrap();
            }
        };
        let (hung, ()) = tokio::join!(hung, quick);
        assert!(matches!(hung, Err(CallError::Timeout(_))));
        let unknown = runtime.call::<_, Empty>("Unheard", &Empty {}, SOON).await.unwrap_err();
        assert!(unknown.unimplemented(), "{unknown:?}");
    }

    #[tokio::test]
    async fn garbage_ends_the_connection_and_every_waiting_call() {
        for garbage in [
            vec![0xFF; 64],
            [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0xFF; 10]].concat(),
            [&[0, 0, 0, 2, 0, 0, 0, 10][..], &[0, 0, 0, 0, 0, 0, 0, 1, 2, 0]].concat(),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let tasks = TaskTracker::new();
            let link = Link::start(ours, Side::Runtime, Arc::new(Echo), &tasks);
            let call = link.call::<_, Empty>("Echo", &Empty {}, SOON);
            let (result, ()) = tokio::join!(call, async { theirs.write_all(&garbage).await.unwrap() });
            assert_eq!(result, Err(CallError::Closed), "{garbage:?}");
            assert_eq!(link.call::<_, Empty>("Echo", &Empty {}, SOON).await, Err(CallError::Closed));
        }
    }

    #[tokio::test]
    async fn random_bytes_never_do_more_than_end_the_connection() {
        let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut dice = move |sides: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % sides
        };
        for round in 0..400 {
            let side = if dice(2) == 0 { Side::Runtime } else { Side::Plugin };
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let tasks = TaskTracker::new();
            let link = Link::start(ours, side, Arc::new(Echo), &tasks);
            for _ in 0..dice(6) {
                // Often a plausible header, so that the bytes get past the first check.
                let len = usize::try_from(dice(40)).unwrap();
                let mut bytes =
                    vec![0, 0, 0, u8::try_from(dice(4)).unwrap(), 0, 0, 0, u8::try_from(len).unwrap()];
                bytes.extend(
                    (0..len).map(|_| u8::try_from(dice(if round % 2 == 0 { 256 } else { 4 })).unwrap()),
                );
                if theirs.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            drop(theirs);
            tokio::time::timeout(SOON, link.ended()).await.expect("it ends with its stream");
            tasks.close();
            tokio::time::timeout(SOON, tasks.wait()).await.expect("nothing is left running");
        }
    }

    #[tokio::test]
    async fn frames_for_unknown_connections_are_passed_over() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let tasks = TaskTracker::new();
        let link = Link::start(ours, Side::Runtime, Arc::new(Echo), &tasks);
        theirs.write_all(&[0, 0, 0, 9, 0, 0, 0, 3, 1, 2, 3]).await.unwrap();
        let peer = Link::start(theirs, Side::Plugin, Arc::new(Echo), &tasks);
        peer.call::<_, Empty>("Echo", &Empty {}, SOON).await.unwrap();
        assert!(!link.is_closed());
    }
}
