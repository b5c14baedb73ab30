//! How much of the cluster is not ready, zone by zone, and what that means for driving pods out. Pure.
//!
//! When every node seems down, it is rather the network or this controller that is: nobody is driven out then. The
//! figures are upstream's: <https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction>.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Node;

/// A node with this label does not count.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
/// One node per this many milliseconds and zone.
const PACE_MS: u64 = 10_000;
/// The same in a large zone much of which is not ready.
const SLOW_PACE_MS: u64 = 100_000;
/// Zones up to this size drive nobody out while much of them is not ready.
const SMALL_ZONE: usize = 50;

/// Whether pods may be driven off one more node of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driving {
    /// No node is ready: nobody is driven out, and those that were being driven out may stay.
    Off,
    /// No further node.
    Held,
    /// One node per this many milliseconds.
    Paced(u64),
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Count {
    ready: usize,
    unready: usize,
}

/// How many nodes of each zone are ready.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    nodes: HashMap<String, (String, bool)>,
    counts: BTreeMap<String, Count>,
}

/// The zone of a node; nodes that do not say one share a zone.
pub(crate) fn zone(node: &Node) -> String {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let region = label("topology.kubernetes.io/region").unwrap_or_default();
    let zone = label("topology.kubernetes.io/zone").unwrap_or_default();
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

/// Whether the node counts.
pub(crate) fn counts(node: &Node) -> bool {
    !node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED))
}

impl Zones {
    /// Takes in where a node is and whether it is ready, or that it does not count any more.
    pub(crate) fn set(&mut self, name: &str, now: Option<(&str, bool)>) {
        let count = |counts: &mut BTreeMap<String, Count>, zone: &str, ready: bool, by: isize| {
            let count = counts.entry(zone.to_owned()).or_default();
            let field = if ready { &mut count.ready } else { &mut count.unready };
            *field = field.saturating_add_signed(by);
            if *count == Count::default() {
                counts.remove(zone);
            }
        };
        if let Some((zone, ready)) = self.nodes.remove(name) {
            count(&mut self.counts, &zone, ready, -1);
        }
        if let Some((zone, ready)) = now {
            self.nodes.insert(name.to_owned(), (zone.to_owned(), ready));
            count(&mut self.counts, zone, ready, 1);
        }
    }

    /// Whether there are nodes and none of them is ready.
    pub(crate) fn all_down(&self) -> bool {
        !self.counts.is_empty() && self.counts.values().all(|count| count.ready == 0)
    }

    /// What holds for one more node of the zone.
    pub(crate) fn driving(&self, zone: &str) -> Driving {
        if self.all_down() {
            return Driving::Off;
        }
        let none = Count::default();
        let Count { ready, unready } = self.counts.get(zone).unwrap_or(&none);
        let much = *unready > 2 && unready * 100 >= (ready + unready) * 55;
        match (*ready, much) {
            // A whole zone that is down while others are not really is down.
            (0, _) | (_, false) => Driving::Paced(PACE_MS),
            (_, true) if ready + unready > SMALL_ZONE => Driving::Paced(SLOW_PACE_MS),
            (_, true) => Driving::Held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(nodes: &[(&str, usize, usize)]) -> Zones {
        let mut zones = Zones::default();
        for (zone, ready, unready) in nodes {
            (0..*ready).for_each(|n| zones.set(&format!("{zone}-up{n}"), Some((zone, true))));
            (0..*unready).for_each(|n| zones.set(&format!("{zone}-down{n}"), Some((zone, false))));
        }
        zones
    }

    #[test]
    fn nobody_is_driven_out_when_no_node_of_any_zone_is_ready() {
        assert_eq!(zones(&[("a", 0, 1)]).driving("a"), Driving::Off);
        assert_eq!(zones(&[("a", 0, 3), ("b", 0, 1)]).driving("b"), Driving::Off);
        assert_eq!(zones(&[("a", 0, 3), ("b", 1, 0)]).driving("a"), Driving::Paced(PACE_MS));
        assert!(!Zones::default().all_down(), "no nodes are not a disaster");
    }

    #[test]
    fn a_zone_much_of_which_is_down_is_slow_and_a_small_one_waits() {
        assert_eq!(zones(&[("a", 8, 2)]).driving("a"), Driving::Paced(PACE_MS));
        assert_eq!(zones(&[("a", 1, 2)]).driving("a"), Driving::Paced(PACE_MS), "two nodes are not much");
        assert_eq!(zones(&[("a", 2, 3)]).driving("a"), Driving::Held);
        assert_eq!(zones(&[("a", 30, 36)]).driving("a"), Driving::Paced(PACE_MS), "54 %");
        assert_eq!(zones(&[("a", 20, 40)]).driving("a"), Driving::Paced(SLOW_PACE_MS));
    }

    #[test]
    fn a_node_that_moves_recovers_or_goes_is_counted_anew() {
        let mut zones = zones(&[("a", 0, 1)]);
        zones.set("a-down0", Some(("b", true)));
        assert_eq!(zones.driving("b"), Driving::Paced(PACE_MS));
        zones.set("a-down0", Some(("b", false)));
        assert!(zones.all_down());
        zones.set("a-down0", None);
        assert!(!zones.all_down() && zones.counts.is_empty());
    }
}
