//! Where things are on disk, and how they are written so that a crash leaves only litter in `tmp`.
//!
//! ```text
//! format                 magic and version of the whole store
//! lock                   flock: shared while something is being added, exclusive while sweeping
//! blobs/<hex>            manifests, configurations, layers as downloaded
//! layers/<name>/fs       an unpacked layer; layers/<name>/meta says what it is
//! images/<hex>           one record per image, written only after all it names is on disk
//! snapshots/<id>/        upper, work and the record of the layers below
//! tmp/<session>/         work in progress; swept when its owner's flock is gone
//! empty                  the lower directory of an image without layers
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::digest::Digest;
use crate::error::{Error, IoContext};
use crate::unpack::remove_tree;

const FORMAT: &str = "podwire-image-store 1\n";

/// The directories of one store.
#[derive(Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    session: PathBuf,
    /// Held while this process lives, so that nobody else sweeps the session.
    _session_lock: OwnedFd,
    counter: AtomicU64,
    boot: String,
}

impl Layout {
    /// Opens or makes the store at `root` and sweeps what dead processes left in `tmp`.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        for dir in ["", "blobs", "layers", "images", "snapshots", "tmp", "empty"] {
            let path = root.join(dir);
            fs::create_dir_all(&path).at("make directory", &path)?;
        }
        // Layers hold files of all owners, some set-uid: none of the host's users may pass.
        let private = Mode::from_raw_mode(0o700);
        rustix::fs::chmod(root, private).at("set mode of", root)?;
        rustix::fs::chmod(root.join("empty"), Mode::from_raw_mode(0o755)).at("set mode of", root)?;
        check_format(&root.join("format"))?;
        sweep_sessions(&root.join("tmp"))?;
        let (session, lock) = new_session(&root.join("tmp"))?;
        let boot = podwire_linux::boot::id().at("read the id of this boot for", root)?;
        Ok(Self { root: root.to_owned(), session, _session_lock: lock, counter: AtomicU64::new(0), boot })
    }

    /// The id of the machine's current boot.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.hex())
    }

    pub(crate) fn layer(&self, name: &str) -> PathBuf {
        self.root.join("layers").join(name)
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.root.join("snapshots").join(id)
    }

    pub(crate) fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }

    /// A path in the session's folder that nothing else uses.
    pub(crate) fn temp(&self) -> PathBuf {
        self.session.join(self.counter.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Holds the store against sweeping while something is added to it.
    pub(crate) fn hold(&self) -> Result<Hold, Error> {
        lock(&self.root.join("lock"), FlockOperation::LockShared)?
            .ok_or_else(|| Error::Worker { reason: "the store's lock is taken".to_owned() })
            .map(Hold)
    }

    /// Takes the store for sweeping, or `None` if something is being added.
    pub(crate) fn try_exclusive(&self) -> Result<Option<Hold>, Error> {
        Ok(lock(&self.root.join("lock"), FlockOperation::NonBlockingLockExclusive)?.map(Hold))
    }

    /// Serialises writers of image records, in this and other processes.
    pub(crate) fn records_lock(&self) -> Result<Hold, Error> {
        lock(&self.root.join("records.lock"), FlockOperation::LockExclusive)?
            .ok_or_else(|| Error::Worker { reason: "the records' lock is taken".to_owned() })
            .map(Hold)
    }

    /// Puts `bytes` at `path` by rename; durable if `sync`.
    pub(crate) fn put(&self, path: &Path, bytes: &[u8], sync: bool) -> Result<(), Error> {
        let temp = self.temp();
        let mut file = File::create_new(&temp).at("create", &temp)?;
        file.write_all(bytes).at("write", &temp)?;
        if sync {
            file.sync_all().at("sync", &temp)?;
        }
        drop(file);
        fs::rename(&temp, path).at("rename to", path)?;
        if sync {
            sync_parent(path)?;
        }
        Ok(())
    }

    /// Makes everything written to the store's file system so far durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let root = File::open(&self.root).at("open", &self.root)?;
        rustix::fs::syncfs(&root).at("sync", &self.root)
    }

    /// Takes `path` out of the store at once and deletes it; what is not there is fine.
    pub(crate) fn discard(&self, path: &Path) -> Result<(), Error> {
        let temp = self.temp();
        match fs::rename(path, &temp) {
            Ok(()) => remove_tree(&temp).at("remove", &temp),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(Error::Io { action: "move away", path: path.to_owned(), source }),
        }
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.session) {
            tracing::warn!(path = %self.session.display(), %error, "session folder not removed; the next open sweeps it");
        }
    }
}

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub(crate) struct Hold(#[expect(dead_code, reason = "the descriptor is the lock")] OwnedFd);

/// The lock, or `None` if it is taken and the operation does not wait.
fn lock(path: &Path, operation: FlockOperation) -> Result<Option<OwnedFd>, Error> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).at("open", path)?;
    loop {
        match rustix::fs::flock(&fd, operation) {
            Ok(()) => return Ok(Some(fd)),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error).at("lock", path),
        }
    }
}

fn check_format(path: &Path) -> Result<(), Error> {
    match fs::read_to_string(path) {
        Ok(found) if found == FORMAT => Ok(()),
        Ok(found) => Err(Error::Format {
            path: path.to_owned(),
            found: found.trim().chars().take(100).collect(),
            expected: FORMAT.trim_ascii_end(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let temp = path.with_extension(format!("new.{}", std::process::id()));
            fs::write(&temp, FORMAT).at("write", &temp)?;
            File::open(&temp).and_then(|file| file.sync_all()).at("sync", &temp)?;
            fs::rename(&temp, path).at("rename to", path)?;
            sync_parent(path)
        }
        Err(source) => Err(Error::Io { action: "read", path: path.to_owned(), source }),
    }
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn new_session(tmp: &Path) -> Result<(PathBuf, OwnedFd), Error> {
    loop {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .at("name a session in", tmp)?;
        let path = tmp.join(hex::encode(random));
        match fs::create_dir(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(source) => return Err(Error::Io { action: "make directory", path, source }),
        }
        let fd = match open_dir(&path) {
            Ok(fd) => fd,
            // Swept by another process between the two calls.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Error::Io { action: "open", path, source }),
        };
        if rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok() && path.exists() {
            return Ok((path, fd));
        }
    }
}

/// Removes the folders of sessions whose process is gone.
fn sweep_sessions(tmp: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(tmp).at("list", tmp)? {
        let path = entry.at("list", tmp)?.path();
        let Ok(fd) = open_dir(&path) else { continue };
        if rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_tree(&path).at("remove", &path)?;
        }
    }
    Ok(())
}

pub(crate) fn sync_parent(path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    File::open(parent).and_then(|dir| dir.sync_all()).at("sync", parent)
}

/// A JSON record behind a line with its magic and version.
pub(crate) fn encode_record(magic: &str, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = format!("{magic}\n").into_bytes();
    bytes.extend(serde_json::to_vec(value).expect("records are plain data"));
    bytes.push(b'\n');
    bytes
}

/// Reads a record written by [`encode_record`].
pub(crate) fn read_record<T: DeserializeOwned>(magic: &str, path: &Path) -> Result<T, Error> {
    let corrupt = |reason: String| Error::Corrupt { path: path.to_owned(), reason };
    let bytes = fs::read(path).at("read", path)?;
    let body = bytes
        .strip_prefix(magic.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"\n"))
        .ok_or_else(|| corrupt(format!("does not start with {magic:?}")))?;
    serde_json::from_slice(body).map_err(|error| corrupt(error.to_string()))
}
