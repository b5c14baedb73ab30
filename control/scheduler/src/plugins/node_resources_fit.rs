//! NodeResourcesFit: what a pod asks for must be free, and emptier (or fuller) nodes are better.

use std::borrow::Cow;

use crate::cluster::devices::{Changed, Devices};
use crate::cluster::{Cluster, Event};
use crate::framework::{Cycle, Filter, MAX_SCORE, Name, Plugin, PreFilter, Refusal, Score, Seat};
use crate::node::{NodeFacts, NodeInfo, Usage};
use crate::plugins::dynamic_resources::extended;
use crate::pod::PodInfo;
use crate::resources::Resources;

/// How nodes are compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Strategy {
    /// The emptier the better.
    LeastAllocated,
    /// The fuller the better.
    MostAllocated,
    /// As a curve over the share in use has it: percent used, score out of 10.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// The plugin.
pub(crate) struct NodeResourcesFit {
    pub(crate) strategy: Strategy,
    /// Resources that are compared, with their weights.
    pub(crate) resources: Vec<(String, i64)>,
    pub(crate) ignored: Vec<String>,
    pub(crate) ignored_groups: Vec<String>,
}

impl Default for NodeResourcesFit {
    fn default() -> Self {
        Self {
            strategy: Strategy::LeastAllocated,
            resources: vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)],
            ignored: Vec::new(),
            ignored_groups: Vec::new(),
        }
    }
}

struct Wanted<'a> {
    plugin: &'a NodeResourcesFit,
    pod: &'a PodInfo,
    devices: &'a Devices,
}

/// One resource of which there is not enough.
struct Shortage<'a> {
    name: Cow<'a, str>,
    wanted: i64,
    used: i64,
    capacity: i64,
}

impl NodeResourcesFit {
    fn ignores(&self, name: &str) -> bool {
        let group = || name.split('/').next().unwrap_or_default();
        self.ignored.iter().any(|one| one == name) || self.ignored_groups.iter().any(|one| one == group())
    }

    /// What is lacking, but for the number of pods.
    fn shortages<'a>(
        &self,
        wanted: &'a Resources,
        facts: &NodeFacts,
        usage: &Usage,
        devices: &Devices,
        mut found: impl FnMut(Shortage<'a>),
    ) {
        let (have, used) = (&facts.allocatable, &usage.requested);
        let mut check = |name: &'a str, wanted: i64, used: i64, capacity: i64| {
            if wanted > 0 && wanted > capacity.saturating_sub(used) {
                found(Shortage { name: name.into(), wanted, used, capacity });
            }
        };
        check("cpu", wanted.milli_cpu, used.milli_cpu, have.milli_cpu);
        check("memory", wanted.memory, used.memory, have.memory);
        check("ephemeral-storage", wanted.ephemeral_storage, used.ephemeral_storage, have.ephemeral_storage);
        for (name, amount) in &wanted.scalar {
            let of = |list: &Resources| list.scalar.get(name).copied().unwrap_or_default();
            // What the node has none of, devices may be.
            let devices_are_it = of(have) == 0 && devices.class_for(name).is_some();
            if !self.ignores(name) && !devices_are_it {
                check(name, *amount, of(used), of(have));
            }
        }
    }

    fn fits(&self, pod: &PodInfo, facts: &NodeFacts, usage: &Usage, devices: &Devices) -> bool {
        let mut short = usage.pods + 1 > facts.max_pods;
        self.shortages(&pod.requests, facts, usage, devices, |_| short = true);
        !short
    }

    /// Whether it fits now, or would without the pods that it may remove.
    fn could_fit(&self, pod: &PodInfo, facts: &NodeFacts, node: &NodeInfo, devices: &Devices) -> bool {
        if self.fits(pod, facts, &node.usage, devices) {
            return true;
        }
        let mut lesser = node.pods.iter().filter(|other| other.priority < pod.priority).peekable();
        if pod.never_preempts || lesser.peek().is_none() {
            return false;
        }
        let mut usage = node.usage.clone();
        lesser.for_each(|other| usage.remove(other));
        self.fits(pod, facts, &usage, devices)
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> Name {
        Name::NodeResourcesFit
    }

    /// Only a node on which there is more room than before can help, and only if it is enough now.
    fn may_help(&self, event: &Event, pod: &PodInfo, cluster: &Cluster) -> bool {
        let devices = &cluster.devices;
        let enough = |node: &NodeInfo| {
            node.facts.as_ref().is_some_and(|facts| self.could_fit(pod, facts, node, devices))
        };
        let at = |other: &PodInfo| {
            other.node.as_ref().or(other.nominated.as_ref()).and_then(|name| cluster.named(name))
        };
        match event {
            Event::NodeAdded(id) => enough(cluster.node(*id)),
            Event::NodeChanged(id, old) => {
                let node = cluster.node(*id);
                let fits = |facts: &NodeFacts| self.fits(pod, facts, &node.usage, devices);
                enough(node) && !self.could_fit(pod, old, node, devices)
                    || node.facts.as_ref().is_some_and(fits) && !fits(old)
            }
            // Its node is gone too: then nobody knows where there is room.
            Event::PodGone(gone) => at(gone).is_none_or(enough),
            Event::PodChanged { new, .. } => at(new).is_some_and(enough),
            Event::DevicesChanged(Changed::Class { name, resource, is_new }) => {
                let asks = |resource: &String| pod.requests.scalar.contains_key(resource);
                *is_new && asks(&extended::of_class(name)) || resource.as_ref().is_some_and(asks)
            }
            _ => false,
        }
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Each(Box::new(Wanted { plugin: self, pod: cycle.pod, devices: &cycle.cluster.devices }))
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        Some(Box::new(Wanted { plugin: self, pod: cycle.pod, devices: &cycle.cluster.devices }))
    }
}

