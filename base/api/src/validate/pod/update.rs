//! What may change in a pod after it was created, and through which door.

use serde_json::Value;

use super::super::error::{Errors, list, text};
use super::super::meta;
use super::scheduling;
use crate::path::Path;
use crate::pod_resources::PodResources;
use crate::syntax;

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// An update of the pod itself; its metadata and spec were checked before.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    for field in ["containers", "initContainers"] {
        if list(&spec[field]).len() != list(&before[field]).len() {
            errors.forbidden(&path.child(field), "pod updates may not add or remove containers");
            return;
        }
    }
    if !deadline(spec, before, &path, errors) {
        return;
    }
    tolerations(spec, before, &path, errors);
    let gates = path.child("schedulingGates");
    for (i, gate) in list(&spec["schedulingGates"]).iter().enumerate() {
        if !list(&before["schedulingGates"]).contains(gate) {
            let words =
                format!("only deletion is allowed, but found new scheduling gate '{}'", text(&gate["name"]));
            errors.forbidden(&gates.index(i).child("name"), &words);
        }
    }
    if spec == before {
        return;
    }
    let mut munged = spec.clone();
    for field in ["containers", "initContainers"] {
        for (i, container) in list(&before[field]).iter().enumerate() {
            munged[field][i]["image"] = container["image"].clone();
        }
    }
    let mut restored = vec!["activeDeadlineSeconds", "schedulingGates", "tolerations"];
    let grace = "terminationGracePeriodSeconds";
    if before[grace].as_i64().is_some_and(|s| s < 0) && munged[grace].as_i64() == Some(1) {
        restored.push(grace);
    }
    if !list(&before["schedulingGates"]).is_empty() {
        restored.push("nodeSelector");
        restored.push("affinity");
    }
    for field in restored {
        match before.get(field) {
            Some(value) => munged[field] = value.clone(),
            None => {
                munged.as_object_mut().map(|m| m.remove(field));
            }
        }
    }
    if &munged != before {
        errors.forbidden(&path, &format!("{UPDATABLE}\n{}", differences(before, &munged)));
    }
}

/// The fields that differ, one line each.
fn differences(old: &Value, new: &Value) -> String {
    let empty = serde_json::Map::new();
    let (a, b) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut out = String::new();
    for key in keys.into_iter().filter(|k| a.get(*k) != b.get(*k)) {
        for (sign, side) in [('-', a.get(key)), ('+', b.get(key))] {
            if let Some(value) = side {
                out.push_str(&format!("{sign} {key}: {value}\n"));
            }
        }
    }
    out
}

