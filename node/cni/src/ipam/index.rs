//! What makes the folder of reservations cheap to search: who owns what, and which addresses are taken.
//!
//! The folder of the reference plugin (one file per address) stays the truth; this index lives beside it, in a folder no
//! network can be called, and is thrown away and rebuilt whenever the folder was changed by somebody else, which its
//! modification time tells. Six kinds of file:
//! - `boot`: the boot in which it was last used, replaced as a whole so that only a power cut can tear it;
//! - `state`: magic, boot id, the folder's modification time after our last change, and what else is there;
//! - `owners`: a table of the addresses of each (container, interface) that we reserved;
//! - `adopted.<n>`: owners found in the folder when the index was built, spread over a thousand files;
//! - `map.<first>-<last>`: one bit per address of a range;
//! - `spare.<n>`: files of released addresses, which become files of new ones.
//!
//! Everything here is a hint that is verified against the folder before it is believed, and is used under the store's
//! lock. Files are rewritten in place: to make, cut or remove one costs a file system more than all else an address does.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::free_addresses::Bits;
use super::owners::{Owner, Owners};
use super::ranges::Range;

const BOOT: &str = "boot";
const STATE_MAGIC: &str = "podwire-ipam-state 2";
const ADOPTED_MAGIC: &str = "podwire-ipam-adopted 1";
/// So many that even the folder of a full /16 leaves some sixty lines in each.
const ADOPTED_FILES: u64 = 1024;
/// Files of released addresses that are kept: about as many as a node has pods.
const SPARES: u32 = 256;

/// The index of one network's folder.
pub struct Index {
    dir: PathBuf,
}

/// What the index remembers of the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The boot in which it was written.
    pub boot: String,
    /// Modification time of the folder.
    pub mtime: (i64, i64),
    /// Whether owners were found that others have written.
    pub adopted: bool,
    /// How many spare files there are.
    pub spares: u32,
}

impl State {
    /// The modification time of a folder.
    pub fn mtime(folder: &Path) -> io::Result<(i64, i64)> {
        let meta = std::fs::metadata(folder)?;
        Ok((meta.mtime(), meta.mtime_nsec()))
    }

    fn parse(text: &str) -> Option<State> {
        let mut lines = text.lines();
        if lines.next()? != STATE_MAGIC {
            return None;
        }
        let boot = lines.next()?.to_owned();
        let (seconds, nanos) = lines.next()?.split_once('.')?;
        let (adopted, spares) = lines.next()?.split_once(' ')?;
        let state = State {
            boot,
            mtime: (seconds.parse().ok()?, nanos.parse().ok()?),
            adopted: adopted == "adopted",
            spares: spares.parse().ok().filter(|count| *count <= SPARES)?,
        };
        // A complete record ends with a line of its own.
        (lines.next()? == "end").then_some(state)
    }

    /// Of the same length whatever the numbers are, so that one record lies exactly over the other.
    fn text(&self) -> String {
        let adopted = if self.adopted { "adopted" } else { "nothing" };
        format!(
            "{STATE_MAGIC}\n{}\n{:011}.{:09}\n{adopted} {:03}\nend\n",
            self.boot, self.mtime.0, self.mtime.1, self.spares
        )
    }
}

impl Index {
    /// The index of `network` below the data folder; nothing is made yet.
    pub fn of(data_dir: &Path, network: &str) -> Index {
        Index { dir: data_dir.join(".podwire-ipam").join(network) }
    }

