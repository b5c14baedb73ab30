//! One atomic change of the ruleset.

use super::expr::{Expr, Verdict};
use super::{Family, Table};
use crate::rtnl::socket::{Error, Socket};
use crate::rtnl::wire::{Batch, Message, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const SUBSYS: u16 = 10;
pub(crate) const NEWTABLE: u16 = 0;
pub(crate) const DELTABLE: u16 = 2;
pub(crate) const NEWCHAIN: u16 = 3;
pub(crate) const DELCHAIN: u16 = 5;
pub(crate) const NEWRULE: u16 = 6;
pub(crate) const DELRULE: u16 = 8;
pub(crate) const NEWSET: u16 = 9;
pub(crate) const DELSET: u16 = 11;
pub(crate) const NEWSETELEM: u16 = 12;
pub(crate) const DELSETELEM: u16 = 14;

const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_USERDATA: u16 = 6;
pub(crate) const NFTA_CHAIN_TABLE: u16 = 1;
pub(crate) const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
pub(crate) const NFTA_CHAIN_USERDATA: u16 = 12;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
pub(crate) const NFTA_RULE_TABLE: u16 = 1;
pub(crate) const NFTA_RULE_CHAIN: u16 = 2;
pub(crate) const NFTA_RULE_HANDLE: u16 = 3;
pub(crate) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(crate) const NFTA_RULE_USERDATA: u16 = 7;
pub(crate) const NFTA_SET_TABLE: u16 = 1;
pub(crate) const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_TYPE: u16 = 4;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_DATA_TYPE: u16 = 6;
const NFTA_SET_DATA_LEN: u16 = 7;
const NFTA_SET_ID: u16 = 10;
const NFTA_SET_FLAG_INTERVAL: u32 = 0x4;
const NFTA_SET_FLAG_MAP: u32 = 0x8;
pub(crate) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(crate) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(crate) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(crate) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(crate) const NFTA_SET_ELEM_DATA: u16 = 2;
pub(crate) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_ELEM_USERDATA: u16 = 6;
const NFTA_DATA_VALUE: u16 = 1;
const VERDICT_TYPE: u32 = 0xffff_ff00;
/// As many elements as fit into one attribute of 64 KiB whatever they carry: key, verdict, chain, comment.
const AT_ONCE: usize = 80;

/// Where a base chain sees packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// Before routing.
    Prerouting = 0,
    /// To this machine.
    Input = 1,
    /// Through this machine.
    Forward = 2,
    /// From this machine.
    Output = 3,
    /// After routing.
    Postrouting = 4,
}

/// What makes a chain a base chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// `filter`, `nat` or `route`.
    pub kind: &'static str,
    /// Where.
    pub hook: Hook,
    /// In which order: -300 raw, -100 dstnat, 0 filter, 100 srcnat.
    pub priority: i32,
    /// Drop what no rule accepted.
    pub drop: bool,
}

/// A set, map or verdict map to be made.
#[derive(Clone, Debug)]
pub struct Set<'a> {
    /// Its name.
    pub name: &'a str,
    /// The `nft` tool's number of the key's type (7 IPv4 address, 8 IPv6 address, 12 protocol, 13 port; concatenations are
    /// shifted by six bits each).
    pub key_type: u32,
    /// Length of a key in bytes, each part of a concatenation rounded up to four.
    pub key_len: u32,
    /// Keys are ranges.
    pub interval: bool,
    /// What a key maps to.
    pub value: SetValue,
}

/// What the keys of a set map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetValue {
    /// Nothing: a plain set.
    None,
    /// Bytes.
    Data {
        /// The `nft` tool's number of the type.
        kind: u32,
        /// Length in bytes.
        len: u32,
    },
    /// A verdict.
    Verdict,
}

/// An element of a set.
#[derive(Clone, Debug, Default)]
pub struct Element {
    /// Key.
    pub key: Vec<u8>,
    /// The value, of a map.
    pub data: Option<Vec<u8>>,
    /// The verdict, of a verdict map.
    pub verdict: Option<Verdict>,
    /// Shown by the `nft` tool; how owners recognise what is theirs.
    pub comment: Option<String>,
    /// The element is the end of a range.
    pub interval_end: bool,
}

/// Changes that take effect together or not at all.
pub struct Transaction {
    batch: Batch,
    next_set_id: u32,
}

