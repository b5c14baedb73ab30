//! What the kernel's table is to hold, and what differs from what it held: sets, verdict maps and chains as values.
//!
//! Every change is noted as it is made, so that the difference costs what has changed and not what there is. Executors
//! carry a [`Change`] out in one transaction; this module knows no netlink.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use podwire_linux::nft::Verdict;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Of an address.
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv6() { Family::V6 } else { Family::V4 }
    }

    /// As it stands in names.
    pub fn digit(self) -> char {
        match self {
            Family::V4 => '4',
            Family::V6 => '6',
        }
    }
}

/// What a set holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Addresses.
    Addresses,
    /// Addresses of the pods, or nodes, of a selector; there are thousands of these.
    Peers,
    /// Address, protocol and port.
    Services,
    /// Addresses, and where packets of each go on.
    Ways,
    /// Ranges of addresses; never changed, as its name comes from what it holds.
    Blocks,
}

/// An element's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Key {
    /// An address.
    Address(IpAddr),
    /// A port of a protocol at an address.
    Service(IpAddr, u8, u16),
}

/// An element: held by so many, or leading somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Held {
    By(u32),
    Way(Verdict),
}

impl Held {
    fn way(&self) -> Option<&Verdict> {
        match self {
            Held::By(_) => None,
            Held::Way(verdict) => Some(verdict),
        }
    }
}

/// A set.
#[derive(Clone, Debug)]
pub struct Set {
    /// Its family.
    pub family: Family,
    /// What it holds.
    pub kind: Kind,
    /// The ranges, of such a set.
    pub blocks: Vec<(IpAddr, IpAddr)>,
    elements: HashMap<Key, Held>,
}

/// Which address of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// What a rule asks of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Match {
    /// An address is in a set.
    Member(Side, String),
    /// An address is within a block.
    Within(Side, IpNet),
    /// Destination, protocol and port are in a set.
    Service(String),
    /// The transport protocol.
    Protocol(u8),
    /// The destination port, from one to another.
    Ports(u16, u16),
}

/// A rule: all matches must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it asks.
    pub matches: Vec<Match>,
    /// What becomes of such packets.
    pub verdict: Verdict,
    /// Where it is written; shown by the `nft` tool.
    pub note: String,
    /// Packets are counted.
    pub counted: bool,
}

impl Rule {
    /// The sets and chains that it names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let sets = self.matches.iter().filter_map(|one| match one {
            Match::Member(_, set) | Match::Service(set) => Some(set.as_str()),
            Match::Within(..) | Match::Protocol(_) | Match::Ports(..) => None,
        });
        let chain = match &self.verdict {
            Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain.as_str()),
            _ => None,
        };
        sets.chain(chain)
    }
}

/// A chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Whose it is.
    pub note: String,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A set to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSet {
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: Family,
    /// What it holds.
    pub kind: Kind,
    /// Its ranges, if it holds such.
    pub blocks: Vec<(IpAddr, IpAddr)>,
}

/// An element with where it leads, if it leads anywhere.
pub type NewElement = (Key, Option<Verdict>);

/// What differs from before; carried out in the order of the fields.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Change {
    /// Sets to make.
    pub new_sets: Vec<NewSet>,
    /// Chains to make, with their notes.
    pub new_chains: Vec<(String, String)>,
    /// Elements to remove, also those of sets that go; ways first.
    pub removed: Vec<(String, Vec<Key>)>,
    /// Chains whose rules are replaced; those that go lose theirs.
    pub chains: Vec<(String, Vec<Rule>)>,
    /// Elements to add.
    pub added: Vec<(String, Vec<NewElement>)>,
    /// Chains to remove.
    pub gone_chains: Vec<String>,
    /// Sets to remove.
    pub gone_sets: Vec<String>,
}

impl Change {
    /// The sets whose elements differ.
    pub fn touched(&self) -> BTreeSet<String> {
        let (added, removed) = (self.added.iter().map(|one| &one.0), self.removed.iter().map(|one| &one.0));
        added.chain(removed).cloned().collect()
    }

