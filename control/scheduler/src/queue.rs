//! Pods that wait for a node: ready now, backing off, or waiting for the cluster to change. Pure; time is
//! milliseconds given by the caller.
//!
//! Pods that wait for the same thing (same template, refused by the same plugins) are one group: an event is held
//! against each group once, so that ten thousand pods that fit nowhere cost as much as one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::cluster::{Cluster, Event};
use crate::framework::Names;
use crate::pod::{PodInfo, Template};
use crate::profile::Profile;

/// A pod that nothing woke is tried again after this.
pub(crate) const STALE_MS: u64 = 300_000;

/// How long a pod backs off after its first failure, and at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) first_ms: u64,
    pub(crate) longest_ms: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first_ms: 1_000, longest_ms: 10_000 }
    }
}

impl Backoff {
    fn after(self, attempts: u32) -> u64 {
        let doubled = self.first_ms.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
        doubled.clamp(self.first_ms, self.longest_ms)
    }
}

/// Higher priority first, then who waited longer.
type Rank = (Reverse<i32>, u64);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Active(Rank),
    Backoff(u64, u64),
    Unschedulable {
        since: u64,
    },
    /// A plugin does not let it be looked at.
    Gated(String),
    /// Being decided or bound.
    Taken,
}

#[derive(Debug)]
struct Waiting {
    pod: Arc<PodInfo>,
    place: Place,
    order: u64,
    attempts: u32,
    /// The end of its back-off, once it failed.
    not_before: u64,
    /// It failed for a reason that waiting for changes does not cure.
    errored: bool,
    refused_by: Names,
}

/// Pods that wait for the same thing. Pods with claims are alone in their group: what helps one does not help another.
#[derive(Debug, Clone)]
struct Group {
    template: Arc<Template>,
    refused_by: Names,
    alone: Option<Arc<str>>,
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.template, &other.template)
            && self.refused_by == other.refused_by
            && self.alone == other.alone
    }
}

impl Eq for Group {}

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (Arc::as_ptr(&self.template) as usize, self.refused_by, &self.alone).hash(state);
    }
}

impl Waiting {
    fn group(&self) -> Group {
        let claims = !self.pod.volume_claims.is_empty() || !self.pod.device_claims.is_empty();
        let alone = claims.then(|| self.pod.uid.clone());
        Group { template: self.pod.template.clone(), refused_by: self.refused_by, alone }
    }
}

/// All waiting pods by uid.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pods: HashMap<Arc<str>, Waiting>,
    active: BTreeMap<Rank, Arc<str>>,
    backoff: BTreeMap<(u64, u64), Arc<str>>,
    groups: HashMap<Group, BTreeSet<u64>>,
    /// Unschedulable pods by the time since when they are, and their order.
    stale: BTreeMap<(u64, u64), Arc<str>>,
    /// Unschedulable pods by their order.
    by_order: HashMap<u64, Arc<str>>,
    counter: u64,
    times: Backoff,
}

impl Queue {
    /// An empty queue with these times.
    pub(crate) fn new(times: Backoff) -> Self {
        Self { times, ..Self::default() }
    }

    /// Takes in a pod that needs a node, or news of one that already waits. `gate` is why it must not be looked at.
    pub(crate) fn offer(&mut self, pod: Arc<PodInfo>, gate: Option<String>, now: u64) {
        let uid = pod.uid.clone();
        let Some(waiting) = self.pods.get_mut(&uid) else {
            self.counter += 1;
            let waiting = Waiting {
                pod,
                place: Place::Taken,
                order: self.counter,
                attempts: 0,
                not_before: 0,
                errored: false,
                refused_by: Names::default(),
            };
            self.pods.insert(uid.clone(), waiting);
            match gate {
                None => self.activate(&uid),
                Some(reason) => self.move_to(&uid, Place::Gated(reason)),
            }
            return;
        };
        let changed = !Arc::ptr_eq(&waiting.pod.template, &pod.template)
            || waiting.pod.made_claims != pod.made_claims
            || waiting.pod.nominated.is_some() && pod.nominated.is_none();
        let place = waiting.place.clone();
        // A group is left under the old template.
        if changed && matches!(place, Place::Unschedulable { .. }) {
            self.move_to(&uid, Place::Taken);
        }
        if let Some(waiting) = self.pods.get_mut(&uid) {
            waiting.pod = pod;
        }
        match (place, gate) {
            (Place::Taken, _) => {}
            (_, Some(reason)) => self.move_to(&uid, Place::Gated(reason)),
            (Place::Gated(_), None) => self.activate(&uid),
            (Place::Unschedulable { .. }, None) if changed => self.wake(&uid, now),
            (Place::Active(_), None) if changed => self.activate(&uid),
            _ => {}
        }
    }

