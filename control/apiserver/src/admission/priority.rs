//! `Priority`: a pod gets the priority of its class, and only one class may be the one for pods that name none.

use futures::future::BoxFuture;
use http::StatusCode;
use podwire_api::builtin;
use serde_json::Value;

use super::{Mutating, Operation, Request, Validating};
use crate::cache::Scope;
use crate::context::Context;
use crate::status::{ApiError, Result};

/// The plugin.
pub(super) struct Priority;

impl Mutating for Priority {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes() && request.is_whole("", "Pod")
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, pod: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match request.old {
                Some(old) => keep(pod, old),
                None => complete(request, pod).await?,
            }
            Ok(())
        })
    }
}

impl Validating for Priority {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes() && request.kind.is("scheduling.k8s.io", "PriorityClass")
    }

    fn validate<'a>(&'a self, request: &'a Request<'a>, class: &'a Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(only_default(request.context, class, request.operation == Operation::Create))
    }
}

/// What was added when the pod was created is not lost by leaving it out.
fn keep(new: &mut Value, old: &Value) {
    for key in ["priority", "preemptionPolicy"] {
        if new["spec"][key].is_null() && !old["spec"][key].is_null() {
            new["spec"][key] = old["spec"][key].clone();
        }
    }
}

async fn complete(request: &Request<'_>, pod: &mut Value) -> Result<()> {
    let context = request.context;
    let classes = builtin::priority_classes();
    let asked = pod["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let refuse = |pod: &Value, why: String| request.forbidden(pod, &why);
    let class = match &asked {
        Some(name) => {
            let found = context.object(classes, "", name).await.map_err(|error| match error.code {
                StatusCode::NOT_FOUND => refuse(pod, format!("no PriorityClass with name {name} was found")),
                _ => error,
            })?;
            Some(found)
        }
        None => default_class(context),
    };
    let (value, policy) = match &class {
        Some(class) => (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].as_str()),
        None => (0, Some("PreemptLowerPriority")),
    };
    resolve(&mut pod["spec"], value, policy).map_err(|why| refuse(pod, why))?;
    if let Some(class) = class {
        pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// Sets what a class says; a pod that says otherwise is refused.
fn resolve(spec: &mut Value, value: i64, policy: Option<&str>) -> Result<(), String> {
    const BY_CLASS: &str = "must not be provided in pod spec; priority admission controller computed";
    const FROM: &str = "from the given PriorityClass name";
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
        return Err(format!("the integer value of priority ({given}) {BY_CLASS} {value} {FROM}"));
    }
    spec["priority"] = value.into();
    let Some(policy) = policy else { return Ok(()) };
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(format!("the string value of PreemptionPolicy ({given}) {BY_CLASS} {policy} {FROM}"));
    }
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

/// Refuses a second class for pods that name none.
async fn only_default(context: &Context, class: &Value, is_new: bool) -> Result<()> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    // The cache may not have heard yet of one that was stored a moment ago.
    context.caches.wait_for(context.store.revision().await?).await?;
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let Some(default) = default_class(context) else { return Ok(()) };
    let other = default["metadata"]["name"].as_str().unwrap_or_default();
    if !is_new && other == name {
        return Ok(());
    }
    let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
    Err(ApiError::forbidden("scheduling.k8s.io", "priorityclasses", name, &why))
}

/// The class for pods that name none; the lowest of several wins.
fn default_class(context: &Context) -> Option<Value> {
    let classes = builtin::priority_classes();
    let scope = Scope { prefix: classes.storage_prefix.to_string(), node: None, key: None };
    let snapshot = context.caches.of(classes).snapshot(&scope);
    let marked = |tail: &[u8]| tail.windows(20).any(|part| part == b"\"globalDefault\":true");
    let marked = snapshot.entries.iter().filter(|entry| marked(&entry.tail));
    let defaults = marked.map(|entry| entry.decode(classes));
    defaults.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_priority_that_the_class_does_not_have_is_refused() {
        let mut spec = json!({});
        resolve(&mut spec, 7, Some("Never")).unwrap();
        assert_eq!(spec, json!({"priority": 7, "preemptionPolicy": "Never"}));
        resolve(&mut spec, 7, Some("Never")).unwrap();
        assert_eq!(
            resolve(&mut spec, 8, Some("Never")).unwrap_err(),
            "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 8 from the given PriorityClass name"
        );
        assert_eq!(
            resolve(&mut spec, 7, Some("PreemptLowerPriority")).unwrap_err(),
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name"
        );
    }

    #[test]
    fn what_an_update_leaves_out_is_kept() {
        let old = json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}});
        let mut new = json!({"spec": {"preemptionPolicy": "PreemptLowerPriority"}});
        keep(&mut new, &old);
        assert_eq!(new, json!({"spec": {"priority": 5, "preemptionPolicy": "PreemptLowerPriority"}}));
    }
}
