//! What the node offers: links that can be given away, and links that can be made on one that stays.
//!
//! Names and attributes are DRANET's. <https://github.com/kubernetes-sigs/dranet>

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use podwire_api::quantity::Quantity;
use podwire_linux::rtnl::Link;
use podwire_netdev::ChildKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::DOMAIN;

/// What is shared, in the driver's domain.
pub(crate) const BANDWIDTH: &str = "bandwidth";

/// Bits per second that a claim has at least.
const LEAST_BANDWIDTH: u64 = 1_000_000;
/// The longest text of an attribute.
const TEXT: usize = 64;
/// Links of other programs' own.
const NEVER: [&str; 3] = ["cilium_net", "cilium_host", "docker0"];
/// Kinds that belong to their namespace for ever.
const ROOTED: [&str; 2] = ["bridge", "vrf"];

/// A PCI function behind a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pci {
    pub(crate) address: String,
    /// The root complex above it.
    pub(crate) root: Option<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) device: Option<String>,
    pub(crate) numa: Option<i64>,
    /// How many functions it can have, and has.
    pub(crate) functions: Option<(i64, i64)>,
    pub(crate) is_function: bool,
    pub(crate) rdma: Vec<String>,
    /// Files by which programs speak to them.
    pub(crate) verbs: Vec<String>,
}

/// A link as it was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenLink {
    pub(crate) link: Link,
    pub(crate) addresses: Vec<IpNet>,
    pub(crate) pci: Option<Pci>,
}

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) links: Vec<SeenLink>,
    /// Links by which the node reaches the world, now or before.
    pub(crate) uplinks: BTreeSet<u32>,
}

/// Devices that are made on demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// What is made.
    pub kind: ChildKind,
    /// On which device of the node.
    pub parent: Option<String>,
    /// Its place among those of the same kind and parent: a number, or the tag of a VLAN.
    pub number: u16,
    /// One device that many claims have a share of, each with so much of its parent's wire.
    #[serde(default)]
    pub shared: Option<Shared>,
}

/// What claims share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// How many may be made.
    pub most: u16,
    /// Bits per second, of all of them together.
    pub bandwidth: u64,
}

impl Offer {
    /// Reads `macvlan:eth1`, `macvlan:eth1:16`, `macvlan:eth1:16:10G`, `vlan:eth1:100-120`, `veth:br0:8`, `dummy::4`.
    pub fn parse(text: &str) -> Result<Vec<Offer>, String> {
        let wrong = |why: &str| {
            format!(
                "{text:?}: {why}; write KIND:PARENT:COUNT, KIND:PARENT:COUNT:BANDWIDTH, or vlan:PARENT:FIRST-LAST"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (kind, parent, many, bandwidth) = match parts.as_slice() {
            [kind, parent] => (*kind, *parent, "1", None),
            [kind, parent, many] => (*kind, *parent, *many, None),
            [kind, parent, many, bandwidth] => (*kind, *parent, *many, Some(*bandwidth)),
            _ => return Err(wrong("two to four parts are wanted")),
        };
        let number = |text: &str| text.parse::<u16>().map_err(|_| wrong("a number is wanted"));
        let numbers = match (kind, many.split_once('-')) {
            ("vlan", Some((first, last))) => number(first)?..=number(last)?,
            ("vlan", None) => number(many)?..=number(many)?,
            (_, Some(_)) => return Err(wrong("only VLANs are numbered from and to")),
            (_, None) => 0..=number(many)?.checked_sub(1).ok_or_else(|| wrong("none is nothing to offer"))?,
        };
        if numbers.is_empty() || (kind == "vlan" && (*numbers.start() == 0 || *numbers.end() > 4094)) {
            return Err(wrong("the numbers are out of range"));
        }
        if (kind == "dummy") != parent.is_empty() {
            return Err(wrong("all but dummies have a parent"));
        }
        if !parent.is_empty() && !is_link_name(parent) {
            return Err(wrong("the parent is no name of a network device"));
        }
        let parent = Some(parent.to_owned()).filter(|name| !name.is_empty());
        let shared = bandwidth.map(|text| shared(kind, number(many)?, text).map_err(wrong)).transpose()?;
        let one = |number| {
            let kind = match kind {
                "macvlan" => ChildKind::Macvlan,
                "ipvlan" => ChildKind::Ipvlan,
                "vlan" => ChildKind::Vlan { id: number },
                "dummy" => ChildKind::Dummy,
                "veth" => ChildKind::Veth,
                _ => return Err(wrong("kinds are macvlan, ipvlan, vlan, veth and dummy")),
            };
            Ok(Offer { kind, parent: parent.clone(), number, shared: shared.clone() })
        };
        // One that is shared stands for all of them.
        let count = if shared.is_some() { 1 } else { numbers.len() };
        numbers.take(count).map(one).collect()
    }

    /// The device's name.
    fn name(&self) -> String {
        let parent = self.parent.as_deref().map(|name| label(name) + "-").unwrap_or_default();
        match self.shared {
            Some(_) => format!("{parent}{}", self.kind.name()),
            None => format!("{parent}{}-{}", self.kind.name(), self.number),
        }
    }
}

/// What claims of such devices share.
fn shared(kind: &str, most: u16, bandwidth: &str) -> Result<Shared, &'static str> {
    if !["macvlan", "ipvlan", "veth"].contains(&kind) {
        return Err("bandwidth is shared by macvlan, ipvlan and veth");
    }
    let bits = bits(bandwidth).filter(|bits| *bits >= u64::from(most) * LEAST_BANDWIDTH);
    bits.map(|bandwidth| Shared { most, bandwidth }).ok_or("a bandwidth of at least 1M for each is wanted")
}

/// Bits per second, as Kubernetes writes amounts; none for what is no amount or less than one.
pub(crate) fn bits(text: &str) -> Option<u64> {
    Quantity::parse(text).ok().and_then(|amount| u64::try_from(amount.value()).ok()).filter(|bits| *bits > 0)
}

/// Whether the kernel takes it as the name of a link.
pub(crate) fn is_link_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=15).contains(&name.len()) && name.chars().all(good) && name != "." && name != ".."
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    Text(String),
    Number(i64),
    Flag(bool),
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// A link of the node that is given away.
    Link { name: String, index: u32 },
    /// A link that is made.
    Made(Offer),
}

