//! A watch that goes on for ever: lists, watches from there, resumes, and lists again when it was away for too long.
//!
//! After a failure it waits before it tries again, longer each time. How it goes on is decided without knowing what the
//! objects are; only the last step reads them.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use kube_core::{ResourceExt, Status};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::api::{Api, ListParams, Place, WatchParams};
use crate::client::Error as CallError;
use crate::events::{Events, Line};
use crate::objects::Object;

/// The first wait after a failure, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A server ends a watch that is asked for no longer after so many seconds at most; a silence beyond that is a dead connection.
const LONGEST_SILENCE: Duration = Duration::from_secs(295);

/// A watch that told nothing and ended sooner is not begun again at once: a server that is going away ends every watch.
const SHORTEST: Duration = Duration::from_secs(1);

/// What a watcher tells.
#[derive(Clone, Debug)]
pub enum Event<K> {
    /// An object was made or changed.
    Apply(K),
    /// An object was deleted.
    Delete(K),
    /// A list begins; whatever is not in it is gone.
    Init,
    /// An object of the list.
    InitApply(K),
    /// The list is complete.
    InitDone,
}

/// Why a watcher was interrupted; it goes on by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list failed.
    #[error("objects not listed: {0}")]
    List(CallError),
    /// The watch did not begin.
    #[error("watch not begun: {0}")]
    Begin(CallError),
    /// The server ended the watch with an error.
    #[error("watch ended by the server: {} ({})", .0.message, .0.code)]
    Ended(Box<Status>),
    /// The watch broke off.
    #[error("watch broken: {0}")]
    Broken(CallError),
}

/// What a watcher tells, or why it was interrupted.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which objects, and how.
#[derive(Clone, Debug)]
pub struct Config {
    fields: Option<String>,
    page: u32,
    waits: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { fields: None, page: 500, waits: true }
    }
}

impl Config {
    /// Only objects that a field selector chooses.
    #[must_use]
    pub fn fields(self, selector: &str) -> Config {
        Config { fields: Some(selector.to_owned()), ..self }
    }

    /// Whoever watches waits after a failure, not the watcher.
    #[must_use]
    pub fn without_waits(self) -> Config {
        Config { waits: false, ..self }
    }
}

/// Watches the objects of a resource until it is dropped.
pub fn watcher<K: Object>(api: Api<K>, config: Config) -> BoxStream<'static, Result<Event<K>>> {
    let course = Course { place: api.into_place(), config, state: State::Begin, failures: 0, wait: None };
    let tell = |mut course: Course| async move {
        let told = read(course.next().await, &mut course);
        course.outcome(told.is_ok());
        Some((told, course))
    };
    stream::unfold(course, tell).boxed()
}

fn read<K: Object>(raw: Result<Raw>, course: &mut Course) -> Result<Event<K>> {
    Ok(match raw? {
        Raw::Init => Event::Init,
        Raw::InitDone => Event::InitDone,
        Raw::InitApply(text) => match K::read(text.get()) {
            Ok(object) => Event::InitApply(object),
            Err(error) => {
                course.state = State::Begin;
                return Err(Error::List(CallError::Decode(error)));
            }
        },
        Raw::Apply(text) => Event::Apply(course.seen(&text)?),
        Raw::Delete(text) => Event::Delete(course.seen(&text)?),
    })
}

/// An event, its object not read yet.
enum Raw {
    Init,
    InitApply(Box<RawValue>),
    InitDone,
    Apply(Box<RawValue>),
    Delete(Box<RawValue>),
}

enum State {
    /// Nothing is known.
    Begin,
    /// Within a list; `version` is known from its first page on.
    Listing { objects: VecDeque<Box<RawValue>>, next: Option<String>, version: Option<String> },
    /// All is known up to this version.
    Known { version: String },
    /// The same, and what comes next is being told.
    Watching { version: String, events: Events, begun: Instant, heard: bool },
}

/// How far a watcher has come.
struct Course {
    place: Place,
    config: Config,
    state: State,
    failures: u32,
    wait: Option<Duration>,
}

