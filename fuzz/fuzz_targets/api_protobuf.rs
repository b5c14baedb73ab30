//! Any bytes as a protobuf body: decoding must not panic, and what it understood must survive a round trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_api::{kinds, protobuf};

fuzz_target!(init: {
    podwire_fuzz::seed_kinds(0, |kind| protobuf::encode_message(&kind.schema, &podwire_fuzz::full(&kind.schema, 3)));
}, |data: &[u8]| {
    drop((protobuf::decode_any(data), protobuf::envelope_kind(data)));
    let Some((first, raw)) = data.split_first() else { return };
    let kind = &kinds()[usize::from(*first) % kinds().len()];
    drop(protobuf::decode(kind, raw));
    let Ok(value) = protobuf::decode_message(&kind.schema, raw) else { return };
    let again = protobuf::decode_message(&kind.schema, &protobuf::encode_message(&kind.schema, &value))
        .expect("what was encoded can be decoded");
    assert_eq!(again, value, "a round trip loses nothing");
});
