//! Quotas: their status says what they allow, and what is used when something goes away.
//!
//! One task watches the quotas and, of every resource that one of them names, what quotas look at in its objects. What is
//! created is charged by the API server; this controller counts when a quota is new or changed, when an object has gone or
//! takes less than before, and from time to time. Its view may be late: the API server raises what it says too little.
//!
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>

mod plan;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use jiff::Timestamp;
use podwire_api::builtin;
use podwire_api::quota::{Count, Quota};
use podwire_client::api::{Api, ApiResource, Patch, PatchParams};
use podwire_client::watcher::{self, Event, watcher};
use podwire_client::{Client, DynamicObject, ResourceExt};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::source::{Change, Source};
use crate::watching::{interrupted, is_status};
use crate::{Config, FIELD_MANAGER};

/// What changes within this time is counted together.
const TOGETHER: Duration = Duration::from_millis(10);
/// What was not written is tried again after this.
const RETRY: Duration = Duration::from_millis(250);
/// How often everything is counted.
const RESYNC: Duration = Duration::from_secs(300);

/// Namespace and name of a quota.
type Key = (String, String);

struct State {
    client: Client,
    kind: ApiResource,
    quotas: BTreeMap<Key, Value>,
    listed: BTreeMap<Key, Value>,
    synced: bool,
    sources: Vec<Source>,
    /// Namespaces to be counted.
    due: BTreeSet<String>,
    /// Names that no known resource has.
    unresolved: BTreeSet<String>,
    /// Whether there is a name that has not been asked for.
    asks: bool,
}

