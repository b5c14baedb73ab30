//! What is in the ruleset: rules and elements with the comments of their owners.

use super::transaction::{
    Element, NFTA_RULE_CHAIN, NFTA_RULE_HANDLE, NFTA_RULE_TABLE, NFTA_RULE_USERDATA, NFTA_SET_ELEM_DATA,
    NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET,
    NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_ELEM_USERDATA, kind, nfgen, put_elements,
};
use super::{Family, Table, Verdict};
use crate::rtnl::socket::{Error, Reply, Socket};
use crate::rtnl::wire::{Attrs, Batch, NLM_F_ACK, NLM_F_DUMP};

const GETTABLE: u16 = 1;
const NEWRULE_GET: u16 = 7;
const GETSETELEM: u16 = 13;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_DATA_VALUE: u16 = 1;
const NFGEN: usize = 4;

/// A rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRule {
    /// Its handle, for deletion.
    pub handle: u64,
    /// The chain it is in.
    pub chain: String,
    /// Its comment.
    pub comment: Option<String>,
}

/// An element found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundElement {
    /// Key.
    pub key: Vec<u8>,
    /// The value, of a map.
    pub data: Option<Vec<u8>>,
    /// The verdict, of a verdict map.
    pub verdict: Option<Verdict>,
    /// It is the end of a range.
    pub interval_end: bool,
    /// Its comment.
    pub comment: Option<String>,
}

pub(crate) fn comment_in(userdata: Option<&[u8]>) -> Option<String> {
    let mut rest = userdata?;
    while let [kind, len, tail @ ..] = rest {
        let value = tail.get(..usize::from(*len))?;
        if *kind == 0 {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        rest = &tail[usize::from(*len)..];
    }
    None
}

/// The rule in a reply, and the table it is in.
pub(crate) fn rule_in(reply: &Reply) -> Option<(String, FoundRule)> {
    let attrs = reply.attrs(NFGEN);
    let found = FoundRule {
        handle: attrs.be64(NFTA_RULE_HANDLE)?,
        chain: attrs.str(NFTA_RULE_CHAIN)?,
        comment: comment_in(attrs.find(NFTA_RULE_USERDATA)),
    };
    Some((attrs.str(NFTA_RULE_TABLE)?, found))
}

pub(crate) fn elements_in(reply: &Reply) -> Vec<FoundElement> {
    let Some(list) = reply.attrs(NFGEN).nested(NFTA_SET_ELEM_LIST_ELEMENTS) else { return Vec::new() };
    let value =
        |attrs: Attrs<'_>, kind| attrs.nested(kind).and_then(|v| v.find(NFTA_DATA_VALUE)).map(<[u8]>::to_vec);
    list.into_iter()
        .filter_map(|(_, body)| {
            let attrs = Attrs(body);
            Some(FoundElement {
                key: value(attrs, NFTA_SET_ELEM_KEY)?,
                data: value(attrs, NFTA_SET_ELEM_DATA),
                verdict: attrs.nested(NFTA_SET_ELEM_DATA).and_then(Verdict::read),
                interval_end: attrs.be32(NFTA_SET_ELEM_FLAGS).is_some_and(|flags| flags & 1 != 0),
                comment: comment_in(attrs.find(NFTA_SET_ELEM_USERDATA)),
            })
        })
        .collect()
}

/// An absent table, chain or set has nothing in it.
pub(crate) fn or_empty<T>(result: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match result {
        Err(error) if error.is_absent() => Ok(Vec::new()),
        other => other,
    }
}

impl Socket {
    /// The names of the tables of one family.
    pub fn nft_tables(&mut self, family: Family) -> Result<Vec<String>, Error> {
        let replies = or_empty(self.dump(|batch| {
            batch.push("list tables", kind(GETTABLE), NLM_F_DUMP, |m| {
                m.put(&nfgen(family as u8, 0));
            });
        }))?;
        Ok(replies.iter().filter_map(|reply| reply.attrs(NFGEN).str(NFTA_TABLE_NAME)).collect())
    }

    /// The rules of a table, or of one of its chains.
    pub fn nft_rules(&mut self, table: Table<'_>, chain: Option<&str>) -> Result<Vec<FoundRule>, Error> {
        let replies = or_empty(self.dump(|batch| {
            batch.push("list rules", kind(NEWRULE_GET), NLM_F_DUMP, |m| {
                m.put(&nfgen(table.family as u8, 0)).str(NFTA_RULE_TABLE, table.name);
                if let Some(chain) = chain {
                    m.str(NFTA_RULE_CHAIN, chain);
                }
            });
        }))?;
        Ok(replies
            .iter()
            .filter_map(rule_in)
            .filter(|(home, found)| *home == table.name && chain.is_none_or(|chain| chain == found.chain))
            .map(|(_, found)| found)
            .collect())
    }

    /// All elements of a set.
    pub fn nft_elements(&mut self, table: Table<'_>, set: &str) -> Result<Vec<FoundElement>, Error> {
        let replies = or_empty(self.dump(|batch| {
            batch.push("list elements", kind(GETSETELEM), NLM_F_DUMP, |m| {
                m.put(&nfgen(table.family as u8, 0))
                    .str(NFTA_SET_ELEM_LIST_TABLE, table.name)
                    .str(NFTA_SET_ELEM_LIST_SET, set);
            });
        }))?;
        Ok(replies.iter().flat_map(elements_in).collect())
    }

    /// One element by its key.
    pub fn nft_element(
        &mut self,
        table: Table<'_>,
        set: &str,
        key: &[u8],
    ) -> Result<Option<FoundElement>, Error> {
        let mut batch = Batch::new();
        let wanted = [Element { key: key.to_vec(), ..Element::default() }];
        batch.push("look up element", kind(GETSETELEM), NLM_F_ACK, |m| {
            m.put(&nfgen(table.family as u8, 0));
            put_elements(m, table, set, &wanted);
        });
        let replies = or_empty(self.exchange(&mut batch))?;
        Ok(replies.iter().flat_map(elements_in).next())
    }
}
