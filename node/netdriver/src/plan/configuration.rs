//! What a claim says a device is to be in its pod: DRANET's schema, read strictly.
//!
//! A field that is unknown, out of range, or that this driver does not carry out is refused with its path: nothing is taken and
//! ignored. <https://github.com/kubernetes-sigs/dranet/blob/main/pkg/apis/types.go>

use std::{collections::BTreeMap, net::IpAddr, path::Path};

use ipnet::IpNet;
use podwire_netdev::{Aggregated, Neighbour, Route, Rule, Switched, Vrf};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::devices::is_link_name;

/// More of anything is no configuration of one device.
const MOST: usize = 256;
/// Tables of routes that a rule of the kernel's own leads to.
const OWN_TABLES: std::ops::RangeInclusive<u32> = 253..=255;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {why}")]
pub(crate) struct Wrong {
    pub(crate) path: String,
    pub(crate) why: String,
}

/// A configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configuration {
    pub(crate) name: Option<String>,
    /// None: those that the device has on the node.
    pub(crate) addresses: Option<Vec<IpNet>>,
    pub(crate) mtu: Option<u32>,
    pub(crate) mac: Option<String>,
    #[serde(default)]
    pub(crate) aggregated: Aggregated,
    pub(crate) forwarding: Option<bool>,
    pub(crate) arp_ignore: Option<u32>,
    pub(crate) arp_announce: Option<u32>,
    #[serde(default)]
    pub(crate) vrf: Option<Vrf>,
    #[serde(default)]
    pub(crate) switched: Switched,
    #[serde(default)]
    pub(crate) without_programs: bool,
    #[serde(default)]
    pub(crate) routes: Vec<Route>,
    #[serde(default)]
    pub(crate) rules: Vec<Rule>,
    #[serde(default)]
    pub(crate) neighbours: Vec<Neighbour>,
    #[serde(default)]
    pub(crate) files: Vec<CharacterDevice>,
}

/// A character device that a claim asks for beside its network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CharacterDevice {
    /// What a virtual machine's network is carried through by the kernel.
    VhostNet,
    /// What tap interfaces are spoken through.
    Tun,
}

impl CharacterDevice {
    /// Its file on the node.
    pub(crate) fn path(self) -> &'static Path {
        Path::new(match self {
            CharacterDevice::VhostNet => "/dev/vhost-net",
            CharacterDevice::Tun => "/dev/net/tun",
        })
    }
}

/// The fields of an object, each to be asked for once; what is left over is unknown.
struct Fields {
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    fn of(value: &Value, path: &str) -> Result<Fields, Wrong> {
        match value {
            Value::Object(map) => Ok(Fields { path: path.to_owned(), left: map.clone() }),
            _ => Err(wrong(path, "an object is wanted")),
        }
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field, read; null is as good as none.
    fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Value, &str) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Wrong> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(&value, &self.at(name)).map(Some),
        }
    }

    fn need<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Value, &str) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        self.take(name, read)?.ok_or_else(|| wrong(&self.at(name), "this is required"))
    }

    /// A field of the schema that is not carried out; false and empty ask for nothing.
    fn refuse(&mut self, name: &str, why: &str) -> Result<(), Wrong> {
        let asks = |value: &Value| match value {
            Value::Bool(flag) => *flag,
            Value::String(text) => !text.is_empty(),
            Value::Object(map) => !map.is_empty(),
            Value::Null => false,
            _ => true,
        };
        match self.left.remove(name).filter(asks) {
            Some(_) => Err(wrong(&self.at(name), why)),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<(), Wrong> {
        match self.left.keys().next() {
            Some(name) => Err(wrong(&self.at(name), "there is no such field")),
            None => Ok(()),
        }
    }
}

fn wrong(path: &str, why: &str) -> Wrong {
    Wrong { path: path.to_owned(), why: why.to_owned() }
}

fn text(value: &Value, path: &str) -> Result<String, Wrong> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong(path, "a text is wanted"))
}

fn flag(value: &Value, path: &str) -> Result<bool, Wrong> {
    value.as_bool().ok_or_else(|| wrong(path, "true or false is wanted"))
}

fn number(least: u32, most: u32) -> impl Fn(&Value, &str) -> Result<u32, Wrong> {
    move |value, path| {
        let found = value.as_u64().and_then(|number| u32::try_from(number).ok());
        found
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| wrong(path, &format!("a number from {least} to {most} is wanted")))
    }
}

fn list<T>(
    each: impl Fn(&Value, &str) -> Result<T, Wrong>,
) -> impl Fn(&Value, &str) -> Result<Vec<T>, Wrong> {
    move |value, path| {
        let all = value.as_array().ok_or_else(|| wrong(path, "a list is wanted"))?;
        if all.len() > MOST {
            return Err(wrong(path, &format!("at most {MOST} are taken")));
        }
        all.iter().enumerate().map(|(at, one)| each(one, &format!("{path}[{at}]"))).collect()
    }
}

