//! What a pod asks of its node and is held to: the sums over its containers, and the class that follows from them.
//!
//! The rules: <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers>,
//! <https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>,
//! <https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>.

use serde_json::Value;

use crate::condition;
use crate::quantity::Quantity;
use crate::resources::Resources;

/// How much a pod may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QosClass {
    /// The limits of every container are set and equal its requests.
    Guaranteed,
    /// Some container asks for something.
    Burstable,
    /// None does.
    BestEffort,
}

impl QosClass {
    /// As the status names it.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// Requests and limits of one container, or of the pod as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// What is set aside.
    pub requests: Resources,
    /// What is not exceeded.
    pub limits: Resources,
}

impl From<&Value> for Requirements {
    fn from(resources: &Value) -> Requirements {
        Requirements { requests: (&resources["requests"]).into(), limits: (&resources["limits"]).into() }
    }
}

/// An init container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitContainer {
    /// Whether it is a sidecar: it runs on beside what comes after it.
    pub sidecar: bool,
    /// Its requests and limits.
    pub resources: Requirements,
}

/// Requests and limits of a pod, as its spec states them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodResources {
    /// Of its containers.
    pub containers: Vec<Requirements>,
    /// Of its init containers, in their order.
    pub init: Vec<InitContainer>,
    /// Of the pod as a whole, if it has any.
    pub pod: Option<Requirements>,
    /// What its sandbox takes.
    pub overhead: Resources,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Reads a pod's spec.
impl From<&Value> for PodResources {
    fn from(spec: &Value) -> PodResources {
        let init = |one: &Value| InitContainer {
            sidecar: one["restartPolicy"] == "Always",
            resources: (&one["resources"]).into(),
        };
        PodResources {
            containers: list(&spec["containers"]).iter().map(|one| (&one["resources"]).into()).collect(),
            init: list(&spec["initContainers"]).iter().map(init).collect(),
            pod: spec["resources"].is_object().then(|| (&spec["resources"]).into()),
            overhead: (&spec["overhead"]).into(),
        }
    }
}

/// What a node says of one container, or of the pod as a whole, while it is resized.
pub(crate) struct Reached {
    /// What is in force.
    pub(crate) actual: Resources,
    /// What the node has agreed to.
    pub(crate) allocated: Resources,
}

impl Reached {
    /// Reads the status of a container or of a pod; `None` if it does not say what is in force.
    fn of(status: &Value) -> Option<Reached> {
        status["resources"].is_object().then(|| Reached {
            actual: (&status["resources"]["requests"]).into(),
            allocated: (&status["allocatedResources"]).into(),
        })
    }

    /// What has to be reckoned with: the most of what is asked for, agreed to and in force. What is asked for does not
    /// count once the node has said that it cannot be had.
    fn with(&self, asked: &Resources, resize: Resize) -> Resources {
        let mut most = match resize {
            Resize::Possible => asked.clone(),
            Resize::Infeasible => Resources::NONE,
        };
        most.raise_to(&self.actual);
        most.raise_to(&self.allocated);
        most
    }
}

/// Whether a resize may still come about.
#[derive(Clone, Copy)]
pub(crate) enum Resize {
    /// It may, or there is none.
    Possible,
    /// The node has said that it never will.
    Infeasible,
}

impl Resize {
    /// By the reason of the pod's `PodResizePending` condition.
    pub(crate) fn pending_for(reason: Option<&str>) -> Resize {
        if reason == Some("Infeasible") { Resize::Infeasible } else { Resize::Possible }
    }
}

type Side = fn(&Requirements) -> &Resources;

const REQUESTS: Side = |own| &own.requests;
const LIMITS: Side = |own| &own.limits;

/// Whether a resource may be given for the pod as a whole.
fn of_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

