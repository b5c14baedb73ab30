//! Unpacks one layer into a directory in overlay form, safely.
//!
//! Each layer is unpacked by itself, without its parents: removals become overlay whiteouts and
//! opaque marks. What needs the parents (attributes of directories the layer does not mention, hard
//! links to files below) is remembered in [`Deferred`] and applied by `apply_deferred` when they are there.
//!
//! Nothing in a layer can name a file outside its directory: paths are cleaned, parents are opened
//! with `openat2(RESOLVE_IN_ROOT)`, files are made with `O_EXCL | O_NOFOLLOW` relative to them.
//!
//! Threads: `image-inflate` decompresses ahead of the caller's thread, which writes files; `image-blob` hashes and keeps
//! the layer as it came.
//!
//! Whiteouts: <https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts>.

mod deferred;
mod entry;
mod path;
mod tree;

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::compress::{Bomb, Decoder, Limits};
use crate::digest::{Digest, HashingReader};
use crate::pipe::{Reader, Writer, pipe};
use crate::tar::{TarError, TarReader};

pub(crate) use deferred::apply_deferred;
pub(crate) use tree::remove_tree;

/// Chunk size and depth of the pipe between the inflating and the writing thread.
const CHUNK: usize = 64 * 1024;
const DEPTH: usize = 64;

/// What to do with device nodes in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DevicePolicy {
    /// Make them, as other runtimes do; the device cgroup still guards their use.
    #[default]
    Create,
    /// Leave them out.
    Skip,
    /// Refuse the layer.
    Refuse,
}

/// How layers are unpacked.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnpackOptions {
    /// Bounds against decompression bombs.
    pub limits: Limits,
    /// Device nodes.
    pub devices: DevicePolicy,
}

/// Why a layer could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The tar stream is malformed or broke off.
    #[error("read layer")]
    Tar(#[from] TarError),
    /// The compressed stream is damaged or broke off.
    #[error("decompress layer")]
    Decompress(#[source] io::Error),
    /// The layer is larger than allowed.
    #[error("{0}")]
    Bomb(String),
    /// A path leaves the layer or cannot be a file name.
    #[error("entry {path:?}: {reason}")]
    Path {
        /// The path as in the archive.
        path: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// A hard link points at something that is not there or cannot be linked.
    #[error("hard link {path:?} to {target:?}: {reason}")]
    Link {
        /// The link.
        path: String,
        /// Its target.
        target: String,
        /// Why it cannot be made.
        reason: &'static str,
    },
    /// The policy refuses device nodes.
    #[error("entry {path:?} is a device node")]
    Device {
        /// The path as in the archive.
        path: String,
    },
    /// The disk said no.
    #[error("{action} {path:?}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The path in the layer.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What a layer leaves open until its parents are there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// Directories made only to hold something; their attributes belong to the parents.
    pub directories: Vec<PathBuf>,
    /// Hard links whose target is not in this layer: link, target.
    pub links: Vec<(PathBuf, PathBuf)>,
}

impl Deferred {
    /// True if the layer means the same on any parents.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.links.is_empty()
    }
}

/// What unpacking a layer found.
#[derive(Debug)]
pub struct Unpacked {
    /// The digest of the tar stream.
    pub diff_id: Digest,
    /// The digest of the stream as given.
    pub blob: Digest,
    /// The size of the stream as given.
    pub blob_size: u64,
    /// Bytes of file content.
    pub size: u64,
    /// Files, directories, links and so on.
    pub inodes: u64,
    /// The layer hides everything below it.
    pub root_opaque: bool,
    /// What must wait for the parents.
    pub deferred: Deferred,
}

/// Unpacks the layer in `source` into the empty directory `dest`, copying the stream as given to
/// `copy`. Blocks; not to be called on an async worker.
pub fn unpack(
    source: impl Read + Send,
    copy: Option<File>,
    dest: &Path,
    options: &UnpackOptions,
) -> Result<Unpacked, UnpackError> {
    let (writer, reader) = pipe(DEPTH);
    let copy: Box<dyn io::Write + Send> = match copy {
        Some(file) => Box::new(file),
        None => Box::new(io::sink()),
    };
    let limits = options.limits;
    std::thread::scope(|scope| {
        let inflate = std::thread::Builder::new()
            .name("image-inflate".to_owned())
            .spawn_scoped(scope, move || inflate(source, copy, limits, writer))
            .map_err(|source| UnpackError::Io {
                action: "start thread for",
                path: dest.to_owned(),
                source,
            })?;
        let applied = apply(reader, dest, options);
        let inflated = inflate.join().unwrap_or_else(|_| Err(io::Error::other("decompressor panicked")));
        // A broken source fails both; its own words are the cause.
        let blob = inflated.map_err(decompress_error)?;
        let mut unpacked = applied?;
        let (digest, size) = blob.ok_or_else(|| decompress_error(io::ErrorKind::UnexpectedEof.into()))?;
        unpacked.blob = digest;
        unpacked.blob_size = size;
        Ok(unpacked)
    })
}

/// Decompresses `source` into `writer`; gives the digest and size of the source, or `None` if the
/// reading side gave up.
fn inflate(
    source: impl Read + Send,
    copy: Box<dyn io::Write + Send>,
    limits: Limits,
    writer: Writer,
) -> io::Result<Option<(Digest, u64)>> {
    let (to, from) = pipe(DEPTH);
    std::thread::scope(|scope| {
        let blob = std::thread::Builder::new()
            .name("image-blob".to_owned())
            .spawn_scoped(scope, move || keep(from, copy))?;
        let mut source = Copied { inner: source, to };
        let pumped = pump(&mut source, limits, &writer);
        let for_reader = match &pumped {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        writer.finish_blocking(for_reader);
        let whole = match pumped {
            Ok(true) => source.finish().map(|()| true),
            other => {
                drop(source);
                other
            }
        };
        let kept = blob.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the copy panicked")));
        match (whole, kept) {
            (Ok(true), kept) => kept.map(Some),
            (Ok(false), _) => Ok(None),
            // When the copy could not be written, that is the cause.
            (Err(error), Err(cause)) if error.kind() == io::ErrorKind::WriteZero => Err(cause),
            (Err(error), _) => Err(error),
        }
    })
}

/// A reader that hands a copy of all that is read through it to another thread.
struct Copied<R> {
    inner: R,
    to: Writer,
}

impl<R: Read> Copied<R> {
    /// Reads to the end and says so.
    fn finish(mut self) -> io::Result<()> {
        io::copy(&mut self, &mut io::sink())?;
        self.to.finish_blocking(Ok(()));
        Ok(())
    }
}

impl<R: Read> Read for Copied<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        if n > 0 && !self.to.send_blocking(Bytes::copy_from_slice(&buf[..n])) {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the layer could not be kept"));
        }
        Ok(n)
    }
}

