//! `LimitRanger`: containers get what their namespace's limit ranges give those that say nothing, and pods, containers
//! and claims outside the bounds are refused.

use std::collections::HashSet;

use futures::future::BoxFuture;
use podwire_api::pod_resources::{PodResources, Requirements};
use podwire_api::quantity::Quantity;
use podwire_api::resources::Resources;
use podwire_api::validate::limits::MOST_IN_MILLI;
use podwire_api::{Part, builtin};
use serde_json::{Value, json};

use super::{Mutating, Operation, Request, Validating};
use crate::status::Result;

/// Where it is written down what was added to a pod.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The plugin.
pub(super) struct LimitRanger;

impl Mutating for LimitRanger {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.kind.is("", "Pod") && minds(request)
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, pod: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        for range in ranges(request) {
            complete(pod, &range);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Validating for LimitRanger {
    fn handles(&self, request: &Request<'_>) -> bool {
        minds(request)
    }

    fn validate<'a>(&'a self, request: &'a Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<()>> {
        let of_pod = request.kind.is("", "Pod");
        let verdict = ranges(request).iter().try_for_each(|range| {
            let complaints =
                if of_pod { of_a_pod(&object["spec"], range) } else { of_a_claim(object, range) };
            match summary(complaints) {
                None => Ok(()),
                Some(why) => Err(request.forbidden(object, &why)),
            }
        });
        Box::pin(std::future::ready(verdict))
    }
}

/// New pods, pods that are resized, and claims; what is on its way out is let go.
fn minds(request: &Request<'_>) -> bool {
    let leaving = request.old.is_some_and(|old| old["metadata"]["deletionTimestamp"].is_string());
    let asked = match (request.operation, request.part) {
        (Operation::Create, None) => request.kind.is("", "Pod") || is_claim(request),
        (Operation::Update, None) => is_claim(request),
        (Operation::Update, Some(Part::Resize)) => request.kind.is("", "Pod"),
        _ => false,
    };
    asked && !leaving
}

fn is_claim(request: &Request<'_>) -> bool {
    request.kind.is("", "PersistentVolumeClaim")
}

fn ranges(request: &Request<'_>) -> Vec<Value> {
    request.context.cached(builtin::limit_ranges(), request.namespace)
}

fn items(range: &Value) -> impl Iterator<Item = &Value> {
    range["spec"]["limits"].as_array().into_iter().flatten()
}

/// Several complaints become one, and each is made once.
fn summary(complaints: Vec<String>) -> Option<String> {
    let mut seen = HashSet::new();
    let mut once: Vec<String> = complaints.into_iter().filter(|words| seen.insert(words.clone())).collect();
    match once.len() {
        0 => None,
        1 => once.pop(),
        _ => Some(format!("[{}]", once.join(", "))),
    }
}

/// Gives containers what they do not say, and writes down what that was.
fn complete(pod: &mut Value, range: &Value) {
    let (mut limits, mut requests) = (json!({}), json!({}));
    for item in items(range).filter(|item| item["type"] == "Container") {
        for (list, key) in [(&mut limits, "default"), (&mut requests, "defaultRequest")] {
            for (name, amount) in item[key].as_object().into_iter().flatten() {
                list[name] = amount.clone();
            }
        }
    }
    let mut said = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let set_limits = fill(container, "limits", &limits);
            let set_requests = fill(container, "requests", &requests);
            for (set, side) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    let name = container["name"].as_str().unwrap_or_default();
                    said.push(format!("{} {side} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !said.is_empty() {
        let words = format!("LimitRanger plugin set: {}", said.join("; "));
        pod["metadata"]["annotations"][ANNOTATION] = words.into();
    }
}

/// Adds what is missing on one side of a container's resources; the names of what was added, in order.
fn fill(container: &mut Value, side: &str, given: &Value) -> Vec<String> {
    let mut added = Vec::new();
    for (name, amount) in given.as_object().into_iter().flatten() {
        if container["resources"][side].get(name).is_none() {
            container["resources"][side][name] = amount.clone();
            added.push(name.clone());
        }
    }
    added.sort();
    added
}

/// What a range has against a pod.
fn of_a_pod(spec: &Value, range: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    for item in items(range) {
        match item["type"].as_str() {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in spec[list].as_array().into_iter().flatten() {
                        check(item, "Container", &(&container["resources"]).into(), &mut complaints);
                    }
                }
            }
            Some("Pod") => check(item, "Pod", &whole(spec), &mut complaints),
            _ => {}
        }
    }
    complaints
}

/// What a pod asks for as a whole; its overhead is not its own asking.
fn whole(spec: &Value) -> Requirements {
    let mut pod = PodResources::from(spec);
    pod.overhead = Resources::NONE;
    if let Some(own) = &mut pod.pod {
        for list in [&mut own.requests, &mut own.limits] {
            list.retain(|name, _| matches!(name, "cpu" | "memory"));
        }
    }
    Requirements { requests: pod.requests(), limits: pod.limits() }
}

