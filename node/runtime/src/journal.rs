//! The journal: what this runtime has begun and not yet ended, so that a restart finds everything that could leak.
//!
//! An append-only file of length-prefixed, checksummed rows behind a header (magic, version, boot id). A row is written
//! before the thing it names is made and outlives the process, not the machine: nothing is synced. A torn tail is cut
//! off. The file is rewritten from the live state when it has grown well beyond it.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

use prost::Message;

use crate::records::{ContainerRow, ContainerStateRow, Row, SandboxRow, SandboxStateRow, row::Kind};

const MAGIC: &[u8; 8] = b"PWRUNJNL";
const VERSION: u32 = 1;
/// Rewrite when the file has this many bytes and less than a quarter of it is live.
const REWRITE_BYTES: u64 = 4 << 20;

/// Everything the journal knows, by id.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Contents {
    pub(crate) sandboxes: HashMap<String, (SandboxRow, SandboxStateRow)>,
    pub(crate) containers: HashMap<String, (ContainerRow, ContainerStateRow)>,
}

impl Contents {
    /// Applies one row; rows about unknown ids are ignored (their owner is gone).
    fn apply(&mut self, row: Row) {
        match row.kind {
            Some(Kind::Sandbox(sandbox)) => {
                self.sandboxes.insert(sandbox.id.clone(), (sandbox, SandboxStateRow::default()));
            }
            Some(Kind::SandboxState(state)) => {
                if let Some(entry) = self.sandboxes.get_mut(&state.id) {
                    entry.1 = state;
                }
            }
            Some(Kind::SandboxGone(id)) => {
                self.sandboxes.remove(&id);
            }
            Some(Kind::Container(container)) => {
                self.containers.insert(container.id.clone(), (container, ContainerStateRow::default()));
            }
            Some(Kind::ContainerState(state)) => {
                if let Some(entry) = self.containers.get_mut(&state.id) {
                    entry.1 = state;
                }
            }
            Some(Kind::ContainerGone(id)) => {
                self.containers.remove(&id);
            }
            None => {}
        }
    }

    fn rows(&self) -> impl Iterator<Item = Kind> {
        let sandboxes = self
            .sandboxes
            .values()
            .flat_map(|(row, state)| [Kind::Sandbox(row.clone()), Kind::SandboxState(state.clone())]);
        let containers = self
            .containers
            .values()
            .flat_map(|(row, state)| [Kind::Container(row.clone()), Kind::ContainerState(state.clone())]);
        sandboxes.chain(containers)
    }
}

/// What was found when the journal was opened.
pub(crate) struct Opened {
    pub(crate) journal: Journal,
    pub(crate) contents: Contents,
    /// The rows are from before the machine was last started: no process of theirs lives.
    pub(crate) stale: bool,
}

/// The open journal.
pub(crate) struct Journal {
    path: PathBuf,
    boot_id: String,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    bytes: u64,
    contents: Contents,
}

impl Journal {
    /// Opens or creates the journal at `path` for the boot `boot_id`, and reads what is there.
    pub(crate) fn open(path: &Path, boot_id: &str) -> io::Result<Opened> {
        let (contents, stale) = match std::fs::read(path) {
            Ok(bytes) => read(&bytes, boot_id)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Contents::default(), false),
            Err(error) => return Err(error),
        };
        let (file, bytes) = rewrite(path, boot_id, &contents)?;
        let inner = Mutex::new(Inner { file, bytes, contents: contents.clone() });
        let journal = Journal { path: path.to_owned(), boot_id: boot_id.to_owned(), inner };
        Ok(Opened { journal, contents, stale })
    }

    /// Appends one row with a single write.
    pub(crate) fn append(&self, kind: Kind) -> io::Result<()> {
        let row = Row { kind: Some(kind) };
        let bytes = encode(&row);
        let mut inner = self.inner.lock().expect("no panic while holding the journal");
        inner.file.write_all(&bytes)?;
        inner.bytes += bytes.len() as u64;
        inner.contents.apply(row);
        if inner.bytes > REWRITE_BYTES && inner.bytes > 4 * live_bytes(&inner.contents) {
            let (file, bytes) = rewrite(&self.path, &self.boot_id, &inner.contents)?;
            inner.file = file;
            inner.bytes = bytes;
        }
        Ok(())
    }
}

fn live_bytes(contents: &Contents) -> u64 {
    contents.rows().map(|kind| Row { kind: Some(kind) }.encoded_len() as u64 + 8).sum()
}

