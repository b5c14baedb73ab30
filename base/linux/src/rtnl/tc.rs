//! Traffic control: token buckets, and what comes in by one link sent out by another.

use super::socket::{Error, Reply, Socket};
use super::wire::{Batch, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
pub(super) const TCMSG: usize = 20;
pub(super) const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
const INGRESS_HANDLE: u32 = 0xffff_0000;
const ONE: u32 = 0x0001_0000;
/// One tick of the packet scheduler is 64 ns on every kernel since 2.6.31.
/// `PSCHED_SHIFT` in <https://github.com/torvalds/linux/blob/v6.12/include/net/pkt_sched.h>.
const TICK_NANOS: u128 = 64;

/// A token bucket filter, as the kernel keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tbf {
    /// Bytes per second.
    pub rate: u64,
    /// How long a full bucket takes to fill, in ticks.
    pub buffer: u32,
    /// Bytes that may wait.
    pub limit: u32,
}

/// A queueing discipline found on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Its kind (`tbf`, `ingress`, `noqueue`, ...).
    pub kind: String,
    /// Its handle.
    pub handle: u32,
    /// The parameters, of a token bucket.
    pub tbf: Option<Tbf>,
}

pub(super) fn tcmsg(link: u32, handle: u32, parent: u32, info: u32) -> [u8; TCMSG] {
    let mut header = [0; TCMSG];
    header[4..8].copy_from_slice(&link.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header[16..20].copy_from_slice(&info.to_ne_bytes());
    header
}

impl Tbf {
    /// A bucket of `burst` bytes filled with `rate` bytes per second, before which packets wait up to `latency`.
    ///
    /// Rounded to microseconds on the way, as others do who compare the numbers later.
    pub fn new(rate: u64, burst: u32, latency: std::time::Duration) -> Tbf {
        let micros = u128::from(burst) * 1_000_000 / u128::from(rate.max(1));
        let waiting = u128::from(rate) * latency.as_micros() / 1_000_000;
        let fit = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
        Tbf { rate, buffer: fit(micros * 1000 / TICK_NANOS), limit: fit(waiting).saturating_add(burst) }
    }

    fn put(self, m: &mut Message<'_>) {
        let rate32 = u32::try_from(self.rate).unwrap_or(u32::MAX);
        let mut parms = Vec::with_capacity(36);
        parms.extend_from_slice(&[0; 8]);
        parms.extend_from_slice(&rate32.to_ne_bytes());
        parms.extend_from_slice(&[0; 12]);
        for word in [self.limit, self.buffer, 0] {
            parms.extend_from_slice(&word.to_ne_bytes());
        }
        m.attr(TCA_TBF_PARMS, &parms);
        if self.rate >= u64::from(u32::MAX) {
            m.u64(TCA_TBF_RATE64, self.rate);
        }
    }

    fn parse(parms: &[u8], rate64: Option<u64>) -> Option<Tbf> {
        let word = |at: usize| Some(u32::from_ne_bytes(parms.get(at..at + 4)?.try_into().ok()?));
        Some(Tbf { rate: rate64.unwrap_or(u64::from(word(8)?)), limit: word(24)?, buffer: word(28)? })
    }
}

impl Batch {
    /// Makes a token bucket the root discipline `1:` of a link.
    pub fn add_tbf(&mut self, link: u32, tbf: Tbf) {
        self.push("add token bucket", RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            m.put(&tcmsg(link, ONE, ROOT, 0)).str(TCA_KIND, "tbf").nested(TCA_OPTIONS, |m| tbf.put(m));
        });
    }

    /// Gives a link the ingress discipline `ffff:`.
    pub fn add_ingress(&mut self, link: u32) {
        self.push("add ingress discipline", RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            m.put(&tcmsg(link, INGRESS_HANDLE, INGRESS, 0)).str(TCA_KIND, "ingress");
        });
    }

    /// Removes the root discipline, which gives the link its default one.
    pub fn del_root_qdisc(&mut self, link: u32) {
        self.push("remove root discipline", RTM_DELQDISC, NLM_F_ACK, |m| {
            m.put(&tcmsg(link, ONE, ROOT, 0));
        });
    }

    /// Removes the ingress discipline with its filters.
    pub fn del_ingress(&mut self, link: u32) {
        self.push("remove ingress discipline", RTM_DELQDISC, NLM_F_ACK, |m| {
            m.put(&tcmsg(link, INGRESS_HANDLE, INGRESS, 0)).str(TCA_KIND, "ingress");
        });
    }

    /// Sends everything that comes in by `link` out by `target` instead.
    pub fn add_redirect(&mut self, link: u32, target: u32) {
        const ETH_P_ALL_BE: u32 = 0x0300;
        const TERMINAL: u8 = 1;
        const STOLEN: i32 = 4;
        const EGRESS_REDIRECT: i32 = 1;
        let mut selector = vec![TERMINAL, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        selector.extend_from_slice(&[0; 16]);
        let mut mirred = Vec::with_capacity(28);
        for word in [0, 0, STOLEN, 0, 0, EGRESS_REDIRECT] {
            mirred.extend_from_slice(&word.to_ne_bytes());
        }
        mirred.extend_from_slice(&target.to_ne_bytes());
        self.push("add redirect", RTM_NEWTFILTER, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| {
            m.put(&tcmsg(link, 0, INGRESS_HANDLE, 1 << 16 | ETH_P_ALL_BE)).str(TCA_KIND, "u32").nested(
                TCA_OPTIONS,
                |m| {
                    m.u32(TCA_U32_CLASSID, ONE | 1).attr(TCA_U32_SEL, &selector).nested(TCA_U32_ACT, |m| {
                        m.nested(1, |m| {
                            m.str(TCA_ACT_KIND, "mirred").nested(TCA_ACT_OPTIONS, |m| {
                                m.attr(TCA_MIRRED_PARMS, &mirred);
                            });
                        });
                    });
                },
            );
        });
    }
}

