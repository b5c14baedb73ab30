//! The bytes of an archive: a folder, or a tar file that is indexed once and read in place.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::compress::{Decoder, Limits};
use crate::error::{Error, IoContext};
use crate::tar::{Kind, TarReader};

/// The most files an archive may hold.
const MOST_ENTRIES: usize = 100_000;

/// An open archive; clones share the file.
#[derive(Clone)]
pub(super) struct Source {
    path: PathBuf,
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Folder(Arc<File>),
    Tar { file: Arc<File>, entries: Arc<HashMap<String, Place>> },
}

enum Place {
    At {
        offset: u64,
        size: u64,
    },
    /// Old docker archives link layers that occur twice.
    Link(String),
}

impl Source {
    /// Opens `path`; a compressed tar is first decompressed into `temp`, which is unlinked at once.
    pub(super) fn open(path: &Path, temp: &Path) -> Result<Self, Error> {
        let file = File::open(path).at("open", path)?;
        let inner = if file.metadata().at("look at", path)?.is_dir() {
            Inner::Folder(Arc::new(file))
        } else {
            let file = plain(file, path, temp)?;
            let entries = index(&file, path)?;
            Inner::Tar { file: Arc::new(file), entries: Arc::new(entries) }
        };
        Ok(Self { path: path.to_owned(), inner })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.open_entry(name).is_ok()
    }

    pub(super) fn bad(&self, reason: String) -> Error {
        Error::Archive { path: self.path.clone(), reason }
    }

    /// Opens a file of the archive.
    pub(super) fn open_entry(&self, name: &str) -> Result<Box<dyn Read + Send>, Error> {
        match &self.inner {
            Inner::Folder(dir) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let fd = rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
                    .at("open", &self.path.join(name))?;
                Ok(Box::new(File::from(fd)))
            }
            Inner::Tar { file, entries } => {
                let mut name = name.trim_start_matches("./").to_owned();
                // A handful of hops is plenty; a circle ends here.
                for _ in 0..5 {
                    match entries.get(&name) {
                        Some(Place::At { offset, size }) => {
                            return Ok(Box::new(Region { file: Arc::clone(file), at: *offset, left: *size }));
                        }
                        Some(Place::Link(target)) => name.clone_from(target),
                        None => break,
                    }
                }
                Err(self.bad(format!("it has no file {name:?}")))
            }
        }
    }
}

/// Part of a file, read without moving the file's own position.
struct Region {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Region {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let n = self.file.read_at(&mut buf[..want], self.at)?;
        if n == 0 && want > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

/// The tar itself: `docker save | gzip` is common.
fn plain(file: File, path: &Path, temp: &Path) -> Result<File, Error> {
    let mut magic = [0; 4];
    let n = file.read_at(&mut magic, 0).at("read", path)?;
    let compressed =
        magic[..n].starts_with(&[0x1f, 0x8b]) || magic[..n].starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    if !compressed {
        return Ok(file);
    }
    let mut out = File::options().read(true).write(true).create_new(true).open(temp).at("create", temp)?;
    std::fs::remove_file(temp).at("unlink", temp)?;
    let mut decoder = Decoder::new(file, Limits::default()).at("decompress", path)?;
    io::copy(&mut decoder, &mut out).at("decompress", path)?;
    Ok(out)
}

/// Counts what is consumed, to know where an entry's content lies.
struct Counting<R> {
    inner: R,
    count: u64,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.inner.consume(amount);
        self.count += amount as u64;
    }
}

fn index(file: &File, path: &Path) -> Result<HashMap<String, Place>, Error> {
    let bad = |reason: String| Error::Archive { path: path.to_owned(), reason };
    let mut reader = file.try_clone().at("open", path)?;
    io::Seek::rewind(&mut reader).at("rewind", path)?;
    let counting = Counting { inner: BufReader::with_capacity(256 * 1024, reader), count: 0 };
    let mut archive = TarReader::new(counting, crate::tar::Limits::default());
    let mut entries = HashMap::new();
    while let Some(header) = archive.next_entry().map_err(|error| bad(podwire_trace::chain(&error)))? {
        if entries.len() >= MOST_ENTRIES {
            return Err(bad(format!("it has more than {MOST_ENTRIES} files")));
        }
        let Ok(name) = String::from_utf8(header.path) else { continue };
        let name = name.trim_start_matches("./").to_owned();
        let place = match header.kind {
            Kind::File => Place::At { offset: archive.position(|inner| inner.count), size: header.size },
            Kind::HardLink => Place::Link(String::from_utf8_lossy(&header.link).into_owned()),
            Kind::Symlink => Place::Link(resolve(&name, &String::from_utf8_lossy(&header.link))),
            _ => continue,
        };
        entries.insert(name, place);
    }
    Ok(entries)
}

/// The entry a symbolic link in the archive points at, by name alone.
fn resolve(link: &str, target: &str) -> String {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}
