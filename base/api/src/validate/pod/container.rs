//! Rules of containers: names, ports, environment, mounts, lifecycle.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::error::{Errors, Seen, list, text};
use super::{probe, resources, security};
use crate::path::Path;
use crate::syntax;

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESTART: &[&str] = &["Always", "Never", "OnFailure"];

/// What containers are judged against: their pod.
pub(super) struct Context<'a> {
    pub(super) spec: &'a Value,
    pub(super) volumes: &'a BTreeSet<&'a str>,
    pub(super) claims: &'a resources::Claims<'a>,
}

impl Context<'_> {
    pub(super) fn containers(&self, path: &Path<'_>, errors: &mut Errors) {
        let containers = list(&self.spec["containers"]);
        if containers.is_empty() {
            errors.required(path, "");
            return;
        }
        let mut seen = Seen::default();
        for (i, container) in containers.iter().enumerate() {
            let here = path.index(i);
            self.common(container, &here, errors);
            let name = text(&container["name"]);
            if seen.again(name) {
                errors.duplicate(&here.child("name"), name);
            }
            self.hooks(container, &here, errors);
            if !container["restartPolicy"].is_null() {
                errors.one_of(&here.child("restartPolicy"), &container["restartPolicy"], RESTART);
            }
        }
        host_ports(containers, path, errors);
    }

    pub(super) fn init_containers(&self, path: &Path<'_>, errors: &mut Errors) {
        let mut names: Seen<&str> = list(&self.spec["containers"]).iter().map(|c| text(&c["name"])).collect();
        for (i, container) in list(&self.spec["initContainers"]).iter().enumerate() {
            let here = path.index(i);
            self.common(container, &here, errors);
            if !container["restartPolicy"].is_null() {
                errors.one_of(&here.child("restartPolicy"), &container["restartPolicy"], RESTART);
            }
            let name = text(&container["name"]);
            if names.again(name) {
                errors.duplicate(&here.child("name"), name);
            }
            if container["restartPolicy"] == "Always" {
                self.hooks(container, &here, errors);
                continue;
            }
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if !container[field].is_null() {
                    errors.forbidden(
                        &here.child(field),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
    }

    pub(super) fn ephemeral_containers(&self, path: &Path<'_>, errors: &mut Errors) {
        let others = ["containers", "initContainers"];
        let mut names: Seen<&str> =
            others.iter().flat_map(|l| list(&self.spec[*l])).map(|c| text(&c["name"])).collect();
        let targets: Seen<&str> = list(&self.spec["containers"]).iter().map(|c| text(&c["name"])).collect();
        for (i, container) in list(&self.spec["ephemeralContainers"]).iter().enumerate() {
            let here = path.index(i);
            let name = text(&container["name"]);
            self.common(container, &here, errors);
            if names.again(name) {
                errors.duplicate(&here.child("name"), name);
            }
            let target = text(&container["targetContainerName"]);
            if !target.is_empty() && !targets.has(&target) {
                errors.not_found(&here.child("targetContainerName"), target);
            }
            for field in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
                if !container[field].is_null() {
                    errors.forbidden(&here.child(field), "cannot be set for an Ephemeral Container");
                }
            }
            if container["resources"].as_object().is_some_and(|r| !r.is_empty()) {
                errors.forbidden(&here.child("resources"), "cannot be set for an Ephemeral Container");
            }
        }
    }

    fn common(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        match text(&container["name"]) {
            "" => errors.required(&path.child("name"), ""),
            name => errors.all_invalid(&path.child("name"), name, syntax::dns_label(name)),
        }
        if text(&container["image"]).is_empty() {
            errors.required(&path.child("image"), "");
        }
        let policies = ["File", "FallbackToLogsOnError"];
        errors.one_of(
            &path.child("terminationMessagePolicy"),
            &container["terminationMessagePolicy"],
            &policies,
        );
        ports(&container["ports"], &path.child("ports"), errors);
        env(&container["env"], &path.child("env"), errors);
        env_from(&container["envFrom"], &path.child("envFrom"), errors);
        self.mounts(container, &path.child("volumeMounts"), errors);
        self.devices(container, &path.child("volumeDevices"), errors);
        errors.one_of(
            &path.child("imagePullPolicy"),
            &container["imagePullPolicy"],
            &["Always", "IfNotPresent", "Never"],
        );
        resources::requirements(&container["resources"], self.claims, &path.child("resources"), errors);
        resize_policy(container, self.spec, &path.child("resizePolicy"), errors);
        let host_users = self.spec["hostUsers"] != false;
        security::container(
            &container["securityContext"],
            host_users,
            &path.child("securityContext"),
            errors,
        );
    }

    fn hooks(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let grace = self.spec["terminationGracePeriodSeconds"].as_i64();
        let lifecycle = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            let handler = &container["lifecycle"][hook];
            if handler.is_object() {
                probe::handler(handler, grace, &lifecycle.child(hook), errors);
            }
        }
        if !container["lifecycle"]["stopSignal"].is_null() && self.spec["os"].is_null() {
            let words = "may not be set for containers with empty `spec.os.name`";
            errors.forbidden(&lifecycle.child("stopSignal"), words);
        }
        for (field, once) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)] {
            if container[field].is_object() {
                probe::probe(&container[field], once, grace, &path.child(field), errors);
            }
        }
    }

    fn mounts(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let mounts = list(&container["volumeMounts"]);
        let mut seen = Seen::default();
        for (i, mount) in mounts.iter().enumerate() {
            let here = path.index(i);
            let (name, target) = (text(&mount["name"]), text(&mount["mountPath"]));
            if name.is_empty() {
                errors.required(&here.child("name"), "");
            }
            if !self.volumes.contains(name) {
                errors.not_found(&here.child("name"), name);
            }
            if target.is_empty() {
                errors.required(&here.child("mountPath"), "");
            }
            if seen.again(target) {
                errors.invalid(&here.child("mountPath"), target, "must be unique");
            }
            for field in ["subPath", "subPathExpr"] {
                let sub = text(&mount[field]);
                if !sub.is_empty() {
                    super::volume::descending(sub, &path.child(field), errors);
                }
            }
            if !text(&mount["subPath"]).is_empty() && !text(&mount["subPathExpr"]).is_empty() {
                let words = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(&here.child("subPathExpr"), text(&mount["subPathExpr"]), words);
            }
            propagation(mount, container, &path.child("mountPropagation"), errors);
            recursive(mount, &path.child("recursiveReadOnly"), errors);
        }
    }

    fn devices(&self, container: &Value, path: &Path<'_>, errors: &mut Errors) {
        let devices = list(&container["volumeDevices"]);
        let (mut names, mut targets) = (Seen::default(), Seen::default());
        let mounted: Seen<&str> = match devices {
            [] => Seen::default(),
            _ => list(&container["volumeMounts"]).iter().map(|m| text(&m["name"])).collect(),
        };
        for (i, device) in devices.iter().enumerate() {
            let here = path.index(i);
            let (name, target) = (text(&device["name"]), text(&device["devicePath"]));
            let volume = list(&self.spec["volumes"]).iter().find(|v| text(&v["name"]) == name);
            if name.is_empty() {
                errors.required(&here.child("name"), "");
            }
            if names.again(name) {
                errors.invalid(&here.child("name"), name, "must be unique");
            }
            match volume.filter(|_| self.volumes.contains(name)) {
                None => errors.not_found(&here.child("name"), name),
                Some(v) if v["persistentVolumeClaim"].is_null() && v["ephemeral"].is_null() => {
                    let words = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(&here.child("name"), name, words);
                }
                Some(_) => {}
            }
            if target.is_empty() {
                errors.required(&here.child("devicePath"), "");
            }
            if targets.again(target) {
                errors.invalid(&here.child("devicePath"), target, "must be unique");
            }
            if mounted.has(&name) {
                errors.invalid(&here.child("name"), name, "must not already exist in volumeMounts");
            }
        }
    }
}

