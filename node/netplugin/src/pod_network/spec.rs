//! A PodNetwork read into types: every value parsed once, and a mistake named by its field.
//!
//! The definition's own rules refuse most mistakes when an object is written; what an older definition or another server let
//! through is refused here, before anything of the pod is touched.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use podwire_linux::rtnl::Mac;
use serde_json::Value;

use crate::policy::Selector;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Mistake {
    /// The field, as a path.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

/// As many entries as a list may have.
const MOST: usize = 64;

/// Settings of one interface, after `net.ipv4.conf.INTERFACE.`.
const OF_INTERFACE: &[&str] = &["arp_ignore", "arp_announce", "rp_filter", "accept_redirects"];

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSpec {
    /// Where to.
    pub destination: IpNet,
    /// By which next hop; none: directly on the link.
    pub gateway: Option<IpAddr>,
    /// From which address.
    pub source: Option<IpAddr>,
    /// In which table; none: main.
    pub table: Option<u32>,
    /// Its metric.
    pub metric: Option<u32>,
    /// Its path MTU.
    pub mtu: Option<u32>,
}

/// A rule that chooses a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSpec {
    /// Its place in the order.
    pub priority: u32,
    /// Packets from here.
    pub from: Option<IpNet>,
    /// Packets to there.
    pub to: Option<IpNet>,
    /// The table to look in.
    pub table: u32,
}

/// One direction of a mesh's redirection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redirect {
    /// The proxy's port.
    pub port: u16,
    /// Destination ports that are left alone.
    pub exclude_ports: Vec<u16>,
    /// Destinations that are left alone; outbound only.
    pub exclude_cidrs: Vec<IpNet>,
    /// Users whose packets are left alone, the proxy's among them; outbound only.
    pub exclude_uids: Vec<u32>,
}

/// A mesh's redirection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mesh {
    /// What comes to the pod.
    pub inbound: Option<Redirect>,
    /// What leaves it.
    pub outbound: Option<Redirect>,
}

/// What a PodNetwork wants of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodNetwork {
    /// The interface that routes, addresses and the MTU are of.
    pub interface: String,
    /// The interface's largest packet.
    pub mtu: Option<u32>,
    /// Further addresses.
    pub addresses: Vec<IpNet>,
    /// Routes.
    pub routes: Vec<RouteSpec>,
    /// Rules.
    pub rules: Vec<RuleSpec>,
    /// Permanent neighbours.
    pub neighbours: Vec<(IpAddr, Mac)>,
    /// Settings, by their key below `/proc/sys`.
    pub sysctls: Vec<(String, String)>,
    /// Redirection.
    pub mesh: Option<Mesh>,
}

/// A value and where it stands.
struct At<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> At<'a> {
    fn wrong<T>(&self, message: impl Into<String>) -> Result<T, Mistake> {
        Err(Mistake { field: self.path.clone(), message: message.into() })
    }

    fn field(&self, name: &str) -> Option<At<'a>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(At { value, path: format!("{}.{name}", self.path) })
    }

    fn required(&self, name: &str) -> Result<At<'a>, Mistake> {
        self.field(name)
            .ok_or_else(|| Mistake { field: format!("{}.{name}", self.path), message: "is required".into() })
    }

    /// Refuses fields that nobody knows: one that is ignored would be one that is not kept.
    fn only(&self, known: &[&str]) -> Result<(), Mistake> {
        let Some(fields) = self.value.as_object() else { return self.wrong("is not an object") };
        match fields.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                Err(Mistake { field: format!("{}.{key}", self.path), message: "is not known".into() })
            }
            None => Ok(()),
        }
    }

    fn text(&self) -> Result<&'a str, Mistake> {
        self.value.as_str().map_or_else(|| self.wrong("is not text"), Ok)
    }

    fn number(&self, least: u32, most: u32) -> Result<u32, Mistake> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(number),
            None => self.wrong(format!("is not a number from {least} to {most}")),
        }
    }

    fn parsed<T: std::str::FromStr>(&self, what: &str) -> Result<T, Mistake> {
        let text = self.text()?;
        text.parse().or_else(|_| self.wrong(format!("{text:?} is not {what}")))
    }

    /// A block without host bits.
    fn block(&self) -> Result<IpNet, Mistake> {
        let net: IpNet = self.parsed("a block of addresses")?;
        if net.trunc() == net {
            Ok(net)
        } else {
            self.wrong(format!("{net} has host bits; {} has none", net.trunc()))
        }
    }

    fn items(&self, name: &str) -> Result<Vec<At<'a>>, Mistake> {
        let Some(list) = self.field(name) else { return Ok(Vec::new()) };
        let Some(items) = list.value.as_array() else { return list.wrong("is not a list") };
        if items.len() > MOST {
            return list.wrong(format!("has more than {MOST} entries"));
        }
        let at = |(index, value): (usize, &'a Value)| At { value, path: format!("{}[{index}]", list.path) };
        Ok(items.iter().enumerate().map(at).collect())
    }

    fn each<T>(&self, name: &str, read: impl Fn(&At<'a>) -> Result<T, Mistake>) -> Result<Vec<T>, Mistake> {
        self.items(name)?.iter().map(read).collect()
    }
}

