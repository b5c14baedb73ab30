//! CRI log files: `<time> <stream> <F|P> <text>`, one line each.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use super::poll::Stream;

/// Longer lines are cut into parts.
pub(super) const LONGEST_PART: usize = 16 << 10;

/// A container's log file.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

fn open(path: &PathBuf) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

impl Log {
    pub(super) fn open(path: PathBuf) -> io::Result<Log> {
        let file = open(&path)?;
        Ok(Log { path, file })
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Writes to a new file of the same name from now on. On an error the old one stays.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)
    }
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
