//! Links: veth pairs made straight into their namespace, bridges, macvlans, ifbs, and changes to them.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::socket::{Error, Reply, Socket};
use super::wire::{Attrs, Batch, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWLINKPROP: u16 = 108;
const RTM_DELLINKPROP: u16 = 109;
const IFINFO: usize = 16;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_PERM_ADDRESS: u16 = 54;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_MACVLAN_MODE: u16 = 1;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_IPVLAN_MODE: u16 = 1;
const IFLA_MACVLAN_BC_QUEUE_LEN: u16 = 7;
const IFLA_VRF_TABLE: u16 = 1;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const RTEXT_FILTER_BRVLAN: u32 = 1 << 1;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const AF_BRIDGE: u8 = 7;
const AF_INET: u16 = 2;
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_ARP_NOTIFY: u16 = 22;

/// The link is administratively up.
pub const IFF_UP: u32 = 0x1;
/// The link is a loopback.
pub const IFF_LOOPBACK: u32 = 0x8;
/// The link takes every frame.
pub const IFF_PROMISC: u32 = 0x100;
/// The link takes every multicast frame.
pub const IFF_ALLMULTI: u32 = 0x200;

/// A hardware address of six bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::str::FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(MacError)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Mac(bytes)) }
    }
}

/// The text is not six hexadecimal bytes.
#[derive(Debug, thiserror::Error)]
#[error("not a hardware address of six bytes")]
pub struct MacError;

/// What is known of a link.
#[derive(Debug, Clone, Default)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Kind as rtnetlink names it (`veth`, `bridge`, ...); physical links have none.
    pub kind: Option<String>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Largest packet.
    pub mtu: u32,
    /// `IFF_*`.
    pub flags: u32,
    /// RFC 2863 state: 6 is up, 2 is down.
    /// <https://docs.kernel.org/networking/operstates.html>.
    pub oper_state: u8,
    /// Index of the bridge or bond it belongs to.
    pub master: Option<u32>,
    /// Index of the other end (veth) or of the parent (macvlan), in its own namespace.
    pub peer: Option<u32>,
    /// The namespace that the peer is in, when it is another one.
    pub peer_netns: Option<u32>,
    /// Free text put on it.
    pub alias: Option<String>,
    /// Transmit queue length.
    pub tx_queue: u32,
    /// How many ask for promiscuous mode.
    pub promiscuity: u32,
    /// Bridge port: frames may leave where they came in.
    pub hairpin: bool,
    /// Bridge port: may not talk to other isolated ports.
    pub isolated: bool,
    /// Bridge: filters by VLAN.
    pub vlan_filtering: bool,
    /// Macvlan: its mode number.
    pub macvlan_mode: Option<u32>,
    /// Virtual router: its table of routes.
    pub vrf_table: Option<u32>,
    /// What hardware it is or pretends to be (`ARPHRD_*`).
    pub hardware: u16,
    /// Further names.
    pub altnames: Vec<String>,
    /// The hardware address it was made with, where the device knows one.
    pub permanent_mac: Option<Mac>,
    /// The bus and the device that it is a part of; virtual links have none. Kernels before 5.13 do not tell.
    pub parent_device: Option<(String, String)>,
    /// Limits of aggregated packets.
    pub aggregation: Aggregation,
}

/// Largest packets that are made of several, on the way out and in; `None` where the kernel does not tell or is not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aggregation {
    /// On the way out, IPv6.
    pub gso: Option<u32>,
    /// On the way in, IPv6.
    pub gro: Option<u32>,
    /// On the way out, IPv4.
    pub gso_ipv4: Option<u32>,
    /// On the way in, IPv4.
    pub gro_ipv4: Option<u32>,
}

impl Aggregation {
    const KINDS: [u16; 4] =
        [IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE];

    fn parse(attrs: Attrs<'_>) -> Aggregation {
        let [gso, gro, gso_ipv4, gro_ipv4] = Aggregation::KINDS.map(|kind| attrs.u32(kind));
        Aggregation { gso, gro, gso_ipv4, gro_ipv4 }
    }

    fn put(self, m: &mut Message<'_>) {
        let values = [self.gso, self.gro, self.gso_ipv4, self.gro_ipv4];
        for (kind, value) in Aggregation::KINDS.into_iter().zip(values) {
            if let Some(value) = value {
                m.u32(kind, value);
            }
        }
    }
}

