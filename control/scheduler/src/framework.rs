//! The points at which plugins take part in a decision, under upstream's names.
//!
//! | point | here |
//! |---|---|
//! | PreEnqueue | [`Plugin::pre_enqueue`]: may the pod be looked at at all |
//! | QueueingHint | [`Plugin::may_help`]: may this event change my mind about that pod |
//! | PreFilter | [`Plugin::pre_filter`]: what is worked out once per pod; the state of the cycle is the [`Filter`] it returns |
//! | Filter | [`Filter::refuses`], with [`Filter::suppose`] for pods that are thought away or thought present |
//! | PostFilter | [`Plugin::post_filter`]: can room be made |
//! | PreScore, Score, NormalizeScore | [`Plugin::pre_score`] returns a [`Score`] |
//! | Reserve, Unreserve | [`Plugin::reserve`], [`Plugin::unreserve`]: what is set aside until the pod is bound; [`Plugin::undo`] takes back what was written |
//! | Permit | [`Plugin::permit`]: the last word before binding begins |
//! | PreBind, Bind, PostBind | [`Plugin::pre_bind`], [`Plugin::bind`], [`Plugin::post_bind`] |
//!
//! All but those that are a [`Step`] are synchronous and pure. A plugin is a file in `plugins` and a row of [`crate::profile`].

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use podwire_client::Client;
use tokio::sync::Notify;

use crate::cluster::devices::Claim;
use crate::cluster::{Cluster, Constraints, Event};
use crate::cycle::Diagnosis;
use crate::node::{NodeFacts, NodeInfo, Usage};
use crate::plugins::dynamic_resources::ClaimPlan;
use crate::plugins::volume_binding::VolumePlan;
use crate::pod::PodInfo;

/// The best score of one plugin on one node.
pub(crate) const MAX_SCORE: i64 = 100;

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        /// The plugins by upstream's names.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(clippy::enum_variant_names, reason = "upstream calls one of them NodeName")]
        pub(crate) enum Name {
            $(
                #[doc = stringify!($name)]
                $name,
            )*
        }

        impl Name {
            /// All of them.
            pub(crate) const ALL: &[Name] = &[$(Name::$name),*];

            /// As configurations and messages spell it.
            pub(crate) fn text(self) -> &'static str {
                match self { $(Name::$name => stringify!($name)),* }
            }
        }
    };
}

names![
    SchedulingGates,
    PrioritySort,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    DefaultBinder,
];

/// A few plugins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Names(u32);

impl Names {
    /// Adds one.
    pub(crate) fn insert(&mut self, name: Name) {
        self.0 |= 1 << name as u32;
    }

    /// Whether there is none.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub(crate) fn contains(self, name: Name) -> bool {
        self.0 & (1 << name as u32) != 0
    }

    /// Them, in their order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Name> {
        Name::ALL.iter().copied().filter(move |name| self.contains(*name))
    }
}

impl FromIterator<Name> for Names {
    fn from_iter<I: IntoIterator<Item = Name>>(names: I) -> Self {
        let mut out = Self::default();
        names.into_iter().for_each(|name| out.insert(name));
        out
    }
}

/// Why a pod cannot run: on a node, or on any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) plugin: Name,
    first: Cow<'static, str>,
    more: Vec<Cow<'static, str>>,
    /// Whether the node would do if pods were removed from it.
    pub(crate) resolvable: bool,
    /// Whether the question makes no sense, so that no node need be asked; the pod is tried again after a while.
    pub(crate) broken: bool,
}

impl Refusal {
    /// Whatever pods are removed, it will not do.
    pub(crate) fn never(plugin: Name, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { plugin, first: reason.into(), more: Vec::new(), resolvable: false, broken: false }
    }

    /// There is no answer.
    pub(crate) fn broken(plugin: Name, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { broken: true, ..Self::never(plugin, reason) }
    }

    /// It would do if pods were removed.
    pub(crate) fn not_now(plugin: Name, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { resolvable: true, ..Self::never(plugin, reason) }
    }

    /// Adds a reason.
    pub(crate) fn and(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.more.push(reason.into());
        self
    }

    /// The reasons.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        [&self.first].into_iter().chain(&self.more).map(|reason| &**reason)
    }

    /// The reasons in one text.
    pub(crate) fn text(&self) -> String {
        self.reasons().collect::<Vec<_>>().join(", ")
    }
}

/// What one decision is about.
#[derive(Clone, Copy)]
pub(crate) struct Cycle<'a> {
    pub(crate) pod: &'a PodInfo,
    pub(crate) cluster: &'a Cluster,
    /// How the pod is to be spread.
    pub(crate) constraints: &'a Constraints,
}