fn encode(row: &Row) -> Vec<u8> {
    let length = row.encoded_len();
    let mut bytes = Vec::with_capacity(length + 8);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    // A Vec grows: encoding cannot run out of room.
    row.encode(&mut bytes).expect("a vector has room");
    let sum = checksum(&bytes[8..]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// FNV-1a: enough to tell a torn row from a whole one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Writes a fresh journal with the live rows beside the old one and puts it in its place.
fn rewrite(path: &Path, boot_id: &str, contents: &Contents) -> io::Result<(File, u64)> {
    let next = path.with_extension("next");
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(boot_id.len()).unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(boot_id.as_bytes());
    for kind in contents.rows() {
        bytes.extend_from_slice(&encode(&Row { kind: Some(kind) }));
    }
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&next)?;
    file.write_all(&bytes)?;
    std::fs::rename(&next, path)?;
    Ok((file, bytes.len() as u64))
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(count)?;
    *bytes = tail;
    Some(head)
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let mut buffer = [0; 4];
    take(bytes, 4)?.read_exact(&mut buffer).ok()?;
    Some(u32::from_le_bytes(buffer))
}

/// Reads all whole rows; says whether they belong to another boot.
fn read(mut bytes: &[u8], boot_id: &str) -> io::Result<(Contents, bool)> {
    let bytes = &mut bytes;
    let Some(magic) = take(bytes, MAGIC.len()) else {
        return Ok((Contents::default(), false));
    };
    if magic != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a runtime journal"));
    }
    let header = (take_u32(bytes), take_u32(bytes));
    let (Some(version), Some(length)) = header else {
        return Ok((Contents::default(), false));
    };
    if version != VERSION {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("journal version {version} is not known"),
        ));
    }
    let Some(written_by) = take(bytes, length as usize) else {
        return Ok((Contents::default(), false));
    };
    let stale = written_by != boot_id.as_bytes();
    let mut contents = Contents::default();
    while let (Some(length), Some(sum)) = (take_u32(bytes), take_u32(bytes)) {
        let Some(payload) = take(bytes, length as usize) else { break };
        if checksum(payload) != sum {
            break;
        }
        let Ok(row) = Row::decode(payload) else { break };
        contents.apply(row);
    }
    Ok((contents, stale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str) -> Kind {
        Kind::Sandbox(SandboxRow { id: id.into(), created_at: 5, ..Default::default() })
    }

    #[test]
    fn rows_come_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let opened = Journal::open(&path, "boot-1").unwrap();
        assert!(!opened.stale);
        opened.journal.append(sandbox("a")).unwrap();
        opened.journal.append(sandbox("b")).unwrap();
        let state = SandboxStateRow { id: "a".into(), phase: 2, ..Default::default() };
        opened.journal.append(Kind::SandboxState(state)).unwrap();
        opened.journal.append(Kind::SandboxGone("b".into())).unwrap();
        drop(opened);
        let again = Journal::open(&path, "boot-1").unwrap();
        assert!(!again.stale);
        assert_eq!(again.contents.sandboxes.len(), 1);
        assert_eq!(again.contents.sandboxes["a"].0.created_at, 5);
        assert_eq!(again.contents.sandboxes["a"].1.phase, 2);
        assert!(Journal::open(&path, "boot-2").unwrap().stale);
    }

    #[test]
    fn a_journal_cut_at_any_byte_keeps_its_whole_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let opened = Journal::open(&path, "boot").unwrap();
        let header = std::fs::metadata(&path).unwrap().len();
        opened.journal.append(sandbox("a")).unwrap();
        let one = std::fs::metadata(&path).unwrap().len();
        opened.journal.append(sandbox("b")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            let (contents, _) = read(&whole[..cut], "boot").unwrap();
            let expected = usize::from(cut as u64 >= one) + usize::from(cut == whole.len());
            assert_eq!(contents.sandboxes.len(), expected, "cut at {cut} (header {header}, one row {one})");
        }
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, b"something else entirely").unwrap();
        assert!(Journal::open(&path, "boot").is_err());
    }

    #[test]
    fn churn_does_not_grow_the_file_without_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = Journal::open(&path, "boot").unwrap().journal;
        let long = "x".repeat(10_000);
        for round in 0..2000 {
            let id = format!("{round}-{long}");
            journal.append(sandbox(&id)).unwrap();
            journal.append(Kind::SandboxGone(id)).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= REWRITE_BYTES + 40_000);
    }
}
