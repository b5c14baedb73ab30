//! Policies against the running kernel: pods on one bridge in a namespace of their own, real TCP and UDP between them, and
//! what the plan says of each connection beside what became of it.

#[path = "enforce/world.rs"]
mod world;

use podwire_netplugin::policy::{TCP, UDP};
use serde_json::json;

use self::world::World;

#[test]
fn every_field_of_a_policy_is_enforced() {
    let mut world = World::new();
    let peers = |peers: serde_json::Value| json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": peers}]});
    let ports = |ports: serde_json::Value| json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"ports": ports}]});
    let out = |rules: serde_json::Value| json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Egress"], "egress": rules});
    let net = world.net();
    let specs = [
        json!({"podSelector": {}}),
        json!({"podSelector": {}, "ingress": [{}]}),
        json!({"podSelector": {}, "policyTypes": ["Egress"]}),
        json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{}]}),
        peers(json!([{"podSelector": {"matchLabels": {"pod": "b"}}}])),
        peers(json!([{"namespaceSelector": {"matchLabels": {"ns": "y"}}}])),
        peers(
            json!([{"namespaceSelector": {"matchLabels": {"ns": "y"}}, "podSelector": {"matchLabels": {"pod": "b"}}}]),
        ),
        peers(
            json!([{"namespaceSelector": {"matchLabels": {"ns": "y"}}}, {"podSelector": {"matchLabels": {"pod": "b"}}}]),
        ),
        peers(
            json!([{"namespaceSelector": {"matchExpressions": [{"key": "ns", "operator": "NotIn", "values": ["x"]}]}}]),
        ),
        peers(json!([{"ipBlock": {"cidr": net}}])),
        peers(json!([{"ipBlock": {"cidr": net, "except": [world.block("y/a")]}}])),
        peers(json!([{"ipBlock": {"cidr": "0.0.0.0/0"}}])),
        peers(json!([{"ipBlock": {"cidr": "::/0", "except": ["fd00::/64"]}}])),
        ports(json!([{"port": 80}])),
        ports(json!([{"protocol": "UDP", "port": 80}])),
        ports(json!([{"protocol": "UDP"}])),
        ports(json!([{"port": 79, "endPort": 80}])),
        ports(json!([{"port": "web"}])),
        ports(json!([{"protocol": "UDP", "port": "dns"}, {"port": "web"}])),
        ports(json!([{"protocol": "SCTP", "port": 80}])),
        out(json!([{"to": [{"podSelector": {}}]}])),
        out(json!([{"to": [{"namespaceSelector": {}}], "ports": [{"port": "web"}]}])),
        out(json!([{"ports": [{"port": "web"}, {"protocol": "UDP", "port": 81}]}])),
        out(
            json!([{"to": [{"ipBlock": {"cidr": world.block("y/b")}}, {"podSelector": {}}], "ports": [{"port": 80}, {"protocol": "UDP"}]}]),
        ),
    ];
    for spec in specs {
        world.policy("x/p", &spec);
        world.check(&format!("{spec}"));
    }
    world.gone("x/p");
    world.check("none");
}

