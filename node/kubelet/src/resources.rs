//! Requests and limits as numbers: quality of service, cgroup values, OOM scores. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use podwire_api::pod_resources::{PodResources, QosClass, Requirements};
use podwire_api::quantity::Quantity;
use podwire_api::resources::Resources;
use podwire_wire::cri;

use crate::spec::{self, Kind};

const PERIOD_US: i64 = 100_000;
const MIN_QUOTA_US: i64 = 1000;
pub(crate) const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// Requests and limits of a pod.
fn of_pod(pod: &Pod) -> PodResources {
    PodResources::from(spec::spec(pod))
}

/// The pod's quality of service, as the API server computes it.
pub fn qos(pod: &Pod) -> QosClass {
    of_pod(pod).qos()
}

/// cpu.shares for a request in thousandths of a core.
pub fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// cpu.cfs_quota_us for a limit in thousandths of a core; 0 means none.
pub fn quota(milli_cpu: i64) -> i64 {
    if milli_cpu == 0 { 0 } else { (milli_cpu * PERIOD_US / 1000).max(MIN_QUOTA_US) }
}

/// oom_score_adj of a container, given the node's memory in bytes.
pub fn oom_score(pod: &Pod, kind: Kind, container: &Container, capacity: i64) -> i64 {
    let own = own_score(pod, container, capacity);
    if kind != Kind::Sidecar || qos(pod) != QosClass::Burstable {
        return own;
    }
    let smallest = spec::spec(pod).containers.iter().map(|c| own_score(pod, c, capacity)).min();
    smallest.map_or(own, |app| own.min(app))
}

fn own_score(pod: &Pod, container: &Container, capacity: i64) -> i64 {
    const CRITICAL: i32 = 2_000_001_000;
    if spec::spec(pod).priority.is_some_and(|p| p >= CRITICAL) {
        return -997;
    }
    match qos(pod) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let request = Requirements::from(container).requests.value("memory");
            (1000 - 1000 * request / capacity.max(1)).clamp(3, 999)
        }
    }
}

/// CRI resources of one container.
pub fn linux(pod: &Pod, kind: Kind, container: &Container, capacity: i64) -> cri::LinuxContainerResources {
    let Requirements { requests, limits } = container.into();
    let huge = limits.iter().filter_map(|(name, limit)| {
        let size = name.strip_prefix("hugepages-")?;
        Some(cri::HugepageLimit {
            page_size: format!("{}B", size.trim_end_matches('i')),
            limit: u64::try_from(limit.value()).unwrap_or_default(),
        })
    });
    cri::LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: quota(limits.milli_value("cpu")),
        cpu_shares: shares(requests.milli_value("cpu")),
        memory_limit_in_bytes: limits.value("memory"),
        oom_score_adj: oom_score(pod, kind, container, capacity),
        hugepage_limits: huge.collect(),
        ..Default::default()
    }
}

/// What the pod asks of the node.
pub fn pod_requests(pod: &Pod) -> Resources {
    of_pod(pod).requests()
}

/// The pod's limits, only of what every container limits or what is limited for the pod as a whole.
pub fn pod_limits(pod: &Pod) -> Resources {
    let all = of_pod(pod);
    let is_set = |limits: &Resources, name: &str| limits.get(name).is_some_and(Quantity::is_positive);
    let every = |name: &str| {
        let init = all.init.iter().map(|one| &one.resources);
        all.containers.iter().chain(init).all(|one| is_set(&one.limits, name))
    };
    let of_pod = |name: &str| all.pod.as_ref().is_some_and(|own| is_set(&own.limits, name));
    let mut limits = all.limits();
    limits.retain(|name, _| of_pod(name) || every(name));
    limits
}

/// CRI resources of the pod's own cgroup.
pub fn pod_linux(pod: &Pod) -> cri::LinuxContainerResources {
    let (limits, requests) = (pod_limits(pod), pod_requests(pod));
    cri::LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: quota(limits.milli_value("cpu")),
        cpu_shares: shares(requests.milli_value("cpu")),
        memory_limit_in_bytes: limits.value("memory"),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(json: serde_json::Value) -> Container {
        serde_json::from_value(serde_json::json!({"name": "c", "resources": json})).unwrap()
    }

    fn pod(containers: Vec<Container>) -> Pod {
        let spec = k8s_openapi::api::core::v1::PodSpec { containers, ..Default::default() };
        Pod { spec: Some(spec), ..Default::default() }
    }

    #[test]
    fn cgroup_numbers_are_clamped() {
        assert_eq!(shares(0), 2);
        assert_eq!(shares(500), 512);
        assert_eq!(quota(0), 0);
        assert_eq!(quota(5), 1000);
        assert_eq!(quota(1500), 150_000);
    }

    #[test]
    fn a_pod_is_limited_only_where_every_container_is() {
        let limited = container(serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        let half = container(serde_json::json!({"limits": {"memory": "1Gi"}}));
        let both = pod_linux(&pod(vec![limited, half]));
        assert_eq!((both.cpu_quota, both.memory_limit_in_bytes), (0, 2 << 30));
    }

    #[test]
    fn limits_of_the_pod_hold_for_containers_without_any() {
        let mut whole = pod(vec![container(serde_json::json!({}))]);
        let stanza = serde_json::json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        whole.spec.as_mut().unwrap().resources = Some(serde_json::from_value(stanza).unwrap());
        let found = pod_linux(&whole);
        assert_eq!(
            (found.cpu_quota, found.cpu_shares, found.memory_limit_in_bytes),
            (200_000, 1024, 1 << 30)
        );
    }

    #[test]
    fn burstable_memory_requests_lower_the_oom_score() {
        let asked = container(serde_json::json!({"requests": {"memory": "1Gi"}}));
        let score = oom_score(&pod(vec![asked.clone()]), Kind::App, &asked, 4 << 30);
        assert_eq!(score, 750);
    }
}
