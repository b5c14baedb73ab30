//! Watching: a stream of the changes of a collection, from a revision on or from the present state.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use podwire_api::protobuf;
use podwire_trace::Participant;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::list::{self, Selection};
use super::{Call, page, render};
use crate::body::Response;
use crate::cache::{ChangeKind, Entry, ResourceCache, Told, binary_frame, json_frame, partial_frame};
use crate::context::Context;
use crate::negotiate::{Encoding, Representation, Shape};
use crate::status::{ApiError, Result};
use crate::traced;

/// How many changes are taken at a time.
const BATCH: usize = 256;
/// Initial objects are sent in pieces of about this size.
const PIECE: usize = 64 << 10;
/// How often a quiet watch is told how far it has come.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Opens a watch.
pub(crate) async fn watch(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    if rep.encoding == Encoding::Yaml {
        return Err(ApiError::not_acceptable("application/json, application/vnd.kubernetes.protobuf"));
    }
    page::check_options(call)?;
    let selection = Selection::read(call)?;
    let version = page::resource_version(call.query.text("resourceVersion"))?;
    let seconds = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let cache = call.context.caches.of(&call.kind);
    if cache.is_closed() {
        return Err(ApiError::no_such_resource());
    }
    let initial_events = call.query.get("sendInitialEvents").map(|_| call.query.flag("sendInitialEvents"));
    let life = seconds.map_or_else(default_life, |seconds| Duration::from_secs(seconds.unsigned_abs()));
    let mut watcher = Watcher {
        context: call.context.clone(),
        news: cache.news(),
        cache,
        call_kind: call.kind.clone(),
        audience: traced::audience(&call.kind, &call.identity, &call.parts.headers),
        selection,
        rep,
        include: call.query.get("includeObject").map(str::to_owned),
        bookmarks: call.query.flag("allowWatchBookmarks"),
        end: Instant::now() + life,
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        timer: Box::pin(sleep_until(Instant::now() + life.min(BOOKMARK_EVERY))),
        shutdown: Box::pin(call.context.shutdown.clone().cancelled_owned()),
        cursor: 0,
        after: 0,
        initial: VecDeque::new(),
        initial_end: None,
        columns_sent: false,
        failure: None,
        finished: false,
    };
    watcher.start(version, initial_events).await?;
    let media = match rep.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    };
    let frames = stream::unfold(watcher, |mut watcher| async move {
        let bytes = watcher.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), watcher))
    });
    let body = BodyExt::map_err(StreamBody::new(frames), |never| match never {}).boxed_unsync();
    let mut response = http::Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(response)
}

/// Between half an hour and an hour, so that clients do not all come back at once.
fn default_life() -> Duration {
    let spread = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 1800;
    Duration::from_secs(1800 + u64::from(spread))
}

struct Watcher {
    context: Arc<Context>,
    cache: Arc<ResourceCache>,
    news: tokio::sync::watch::Receiver<u64>,
    call_kind: Arc<podwire_api::Kind>,
    /// Who is told, when that is drawn.
    audience: Option<Participant<'static>>,
    selection: Selection,
    rep: Representation,
    include: Option<String>,
    bookmarks: bool,
    end: Instant,
    next_bookmark: Instant,
    /// Rings at the end or at the next bookmark; kept, because setting a timer for every change costs more than the
    /// change itself when there are many watchers.
    timer: Pin<Box<Sleep>>,
    /// Kept for the same reason.
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    cursor: u64,
    /// Changes up to this revision are known to the client.
    after: u64,
    initial: VecDeque<Arc<Entry>>,
    /// Revision of the bookmark that ends the initial events.
    initial_end: Option<u64>,
    columns_sent: bool,
    failure: Option<ApiError>,
    finished: bool,
}

