//! Patches: JSON, merge, strategic merge, and server-side apply.

use bytes::Bytes;
use http::StatusCode;
use podwire_api::apply;
use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Kind, patch, strict};
use serde_json::Value;

use super::create::{self, Insert, Inserted};
use super::options::{FieldValidation, WriteOptions};
use super::update::{self, Change, Changed, Extent};
use super::{Call, decode, render};
use crate::body::Response;
use crate::negotiate;
use crate::status::{ApiError, Result};

/// The kinds of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// Changes an object by a patch.
pub(crate) async fn patch(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let format = match negotiate::body_media(&call.parts.headers) {
        "application/json-patch+json" => Format::Json,
        "application/merge-patch+json" => Format::Merge,
        // A structural schema says nothing about how lists merge in such a patch.
        "application/strategic-merge-patch+json" if !call.kind.schema.is_structural() => Format::Strategic,
        "application/apply-patch+yaml" => Format::Apply,
        _ if call.kind.schema.is_structural() => {
            return Err(ApiError::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        _ => {
            let (code, message) = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type");
            return Err(ApiError::new(code, "UnsupportedMediaType", message).generic());
        }
    };
    let options = WriteOptions::read(call, "PatchOptions")?;
    check_force(call, format, &options)?;
    let bytes = call.bytes().await?;
    let body = parse(format, &bytes)?;
    if format == Format::Apply {
        return apply_patch(call, rep, &options, body).await;
    }
    let kind = &call.kind.clone();
    let mut warnings = Vec::new();
    let part = Extent::of(call.part);
    let (name, namespace) = (call.name().to_owned(), call.namespace().to_owned());
    let change = Change::of(call, &options, part, true);
    let changed = change
        .run(|old| {
            warnings.clear();
            let new = patched(kind, format, old, &body, options.validation, &mut warnings)?;
            check_identity(kind, &name, &namespace, &new)?;
            if part == Extent::Main {
                warnings.extend(kind.strategy.unenforced(kind, &new));
            }
            Ok(new)
        })
        .await?;
    call.warnings.append(&mut warnings);
    update::respond(call, rep, changed).await
}

fn check_force(call: &Call, format: Format, options: &WriteOptions) -> Result<()> {
    let problem = |field: &str, cause, message: &str| {
        let error = FieldError { reason: cause, field: field.into(), message: message.into() };
        Err(ApiError::invalid_of("meta.k8s.io", "PatchOptions", "", &[error]))
    };
    if format == Format::Apply && !options.manager_given {
        return problem("fieldManager", Cause::Required, "Required value: is required for apply patch");
    }
    if format != Format::Apply && call.query.get("force").is_some() {
        return problem("force", Cause::Forbidden, "Forbidden: may not be specified for non-apply patch");
    }
    Ok(())
}

fn parse(format: Format, bytes: &Bytes) -> Result<Value> {
    if format == Format::Apply {
        return decode::yaml(bytes).map_err(|why| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"))
        });
    }
    let value = json(bytes)?;
    let found = decode::go_type(&value);
    match format {
        Format::Json if !value.is_array() => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        ))),
        Format::Strategic if !value.is_object() => Err(ApiError::bad_request(format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ))),
        Format::Merge if !value.is_object() => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ))),
        _ => Ok(value),
    }
}

/// A patch in JSON as data.
pub(crate) fn json(bytes: &Bytes) -> Result<Value> {
    strict::decode_json(bytes).map(|decoded| decoded.value).map_err(|error| match error {
        strict::DecodeError::TooLarge => decode::too_large(&error),
        error => ApiError::bad_request(format!("error decoding patch: {error}")),
    })
}

/// 413, 422 or what else a patch that was not applied comes to.
pub(crate) fn refused(error: patch::PatchError) -> ApiError {
    match error {
        patch::PatchError::BadRequest(text) => ApiError::bad_request(text),
        patch::PatchError::Unprocessable(text) => {
            tracing::debug!(why = text, "a patch does not apply");
            ApiError::unprocessable()
        }
        patch::PatchError::Internal(text) => ApiError::internal(text),
        error @ (patch::PatchError::TooLarge { .. } | patch::PatchError::TooMuch { .. }) => {
            decode::too_large(&error)
        }
    }
}

