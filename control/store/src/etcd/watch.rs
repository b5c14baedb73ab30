//! The Watch service: any number of watches on one stream, each a cursor into the store's history.
//!
//! A stream is polled by its connection and looks for events when the client has taken those before: a slow client
//! costs a cursor, nothing is queued for it. What is at hand for all watches is gathered in one walk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use podwire_wire::etcd::watch_create_request::FilterType;
use podwire_wire::etcd::watch_request::RequestUnion;
use podwire_wire::etcd::{
    Event as WireEvent, KeyValue, WatchCreateRequest, WatchRequest, WatchResponse, event::EventType,
    watch_server::Watch,
};
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::{Request, Response, Status, Streaming};

use super::Etcd;
use crate::engine::Progress;
use crate::engine::index::{Event, Told};
use crate::engine::key::Span;
use crate::engine::read;
use crate::{Revision, StoreError};

/// Events taken from the history at once.
const BATCH: usize = 1000;
/// Watches on one stream; upstream has no bound, kube-apiserver needs some hundred.
const MOST_WATCHES: usize = 100_000;
/// The number of no watch: it stands for all of a stream, or for one that could not be made.
const NO_ID: i64 = -1;

struct Watcher {
    span: Span,
    /// Everything up to here was sent or does not concern it.
    cursor: Revision,
    no_put: bool,
    no_delete: bool,
    prev_kv: bool,
    fragment: bool,
    progress_notify: bool,
    /// Whether it heard nothing since the last tick.
    idle: bool,
}

impl Watcher {
    fn wants(&self, event: &Event) -> bool {
        event.main > self.cursor
            && self.span.contains(event.key.as_bytes())
            && if event.kv.is_some() { !self.no_put } else { !self.no_delete }
    }

    fn message(&self, event: &Event) -> WireEvent {
        let kv = event.kv.as_deref().map_or_else(
            || KeyValue {
                key: bytes::Bytes::copy_from_slice(event.key.as_bytes()),
                mod_revision: read::signed(event.main),
                ..KeyValue::default()
            },
            read::message,
        );
        let created = event.kv.as_ref().is_some_and(|kv| kv.create == kv.main);
        let previous = event.previous.as_deref().filter(|_| self.prev_kv && !created);
        let kind = if event.kv.is_some() { EventType::Put } else { EventType::Delete };
        WireEvent { r#type: kind.into(), kv: Some(kv), prev_kv: previous.map(read::message) }
    }
}

/// One client's stream of watches.
struct Stream {
    etcd: Etcd,
    incoming: Streaming<WatchRequest>,
    /// Whether the client may still ask for something.
    asking: bool,
    watchers: BTreeMap<i64, Watcher>,
    next_id: i64,
    ready: VecDeque<WatchResponse>,
    progress: watch::Receiver<Progress>,
    /// Somebody wants to know how far all watches have come.
    progress_asked: bool,
    ticks: Interval,
    /// Whose turn it is: those who are far behind, or those who keep up.
    old_first: bool,
    ended: bool,
}

#[tonic::async_trait]
impl Watch for Etcd {
    type WatchStream = BoxStream<'static, Result<WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.engine().open()?;
        let period = self.config().progress_interval;
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stream = Stream {
            etcd: self.clone(),
            incoming: request.into_inner(),
            asking: true,
            watchers: BTreeMap::new(),
            next_id: 0,
            ready: VecDeque::new(),
            progress: self.engine().subscribe(),
            progress_asked: false,
            ticks,
            old_first: true,
            ended: false,
        };
        let answers = stream::unfold(stream, |mut stream| async move {
            if stream.ended {
                return None;
            }
            let answer = stream.next().await;
            stream.ended = answer.is_err();
            Some((answer, stream))
        });
        Ok(Response::new(answers.boxed()))
    }
}

