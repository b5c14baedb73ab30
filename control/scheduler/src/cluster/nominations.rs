//! Room that is being made for pods: who is promised which node. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pod::PodInfo;

/// The promises.
#[derive(Debug, Default)]
pub(crate) struct Nominations {
    by_pod: HashMap<Arc<str>, Arc<str>>,
    by_node: HashMap<Arc<str>, Vec<Arc<PodInfo>>>,
}

impl Nominations {
    /// Promises a node to a pod; says whether that is new. What is kept of the pod names that node.
    pub(crate) fn promise(&mut self, pod: &Arc<PodInfo>, node: &str) -> bool {
        let again = self.by_pod.get(&pod.uid).is_some_and(|known| **known == *node);
        self.remove(&pod.uid);
        let node: Arc<str> = node.into();
        self.by_pod.insert(pod.uid.clone(), node.clone());
        let kept = PodInfo { nominated: Some(node.clone()), ..PodInfo::clone(pod) };
        self.by_node.entry(node).or_default().push(Arc::new(kept));
        !again
    }

    /// Takes a promise back.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let node = self.by_pod.remove(uid)?;
        let there = self.by_node.get_mut(&node)?;
        let at = there.iter().position(|pod| *pod.uid == *uid)?;
        let pod = there.swap_remove(at);
        if there.is_empty() {
            self.by_node.remove(&node);
        }
        Some(pod)
    }

    /// Pods that are promised the node.
    pub(crate) fn on(&self, node: &str) -> Vec<Arc<str>> {
        self.by_node.get(node).into_iter().flatten().map(|pod| pod.uid.clone()).collect()
    }

    /// Pods to which `pod` must leave room on the node.
    pub(crate) fn before<'a>(
        &'a self,
        pod: &'a PodInfo,
        node: &str,
    ) -> impl Iterator<Item = &'a Arc<PodInfo>> + Clone {
        let there = if self.by_pod.is_empty() { None } else { self.by_node.get(node) };
        there
            .into_iter()
            .flatten()
            .filter(move |other| other.priority >= pod.priority && other.uid != pod.uid)
    }

    /// Pods that are promised a node although they are less important.
    pub(crate) fn lesser<'a>(
        &'a self,
        pod: &'a PodInfo,
        node: &str,
    ) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let there = self.by_node.get(node).into_iter().flatten();
        there.filter(move |other| other.priority < pod.priority && other.uid != pod.uid)
    }
}
