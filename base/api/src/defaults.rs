//! Defaulting: the values Kubernetes fills in when a client leaves them out, per kind.

pub(crate) mod pod;
pub(crate) mod workload;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::Kind;
use crate::schema::{Cardinality, Field, Message};

pub(crate) use pod::template as pod_template;

type Object = Map<String, Value>;

/// Fills in the kind's defaults; the object already has the kind's shape.
pub fn apply(kind: &Kind, object: &mut Value) {
    if let Some(node) = &kind.schema.structural {
        node.fill(object);
    }
    let Value::Object(map) = object else { return };
    declared(&kind.schema, map);
    kind.strategy.defaults(map);
}

/// Defaults that the schema itself declares, in every message of the object.
fn declared(schema: &Message, map: &mut Object) {
    for field in schema.fields.iter() {
        if !field.default.is_empty() && field.cardinality == Cardinality::One {
            let given = map.get(field.name).is_some_and(|v| !v.is_null() && (field.is_pointer() || v != ""));
            let value = serde_json::from_str::<Value>(field.default).unwrap_or(Value::Null);
            let zero = value == "" || value == false || value == 0;
            if !given && (field.is_pointer() || !zero) && !value.is_null() {
                map.insert(field.name.to_string(), value);
            }
        }
    }
    for (name, value) in map.iter_mut() {
        let Some(inner) = schema.field(name).and_then(Field::message) else { continue };
        match value {
            Value::Object(entries)
                if schema.field(name).is_some_and(|f| f.cardinality == Cardinality::Map) =>
            {
                entries.values_mut().filter_map(Value::as_object_mut).for_each(|o| declared(inner, o));
            }
            Value::Object(child) => declared(inner, child),
            Value::Array(items) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|o| declared(inner, o))
            }
            _ => {}
        }
    }
}

/// Sets a value that is absent, null or empty text.
pub(crate) fn set(map: &mut Object, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(|v| v.is_null() || v.as_str() == Some("")) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a value that is absent or null.
pub(crate) fn absent(map: &mut Object, key: &str, value: impl Into<Value>) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a number that is absent or zero.
pub(crate) fn nonzero(map: &mut Object, key: &str, value: i64) {
    if map.get(key).is_none_or(|v| v.is_null() || v.as_i64() == Some(0)) {
        map.insert(key.to_owned(), value.into());
    }
}

/// The object under this key, made when absent.
pub(crate) fn child<'a>(map: &'a mut Object, key: &str) -> &'a mut Object {
    if !map.get(key).is_some_and(Value::is_object) {
        map.insert(key.to_owned(), json!({}));
    }
    map.get_mut(key).and_then(Value::as_object_mut).expect("the entry was just made an object")
}

/// Runs over the objects of a list.
pub(crate) fn each(map: &mut Object, key: &str, mut run: impl FnMut(&mut Object)) {
    if let Some(Value::Array(items)) = map.get_mut(key) {
        items.iter_mut().filter_map(Value::as_object_mut).for_each(&mut run);
    }
}

/// Text of an entry, empty when absent.
pub(crate) fn text<'a>(map: &'a Object, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Plain text a client wrote for its convenience becomes data.
pub(crate) fn secret(map: &mut Object) {
    set(map, "type", "Opaque");
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        for (key, value) in plain {
            let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
            child(map, "data").insert(key, encoded.into());
        }
    }
}