    /// The same in two steps, each to be carried out at once, where one is not enough.
    ///
    /// A packet that is under way when a change takes effect may find the new way of an address and yet walk chains as they were
    /// before: of a chain that came with the way that is nothing, and the packet would pass. So chains that an address is
    /// moved to are there first.
    pub fn steps(&self) -> Option<[Change; 2]> {
        let leads = |(_, elements): &(String, Vec<NewElement>)| elements.iter().any(|one| one.1.is_some());
        let moved = self.added.iter().filter(|one| leads(one)).any(|(set, elements)| {
            let before = self.removed.iter().filter(|one| one.0 == *set).flat_map(|one| &one.1);
            let before: HashSet<&Key> = before.collect();
            elements.iter().any(|(key, _)| before.contains(key))
        });
        if self.new_chains.is_empty() || !moved {
            return None;
        }
        let sets: HashSet<&String> = self.new_sets.iter().map(|set| &set.name).collect();
        let new: HashSet<&String> = self.new_chains.iter().map(|chain| &chain.0).collect();
        let (added, later) = self.added.iter().cloned().partition(|one| sets.contains(&one.0) && !leads(one));
        let (written, rewritten) = self.chains.iter().cloned().partition(|one| new.contains(&one.0));
        let first = Change {
            new_sets: self.new_sets.clone(),
            new_chains: self.new_chains.clone(),
            chains: written,
            added,
            ..Change::default()
        };
        let second = Change {
            removed: self.removed.clone(),
            chains: rewritten,
            added: later,
            gone_chains: self.gone_chains.clone(),
            gone_sets: self.gone_sets.clone(),
            ..Change::default()
        };
        Some([first, second])
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Change::default()
    }

    /// How many elements, rules, sets and chains it is about.
    pub fn size(&self) -> usize {
        let elements = self.removed.iter().map(|(_, keys)| keys.len()).sum::<usize>()
            + self.added.iter().map(|(_, keys)| keys.len()).sum::<usize>();
        let rules = self.chains.iter().map(|(_, rules)| 1 + rules.len()).sum::<usize>();
        elements
            + rules
            + self.new_sets.len()
            + self.new_chains.len()
            + self.gone_sets.len()
            + self.gone_chains.len()
    }
}

/// What was found in the kernel.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// Names of chains, without those every table has.
    pub chains: BTreeSet<String>,
    /// Sets with their elements; ranges are not listed.
    pub sets: BTreeMap<String, HashMap<Key, Option<Verdict>>>,
}

/// What of a sparse table the kernel has.
#[derive(Default, Debug)]
struct Loaded {
    entries: HashSet<String>,
    named: HashMap<String, usize>,
}

/// Everything the table is to hold beside what every table has.
///
/// One that is [`Tables::sparse`] also knows what the kernel need not have: chains that no packet is led to, and the sets that
/// only those ask. The kernel finds a set by walking the list of all of them, so that fewer are quicker.
#[derive(Default, Debug)]
pub struct Tables {
    sets: HashMap<String, Set>,
    chains: HashMap<String, Chain>,
    /// Of a sparse one: chains that are entered from outside, and how many rules of chains that are loaded name a chain or set.
    sparse: Option<Loaded>,
    touched_sets: BTreeMap<String, bool>,
    touched_chains: BTreeMap<String, Option<Chain>>,
    touched: BTreeMap<String, BTreeMap<Key, Option<Held>>>,
}

impl Tables {
    /// One of which the kernel has what [`Tables::put_entry`] leads to.
    pub fn sparse() -> Tables {
        Tables { sparse: Some(Loaded::default()), ..Tables::default() }
    }

