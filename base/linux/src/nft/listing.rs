//! A ruleset read back: the chains, sets and rules of a table, the rules as the expressions they were made of.
//!
//! Only expressions that policies are made of are read; a rule with any other says so by having none.

use super::Table;
use super::expr::{CmpOp, Expr, MetaKey, PayloadBase, Register, Verdict};
use super::query::{comment_in, or_empty};
use super::transaction::{
    NFTA_CHAIN_NAME, NFTA_CHAIN_TABLE, NFTA_CHAIN_USERDATA, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS,
    NFTA_RULE_TABLE, NFTA_RULE_USERDATA, NFTA_SET_NAME, NFTA_SET_TABLE, kind, nfgen,
};
use crate::rtnl::socket::{Error, Socket};
use crate::rtnl::wire::{Attrs, NLM_F_DUMP};

const GETCHAIN: u16 = 4;
const GETRULE: u16 = 7;
const GETSET: u16 = 10;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFGEN: usize = 4;

/// A chain of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChain {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: Option<String>,
}

/// A rule of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// The chain it is in.
    pub chain: String,
    /// Its comment.
    pub comment: Option<String>,
    /// What it is made of, without its counter and its log; `None` when that is not known here.
    pub exprs: Option<Vec<Expr>>,
    /// Packets that reached its counter.
    pub packets: Option<u64>,
}

impl Socket {
    /// The chains of a table.
    pub fn nft_chains(&mut self, table: Table<'_>) -> Result<Vec<ListedChain>, Error> {
        let replies = or_empty(self.dump(|batch| {
            batch.push("list chains", kind(GETCHAIN), NLM_F_DUMP, |m| {
                m.put(&nfgen(table.family as u8, 0));
            });
        }))?;
        let chain = |attrs: Attrs<'_>| {
            let home = attrs.str(NFTA_CHAIN_TABLE)?;
            let name = attrs.str(NFTA_CHAIN_NAME)?;
            let comment = comment_in(attrs.find(NFTA_CHAIN_USERDATA));
            (home == table.name).then_some(ListedChain { name, comment })
        };
        Ok(replies.iter().filter_map(|reply| chain(reply.attrs(NFGEN))).collect())
    }

    /// The names of the sets and maps of a table that have one.
    pub fn nft_sets(&mut self, table: Table<'_>) -> Result<Vec<String>, Error> {
        let replies = or_empty(self.dump(|batch| {
            batch.push("list sets", kind(GETSET), NLM_F_DUMP, |m| {
                m.put(&nfgen(table.family as u8, 0)).str(NFTA_SET_TABLE, table.name);
            });
        }))?;
        Ok(replies.iter().filter_map(|reply| reply.attrs(NFGEN).str(NFTA_SET_NAME)).collect())
    }

    /// The rules of a table, or of one of its chains, in their order.
    pub fn nft_listing(&mut self, table: Table<'_>, chain: Option<&str>) -> Result<Vec<ListedRule>, Error> {
        let replies = or_empty(self.dump(|batch| {
            batch.push("list rules", kind(GETRULE), NLM_F_DUMP, |m| {
                m.put(&nfgen(table.family as u8, 0)).str(NFTA_RULE_TABLE, table.name);
                if let Some(chain) = chain {
                    m.str(NFTA_RULE_CHAIN, chain);
                }
            });
        }))?;
        let rules = replies.iter().filter_map(|reply| rule(table.name, reply.attrs(NFGEN)));
        Ok(rules.filter(|rule| chain.is_none_or(|chain| chain == rule.chain)).collect())
    }
}

fn rule(table: &str, attrs: Attrs<'_>) -> Option<ListedRule> {
    if attrs.str(NFTA_RULE_TABLE)? != table {
        return None;
    }
    let list = attrs.nested(NFTA_RULE_EXPRESSIONS).unwrap_or(Attrs(&[]));
    let (mut exprs, mut packets) = (Some(Vec::new()), None);
    for (_, body) in list {
        let body = Attrs(body);
        let data = body.nested(NFTA_EXPR_DATA).unwrap_or(Attrs(&[]));
        let name = body.str(NFTA_EXPR_NAME)?;
        if name == "counter" {
            const PACKETS: u16 = 2;
            packets = data.be64(PACKETS);
            continue;
        }
        if name == "log" {
            continue;
        }
        match (read(&name, data), &mut exprs) {
            (Some(expr), Some(exprs)) => exprs.push(expr),
            _ => exprs = None,
        }
    }
    let comment = comment_in(attrs.find(NFTA_RULE_USERDATA));
    Some(ListedRule { chain: attrs.str(NFTA_RULE_CHAIN)?, comment, exprs, packets })
}

fn value(attrs: Attrs<'_>, kind: u16) -> Option<Vec<u8>> {
    attrs.nested(kind)?.find(NFTA_DATA_VALUE).map(<[u8]>::to_vec)
}

/// Registers of sixteen bytes come back as the first of four.
fn register(attrs: Attrs<'_>, kind: u16) -> Option<Register> {
    let number = attrs.be32(kind)?;
    Some(Register(if (8..24).contains(&number) && number % 4 == 0 { number / 4 - 1 } else { number }))
}

fn read(name: &str, attrs: Attrs<'_>) -> Option<Expr> {
    Some(match name {
        "payload" => Expr::Payload {
            to: register(attrs, 1)?,
            base: match attrs.be32(2)? {
                0 => PayloadBase::Link,
                1 => PayloadBase::Network,
                2 => PayloadBase::Transport,
                _ => return None,
            },
            offset: attrs.be32(3)?,
            len: attrs.be32(4)?,
        },
        "meta" => Expr::Meta {
            to: register(attrs, 1)?,
            key: match attrs.be32(2)? {
                6 => MetaKey::IifName,
                7 => MetaKey::OifName,
                15 => MetaKey::NfProto,
                16 => MetaKey::L4Proto,
                _ => return None,
            },
        },
        "cmp" => Expr::Cmp {
            from: register(attrs, 1)?,
            op: match attrs.be32(2)? {
                0 => CmpOp::Eq,
                1 => CmpOp::Ne,
                3 => CmpOp::Lte,
                5 => CmpOp::Gte,
                _ => return None,
            },
            data: value(attrs, 3)?,
        },
        "bitwise" => Expr::Bitwise {
            from: register(attrs, 1)?,
            to: register(attrs, 2)?,
            mask: value(attrs, 4)?,
            xor: value(attrs, 5)?,
        },
        "lookup" => Expr::Lookup {
            set: attrs.str(1)?,
            from: register(attrs, 2)?,
            to: register(attrs, 3),
            invert: attrs.be32(5).is_some_and(|flags| flags & 1 != 0),
        },
        "immediate" if attrs.be32(1)? == Register::VERDICT.0 => {
            Expr::Verdict(Verdict::read(attrs.nested(2)?)?)
        }
        "immediate" => Expr::Immediate { to: register(attrs, 1)?, data: value(attrs, 2)? },
        "ct" if attrs.be32(2)? == 0 => Expr::CtState { to: register(attrs, 1)? },
        _ => return None,
    })
}
