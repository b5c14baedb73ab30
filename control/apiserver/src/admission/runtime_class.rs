//! `RuntimeClass`: a pod gets the overhead and the nodes of the class it names, and may not say otherwise.

use futures::future::BoxFuture;
use http::StatusCode;
use podwire_api::builtin;
use podwire_api::resources::Resources;
use serde_json::Value;

use super::{Mutating, Operation, Request, Validating};
use crate::status::{ApiError, Result};

const DIFFERS: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
const ALONE: &str = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";

/// The plugin.
pub(super) struct RuntimeClass;

fn minds(request: &Request<'_>) -> bool {
    request.operation == Operation::Create && request.is_whole("", "Pod")
}

impl Mutating for RuntimeClass {
    fn handles(&self, request: &Request<'_>) -> bool {
        minds(request)
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, pod: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(class) = find(request, pod).await? else { return Ok(()) };
            complete(&mut pod["spec"], &class).map_err(|why| request.forbidden(pod, &why))
        })
    }
}

impl Validating for RuntimeClass {
    fn handles(&self, request: &Request<'_>) -> bool {
        minds(request)
    }

    fn validate<'a>(&'a self, request: &'a Request<'a>, pod: &'a Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let class = find(request, pod).await?;
            check(&pod["spec"], class.as_ref()).map_err(|why| request.forbidden(pod, why))
        })
    }
}

/// The class that a pod names; refused if nobody has made it.
async fn find(request: &Request<'_>, pod: &Value) -> Result<Option<Value>> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let found = request.context.object(builtin::runtime_classes(), "", name).await;
    let refused = |error: ApiError| match error.code {
        StatusCode::NOT_FOUND => {
            request.forbidden(pod, &format!("pod rejected: RuntimeClass \"{name}\" not found"))
        }
        _ => error,
    };
    found.map(Some).map_err(refused)
}

/// Gives a pod what its class says; a pod that says otherwise is refused.
fn complete(spec: &mut Value, class: &Value) -> Result<(), String> {
    if class["overhead"].is_object() {
        let fixed = &class["overhead"]["podFixed"];
        let given = Resources::from(&spec["overhead"]);
        if !given.is_empty() && given != Resources::from(fixed) {
            return Err(DIFFERS.to_owned());
        }
        match (fixed.is_null(), spec.as_object_mut()) {
            (true, Some(spec)) => drop(spec.remove("overhead")),
            _ => spec["overhead"] = fixed.clone(),
        }
    }
    if !class["scheduling"].is_object() {
        return Ok(());
    }
    for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
        let given = &spec["nodeSelector"][key];
        if !given.is_null() && given != value {
            let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (class, pod) = (words(value), words(given));
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {class}; pod.spec.nodeSelector[{key}] = {pod}"
            ));
        }
        spec["nodeSelector"][key] = value.clone();
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = list(&spec["tolerations"]);
    all.extend(list(&class["scheduling"]["tolerations"]));
    let merged = merge(all);
    if !merged.is_empty() {
        spec["tolerations"] = merged.into();
    }
    Ok(())
}

/// Whether a pod has the overhead of its class and none without one.
fn check(spec: &Value, class: Option<&Value>) -> Result<(), &'static str> {
    match class.map(|class| &class["overhead"]).filter(|overhead| overhead.is_object()) {
        Some(overhead) if Resources::from(&overhead["podFixed"]) != Resources::from(&spec["overhead"]) => {
            Err(DIFFERS)
        }
        None if spec["overhead"].is_object() => Err(ALONE),
        _ => Ok(()),
    }
}

/// Tolerations without those that another covers; of equal ones the first stays.
fn merge(all: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let before = merged.iter().any(|other| covers(other, one));
        let later = all[at + 1..].iter().any(|other| other != one && covers(other, one));
        if !before && !later {
            merged.push(one.clone());
        }
    }
    merged
}

/// Whether a toleration tolerates all that another does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |toleration: &Value, key: &str| toleration[key].as_str().unwrap_or_default().to_owned();
    let (key, effect, operator) = (text(wide, "key"), text(wide, "effect"), text(wide, "operator"));
    let any_key = key.is_empty() && operator == "Exists";
    if (key != text(narrow, "key") && !any_key) || (effect != text(narrow, "effect") && !effect.is_empty()) {
        return false;
    }
    if effect == "NoExecute"
        && let Some(most) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match operator.as_str() {
        "" | "Equal" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_has_the_overhead_and_the_nodes_of_its_class() {
        let class = json!({"overhead": {"podFixed": {"cpu": "0.1"}}, "scheduling": {"nodeSelector": {"vm": "yes"},
            "tolerations": [{"key": "vm", "operator": "Exists"}, {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]}});
        let mut spec = json!({"overhead": {"cpu": "100m"}, "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "vm", "operator": "Equal", "value": "1"}, {"key": "x", "operator": "Exists", "effect": "NoExecute"}]});
        complete(&mut spec, &class).unwrap();
        assert_eq!(spec["nodeSelector"], json!({"disk": "ssd", "vm": "yes"}));
        let kept = json!([{"key": "x", "operator": "Exists", "effect": "NoExecute"}, {"key": "vm", "operator": "Exists"}]);
        assert_eq!(spec["tolerations"], kept, "the wider ones stay");
        assert_eq!(check(&spec, Some(&class)), Ok(()));
        spec["nodeSelector"]["vm"] = "no".into();
        assert_eq!(
            complete(&mut spec, &class).unwrap_err(),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no"
        );
        spec["overhead"]["cpu"] = "2".into();
        assert_eq!(complete(&mut spec, &class).unwrap_err(), DIFFERS);
        assert_eq!(check(&spec, Some(&class)), Err(DIFFERS));
        assert_eq!(check(&spec, Some(&json!({}))), Err(ALONE));
        assert_eq!(check(&json!({}), None), Ok(()));
    }
}
