//! Watches: every event under a prefix, in order and once, over any number of connections.
//!
//! A stream that breaks is opened again behind the last revision that was told whole. Progress is asked for only while somebody
//! seeks a revision that the watch has not reached: keys of others move the revision too, and say nothing here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use podwire_wire::etcd::event::EventType;
use podwire_wire::etcd::watch_request::RequestUnion;
use podwire_wire::etcd::{self, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};

use super::failure::{Attempt, translate};
use super::{Inner, revision_of, unsigned};
use crate::engine::read::signed;
use crate::{Event, EventKind, KeyValue, News, Revision, StoreError, WatchStream};

/// How often progress is asked for while it is wanted: it is answered only by a watch that has caught up.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// How long a watch may take to be opened.
const OPEN_WAIT: Duration = Duration::from_secs(10);
/// The pauses between attempts to open it again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Opens a watch; what is wrong with where it begins is told at once or as the first item.
pub(super) async fn open(
    inner: Arc<Inner>,
    prefix: &str,
    after: Revision,
) -> Result<WatchStream, StoreError> {
    let span = inner.span(prefix);
    let sought = inner.sought.subscribe();
    let mut feed = Feed {
        inner,
        span,
        told: after,
        sought,
        ask_at: None,
        open: None,
        pause: Duration::ZERO,
        ended: false,
    };
    feed.connect().await?;
    Ok(stream::unfold(feed, Feed::next).boxed())
}

/// A connection of a watch.
struct Open {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    /// Events of an answer whose last part has not come.
    parts: Vec<etcd::Event>,
    member: usize,
}

/// One watch over its connections.
struct Feed {
    inner: Arc<Inner>,
    /// The first key, and the first behind.
    span: (Bytes, Bytes),
    /// All events up to this revision were told.
    told: Revision,
    sought: watch::Receiver<Revision>,
    /// When progress is asked for, if it is wanted.
    ask_at: Option<Instant>,
    open: Option<Open>,
    pause: Duration,
    ended: bool,
}

/// What became of an answer.
enum Heard {
    Nothing,
    News(News),
    /// The stream is of no use any more.
    Broken(Status),
}

impl Feed {
    async fn next(mut self) -> Option<(<WatchStream as futures::Stream>::Item, Self)> {
        if self.ended {
            return None;
        }
        loop {
            match self.turn().await {
                Ok(Heard::Nothing) => {}
                Ok(Heard::News(news)) => return Some((Ok(news), self)),
                Ok(Heard::Broken(status)) => self.lost(&status),
                Err(error) => {
                    self.ended = true;
                    return Some((Err(error), self));
                }
            }
        }
    }

