//! Pods that wait for a node: ready now, backing off, or waiting for the cluster to change. Pure; time is
//! milliseconds given by the caller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::cache::Change;
use crate::filter::Plugin;
use crate::pod::PodInfo;

const FIRST_BACKOFF_MS: u64 = 1_000;
const LONGEST_BACKOFF_MS: u64 = 10_000;
/// A pod that nothing woke is tried again after this.
const STALE_MS: u64 = 300_000;

/// Higher priority first, then who waited longer.
type Rank = (Reverse<i32>, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active(Rank),
    Backoff(u64, u64),
    Unschedulable {
        since: u64,
    },
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
    rejected_by: BTreeSet<Plugin>,
}

/// All waiting pods by uid.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pods: HashMap<Arc<str>, Waiting>,
    active: BTreeMap<Rank, Arc<str>>,
    backoff: BTreeMap<(u64, u64), Arc<str>>,
    counter: u64,
}

impl Queue {
    /// Takes in a pod that needs a node, or news of one that already waits.
    pub(crate) fn offer(&mut self, pod: PodInfo, now: u64) {
        if pod.gated {
            self.remove(&pod.uid);
            return;
        }
        let uid = pod.uid.clone();
        if let Some(waiting) = self.pods.get_mut(&uid) {
            let changed = inputs_differ(&waiting.pod, &pod);
            waiting.pod = Arc::new(pod);
            if changed && matches!(waiting.place, Place::Unschedulable { .. }) {
                self.wake(&uid, now);
            }
            return;
        }
        self.counter += 1;
        let waiting = Waiting {
            pod: Arc::new(pod),
            place: Place::Taken,
            order: self.counter,
            attempts: 0,
            not_before: 0,
            errored: false,
            rejected_by: BTreeSet::new(),
        };
        self.pods.insert(uid.clone(), waiting);
        self.activate(&uid);
    }