/// The pods that an object chooses by their labels; `None` for one that pods name.
pub fn selector(object: &Value) -> Result<Option<Selector>, Mistake> {
    let spec = At { value: object.get("spec").unwrap_or(&Value::Null), path: "spec".into() };
    let Some(at) = spec.field("podSelector") else { return Ok(None) };
    at.only(&["matchLabels", "matchExpressions"])?;
    let read = serde_json::from_value::<LabelSelector>(at.value.clone());
    let read = read.map_err(|error| error.to_string()).and_then(|object| Selector::read(&object));
    read.map(Some).or_else(|error| at.wrong(error))
}

/// Reads an object's `spec`.
pub fn read(object: &Value) -> Result<PodNetwork, Mistake> {
    let spec = At { value: object.get("spec").unwrap_or(&Value::Null), path: "spec".into() };
    spec.only(&[
        "podSelector",
        "interface",
        "mtu",
        "addresses",
        "routes",
        "rules",
        "neighbors",
        "sysctls",
        "mesh",
    ])?;
    selector(object)?;
    let interface =
        spec.field("interface").map(|at| interface(&at)).transpose()?.unwrap_or_else(|| "eth0".into());
    let neighbour = |at: &At<'_>| {
        at.only(&["address", "hardwareAddress"])?;
        let address = at.required("address")?.parsed("an address")?;
        Ok((address, at.required("hardwareAddress")?.parsed("a hardware address")?))
    };
    let network = PodNetwork {
        mtu: spec.field("mtu").map(|at| at.number(68, 65535)).transpose()?,
        addresses: spec.each("addresses", |at| at.parsed("an address with the length of its prefix"))?,
        routes: spec.each("routes", route)?,
        rules: spec.each("rules", rule)?,
        neighbours: spec.each("neighbors", neighbour)?,
        sysctls: spec.each("sysctls", |at| setting(at, &interface))?,
        mesh: spec.field("mesh").map(|at| mesh(&at)).transpose()?,
        interface,
    };
    Ok(network)
}

fn interface(at: &At<'_>) -> Result<String, Mistake> {
    let name = at.text()?;
    let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let sound =
        (1..=15).contains(&name.len()) && name.bytes().all(proper) && !matches!(name, "." | ".." | "lo");
    if sound { Ok(name.to_owned()) } else { at.wrong(format!("{name:?} is not the name of an interface")) }
}

fn route(at: &At<'_>) -> Result<RouteSpec, Mistake> {
    at.only(&["destination", "gateway", "source", "table", "metric", "mtu"])?;
    let destination = at.required("destination")?.block()?;
    let same = |name: &str| -> Result<Option<IpAddr>, Mistake> {
        let Some(at) = at.field(name) else { return Ok(None) };
        let address: IpAddr = at.parsed("an address")?;
        if address.is_ipv4() == destination.addr().is_ipv4() {
            return Ok(Some(address));
        }
        at.wrong(format!("{address} is not of the destination's family"))
    };
    Ok(RouteSpec {
        destination,
        gateway: same("gateway")?,
        source: same("source")?,
        table: at.field("table").map(|at| table(&at)).transpose()?,
        metric: at.field("metric").map(|at| at.number(0, u32::MAX)).transpose()?,
        mtu: at.field("mtu").map(|at| at.number(68, 65535)).transpose()?,
    })
}

