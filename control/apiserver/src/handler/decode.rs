//! From the bytes of a body to an object of the expected kind, or upstream's words about why not.

use bytes::Bytes;
use podwire_api::protobuf::{self, ProtobufError};
use podwire_api::strict::{self, DecodeError};
use podwire_api::{Kind, Registry};
use serde_json::{Value, json};

use super::Call;
use super::options::FieldValidation;
use crate::negotiate::{self, Encoding};
use crate::status::{ApiError, Result};

/// The type upstream reads version and kind with, as its errors print it.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Aliases may make this many values of a few, which is where upstream begins to count; it then allows less.
const ALIASED: usize = 400_000;
/// Brackets in YAML nest this deep and no deeper: its scanner looks through all open ones at every token.
const BRACKETS: usize = 1000;

/// A body as data, and whether fields were in it twice.
fn parse(encoding: Encoding, kind: &Kind, bytes: &Bytes) -> Result<(Value, bool)> {
    let unreadable = |why: &dyn std::fmt::Display| {
        let (kind, start) = (&kind.kind, summary(bytes));
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({start})"
        ))
    };
    match encoding {
        Encoding::Json => {
            let decoded = strict::decode_json(bytes).map_err(|error| match error {
                DecodeError::TooLarge => too_large(&error),
                error => unreadable(&format!("couldn't get version/kind; json parse error: {error}")),
            })?;
            Ok((decoded.value, decoded.has_duplicates))
        }
        Encoding::Yaml => match yaml(bytes) {
            Ok(value) => Ok((value, false)),
            Err(why) => Err(unreadable(&why)),
        },
        Encoding::Protobuf => match protobuf::decode_any(bytes) {
            Ok(value) => Ok((value, false)),
            Err(error @ ProtobufError::TooLarge) => Err(too_large(&error)),
            Err(error) => Err(unreadable(&error)),
        },
    }
}

/// 413 about what a body would become.
pub(crate) fn too_large(why: &dyn std::fmt::Display) -> ApiError {
    let message = format!("Request entity too large: {why}");
    ApiError::new(http::StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
}

/// A YAML text as data, or why not; what aliases make of it is bounded.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    // What kubectl applies is JSON, and that is read sooner.
    if bytes.trim_ascii_start().starts_with(b"{")
        && let Ok(decoded) = strict::decode_json(bytes)
    {
        return Ok(decoded.value);
    }
    let (mut open, mut deepest) = (0_usize, 0);
    for byte in bytes {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    // Texts in it may have any number of brackets; those of a manifest do not.
    if deepest > BRACKETS {
        return Err(format!("yaml: {}", strict::TOO_DEEP));
    }
    let deserializer = serde_yaml_ng::Deserializer::from_slice(bytes);
    strict::decode_from(deserializer, ALIASED + bytes.len()).map_err(|error| yaml_error(&error))
}

/// What a YAML parser complains about, without its position, which upstream's words lack.
fn yaml_error(error: &serde_yaml_ng::Error) -> String {
    let text = error.to_string();
    let limits = [
        (strict::TOO_DEEP, strict::TOO_DEEP),
        (strict::TOO_LARGE, strict::TOO_LARGE),
        (strict::TOO_MANY, strict::TOO_MANY),
        ("recursion limit exceeded", strict::TOO_DEEP),
        ("repetition limit exceeded", strict::TOO_MANY),
    ];
    if let Some((_, words)) = limits.into_iter().find(|(sign, _)| text.contains(sign)) {
        return format!("yaml: {words}");
    }
    let end = [" at line", ", while"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    format!("yaml: {}", &text[..end])
}

/// What upstream says of JSON that has to be an object and is none.
pub(crate) fn no_object(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type {TYPE_META}", go_type(value))
}

/// How Go names the type of a JSON value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn summary(bytes: &[u8]) -> String {
    const MOST: usize = 30;
    let more = if bytes.len() > MOST { " ..." } else { "" };
    let start = &bytes[..bytes.len().min(MOST)];
    match start.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

/// Decodes a body that has to be an object of `kind`; the names of unknown fields become warnings.
pub(crate) fn object(
    call: &mut Call,
    kind: &Kind,
    bytes: &Bytes,
    validation: FieldValidation,
) -> Result<Value> {
    let encoding = negotiate::body_encoding(&call.parts.headers)?;
    let (mut value, has_duplicates) = parse(encoding, kind, bytes)?;
    if value.is_null() {
        value = json!({});
    }
    if !value.is_object() {
        let (kind, start) = (&kind.kind, summary(bytes));
        let why = no_object(&value);
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): \
             couldn't get version/kind; json parse error: {why} ({start})"
        )));
    }
    if kind.schema.is_structural() {
        check_custom_type(kind, &value, bytes)?;
    } else {
        check_type(&call.context.kinds.now().registry, kind, &mut value)?;
    }
    let unfit = |why: &dyn std::fmt::Display| {
        let (kind, version) = (&kind.kind, &kind.version);
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let mut complaints = strict::conform(kind, &mut value).map_err(|error| unfit(&error))?;
    if kind.schema.is_structural() {
        // What is there twice is told before what nobody knows.
        let twice = if has_duplicates { strict::duplicates(bytes) } else { Vec::new() };
        complaints.splice(0..0, twice);
    } else if encoding == Encoding::Json && (has_duplicates || complaints.len() > 1) {
        // Upstream complains in the order of the text, which an object does not keep.
        complaints = strict::complaints(&kind.schema, bytes);
    }
    match validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(unfit(&format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Warn => {
            call.warnings.extend(complaints);
            Ok(value)
        }
        _ => Ok(value),
    }
}

/// Fills in or compares `apiVersion` and `kind`.
fn check_type(kinds: &Registry, kind: &Kind, value: &mut Value) -> Result<()> {
    let expected = kind.api_version();
    let version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
    let name = value["kind"].as_str().unwrap_or_default().to_owned();
    let (group, number) =
        podwire_api::split_api_version(if version.is_empty() { &expected } else { &version });
    let known = kinds.by_gvk(group, number, if name.is_empty() { &kind.kind } else { &name }).is_some();
    let want = &*kind.kind;
    let unnamed = version.is_empty() && name.is_empty();
    if !known && !unnamed {
        let (name, version) = (if name.is_empty() { want } else { &name }, format_version(group, number));
        return Err(ApiError::bad_request(format!(
            "{name} in version \"{number}\" cannot be handled as a {want}: no kind \"{name}\" is registered for \
             version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    if !version.is_empty() && version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if !name.is_empty() && name != want {
        let why =
            format!("converting ({number}.{name}) to ({}.{want}): unknown conversion", go_package(group));
        return Err(ApiError::bad_request(format!(
            "{name} in version \"{number}\" cannot be handled as a {want}: {why}"
        )));
    }
    value["apiVersion"] = expected.into();
    value["kind"] = want.into();
    Ok(())
}

/// An object whose kind was defined at run time has to say what it is; whether it says the right kind is asked by
/// validation.
fn check_custom_type(kind: &Kind, value: &Value, bytes: &[u8]) -> Result<()> {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    let missing = |what: &str| {
        let shown = String::from_utf8_lossy(bytes);
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object '{what}' is missing in '{}' ({})",
            kind.kind,
            shown.trim_end(),
            summary(bytes)
        ))
    };
    if text("kind").is_empty() {
        return Err(missing("Kind"));
    }
    if text("apiVersion").is_empty() {
        return Err(missing("apiVersion"));
    }
    let (version, expected) = (text("apiVersion"), kind.api_version());
    if version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    Ok(())
}

fn format_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn go_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) }
}

