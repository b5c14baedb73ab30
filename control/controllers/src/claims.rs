//! Claims of devices: made from templates, given back when nobody uses them; pods leave devices that are tainted.
//!
//! One task owns what it has seen of pods, claims, their templates and slices. Each change names what is to be looked at; a
//! task per pod or claim writes what is due, into one `JoinSet`. Whatever was begun and not finished by a controller that
//! was killed is seen in the objects, and finished: a claim that was made is found by its owner, and no second one is made.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>

mod act;
mod book;
mod plan;
mod view;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use podwire_client::watcher::{self, Event, watcher};
use podwire_client::{Api, Client, DynamicObject, ResourceExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::act::PodDone;
use self::book::{Book, Look};
use self::view::{ClaimView, Place, PodView, SliceView};
use crate::Config;
use crate::events::{self, About, Recorder, Said};
use crate::watching::{Watch, caught, interrupted, watch};

/// Pods and claims that are written at the same time.
const AT_ONCE: usize = 32;
/// What failed is tried again after the first, each time after twice as long, and at last after the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How long is waited for a time that is far away.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a spawned task came to.
enum Done {
    Pod { place: Place, uid: String, done: PodDone },
    Claim { place: Place, failed: bool },
    Taint { place: Place, uid: String, left: Option<bool> },
    Written,
}

struct State {
    client: Client,
    book: Book,
    /// Objects of the lists under way, by resource; slices are in no namespace.
    listed: HashMap<&'static str, HashSet<Place>>,
    /// Resources that have not been seen whole yet; nothing is done before.
    unsynced: HashSet<&'static str>,
    due: VecDeque<Look>,
    queued: HashSet<Look>,
    busy: HashSet<Look>,
    failures: HashMap<Look, u32>,
    tasks: JoinSet<Done>,
    /// What failed waits here, so that it keeps nobody else from their turn.
    waiting: JoinSet<Look>,
    /// When pods must leave, in milliseconds since 1970.
    leaving: HashMap<Place, (String, i64)>,
    next_leaving: BTreeSet<(i64, Place)>,
    /// Pods that were made to leave, by uid.
    left: HashMap<Place, String>,
    claim_events: Recorder,
    taint_events: Recorder,
}

/// Runs until `shutdown`; writes that have begun are finished.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let client = config.client;
    let of = |kind: &str, plural: &str| -> Watch<DynamicObject> {
        watcher(Api::all_with(client.clone(), &act::resource(kind, plural)), watcher::Config::default())
    };
    let mut pods: Watch<Pod> = watch(&client, "");
    let mut claims = of("ResourceClaim", CLAIMS);
    let mut templates = of("ResourceClaimTemplate", TEMPLATES);
    let mut slices = of("ResourceSlice", SLICES);
    let mut state = State::new(client.clone());
    loop {
        let wake = state.until_next_leaving();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(done) = state.tasks.join_next() => state.done(done),
            Some(event) = claims.next() => state.claim_event(event),
            Some(event) = pods.next() => state.pod_event(event),
            Some(event) = templates.next() => state.template_event(event),
            Some(event) = slices.next() => state.slice_event(event),
            Some(Ok(look)) = state.waiting.join_next() => state.look(look),
            () = tokio::time::sleep(wake) => state.time_passed(),
        }
        state.begin_due();
    }
    while state.tasks.join_next().await.is_some() {}
}

const PODS: &str = "pods";
const CLAIMS: &str = "resourceclaims";
const TEMPLATES: &str = "resourceclaimtemplates";
const SLICES: &str = "resourceslices";

