//! What makes the folder of reservations cheap to search: who owns what, and which addresses are taken.
//!
//! The folder of the reference plugin (one file per address) stays the truth; this index lives beside it, in a folder no
//! network can be called, and is thrown away and rebuilt whenever the folder was changed by somebody else, which its
//! modification time tells. Five kinds of file:
//! - `boot`: the boot in which it was last used, replaced as a whole so that only a power cut can tear it;
//! - `state`: magic, boot id and the folder's modification time after our last change;
//! - `own.<hash>`: the addresses of one (container, interface) that we reserved;
//! - `adopted.<n>`: owners found in the folder when the index was built, spread over a thousand files;
//! - `map.<first>-<last>`: one bit per address of a range.
//!
//! Everything here is a hint that is verified against the folder before it is believed, and is used under the store's lock.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ranges::{Range, from_number, to_number};
use super::store::Owner;
use crate::names::sha512_hex;

const BOOT: &str = "boot";
const STATE_MAGIC: &str = "podwire-ipam-state 1";
const OWNER_MAGIC: &str = "podwire-ipam-owner 1";
const ADOPTED_MAGIC: &str = "podwire-ipam-adopted 1";
/// So many that even the folder of a full /16 leaves some sixty lines in each.
const ADOPTED_FILES: u64 = 1024;
/// Above this a range is probed instead of mapped: 2^20 addresses are 128 KiB.
const MAPPED: u128 = 1 << 20;

/// The index of one network's folder.
pub struct Index {
    dir: PathBuf,
}

/// What the index remembers of the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The boot in which it was written.
    pub boot: String,
    /// Modification time of the folder.
    pub mtime: (i64, i64),
}

impl State {
    /// The folder as it is now.
    pub fn of(folder: &Path, boot: &str) -> io::Result<State> {
        let meta = std::fs::metadata(folder)?;
        Ok(State { boot: boot.to_owned(), mtime: (meta.mtime(), meta.mtime_nsec()) })
    }
}

impl Index {
    /// The index of `network` below the data folder.
    pub fn open(data_dir: &Path, network: &str) -> io::Result<Index> {
        let dir = data_dir.join(".podwire-ipam").join(network);
        std::fs::create_dir_all(&dir)?;
        Ok(Index { dir })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The boot in which the folder was last used; torn content is no boot's, and `None` says that it never was.
    pub fn boot(&self) -> Option<String> {
        match std::fs::read(self.dir.join(BOOT)) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(String::new()),
        }
    }

    /// Remembers the boot.
    pub fn write_boot(&self, boot: &str) -> io::Result<()> {
        std::fs::write(self.aside(), boot)?;
        std::fs::rename(self.aside(), self.dir.join(BOOT))
    }

    /// Where a file is written before it gets its name; one is enough, as the lock lets one write at a time.
    pub fn aside(&self) -> PathBuf {
        self.dir.join("new")
    }

    /// The remembered state; torn or foreign content counts as none.
    pub fn state(&self) -> Option<State> {
        let text = std::fs::read_to_string(self.dir.join("state")).ok()?;
        let mut lines = text.lines();
        if lines.next()? != STATE_MAGIC {
            return None;
        }
        let boot = lines.next()?.to_owned();
        let (seconds, nanos) = lines.next()?.split_once('.')?;
        // A complete record ends with a line of its own.
        (lines.next()? == "end")
            .then_some(State { boot, mtime: (seconds.parse().ok()?, nanos.parse().ok()?) })
    }

    /// Remembers the state.
    pub fn write_state(&self, state: &State) -> io::Result<()> {
        let text = format!("{STATE_MAGIC}\n{}\n{}.{}\nend\n", state.boot, state.mtime.0, state.mtime.1);
        std::fs::write(self.dir.join("state"), text)
    }

    fn owner_path(&self, owner: &Owner) -> PathBuf {
        self.dir.join(format!("own.{}", &sha512_hex(&owner.record())[..40]))
    }

    fn adopted_path(&self, owner: &Owner) -> PathBuf {
        // FNV-1a: only spreads, decides nothing.
        let hash = owner.record().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.dir.join(format!("adopted.{}", hash % ADOPTED_FILES))
    }