/// A node with what is, or is thought to be, used of it.
#[derive(Clone, Copy)]
pub(crate) struct Seat<'a> {
    pub(crate) node: &'a NodeInfo,
    pub(crate) facts: &'a NodeFacts,
    pub(crate) usage: &'a Usage,
}

impl<'a> Seat<'a> {
    /// The node as it is; `None` if only its pods are known.
    pub(crate) fn new(node: &'a NodeInfo) -> Option<Self> {
        Some(Self { node, facts: node.facts.as_ref()?, usage: &node.usage })
    }
}

/// What a plugin says before nodes are looked at.
pub(crate) enum PreFilter<'a> {
    /// It has nothing to say about this pod.
    Skip,
    /// The pod can run nowhere.
    Nowhere(Refusal),
    /// It can run on these nodes only, of which each is to be asked about.
    Only(BTreeSet<String>, Box<dyn Filter + 'a>),
    /// Each node is to be asked about.
    Each(Box<dyn Filter + 'a>),
}

/// A filter made ready for one pod.
pub(crate) trait Filter {
    /// Why the pod cannot run on a node.
    fn refuses(&self, seat: &Seat) -> Option<Refusal>;

    /// Thinks a pod present (1) or away (-1) on the node that is asked about next; sums of the node are not its business.
    fn suppose(&mut self, _pod: &PodInfo, _node: &NodeInfo, _sign: i64) {}

    /// Thinks of things as they are again.
    fn forget(&mut self) {}

    /// The same in numbers, for people.
    fn details(&self, _seat: &Seat) -> Vec<String> {
        Vec::new()
    }
}

/// A score made ready for one pod.
pub(crate) trait Score {
    /// How good a node is, before all are known.
    fn score(&self, seat: &Seat) -> i64;

    /// Brings the scores of all nodes, in the order in which they were scored, between 0 and 100.
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// What came of the attempt to make room.
#[derive(Debug)]
pub(crate) enum PostFilter {
    /// It has nothing to say.
    Skip,
    /// Nothing can be done; the text ends the pod's message. The promise of a node is taken back if `clear`.
    Unhelped {
        /// Why.
        text: String,
        /// Whether the pod is no longer promised a node.
        clear: bool,
        /// A claim whose devices are to be given back, so that others can be had.
        deallocate: Option<Arc<Claim>>,
    },
    /// Remove these pods from this node.
    Victims {
        /// The node.
        node: String,
        /// Who must go.
        pods: Vec<Arc<PodInfo>>,
    },
}

/// What is set aside for a pod on its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reservation {
    pub(crate) volumes: Option<VolumePlan>,
    pub(crate) claims: Option<Arc<ClaimPlan>>,
    /// What is told while the pod waits on its way: reason and text of an event.
    pub(crate) news: Option<(&'static str, String)>,
}

/// A pod on its way to a node.
#[derive(Clone)]
pub(crate) struct Journey {
    pub(crate) client: Client,
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) node: Arc<str>,
    pub(crate) reservation: Arc<Reservation>,
    pub(crate) lounge: Arc<Lounge>,
}

/// Pods on their way that wait for somebody else: they keep nobody from setting out.
#[derive(Debug, Default)]
pub(crate) struct Lounge {
    waiting: AtomicUsize,
    changed: Notify,
}

/// A place in the lounge, until it is dropped.
pub(crate) struct Waits<'a>(&'a Lounge);

