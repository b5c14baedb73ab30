//! CRI log files: `<time> <stream> <F|P> <text>`, one line each.
//!
//! A log that cannot be written holds nobody up: its lines are dropped and counted, and every chance is taken to go on.
//!
//! The format: <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::poll::Stream;

/// Longer lines are cut into parts.
pub(super) const LONGEST_PART: usize = 16 << 10;
/// How soon a file that could not be opened is tried again, in nanoseconds.
const RETRY: u64 = 1_000_000_000;

/// A container's log file.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// `None` while it cannot be opened.
    file: Option<File>,
    /// When to try to open it again.
    next_try: u64,
    /// Lines that could not be written since the last that was.
    lost: u64,
}

/// Only a regular file: to open a FIFO waits for its reader, and a device may do anything.
fn open(path: &PathBuf) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

impl Log {
    pub(super) fn open(path: PathBuf) -> io::Result<Log> {
        let file = open(&path)?;
        Ok(Log { path, file: Some(file), next_try: 0, lost: 0 })
    }

    /// The log of a container that runs already: one that cannot be opened now is tried again. Says what is wrong.
    pub(super) fn resume(path: PathBuf) -> (Log, Option<String>) {
        let (file, failure) = match open(&path) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(format!("log {path:?} not opened: {error}; it is tried again"))),
        };
        (Log { path, file, next_try: 0, lost: 0 }, failure)
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Writes to a new file of the same name from now on. On an error the old one stays.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(open(&self.path)?);
        Ok(())
    }

    /// Writes whole lines, or drops and counts them. Says what changed: that lines are being lost, or how many were.
    pub(super) fn write(&mut self, lines: &[u8], at: u64) -> Option<String> {
        if lines.is_empty() {
            return None;
        }
        if self.file.is_none() && at >= self.next_try {
            self.next_try = at.saturating_add(RETRY);
            self.file = open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return self.drop_lines(lines, "it cannot be opened");
        };
        match append(file, lines) {
            Ok(()) if self.lost == 0 => None,
            Ok(()) => {
                let lost = std::mem::take(&mut self.lost);
                Some(format!("log written again; {lost} lines are lost"))
            }
            Err((written, error)) => self.drop_lines(&lines[written..], &error.to_string()),
        }
    }

    fn drop_lines(&mut self, lines: &[u8], reason: &str) -> Option<String> {
        let first = self.lost == 0;
        self.lost += lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
        first.then(|| format!("log not written: {reason}; lines are dropped until it can be"))
    }
}

/// Appends all lines; on an error, how many bytes of whole lines are in the file. A part of a line is taken back.
fn append(file: &mut File, lines: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < lines.len() {
        match file.write(&lines[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let whole = lines[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let torn = (written - whole) as u64;
                if torn > 0 {
                    // Ignored: a log that cannot be cut keeps half a line, which no reader takes for a whole one.
                    file.metadata().and_then(|meta| file.set_len(meta.len().saturating_sub(torn))).ok();
                }
                return Err((whole, error));
            }
        }
    }
    Ok(())
}

/// Cuts a stream of bytes into log lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Goes on with the beginning of a line.
    pub(super) fn with_rest(rest: Vec<u8>) -> Lines {
        Lines { rest }
    }

    /// The beginning of a line that has yet to end.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Appends to `out` every line, or part, that is complete with `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8], stream: Stream, at: u64, out: &mut Vec<u8>) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let room = LONGEST_PART - self.rest.len();
            match bytes.iter().take(room + 1).position(|b| *b == b'\n') {
                Some(end) => {
                    self.rest.extend_from_slice(&bytes[..end]);
                    bytes = &bytes[end + 1..];
                    if self.rest.last() == Some(&b'\r') {
                        self.rest.pop();
                    }
                    self.emit(stream, b'F', at, out);
                }
                None => {
                    let take = room.min(bytes.len());
                    self.rest.extend_from_slice(&bytes[..take]);
                    bytes = &bytes[take..];
                    if self.rest.len() >= LONGEST_PART && !bytes.is_empty() {
                        self.emit(stream, b'P', at, out);
                    }
                }
            }
        }
    }

    /// What is left at the end of the stream is a part that nothing completes.
    pub(super) fn finish(&mut self, stream: Stream, at: u64, out: &mut Vec<u8>) {
        if !self.rest.is_empty() {
            self.emit(stream, b'P', at, out);
        }
        self.rest = Vec::new();
    }

    fn emit(&mut self, stream: Stream, tag: u8, at: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(timestamp(at).as_bytes());
        out.extend_from_slice(match stream {
            Stream::Stdout => b" stdout ",
            Stream::Stderr => b" stderr ",
        });
        out.extend_from_slice(&[tag, b' ']);
        out.extend_from_slice(&self.rest);
        out.push(b'\n');
        self.rest.clear();
    }
}