/// What a range has against a claim.
fn of_a_claim(claim: &Value, range: &Value) -> Vec<String> {
    let requests = Resources::from(&claim["spec"]["resources"]["requests"]);
    let mut complaints = Vec::new();
    for item in items(range).filter(|item| item["type"] == "PersistentVolumeClaim") {
        for (name, bound) in Resources::from(&item["min"]).iter() {
            complaints.extend(at_least("PersistentVolumeClaim", name, bound, requests.get(name), None));
        }
        for (name, bound) in Resources::from(&item["max"]).iter() {
            let head = format!("maximum {name} usage per PersistentVolumeClaim is {bound}");
            match requests.get(name) {
                None => complaints.push(format!("{head}.  No request is specified")),
                Some(request) if request > bound => {
                    complaints.push(format!("{head}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    complaints
}

fn check(item: &Value, of: &str, given: &Requirements, complaints: &mut Vec<String>) {
    let both = |name: &str| (given.requests.get(name), given.limits.get(name));
    for (name, bound) in Resources::from(&item["min"]).iter() {
        let (request, limit) = both(name);
        complaints.extend(at_least(of, name, bound, request, limit));
    }
    for (name, bound) in Resources::from(&item["max"]).iter() {
        let (request, limit) = both(name);
        complaints.extend(at_most(of, name, bound, request, limit));
    }
    for (name, bound) in Resources::from(&item["maxLimitRequestRatio"]).iter() {
        let (request, limit) = both(name);
        complaints.extend(in_ratio(of, name, bound, request, limit));
    }
}

fn at_least(
    of: &str,
    name: &str,
    bound: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("minimum {name} usage per {of} is {bound}");
    match (request, limit) {
        (None, _) => Some(format!("{head}.  No request is specified")),
        (Some(request), _) if request < bound => Some(format!("{head}, but request is {request}")),
        (_, Some(limit)) if limit < bound => Some(format!("{head}, but limit is {limit}")),
        _ => None,
    }
}

fn at_most(
    of: &str,
    name: &str,
    bound: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("maximum {name} usage per {of} is {bound}");
    match (request, limit) {
        (_, None) => Some(format!("{head}.  No limit is specified")),
        (_, Some(limit)) if limit > bound => Some(format!("{head}, but limit is {limit}")),
        (Some(request), _) if request > bound => Some(format!("{head}, but request is {request}")),
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "upstream compares ratios as floating-point numbers")]
fn in_ratio(
    of: &str,
    name: &str,
    bound: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("{name} max limit to request ratio per {of} is {bound}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!("{head}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{head}, but no limit is specified or limit is 0"));
    };
    let fine = [request, limit, bound].iter().all(|quantity| quantity.value() <= MOST_IN_MILLI);
    let ratio = if fine {
        limit.milli_value() as f64 / request.milli_value() as f64
    } else {
        limit.value() as f64 / request.value() as f64
    };
    let beyond = if bound.value() <= MOST_IN_MILLI {
        ratio * 1000.0 > bound.milli_value() as f64
    } else {
        ratio > bound.value() as f64
    };
    beyond.then(|| format!("{head}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> Value {
        json!({"spec": {"limits": limits}})
    }

    #[test]
    fn what_a_container_does_not_say_is_filled_in_and_noted() {
        let range = range(json!([
            {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"memory": "512Mi", "cpu": "100m"}},
            {"type": "Pod", "default": {"cpu": "9"}}]));
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "7m"}, "limits": {"cpu": "2", "memory": "1"}}}],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "2", "memory": "1"}}}]}});
        complete(&mut pod, &range);
        let spec = &pod["spec"];
        assert_eq!(
            spec["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}})
        );
        assert_eq!(spec["containers"][1]["resources"]["requests"], json!({"cpu": "7m", "memory": "512Mi"}));
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; memory request for container b"
        );
        let before = pod.clone();
        complete(&mut pod, &super::tests::range(json!([{"type": "Container", "default": {"cpu": "3"}}])));
        assert_eq!(pod, before, "nothing is missing any more");
    }

    #[test]
    fn bounds_are_told_in_upstreams_words() {
        let range = range(json!([
            {"type": "Container", "min": {"cpu": "50m"}, "max": {"memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "2"}},
            {"type": "Pod", "max": {"memory": "1Gi", "cpu": "1"}, "min": {"cpu": "1"}}]));
        let spec = json!({"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "40m", "memory": "2Gi"}}},
            {"name": "b", "resources": {}}], "overhead": {"cpu": "10"}});
        assert_eq!(
            of_a_pod(&spec, &range),
            [
                "minimum cpu usage per Container is 50m, but request is 10m",
                "maximum memory usage per Container is 1Gi, but limit is 2Gi",
                "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
                "minimum cpu usage per Container is 50m.  No request is specified",
                "maximum memory usage per Container is 1Gi.  No limit is specified",
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                "minimum cpu usage per Pod is 1, but request is 10m",
                "maximum memory usage per Pod is 1Gi, but limit is 2Gi",
            ]
        );
        let many = vec!["a".to_owned(), "b".to_owned(), "a".to_owned()];
        assert_eq!(summary(many).as_deref(), Some("[a, b]"));
    }

    #[test]
    fn claims_have_bounds_of_their_own() {
        let range = range(
            json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]),
        );
        let claim = |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}, "limits": {"storage": "9Gi"}}}});
        assert!(of_a_claim(&claim("2Gi"), &range).is_empty());
        assert_eq!(
            of_a_claim(&claim("512Mi"), &range),
            ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"]
        );
        assert_eq!(
            of_a_claim(&claim("3Gi"), &range),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
        assert_eq!(
            of_a_claim(&json!({}), &range),
            [
                "minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified",
                "maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified"
            ]
        );
    }
}