fn block(value: &Value, path: &str) -> Result<IpNet, Wrong> {
    text(value, path)?.parse().map_err(|_| wrong(path, "ADDRESS/LENGTH is wanted"))
}

fn address(value: &Value, path: &str) -> Result<IpAddr, Wrong> {
    text(value, path)?.parse().map_err(|_| wrong(path, "an address is wanted"))
}

/// A hardware address that one device can have.
fn mac(value: &Value, path: &str) -> Result<String, Wrong> {
    let read: Result<podwire_linux::rtnl::Mac, _> = text(value, path)?.parse();
    let mac = read.map_err(|_| wrong(path, "a hardware address of six bytes is wanted"))?;
    if mac.0[0] & 1 != 0 || mac.0 == [0; 6] {
        return Err(wrong(path, "the hardware address of a group, or none, is no device's"));
    }
    Ok(mac.to_string())
}

fn link_name(value: &Value, path: &str) -> Result<String, Wrong> {
    let name = text(value, path)?;
    if is_link_name(&name) && name != "lo" && name != "all" && name != "default" {
        return Ok(name);
    }
    Err(wrong(path, "up to 15 letters, digits, and -_. are wanted"))
}

/// Reads a configuration.
pub(crate) fn read(parameters: &Value) -> Result<Configuration, Wrong> {
    let mut fields = Fields::of(parameters, "")?;
    let mut found = Configuration::default();
    if let Some(value) = fields.take("interface", |value, _| Ok(value.clone()))? {
        interface(&value, &mut found)?;
    }
    found.routes = fields.take("routes", list(route))?.unwrap_or_default();
    found.rules = fields.take("rules", list(rule))?.unwrap_or_default();
    found.neighbours = fields.take("neighbors", list(neighbour))?.unwrap_or_default();
    found.files = fields.take("characterDevices", list(character_device))?.unwrap_or_default();
    fields.refuse("profile", "there is no provider of profiles")?;
    found.switched = fields.take("ethtool", switched)?.unwrap_or_default();
    fields.finish()?;
    check_vrf(&found)?;
    Ok(found)
}

/// A router of its own has one table, which is chosen by who joined it and not by rules.
fn check_vrf(found: &Configuration) -> Result<(), Wrong> {
    let Some(vrf) = &found.vrf else { return Ok(()) };
    if found.name.as_ref() == Some(&vrf.name) {
        return Err(wrong("interface.vrf.name", "it is the name of the interface itself"));
    }
    if !found.rules.is_empty() {
        return Err(wrong("rules", "there are none with interface.vrf"));
    }
    let other = |route: &Route| route.table.is_some_and(|table| table != vrf.table);
    match found.routes.iter().position(other) {
        Some(at) => {
            let why = format!("with interface.vrf all routes are in its table, {}", vrf.table);
            Err(wrong(&format!("routes[{at}].table"), &why))
        }
        None => Ok(()),
    }
}

fn vrf(value: &Value, path: &str) -> Result<Vrf, Wrong> {
    let mut fields = Fields::of(value, path)?;
    let name = fields.need("name", link_name)?;
    let table = fields.take("table", number(1, i32::MAX.cast_unsigned()))?;
    if table.is_some_and(|table| OWN_TABLES.contains(&table)) {
        return Err(wrong(&fields.at("table"), "253 to 255 are tables of every namespace"));
    }
    fields.finish()?;
    Ok(Vrf { table: table.unwrap_or_else(|| table_of(&name)), name })
}

fn switched(value: &Value, path: &str) -> Result<Switched, Wrong> {
    let mut fields = Fields::of(value, path)?;
    let features = fields.take("features", switches)?.unwrap_or_default();
    let private_flags = fields.take("privateFlags", switches)?.unwrap_or_default();
    fields.finish()?;
    Ok(Switched { features, private_flags })
}

fn character_device(value: &Value, path: &str) -> Result<CharacterDevice, Wrong> {
    CharacterDevice::deserialize(value).map_err(|_| wrong(path, "vhost-net or tun is wanted"))
}

