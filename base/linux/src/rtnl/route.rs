//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::addr::family;
use super::socket::{Error, Reply, Socket};
use super::wire::{Batch, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTMSG: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const TABLE_MAIN: u32 = 254;
const TABLE_LOCAL: u32 = 255;
const PROTOCOL_BOOT: u8 = 3;
const TYPE_UNICAST: u8 = 1;

/// How far a destination is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope(pub u8);

impl Scope {
    /// Anywhere.
    pub const UNIVERSE: Scope = Scope(0);
    /// Directly on the link.
    pub const LINK: Scope = Scope(253);
    /// On this machine.
    pub const HOST: Scope = Scope(254);
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination; prefix length 0 is the default route.
    pub destination: IpNet,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Index of the link it leaves by.
    pub link: u32,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// Table; `None` is main.
    pub table: Option<u32>,
    /// Metric.
    pub priority: Option<u32>,
    /// Scope; `None` is link without a gateway and universe with one.
    pub scope: Option<Scope>,
    /// Path MTU.
    pub mtu: Option<u32>,
    /// Advertised segment size.
    pub advmss: Option<u32>,
}

impl Route {
    /// A route to `destination` by `link`, all else at its default.
    pub fn by_link(destination: IpNet, link: u32) -> Route {
        Route {
            destination,
            gateway: None,
            link,
            source: None,
            table: None,
            priority: None,
            scope: None,
            mtu: None,
            advmss: None,
        }
    }

    /// A route to `destination` by a next hop.
    pub fn by_gateway(destination: IpNet, gateway: IpAddr, link: u32) -> Route {
        Route { gateway: Some(gateway), ..Route::by_link(destination, link) }
    }

    fn put(&self, m: &mut Message<'_>, protocol: u8) {
        self.put_with(m, protocol, 0);
    }

    fn put_with(&self, m: &mut Message<'_>, protocol: u8, flags: u32) {
        let scope = self.scope.unwrap_or(if self.gateway.is_some() { Scope::UNIVERSE } else { Scope::LINK });
        let table = self.table.unwrap_or(TABLE_MAIN);
        let ip = self.destination.addr();
        let mut header = [0; RTMSG];
        header[0] = family(ip);
        header[1] = self.destination.prefix_len();
        header[4] = u8::try_from(table).unwrap_or(0);
        header[5] = protocol;
        header[6] = scope.0;
        header[7] = TYPE_UNICAST;
        header[8..].copy_from_slice(&flags.to_ne_bytes());
        m.put(&header);
        if self.destination.prefix_len() > 0 {
            m.ip(RTA_DST, self.destination.network());
        }
        m.u32(RTA_OIF, self.link).u32(RTA_TABLE, table);
        for (address, kind) in [(self.gateway, RTA_GATEWAY), (self.source, RTA_PREFSRC)] {
            if let Some(address) = address {
                m.ip(kind, address);
            }
        }
        if let Some(priority) = self.priority {
            m.u32(RTA_PRIORITY, priority);
        }
        if self.mtu.is_some() || self.advmss.is_some() {
            m.nested(RTA_METRICS, |m| {
                for (value, kind) in [(self.mtu, RTAX_MTU), (self.advmss, RTAX_ADVMSS)] {
                    if let Some(value) = value {
                        m.u32(kind, value);
                    }
                }
            });
        }
    }

    pub(crate) fn parse(reply: &Reply) -> Option<Route> {
        let header = reply.body.get(..RTMSG)?;
        if header[7] != TYPE_UNICAST {
            return None;
        }
        let attrs = reply.attrs(RTMSG);
        let any = if header[0] == 2 {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        let metrics = attrs.nested(RTA_METRICS);
        Some(Route {
            destination: IpNet::new(attrs.ip(RTA_DST).unwrap_or(any), header[1]).ok()?,
            gateway: attrs.ip(RTA_GATEWAY),
            link: attrs.u32(RTA_OIF)?,
            source: attrs.ip(RTA_PREFSRC),
            table: Some(attrs.u32(RTA_TABLE).unwrap_or(u32::from(header[4]))),
            priority: attrs.u32(RTA_PRIORITY),
            scope: Some(Scope(header[6])),
            mtu: metrics.and_then(|metrics| metrics.u32(RTAX_MTU)),
            advmss: metrics.and_then(|metrics| metrics.u32(RTAX_ADVMSS)),
        })
    }
}

/// A route as it was found, with who made it and how, so that it can be made again as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The route.
    pub route: Route,
    /// Who made it: 2 is the kernel itself, 3 whoever booted the machine, 4 an administrator.
    pub protocol: u8,
    /// Its next hop counts as reachable whatever the addresses of the link are.
    pub onlink: bool,
}

impl Kept {
    const ONLINK: u32 = 4;

    fn parse(reply: &Reply) -> Option<Kept> {
        let header = reply.body.get(..RTMSG)?;
        let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let route = Route::parse(reply)?;
        Some(Kept { route, protocol: header[5], onlink: flags & Kept::ONLINK != 0 })
    }
}

impl Batch {
    /// Makes a route that was found earlier as it was.
    pub fn add_kept(&mut self, kept: &Kept) {
        self.push("restore route", RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            let flags = if kept.onlink { Kept::ONLINK } else { 0 };
            kept.route.put_with(m, kept.protocol, flags);
        });
    }

    /// Adds a route, in place of one to the same destination with the same metric.
    pub fn replace_route(&mut self, route: &Route) {
        self.push("replace route", RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, |m| {
            route.put(m, PROTOCOL_BOOT);
        });
    }

    /// Adds a route beside any that exists with another metric or next hop.
    pub fn add_route(&mut self, route: &Route) {
        self.push("add route", RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            route.put(m, PROTOCOL_BOOT);
        });
    }

    /// Removes a route, whoever made it; scope 255 matches any.
    pub fn del_route(&mut self, route: &Route) {
        self.push("remove route", RTM_DELROUTE, NLM_F_ACK, |m| route.put(m, 0));
    }
}