fn deadline(spec: &Value, before: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let path = path.child("activeDeadlineSeconds");
    match (spec["activeDeadlineSeconds"].as_i64(), before["activeDeadlineSeconds"].as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(&path, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid(&path, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&path, &Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations(spec: &Value, before: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("tolerations");
    let without_seconds = |t: &Value| {
        let mut copy = t.clone();
        copy.as_object_mut().map(|m| m.remove("tolerationSeconds"));
        copy
    };
    let now: Vec<Value> = list(&spec["tolerations"]).iter().map(without_seconds).collect();
    for old in list(&before["tolerations"]) {
        if !now.contains(&without_seconds(old)) {
            errors.forbidden(&path, "existing toleration can not be modified except its tolerationSeconds");
            return;
        }
    }
    if spec["tolerations"] != before["tolerations"] {
        scheduling::tolerations(&spec["tolerations"], &path, errors);
    }
}

/// An update of `/status`.
pub(crate) fn update_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let (status, before) = (&new["status"], &old["status"]);
    if new["spec"]["nodeName"] != old["spec"]["nodeName"] {
        errors.forbidden(&path.child("nodeName"), "may not be changed directly");
    }
    let nominated = text(&status["nominatedNodeName"]);
    if !nominated.is_empty() && status["nominatedNodeName"] != before["nominatedNodeName"] {
        errors.all_invalid(&path.child("nominatedNodeName"), nominated, syntax::dns_subdomain(nominated));
    }
    if let Some(generation) = status["observedGeneration"].as_i64().filter(|g| *g < 0) {
        errors.invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer");
    }
    errors.immutable(&path.child("qosClass"), &status["qosClass"], &before["qosClass"]);
    transitions(new, old, "containerStatuses", errors);
    let ips = path.child("podIPs");
    for (i, entry) in list(&status["podIPs"]).iter().enumerate() {
        super::ip(text(&entry["ip"]), &ips.index(i), errors);
    }
}

/// A container that ended for good does not come back.
fn transitions(new: &Value, old: &Value, field: &str, errors: &mut Errors) {
    let policy = text(&old["spec"]["restartPolicy"]);
    if policy == "Always" || policy.is_empty() {
        return;
    }
    let status = Path::root("status");
    let path = status.child(field);
    for (i, before) in list(&old["status"][field]).iter().enumerate() {
        let ended = &before["state"]["terminated"];
        let failed = ended["exitCode"].as_i64().unwrap_or(0) != 0;
        if !ended.is_object() || (failed && policy == "OnFailure") {
            continue;
        }
        let after = list(&new["status"][field]).iter().find(|c| c["name"] == before["name"]);
        if after.is_some_and(|c| !c["state"]["terminated"].is_object()) {
            errors
                .forbidden(&path.index(i).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// An update of `/ephemeralcontainers`: containers may only be added.
pub(crate) fn update_ephemeral(new: &Value, old: &Value, errors: &mut Errors) {
    meta::update(new, old, errors);
    super::pod(new, errors);
    let spec = Path::root("spec");
    let path = spec.child("ephemeralContainers");
    for before in list(&old["spec"]["ephemeralContainers"]) {
        let name = text(&before["name"]);
        match list(&new["spec"]["ephemeralContainers"]).iter().find(|c| c["name"] == before["name"]) {
            None => errors
                .forbidden(&path, &format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(after) if after != before => {
                let words = format!(
                    "existing ephemeral containers {name:?} may not be changed\n{}",
                    differences(before, after)
                );
                errors.forbidden(&path, &words);
            }
            Some(_) => {}
        }
    }
}

/// An update of `/resize`: only cpu and memory of containers may change, and what is asked for cannot be taken back
/// altogether.
pub(crate) fn update_resize(new: &Value, old: &Value, errors: &mut Errors) {
    meta::update(new, old, errors);
    super::pod(new, errors);
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    let class = text(&old["status"]["qosClass"]);
    if !class.is_empty() && PodResources::from(spec).qos().as_str() != class {
        let words = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, text(&new["status"]["qosClass"]), words);
    }
    if !node_resizes(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    let alike =
        ["containers", "initContainers"].map(|field| same_containers(spec, before, field, &path, errors));
    if alike != [true, true] {
        return;
    }
    let mut munged = spec.clone();
    for field in ["initContainers", "containers"] {
        for (i, was) in list(&before[field]).iter().enumerate() {
            let place = path.child(field);
            let place = place.index(i);
            kept(&spec[field][i], was, &place, errors);
            restore(&mut munged[field][i], was);
            let words = match field {
                _ if munged[field][i] == *was => continue,
                "containers" => "only cpu and memory resources are mutable",
                _ => "only cpu and memory resources for init or sidecar containers are mutable",
            };
            errors.forbidden(if field == "containers" { &path } else { &place }, words);
        }
    }
    if errors.is_empty() && munged != *before {
        let words = format!("only cpu and memory resources are mutable\n{}", differences(before, &munged));
        errors.forbidden(&path, &words);
    }
}

/// Whether the node says what its running containers have: those that do not cannot change it.
fn node_resizes(pod: &Value) -> bool {
    let mut running =
        list(&pod["status"]["containerStatuses"]).iter().filter(|c| !c["state"]["running"].is_null());
    running.next().is_none_or(|first| !first["resources"].is_null())
}

fn same_containers(spec: &Value, before: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let (now, was) = (list(&spec[field]), list(&before[field]));
    let place = path.child(field);
    if now.len() != was.len() {
        errors.forbidden(&place, &format!("{field} may not be added or removed on resize"));
        return false;
    }
    let mut alike = true;
    for (i, (now, was)) in now.iter().zip(was).enumerate() {
        if now["name"] != was["name"] {
            let words = format!("{field} may not be renamed or reordered on resize");
            errors.forbidden(&place.index(i).child("name"), &words);
            alike = false;
        }
    }
    alike
}

/// What a container asked for may change, but not go.
fn kept(container: &Value, was: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["requests", "limits"] {
        let named = |of: &Value| -> Vec<String> {
            of["resources"][field].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default()
        };
        let now = named(container);
        if named(was).iter().any(|name| !now.contains(name)) {
            let words = format!("resource {field} cannot be removed");
            errors.forbidden(&path.child("resources").child(field), &words);
        }
    }
}

/// Gives a container the cpu and memory it had.
fn restore(container: &mut Value, was: &Value) {
    for field in ["requests", "limits"] {
        for name in ["cpu", "memory"] {
            let before = &was["resources"][field][name];
            if !before.is_null() {
                container["resources"][field][name] = before.clone();
            } else if let Some(all) = container.pointer_mut(&format!("/resources/{field}")) {
                all.as_object_mut().map(|all| all.remove(name));
            }
        }
    }
    let Some(Value::Object(resources)) = container.get_mut("resources") else { return };
    resources.retain(|field, value| {
        let empty = value.as_object().is_some_and(serde_json::Map::is_empty);
        !empty || !was["resources"][field].is_null()
    });
    if resources.is_empty() && was["resources"].is_null() {
        container.as_object_mut().map(|all| all.remove("resources"));
    }
}