/// Names of switches, as long as the kernel knows them, and whether each is to be on.
fn switches(value: &Value, path: &str) -> Result<BTreeMap<String, bool>, Wrong> {
    const NAME: usize = 31;
    let all = Fields::of(value, path)?;
    if all.left.len() > MOST {
        return Err(wrong(path, &format!("at most {MOST} are taken")));
    }
    let good =
        |name: &str| (1..=NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    match all.left.keys().find(|name| !good(name)) {
        Some(_) => Err(wrong(path, &format!("names of up to {NAME} letters without spaces are wanted"))),
        None => all.left.iter().map(|(name, on)| Ok((name.clone(), flag(on, &all.at(name))?))).collect(),
    }
}

/// The table of a router that names none: DRANET's, so that devices find each other by its name.
fn table_of(name: &str) -> u32 {
    // FNV-1a.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    1000 + hash % 1000
}

fn interface(value: &Value, found: &mut Configuration) -> Result<(), Wrong> {
    const SIZE: u32 = i32::MAX.cast_unsigned();
    let mut fields = Fields::of(value, "interface")?;
    found.name = fields.take("name", link_name)?;
    found.addresses = fields.take("addresses", list(block))?.filter(|all| !all.is_empty());
    fields.refuse("dhcp", "addresses by DHCP are not given by this driver")?;
    found.vrf = fields.take("vrf", vrf)?;
    found.without_programs = fields.take("disableEbpfPrograms", flag)?.unwrap_or_default();
    found.mtu = fields.take("mtu", number(68, 65535))?;
    found.mac = fields.take("hardwareAddr", mac)?;
    found.aggregated = Aggregated {
        gso: fields.take("gsoMaxSize", number(1, SIZE))?,
        gro: fields.take("groMaxSize", number(1, SIZE))?,
        gso_ipv4: fields.take("gsoIPv4MaxSize", number(1, SIZE))?,
        gro_ipv4: fields.take("groIPv4MaxSize", number(1, SIZE))?,
    };
    found.forwarding = fields.take("forwarding", flag)?;
    found.arp_ignore = fields.take("arpIgnore", number(0, 8))?;
    if found.arp_ignore.is_some_and(|value| (4..8).contains(&value)) {
        return Err(wrong("interface.arpIgnore", "0 to 3, or 8 is wanted"));
    }
    found.arp_announce = fields.take("arpAnnounce", number(0, 2))?;
    fields.finish()
}

fn route(value: &Value, path: &str) -> Result<Route, Wrong> {
    const ADMINISTRATOR: u8 = 4;
    let mut fields = Fields::of(value, path)?;
    let destination = fields.need("destination", block)?;
    let gateway = fields.take("gateway", address)?;
    let source = fields.take("source", address)?;
    let scope = fields.take("scope", number(0, 253))?.unwrap_or(0);
    let table = fields.take("table", number(0, u32::MAX))?.filter(|table| *table != 0);
    let link = match scope {
        0 => false,
        253 => true,
        _ => return Err(wrong(&fields.at("scope"), "0 (everywhere) or 253 (on the link) is wanted")),
    };
    if gateway.is_none() && !link {
        return Err(wrong(&fields.at("gateway"), "this is required where scope is 0"));
    }
    for (name, ip) in [("gateway", gateway), ("source", source)] {
        if ip.is_some_and(|ip| ip.is_ipv4() != destination.addr().is_ipv4()) {
            return Err(wrong(&fields.at(name), "its family is not the destination's"));
        }
    }
    fields.finish()?;
    // The kernel knows no scopes in IPv6.
    let scope = Some(if link && destination.addr().is_ipv4() { 253 } else { 0 });
    Ok(Route {
        destination: destination.trunc(),
        gateway,
        source,
        table,
        priority: None,
        scope,
        mtu: None,
        advmss: None,
        protocol: ADMINISTRATOR,
        onlink: false,
    })
}

fn rule(value: &Value, path: &str) -> Result<Rule, Wrong> {
    let mut fields = Fields::of(value, path)?;
    let priority = fields.take("priority", number(0, 32767))?;
    let from = fields.take("source", block)?.map(|net| net.trunc());
    let to = fields.take("destination", block)?.map(|net| net.trunc());
    let table = fields.need("table", number(0, u32::MAX))?;
    if let (Some(from), Some(to)) = (from, to)
        && from.addr().is_ipv4() != to.addr().is_ipv4()
    {
        return Err(wrong(&fields.at("destination"), "its family is not the source's"));
    }
    if table == 0 || OWN_TABLES.contains(&table) && from.is_none() && to.is_none() {
        return Err(wrong(&fields.at("table"), "a table of its own is wanted, or a source or destination"));
    }
    fields.finish()?;
    Ok(Rule { priority: priority.unwrap_or(32765), from, to, table })
}

fn neighbour(value: &Value, path: &str) -> Result<Neighbour, Wrong> {
    let mut fields = Fields::of(value, path)?;
    let ip = fields.need("destination", address)?;
    let mac = fields.need("hardwareAddr", mac)?;
    fields.finish()?;
    Ok(Neighbour { ip, mac })
}

#[cfg(test)]
mod tests;