impl PodResources {
    /// Reads a pod with its status: its requests are what its node has to reckon with while it is resized.
    pub fn in_effect(pod: &Value) -> PodResources {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let statuses =
            || list(&status["containerStatuses"]).iter().chain(list(&status["initContainerStatuses"]));
        let reached = |one: &Value| Reached::of(statuses().find(|status| status["name"] == one["name"])?);
        let pending = condition::find(condition::of(pod), "PodResizePending");
        let mut out = PodResources::from(spec);
        out.reach(
            Resize::pending_for(pending.and_then(|one| one["reason"].as_str())),
            list(&spec["containers"]).iter().map(reached),
            list(&spec["initContainers"]).iter().map(reached),
            Reached::of(status),
        );
        out
    }

    /// Replaces what was asked for by what has to be reckoned with, given what is known of each container, init container
    /// and the pod as a whole.
    pub(crate) fn reach(
        &mut self,
        resize: Resize,
        containers: impl Iterator<Item = Option<Reached>>,
        init: impl Iterator<Item = Option<Reached>>,
        pod: Option<Reached>,
    ) {
        let raise = |own: &mut Requirements, reached: Option<Reached>| {
            if let Some(reached) = reached {
                own.requests = reached.with(&own.requests, resize);
            }
        };
        self.containers.iter_mut().zip(containers).for_each(|(own, reached)| raise(own, reached));
        let init = self.init.iter_mut().zip(init);
        init.filter(|(own, _)| own.sidecar).for_each(|(own, reached)| raise(&mut own.resources, reached));
        if let (Some(own), Some(reached)) = (&mut self.pod, pod) {
            let effective = reached.with(&own.requests, resize);
            // Only what the spec names, even if it comes to nothing.
            let named: Vec<String> = own.requests.iter().map(|(name, _)| name.to_owned()).collect();
            for name in named {
                own.requests.set(&name, effective.get(&name).copied().unwrap_or(Quantity::ZERO));
            }
        }
    }

    /// What the pod asks of its node.
    pub fn requests(&self) -> Resources {
        self.requests_assuming(&Resources::NONE)
    }

    /// What the pod asks of its node if each container that says nothing about a resource asks for what is `assumed`.
    pub fn requests_assuming(&self, assumed: &Resources) -> Resources {
        let mut sum = self.over_containers(REQUESTS, assumed);
        self.override_by_pod(&mut sum, REQUESTS);
        sum.add(&self.overhead);
        sum
    }

    /// What the pod is held to; a resource is missing only if no container limits it.
    pub fn limits(&self) -> Resources {
        let mut sum = self.over_containers(LIMITS, &Resources::NONE);
        self.override_by_pod(&mut sum, LIMITS);
        for (name, amount) in self.overhead.iter() {
            if let Some(limit) = sum.get(name).filter(|limit| !limit.is_zero()) {
                sum.set(name, limit.plus(amount));
            }
        }
        sum
    }

    /// Containers and sidecars together, or an init container with the sidecars before it, whichever is more.
    fn over_containers(&self, side: Side, assumed: &Resources) -> Resources {
        let add = |sum: &mut Resources, one: &Requirements| {
            let own = side(one);
            sum.add(own);
            for (name, amount) in assumed.iter().filter(|(name, _)| own.get(name).is_none()) {
                sum.set(name, sum.get(name).map_or(*amount, |before| before.plus(amount)));
            }
        };
        let mut running = Resources::NONE;
        self.containers.iter().for_each(|one| add(&mut running, one));
        let (mut sidecars, mut peak) = (Resources::NONE, Resources::NONE);
        for one in &self.init {
            if one.sidecar {
                add(&mut running, &one.resources);
                add(&mut sidecars, &one.resources);
                peak.raise_to(&sidecars);
            } else {
                let mut step = Resources::NONE;
                add(&mut step, &one.resources);
                step.add(&sidecars);
                peak.raise_to(&step);
            }
        }
        running.raise_to(&peak);
        running
    }

    /// What is given for the pod as a whole replaces the sum over its containers.
    fn override_by_pod(&self, sum: &mut Resources, side: Side) {
        let given = self.pod.iter().flat_map(|own| side(own).iter());
        given.filter(|(name, _)| of_pod(name)).for_each(|(name, amount)| sum.set(name, *amount));
    }