impl Link {
    /// Administratively up.
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// Reads a link from a reply.
    pub fn parse(reply: &Reply) -> Option<Link> {
        if reply.kind != RTM_NEWLINK {
            return None;
        }
        let header = reply.body.get(..IFINFO)?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let attrs = reply.attrs(IFINFO);
        let mut link = Link {
            index: word(4),
            flags: word(8),
            name: attrs.str(IFLA_IFNAME)?,
            mac: attrs.find(IFLA_ADDRESS).and_then(|mac| <[u8; 6]>::try_from(mac).ok()).map(Mac),
            mtu: attrs.u32(IFLA_MTU).unwrap_or(0),
            oper_state: attrs.u8(IFLA_OPERSTATE).unwrap_or(0),
            master: attrs.u32(IFLA_MASTER),
            peer: attrs.u32(IFLA_LINK),
            peer_netns: attrs.u32(IFLA_LINK_NETNSID),
            alias: attrs.str(IFLA_IFALIAS),
            tx_queue: attrs.u32(IFLA_TXQLEN).unwrap_or(0),
            promiscuity: attrs.u32(IFLA_PROMISCUITY).unwrap_or(0),
            hardware: u16::from_ne_bytes([header[2], header[3]]),
            permanent_mac: attrs
                .find(IFLA_PERM_ADDRESS)
                .and_then(|mac| <[u8; 6]>::try_from(mac).ok())
                .map(Mac),
            parent_device: attrs.str(IFLA_PARENT_DEV_BUS_NAME).zip(attrs.str(IFLA_PARENT_DEV_NAME)),
            aggregation: Aggregation::parse(attrs),
            ..Link::default()
        };
        for (kind, name) in attrs.nested(IFLA_PROP_LIST).into_iter().flatten() {
            if kind == IFLA_ALT_IFNAME {
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                link.altnames.push(String::from_utf8_lossy(&name[..end]).into_owned());
            }
        }
        if let Some(info) = attrs.nested(IFLA_LINKINFO) {
            link.read_info(info);
        }
        Some(link)
    }

    fn read_info(&mut self, info: Attrs<'_>) {
        self.kind = info.str(IFLA_INFO_KIND);
        if let Some(port) = info.nested(IFLA_INFO_SLAVE_DATA) {
            self.hairpin = port.u8(IFLA_BRPORT_MODE) == Some(1);
            self.isolated = port.u8(IFLA_BRPORT_ISOLATED) == Some(1);
        }
        if let Some(data) = info.nested(IFLA_INFO_DATA) {
            match self.kind.as_deref() {
                Some("bridge") => self.vlan_filtering = data.u8(IFLA_BR_VLAN_FILTERING) == Some(1),
                Some("macvlan") => self.macvlan_mode = data.u32(IFLA_MACVLAN_MODE),
                Some("vrf") => self.vrf_table = data.u32(IFLA_VRF_TABLE),
                _ => {}
            }
        }
    }
}

/// A link named by index or by name.
#[derive(Clone, Copy, Debug)]
pub enum LinkRef<'a> {
    /// By index.
    Index(u32),
    /// By name.
    Name(&'a str),
}

impl LinkRef<'_> {
    fn put(self, m: &mut Message<'_>, family: u8, flags: u32, change: u32) {
        let index = if let LinkRef::Index(index) = self { index } else { 0 };
        m.put(&ifinfo(family, index, flags, change));
        if let LinkRef::Name(name) = self {
            m.str(IFLA_IFNAME, name);
        }
    }
}

fn ifinfo(family: u8, index: u32, flags: u32, change: u32) -> [u8; IFINFO] {
    let mut header = [0; IFINFO];
    header[0] = family;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

/// A veth pair to be made: this end here, the other in `peer.netns`.
pub struct Veth<'a> {
    /// Name of this end.
    pub name: &'a str,
    /// Bring this end up at once.
    pub up: bool,
    /// Bridge this end joins.
    pub master: Option<u32>,
    /// Largest packet, both ends.
    pub mtu: Option<u32>,
    /// Hardware address of this end.
    pub mac: Option<Mac>,
    /// The other end.
    pub peer: Peer<'a>,
}

/// The far end of a veth pair. It comes down: the kernel refuses a pair whose two ends are up at birth.
/// `veth_newlink` in <https://github.com/torvalds/linux/blob/v6.12/drivers/net/veth.c>.
pub struct Peer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace, or this one.
    pub netns: Option<BorrowedFd<'a>>,
    /// Its hardware address.
    pub mac: Option<Mac>,
}