    /// Makes its folder.
    pub fn create(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.dir)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The boot in which the folder was last used; torn content is no boot's, and `None` says that it never was.
    pub fn boot(&self) -> Option<String> {
        match std::fs::read(self.dir.join(BOOT)) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(String::new()),
        }
    }

    /// Remembers the boot.
    pub fn write_boot(&self, boot: &str) -> io::Result<()> {
        std::fs::write(self.aside(), boot)?;
        std::fs::rename(self.aside(), self.dir.join(BOOT))
    }

    /// Where a file is written before it gets its name; one is enough, as the lock lets one write at a time.
    fn aside(&self) -> PathBuf {
        self.dir.join("new")
    }

    fn spare(&self, number: u32) -> PathBuf {
        self.dir.join(format!("spare.{number}"))
    }

    /// A file with this content that has no name in the folder yet, and how many spare ones there are without it.
    pub fn prepare(&self, spares: u32, content: &str) -> io::Result<(PathBuf, u32)> {
        let left = spares.saturating_sub(1);
        if spares > 0 {
            let path = self.spare(left);
            if let Ok(file) = OpenOptions::new().write(true).open(&path) {
                lay_over(&file, content.as_bytes())?;
                return Ok((path, left));
            }
        }
        let path = self.aside();
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
        lay_over(&file, content.as_bytes())?;
        Ok((path, left))
    }

    /// Takes a file out of the folder, to be used again; returns how many spare ones there are then.
    pub fn retire(&self, path: &Path, spares: u32) -> io::Result<u32> {
        if spares >= SPARES {
            return ignore_absent(std::fs::remove_file(path)).map(|()| spares);
        }
        match std::fs::rename(path, self.spare(spares)) {
            Ok(()) => Ok(spares + 1),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(spares),
            // Another file system, or a folder by that name: then it is just removed.
            Err(_) => ignore_absent(std::fs::remove_file(path)).map(|()| spares),
        }
    }

    /// The remembered state; torn or foreign content counts as none.
    pub fn state(&self) -> Option<State> {
        State::parse(&read_small(&self.dir.join("state")).ok()?)
    }

    /// Remembers the state.
    pub fn write_state(&self, state: &State) -> io::Result<()> {
        rewrite(&self.dir.join("state"), state.text().as_bytes())
    }

    /// Lets the next who comes build the index anew.
    pub fn forget_state(&self) -> io::Result<()> {
        ignore_absent(std::fs::remove_file(self.dir.join("state")))
    }

    fn adopted_path(&self, owner: &Owner) -> PathBuf {
        // FNV-1a: only spreads, decides nothing.
        let hash = owner.record().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.dir.join(format!("adopted.{}", hash % ADOPTED_FILES))
    }

    /// Writes the owners found in the folder; tells whether there were any.
    pub fn adopt<'a>(&self, found: impl Iterator<Item = (&'a Owner, IpAddr)>) -> io::Result<bool> {
        let mut files: std::collections::HashMap<PathBuf, String> = std::collections::HashMap::new();
        for (owner, ip) in found {
            let text = files.entry(self.adopted_path(owner)).or_insert_with(|| format!("{ADOPTED_MAGIC}\n"));
            text.push_str(&format!("{}\t{}\t{ip}\n", owner.container, owner.ifname));
        }
        let any = !files.is_empty();
        files.into_iter().try_for_each(|(path, text)| std::fs::write(path, text)).map(|()| any)
    }

    /// The addresses that an owner had when the folder was looked through.
    pub fn adopted(&self, owner: &Owner) -> Vec<IpAddr> {
        let Ok(text) = std::fs::read_to_string(self.adopted_path(owner)) else { return Vec::new() };
        let mut lines = text.lines();
        if lines.next() != Some(ADOPTED_MAGIC) {
            return Vec::new();
        }
        let own = format!("{}\t{}\t", owner.container, owner.ifname);
        lines.filter_map(|line| line.strip_prefix(&own)?.parse().ok()).collect()
    }

    /// The table of owners.
    pub fn owners(&self) -> io::Result<Owners> {
        Owners::open(&self.dir.join("owners"))
    }

    fn map_path(&self, range: &Range) -> PathBuf {
        self.dir.join(format!("map.{}-{}", range.start, range.end))
    }

    /// The bits of a range, if it is mapped and has been built.
    pub fn map(&self, range: &Range) -> Option<Bits> {
        Bits::open(&self.map_path(range), range)
    }

    /// Builds the map of a range from the addresses taken.
    pub fn build_map(&self, range: &Range, taken: impl Iterator<Item = IpAddr>) -> io::Result<()> {
        Bits::build(&self.map_path(range), range, taken)
    }

    /// Throws everything away but the boot.
    pub fn clear(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name() != BOOT {
                ignore_absent(std::fs::remove_file(entry.path()))?;
            }
        }
        Ok(())
    }
}

/// `Ok` when there was nothing to remove.
pub fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The content of a small file, in one read when it is as small as expected.
pub fn read_small(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 256];
    let len = file.read(&mut bytes)?;
    let full = len == bytes.len();
    bytes.truncate(len);
    if full {
        file.read_to_end(&mut bytes)?;
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Gives a file this content in place: cut to nothing first, it would be written to the disk when it is closed.
pub fn rewrite(path: &Path, content: &[u8]) -> io::Result<()> {
    lay_over(&OpenOptions::new().create(true).truncate(false).write(true).open(path)?, content)
}

fn lay_over(file: &File, content: &[u8]) -> io::Result<()> {
    file.write_all_at(content, 0)?;
    if file.metadata()?.len() != content.len() as u64 {
        file.set_len(content.len() as u64)?;
    }
    Ok(())
}
