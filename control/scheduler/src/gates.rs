//! Pods that must not be looked at for want of a claim: by the claim, and when that is told. Pure.
//!
//! Most claims come a moment after their pods: nothing is said before [`PATIENCE_MS`] are over.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::cluster::workloads::Key;
use crate::plugins::dynamic_resources::claim_names;
use crate::pod::PodInfo;

/// How long a pod waits for a claim before that is said.
const PATIENCE_MS: u64 = 2_000;

/// Them.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    by_claim: HashMap<Key, HashSet<Arc<str>>>,
    untold: BTreeSet<(u64, Arc<str>)>,
}

impl Gates {
    /// A pod must not be looked at.
    pub(crate) fn closed(&mut self, pod: &PodInfo, reason: &str, now: u64) {
        for name in claim_names(pod) {
            let key = (pod.namespace.clone(), name.to_owned());
            self.by_claim.entry(key).or_default().insert(pod.uid.clone());
        }
        if pod.reported.as_deref().is_none_or(|told| told.1 != reason) {
            self.untold.insert((now + PATIENCE_MS, pod.uid.clone()));
        }
    }

    /// The pods that waited for a claim; those that still do are to be told of again.
    pub(crate) fn waiting_for(&mut self, key: &Key) -> HashSet<Arc<str>> {
        self.by_claim.remove(key).unwrap_or_default()
    }

    /// A pod is gone.
    pub(crate) fn forget(&mut self, pod: &PodInfo) {
        for name in claim_names(pod) {
            let key = (pod.namespace.clone(), name.to_owned());
            if let Some(waiting) = self.by_claim.get_mut(&key) {
                waiting.remove(&pod.uid);
                if waiting.is_empty() {
                    self.by_claim.remove(&key);
                }
            }
        }
    }

    /// When the next pod is to be told of.
    pub(crate) fn next(&self) -> Option<u64> {
        self.untold.first().map(|(at, _)| *at)
    }

    /// The pods that are to be told of now.
    pub(crate) fn ripe(&mut self, now: u64) -> Vec<Arc<str>> {
        let later = self.untold.split_off(&(now + 1, "".into()));
        std::mem::replace(&mut self.untold, later).into_iter().map(|(_, uid)| uid).collect()
    }
}
