//! Decompression of layers: the format is told by the first bytes, and bombs are stopped.
//!
//! Media types are not consulted: archives and registries in the wild mislabel layers.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bounds on what one layer may unpack to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of tar stream in one layer.
    pub layer_bytes: u64,
    /// The most entries in one layer.
    pub entries: u64,
    /// The most output bytes per input byte, once the output passes `ratio_grace`.
    pub ratio: u64,
    /// Output bytes that may be made before the ratio counts.
    pub ratio_grace: u64,
}

impl Default for Limits {
    fn default() -> Self {
        // Deflate cannot pass 1032:1, so the ratio stops zstd bombs; the sizes stop the others.
        Self { layer_bytes: 64 << 30, entries: 5_000_000, ratio: 1100, ratio_grace: 256 << 20 }
    }
}

/// The message of the error a bomb ends with; the unpacker turns it into a typed error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Bomb {
    #[error("layer unpacks to more than {limit} bytes")]
    Size { limit: u64 },
    #[error("layer expands by more than {limit} times")]
    Ratio { limit: u64 },
}

/// Counts the compressed bytes taken from the source.
struct Counted<R> {
    inner: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.taken.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A decompressing reader that enforces [`Limits`].
pub(crate) struct Decoder<'a> {
    inner: Box<dyn Read + Send + 'a>,
    taken: Arc<AtomicU64>,
    made: u64,
    limits: Limits,
}

impl<'a> Decoder<'a> {
    /// Reads the tar stream in `source`, which may be plain, gzip or zstd.
    pub(crate) fn new(source: impl Read + Send + 'a, limits: Limits) -> io::Result<Self> {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner: source, taken: Arc::clone(&taken) };
        let mut buffered = io::BufReader::with_capacity(128 * 1024, counted);
        let magic = first_bytes(&mut buffered)?;
        let inner: Box<dyn Read + Send + 'a> = match magic {
            Magic::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
            Magic::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?),
            Magic::Plain => Box::new(buffered),
        };
        Ok(Self { inner, taken, made: 0, limits })
    }
}

enum Magic {
    Gzip,
    Zstd,
    Plain,
}

fn first_bytes(reader: &mut impl BufRead) -> io::Result<Magic> {
    // A short first read can only hide the magic of a stream too short to be an archive.
    let bytes = reader.fill_buf()?;
    Ok(if bytes.starts_with(&[0x1f, 0x8b]) {
        Magic::Gzip
    } else if bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || skippable(bytes) {
        Magic::Zstd
    } else {
        Magic::Plain
    })
}

/// A zstd stream may start with a skippable frame, `0x184D2A5?` little endian.
fn skippable(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

impl Read for Decoder<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.made += n as u64;
        if self.made > self.limits.layer_bytes {
            return Err(io::Error::other(Bomb::Size { limit: self.limits.layer_bytes }));
        }
        let taken = self.taken.load(Ordering::Relaxed);
        if self.made > self.limits.ratio_grace && self.made / taken.max(1) > self.limits.ratio {
            return Err(io::Error::other(Bomb::Ratio { limit: self.limits.ratio }));
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(bytes: &[u8], limits: Limits) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Decoder::new(bytes, limits)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn all_three_forms_and_concatenated_members_are_read() {
        let limits = Limits::default();
        let two = [gzip(b"one"), gzip(b"two")].concat();
        assert_eq!(decode(&two, limits).unwrap(), b"onetwo");
        assert_eq!(decode(&zstd::encode_all(&b"three"[..], 1).unwrap(), limits).unwrap(), b"three");
        assert_eq!(decode(b"plain", limits).unwrap(), b"plain");
    }

    #[test]
    fn bombs_are_stopped_by_size_and_by_ratio() {
        let zeros = vec![0; 4 << 20];
        let small = Limits { layer_bytes: 1 << 20, ..Limits::default() };
        assert!(decode(&gzip(&zeros), small).unwrap_err().to_string().contains("more than 1048576 bytes"));
        let tight = Limits { ratio: 100, ratio_grace: 1 << 20, ..Limits::default() };
        let bomb = zstd::encode_all(&zeros[..], 1).unwrap();
        assert!(decode(&bomb, tight).unwrap_err().to_string().contains("more than 100 times"));
    }

    #[test]
    fn a_truncated_gzip_is_an_error() {
        let whole = gzip(&[7; 1000]);
        assert!(decode(&whole[..whole.len() - 4], Limits::default()).is_err());
    }
}
