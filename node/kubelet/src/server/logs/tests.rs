//! Tests of picking and following.

use std::io::Write;

use super::*;

fn picker(options: Options) -> Picker {
    Picker::new(options)
}

const LOG: &[u8] =
    b"2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr P tw\n2026-01-01T00:00:03Z stderr F o\n";

#[test]
fn records_become_the_programs_output() {
    assert_eq!(&picker(Options::default()).take(LOG)[..], b"one\ntwo\n");
}

#[test]
fn a_record_split_between_reads_is_put_together() {
    let mut picker = picker(Options { timestamps: true, ..Default::default() });
    let mut out = Vec::new();
    for piece in LOG.chunks(7) {
        out.extend_from_slice(&picker.take(piece));
    }
    assert!(out.starts_with(b"2026-01-01T00:00:01Z one\n"), "{}", String::from_utf8_lossy(&out));
}

#[test]
fn since_stream_and_limit_cut() {
    let since = Some("2026-01-01T00:00:02Z".parse().unwrap());
    assert_eq!(&picker(Options { since, ..Default::default() }).take(LOG)[..], b"two\n");
    let stream = Some("stdout".to_owned());
    assert_eq!(&picker(Options { stream, ..Default::default() }).take(LOG)[..], b"one\n");
    let mut limited = picker(Options { limit: Some(5), ..Default::default() });
    assert_eq!(&limited.take(LOG)[..], b"one\nt");
    assert_eq!(limited.left, Some(0));
}

#[test]
fn the_tail_begins_at_the_right_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    std::fs::write(&path, "a\nbb\nccc\n").unwrap();
    let mut file = File::open(&path).unwrap();
    assert_eq!(tail_offset(&mut file, 1).unwrap(), 5);
    assert_eq!(tail_offset(&mut file, 2).unwrap(), 2);
    assert_eq!(tail_offset(&mut file, 9).unwrap(), 0);
    assert_eq!(tail_offset(&mut file, 0).unwrap(), 9);
}

#[tokio::test]
async fn a_write_and_a_rotation_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let log = Log { folder: dir.path().to_owned(), below: PathBuf::from("0.log") };
    let mut writer = File::create(&path).unwrap();
    let mut notices = Notices::of(&log).unwrap();
    writer.write_all(b"x").unwrap();
    tokio::time::timeout(Duration::from_secs(5), notices.next()).await.unwrap().unwrap();
    let open = File::open(&path).unwrap();
    assert!(rotated(&open, &log).unwrap().is_none());
    std::fs::rename(&path, dir.path().join("0.log.1")).unwrap();
    assert!(rotated(&open, &log).unwrap().is_none(), "in the middle of a rotation nothing is lost");
    File::create(&path).unwrap();
    assert!(rotated(&open, &log).unwrap().is_some());
}

#[test]
fn a_line_without_an_end_is_not_kept() {
    let mut picker = picker(Options::default());
    for _ in 0..100 {
        assert!(picker.take(&[b'x'; CHUNK]).is_empty());
        assert!(picker.rest.len() <= LINE_LIMIT);
    }
    assert_eq!(&picker.take(b"the end\nt stdout F next\n")[..], b"next\n");
}

#[tokio::test]
async fn only_a_regular_file_at_its_place_is_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, LOG).unwrap();
    let folder = dir.path().join("logs");
    std::fs::create_dir_all(folder.join("pod/app")).unwrap();
    let log = |name: &str| Log { folder: folder.clone(), below: PathBuf::from(name) };
    std::os::unix::fs::symlink(&secret, folder.join("pod/app/0.log")).unwrap();
    std::os::unix::fs::symlink(dir.path(), folder.join("way")).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("fifo"), kind, mode, 0).unwrap();
    for name in ["pod/app/0.log", "way/secret", "fifo", "../secret"] {
        assert!(Opened::at(log(name), &Options::default()).is_err(), "{name}");
    }
    std::fs::write(folder.join("pod/app/1.log"), LOG).unwrap();
    let follow = Options { follow: true, ..Default::default() };
    assert!(Opened::at(log("pod/app/1.log"), &follow).is_ok());
}
