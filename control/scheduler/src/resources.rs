//! Amounts of node resources: what nodes have, what pods ask for. Pure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Pod;
use podwire_api::pod_resources::PodResources;
use podwire_api::quantity::Quantity;
use podwire_api::resources::Resources as ResourceList;

/// What is assumed of a container that asks for none, when nodes are compared.
static ASSUMED: LazyLock<ResourceList> = LazyLock::new(|| {
    let mut list = ResourceList::NONE;
    list.set("cpu", Quantity::from_milli(100));
    list.set("memory", Quantity::from_integer(200 << 20));
    list
});

/// An amount of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resources {
    pub(crate) milli_cpu: i64,
    pub(crate) memory: i64,
    pub(crate) ephemeral_storage: i64,
    /// Extended resources and huge pages by name.
    pub(crate) scalar: BTreeMap<String, i64>,
}

impl Resources {
    /// Adds `other` to this amount.
    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Takes `other` away from this amount.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
        self.scalar.retain(|_, amount| *amount != 0);
    }

    /// How much of a resource it has.
    pub(crate) fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            other => self.scalar.get(other).copied().unwrap_or_default(),
        }
    }

    /// Whether a resource is one of those that only some nodes have.
    pub(crate) fn is_scalar(name: &str) -> bool {
        !matches!(name, "cpu" | "memory" | "ephemeral-storage")
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

/// An amount of a resource as people write it.
pub(crate) fn shown(name: &str, amount: i64) -> String {
    match name {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" => {
            let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
            let unit = units.iter().find(|(shift, _)| amount != 0 && amount % (1 << shift) == 0);
            unit.map_or_else(|| amount.to_string(), |(shift, unit)| format!("{}{unit}", amount >> shift))
        }
        _ => amount.to_string(),
    }
}

/// The number of pods is kept elsewhere.
impl From<&ResourceList> for Resources {
    fn from(list: &ResourceList) -> Self {
        let mut out = Self::default();
        for (name, amount) in list.iter() {
            match name {
                "cpu" => out.milli_cpu = amount.milli_value(),
                "memory" => out.memory = amount.value(),
                "ephemeral-storage" => out.ephemeral_storage = amount.value(),
                "pods" => {}
                _ => {
                    out.scalar.insert(name.to_owned(), amount.value());
                }
            }
        }
        out
    }
}

/// What a pod asks of its node: `exact` to fit, `nonzero` (with assumed defaults) to compare nodes.
pub(crate) struct PodRequests {
    pub(crate) exact: Resources,
    pub(crate) nonzero: Resources,
}

/// Sums up a pod; while it is resized, the most of what it has and is to have.
pub(crate) fn pod_requests(pod: &Pod) -> PodRequests {
    let pod = PodResources::from(pod);
    let exact = pod.requests();
    let nonzero = if pod.has_requests_of_pod() {
        // Then something is assumed only of what is asked for nowhere.
        let mut assumed = ASSUMED.clone();
        assumed.retain(|name, _| exact.get(name).is_none());
        pod.requests_assuming(&assumed)
    } else {
        pod.requests_assuming(&ASSUMED)
    };
    PodRequests { exact: (&exact).into(), nonzero: (&nonzero).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn requests(spec: serde_json::Value) -> PodRequests {
        pod_requests(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
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
    fn a_pod_that_is_being_shrunk_counts_with_what_it_still_has() {
        let pod = |reason: &str, asked: &str| {
            let status = json!({"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}});
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            let container = json!({"name": "a", "resources": {"requests": {"cpu": asked}}});
            let object = json!({"metadata": {}, "spec": {"containers": [container]},
                "status": {"containerStatuses": [status], "conditions": [pending]}});
            pod_requests(&serde_json::from_value(object).unwrap()).exact.milli_cpu
        };
        assert_eq!(pod("Deferred", "1"), 2000);
        assert_eq!(pod("Deferred", "3"), 3000);
        assert_eq!(pod("Infeasible", "3"), 2000, "what will never be had");
    }

    #[test]
    fn beside_requests_of_the_pod_only_what_is_asked_for_nowhere_is_assumed() {
        let found = requests(json!({
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "200m", "example.com/nic": "2"}}},
                {"name": "b"},
            ],
            "resources": {"requests": {"cpu": "1"}},
            "overhead": {"cpu": "100m"},
        }));
        assert_eq!(found.exact.milli_cpu, 1100);
        assert_eq!(found.exact.scalar["example.com/nic"], 2);
        assert_eq!((found.nonzero.milli_cpu, found.nonzero.memory), (1100, 400 << 20));
        let both = json!({"cpu": "1", "memory": "1Gi"});
        let found = requests(json!({"containers": [{"name": "a"}], "resources": {"requests": both}}));
        assert_eq!((found.nonzero.milli_cpu, found.nonzero.memory), (1000, 1 << 30));
    }
}