/// A bridge to be made.
#[derive(Default)]
pub struct Bridge<'a> {
    /// Name.
    pub name: &'a str,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Hardware address; a chosen one no longer follows the ports.
    pub mac: Option<Mac>,
    /// Filter by VLAN.
    pub vlan_filtering: bool,
}

/// How macvlans of one parent see each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MacvlanMode {
    /// Not at all.
    Private = 1,
    /// Through the switch outside.
    Vepa = 2,
    /// Directly.
    Bridge = 4,
    /// The parent is given whole.
    Passthru = 8,
}

/// A macvlan to be made.
pub struct Macvlan<'a> {
    /// Name.
    pub name: &'a str,
    /// Index of the parent, in the socket's namespace.
    pub parent: u32,
    /// Mode.
    pub mode: MacvlanMode,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Broadcast queue length.
    pub broadcast_queue: Option<u32>,
    /// The namespace it is made in.
    pub netns: Option<BorrowedFd<'a>>,
}

/// A kind of link on top of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpperKind {
    /// Swallows what is sent; needs no other link.
    Dummy,
    /// One VLAN of its parent.
    Vlan {
        /// The tag.
        id: u16,
    },
    /// Shares the hardware address of its parent.
    Ipvlan {
        /// 0 is layer 2, 1 layer 3, 2 layer 3 with the parent's packet filter.
        mode: u16,
    },
    /// A router of its own for the links that join it; needs no other link.
    Vrf {
        /// Its table of routes.
        table: u32,
    },
}

impl UpperKind {
    /// As rtnetlink names it.
    pub fn name(self) -> &'static str {
        match self {
            UpperKind::Dummy => "dummy",
            UpperKind::Vlan { .. } => "vlan",
            UpperKind::Ipvlan { .. } => "ipvlan",
            UpperKind::Vrf { .. } => "vrf",
        }
    }
}

/// A link on top of another one, to be made.
pub struct Upper<'a> {
    /// Name.
    pub name: &'a str,
    /// Kind.
    pub kind: UpperKind,
    /// Index of the parent, in the socket's namespace.
    pub parent: Option<u32>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// The namespace it is made in.
    pub netns: Option<BorrowedFd<'a>>,
}

/// Changes to an existing link; `None` leaves as is.
#[derive(Default, Clone)]
pub struct LinkChange<'a> {
    /// Up or down.
    pub up: Option<bool>,
    /// New name (the link must be down).
    pub name: Option<&'a str>,
    /// Largest packet.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Bridge to join; 0 leaves the present one.
    pub master: Option<u32>,
    /// Take every frame.
    pub promisc: Option<bool>,
    /// Take every multicast frame.
    pub allmulti: Option<bool>,
    /// Transmit queue length.
    pub tx_queue: Option<u32>,
    /// Free text; the kernel takes none at birth.
    pub alias: Option<&'a str>,
    /// Tell neighbours of the link's IPv4 addresses each time it comes up.
    pub announce: Option<bool>,
    /// Limits of aggregated packets.
    pub aggregation: Aggregation,
    /// Move to another namespace.
    pub netns: Option<BorrowedFd<'a>>,
}

/// Changes to a bridge port.
#[derive(Default, Clone, Copy)]
pub struct PortChange {
    /// Frames may leave where they came in.
    pub hairpin: Option<bool>,
    /// No traffic to other isolated ports.
    pub isolated: Option<bool>,
}

/// VLANs of a bridge port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanRange {
    /// First id.
    pub first: u16,
    /// Last id, the first for a single one.
    pub last: u16,
    /// Untagged frames that come in belong to it.
    pub pvid: bool,
    /// Frames leave without tag.
    pub untagged: bool,
}

