//! Defaults of pods and pod templates.

use serde_json::{Value, json};

use super::{Object, absent, child, each, nonzero, set, text};
use crate::image::is_latest;
use crate::quantity::Quantity;

/// Defaults of a pod object.
pub(crate) fn pod(map: &mut Object) {
    let pod = child(map, "spec");
    spec(pod);
    for list in ["initContainers", "containers"] {
        each(pod, list, requests_from_limits);
    }
    absent(pod, "enableServiceLinks", true);
}

/// Defaults of a pod template (`metadata` and `spec`).
pub(crate) fn template(map: &mut Object) {
    spec(child(map, "spec"));
}

fn spec(spec: &mut Object) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    absent(spec, "securityContext", json!({}));
    absent(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "schedulerName", "default-scheduler");
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec.insert("serviceAccount".to_owned(), account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        spec.insert("serviceAccountName".to_owned(), account);
    }
    each(spec, "volumes", volume);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, list, container);
    }
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        for list in ["initContainers", "containers"] {
            each(spec, list, |container| {
                each(container, "ports", |port| {
                    let number = port.get("containerPort").and_then(Value::as_i64).unwrap_or_default();
                    nonzero(port, "hostPort", number);
                });
            });
        }
    }
    if let Some(Value::Object(overhead)) = spec.get_mut("overhead") {
        round_to_milli(overhead);
    }
}

fn container(container: &mut Object) {
    let policy = if is_latest(text(container, "image")) { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", policy);
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    each(container, "ports", |port| set(port, "protocol", "TCP"));
    each(container, "env", |env| {
        if let Some(Value::Object(from)) = env.get_mut("valueFrom") {
            field_ref(from);
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(probe)) = container.get_mut(probe) {
            nonzero(probe, "timeoutSeconds", 1);
            nonzero(probe, "periodSeconds", 10);
            nonzero(probe, "successThreshold", 1);
            nonzero(probe, "failureThreshold", 3);
            handler(probe);
            if let Some(Value::Object(grpc)) = probe.get_mut("grpc") {
                absent(grpc, "service", "");
            }
        }
    }
    if let Some(Value::Object(lifecycle)) = container.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(Value::Object(hook)) = lifecycle.get_mut(hook) {
                handler(hook);
            }
        }
    }
    if let Some(Value::Object(resources)) = container.get_mut("resources") {
        for list in ["limits", "requests"] {
            if let Some(Value::Object(amounts)) = resources.get_mut(list) {
                round_to_milli(amounts);
            }
        }
    }
}

fn handler(hook: &mut Object) {
    if let Some(Value::Object(get)) = hook.get_mut("httpGet") {
        set(get, "path", "/");
        set(get, "scheme", "HTTP");
    }
}

fn field_ref(from: &mut Object) {
    if let Some(Value::Object(reference)) = from.get_mut("fieldRef") {
        set(reference, "apiVersion", "v1");
    }
    if let Some(Value::Object(reference)) = from.get_mut("resourceFieldRef") {
        set(reference, "divisor", "0");
    }
}

fn volume(volume: &mut Object) {
    if volume.keys().all(|k| k == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
        return;
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = volume.get_mut(source) {
            absent(source, "defaultMode", 420);
        }
    }
    if let Some(Value::Object(host)) = volume.get_mut("hostPath") {
        absent(host, "type", "");
    }
    if let Some(Value::Object(image)) = volume.get_mut("image") {
        let policy = if is_latest(text(image, "reference")) { "Always" } else { "IfNotPresent" };
        set(image, "pullPolicy", policy);
    }
    if let Some(Value::Object(downward)) = volume.get_mut("downwardAPI") {
        each(downward, "items", field_ref);
    }
    if let Some(Value::Object(projected)) = volume.get_mut("projected") {
        each(projected, "sources", |source| {
            if let Some(Value::Object(downward)) = source.get_mut("downwardAPI") {
                each(downward, "items", field_ref);
            }
            if let Some(Value::Object(token)) = source.get_mut("serviceAccountToken") {
                absent(token, "expirationSeconds", 3600);
            }
        });
    }
    if let Some(Value::Object(ephemeral)) = volume.get_mut("ephemeral")
        && let Some(Value::Object(template)) = ephemeral.get_mut("volumeClaimTemplate")
    {
        absent(child(template, "spec"), "volumeMode", "Filesystem");
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits") else { return };
    let limits = limits.clone();
    let requests = child(resources, "requests");
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// Amounts finer than a thousandth are rounded up.
fn round_to_milli(amounts: &mut Object) {
    for amount in amounts.values_mut() {
        let Ok(parsed) = Quantity::parse(amount.as_str().unwrap_or_default()) else { continue };
        let rounded = parsed.rounded_to_milli();
        if rounded != parsed {
            *amount = rounded.to_string().into();
        }
    }
}
