//! Configurations that are taken, and what is said of those that are not.

use serde_json::json;

use super::*;

#[test]
fn every_field_is_read() {
    let found = read(&json!({
        "interface": {
            "name": "net1", "addresses": ["10.1.0.7/24", "fd00::7/64"], "mtu": 1400,
            "hardwareAddr": "02-00-00-00-00-42", "gsoMaxSize": 1, "groMaxSize": 2, "gsoIPv4MaxSize": 3,
            "groIPv4MaxSize": 4, "forwarding": true, "arpIgnore": 8, "arpAnnounce": 2, "dhcp": false,
            "disableEbpfPrograms": true,
        },
        "routes": [
            {"destination": "10.2.0.9/16", "gateway": "10.1.0.1", "source": "10.1.0.7", "table": 100},
            {"destination": "10.3.0.0/16", "scope": 253},
        ],
        "rules": [{"priority": 7, "source": "10.1.0.7/32", "destination": "10.2.0.0/16", "table": 100}],
        "neighbors": [{"destination": "10.1.0.1", "hardwareAddr": "02:00:00:00:00:01"}],
        "characterDevices": ["vhost-net", "tun"],
        "ethtool": {"features": {"tso": false, "rx-gro": true}, "privateFlags": {"legacy-rx": true}},
    }))
    .unwrap();
    assert_eq!(found.switched.features.get("tso"), Some(&false));
    let files = found.files.iter().map(|file| file.path().display().to_string());
    assert_eq!(files.collect::<Vec<_>>(), ["/dev/vhost-net", "/dev/net/tun"]);
    assert!(found.without_programs);
    assert_eq!(found.switched.private_flags.get("legacy-rx"), Some(&true));
    assert_eq!((found.name.as_deref(), found.mtu), (Some("net1"), Some(1400)));
    assert_eq!(found.addresses.as_deref().map(<[IpNet]>::len), Some(2));
    assert_eq!(found.mac.as_deref(), Some("02:00:00:00:00:42"));
    let sizes = Aggregated { gso: Some(1), gro: Some(2), gso_ipv4: Some(3), gro_ipv4: Some(4) };
    assert_eq!(found.aggregated, sizes);
    assert_eq!((found.forwarding, found.arp_ignore, found.arp_announce), (Some(true), Some(8), Some(2)));
    assert_eq!(found.routes[0].destination.to_string(), "10.2.0.0/16");
    assert_eq!((found.routes[0].table, found.routes[1].scope), (Some(100), Some(253)));
    assert_eq!((found.rules[0].priority, found.rules[0].table), (7, 100));
    assert_eq!(found.neighbours[0].mac, "02:00:00:00:00:01");
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Configuration>(&text).unwrap(), found, "it is written down as it is");
}

#[test]
fn what_is_wrong_is_told_with_its_path() {
    let route = |more: Value| {
        let mut route = json!({"destination": "10.0.0.0/8", "gateway": "10.0.0.1"});
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"routes": [route]})
    };
    for (parameters, path) in [
        (json!([]), ""),
        (json!({"interfaces": {}}), "interfaces"),
        (json!({"interface": {"nam": "x"}}), "interface.nam"),
        (json!({"interface": 7}), "interface"),
        (json!({"interface": {"name": "a name too long"}}), "interface.name"),
        (json!({"interface": {"name": "../x"}}), "interface.name"),
        (json!({"interface": {"name": ".."}}), "interface.name"),
        (json!({"interface": {"addresses": ["10.0.0.1"]}}), "interface.addresses[0]"),
        (json!({"interface": {"mtu": 67}}), "interface.mtu"),
        (json!({"interface": {"mtu": -1}}), "interface.mtu"),
        (json!({"interface": {"hardwareAddr": "01:00:00:00:00:01"}}), "interface.hardwareAddr"),
        (json!({"interface": {"gsoMaxSize": 0}}), "interface.gsoMaxSize"),
        (json!({"interface": {"forwarding": "yes"}}), "interface.forwarding"),
        (json!({"interface": {"arpIgnore": 4}}), "interface.arpIgnore"),
        (json!({"interface": {"arpAnnounce": 3}}), "interface.arpAnnounce"),
        (json!({"interface": {"dhcp": true}}), "interface.dhcp"),
        (json!({"interface": {"vrf": {}}}), "interface.vrf.name"),
        (json!({"interface": {"vrf": {"name": "red", "table": 254}}}), "interface.vrf.table"),
        (json!({"interface": {"vrf": {"name": "red", "tables": 7}}}), "interface.vrf.tables"),
        (json!({"interface": {"name": "red", "vrf": {"name": "red"}}}), "interface.vrf.name"),
        (json!({"interface": {"vrf": {"name": "red"}}, "rules": [{"table": 7}]}), "rules"),
        (
            json!({"interface": {"vrf": {"name": "red", "table": 7}},
                "routes": [{"destination": "10.0.0.0/8", "gateway": "10.0.0.1", "table": 8}]}),
            "routes[0].table",
        ),
        (json!({"interface": {"disableEbpfPrograms": 1}}), "interface.disableEbpfPrograms"),
        (json!({"characterDevices": ["kvm"]}), "characterDevices[0]"),
        (json!({"profile": "fast"}), "profile"),
        (json!({"ethtool": {"feature": {}}}), "ethtool.feature"),
        (json!({"ethtool": {"features": {"tso": "off"}}}), "ethtool.features.tso"),
        (json!({"ethtool": {"privateFlags": {"a flag": true}}}), "ethtool.privateFlags"),
        (json!({"routes": [{"gateway": "10.0.0.1"}]}), "routes[0].destination"),
        (json!({"routes": [{"destination": "10.0.0.0/8"}]}), "routes[0].gateway"),
        (route(json!({"scope": 254})), "routes[0].scope"),
        (route(json!({"scope": 7})), "routes[0].scope"),
        (route(json!({"gateway": "fd00::1"})), "routes[0].gateway"),
        (route(json!({"source": "fd00::1"})), "routes[0].source"),
        (route(json!({"metric": 7})), "routes[0].metric"),
        (json!({"rules": [{"priority": 1}]}), "rules[0].table"),
        (json!({"rules": [{"table": 254}]}), "rules[0].table"),
        (json!({"rules": [{"priority": 32768, "table": 100}]}), "rules[0].priority"),
        (
            json!({"rules": [{"source": "10.0.0.0/8", "destination": "fd00::/8", "table": 9}]}),
            "rules[0].destination",
        ),
        (json!({"neighbors": [{"destination": "10.0.0.1"}]}), "neighbors[0].hardwareAddr"),
        (json!({"neighbors": vec![json!({}); MOST + 1]}), "neighbors"),
    ] {
        let said = read(&parameters).expect_err(&parameters.to_string());
        assert_eq!(said.path, path, "{said}");
    }
}

#[test]
fn a_virtual_router_that_names_no_table_has_dranets() {
    let table = |vrf: Value| read(&json!({"interface": {"vrf": vrf}})).unwrap().vrf.unwrap().table;
    // What Go's hash/fnv says of the names, modulo 1000 and from 1000 on.
    assert_eq!([table(json!({"name": "red"})), table(json!({"name": "vrf0"}))], [1596, 1343]);
    assert_eq!(table(json!({"name": "red", "table": 7})), 7);
}