/// A device that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) what: What,
    pub(crate) attributes: BTreeMap<String, Attribute>,
    /// Device files that come with it.
    pub(crate) files: Vec<PathBuf>,
}

impl Device {
    /// As a slice has it.
    pub(crate) fn published(&self) -> Value {
        let value = |attribute: &Attribute| match attribute {
            Attribute::Text(text) => json!({"string": text}),
            Attribute::Number(number) => json!({"int": number}),
            Attribute::Flag(flag) => json!({"bool": flag}),
        };
        let attributes: Map<String, Value> =
            self.attributes.iter().map(|(name, one)| (name.clone(), value(one))).collect();
        let mut device = json!({"name": self.name, "attributes": attributes});
        if let What::Made(Offer { shared: Some(Shared { most, bandwidth }), .. }) = &self.what {
            let amount =
                |bits: u64| Quantity::from_integer(i64::try_from(bits).unwrap_or(i64::MAX)).to_string();
            // Who says nothing has an equal part.
            let part = amount(bandwidth / u64::from(*most));
            let policy = json!({"default": part, "validRange": {"min": amount(LEAST_BANDWIDTH)}});
            let one = json!({"default": "1", "validValues": ["1"]});
            device["allowMultipleAllocations"] = true.into();
            device["capacity"] = json!({
                own(BANDWIDTH): {"value": amount(*bandwidth), "requestPolicy": policy},
                own("devices"): {"value": most.to_string(), "requestPolicy": one},
            });
        }
        device
    }
}

/// What is offered of what was seen, by name. `skip` are links of the node's own that are nobody's: they and their ports.
pub(crate) fn devices(seen: &Seen, offers: &[Offer], skip: &[String]) -> Vec<Device> {
    let parents: BTreeSet<&str> = offers.iter().filter_map(|offer| offer.parent.as_deref()).collect();
    let by_index: BTreeMap<u32, &SeenLink> = seen.links.iter().map(|one| (one.link.index, one)).collect();
    let mut kept = in_use(seen, &by_index);
    for one in &seen.links {
        let name = one.link.name.as_str();
        if parents.contains(name) || skip.iter().any(|skipped| skipped == name) || NEVER.contains(&name) {
            kept.insert(one.link.index);
        }
    }
    let mut all = BTreeMap::new();
    let mut links: Vec<&SeenLink> = seen.links.iter().filter(|one| may_go(one, &kept)).collect();
    links.sort_by_key(|one| one.link.index);
    for one in links {
        let mut device = of_link(one);
        if all.contains_key(&device.name) {
            // A second port of one function.
            device.name = encoded(&one.link.name);
        }
        all.entry(device.name.clone()).or_insert(device);
    }
    for offer in offers {
        let parent = offer.parent.as_deref();
        let found = seen.links.iter().find(|one| Some(one.link.name.as_str()) == parent);
        if parent.is_none() || found.is_some() {
            let device = of_offer(offer, found);
            all.entry(device.name.clone()).or_insert(device);
        }
    }
    all.into_values().collect()
}