impl Socket {
    /// The unicast routes that leave by one link, in every table but the local one, with all that makes them what they are.
    pub fn kept_routes(&mut self, link: u32, v6: bool) -> Result<Vec<Kept>, Error> {
        let replies = self.route_dump(Some(link), v6)?;
        let wanted = |kept: &Kept| kept.route.table != Some(TABLE_LOCAL) && kept.route.link == link;
        Ok(replies.iter().filter_map(Kept::parse).filter(wanted).collect())
    }

    fn route_dump(&mut self, link: Option<u32>, v6: bool) -> Result<Vec<Reply>, Error> {
        self.dump(|batch| {
            batch.push("list routes", RTM_GETROUTE, NLM_F_DUMP, |m| {
                let mut header = [0; RTMSG];
                header[0] = if v6 { 10 } else { 2 };
                m.put(&header);
                if let Some(link) = link {
                    m.u32(RTA_OIF, link);
                }
            });
        })
    }

    /// The unicast routes that leave by one link, in every table but the local one; `None` is every link.
    pub fn routes(&mut self, link: Option<u32>, v6: bool) -> Result<Vec<Route>, Error> {
        let replies = self.route_dump(link, v6)?;
        let wanted =
            |route: &Route| route.table != Some(TABLE_LOCAL) && link.is_none_or(|link| route.link == link);
        Ok(replies.iter().filter_map(Route::parse).filter(wanted).collect())
    }

    /// The link the kernel would send by to reach `destination`.
    pub fn route_to(&mut self, destination: IpAddr) -> Result<Option<u32>, Error> {
        let mut batch = Batch::new();
        batch.push("look up route", RTM_GETROUTE, NLM_F_ACK, |m| {
            let mut header = [0; RTMSG];
            header[0] = family(destination);
            header[1] = if destination.is_ipv4() { 32 } else { 128 };
            m.put(&header).ip(RTA_DST, destination);
        });
        match self.exchange(&mut batch) {
            Ok(replies) => Ok(replies.first().and_then(|reply| reply.attrs(RTMSG).u32(RTA_OIF))),
            Err(error) if error.is_absent() || error.errno() == Some(rustix::io::Errno::NETUNREACH) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