fn recursive(mount: &Value, path: &Path<'_>, errors: &mut Errors) {
    match mount["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount["readOnly"] != true {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if mount["mountPropagation"].as_str().is_some_and(|p| p != "None") {
                errors
                    .forbidden(path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => errors.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn resize_policy(container: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policies = list(&container["resizePolicy"]);
    let mut seen = Seen::default();
    for (i, policy) in policies.iter().enumerate() {
        if seen.again(text(&policy["resourceName"])) {
            errors.duplicate(&path.index(i), text(&policy["resourceName"]));
        }
        errors.one_of(path, &policy["resourceName"], &["cpu", "memory"]);
        errors.one_of(path, &policy["restartPolicy"], &["NotRequired", "RestartContainer"]);
        if spec["restartPolicy"] == "Never" && policy["restartPolicy"] != "NotRequired" {
            let words = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, text(&policy["restartPolicy"]), words);
        }
    }
}

fn propagation(mount: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(mode) = mount["mountPropagation"].as_str() else { return };
    if !matches!(mode, "Bidirectional" | "HostToContainer" | "None") {
        errors.not_supported(path, mode, &["Bidirectional", "HostToContainer", "None"]);
    }
    if mode == "Bidirectional" && container["securityContext"]["privileged"] != true {
        errors.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn ports(ports: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names = Seen::default();
    for (i, port) in list(ports).iter().enumerate() {
        let here = path.index(i);
        let name = text(&port["name"]);
        if !name.is_empty() {
            let complaints = syntax::port_name(name);
            if !complaints.is_empty() {
                errors.all_invalid(&here.child("name"), name, complaints);
            } else if names.again(name) {
                errors.duplicate(&here.child("name"), name);
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.required(&here.child("containerPort"), ""),
            number => port_number(number, &here.child("containerPort"), errors),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|n| *n != 0) {
            port_number(number, &here.child("hostPort"), errors);
        }
        errors.one_of(&here.child("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

fn port_number(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if let Some(words) = syntax::port_number(number) {
        errors.invalid(path, number, words);
    }
}

fn host_ports(containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut taken = Seen::default();
    for (i, container) in containers.iter().enumerate() {
        let here = path.index(i);
        let ports = here.child("ports");
        for (j, port) in list(&container["ports"]).iter().enumerate() {
            let Some(number) = port["hostPort"].as_i64().filter(|n| *n != 0) else { continue };
            let key = format!("{}/{}/{number}", text(&port["protocol"]), text(&port["hostIP"]));
            if taken.again(key.clone()) {
                errors.duplicate(&ports.index(j).child("hostPort"), &key);
            }
        }
    }
}

fn env(vars: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, var) in list(vars).iter().enumerate() {
        let here = path.index(i);
        match text(&var["name"]) {
            "" => errors.required(&here.child("name"), ""),
            name => errors.all_invalid(&here.child("name"), name, syntax::env_name(name)),
        }
        if var["valueFrom"].is_object() {
            value_from(var, &here.child("valueFrom"), errors);
        }
    }
}

fn value_from(var: &Value, path: &Path<'_>, errors: &mut Errors) {
    let from = &var["valueFrom"];
    let mut sources = 0;
    if from["fieldRef"].is_object() {
        sources += 1;
        field_ref(&from["fieldRef"], ENV_FIELDS, &path.child("fieldRef"), errors);
    }
    if from["resourceFieldRef"].is_object() {
        sources += 1;
        resources::field_ref(&from["resourceFieldRef"], false, &path.child("resourceFieldRef"), errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        if from[field].is_object() {
            sources += 1;
            key_ref(&from[field], &path.child(field), errors);
        }
    }
    sources += usize::from(from["fileKeyRef"].is_object());
    if sources == 0 {
        let words = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", words);
    } else if !text(&var["value"]).is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

fn key_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(&reference["name"]);
    errors.all_invalid(&path.child("name"), name, syntax::dns_subdomain(name));
    match text(&reference["key"]) {
        "" => errors.required(&path.child("key"), ""),
        key => errors.all_invalid(&path.child("key"), key, syntax::config_key(key)),
    }
}

/// A reference to a field of the pod itself.
pub(super) fn field_ref(reference: &Value, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let given = text(&reference["fieldPath"]);
    if given.is_empty() {
        errors.required(&path.child("fieldPath"), "");
        return;
    }
    if let Some((base, rest)) = given.split_once("['")
        && let Some(key) = rest.strip_suffix("']")
    {
        match base {
            "metadata.annotations" => {
                errors.all_invalid(path, key, syntax::qualified_name(&key.to_lowercase()))
            }
            "metadata.labels" => errors.all_invalid(path, key, syntax::qualified_name(key)),
            other => errors.invalid(path, other, "does not support subscript"),
        }
        return;
    }
    let known = ENV_FIELDS.contains(&given)
        || matches!(
            given,
            "metadata.annotations" | "metadata.labels" | "spec.restartPolicy" | "status.phase"
        );
    if !known {
        let words = format!("error converting fieldPath: field label not supported: {given}");
        errors.invalid(&path.child("fieldPath"), given, &words);
    } else if !supported.contains(&given) {
        errors.not_supported(&path.child("fieldPath"), given, supported);
    }
}

fn env_from(sources: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, source) in list(sources).iter().enumerate() {
        let here = path.index(i);
        let prefix = text(&source["prefix"]);
        if !prefix.is_empty() {
            errors.all_invalid(&here.child("prefix"), prefix, syntax::env_name(prefix));
        }
        let mut count = 0;
        for field in ["configMapRef", "secretRef"] {
            if source[field].is_object() {
                count += 1;
                let reference = here.child(field);
                match text(&source[field]["name"]) {
                    "" => errors.required(&reference.child("name"), ""),
                    name => errors.all_invalid(&reference.child("name"), name, syntax::dns_subdomain(name)),
                }
            }
        }
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}
