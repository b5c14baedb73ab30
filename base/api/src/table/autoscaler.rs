//! Cells of autoscalers: what is scaled, and every metric as `now/wanted`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{list, text};

/// Metrics shown; the others are counted.
const SHOWN: usize = 2;

/// What is scaled.
pub(super) fn reference(object: &Value, _: Timestamp) -> Value {
    let target = &object["spec"]["scaleTargetRef"];
    json!(format!("{}/{}", text(&target["kind"]), text(&target["name"])))
}

/// The least number of pods.
pub(super) fn min_pods(object: &Value, _: Timestamp) -> Value {
    json!(object["spec"]["minReplicas"].as_i64().map_or_else(|| "<unset>".to_owned(), |n| n.to_string()))
}

/// The metrics: those of v2, or the one that v1 has a field for.
pub(super) fn targets(object: &Value, _: Timestamp) -> Value {
    let (spec, status) = (&object["spec"], &object["status"]);
    if let Some(wanted) = spec["targetCPUUtilizationPercentage"].as_i64() {
        let now = status["currentCPUUtilizationPercentage"].as_i64();
        return json!(format!("cpu: {}/{wanted}%", percent(now)));
    }
    let (wanted, now) = (list(&spec["metrics"]), list(&status["currentMetrics"]));
    if wanted.is_empty() {
        return json!("<none>");
    }
    let shown = wanted.iter().enumerate().take(SHOWN);
    let cells: Vec<String> =
        shown.map(|(at, metric)| metric_cell(metric, now.get(at).unwrap_or(&Value::Null))).collect();
    let mut cell = cells.join(", ");
    if wanted.len() > SHOWN {
        cell += &format!(" + {} more...", wanted.len() - SHOWN);
    }
    json!(cell)
}

fn percent(value: Option<i64>) -> String {
    value.map_or_else(|| "<unknown>".to_owned(), |value| format!("{value}%"))
}

fn metric_cell(metric: &Value, status: &Value) -> String {
    let kind = text(&metric["type"]);
    let source = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (wanted, now) = (&metric[source]["target"], &status[source]["current"]);
    let known = |value: &Value| value.as_str().unwrap_or("<unknown>").to_owned();
    let average = wanted["averageValue"].as_str();
    match kind {
        "Resource" | "ContainerResource" => {
            let name = text(&metric[source]["name"]);
            match average {
                Some(average) => format!("{name}: {}/{average}", known(&now["averageValue"])),
                None => {
                    let auto = wanted["averageUtilization"].as_i64();
                    let auto = auto.map_or_else(|| "<auto>".to_owned(), |value| format!("{value}%"));
                    format!("{name}: {}/{auto}", percent(now["averageUtilization"].as_i64()))
                }
            }
        }
        "Pods" => format!("{}/{}", known(&now["averageValue"]), average.unwrap_or("<unknown>")),
        _ => match average {
            Some(average) => format!("{}/{average} (avg)", known(&now["averageValue"])),
            None => format!("{}/{}", known(&now["value"]), known(&wanted["value"])),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_shown_with_what_is_known_and_counted_beyond_two() {
        let now = Timestamp::UNIX_EPOCH;
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
        let queue = json!({"type": "External", "external": {"target": {"type": "AverageValue", "averageValue": "30"}}});
        let requests =
            json!({"type": "Pods", "pods": {"target": {"type": "AverageValue", "averageValue": "1k"}}});
        let object = |metrics: Value, current: Value| json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}});
        for (metrics, current, shown) in [
            (json!([]), Value::Null, "<none>"),
            (json!([cpu]), Value::Null, "cpu: <unknown>/80%"),
            (
                json!([cpu, memory]),
                json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}]),
                "cpu: 7%/80%, memory: <unknown>/1Gi",
            ),
            (
                json!([queue, requests, cpu]),
                json!([{"type": "External", "external": {"current": {"averageValue": "12"}}}]),
                "12/30 (avg), <unknown>/1k + 1 more...",
            ),
        ] {
            assert_eq!(targets(&object(metrics, current), now), json!(shown));
        }
        let first = json!({"spec": {"targetCPUUtilizationPercentage": 50}, "status": {"currentCPUUtilizationPercentage": 3}});
        assert_eq!(targets(&first, now), json!("cpu: 3%/50%"));
    }
}
