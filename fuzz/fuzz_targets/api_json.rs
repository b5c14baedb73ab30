//! Any bytes as the JSON body of a write: decoding, defaulting, validation and every way out must not panic.
//!
//! The first byte chooses the kind. What conforms must conform again unchanged, and must survive protobuf.

#![no_main]

use libfuzzer_sys::fuzz_target;
use podwire_api::{Part, defaults, fields, kinds, protobuf, strategy, strict, table, validate, warnings};
use serde_json::Value;

/// The value without the type of each object: Go does not put it on the wire.
fn untyped(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(name, _)| name != "apiVersion" && name != "kind");
            fields.map(|(name, value)| (name, untyped(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(untyped).collect(),
        other => other,
    }
}

fuzz_target!(init: {
    podwire_fuzz::seed_kinds(0, |kind| podwire_fuzz::full(&kind.schema, 3).to_string().into_bytes());
}, |data: &[u8]| {
    let Some((first, body)) = data.split_first() else { return };
    let kind = &kinds()[usize::from(*first) % kinds().len()];
    let Ok(decoded) = strict::decode_json(body) else { return };
    let mut object = decoded.value;
    if !object.is_object() || strict::conform(kind, &mut object).is_err() {
        return;
    }
    let once = object.clone();
    assert_eq!(strict::conform(kind, &mut object), Ok(Vec::new()), "what conforms has no unknown field");
    assert_eq!(object, once, "conforming twice changes nothing");
    let back = protobuf::decode_message(&kind.schema, &protobuf::encode_message(&kind.schema, &object))
        .expect("what was encoded can be decoded");
    assert_eq!(untyped(back), untyped(object.clone()), "protobuf loses nothing");
    defaults::apply(kind, &mut object);
    strategy::prepare_create(kind, &mut object);
    drop((validate::create(kind, &object), warnings::on_create(kind, &object)));
    let mut later = object.clone();
    strategy::prepare_update(kind, &mut later, &once);
    drop((validate::update(kind, &later, &once), validate::update_part(kind, Part::Status, &later, &once)));
    drop((fields::selectable(kind, &object), table::row(kind, &object, Default::default())));
});
