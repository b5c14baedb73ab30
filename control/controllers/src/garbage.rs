//! Garbage: what nobody owns any more is deleted, and owners that wait for their dependents are let go.
//!
//! One task watches the metadata of every resource that can be listed, watched and deleted, and keeps a graph of who owns
//! whom. Each change names the objects to look at; a task per object asks the API server how things stand and does what
//! is due. An owner that no watch has shown counts as gone only when the server says so. Which resources there are is asked
//! again from time to time: watches begin and end with them.
//!
//! <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>

mod act;
mod graph;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use podwire_client::api::Api;
use podwire_client::discovery::{self, ApiCapabilities, verbs};
use podwire_client::watcher::{self, Event, watcher};
use podwire_client::{Client, Meta};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use self::act::{Job, Resource, Resources};
use self::graph::{Graph, Object, Owner, Place, Waits};
use crate::Config;
use crate::watching::{caught, interrupted};

/// Objects looked at at the same time.
const AT_ONCE: usize = 8;
/// What failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

type Change = (usize, watcher::Result<Event<Meta>>);

struct State {
    client: Client,
    resources: Arc<Resources>,
    /// Ends the watch on a resource, by its place.
    watches: Vec<CancellationToken>,
    graph: Graph,
    /// Objects of the lists under way, by resource.
    listed: HashMap<usize, HashSet<String>>,
    /// Resources that have not been seen whole yet; nothing is done before.
    unsynced: HashSet<usize>,
    /// Objects to be looked at.
    due: HashSet<String>,
    /// Objects that are being looked at.
    busy: HashSet<String>,
    /// The lookers; each ends with its object and whether that failed.
    tasks: JoinSet<(String, bool)>,
    /// Objects that failed wait here, so that they keep nobody else from their turn.
    waiting: JoinSet<String>,
}

/// Runs until `shutdown`.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let begin = async {
        // No pod waits for it, so it keeps out of the way while a node starts.
        tokio::time::sleep(config.garbage_delay).await;
        discover(&config.client).await
    };
    let resources = tokio::select! {
        () = shutdown.cancelled() => return,
        resources = begin => resources,
    };
    let mut changes = SelectAll::new();
    let mut state = State {
        client: config.client.clone(),
        unsynced: (0..resources.len()).collect(),
        resources: Arc::new(Resources(Vec::new())),
        watches: Vec::new(),
        graph: Graph::default(),
        listed: HashMap::new(),
        due: HashSet::new(),
        busy: HashSet::new(),
        tasks: JoinSet::new(),
        waiting: JoinSet::new(),
    };
    state.follow(&resources, &mut changes);
    let mut discoveries = JoinSet::new();
    let mut next = interval_at(Instant::now() + config.discovery_period, config.discovery_period);
    next.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            _ = next.tick(), if discoveries.is_empty() => {
                let client = config.client.clone();
                discoveries.spawn(async move { discover(&client).await });
            }
            Some(Ok(found)) = discoveries.join_next() => state.follow(&found, &mut changes),
            Some(done) = state.tasks.join_next() => state.done(done),
            Some(Ok(uid)) = state.waiting.join_next() => drop(state.due.insert(uid)),
            Some((at, change)) = changes.next() => state.change(at, change),
        }
        state.begin_due();
    }
    while state.tasks.join_next().await.is_some() {}
}