/// The old object with a patch applied, in Kubernetes' shape.
fn patched(
    kind: &Kind,
    format: Format,
    old: &Value,
    body: &Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let mut new = old.clone();
    let result = match format {
        Format::Json => patch::json(&mut new, body),
        Format::Merge => patch::merge(&mut new, body),
        Format::Strategic | Format::Apply => patch::strategic(kind, &mut new, body),
    };
    result.map_err(refused)?;
    let shown = if format == Format::Strategic { go_value(body) } else { new.to_string() };
    let unfit = |why: String| {
        let error = FieldError {
            reason: Cause::Invalid,
            field: "patch".into(),
            message: format!("Invalid value: {}: {why}", Value::from(shown.as_str())),
        };
        ApiError::invalid_of("", "", "", &[error])
    };
    if !new.is_object() {
        return Err(unfit("json: cannot unmarshal into the object".into()));
    }
    if new["kind"] != *kind.kind || new["apiVersion"] != *kind.api_version() {
        return Err(unfit(format!(
            "unable to decode {}/{} into {}",
            new["apiVersion"].as_str().unwrap_or_default(),
            new["kind"].as_str().unwrap_or_default(),
            kind.kind
        )));
    }
    let unknown = strict::conform(kind, &mut new).map_err(|error| unfit(error.to_string()))?;
    match validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            return Err(unfit(format!("strict decoding error: {}", unknown.join(", "))));
        }
        FieldValidation::Warn => warnings.extend(unknown),
        _ => {}
    }
    Ok(new)
}

/// A value as Go prints it, which is how upstream shows a patch in errors.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let members: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}

fn check_identity(kind: &Kind, name: &str, namespace: &str, new: &Value) -> Result<()> {
    let given = new["metadata"]["name"].as_str().unwrap_or_default();
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = new["metadata"]["namespace"].as_str().unwrap_or_default();
    if kind.namespaced && given != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the request ({namespace})"
        )));
    }
    Ok(())
}

/// Server-side apply: creates what is missing, merges what is there, minds who owns which field.
async fn apply_patch(
    call: &mut Call,
    rep: negotiate::Representation,
    options: &WriteOptions,
    mut body: Value,
) -> Result<Response> {
    let told = call.warnings.len();
    prepare_applied(call, options, &mut body)?;
    if call.part.is_none() {
        call.warnings.extend(call.kind.strategy.unenforced(&call.kind, &body));
    }
    // Only told when the object could be merged, unlike those of a body that is decoded as a whole.
    let mut warnings = call.warnings.split_off(told);
    let response = merge_applied(call, rep, options, &body).await?;
    call.warnings.append(&mut warnings);
    Ok(response)
}

