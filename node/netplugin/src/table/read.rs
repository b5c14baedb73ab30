//! The table read back: to take it over, and to explain it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use podwire_linux::nft::{self, ListedRule};

use super::{Error, Table, code, family_of, frame, handle};
use crate::plan::known;
use crate::plan::tables::{Chain, Family, Found, Key, Kind, Rule, Tables};

/// A table as the kernel has it.
pub struct Listing {
    /// All of it.
    pub tables: Tables,
    /// Rules that are not ours, or of a later version: what they do is not known.
    pub unknown: Vec<String>,
    /// The blocks in which only known addresses may speak.
    pub floor: Vec<IpNet>,
}

impl Table {
    /// What is there beside what every table has.
    pub fn read(&mut self) -> Result<Found, Error> {
        let table = handle(&self.name);
        let failed = |source| Error::Read { table: self.name.clone(), source };
        let mut found = Found::default();
        let chains = self.socket.nft_chains(table).map_err(failed)?;
        found.chains =
            chains.into_iter().map(|one| one.name).filter(|name| !frame::is_own_chain(name)).collect();
        for name in self.socket.nft_sets(table).map_err(failed)? {
            if frame::is_own_set(&name) {
                continue;
            }
            if let Some(family) = shared_by(&name) {
                for one in self.socket.nft_elements(table, &name).map_err(failed)? {
                    if let Some((set, key)) = code::shared_in(family, &one.key) {
                        found.sets.entry(set).or_default().insert(key, None);
                    }
                }
                continue;
            }
            let mut elements = HashMap::new();
            if kind_of(&name) != Kind::Blocks {
                for one in self.socket.nft_elements(table, &name).map_err(failed)? {
                    elements.extend(code::key_in(&one.key).map(|key| (key, one.verdict)));
                }
            }
            found.sets.insert(name, elements);
        }
        Ok(found)
    }

    /// The addresses whose rules stand.
    pub fn known(&mut self) -> Result<HashSet<IpAddr>, Error> {
        let table = handle(&self.name);
        let failed = |source| Error::Read { table: self.name.clone(), source };
        let mut all = HashSet::new();
        for family in self.frame.families.clone() {
            for one in self.socket.nft_elements(table, &known(family)).map_err(failed)? {
                if let Some(Key::Address(ip)) = code::key_in(&one.key) {
                    all.insert(ip);
                }
            }
        }
        Ok(all)
    }

    /// All of it, rules and ranges as well.
    pub fn list(&mut self) -> Result<Listing, Error> {
        let table = handle(&self.name);
        let failed = |source| Error::Read { table: self.name.clone(), source };
        let mut tables = Tables::default();
        let (mut unknown, mut floor) = (Vec::new(), Vec::new());
        for name in self.socket.nft_sets(table).map_err(failed)? {
            if frame::is_own_set(&name) {
                continue;
            }
            let elements = self.socket.nft_elements(table, &name).map_err(failed)?;
            if let Some(family) = shared_by(&name) {
                for (set, key) in elements.iter().filter_map(|one| code::shared_in(family, &one.key)) {
                    tables.make_set(&set, family, Kind::Peers, Vec::new());
                    tables.hold(&set, key);
                }
                continue;
            }
            let (family, kind) = (family_of(&name), kind_of(&name));
            let address = |key: &[u8]| match code::key_in(key) {
                Some(Key::Address(ip)) => Some(ip),
                _ => None,
            };
            let edges =
                || elements.iter().filter_map(|one| Some((address(&one.key)?, one.interval_end))).collect();
            let blocks = if kind == Kind::Blocks { code::ranges_in(edges()) } else { Vec::new() };
            tables.make_set(&name, family, kind, blocks);
            for one in elements.iter().filter(|_| kind != Kind::Blocks) {
                match (code::key_in(&one.key), &one.verdict) {
                    (Some(Key::Address(ip)), Some(verdict)) => tables.lead(&name, ip, Some(verdict.clone())),
                    (Some(key), None) => tables.hold(&name, key),
                    _ => unknown.push(name.clone()),
                }
            }
        }
        let mut rules: HashMap<String, Vec<Rule>> = HashMap::new();
        for one in self.socket.nft_listing(table, None).map_err(failed)? {
            if frame::is_own_chain(&one.chain) {
                let block = one.exprs.as_deref().and_then(code::block_in);
                floor.extend(block.filter(|block| !floor.contains(block)));
                continue;
            }
            match rule_in(&one) {
                Some(rule) => rules.entry(one.chain).or_default().push(rule),
                None => unknown.push(one.chain),
            }
        }
        for chain in self.socket.nft_chains(table).map_err(failed)? {
            if !frame::is_own_chain(&chain.name) {
                let rules = rules.remove(&chain.name).unwrap_or_default();
                tables.put_chain(&chain.name, Chain { note: chain.comment.unwrap_or_default(), rules });
            }
        }
        Ok(Listing { tables, unknown, floor })
    }

    /// Packets that were dropped, by the note of the rule that dropped them; none where there is no such table.
    pub fn dropped(name: &str) -> Result<BTreeMap<String, u64>, Error> {
        let mut socket = nft::netfilter().map_err(Error::Open)?;
        let rules = socket.nft_listing(handle(name), None);
        let rules = rules.map_err(|source| Error::Read { table: name.to_owned(), source })?;
        let mut dropped = BTreeMap::new();
        for rule in rules {
            if let (Some(note), Some(packets)) = (rule.comment, rule.packets) {
                *dropped.entry(note).or_insert(0) += packets;
            }
        }
        Ok(dropped)
    }
}

fn rule_in(rule: &ListedRule) -> Option<Rule> {
    let (matches, verdict) = code::rule_in(rule.exprs.as_deref()?)?;
    let note = rule.comment.clone().unwrap_or_default();
    Some(Rule { matches, verdict, note, counted: rule.packets.is_some() })
}

/// The family whose selectors share the set of this name.
fn shared_by(name: &str) -> Option<Family> {
    [Family::V4, Family::V6].into_iter().find(|family| code::shared_set(*family) == name)
}

fn kind_of(name: &str) -> Kind {
    let family = family_of(name);
    if crate::plan::Planner::maps(family).iter().any(|map| map == name) {
        return Kind::Ways;
    }
    match name.chars().next() {
        Some('b') => Kind::Blocks,
        Some('n') => Kind::Services,
        _ => Kind::Addresses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_sets_hold() {
        let said = |name: &str| (kind_of(name), family_of(name));
        assert_eq!(said("known6"), (Kind::Addresses, Family::V6));
        assert_eq!(said("np-in4"), (Kind::Ways, Family::V4));
        assert_eq!(said("base-eg6"), (Kind::Ways, Family::V6));
        assert_eq!(said("b4-6666"), (Kind::Blocks, Family::V4));
        assert_eq!(said("n6-4444"), (Kind::Services, Family::V6));
        assert_eq!(family_of("np6-i4444"), Family::V6);
        assert_eq!(family_of("i4-66666-6"), Family::V4);
    }
}
