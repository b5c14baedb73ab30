//! The kernel's table: what every table has, changes carried out in one transaction or two, and the table read back.
//!
//! The table never belongs to a socket (it would go with it, and leave every pod open), is never removed and made anew, and
//! is written by one owner. Its name derives from the instance, so that two nodes share a machine.

mod code;
mod frame;
mod read;

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use podwire_linux::nft::conntrack::Connection;
use podwire_linux::nft::transaction::SetValue;
use podwire_linux::nft::{self, Element, Set, Socket, Table as NftTable, Transaction};

use crate::plan::known;
use crate::plan::tables::{Change, Family, Key, Kind, NewElement};

pub(crate) use self::code::LOGGED;
pub use self::read::Listing;

/// Why the table could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket.
    #[error("open a netfilter socket")]
    Open(#[source] nft::Error),
    /// A transaction was refused; nothing of it took effect.
    #[error("write table {table} ({size} changes)")]
    Write {
        /// The table.
        table: String,
        /// How much it was about.
        size: usize,
        /// The kernel's reason.
        source: nft::Error,
    },
    /// The table could not be read.
    #[error("read table {table}")]
    Read {
        /// The table.
        table: String,
        /// The kernel's reason.
        source: nft::Error,
    },
    /// Connections could not be forgotten.
    #[error("forget connections")]
    Forget(#[source] nft::Error),
}

/// What every table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The families of pods.
    pub families: Vec<Family>,
    /// Within these blocks only known addresses may speak and be spoken to.
    pub floor: Vec<IpNet>,
    /// Links behind which there are only pods: what comes by them comes from known addresses only.
    pub links: Vec<String>,
}

/// The table of an instance.
pub struct Table {
    name: String,
    socket: Socket,
    frame: Frame,
    /// It is in a pod's own namespace, and the frame's links are those that the node judges.
    inside: bool,
    /// The group that hears of denied packets; none in a pod's own namespace, nor where the kernel cannot tell.
    log: Option<u16>,
}

impl Table {
    /// Opens the table of this name, whether it exists or not, in the calling thread's network namespace.
    pub fn open(name: &str, frame: Frame) -> Result<Table, Error> {
        let socket = Socket::netfilter().map_err(Error::Open)?;
        Ok(Table { name: name.to_owned(), socket, frame, inside: false, log: Some(log_group(name)) })
    }

    /// Opens the table of this name in a pod's own namespace, which must be the calling thread's; afterwards it may be used
    /// from any. `passing` are the links whose packets the node judges.
    pub fn open_inside(name: &str, passing: Vec<String>) -> Result<Table, Error> {
        let frame = Frame { families: vec![Family::V4, Family::V6], floor: Vec::new(), links: passing };
        Ok(Table { inside: true, log: None, ..Table::open(name, frame)? })
    }

    /// The blocks in which only known addresses may speak.
    pub fn floor(&self) -> &[IpNet] {
        &self.frame.floor
    }

    /// Makes sure that the floor stands; whatever else is in the table stays as it is.
    pub fn lay_floor(&mut self) -> Result<(), Error> {
        let (inside, frame) = (self.inside, self.frame.clone());
        self.write(0, |tx, table, log| {
            if inside {
                frame::write_inside(tx, table, &frame.links);
            } else {
                frame::write(tx, table, &frame, log);
            }
        })
    }

    /// Carries a change out, each of its steps wholly or not at all.
    pub fn apply(&mut self, change: &Change) -> Result<(), Error> {
        let mut carry = |step: &Change| self.write(step.size(), |tx, table, log| write(tx, table, step, log));
        match change.steps() {
            Some(steps) => steps.iter().try_for_each(carry),
            None => carry(change),
        }
    }

    /// Commits what `build` puts together. A kernel that cannot log refuses all of it: then the same without.
    fn write(
        &mut self,
        size: usize,
        build: impl Fn(&mut Transaction, NftTable<'_>, Option<u16>),
    ) -> Result<(), Error> {
        let made = |log| {
            let mut tx = Transaction::new();
            build(&mut tx, handle(&self.name), log);
            tx
        };
        let written = made(self.log).commit(&mut self.socket);
        let absent = written.as_ref().is_err_and(nft::Error::is_absent);
        let written = if absent && self.log.is_some() {
            let written = made(None).commit(&mut self.socket);
            if written.is_ok() {
                tracing::warn!("the kernel cannot tell of denied packets; they are counted");
                self.log = None;
            }
            written
        } else {
            written
        };
        written.map_err(|source| Error::Write { table: self.name.clone(), size, source })
    }

    /// Takes addresses out of all that leads anywhere, whether they are there or not: for one whose owner is gone while
    /// the rest is not known yet.
    pub fn close(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let table = handle(&self.name);
        let mut tx = Transaction::new();
        let failed = |source| Error::Read { table: self.name.clone(), source };
        let mut size = 0;
        for ip in addresses {
            let key = code::key(Key::Address(*ip));
            let set = known(Family::of(*ip));
            if self.socket.nft_element(table, &set, &key).map_err(failed)?.is_some() {
                tx.delete_elements(table, &set, &[Element { key, ..Element::default() }]);
                size += 1;
            }
        }
        self.commit(tx, size)
    }

    fn commit(&mut self, tx: Transaction, size: usize) -> Result<(), Error> {
        tx.commit(&mut self.socket).map_err(|source| Error::Write { table: self.name.clone(), size, source })
    }

    /// Forgets the connections that `forgets` says, told by who began them, who answers, protocol and port.
    pub fn forget(&mut self, forgets: impl Fn(&Connection) -> bool) -> Result<usize, Error> {
        let chosen = self.connections(forgets)?;
        self.forget_these(&chosen)
    }

    /// The connections that `wanted` says.
    pub fn connections(&mut self, wanted: impl Fn(&Connection) -> bool) -> Result<Vec<Connection>, Error> {
        let mut chosen = Vec::new();
        for family in self.frame.families.clone() {
            let all = self.socket.connections(family == Family::V6).map_err(Error::Forget)?;
            chosen.extend(all.into_iter().filter(|one| wanted(one)));
        }
        Ok(chosen)
    }

    /// Forgets connections; how many there were still.
    pub fn forget_these(&mut self, chosen: &[Connection]) -> Result<usize, Error> {
        self.socket.forget(chosen).map_err(Error::Forget)
    }

    /// Removes the table of this name with all that is in it.
    pub fn remove(name: &str) -> Result<(), Error> {
        let mut socket = nft::netfilter().map_err(Error::Open)?;
        let tables = socket.nft_tables(nft::Family::Inet);
        let tables = tables.map_err(|source| Error::Read { table: name.to_owned(), source })?;
        if !tables.iter().any(|table| table == name) {
            return Ok(());
        }
        let mut tx = Transaction::new();
        tx.delete_table(handle(name));
        tx.commit(&mut socket).map_err(|source| Error::Write { table: name.to_owned(), size: 1, source })
    }
}

fn handle(name: &str) -> NftTable<'_> {
    NftTable { family: nft::Family::Inet, name }
}

