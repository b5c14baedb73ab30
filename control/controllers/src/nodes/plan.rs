//! Decides what silent nodes, tainted nodes and forgotten pods deserve. Pure.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Taint;
use podwire_api::toleration::Toleration;
use serde_json::{Value, json};

use super::view::{NodeView, PodView};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Conditions that keep new pods away while they are true, with the taint that says so.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// How long things are waited for, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Graces {
    /// Silence of a node.
    pub(crate) silence: u64,
    /// Silence of a node that never reported.
    pub(crate) startup: u64,
    /// Absence of a node that pods are bound to.
    pub(crate) quarantine: u64,
    /// Finished pods that may stay.
    pub(crate) terminated_pods: usize,
}

/// Why a pod is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doom {
    /// It is being deleted and never got a node.
    Unscheduled,
    /// Its node does not exist.
    Orphan,
    /// It does not tolerate its node's taints any longer.
    Tainted,
    /// It is finished, and there are too many of those.
    Surplus,
}

/// When the node counts as silent; `None` if that was said already.
pub(crate) fn silence_deadline(node: &NodeView, graces: &Graces) -> Option<u64> {
    match node.ready() {
        Some("Unknown") => None,
        Some(_) => Some(node.heard + graces.silence),
        None => Some(node.since.max(node.heard) + graces.startup),
    }
}

/// The conditions of a node that fell silent at some time before `now`.
pub(crate) fn silent_conditions(node: &NodeView, now: &str) -> Value {
    let condition = |kind: &str| {
        let (reason, message) = if node.conditions.contains_key(kind) {
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        } else {
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        };
        json!({"type": kind, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": now})
    };
    ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].into_iter().map(condition).collect()
}

/// Whether the node's readiness asks for a taint that drives pods out.
pub(crate) fn drives_out(node: &NodeView) -> bool {
    node.ready().is_some_and(|status| status != "True")
}

/// Whether the node has such a taint.
pub(crate) fn is_driving_out(node: &NodeView) -> bool {
    node.taints.iter().any(|taint| taint.effect == "NoExecute" && ours(taint))
}

/// The taints the node should have, if they differ from those it has. Taints of others are kept; `drive` says whether
/// one that drives pods out is allowed.
pub(crate) fn wanted_taints(node: &NodeView, drive: bool, now: &str) -> Option<Vec<Taint>> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    match node.ready() {
        Some("True") => {}
        Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        // A node that never reported keeps new pods away, but has none to drive out.
        None => wanted.push((NOT_READY, "NoSchedule")),
        Some(_) => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
    }
    wanted.retain(|(_, effect)| drive || *effect != "NoExecute");
    for (condition, key) in PRESSURES {
        if node.conditions.get(condition).is_some_and(|status| status == "True") {
            wanted.push((key, "NoSchedule"));
        }
    }
    if node.unschedulable {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let has = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let mut taints: Vec<Taint> =
        node.taints.iter().filter(|taint| !ours(taint) || has(taint)).cloned().collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                value: None,
                time_added: now.parse().ok().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time),
            });
        }
    }
    (taints != node.taints).then_some(taints)
}

fn ours(taint: &Taint) -> bool {
    let by_condition = [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str())
        || PRESSURES.iter().any(|(_, key)| *key == taint.key);
    match taint.effect.as_str() {
        "NoSchedule" => by_condition,
        "NoExecute" => taint.key == NOT_READY || taint.key == UNREACHABLE,
        _ => false,
    }
}

/// When the pod must leave a node with these taints, in Unix milliseconds; `None` means never.
pub(crate) fn eviction_time(pod: &PodView, taints: Vec<&Taint>, now: u64) -> Option<u64> {
    let mut earliest = None;
    for taint in taints {
        let matching: Vec<_> =
            pod.tolerations.iter().filter(|one| Toleration::from(*one).tolerates(taint)).collect();
        if matching.is_empty() {
            return Some(0);
        }
        let added = taint
            .time_added
            .as_ref()
            .and_then(|time| u64::try_from(time.0.as_millisecond()).ok())
            .unwrap_or(now);
        let patience = matching.iter().filter_map(|one| one.toleration_seconds).min();
        if let Some(seconds) = patience {
            let due = added.saturating_add(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000));
            earliest = Some(earliest.map_or(due, |old: u64| old.min(due)));
        }
    }
    earliest
}