fn place_of(object: &impl ResourceExt) -> Place {
    Place::new(object.namespace().unwrap_or_default(), object.name_any())
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

impl State {
    fn new(client: Client) -> Self {
        Self {
            client,
            book: Book::default(),
            listed: HashMap::new(),
            unsynced: HashSet::from([PODS, CLAIMS, TEMPLATES, SLICES]),
            due: VecDeque::new(),
            queued: HashSet::new(),
            busy: HashSet::new(),
            failures: HashMap::new(),
            tasks: JoinSet::new(),
            waiting: JoinSet::new(),
            leaving: HashMap::new(),
            next_leaving: BTreeSet::new(),
            left: HashMap::new(),
            claim_events: Recorder::new("resource_claim"),
            taint_events: Recorder::new("device-taint-eviction-controller"),
        }
    }

    fn look(&mut self, look: Look) {
        if self.queued.insert(look.clone()) {
            self.due.push_back(look);
        }
    }

    fn looks(&mut self, looks: Vec<Look>) {
        looks.into_iter().for_each(|look| self.look(look));
    }

    fn list_begins(&mut self, of: &'static str) {
        self.listed.insert(of, HashSet::new());
    }

    fn is_listed(&mut self, of: &'static str, place: &Place) {
        self.listed.entry(of).or_default().insert(place.clone());
    }

    /// The list is complete: those of `known` that are not in it are gone.
    fn list_ends(&mut self, of: &'static str, known: Vec<Place>) -> Vec<Place> {
        self.unsynced.remove(of);
        let listed = self.listed.remove(of).unwrap_or_default();
        known.into_iter().filter(|place| !listed.contains(place)).collect()
    }

    fn pod_event(&mut self, event: watcher::Result<Event<Pod>>) {
        let looks = match event {
            Ok(Event::Apply(pod)) => self.book.pod_seen(place_of(&pod), PodView::new(&pod)),
            Ok(Event::InitApply(pod)) => {
                let place = place_of(&pod);
                self.is_listed(PODS, &place);
                self.book.pod_seen(place, PodView::new(&pod))
            }
            Ok(Event::Delete(pod)) => self.book.pod_gone(&place_of(&pod)),
            Ok(Event::Init) => return self.list_begins(PODS),
            Ok(Event::InitDone) => {
                let gone = self.list_ends(PODS, self.book.pod_places());
                gone.iter().flat_map(|place| self.book.pod_gone(place)).collect()
            }
            Err(error) => return interrupted(PODS, &error),
        };
        self.looks(looks);
    }

    fn claim_event(&mut self, event: watcher::Result<Event<DynamicObject>>) {
        let looks = match event {
            Ok(Event::Apply(claim)) => self.book.claim_seen(place_of(&claim), ClaimView::new(&claim.data)),
            Ok(Event::InitApply(claim)) => {
                let place = place_of(&claim);
                self.is_listed(CLAIMS, &place);
                self.book.claim_seen(place, ClaimView::new(&claim.data))
            }
            Ok(Event::Delete(claim)) => {
                let version = claim.resource_version().unwrap_or_default();
                self.book.claim_gone(&place_of(&claim), &version)
            }
            Ok(Event::Init) => {
                self.book.claims_listed_from_here();
                return self.list_begins(CLAIMS);
            }
            Ok(Event::InitDone) => {
                self.book.claims_listed();
                let gone = self.list_ends(CLAIMS, self.book.claim_places());
                gone.iter().flat_map(|place| self.book.claim_gone(place, "")).collect()
            }
            Err(error) => return interrupted(CLAIMS, &error),
        };
        self.looks(looks);
    }

    fn template_event(&mut self, event: watcher::Result<Event<DynamicObject>>) {
        let looks = match event {
            Ok(Event::Apply(mut template)) => {
                self.book.template_seen(place_of(&template), template.data["spec"].take())
            }
            Ok(Event::InitApply(mut template)) => {
                let place = place_of(&template);
                self.is_listed(TEMPLATES, &place);
                self.book.template_seen(place, template.data["spec"].take())
            }
            Ok(Event::Delete(template)) => return self.book.template_gone(&place_of(&template)),
            Ok(Event::Init) => return self.list_begins(TEMPLATES),
            Ok(Event::InitDone) => {
                let gone = self.list_ends(TEMPLATES, self.book.template_places());
                return gone.iter().for_each(|place| self.book.template_gone(place));
            }
            Err(error) => return interrupted(TEMPLATES, &error),
        };
        self.looks(looks);
    }

    fn slice_event(&mut self, event: watcher::Result<Event<DynamicObject>>) {
        let looks = match event {
            Ok(Event::Apply(slice)) => self.book.slice_seen(slice.name_any(), SliceView::new(&slice.data)),
            Ok(Event::InitApply(slice)) => {
                self.is_listed(SLICES, &place_of(&slice));
                self.book.slice_seen(slice.name_any(), SliceView::new(&slice.data))
            }
            Ok(Event::Delete(slice)) => self.book.slice_gone(&slice.name_any()),
            Ok(Event::Init) => return self.list_begins(SLICES),
            Ok(Event::InitDone) => {
                let known = self.book.slice_names().into_iter().map(|name| Place::new("", name)).collect();
                let gone = self.list_ends(SLICES, known);
                gone.iter().flat_map(|place| self.book.slice_gone(&place.name)).collect()
            }
            Err(error) => return interrupted(SLICES, &error),
        };
        self.looks(looks);
    }

    /// Begins what is due, as far as there is room.
    fn begin_due(&mut self) {
        if !self.unsynced.is_empty() {
            return;
        }
        let mut later = Vec::new();
        while self.busy.len() < AT_ONCE {
            let Some(look) = self.due.pop_front() else { break };
            if self.busy.contains(&look) {
                // It is looked at again when what is under way has ended.
                later.push(look);
                continue;
            }
            self.queued.remove(&look);
            match look {
                Look::Pod(place) => self.begin_pod(place),
                Look::Claim(place) => self.begin_claim(place),
                Look::Taint(place) => self.begin_taint(place),
            }
        }
        self.due.extend(later);
    }

    fn begin_pod(&mut self, place: Place) {
        let Some(pod) = self.book.pod(&place) else { return self.settled(&Look::Pod(place)) };
        let Some(plan) = plan::pod(&place, pod, &self.book) else { return self.settled(&Look::Pod(place)) };
        let (client, uid) = (self.client.clone(), pod.uid.clone());
        self.busy.insert(Look::Pod(place.clone()));
        let broken = PodDone { failed: true, ..PodDone::default() };
        let failed = Done::Pod { place: place.clone(), uid: uid.clone(), done: broken };
        let work = async move {
            let done = act::pod(&client, &place, &uid, plan).await;
            Done::Pod { place, uid, done }
        };
        self.tasks.spawn(caught(work, failed));
    }

    fn begin_claim(&mut self, place: Place) {
        let Some(claim) = self.book.claim(&place) else { return self.settled(&Look::Claim(place)) };
        let uses = plan::uses(&place, claim, &self.book);
        let owner = plan::owner(&place, claim, &self.book);
        let asks = uses.contains(&plan::Use::Unknown);
        if !asks && plan::claim(claim, &uses, owner) == plan::ClaimPlan::default() {
            return self.settled(&Look::Claim(place));
        }
        let (client, claim) = (self.client.clone(), claim.clone());
        self.busy.insert(Look::Claim(place.clone()));
        let failed = Done::Claim { place: place.clone(), failed: true };
        let work = async move {
            let done = act::claim(&client, &place, &claim, uses, owner).await;
            if let Err(error) = &done {
                tracing::debug!(claim = %place, %error, "claim not settled; will retry");
            }
            Done::Claim { place, failed: done.is_err() }
        };
        self.tasks.spawn(caught(work, failed));
    }

    fn begin_taint(&mut self, place: Place) {
        let pod = self.book.pod(&place);
        let uid = pod.map(|pod| pod.uid.clone()).unwrap_or_default();
        if self.left.get(&place).is_some_and(|left| *left != uid) {
            self.left.remove(&place);
        }
        let leaves = pod.and_then(|pod| plan::taint::leaves_at(&place, pod, &self.book));
        let stays = pod.is_some_and(|pod| !pod.deleting && !pod.terminal);
        let Some(at) = leaves.filter(|_| !self.left.contains_key(&place)) else {
            if self.stays(&place).is_some_and(|was| was == uid) && stays {
                self.say_of_taint(&place, &uid, "Cancelling deletion");
            }
            return self.settled(&Look::Taint(place));
        };
        self.stays(&place);
        self.leaving.insert(place.clone(), (uid.clone(), at));
        if at > now() {
            self.next_leaving.insert((at, place));
            return;
        }
        self.busy.insert(Look::Taint(place.clone()));
        let client = self.client.clone();
        let failed = Done::Taint { place: place.clone(), uid: uid.clone(), left: None };
        let work = async move {
            let left = act::evict(&client, &place, &uid).await;
            if let Err(error) = &left {
                tracing::debug!(pod = %place, %error, "pod not removed from a tainted device; will retry");
            }
            Done::Taint { place, uid, left: left.ok() }
        };
        self.tasks.spawn(caught(work, failed));
    }

    /// Forgets that a pod must leave; the uid of the one that was to.
    fn stays(&mut self, place: &Place) -> Option<String> {
        let (uid, at) = self.leaving.remove(place)?;
        self.next_leaving.remove(&(at, place.clone()));
        Some(uid)
    }

    fn say_of_taint(&mut self, place: &Place, uid: &str, message: &str) {
        let about = about(place, uid);
        let said = Said { kind: "Normal", reason: "DeviceTaintManagerEviction", message: message.to_owned() };
        let record = self.taint_events.record(&about, said, Timestamp::now());
        self.write(record);
    }

    fn write(&mut self, record: events::Record) {
        let write = events::write(self.client.clone(), record);
        self.tasks.spawn(async move {
            write.await;
            Done::Written
        });
    }

    fn until_next_leaving(&self) -> Duration {
        let Some((at, _)) = self.next_leaving.first() else { return LONGEST_WAIT };
        let left = u64::try_from(at.saturating_sub(now())).unwrap_or_default();
        Duration::from_millis(left).min(LONGEST_WAIT)
    }

    fn time_passed(&mut self) {
        let now = now();
        while let Some((at, _)) = self.next_leaving.first() {
            if *at > now {
                return;
            }
            if let Some((_, place)) = self.next_leaving.pop_first() {
                self.look(Look::Taint(place));
            }
        }
    }

    fn done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Pod { place, uid, done }) => {
                if self.book.pod(&place).is_some_and(|pod| pod.uid == uid) {
                    for (pod_claim, name, version) in done.made {
                        self.book.made(&uid, &pod_claim, name, version);
                    }
                }
                if let Some(message) = done.trouble {
                    let said = Said { kind: "Warning", reason: "FailedResourceClaimCreation", message };
                    let record = self.claim_events.record(&about(&place, &uid), said, Timestamp::now());
                    self.write(record);
                }
                self.ended(Look::Pod(place), done.failed);
            }
            Ok(Done::Claim { place, failed }) => self.ended(Look::Claim(place), failed),
            Ok(Done::Taint { place, uid, left }) => {
                if let Some(left) = left {
                    self.stays(&place);
                    self.left.insert(place.clone(), uid.clone());
                    if left {
                        tracing::info!(pod = %place, "pod removed from a tainted device");
                        self.say_of_taint(&place, &uid, "Marking for deletion");
                    }
                }
                self.ended(Look::Taint(place), left.is_none());
            }
            Ok(Done::Written) => {}
            Err(error) => tracing::error!(%error, "a task of the claim controller panicked"),
        }
    }

    /// Nothing is left to do.
    fn settled(&mut self, look: &Look) {
        self.failures.remove(look);
    }

    fn ended(&mut self, look: Look, failed: bool) {
        self.busy.remove(&look);
        if !failed {
            // What was written comes back by a watch, or has been overtaken.
            return self.settled(&look);
        }
        let failures = self.failures.entry(look.clone()).or_default();
        let pause = FIRST_RETRY.saturating_mul(1 << (*failures).min(16)).min(LONGEST_RETRY);
        *failures += 1;
        self.waiting.spawn(async move {
            tokio::time::sleep(pause).await;
            look
        });
    }
}

fn about(place: &Place, uid: &str) -> About {
    About { namespace: place.namespace.clone(), name: place.name.clone(), uid: uid.to_owned() }
}