/// Uplinks, what they are ports of, and what they are made on.
fn in_use(seen: &Seen, by_index: &BTreeMap<u32, &SeenLink>) -> BTreeSet<u32> {
    let mut kept = seen.uplinks.clone();
    loop {
        let before = kept.len();
        for one in &seen.links {
            let link = &one.link;
            // A port of an uplink carries it.
            if link.master.is_some_and(|master| kept.contains(&master)) {
                kept.insert(link.index);
            }
            let below = link.peer.filter(|_| link.peer_netns.is_none() && kept.contains(&link.index));
            if let Some(below) = below.filter(|below| by_index.contains_key(below)) {
                kept.insert(below);
            }
        }
        if kept.len() == before {
            return kept;
        }
    }
}

fn may_go(one: &SeenLink, kept: &BTreeSet<u32>) -> bool {
    const LOOPBACK: u32 = 0x8;
    let link = &one.link;
    let kind = link.kind.as_deref().unwrap_or_default();
    let own = kept.contains(&link.index) || link.master.is_some_and(|master| kept.contains(&master));
    // The other end is in some pod already.
    let of_a_pod = kind == "veth" && link.peer_netns.is_some();
    !own && link.flags & LOOPBACK == 0 && !ROOTED.contains(&kind) && !of_a_pod
}

pub(crate) fn own(name: &str) -> String {
    format!("{DOMAIN}/{name}")
}

