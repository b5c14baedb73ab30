//! Rules that choose a table of routes.

use ipnet::IpNet;

use super::addr::family;
use super::socket::{Error, Reply, Socket};
use super::wire::{Batch, Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};

const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const FIB_RULE_HDR: usize = 12;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
const TO_TABLE: u8 = 1;

/// A rule; of the family of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its place in the order.
    pub priority: u32,
    /// Packets from here.
    pub from: Option<IpNet>,
    /// Packets to there.
    pub to: Option<IpNet>,
    /// The table to look in.
    pub table: u32,
}

impl Rule {
    fn put(&self, m: &mut Message<'_>) {
        let mut header = [0; FIB_RULE_HDR];
        header[0] = self.from.or(self.to).map_or(2, |net| family(net.addr()));
        header[1] = self.to.map_or(0, |net| net.prefix_len());
        header[2] = self.from.map_or(0, |net| net.prefix_len());
        header[4] = u8::try_from(self.table).unwrap_or(0);
        header[7] = TO_TABLE;
        m.put(&header).u32(FRA_TABLE, self.table).u32(FRA_PRIORITY, self.priority);
        for (net, kind) in [(self.from, FRA_SRC), (self.to, FRA_DST)] {
            if let Some(net) = net.filter(|net| net.prefix_len() > 0) {
                m.ip(kind, net.network());
            }
        }
    }

    fn parse(reply: &Reply) -> Option<Rule> {
        let header = reply.body.get(..FIB_RULE_HDR)?;
        let attrs = reply.attrs(FIB_RULE_HDR);
        let block = |kind: u16, prefix: u8| attrs.ip(kind).and_then(|ip| IpNet::new(ip, prefix).ok());
        Some(Rule {
            priority: attrs.u32(FRA_PRIORITY).unwrap_or(0),
            from: block(FRA_SRC, header[2]),
            to: block(FRA_DST, header[1]),
            table: attrs.u32(FRA_TABLE).unwrap_or(u32::from(header[4])),
        })
    }
}

impl Batch {
    /// Adds a rule; the same one again is refused.
    pub fn add_rule(&mut self, rule: &Rule) {
        self.push("add rule", RTM_NEWRULE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, |m| rule.put(m));
    }

    /// Removes a rule.
    pub fn del_rule(&mut self, rule: &Rule) {
        self.push("remove rule", RTM_DELRULE, NLM_F_ACK, |m| rule.put(m));
    }
}

impl Socket {
    /// The rules of a family.
    pub fn rules(&mut self, v6: bool) -> Result<Vec<Rule>, Error> {
        let mut header = [0; FIB_RULE_HDR];
        header[0] = if v6 { 10 } else { 2 };
        let replies = self.dump(|batch| {
            batch.push("list rules", RTM_GETRULE, NLM_F_DUMP, |m| {
                m.put(&header);
            });
        })?;
        Ok(replies.iter().filter_map(Rule::parse).collect())
    }
}
