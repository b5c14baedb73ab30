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
use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Part, Verb, patch};

/// Reads or changes the scale of a workload.
pub(crate) async fn answer(call: &mut Call) -> Result<Response> {
    if call.verb == Verb::Get {
        let object = call.context.object(&call.kind, call.namespace(), call.name()).await?;
        return Ok(body::json(StatusCode::OK, &scale_of(&object)));
    }
    let options = WriteOptions::read(call, "UpdateOptions")?;
    let bytes = call.bytes().await?;
    let media = negotiate::body_media(&call.parts.headers).to_owned();
    let body = match call.verb {
        Verb::Patch => super::patch::json(&bytes)?,
        _ => decode::loose(call, &bytes)?,
    };
    let verb = call.verb;
    let change = Change::of(call, &options, Extent::Part(Part::Scale), true);
    let changed = change.run(|old| scaled(change.name, old, verb, &media, &body)).await?;
    let object = match changed {
        Changed::Stored(kv) => context::read(&call.kind, &kv)?,
        Changed::Object(object) => object,
    };
    Ok(body::json(StatusCode::OK, &scale_of(&object)))
}

/// The object with the replicas a scale body or patch asks for.
fn scaled(name: &str, old: &Value, verb: Verb, media: &str, body: &Value) -> Result<Value> {
    let mut scale = scale_of(old);
    if verb == Verb::Patch {
        let result = match media {
            "application/json-patch+json" => patch::json(&mut scale, body),
            "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                patch::merge(&mut scale, body)
            }
            _ => {
                return Err(ApiError::unsupported_media(
                    "application/json-patch+json, application/merge-patch+json",
                ));
            }
        };
        result.map_err(super::patch::refused)?;
    } else {
        scale = body.clone();
    }
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        let error = FieldError { reason: Cause::Invalid, field: "spec.replicas".into(), message };
        return Err(ApiError::invalid_of("autoscaling", "Scale", name, &[error]));
    }
    let mut new = old.clone();
    new["spec"]["replicas"] = replicas.into();
    if let Some(version) = scale["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty())
    {
        new["metadata"]["resourceVersion"] = version.into();
    }
    Ok(new)
}

fn scale_of(object: &Value) -> Value {
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
