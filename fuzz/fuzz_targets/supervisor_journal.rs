//! Any rows, or lines of the version before, in the supervisor's journal: reading twice gives the same containers.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_container::hostile;
use podwire_linux::boot_journal::{BootJournal, Frame, Kind};

const KIND: Kind = Kind { magic: b"PODWSUPJ", version: 2 };

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// Whole rows, then bytes of one that was not finished.
    Rows { rows: Vec<&'a [u8]>, tail: &'a [u8] },
    /// What follows the first line of a file of the version before.
    Lines(&'a [u8]),
    /// Any bytes as the whole file.
    Bytes(&'a [u8]),
}

fuzz_target!(init: {
    let line = r#"{"put":{"id":"a","pid":1,"birth":2,"plan":{},"log_path":"/l","oom_watch":false,"exited":{"code":1,"signal":9,"oom":true,"at":3}}}
{"started":{"id":"a","at":7}}
{"pu{"exited":{"id":"a","exited":{"code":0,"signal":null,"oom":false,"at":8}}}
{"drop":{"id":"a"}}
"#;
    let deep = "{\"put\":".repeat(300) + "\n";
    podwire_fuzz::seeds(&[line, &deep].map(|text| [&podwire_fuzz::variant(1, 3)[..], text.as_bytes()].concat()));
}, |input: Input<'_>| {
    let folder = podwire_fuzz::folder();
    let path = folder.path().join("journal");
    let most = match input {
        Input::Rows { rows, tail } => {
            let frames: Vec<Frame> = rows.iter().map(|row| Frame::of(row).expect("a short row")).collect();
            drop(BootJournal::create(&path, KIND, "boot", &frames).expect("a journal"));
            let sound = hostile::journal(folder.path(), "boot").expect("a whole journal is read");
            let mut bytes = std::fs::read(&path).expect("the file is there");
            bytes.extend_from_slice(tail);
            std::fs::write(&path, bytes).expect("the file can be written");
            let torn = hostile::journal(folder.path(), "boot").expect("a torn journal is read");
            assert!(tail.len() >= 8 || torn == sound, "a torn row hides no container");
            rows.len() + tail.len() / 8
        }
        Input::Lines(lines) => {
            std::fs::write(&path, [b"PODWSUPJ 1 boot\n", lines].concat()).expect("the file can be written");
            lines.split(|byte| *byte == b'\n').count()
        }
        Input::Bytes(bytes) => {
            std::fs::write(&path, bytes).expect("the file can be written");
            bytes.len()
        }
    };
    let Ok(first) = hostile::journal(folder.path(), "boot") else { return };
    assert!(first.len() <= most, "more containers than rows");
    assert_eq!(hostile::journal(folder.path(), "boot").expect("it was read before"), first);
    assert!(hostile::journal(folder.path(), "next boot").expect("a stale journal").is_empty());
});
