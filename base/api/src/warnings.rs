//! Warnings: what Kubernetes accepts but tells the client about in a `Warning` header.

use std::collections::HashMap;

use serde_json::Value;

use crate::Kind;
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;
use crate::validate::Seen;

/// Overlapping ports that are told of.
const MOST: usize = 100;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Warnings about a new object, in upstream's words.
pub fn on_create(kind: &Kind, object: &Value) -> Vec<String> {
    kind.strategy.warnings(object)
}

/// Warnings about a pod.
pub(crate) fn pod_object(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let name = text(&object["metadata"]["name"]);
    let complaints = syntax::dns_label(name);
    if !complaints.is_empty() {
        out.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        ));
    }
    pod(&object["metadata"], &object["spec"], &Path::root(""), &mut out);
    out
}

/// Warnings about the pods that an object's template makes.
pub(crate) fn pod_template(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let spec = Path::root("spec");
    let template = &object["spec"]["template"];
    pod(&template["metadata"], &template["spec"], &spec.child("template"), &mut out);
    out
}

fn pod(metadata: &Value, spec: &Value, root: &Path<'_>, out: &mut Vec<String>) {
    let path = root.child("spec");
    let is_template = !root.to_string().is_empty();
    let mut warn = |at: &Path<'_>, words: &str| out.push(format!("{at}: {words}"));
    scheduling(spec, &path, &mut warn);
    annotations(metadata, root, &mut warn);
    volumes(spec, &path, &mut warn);
    repeated(spec, &path, &mut warn);
    for list_name in ["initContainers", "containers", "ephemeralContainers"] {
        let here = path.child(list_name);
        for (i, container) in list(&spec[list_name]).iter().enumerate() {
            resources(container, &here.index(i), &mut warn);
            environment(container, &here.index(i), &mut warn);
        }
    }
    ports(spec, &path, &mut warn);
    // A pod's own value is made good before anybody looks; a template's is kept.
    if is_template && spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        let words = "must be >= 0; negative values are invalid and will be treated as 1";
        warn(&path.child("terminationGracePeriodSeconds"), words);
    }
}

type Warn<'a> = dyn FnMut(&Path<'_>, &str) + 'a;

fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

fn scheduling(spec: &Value, path: &Path<'_>, warn: &mut Warn<'_>) {
    const NULL: &str = "a null labelSelector results in matching no pod";
    let selector = path.child("nodeSelector");
    for key in spec["nodeSelector"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if let Some(words) = deprecated_label(key) {
            warn(&selector.key(key), words);
        }
    }
    let spread = path.child("topologySpreadConstraints");
    for (i, constraint) in list(&spec["topologySpreadConstraints"]).iter().enumerate() {
        let here = spread.index(i);
        let key = text(&constraint["topologyKey"]);
        if let Some(words) = deprecated_label(key) {
            warn(&here.child("topologyKey"), &format!("{key} is {words}"));
        }
        if constraint["labelSelector"].is_null() {
            warn(&here.child("labelSelector"), NULL);
        }
    }
    let affinity = path.child("affinity");
    for field in ["podAffinity", "podAntiAffinity"] {
        let here = affinity.child(field);
        let required = here.child("requiredDuringSchedulingIgnoredDuringExecution");
        let given = &spec["affinity"][field];
        for (i, term) in list(&given["requiredDuringSchedulingIgnoredDuringExecution"]).iter().enumerate() {
            if term["labelSelector"].is_null() {
                warn(&required.index(i).child("labelSelector"), NULL);
            }
        }
        let preferred = here.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in list(&given["preferredDuringSchedulingIgnoredDuringExecution"]).iter().enumerate() {
            if term["podAffinityTerm"]["labelSelector"].is_null() {
                warn(&preferred.index(i).child("podAffinityTerm").child("labelSelector"), NULL);
            }
        }
    }
}

fn annotations(metadata: &Value, root: &Path<'_>, warn: &mut Warn<'_>) {
    let meta = root.child("metadata");
    let path = meta.child("annotations");
    for (key, words) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            "non-functional in v1.11+; use the \"sysctls\" field instead",
        ),
    ] {
        if metadata["annotations"].get(key).is_some() {
            warn(&path.key(key), words);
        }
    }
}

