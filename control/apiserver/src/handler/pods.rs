//! What only pods have: being bound to a node, and being asked to leave it.

use http::StatusCode;
use podwire_api::selector::LabelSelector;
use podwire_api::validate;
use podwire_api::{builtin, condition};
use serde_json::{Value, json};

use super::create::now;
use super::delete::Deletion;
use super::options::{DeleteOptions, WriteOptions};
use super::update::{Change, Extent};
use super::{Call, decode};
use crate::admission::{self, Operation, Options, Request};
use crate::body::{self, Response};
use crate::cache::Scope;
use crate::context;
use crate::status::{ApiError, Result};

fn created() -> Response {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    body::json(StatusCode::CREATED, &status)
}

/// Binds a pod to the node the body names.
pub(crate) async fn bind(call: &mut Call) -> Result<Response> {
    let options = WriteOptions::read(call, "CreateOptions")?;
    let bytes = call.bytes().await?;
    let kind = builtin::bindings();
    let mut binding = decode::object(call, kind, &bytes, options.validation)?;
    if binding["metadata"]["name"] != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let request = Request {
        dry_run: options.dry_run,
        options: Options::Write(&options),
        ..Request::of(call, Operation::Create)
    };
    admission::admit(&request, &mut binding).await?;
    let errors = validate::binding(&binding);
    if !errors.is_empty() {
        return Err(ApiError::invalid(kind, call.name(), &errors));
    }
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
    let mut change = Change::of(call, &options, Extent::Server, true);
    change.untracked = true;
    let refuse = |why: &str| ApiError::conflict_of("", "pods/binding", change.name, why);
    change
        .run(|pod| {
            let found = pod["metadata"]["uid"].as_str().unwrap_or_default();
            if !uid.is_empty() && uid != found {
                let key = context::key(change.kind, change.namespace, change.name);
                let why = super::update::precondition("UID", uid, found, &key);
                return Err(ApiError::conflict(change.kind, change.name, &why));
            }
            bound(pod, &binding, node).map_err(|why| refuse(&why))
        })
        .await?;
    Ok(created())
}

/// The pod on its node, or why it cannot be there.
fn bound(pod: &Value, binding: &Value, node: &str) -> Result<Value, String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(current) = pod["spec"]["nodeName"].as_str().filter(|current| !current.is_empty()) {
        return Err(format!("pod {name} is already assigned to node \"{current}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = node.into();
    for part in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][part].as_object().into_iter().flatten() {
            pod["metadata"][part][key] = value.clone();
        }
    }
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now()});
    let mut conditions = condition::of(&pod).to_vec();
    condition::set(&mut conditions, scheduled);
    pod["status"]["conditions"] = conditions.into();
    if let Some(status) = pod["status"].as_object_mut() {
        // What was a hint is wrong from now on, for whoever still looks at it.
        status.remove("nominatedNodeName");
    }
    Ok(pod)
}

/// The pod with the mark that it was asked to leave.
fn disrupted(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let mut conditions = condition::of(&pod).to_vec();
    let target = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now(),
    });
    condition::set(&mut conditions, target);
    pod["status"]["conditions"] = conditions.into();
    pod
}

/// Deletes a pod unless a disruption budget forbids it now.
pub(crate) async fn evict(call: &mut Call) -> Result<Response> {
    let bytes = call.bytes().await?;
    let mut eviction = decode::loose(call, &bytes)?;
    let given = eviction["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = WriteOptions::read(call, "CreateOptions")?;
    let mut delete = DeleteOptions::from_value(&eviction["deleteOptions"]);
    delete.dry_run |= options.dry_run;
    let pod = call.context.object(&call.kind, call.namespace(), call.name()).await?;
    let request = Request {
        dry_run: options.dry_run,
        options: Options::Write(&options),
        ..Request::of(call, Operation::Create)
    };
    admission::admit(&request, &mut eviction).await?;
    let running = pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    if running {
        check_budgets(call, &pod)?;
    }
    if !options.dry_run {
        let mut change = Change::of(call, &options, Extent::Server, true);
        change.untracked = true;
        change.run(|pod| Ok(disrupted(pod))).await?;
    }
    let (context, identity, kind) = (&call.context, &call.identity, &call.kind);
    let deletion = Deletion { context, identity, kind, namespace: call.namespace(), name: call.name() };
    deletion.run(&delete).await?;
    Ok(created())
}

fn check_budgets(call: &Call, pod: &Value) -> Result<()> {
    let budgets = builtin::pod_disruption_budgets();
    let prefix = format!("{}{}/", budgets.storage_prefix, call.namespace());
    let snapshot = call.context.caches.of(budgets).snapshot(&Scope { prefix, node: None, key: None });
    let none = serde_json::Map::new();
    let labels = pod["metadata"]["labels"].as_object().unwrap_or(&none);
    for budget in snapshot.entries.iter().map(|entry| entry.decode(budgets)) {
        let Ok(selector) = LabelSelector::from_object(&budget["spec"]["selector"]) else { continue };
        if selector.matches(labels) && budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) < 1 {
            let name = budget["metadata"]["name"].as_str().unwrap_or_default();
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            let needs = format!("The disruption budget {name} does not allow a disruption now");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
                .cause("DisruptionBudget", &needs, "")
                .retry_after(10));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_once() {
        let pod = json!({"metadata": {"name": "q1", "generation": 1}, "spec": {},
                   "status": {"phase": "Pending", "nominatedNodeName": "other"}});
        let once = bound(&pod, &json!({"metadata": {"annotations": {"a": "b"}}}), "nn").unwrap();
        assert_eq!(once["spec"]["nodeName"], "nn");
        assert_eq!(once["metadata"]["annotations"]["a"], "b");
        assert_eq!(once["status"]["conditions"][0]["type"], "PodScheduled");
        assert!(once["status"].get("nominatedNodeName").is_none());
        let twice = bound(&once, &json!({}), "other").unwrap_err();
        assert_eq!(twice, "pod q1 is already assigned to node \"nn\"");
    }
}
