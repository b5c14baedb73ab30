//! Options of lists and watches: where in time they stand, and which page of them is wanted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use podwire_api::Verb;
use podwire_api::validate::{Cause, FieldError};
use serde_json::json;

use super::Call;
use crate::status::{ApiError, Result};

/// Where a list stands in time and how much of it is wanted.
pub(super) struct Page {
    /// At most this many objects.
    pub(super) limit: Option<usize>,
    /// Revision and first key of a further page.
    pub(super) from: Option<(i64, String)>,
    /// The revision asked for.
    pub(super) version: Option<u64>,
    /// Whether it has to be exactly that one.
    pub(super) exact: bool,
}

impl Page {
    /// Reads the options of a list.
    pub(super) fn read(call: &Call) -> Result<Self> {
        let query = &call.query;
        check_options(call)?;
        let limit = query.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        query.number("timeoutSeconds")?;
        let version = resource_version(query.text("resourceVersion"))
            .map_err(|error| ApiError::bad_request(format!("invalid resource version: {}", error.message)))?;
        let mut from = None;
        if let Some(token) = query.text("continue") {
            if version.is_some_and(|version| version > 0) {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            from = Some(decode_token(token)?);
        }
        let exact = query.text("resourceVersionMatch") == Some("Exact")
            || (query.text("resourceVersionMatch").is_none()
                && limit.is_some()
                && version.is_some_and(|v| v > 0));
        Ok(Self { limit, from, version, exact })
    }
}

/// Parses a resource version as clients give them.
pub(crate) fn resource_version(text: Option<&str>) -> Result<Option<u64>> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
        let message = format!("resourceVersion: Invalid value: \"{text}\": {why}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    })
}

fn forbidden(field: &str, why: &str) -> FieldError {
    FieldError { reason: Cause::Forbidden, field: field.into(), message: format!("Forbidden: {why}") }
}

/// The rules about combinations of list and watch options.
pub(crate) fn check_options(call: &Call) -> Result<()> {
    let query = &call.query;
    let (matching, version) = (query.text("resourceVersionMatch"), query.text("resourceVersion"));
    let initial = query.get("sendInitialEvents").is_some();
    let watch = call.verb == Verb::Watch;
    let mut errors = Vec::new();
    if watch {
        if initial && matching != Some("NotOlderThan") {
            errors.push(forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        } else if matching.is_some() && !initial {
            errors.push(forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
    } else {
        if initial {
            errors.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if let Some(matching) = matching {
            let field = "resourceVersionMatch";
            if version.is_none() {
                errors.push(forbidden(
                    field,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if query.text("continue").is_some() {
                errors.push(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                errors.push(FieldError {
                    reason: Cause::NotSupported,
                    field: field.into(),
                    message: format!(
                        "Unsupported value: \"{matching}\": supported values: \"Exact\", \"NotOlderThan\", \"\""
                    ),
                });
            }
            if matching == "Exact" && version == Some("0") {
                errors.push(forbidden(
                    field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid_of("meta.k8s.io", "ListOptions", "", &errors))
    }
}

/// The revision and the first key that a token names.
pub(crate) fn decode_token(token: &str) -> Result<(i64, String)> {
    let bad = |why: &str| {
        ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let raw = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| bad(&illegal(&error)))?;
    let value = podwire_api::strict::decode_json(&raw).map_err(|error| bad(&error.to_string()))?.value;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(bad("server does not recognize this encoded version"));
    }
    let revision = value["rv"].as_i64().filter(|revision| *revision != 0);
    let revision =
        revision.ok_or_else(|| bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))?;
    let start = value["start"].as_str().filter(|start| !start.is_empty() && !start.contains(".."));
    Ok((revision, start.ok_or_else(|| bad("encoded start key empty (version meta.k8s.io/v1)"))?.to_owned()))
}

/// What is wrong with base64, in Go's words.
fn illegal(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) => *at,
        base64::DecodeError::InvalidLastSymbol { offset, .. } => *offset,
        base64::DecodeError::InvalidLength(length) => length.saturating_sub(1),
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

/// The token of the page after `last`.
pub(super) fn encode_token(revision: i64, prefix: &str, last: &str) -> String {
    let start = format!("{}\0", last.strip_prefix(prefix).unwrap_or(last));
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_reads_as_it_was_written_and_nonsense_is_refused() {
        let token = encode_token(7248, "/registry/pods/", "/registry/pods/default/p1-0");
        assert_eq!(decode_token(&token).unwrap(), (7248, "default/p1-0\0".to_owned()));
        for bad in ["%%%", "e30", "bm90IGpzb24", ""] {
            assert_eq!(decode_token(bad).unwrap_err().code, 400, "{bad}");
        }
    }
}