impl Stream {
    async fn next(&mut self) -> Result<WatchResponse, Status> {
        let stopping = self.etcd.0.stopping.clone();
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Ok(answer);
            }
            // Marked as seen before looking, so that a write in between wakes this stream again.
            let closed = self.progress.borrow_and_update().closed;
            let behind = self.look().await?;
            if !self.ready.is_empty() || behind {
                continue;
            }
            self.tell_progress();
            if !self.ready.is_empty() {
                continue;
            }
            if closed {
                return Err(Status::unavailable("etcdserver: server stopped"));
            }
            tokio::select! {
                biased;
                () = stopping.cancelled() => return Err(Status::unavailable("etcdserver: server stopped")),
                received = self.incoming.message(), if self.asking => match received? {
                    Some(WatchRequest { request_union: Some(union) }) => self.asked(union),
                    Some(WatchRequest { request_union: None }) => {}
                    None => self.asking = false,
                },
                changed = self.progress.changed() => {
                    if changed.is_err() {
                        return Err(Status::unavailable("etcdserver: server stopped"));
                    }
                }
                _ = self.ticks.tick() => self.tick(),
            }
        }
    }

    fn asked(&mut self, union: RequestUnion) {
        match union {
            RequestUnion::CreateRequest(request) => self.create(request),
            RequestUnion::CancelRequest(request) => {
                if self.watchers.remove(&request.watch_id).is_some() {
                    let answer =
                        WatchResponse { watch_id: request.watch_id, canceled: true, ..self.answer() };
                    self.ready.push_back(answer);
                }
            }
            RequestUnion::ProgressRequest(_) => self.progress_asked = true,
        }
    }

    /// An answer at the newest revision.
    fn answer(&self) -> WatchResponse {
        WatchResponse { header: self.etcd.header_now(), ..WatchResponse::default() }
    }

    fn create(&mut self, request: WatchCreateRequest) {
        let newest = self.etcd.engine().read().revision();
        let header = self.etcd.header(newest);
        let created = WatchResponse { header, created: true, ..WatchResponse::default() };
        match self.watcher(&request, newest) {
            Err(reason) => {
                let cancel_reason = reason.to_owned();
                self.ready.push_back(WatchResponse {
                    watch_id: NO_ID,
                    canceled: true,
                    cancel_reason,
                    ..created
                });
            }
            Ok(watcher) => {
                let mut watch_id = request.watch_id;
                if watch_id == 0 {
                    while self.watchers.contains_key(&self.next_id) {
                        self.next_id += 1;
                    }
                    watch_id = self.next_id;
                    self.next_id += 1;
                }
                self.watchers.insert(watch_id, watcher);
                self.ready.push_back(WatchResponse { watch_id, ..created });
            }
        }
    }

    fn watcher(&self, request: &WatchCreateRequest, newest: Revision) -> Result<Watcher, &'static str> {
        // An empty key is the smallest there can be.
        let key = if request.key.is_empty() { bytes::Bytes::from_static(&[0]) } else { request.key.clone() };
        let span = Span::new(&key, &request.range_end);
        let Ok(start) = u64::try_from(request.start_revision) else {
            return Err("etcdserver: mvcc: required revision has been compacted");
        };
        if span.is_empty() {
            return Err("mvcc: watcher range is empty");
        }
        if request.watch_id != 0 && self.watchers.contains_key(&request.watch_id) {
            return Err("mvcc: duplicate watch ID provided on the WatchStream");
        }
        if self.watchers.len() >= MOST_WATCHES {
            return Err("etcdserver: too many requests");
        }
        Ok(Watcher {
            span,
            cursor: start.checked_sub(1).unwrap_or(newest),
            no_put: request.filters().any(|filter| filter == FilterType::Noput),
            no_delete: request.filters().any(|filter| filter == FilterType::Nodelete),
            prev_kv: request.prev_kv,
            fragment: request.fragment,
            progress_notify: request.progress_notify,
            idle: true,
        })
    }

    fn tick(&mut self) {
        let newest = self.etcd.engine().read().revision();
        for (watch_id, watcher) in &mut self.watchers {
            // One that is to begin later has come nowhere yet.
            if watcher.progress_notify && watcher.idle && watcher.cursor == newest {
                let header = self.etcd.header(newest);
                self.ready.push_back(WatchResponse {
                    header,
                    watch_id: *watch_id,
                    ..WatchResponse::default()
                });
            }
            watcher.idle = true;
        }
    }

    /// Answers whoever asked, once every watch has been told everything.
    fn tell_progress(&mut self) {
        if !self.progress_asked || self.watchers.is_empty() {
            return;
        }
        let newest = self.etcd.engine().read().revision();
        if self.watchers.values().all(|watcher| watcher.cursor == newest) {
            self.progress_asked = false;
            let header = self.etcd.header(newest);
            self.ready.push_back(WatchResponse { header, watch_id: NO_ID, ..WatchResponse::default() });
        }
    }

    /// Makes answers of what happened since the last look; whether there is more to look at.
    async fn look(&mut self) -> Result<bool, Status> {
        let (told, from, reached, newest) = {
            let index = self.etcd.engine().read();
            let newest = index.revision();
            if let Some(compacted) = index.compacted() {
                let lost: Vec<i64> = self
                    .watchers
                    .iter()
                    .filter(|(_, watcher)| watcher.cursor + 1 < compacted)
                    .map(|(id, _)| *id)
                    .collect();
                for watch_id in lost {
                    self.watchers.remove(&watch_id);
                    self.ready.push_back(WatchResponse {
                        header: self.etcd.header(newest),
                        watch_id,
                        canceled: true,
                        compact_revision: read::signed(compacted),
                        ..WatchResponse::default()
                    });
                }
            }
            // Those who keep up, whose events are in memory, do not wait for one who is far behind.
            let behind = |cursor: &Revision| *cursor < newest;
            let cursors = self.watchers.values().map(|watcher| watcher.cursor).filter(behind);
            let (mut recent, mut old) = (None, None);
            for cursor in cursors {
                let least = if cursor >= index.recent_floor() { &mut recent } else { &mut old };
                *least = Some(least.map_or(cursor, |other: Revision| other.min(cursor)));
            }
            // By turns, so that writes without end do not keep the one behind waiting either.
            self.old_first = !self.old_first;
            let first = if self.old_first { old.or(recent) } else { recent.or(old) };
            let Some(from) = first else { return Ok(false) };
            let mine: Vec<&Span> = self
                .watchers
                .values()
                .filter(|watcher| watcher.cursor >= from)
                .map(|watcher| &watcher.span)
                .collect();
            let matches = |key: &[u8]| mine.iter().any(|span| span.contains(key));
            let (told, reached) = index.events_after(matches, from, BATCH)?;
            (told, from, reached, newest)
        };
        let events = read_all(told).await?;
        let limit = self.etcd.config().max_request_bytes;
        for (watch_id, watcher) in &mut self.watchers {
            if watcher.cursor < from || watcher.cursor >= reached {
                continue;
            }
            let wanted = events.iter().filter(|event| watcher.wants(event));
            let messages: Vec<WireEvent> = wanted.map(|event| watcher.message(event)).collect();
            watcher.cursor = reached;
            if messages.is_empty() {
                continue;
            }
            watcher.idle = false;
            let answer = WatchResponse {
                header: self.etcd.header(reached),
                watch_id: *watch_id,
                events: messages,
                ..WatchResponse::default()
            };
            if watcher.fragment {
                fragments(answer, limit, &mut self.ready)
            } else {
                self.ready.push_back(answer)
            }
        }
        Ok(self.watchers.values().any(|watcher| watcher.cursor < newest))
    }
}

