//! The plan, asked by walking its tables as the kernel would, in both families.

use serde_json::{Value, json};

use super::evaluate::{Flow, judge};
use super::*;
use crate::policy::{Direction, TCP, UDP};

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey { namespace: namespace.into(), name: name.into() }
}

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

struct World {
    planner: Planner,
}

impl World {
    fn new() -> World {
        let mut planner = Planner::new("here", &[Family::V4, Family::V6]);
        for name in ["x", "y", "z"] {
            planner.namespace(name, labels(&format!("ns={name}")));
        }
        let mut world = World { planner };
        for (at, name) in ["x/a", "x/b", "y/a", "y/b", "z/a", "z/b"].into_iter().enumerate() {
            world.run(name, &[&format!("10.0.0.{}", at + 1), &format!("fd00::{}", at + 1)]);
        }
        world
    }

    fn run(&mut self, name: &str, ips: &[&str]) {
        let key = key(name);
        let own = labels(&format!("pod={}", key.name));
        let ports = vec![("web".to_owned(), TCP, 80), ("dns".to_owned(), UDP, 53)];
        let pod = Pod { uid: name.into(), labels: own.clone(), node: "here".into(), ports, ..Pod::default() };
        self.planner.pod(key.clone(), pod);
        let addresses = ips.iter().map(|text| ip(text)).collect();
        self.planner.sandbox(Sandbox { id: name.into(), pod: key, uid: name.into(), labels: own, addresses });
    }

    fn policy(&mut self, name: &str, spec: Value) {
        let key = key(name);
        let object = json!({"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec});
        self.planner.policy(Policy::read(&serde_json::from_value(object).unwrap()));
    }

    fn cluster(&mut self, name: &str, spec: Value) {
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.planner.cluster_policy(ClusterPolicy::read(&object).unwrap());
    }

    fn node(&mut self, name: &str, own: &str, ips: &[&str]) {
        let addresses = ips.iter().map(|text| ip(text)).collect();
        self.planner.node(name, Node { labels: labels(own), addresses });
    }

    fn address(&self, name: &str) -> IpAddr {
        self.planner.sandboxes.get(name).map_or_else(|| ip(name), |one| one.addresses[0])
    }

    fn passes(&self, from: &str, to: &str, protocol: u8, port: u16) -> bool {
        let both = |source, destination| {
            let flow = Flow { source, destination, protocol, port: Some(port) };
            Direction::BOTH.iter().all(|d| judge(&self.planner.tables, &[], flow, *d).allowed)
        };
        let first = both(self.address(from), self.address(to));
        if let (Some(from), Some(to)) = (self.planner.sandboxes.get(from), self.planner.sandboxes.get(to)) {
            assert_eq!(both(from.addresses[1], to.addresses[1]), first, "both families are alike");
        }
        first
    }

    fn tcp(&self, from: &str, to: &str) -> bool {
        self.passes(from, to, TCP, 80)
    }
}

#[test]
fn who_is_governed_is_closed_but_for_what_is_allowed() {
    let mut world = World::new();
    assert!(world.tcp("y/a", "x/a"));
    world.policy("x/deny", json!({"podSelector": {}}));
    assert!(!world.tcp("y/a", "x/a") && !world.tcp("x/b", "x/a") && world.tcp("x/a", "y/a"));
    world.policy("x/allow", json!({
        "podSelector": {"matchLabels": {"pod": "a"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}], "ports": [{"port": 80}, {"port": 90, "endPort": 99}]}],
    }));
    assert!(world.tcp("x/b", "x/a") && !world.tcp("y/b", "x/a") && !world.tcp("x/a", "x/b"));
    assert!(!world.passes("x/b", "x/a", TCP, 81) && !world.passes("x/b", "x/a", UDP, 80));
    assert!(world.passes("x/b", "x/a", TCP, 95) && !world.passes("x/b", "x/a", TCP, 100));
    world.planner.policy_gone(&key("x/deny"));
    assert!(world.tcp("y/a", "x/b") && !world.tcp("y/a", "x/a"));
    world.planner.policy_gone(&key("x/allow"));
    assert!(world.tcp("y/a", "x/a"));
}

