//! Container logs as the runtime writes them: one line per record, `<time> <stream> <F|P> <text>`.

use std::path::Path;

use podwire_linux::beneath;

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

/// The last lines of the log at `path` below `folder`, at most `lines` and `limit` bytes of program output.
pub fn last_lines(folder: &Path, path: &Path, lines: usize, limit: usize) -> String {
    // A record adds at most this much to each line of output.
    let window = limit + lines * 64;
    let read = beneath::folder(folder).and_then(|folder| beneath::read_tail(folder, path, window + 1));
    // Ignored: what cannot be read, or is no log, says nothing.
    let bytes = read.unwrap_or_default();
    let mut all: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    if bytes.len() > window {
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
        let path = Path::new("0.log");
        let text = "t stdout F one\nt stdout P tw\nt stdout F o\nt stderr F three\n";
        std::fs::write(dir.path().join(path), text).unwrap();
        assert_eq!(last_lines(dir.path(), path, 3, 100), "two\nthree\n");
        assert_eq!(last_lines(dir.path(), path, 80, 6), "three\n");
    }
}
