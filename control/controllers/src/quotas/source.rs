//! One resource that quotas name: a watch, and of each object what quotas look at.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::{SignedDuration, Timestamp};
use podwire_api::Kind;
use podwire_api::quota::{Item, Measured, Quota};
use podwire_client::api::{Api, ApiResource};
use podwire_client::discovery::{self, Scope, verbs};
use podwire_client::watcher::{self, Event, watcher};
use podwire_client::{Client, DynamicObject, Meta};
use serde_json::Value;

use crate::watching::interrupted;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Place {
    fn of(namespace: Option<String>, name: Option<String>) -> Self {
        Self { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() }
    }
}

/// An object as it counts, and as it will count from some time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    item: Item,
    later: Option<(Timestamp, Item)>,
}

/// What a watch tells.
pub(super) enum Change {
    /// A list begins.
    Begun,
    /// An object of the list.
    Listed(Place, Seen),
    /// The list is complete.
    Complete,
    /// An object is there or has changed.
    Seen(Place, Seen),
    /// An object has gone.
    Gone(Place),
    /// The watch goes on by itself.
    Interrupted,
}

type ByNamespace = BTreeMap<String, BTreeMap<String, Seen>>;

/// A resource.
pub(super) struct Source {
    api: ApiResource,
    pub(super) measured: Measured,
    objects: ByNamespace,
    listed: ByNamespace,
    begun: bool,
    synced: bool,
}

/// How a kind is asked for.
pub(super) fn api(kind: &Kind) -> ApiResource {
    ApiResource {
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        api_version: kind.api_version(),
        kind: kind.kind.to_string(),
        plural: kind.resource.to_string(),
    }
}

/// Adds a built-in kind if a quota names something of it that is not watched yet.
pub(super) fn add(sources: &mut Vec<Source>, kind: &Kind, quota: &Quota) {
    let Some(measured) = Measured::of(kind) else { return };
    let known = sources.iter().any(|source| source.measured == measured);
    if !known && quota.measured_by(&measured).next().is_some() {
        sources.push(Source::new(api(kind), measured));
    }
}

/// All resources in namespaces that can be listed and watched; asked again later if there is no answer.
pub(super) async fn discover(client: &Client) -> Vec<ApiResource> {
    let found = match discovery::resources(client).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "resources that quotas name were not discovered; trying again");
            return Vec::new();
        }
    };
    let usable = |(_, caps): &discovery::Found| {
        caps.scope == Scope::Namespaced
            && [verbs::LIST, verbs::WATCH].iter().all(|verb| caps.supports_operation(verb))
    };
    found.into_iter().filter(usable).map(|(api, _)| api).collect()
}

impl Source {
    fn new(api: ApiResource, measured: Measured) -> Self {
        let (objects, listed) = (ByNamespace::new(), ByNamespace::new());
        Self { api, measured, objects, listed, begun: false, synced: false }
    }

    /// A resource of which only the number of objects matters.
    pub(super) fn counted(api: &ApiResource) -> Self {
        Self::new(api.clone(), Measured::counted(&api.group, &api.plural))
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// What is known of a namespace.
    pub(super) fn items(&self, namespace: &str) -> impl Iterator<Item = &Item> {
        self.objects.get(namespace).into_iter().flat_map(BTreeMap::values).map(|seen| &seen.item)
    }

    /// The watch, the first time it is asked for.
    pub(super) fn begin(
        &mut self,
        client: &Client,
        at: usize,
    ) -> Option<BoxStream<'static, (usize, Change)>> {
        if std::mem::replace(&mut self.begun, true) {
            return None;
        }
        let (measured, plural) = (self.measured.clone(), self.api.plural.clone());
        let config = watcher::Config::default();
        if self.measured.is_plain_count() {
            let api: Api<Meta> = Api::all_with(client.clone(), &self.api);
            let events = watcher(api, config);
            let plain = seen(&measured, &Value::Null);
            let told = move |event| {
                let read = |object: Meta| {
                    (Place::of(object.metadata.namespace, object.metadata.name), plain.clone())
                };
                (at, change(event, &plural, read))
            };
            return Some(events.map(told).boxed());
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.api);
        let events = watcher(api, config);
        let told = move |event| {
            let read = |object: DynamicObject| {
                let DynamicObject { metadata, data } = object;
                (Place::of(metadata.namespace, metadata.name), seen(&measured, &data))
            };
            (at, change(event, &plural, read))
        };
        Some(events.map(told).boxed())
    }

    /// Takes in a change: the namespaces where less is used than before, and whether all has been seen now.
    pub(super) fn apply(&mut self, change: Change) -> (Vec<String>, bool) {
        match change {
            Change::Begun => self.listed.clear(),
            Change::Listed(place, seen) => {
                self.listed.entry(place.namespace).or_default().insert(place.name, seen);
            }
            Change::Complete => {
                self.objects = std::mem::take(&mut self.listed);
                self.synced = true;
                return (Vec::new(), true);
            }
            Change::Seen(place, seen) => {
                let objects = self.objects.entry(place.namespace.clone()).or_default();
                let item = seen.item.clone();
                let before = objects.insert(place.name, seen);
                if before.is_some_and(|before| before.item != item) {
                    return (vec![place.namespace], false);
                }
            }
            Change::Gone(place) => {
                if let Some(objects) = self.objects.get_mut(&place.namespace) {
                    objects.remove(&place.name);
                    if objects.is_empty() {
                        self.objects.remove(&place.namespace);
                    }
                }
                return (vec![place.namespace], false);
            }
            Change::Interrupted => {}
        }
        (Vec::new(), false)
    }

    /// When an object counts otherwise without a change of it.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        if self.measured.is_plain_count() {
            return None;
        }
        let all = self.objects.values().flat_map(BTreeMap::values);
        all.filter_map(|seen| seen.later.as_ref().map(|(at, _)| *at)).min()
    }

    /// Lets time pass: the namespaces where something counts otherwise now.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<String> {
        let mut touched = Vec::new();
        for (namespace, objects) in &mut self.objects {
            for seen in objects.values_mut() {
                if let Some((_, item)) = seen.later.take_if(|(at, _)| *at <= now) {
                    seen.item = item;
                    touched.push(namespace.clone());
                }
            }
        }
        touched
    }
}

/// How an object counts, now and when the time it has for ending has run out.
fn seen(measured: &Measured, object: &Value) -> Seen {
    let item = measured.item(object, Timestamp::now());
    let due = || {
        let due: Timestamp = object["metadata"]["deletionTimestamp"].as_str()?.parse().ok()?;
        let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64()?;
        due.checked_add(SignedDuration::from_secs(grace.checked_add(1)?)).ok()
    };
    let later = due().map(|due| (due, measured.item(object, due)));
    Seen { later: later.filter(|(_, later)| *later != item), item }
}

fn change<K>(event: watcher::Result<Event<K>>, plural: &str, read: impl Fn(K) -> (Place, Seen)) -> Change {
    match event {
        Ok(Event::Init) => Change::Begun,
        Ok(Event::InitApply(object)) => {
            let (place, seen) = read(object);
            Change::Listed(place, seen)
        }
        Ok(Event::InitDone) => Change::Complete,
        Ok(Event::Apply(object)) => {
            let (place, seen) = read(object);
            Change::Seen(place, seen)
        }
        Ok(Event::Delete(object)) => Change::Gone(read(object).0),
        Err(error) => {
            interrupted(plural, &error);
            Change::Interrupted
        }
    }
}
