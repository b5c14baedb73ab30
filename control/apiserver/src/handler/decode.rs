//! From the bytes of a body to an object of the expected kind, or upstream's words about why not.

use bytes::Bytes;
use podwire_api::protobuf;
use podwire_api::{Kind, strict};
use serde_json::Value;

use super::Call;
use super::options::FieldValidation;
use crate::negotiate::{self, Encoding};
use crate::status::{ApiError, Result};

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
            Err(error) => Err(unreadable(&format!("error converting YAML to JSON: yaml: {error}"))),
        },
        Encoding::Protobuf => match protobuf::decode_any(bytes) {
            Ok(value) => Ok((value, Vec::new())),
            Err(error) => Err(unreadable(&error)),
        },
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
    if !value.is_object() {
        let start = summary(bytes);
        let why = "couldn't get version/kind; json parse error: json: cannot unmarshal a value into Go value of type struct";
        let message =
            format!("the object provided is unrecognized (must be of type {}): {why} ({start})", kind.kind);
        return Err(ApiError::bad_request(message));
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
    if !version.is_empty() && version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    if !name.is_empty() && name != kind.kind {
        let (group, version, want) = (kind.group, kind.version, kind.kind);
        let why = if podwire_api::by_gvk(group, version, &name).is_some() {
            format!("converting ({version}.{name}) to ({}.{want}): unknown conversion", go_package(group))
        } else {
            format!(
                "no kind \"{name}\" is registered for version \"{expected}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            )
        };
        return Err(ApiError::bad_request(format!(
            "{name} in version \"{version}\" cannot be handled as a {want}: {why}"
        )));
    }
    value["apiVersion"] = expected.into();
    value["kind"] = kind.kind.into();
    Ok(())
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
        Encoding::Json => serde_json::from_slice(bytes).map_err(|error| failed(error.to_string()))?,
        Encoding::Yaml => serde_yaml_ng::from_slice(bytes).map_err(|error| failed(error.to_string()))?,
        Encoding::Protobuf => protobuf::decode_any(bytes).map_err(|error| failed(error.to_string()))?,
    };
    if value.is_object() { Ok(value) } else { Err(failed("the body is not an object".into())) }
}
