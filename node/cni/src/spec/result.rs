//! What ADD answers: interfaces, addresses, routes, DNS; read and written in the shape of every version.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::error::{CniError, code};
use super::json::{Object, wrong};
use super::version::Version;

/// A network interface of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: String,
    /// Its MTU, 0 when not told.
    pub mtu: u32,
    /// The namespace it is in; empty is the host.
    pub sandbox: String,
    /// The socket of a user-space interface.
    pub socket_path: String,
    /// The PCI address of a device.
    pub pci_id: String,
}

/// An address of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpConfig {
    /// Position of its interface in the result.
    pub interface: Option<usize>,
    /// The address with its prefix length.
    pub address: IpNet,
    /// The gateway of its network.
    pub gateway: Option<IpAddr>,
}

/// A route of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; absent is the gateway of the family.
    pub gw: Option<IpAddr>,
    /// Path MTU.
    pub mtu: Option<u32>,
    /// Advertised segment size.
    pub advmss: Option<u32>,
    /// Metric.
    pub priority: Option<u32>,
    /// Table.
    pub table: Option<u32>,
    /// Scope.
    pub scope: Option<u8>,
}

/// DNS settings of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Servers.
    pub nameservers: Vec<String>,
    /// Domain.
    pub domain: String,
    /// Search list.
    pub search: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl Dns {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Dns::default()
    }

    /// Reads a `dns` object.
    pub fn parse(object: &Object<'_>) -> Result<Dns, CniError> {
        Ok(Dns {
            nameservers: object.strings("nameservers")?,
            domain: object.str("domain")?.unwrap_or_default().to_owned(),
            search: object.strings("search")?,
            options: object.strings("options")?,
        })
    }

    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (name, list) in
            [("nameservers", &self.nameservers), ("search", &self.search), ("options", &self.options)]
        {
            if !list.is_empty() {
                map.insert(name.into(), json!(list));
            }
        }
        if !self.domain.is_empty() {
            map.insert("domain".into(), json!(self.domain));
        }
        Value::Object(map)
    }
}

/// The result of ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniResult {
    /// Interfaces.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<IpConfig>,
    /// Routes.
    pub routes: Vec<RouteConfig>,
    /// DNS.
    pub dns: Dns,
}

fn net_of(object: &Object<'_>, name: &str) -> Result<IpNet, CniError> {
    let text = object.str(name)?.unwrap_or_default();
    parse_net(text)
        .ok_or_else(|| wrong(&object.at(name), "an address with a prefix length", &Value::from(text)))
}

/// Reads `address/prefix`; an IPv4 address mapped into IPv6 is read as IPv4.
pub fn parse_net(text: &str) -> Option<IpNet> {
    let net: IpNet = text.parse().ok()?;
    match net {
        IpNet::V6(v6) => match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
            (Some(v4), Some(prefix)) => IpNet::new(IpAddr::V4(v4), prefix).ok(),
            _ => Some(net),
        },
        IpNet::V4(_) => Some(net),
    }
}

impl RouteConfig {
    /// A route with a destination and nothing else.
    pub fn to(dst: IpNet) -> RouteConfig {
        RouteConfig { dst, gw: None, mtu: None, advmss: None, priority: None, table: None, scope: None }
    }

    /// Reads a route object.
    pub fn parse(object: &Object<'_>) -> Result<RouteConfig, CniError> {
        let scope = object.u64("scope")?.map(u8::try_from).transpose();
        Ok(RouteConfig {
            dst: net_of(object, "dst")?,
            gw: object.parsed("gw", "an address")?,
            mtu: object.u32("mtu")?.filter(|mtu| *mtu > 0),
            advmss: object.u32("advmss")?.filter(|mss| *mss > 0),
            priority: object.u32("priority")?.filter(|priority| *priority > 0),
            table: object.u32("table")?,
            scope: scope.map_err(|_| {
                CniError::new(code::DECODE, format!("field {:?} is above 255", object.at("scope")))
            })?,
        })
    }

