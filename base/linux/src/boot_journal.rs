//! A journal of one boot: rows that outlive their process, not the machine, and that are never torn.
//!
//! A header (magic, version, boot id), then rows, each with its length and checksum; integers are little-endian. Nothing
//! is synced: after another boot the rows are stale, because what they name is gone. A write that was cut short is taken
//! back before anything follows it, so that a reader never has to guess where the next row begins: contents of a row come
//! from whoever wrote a pod, and a guess could take them for a row. What rows mean is their owner's.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Length and checksum in front of every row.
const FRAME: usize = 8;

/// Which journal a file is.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The first bytes of the file.
    pub magic: &'static [u8; 8],
    /// Of the meaning of the rows.
    pub version: u32,
}

/// A row as it lies in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame(Box<[u8]>);

impl Frame {
    /// The row `write` appends to its argument.
    pub fn with(capacity: usize, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<Frame> {
        let mut bytes = Vec::with_capacity(capacity + FRAME);
        bytes.extend_from_slice(&[0; FRAME]);
        write(&mut bytes);
        let length = u32::try_from(bytes.len() - FRAME)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the row is too long"))?;
        let sum = checksum(&bytes[FRAME..]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..FRAME].copy_from_slice(&sum.to_le_bytes());
        Ok(Frame(bytes.into_boxed_slice()))
    }

    /// A row of these bytes.
    pub fn of(row: &[u8]) -> io::Result<Frame> {
        Frame::with(row.len(), |bytes| bytes.extend_from_slice(row))
    }

    /// What it takes of the file.
    pub fn size(&self) -> u64 {
        self.0.len() as u64
    }
}

/// FNV-1a: enough to tell a torn row from a whole one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What a file held when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its whole rows, oldest first; of another boot when `stale`.
    pub rows: Vec<Vec<u8>>,
    /// The rows are from before the machine was last started.
    pub stale: bool,
    /// Bytes of a row that its writer did not finish.
    pub cut: u64,
}

/// An open journal.
#[derive(Debug)]
pub struct BootJournal {
    path: PathBuf,
    header: Vec<u8>,
    out: Appender,
}

impl BootJournal {
    /// Opens or creates the journal at `path` for the boot `boot`. An unfinished row at its end is cut off; rows of
    /// another boot are returned and no longer in the file.
    pub fn open(path: &Path, kind: Kind, boot: &str) -> io::Result<(BootJournal, Found)> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let header = header(kind, boot)?;
        let Parsed { found, end } = parse(&bytes, kind, &header)?;
        if found.stale || end == 0 {
            return Ok((Self::create(path, kind, boot, [])?, found));
        }
        let file = OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        if found.cut > 0 {
            file.set_len(end)?;
        }
        Ok((BootJournal { path: path.to_owned(), header, out: Appender::new(file, end) }, found))
    }

    /// Puts a journal with these rows in the place of whatever is at `path`. A folder that has to be made is ours alone.
    pub fn create<'a>(
        path: &Path,
        kind: Kind,
        boot: &str,
        rows: impl IntoIterator<Item = &'a Frame>,
    ) -> io::Result<BootJournal> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let header = header(kind, boot)?;
        let out = replace(path, &header, rows)?;
        Ok(BootJournal { path: path.to_owned(), header, out })
    }

    /// Appends a row. After an error the file is as before, or nothing is appended until it is again.
    pub fn append(&mut self, row: &Frame) -> io::Result<()> {
        self.out.append(&row.0)
    }

    /// Writes a fresh journal with these rows beside the old one and puts it in its place; after an error the old one
    /// stays.
    pub fn rewrite<'a>(&mut self, rows: impl IntoIterator<Item = &'a Frame>) -> io::Result<()> {
        self.out = replace(&self.path, &self.header, rows)?;
        Ok(())
    }

    /// The length of the file.
    pub fn size(&self) -> u64 {
        self.out.length
    }

    /// Whether an unfinished row could not be taken back: only a rewrite, or the file system, can help.
    pub fn is_torn(&self) -> bool {
        self.out.torn
    }
}

/// A file that grows by whole pieces.
#[derive(Debug)]
pub struct Appender {
    file: File,
    length: u64,
    torn: bool,
}

impl Appender {
    /// Appends to `file`, which was opened for that and is `length` bytes long.
    pub fn new(file: File, length: u64) -> Appender {
        Appender { file, length, torn: false }
    }