    /// Writes the owners found in the folder.
    pub fn adopt<'a>(&self, found: impl Iterator<Item = (&'a Owner, IpAddr)>) -> io::Result<()> {
        let mut files: std::collections::HashMap<PathBuf, String> = std::collections::HashMap::new();
        for (owner, ip) in found {
            let text = files.entry(self.adopted_path(owner)).or_insert_with(|| format!("{ADOPTED_MAGIC}\n"));
            text.push_str(&format!("{}\t{}\t{ip}\n", owner.container, owner.ifname));
        }
        files.into_iter().try_for_each(|(path, text)| std::fs::write(path, text))
    }

    fn adopted(&self, owner: &Owner) -> Vec<IpAddr> {
        let Ok(text) = std::fs::read_to_string(self.adopted_path(owner)) else { return Vec::new() };
        let mut lines = text.lines();
        if lines.next() != Some(ADOPTED_MAGIC) {
            return Vec::new();
        }
        let own = format!("{}\t{}\t", owner.container, owner.ifname);
        lines.filter_map(|line| line.strip_prefix(&own)?.parse().ok()).collect()
    }

    /// The addresses an owner is said to have.
    pub fn addresses(&self, owner: &Owner) -> Vec<IpAddr> {
        let mut found = self.reserved_by_us(owner);
        found.extend(self.adopted(owner));
        found.sort_unstable();
        found.dedup();
        found
    }

    fn reserved_by_us(&self, owner: &Owner) -> Vec<IpAddr> {
        let Ok(text) = std::fs::read_to_string(self.owner_path(owner)) else { return Vec::new() };
        let Some(rest) = text.strip_prefix(OWNER_MAGIC).and_then(|rest| rest.strip_prefix('\n')) else {
            return Vec::new();
        };
        rest.strip_prefix(&owner.record())
            .map_or_else(Vec::new, |list| list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Says which addresses an owner has.
    pub fn write_owner(&self, owner: &Owner, addresses: &[IpAddr]) -> io::Result<()> {
        let mut text = format!("{OWNER_MAGIC}\n{}\n", owner.record());
        for address in addresses {
            text.push_str(&format!("{address}\n"));
        }
        std::fs::write(self.owner_path(owner), text)
    }

    /// Forgets an owner.
    pub fn remove_owner(&self, owner: &Owner) -> io::Result<()> {
        ignore_absent(std::fs::remove_file(self.owner_path(owner)))
    }

    fn map_path(&self, range: &Range) -> PathBuf {
        self.dir.join(format!("map.{}-{}", range.start, range.end))
    }

    /// The bits of a range, if it is mapped and has been built.
    pub fn map(&self, range: &Range) -> Option<Bits> {
        if range.size() > MAPPED {
            return None;
        }
        let bytes = std::fs::read(self.map_path(range)).ok()?;
        let len = bits_len(range)?;
        (bytes.len() == len.div_ceil(8)).then_some(Bits { bytes, len })
    }

    /// Whether a range is small enough for a map.
    pub fn is_mapped(range: &Range) -> bool {
        range.size() <= MAPPED
    }

    /// Marks one address of a range.
    pub fn mark(&self, range: &Range, ip: IpAddr, taken: bool) -> io::Result<()> {
        if range.size() > MAPPED {
            return Ok(());
        }
        let Some(at) = offset(range, ip) else { return Ok(()) };
        let file = std::fs::OpenOptions::new().read(true).write(true).open(self.map_path(range))?;
        let mut byte = [0];
        let byte_at = (at / 8) as u64;
        file.read_exact_at(&mut byte, byte_at)?;
        let bit = 1 << (at % 8);
        byte[0] = if taken { byte[0] | bit } else { byte[0] & !bit };
        file.write_all_at(&byte, byte_at)
    }

    /// Builds the map of a range from the addresses taken.
    pub fn build_map(&self, range: &Range, taken: impl Iterator<Item = IpAddr>) -> io::Result<()> {
        let Some(len) = bits_len(range).filter(|_| range.size() <= MAPPED) else { return Ok(()) };
        let mut bits = Bits { bytes: vec![0; len.div_ceil(8)], len };
        for ip in taken {
            if let Some(at) = offset(range, ip) {
                bits.bytes[at / 8] |= 1 << (at % 8);
            }
        }
        std::fs::write(self.map_path(range), &bits.bytes)
    }

    /// Throws everything away but the boot.
    pub fn clear(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name() != BOOT {
                ignore_absent(std::fs::remove_file(entry.path()))?;
            }
        }
        Ok(())
    }
}

/// `Ok` when there was nothing to remove.
pub fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn bits_len(range: &Range) -> Option<usize> {
    usize::try_from(range.size()).ok()
}

fn offset(range: &Range, ip: IpAddr) -> Option<usize> {
    range.contains(ip).then(|| usize::try_from(to_number(ip) - to_number(range.start)).ok())?
}

/// One bit per address of a range.
pub struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    /// The first free address at or after a position, skipping one address.
    pub fn next_free(&self, range: &Range, from: u128, skip: IpAddr) -> Option<IpAddr> {
        let mut at = usize::try_from(from.checked_sub(to_number(range.start))?).ok()?;
        while at < self.len {
            let byte = self.bytes[at / 8];
            if byte == 0xff {
                at = (at / 8 + 1) * 8;
                continue;
            }
            let ip = from_number(to_number(range.start) + at as u128, range.start.is_ipv6());
            if byte & (1 << (at % 8)) == 0 && ip != skip {
                return Some(ip);
            }
            at += 1;
        }
        None
    }

    /// How many are taken.
    pub fn taken(&self) -> u128 {
        self.bytes.iter().map(|byte| u128::from(byte.count_ones())).sum()
    }
}
