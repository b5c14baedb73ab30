//! How much is served at once and for how long, so that no client takes the server from the others.
//!
//! Counters, no locks and no queues: what is too much is refused at once and the client comes back. Clients in this
//! process pass by: nobody outside can starve them. The numbers are upstream's (`--max-requests-inflight`,
//! `--max-mutating-requests-inflight`, `--request-timeout`); its priorities and fair queues are not here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use podwire_api::time;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::body::{Body, BoxError, Response, respond};
use crate::identity::Identity;
use crate::request::RequestInfo;

/// Answers up to this size are not followed until they are sent.
const SMALL: u64 = 64 << 10;

/// How much is served at once, and for how long.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Reads at a time.
    pub reads: usize,
    /// Writes at a time.
    pub writes: usize,
    /// How long a request may take, watches and streams apart.
    pub request: Duration,
    /// How long a client may take to send a body.
    pub body: Duration,
    /// How long a connection may be open without a request.
    pub idle: Duration,
    /// Connections at a time.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let files = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self {
            reads: 400,
            writes: 200,
            request: Duration::from_secs(60),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(90),
            connections: connections(open_files(&files)),
        }
    }
}

/// Half of the descriptors are left to everything else in this process.
fn connections(files: Option<usize>) -> usize {
    (files.unwrap_or(1024) / 2).clamp(16, 100_000)
}

/// The soft limit of open files in the text of `/proc/self/limits`.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Requests that last as long as the client wants, and are not counted.
pub(crate) fn is_long_running(info: &RequestInfo) -> bool {
    let part = info.resource.as_ref().map_or("", |resource| resource.subresource.as_str());
    info.verb == "watch" || matches!(part, "log" | "exec" | "attach" | "portforward" | "proxy")
}

/// The time a client gives its request (`?timeout=5s`), if it is any less than ours; or upstream's words about it.
pub(crate) fn asked_time(text: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    match time::parse_duration(text) {
        Some(nanos) => Ok(u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)),
        None => {
            let number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            let why = if number { "missing unit in" } else { "invalid" };
            Err(format!("invalid timeout specified in the request URL - time: {why} duration {text:?}"))
        }
    }
}

fn is_probe(info: &RequestInfo) -> bool {
    let path = info.path.trim_start_matches('/');
    matches!(path.split('/').next(), Some("healthz" | "livez" | "readyz"))
}

/// What clients outside may do at once.
pub(crate) struct Gates {
    /// Nodes and the components of the control plane, whom a flood of users must not reach.
    system: [Gate; 2],
    /// Everybody else.
    others: [Gate; 2],
}

struct Gate {
    inside: Arc<AtomicUsize>,
    most: usize,
}

/// A place among those that are served; given back when dropped.
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    fn new(most: usize) -> Self {
        Self { inside: Arc::new(AtomicUsize::new(0)), most }
    }

    fn enter(&self) -> Option<Slot> {
        // Counted before it is compared, so that the slot gives back what was taken in either case.
        let before = self.inside.fetch_add(1, Ordering::Relaxed);
        let slot = Slot(self.inside.clone());
        (before < self.most).then_some(slot)
    }
}

/// Whether a request may go on.
pub(crate) enum Entry {
    /// It is not counted.
    Free,
    /// It is, until the slot is dropped.
    Counted(Slot),
    /// Too many are being served.
    Refused,
}

impl Gates {
    pub(crate) fn new(limits: &Limits) -> Self {
        let pair = || [Gate::new(limits.reads), Gate::new(limits.writes)];
        Self { system: pair(), others: pair() }
    }

    /// Lets a request of a client outside in, or not.
    pub(crate) fn enter(&self, identity: &Identity, info: &RequestInfo) -> Entry {
        if is_long_running(info) || is_probe(info) {
            return Entry::Free;
        }
        let write = !matches!(info.verb, "get" | "list" | "head");
        let gates = if is_system(identity) { &self.system } else { &self.others };
        match gates[usize::from(write)].enter() {
            Some(slot) => Entry::Counted(slot),
            None if identity.is_in("system:masters") => Entry::Free,
            None => Entry::Refused,
        }
    }
}

fn is_system(identity: &Identity) -> bool {
    identity.node_name().is_some() || identity.user.starts_with("system:kube-")
}

