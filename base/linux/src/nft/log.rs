//! Packets that rules hand over with [`Expr::Log`](super::Expr::Log): the beginning of each, with what its rule says of it.
//!
//! One socket has one group of a network namespace; while nobody has it, rules that log to it cost next to nothing. The
//! kernel drops what is not read in time, and tells nobody.
//!
//! Messages and attributes: <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netfilter/nfnetlink_log.h>.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::transaction::nfgen;
use crate::rtnl::socket::{Error, Socket};
use crate::rtnl::wire::{Attrs, Batch, NLM_F_ACK};

const SUBSYS: u16 = 4;
const PACKET: u16 = 0;
const CONFIG: u16 = 1;
const CFG_CMD: u16 = 1;
const CFG_MODE: u16 = 2;
const CFG_QTHRESH: u16 = 5;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;
const NFGEN: usize = 4;

/// A packet that a rule logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// What the rule says of it.
    pub prefix: String,
    /// Its first bytes, from the network header on.
    pub packet: Vec<u8>,
}

/// The reader of a group; the group is free again when it is dropped.
pub struct Log(Socket);

impl Log {
    /// Takes a group in the calling thread's network namespace, to hear so many bytes of each packet.
    pub fn open(group: u16, bytes: u32) -> Result<Log, Error> {
        let mut socket = Socket::netfilter()?;
        let mut batch = Batch::new();
        let mode: Vec<u8> = bytes.to_be_bytes().into_iter().chain([COPY_PACKET, 0]).collect();
        for (attempt, kind, value) in [
            ("take a group of logged packets", CFG_CMD, vec![BIND]),
            ("say how much of packets is wanted", CFG_MODE, mode),
            // Each at once: they are few.
            ("say how many may wait", CFG_QTHRESH, 1_u32.to_be_bytes().to_vec()),
        ] {
            batch.push(attempt, SUBSYS << 8 | CONFIG, NLM_F_ACK, |m| {
                m.put(&nfgen(0, group)).attr(kind, &value);
            });
        }
        socket.exchange(&mut batch)?;
        Ok(Log(socket))
    }

    /// What has come so far, not much at once, and whether there may be more; waits for nothing.
    pub fn take(&mut self) -> Result<(Vec<Logged>, bool), Error> {
        const AT_ONCE: usize = 16;
        let mut all = Vec::new();
        let more = self.0.unasked(AT_ONCE, |kind, body| {
            if kind == SUBSYS << 8 | PACKET {
                all.extend(logged(Attrs(body.get(NFGEN..).unwrap_or(&[]))));
            }
        })?;
        Ok((all, more))
    }
}

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Log {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

fn logged(attrs: Attrs<'_>) -> Option<Logged> {
    let prefix = attrs.str(PREFIX).unwrap_or_default();
    Some(Logged { prefix, packet: attrs.find(PAYLOAD)?.to_vec() })
}