impl Batch {
    /// Makes a veth pair; the reply is this end, whose `peer` is the index of the other.
    pub fn add_veth(&mut self, veth: &Veth<'_>) {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO;
        let up = if veth.up { IFF_UP } else { 0 };
        self.push("create veth", RTM_NEWLINK, flags, |m| {
            m.put(&ifinfo(0, 0, up, up)).str(IFLA_IFNAME, veth.name);
            one_queue(m);
            optional(m, veth.mtu, veth.mac, None);
            if let Some(master) = veth.master {
                m.u32(IFLA_MASTER, master);
            }
            m.nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, "veth").nested(IFLA_INFO_DATA, |m| {
                    m.nested(VETH_INFO_PEER, |m| {
                        m.put(&ifinfo(0, 0, 0, 0)).str(IFLA_IFNAME, veth.peer.name);
                        one_queue(m);
                        optional(m, veth.mtu, veth.peer.mac, None);
                        namespace(m, veth.peer.netns);
                    });
                });
            });
        });
    }

    /// Makes a bridge, up; the reply is the bridge.
    pub fn add_bridge(&mut self, bridge: &Bridge<'_>) {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO;
        self.push("create bridge", RTM_NEWLINK, flags, |m| {
            m.put(&ifinfo(0, 0, IFF_UP, IFF_UP)).str(IFLA_IFNAME, bridge.name);
            optional(m, bridge.mtu, bridge.mac, None);
            m.nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, "bridge");
                if bridge.vlan_filtering {
                    m.nested(IFLA_INFO_DATA, |m| {
                        m.u8(IFLA_BR_VLAN_FILTERING, 1);
                    });
                }
            });
        });
    }

    /// Lets packets between the ports of a bridge pass the hooks of IPv4 and IPv6, whatever the sysctls for all bridges say.
    pub fn filter_bridged(&mut self, bridge: u32) {
        self.push("filter what is bridged", RTM_NEWLINK, NLM_F_ACK, |m| {
            m.put(&ifinfo(0, bridge, 0, 0)).nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, "bridge").nested(IFLA_INFO_DATA, |m| {
                    m.u8(IFLA_BR_NF_CALL_IPTABLES, 1).u8(IFLA_BR_NF_CALL_IP6TABLES, 1);
                });
            });
        });
    }

    /// Turns VLAN filtering of a bridge on.
    pub fn filter_vlans(&mut self, bridge: u32) {
        self.push("filter vlans", RTM_NEWLINK, NLM_F_ACK, |m| {
            m.put(&ifinfo(0, bridge, 0, 0)).nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, "bridge").nested(IFLA_INFO_DATA, |m| {
                    m.u8(IFLA_BR_VLAN_FILTERING, 1);
                });
            });
        });
    }

    /// Makes a link that needs nothing but a kind (`ifb`, `dummy`), up; the reply is the link.
    pub fn add_plain(&mut self, kind: &str, name: &str, mtu: Option<u32>, tx_queue: Option<u32>) {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ECHO;
        self.push("create link", RTM_NEWLINK, flags, |m| {
            m.put(&ifinfo(0, 0, IFF_UP, IFF_UP)).str(IFLA_IFNAME, name);
            optional(m, mtu, None, None);
            if let Some(length) = tx_queue {
                m.u32(IFLA_TXQLEN, length);
            }
            m.nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, kind);
            });
        });
    }

    /// Makes a macvlan.
    pub fn add_macvlan(&mut self, macvlan: &Macvlan<'_>) {
        self.push("create macvlan", RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            m.put(&ifinfo(0, 0, 0, 0)).str(IFLA_IFNAME, macvlan.name);
            optional(m, macvlan.mtu, macvlan.mac, None);
            m.u32(IFLA_LINK, macvlan.parent);
            namespace(m, macvlan.netns);
            m.nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, "macvlan").nested(IFLA_INFO_DATA, |m| {
                    m.u32(IFLA_MACVLAN_MODE, macvlan.mode as u32);
                    if let Some(length) = macvlan.broadcast_queue {
                        m.u32(IFLA_MACVLAN_BC_QUEUE_LEN, length);
                    }
                });
            });
        });
    }

    /// Makes a link on top of another one, or of none, in a namespace; it comes down.
    pub fn add_upper(&mut self, upper: &Upper<'_>) {
        self.push("create link", RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            m.put(&ifinfo(0, 0, 0, 0)).str(IFLA_IFNAME, upper.name);
            optional(m, upper.mtu, upper.mac, None);
            if let Some(parent) = upper.parent {
                m.u32(IFLA_LINK, parent);
            }
            namespace(m, upper.netns);
            m.nested(IFLA_LINKINFO, |m| {
                m.str(IFLA_INFO_KIND, upper.kind.name());
                match upper.kind {
                    UpperKind::Dummy => {}
                    UpperKind::Vlan { id } => {
                        m.nested(IFLA_INFO_DATA, |m| {
                            m.u16(IFLA_VLAN_ID, id);
                        });
                    }
                    UpperKind::Ipvlan { mode } => {
                        m.nested(IFLA_INFO_DATA, |m| {
                            m.u16(IFLA_IPVLAN_MODE, mode);
                        });
                    }
                    UpperKind::Vrf { table } => {
                        m.nested(IFLA_INFO_DATA, |m| {
                            m.u32(IFLA_VRF_TABLE, table);
                        });
                    }
                }
            });
        });
    }

    /// Changes a link.
    pub fn set_link(&mut self, link: LinkRef<'_>, change: &LinkChange<'_>) {
        let mut flags = 0;
        let mut mask = 0;
        for (wanted, bit) in
            [(change.up, IFF_UP), (change.promisc, IFF_PROMISC), (change.allmulti, IFF_ALLMULTI)]
        {
            if let Some(on) = wanted {
                mask |= bit;
                flags |= if on { bit } else { 0 };
            }
        }
        self.push("change link", RTM_NEWLINK, NLM_F_ACK, |m| {
            match (link, change.name) {
                (LinkRef::Index(_), Some(name)) => {
                    link.put(m, 0, flags, mask);
                    m.str(IFLA_IFNAME, name);
                }
                _ => link.put(m, 0, flags, mask),
            }
            optional(m, change.mtu, change.mac, change.alias);
            change.aggregation.put(m);
            for (value, kind) in [(change.master, IFLA_MASTER), (change.tx_queue, IFLA_TXQLEN)] {
                if let Some(value) = value {
                    m.u32(kind, value);
                }
            }
            namespace(m, change.netns);
            if let Some(on) = change.announce {
                m.nested(IFLA_AF_SPEC, |m| {
                    m.nested(AF_INET, |m| {
                        m.nested(IFLA_INET_CONF, |m| {
                            m.u32(IPV4_DEVCONF_ARP_NOTIFY, u32::from(on));
                        });
                    });
                });
            }
        });
    }

    /// Changes a bridge port.
    pub fn set_port(&mut self, port: u32, change: PortChange) {
        self.push("change bridge port", RTM_SETLINK, NLM_F_ACK, |m| {
            m.put(&ifinfo(AF_BRIDGE, port, 0, 0)).nested(IFLA_PROTINFO, |m| {
                for (wanted, kind) in
                    [(change.hairpin, IFLA_BRPORT_MODE), (change.isolated, IFLA_BRPORT_ISOLATED)]
                {
                    if let Some(on) = wanted {
                        m.u8(kind, u8::from(on));
                    }
                }
            });
        });
    }

    /// Adds VLANs to a bridge port.
    pub fn add_vlan(&mut self, port: u32, vlan: VlanRange) {
        self.push("add vlan to port", RTM_SETLINK, NLM_F_ACK, |m| put_vlan(m, port, vlan));
    }

    /// Takes VLANs from a bridge port.
    pub fn del_vlan(&mut self, port: u32, vlan: VlanRange) {
        self.push("remove vlan from port", RTM_DELLINK, NLM_F_ACK, |m| put_vlan(m, port, vlan));
    }

    /// Gives a link another name beside its own.
    pub fn add_altname(&mut self, link: u32, name: &str) {
        self.push("add alternative name", RTM_NEWLINKPROP, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            put_altname(m, link, name);
        });
    }

    /// Takes such a name away.
    pub fn del_altname(&mut self, link: u32, name: &str) {
        self.push("remove alternative name", RTM_DELLINKPROP, NLM_F_ACK, |m| put_altname(m, link, name));
    }

    /// Removes a link.
    pub fn del_link(&mut self, link: LinkRef<'_>) {
        self.push("delete link", RTM_DELLINK, NLM_F_ACK, |m| link.put(m, 0, 0, 0));
    }

    /// Asks for a link.
    pub fn get_link(&mut self, link: LinkRef<'_>) {
        self.push("look up link", RTM_GETLINK, NLM_F_ACK, |m| {
            link.put(m, 0, 0, 0);
            // Counters are half of the answer, and nobody here wants them.
            m.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        });
    }
}

