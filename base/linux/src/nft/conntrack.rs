//! Connections the packet filter remembers: listed, and forgotten by port, by address or one by one.
//!
//! A UDP client that keeps its port would otherwise be sent to a pod that is gone, or past one that has just come; the next
//! owner of an address would inherit what was allowed to the one before; and what a policy no longer allows would go on.

use std::net::IpAddr;

use super::transaction::nfgen;
use crate::rtnl::socket::{Error, Socket};
use crate::rtnl::wire::{Attrs, Batch, NLM_F_ACK, NLM_F_DUMP};

const SUBSYS: u16 = 1;
const GET: u16 = 1;
const DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
const NFGEN: usize = 4;

/// A connection: who began it with whom, as it was before and after addresses were rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Who began it.
    pub source: IpAddr,
    /// Who answers: where packets go in the end.
    pub answers: IpAddr,
    /// Transport protocol.
    pub protocol: u8,
    /// The port that answers.
    pub port: Option<u16>,
    v6: bool,
    original: Vec<u8>,
}

fn addresses(tuple: Attrs<'_>) -> Option<(IpAddr, IpAddr)> {
    let ip = tuple.nested(CTA_TUPLE_IP)?;
    Some((ip.ip(1).or_else(|| ip.ip(3))?, ip.ip(2).or_else(|| ip.ip(4))?))
}

fn connection(attrs: Attrs<'_>, v6: bool) -> Option<Connection> {
    const CTA_PROTO_SRC_PORT: u16 = 2;
    let (original, reply) = (attrs.find(CTA_TUPLE_ORIG)?, attrs.nested(CTA_TUPLE_REPLY)?);
    let proto = reply.nested(CTA_TUPLE_PROTO)?;
    let port =
        proto.find(CTA_PROTO_SRC_PORT).and_then(|port| Some(u16::from_be_bytes(port.try_into().ok()?)));
    Some(Connection {
        source: addresses(Attrs(original))?.0,
        answers: addresses(reply)?.0,
        protocol: proto.u8(CTA_PROTO_NUM)?,
        port,
        v6,
        original: original.to_vec(),
    })
}

impl Socket {
    /// The connections of a family that the kernel knows; none where it tracks none.
    pub fn connections(&mut self, v6: bool) -> Result<Vec<Connection>, Error> {
        let listed = self.dump(|batch| {
            batch.push("list connections", SUBSYS << 8 | GET, NLM_F_DUMP, |m| {
                m.put(&nfgen(if v6 { 10 } else { 2 }, 0));
            });
        });
        match listed {
            Ok(replies) => {
                Ok(replies.iter().filter_map(|reply| connection(reply.attrs(NFGEN), v6)).collect())
            }
            Err(error) if error.is_absent() || is_unsupported(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Forgets connections; tells how many there were still.
    pub fn forget(&mut self, connections: &[Connection]) -> Result<usize, Error> {
        let mut forgotten = 0;
        for part in connections.chunks(256) {
            let mut batch = Batch::new();
            for one in part {
                batch.push("forget connection", SUBSYS << 8 | DELETE, NLM_F_ACK, |m| {
                    m.put(&nfgen(if one.v6 { 10 } else { 2 }, 0)).container(CTA_TUPLE_ORIG | 0x8000, |m| {
                        m.put(&one.original);
                    });
                });
            }
            let outcome = self.run(&mut batch)?;
            forgotten += part.len() - outcome.refusals.len();
            // One that ended by itself meanwhile is as good as forgotten.
            let refused = outcome.refusals.into_iter().find(|no| no.errno != rustix::io::Errno::NOENT);
            if let Some(no) = refused {
                return Err(Error::Refused(no));
            }
        }
        Ok(forgotten)
    }

    /// Forgets connections of a protocol that were made to a port; tells how many.
    ///
    /// A kernel without connection tracking has none to forget.
    pub fn forget_connections(&mut self, v6: bool, protocol: u8, port: u16) -> Result<usize, Error> {
        let family = if v6 { 10 } else { 2 };
        let listed = self.dump(|batch| {
            batch.push("list connections", SUBSYS << 8 | GET, NLM_F_DUMP, |m| {
                m.put(&nfgen(family, 0));
            });
        });
        let replies = match listed {
            Ok(replies) => replies,
            Err(error) if error.is_absent() || is_unsupported(&error) => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut batch = Batch::new();
        for reply in &replies {
            let Some(tuple) = reply.attrs(NFGEN).find(CTA_TUPLE_ORIG) else { continue };
            let proto = crate::rtnl::wire::Attrs(tuple).nested(CTA_TUPLE_PROTO);
            let matches = proto.is_some_and(|proto| {
                proto.u8(CTA_PROTO_NUM) == Some(protocol)
                    && proto.find(CTA_PROTO_DST_PORT) == Some(&port.to_be_bytes())
            });
            if matches {
                batch.push("forget connection", SUBSYS << 8 | DELETE, NLM_F_ACK, |m| {
                    m.put(&nfgen(family, 0)).container(CTA_TUPLE_ORIG | 0x8000, |m| {
                        m.put(tuple);
                    });
                });
            }
        }
        let outcome = self.run(&mut batch)?;
        // One that ended by itself meanwhile is as good as forgotten.
        let refused = outcome.refusals.into_iter().find(|no| no.errno != rustix::io::Errno::NOENT);
        refused.map_or(Ok(batch.len()), |no| Err(Error::Refused(no)))
    }
}

fn is_unsupported(error: &Error) -> bool {
    use rustix::io::Errno;
    matches!(error.errno(), Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::PROTONOSUPPORT))
}
