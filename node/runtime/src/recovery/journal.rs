//! The journal: what this runtime has begun and not yet ended, so that a restart finds everything that could leak.
//!
//! A row is written before the thing it names is made. The file is a boot journal: it outlives the process, not the
//! machine, and is never torn. What has already happened cannot be refused because a row does not fit any more: such rows
//! are owed, and written before anything else is. The file is rewritten from the live rows when it is mostly history.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{Mutex, MutexGuard},
};

use podwire_linux::boot_journal::{self, BootJournal, Frame};
use prost::Message;

use crate::recovery::records::{
    ContainerRow, ContainerStateRow, Row, SandboxRow, SandboxStateRow, row::Kind,
};

const KIND: boot_journal::Kind = boot_journal::Kind { magic: b"PWRUNJNL", version: 1 };
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
}

/// Whom a row is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Sandbox(String),
    Container(String),
}

/// What a row does to the live rows.
#[derive(Debug, Clone)]
enum Effect {
    Begins(Subject),
    Changes(Subject),
    Ends(Subject),
}

impl Effect {
    fn of(kind: &Kind) -> Effect {
        match kind {
            Kind::Sandbox(row) => Effect::Begins(Subject::Sandbox(row.id.clone())),
            Kind::SandboxState(state) => Effect::Changes(Subject::Sandbox(state.id.clone())),
            Kind::SandboxGone(id) => Effect::Ends(Subject::Sandbox(id.clone())),
            Kind::Container(row) => Effect::Begins(Subject::Container(row.id.clone())),
            Kind::ContainerState(state) => Effect::Changes(Subject::Container(state.id.clone())),
            Kind::ContainerGone(id) => Effect::Ends(Subject::Container(id.clone())),
        }
    }
}

/// The rows of one subject as they lie in the file.
#[derive(Debug)]
struct Pair {
    row: Frame,
    state: Option<Frame>,
}

/// The live rows, ready to be written again, and their size.
#[derive(Debug, Default)]
struct Live {
    pairs: HashMap<Subject, Pair>,
    bytes: u64,
}

impl Live {
    fn apply(&mut self, effect: Effect, frame: Frame) {
        let size = frame.size();
        match effect {
            Effect::Begins(subject) => {
                self.bytes += size;
                let before = self.pairs.insert(subject, Pair { row: frame, state: None });
                self.forget(before);
            }
            Effect::Changes(subject) => {
                if let Some(pair) = self.pairs.get_mut(&subject) {
                    self.bytes += size;
                    let before = pair.state.replace(frame);
                    self.bytes -= before.map_or(0, |frame| frame.size());
                }
            }
            Effect::Ends(subject) => {
                let before = self.pairs.remove(&subject);
                self.forget(before);
            }
        }
    }

    fn forget(&mut self, pair: Option<Pair>) {
        if let Some(Pair { row, state }) = pair {
            self.bytes -= row.size() + state.map_or(0, |frame| frame.size());
        }
    }

    fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.pairs.values().flat_map(|pair| [Some(&pair.row), pair.state.as_ref()]).flatten()
    }
}

/// What was found when the journal was opened.
pub(crate) struct Opened {
    pub(crate) journal: Journal,
    pub(crate) contents: Contents,
    /// The rows are from before the machine was last started: no process of theirs lives, and they are in no file now.
    pub(crate) stale: bool,
}

/// The open journal.
pub(crate) struct Journal {
    inner: Mutex<Inner>,
}

struct Inner {
    file: BootJournal,
    live: Live,
    /// The newest of what is true already and not in the file yet.
    owed: HashMap<Subject, (Effect, Frame)>,
    /// No rewrite below this size: the last one failed.
    rewrite_above: u64,
}

impl Journal {
    /// Opens or creates the journal at `path` for the boot `boot_id`, and reads what is there.
    pub(crate) fn open(path: &Path, boot_id: &str) -> io::Result<Opened> {
        let (file, found) = BootJournal::open(path, KIND, boot_id)?;
        if found.cut > 0 {
            tracing::warn!(bytes = found.cut, "unfinished row at the end of the journal cut off");
        }
        let mut contents = Contents::default();
        let mut live = Live::default();
        for bytes in found.rows {
            let row = match Row::decode(bytes.as_slice()) {
                Ok(row) => row,
                Err(error) => {
                    tracing::error!(%error, "journal row not understood; skipped");
                    continue;
                }
            };
            if let Some(kind) = row.kind.as_ref().filter(|_| !found.stale) {
                live.apply(Effect::of(kind), Frame::of(&bytes)?);
            }
            contents.apply(row);
        }
        let inner = Inner { file, live, owed: HashMap::new(), rewrite_above: 0 };
        Ok(Opened { journal: Journal { inner: Mutex::new(inner) }, contents, stale: found.stale })
    }

    /// Checks the sums that decide when the file is rewritten, for `hostile`.
    pub(crate) fn check(&self) {
        let inner = self.inner();
        let live: u64 = inner.live.frames().map(Frame::size).sum();
        assert_eq!(inner.live.bytes, live, "the running sum is right");
        assert!(inner.live.bytes <= inner.file.size(), "what is live is in the file");
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while holding the journal")
    }