fn volumes(spec: &Value, path: &Path<'_>, warn: &mut Warn<'_>) {
    let path = path.child("volumes");
    for (i, volume) in list(&spec["volumes"]).iter().enumerate() {
        for (field, words) in [
            ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
            ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
            ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
            ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
            ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
            ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
            ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
            ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
        ] {
            if volume[field].is_object() {
                warn(&path.index(i).child(field), words);
            }
        }
    }
}

fn repeated(spec: &Value, path: &Path<'_>, warn: &mut Warn<'_>) {
    for (field, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let here = path.child(field);
        let items = list(&spec[field]);
        let mut seen = Seen::default();
        for (i, item) in items.iter().enumerate() {
            let value = text(&item[key]);
            if seen.again(value) {
                warn(&here.index(i).child(key), &format!("duplicate {key} {value:?}"));
            }
            if key == "name" && value.is_empty() {
                warn(&here.index(i).child(key), "invalid empty name \"\"");
            }
        }
    }
}

fn resources(container: &Value, path: &Path<'_>, warn: &mut Warn<'_>) {
    let here = path.child("resources");
    for name in ["memory", "ephemeral-storage"] {
        for side in ["limits", "requests"] {
            let amount = text(&container["resources"][side][name]);
            if Quantity::parse(amount).is_ok_and(|q| !q.is_integer()) {
                let words = format!("fractional byte value {amount:?} is invalid, must be an integer");
                warn(&here.child(side).key(name), &words);
            }
        }
    }
}

fn environment(container: &Value, path: &Path<'_>, warn: &mut Warn<'_>) {
    let path = path.child("env");
    let vars = list(&container["env"]);
    let mut seen = Seen::default();
    for (i, var) in vars.iter().enumerate() {
        let name = text(&var["name"]);
        let reference = format!("$({name})");
        let value = text(&var["value"]);
        let extends = var["valueFrom"].is_null() && value != reference && value.contains(&reference);
        if seen.again(name) && !extends {
            warn(
                &path.index(i),
                &format!("hides previous definition of {name:?}, which may be dropped when using apply"),
            );
        }
    }
}

fn ports(spec: &Value, path: &Path<'_>, warn: &mut Warn<'_>) {
    let mut seen: HashMap<(String, &str), Vec<(String, &Value)>> = HashMap::new();
    let mut told = 0;
    for list_name in ["initContainers", "containers"] {
        let containers = path.child(list_name);
        for (i, container) in list(&spec[list_name]).iter().enumerate() {
            let here = containers.index(i);
            let ports = here.child("ports");
            for (j, port) in list(&container["ports"]).iter().enumerate() {
                let at = ports.index(j);
                let same = |a: &Value, field: &str| a[field] == port[field];
                let host = |p: &Value| p["hostPort"].as_i64().unwrap_or(0);
                let key = (port["containerPort"].to_string(), text(&port["protocol"]));
                let alike = seen.entry(key).or_default();
                for (place, other) in alike.iter() {
                    told += 1;
                    // Each with each of those before it: more than anybody reads, and than fits into an answer.
                    if told > MOST {
                        return;
                    }
                    if same(other, "hostIP") && same(other, "hostPort") {
                        warn(&at, &format!("duplicate port definition with {place}"));
                    } else if host(port) == 0 || host(other) == 0 {
                        warn(&at, &format!("overlapping port definition with {place}"));
                    }
                }
                alike.push((at.to_string(), port));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn doubtful_pods_are_accepted_with_warnings() {
        let pods = crate::by_resource("", "v1", "pods").unwrap();
        for (spec, expected) in [
            (json!({}), ""),
            (json!({"terminationGracePeriodSeconds": -1}), ""),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ),
            (
                json!({"imagePullSecrets": [{"name": ""}]}),
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
            ),
            (
                json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}),
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ),
            (
                json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]}]}),
                "",
            ),
            (
                json!({"containers": [{"resources": {"limits": {"memory": "1500m"}}}]}),
                "spec.containers[0].resources.limits[memory]: fractional byte value \"1500m\" is invalid, must be an integer",
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]}]}),
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ),
        ] {
            let found = on_create(pods, &json!({"metadata": {"name": "p"}, "spec": spec})).join("; ");
            assert_eq!(found, expected, "{spec}");
        }
        let dotted = on_create(pods, &json!({"metadata": {"name": "a.b"}, "spec": {}}));
        assert_eq!(
            dotted,
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
            ]
        );
    }
}