    /// Makes a set; one that exists stays as it is.
    pub fn make_set(&mut self, name: &str, family: Family, kind: Kind, blocks: Vec<(IpAddr, IpAddr)>) {
        if !self.sets.contains_key(name) {
            let set = Set { family, kind, blocks, elements: HashMap::new() };
            self.sets.insert(name.to_owned(), set);
            if self.has_set(name) {
                self.load_set(name);
            }
        }
    }

    /// Removes a set with its elements.
    pub fn drop_set(&mut self, name: &str) {
        if self.has_set(name) {
            self.unload_set(name);
        }
        self.sets.remove(name);
    }

    /// Makes a chain that packets are led to, or replaces its rules.
    pub fn put_entry(&mut self, name: &str, chain: Chain) {
        let known = self.sparse.as_ref().is_none_or(|loaded| loaded.entries.contains(name));
        if !known {
            // A chain that was only known until now is loaded as it becomes an entry.
            self.drop_chain(name);
            self.sparse.get_or_insert_default().entries.insert(name.to_owned());
        }
        self.put_chain(name, chain);
    }

    /// Makes a chain, or replaces its rules.
    pub fn put_chain(&mut self, name: &str, chain: Chain) {
        if self.chains.get(name) == Some(&chain) {
            return;
        }
        let loaded = self.has_chain(name);
        if loaded {
            // First what is new, so that what both ask stays as it is.
            self.count(&chain, true);
        }
        let before = self.chains.insert(name.to_owned(), chain);
        if loaded {
            if let Some(before) = &before {
                self.count(before, false);
            }
            self.touched_chains.entry(name.to_owned()).or_insert(before);
        }
    }

    /// Removes a chain.
    pub fn drop_chain(&mut self, name: &str) {
        let loaded = self.has_chain(name);
        if let Some(before) = self.chains.remove(name)
            && loaded
        {
            self.count(&before, false);
            self.touched_chains.entry(name.to_owned()).or_insert(Some(before));
        }
        if let Some(loaded) = &mut self.sparse {
            loaded.entries.remove(name);
        }
    }

    fn has_chain(&self, name: &str) -> bool {
        self.sparse
            .as_ref()
            .is_none_or(|loaded| loaded.entries.contains(name) || loaded.named.contains_key(name))
    }

    fn has_set(&self, name: &str) -> bool {
        let Some(set) = self.sets.get(name) else { return false };
        let own = matches!(set.kind, Kind::Addresses | Kind::Ways);
        own || self.sparse.as_ref().is_none_or(|loaded| loaded.named.contains_key(name))
    }

    /// What a chain's rules name is named by one more, or by one fewer.
    fn count(&mut self, chain: &Chain, more: bool) {
        if self.sparse.is_none() {
            return;
        }
        for name in chain.rules.iter().flat_map(Rule::names) {
            let Some(loaded) = &mut self.sparse else { return };
            let users = loaded.named.get(name).copied().unwrap_or(0);
            match (users, more) {
                (0, true) => {
                    loaded.named.insert(name.to_owned(), 1);
                    self.load(name);
                }
                (1, false) => {
                    self.unload(name);
                    if let Some(loaded) = &mut self.sparse {
                        loaded.named.remove(name);
                    }
                }
                (0, false) => {}
                (users, more) => {
                    let users = if more { users + 1 } else { users - 1 };
                    loaded.named.insert(name.to_owned(), users);
                }
            }
        }
    }

    /// The kernel is to have a chain or set.
    fn load(&mut self, name: &str) {
        if self.sets.contains_key(name) {
            self.load_set(name);
        } else if let Some(chain) = self.chains.get(name).cloned() {
            self.touched_chains.entry(name.to_owned()).or_insert(None);
            self.count(&chain, true);
        }
    }

    /// The kernel need not have a chain or set any more.
    fn unload(&mut self, name: &str) {
        if self.has_set(name) {
            self.unload_set(name);
        } else if let Some(chain) = self.chains.get(name).cloned() {
            self.count(&chain, false);
            self.touched_chains.entry(name.to_owned()).or_insert(Some(chain));
        }
    }

