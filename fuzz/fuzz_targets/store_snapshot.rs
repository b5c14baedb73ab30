//! Any snapshot of the store: a whole one is read with the log behind it, a damaged one is refused and never read in part.

#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use podwire_store::hostile;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// A sound snapshot with a log behind it; `damage` flips bits of one of its bytes or cuts it there.
    Sound { keys: Vec<(u8, &'a [u8])>, later: Vec<(u8, &'a [u8])>, damage: Option<(u16, u8)> },
    /// Any bodies in sound frames.
    Sealed { revision: u64, snapshot: Vec<Vec<u8>>, last: u64, log: Vec<Vec<u8>> },
}

fuzz_target!(|input: Input<'_>| {
    let folder = podwire_fuzz::folder();
    let dir = folder.path();
    match input {
        Input::Sound { keys, later, damage } => {
            let name = |key: u8| format!("/registry/{}", key % 16);
            let unique: BTreeMap<String, Vec<u8>> =
                keys.iter().map(|(key, value)| (name(*key), value.to_vec())).collect();
            let count = unique.len() as u64;
            let mut bodies: Vec<Vec<u8>> =
                (1..).zip(&unique).map(|(at, (key, value))| hostile::put(at, key, value)).collect();
            bodies.push(hostile::end(count, count));
            hostile::write_snapshot(dir, 3, count, &bodies).expect("the file can be written");
            let log: Vec<Vec<u8>> = (count + 1..)
                .zip(&later)
                .map(|(at, (key, value))| hostile::put(at, &name(*key), value))
                .collect();
            hostile::write_log(dir, 3, count, &log).expect("the file can be written");
            if let Some((at, flip)) = damage {
                let path = dir.join("snapshot-0000000000000003");
                let mut file = std::fs::read(&path).expect("the file is there");
                let at = usize::from(at) % file.len();
                if flip == 0 {
                    file.truncate(at)
                } else {
                    file[at] ^= flip
                }
                std::fs::write(&path, file).expect("the file can be written");
                hostile::restore(dir).expect_err("a damaged snapshot is not read");
                return;
            }
            let mut expected = unique;
            expected.extend(later.iter().map(|(key, value)| (name(*key), value.to_vec())));
            let restored = hostile::restore(dir).expect("a sound snapshot is read");
            assert_eq!((restored.keys, restored.revision), (expected, count + later.len() as u64));
        }
        Input::Sealed { revision, snapshot, last, log } => {
            hostile::write_snapshot(dir, 3, revision, &snapshot).expect("the file can be written");
            hostile::write_log(dir, 3, last, &log).expect("the file can be written");
            if let Ok(restored) = hostile::restore(dir) {
                assert_eq!(hostile::restore(dir).expect("it could be read before"), restored);
            }
        }
    }
});