/// Finished pods beyond the threshold, oldest first.
pub(crate) fn surplus(pods: &HashMap<String, PodView>, threshold: usize) -> Vec<String> {
    let mut finished: Vec<_> = pods.iter().filter(|(_, pod)| pod.terminal && !pod.deleting).collect();
    let excess = finished.len().saturating_sub(threshold);
    finished.sort_by_key(|(uid, pod)| (pod.created, (*uid).clone()));
    finished.into_iter().take(excess).map(|(uid, _)| uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";
    const GRACES: Graces = Graces { silence: 50, startup: 60, quarantine: 40, terminated_pods: 1 };

    fn node(object: Value) -> NodeView {
        let mut view = NodeView::new(0);
        view.update(&serde_json::from_value(object).unwrap(), 10);
        view
    }

    fn ready(status: &str, taints: Value) -> NodeView {
        node(json!({
            "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": NOW}]},
        }))
    }

    fn shown(taints: Option<Vec<Taint>>) -> Vec<String> {
        taints.unwrap().iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
    }

    #[test]
    fn taints_follow_readiness_and_leave_others_alone() {
        let foreign = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        assert_eq!(wanted_taints(&ready("True", foreign.clone()), true, NOW), None);
        assert_eq!(
            shown(wanted_taints(&ready("False", foreign), true, NOW)),
            [
                "gpu:NoSchedule",
                "node.kubernetes.io/not-ready:NoSchedule",
                "node.kubernetes.io/not-ready:NoExecute"
            ]
        );
        let was_unready = json!([
            {"key": NOT_READY, "effect": "NoSchedule"},
            {"key": NOT_READY, "effect": "NoExecute"},
        ]);
        assert_eq!(
            shown(wanted_taints(&ready("True", was_unready.clone()), true, NOW)),
            Vec::<String>::new()
        );
        assert_eq!(
            shown(wanted_taints(&ready("Unknown", was_unready), true, NOW)),
            ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]
        );
    }

    #[test]
    fn without_leave_pods_are_kept_away_but_not_driven_out() {
        assert_eq!(
            shown(wanted_taints(&ready("False", json!([])), false, NOW)),
            ["node.kubernetes.io/not-ready:NoSchedule"]
        );
        let driving =
            ready("Unknown", json!([{"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": NOW}]));
        assert!(drives_out(&driving) && is_driving_out(&driving));
        assert_eq!(
            shown(wanted_taints(&driving, false, NOW)),
            ["node.kubernetes.io/unreachable:NoSchedule"],
            "they may stay after all"
        );
        assert!(!drives_out(&ready("True", json!([]))) && !drives_out(&node(json!({}))));
    }

    #[test]
    fn pressure_and_cordon_are_taints_too() {
        let view = node(json!({
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]},
        }));
        assert_eq!(
            shown(wanted_taints(&view, true, NOW)),
            ["node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]
        );
    }

    #[test]
    fn silence_is_counted_from_the_last_sign_of_life() {
        let mut view = ready("True", json!([]));
        assert_eq!(silence_deadline(&view, &GRACES), Some(60));
        view.renewed(NOW.parse().ok(), 30);
        assert_eq!(silence_deadline(&view, &GRACES), Some(80));
        view.renewed(NOW.parse().ok(), 70);
        assert_eq!(silence_deadline(&view, &GRACES), Some(80), "the same renewal again is no sign of life");
        assert_eq!(silence_deadline(&ready("Unknown", json!([])), &GRACES), None);
        assert_eq!(silence_deadline(&node(json!({})), &GRACES), Some(60), "a node that never spoke");
        assert_eq!(silent_conditions(&view, NOW)[0]["reason"], "NodeStatusUnknown");
        assert_eq!(silent_conditions(&view, NOW)[1]["reason"], "NodeStatusNeverUpdated");
    }

    #[test]
    fn eviction_waits_as_long_as_the_pod_tolerates() {
        let taint: Taint =
            serde_json::from_value(json!({"key": NOT_READY, "effect": "NoExecute", "timeAdded": NOW}))
                .unwrap();
        let pod = |tolerations: Value| PodView {
            tolerations: serde_json::from_value(tolerations).unwrap(),
            ..PodView::default()
        };
        let added = u64::try_from(NOW.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap();
        let due = |tolerations| eviction_time(&pod(tolerations), vec![&taint], 0);
        assert_eq!(due(json!([])), Some(0));
        assert_eq!(due(json!([{"operator": "Exists"}])), None);
        let patient = json!([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
        assert_eq!(due(patient), Some(added + 300_000));
        assert_eq!(eviction_time(&pod(json!([])), Vec::new(), 0), None);
    }

    #[test]
    fn the_oldest_finished_pods_go_first() {
        let pod = |created, terminal| PodView { created, terminal, ..PodView::default() };
        let pods = HashMap::from([
            ("young".to_owned(), pod(9, true)),
            ("old".to_owned(), pod(1, true)),
            ("middle".to_owned(), pod(5, true)),
            ("running".to_owned(), pod(0, false)),
        ]);
        assert_eq!(surplus(&pods, 1), ["old", "middle"]);
        assert_eq!(surplus(&pods, 3), Vec::<String>::new());
    }
}