impl Watcher {
    /// Finds the place to begin at.
    async fn start(&mut self, version: Option<u64>, initial_events: Option<bool>) -> Result<()> {
        let from_now = version.unwrap_or(0) == 0;
        if initial_events == Some(true) || (initial_events.is_none() && from_now) {
            let fresh = match version {
                Some(version) => version,
                None => self.context.store.revision().await?,
            };
            self.context.caches.wait_for(fresh).await?;
            let applied = self.context.caches.applied();
            let snapshot = self.cache.snapshot(&self.selection.scope);
            self.cursor = snapshot.cursor;
            self.after = applied.max(snapshot.newest);
            match self.context.served_entries(&self.call_kind, snapshot.entries).await {
                Ok(entries) => {
                    let chosen = entries.into_iter().filter(|entry| self.selection.takes(entry));
                    self.initial = chosen.collect();
                    self.initial_end = initial_events.map(|_| self.after);
                }
                Err(error) => self.failure = Some(error.unreadable()),
            }
            return Ok(());
        }
        let version = match version {
            Some(version) if version > 0 => version,
            _ => self.context.store.revision().await?,
        };
        self.after = version;
        match self.cache.cursor_after(version) {
            Ok(cursor) => self.cursor = cursor,
            Err(lost) => {
                let message = format!("too old resource version: {version} ({})", lost.oldest);
                self.failure = Some(ApiError::expired(message));
            }
        }
        Ok(())
    }