    /// Forgets a pod; says whether it had waited.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        let Some(waiting) = self.pods.remove(uid) else { return false };
        self.leave(waiting.place);
        true
    }

    /// The next pod to decide on; it stays taken until it is bound, failed or removed. When nothing is
    /// ready, pods that back off only because nothing fitted are taken before their time.
    pub(crate) fn pop(&mut self, now: u64) -> Option<Arc<PodInfo>> {
        self.ripen(now);
        let uid = match self.active.pop_first() {
            Some((_, uid)) => uid,
            None => {
                let early = self.backoff.iter().find(|(_, uid)| !self.pods[*uid].errored)?;
                let (key, uid) = (*early.0, early.1.clone());
                self.backoff.remove(&key);
                uid
            }
        };
        let waiting = self.pods.get_mut(&uid)?;
        waiting.place = Place::Taken;
        waiting.attempts += 1;
        Some(waiting.pod.clone())
    }

    /// Nothing fits: the pod waits until something that matters to `plugins` changes.
    pub(crate) fn unschedulable(&mut self, uid: &str, plugins: BTreeSet<Plugin>, now: u64) {
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        waiting.rejected_by = plugins;
        waiting.errored = false;
        waiting.not_before = now + backoff_ms(waiting.attempts);
        let old = std::mem::replace(&mut waiting.place, Place::Unschedulable { since: now });
        self.leave(old);
    }

    /// Something went wrong: the pod is tried again after a back-off.
    pub(crate) fn failed(&mut self, uid: &str, now: u64) {
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        waiting.errored = true;
        waiting.not_before = now + backoff_ms(waiting.attempts);
        let uid = waiting.pod.uid.clone();
        self.wake(&uid, now);
    }

    /// Wakes the pods that `change` may help.
    pub(crate) fn changed(&mut self, change: Change, now: u64) {
        self.wake_where(now, |waiting, _| {
            waiting.rejected_by.is_empty()
                || waiting.rejected_by.iter().any(|plugin| plugin.cares_about(change))
        });
    }

    /// Wakes pods that nothing woke for a long time; says when to call again.
    pub(crate) fn tick(&mut self, now: u64) -> Option<u64> {
        self.wake_where(now, |_, since| now.saturating_sub(since) >= STALE_MS);
        self.ripen(now);
        let stale = self.pods.values().filter_map(|waiting| match waiting.place {
            Place::Unschedulable { since } => Some(since + STALE_MS),
            _ => None,
        });
        stale.chain(self.backoff.keys().map(|(until, _)| *until)).min()
    }

    fn wake_where(&mut self, now: u64, wanted: impl Fn(&Waiting, u64) -> bool) {
        let uids: Vec<_> = self
            .pods
            .iter()
            .filter(|(_, waiting)| match waiting.place {
                Place::Unschedulable { since } => wanted(waiting, since),
                _ => false,
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        uids.iter().for_each(|uid| self.wake(uid, now));
    }

    fn wake(&mut self, uid: &Arc<str>, now: u64) {
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        if waiting.not_before <= now {
            self.activate(uid);
            return;
        }
        let key = (waiting.not_before, waiting.order);
        let old = std::mem::replace(&mut waiting.place, Place::Backoff(key.0, key.1));
        self.leave(old);
        self.backoff.insert(key, uid.clone());
    }

    fn activate(&mut self, uid: &Arc<str>) {
        let Some(waiting) = self.pods.get_mut(uid) else { return };
        let rank = (Reverse(waiting.pod.priority), waiting.order);
        let old = std::mem::replace(&mut waiting.place, Place::Active(rank));
        self.leave(old);
        self.active.insert(rank, uid.clone());
    }

    fn ripen(&mut self, now: u64) {
        while let Some(((until, _), uid)) = self.backoff.first_key_value()
            && *until <= now
        {
            let uid = uid.clone();
            self.activate(&uid);
        }
    }

    fn leave(&mut self, place: Place) {
        match place {
            Place::Active(rank) => {
                self.active.remove(&rank);
            }
            Place::Backoff(until, order) => {
                self.backoff.remove(&(until, order));
            }
            Place::Unschedulable { .. } | Place::Taken => {}
        }
    }

    /// The pods waiting, for comparison with a fresh list.
    pub(crate) fn uids(&self) -> Vec<Arc<str>> {
        self.pods.keys().cloned().collect()
    }
}

/// Whether an update can change what fits.
fn inputs_differ(old: &PodInfo, new: &PodInfo) -> bool {
    old.labels != new.labels
        || old.requests != new.requests
        || old.tolerations != new.tolerations
        || old.required_nodes != new.required_nodes
        || old.nominated.is_some() && new.nominated.is_none()
}

fn backoff_ms(attempts: u32) -> u64 {
    let doubled = FIRST_BACKOFF_MS.checked_shl(attempts.saturating_sub(1)).unwrap_or(u64::MAX);
    doubled.clamp(FIRST_BACKOFF_MS, LONGEST_BACKOFF_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use serde_json::json;

    fn named(name: &str, priority: i32) -> PodInfo {
        pod(json!({"metadata": {"name": name}, "spec": {"priority": priority}}))
    }

    fn pop(queue: &mut Queue, now: u64) -> Option<String> {
        queue.pop(now).map(|pod| pod.name.clone())
    }

    #[test]
    fn higher_priority_goes_first_then_arrival() {
        let mut queue = Queue::default();
        queue.offer(named("a", 0), 0);
        queue.offer(named("b", 0), 0);
        queue.offer(named("c", 9), 0);
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue, 0)).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    #[test]
    fn an_unschedulable_pod_waits_for_a_change_that_matters() {
        let mut queue = Queue::default();
        queue.offer(named("a", 0), 0);
        pop(&mut queue, 0);
        queue.unschedulable("a", BTreeSet::from([Plugin::NodeResourcesFit]), 0);
        queue.changed(Change::NodeLabels, 10);
        assert_eq!(pop(&mut queue, 10), None);
        queue.changed(Change::PodGone, 20);
        assert_eq!(
            pop(&mut queue, 20).as_deref(),
            Some("a"),
            "nothing else is ready, so it need not back off"
        );
    }

    #[test]
    fn a_pod_backing_off_lets_fresh_ones_pass() {
        let mut queue = Queue::default();
        queue.offer(named("a", 9), 0);
        pop(&mut queue, 0);
        queue.unschedulable("a", BTreeSet::from([Plugin::NodeResourcesFit]), 0);
        queue.changed(Change::PodGone, 20);
        queue.offer(named("b", 0), 20);
        assert_eq!(pop(&mut queue, 20).as_deref(), Some("b"));
    }

    #[test]
    fn an_error_is_retried_after_growing_pauses() {
        let mut queue = Queue::default();
        queue.offer(named("a", 0), 0);
        let mut now = 0;
        for pause in [1_000, 2_000, 4_000, 8_000, 10_000, 10_000] {
            assert!(pop(&mut queue, now).is_some());
            queue.failed("a", now);
            assert_eq!(queue.tick(now), Some(now + pause));
            assert_eq!(pop(&mut queue, now + pause - 1), None);
            now += pause;
        }
    }

    #[test]
    fn a_stale_pod_is_tried_again_and_a_gated_one_never() {
        let mut queue = Queue::default();
        queue.offer(named("a", 0), 0);
        pop(&mut queue, 0);
        queue.unschedulable("a", BTreeSet::from([Plugin::NodeAffinity]), 0);
        assert_eq!(queue.tick(0), Some(STALE_MS));
        queue.tick(STALE_MS);
        assert_eq!(pop(&mut queue, STALE_MS).as_deref(), Some("a"));
        queue.offer(
            pod(json!({"metadata": {"name": "g"}, "spec": {"schedulingGates": [{"name": "wait"}]}})),
            0,
        );
        assert_eq!(pop(&mut queue, 0), None);
        queue.offer(named("g", 0), 0);
        assert_eq!(pop(&mut queue, 0).as_deref(), Some("g"));
    }

    #[test]
    fn a_changed_pod_is_looked_at_again_its_own_status_is_not_a_change() {
        let mut queue = Queue::default();
        queue.offer(named("a", 0), 0);
        pop(&mut queue, 0);
        queue.unschedulable("a", BTreeSet::from([Plugin::TaintToleration]), 0);
        queue.offer(PodInfo { reported: Some(("Unschedulable".into(), "m".into())), ..named("a", 0) }, 1);
        assert_eq!(pop(&mut queue, 1), None);
        let tolerant = json!({"metadata": {"name": "a"}, "spec": {"tolerations": [{"operator": "Exists"}]}});
        queue.offer(pod(tolerant), 2);
        assert_eq!(pop(&mut queue, 2).as_deref(), Some("a"));
    }
}