    fn load_set(&mut self, name: &str) {
        let Some(set) = self.sets.get(name) else { return };
        self.touched_sets.entry(name.to_owned()).or_insert(false);
        if !set.elements.is_empty() {
            let touched = self.touched.entry(name.to_owned()).or_default();
            for key in set.elements.keys() {
                touched.entry(*key).or_insert(None);
            }
        }
    }

    fn unload_set(&mut self, name: &str) {
        let Some(set) = self.sets.get(name) else { return };
        self.touched_sets.entry(name.to_owned()).or_insert(true);
        let touched = self.touched.entry(name.to_owned()).or_default();
        for (key, held) in &set.elements {
            touched.entry(*key).or_insert_with(|| Some(held.clone()));
        }
    }

    /// One more holds an element.
    pub fn hold(&mut self, set: &str, key: Key) {
        let loaded = self.has_set(set);
        let Some(found) = self.sets.get_mut(set) else { return };
        let before = found.elements.get(&key).cloned();
        let count = if let Some(Held::By(count)) = before { count } else { 0 };
        found.elements.insert(key, Held::By(count + 1));
        if count == 0 && loaded {
            touch(&mut self.touched, set, key, before);
        }
    }

    /// One fewer holds an element; the last takes it away.
    pub fn release(&mut self, set: &str, key: Key) {
        let loaded = self.has_set(set);
        let Some(found) = self.sets.get_mut(set) else { return };
        let before = found.elements.get(&key).cloned();
        match before {
            Some(Held::By(count)) if count > 1 => {
                found.elements.insert(key, Held::By(count - 1));
            }
            Some(_) => {
                found.elements.remove(&key);
                if loaded {
                    touch(&mut self.touched, set, key, before);
                }
            }
            None => {}
        }
    }

    /// Says where packets of an address go on; `None` is nowhere in particular.
    pub fn lead(&mut self, set: &str, address: IpAddr, way: Option<Verdict>) {
        let Some(found) = self.sets.get_mut(set) else { return };
        let key = Key::Address(address);
        let before = found.elements.get(&key).cloned();
        if before.as_ref().and_then(Held::way) == way.as_ref() {
            return;
        }
        match way {
            Some(verdict) => found.elements.insert(key, Held::Way(verdict)),
            None => found.elements.remove(&key),
        };
        touch(&mut self.touched, set, key, before);
    }

    /// Makes a set hold what another holds, each element once.
    pub fn copy_set(&mut self, name: &str, from: &Set) {
        self.make_set(name, from.family, from.kind, from.blocks.clone());
        let Some(own) = self.sets.get(name) else { return };
        let gone: Vec<Key> =
            own.elements.keys().filter(|key| !from.elements.contains_key(key)).copied().collect();
        let new: Vec<Key> =
            from.elements.keys().filter(|key| !own.elements.contains_key(key)).copied().collect();
        gone.into_iter().for_each(|key| self.release(name, key));
        new.into_iter().for_each(|key| self.hold(name, key));
    }

    /// The names of all chains and sets but these.
    pub fn names_beside(&self, chains: &BTreeSet<String>, sets: &BTreeSet<String>) -> Vec<String> {
        let chains = self.chains.keys().filter(|name| !chains.contains(*name));
        chains.chain(self.sets.keys().filter(|name| !sets.contains(*name))).cloned().collect()
    }