    /// The next piece of the stream; `None` ends it. Cancel safe: nothing is taken before it is returned.
    async fn next(&mut self) -> Option<Bytes> {
        if self.finished {
            return None;
        }
        if let Some(error) = self.failure.take() {
            self.finished = true;
            return Some(self.error_event(&error));
        }
        if !self.initial.is_empty() {
            return Some(self.initial_piece());
        }
        if let Some(revision) = self.initial_end.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            self.news.borrow_and_update();
            let applied = self.context.caches.applied();
            if self.cache.is_closed() {
                return None;
            }
            // A watcher that the ring has left behind is cut off; it comes back from its last version.
            let changes = self.cache.changes(self.cursor, BATCH).ok()?;
            if !changes.is_empty() {
                let count = changes.len() as u64;
                let changes = match self.served(changes).await? {
                    Ok(changes) => changes,
                    Err(error) => {
                        self.finished = true;
                        return Some(self.error_event(&error.unreadable()));
                    }
                };
                self.cursor += count;
                let piece = self.encode_changes(&changes);
                if !piece.is_empty() {
                    return Some(piece);
                }
                continue;
            }
            self.after = self.after.max(applied);
            tokio::select! {
                biased;
                () = self.shutdown.as_mut() => return None,
                changed = self.news.changed() => {
                    changed.ok()?;
                    continue;
                }
                () = self.timer.as_mut() => {}
            }
            let now = Instant::now();
            if now >= self.end {
                self.finished = true;
                return self.bookmarks.then(|| self.bookmark(self.after, false));
            }
            let due = now >= self.next_bookmark;
            if due {
                self.next_bookmark = now + BOOKMARK_EVERY;
            }
            self.timer.as_mut().reset(self.end.min(self.next_bookmark));
            if due && self.bookmarks {
                return Some(
                    self.bookmark(self.context.caches.applied().min(self.after.max(applied)), false),
                );
            }
        }
    }

    /// Changes in the version that is watched, of a kind that a webhook converts; `None` when the server ends.
    async fn served(&mut self, mut changes: Vec<Arc<Told>>) -> Option<Result<Vec<Arc<Told>>>> {
        if self.call_kind.strategy.conversion().is_none() {
            return Some(Ok(changes));
        }
        changes.retain(|change| change.entry.revision > self.after && self.in_scope(&change.entry));
        tokio::select! {
            biased;
            () = self.shutdown.as_mut() => None,
            served = self.context.served_changes(&self.call_kind, changes) => Some(served),
        }
    }

    fn initial_piece(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        while let Some(entry) = self.initial.pop_front() {
            let bytes = self.event(ChangeKind::Added, &entry, entry.revision, None);
            out.extend_from_slice(&bytes);
            if out.len() >= PIECE {
                break;
            }
        }
        out.freeze()
    }

    fn encode_changes(&mut self, changes: &[Arc<Told>]) -> Bytes {
        let mut pieces: Vec<Bytes> = Vec::new();
        for change in changes {
            if change.entry.revision <= self.after || !self.in_scope(&change.entry) {
                continue;
            }
            let (labels, fields) = (self.selection.labels.as_ref(), self.selection.fields.as_ref());
            if let Some(seen) = change.seen_through(labels, fields) {
                let (entry, revision) = change.shown(seen);
                if let Some(audience) = self.audience {
                    traced::delivered(audience, entry, seen.as_str());
                }
                pieces.push(self.event(seen, entry, revision, Some(change)));
            }
        }
        match pieces.len() {
            0 => Bytes::new(),
            1 => pieces.swap_remove(0),
            _ => pieces.concat().into(),
        }
    }

    fn in_scope(&self, entry: &Entry) -> bool {
        match &self.selection.scope.key {
            Some(key) => *entry.key == **key,
            None => entry.key.starts_with(&self.selection.scope.prefix),
        }
    }

    /// One event; plain JSON of a change is shared with all other watchers, and none of it is parsed.
    fn event(&mut self, seen: ChangeKind, entry: &Entry, revision: u64, change: Option<&Told>) -> Bytes {
        let kind = &self.call_kind;
        if !kind.strategy.is_converted() {
            match (self.rep.shape, self.rep.encoding, change) {
                (Shape::Object, Encoding::Json, Some(change)) => return change.frame(kind, seen),
                (Shape::Object, Encoding::Json, None) => {
                    return json_frame(kind, seen.as_str(), revision, &entry.tail);
                }
                (Shape::Object, Encoding::Protobuf, Some(change)) => return change.binary_frame(kind, seen),
                (Shape::Object, Encoding::Protobuf, None) => {
                    return binary_frame(kind, seen.as_str(), &entry.binary(kind));
                }
                (Shape::Partial, Encoding::Json, _) => {
                    return partial_frame(seen.as_str(), revision, &entry.tail);
                }
                _ => {}
            }
        }
        let mut object = list::decoded(kind, entry);
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        self.frame(seen.as_str(), object)
    }

    fn frame(&mut self, event: &str, object: Value) -> Bytes {
        let kind = self.call_kind.clone();
        let kind = &*kind;
        let object = match self.rep.shape {
            Shape::Object => object,
            Shape::Partial => render::partial(object),
            Shape::Table => {
                let version = object["metadata"]["resourceVersion"].clone();
                let first = !std::mem::replace(&mut self.columns_sent, true);
                let row = render::row(kind, object, self.include.as_deref(), jiff::Timestamp::now());
                render::make_table(kind, json!({"resourceVersion": version}), vec![row], first)
            }
        };
        if self.rep.encoding == Encoding::Protobuf {
            return protobuf::watch_event(event, &protobuf::encode(kind, &object)).into();
        }
        line(event, &object)
    }

    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let kind = self.call_kind.clone();
        let kind = &*kind;
        let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        if self.rep.shape == Shape::Table {
            let include = json!({"cells": [], "object": render::partial(object)});
            let table = render::make_table(
                kind,
                json!({"resourceVersion": revision.to_string()}),
                vec![include],
                false,
            );
            return line("BOOKMARK", &table);
        }
        self.frame("BOOKMARK", object)
    }

    fn error_event(&self, error: &ApiError) -> Bytes {
        let status = error.to_value();
        if self.rep.encoding == Encoding::Protobuf {
            return protobuf::watch_event("ERROR", &protobuf::encode_status(&status)).into();
        }
        line("ERROR", &status)
    }
}

fn line(event: &str, object: &Value) -> Bytes {
    let mut text = json!({"type": event, "object": object}).to_string();
    text.push('\n');
    text.into()
}