    /// A pod that must not be looked at, and why.
    pub(crate) fn gated(&self, uid: &str) -> Option<(&Arc<PodInfo>, &str)> {
        let waiting = self.pods.get(uid)?;
        match &waiting.place {
            Place::Gated(reason) => Some((&waiting.pod, reason)),
            _ => None,
        }
    }

    /// Forgets a pod; says whether it had waited.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        if !self.pods.contains_key(uid) {
            return false;
        }
        self.move_to(uid, Place::Taken);
        self.pods.remove(uid).is_some()
    }

    /// The next pod to decide on; it stays taken until it is bound, failed or removed. When nothing is
    /// ready, pods that back off only because nothing fitted are taken before their time.
    pub(crate) fn pop(&mut self, now: u64) -> Option<Arc<PodInfo>> {
        self.ripen(now);
        let uid = match self.active.first_key_value() {
            Some((_, uid)) => uid.clone(),
            None => self.backoff.values().find(|uid| !self.pods[*uid].errored)?.clone(),
        };
        self.move_to(&uid, Place::Taken);
        let waiting = self.pods.get_mut(&uid)?;
        waiting.attempts += 1;
        Some(waiting.pod.clone())
    }

    /// Nothing fits: the pod waits until something that matters to `plugins` changes.
    pub(crate) fn unschedulable(&mut self, uid: &str, plugins: Names, now: u64) {
        let times = self.times;
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        waiting.refused_by = plugins;
        waiting.errored = false;
        waiting.not_before = now + times.after(waiting.attempts);
        self.move_to(uid, Place::Unschedulable { since: now });
    }

    /// Something went wrong: the pod is tried again after a back-off.
    pub(crate) fn failed(&mut self, uid: &str, now: u64) {
        let times = self.times;
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        waiting.errored = true;
        waiting.not_before = now + times.after(waiting.attempts);
        self.wake(uid, now);
    }

    /// What a pod waits for will not come as it was thought: it is looked at again.
    pub(crate) fn retry(&mut self, uid: &str, now: u64) {
        if self.sleeps(uid) {
            self.wake(uid, now);
        }
    }

    /// What a pod waits for went wrong: it is looked at again after a back-off.
    pub(crate) fn not_helped(&mut self, uid: &str, now: u64) {
        if self.sleeps(uid) {
            self.failed(uid, now);
        }
    }

    fn sleeps(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|one| matches!(one.place, Place::Unschedulable { .. }))
    }

    /// Wakes the pods that `event` may help.
    pub(crate) fn changed(&mut self, event: &Event, cluster: &Cluster, profiles: &[Profile], now: u64) {
        let helped = |group: &Group, representative: &PodInfo| {
            let profile = profiles.iter().find(|one| one.scheduler_name == group.template.scheduler);
            let template = &group.template;
            // Whoever waited for a pod to leave its promised node may now look elsewhere.
            let made_room = matches!(event, Event::PodGone(gone) if gone.preempted
                && gone.priority < template.priority && !template.never_preempts);
            group.refused_by.is_empty()
                || made_room
                || profile.is_none_or(|profile| {
                    let refusing = group.refused_by.iter().filter_map(|name| profile.plugin(name));
                    refusing.into_iter().any(|plugin| plugin.may_help(event, representative, cluster))
                })
        };
        let mut woken: Vec<Arc<str>> = Vec::new();
        for (group, orders) in &self.groups {
            let Some(first) = orders.first().and_then(|order| self.member(*order)) else { continue };
            if helped(group, &first) {
                woken.extend(orders.iter().filter_map(|order| Some(self.member(*order)?.uid.clone())));
            }
        }
        woken.iter().for_each(|uid| self.wake(uid, now));
    }

    fn member(&self, order: u64) -> Option<Arc<PodInfo>> {
        let uid = self.by_order.get(&order)?;
        Some(self.pods.get(uid)?.pod.clone())
    }

    /// Wakes pods that nothing woke for a long time; says when to call again.
    pub(crate) fn tick(&mut self, now: u64) -> Option<u64> {
        while let Some(((since, _), uid)) = self.stale.first_key_value()
            && now.saturating_sub(*since) >= STALE_MS
        {
            let uid = uid.clone();
            self.wake(&uid, now);
        }
        self.ripen(now);
        let stale = self.stale.first_key_value().map(|((since, _), _)| since + STALE_MS);
        stale.into_iter().chain(self.backoff.first_key_value().map(|((until, _), _)| *until)).min()
    }

    fn wake(&mut self, uid: &str, now: u64) {
        let Some(waiting) = self.pods.get(uid) else { return };
        let (until, order) = (waiting.not_before, waiting.order);
        if until <= now {
            self.activate(uid);
        } else {
            self.move_to(uid, Place::Backoff(until, order));
        }
    }

    fn activate(&mut self, uid: &str) {
        if let Some(waiting) = self.pods.get(uid) {
            let rank = (Reverse(waiting.pod.priority), waiting.order);
            self.move_to(uid, Place::Active(rank));
        }
    }

    fn ripen(&mut self, now: u64) {
        while let Some(((until, _), uid)) = self.backoff.first_key_value()
            && *until <= now
        {
            let uid = uid.clone();
            self.activate(&uid);
        }
    }

    /// The one way from place to place.
    fn move_to(&mut self, uid: &str, to: Place) {
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        let (order, uid) = (waiting.order, waiting.pod.uid.clone());
        match std::mem::replace(&mut waiting.place, to) {
            Place::Active(rank) => drop(self.active.remove(&rank)),
            Place::Backoff(until, order) => drop(self.backoff.remove(&(until, order))),
            Place::Unschedulable { since } => {
                let group = waiting.group();
                self.stale.remove(&(since, order));
                self.by_order.remove(&order);
                if let Some(there) = self.groups.get_mut(&group) {
                    there.remove(&order);
                    if there.is_empty() {
                        self.groups.remove(&group);
                    }
                }
            }
            Place::Gated(_) | Place::Taken => {}
        }
        match &waiting.place {
            Place::Active(rank) => drop(self.active.insert(*rank, uid)),
            Place::Backoff(until, order) => drop(self.backoff.insert((*until, *order), uid)),
            Place::Unschedulable { since } => {
                self.groups.entry(waiting.group()).or_default().insert(order);
                self.stale.insert((*since, order), uid.clone());
                self.by_order.insert(order, uid);
            }
            Place::Gated(_) | Place::Taken => {}
        }
    }

    /// Whether nothing can be decided on now.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.backoff.values().all(|uid| self.pods[uid].errored)
    }

    /// Pods that wait for something to change.
    #[cfg(test)]
    pub(crate) fn asleep(&self) -> Vec<Arc<PodInfo>> {
        self.stale.values().map(|uid| self.pods[uid].pod.clone()).collect()
    }

    /// The pods waiting, for comparison with a fresh list.
    pub(crate) fn uids(&self) -> Vec<Arc<str>> {
        self.pods.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::Name;
    use crate::node::NodeFacts;
    use crate::pod::Templates;
    use crate::testing::{node, pod_of};
    use serde_json::{Value, json};

    /// A queue with what it asks.
    struct Bench {
        queue: Queue,
        cluster: Cluster,
        profiles: Vec<Profile>,
        templates: Templates,
    }

    impl Bench {
        fn new() -> Self {
            let mut cluster = Cluster::default();
            cluster.set_node("n1", node(json!({})));
            let profiles = vec![Profile::default_for("default-scheduler")];
            Self { queue: Queue::default(), cluster, profiles, templates: Templates::default() }
        }

        fn pod(&mut self, name: &str, over: Value) -> Arc<PodInfo> {
            let mut object = json!({"metadata": {"name": name}});
            object["spec"] = over;
            Arc::new(pod_of(object, &mut self.templates))
        }

        fn offer(&mut self, name: &str, priority: i32, now: u64) {
            let pod = self.pod(name, json!({"priority": priority}));
            self.queue.offer(pod, None, now);
        }

        fn pop(&mut self, now: u64) -> Option<String> {
            self.queue.pop(now).map(|pod| pod.name.to_string())
        }

        fn fail(&mut self, name: &str, plugin: Name, now: u64) {
            self.queue.unschedulable(name, Names::from_iter([plugin]), now);
        }

        fn changed(&mut self, event: &Event, now: u64) {
            self.queue.changed(event, &self.cluster, &self.profiles, now);
        }

        fn gone(&mut self) -> Event {
            let mut other = PodInfo::clone(&self.pod("gone", json!({})));
            other.node = Some("n1".into());
            Event::PodGone(Arc::new(other))
        }

        fn relabelled(&self) -> Event {
            let old = NodeFacts::default();
            Event::NodeChanged(
                self.cluster.named("n1").unwrap().id,
                Box::new(NodeFacts {
                    labels: [("a".to_owned(), "b".to_owned())].into(),
                    ..self.cluster.named("n1").unwrap().facts.clone().unwrap_or(old)
                }),
            )
        }
    }

    #[test]
    fn higher_priority_goes_first_then_arrival() {
        let mut bench = Bench::new();
        bench.offer("a", 0, 0);
        bench.offer("b", 0, 0);
        bench.offer("c", 9, 0);
        let order: Vec<_> = std::iter::from_fn(|| bench.pop(0)).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    #[test]
    fn an_unschedulable_pod_waits_for_a_change_that_matters() {
        let mut bench = Bench::new();
        bench.offer("a", 0, 0);
        bench.pop(0);
        bench.fail("a", Name::NodeResourcesFit, 0);
        let relabelled = bench.relabelled();
        bench.changed(&relabelled, 10);
        assert_eq!(bench.pop(10), None);
        let gone = bench.gone();
        bench.changed(&gone, 20);
        assert_eq!(bench.pop(20).as_deref(), Some("a"), "nothing else is ready, so it need not back off");
    }

    #[test]
    fn a_pod_backing_off_lets_fresh_ones_pass() {
        let mut bench = Bench::new();
        bench.offer("a", 9, 0);
        bench.pop(0);
        bench.fail("a", Name::NodeResourcesFit, 0);
        let gone = bench.gone();
        bench.changed(&gone, 20);
        bench.offer("b", 0, 20);
        assert_eq!(bench.pop(20).as_deref(), Some("b"));
    }

    #[test]
    fn an_error_is_retried_after_growing_pauses() {
        let mut bench = Bench::new();
        bench.offer("a", 0, 0);
        let mut now = 0;
        for pause in [1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            assert!(bench.pop(now).is_some());
            bench.queue.failed("a", now);
            assert_eq!(bench.queue.tick(now), Some(now + pause));
            assert_eq!(bench.pop(now + pause - 1), None);
            now += pause;
        }
    }

    #[test]
    fn a_stale_pod_is_tried_again_and_a_gated_one_never() {
        let mut bench = Bench::new();
        bench.offer("a", 0, 0);
        bench.pop(0);
        bench.fail("a", Name::NodeAffinity, 0);
        assert_eq!(bench.queue.tick(0), Some(STALE_MS));
        bench.queue.tick(STALE_MS);
        assert_eq!(bench.pop(STALE_MS).as_deref(), Some("a"));
        let gated = bench.pod("g", json!({}));
        bench.queue.offer(gated.clone(), Some("waiting".to_owned()), 0);
        assert_eq!(bench.pop(0), None);
        bench.queue.offer(gated, None, 0);
        assert_eq!(bench.pop(0).as_deref(), Some("g"));
    }

    #[test]
    fn a_changed_pod_is_looked_at_again_its_own_status_is_not_a_change() {
        let mut bench = Bench::new();
        bench.offer("a", 0, 0);
        bench.pop(0);
        bench.fail("a", Name::TaintToleration, 0);
        let mut told = PodInfo::clone(&bench.pod("a", json!({"priority": 0})));
        told.reported = Some(Box::new(("Unschedulable".into(), "m".into())));
        bench.queue.offer(Arc::new(told), None, 1);
        assert_eq!(bench.pop(1), None);
        let tolerant = bench.pod("a", json!({"tolerations": [{"operator": "Exists"}]}));
        bench.queue.offer(tolerant, None, 2);
        assert_eq!(bench.pop(2).as_deref(), Some("a"));
    }

    /// No pod waits longer than the flush when something that would help has happened, and none is lost: whatever the
    /// order of arrivals, failures, events, changes and the clock, every pod comes back in time.
    #[test]
    fn no_pod_is_forgotten_whatever_happens_in_whatever_order() {
        let mut dice: u64 = 1;
        let mut throw = |bound: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % bound
        };
        let plugins = [Name::NodeResourcesFit, Name::NodeAffinity, Name::TaintToleration, Name::NodePorts];
        for _ in 0..200 {
            let mut bench = Bench::new();
            let (mut now, mut taken): (u64, Vec<String>) = (0, Vec::new());
            // When each pod that waits became ready or stopped being looked at.
            let mut since: HashMap<String, u64> = HashMap::new();
            for step in 0..300 {
                match throw(6) {
                    0 => {
                        let name = format!("p{step}");
                        bench.offer(&name, i32::try_from(throw(3)).unwrap(), now);
                        since.insert(name, now);
                    }
                    1 => {
                        if let Some(name) = bench.pop(now) {
                            since.remove(&name).expect("a pod that is taken had waited");
                            taken.push(name);
                        }
                    }
                    2 if !taken.is_empty() => {
                        let at = usize::try_from(throw(taken.len() as u64)).unwrap();
                        let name = taken.swap_remove(at);
                        since.insert(name.clone(), now);
                        if throw(4) == 0 {
                            bench.queue.failed(&name, now);
                        } else {
                            let plugin = plugins[usize::try_from(throw(4)).unwrap()];
                            bench.fail(&name, plugin, now);
                        }
                    }
                    3 => {
                        let event = if throw(2) == 0 { bench.gone() } else { bench.relabelled() };
                        bench.changed(&event, now);
                    }
                    4 => {
                        now += throw(STALE_MS / 4);
                        bench.queue.tick(now);
                    }
                    _ => {
                        let late = since.values().filter(|since| now - **since > STALE_MS + 10_000).count();
                        if late > 0 {
                            let mut found = Vec::new();
                            while let Some(name) = bench.pop(now) {
                                since.remove(&name);
                                found.push(name);
                            }
                            let late: Vec<_> =
                                since.iter().filter(|(_, since)| now - **since > STALE_MS + 10_000).collect();
                            assert!(late.is_empty(), "still waiting at {now}: {late:?}");
                            taken.extend(found);
                        }
                    }
                }
            }
            now += STALE_MS + 10_000;
            bench.queue.tick(now);
            while let Some(name) = bench.pop(now) {
                since.remove(&name);
            }
            assert!(since.is_empty(), "lost: {since:?}");
        }
    }
}
