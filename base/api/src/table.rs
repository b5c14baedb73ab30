//! Tables as kubectl prints them: columns per kind and the cells of one object.

mod autoscaler;
mod cells;
pub(crate) mod columns;
pub(crate) mod pod;
mod policy;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Kind;
pub(crate) use columns::PLAIN;
pub use columns::{Cell, Column};

/// `columnDefinitions` of a Table for the kind.
pub fn columns(kind: &Kind) -> Value {
    kind.strategy.column_definitions()
}

/// Columns as a table defines them.
pub(crate) fn definitions(columns: &[Column]) -> Value {
    let definitions = columns.iter().map(|column| {
        let named = column.name == "Name";
        json!({
            "name": column.name,
            "type": column.kind,
            "format": if named { "name" } else { "" },
            "description": "",
            "priority": column.priority,
        })
    });
    Value::Array(definitions.collect())
}

/// Cells of one object, wide columns included.
pub fn row(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    kind.strategy.row(object, now)
}

/// The cells that columns take from one object.
pub(crate) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    columns.iter().map(|column| cell(column, object, now)).collect()
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    match column.cell {
        Cell::Name => json!(cells::text(&object["metadata"]["name"])),
        Cell::Age => json!(age(&object["metadata"]["creationTimestamp"], now)),
        Cell::Text(path) => json!(cells::text(cells::at(object, path))),
        Cell::TextOr(path, otherwise) => {
            let found = cells::text(cells::at(object, path));
            json!(if found.is_empty() { otherwise } else { found })
        }
        Cell::Number(path) => json!(cells::at(object, path).as_i64().unwrap_or(0)),
        Cell::Flag(path) => json!(cells::at(object, path).as_bool().unwrap_or(false)),
        Cell::Count(path) => json!(cells::count(cells::at(object, path))),
        Cell::Computed(compute) => compute(object, now),
    }
}

/// Time since a timestamp in kubectl's short form.
pub fn age(timestamp: &Value, now: Timestamp) -> String {
    match timestamp.as_str().and_then(|t| t.parse::<Timestamp>().ok()) {
        Some(then) => crate::time::human_age(now.as_second() - then.as_second()),
        None => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(group: &str, resource: &str, object: &Value) -> Vec<Value> {
        let kind = crate::by_resource(
            group,
            if resource == "horizontalpodautoscalers" { "v2" } else { "v1" },
            resource,
        )
        .unwrap();
        let now: Timestamp = "2026-11-15T12:00:30Z".parse().unwrap();
        let cells = row(kind, object, now);
        assert_eq!(cells.len(), columns(kind).as_array().unwrap().len(), "{resource}");
        cells
    }

    #[test]
    fn every_kind_prints_an_empty_object() {
        for kind in crate::kinds() {
            printed(&kind.group, &kind.resource, &json!({"metadata": {"name": "x"}}));
        }
    }

    #[test]
    fn rows_read_as_kubectls() {
        let meta = json!({"name": "x", "creationTimestamp": "2026-11-15T12:00:00Z"});
        for (group, resource, object, expected) in [
            (
                "",
                "configmaps",
                json!({"metadata": meta, "data": {"a": "1"}, "binaryData": {"b": ""}}),
                json!(["x", 2, "30s"]),
            ),
            (
                "",
                "secrets",
                json!({"metadata": meta, "type": "Opaque", "data": {"a": ""}}),
                json!(["x", "Opaque", 1, "30s"]),
            ),
            (
                "",
                "namespaces",
                json!({"metadata": meta, "status": {"phase": "Active"}}),
                json!(["x", "Active", "30s"]),
            ),
            ("", "serviceaccounts", json!({"metadata": meta}), json!(["x", "30s"])),
            (
                "coordination.k8s.io",
                "leases",
                json!({"metadata": meta, "spec": {"holderIdentity": "h"}}),
                json!(["x", "h", "30s"]),
            ),
            (
                "",
                "nodes",
                json!({"metadata": {"name": "n", "creationTimestamp": "2026-11-15T12:00:00Z", "labels": {"node-role.kubernetes.io/control-plane": ""}},
                    "spec": {"unschedulable": true},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                        "nodeInfo": {"kubeletVersion": "v1", "osImage": "Debian", "kernelVersion": "6", "architecture": "amd64", "containerRuntimeVersion": "podwire://1"}}}),
                json!([
                    "n",
                    "Ready,SchedulingDisabled",
                    "control-plane",
                    "30s",
                    "v1",
                    "10.0.0.1",
                    "<none>",
                    "Debian",
                    "6 (amd64)",
                    "podwire://1"
                ]),
            ),
            (
                "",
                "services",
                json!({"metadata": meta, "spec": {"type": "NodePort", "clusterIPs": ["10.96.0.1"], "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}, {"port": 53, "protocol": "UDP"}]}}),
                json!(["x", "NodePort", "10.96.0.1", "<none>", "80:30000/TCP,53/UDP", "30s", "a=b"]),
            ),
            (
                "",
                "events",
                json!({"metadata": {"name": "e"}, "lastTimestamp": "2026-11-15T12:00:25Z", "firstTimestamp": "2026-11-15T12:00:00Z", "type": "Normal", "reason": "Pulled", "message": " m ", "count": 3,
                    "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"}, "source": {"component": "kubelet", "host": "n"}}),
                json!([
                    "5s",
                    "Normal",
                    "Pulled",
                    "pod/p",
                    "spec.containers{a}",
                    "kubelet, n",
                    "m",
                    "30s",
                    3,
                    "e"
                ]),
            ),
            (
                "apps",
                "deployments",
                json!({"metadata": meta, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}}, "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
                json!(["x", "1/3", 2, 0, "30s", "c,d", "i,j", "a=b"]),
            ),
            (
                "batch",
                "jobs",
                json!({"metadata": meta, "spec": {"completions": 2, "template": {}}, "status": {"succeeded": 1, "startTime": "2026-11-15T12:00:00Z"}}),
                json!(["x", "Running", "1/2", "30s", "30s", "", "", "<none>"]),
            ),
        ] {
            assert_eq!(Value::Array(printed(group, resource, &object)), expected, "{resource}");
        }
    }
}
