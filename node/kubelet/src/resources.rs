//! Requests and limits as numbers: quality of service, cgroup values, OOM scores. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use podwire_wire::cri;

use crate::spec::{self, Kind};

const PERIOD_US: i64 = 100_000;
const MIN_QUOTA_US: i64 = 1000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// How much a pod may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Every container's limits equal its requests.
    Guaranteed,
    /// Some container asks for something.
    Burstable,
    /// None does.
    BestEffort,
}

impl Qos {
    /// As the status names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        }
    }
}

type Quantities = BTreeMap<String, Quantity>;

/// A quantity in thousandths, rounded up.
pub fn milli(quantity: &Quantity) -> i64 {
    parse(&quantity.0, 1000.0)
}

/// A quantity in whole units, rounded up.
pub fn whole(quantity: &Quantity) -> i64 {
    parse(&quantity.0, 1.0)
}

#[allow(clippy::cast_possible_truncation)] // Saturates, which is what a limit beyond i64 means.
fn parse(text: &str, scale: f64) -> i64 {
    let split = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'));
    let (digits, suffix) = text.split_at(split.unwrap_or(text.len()));
    let Ok(number) = digits.parse::<f64>() else { return 0 };
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        "Pi" => 1_125_899_906_842_624.0,
        "Ei" => 1_152_921_504_606_846_976.0,
        exponent => match exponent.strip_prefix(['e', 'E']).and_then(|e| e.parse::<i32>().ok()) {
            Some(power) => 10f64.powi(power),
            None => return 0,
        },
    };
    // A tiny slack keeps 0.1 * 1000 from becoming 101.
    (number * factor * scale - 1e-9).ceil() as i64
}

/// The limits and requests of one container.
pub fn of(container: &Container) -> (Quantities, Quantities) {
    split(container.resources.as_ref())
}

/// The limits and requests of a resources stanza.
pub fn split(resources: Option<&ResourceRequirements>) -> (Quantities, Quantities) {
    let limits = resources.and_then(|r| r.limits.clone()).unwrap_or_default();
    let mut requests = resources.and_then(|r| r.requests.clone()).unwrap_or_default();
    for (name, quantity) in &limits {
        requests.entry(name.clone()).or_insert_with(|| quantity.clone());
    }
    (limits, requests)
}

/// The pod's quality of service, as the API server computes it.
pub fn qos(pod: &Pod) -> Qos {
    if let Some(stanza) =
        spec::spec(pod).resources.as_ref().filter(|r| r.limits.is_some() || r.requests.is_some())
    {
        return qos_of(std::iter::once(split(Some(stanza))));
    }
    let init = spec::init_containers(pod).iter();
    qos_of(init.chain(&spec::spec(pod).containers).map(of))
}

fn qos_of(all: impl Iterator<Item = (Quantities, Quantities)>) -> Qos {
    let mut any = false;
    let mut guaranteed = true;
    for (limits, requests) in all {
        for name in ["cpu", "memory"] {
            let request = requests.get(name).map(milli).unwrap_or_default();
            let limit = limits.get(name).map(milli).unwrap_or_default();
            any |= request > 0 || limit > 0;
            guaranteed &= limit > 0 && limit == request;
        }
    }
    match (any, guaranteed) {
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
        (false, _) => Qos::BestEffort,
    }
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
    if kind != Kind::Sidecar || qos(pod) != Qos::Burstable {
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
        Qos::Guaranteed => -997,
        Qos::BestEffort => 1000,
        Qos::Burstable => {
            let request = of(container).1.get("memory").map(whole).unwrap_or_default();
            (1000 - 1000 * request / capacity.max(1)).clamp(3, 999)
        }
    }
}

/// CRI resources of one container.
pub fn linux(pod: &Pod, kind: Kind, container: &Container, capacity: i64) -> cri::LinuxContainerResources {
    let (limits, requests) = of(container);
    let get =
        |of: &Quantities, name: &str, read: fn(&Quantity) -> i64| of.get(name).map(read).unwrap_or_default();
    let huge = limits.iter().filter_map(|(name, limit)| {
        let size = name.strip_prefix("hugepages-")?;
        Some(cri::HugepageLimit {
            page_size: format!("{}B", size.trim_end_matches('i')),
            limit: u64::try_from(whole(limit)).unwrap_or_default(),
        })
    });
    cri::LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: quota(get(&limits, "cpu", milli)),
        cpu_shares: shares(get(&requests, "cpu", milli)),
        memory_limit_in_bytes: get(&limits, "memory", whole),
        oom_score_adj: oom_score(pod, kind, container, capacity),
        hugepage_limits: huge.collect(),
        ..Default::default()
    }
}