/// A table of routes that is not the kernel's own (local, 255).
fn table(at: &At<'_>) -> Result<u32, Mistake> {
    let table = at.number(1, u32::MAX)?;
    if table == 255 { at.wrong("is the kernel's own table") } else { Ok(table) }
}

fn rule(at: &At<'_>) -> Result<RuleSpec, Mistake> {
    at.only(&["priority", "from", "to", "table"])?;
    let block = |name: &str| at.field(name).map(|at| at.block()).transpose();
    let (from, to) = (block("from")?, block("to")?);
    match (from, to) {
        (None, None) => return at.wrong("has neither from nor to"),
        (Some(from), Some(to)) if from.addr().is_ipv4() != to.addr().is_ipv4() => {
            return at.wrong("has from and to of different families");
        }
        _ => {}
    }
    // 0 is the kernel's rule for its own addresses, 32766 and 32767 those for main and default.
    let priority = at.required("priority")?.number(1, 32765)?;
    Ok(RuleSpec { priority, from, to, table: table(&at.required("table")?)? })
}

fn setting(at: &At<'_>, interface: &str) -> Result<(String, String), Mistake> {
    at.only(&["name", "value"])?;
    let name = at.required("name")?;
    let dotted = podwire_linux::sysctl::dotted(name.text()?);
    let own = format!("net.ipv4.conf.{}.", interface.replace('.', "/"));
    // Kubernetes' safe ones that are of the network, and a few of the interface itself.
    let allowed = dotted.starts_with("net.") && podwire_api::sysctl::SAFE.contains(&dotted.as_str())
        || dotted.strip_prefix(&own).is_some_and(|rest| OF_INTERFACE.contains(&rest));
    let key = podwire_linux::sysctl::namespaced(&dotted).filter(|_| allowed);
    let Some((_, key)) = key else {
        return name.wrong(format!("{dotted} is not among those that may be set"));
    };
    let value = at.required("value")?;
    let text = value.text()?;
    if text.len() > 128 || text.bytes().any(|byte| byte.is_ascii_control()) {
        return value.wrong("is too long or has control characters");
    }
    Ok((key, text.to_owned()))
}

fn mesh(at: &At<'_>) -> Result<Mesh, Mistake> {
    at.only(&["inbound", "outbound"])?;
    let read = |name: &str, known: &[&str]| -> Result<Option<Redirect>, Mistake> {
        let Some(at) = at.field(name) else { return Ok(None) };
        at.only(known)?;
        Ok(Some(Redirect {
            port: port(&at.required("port")?)?,
            exclude_ports: at.each("excludePorts", port)?,
            exclude_cidrs: at.each("excludeCIDRs", |at| at.block())?,
            exclude_uids: at.each("excludeUIDs", |at| at.number(0, u32::MAX - 1))?,
        }))
    };
    let mesh = Mesh {
        inbound: read("inbound", &["port", "excludePorts"])?,
        outbound: read("outbound", &["port", "excludePorts", "excludeCIDRs", "excludeUIDs"])?,
    };
    if mesh.inbound.is_none() && mesh.outbound.is_none() {
        return at.wrong("has neither inbound nor outbound");
    }
    // What the proxy itself sends would come back to it for ever.
    if mesh.outbound.as_ref().is_some_and(|outbound| outbound.exclude_uids.is_empty()) {
        return At { value: at.value, path: format!("{}.outbound.excludeUIDs", at.path) }
            .wrong("names no user: the proxy's own packets would be redirected to itself");
    }
    Ok(mesh)
}