pub(crate) fn namespace(map: &mut Object) {
    let name = text(child(map, "metadata"), "name").to_owned();
    if !name.is_empty() {
        let labels = child(child(map, "metadata"), "labels");
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    set(child(map, "status"), "phase", "Active");
}

pub(crate) fn node(map: &mut Object) {
    let status = child(map, "status");
    if let (None, Some(capacity)) = (status.get("allocatable"), status.get("capacity").cloned()) {
        status.insert("allocatable".to_owned(), capacity);
    }
}

pub(crate) fn service(map: &mut Object) {
    let spec = child(map, "spec");
    set(spec, "sessionAffinity", "None");
    if text(spec, "sessionAffinity") == "ClientIP" {
        let config = child(child(spec, "sessionAffinityConfig"), "clientIP");
        absent(config, "timeoutSeconds", 10800);
    } else if text(spec, "sessionAffinity") == "None" {
        spec.remove("sessionAffinityConfig");
    }
    set(spec, "type", "ClusterIP");
    each(spec, "ports", |port| {
        set(port, "protocol", "TCP");
        let unset = port.get("targetPort").is_none_or(|t| t.is_null() || t == &json!(0) || t == &json!(""));
        if unset {
            let target = port.get("port").cloned().unwrap_or_else(|| json!(0));
            port.insert("targetPort".to_owned(), target);
        }
    });
    let kind = text(spec, "type").to_owned();
    let external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|i| !i.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external_ips) {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        absent(spec, "allocateLoadBalancerNodePorts", true);
    }
}

pub(crate) fn limit(item: &mut Object) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let source = item.get(from).and_then(Value::as_object).cloned().unwrap_or_default();
        for (name, amount) in source {
            child(item, to).entry(name).or_insert(amount);
        }
    }
}

pub(crate) fn webhook(hook: &mut Object) {
    absent(hook, "failurePolicy", "Fail");
    absent(hook, "matchPolicy", "Equivalent");
    absent(hook, "namespaceSelector", json!({}));
    absent(hook, "objectSelector", json!({}));
    absent(hook, "timeoutSeconds", 10);
    each(hook, "rules", |rule| absent(rule, "scope", "*"));
    if let Some(Value::Object(service)) = child(hook, "clientConfig").get_mut("service") {
        absent(service, "port", 443);
    }
}

/// What a policy or its binding is about.
pub(crate) fn match_resources(resources: &mut Object) {
    absent(resources, "matchPolicy", "Equivalent");
    absent(resources, "namespaceSelector", json!({}));
    absent(resources, "objectSelector", json!({}));
    for key in ["resourceRules", "excludeResourceRules"] {
        each(resources, key, |rule| absent(rule, "scope", "*"));
    }
}

pub(crate) fn storage_driver(map: &mut Object) {
    let spec = child(map, "spec");
    absent(spec, "attachRequired", true);
    absent(spec, "podInfoOnMount", false);
    absent(spec, "storageCapacity", false);
    absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
    absent(spec, "requiresRepublish", false);
    absent(spec, "seLinuxMount", false);
}

