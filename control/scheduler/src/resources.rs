//! Amounts of node resources: what nodes have, what pods ask for. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use podwire_api::quantity::Quantity;

/// CPU assumed for a container that asks for none, when nodes are compared.
pub(crate) const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory assumed for a container that asks for none, when nodes are compared.
pub(crate) const DEFAULT_MEMORY: i64 = 200 << 20;

/// An amount of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) milli_cpu: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral_storage: i64,
    /// Extended resources and huge pages by name.
    pub(crate) scalar: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a `ResourceList`; the number of pods is kept elsewhere.
    pub(crate) fn from_list(list: Option<&BTreeMap<String, RawQuantity>>) -> Self {
        let mut out = Self::default();
        for (name, raw) in list.into_iter().flatten() {
            match name.as_str() {
                "cpu" => out.milli_cpu = milli(raw),
                "memory" => out.memory = whole(raw),
                "ephemeral-storage" => out.ephemeral_storage = whole(raw),
                "pods" => {}
                _ => {
                    out.scalar.insert(name.clone(), whole(raw));
                }
            }
        }
        out
    }

    /// Adds `other` to this amount.
    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Takes `other` away from this amount.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
        self.scalar.retain(|_, amount| *amount != 0);
    }

    /// Raises each resource to at least what `other` has.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    /// Whether this amount has less of some resource than `other`.
    pub(crate) fn is_less_than(&self, other: &Self) -> bool {
        self.milli_cpu < other.milli_cpu
            || self.memory < other.memory
            || self.ephemeral_storage < other.ephemeral_storage
            || other.scalar.iter().any(|(name, amount)| self.scalar.get(name).is_none_or(|own| own < amount))
    }

    fn combine(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalar {
            let own = self.scalar.entry(name.clone()).or_default();
            *own = with(*own, *amount);
        }
    }
}

/// A whole number out of a quantity, rounded up; what cannot be read counts as nothing.
pub(crate) fn whole(raw: &RawQuantity) -> i64 {
    Quantity::parse(&raw.0).map_or(0, |quantity| quantity.value())
}

fn milli(raw: &RawQuantity) -> i64 {
    Quantity::parse(&raw.0).map_or(0, |quantity| quantity.milli_value())
}

/// What a pod asks of its node: `exact` to fit, `nonzero` (with assumed defaults) to compare nodes.
pub(crate) struct PodRequests {
    pub(crate) exact: Resources,
    pub(crate) nonzero: Resources,
}

/// Sums up a pod: app containers and sidecars together, or an init container with the sidecars
/// started before it, whichever is more; then the sandbox's overhead.
pub(crate) fn pod_requests(spec: &PodSpec) -> PodRequests {
    let sum = |of: fn(&Container) -> Resources| {
        let mut running = Resources::default();
        spec.containers.iter().for_each(|container| running.add(&of(container)));
        let (mut sidecars, mut peak) = (Resources::default(), Resources::default());
        for init in spec.init_containers.iter().flatten() {
            let own = of(init);
            if init.restart_policy.as_deref() == Some("Always") {
                running.add(&own);
                sidecars.add(&own);
                peak.raise_to(&sidecars);
            } else {
                let mut together = sidecars.clone();
                together.add(&own);
                peak.raise_to(&together);
            }
        }
        running.raise_to(&peak);
        override_by_pod_level(spec, &mut running);
        running.add(&Resources::from_list(spec.overhead.as_ref()));
        running
    };
    PodRequests { exact: sum(container_requests), nonzero: sum(nonzero_requests) }
}

/// Requests of the pod as a whole replace the sum over its containers, resource by resource.
fn override_by_pod_level(spec: &PodSpec, sum: &mut Resources) {
    let Some(requests) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) else {
        return;
    };
    let level = Resources::from_list(Some(requests));
    if requests.contains_key("cpu") {
        sum.milli_cpu = level.milli_cpu;
    }
    if requests.contains_key("memory") {
        sum.memory = level.memory;
    }
    for (name, amount) in level.scalar.into_iter().filter(|(name, _)| name.starts_with("hugepages-")) {
        sum.scalar.insert(name, amount);
    }
}

fn container_requests(container: &Container) -> Resources {
    Resources::from_list(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

fn nonzero_requests(container: &Container) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut out = Resources::from_list(requests);
    if !requests.is_some_and(|list| list.contains_key("cpu")) {
        out.milli_cpu = DEFAULT_MILLI_CPU;
    }
    if !requests.is_some_and(|list| list.contains_key("memory")) {
        out.memory = DEFAULT_MEMORY;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn requests(spec: serde_json::Value) -> PodRequests {
        pod_requests(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn containers_add_up_and_init_containers_peak() {
        let found = requests(json!({
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "0.3"}}},
            ],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "init", "resources": {"requests": {"cpu": "2", "memory": "1Mi"}}},
            ],
            "overhead": {"cpu": "10m"},
        }));
        assert_eq!((found.exact.milli_cpu, found.exact.memory), (2110, 1 << 30));
    }

    #[test]
    fn absent_requests_count_only_when_nodes_are_compared() {
        let found = requests(
            json!({"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "0"}}}]}),
        );
        assert_eq!((found.exact.milli_cpu, found.exact.memory), (0, 0));
        assert_eq!((found.nonzero.milli_cpu, found.nonzero.memory), (100, 400 << 20));
    }

    #[test]
    fn requests_of_the_pod_replace_the_sum() {
        let found = requests(json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "200m", "example.com/nic": "2"}}}],
            "resources": {"requests": {"cpu": "1"}},
        }));
        assert_eq!(found.exact.milli_cpu, 1000);
        assert_eq!(found.exact.scalar["example.com/nic"], 2);
    }
}
