//! Whether drivers have made ready what was allocated, for devices that are to be waited for. Pure.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, AllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};

/// How far the devices of a claim are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// They can be used, or nothing is to be waited for.
    Ready,
    /// A condition is still missing.
    Waiting,
    /// A driver gave up; this is why.
    Failed(String),
}

fn results(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let all = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    all.filter(|one| one.binding_conditions.as_ref().is_some_and(|all| !all.is_empty()))
}

/// Whether anything of an allocation is to be waited for.
pub(crate) fn is_waited_for(allocation: &AllocationResult) -> bool {
    results(allocation).next().is_some()
}

/// How far the devices of a claim are.
pub(crate) fn of(claim: &ResourceClaim) -> Readiness {
    let Some(status) = &claim.status else { return Readiness::Waiting };
    let Some(allocation) = &status.allocation else { return Readiness::Waiting };
    for result in results(allocation) {
        let told = |one: &&AllocatedDeviceStatus| {
            one.device == result.device && one.driver == result.driver && one.pool == result.pool
        };
        let Some(told) = status.devices.iter().flatten().find(told) else { return Readiness::Waiting };
        let find = |name: &String| told.conditions.iter().flatten().find(|one| one.type_ == *name);
        let is_true = |name: &String| find(name).filter(|one| one.status == "True");
        let failures = result.binding_failure_conditions.iter().flatten();
        if let Some(failed) = failures.filter_map(is_true).next() {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            return Readiness::Failed(format!(
                "device binding failed: claim={name}, reason={}, message={:?}",
                failed.reason, failed.message
            ));
        }
        if result.binding_conditions.iter().flatten().any(|name| is_true(name).is_none()) {
            return Readiness::Waiting;
        }
    }
    Readiness::Ready
}

/// How much longer is to be waited for the devices of a claim; `None` if it waited long enough.
pub(crate) fn patience(claim: &ResourceClaim, now: jiff::Timestamp, timeout: Duration) -> Option<Duration> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let Some(since) = allocation.and_then(|one| one.allocation_timestamp.as_ref()) else {
        return Some(timeout);
    };
    let waited = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
    timeout.checked_sub(waited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(conditions: Value) -> ResourceClaim {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "x",
            "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]});
        let allocation =
            json!({"devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:00:00Z"});
        let devices = json!([{"driver": "d", "pool": "p", "device": "x", "conditions": conditions}]);
        let status = json!({"allocation": allocation, "devices": devices});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}, "status": status})).unwrap()
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "Why", "message": "so",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_device_is_ready_when_all_that_is_waited_for_is_true_and_nothing_failed() {
        assert_eq!(of(&claim(json!([]))), Readiness::Waiting);
        assert_eq!(of(&claim(json!([condition("attached", "False")]))), Readiness::Waiting);
        assert_eq!(of(&claim(json!([condition("attached", "True")]))), Readiness::Ready);
        let both = json!([condition("attached", "True"), condition("broken", "True")]);
        let text = "device binding failed: claim=c, reason=Why, message=\"so\"".to_owned();
        assert_eq!(of(&claim(both)), Readiness::Failed(text));
    }

    #[test]
    fn patience_ends_the_timeout_after_the_allocation() {
        let claim = claim(json!([]));
        let (minute, at) = (Duration::from_secs(60), |text: &str| text.parse().unwrap());
        let left = |text| patience(&claim, at(text), minute);
        assert_eq!(left("2026-01-01T00:00:20Z"), Some(Duration::from_secs(40)));
        assert_eq!(left("2026-01-01T00:01:01Z"), None);
        assert_eq!(left("2025-12-31T23:00:00Z"), Some(minute), "a clock that was set back");
    }
}