#[test]
fn everything_is_let_go_when_the_last_policy_goes() {
    let mut world = World::new();
    let before = (world.planner.tables.elements(), world.planner.peers.len());
    let peers = json!([
        {"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"ns": "y"}}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/24"]}},
    ]);
    let ports = json!([{"port": "web"}, {"port": 8080}, {"protocol": "UDP", "port": "dns"}]);
    let full = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": ports}], "egress": [{"to": peers, "ports": ports}, {"ports": ports}]});
    world.planner.take();
    for spec in
        [full.clone(), json!({"podSelector": {"matchLabels": {"pod": "a"}}, "egress": [{"to": peers}]}), full]
    {
        world.policy("x/p", spec);
        assert!(!world.planner.take().is_empty());
    }
    world.planner.policy_gone(&key("x/p"));
    let change = world.planner.take();
    assert!(
        change.new_sets.is_empty() && change.new_chains.is_empty() && change.added.is_empty(),
        "{change:?}"
    );
    assert_eq!((world.planner.tables.elements(), world.planner.peers.len()), before);
    assert!(
        world.planner.block_users.is_empty() && world.planner.placed.values().all(|one| one.peers.is_empty())
    );
}

#[test]
fn a_named_port_is_the_destinations() {
    let mut world = World::new();
    world.policy("x/in", json!({"podSelector": {}, "ingress": [{"ports": [{"port": "web"}]}]}));
    assert!(
        world.tcp("y/a", "x/a")
            && !world.passes("y/a", "x/a", TCP, 81)
            && !world.passes("y/a", "x/a", UDP, 80)
    );
    world.policy("y/out", json!({"podSelector": {}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}], "ports": [{"port": "web"}]}]}));
    assert!(world.tcp("y/a", "z/a") && !world.tcp("y/a", "x/a"));
    // Another peer calls another port so.
    let mut pod = world.planner.pods[&key("z/a")].clone();
    pod.ports = vec![("web".into(), TCP, 8080)];
    world.planner.pod(key("z/a"), pod);
    assert!(!world.tcp("y/a", "z/a") && world.passes("y/a", "z/a", TCP, 8080) && world.tcp("y/a", "z/b"));
}

#[test]
fn a_pod_that_changes_is_a_few_elements() {
    let mut world = World::new();
    for number in 0..100 {
        let other = format!("pod-{number}");
        world.policy(
            &format!("x/p{number}"),
            json!({"podSelector": {},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": other}}}]}]}),
        );
    }
    world.planner.take();
    let pod = Pod {
        uid: "u".into(),
        labels: labels("pod=pod-7"),
        node: "there".into(),
        addresses: vec![ip("10.9.0.1")],
        ..Pod::default()
    };
    world.planner.pod(key("x/remote"), pod.clone());
    let change = world.planner.take();
    assert_eq!((change.size(), change.added.len()), (1, 1), "{change:?}");
    assert!(world.tcp("10.9.0.1", "x/a"));
    world.planner.pod(key("x/remote"), Pod { ended: true, ..pod });
    assert_eq!(world.planner.take().size(), 1);
    assert!(!world.tcp("10.9.0.1", "x/a"));
    // A replica of what runs here already: the same group, so no chain.
    world.run("x/c", &["10.0.1.9"]);
    let change = world.planner.take();
    assert!(change.chains.is_empty() && change.new_sets.is_empty() && change.size() == 2, "{change:?}");
}

#[test]
fn labels_of_pods_and_namespaces_may_change() {
    let mut world = World::new();
    world.policy(
        "x/p",
        json!({"podSelector": {"matchLabels": {"pod": "a"}},
        "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}]}]}),
    );
    assert!(!world.tcp("y/a", "x/a"));
    world.planner.namespace("y", labels("ns=y,team=red"));
    assert!(world.tcp("y/a", "x/a") && !world.tcp("z/a", "x/a"));
    world.planner.namespace("y", labels("ns=y"));
    assert!(!world.tcp("y/a", "x/a"));
    let mut pod = world.planner.pods[&key("x/a")].clone();
    pod.labels = labels("pod=other");
    world.planner.pod(key("x/a"), pod);
    assert!(world.tcp("y/a", "x/a"), "it is no longer governed");
}

#[test]
fn a_pod_of_this_node_is_where_the_runtime_says() {
    let mut world = World::new();
    world.policy("x/p", json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "y"}}}]}]}));
    assert!(world.tcp("y/a", "x/a"));
    let mut pod = world.planner.pods[&key("y/a")].clone();
    pod.addresses = vec![ip("10.0.0.3")];
    world.planner.pod(key("y/a"), pod);
    let gone = world.planner.sandbox_gone("y/a");
    assert_eq!(gone.len(), 2);
    assert!(!world.tcp("10.0.0.3", "x/a"), "what the API server still says is not believed");
    world.run("z/new", &["10.0.0.3", "fd00::3"]);
    assert!(!world.tcp("z/new", "x/a"));
    // Another pod got an address whose owner's end was not told.
    world.run("x/late", &["10.0.0.3", "fd00::3"]);
    assert!(!world.planner.sandboxes.contains_key("z/new") && !world.tcp("z/a", "x/late"));
}