/// Runs until `shutdown`; a write that has begun is finished.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let client = config.client.clone();
    let kind = source::api(builtin::resource_quotas());
    let quotas: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut events = watcher(quotas, watcher::Config::default());
    let mut changes: SelectAll<BoxStream<'static, (usize, Change)>> = SelectAll::new();
    let mut state = State {
        client,
        kind,
        quotas: BTreeMap::new(),
        listed: BTreeMap::new(),
        synced: false,
        sources: Vec::new(),
        due: BTreeSet::new(),
        unresolved: BTreeSet::new(),
        asks: false,
    };
    let mut again = every(RESYNC);
    let mut discovery = every(config.discovery_period);
    let mut discoveries = JoinSet::new();
    let mut next: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                next = state.settle().await.map(|pause| Instant::now() + pause);
                continue;
            }
            Some(event) = events.next() => state.quota(event),
            Some((at, change)) = changes.next() => state.change(at, change),
            _ = again.tick() => state.due.extend(state.quotas.keys().map(|(namespace, _)| namespace.clone())),
            _ = discovery.tick(), if !state.unresolved.is_empty() && discoveries.is_empty() => {
                let client = state.client.clone();
                discoveries.spawn(async move { source::discover(&client).await });
            }
            Some(Ok(found)) = discoveries.join_next() => state.resolve(&found),
        }
        for (at, source) in state.sources.iter_mut().enumerate() {
            changes.extend(source.begin(&state.client, at));
        }
        if std::mem::take(&mut state.asks) {
            discovery.reset_immediately();
        }
        if next.is_none() && !state.due.is_empty() {
            next = Some(Instant::now() + TOGETHER);
        }
        if let Some(expiry) = state.next_expiry() {
            let expiry = Instant::now() + expiry;
            next = Some(next.map_or(expiry, |next| next.min(expiry)));
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl State {
    fn quota(&mut self, event: watcher::Result<Event<DynamicObject>>) {
        let read = |quota: DynamicObject| {
            let key = (quota.namespace().unwrap_or_default(), quota.name_any());
            (key, quota.data)
        };
        match event {
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(quota)) => {
                let (key, quota) = read(quota);
                self.listed.insert(key, quota);
            }
            Ok(Event::InitDone) => {
                self.synced = true;
                self.quotas = std::mem::take(&mut self.listed);
                for (key, quota) in self.quotas.clone() {
                    self.want(&quota);
                    self.due.insert(key.0);
                }
            }
            Ok(Event::Apply(quota)) => {
                let (key, quota) = read(quota);
                if plan::is_behind(&quota) {
                    self.want(&quota);
                    self.due.insert(key.0.clone());
                }
                self.quotas.insert(key, quota);
            }
            Ok(Event::Delete(quota)) => drop(self.quotas.remove(&read(quota).0)),
            Err(error) => interrupted("resourcequotas", &error),
        }
    }

    /// Watches what a quota names.
    fn want(&mut self, quota: &Value) {
        let quota = Quota::from(quota);
        for kind in podwire_api::kinds() {
            source::add(&mut self.sources, kind, &quota);
        }
        for (name, _) in quota.wanted.iter().filter(|(name, _)| name.starts_with("count/")) {
            if !self.sources.iter().any(|source| source.measured.has(name)) {
                self.asks |= self.unresolved.insert(name.to_owned());
            }
        }
    }

    /// Watches resources that were found for names nobody knew.
    fn resolve(&mut self, found: &[ApiResource]) {
        for api in found {
            let source = Source::counted(api);
            let before = self.unresolved.len();
            self.unresolved.retain(|name| !source.measured.has(name));
            if self.unresolved.len() < before {
                self.sources.push(source);
            }
        }
    }

    fn change(&mut self, at: usize, change: Change) {
        let Some(source) = self.sources.get_mut(at) else { return };
        let (touched, synced) = source.apply(change);
        let mut touched: BTreeSet<String> = touched.into_iter().collect();
        if synced {
            touched.extend(self.quotas.keys().map(|(namespace, _)| namespace.clone()));
        }
        let has_quota = |namespace: &String| {
            self.quotas
                .range((namespace.clone(), String::new())..)
                .next()
                .is_some_and(|((of, _), _)| of == namespace)
        };
        self.due.extend(touched.into_iter().filter(has_quota));
    }

    /// When the time of a pod that is on its way out runs out next.
    fn next_expiry(&self) -> Option<Duration> {
        let next = self.sources.iter().filter_map(Source::next_expiry).min()?;
        Some(Duration::try_from(next.duration_since(Timestamp::now())).unwrap_or_default().max(TOGETHER))
    }

    /// Counts what is due and writes what differs; when to come back for what was not written.
    async fn settle(&mut self) -> Option<Duration> {
        let now = Timestamp::now();
        for source in &mut self.sources {
            self.due.extend(source.expire(now));
        }
        if !self.synced {
            return None;
        }
        let mut failed = BTreeSet::new();
        for namespace in std::mem::take(&mut self.due) {
            let of = |key: &Key| key.0 == namespace;
            let first = (namespace.clone(), String::new());
            let quotas: Vec<Value> = self
                .quotas
                .range(first..)
                .take_while(|(key, _)| of(key))
                .map(|(_, quota)| quota.clone())
                .collect();
            for object in quotas {
                let quota = Quota::from(&object);
                let Some(used) = self.count(&namespace, &quota) else { continue };
                let Some(patch) = plan::patch(&object, &used) else { continue };
                if !self.write(&namespace, &quota.name, patch).await {
                    failed.insert(namespace.clone());
                }
            }
        }
        self.due.extend(failed);
        (!self.due.is_empty()).then_some(RETRY)
    }

    /// What is used of a quota; `None` while something of it has not been seen.
    fn count(&self, namespace: &str, quota: &Quota) -> Option<podwire_api::resources::Resources> {
        let mut count = Count::of(quota);
        for source in &self.sources {
            if !count.begin(&source.measured) {
                continue;
            }
            if !source.is_synced() {
                return None;
            }
            source.items(namespace).for_each(|item| count.add(item));
        }
        Some(count.done())
    }

    /// Writes a status; answers whether that is settled.
    async fn write(&self, namespace: &str, name: &str, patch: Value) -> bool {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &self.kind);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch_status(name, &params, &Patch::Merge(patch)).await {
            Ok(_) => true,
            Err(error) if is_status(&error, 404) => true,
            Err(error) => {
                tracing::debug!(namespace, name, %error, "the status of a quota was not written; trying again");
                false
            }
        }
    }
}
