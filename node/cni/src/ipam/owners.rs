//! Who has which address, as a table in one file: found, entered and removed with one read and one write.
//!
//! The hash of an owner names a page of the file; the page is a list of (hash, address). An entry only says where to look:
//! the address's own file has the owner's name. A page may fill up, with entries of killed processes among others; then
//! the whole index is built anew.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGES: u128 = 1024;
const PAGE: usize = 4096;
const SLOT: usize = 32;
const EMPTY: [u8; SLOT] = [0; SLOT];

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The container.
    pub container: String,
    /// The interface in it; empty in files of old.
    pub ifname: String,
}

impl Owner {
    /// As written into the file of an address.
    pub fn record(&self) -> String {
        format!("{}\r\n{}", self.container, self.ifname)
    }

    /// Reads the content of such a file; an empty one has no owner.
    pub fn parse(text: &str) -> Option<Owner> {
        let mut lines = text.trim().lines().map(str::trim);
        let container = lines.next().filter(|line| !line.is_empty())?.to_owned();
        Some(Owner { container, ifname: lines.next().unwrap_or_default().to_owned() })
    }

    /// Whether a record of `found` belongs to this owner.
    pub(super) fn owns(&self, found: &Owner) -> bool {
        self.container == found.container && (found.ifname.is_empty() || found.ifname == self.ifname)
    }
}

/// The table.
pub struct Owners {
    file: File,
}

/// FNV-1a with 128 bits, and never zero, which is nobody's.
fn hash(owner: &Owner) -> u128 {
    let mixed = owner.record().bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    mixed.max(1)
}

fn slot(hash: u128, ip: IpAddr) -> [u8; SLOT] {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut slot = EMPTY;
    slot[..16].copy_from_slice(&hash.to_le_bytes());
    slot[16..].copy_from_slice(&ip.octets());
    slot
}

fn address(slot: &[u8]) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(<[u8; 16]>::try_from(slot.get(16..)?).ok()?);
    Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
}

impl Owners {
    /// Opens the table, empty when there was none.
    pub fn open(path: &Path) -> io::Result<Owners> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Owners { file })
    }

    fn page(&self, hash: u128) -> io::Result<(u64, [u8; PAGE])> {
        let start = u64::try_from(hash % PAGES).expect("below a thousand") * PAGE as u64;
        let mut page = [0; PAGE];
        // What lies behind the end has never been written: it is empty.
        let len = self.file.read_at(&mut page, start)?;
        page[len / SLOT * SLOT..].fill(0);
        Ok((start, page))
    }

    /// The addresses an owner is said to have.
    pub fn find(&self, owner: &Owner) -> io::Result<Vec<IpAddr>> {
        let hash = hash(owner);
        let (_, page) = self.page(hash)?;
        let own = |slot: &&[u8]| slot[..16] == hash.to_le_bytes();
        Ok(page.chunks_exact(SLOT).filter(own).filter_map(address).collect())
    }

    /// Enters an address of an owner; false when there is no room.
    pub fn insert(&self, owner: &Owner, ip: IpAddr) -> io::Result<bool> {
        let hash = hash(owner);
        let (start, page) = self.page(hash)?;
        let slot = slot(hash, ip);
        if page.chunks_exact(SLOT).any(|found| found == slot) {
            return Ok(true);
        }
        let Some(at) = page.chunks_exact(SLOT).position(|found| found == EMPTY) else { return Ok(false) };
        self.file.write_all_at(&slot, start + (at * SLOT) as u64).map(|()| true)
    }

    /// Removes all addresses of an owner.
    pub fn remove(&self, owner: &Owner) -> io::Result<()> {
        let hash = hash(owner);
        let (start, page) = self.page(hash)?;
        for (at, found) in page.chunks_exact(SLOT).enumerate() {
            if found[..16] == hash.to_le_bytes() {
                self.file.write_all_at(&EMPTY, start + (at * SLOT) as u64)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_entered_and_removed() {
        let dir = tempfile::tempdir().expect("folder");
        let owners = Owners::open(&dir.path().join("owners")).expect("table");
        let owner = |name: &str, ifname: &str| Owner { container: name.into(), ifname: ifname.into() };
        let (four, six): (IpAddr, IpAddr) = ("10.0.0.2".parse().expect("ip"), "fd00::2".parse().expect("ip"));
        for number in 0..2000 {
            let name = format!("c{number}");
            assert!(owners.insert(&owner(&name, "eth0"), four).expect("insert"));
        }
        let one = owner("c77", "eth0");
        assert!(owners.insert(&one, six).expect("insert") && owners.insert(&one, six).expect("again"));
        assert_eq!(owners.find(&one).expect("find"), [four, six]);
        assert_eq!(owners.find(&owner("c77", "eth1")).expect("find"), Vec::<IpAddr>::new());
        owners.remove(&one).expect("remove");
        assert!(owners.find(&one).expect("find").is_empty());
        assert_eq!(owners.find(&owner("c78", "eth0")).expect("find"), [four]);
    }

    #[test]
    fn a_page_without_room_says_so() {
        let dir = tempfile::tempdir().expect("folder");
        let owners = Owners::open(&dir.path().join("owners")).expect("table");
        let owner = Owner { container: "c".into(), ifname: "eth0".into() };
        let ip = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(number));
        for number in 0..128 {
            assert!(owners.insert(&owner, ip(number)).expect("insert"));
        }
        assert!(!owners.insert(&owner, ip(128)).expect("full"));
        assert_eq!(owners.find(&owner).expect("find").len(), 128);
    }
}
