//! What a device becomes in its pod: what it is on the node, and what its claim says of it.

use ipnet::IpNet;
use podwire_linux::rtnl;
use podwire_netdev::{Inside, Route, Rule, Snapshot};

use super::configuration::Configuration;

/// Tables that every namespace has rules for.
const OWN_TABLES: std::ops::RangeInclusive<u32> = 253..=255;
const MAIN: u32 = 254;

/// The device in its pod. `snapshot` is what it is on the node, if it is one of the node's; `rules` are the node's.
pub(crate) fn inside(
    wanted: &Configuration,
    snapshot: Option<&Snapshot>,
    rules: &[rtnl::Rule],
    fallback: &str,
) -> Inside {
    let named = wanted.name.clone().or_else(|| snapshot.map(|own| own.name.clone()));
    let addresses = match (&wanted.addresses, snapshot) {
        (Some(given), _) => given.clone(),
        (None, Some(own)) => own.addresses.clone(),
        (None, None) => Vec::new(),
    };
    let table = wanted.vrf.as_ref().map(|vrf| vrf.table);
    // In a router of its own all routes are in its one table.
    let placed = |route: &Route| Route { table: table.or(route.table), ..route.clone() };
    let said: Vec<Route> = wanted.routes.iter().map(placed).collect();
    let own = snapshot.iter().flat_map(|own| &own.routes);
    let own = own.filter(|route| holds(route, &addresses)).map(placed);
    let own: Vec<Route> = own.filter(|route| !is_said(route, &said)).collect();
    let routes = [said, own].concat();
    let mut all_rules = wanted.rules.clone();
    let chosen = |rule: &&rtnl::Rule| {
        wanted.vrf.is_none()
            && !OWN_TABLES.contains(&rule.table)
            && routes.iter().any(|route| route.table == Some(rule.table))
    };
    for rule in rules.iter().filter(chosen) {
        let rule = Rule { priority: rule.priority, from: rule.from, to: rule.to, table: rule.table };
        if !all_rules.contains(&rule) {
            all_rules.push(rule);
        }
    }
    let mut neighbours = wanted.neighbours.clone();
    for own in snapshot.iter().flat_map(|own| &own.neighbours) {
        if !neighbours.iter().any(|said| said.ip == own.ip) {
            neighbours.push(own.clone());
        }
    }
    Inside {
        name: named.unwrap_or_else(|| fallback.to_owned()),
        mtu: wanted.mtu,
        mac: wanted.mac.clone(),
        aggregated: wanted.aggregated,
        settings: settings(wanted, &addresses),
        vrf: wanted.vrf.clone(),
        switched: wanted.switched.clone(),
        without_programs: wanted.without_programs,
        // What the claim has of it, and not what it says.
        bandwidth: None,
        addresses,
        routes,
        rules: all_rules,
        neighbours,
    }
}

fn settings(wanted: &Configuration, addresses: &[IpNet]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut put = |key: &str, value: u32| all.push((format!("net/{key}"), value.to_string()));
    if let Some(value) = wanted.arp_ignore {
        put("ipv4/conf/{}/arp_ignore", value);
    }
    if let Some(value) = wanted.arp_announce {
        put("ipv4/conf/{}/arp_announce", value);
    }
    if let Some(on) = wanted.forwarding {
        put("ipv4/conf/{}/forwarding", u32::from(on));
        if addresses.iter().any(|net| net.addr().is_ipv6()) {
            put("ipv6/conf/{}/forwarding", u32::from(on));
        }
    }
    all
}

/// Whether the pod is said another way to the same destination.
fn is_said(route: &Route, said: &[Route]) -> bool {
    let table = |route: &Route| route.table.unwrap_or(MAIN);
    said.iter().any(|one| one.destination == route.destination && table(one) == table(route))
}

/// Whether a route of the node still makes sense with these addresses.
fn holds(route: &Route, addresses: &[IpNet]) -> bool {
    let local = |net: &IpNet| matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local());
    let reached = route.onlink
        || route.gateway.is_none_or(|by| {
            addresses.iter().any(|net| net.contains(&by))
                || matches!(by, std::net::IpAddr::V6(by) if by.is_unicast_link_local())
        });
    let from = route.source.is_none_or(|from| addresses.iter().any(|net| net.addr() == from));
    !local(&route.destination) && reached && from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::configuration::read;
    use serde_json::json;

    fn snapshot() -> Snapshot {
        let route = |to: &str, by: &str, table: Option<u32>| json!({"destination": to, "gateway": by, "table": table});
        serde_json::from_value(json!({
            "name": "eth1", "index": 7, "mtu": 1500, "tx_queue": 1000, "up": true,
            "addresses": ["192.0.2.7/24"],
            "routes": [route("198.51.100.0/24", "192.0.2.1", None), route("203.0.113.0/24", "192.0.2.1", Some(100))],
            "neighbours": [{"ip": "192.0.2.1", "mac": "02:00:00:00:00:01"}],
        }))
        .unwrap()
    }

    fn rules() -> Vec<rtnl::Rule> {
        let rule = |table| rtnl::Rule { priority: table, from: None, to: None, table };
        vec![rule(254), rule(100), rule(101)]
    }

    #[test]
    fn what_is_not_said_is_as_on_the_node() {
        let found = inside(&Configuration::default(), Some(&snapshot()), &rules(), "net0");
        assert_eq!((found.name.as_str(), found.mtu), ("eth1", None));
        assert_eq!(found.addresses, snapshot().addresses);
        assert_eq!((found.routes, found.neighbours), (snapshot().routes, snapshot().neighbours));
        assert_eq!(found.rules.iter().map(|rule| rule.table).collect::<Vec<_>>(), [100]);
        assert_eq!(inside(&Configuration::default(), None, &rules(), "net0").name, "net0");
    }

    #[test]
    fn what_is_said_takes_the_place_of_what_was() {
        let said = json!({
            "interface": {"name": "net1", "addresses": ["192.0.2.9/24"], "forwarding": true, "arpIgnore": 1},
            "routes": [{"destination": "198.51.100.0/24", "gateway": "192.0.2.2"}],
        });
        let found = inside(&read(&said).unwrap(), Some(&snapshot()), &rules(), "net0");
        let ways: Vec<_> = found.routes.iter().map(|route| route.gateway.unwrap().to_string()).collect();
        assert_eq!(
            (found.name.as_str(), ways),
            ("net1", vec!["192.0.2.2".to_owned(), "192.0.2.1".to_owned()])
        );
        let keys: Vec<_> = found.settings.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["net/ipv4/conf/{}/arp_ignore", "net/ipv4/conf/{}/forwarding"]);
        let routed =
            read(&json!({"interface": {"vrf": {"name": "red", "table": 7}}, "routes": said["routes"]}));
        let found = inside(&routed.unwrap(), Some(&snapshot()), &rules(), "net0");
        let tables: Vec<_> = found.routes.iter().map(|route| route.table).collect();
        assert_eq!((tables, found.rules.len()), (vec![Some(7), Some(7)], 0), "all are in the router's table");
        // With other addresses the node's next hops cannot be reached.
        let elsewhere = read(&json!({"interface": {"addresses": ["10.0.0.1/8"]}})).unwrap();
        let found = inside(&elsewhere, Some(&snapshot()), &rules(), "net0");
        assert!(found.routes.is_empty() && found.rules.is_empty());
    }
}