fn put_altname(m: &mut Message<'_>, link: u32, name: &str) {
    m.put(&ifinfo(0, link, 0, 0)).nested(IFLA_PROP_LIST, |m| {
        m.str(IFLA_ALT_IFNAME, name);
    });
}

fn put_vlan(m: &mut Message<'_>, port: u32, vlan: VlanRange) {
    const PVID: u16 = 2;
    const UNTAGGED: u16 = 4;
    const RANGE_BEGIN: u16 = 8;
    const RANGE_END: u16 = 16;
    let flags = if vlan.pvid { PVID } else { 0 } | if vlan.untagged { UNTAGGED } else { 0 };
    let info = |flags: u16, id: u16| [flags.to_ne_bytes(), id.to_ne_bytes()].concat();
    m.put(&ifinfo(AF_BRIDGE, port, 0, 0)).nested(IFLA_AF_SPEC, |m| {
        if vlan.first == vlan.last {
            m.attr(IFLA_BRIDGE_VLAN_INFO, &info(flags, vlan.first));
        } else {
            m.attr(IFLA_BRIDGE_VLAN_INFO, &info(flags | RANGE_BEGIN, vlan.first));
            m.attr(IFLA_BRIDGE_VLAN_INFO, &info(flags | RANGE_END, vlan.last));
        }
    });
}