/// 429, in upstream's words.
pub(crate) fn too_many() -> Response {
    let text = "Too many requests, please try again later.\n";
    let mut response = respond(StatusCode::TOO_MANY_REQUESTS, "text/plain; charset=utf-8", text);
    let headers = response.headers_mut();
    headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// A connection of a client outside: what is open on it, and its place among the connections.
pub(crate) struct Wire {
    open: AtomicUsize,
    /// Milliseconds after `begun` at which the last request ended.
    last: AtomicU64,
    begun: Instant,
    /// When the answers must be sent that are not sent yet.
    unsent: Mutex<HashMap<u64, Instant>>,
    numbers: AtomicU64,
    peer: Option<IpAddr>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Wire {
    pub(crate) fn new(place: Option<OwnedSemaphorePermit>, peer: Option<IpAddr>) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            begun: Instant::now(),
            unsent: Mutex::default(),
            numbers: AtomicU64::new(0),
            peer,
            _place: place,
        })
    }

    /// The address of the client.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// A request begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open { wire: self.clone(), number: None }
    }

    /// How long nothing has been asked.
    pub(crate) fn idle(&self) -> Duration {
        if self.open.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(last)
    }

    /// Whether an answer should have been sent by now: the client does not read it.
    pub(crate) fn is_stalled(&self) -> bool {
        let now = Instant::now();
        self.unsent().values().any(|due| *due < now)
    }

    fn unsent(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Instant>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered.
pub(crate) struct Open {
    wire: Arc<Wire>,
    number: Option<u64>,
}

impl Open {
    fn due(&mut self, at: Instant) {
        let number = self.wire.numbers.fetch_add(1, Ordering::Relaxed);
        self.wire.unsent().insert(number, at);
        self.number = Some(number);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.wire.unsent().remove(&number);
        }
        let now = u64::try_from(self.wire.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.wire.last.store(now, Ordering::Relaxed);
        self.wire.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a request counted until its answer is sent, when that can take long; `due` is when it must be.
pub(crate) fn until_sent(
    response: Response,
    slot: Option<Slot>,
    mut open: Open,
    due: Option<Instant>,
) -> Response {
    let small = response.body().size_hint().exact().is_some_and(|size| size <= SMALL);
    if small || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return response;
    }
    if let Some(due) = due {
        open.due(due);
    }
    response.map(|body| Sent { body, piece: Bytes::new(), _slot: slot, _open: open }.boxed_unsync())
}

/// A body that is sent in pieces of bounded size, so that what waits for the client waits here.
struct Sent {
    body: Body,
    piece: Bytes,
    _slot: Option<Slot>,
    _open: Open,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.piece.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.piece = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.piece.len().min(usize::try_from(SMALL).unwrap_or(usize::MAX));
        let piece = self.piece.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let held = self.piece.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + held);
        }
        hint.set_lower(hint.lower() + held);
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;
    use http::Method;

    fn info(method: &Method, target: &str) -> RequestInfo {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        RequestInfo::parse(method, path, &Query::parse(query))
    }

    #[test]
    fn half_of_the_descriptors_are_for_connections() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             63432                63432                processes \n\
                    Max open files            4096                 524288               files     \n";
        assert_eq!(connections(open_files(text)), 2048);
        assert_eq!(connections(open_files("nonsense")), 512);
        assert_eq!(connections(Some(20)), 16);
        assert!(Limits::default().connections >= 16);
    }

    #[test]
    fn too_many_are_refused_but_not_the_masters_nor_what_lasts() {
        let limits = Limits { reads: 2, writes: 1, ..Limits::default() };
        let gates = Gates::new(&limits);
        let user = Identity::new("jane", &[]);
        let (read, write) = (info(&Method::GET, "/api/v1/pods"), info(&Method::POST, "/api/v1/nodes"));
        let held = [gates.enter(&user, &read), gates.enter(&user, &read), gates.enter(&user, &write)];
        assert!(held.iter().all(|entry| matches!(entry, Entry::Counted(_))));
        assert!(matches!(gates.enter(&user, &read), Entry::Refused));
        assert!(matches!(gates.enter(&user, &write), Entry::Refused));
        assert!(matches!(gates.enter(&Identity::admin(), &write), Entry::Free));
        assert!(matches!(gates.enter(&Identity::node("n"), &write), Entry::Counted(_)));
        for target in ["/api/v1/pods?watch=1", "/api/v1/namespaces/a/pods/b/log", "/readyz", "/livez/etcd"] {
            assert!(matches!(gates.enter(&user, &info(&Method::GET, target)), Entry::Free), "{target}");
        }
        drop(held);
        assert!(matches!(gates.enter(&user, &read), Entry::Counted(_)));
        assert!(matches!(gates.enter(&user, &write), Entry::Counted(_)));
    }

    #[test]
    fn a_client_may_ask_for_less_time() {
        assert_eq!(asked_time(None), Ok(None));
        assert_eq!(asked_time(Some("0s")), Ok(None));
        assert_eq!(asked_time(Some("-1s")), Ok(None));
        assert_eq!(asked_time(Some("1m30s")), Ok(Some(Duration::from_secs(90))));
        let words = "invalid timeout specified in the request URL - time: ";
        assert_eq!(asked_time(Some("x")), Err(format!("{words}invalid duration \"x\"")));
        assert_eq!(asked_time(Some("30")), Err(format!("{words}missing unit in duration \"30\"")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_without_requests_and_stalled_with_unread_answers() {
        let wire = Wire::new(None, None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(wire.idle(), Duration::from_secs(5));
        let mut open = wire.begin();
        assert_eq!(wire.idle(), Duration::ZERO);
        open.due(Instant::now() + Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!wire.is_stalled());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(wire.is_stalled());
        drop(open);
        assert!(!wire.is_stalled());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(wire.idle(), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn a_large_answer_is_counted_until_it_is_sent_and_a_small_one_is_not() {
        let gate = Gate::new(1);
        let wire = Wire::new(None, None);
        let small = respond(StatusCode::OK, "text/plain", "ok");
        drop(until_sent(small, gate.enter(), wire.begin(), None));
        let large = respond(StatusCode::OK, "text/plain", vec![7_u8; 300_000]);
        let response = until_sent(large, gate.enter(), wire.begin(), Some(Instant::now()));
        assert!(gate.enter().is_none());
        assert_eq!(response.body().size_hint().exact(), Some(300_000));
        let mut body = response.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len() as u64, SMALL);
        assert_eq!(body.size_hint().exact(), Some(300_000 - SMALL));
        assert_eq!(body.collect().await.unwrap().to_bytes().len() as u64, 300_000 - SMALL);
        assert!(gate.enter().is_some());
    }
}
