//! Thin stand-ins until podwire-api has these modules.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
pub mod protobuf {
    use podwire_api::Kind;
    use serde_json::Value;
    pub fn decode_any(_: &[u8]) -> Result<Value, String> {
        Err("no".into())
    }
    pub fn encode(_: &Kind, _: &Value) -> Vec<u8> {
        vec![]
    }
    pub fn encode_raw(_: &Kind, _: &Value) -> Vec<u8> {
        vec![]
    }
    pub fn encode_list<'a>(_: &Kind, _: &Value, _: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        vec![]
    }
    pub fn encode_status(_: &Value) -> Vec<u8> {
        vec![]
    }
    pub fn watch_event(_: &str, _: &[u8]) -> Vec<u8> {
        vec![]
    }
}
pub mod apply {
    use podwire_api::Kind;
    use serde_json::Value;
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Operation {
        Apply,
        Update,
    }
    pub struct Writer<'a> {
        pub manager: &'a str,
        pub operation: Operation,
        pub subresource: &'a str,
        pub time: jiff::Timestamp,
    }
    pub struct Conflict {
        pub manager: String,
        pub field: String,
    }
    pub enum ApplyError {
        Conflicts(Vec<Conflict>),
        Invalid(String),
    }
    pub fn track_update(_: &Kind, _: Option<&Value>, _: &mut Value, _: &Writer<'_>) {}
    pub fn server_side(
        _: &Kind,
        _: Option<&Value>,
        _: &Value,
        _: &Writer<'_>,
        _: bool,
    ) -> Result<Value, ApplyError> {
        Err(ApplyError::Invalid("no".into()))
    }
}
pub mod convert {
    use serde_json::Value;
    pub fn event_to_core(_: &mut Value) {}
    pub fn event_from_core(_: &mut Value) {}
}