    fn to_value(&self, version: Version) -> Value {
        let mut value = json!({ "dst": self.dst.to_string() });
        if let Some(gw) = self.gw {
            value["gw"] = json!(gw.to_string());
        }
        if version >= Version::V1_1 {
            for (name, number) in [
                ("mtu", self.mtu),
                ("advmss", self.advmss),
                ("priority", self.priority),
                ("table", self.table),
                ("scope", self.scope.map(u32::from)),
            ] {
                if let Some(number) = number {
                    value[name] = json!(number);
                }
            }
        }
        value
    }
}

impl CniResult {
    /// Reads a result in the shape of its own `cniVersion`, or of `version` when it names none.
    pub fn parse(value: &Value, version: Version) -> Result<CniResult, CniError> {
        let object = Object::of(value, "result")?;
        let version = match object.text("cniVersion")? {
            Some(text) => Version::parse(text)?,
            None => version,
        };
        if !version.is_supported() {
            return Err(CniError::new(
                code::INCOMPATIBLE_VERSION,
                format!("unsupported CNI result version {version:?}"),
            ));
        }
        if version < Version::V0_3 { Self::parse_old(&object) } else { Self::parse_new(&object) }
    }

    fn parse_new(object: &Object<'_>) -> Result<CniResult, CniError> {
        let text =
            |object: &Object<'_>, name| Ok::<_, CniError>(object.str(name)?.unwrap_or_default().to_owned());
        let mut result = CniResult { dns: Dns::parse(&object.object("dns")?)?, ..CniResult::default() };
        for interface in object.objects("interfaces")? {
            result.interfaces.push(Interface {
                name: text(&interface, "name")?,
                mac: text(&interface, "mac")?,
                mtu: interface.u32("mtu")?.unwrap_or(0),
                sandbox: text(&interface, "sandbox")?,
                socket_path: text(&interface, "socketPath")?,
                pci_id: text(&interface, "pciID")?,
            });
        }
        for ip in object.objects("ips")? {
            let index = ip.i64("interface")?;
            result.ips.push(IpConfig {
                interface: index.and_then(|index| usize::try_from(index).ok()),
                address: net_of(&ip, "address")?,
                gateway: ip.parsed("gateway", "an address")?,
            });
        }
        for route in object.objects("routes")? {
            result.routes.push(RouteConfig::parse(&route)?);
        }
        Ok(result)
    }

    fn parse_old(object: &Object<'_>) -> Result<CniResult, CniError> {
        let mut result = CniResult { dns: Dns::parse(&object.object("dns")?)?, ..CniResult::default() };
        for name in ["ip4", "ip6"] {
            if object.get(name).is_none() {
                continue;
            }
            let ip = object.object(name)?;
            result.ips.push(IpConfig {
                interface: None,
                address: net_of(&ip, "ip")?,
                gateway: ip.parsed("gateway", "an address")?,
            });
            for route in ip.objects("routes")? {
                result.routes.push(RouteConfig::parse(&route)?);
            }
        }
        Ok(result)
    }

    /// Writes the result in the shape of `version`.
    pub fn to_value(&self, version: Version) -> Result<Value, CniError> {
        if !version.is_supported() {
            return Err(CniError::new(
                code::INCOMPATIBLE_VERSION,
                format!("cannot write a result of version {version}"),
            ));
        }
        if version < Version::V0_3 { self.to_old(version) } else { Ok(self.to_new(version)) }
    }

    fn to_new(&self, version: Version) -> Value {
        let mut value = json!({ "cniVersion": version.to_string(), "dns": self.dns.to_value() });
        if !self.interfaces.is_empty() {
            value["interfaces"] =
                self.interfaces.iter().map(|interface| interface.to_value(version)).collect();
        }
        if !self.ips.is_empty() {
            value["ips"] = self.ips.iter().map(|ip| ip.to_value(version)).collect();
        }
        if !self.routes.is_empty() {
            value["routes"] = self.routes.iter().map(|route| route.to_value(version)).collect();
        }
        value
    }