#[test]
fn host_network_pods_are_nobodys_peer() {
    let mut world = World::new();
    world.policy("x/p", json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}));
    let pod = |host_network| Pod {
        uid: "h".into(),
        node: "there".into(),
        addresses: vec![ip("10.7.0.1")],
        host_network,
        ..Pod::default()
    };
    world.planner.pod(key("y/host"), pod(true));
    assert!(!world.tcp("10.7.0.1", "x/a"));
    world.planner.pod(key("y/host"), pod(false));
    assert!(world.tcp("10.7.0.1", "x/a"));
}

#[test]
fn blocks_match_pods_too_and_exceptions_are_their_own() {
    let mut world = World::new();
    world.policy("x/p", json!({"podSelector": {}, "ingress": [{"from": [
        {"ipBlock": {"cidr": "10.0.0.0/24", "except": ["10.0.0.4/32"]}}, {"ipBlock": {"cidr": "fd00::/16", "except": ["fd00::4/128"]}},
    ]}]}));
    assert!(world.tcp("y/a", "x/a") && !world.tcp("y/b", "x/a"));
    assert!(!world.passes("9.9.9.9", "x/a", TCP, 80));
    world.policy("x/q", json!({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.4/32"}}, {"ipBlock": {"cidr": "fd00::4/128"}}]}]}));
    assert!(world.tcp("y/b", "x/a"));
}

#[test]
fn tiers_come_in_their_order() {
    let mut world = World::new();
    let from = |ns: &str| json!([{"namespaces": {"matchLabels": {"ns": ns}}}]);
    let subject = json!({"namespaces": {"matchLabels": {"ns": "x"}}});
    world.cluster(
        "base",
        json!({"tier": "Baseline", "priority": 1, "subject": subject,
        "ingress": [{"action": "Deny", "from": from("y")}, {"action": "Deny", "from": from("z")}]}),
    );
    assert!(!world.tcp("y/a", "x/a") && world.tcp("x/b", "x/a"));
    world.cluster(
        "b",
        json!({"tier": "Admin", "priority": 5, "subject": subject,
        "ingress": [{"action": "Pass", "from": from("z")}, {"action": "Accept", "from": from("y")}]}),
    );
    assert!(world.tcp("y/a", "x/a") && !world.tcp("z/a", "x/a"), "passed on to the baseline");
    world.cluster("a", json!({"tier": "Admin", "priority": 4, "subject": subject,
        "ingress": [{"action": "Deny", "from": from("y"), "protocols": [{"tcp": {"destinationPort": {"number": 80}}}]}]}));
    assert!(!world.tcp("y/a", "x/a") && world.passes("y/a", "x/a", TCP, 81));
    world.policy("x/p", json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}]}]}));
    assert!(world.tcp("z/a", "x/a") && !world.tcp("x/b", "x/a"), "policies are final for those they govern");
    world.planner.cluster_policy_gone("a");
    world.planner.cluster_policy_gone("b");
    world.planner.policy_gone(&key("x/p"));
    assert!(!world.tcp("y/a", "x/a"));
    world.planner.cluster_policy_gone("base");
    assert!(world.tcp("y/a", "x/a"));
    assert_eq!(world.planner.peers.len(), 0);
}

/// Whether nothing differs but what is in sets.
fn is_elements_only(change: &Change) -> bool {
    let elements =
        Change { added: change.added.clone(), removed: change.removed.clone(), ..Change::default() };
    *change == elements && !change.is_empty()
}