    /// Appends all of `bytes` or nothing. If a piece that was cut short (a full disk) cannot be taken back either, every
    /// further append first tries to, and fails if it cannot.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.torn {
            self.take_back()?;
        }
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.torn = true;
                // Ignored: the next append tries again, and the first error says what is wrong.
                self.take_back().ok();
                Err(error)
            }
        }
    }

    fn take_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)?;
        self.torn = false;
        Ok(())
    }
}

fn header(kind: Kind, boot: &str) -> io::Result<Vec<u8>> {
    let length = u32::try_from(boot.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let numbers = kind.version.to_le_bytes().into_iter().chain(length.to_le_bytes());
    Ok(kind.magic.iter().copied().chain(numbers).chain(boot.bytes()).collect())
}

/// Writes beside and renames: the name always leads to a whole journal.
fn replace<'a>(
    path: &Path,
    header: &[u8],
    rows: impl IntoIterator<Item = &'a Frame>,
) -> io::Result<Appender> {
    let beside = path.with_extension("next");
    let written = (|| {
        // Whatever is there is what a killed writer left.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&beside)?;
        // The mode above is what the umask left of it.
        file.set_permissions(Permissions::from_mode(0o600))?;
        let mut out = BufWriter::with_capacity(64 << 10, file);
        out.write_all(header)?;
        let mut length = header.len() as u64;
        for row in rows {
            out.write_all(&row.0)?;
            length += row.size();
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(&beside, path)?;
        Ok(Appender::new(file, length))
    })();
    if written.is_err() {
        // Ignored: it takes room on a full disk at most, and the next rewrite begins with its removal.
        std::fs::remove_file(&beside).ok();
    }
    written
}

struct Parsed {
    found: Found,
    /// The end of the last whole row; zero without a whole header.
    end: u64,
}

/// Cuts a journal into its whole rows. A file without a whole header has no rows: it is renamed into place with one.
fn parse(bytes: &[u8], kind: Kind, expected: &[u8]) -> io::Result<Parsed> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidData, text));
    let headless = Parsed { found: Found { cut: bytes.len() as u64, ..Found::default() }, end: 0 };
    let Some((magic, rest)) = bytes.split_first_chunk::<8>() else { return Ok(headless) };
    if magic != kind.magic {
        return invalid(format!("not a journal that begins with {:?}", String::from_utf8_lossy(kind.magic)));
    }
    let Some((version, rest)) = take_number(rest) else { return Ok(headless) };
    if version != kind.version {
        return invalid(format!("journal version {version} is not known"));
    }
    let Some((boot, mut rest)) =
        take_number(rest).and_then(|(length, rest)| rest.split_at_checked(length as usize))
    else {
        return Ok(headless);
    };
    let stale = boot != &expected[16..];
    let mut rows = Vec::new();
    while let Some((row, behind)) = take_row(rest) {
        rows.push(row.to_vec());
        rest = behind;
    }
    let cut = rest.len() as u64;
    Ok(Parsed { found: Found { rows, stale, cut }, end: bytes.len() as u64 - cut })
}

fn take_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

