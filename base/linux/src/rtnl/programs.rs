//! Programs that run on the packets of a link, as rtnetlink knows them: XDP, and classifiers of traffic control.

use super::link::LinkRef;
use super::socket::{Error, Reply, Socket};
use super::tc::{TCA_KIND, TCMSG, tcmsg};
use super::wire::{Batch, NLM_F_ACK, NLM_F_DUMP};

const RTM_NEWLINK: u16 = 16;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const IFINFO: usize = 16;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
/// Where a program runs: in the driver, before the stack, in the hardware; the attribute with its number and the flag.
const MODES: [(u16, u32); 3] = [(5, 4), (6, 2), (7, 8)];
const TCA_CHAIN: u16 = 11;
/// Where classifiers are: on the way in and out.
const HOOKS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];

/// An XDP program of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xdp {
    /// Where it runs, as a flag of the kernel's.
    pub mode: u32,
    /// Its number.
    pub program: u32,
}

impl Batch {
    /// Puts a program, by its descriptor, in the place of the one of a link, or none.
    pub fn set_xdp(&mut self, link: u32, program: Option<i32>, mode: u32) {
        let mut header = [0; IFINFO];
        header[4..8].copy_from_slice(&link.to_ne_bytes());
        self.push("change XDP program", RTM_NEWLINK, NLM_F_ACK, |m| {
            m.put(&header).nested(IFLA_XDP, |m| {
                m.attr(IFLA_XDP_FD, &program.unwrap_or(-1).to_ne_bytes()).u32(IFLA_XDP_FLAGS, mode);
            });
        });
    }
}

impl Socket {
    /// The XDP programs of a link.
    pub fn xdp(&mut self, link: u32) -> Result<Vec<Xdp>, Error> {
        let mut batch = Batch::new();
        batch.get_link(LinkRef::Index(link));
        let replies = self.exchange(&mut batch)?;
        let Some(told) = replies.first().and_then(|reply| reply.attrs(IFINFO).nested(IFLA_XDP)) else {
            return Ok(Vec::new());
        };
        let there = |(kind, mode)| Some(Xdp { mode, program: told.u32(kind).filter(|number| *number != 0)? });
        Ok(MODES.into_iter().filter_map(there).collect())
    }

    /// Removes the programs among the classifiers of a link; says how many there were.
    pub fn del_classifiers(&mut self, link: u32) -> Result<usize, Error> {
        let mut batch = Batch::new();
        for hook in HOOKS {
            let replies = self.dump(|batch| {
                batch.push("list filters", RTM_GETTFILTER, NLM_F_DUMP, |m| {
                    m.put(&tcmsg(link, 0, hook, 0));
                });
            });
            let replies = match replies {
                // There is no such hook on the link.
                Err(error) if error.is_absent() || error.errno() == Some(rustix::io::Errno::INVAL) => {
                    continue;
                }
                replies => replies?,
            };
            replies.iter().filter_map(|reply| program(reply, link)).for_each(|(handle, info, chain)| {
                batch.push("remove filter", RTM_DELTFILTER, NLM_F_ACK, |m| {
                    m.put(&tcmsg(link, handle, hook, info)).str(TCA_KIND, "bpf");
                    if let Some(chain) = chain {
                        m.u32(TCA_CHAIN, chain);
                    }
                });
            });
        }
        let found = batch.len();
        match self.exchange(&mut batch) {
            Err(error) if !error.is_absent() => Err(error),
            _ => Ok(found),
        }
    }
}

/// Handle, place and chain of a filter that is a program.
fn program(reply: &Reply, link: u32) -> Option<(u32, u32, Option<u32>)> {
    let header = reply.body.get(..TCMSG).filter(|header| header[4..8] == link.to_ne_bytes())?;
    let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let attrs = reply.attrs(TCMSG);
    let is_one = attrs.str(TCA_KIND).as_deref() == Some("bpf") && word(8) != 0;
    is_one.then(|| (word(8), word(16), attrs.u32(TCA_CHAIN)))
}
