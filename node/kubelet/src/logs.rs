//! Container logs as the runtime writes them: one line per record, `<time> <stream> <F|P> <text>`.

use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

/// One record of a log. Borrowed from the line it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time as written.
    pub time: &'a str,
    /// `stdout` or `stderr`.
    pub stream: &'a str,
    /// Whether the line of the program goes on in the next record.
    pub partial: bool,
    /// What the program wrote, without its newline.
    pub text: &'a [u8],
}

/// Parses a line without its newline.
pub fn parse(line: &[u8]) -> Option<Record<'_>> {
    let mut fields = line.splitn(4, |b| *b == b' ');
    let time = std::str::from_utf8(fields.next()?).ok()?;
    let stream = std::str::from_utf8(fields.next()?).ok()?;
    let tags = fields.next()?;
    let text = fields.next().unwrap_or_default();
    if !matches!(stream, "stdout" | "stderr") {
        return None;
    }
    Some(Record { time, stream, partial: tags.split(|b| *b == b':').next() == Some(b"P"), text })
}

/// The last lines of a log, at most `lines` and `limit` bytes of program output.
pub fn last_lines(path: &Path, lines: usize, limit: usize) -> String {
    // A record adds at most this much to each line of output.
    let overhead = lines * 64;
    let Ok(mut file) = fs::File::open(path) else { return String::new() };
    let length = file.metadata().map(|m| m.len()).unwrap_or_default();
    let window = u64::try_from(limit + overhead).unwrap_or(u64::MAX);
    let start = length.saturating_sub(window);
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(start)).is_err() || file.read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    let mut all: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    if start > 0 {
        all.remove(0);
    }
    let mut text: Vec<u8> = Vec::new();
    let records: Vec<Record<'_>> = all.into_iter().filter_map(parse).collect();
    for record in &records[records.len().saturating_sub(lines)..] {
        text.extend_from_slice(record.text);
        if !record.partial {
            text.push(b'\n');
        }
    }
    String::from_utf8_lossy(&text[text.len().saturating_sub(limit)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_field_by_field() {
        let record = parse(b"2026-01-02T03:04:05.6Z stderr P half a line").unwrap();
        assert_eq!((record.stream, record.partial, record.text), ("stderr", true, &b"half a line"[..]));
        assert!(parse(b"garbage").is_none());
        assert_eq!(parse(b"t stdout F ").unwrap().text, b"");
    }

    #[test]
    fn the_last_lines_of_a_log_are_joined() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        fs::write(&path, "t stdout F one\nt stdout P tw\nt stdout F o\nt stderr F three\n").unwrap();
        assert_eq!(last_lines(&path, 3, 100), "two\nthree\n");
        assert_eq!(last_lines(&path, 80, 6), "three\n");
    }
}