impl Lounge {
    /// Waits there from now on.
    pub(crate) fn enter(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        Waits(self)
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns when one more waits. Cancel safe.
    pub(crate) async fn entered(&self) {
        self.changed.notified().await;
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A step of binding.
pub(crate) type Step = BoxFuture<'static, Result<(), StepError>>;

/// Why a pod could not be bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StepError {
    /// The API server said no, or nothing.
    #[error("write to the API server")]
    Api(#[source] Box<podwire_client::Error>),
    /// What was waited for did not come, or came otherwise.
    #[error("{0}")]
    Plugin(String),
}

impl From<podwire_client::Error> for StepError {
    fn from(error: podwire_client::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl StepError {
    /// With what the API server said.
    pub(crate) fn with_cause(&self) -> String {
        match self {
            Self::Api(error) => format!("{self}: {error}"),
            Self::Plugin(text) => text.clone(),
        }
    }

    /// Whether it leaves open what was done.
    pub(crate) fn is_doubtful(&self) -> bool {
        match self {
            Self::Api(error) => !matches!(&**error, podwire_client::Error::Api(status) if status.code < 500),
            Self::Plugin(_) => false,
        }
    }
}

/// A plugin of the framework.
pub(crate) trait Plugin: Send + Sync {
    /// Its name.
    fn name(&self) -> Name;

    /// Why the pod must not be looked at yet.
    fn pre_enqueue(&self, _pod: &PodInfo, _cluster: &Cluster) -> Option<Refusal> {
        None
    }

    /// Whether the event may change its mind about a pod that it refused.
    fn may_help(&self, _event: &Event, _pod: &PodInfo, _cluster: &Cluster) -> bool {
        false
    }

    /// Works out what is the same for all nodes.
    fn pre_filter<'a>(&'a self, _cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Skip
    }

    /// Tries to make room for a pod that fits nowhere.
    fn post_filter(
        &self,
        _cycle: Cycle,
        _filters: &mut Filters,
        _diagnosis: &Diagnosis,
        _dice: u64,
    ) -> PostFilter {
        PostFilter::Skip
    }

    /// Works out what is the same for the nodes that fit; `None` if it has no opinion on this pod.
    fn pre_score<'a>(&'a self, _cycle: Cycle<'a>, _fit: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        None
    }

    /// Sets aside what the pod will use beside the node's own resources.
    fn reserve(
        &self,
        _cluster: &mut Cluster,
        _pod: &PodInfo,
        _node: &str,
        _out: &mut Reservation,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    /// Gives it back; says what that is for waiting pods.
    fn unreserve(&self, _cluster: &mut Cluster, _pod: &PodInfo, _reservation: &Reservation) -> Vec<Event> {
        Vec::new()
    }

    /// Why the pod must not be bound after all.
    fn permit(&self, _pod: &PodInfo, _node: &str) -> Option<Refusal> {
        None
    }

    /// What is to be done before the pod is bound.
    fn pre_bind(&self, _journey: &Journey) -> Option<Step> {
        None
    }

    /// Takes back what was written for a pod that is not bound after all, as far as others are in its way.
    fn undo(&self, _journey: &Journey) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Binds the pod.
    fn bind(&self, _journey: &Journey) -> Option<Step> {
        None
    }

    /// Hears that the pod was bound; says what that is for waiting pods.
    fn post_bind(&self, _cluster: &mut Cluster, _pod: &PodInfo, _reservation: &Reservation) -> Vec<Event> {
        Vec::new()
    }
}

/// The filters that have something to say about a pod, in order.
pub(crate) struct Filters<'a> {
    all: Vec<(Name, Box<dyn Filter + 'a>)>,
    /// Whether something is thought otherwise than it is.
    supposing: bool,
}

impl<'a> Filters<'a> {
    /// These filters.
    pub(crate) fn new(all: Vec<(Name, Box<dyn Filter + 'a>)>) -> Self {
        Self { all, supposing: false }
    }

    /// The first objection.
    pub(crate) fn refusal(&self, seat: &Seat) -> Option<Refusal> {
        self.all.iter().find_map(|(_, filter)| filter.refuses(seat))
    }

    /// Every objection, with its numbers.
    pub(crate) fn refusals(&self, seat: &Seat) -> Vec<(Refusal, Vec<String>)> {
        let of = |filter: &dyn Filter| Some((filter.refuses(seat)?, filter.details(seat)));
        self.all.iter().filter_map(|(_, filter)| of(&**filter)).collect()
    }

    /// Thinks a pod present (1) or away (-1).
    pub(crate) fn suppose(&mut self, pod: &PodInfo, node: &NodeInfo, sign: i64) {
        self.supposing = true;
        self.all.iter_mut().for_each(|(_, filter)| filter.suppose(pod, node, sign));
    }

    /// Thinks of things as they are again.
    pub(crate) fn forget(&mut self) {
        if std::mem::take(&mut self.supposing) {
            self.all.iter_mut().for_each(|(_, filter)| filter.forget());
        }
    }

    /// The first objection, also when pods are present to which `pod` must leave room. `usage` is what is thought to be
    /// used of the node now; what is supposed beside that stays.
    pub(crate) fn refusal_with_promises(&mut self, cycle: Cycle, seat: &Seat) -> Option<Refusal> {
        let promised = cycle.cluster.nominations.before(cycle.pod, &seat.node.name);
        if promised.clone().next().is_none() {
            return self.refusal(seat);
        }
        let mut fuller = seat.usage.clone();
        for other in promised.clone() {
            fuller.add(other);
            self.suppose(other, seat.node, 1);
        }
        let refusal = self.refusal(&Seat { usage: &fuller, ..*seat });
        promised.for_each(|other| self.suppose(other, seat.node, -1));
        refusal.or_else(|| self.refusal(seat))
    }
}