/// RFC 3339 with nanoseconds, in UTC.
pub(super) fn timestamp(nanos: u64) -> String {
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, so that the leap day is the last of the year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_costs_counted_whole_lines_and_the_log_goes_on_by_itself() {
        let disk = podwire_testkit::SmallDisk::new(64 << 10).unwrap();
        let mut log = Log::open(disk.path().join("log")).unwrap();
        assert_eq!(log.write(b"first\n", 0), None);
        disk.fill().unwrap();
        let line = [&[b'x'; 99][..], b"\n"].concat();
        let notes: Vec<_> = (0..200).filter_map(|at| log.write(&line.repeat(2), at)).collect();
        assert_eq!(notes.len(), 1, "one note, not one per write: {notes:?}");
        assert!(notes[0].contains("No space left on device"), "{notes:?}");
        disk.empty().unwrap();
        let note = log.write(b"last\n", 300).unwrap();
        let text = std::fs::read_to_string(disk.path().join("log")).unwrap();
        let kept = text.lines().filter(|line| line.len() == 99).count();
        assert_eq!(text.lines().count(), kept + 2, "half a line was left");
        assert!(text.starts_with("first\n") && text.ends_with("x\nlast\n"));
        assert!(note.contains(&format!(" {} lines are lost", 400 - kept)), "{note} and {kept} kept");
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_tried_again_and_nothing_but_a_file_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder/log");
        let (mut log, failure) = Log::resume(path.clone());
        assert!(failure.unwrap().contains("No such file"));
        assert!(log.write(b"lost\n", 1).is_some());
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        assert_eq!(log.write(b"lost too\n", 2), None, "not with every line");
        assert_eq!(log.write(b"kept\n", 2 + RETRY).unwrap(), "log written again; 2 lines are lost");
        assert_eq!(std::fs::read(&path).unwrap(), b"kept\n");
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
        let reader = rustix::fs::open(&fifo, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        assert!(Log::open(fifo).is_err());
        drop(reader);
        std::os::unix::fs::symlink(&path, dir.path().join("link")).unwrap();
        assert!(Log::open(dir.path().join("link")).is_err());
    }

    #[test]
    fn times_are_written_as_in_rfc_3339() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(timestamp(951_782_400_000_000_001), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(timestamp(1_795_000_000_123_456_789), "2026-11-18T11:06:40.123456789Z");
    }

    fn cut(parts: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for part in parts {
            lines.push(part, Stream::Stdout, 0, &mut out);
        }
        lines.finish(Stream::Stdout, 0, &mut out);
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|l| l.split_once(" stdout ").unwrap().1.to_owned()).collect()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(cut(&[b"a\nb", b"c\r\n", b"\nend"]), ["F a", "F bc", "F ", "P end"]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_not_cut() {
        let exact = "x".repeat(LONGEST_PART);
        assert_eq!(cut(&[exact.as_bytes(), b"\n"]), [format!("F {exact}")]);
        let longer = format!("{exact}yz\n");
        assert_eq!(cut(&[longer.as_bytes()]), [format!("P {exact}"), "F yz".to_owned()]);
    }
}