/// The group that hears of what the table of this name denies: two nodes share a machine.
pub(crate) fn log_group(name: &str) -> u16 {
    /// People take small numbers.
    const FIRST: u16 = 1024;
    // FNV-1a, of 32 bits.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let room = u32::from(u16::MAX - FIRST);
    FIRST + u16::try_from(hash % room).unwrap_or_default()
}

fn write(tx: &mut Transaction, table: NftTable<'_>, change: &Change, log: Option<u16>) {
    for set in change.new_sets.iter().filter(|set| set.kind != Kind::Peers) {
        make_set(tx, table, &set.name, set.family, set.kind);
        if !set.blocks.is_empty() {
            tx.add_elements(table, &set.name, &code::ranges(&set.blocks), false);
        }
    }
    for (name, note) in &change.new_chains {
        tx.add_noted_chain(table, name, note);
    }
    let removed = change.removed.iter().map(|(set, keys)| (set, keys.iter().map(|key| (*key, None))));
    for (set, elements) in by_place(removed) {
        tx.delete_elements(table, &set, &elements);
    }
    let new: std::collections::HashSet<&String> = change.new_chains.iter().map(|(name, _)| name).collect();
    let is_new = |name: &String| new.contains(name);
    for (name, _) in change.chains.iter().filter(|(name, _)| !is_new(name)) {
        tx.flush_chain(table, name);
    }
    for (name, rules) in &change.chains {
        for rule in rules {
            tx.add_rule(table, name, &code::rule(rule, family_of(name), log), Some(&rule.note));
        }
    }
    let added = change.added.iter().map(|(set, keys)| (set, keys.iter().cloned()));
    for (set, elements) in by_place(added) {
        tx.add_elements(table, &set, &elements, false);
    }
    for name in &change.gone_chains {
        tx.delete_chain(table, name);
    }
    for name in change.gone_sets.iter().filter(|name| code::shared(name).is_none()) {
        tx.delete_set(table, name);
    }
}

/// Elements by the set that the kernel has them in, the sets in the order in which they are first met.
fn by_place<'a, K>(changes: impl Iterator<Item = (&'a String, K)>) -> Vec<(String, Vec<Element>)>
where
    K: Iterator<Item = NewElement>,
{
    let mut places: Vec<(String, Vec<Element>)> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    for (set, keys) in changes {
        let (place, selector) = match code::shared(set) {
            Some(shared) => (shared.within, shared.selector),
            None => (set.clone(), Vec::new()),
        };
        let index = *at.entry(place.clone()).or_insert_with(|| {
            places.push((place, Vec::new()));
            places.len() - 1
        });
        places[index].1.extend(keys.map(|(key, verdict)| {
            let key = [code::key(key), selector.clone()].concat();
            Element { key, verdict, ..Element::default() }
        }));
    }
    places
}

/// The names of sets and chains say their family: the digit before the first dash, or the last.
fn family_of(name: &str) -> Family {
    let head = name.split('-').next().unwrap_or(name);
    let digit = head.chars().last().filter(char::is_ascii_digit).or_else(|| name.chars().last());
    if digit == Some('6') { Family::V6 } else { Family::V4 }
}

fn make_set(tx: &mut Transaction, table: NftTable<'_>, name: &str, family: Family, kind: Kind) {
    const MARK: u32 = 19;
    const PROTOCOL: u32 = 12;
    const PORT: u32 = 13;
    let (address, len) = match family {
        Family::V4 => (7, 4),
        Family::V6 => (8, 16),
    };
    let plain = Set { name, key_type: address, key_len: len, interval: false, value: SetValue::None };
    let set = match kind {
        Kind::Addresses => plain,
        // The selector is no type that the `nft` tool knows: three numbers.
        Kind::Peers => {
            let key_type = address << 18 | MARK << 12 | MARK << 6 | MARK;
            Set { key_type, key_len: len + u32::from(code::SELECTOR), ..plain }
        }
        Kind::Services => Set { key_type: address << 12 | PROTOCOL << 6 | PORT, key_len: len + 8, ..plain },
        Kind::Ways => Set { value: SetValue::Verdict, ..plain },
        Kind::Blocks => Set { interval: true, ..plain },
    };
    tx.add_set(table, &set);
}
