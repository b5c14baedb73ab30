//! The status as ordered patches: one in flight, the newest next.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{PodStatus, ResourceStatus};
use podwire_wire::ids::ContainerName;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    Worker,
    decide::WAITING_FOR_DEVICES,
    parts::{Object, Standing},
};
use crate::{
    api::ApiError,
    clock,
    ops::Done,
    resize, spec,
    status::{self, Facts},
};

/// A status that only says "being created" may wait this long for a better one.
const SOON: Duration = Duration::from_millis(200);
/// What another client has written over the status may be seen for this long, as upstream has it.
const DRIFT: Duration = Duration::from_secs(10);

/// Fields that go when a status does not have them any more.
const OWNED: [&str; 6] = [
    "message",
    "reason",
    "podIP",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

impl Worker {
    /// Computes the status and sends it if it differs from what the API has.
    pub(super) fn publish(&mut self) {
        if self.is_gone() || self.told_before() {
            return;
        }
        let status = self.current_status();
        self.node.pod_status(&self.reference.uid, &self.pod, &status);
        let drifted = self.publication.is_drifted();
        if self.publication.last.as_ref() == Some(&status) && !drifted {
            self.publication.due = None;
            return;
        }
        if self.publication.in_flight {
            return;
        }
        let Some(uid) = self.api_uid() else { return };
        let now = Instant::now();
        let wait = if self.publication.failures > 0 {
            Duration::from_millis(200 << self.publication.failures.min(6))
        } else if self.wants_gone() && self.seen.observed.any_running() {
            // The status that says how the containers ended follows.
            SOON
        } else if is_creating(&status) && !self.wants_gone() {
            SOON
        } else {
            Duration::ZERO
        };
        let at = *self.publication.due.get_or_insert(now + wait);
        if at.min(now + wait) > now {
            return;
        }
        self.publication.due = None;
        self.publication.in_flight = true;
        self.publication.drift_at = None;
        let published = self.publication.last.as_ref().filter(|_| !drifted);
        let body = patch(&uid, published.or(self.pod.status.as_ref()), &status);
        let node = self.node.clone();
        let reference = self.reference.clone();
        self.ops.push(Box::pin(async move {
            let result = node.api.patch_pod_status(&reference, &body).await;
            Done::Published { status: Box::new(status), result }
        }));
    }

    /// Notes when to write the status again if the API shows another one than was written.
    pub(super) fn watch_drift(&mut self) {
        let differs = match (&self.publication.last, &self.pod.status) {
            (Some(own), Some(shown)) if !spec::is_static(&self.pod) => differs(own, shown),
            _ => false,
        };
        self.publication.drift_at =
            differs.then(|| self.publication.drift_at.unwrap_or_else(|| Instant::now() + DRIFT));
    }

    /// The health of what the pod's containers have of device plugins and of drivers.
    fn device_health(&self) -> BTreeMap<ContainerName, Vec<ResourceStatus>> {
        let mut all = self.node.devices.health(&self.reference.uid);
        for (container, more) in self.node.claims.health(&self.pod) {
            all.entry(container).or_default().extend(more);
        }
        all
    }

    fn current_status(&self) -> PodStatus {
        status::compute(&Facts {
            pod: &self.pod,
            observed: &self.seen.observed,
            waiting: &self.notes.waiting,
            ready: &self.notes.ready,
            started: &self.going.started,
            backoff: &self.going.backoff,
            last: self.publication.last.as_ref(),
            runtime: self.node.runtime_name(),
            host_ips: &self.node.config.node_ips,
            stopping: self.is_stopping(),
            verdict: self.standing.verdict(),
            resizing: &self.resizing,
            held_up: match &self.standing {
                Standing::Waiting(wait) => Some((WAITING_FOR_DEVICES, wait.message.as_str())),
                _ => None,
            },
            devices: &self.device_health(),
            claimed: self.node.claims.holds(&self.reference.uid),
            start_time: self.start_time,
            now: clock::now_seconds(),
        })
    }

    /// The uid under which the API has the pod; a static pod has that of its mirror, once there is one.
    fn api_uid(&self) -> Option<String> {
        if spec::is_static(&self.pod) {
            return self.node.mirrors.of(&self.pod);
        }
        Some(self.reference.uid.to_string())
    }

    /// Whether an earlier run said how the pod ended, and nothing is left that could say more.
    fn told_before(&self) -> bool {
        spec::is_terminal_phase(&self.pod) && self.seen.observed.is_empty() && self.publication.last.is_none()
    }

    /// Whether the API holds the status as it is now.
    pub(super) fn is_published(&self) -> bool {
        let told = self.is_gone() || self.told_before();
        !self.publication.in_flight
            && (told || self.publication.last.as_ref() == Some(&self.current_status()))
    }

    pub(super) fn was_published(&mut self, status: PodStatus, result: Result<(), ApiError>) {
        self.publication.in_flight = false;
        match result {
            Ok(()) => {
                self.publication.failures = 0;
                self.publication.last = Some(status);
            }
            Err(error) if error.is_gone() && spec::is_static(&self.pod) => {
                // Only its shadow is gone; the next one is told anew.
                self.publication.last = Some(status);
            }
            Err(error) if error.is_gone() => {
                tracing::debug!(pod = %self.reference, "the pod's object is gone");
                self.object = Object::Gone;
                self.shorten_grace(1);
            }
            Err(error) if error.is_refused() => {
                tracing::error!(pod = %self.reference, error = %error, "the API server refuses the pod's status");
                // The same status would be refused again; the next different one is tried.
                self.publication.last = Some(status);
            }
            Err(error) => {
                tracing::warn!(pod = %self.reference, error = %error, "status not published; will retry");
                self.publication.failures += 1;
            }
        }
    }
}

/// Whether `shown` lacks something of `own`; what others have added does not count.
fn differs(own: &PodStatus, shown: &PodStatus) -> bool {
    let (mut own, mut shown) = (object(own), object(shown));
    let conditions = |status: &mut Map<String, Value>| match status.remove("conditions") {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    let (mine, all) = (conditions(&mut own), conditions(&mut shown));
    let kept = |condition: &Value| {
        let same =
            |other: &&Value| ["type", "status", "reason", "message"].iter().all(|k| other[k] == condition[k]);
        all.iter().any(|other| same(&other))
    };
    // Fields that only a kubelet writes must be absent where it wrote none.
    let added = OWNED.iter().any(|key| shown.contains_key(*key) && !own.contains_key(*key));
    added || !mine.iter().all(kept) || own.iter().any(|(key, value)| shown.get(key) != Some(value))
}

fn is_creating(status: &PodStatus) -> bool {
    if status.phase.as_deref() != Some("Pending") {
        return false;
    }
    let all =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    all.into_iter().flatten().flatten().all(|s| {
        let waiting = s.state.as_ref().and_then(|s| s.waiting.as_ref());
        let reason = waiting.and_then(|w| w.reason.as_deref());
        matches!(reason, Some("ContainerCreating" | "PodInitializing"))
    })
}

/// The strategic merge patch that turns `old` into `new` without touching what others own.
fn patch(uid: &str, old: Option<&PodStatus>, new: &PodStatus) -> Vec<u8> {
    let mut body = object(new);
    if let Some(old) = old {
        let before = object(old);
        for key in OWNED {
            if before.contains_key(key) && !body.contains_key(key) {
                body.insert(key.to_owned(), Value::Null);
            }
        }
        let addresses = |s: &PodStatus| -> Vec<String> {
            s.pod_ips.as_deref().unwrap_or_default().iter().map(|ip| ip.ip.clone()).collect()
        };
        let now = addresses(new);
        let stale: Vec<Value> = addresses(old)
            .into_iter()
            .filter(|ip| !now.contains(ip))
            .map(|ip| json!({"$patch": "delete", "ip": ip}))
            .collect();
        if !stale.is_empty() {
            let list = body.entry("podIPs").or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.extend(stale);
            }
        }
    }
    // Conditions without a reason must lose the one they had.
    if let Some(Value::Array(conditions)) = body.get_mut("conditions") {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            for key in ["reason", "message", "lastProbeTime"] {
                condition.entry(key).or_insert(Value::Null);
            }
        }
    }
    // Those that come and go must be taken away.
    let held = |status: &PodStatus, name: &str| status::find(status, name).is_some();
    let over = [resize::PENDING, resize::IN_PROGRESS]
        .into_iter()
        .filter(|name| old.is_some_and(|old| held(old, name)) && !held(new, name))
        .map(|name| json!({"$patch": "delete", "type": name}));
    if let Some(Value::Array(conditions)) = body.get_mut("conditions") {
        conditions.extend(over);
    }
    serde_json::to_vec(&json!({"metadata": {"uid": uid}, "status": body})).expect("a JSON value serializes")
}

fn object(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_others_add_is_no_drift_and_what_they_change_is() {
        let own = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let mut shown = own.clone();
        shown["conditions"].as_array_mut().unwrap().push(json!({"type": "Mine", "status": "True"}));
        shown["nominatedNodeName"] = json!("n2");
        shown["conditions"][0]["lastTransitionTime"] = json!("2026-02-02T00:00:00Z");
        assert!(!differs(&status(own.clone()), &status(shown.clone())));
        for (path, value) in [("/phase", json!("Pending")), ("/conditions/0/status", json!("False"))] {
            let mut changed = shown.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(differs(&status(own.clone()), &status(changed)), "{path}");
        }
        shown["message"] = json!("not mine");
        assert!(differs(&status(own), &status(shown)), "a message where there was none is one");
    }
}