/// All resources whose objects can have owners; asks until it is answered.
async fn discover(client: &Client) -> Vec<Resource> {
    loop {
        match discovery::resources(client).await {
            Ok(found) => {
                let collected = |caps: &ApiCapabilities| {
                    [verbs::LIST, verbs::WATCH, verbs::DELETE]
                        .iter()
                        .all(|verb| caps.supports_operation(verb))
                };
                // Events are many and own nothing; they go by themselves.
                let wanted =
                    found.into_iter().filter(|(api, caps)| collected(caps) && api.plural != "events");
                return wanted.map(|(api, caps)| Resource { api, scope: caps.scope, served: true }).collect();
            }
            Err(error) => {
                tracing::warn!(%error, "resources not discovered; will retry");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn watch(
    client: &Client,
    at: usize,
    resource: &Resource,
    end: CancellationToken,
) -> BoxStream<'static, Change> {
    let api: Api<Meta> = Api::all_with(client.clone(), &resource.api);
    let events = watcher(api, watcher::Config::default());
    events.map(move |event| (at, event)).take_until(end.cancelled_owned()).boxed()
}

/// What a terminating object waits for.
fn waits_of(metadata: &ObjectMeta) -> Option<Waits> {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    [Waits::Foreground, Waits::Orphan]
        .into_iter()
        .find(|waits| finalizers.iter().any(|name| name == waits.finalizer()))
}

/// What the graph keeps of an object.
fn object_of(metadata: &ObjectMeta, place: Place) -> Object {
    let owners = metadata.owner_references.iter().flatten().map(|owner| Owner {
        uid: owner.uid.clone(),
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        blocks: owner.block_owner_deletion.unwrap_or(false),
    });
    Object {
        place,
        owners: owners.collect(),
        deleting: metadata.deletion_timestamp.is_some(),
        waits: waits_of(metadata),
    }
}

impl State {
    /// Watches what is served now, and no longer what is not.
    fn follow(&mut self, found: &[Resource], changes: &mut SelectAll<BoxStream<'static, Change>>) {
        let mut all = self.resources.0.clone();
        let mut withdrawn = Vec::new();
        for (at, known) in all.iter_mut().enumerate().filter(|(_, known)| known.served) {
            if !found.iter().any(|one| one.api == known.api) {
                known.served = false;
                self.watches[at].cancel();
                self.unsynced.remove(&at);
                withdrawn.push(at);
            }
        }
        for new in found {
            if !all.iter().any(|known| known.served && known.api == new.api) {
                let end = CancellationToken::new();
                changes.push(watch(&self.client, all.len(), new, end.clone()));
                self.watches.push(end);
                all.push(new.clone());
            }
        }
        self.resources = Arc::new(Resources(all));
        for at in withdrawn {
            // What they own is looked at, and stays: nobody can say any more how they stand.
            let known: Vec<String> = self.graph.of_resource(at).map(str::to_owned).collect();
            known.iter().for_each(|uid| self.gone(uid));
        }
    }

    fn change(&mut self, at: usize, change: watcher::Result<Event<Meta>>) {
        match change {
            Ok(Event::Apply(object)) => self.seen(at, object.metadata),
            Ok(Event::InitApply(object)) => {
                self.listed.entry(at).or_default().extend(object.metadata.uid.clone());
                self.seen(at, object.metadata);
            }
            Ok(Event::Delete(object)) => self.gone(&object.metadata.uid.unwrap_or_default()),
            Ok(Event::Init) => drop(self.listed.remove(&at)),
            Ok(Event::InitDone) => {
                let listed = self.listed.remove(&at).unwrap_or_default();
                let known: Vec<String> = self.graph.of_resource(at).map(str::to_owned).collect();
                for uid in known.iter().filter(|uid| !listed.contains(*uid)) {
                    self.gone(uid);
                }
                if self.unsynced.is_empty() {
                    // Of a resource that came later, owners may have gone before they were seen.
                    self.due.extend(self.graph.with_unseen_owners().map(str::to_owned));
                }
                self.unsynced.remove(&at);
            }
            Err(error) => interrupted(&self.resources.0[at].api.plural, &error),
        }
    }

    fn seen(&mut self, at: usize, metadata: ObjectMeta) {
        let Some(uid) = metadata.uid.clone() else { return };
        let place = Place {
            resource: at,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        };
        let look = self.graph.seen(&uid, object_of(&metadata, place));
        self.due.extend(look);
    }

    fn gone(&mut self, uid: &str) {
        let look = self.graph.gone(uid);
        self.due.extend(look);
    }

    fn done(&mut self, done: Result<(String, bool), tokio::task::JoinError>) {
        match done {
            Ok((uid, failed)) => {
                self.busy.remove(&uid);
                if failed {
                    self.waiting.spawn(async move {
                        tokio::time::sleep(RETRY).await;
                        uid
                    });
                }
            }
            Err(error) => tracing::error!(%error, "looking at an object panicked"),
        }
    }

    /// Starts what is due, as far as there is room.
    fn begin_due(&mut self) {
        if !self.unsynced.is_empty() {
            return;
        }
        while self.busy.len() < AT_ONCE {
            let Some(uid) = self.due.iter().find(|uid| !self.busy.contains(*uid)).cloned() else { return };
            self.due.remove(&uid);
            let Some(job) = self.job(&uid) else { continue };
            self.busy.insert(uid);
            let (client, resources) = (self.client.clone(), self.resources.clone());
            let failed = (job.uid.clone(), true);
            let work = async move {
                let done = act::act(&client, &resources, &job).await;
                if let Err(error) = &done {
                    tracing::debug!(name = job.object.place.name, %error, "not collected yet; will retry");
                }
                (job.uid, done.is_err())
            };
            self.tasks.spawn(caught(work, failed));
        }
    }

    /// What is known about an object that something may have to be done about.
    fn job(&self, uid: &str) -> Option<Job> {
        let object = self.graph.get(uid)?.clone();
        if object.owners.is_empty() && !(object.deleting && object.waits.is_some()) {
            return None;
        }
        let standing = |owner: &Owner| Some((owner.uid.clone(), self.graph.standing(&owner.uid)?));
        let dependents = self.graph.dependents_of(uid).filter_map(|dependent| self.graph.get(dependent));
        Some(Job {
            uid: uid.to_owned(),
            standings: object.owners.iter().filter_map(standing).collect(),
            dependents: dependents.map(|dependent| dependent.place.clone()).collect(),
            is_blocked: self.graph.is_blocked(uid),
            object,
        })
    }
}