#[test]
fn policies_add_up_and_tiers_stand_around_them() {
    let mut world = World::new();
    world.policy("x/deny", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    world.policy("x/in", &json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}]}));
    world.policy("x/out", &json!({"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}));
    world.check("three policies");
    let of = |ns: &str| json!([{"namespaces": {"matchLabels": {"ns": ns}}}]);
    let subject = json!({"namespaces": {"matchLabels": {"ns": "x"}}});
    world.cluster("late", &json!({"tier": "Admin", "priority": 20, "subject": subject,
        "ingress": [{"action": "Accept", "from": of("y")}], "egress": [{"action": "Deny", "to": of("x"), "protocols": [{"udp": {}}]}]}));
    world.check("an admin's policy");
    world.cluster("early", &json!({"tier": "Admin", "priority": 10, "subject": subject,
        "ingress": [{"action": "Pass", "from": of("y"), "protocols": [{"tcp": {"destinationPort": {"number": 81}}}, {"destinationNamedPort": "dns"}]},
                    {"action": "Deny", "from": of("x")}]}));
    world.check("two of them");
    for name in ["x/deny", "x/in", "x/out"] {
        world.gone(name);
    }
    world.cluster("base", &json!({"tier": "Baseline", "priority": 1, "subject": {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": "a"}}}},
        "ingress": [{"action": "Accept", "from": of("x"), "protocols": [{"tcp": {}}]}, {"action": "Deny", "from": [{"namespaces": {}}]}],
        "egress": [{"action": "Deny", "to": [{"networks": [world.net()]}], "protocols": [{"udp": {"destinationPort": {"range": {"start": 81, "end": 90}}}}]}]}));
    world.check("with a baseline");
}

#[test]
fn nodes_are_reached_as_policies_say_and_only_elements_change() {
    let mut world = World::new();
    let subject = json!({"namespaces": {"matchLabels": {"ns": "x"}}});
    let front = json!([{"nodes": {"matchLabels": {"role": "front"}}}]);
    world.node("here", "front");
    assert!(world.reaches("x/a", "node", TCP, 80) && world.reaches("x/a", "node", UDP, 80));
    world.cluster(
        "no-nodes",
        &json!({"tier": "Admin", "priority": 1, "subject": subject,
        "egress": [{"action": "Deny", "to": front, "protocols": [{"tcp": {}}]}]}),
    );
    world.check("a policy about nodes says nothing about pods");
    assert!(!world.passes("x/a", "node", TCP, 80) && world.reaches("x/a", "node", UDP, 80));
    assert!(world.reaches("y/a", "node", TCP, 80) && world.reaches("node", "x/a", TCP, 80));
    world.node("here", "back");
    assert!(world.reaches("x/a", "node", TCP, 80));
    world.node("here", "front");
    assert!(!world.passes("x/a", "node", TCP, 80));
    // Whoever takes the table over finds it as it should be.
    world.check_listing();
    world.restart();
    assert!(world.reaches("x/a", "node", TCP, 80), "it has not been told of that policy");
}

#[test]
fn unknown_addresses_are_closed_and_the_node_is_not() {
    let mut world = World::new();
    assert!(world.reaches("y/b", "x/a", TCP, 80) && world.reaches("node", "x/a", UDP, 80));
    world.stop("x/a");
    assert!(!world.passes("y/b", "x/a", TCP, 80) && !world.passes("x/a", "y/b", UDP, 80));
    assert!(!world.passes("x/a", "node", UDP, 80), "an unknown pod speaks to nobody");
    assert!(world.reaches("node", "x/a", TCP, 80));
    world.run("x/a");
    assert!(world.reaches("y/b", "x/a", TCP, 80) && world.reaches("x/a", "node", UDP, 80));
    // Whoever takes an address that is not its own is closed, too.
    world.spoof("x/b", "192.0.2.77");
    assert!(!world.passes_from("x/b", "192.0.2.77", "y/b"));
}

#[test]
fn a_table_is_taken_over_without_a_gap() {
    let mut world = World::new();
    world.policy("x/p", &json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}));
    let refused = world.bombard("y/b", "x/a");
    for round in 0..20 {
        world.restart();
        world.policy("x/q", &json!({"podSelector": {"matchLabels": {"pod": "b"}}, "ingress": [{"ports": [{"port": round + 1}]}]}));
        assert!(world.reaches("x/b", "x/a", TCP, 80));
    }
    let (sent, arrived) = refused.stop();
    assert!(sent > 100 && arrived == 0, "{arrived} of {sent} packets that a policy forbids got through");
}

#[test]
fn what_the_kernel_has_is_what_was_planned() {
    let mut world = World::new();
    world.policy("x/p", &json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": "web"}, {"port": 1, "endPort": 9}]}],
        "egress": [{"to": [{"namespaceSelector": {}}], "ports": [{"port": "web"}, {"protocol": "UDP"}]}]}));
    world.check_listing();
    world.check_with_nft();
}