pub(crate) fn network_policy(map: &mut Object) {
    let spec = child(map, "spec");
    for side in ["ingress", "egress"] {
        each(spec, side, |rule| each(rule, "ports", |port| absent(port, "protocol", "TCP")));
    }
    let egress = spec.get("egress").and_then(Value::as_array).is_some_and(|e| !e.is_empty());
    absent(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

pub(crate) fn role_binding(map: &mut Object) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(Value::Object(role)) = map.get_mut("roleRef") {
        set(role, "apiGroup", GROUP);
    }
    each(map, "subjects", |subject| {
        if matches!(text(subject, "kind"), "User" | "Group") {
            set(subject, "apiGroup", GROUP);
        }
    });
}

/// The specification of a claim or of a claim's template.
pub(crate) fn device_claim(spec: &mut Object) {
    if let Some(Value::Object(devices)) = spec.get_mut("devices") {
        each(devices, "requests", |request| {
            if let Some(Value::Object(exactly)) = request.get_mut("exactly") {
                device_request(exactly);
            }
            each(request, "firstAvailable", device_request);
        });
    }
}

fn device_request(request: &mut Object) {
    set(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        nonzero(request, "count", 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(group: &str, resource: &str, object: Value) -> Value {
        let kind = crate::by_resource(group, "v1", resource).unwrap();
        let mut object = object;
        crate::strict::conform(kind, &mut object).unwrap();
        apply(kind, &mut object);
        object
    }

    #[test]
    fn a_minimal_pod_gets_kubernetes_defaults() {
        let pod = defaulted(
            "",
            "pods",
            json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": true, "containers": [
                {"name": "a", "image": "nginx", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}},
                 "livenessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
                {"name": "b", "image": "nginx:1.27@sha256:0000000000000000000000000000000000000000000000000000000000000000"}],
                "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "x"}}, {"name": "h", "hostPath": {"path": "/"}}]}}),
        );
        let spec = &pod["spec"];
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(spec["containers"][1]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(
            spec["containers"][0]["ports"][0],
            json!({"containerPort": 80, "protocol": "TCP", "hostPort": 80})
        );
        assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(
            spec["containers"][0]["livenessProbe"],
            json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
        );
        assert_eq!(spec["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(spec["containers"][0]["terminationMessagePath"], "/dev/termination-log");
        assert_eq!(spec["volumes"][0], json!({"name": "v", "emptyDir": {}}));
        assert_eq!(spec["volumes"][1]["configMap"], json!({"name": "x", "defaultMode": 420}));
        assert_eq!(spec["volumes"][2]["hostPath"], json!({"path": "/", "type": ""}));
        for (field, value) in [
            ("restartPolicy", json!("Always")),
            ("dnsPolicy", json!("ClusterFirst")),
            ("schedulerName", json!("default-scheduler")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("securityContext", json!({})),
            ("enableServiceLinks", json!(true)),
        ] {
            assert_eq!(spec[field], value, "{field}");
        }
    }

    #[test]
    fn other_kinds_get_theirs() {
        for (group, resource, object, pointer, expected) in [
            ("", "secrets", json!({}), "/type", json!("Opaque")),
            (
                "",
                "secrets",
                json!({"stringData": {"a": "hello"}, "data": {"b": ""}}),
                "/data",
                json!({"a": "aGVsbG8=", "b": ""}),
            ),
            (
                "",
                "namespaces",
                json!({"metadata": {"name": "n"}}),
                "/metadata/labels",
                json!({"kubernetes.io/metadata.name": "n"}),
            ),
            (
                "",
                "services",
                json!({"spec": {"ports": [{"port": 80}]}}),
                "/spec/ports/0",
                json!({"port": 80, "protocol": "TCP", "targetPort": 80}),
            ),
            ("", "services", json!({}), "/spec/internalTrafficPolicy", json!("Cluster")),
            (
                "apps",
                "deployments",
                json!({}),
                "/spec/strategy",
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
            ),
            (
                "apps",
                "deployments",
                json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b:1"}]}}}}),
                "/spec/template/spec/restartPolicy",
                json!("Always"),
            ),
            (
                "apps",
                "daemonsets",
                json!({}),
                "/spec/updateStrategy/rollingUpdate",
                json!({"maxSurge": 0, "maxUnavailable": 1}),
            ),
            ("apps", "statefulsets", json!({}), "/spec/podManagementPolicy", json!("OrderedReady")),
            ("batch", "jobs", json!({}), "/spec/backoffLimit", json!(6)),
            ("batch", "cronjobs", json!({}), "/spec/failedJobsHistoryLimit", json!(1)),
            ("storage.k8s.io", "storageclasses", json!({}), "/reclaimPolicy", json!("Delete")),
            ("networking.k8s.io", "networkpolicies", json!({}), "/spec/policyTypes", json!(["Ingress"])),
            (
                "resource.k8s.io",
                "resourceclaims",
                json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}]}}}),
                "/spec/devices/requests/0/exactly/count",
                json!(1),
            ),
        ] {
            let object = defaulted(group, resource, object);
            assert_eq!(object.pointer(pointer), Some(&expected), "{resource} {pointer} in {object}");
        }
    }
}