    /// The rules of a chain.
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.get(name)
    }

    /// A set.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.sets.get(name)
    }

    /// Whether a set holds this.
    pub fn holds(&self, set: &str, key: Key) -> bool {
        let Some(set) = self.sets.get(set) else { return false };
        match key {
            Key::Address(ip) if set.kind == Kind::Blocks => {
                set.blocks.iter().any(|(first, last)| (*first..=*last).contains(&ip))
            }
            key => set.elements.contains_key(&key),
        }
    }

    /// Where packets of an address go on.
    pub fn way(&self, set: &str, address: IpAddr) -> Option<&Verdict> {
        self.sets.get(set)?.elements.get(&Key::Address(address))?.way()
    }

    /// How many elements there are in all sets.
    pub fn elements(&self) -> usize {
        self.sets.values().map(|set| set.elements.len()).sum()
    }

    /// What has changed since the last time.
    pub fn take(&mut self) -> Change {
        let mut change = Change::default();
        for (name, existed) in std::mem::take(&mut self.touched_sets) {
            match (existed, self.sets.get(&name).filter(|_| self.has_set(&name))) {
                (false, Some(set)) => change.new_sets.push(new_set(name, set)),
                (true, None) => change.gone_sets.push(name),
                _ => {}
            }
        }
        for (name, before) in std::mem::take(&mut self.touched_chains) {
            let after = self.chains.get(&name).filter(|_| self.has_chain(&name));
            if before.as_ref() == after {
                continue;
            }
            change.chains.push((name.clone(), after.map(|chain| chain.rules.clone()).unwrap_or_default()));
            match (&before, after) {
                (None, Some(chain)) => change.new_chains.push((name, chain.note.clone())),
                (Some(_), None) => change.gone_chains.push(name),
                _ => {}
            }
        }
        for (name, keys) in std::mem::take(&mut self.touched) {
            self.compare(&mut change, name, keys);
        }
        ways_first(&mut change.removed, |name| self.sets.get(name).is_some_and(|set| set.kind == Kind::Ways));
        change
    }

    fn compare(&self, change: &mut Change, name: String, keys: BTreeMap<Key, Option<Held>>) {
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let set = self.sets.get(&name).filter(|_| self.has_set(&name));
        for (key, before) in keys {
            let after = set.and_then(|set| set.elements.get(&key));
            let same = match (&before, after) {
                (Some(Held::By(_)), Some(Held::By(_))) => true,
                (before, after) => before.as_ref() == after,
            };
            if same {
                continue;
            }
            if before.is_some() {
                removed.push(key);
            }
            if let Some(held) = after {
                added.push((key, held.way().cloned()));
            }
        }
        if !removed.is_empty() {
            change.removed.push((name.clone(), removed));
        }
        if !added.is_empty() {
            change.added.push((name, added));
        }
    }

    /// What differs from what was found; chains are all written anew. Forgets what has changed so far.
    pub fn against(&mut self, found: &Found) -> Change {
        self.touched_sets.clear();
        self.touched_chains.clear();
        self.touched.clear();
        let mut change = Change::default();
        for (name, set) in self.sets.iter().filter(|(name, _)| self.has_set(name)) {
            let there = found.sets.get(name);
            if there.is_none() {
                change.new_sets.push(new_set(name.clone(), set));
            }
            let (mut removed, mut added) = (Vec::new(), Vec::new());
            for (key, held) in &set.elements {
                match there.and_then(|there| there.get(key)) {
                    Some(way) if way.as_ref() == held.way() => {}
                    Some(_) => {
                        removed.push(*key);
                        added.push((*key, held.way().cloned()));
                    }
                    None => added.push((*key, held.way().cloned())),
                }
            }
            if set.kind != Kind::Blocks {
                removed.extend(
                    there.into_iter().flat_map(HashMap::keys).filter(|key| !set.elements.contains_key(key)),
                );
            }
            if !removed.is_empty() {
                change.removed.push((name.clone(), removed));
            }
            if !added.is_empty() {
                change.added.push((name.clone(), added));
            }
        }
        for (name, chain) in self.chains.iter().filter(|(name, _)| self.has_chain(name)) {
            if !found.chains.contains(name) {
                change.new_chains.push((name.clone(), chain.note.clone()));
            }
            change.chains.push((name.clone(), chain.rules.clone()));
        }
        let kept = |name: &String| self.chains.contains_key(name) && self.has_chain(name);
        let gone = found.chains.iter().filter(|name| !kept(name));
        change.gone_chains = gone.cloned().collect();
        change.chains.extend(change.gone_chains.iter().map(|name| (name.clone(), Vec::new())));
        for (name, there) in found.sets.iter().filter(|(name, _)| !self.has_set(name)) {
            change.gone_sets.push(name.clone());
            if !there.is_empty() {
                change.removed.push((name.clone(), there.keys().copied().collect()));
            }
        }
        ways_first(&mut change.removed, |name| self.sets.get(name).is_some_and(|set| set.kind == Kind::Ways));
        change
    }
}