    /// Whether requests are given for the pod as a whole.
    pub fn has_requests_of_pod(&self) -> bool {
        self.pod.iter().flat_map(|own| own.requests.iter()).any(|(name, _)| of_pod(name))
    }

    /// The class that follows from requests and limits of CPU and memory.
    pub fn qos(&self) -> QosClass {
        let mut class = Classing::default();
        match &self.pod {
            // Even if nothing is given there: such a pod counts as one that asks for nothing.
            Some(own) => class.count(own),
            None => {
                let init = self.init.iter().map(|one| &one.resources);
                self.containers.iter().chain(init).for_each(|one| class.count(one));
            }
        }
        class.class()
    }
}

/// Sums of what counts for the class.
struct Classing {
    requests: [Quantity; 2],
    limits: [Quantity; 2],
    all_limited: bool,
}

impl Default for Classing {
    fn default() -> Classing {
        Classing { requests: [Quantity::ZERO; 2], limits: [Quantity::ZERO; 2], all_limited: true }
    }
}

impl Classing {
    fn count(&mut self, one: &Requirements) {
        for (at, name) in ["cpu", "memory"].into_iter().enumerate() {
            let positive = |list: &Resources| list.get(name).copied().filter(Quantity::is_positive);
            if let Some(request) = positive(&one.requests) {
                self.requests[at] = self.requests[at].plus(&request);
            }
            match positive(&one.limits) {
                Some(limit) => self.limits[at] = self.limits[at].plus(&limit),
                None => self.all_limited = false,
            }
        }
    }

    fn class(&self) -> QosClass {
        if self.requests.iter().chain(&self.limits).all(Quantity::is_zero) {
            QosClass::BestEffort
        } else if self.all_limited && self.requests == self.limits {
            QosClass::Guaranteed
        } else {
            QosClass::Burstable
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(resources: &Resources) -> String {
        resources.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn containers_add_up_and_init_containers_peak() {
        let pod = PodResources::from(&json!({
            "containers": [
                {"resources": {"requests": {"cpu": "200m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
                {"resources": {"requests": {"cpu": "0.3"}}},
            ],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"resources": {"requests": {"cpu": "2", "memory": "1Mi"}}},
            ],
            "overhead": {"cpu": "10m", "memory": "1Mi"},
        }));
        assert_eq!(shown(&pod.requests()), "cpu=2110m memory=1025Mi");
        assert_eq!(shown(&pod.limits()), "memory=2049Mi");
        let assumed = Resources::from(&json!({"cpu": "5", "memory": "1Ki"}));
        assert_eq!(shown(&pod.requests_assuming(&assumed)), "cpu=2110m memory=1049602Ki");
    }

    #[test]
    fn what_is_given_for_the_pod_replaces_the_sum_and_the_overhead_comes_on_top() {
        let pod = PodResources::from(&json!({
            "containers": [{"resources": {"requests": {"cpu": "200m", "example.com/nic": "2"}}}],
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "overhead": {"cpu": "100m"},
        }));
        assert_eq!(shown(&pod.requests()), "cpu=1100m example.com/nic=2");
        assert_eq!(shown(&pod.limits()), "cpu=2100m");
    }

    #[test]
    fn classes_follow_requests_and_limits() {
        let same =
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"}});
        for (containers, class) in [
            (json!([{}]), "BestEffort"),
            (json!([{"resources": {"requests": {"example.com/x": "1"}}}]), "BestEffort"),
            (json!([{"resources": same}]), "Guaranteed"),
            (json!([{"resources": same}, {}]), "Burstable"),
            (json!([{"resources": {"requests": {"cpu": "1"}}}]), "Burstable"),
            (json!([{"resources": {"requests": {"cpu": "0"}}}]), "BestEffort"),
        ] {
            let spec = json!({"containers": containers});
            assert_eq!(PodResources::from(&spec).qos().as_str(), class, "{containers}");
        }
    }
}
