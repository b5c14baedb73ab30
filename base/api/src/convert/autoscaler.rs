//! `autoscaling/v1` knows only the CPU target; every other metric travels in annotations, as upstream has it.

use serde_json::{Map, Value, json};

use crate::defaults::child;

pub(crate) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

type Object = Map<String, Value>;

fn is_cpu(metric: &Value, side: &str) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && !metric["resource"][side]["averageUtilization"].is_null()
}

/// Moves what an annotation carries into the object.
fn unpack(map: &mut Object, annotation: &str) -> Option<Value> {
    let annotations = map.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(annotation)?;
    let empty = annotations.is_empty();
    if empty {
        child(map, "metadata").remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn pack(map: &mut Object, annotation: &str, value: &Value) {
    child(child(map, "metadata"), "annotations").insert(annotation.to_owned(), json!(value.to_string()));
}

/// The v2 form of a v1 autoscaler.
pub(crate) fn to_v2(object: &mut Value) {
    let Value::Object(map) = object else { return };
    let mut metrics = unpack(map, METRICS).and_then(|m| m.as_array().cloned()).unwrap_or_default();
    let behavior = unpack(map, BEHAVIOR);
    let mut current = unpack(map, CURRENT).and_then(|m| m.as_array().cloned()).unwrap_or_default();
    let conditions = unpack(map, CONDITIONS);
    let spec = child(map, "spec");
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        metrics.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    if !metrics.is_empty() {
        spec.insert("metrics".to_owned(), Value::Array(metrics));
    }
    if let Some(behavior) = behavior {
        spec.insert("behavior".to_owned(), behavior);
    }
    let status = child(map, "status");
    if let Some(percent) = status.remove("currentCPUUtilizationPercentage") {
        let value = json!({"averageUtilization": percent, "averageValue": "0"});
        current.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": value}}));
    }
    if !current.is_empty() {
        status.insert("currentMetrics".to_owned(), Value::Array(current));
    }
    if let Some(conditions) = conditions {
        status.insert("conditions".to_owned(), conditions);
    }
    shape(object, "v2");
}

/// The v1 form of a v2 autoscaler.
pub(crate) fn to_v1(object: &mut Value) {
    let Value::Object(map) = object else { return };
    let spec = child(map, "spec");
    let (cpu, metrics) = split(spec.remove("metrics"), "target");
    let behavior = spec.remove("behavior");
    if let Some(percent) = cpu {
        spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
    }
    let status = child(map, "status");
    let (cpu, current) = split(status.remove("currentMetrics"), "current");
    let conditions = status.remove("conditions");
    if let Some(percent) = cpu {
        status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
    }
    for (annotation, value) in
        [(METRICS, metrics), (BEHAVIOR, behavior), (CURRENT, current), (CONDITIONS, conditions)]
    {
        if let Some(value) = value.filter(|v| !v.is_null()) {
            pack(map, annotation, &value);
        }
    }
    shape(object, "v1");
}

/// The first CPU utilization of a list of metrics, and the other metrics if there are any.
fn split(metrics: Option<Value>, side: &str) -> (Option<Value>, Option<Value>) {
    let Some(Value::Array(mut metrics)) = metrics else { return (None, None) };
    let at = metrics.iter().position(|m| is_cpu(m, side));
    let cpu = at.map(|at| metrics.remove(at)["resource"][side]["averageUtilization"].clone());
    (cpu, (!metrics.is_empty()).then_some(Value::Array(metrics)))
}

fn shape(object: &mut Value, version: &str) {
    if object.get("apiVersion").is_some() {
        object["apiVersion"] = json!(format!("autoscaling/{version}"));
    }
    if let Some(kind) = crate::by_gvk("autoscaling", version, "HorizontalPodAutoscaler") {
        // Ignored: an autoscaler that had the shape of one version has that of the other.
        crate::strict::conform(kind, object).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autoscalers_keep_everything_in_both_versions() {
        let v1 = json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "targetCPUUtilizationPercentage": 80},
            "status": {"currentReplicas": 0, "desiredReplicas": 0},
        });
        let mut stored = v1.clone();
        to_v2(&mut stored);
        assert_eq!(
            stored["spec"]["metrics"][0]["resource"]["target"],
            json!({"type": "Utilization", "averageUtilization": 80})
        );
        to_v1(&mut stored);
        assert_eq!(stored, v1);
        let mut rich = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "metrics": [{"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "5"}}}]},
            "status": {"currentMetrics": null, "desiredReplicas": 0},
        });
        let before = rich.clone();
        to_v1(&mut rich);
        assert!(rich["metadata"]["annotations"][METRICS].is_string());
        to_v2(&mut rich);
        assert_eq!(rich["spec"], before["spec"]);
        assert!(rich["metadata"].get("annotations").is_none());
    }
}