#[test]
fn nodes_are_met_under_their_addresses_and_change_nothing_but_elements() {
    let mut world = World::new();
    world.node("one", "role=front", &["192.0.2.1", "2001:db8::1", "198.51.100.1"]);
    world.node("two", "role=back", &["192.0.2.2", "2001:db8::2"]);
    world.cluster("c", json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {"matchLabels": {"ns": "x"}}},
        "egress": [{"action": "Deny", "to": [{"nodes": {"matchLabels": {"role": "front"}}}], "protocols": [{"tcp": {}}]},
                   {"action": "Deny", "to": [{"nodes": {"matchLabels": {"role": "front"}}}], "protocols": [{"destinationNamedPort": "dns"}]}]}));
    let reached = |world: &World| -> Vec<&str> {
        let v6 = |to: &str| {
            let source = world.planner.sandboxes["x/a"].addresses[1];
            let flow = Flow { source, destination: ip(to), protocol: TCP, port: Some(80) };
            judge(&world.planner.tables, &[], flow, Direction::Egress).allowed
        };
        let all = ["192.0.2.1", "198.51.100.1", "2001:db8::1", "192.0.2.2", "2001:db8::2", "192.0.2.3"];
        let passes = |to: &&str| if to.contains(':') { v6(to) } else { world.tcp("x/a", to) };
        all.into_iter().filter(passes).collect()
    };
    assert_eq!(reached(&world), ["192.0.2.2", "2001:db8::2", "192.0.2.3"]);
    assert!(world.tcp("y/a", "192.0.2.1") && world.passes("x/a", "192.0.2.1", UDP, 53));
    world.planner.take();
    // Labels, addresses, another node, its end: elements only, and as few as can be.
    world.node("two", "role=front", &["192.0.2.2", "2001:db8::2"]);
    let change = world.planner.take();
    assert!(is_elements_only(&change) && change.size() == 2, "{change:?}");
    assert_eq!(reached(&world), ["192.0.2.3"]);
    world.node("two", "role=front", &["192.0.2.3", "2001:db8::2"]);
    let change = world.planner.take();
    assert!(is_elements_only(&change) && change.size() == 2, "{change:?}");
    assert_eq!(reached(&world), ["192.0.2.2"]);
    world.node("three", "role=front", &["192.0.2.3"]);
    assert!(world.planner.take().is_empty(), "an address that another has too");
    world.planner.node_gone("two");
    world.planner.keep_nodes(&["two".to_owned(), "three".to_owned()].into());
    assert!(is_elements_only(&world.planner.take()));
    assert_eq!(reached(&world), ["192.0.2.1", "198.51.100.1", "2001:db8::1", "192.0.2.2", "2001:db8::2"]);
    // The last policy that asks takes the sets away.
    world.planner.cluster_policy_gone("c");
    assert_eq!((world.planner.nodes.len(), world.tcp("x/a", "192.0.2.3")), (0, true));
    assert_eq!(world.planner.take().gone_sets.len(), 2);
}

#[test]
fn many_peers_on_many_ports_are_as_long_as_they_are_written() {
    let mut world = World::new();
    let peers: Vec<Value> = (0..50).map(|n| json!({"ipBlock": {"cidr": format!("10.{n}.0.0/16")}})).collect();
    let ports: Vec<Value> = (1..60).map(|n| json!({"port": n})).collect();
    world.planner.take();
    world.policy("x/p", json!({"podSelector": {}, "ingress": [{"from": peers, "ports": ports}]}));
    let rules: usize = world.planner.take().chains.iter().map(|(_, rules)| rules.len()).sum();
    assert!(rules < 300, "{rules}");
    assert!(world.passes("10.49.1.1", "x/a", TCP, 59) && !world.passes("10.49.1.1", "x/a", TCP, 60));
}

/// A kernel that refuses what the real one would: what is named must be there, and what is named may not go.
#[derive(Default, PartialEq, Debug)]
struct Kernel {
    sets: BTreeMap<String, BTreeMap<Key, Option<podwire_linux::nft::Verdict>>>,
    chains: BTreeMap<String, Vec<tables::Rule>>,
}

impl Kernel {
    fn apply(&mut self, change: Change) {
        let steps = change.steps().map_or_else(|| vec![change], Vec::from);
        for step in steps {
            // Nobody is moved to a chain that is not there yet.
            for (key, way) in step.added.iter().flat_map(|(set, all)| {
                let before = self.sets.get(set);
                all.iter().filter(move |one| before.is_some_and(|set| set.contains_key(&one.0)))
            }) {
                let Some(podwire_linux::nft::Verdict::Jump(to) | podwire_linux::nft::Verdict::Goto(to)) = way
                else {
                    continue;
                };
                assert!(self.chains.contains_key(to), "{key:?} is moved to {to}");
            }
            self.step(step);
        }
    }

    fn step(&mut self, change: Change) {
        for set in change.new_sets {
            assert!(self.sets.insert(set.name.clone(), BTreeMap::new()).is_none(), "{} is there", set.name);
        }
        for (name, _) in change.new_chains {
            assert!(self.chains.insert(name.clone(), Vec::new()).is_none(), "{name} is there");
        }
        for (set, keys) in change.removed {
            let set = self.sets.get_mut(&set).expect("a set that is there");
            assert!(keys.iter().all(|key| set.remove(key).is_some()), "what is removed was there");
        }
        for (name, rules) in change.chains {
            *self.chains.get_mut(&name).expect("a chain that is there") = rules;
        }
        for (set, elements) in change.added {
            let set = self.sets.get_mut(&set).expect("a set that is there");
            for (key, way) in elements {
                assert!(set.insert(key, way).is_none(), "what is added was not there");
            }
        }
        for name in change.gone_chains {
            assert_eq!(self.chains.remove(&name), Some(Vec::new()), "{name} goes empty");
        }
        for name in change.gone_sets {
            assert_eq!(self.sets.remove(&name), Some(BTreeMap::new()), "{name} goes empty");
        }
        let named = self.chains.values().flatten().flat_map(tables::Rule::names);
        for name in named {
            assert!(self.sets.contains_key(name) || self.chains.contains_key(name), "{name} is named");
        }
    }
}

