//! Any bytes as a container's log, in any pieces: records are read as they were written, and limits hold.

#![no_main]

use std::path::Path;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_kubelet::{hostile, logs};

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Bytes { cut: u16, timestamps: bool, limit: Option<u16>, lines: u8, bytes: &'a [u8] },
    Records(Vec<(bool, bool, &'a [u8])>),
}

fuzz_target!(init: {
    podwire_fuzz::seeds(&[
        "2026-01-02T03:04:05.6Z stderr P half a line\n2026-01-02T03:04:05.7Z stdout F and its end\n",
        "t stdout F:x \nt stdout\n t stderr P\n",
    ].map(|text| [&podwire_fuzz::variant(0, 2)[..], &[9, 0, 1, 0, 3], text.as_bytes()].concat()));
}, |input: Input<'_>| {
    match input {
        Input::Bytes { cut, timestamps, limit, lines, bytes } => {
            let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
            let all = hostile::log(&[bytes], timestamps, None);
            assert!(all.len() <= bytes.len() + 1, "more was told than was written");
            assert_eq!(hostile::log(&[head, tail], timestamps, None), all, "pieces do not matter");
            let limit = limit.map(usize::from).unwrap_or(usize::MAX);
            let told = hostile::log(&[head, tail], timestamps, Some(limit as u64));
            assert_eq!(told, all[..limit.min(all.len())], "a limit cuts and does nothing else");
            let folder = podwire_fuzz::folder();
            std::fs::write(folder.path().join("0.log"), bytes).expect("the file can be written");
            let last = logs::last_lines(folder.path(), Path::new("0.log"), usize::from(lines), 80);
            // What is no text takes three bytes for one.
            assert!(last.len() <= 3 * 80, "{} bytes of the last lines", last.len());
            assert!(last.matches('\n').count() <= usize::from(lines), "more lines than were asked for");
        }
        Input::Records(records) => {
            let mut file = Vec::new();
            let mut expected = Vec::new();
            for (partial, is_error, text) in &records {
                let text: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\n').collect();
                let stream = if *is_error { "stderr" } else { "stdout" };
                let tag = if *partial { "P" } else { "F" };
                let line = [format!("2026-01-02T03:04:05Z {stream} {tag} ").as_bytes(), &text].concat();
                let record = logs::parse(&line).expect("a record");
                assert_eq!((record.stream, record.partial, record.text), (stream, *partial, &text[..]));
                file.extend_from_slice(&[&line[..], b"\n"].concat());
                expected.extend(text);
                if !partial {
                    expected.push(b'\n');
                }
            }
            assert_eq!(hostile::log(&[&file], false, None), expected, "what was written is told");
        }
    }
});
