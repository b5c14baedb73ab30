//! A layer of about 250 MB as it travels: many files that compress as well as programs and texts do.

use anyhow::Result;
use podwire_testkit::images::{Files, Layer};

/// How many files, and the size of each.
const FILES: usize = 1500;
const SIZE: usize = 400 * 1024;

/// The layer.
pub fn make() -> Result<Layer> {
    let mut files = Files::default().folder("data", 0o755);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for number in 0..FILES {
        files = files.file(&format!("data/file-{number}"), noise.file(), 0o644);
    }
    Layer::large(&files)
}

/// A generator that gives the same bytes in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Two fifths cannot be packed, the rest repeats.
    fn file(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SIZE);
        while bytes.len() < SIZE {
            for _ in 0..50 {
                bytes.extend_from_slice(&self.next().to_le_bytes());
            }
            let word = self.next().to_le_bytes();
            for _ in 0..75 {
                bytes.extend_from_slice(&word);
            }
        }
        bytes.truncate(SIZE);
        bytes
    }
}