fn reason(name: &str) -> Cow<'static, str> {
    match name {
        "cpu" => "Insufficient cpu".into(),
        "memory" => "Insufficient memory".into(),
        "ephemeral-storage" => "Insufficient ephemeral-storage".into(),
        other => format!("Insufficient {other}").into(),
    }
}

impl Filter for Wanted<'_> {
    fn refuses(&self, seat: &Seat) -> Option<Refusal> {
        let name = Name::NodeResourcesFit;
        let mut refusal =
            (seat.usage.pods + 1 > seat.facts.max_pods).then(|| Refusal::not_now(name, "Too many pods"));
        self.plugin.shortages(&self.pod.requests, seat.facts, seat.usage, self.devices, |short| {
            let reason = reason(&short.name);
            let mut more = match refusal.take() {
                None => Refusal::not_now(name, reason),
                Some(refusal) => refusal.and(reason),
            };
            more.resolvable &= short.wanted <= short.capacity;
            refusal = Some(more);
        });
        refusal
    }

    fn details(&self, seat: &Seat) -> Vec<String> {
        let mut lines = Vec::new();
        if seat.usage.pods + 1 > seat.facts.max_pods {
            lines.push(format!("pods: {} of {} in use", seat.usage.pods, seat.facts.max_pods));
        }
        self.plugin.shortages(&self.pod.requests, seat.facts, seat.usage, self.devices, |short| {
            let unit = |amount: i64| crate::resources::shown(&short.name, amount);
            let lacking = short.wanted - short.capacity.saturating_sub(short.used).max(0);
            lines.push(format!(
                "{}: wants {}, {} of {} in use, {} too little",
                short.name,
                unit(short.wanted),
                unit(short.used),
                unit(short.capacity),
                unit(lacking)
            ));
        });
        lines
    }
}

impl Score for Wanted<'_> {
    fn score(&self, seat: &Seat) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (name, weight) in &self.plugin.resources {
            let (asked, used, total) = match name.as_str() {
                "cpu" => (
                    self.pod.nonzero.milli_cpu,
                    seat.usage.nonzero.milli_cpu,
                    seat.facts.allocatable.milli_cpu,
                ),
                "memory" => {
                    (self.pod.nonzero.memory, seat.usage.nonzero.memory, seat.facts.allocatable.memory)
                }
                other => {
                    let of = |list: &Resources| list.get(other);
                    let asked = of(&self.pod.requests);
                    if asked == 0 && other != "ephemeral-storage" {
                        continue;
                    }
                    (asked, of(&seat.usage.requested), of(&seat.facts.allocatable))
                }
            };
            if total == 0 {
                continue;
            }
            let score = share(&self.plugin.strategy, used + asked, total);
            if matches!(self.plugin.strategy, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
                continue;
            }
            sum += score * weight;
            weights += weight;
        }
        match self.plugin.strategy {
            _ if weights == 0 => 0,
            Strategy::RequestedToCapacityRatio(_) => rounded(sum, weights),
            _ => sum / weights,
        }
    }
}

