//! A pod's quality of service class, from the requests and limits of its containers.

use serde_json::Value;

use crate::quantity::Quantity;

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort` for a pod spec.
pub fn pod_qos(spec: &Value) -> &'static str {
    let containers = ["initContainers", "containers"];
    let all = containers.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let (mut any, mut guaranteed, mut count) = (false, true, 0);
    let pod_level = &spec["resources"];
    if pod_level.is_object() && (pod_level["requests"].is_object() || pod_level["limits"].is_object()) {
        (any, guaranteed, count) = (has_any(pod_level), is_guaranteed(pod_level), 1);
    } else {
        for container in all {
            count += 1;
            any |= has_any(&container["resources"]);
            guaranteed &= is_guaranteed(&container["resources"]);
        }
    }
    match (any, guaranteed && count > 0) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn amount(resources: &Value, list: &str, name: &str) -> Option<Quantity> {
    Quantity::parse(resources[list][name].as_str()?).ok().filter(|q| !q.is_zero())
}

fn has_any(resources: &Value) -> bool {
    COUNTED
        .iter()
        .any(|name| ["requests", "limits"].iter().any(|list| amount(resources, list, name).is_some()))
}

fn is_guaranteed(resources: &Value) -> bool {
    COUNTED.iter().all(|name| {
        match (amount(resources, "limits", name), amount(resources, "requests", name)) {
            (Some(limit), Some(request)) => limit == request,
            (Some(_), None) => true,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes_follow_requests_and_limits() {
        let same =
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1Gi"}});
        for (containers, class) in [
            (json!([{}]), "BestEffort"),
            (json!([{"resources": {"requests": {"example.com/x": "1"}}}]), "BestEffort"),
            (json!([{"resources": same}]), "Guaranteed"),
            (json!([{"resources": same}, {}]), "Burstable"),
            (json!([{"resources": {"requests": {"cpu": "1"}}}]), "Burstable"),
            (json!([{"resources": {"requests": {"cpu": "0"}}}]), "BestEffort"),
        ] {
            assert_eq!(pod_qos(&json!({"containers": containers})), class, "{containers}");
        }
    }
}
