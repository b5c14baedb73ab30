//! Any log of the store: what was acknowledged before a torn tail is read, and reading twice gives the same.

#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_store::hostile;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A sound log, cut somewhere, with any bytes behind the cut.
    Torn { puts: Vec<(u8, &'a [u8])>, keep: u16, tail: &'a [u8] },
    /// Any bodies in sound frames, in one segment or two.
    Sealed { last: u64, bodies: Vec<Vec<u8>>, second: Option<Vec<Vec<u8>>> },
}

fuzz_target!(|input: Input<'_>| {
    let folder = podwire_fuzz::folder();
    let dir = folder.path();
    let path = dir.join("log-0000000000000001");
    match input {
        Input::Torn { puts, keep, tail } => {
            let name = |key: u8| format!("/registry/{}", key % 8);
            let body = |(at, (key, value)): (u64, &(u8, &[u8]))| hostile::put(at, &name(*key), value);
            let bodies: Vec<Vec<u8>> = (1..).zip(&puts).map(body).collect();
            hostile::write_log(dir, 1, 0, &bodies).expect("the file can be written");
            let whole = std::fs::read(&path).expect("the file is there");
            let keep = hostile::HEADER + usize::from(keep) % (whole.len() - hostile::HEADER + 1);
            let file = [&whole[..keep], tail].concat();
            std::fs::write(&path, &file).expect("the file can be written");
            // A frame's header has 20 bytes; the tail may end a frame just as it was.
            let ends = bodies.iter().scan(hostile::HEADER, |end, body| {
                *end += 20 + body.len();
                Some(*end)
            });
            let ends: Vec<usize> = ends.take_while(|end| file.get(..*end) == whole.get(..*end)).collect();
            let (acknowledged, end) = (ends.len(), ends.last().copied().unwrap_or(hostile::HEADER));
            // Only what holds a frame may be more than a torn tail.
            let more = !tail.is_empty() && file[end..].windows(4).any(|four| four == b"pwfr");
            match hostile::restore(dir) {
                Ok(restored) => {
                    let expected: BTreeMap<String, Vec<u8>> = puts[..acknowledged]
                        .iter()
                        .map(|(key, value)| (name(*key), value.to_vec()))
                        .collect();
                    assert!(
                        more || restored.keys == expected,
                        "acknowledged {expected:?}, read {restored:?}"
                    );
                    assert!(restored.revision >= acknowledged as u64, "a revision would be given out again");
                    assert_eq!(hostile::restore(dir).expect("it was mended"), restored);
                }
                Err(error) => assert!(more, "a torn tail is forgiven, but: {error:?}"),
            }
        }
        Input::Sealed { last, bodies, second } => {
            hostile::write_log(dir, 1, last, &bodies).expect("the file can be written");
            if let Some(bodies) = second {
                hostile::write_log(dir, 2, last, &bodies).expect("the file can be written");
            }
            let before = std::fs::read(&path).expect("the file is there");
            if let Ok(restored) = hostile::restore(dir) {
                let after = std::fs::read(&path).expect("the file is there");
                assert!(after == before, "a frame that had been synced was cut off");
                assert_eq!(hostile::restore(dir).expect("it could be read before"), restored);
            }
        }
    }
});