fn take_row(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take_number(bytes)?;
    let (sum, rest) = take_number(rest)?;
    let (row, rest) = rest.split_at_checked(length as usize)?;
    (checksum(row) == sum).then_some((row, rest))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KIND: Kind = Kind { magic: b"TESTJRNL", version: 3 };

    fn frame(text: &str) -> Frame {
        Frame::of(text.as_bytes()).unwrap()
    }

    fn texts(found: &Found) -> Vec<String> {
        found.rows.iter().map(|row| String::from_utf8(row.clone()).unwrap()).collect()
    }

    fn open(path: &Path) -> (BootJournal, Found) {
        BootJournal::open(path, KIND, "boot").unwrap()
    }

    /// A tmpfs with room for `pages`.
    struct SmallDisk(tempfile::TempDir);

    impl SmallDisk {
        fn new(pages: u64) -> SmallDisk {
            let dir = tempfile::tempdir().unwrap();
            crate::mount::tmpfs(dir.path(), pages * 4096, 0o755).unwrap();
            SmallDisk(dir)
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            crate::mount::detach_all_under(self.0.path()).ok();
        }
    }

    #[test]
    fn rows_come_back_in_order_and_those_of_another_boot_are_stale_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/journal");
        let (mut journal, found) = open(&path);
        assert_eq!(found, Found::default());
        for text in ["one", "two"] {
            journal.append(&frame(text)).unwrap();
        }
        assert_eq!(texts(&open(&path).1), ["one", "two"]);
        journal.rewrite(&[frame("three")]).unwrap();
        journal.append(&frame("four")).unwrap();
        assert_eq!(texts(&open(&path).1), ["three", "four"]);
        let (_, found) = BootJournal::open(&path, KIND, "another").unwrap();
        assert_eq!((texts(&found).len(), found.stale), (2, true));
        let (_, found) = BootJournal::open(&path, KIND, "another").unwrap();
        assert_eq!((texts(&found).len(), found.stale), (0, false));
    }

    #[test]
    fn a_journal_cut_at_any_byte_keeps_its_whole_rows_and_takes_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = open(&path);
        let mut ends = vec![journal.size()];
        for text in ["first row", "second", "third and last"] {
            journal.append(&frame(text)).unwrap();
            ends.push(journal.size());
        }
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len() as u64, ends[3]);
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, found) = open(&path);
            let expected = ends[1..].iter().filter(|end| **end <= cut as u64).count();
            assert_eq!(found.rows.len(), expected, "cut at {cut}");
            journal.append(&frame("after")).unwrap();
            let again = open(&path).1;
            assert_eq!((again.rows.len(), again.cut), (expected + 1, 0), "cut at {cut}");
            assert_eq!(texts(&again).last().unwrap(), "after");
        }
    }

    #[test]
    fn a_damaged_row_is_never_read_and_neither_is_one_in_its_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = open(&path);
        journal.append(&frame("good")).unwrap();
        let before = journal.size();
        // A pod may carry what looks like a row; a reader that looked for the next one would find it.
        let smuggled = frame("forged");
        journal.append(&Frame::of(&smuggled.0).unwrap()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[usize::try_from(before).unwrap()] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let found = open(&path).1;
        assert_eq!(texts(&found), ["good"]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
    }

    #[test]
    fn another_file_or_version_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        for bytes in [&b"something else entirely"[..], b"TESTJRNL\x09\0\0\0\x04\0\0\0boot"] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(
                BootJournal::open(&path, KIND, "boot").unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn files_and_folders_are_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/journal");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (mut journal, _) = open(&path);
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        journal.append(&frame("x")).unwrap();
        drop(open(&path));
        assert_eq!(mode(&path), 0o600, "one that another program had made readable");
    }

    #[test]
    fn a_full_disk_tears_no_row_and_what_was_refused_can_be_written_later() {
        let disk = SmallDisk::new(16);
        let path = disk.0.path().join("journal");
        let (mut journal, _) = open(&path);
        let row = frame(&"r".repeat(1000));
        let mut written = 0;
        let filler = disk.0.path().join("filler");
        let error = loop {
            // Somebody else takes the last of the room, so that a row fits in part only.
            if written == 20 {
                std::fs::write(&filler, vec![0; 64 * 4096]).unwrap_err();
            }
            match journal.append(&row) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!journal.is_torn());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), journal.size(), "the torn part is still there");
        assert_eq!(journal.append(&row).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(journal.rewrite(&vec![row.clone(); 20]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!path.with_extension("next").exists(), "a failed rewrite keeps no room");
        let found = BootJournal::open(&path, KIND, "boot").unwrap().1;
        assert_eq!((found.rows.len(), found.cut), (written, 0));
        std::fs::remove_file(&filler).unwrap();
        journal.append(&frame("after")).unwrap();
        let found = BootJournal::open(&path, KIND, "boot").unwrap().1;
        assert_eq!((found.rows.len(), texts(&found).last().unwrap().as_str()), (written + 1, "after"));
    }

    #[test]
    fn a_row_that_cannot_be_taken_back_stops_all_appends_until_a_rewrite() {
        // A pipe takes a part of a large row and cannot be truncated.
        let (_reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, _) = open(&path);
        journal.append(&frame("kept")).unwrap();
        journal.out = Appender::new(File::from(writer), journal.size());
        let size = journal.size();
        assert_eq!(
            journal.append(&frame(&"x".repeat(1 << 20))).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        assert!(journal.is_torn());
        assert!(journal.append(&frame("small")).is_err(), "a row behind a torn one would be lost");
        assert_eq!(journal.size(), size);
        journal.rewrite(&[frame("kept"), frame("new")]).unwrap();
        journal.append(&frame("small")).unwrap();
        assert_eq!(texts(&open(&path).1), ["kept", "new", "small"]);
    }
}
