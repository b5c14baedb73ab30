//! `podwire apply -f`: creates what is absent, patches what differs, says which.

use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};

use super::{Session, all_of, during, is_not_found, is_refused, manifest, objects, resource};
use crate::cli::ApplyArgs;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Applies every object of the files in order; returns one line each, in kubectl's words.
pub async fn apply(args: &ApplyArgs, out: &mut dyn FnMut(&str)) -> Result<()> {
    let objects = manifest::read(&args.filename)?;
    let session = Session::open(&args.to).await?;
    let mut failures = Vec::new();
    for (file, object) in objects {
        match apply_one(&session, object, &file).await {
            Ok(line) => out(&line),
            Err(error) => failures.push(error),
        }
    }
    all_of(failures)
}

async fn apply_one(session: &Session, mut object: Value, file: &str) -> Result<String> {
    let resource = resource::of_object(session, &object).await?;
    let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned) else {
        bail!("error: error when retrieving current configuration: resource name may not be empty");
    };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&session.namespace).to_owned();
    let collection = resource.collection(Some(&namespace));
    let item = format!("{collection}/{name}");
    if resource.is_namespaced() {
        object["metadata"]["namespace"] = Value::String(namespace.clone());
    }
    remember_applied(&mut object)?;
    let said = |word: &str| format!("{}/{name} {word}", resource.printed());
    let live = match session.get_json(&item).await {
        Ok(live) => live,
        Err(error) if is_not_found(&error) => {
            let body = ("application/json", serde_json::to_vec(&object)?);
            let path = format!("{collection}?fieldManager=podwire-apply&fieldValidation=Strict");
            let created = session.send(Method::POST, &path, Some(body), "application/json").await;
            created.map_err(|error| during(error, &format!("error when creating {file:?}")))?;
            return Ok(said("created"));
        }
        Err(error) => return Err(error),
    };
    // Fields that the last apply set and this one does not are taken away.
    let last: Value = live["metadata"]["annotations"][LAST_APPLIED]
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or(Value::Null);
    mark_removed(&last, &mut object);
    let path = format!("{item}?fieldManager=podwire-apply&fieldValidation=Strict");
    let patch = async |kind| {
        let body = (kind, serde_json::to_vec(&object)?);
        session.send(Method::PATCH, &path, Some(body), "application/json").await
    };
    let mut patched = patch("application/strategic-merge-patch+json").await;
    // Nobody knows how to merge the lists of a custom resource: they are replaced.
    if patched.as_ref().is_err_and(|error| is_refused(error, "UnsupportedMediaType")) {
        patched = patch("application/merge-patch+json").await;
    }
    let patched = patched.map_err(|error| during(error, &format!("error when patching {file:?}")))?;
    let unchanged = patched["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"];
    Ok(said(if unchanged { "unchanged" } else { "configured" }))
}

/// Writes the manifest itself into the annotation that apply compares with next time, byte for byte as kubectl does.
fn remember_applied(object: &mut Value) -> Result<()> {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(LAST_APPLIED);
    }
    let text = format!("{}\n", objects::as_go_writes(&serde_json::to_string(object)?));
    object["metadata"]["annotations"][LAST_APPLIED] = Value::String(text);
    Ok(())
}

/// Sets to null each map entry that `last` has and `now` lacks; lists are merged by the server.
fn mark_removed(last: &Value, now: &mut Value) {
    let (Value::Object(last), Value::Object(now)) = (last, now) else { return };
    for (key, before) in last {
        match now.get_mut(key) {
            Some(after) => mark_removed(before, after),
            None => {
                now.insert(key.clone(), Value::Null);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remembered_manifest_is_kubectls() {
        let mut object =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "<&>"}});
        remember_applied(&mut object).unwrap();
        assert_eq!(
            object["metadata"]["annotations"][LAST_APPLIED],
            "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"\\u003c\\u0026\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"a\"}}\n"
        );
    }

    #[test]
    fn a_field_dropped_from_the_manifest_is_nulled() {
        let mut now = json!({"data": {"a": "2"}});
        mark_removed(&json!({"data": {"a": "1", "b": "1"}}), &mut now);
        assert_eq!(now, json!({"data": {"a": "2", "b": null}}));
    }
}