/// Writes the layer as it came to `copy`; its digest and size.
fn keep(from: Reader, mut copy: Box<dyn io::Write + Send>) -> io::Result<(Digest, u64)> {
    let mut from = HashingReader::new(from);
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            break;
        }
        copy.write_all(bytes)?;
        let n = bytes.len();
        from.consume(n);
    }
    copy.flush()?;
    Ok(from.finish())
}

/// False if the reading side gave up.
fn pump(source: &mut (impl Read + Send), limits: Limits, writer: &Writer) -> io::Result<bool> {
    let mut decoder = Decoder::new(source, limits)?;
    loop {
        let mut chunk = vec![0; CHUNK];
        let mut filled = 0;
        while filled < CHUNK {
            match decoder.read(&mut chunk[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        if filled == 0 {
            return Ok(true);
        }
        chunk.truncate(filled);
        if !writer.send_blocking(Bytes::from(chunk)) {
            return Ok(false);
        }
    }
}

/// Writes the files of a tar stream below `dest`.
fn apply(reader: Reader, dest: &Path, options: &UnpackOptions) -> Result<Unpacked, UnpackError> {
    let mut archive = TarReader::new(HashingReader::new(reader), crate::tar::Limits::default());
    let mut tree = tree::Tree::open(dest)?;
    let mut builder = entry::Builder::new(options.devices);
    let mut entries = 0;
    while let Some(header) = archive.next_entry()? {
        entries += 1;
        if entries > options.limits.entries {
            return Err(UnpackError::Bomb(format!("layer has more than {} entries", options.limits.entries)));
        }
        builder.add(&mut tree, &header, &mut archive.data())?;
    }
    let mut rest = archive.into_inner();
    loop {
        let available = rest.fill_buf().map_err(|error| UnpackError::Tar(TarError::Read(error)))?.len();
        if available == 0 {
            break;
        }
        rest.consume(available);
    }
    let (diff_id, _) = rest.finish();
    builder.finish(&tree, diff_id)
}

/// Tells a bomb from a damaged stream.
fn decompress_error(error: io::Error) -> UnpackError {
    let bomb = error.get_ref().and_then(|inner| inner.downcast_ref::<Bomb>()).map(ToString::to_string);
    match bomb {
        Some(bomb) => UnpackError::Bomb(bomb),
        None => UnpackError::Decompress(error),
    }
}
