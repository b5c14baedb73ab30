//! What is known of the node's pods outside their workers, and who holds its resources: read and changed under one lock.

use std::{
    collections::BTreeMap,
    sync::{Arc, LockResult, Mutex, MutexGuard},
};

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use podwire_wire::ids::PodUid;

use crate::admission::{self, Refused, Unfit, View};

/// What is known of one pod outside its worker.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The pod as last heard of.
    pub(crate) pod: Arc<Pod>,
    /// The status computed last.
    pub(crate) status: Option<PodStatus>,
    /// Whether it holds resources of the node.
    pub(crate) admitted: bool,
    /// Whether the node has told it to end.
    pub(crate) evicted: bool,
    /// Whether nothing of it lies on the node any more.
    pub(crate) cleared: bool,
    /// Whether it waits for resources that others have.
    pub(crate) deferred: bool,
}

impl Known {
    fn new(pod: &Arc<Pod>) -> Known {
        Known {
            pod: pod.clone(),
            status: None,
            admitted: false,
            evicted: false,
            cleared: false,
            deferred: false,
        }
    }
}

/// The pods by uid.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    known: Mutex<BTreeMap<PodUid, Known>>,
}

impl Pods {
    /// All of them.
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, BTreeMap<PodUid, Known>>> {
        self.known.lock()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PodUid, Known>> {
        self.known.lock().expect("no holder panics")
    }

    /// Takes the pod if the node, which is like `view` apart from its pods, has room for it.
    pub(crate) fn admit(&self, uid: &PodUid, pod: &Arc<Pod>, view: View) -> Result<(), Refused> {
        let mut all = self.all();
        admission::admit(pod, &beside(uid, &all, view))?;
        let known = all.entry(uid.clone()).or_insert_with(|| Known::new(pod));
        known.pod = pod.clone();
        known.admitted = true;
        Ok(())
    }

    /// Gives a pod that runs here the resources it asks for, if there is room beside the others.
    pub(crate) fn resize(&self, uid: &PodUid, pod: &Arc<Pod>, view: View) -> Result<(), Unfit> {
        let mut all = self.all();
        let answer = admission::resize(pod, &beside(uid, &all, view));
        if let Some(known) = all.get_mut(uid) {
            known.deferred = matches!(answer, Err(Unfit::Now(_)));
            if answer.is_ok() {
                known.pod = pod.clone();
            }
        }
        answer
    }

    /// Those that wait for resources of others, the most important first.
    pub(crate) fn deferred(&self) -> Vec<PodUid> {
        let all = self.all();
        let mut waiting: Vec<_> = all.iter().filter(|(_, known)| known.deferred).collect();
        let priority =
            |known: &Known| known.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
        waiting.sort_by_key(|(_, known)| std::cmp::Reverse(priority(known)));
        waiting.into_iter().map(|(uid, _)| uid.clone()).collect()
    }

    /// The pod has run here before: it holds its resources already.
    pub(crate) fn adopt(&self, uid: &PodUid, pod: &Arc<Pod>) {
        self.all().entry(uid.clone()).or_insert_with(|| Known::new(pod)).admitted = true;
    }

    /// The pod's status was computed; says whether it is another one. That alone gives it no resources.
    pub(crate) fn set_status(&self, uid: &PodUid, pod: &Arc<Pod>, status: &PodStatus) -> bool {
        let mut all = self.all();
        let known = all.entry(uid.clone()).or_insert_with(|| Known::new(pod));
        known.pod = pod.clone();
        let changed = known.status.as_ref() != Some(status);
        if changed {
            known.status = Some(status.clone());
        }
        changed
    }

    /// Changes what is known of a pod, if it is known.
    pub(crate) fn change(&self, uid: &PodUid, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.all().get_mut(uid) {
            change(known);
        }
    }

    /// Forgets a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.all().remove(uid);
    }
}

/// The node as `uid` meets it: with everybody else who holds resources.
fn beside(uid: &PodUid, all: &BTreeMap<PodUid, Known>, view: View) -> View {
    let active = all.iter().filter(|(other, known)| *other != uid && known.admitted);
    View { active: active.map(|(_, known)| known.pod.clone()).collect(), ..view }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str) -> Arc<Pod> {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}},
            "ports": [{"containerPort": 80, "hostPort": 80}]}]);
        let object = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn view() -> View {
        View {
            allocatable: vec![("cpu".into(), 2000), ("memory".into(), 1 << 30)],
            max_pods: 100,
            ..View::default()
        }
    }

    #[test]
    fn of_many_pods_at_once_one_gets_the_port_and_the_last_cpu() {
        for _ in 0..50 {
            let pods = Pods::default();
            let gate = std::sync::Barrier::new(8);
            let taken: usize = std::thread::scope(|scope| {
                let ask = |n: usize| {
                    let (pods, gate) = (&pods, &gate);
                    scope.spawn(move || {
                        gate.wait();
                        let uid = format!("p{n}");
                        usize::from(pods.admit(&uid.as_str().into(), &pod(&uid, "2"), view()).is_ok())
                    })
                };
                let asking: Vec<_> = (0..8).map(ask).collect();
                asking.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(taken, 1);
        }
    }

    #[test]
    fn a_pod_that_was_turned_away_holds_nothing() {
        let pods = Pods::default();
        let refused = pods.admit(&"big".into(), &pod("big", "3"), view()).unwrap_err();
        assert_eq!(refused.reason, "OutOfcpu");
        assert!(pods.set_status(&"big".into(), &pod("big", "3"), &PodStatus::default()));
        pods.admit(&"small".into(), &pod("small", "2"), view()).unwrap();
        pods.adopt(&"older".into(), &pod("older", "1"));
        let refused = pods.admit(&"late".into(), &pod("late", "1"), view()).unwrap_err();
        assert!(refused.message.contains("used: 3000"), "{refused:?}");
        pods.change(&"older".into(), |known| known.admitted = false);
        pods.forget(&"small".into());
        pods.admit(&"late".into(), &pod("late", "2"), view()).unwrap();
    }
    #[test]
    fn who_waits_for_resources_gets_them_when_others_have_gone() {
        let pods = Pods::default();
        let bare = |cpu: &str| -> Arc<Pod> {
            let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
            let object = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
            Arc::new(serde_json::from_value(object).unwrap())
        };
        pods.admit(&"a".into(), &bare("1"), view()).unwrap();
        pods.admit(&"b".into(), &bare("1"), view()).unwrap();
        assert!(matches!(pods.resize(&"a".into(), &bare("1500m"), view()), Err(Unfit::Now(_))));
        assert_eq!(pods.deferred(), [PodUid::from("a")]);
        pods.change(&"b".into(), |known| known.admitted = false);
        pods.resize(&"a".into(), &bare("1500m"), view()).unwrap();
        assert!(pods.deferred().is_empty());
        let refused = pods.admit(&"c".into(), &bare("501m"), view()).unwrap_err();
        assert!(refused.message.contains("used: 1500"), "what was given is held: {refused:?}");
    }
}