impl Default for Transaction {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn kind(message: u16) -> u16 {
    SUBSYS << 8 | message
}

/// `struct nfgenmsg`.
pub(crate) fn nfgen(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// A comment as the `nft` tool stores it: type 0, length, text, NUL.
fn comment(text: &str) -> Vec<u8> {
    let mut end = text.len().min(253);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let mut bytes = vec![0, u8::try_from(text.len() + 1).expect("cut to fit one byte")];
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes
}

impl Transaction {
    /// An empty transaction.
    pub fn new() -> Self {
        let mut batch = Batch::new();
        batch.push("begin", NFNL_MSG_BATCH_BEGIN, 0, |m| {
            m.put(&nfgen(0, SUBSYS));
        });
        Self { batch, next_set_id: 1 }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.batch.len() == 1
    }

    fn push(
        &mut self,
        attempt: &'static str,
        message: u16,
        flags: u16,
        family: Family,
        fill: impl FnOnce(&mut Message<'_>),
    ) {
        self.batch.push(attempt, kind(message), flags, |m| {
            m.put(&nfgen(family as u8, 0));
            fill(m);
        });
    }

    /// Makes sure that a table exists.
    pub fn add_table(&mut self, table: Table<'_>, note: Option<&str>) {
        self.push("add table", NEWTABLE, NLM_F_CREATE, table.family, |m| {
            m.str(NFTA_TABLE_NAME, table.name);
            if let Some(note) = note {
                m.attr(NFTA_TABLE_USERDATA, &comment(note));
            }
        });
    }

    /// Removes a table with all that is in it.
    pub fn delete_table(&mut self, table: Table<'_>) {
        self.push("delete table", DELTABLE, 0, table.family, |m| {
            m.str(NFTA_TABLE_NAME, table.name);
        });
    }

    /// Makes sure that a chain exists.
    pub fn add_chain(&mut self, table: Table<'_>, name: &str, base: Option<Base>) {
        self.push("add chain", NEWCHAIN, NLM_F_CREATE, table.family, |m| {
            m.str(NFTA_CHAIN_TABLE, table.name).str(NFTA_CHAIN_NAME, name);
            if let Some(base) = base {
                m.nested(NFTA_CHAIN_HOOK, |m| {
                    m.be32(NFTA_HOOK_HOOKNUM, base.hook as u32)
                        .attr(NFTA_HOOK_PRIORITY, &base.priority.to_be_bytes());
                });
                m.be32(NFTA_CHAIN_POLICY, u32::from(!base.drop)).str(NFTA_CHAIN_TYPE, base.kind);
            }
        });
    }

    /// Makes sure that a chain exists that others jump to, with a comment that says whose it is.
    pub fn add_noted_chain(&mut self, table: Table<'_>, name: &str, note: &str) {
        self.push("add chain", NEWCHAIN, NLM_F_CREATE, table.family, |m| {
            m.str(NFTA_CHAIN_TABLE, table.name).str(NFTA_CHAIN_NAME, name);
            m.attr(NFTA_CHAIN_USERDATA, &comment(note));
        });
    }

    /// Removes a chain without rules.
    pub fn delete_chain(&mut self, table: Table<'_>, name: &str) {
        self.push("delete chain", DELCHAIN, 0, table.family, |m| {
            m.str(NFTA_CHAIN_TABLE, table.name).str(NFTA_CHAIN_NAME, name);
        });
    }

    /// Removes the rules of a chain.
    pub fn flush_chain(&mut self, table: Table<'_>, name: &str) {
        self.push("flush chain", DELRULE, 0, table.family, |m| {
            m.str(NFTA_RULE_TABLE, table.name).str(NFTA_RULE_CHAIN, name);
        });
    }

    /// Adds a rule at the end of a chain.
    pub fn add_rule(&mut self, table: Table<'_>, chain: &str, exprs: &[Expr], note: Option<&str>) {
        self.rule(NLM_F_CREATE | NLM_F_APPEND, table, chain, exprs, note);
    }

    /// Adds a rule at the beginning of a chain.
    pub fn insert_rule(&mut self, table: Table<'_>, chain: &str, exprs: &[Expr], note: Option<&str>) {
        self.rule(NLM_F_CREATE, table, chain, exprs, note);
    }

    fn rule(&mut self, flags: u16, table: Table<'_>, chain: &str, exprs: &[Expr], note: Option<&str>) {
        self.push("add rule", NEWRULE, flags, table.family, |m| {
            m.str(NFTA_RULE_TABLE, table.name).str(NFTA_RULE_CHAIN, chain).nested(
                NFTA_RULE_EXPRESSIONS,
                |m| {
                    for expr in exprs {
                        expr.put(m);
                    }
                },
            );
            if let Some(note) = note {
                m.attr(NFTA_RULE_USERDATA, &comment(note));
            }
        });
    }

    /// Removes the rule with this handle.
    pub fn delete_rule(&mut self, table: Table<'_>, chain: &str, handle: u64) {
        self.push("delete rule", DELRULE, 0, table.family, |m| {
            m.str(NFTA_RULE_TABLE, table.name).str(NFTA_RULE_CHAIN, chain).be64(NFTA_RULE_HANDLE, handle);
        });
    }

    /// Makes sure that a set exists.
    pub fn add_set(&mut self, table: Table<'_>, set: &Set<'_>) {
        let id = self.next_set_id;
        self.next_set_id += 1;
        let mut flags = if set.interval { NFTA_SET_FLAG_INTERVAL } else { 0 };
        if set.value != SetValue::None {
            flags |= NFTA_SET_FLAG_MAP;
        }
        self.push("add set", NEWSET, NLM_F_CREATE, table.family, |m| {
            m.str(NFTA_SET_TABLE, table.name).str(NFTA_SET_NAME, set.name).be32(NFTA_SET_FLAGS, flags);
            m.be32(NFTA_SET_KEY_TYPE, set.key_type).be32(NFTA_SET_KEY_LEN, set.key_len).be32(NFTA_SET_ID, id);
            match set.value {
                SetValue::None => {}
                SetValue::Data { kind, len } => {
                    m.be32(NFTA_SET_DATA_TYPE, kind).be32(NFTA_SET_DATA_LEN, len);
                }
                SetValue::Verdict => {
                    m.be32(NFTA_SET_DATA_TYPE, VERDICT_TYPE).be32(NFTA_SET_DATA_LEN, 16);
                }
            }
        });
    }

    /// Removes a set.
    pub fn delete_set(&mut self, table: Table<'_>, name: &str) {
        self.push("delete set", DELSET, 0, table.family, |m| {
            m.str(NFTA_SET_TABLE, table.name).str(NFTA_SET_NAME, name);
        });
    }

    /// Adds elements; with `exclusive` an existing one is refused.
    pub fn add_elements(&mut self, table: Table<'_>, set: &str, elements: &[Element], exclusive: bool) {
        let flags = NLM_F_CREATE | if exclusive { NLM_F_EXCL } else { 0 };
        for part in elements.chunks(AT_ONCE) {
            self.push("add element", NEWSETELEM, flags, table.family, |m| put_elements(m, table, set, part));
        }
    }

    /// Removes elements, all of which must exist.
    pub fn delete_elements(&mut self, table: Table<'_>, set: &str, elements: &[Element]) {
        for part in elements.chunks(AT_ONCE) {
            self.push("delete element", DELSETELEM, 0, table.family, |m| put_elements(m, table, set, part));
        }
    }

    /// Removes all elements of a set.
    pub fn flush_set(&mut self, table: Table<'_>, set: &str) {
        self.push("flush set", DELSETELEM, 0, table.family, |m| {
            m.str(NFTA_SET_ELEM_LIST_TABLE, table.name).str(NFTA_SET_ELEM_LIST_SET, set);
        });
    }

    /// Applies everything, or nothing and says which message was refused.
    pub fn commit(mut self, socket: &mut Socket) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        self.batch.acknowledge_last();
        self.batch.push("commit", NFNL_MSG_BATCH_END, 0, |m| {
            m.put(&nfgen(0, SUBSYS));
        });
        socket.transact(&mut self.batch).map(|_| ())
    }
}

impl Batch {
    /// Asks for an answer to the last message.
    fn acknowledge_last(&mut self) {
        if let Some(mark) = self.marks.last_mut() {
            mark.acked = true;
            let at = mark.start + 6;
            let flags = u16::from_ne_bytes([self.buf[at], self.buf[at + 1]]) | NLM_F_ACK;
            self.buf[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
        }
    }
}

pub(crate) fn put_elements(m: &mut Message<'_>, table: Table<'_>, set: &str, elements: &[Element]) {
    const LIST_ELEM: u16 = 1;
    const INTERVAL_END: u32 = 1;
    m.str(NFTA_SET_ELEM_LIST_TABLE, table.name).str(NFTA_SET_ELEM_LIST_SET, set);
    m.nested(NFTA_SET_ELEM_LIST_ELEMENTS, |m| {
        for element in elements {
            m.nested(LIST_ELEM, |m| {
                m.nested(NFTA_SET_ELEM_KEY, |m| {
                    m.attr(NFTA_DATA_VALUE, &element.key);
                });
                if element.interval_end {
                    m.be32(NFTA_SET_ELEM_FLAGS, INTERVAL_END);
                }
                if let Some(data) = &element.data {
                    m.nested(NFTA_SET_ELEM_DATA, |m| {
                        m.attr(NFTA_DATA_VALUE, data);
                    });
                }
                if let Some(verdict) = &element.verdict {
                    m.nested(NFTA_SET_ELEM_DATA, |m| verdict.put(m));
                }
                if let Some(note) = &element.comment {
                    m.attr(NFTA_SET_ELEM_USERDATA, &comment(note));
                }
            });
        }
    });
}