async fn merge_applied(
    call: &Call,
    rep: negotiate::Representation,
    options: &WriteOptions,
    body: &Value,
) -> Result<Response> {
    let kind = &call.kind.clone();
    let force = call.query.flag("force");
    let extent = Extent::of(call.part);
    let manager = options.manager.clone();
    let merge = |live: Option<&Value>| {
        patch::check_work(live.unwrap_or(&Value::Null), body).map_err(refused)?;
        let writer = apply::Writer {
            manager: &manager,
            operation: apply::Operation::Apply,
            subresource: extent.subresource(),
            time: jiff::Timestamp::now(),
        };
        apply::server_side(kind, live, body, &writer, force).map_err(apply_error)
    };
    for _ in 0..2 {
        let mut change = Change::of(call, options, extent, true);
        change.untracked = true;
        match change.run(|live| merge(Some(live))).await {
            Err(error) if error.code == StatusCode::NOT_FOUND && extent == Extent::Main => {}
            other => return update::respond(call, rep, other?).await,
        }
        if body["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()) {
            return Err(ApiError::conflict(
                kind,
                call.name(),
                "uid mismatch: the provided object specified uid, and no existing object was found",
            ));
        }
        let insert = Insert {
            context: &call.context,
            identity: &call.identity,
            kind,
            options,
            operation: apply::Operation::Apply,
        };
        update::may_create(call)?;
        let mut fresh = merge(None)?;
        create::check_namespace(kind, call.namespace(), &mut fresh)?;
        match insert.run(fresh).await {
            Ok(Inserted::Stored(kv)) => return render::stored(call, StatusCode::CREATED, rep, kv).await,
            Ok(Inserted::Dry(object)) => return Ok(render::object(call, StatusCode::CREATED, rep, object)),
            // Somebody created it in between: merge with that.
            Err(error) if error.reason == "AlreadyExists" => {}
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::modified(kind, call.name()))
}

/// Server-side apply of a scale: whoever applies it owns the number of replicas behind it, and nothing else.
pub(super) async fn apply_scale(call: &Call, options: &WriteOptions, bytes: &Bytes) -> Result<Changed> {
    check_force(call, Format::Apply, options)?;
    let scale = parse(Format::Apply, bytes)?;
    let kind = &call.kind.clone();
    let config = super::scale::configuration(kind, call.name(), &scale)?;
    let extent = Extent::of(call.part);
    let mut change = Change::of(call, options, extent, true);
    change.untracked = true;
    let merge = |live: &Value| {
        let writer = apply::Writer {
            manager: &options.manager,
            operation: apply::Operation::Apply,
            subresource: extent.subresource(),
            time: jiff::Timestamp::now(),
        };
        apply::server_side(kind, Some(live), &config, &writer, call.query.flag("force")).map_err(apply_error)
    };
    change.run(merge).await
}

/// Checks an applied configuration and fills in what the URL says.
fn prepare_applied(call: &mut Call, options: &WriteOptions, body: &mut Value) -> Result<()> {
    let kind = &call.kind.clone();
    if !body.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: the patch is not an object"));
    }
    let given = |key: &str| body[key].as_str().unwrap_or_default();
    if given("apiVersion") != kind.api_version() || given("kind") != kind.kind {
        let (group, version) = podwire_api::split_api_version(given("apiVersion"));
        let message = format!("invalid object type: {group}/{version}, Kind={}", given("kind"));
        return Err(ApiError::bad_request(message));
    }
    if !body["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let unfit = |why: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("failed to create typed patch object: {why}"))
    };
    // Only a copy is brought into shape: what was not written must not become the applier's.
    let unknown = strict::conform(kind, &mut body.clone()).map_err(|error| unfit(&error))?;
    match options.validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            return Err(ApiError::bad_request(format!("strict decoding error: {}", unknown.join(", "))));
        }
        FieldValidation::Warn => call.warnings.extend(unknown),
        _ => {}
    }
    if body["metadata"]["name"].is_null() {
        body["metadata"]["name"] = call.name().into();
    }
    let mut located = body.clone();
    create::check_namespace(kind, call.namespace(), &mut located)?;
    check_identity(kind, call.name(), call.namespace(), &located)
}

fn apply_error(error: apply::ApplyError) -> ApiError {
    let text = error.to_string();
    match error {
        apply::ApplyError::Conflicts(conflicts) => {
            let status = ApiError::new(StatusCode::CONFLICT, "Conflict", text);
            conflicts.iter().fold(status, |status, conflict| {
                let message = format!("conflict with {}", conflict.manager);
                status.cause("FieldManagerConflict", &message, &conflict.field)
            })
        }
        apply::ApplyError::BadRequest(text) => ApiError::bad_request(text),
        apply::ApplyError::Typed(text) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_print_as_in_go() {
        assert_eq!(go_value(&json!({"spec": {"a": [1, "x"], "b": null}})), "map[spec:map[a:[1 x] b:<nil>]]");
    }
}