/// Divides and rounds to the nearest.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "upstream rounds a quotient of small numbers in floating point"
)]
fn rounded(sum: i64, weights: i64) -> i64 {
    (sum as f64 / weights as f64).round() as i64
}

fn share(strategy: &Strategy, requested: i64, total: i64) -> i64 {
    match strategy {
        Strategy::LeastAllocated if requested > total => 0,
        Strategy::LeastAllocated => (total - requested) * MAX_SCORE / total,
        Strategy::MostAllocated => requested.min(total) * MAX_SCORE / total,
        Strategy::RequestedToCapacityRatio(shape) => {
            let used = if requested > total { 100 } else { requested * 100 / total };
            on_curve(shape, used)
        }
    }
}

/// A point of a curve between its given points, in integers; scores of points are out of 10.
fn on_curve(shape: &[(i64, i64)], at: i64) -> i64 {
    let scaled = |score: i64| score * MAX_SCORE / 10;
    let Some(above) = shape.iter().position(|(used, _)| at <= *used) else {
        return shape.last().map_or(0, |(_, score)| scaled(*score));
    };
    if above == 0 {
        return scaled(shape[0].1);
    }
    let ((x0, y0), (x1, y1)) = (shape[above - 1], shape[above]);
    scaled(y0) + (scaled(y1) - scaled(y0)) * (at - x0) / (x1 - x0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Constraints;
    use crate::testing::{cpu_pod, node, pod};
    use serde_json::json;

    fn refusal(cluster: &Cluster, pod: &PodInfo) -> Option<Refusal> {
        let plugin = NodeResourcesFit::default();
        let constraints = Constraints::default();
        let PreFilter::Each(filter) = plugin.pre_filter(Cycle { pod, cluster, constraints: &constraints })
        else {
            panic!("it always has something to say")
        };
        filter.refuses(&Seat::new(cluster.named("n1")?)?)
    }

    fn cluster(over: serde_json::Value) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.set_node("n1", node(over));
        cluster
    }

    #[test]
    fn a_node_that_is_too_small_is_hopeless_a_busy_one_is_not() {
        let mut cluster = cluster(json!({}));
        assert_eq!(refusal(&cluster, &cpu_pod("a", "4")), None);
        let found = refusal(&cluster, &cpu_pod("a", "4001m")).unwrap();
        assert_eq!((found.text().as_str(), found.resolvable), ("Insufficient cpu", false));
        cluster.assume(&cpu_pod("b", "1"), "n1");
        let found = refusal(&cluster, &cpu_pod("a", "4")).unwrap();
        assert_eq!((found.text().as_str(), found.resolvable), ("Insufficient cpu", true));
    }

    #[test]
    fn extended_resources_and_the_number_of_pods_are_counted() {
        let cluster = cluster(json!({"status": {"allocatable": {"pods": "0", "example.com/nic": "1"}}}));
        let containers = json!([{"name": "c", "resources": {"requests": {"example.com/nic": "2"}}}]);
        let found = refusal(&cluster, &pod(json!({"spec": {"containers": containers}}))).unwrap();
        assert_eq!(found.reasons().collect::<Vec<_>>(), ["Too many pods", "Insufficient example.com/nic"]);
    }

    #[test]
    fn only_enough_room_on_the_node_where_it_appeared_wakes_a_pod() {
        let mut cluster = cluster(json!({}));
        let plugin = NodeResourcesFit::default();
        for name in ["a", "b"] {
            cluster.assume(&cpu_pod(name, "2"), "n1");
        }
        let gone = cluster.remove_pod("a").unwrap();
        assert!(plugin.may_help(&gone, &cpu_pod("small", "2"), &cluster));
        assert!(!plugin.may_help(&gone, &cpu_pod("large", "3"), &cluster));
    }

    #[test]
    fn a_curve_is_followed_between_its_points() {
        let shape = [(0, 0), (50, 10), (100, 0)];
        assert_eq!([0, 25, 50, 75, 100].map(|at| on_curve(&shape, at)), [0, 50, 100, 50, 0]);
    }
}
