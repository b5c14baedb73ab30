//! The `scale` subresource: the number of replicas behind one shape for all workloads.

use http::StatusCode;
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::update::{Change, Changed, Extent};
use super::{Call, decode};
use crate::body::{self, Response};
use crate::context;
use crate::negotiate;
use crate::status::{ApiError, Result};
use podwire_api::selector::LabelSelector;
use podwire_api::strategy::ScalePaths;
use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Kind, Part, Verb, patch};

/// Reads or changes the scale of a workload.
pub(crate) async fn answer(call: &mut Call) -> Result<Response> {
    if call.verb == Verb::Get {
        let object = call.context.object(&call.kind, call.namespace(), call.name()).await?;
        return Ok(body::json(StatusCode::OK, &scale_of(&call.kind, &object, true)?));
    }
    let media = negotiate::body_media(&call.parts.headers).to_owned();
    let verb = call.verb;
    let applied = verb == Verb::Patch && media == "application/apply-patch+yaml";
    let options = WriteOptions::read(call, if applied { "PatchOptions" } else { "UpdateOptions" })?;
    let bytes = call.bytes().await?;
    let changed = if applied {
        super::patch::apply_scale(call, &options, &bytes).await?
    } else {
        let body = match verb {
            Verb::Patch => super::patch::json(&bytes)?,
            _ => decode::loose(call, &bytes)?,
        };
        let change = Change::of(call, &options, Extent::Part(Part::Scale), true);
        change.run(|old| scaled(&change, old, verb, &media, &body)).await?
    };
    let object = match changed {
        Changed::Stored(kv) => context::read(&call.kind, &call.context.served(&call.kind, kv).await?)?,
        Changed::Object(object) => object,
    };
    Ok(body::json(StatusCode::OK, &scale_of(&call.kind, &object, false)?))
}

/// The object with the replicas a scale body or patch asks for.
fn scaled(change: &Change<'_>, old: &Value, verb: Verb, media: &str, body: &Value) -> Result<Value> {
    let mut scale = scale_of(change.kind, old, false)?;
    if verb == Verb::Patch {
        let result = match media {
            "application/json-patch+json" => patch::json(&mut scale, body),
            "application/merge-patch+json" => patch::merge(&mut scale, body),
            "application/strategic-merge-patch+json" if !change.kind.schema.is_structural() => {
                patch::merge(&mut scale, body)
            }
            _ => {
                return Err(ApiError::unsupported_media(
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ));
            }
        };
        result.map_err(super::patch::refused)?;
    } else {
        scale = body.clone();
    }
    let asked = scale["spec"]["replicas"].as_i64();
    let paths = change.kind.strategy.scale();
    if let (Some(paths), None) = (paths, asked.or(replicas_at(old, paths))) {
        let path = &paths.spec_replicas;
        return Err(ApiError::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
    }
    let replicas = asked.unwrap_or(0);
    check_replicas(change.kind, change.name, replicas)?;
    let mut new = old.clone();
    set_replicas(change.kind, &mut new, replicas.into());
    if let Some(version) = scale["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty())
    {
        new["metadata"]["resourceVersion"] = version.into();
    }
    Ok(new)
}

fn check_replicas(kind: &Kind, name: &str, replicas: i64) -> Result<()> {
    // What has its replicas elsewhere has rules for them of its own.
    if replicas >= 0 || kind.strategy.scale().is_some() {
        return Ok(());
    }
    let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
    let error = FieldError { reason: Cause::Invalid, field: "spec.replicas".into(), message };
    Err(ApiError::invalid_of("autoscaling", "Scale", name, &[error]))
}

/// What an applied scale says of the object behind it.
pub(super) fn configuration(kind: &Kind, name: &str, scale: &Value) -> Result<Value> {
    let given = |key: &str| scale[key].as_str().unwrap_or_default();
    if given("apiVersion") != "autoscaling/v1" || given("kind") != "Scale" {
        let (group, version) = podwire_api::split_api_version(given("apiVersion"));
        let message = format!("invalid object type: {group}/{version}, Kind={}", given("kind"));
        return Err(ApiError::bad_request(message));
    }
    if !scale["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(given) = scale["metadata"]["name"].as_str().filter(|given| *given != name) {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let metadata = json!({"name": name});
    let mut config = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata});
    match &scale["spec"]["replicas"] {
        Value::Null => {}
        asked => {
            let unfit = || {
                ApiError::bad_request("failed to create typed patch object: .spec.replicas: expected numeric")
            };
            let replicas = asked.as_i64().ok_or_else(unfit)?;
            check_replicas(kind, name, replicas)?;
            set_replicas(kind, &mut config, replicas.into());
        }
    }
    for key in ["resourceVersion", "uid"] {
        if scale["metadata"][key].is_string() {
            config["metadata"][key] = scale["metadata"][key].clone();
        }
    }
    Ok(config)
}

/// The value at a path of names such as `.spec.replicas`.
fn at<'v>(object: &'v Value, path: &str) -> &'v Value {
    path.trim_start_matches('.').split('.').fold(object, |at, name| &at[name])
}

fn replicas_at(object: &Value, paths: Option<&ScalePaths>) -> Option<i64> {
    paths.and_then(|paths| at(object, &paths.spec_replicas).as_i64())
}

/// Sets a value at a path; what is in the way and is no object stays, for validation to complain about.
fn set_at(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for name in path.trim_start_matches('.').split('.') {
        if place.is_null() {
            *place = json!({});
        }
        if !place.is_object() {
            return;
        }
        place = &mut place[name];
    }
    *place = value;
}

/// Sets how many replicas an object wants.
pub(crate) fn set_replicas(kind: &Kind, object: &mut Value, replicas: Value) {
    match kind.strategy.scale() {
        Some(paths) => set_at(object, &paths.spec_replicas, replicas),
        None => object["spec"]["replicas"] = replicas,
    }
}

/// The scale of an object, whatever it says.
pub(crate) fn scale_as_it_is(kind: &Kind, object: &Value) -> Value {
    let Some(paths) = kind.strategy.scale() else { return usual_scale(object) };
    let mut out = usual_scale(&json!({
        "metadata": object["metadata"], "spec": {"replicas": replicas_at(object, Some(paths))},
        "status": {"replicas": at(object, &paths.status_replicas)},
    }));
    if let Some(text) = at(object, &paths.label_selector).as_str().filter(|text| !text.is_empty()) {
        out["status"]["selector"] = text.into();
    }
    out
}

/// The scale of an object. One that does not say how many replicas it wants has none that could be read.
fn scale_of(kind: &Kind, object: &Value, read: bool) -> Result<Value> {
    let paths = kind.strategy.scale();
    if let Some(paths) = paths.filter(|_| read && replicas_at(object, paths).is_none()) {
        let path = &paths.spec_replicas;
        return Err(ApiError::internal(format!("the spec replicas field {path:?} does not exist")));
    }
    Ok(scale_as_it_is(kind, object))
}

fn usual_scale(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut out = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {}, "status": {"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)},
    });
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|replicas| *replicas != 0) {
        out["spec"]["replicas"] = replicas.into();
    }
    let text = match &object["spec"]["selector"] {
        Value::Object(map) if map.contains_key("matchLabels") || map.contains_key("matchExpressions") => {
            let selector = LabelSelector::from_object(&object["spec"]["selector"]);
            selector.map(|selector| selector.to_string()).unwrap_or_default()
        }
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
            pairs.join(",")
        }
        _ => String::new(),
    };
    if !text.is_empty() {
        out["status"]["selector"] = text.into();
    }
    out
}