fn new_set(name: String, set: &Set) -> NewSet {
    NewSet { name, family: set.family, kind: set.kind, blocks: set.blocks.clone() }
}

/// A chain can only go when no element leads to it any more.
fn ways_first(removed: &mut [(String, Vec<Key>)], is_way: impl Fn(&str) -> bool) {
    removed.sort_by_key(|(name, _)| !is_way(name));
}

fn touch(
    touched: &mut BTreeMap<String, BTreeMap<Key, Option<Held>>>,
    set: &str,
    key: Key,
    before: Option<Held>,
) {
    match touched.get_mut(set) {
        Some(keys) => {
            keys.entry(key).or_insert(before);
        }
        None => {
            touched.insert(set.to_owned(), BTreeMap::from([(key, before)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Key {
        Key::Address(IpAddr::from([10, 0, 0, last]))
    }

    fn tables() -> Tables {
        let mut tables = Tables::default();
        tables.make_set("s", Family::V4, Kind::Addresses, Vec::new());
        tables.hold("s", ip(1));
        tables.take();
        tables
    }

    #[test]
    fn what_comes_and_goes_between_two_looks_is_no_change() {
        let mut tables = tables();
        tables.hold("s", ip(2));
        tables.release("s", ip(2));
        tables.release("s", ip(1));
        tables.hold("s", ip(1));
        tables.put_chain("c", Chain { note: String::new(), rules: Vec::new() });
        tables.drop_chain("c");
        tables.make_set("t", Family::V4, Kind::Addresses, Vec::new());
        tables.drop_set("t");
        assert!(tables.take().is_empty());
    }

    #[test]
    fn an_element_stays_while_somebody_holds_it() {
        let mut tables = tables();
        tables.hold("s", ip(1));
        tables.release("s", ip(1));
        assert!(tables.take().is_empty());
        tables.release("s", ip(1));
        assert_eq!(tables.take().removed, [("s".to_owned(), vec![ip(1)])]);
    }

    #[test]
    fn a_way_that_changes_is_removed_and_added() {
        let mut tables = Tables::default();
        tables.make_set("m", Family::V4, Kind::Ways, Vec::new());
        let address = IpAddr::from([10, 0, 0, 1]);
        tables.lead("m", address, Some(Verdict::Goto("a".into())));
        tables.take();
        tables.lead("m", address, Some(Verdict::Goto("b".into())));
        let change = tables.take();
        assert_eq!(change.removed, [("m".to_owned(), vec![ip(1)])]);
        assert_eq!(change.added, [("m".to_owned(), vec![(ip(1), Some(Verdict::Goto("b".into())))])]);
    }

    #[test]
    fn a_table_that_was_found_becomes_what_it_should_be() {
        let mut tables = tables();
        let mut found = Found::default();
        found.chains.insert("old".into());
        found.sets.insert("s".into(), HashMap::from([(ip(1), None), (ip(9), None)]));
        found.sets.insert("gone".into(), HashMap::new());
        tables.put_chain("new", Chain { note: "n".into(), rules: Vec::new() });
        let change = tables.against(&found);
        assert_eq!(change.removed, [("s".to_owned(), vec![ip(9)])]);
        assert_eq!(
            (change.added.len(), change.gone_sets, change.gone_chains),
            (0, vec!["gone".to_owned()], vec!["old".to_owned()])
        );
        assert_eq!(change.new_chains, [("new".to_owned(), "n".to_owned())]);
        assert!(tables.take().is_empty());
    }
}