/// What the pod as a whole asks for: the larger of the app containers' sum and any init step's need.
pub fn pod_requests(pod: &Pod) -> Quantities {
    aggregate(pod, |c| of(c).1)
}

/// The pod's limits, only for resources that every container limits.
pub fn pod_limits(pod: &Pod) -> Quantities {
    let mut all = aggregate(pod, |c| of(c).0);
    let every = spec::init_containers(pod).iter().chain(&spec::spec(pod).containers).map(|c| of(c).0);
    for limits in every {
        all.retain(|name, _| limits.contains_key(name));
    }
    all
}

fn aggregate(pod: &Pod, read: impl Fn(&Container) -> Quantities) -> Quantities {
    let mut steady: BTreeMap<String, i64> = BTreeMap::new();
    let mut peak: BTreeMap<String, i64> = BTreeMap::new();
    for container in spec::init_containers(pod) {
        let own = read(container);
        if spec::init_kind(container) == Kind::Sidecar {
            add(&mut steady, &own);
            raise(&mut peak, &steady);
        } else {
            let mut step = steady.clone();
            add(&mut step, &own);
            raise(&mut peak, &step);
        }
    }
    for container in &spec::spec(pod).containers {
        add(&mut steady, &read(container));
    }
    raise(&mut peak, &steady);
    if let Some(overhead) = &spec::spec(pod).overhead {
        add(&mut peak, overhead);
    }
    let (limits, requests) = split(spec::spec(pod).resources.as_ref());
    let mut all: Quantities = peak.into_iter().map(|(name, amount)| (name, quantity(amount))).collect();
    if spec::spec(pod).resources.is_some() {
        let own = if read(&Container { resources: spec::spec(pod).resources.clone(), ..Default::default() })
            == limits
        {
            limits
        } else {
            requests
        };
        all.extend(own);
    }
    all
}

/// An amount in thousandths as a quantity.
pub fn quantity(milli: i64) -> Quantity {
    if milli % 1000 == 0 { Quantity((milli / 1000).to_string()) } else { Quantity(format!("{milli}m")) }
}

fn add(sum: &mut BTreeMap<String, i64>, own: &Quantities) {
    for (name, amount) in own {
        *sum.entry(name.clone()).or_default() += milli(amount);
    }
}

fn raise(peak: &mut BTreeMap<String, i64>, step: &BTreeMap<String, i64>) {
    for (name, amount) in step {
        let old = peak.entry(name.clone()).or_default();
        *old = (*old).max(*amount);
    }
}

/// CRI resources of the pod's own cgroup.
pub fn pod_linux(pod: &Pod) -> cri::LinuxContainerResources {
    let (limits, requests) = (pod_limits(pod), pod_requests(pod));
    cri::LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: quota(limits.get("cpu").map(milli).unwrap_or_default()),
        cpu_shares: shares(requests.get("cpu").map(milli).unwrap_or_default()),
        memory_limit_in_bytes: limits.get("memory").map(whole).unwrap_or_default(),
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
    fn quantities_read_as_kubernetes_writes_them() {
        assert_eq!(milli(&Quantity("100m".into())), 100);
        assert_eq!(milli(&Quantity("0.1".into())), 100);
        assert_eq!(milli(&Quantity("2".into())), 2000);
        assert_eq!(whole(&Quantity("64Mi".into())), 67_108_864);
        assert_eq!(whole(&Quantity("1e3".into())), 1000);
        assert_eq!(whole(&Quantity("1500m".into())), 2);
        assert_eq!(whole(&Quantity("junk".into())), 0);
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let none = pod(vec![container(serde_json::json!({}))]);
        let both = serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        let some = serde_json::json!({"requests": {"cpu": "100m"}});
        assert_eq!(qos(&none), Qos::BestEffort);
        assert_eq!(qos(&pod(vec![container(both.clone())])), Qos::Guaranteed);
        assert_eq!(qos(&pod(vec![container(both), container(some)])), Qos::Burstable);
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
    fn burstable_memory_requests_lower_the_oom_score() {
        let asked = container(serde_json::json!({"requests": {"memory": "1Gi"}}));
        let score = oom_score(&pod(vec![asked.clone()]), Kind::App, &asked, 4 << 30);
        assert_eq!(score, 750);
    }
}