fn text(text: &str) -> Attribute {
    let end = (0..=TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Attribute::Text(text[..end].to_owned())
}

fn of_link(one: &SeenLink) -> Device {
    let link = &one.link;
    let mut all = common(one);
    let kind = link.kind.as_deref().unwrap_or("device");
    all.insert(own("type"), text(kind));
    all.insert(own("virtual"), Attribute::Flag(link.parent_device.is_none()));
    let name = match &one.pci {
        Some(pci) => {
            of_pci(pci, &mut all);
            format!("pci-{}", pci.address.replace([':', '.'], "-"))
        }
        None => {
            all.insert(own("rdma"), Attribute::Flag(false));
            all.insert(own("sriov"), Attribute::Flag(false));
            label(&link.name)
        }
    };
    let what = What::Link { name: link.name.clone(), index: link.index };
    Device { name, what, attributes: all, files: one.pci.as_ref().map(verbs).unwrap_or_default() }
}

fn common(one: &SeenLink) -> BTreeMap<String, Attribute> {
    let link = &one.link;
    let mut all = BTreeMap::new();
    all.insert(own("ifName"), text(&link.name));
    all.insert(own("mtu"), Attribute::Number(link.mtu.into()));
    all.insert(own("encapsulation"), text(encapsulation(link.hardware)));
    all.insert(own("state"), text(state(link.oper_state)));
    if let Some(mac) = link.mac {
        all.insert(own("mac"), text(&mac.to_string()));
    }
    if let Some(alias) = link.alias.as_deref().filter(|alias| !alias.is_empty()) {
        all.insert(own("alias"), text(alias));
    }
    for (name, v4) in [("ipv4", true), ("ipv6", false)] {
        let mut own_of: Vec<String> =
            one.addresses.iter().filter(|net| net.addr().is_ipv4() == v4).map(IpNet::to_string).collect();
        own_of.sort();
        if !own_of.is_empty() {
            all.insert(own(name), text(&own_of.join(",")));
        }
    }
    all
}

fn of_pci(pci: &Pci, all: &mut BTreeMap<String, Attribute>) {
    all.insert(own("pciAddress"), text(&pci.address));
    all.insert("resource.kubernetes.io/pciBusID".to_owned(), text(&pci.address));
    for (name, value) in [("pciVendorID", &pci.vendor), ("pciDeviceID", &pci.device)] {
        if let Some(value) = value {
            all.insert(own(name), text(value));
        }
    }
    if let Some(root) = &pci.root {
        all.insert("resource.kubernetes.io/pcieRoot".to_owned(), text(root));
    }
    if let Some(numa) = pci.numa.filter(|numa| *numa >= 0) {
        all.insert(own("numaNode"), Attribute::Number(numa));
        all.insert("resource.kubernetes.io/numaNode".to_owned(), Attribute::Number(numa));
    }
    all.insert(own("sriov"), Attribute::Flag(pci.functions.is_some_and(|(most, _)| most > 0)));
    if let Some((most, now)) = pci.functions
        && most > 0
    {
        all.insert(own("sriovVfs"), Attribute::Number(now));
    }
    if pci.is_function {
        all.insert(own("isSriovVf"), Attribute::Flag(true));
    }
    all.insert(own("rdma"), Attribute::Flag(!pci.rdma.is_empty()));
    if let Some(name) = pci.rdma.first() {
        all.insert(own("rdmaDevice"), text(name));
    }
}

/// Without them nobody speaks to RDMA devices. Those of the subnet's management are not among them.
fn verbs(pci: &Pci) -> Vec<PathBuf> {
    let all = pci.verbs.iter().map(String::as_str);
    let manager = (!pci.verbs.is_empty()).then_some("rdma_cm");
    all.chain(manager).map(|name| Path::new("/dev/infiniband").join(name)).collect()
}

fn of_offer(offer: &Offer, parent: Option<&SeenLink>) -> Device {
    let mut all = BTreeMap::new();
    all.insert(own("type"), text(offer.kind.name()));
    all.insert(own("virtual"), Attribute::Flag(true));
    all.insert(own("onDemand"), Attribute::Flag(true));
    if let ChildKind::Vlan { id } = offer.kind {
        all.insert(own("vlan"), Attribute::Number(id.into()));
    }
    if let Some(parent) = parent {
        all.insert(own("parent"), text(&parent.link.name));
        all.insert(own("mtu"), Attribute::Number(parent.link.mtu.into()));
        all.insert(own("state"), text(state(parent.link.oper_state)));
        if let Some(pci) = &parent.pci {
            for (name, value) in [("pcieRoot", pci.root.as_ref()), ("pciBusID", Some(&pci.address))] {
                if let Some(value) = value {
                    all.insert(format!("resource.kubernetes.io/{name}"), text(value));
                }
            }
            if let Some(numa) = pci.numa.filter(|numa| *numa >= 0) {
                all.insert("resource.kubernetes.io/numaNode".to_owned(), Attribute::Number(numa));
            }
        }
    }
    Device { name: offer.name(), what: What::Made(offer.clone()), attributes: all, files: Vec::new() }
}

/// The name of a link as a device may be called.
fn label(name: &str) -> String {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.is_empty() && name.chars().all(good) && !name.starts_with('-') && !name.ends_with('-') {
        return name.to_owned();
    }
    encoded(name)
}

/// Any name in letters and digits: RFC 4648's base 32, small and without padding.
fn encoded(name: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::from("net-");
    for chunk in name.as_bytes().chunks(5) {
        let bits =
            chunk.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte)) << (8 * (5 - chunk.len()));
        for place in 0..(chunk.len() * 8).div_ceil(5) {
            let at = usize::try_from(bits >> (35 - 5 * place) & 31).unwrap_or(0);
            text.push(char::from(LETTERS[at]));
        }
    }
    text
}

/// Names of `ARPHRD_*` as tools print them.
fn encapsulation(hardware: u16) -> &'static str {
    match hardware {
        1 => "ether",
        32 => "infiniband",
        512 => "ppp",
        768 => "tunnel",
        769 => "tunnel6",
        772 => "loopback",
        776 => "sit",
        778 => "gre",
        65534 => "none",
        _ => "unknown",
    }
}

/// Names of RFC 2863's states as tools print them.
fn state(number: u8) -> &'static str {
    match number {
        1 => "not-present",
        2 => "down",
        3 => "lower-layer-down",
        4 => "testing",
        5 => "dormant",
        6 => "up",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;
