//! Any rows and any tail in the runtime's journal: whole rows are read, a torn tail is cut off, and more can be noted.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_linux::boot_journal::{BootJournal, Frame, Kind};
use podwire_runtime::hostile;

const KIND: Kind = Kind { magic: b"PWRUNJNL", version: 1 };

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// Whole rows, then bytes of one that was not finished.
    Rows { rows: Vec<&'a [u8]>, keep: u16, tail: &'a [u8], stale: bool },
    /// Any bytes as the whole file.
    Bytes(&'a [u8]),
}

fuzz_target!(|input: Input<'_>| {
    let folder = podwire_fuzz::folder();
    let path = folder.path().join("journal");
    let Input::Rows { rows, keep, tail, stale } = input else {
        let Input::Bytes(bytes) = input else { return };
        std::fs::write(&path, bytes).expect("the file can be written");
        if hostile::journal(&path, "boot", None).is_err() {
            assert_eq!(
                std::fs::read(&path).expect("the file is there"),
                bytes,
                "a foreign file is left alone"
            );
        }
        return;
    };
    let frames: Vec<Frame> = rows.iter().map(|row| Frame::of(row).expect("a short row")).collect();
    let boot = if stale { "before" } else { "boot" };
    drop(BootJournal::create(&path, KIND, boot, &frames).expect("a journal"));
    let sound = hostile::journal(&path, boot, None).expect("a whole journal is read");
    assert!(!sound.stale && sound.sandboxes.len() + sound.containers.len() <= rows.len());
    let whole = std::fs::read(&path).expect("the file is there");
    let rest: u64 = frames.iter().map(Frame::size).sum();
    let header = whole.len() - usize::try_from(rest).expect("a short file");
    let keep = header + usize::from(keep) % (whole.len() - header + 1);
    std::fs::write(&path, [&whole[..keep], tail].concat()).expect("the file can be written");
    let torn = hostile::journal(&path, "boot", Some("later")).expect("a torn journal is read");
    assert_eq!(torn.stale, stale, "rows of another boot are told apart");
    if keep == whole.len() && tail.len() < 8 {
        assert_eq!((&torn.sandboxes, &torn.containers), (&sound.sandboxes, &sound.containers));
    }
    let again = hostile::journal(&path, "boot", None).expect("what was mended is read");
    assert!(again.sandboxes.iter().any(|id| id == "later"), "what was noted behind a torn row is read");
    if !stale {
        assert!(torn.sandboxes.iter().all(|id| again.sandboxes.contains(id)), "no sandbox is lost");
        assert_eq!(again.containers, torn.containers, "no container is lost");
    }
});