impl Course {
    async fn next(&mut self) -> Result<Raw> {
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            if let Some(raw) = self.step().await? {
                return Ok(raw);
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Raw>> {
        match &mut self.state {
            State::Begin => {
                self.state = State::Listing { objects: VecDeque::new(), next: None, version: None };
                Ok(Some(Raw::Init))
            }
            State::Listing { objects, next, version } => {
                if let Some(object) = objects.pop_front() {
                    return Ok(Some(Raw::InitApply(object)));
                }
                if next.is_none()
                    && let Some(version) = version.take()
                {
                    self.state = State::Known { version };
                    return Ok(Some(Raw::InitDone));
                }
                let next = next.take();
                self.list(next).await.map(|()| None)
            }
            State::Known { version } => {
                let params =
                    WatchParams { field_selector: self.config.fields.clone(), ..WatchParams::default() };
                let events = self.place.watch(&params, version).await.map_err(Error::Begin)?;
                let (version, begun) = (std::mem::take(version), Instant::now());
                self.state = State::Watching { version, events, begun, heard: false };
                Ok(None)
            }
            State::Watching { version, events, begun, heard } => {
                match tokio::time::timeout(LONGEST_SILENCE, events.next()).await {
                    Ok(Some(line)) => {
                        *heard = true;
                        self.heard(line)
                    }
                    Ok(None) | Err(_) => {
                        let useless = !*heard && begun.elapsed() < SHORTEST;
                        self.state = State::Known { version: std::mem::take(version) };
                        if useless {
                            self.hold_back();
                        }
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Reads one page of the list.
    async fn list(&mut self, next: Option<String>) -> Result<()> {
        let params = ListParams {
            field_selector: self.config.fields.clone(),
            limit: Some(self.config.page),
            continue_token: next,
            ..ListParams::default()
        };
        let listed = self.place.list(&params).await.and_then(|list| {
            let version = list.metadata.resource_version.filter(|text| !text.is_empty());
            let next = list.metadata.continue_.filter(|text| !text.is_empty());
            let version = Some(version.ok_or(CallError::Lacks("a resource version"))?);
            Ok(State::Listing { objects: list.items.unwrap_or_default().into(), next, version })
        });
        match listed {
            Ok(state) => {
                self.state = state;
                Ok(())
            }
            Err(error) => {
                self.state = State::Begin;
                Err(Error::List(error))
            }
        }
    }

    fn heard(&mut self, line: crate::Result<Line>) -> Result<Option<Raw>> {
        match line.map_err(Error::Broken)? {
            Line::Added(object) | Line::Modified(object) => Ok(Some(Raw::Apply(object))),
            Line::Deleted(object) => Ok(Some(Raw::Delete(object))),
            Line::Bookmark(mark) => {
                self.told(mark);
                Ok(None)
            }
            Line::Error(status) => {
                // What happened meanwhile is no longer known.
                if status.code == 410 {
                    self.state = State::Begin;
                }
                Err(Error::Ended(status))
            }
        }
    }

    /// Reads the object of an event and remembers that it was told.
    fn seen<K: Object>(&mut self, text: &RawValue) -> Result<K> {
        let object = K::read(text.get()).map_err(|error| Error::Broken(CallError::Decode(error)))?;
        match object.resource_version().filter(|version| !version.is_empty()) {
            Some(version) => self.told(version),
            None => {
                self.state = State::Begin;
                return Err(Error::Broken(CallError::Lacks("a resource version")));
            }
        }
        Ok(object)
    }

    fn told(&mut self, mark: String) {
        if let State::Watching { version, .. } = &mut self.state {
            *version = mark;
        }
    }

    fn outcome(&mut self, good: bool) {
        if good {
            self.failures = 0;
        } else {
            self.hold_back();
            self.wait = self.wait.filter(|_| self.config.waits);
        }
    }

    /// What comes next waits, longer each time.
    fn hold_back(&mut self) {
        self.wait = Some(wait(self.failures, RandomState::new().hash_one(())));
        self.failures = self.failures.saturating_add(1);
    }
}

/// How long to wait after so many failures in a row: twice as long each time, and a part of the first wait more, so that not
/// all who lost the same server come back at the same moment.
fn wait(failures: u32, random: u64) -> Duration {
    let doubled = FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT);
    let part = u64::try_from(FIRST_WAIT.as_millis()).unwrap_or(u64::MAX);
    doubled + Duration::from_millis(random % part)
}

#[cfg(test)]
#[path = "watcher/tests.rs"]
mod tests;
