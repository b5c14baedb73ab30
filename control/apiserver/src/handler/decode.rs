//! From the bytes of a body to an object of the expected kind, or upstream's words about why not.

use bytes::Bytes;
use podwire_api::protobuf;
use podwire_api::{Kind, strict};
use serde_json::{Value, json};

use super::Call;
use super::options::FieldValidation;
use crate::negotiate::{self, Encoding};
use crate::status::{ApiError, Result};

/// The type upstream reads version and kind with, as its errors print it.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// A body as data, and fields it had twice.
fn parse(encoding: Encoding, kind: &Kind, bytes: &Bytes) -> Result<(Value, Vec<String>)> {
    let unreadable = |why: &dyn std::fmt::Display| {
        let (kind, start) = (kind.kind, summary(bytes));
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({start})"
        ))
    };
    match encoding {
        Encoding::Json => {
            let decoded = strict::decode_json(bytes).map_err(|error| {
                unreadable(&format!("couldn't get version/kind; json parse error: {error}"))
            })?;
            Ok((decoded.value, decoded.duplicates))
        }
        Encoding::Yaml => match serde_yaml_ng::from_slice(bytes) {
            Ok(value) => Ok((value, Vec::new())),
            Err(error) => Err(unreadable(&yaml_error(&error))),
        },
        Encoding::Protobuf => match protobuf::decode_any(bytes) {
            Ok(value) => Ok((value, Vec::new())),
            Err(error) => Err(unreadable(&error)),
        },
    }
}

/// What a YAML parser complains about, without its position, which upstream's words lack.
pub(crate) fn yaml_error(error: &serde_yaml_ng::Error) -> String {
    let text = error.to_string();
    let end = [" at line", ", while"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    format!("yaml: {}", &text[..end])
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
    kind: &'static Kind,
    bytes: &Bytes,
    validation: FieldValidation,
) -> Result<Value> {
    let encoding = negotiate::body_encoding(&call.parts.headers)?;
    let (mut value, mut complaints) = parse(encoding, kind, bytes)?;
    if value.is_null() {
        value = json!({});
    }
    if !value.is_object() {
        let (kind, start) = (kind.kind, summary(bytes));
        let why = format!("cannot unmarshal {} into Go value of type {TYPE_META}", go_type(&value));
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): \
             couldn't get version/kind; json parse error: json: {why} ({start})"
        )));
    }
    check_type(kind, &mut value)?;
    let unfit = |why: &dyn std::fmt::Display| {
        let (kind, version) = (kind.kind, kind.version);
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    };
    let unknown = strict::conform(kind, &mut value).map_err(|error| unfit(&error))?;
    complaints.extend(unknown);
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
fn check_type(kind: &Kind, value: &mut Value) -> Result<()> {
    let expected = kind.api_version();
    let version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
    let name = value["kind"].as_str().unwrap_or_default().to_owned();
    let (group, number) =
        podwire_api::split_api_version(if version.is_empty() { &expected } else { &version });
    let known = podwire_api::by_gvk(group, number, if name.is_empty() { kind.kind } else { &name }).is_some();
    let want = kind.kind;
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
    value["kind"] = kind.kind.into();
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
        Encoding::Json => strict::decode_json(bytes).map_err(|error| failed(error.to_string()))?.value,
        Encoding::Yaml => serde_yaml_ng::from_slice(bytes).map_err(|error| failed(yaml_error(&error)))?,
        Encoding::Protobuf => protobuf::decode_any(bytes).map_err(|error| failed(error.to_string()))?,
    };
    if value.is_object() { Ok(value) } else { Err(failed("the body is not an object".into())) }
}
