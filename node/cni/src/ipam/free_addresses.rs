//! One bit per address of a range, in a file of which only the part that is looked at is read.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ranges::{Range, from_number, to_number};

/// Above this a range is probed instead of mapped: 2^20 addresses are 128 KiB.
const MAPPED: u128 = 1 << 20;
/// Bytes read at once: four thousand addresses.
const WINDOW: usize = 512;

/// The bits of one range.
pub struct Bits {
    file: File,
    len: usize,
}

/// Whether a range is small enough for a map.
pub fn is_mapped(range: &Range) -> bool {
    range.size() <= MAPPED
}

fn bits_len(range: &Range) -> Option<usize> {
    usize::try_from(range.size()).ok().filter(|_| is_mapped(range))
}

fn offset(range: &Range, ip: IpAddr) -> Option<usize> {
    range.contains(ip).then(|| usize::try_from(to_number(ip) - to_number(range.start)).ok())?
}

impl Bits {
    /// The bits of a range, when they are there and as many as the range has addresses.
    pub fn open(path: &Path, range: &Range) -> Option<Bits> {
        let len = bits_len(range)?;
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        (file.metadata().ok()?.len() == len.div_ceil(8) as u64).then_some(Bits { file, len })
    }

    /// Writes them from the addresses taken.
    pub fn build(path: &Path, range: &Range, taken: impl Iterator<Item = IpAddr>) -> io::Result<()> {
        let Some(len) = bits_len(range) else { return Ok(()) };
        let mut bytes = vec![0; len.div_ceil(8)];
        for ip in taken {
            if let Some(at) = offset(range, ip) {
                bytes[at / 8] |= 1 << (at % 8);
            }
        }
        std::fs::write(path, &bytes)
    }

    /// Marks one address of the range.
    pub fn mark(&self, range: &Range, ip: IpAddr, taken: bool) -> io::Result<()> {
        let Some(at) = offset(range, ip).filter(|at| *at < self.len) else { return Ok(()) };
        let mut byte = [0];
        let byte_at = (at / 8) as u64;
        self.file.read_exact_at(&mut byte, byte_at)?;
        let bit = 1 << (at % 8);
        byte[0] = if taken { byte[0] | bit } else { byte[0] & !bit };
        self.file.write_all_at(&byte, byte_at)
    }

    /// The first free address at or after a position, skipping one address.
    pub fn next_free(&self, range: &Range, from: u128, skip: IpAddr) -> io::Result<Option<IpAddr>> {
        let first = to_number(range.start);
        let Some(mut at) = from.checked_sub(first).and_then(|at| usize::try_from(at).ok()) else {
            return Ok(None);
        };
        let mut window = [0; WINDOW];
        while at < self.len {
            let base = at / 8;
            let bytes = (self.len.div_ceil(8) - base).min(WINDOW);
            self.file.read_exact_at(&mut window[..bytes], base as u64)?;
            let end = (8 * (base + bytes)).min(self.len);
            while at < end {
                let byte = window[at / 8 - base];
                if byte == 0xff {
                    at = (at / 8 + 1) * 8;
                    continue;
                }
                let ip = from_number(first + at as u128, range.start.is_ipv6());
                if byte & (1 << (at % 8)) == 0 && ip != skip {
                    return Ok(Some(ip));
                }
                at += 1;
            }
        }
        Ok(None)
    }

    /// How many are taken.
    pub fn taken(&self) -> io::Result<u128> {
        let mut bytes = vec![0; self.len.div_ceil(8)];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes.iter().map(|byte| u128::from(byte.count_ones())).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_address_is_found_beyond_the_first_window() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("map");
        let range = Range::new("10.0.0.0/16".parse().expect("net"), None, None, None).expect("range");
        let ip = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + number));
        Bits::build(&path, &range, (2..20_000).map(ip)).expect("build");
        let bits = Bits::open(&path, &range).expect("bits");
        let free = |from: u32| bits.next_free(&range, to_number(ip(from)), range.gateway).expect("read");
        assert_eq!(free(1), Some(ip(20_000)));
        assert_eq!(bits.taken().expect("read"), 19_998);
        bits.mark(&range, ip(12_345), false).expect("mark");
        assert_eq!(free(1), Some(ip(12_345)));
        assert_eq!(free(12_346), Some(ip(20_000)));
        assert_eq!(free(65_534), Some(ip(65_534)));
        bits.mark(&range, ip(65_534), true).expect("mark");
        assert_eq!(free(65_534), None);
        std::fs::write(&path, [0; 9]).expect("tear");
        assert!(Bits::open(&path, &range).is_none(), "half a map is none");
    }
}
