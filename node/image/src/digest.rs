//! Content digests: the `sha256:<hex>` names of blobs, layers and images.
//!
//! Only sha256 is supported; a descriptor with another algorithm is refused when parsed.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// A sha256 digest, printed as `sha256:<64 hex digits>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hex digits without the algorithm.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::InvalidDigest { value: text.chars().take(200).collect() };
        let digits = text.strip_prefix("sha256:").ok_or_else(invalid)?;
        if digits.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| invalid())?;
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A running sha256.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Starts with no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes added.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// A reader that hashes and counts what is consumed from it.
pub(crate) struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
    count: u64,
}

impl<R> HashingReader<R> {
    /// Hashes everything consumed from `inner`.
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hasher: Hasher::new(), count: 0 }
    }

    /// The digest and the number of the bytes consumed so far.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.count)
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.hasher.update(&buf[..n]);
        self.count += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for HashingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        // The buffer is still there: a BufRead keeps it until consume.
        if let Ok(bytes) = self.inner.fill_buf() {
            let bytes = &bytes[..amount.min(bytes.len())];
            self.hasher.update(bytes);
            self.count += bytes.len() as u64;
        }
        self.inner.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_round_trips_and_refuses_other_spellings() {
        let digest = Digest::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        for bad in ["", "sha256:", "sha256:00", "sha512:00", &text.to_uppercase(), &text[7..]] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        let upper = format!("sha256:{}", text[7..].to_uppercase());
        assert!(upper.parse::<Digest>().is_err());
    }

    #[test]
    fn a_hashing_reader_hashes_what_was_consumed() {
        let mut reader = HashingReader::new(io::BufReader::new(&b"hello"[..]));
        assert_eq!(reader.fill_buf().unwrap(), b"hello");
        reader.consume(2);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "llo");
        assert_eq!(reader.finish(), (Digest::of(b"hello"), 5));
    }
}