/// The discipline in a reply, if it is one of this link.
pub(crate) fn parse(reply: &Reply, link: u32) -> Option<Qdisc> {
    let header = reply.body.get(..TCMSG).filter(|header| header[4..8] == link.to_ne_bytes())?;
    let attrs = reply.attrs(TCMSG);
    let tbf = attrs.nested(TCA_OPTIONS).and_then(|options| {
        let rate64 =
            options.find(TCA_TBF_RATE64).and_then(|rate| Some(u64::from_ne_bytes(rate.try_into().ok()?)));
        Tbf::parse(options.find(TCA_TBF_PARMS)?, rate64)
    });
    let kind = attrs.str(TCA_KIND).unwrap_or_default();
    Some(Qdisc {
        handle: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
        tbf: if kind == "tbf" { tbf } else { None },
        kind,
    })
}

impl Socket {
    /// The disciplines of one link.
    pub fn qdiscs(&mut self, link: u32) -> Result<Vec<Qdisc>, Error> {
        let replies = self.dump(|batch| {
            batch.push("list disciplines", RTM_GETQDISC, NLM_F_DUMP, |m| {
                m.put(&tcmsg(link, 0, 0, 0));
            });
        })?;
        Ok(replies.iter().filter_map(|reply| parse(reply, link)).collect())
    }

    /// Whether the ingress discipline of a link has a filter.
    pub fn has_ingress_filter(&mut self, link: u32) -> Result<bool, Error> {
        let replies = self.dump(|batch| {
            batch.push("list filters", RTM_GETTFILTER, NLM_F_DUMP, |m| {
                m.put(&tcmsg(link, 0, INGRESS_HANDLE, 0));
            });
        });
        match replies {
            Ok(replies) => Ok(!replies.is_empty()),
            Err(error) if error.is_absent() || error.errno() == Some(rustix::io::Errno::INVAL) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
