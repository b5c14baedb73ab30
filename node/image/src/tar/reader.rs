//! Reads a tar stream entry by entry with bounded memory.

use std::io::{self, BufRead, Read};

use super::header::{BLOCK, Header, Kind, decode, text};
use super::pax;

/// Why a tar stream cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// The stream broke off or could not be read.
    #[error("read tar stream")]
    Read(#[source] io::Error),
    /// A header's checksum does not match.
    #[error("tar header has a wrong checksum")]
    Checksum,
    /// A numeric field is malformed or out of range.
    #[error("tar header field {field} is not a number in range")]
    Number {
        /// The field.
        field: &'static str,
    },
    /// A pax record is malformed.
    #[error("malformed pax record")]
    Pax,
    /// Sparse files are not supported.
    #[error("sparse files are not supported")]
    Sparse,
    /// An entry has a type that no image layer has.
    #[error("tar entry type {0:#04x} is not supported")]
    Type(u8),
    /// A long name or pax header is larger than allowed.
    #[error("tar metadata of {size} bytes is larger than the limit of {limit}")]
    Metadata {
        /// The size claimed.
        size: u64,
        /// The largest accepted.
        limit: u64,
    },
    /// A long name or pax header has no entry after it.
    #[error("tar metadata is followed by no entry")]
    Dangling,
    /// The end mark is followed by something that is not one.
    #[error("tar end mark is incomplete")]
    EndMark,
}

/// Bounds on what a header may make the reader keep in memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest long name or pax header, in bytes.
    pub metadata: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { metadata: 1 << 20 }
    }
}

/// A tar stream being read.
pub struct TarReader<R> {
    inner: R,
    limits: Limits,
    /// Content bytes of the current entry not yet read.
    remaining: u64,
    /// Padding after the current entry.
    padding: u64,
    ended: bool,
}

/// Overrides gathered from the metadata entries before a real one.
#[derive(Default)]
struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Vec<u8>,
    any: bool,
}

impl<R: BufRead> TarReader<R> {
    /// Reads entries from `inner`.
    pub fn new(inner: R, limits: Limits) -> Self {
        Self { inner, limits, remaining: 0, padding: 0, ended: false }
    }

    /// The next entry, or `None` at the end mark or the end of the stream.
    pub fn next_entry(&mut self) -> Result<Option<Header>, TarError> {
        let mut over = Overrides::default();
        loop {
            self.skip_rest()?;
            let Some(block) = self.header_block()? else {
                return if over.any { Err(TarError::Dangling) } else { Ok(None) };
            };
            let raw = decode(&block)?;
            match raw.typeflag {
                b'L' => over.path = Some(self.metadata(raw.header.size)?),
                b'K' => over.link = Some(self.metadata(raw.header.size)?),
                b'x' => over.pax = self.metadata(raw.header.size)?,
                b'g' => {
                    self.metadata(raw.header.size)?;
                    continue;
                }
                b'0' | b'\0' | b'1'..=b'7' => return self.finish_header(raw.header, over).map(Some),
                b'S' => return Err(TarError::Sparse),
                other => return Err(TarError::Type(other)),
            }
            over.any = true;
        }
    }

    /// The content of the current entry.
    pub fn data(&mut self) -> EntryData<'_, R> {
        EntryData(self)
    }

    /// Asks the stream where it is.
    pub(crate) fn position<T>(&self, ask: impl FnOnce(&R) -> T) -> T {
        ask(&self.inner)
    }

    /// Gives the stream back, positioned after what was read.
    pub fn into_inner(self) -> R {
        self.inner
    }

    fn finish_header(&mut self, mut header: Header, over: Overrides) -> Result<Header, TarError> {
        if let Some(path) = over.path {
            header.path = text(&path).to_vec();
        }
        if let Some(link) = over.link {
            header.link = text(&link).to_vec();
        }
        pax::apply(&over.pax, &mut header)?;
        if header.kind == Kind::File && header.path.ends_with(b"/") {
            header.kind = Kind::Directory;
        }
        // Only regular files carry content, whatever size a link or a directory claims.
        if header.kind != Kind::File {
            header.size = 0;
        }
        self.begin(header.size);
        Ok(header)
    }

    fn begin(&mut self, size: u64) {
        self.remaining = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn metadata(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > self.limits.metadata {
            return Err(TarError::Metadata { size, limit: self.limits.metadata });
        }
        self.begin(size);
        let mut bytes = Vec::new();
        self.data().read_to_end(&mut bytes).map_err(TarError::Read)?;
        Ok(bytes)
    }

    fn skip_rest(&mut self) -> Result<(), TarError> {
        let mut left = self.remaining.checked_add(self.padding).ok_or(TarError::Number { field: "size" })?;
        self.remaining = 0;
        self.padding = 0;
        while left > 0 {
            let available = self.inner.fill_buf().map_err(TarError::Read)?.len();
            if available == 0 {
                return Err(TarError::Read(io::ErrorKind::UnexpectedEof.into()));
            }
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(available);
            self.inner.consume(step);
            left -= step as u64;
        }
        Ok(())
    }

    /// The next block, or `None` at the end.
    fn header_block(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        if self.ended {
            return Ok(None);
        }
        let mut block = [0; BLOCK];
        if !self.block(&mut block)? {
            self.ended = true;
            return Ok(None);
        }
        if block.iter().any(|byte| *byte != 0) {
            return Ok(Some(block));
        }
        self.ended = true;
        if self.block(&mut block)? && block.iter().any(|byte| *byte != 0) {
            return Err(TarError::EndMark);
        }
        Ok(None)
    }

    /// Fills `block`; false if the stream ends right before it.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, TarError> {
        let mut filled = 0;
        while filled < BLOCK {
            match self.inner.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(TarError::Read(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TarError::Read(error)),
            }
        }
        Ok(true)
    }
}

/// The content of the current entry; ends with an error if the stream breaks off.
pub struct EntryData<'a, R>(&'a mut TarReader<R>);

impl<R: BufRead> Read for EntryData<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let n = available.len().min(buf.len());
        buf[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl<R: BufRead> BufRead for EntryData<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let limit = usize::try_from(self.0.remaining).unwrap_or(usize::MAX);
        if limit == 0 {
            return Ok(&[]);
        }
        let available = self.0.inner.fill_buf()?;
        if available.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&available[..available.len().min(limit)])
    }

    fn consume(&mut self, amount: usize) {
        self.0.inner.consume(amount);
        self.0.remaining -= amount as u64;
    }
}