    fn to_old(&self, version: Version) -> Result<Value, CniError> {
        let mut value = json!({ "cniVersion": version.to_string(), "dns": self.dns.to_value() });
        for (name, v6) in [("ip4", false), ("ip6", true)] {
            let Some(ip) = self.ips.iter().find(|ip| ip.address.addr().is_ipv6() == v6) else { continue };
            let mut old = json!({ "ip": ip.address.to_string() });
            if let Some(gateway) = ip.gateway {
                old["gateway"] = json!(gateway.to_string());
            }
            let of_family = self.routes.iter().filter(|route| route.dst.addr().is_ipv6() == v6);
            let routes: Vec<Value> = of_family.map(|route| route.to_value(version)).collect();
            if !routes.is_empty() {
                old["routes"] = Value::from(routes);
            }
            value[name] = old;
        }
        if value.get("ip4").is_none() && value.get("ip6").is_none() && !self.ips.is_empty() {
            return Err(CniError::internal("cannot convert: no valid IP addresses"));
        }
        Ok(value)
    }

    /// The addresses of the interface called `name` in a sandbox, with their position.
    pub fn ips_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a IpConfig> {
        self.ips.iter().filter(move |ip| match ip.interface.and_then(|index| self.interfaces.get(index)) {
            Some(interface) => interface.name == name && !interface.sandbox.is_empty(),
            None => ip.interface.is_none(),
        })
    }

    /// The interface inside the sandbox called `name`.
    pub fn container_interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name && !interface.sandbox.is_empty())
    }
}

impl Interface {
    fn to_value(&self, version: Version) -> Value {
        let mut value = json!({ "name": self.name });
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                value[name] = json!(text);
            }
        };
        put("mac", &self.mac);
        put("sandbox", &self.sandbox);
        if version >= Version::V1_1 {
            put("socketPath", &self.socket_path);
            put("pciID", &self.pci_id);
            if self.mtu > 0 {
                value["mtu"] = json!(self.mtu);
            }
        }
        value
    }
}

impl IpConfig {
    fn to_value(&self, version: Version) -> Value {
        let mut value = json!({ "address": self.address.to_string() });
        if let Some(interface) = self.interface {
            value["interface"] = json!(interface);
        }
        if let Some(gateway) = self.gateway {
            value["gateway"] = json!(gateway.to_string());
        }
        if version < Version::V1_0 {
            value["version"] = json!(if self.address.addr().is_ipv4() { "4" } else { "6" });
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Value {
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/ns", "mtu": 1400}],
            "ips": [
                {"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0},
                {"address": "fd00::3/64", "gateway": "fd00::1", "interface": 0},
            ],
            "routes": [{"dst": "0.0.0.0/0", "mtu": 1300, "table": 5}, {"dst": "::/0", "gw": "fd00::1"}],
            "dns": {"nameservers": ["10.1.0.1"]},
        })
    }

    #[test]
    fn a_result_survives_the_newest_shape() {
        let result = CniResult::parse(&full(), Version::OLDEST).expect("parse");
        assert_eq!(result.to_value(Version::V1_1).expect("write"), full());
    }

    #[test]
    fn older_shapes_have_their_own_fields() {
        let result = CniResult::parse(&full(), Version::V1_1).expect("parse");
        let v4 = result.to_value(Version::V0_4).expect("0.4.0");
        assert_eq!(v4["ips"][1]["version"], "6");
        assert!(v4["interfaces"][0].get("mtu").is_none());
        assert!(v4["routes"][0].get("table").is_none());
        let old = result.to_value(Version::OLDEST).expect("0.1.0");
        assert_eq!(old["ip4"]["ip"], "10.1.2.3/24");
        assert_eq!(old["ip6"]["routes"][0]["dst"], "::/0");
        let back = CniResult::parse(&old, Version::V1_1).expect("parse old");
        assert_eq!(back.ips.len(), 2);
    }

    #[test]
    fn a_bad_address_is_refused_by_name() {
        let value = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3"}]});
        let error = CniResult::parse(&value, Version::V1_0).expect_err("no prefix");
        assert!(error.msg.contains("result.ips[0].address"), "{}", error.msg);
    }
}