    /// Waits for one thing to happen.
    async fn turn(&mut self) -> Result<Heard, StoreError> {
        let Some(open) = &mut self.open else {
            tokio::time::sleep(self.pause).await;
            return match self.connect().await {
                Ok(()) => Ok(Heard::Nothing),
                Err(error @ (StoreError::Compacted { .. } | StoreError::FutureRevision { .. })) => Err(error),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the watch on etcd is not open; trying again"
                    );
                    self.pause = (self.pause * 2).clamp(PAUSES.0, PAUSES.1);
                    Ok(Heard::Nothing)
                }
            };
        };
        let ask_at = self.ask_at;
        tokio::select! {
            biased;
            answer = open.answers.message() => match answer {
                Ok(Some(answer)) => self.heard(answer),
                Ok(None) => Ok(Heard::Broken(Status::unavailable("etcd ended the watch"))),
                Err(status) => Ok(Heard::Broken(status)),
            },
            // Ignored: the sender lives as long as this watch's handle on the store.
            _ = self.sought.changed() => {
                self.ask_at = (*self.sought.borrow_and_update() > self.told).then(Instant::now);
                Ok(Heard::Nothing)
            }
            () = sleep_until(ask_at.unwrap_or_else(Instant::now)), if ask_at.is_some() => {
                let request = RequestUnion::ProgressRequest(WatchProgressRequest {});
                // Ignored: a full or closed queue is asked again, or found broken.
                open.requests.try_send(WatchRequest { request_union: Some(request) }).ok();
                self.ask_at = Some(Instant::now() + ASK_AGAIN);
                Ok(Heard::Nothing)
            }
        }
    }

    fn lost(&mut self, status: &Status) {
        tracing::warn!(
            why = status.message(),
            after = self.told,
            "the watch on etcd broke; opening it again"
        );
        if let Some(open) = self.open.take() {
            self.inner.members.leave(open.member);
        }
        self.pause = PAUSES.0;
    }

    /// Takes one answer.
    fn heard(&mut self, answer: WatchResponse) -> Result<Heard, StoreError> {
        if answer.compact_revision != 0 {
            return Err(StoreError::Compacted { oldest: unsigned(answer.compact_revision) });
        }
        if answer.canceled {
            let why = format!("etcd canceled the watch: {}", answer.cancel_reason);
            return Ok(Heard::Broken(Status::unavailable(why)));
        }
        if answer.created {
            return Ok(Heard::Nothing);
        }
        let Some(open) = &mut self.open else { return Ok(Heard::Nothing) };
        if answer.events.is_empty() && open.parts.is_empty() && !answer.fragment {
            return Ok(self.progress(revision_of(answer.header.as_ref())));
        }
        open.parts.extend(answer.events);
        if answer.fragment {
            return Ok(Heard::Nothing);
        }
        let events = std::mem::take(&mut open.parts);
        let Some(last) =
            events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| unsigned(kv.mod_revision)).max()
        else {
            return Ok(Heard::Nothing);
        };
        let events: Vec<_> = events.into_iter().filter_map(|event| self.event(event)).map(Arc::new).collect();
        self.reached(last);
        Ok(Heard::News(if events.is_empty() { News::Progress(last) } else { News::Events(events) }))
    }

    fn progress(&mut self, revision: Revision) -> Heard {
        if revision <= self.told {
            return Heard::Nothing;
        }
        self.reached(revision);
        Heard::News(News::Progress(revision))
    }

    fn reached(&mut self, revision: Revision) {
        self.told = self.told.max(revision);
        if *self.sought.borrow() <= self.told {
            self.ask_at = None;
        }
    }

    /// An event as the trait tells it: of a deletion the last value, with the deletion's revision.
    fn event(&self, event: etcd::Event) -> Option<Event> {
        let gone = event.r#type() == EventType::Delete;
        let previous = event.prev_kv.and_then(|kv| self.inner.key_value(kv));
        let kv = self.inner.key_value(event.kv?)?;
        match (gone, &previous) {
            (false, _) => Some(Event { kind: EventKind::Put, kv, previous }),
            (true, Some(last)) => {
                let kv = KeyValue { mod_revision: kv.mod_revision, ..last.clone() };
                Some(Event { kind: EventKind::Delete, kv, previous })
            }
            (true, None) => Some(Event { kind: EventKind::Delete, kv, previous }),
        }
    }

    /// Opens the stream behind what was told.
    async fn connect(&mut self) -> Result<(), StoreError> {
        let (at, member) = self.inner.members.current();
        let create = WatchCreateRequest {
            key: self.span.0.clone(),
            range_end: self.span.1.clone(),
            start_revision: signed(self.told + 1),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let (requests, queue) = mpsc::channel(4);
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        requests.try_send(create).map_err(|error| StoreError::Unavailable { reason: error.to_string() })?;
        let mut request = Request::new(ReceiverStream::new(queue));
        // A member that has lost the others ends the stream instead of being silent.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let mut client = member.watch();
        let opening = async {
            let mut answers = client.watch(request).await?.into_inner();
            let first = answers.message().await?;
            Ok::<_, Status>((answers, first))
        };
        let opened = timeout(OPEN_WAIT, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(Status::unavailable("the watch was not opened in time")));
        let (answers, first) = match opened {
            Ok((answers, Some(first))) => (answers, first),
            Ok((_, None)) => return Err(self.unopened(at, &Status::unavailable("etcd ended the watch"))),
            Err(status) => return Err(self.unopened(at, &status)),
        };
        if first.compact_revision != 0 {
            return Err(StoreError::Compacted { oldest: unsigned(first.compact_revision) });
        }
        if first.canceled || !first.created {
            return Err(self.unopened(at, &Status::unavailable(first.cancel_reason)));
        }
        // A member may lag behind; what the cluster has not seen is another cluster's.
        if revision_of(first.header.as_ref()) < self.told {
            let current = self.inner.newest().await?;
            if current < self.told {
                return Err(StoreError::FutureRevision { requested: self.told, current });
            }
        }
        self.open = Some(Open { requests, answers, parts: Vec::new(), member: at });
        self.pause = Duration::ZERO;
        self.ask_at = (*self.sought.borrow_and_update() > self.told).then(Instant::now);
        Ok(())
    }

    fn unopened(&self, member: usize, status: &Status) -> StoreError {
        self.inner.members.leave(member);
        translate(Attempt::Read, status)
    }
}