    /// Appends one row; after an error it is as if nobody had tried.
    pub(crate) fn append(&self, kind: Kind) -> io::Result<()> {
        let (effect, frame) = encode(kind)?;
        let mut inner = self.inner();
        inner.pay()?;
        inner.write(effect, frame)
    }

    /// Notes a state or an end that is true whether or not it can be written now. The error says that the row is owed: it
    /// comes before every other, and [`Journal::pay`] tries again.
    pub(crate) fn note(&self, kind: Kind) -> io::Result<()> {
        let (effect, frame) = encode(kind)?;
        let mut inner = self.inner();
        match &effect {
            Effect::Begins(_) => {
                inner.pay()?;
                return inner.write(effect, frame);
            }
            Effect::Changes(subject) | Effect::Ends(subject) => {
                inner.owed.insert(subject.clone(), (effect, frame));
            }
        }
        inner.pay()
    }

    /// Writes the rows that are owed.
    pub(crate) fn pay(&self) -> io::Result<()> {
        self.inner().pay()
    }

    /// Whether rows are owed.
    pub(crate) fn owes(&self) -> bool {
        !self.inner().owed.is_empty()
    }

    /// Forgets what is gone already.
    pub(crate) fn forget(&self, kind: Kind) {
        if let Err(error) = self.note(kind) {
            tracing::error!(%error, "journal not written; it will be tried again");
        }
    }
}

fn encode(kind: Kind) -> io::Result<(Effect, Frame)> {
    let effect = Effect::of(&kind);
    let row = Row { kind: Some(kind) };
    let frame = Frame::with(row.encoded_len(), |bytes| row.encode(bytes).expect("a vector has room"))?;
    Ok((effect, frame))
}

impl Inner {
    fn pay(&mut self) -> io::Result<()> {
        while let Some((subject, (effect, frame))) = self.owed.iter().next() {
            let (subject, effect, frame) = (subject.clone(), effect.clone(), frame.clone());
            self.write(effect, frame)?;
            self.owed.remove(&subject);
        }
        Ok(())
    }