/// Reads what is on disk, off the async threads.
async fn read_all(told: Vec<Told>) -> Result<Vec<Arc<Event>>, Status> {
    let read = |told: Vec<Told>| told.into_iter().map(Told::read).collect::<Result<Vec<_>, StoreError>>();
    if told.iter().all(|told| matches!(told, Told::Ready(_))) {
        return Ok(read(told)?);
    }
    let read = tokio::task::spawn_blocking(move || read(told));
    Ok(read.await.map_err(|error| Status::internal(error.to_string()))??)
}

/// Splits an answer that is larger than a message should be; one event is never split.
fn fragments(answer: WatchResponse, limit: usize, into: &mut VecDeque<WatchResponse>) {
    if answer.events.len() < 2 || answer.encoded_len() < limit {
        into.push_back(answer);
        return;
    }
    let empty = WatchResponse { events: Vec::new(), fragment: true, ..answer.clone() };
    let (mut part, mut size) = (empty.clone(), empty.encoded_len());
    for event in answer.events {
        // A field of a message takes a tag and a length besides.
        let more = event.encoded_len() + 8;
        if !part.events.is_empty() && size + more >= limit {
            into.push_back(std::mem::replace(&mut part, empty.clone()));
            size = empty.encoded_len();
        }
        size += more;
        part.events.push(event);
    }
    part.fragment = false;
    into.push_back(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_small_and_only_the_last_ends() {
        let event = |size| WireEvent {
            kv: Some(KeyValue { value: vec![7; size].into(), ..KeyValue::default() }),
            ..WireEvent::default()
        };
        let events = vec![event(300), event(300), event(2000), event(10), event(10)];
        let answer = WatchResponse { watch_id: 3, events: events.clone(), ..WatchResponse::default() };
        let mut parts = VecDeque::new();
        fragments(answer, 1000, &mut parts);
        let shape: Vec<_> = parts.iter().map(|part| (part.events.len(), part.fragment)).collect();
        assert_eq!(shape, [(2, true), (1, true), (2, false)]);
        assert!(parts.iter().all(|part| part.watch_id == 3));
        let all: Vec<WireEvent> = parts.into_iter().flat_map(|part| part.events).collect();
        assert_eq!(all, events);
    }
}
