//! Writes tar archives: ustar headers, pax records where a field does not fit.

use std::io::{self, Write};

use super::header::{BLOCK, Header, Kind, encode};
use super::pax;

/// A tar archive being written.
pub struct TarWriter<W> {
    inner: W,
}

impl<W: Write> TarWriter<W> {
    /// Writes to `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner }
    }

    /// Appends an entry whose content `data` must have `header.size` bytes.
    pub fn append(&mut self, header: &Header, data: &mut dyn io::Read) -> io::Result<()> {
        let records = records(header);
        if !records.is_empty() {
            let meta = Header {
                path: b"./PaxHeaders/entry".to_vec(),
                link: Vec::new(),
                kind: Kind::File,
                mode: 0o644,
                uid: 0,
                gid: 0,
                size: records.len() as u64,
                mtime: header.mtime,
                device: (0, 0),
                xattrs: Vec::new(),
            };
            self.inner.write_all(&encode(&meta, b'x'))?;
            self.inner.write_all(&records)?;
            self.pad(records.len() as u64)?;
        }
        self.inner.write_all(&encode(header, typeflag(header.kind)))?;
        let copied = io::copy(&mut io::Read::take(data, header.size), &mut self.inner)?;
        if copied != header.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pad(header.size)
    }

    /// Writes the end mark and gives the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.inner.write_all(&[0; 2 * BLOCK])?;
        Ok(self.inner)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let over = usize::try_from(size % BLOCK as u64).expect("a remainder of 512 fits");
        if over > 0 {
            self.inner.write_all(&[0; BLOCK][over..])?;
        }
        Ok(())
    }
}

fn typeflag(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::CharDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    }
}

fn records(header: &Header) -> Vec<u8> {
    let mut records = Vec::new();
    if header.path.len() > 100 {
        records.extend(pax::encode(b"path", &header.path));
    }
    if header.link.len() > 100 {
        records.extend(pax::encode(b"linkpath", &header.link));
    }
    for (name, value) in &header.xattrs {
        records.extend(pax::encode(&[b"SCHILY.xattr.".as_slice(), name].concat(), value));
    }
    records
}
