//! What the targets share: inputs to begin with, made from the API's own tables.
//!
//! A target hands its first inputs over in its `init` block; `make fuzz` names the folder they go to.

use podwire_api::schema::{Cardinality, Message, Type};
use podwire_api::{Kind, kinds};
use serde_json::{Map, Value, json};

/// The folder for first inputs.
const FOLDER: &str = "PODWIRE_FUZZ_SEEDS";

/// Keeps an input to begin with.
pub fn seed(number: usize, bytes: &[u8]) {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    std::fs::write(std::path::Path::new(&folder).join(format!("seed-{number}")), bytes)
        .expect("the folder of seeds can be written");
}

/// An empty folder, in memory where there is such a place: durability is not what is tried.
pub fn folder() -> tempfile::TempDir {
    let shared = std::path::Path::new("/dev/shm");
    let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    tempfile::tempdir_in(base).expect("a temporary directory")
}

/// Keeps several inputs to begin with.
pub fn seeds<T: AsRef<[u8]>>(all: &[T]) {
    for (number, bytes) in all.iter().enumerate() {
        seed(number, bytes.as_ref());
    }
}

/// What chooses the variant `number` of `count` at the start of an input that is an enum.
pub fn variant(number: u64, count: u64) -> [u8; 4] {
    u32::try_from((number << 32).div_ceil(count)).expect("one of them").to_le_bytes()
}

/// Keeps one input per kind, with the byte in front that chooses the kind.
pub fn seed_kinds(shift: u32, make: impl Fn(&'static Kind) -> Vec<u8>) {
    for (number, kind) in kinds().iter().enumerate() {
        let Ok(first) = u8::try_from(number << shift) else { continue };
        let mut bytes = vec![first];
        bytes.extend(make(kind));
        seed(number, &bytes);
    }
}

/// An object with every field of the message set, down to a depth.
pub fn full(schema: &Message, depth: usize) -> Value {
    let mut map = Map::new();
    for field in schema.fields.iter() {
        let Some(one) = sample(&field.ty, depth) else { continue };
        let value = match field.cardinality {
            Cardinality::One => one,
            Cardinality::List => json!([one]),
            Cardinality::Map => json!({"k": one}),
        };
        map.insert(field.name.to_string(), value);
    }
    Value::Object(map)
}

fn sample(ty: &Type, depth: usize) -> Option<Value> {
    Some(match ty {
        Type::Str => json!("a"),
        Type::Bool => json!(true),
        Type::I32 | Type::I64 => json!(7),
        Type::F64 => json!(1.5),
        Type::Bytes => json!("aGk="),
        Type::Quantity => json!("1500m"),
        Type::IntOrString => json!("25%"),
        Type::Time | Type::MicroTime => json!("2026-11-15T11:22:33Z"),
        Type::Duration => json!("1h"),
        Type::Fields => json!({"f:a": {}}),
        Type::Raw | Type::Json => json!({"n": 1}),
        Type::Strs => json!(["a"]),
        Type::Message(_) | Type::SchemaOr(..) if depth == 0 => return None,
        Type::Message(index) | Type::SchemaOr(index, _) => full(Message::at(*index), depth - 1),
    })
}