/// Asks for the one queue that a veth uses: not asked, the kernel makes one per processor, takes all but one out of use
/// again, and waits for every processor to notice, twice and with its lock of all links held.
/// `veth_get_num_queues` in <https://github.com/torvalds/linux/blob/v6.12/drivers/net/veth.c>.
fn one_queue(m: &mut Message<'_>) {
    m.u32(IFLA_NUM_TX_QUEUES, 1).u32(IFLA_NUM_RX_QUEUES, 1);
}

fn optional(m: &mut Message<'_>, mtu: Option<u32>, mac: Option<Mac>, alias: Option<&str>) {
    if let Some(mtu) = mtu {
        m.u32(IFLA_MTU, mtu);
    }
    if let Some(mac) = mac {
        m.attr(IFLA_ADDRESS, &mac.0);
    }
    if let Some(alias) = alias {
        m.str(IFLA_IFALIAS, alias);
    }
}

fn namespace(m: &mut Message<'_>, netns: Option<BorrowedFd<'_>>) {
    if let Some(fd) = netns {
        m.attr(IFLA_NET_NS_FD, &fd.as_raw_fd().to_ne_bytes());
    }
}

impl Socket {
    /// The link, or `None` when there is none.
    pub fn link(&mut self, link: LinkRef<'_>) -> Result<Option<Link>, Error> {
        let mut batch = Batch::new();
        batch.get_link(link);
        match self.exchange(&mut batch) {
            Ok(replies) => Ok(replies.iter().find_map(Link::parse)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The link of this name that a batch made: as the kernel echoed it, which costs nothing, or asked for, as kernels
    /// before 6.2 echo no new links. `None` when it is gone again.
    pub fn made(&mut self, replies: &[Reply], name: &str) -> Result<Option<Link>, Error> {
        match replies.iter().filter_map(Link::parse).find(|link| link.name == name) {
            Some(link) => Ok(Some(link)),
            None => self.link(LinkRef::Name(name)),
        }
    }

    /// All links of the namespace. For diagnosis only: look one up when you can.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list links", RTM_GETLINK, NLM_F_DUMP, |m| {
                m.put(&ifinfo(0, 0, 0, 0));
            });
        })?;
        Ok(replies.iter().filter_map(Link::parse).collect())
    }

    /// The VLANs of one bridge port.
    pub fn vlans(&mut self, port: u32) -> Result<Vec<VlanRange>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list vlans", RTM_GETLINK, NLM_F_DUMP, |m| {
                m.put(&ifinfo(AF_BRIDGE, 0, 0, 0)).u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN);
            });
        })?;
        let mut vlans = Vec::new();
        for reply in &replies {
            let of_port = reply.body.get(4..8) == Some(port.to_ne_bytes().as_slice());
            let Some(spec) = reply.attrs(IFINFO).nested(IFLA_AF_SPEC).filter(|_| of_port) else { continue };
            for (kind, value) in spec {
                if let (IFLA_BRIDGE_VLAN_INFO, [f0, f1, v0, v1]) = (kind, value) {
                    let flags = u16::from_ne_bytes([*f0, *f1]);
                    let id = u16::from_ne_bytes([*v0, *v1]);
                    vlans.push(VlanRange {
                        first: id,
                        last: id,
                        pvid: flags & 2 != 0,
                        untagged: flags & 4 != 0,
                    });
                }
            }
        }
        Ok(vlans)
    }
}
