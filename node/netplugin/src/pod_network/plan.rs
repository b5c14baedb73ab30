//! The steps that bring a PodNetwork about in a pod, from what it wants and what the pod has. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use podwire_linux::rtnl::{Mac, Route, Rule};

use super::mesh::{self, Redirection};
use super::spec::{Mistake, PodNetwork};

/// What the pod has before.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Index and MTU of the interface, if there is one of that name.
    pub interface: Option<(u32, u32)>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// The next hops of its default routes: the node, from which probes come.
    pub gateways: Vec<IpAddr>,
}

/// One thing to do; each can be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The largest packet of a link, and what it was.
    Mtu {
        /// The link.
        link: u32,
        /// What it shall be.
        mtu: u32,
        /// What it was.
        before: u32,
    },
    /// A setting, by its key.
    Sysctl {
        /// The key below `/proc/sys`.
        key: String,
        /// What it shall be.
        value: String,
    },
    /// A further address.
    Address {
        /// The link.
        link: u32,
        /// The address.
        net: IpNet,
    },
    /// A permanent neighbour.
    Neighbour {
        /// The link.
        link: u32,
        /// Its address.
        ip: IpAddr,
        /// Its hardware address.
        mac: Mac,
    },
    /// A route.
    Route(Route),
    /// A rule.
    Rule(Rule),
    /// A mesh's redirection.
    Mesh(Redirection),
}

/// The steps, in the order in which each finds what it needs: a route's source is an address, a rule's table has routes.
pub fn steps(network: &PodNetwork, facts: &Facts) -> Result<Vec<Step>, Mistake> {
    let Some((link, before)) = facts.interface else {
        let message = format!("the pod has no interface {}", network.interface);
        return Err(Mistake { field: "spec.interface".into(), message });
    };
    let has_v6 = facts.addresses.iter().chain(&network.addresses).any(|net| net.addr().is_ipv6());
    if let Some(mtu) = network.mtu.filter(|mtu| has_v6 && *mtu < 1280) {
        let message = format!("{mtu} is less than the 1280 that IPv6 needs, and the pod has such an address");
        return Err(Mistake { field: "spec.mtu".into(), message });
    }
    let mut steps = Vec::new();
    steps.extend(network.mtu.filter(|mtu| *mtu != before).map(|mtu| Step::Mtu { link, mtu, before }));
    let setting = |(key, value): &(String, String)| Step::Sysctl { key: key.clone(), value: value.clone() };
    steps.extend(network.sysctls.iter().map(setting));
    let missing = network.addresses.iter().filter(|net| !facts.addresses.contains(net));
    steps.extend(missing.map(|net| Step::Address { link, net: *net }));
    steps.extend(network.neighbours.iter().map(|(ip, mac)| Step::Neighbour { link, ip: *ip, mac: *mac }));
    // A gateway may be reached by a route of this very list: those without one come first.
    let (direct, by_gateway): (Vec<_>, Vec<_>) =
        network.routes.iter().partition(|route| route.gateway.is_none());
    steps.extend(direct.into_iter().chain(by_gateway).map(|route| {
        Step::Route(Route {
            gateway: route.gateway,
            source: route.source,
            table: route.table,
            priority: route.metric,
            mtu: route.mtu,
            ..Route::by_link(route.destination, link)
        })
    }));
    steps.extend(network.rules.iter().map(|rule| {
        Step::Rule(Rule { priority: rule.priority, from: rule.from, to: rule.to, table: rule.table })
    }));
    if let Some(mesh) = &network.mesh {
        steps.push(Step::Mesh(mesh::redirection(mesh, facts)));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_network::spec::RouteSpec;

    fn facts() -> Facts {
        Facts {
            interface: Some((2, 1500)),
            addresses: vec!["10.0.0.7/24".parse().unwrap()],
            gateways: vec!["10.0.0.1".parse().unwrap()],
        }
    }

    fn route(destination: &str, gateway: Option<&str>) -> RouteSpec {
        RouteSpec {
            destination: destination.parse().unwrap(),
            gateway: gateway.map(|text| text.parse().unwrap()),
            source: None,
            table: None,
            metric: None,
            mtu: None,
        }
    }

    #[test]
    fn what_a_step_needs_comes_before_it() {
        let network = PodNetwork {
            interface: "eth0".into(),
            mtu: Some(1400),
            addresses: vec!["10.9.0.7/24".parse().unwrap(), "10.0.0.7/24".parse().unwrap()],
            routes: vec![route("10.20.0.0/16", Some("10.9.1.1")), route("10.9.1.1/32", None)],
            ..PodNetwork::default()
        };
        let steps = steps(&network, &facts()).unwrap();
        let kinds: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        assert_eq!(steps.len(), 4, "what the pod has already is not added: {kinds:#?}");
        assert!(matches!(steps[0], Step::Mtu { mtu: 1400, before: 1500, .. }));
        assert!(matches!(&steps[2], Step::Route(one) if one.gateway.is_none()));
        assert!(matches!(&steps[3], Step::Route(one) if one.gateway.is_some()));
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_is_done() {
        let network = PodNetwork { interface: "eth7".into(), ..PodNetwork::default() };
        let gone = Facts { interface: None, ..facts() };
        assert_eq!(steps(&network, &gone).unwrap_err().field, "spec.interface");
        let small = PodNetwork { mtu: Some(1279), addresses: vec!["fd00::7/64".parse().unwrap()], ..network };
        assert_eq!(steps(&small, &facts()).unwrap_err().field, "spec.mtu");
    }
}