fn port(at: &At<'_>) -> Result<u16, Mistake> {
    at.number(1, 65535).map(|port| u16::try_from(port).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole() -> Value {
        json!({"spec": {
            "podSelector": {"matchLabels": {"app": "web"}}, "interface": "eth0", "mtu": 1400, "addresses": ["10.9.0.7/24", "fd09::7/64"],
            "routes": [{"destination": "10.20.0.0/16", "gateway": "10.9.0.1", "source": "10.9.0.7", "table": 100, "metric": 7, "mtu": 1300}],
            "rules": [{"priority": 100, "from": "10.9.0.7/32", "table": 100}],
            "neighbors": [{"address": "10.9.0.1", "hardwareAddress": "02:00:00:00:00:01"}],
            "sysctls": [{"name": "net.ipv4.tcp_fin_timeout", "value": "20"}, {"name": "net/ipv4/conf/eth0/arp_ignore", "value": "1"}],
            "mesh": {"inbound": {"port": 15006, "excludePorts": [15020]},
                     "outbound": {"port": 15001, "excludePorts": [22], "excludeCIDRs": ["169.254.0.0/16"], "excludeUIDs": [1337]}}}})
    }

    #[test]
    fn every_field_is_read() {
        let network = read(&whole()).unwrap();
        assert_eq!((network.mtu, network.addresses.len(), network.routes.len()), (Some(1400), 2, 1));
        assert_eq!(network.routes[0].table, Some(100));
        assert_eq!(network.sysctls[1], ("net/ipv4/conf/eth0/arp_ignore".to_owned(), "1".to_owned()));
        let mesh = network.mesh.unwrap();
        assert_eq!(mesh.outbound.unwrap().exclude_uids, [1337]);
        assert_eq!(read(&json!({"spec": {}})).unwrap().interface, "eth0");
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (pointer, value, field) in [
            ("/spec/mtu", json!(20), "spec.mtu"),
            ("/spec/interface", json!("../x"), "spec.interface"),
            ("/spec/interface", json!("lo"), "spec.interface"),
            ("/spec/addresses/1", json!("fd09::7/640"), "spec.addresses[1]"),
            ("/spec/routes/0/destination", json!("10.20.0.1/16"), "spec.routes[0].destination"),
            ("/spec/routes/0/gateway", json!("fd00::1"), "spec.routes[0].gateway"),
            ("/spec/routes/0/table", json!(255), "spec.routes[0].table"),
            ("/spec/rules/0/priority", json!(0), "spec.rules[0].priority"),
            ("/spec/rules/0/from", json!(null), "spec.rules[0]"),
            ("/spec/neighbors/0/hardwareAddress", json!("02:00"), "spec.neighbors[0].hardwareAddress"),
            ("/spec/sysctls/0/name", json!("kernel.core_pattern"), "spec.sysctls[0].name"),
            ("/spec/sysctls/0/name", json!("net.ipv4.ip_forward"), "spec.sysctls[0].name"),
            ("/spec/sysctls/0/name", json!("net.ipv4.conf.all.rp_filter"), "spec.sysctls[0].name"),
            (
                "/spec/sysctls/0/name",
                json!("net/ipv4/conf/../../../kernel/core_pattern"),
                "spec.sysctls[0].name",
            ),
            ("/spec/sysctls/0/value", json!("20\n"), "spec.sysctls[0].value"),
            ("/spec/mesh/inbound/port", json!(0), "spec.mesh.inbound.port"),
            ("/spec/mesh/inbound/excludePorts/0", json!(70000), "spec.mesh.inbound.excludePorts[0]"),
            ("/spec/mesh/outbound/excludeUIDs", json!([]), "spec.mesh.outbound.excludeUIDs"),
            (
                "/spec/mesh/outbound/excludeCIDRs/0",
                json!("169.254.0.1/16"),
                "spec.mesh.outbound.excludeCIDRs[0]",
            ),
            ("/spec/routes", json!(vec![whole()["spec"]["routes"][0].clone(); 65]), "spec.routes"),
            ("/spec", json!({"selector": {}}), "spec.selector"),
            ("/spec", json!(null), "spec"),
            ("/spec/podSelector", json!({"matchLabel": {}}), "spec.podSelector.matchLabel"),
            (
                "/spec/podSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
                "spec.podSelector",
            ),
        ] {
            let mut object = whole();
            *object.pointer_mut(pointer).unwrap() = value.clone();
            assert_eq!(
                read(&object).map_err(|mistake| mistake.field),
                Err(field.to_owned()),
                "{pointer} {value}"
            );
        }
    }
}
