//! Addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;

use super::socket::{Error, Reply, Socket};
use super::wire::{Batch, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const IFADDR: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;

/// No duplicate address detection: the address is usable at once.
pub const IFA_F_NODAD: u32 = 0x02;
/// Duplicate address detection found another owner.
pub const IFA_F_DADFAILED: u32 = 0x08;
/// Duplicate address detection is under way.
pub const IFA_F_TENTATIVE: u32 = 0x40;

/// An address to be put on a link.
#[derive(Clone, Copy, Debug)]
pub struct NewAddress {
    /// Index of the link.
    pub link: u32,
    /// Address with its prefix length.
    pub net: IpNet,
    /// IPv6: skip duplicate address detection.
    pub no_dad: bool,
    /// IPv4: set the broadcast address.
    pub broadcast: bool,
}

/// An address found on a link.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Index of the link.
    pub link: u32,
    /// Address with its prefix length.
    pub net: IpNet,
    /// `IFA_F_*`.
    pub flags: u32,
    /// `RT_SCOPE_*`: 0 universe, 253 link, 254 host.
    pub scope: u8,
}

impl Address {
    pub(crate) fn parse(reply: &Reply) -> Option<Address> {
        let header = reply.body.get(..IFADDR)?;
        let attrs = reply.attrs(IFADDR);
        // On a point-to-point link IFA_ADDRESS is the other side, IFA_LOCAL is ours.
        let ip = attrs.ip(IFA_LOCAL).or_else(|| attrs.ip(IFA_ADDRESS))?;
        Some(Address {
            link: u32::from_ne_bytes([header[4], header[5], header[6], header[7]]),
            net: IpNet::new(ip, header[1]).ok()?,
            flags: attrs.u32(IFA_FLAGS).unwrap_or(u32::from(header[2])),
            scope: header[3],
        })
    }
}

pub(crate) fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 2,
        IpAddr::V6(_) => 10,
    }
}

fn ifaddr(family: u8, prefix: u8, link: u32) -> [u8; IFADDR] {
    let mut header = [family, prefix, 0, 0, 0, 0, 0, 0];
    header[4..].copy_from_slice(&link.to_ne_bytes());
    header
}

impl Batch {
    /// Adds an address; an existing one is refused.
    pub fn add_address(&mut self, new: &NewAddress) {
        let ip = new.net.addr();
        self.push("add address", RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            m.put(&ifaddr(family(ip), new.net.prefix_len(), new.link)).ip(IFA_LOCAL, ip).ip(IFA_ADDRESS, ip);
            if let (IpNet::V4(net), true) = (new.net, new.broadcast && new.net.prefix_len() < 31) {
                m.attr(IFA_BROADCAST, &net.broadcast().octets());
            }
            if ip.is_ipv6() && new.no_dad {
                m.u32(IFA_FLAGS, IFA_F_NODAD);
            }
        });
    }

    /// Removes an address.
    pub fn del_address(&mut self, link: u32, net: IpNet) {
        let ip = net.addr();
        self.push("remove address", RTM_DELADDR, NLM_F_ACK, |m| {
            m.put(&ifaddr(family(ip), net.prefix_len(), link)).ip(IFA_LOCAL, ip);
        });
    }
}

impl Socket {
    /// The addresses of all links.
    pub fn all_addresses(&mut self) -> Result<Vec<Address>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list addresses", RTM_GETADDR, NLM_F_DUMP, |m| {
                m.put(&ifaddr(0, 0, 0));
            });
        })?;
        Ok(replies.iter().filter_map(Address::parse).collect())
    }

    /// The addresses of one link.
    pub fn addresses(&mut self, link: u32) -> Result<Vec<Address>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list addresses", RTM_GETADDR, NLM_F_DUMP, |m| {
                m.put(&ifaddr(0, 0, link));
            });
        })?;
        // Kernels before 4.20 do not filter.
        Ok(replies.iter().filter_map(Address::parse).filter(|found| found.link == link).collect())
    }
}
