//! One connected plugin: what it wants to hear, how it is called, how it has behaved.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use podwire_wire::nri::{Container, Empty, Event, FailurePolicy, PodSandbox, StateChangeEvent};
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::stats::Stats;
use crate::link::{CallError, Link};

/// All events there are.
pub(super) const ALL_EVENTS: i32 = (1 << (Event::Last as i32 - 1)) - 1;

/// How far a plugin has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is being told what exists; events wait for it.
    Synchronizing,
    /// It hears events.
    Ready,
    /// It is gone.
    Gone,
}

/// A plugin for people to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginInfo {
    /// Its name.
    pub name: String,
    /// Its two-digit place in the order; empty for a required one that never came.
    pub index: String,
    /// The events it hears, one bit each.
    pub events: i32,
    /// Whether it is connected.
    pub connected: bool,
    /// Whether it has been synchronized.
    pub ready: bool,
    /// Whether no pod is set up without it.
    pub required: bool,
    /// How often it connected.
    pub connects: u64,
    /// Calls made to it.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// The last failure in words.
    pub last_error: Option<String>,
    /// Time all calls took together.
    pub total: Duration,
    /// Time the slowest call took.
    pub slowest: Duration,
    /// Time half of the newest calls took less than.
    pub median: Duration,
    /// Time all but a hundredth of the newest calls took less than.
    pub p99: Duration,
}

impl PluginInfo {
    /// The names of the events it hears; `all` for all of them.
    pub fn event_names(&self) -> Vec<&'static str> {
        if self.events & ALL_EVENTS == ALL_EVENTS {
            return vec!["all"];
        }
        (1..Event::Last as i32)
            .filter(|number| self.events & (1 << (number - 1)) != 0)
            .filter_map(|number| Event::try_from(number).ok())
            .map(|event| event.as_str_name())
            .collect()
    }

    /// What its page in the book says.
    pub(super) fn with_figures(self, stats: &Stats) -> Self {
        let figures = stats.figures();
        Self {
            connects: figures.connects,
            calls: figures.calls,
            errors: figures.errors,
            last_error: figures.last_error,
            total: figures.total,
            slowest: figures.slowest,
            median: figures.median,
            p99: figures.p99,
            ..self
        }
    }
}

/// A connected plugin.
pub(super) struct Plugin {
    pub(super) name: String,
    pub(super) index: String,
    pub(super) link: Link,
    pub(super) events: i32,
    /// Those of them that it asked for by name, not by asking for all.
    named: i32,
    pub(super) policy: FailurePolicy,
    pub(super) timeout: Duration,
    pub(super) stage: watch::Sender<Stage>,
    /// Events it only understands as `StateChange`.
    old_style: AtomicI32,
    pub(super) stats: Arc<Stats>,
}

fn bit(event: Event) -> i32 {
    1 << (event as i32 - 1)
}

impl Plugin {
    /// A plugin that has registered and was configured.
    pub(super) fn new(
        (name, index): (String, String),
        link: Link,
        events: i32,
        policy: Option<FailurePolicy>,
        timeout: Duration,
        stats: Arc<Stats>,
    ) -> Self {
        let (named, events) = (events, if events == 0 { ALL_EVENTS } else { events });
        let policy = policy.unwrap_or_default();
        let (stage, _) = watch::channel(Stage::Synchronizing);
        stats.connected();
        let old_style = AtomicI32::new(0);
        Self { name, index, link, events, named, policy, timeout, stage, old_style, stats }
    }

    /// Whether it wants to hear of the event.
    pub(super) fn hears(&self, event: Event) -> bool {
        self.events & bit(event) != 0
    }

    /// Whether it asked to hear of this very event. One that asks for everything may know only some of it; one that
    /// asks by name and then does not know the event has not consented.
    pub(super) fn asked_for(&self, event: Event) -> bool {
        self.named & bit(event) != 0
    }

    /// How it is called in messages.
    pub(super) fn label(&self) -> String {
        format!("{}-{}", self.index, self.name)
    }

    /// How far it has come; one whose connection just ended is gone.
    pub(super) fn stage(&self) -> Stage {
        if self.link.is_closed() { Stage::Gone } else { *self.stage.borrow() }
    }

    /// Waits until it has been synchronized; `false` if it went away instead.
    pub(super) async fn ready(&self) -> bool {
        let mut stage = self.stage.subscribe();
        match stage.wait_for(|stage| *stage != Stage::Synchronizing).await {
            Ok(stage) => *stage == Stage::Ready,
            Err(_) => false,
        }
    }

    /// Calls it and keeps count.
    pub(super) async fn call<A: Message, R: Message + Default>(
        &self,
        method: &'static str,
        argument: &A,
    ) -> Result<R, CallError> {
        self.call_within(method, argument, self.timeout).await
    }

    /// Calls it, with a time limit of its own, and keeps count.
    pub(super) async fn call_within<A: Message, R: Message + Default>(
        &self,
        method: &'static str,
        argument: &A,
        limit: Duration,
    ) -> Result<R, CallError> {
        let begun = Instant::now();
        let result = self.link.call(method, argument, limit).await;
        let took = begun.elapsed();
        let outcome = match &result {
            Err(error) if !error.unimplemented() => Err(error),
            _ => Ok(()),
        };
        self.stats.called(method, took, outcome);
        tracing::debug!(plugin = self.label(), method, ?took, ok = result.is_ok(), "NRI call");
        result
    }

    /// Tells it of an event that asks for nothing back, in the way it understands.
    pub(super) async fn notify<A: Message>(
        &self,
        event: Event,
        method: &'static str,
        argument: &A,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), CallError> {
        if self.old_style.load(Ordering::Relaxed) & bit(event) == 0 {
            match self.call::<A, Empty>(method, argument).await {
                Err(error) if error.unimplemented() => {
                    self.old_style.fetch_or(bit(event), Ordering::Relaxed);
                }
                other => return other.map(drop),
            }
        }
        let change =
            StateChangeEvent { event: event as i32, pod: Some(pod.clone()), container: container.cloned() };
        self.call::<_, Empty>("StateChange", &change).await.map(drop)
    }

    /// A look at it.
    pub(super) fn info(&self) -> PluginInfo {
        let info = PluginInfo {
            name: self.name.clone(),
            index: self.index.clone(),
            events: self.events,
            connected: self.stage() != Stage::Gone,
            ready: self.stage() == Stage::Ready,
            ..PluginInfo::default()
        };
        info.with_figures(&self.stats)
    }
}
