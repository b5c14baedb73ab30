//! Neighbours: who has which address on a link.

use std::net::IpAddr;

use super::addr::family;
use super::link::Mac;
use super::socket::{Error, Reply, Socket};
use super::wire::{Batch, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const NDMSG: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

/// A neighbour entry.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// Index of the link.
    pub link: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its hardware address.
    pub mac: Mac,
}

fn ndmsg(family: u8, link: u32, state: u16) -> [u8; NDMSG] {
    let mut header = [0; NDMSG];
    header[0] = family;
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header
}

impl Neighbour {
    pub(crate) fn parse(reply: &Reply) -> Option<Neighbour> {
        let header = reply.body.get(..NDMSG)?;
        let attrs = reply.attrs(NDMSG);
        Some(Neighbour {
            link: u32::from_ne_bytes([header[4], header[5], header[6], header[7]]),
            ip: attrs.ip(NDA_DST)?,
            mac: Mac(<[u8; 6]>::try_from(attrs.find(NDA_LLADDR)?).ok()?),
        })
    }
}

impl Batch {
    /// Adds or replaces a permanent neighbour.
    pub fn set_neighbour(&mut self, neighbour: &Neighbour) {
        self.push("set neighbour", RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, |m| {
            m.put(&ndmsg(family(neighbour.ip), neighbour.link, NUD_PERMANENT))
                .ip(NDA_DST, neighbour.ip)
                .attr(NDA_LLADDR, &neighbour.mac.0);
        });
    }

    /// Forgets a neighbour, so that a reused address is asked for again.
    pub fn del_neighbour(&mut self, link: u32, ip: IpAddr) {
        self.push("forget neighbour", RTM_DELNEIGH, NLM_F_ACK, |m| {
            m.put(&ndmsg(family(ip), link, 0)).ip(NDA_DST, ip);
        });
    }
}

impl Socket {
    /// The neighbours of one link that somebody put there for good.
    pub fn permanent_neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list neighbours", RTM_GETNEIGH, NLM_F_DUMP, |m| {
                m.put(&ndmsg(0, 0, 0));
            });
        })?;
        let is_permanent =
            |reply: &&Reply| reply.body.get(8..10).is_some_and(|state| state == NUD_PERMANENT.to_ne_bytes());
        let found = replies.iter().filter(is_permanent).filter_map(Neighbour::parse);
        Ok(found.filter(|found| found.link == link && !found.ip.is_multicast()).collect())
    }

    /// The neighbours seen on one link.
    pub fn neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list neighbours", RTM_GETNEIGH, NLM_F_DUMP, |m| {
                m.put(&ndmsg(0, 0, 0));
            });
        })?;
        Ok(replies.iter().filter_map(Neighbour::parse).filter(|found| found.link == link).collect())
    }
}
