//! Connections the packet filter remembers, forgotten by the port they were made to.
//!
//! A UDP client that keeps its port would otherwise be sent to a pod that is gone, or past one that has just come.

use super::transaction::nfgen;
use crate::rtnl::socket::{Error, Socket};
use crate::rtnl::wire::{Batch, NLM_F_ACK, NLM_F_DUMP};

const SUBSYS: u16 = 1;
const GET: u16 = 1;
const DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
const NFGEN: usize = 4;

impl Socket {
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