    fn write(&mut self, effect: Effect, frame: Frame) -> io::Result<()> {
        if let Err(error) = self.file.append(&frame) {
            // A torn row that cannot be cut off is left behind with the whole file.
            if !self.file.is_torn() || self.file.rewrite(self.live.frames()).is_err() {
                return Err(error);
            }
            self.file.append(&frame)?;
        }
        self.live.apply(effect, frame);
        // Each rewrite comes after at least three times as many new bytes as it writes.
        let size = self.file.size();
        if size > REWRITE_BYTES && size > 4 * self.live.bytes && size > self.rewrite_above {
            self.rewrite_above = match self.file.rewrite(self.live.frames()) {
                Ok(()) => 0,
                Err(error) => {
                    tracing::warn!(%error, "journal not rewritten; it grows until it can be");
                    size + REWRITE_BYTES
                }
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str) -> Kind {
        Kind::Sandbox(SandboxRow { id: id.into(), created_at: 5, ..Default::default() })
    }

    fn state(id: &str, phase: i32) -> Kind {
        Kind::SandboxState(SandboxStateRow { id: id.into(), phase, ..Default::default() })
    }

    #[test]
    fn rows_come_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let opened = Journal::open(&path, "boot-1").unwrap();
        assert!(!opened.stale);
        opened.journal.append(sandbox("a")).unwrap();
        opened.journal.append(sandbox("b")).unwrap();
        opened.journal.append(state("a", 2)).unwrap();
        opened.journal.append(Kind::SandboxGone("b".into())).unwrap();
        drop(opened);
        let again = Journal::open(&path, "boot-1").unwrap();
        assert!(!again.stale);
        assert_eq!(again.contents.sandboxes.len(), 1);
        assert_eq!(again.contents.sandboxes["a"].0.created_at, 5);
        assert_eq!(again.contents.sandboxes["a"].1.phase, 2);
        assert!(Journal::open(&path, "boot-2").unwrap().stale);
        assert_eq!(Journal::open(&path, "boot-2").unwrap().contents, Contents::default());
    }

    /// As the first version of this program wrote it.
    const OLD: &[&str] = &[
        "505752554e4a4e4c010000002400000030643566366431632d336630652d346238652d396635372d3561336331663265",
        "3762313013000000f98242220a110a03356162120512037765621a01682005170000006dc5881b12150a033561621001",
        "1a0831302e302e302e3222027b7d13000000c89b9bf822110a026330120335616220073a027b7d600f0c0000000713cc",
        "392a0a0a0263301002184d2008080000006c7370520a060a04676f6e650600000098037fe01a04676f6e65",
    ];

    #[test]
    fn the_journal_of_the_version_before_is_taken_over() {
        let text = OLD.concat();
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..text.len() / 2).map(byte).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let boot = "0d5f6d1c-3f0e-4b8e-9f57-5a3c1f2e7b10";
        std::fs::write(&path, &bytes).unwrap();
        let Opened { journal, contents, stale } = Journal::open(&path, boot).unwrap();
        assert!(!stale);
        assert_eq!((contents.sandboxes.len(), contents.containers.len()), (1, 1));
        let (row, state) = &contents.sandboxes["5ab"];
        assert_eq!((row.config.as_ref().unwrap().hostname.as_str(), row.handler.as_str()), ("web", "h"));
        assert_eq!((state.phase, state.ips.as_slice()), (1, &["10.0.0.2".to_owned()][..]));
        let (row, state) = &contents.containers["c0"];
        assert_eq!((row.sandbox_id.as_str(), row.stop_signal), ("5ab", 15));
        assert_eq!((state.phase, state.pid, state.started_at), (2, 77, 8));
        journal.append(sandbox("new")).unwrap();
        drop(journal);
        assert_eq!(std::fs::read(&path).unwrap()[..bytes.len()], bytes, "and it stays readable for that one");
        // Whatever was cut off, no row before it is lost.
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let journal = Journal::open(&path, boot).unwrap().journal;
            journal.append(sandbox("after")).unwrap();
            drop(journal);
            let contents = Journal::open(&path, boot).unwrap().contents;
            assert!(contents.sandboxes.contains_key("after"), "cut at {cut}");
            assert_eq!(contents.sandboxes.contains_key("5ab"), cut >= 79, "cut at {cut}");
        }
    }

    #[test]
    fn churn_neither_grows_the_file_without_bound_nor_rewrites_it_often() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        let journal = Journal::open(&path, "boot").unwrap().journal;
        let long = "x".repeat(10_000);
        // More than a small file's worth of pods that stay, as on a large node.
        for number in 0..600 {
            journal.append(sandbox(&format!("stays-{number}-{long}"))).unwrap();
        }
        let (mut rewrites, mut last) = (0, inode());
        for round in 0..3000 {
            let id = format!("{round}-{long}");
            journal.append(sandbox(&id)).unwrap();
            journal.append(Kind::SandboxGone(id)).unwrap();
            rewrites += usize::from(std::mem::replace(&mut last, inode()) != last);
        }
        let live: u64 = journal.inner().live.frames().map(Frame::size).sum();
        assert_eq!(journal.inner().live.bytes, live, "the running sum is right");
        assert!(std::fs::metadata(&path).unwrap().len() <= 4 * live + 40_000);
        assert!((1..=4).contains(&rewrites), "{rewrites} rewrites for 60 MB of rows");
        drop(journal);
        assert_eq!(Journal::open(&path, "boot").unwrap().contents.sandboxes.len(), 600);
    }

    #[test]
    fn on_a_full_disk_new_things_are_refused_and_nothing_that_was_written_is_lost() {
        let disk = podwire_testkit::SmallDisk::new(64 << 10).unwrap();
        let path = disk.path().join("journal");
        let journal = Journal::open(&path, "boot").unwrap().journal;
        journal.append(sandbox("runs")).unwrap();
        journal.append(state("runs", 1)).unwrap();
        disk.fill().unwrap();
        let long = "y".repeat(5000);
        let mut refused = 0;
        for number in 0..5 {
            refused += usize::from(journal.append(sandbox(&format!("{number}-{long}"))).is_err());
        }
        assert!(refused > 0, "the disk was not full");
        disk.empty().unwrap();
        journal.append(sandbox("later")).unwrap();
        journal.append(state("later", 1)).unwrap();
        drop(journal);
        // Exactly what a restart needs in order not to end what runs: no row is hidden behind a torn one.
        let contents = Journal::open(&path, "boot").unwrap().contents;
        assert_eq!(contents.sandboxes["runs"].1.phase, 1);
        assert_eq!(contents.sandboxes["later"].1.phase, 1);
        assert_eq!(contents.sandboxes.len(), 2 + 5 - refused);
    }

    #[test]
    fn what_has_happened_is_owed_on_a_full_disk_and_written_before_anything_else() {
        let disk = podwire_testkit::SmallDisk::new(64 << 10).unwrap();
        let path = disk.path().join("journal");
        let journal = Journal::open(&path, "boot").unwrap().journal;
        let exit = |code, text: &str| {
            Kind::ContainerState(ContainerStateRow {
                id: "c".into(),
                phase: 3,
                exit_code: code,
                message: text.into(),
                ..Default::default()
            })
        };
        journal.append(Kind::Container(ContainerRow { id: "c".into(), ..Default::default() })).unwrap();
        disk.fill().unwrap();
        let long = "z".repeat(9000);
        journal.note(exit(1, &long)).unwrap_err();
        journal.note(exit(7, &long)).unwrap_err();
        assert!(journal.owes());
        assert!(journal.append(sandbox(&long)).is_err(), "nothing overtakes what is owed");
        assert!(journal.pay().is_err());
        disk.empty().unwrap();
        journal.pay().unwrap();
        assert!(!journal.owes());
        drop(journal);
        let contents = Journal::open(&path, "boot").unwrap().contents;
        assert_eq!(contents.containers["c"].1.exit_code, 7);
        assert!(contents.sandboxes.is_empty());
    }
}