/// Decodes a body whose shape is looked at field by field (options, reviews).
pub(crate) fn loose(call: &Call, bytes: &Bytes) -> Result<Value> {
    let encoding = negotiate::body_encoding(&call.parts.headers)?;
    let failed =
        |why: String| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
    let value: Value = match encoding {
        Encoding::Json => match strict::decode_json(bytes) {
            Ok(decoded) => decoded.value,
            Err(error @ DecodeError::TooLarge) => return Err(too_large(&error)),
            Err(error) => return Err(failed(error.to_string())),
        },
        Encoding::Yaml => yaml(bytes).map_err(failed)?,
        Encoding::Protobuf => match protobuf::decode_any(bytes) {
            Ok(value) => value,
            Err(error @ ProtobufError::TooLarge) => return Err(too_large(&error)),
            Err(error) => return Err(failed(error.to_string())),
        },
    };
    if value.is_object() { Ok(value) } else { Err(failed("the body is not an object".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_make_no_more_than_a_body_could_hold() {
        let list = |of: &str, length: usize| format!("[{}]", vec![of; length].join(","));
        // Nine levels of nine: half a billion values from a few hundred bytes.
        let mut laughs = format!("a0: &a0 {}\n", list("lol", 9));
        for level in 1..9 {
            laughs += &format!("a{level}: &a{level} {}\n", list(&format!("*a{}", level - 1), 9));
        }
        assert_eq!(yaml(laughs.as_bytes()).unwrap_err(), "yaml: document contains excessive aliasing");
        let text = format!("a: &a {}\nb: {}\n", "x".repeat(1 << 20), list("*a", 1000));
        assert_eq!(yaml(text.as_bytes()).unwrap_err(), "yaml: the object takes too much memory");
        let fair = "a: &a {b: c}\nd: [*a, *a]\n";
        assert_eq!(yaml(fair.as_bytes()).unwrap(), json!({"a": {"b": "c"}, "d": [{"b": "c"}, {"b": "c"}]}));
    }

    #[test]
    fn yaml_nests_as_deep_as_json_and_no_deeper() {
        let flow = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        yaml(flow(strict::DEEPEST).as_bytes()).unwrap();
        for text in [flow(strict::DEEPEST + 1), "- ".repeat(100_000), flow(500_000), "{".repeat(1 << 20)] {
            let why = yaml(text.as_bytes()).unwrap_err();
            assert_eq!(why, "yaml: exceeded max depth", "{}", &text[..8]);
        }
        assert_eq!(yaml(b"").unwrap(), Value::Null);
    }
}