#[test]
fn a_policy_is_loaded_with_the_first_pod_that_it_governs_and_goes_with_the_last() {
    let mut world = World::new();
    let mut kernel = Kernel::default();
    kernel.apply(world.planner.take());
    let idle = (kernel.sets.len(), kernel.chains.len());
    let spec = json!({"podSelector": {"matchLabels": {"pod": "c"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}], "ports": [{"port": "web"}]}]});
    world.policy("x/p", spec);
    kernel.apply(world.planner.take());
    assert_eq!((kernel.sets.len(), kernel.chains.len()), idle, "it governs nobody here");
    // Its peers change while the kernel does not know them.
    world.planner.sandbox_gone("x/b");
    world.run("x/b", &["10.0.0.99", "fd00::99"]);
    world.run("x/c", &["10.0.1.1", "fd00::1:1"]);
    kernel.apply(world.planner.take());
    let peers: Vec<&Key> = kernel
        .sets
        .iter()
        .filter(|(name, _)| name.starts_with("p4"))
        .flat_map(|(_, set)| set.keys())
        .collect();
    assert_eq!(peers, [&Key::Address(ip("10.0.0.99"))]);
    assert!(world.tcp("x/b", "x/c") && !world.tcp("x/a", "x/c"));
    world.planner.sandbox_gone("x/c");
    world.planner.pod_gone(&key("x/c"));
    kernel.apply(world.planner.take());
    assert_eq!((kernel.sets.len(), kernel.chains.len()), idle, "nobody is governed any more");
}

#[test]
fn what_was_changed_step_by_step_is_what_would_be_loaded_at_once() {
    let mut world = World::new();
    let mut kernel = Kernel::default();
    let mut dice = 0x9e37_79b9_u32;
    let mut roll = |most: u32| {
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        dice % most
    };
    for _ in 0..600 {
        let (ns, pod) = (["x", "y"][roll(2) as usize], ["a", "b", "c", "d"][roll(4) as usize]);
        let name = format!("{ns}/{pod}");
        let last = roll(200) + 1;
        match roll(9) {
            7 => world.node(ns, &format!("pod={pod}"), &[&format!("10.0.3.{last}"), "fd00::3"]),
            8 => world.planner.node_gone(ns),
            0 => world.run(&name, &[&format!("10.0.2.{last}"), &format!("fd00::2:{last}")]),
            1 => {
                world.planner.sandbox_gone(&name);
                world.planner.pod_gone(&key(&name));
            }
            2 => world.planner.policy_gone(&key(&name)),
            3 => {
                let subject = ["a", "b", "c", "e"][roll(4) as usize];
                let subject = json!({"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": subject}}}});
                world.cluster(
                    "clusterwide",
                    json!({"subject": subject, "tier": "Admin", "priority": 5,
                    "ingress": [{"action": "Deny", "from": [{"namespaces": {"matchLabels": {"ns": ns}}}]}],
                    "egress": [{"action": "Deny", "to": [{"nodes": {"matchLabels": {"pod": pod}}}]}]}),
                );
            }
            4 => world.planner.cluster_policy_gone("clusterwide"),
            _ => {
                let (subject, peer) =
                    (["a", "b", "c", "e"][roll(4) as usize], ["a", "b", "c"][roll(3) as usize]);
                let peers = json!([{"podSelector": {"matchLabels": {"pod": peer}}},
                    {"ipBlock": {"cidr": "10.0.0.0/8", "except": [format!("10.{}.0.0/16", roll(3))]}}]);
                let ports = json!([{"port": "web"}, {"port": 1000 + roll(3)}]);
                world.policy(
                    &name,
                    json!({"podSelector": {"matchLabels": {"pod": subject}},
                    "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": peers, "ports": ports}],
                    "egress": [{"to": peers}]}),
                );
            }
        }
        if roll(3) > 0 {
            kernel.apply(world.planner.take());
        }
    }
    kernel.apply(world.planner.take());
    let mut anew = Kernel::default();
    anew.apply(world.planner.against(&Found::default()));
    assert_eq!(kernel, anew);
    assert!(kernel.chains.len() > 4, "something is governed: {}", kernel.chains.len());
}
