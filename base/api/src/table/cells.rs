//! Computed cells of kinds other than pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use crate::selector::LabelSelector;
use crate::time::human_age;
use crate::{condition, owner};

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn or_none(value: &str) -> &str {
    if value.is_empty() { "<none>" } else { value }
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, key| &value[key])
}

pub(super) fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

fn joined<'a>(items: impl Iterator<Item = &'a str>) -> Value {
    json!(items.collect::<Vec<_>>().join(","))
}

fn scalar(value: &Value) -> Value {
    match value {
        Value::String(s) => json!(s),
        Value::Number(n) => json!(n.to_string()),
        _ => json!("N/A"),
    }
}

fn pod_template(object: &Value) -> &Value {
    let job = &object["spec"]["jobTemplate"]["spec"]["template"];
    if job.is_object() { job } else { &object["spec"]["template"] }
}

pub(super) fn container_names(object: &Value, _: Timestamp) -> Value {
    joined(list(&pod_template(object)["spec"]["containers"]).iter().map(|c| text(&c["name"])))
}

pub(super) fn container_images(object: &Value, _: Timestamp) -> Value {
    joined(list(&pod_template(object)["spec"]["containers"]).iter().map(|c| text(&c["image"])))
}

pub(super) fn template_names(object: &Value, _: Timestamp) -> Value {
    joined(list(&object["template"]["spec"]["containers"]).iter().map(|c| text(&c["name"])))
}

pub(super) fn template_images(object: &Value, _: Timestamp) -> Value {
    joined(list(&object["template"]["spec"]["containers"]).iter().map(|c| text(&c["image"])))
}

pub(super) fn template_labels(object: &Value, _: Timestamp) -> Value {
    json!(format_selector(&object["template"]["metadata"]["labels"]))
}

pub(super) fn cidrs(object: &Value, _: Timestamp) -> Value {
    joined(list(&object["spec"]["cidrs"]).iter().map(text))
}

pub(super) fn parent(object: &Value, _: Timestamp) -> Value {
    let parent = &object["spec"]["parentRef"];
    let parts = ["resource", "namespace", "name"].map(|key| text(&parent[key]).to_owned());
    json!(parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("/"))
}

fn pairs(map: &Value) -> Vec<String> {
    map.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v))).collect()
}

/// A label selector, plain or structured, on one line.
fn format_selector(selector: &Value) -> String {
    let structured = selector.get("matchLabels").is_some_and(Value::is_object)
        || selector.get("matchExpressions").is_some_and(Value::is_array);
    if !structured {
        return or_none(&pairs(selector).join(",")).to_owned();
    }
    match LabelSelector::from_object(selector) {
        Ok(selector) => or_none(&selector.to_string()).to_owned(),
        Err(_) => "<error>".to_owned(),
    }
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    json!(format_selector(&object["spec"]["selector"]))
}

pub(super) fn pod_selector(object: &Value, _: Timestamp) -> Value {
    json!(format_selector(&object["spec"]["podSelector"]))
}

pub(super) fn cron_selector(object: &Value, _: Timestamp) -> Value {
    json!(format_selector(&object["spec"]["jobTemplate"]["spec"]["selector"]))
}

pub(super) fn node_selector(object: &Value, _: Timestamp) -> Value {
    json!(format_selector(&pod_template(object)["spec"]["nodeSelector"]))
}

pub(super) fn config_map_size(object: &Value, _: Timestamp) -> Value {
    json!(count(&object["data"]) + count(&object["binaryData"]))
}

pub(super) fn ready_replicas(object: &Value, _: Timestamp) -> Value {
    let number = |v: &Value| v.as_i64().unwrap_or(0);
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
}

pub(super) fn phase(object: &Value, _: Timestamp) -> Value {
    let leaving = !object["metadata"]["deletionTimestamp"].is_null();
    json!(if leaving { "Terminating" } else { text(&object["status"]["phase"]) })
}

// Nodes.

pub(super) fn node_status(object: &Value, _: Timestamp) -> Value {
    let ready = condition::find(condition::of(object), "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

pub(super) fn node_roles(object: &Value, _: Timestamp) -> Value {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|r| !r.is_empty()) {
            roles.push(role);
        } else if key == "kubernetes.io/role" {
            roles.push(text(value));
        }
    }
    roles.sort_unstable();
    json!(or_none(&roles.join(",")))
}

fn node_address(object: &Value, kind: &str) -> Value {
    let found = list(&object["status"]["addresses"]).iter().find(|a| a["type"] == kind);
    json!(found.map_or("<none>", |a| text(&a["address"])))
}

pub(super) fn node_internal_ip(object: &Value, _: Timestamp) -> Value {
    node_address(object, "InternalIP")
}

pub(super) fn node_external_ip(object: &Value, _: Timestamp) -> Value {
    node_address(object, "ExternalIP")
}

pub(super) fn node_kernel(object: &Value, _: Timestamp) -> Value {
    let info = &object["status"]["nodeInfo"];
    let (kernel, arch) = (text(&info["kernelVersion"]), text(&info["architecture"]));
    let kernel = if kernel.is_empty() { "<unknown>" } else { kernel };
    json!(if arch.is_empty() { kernel.to_owned() } else { format!("{kernel} ({arch})") })
}

// Events, of both groups.

fn either<'a>(object: &'a Value, old: &str, new: &str) -> &'a Value {
    if object[old].is_null() { &object[new] } else { &object[old] }
}

pub(super) fn event_first_seen(object: &Value, now: Timestamp) -> Value {
    let first = either(object, "firstTimestamp", "deprecatedFirstTimestamp");
    json!(age(if first.is_null() { &object["eventTime"] } else { first }, now))
}

pub(super) fn event_last_seen(object: &Value, now: Timestamp) -> Value {
    if object["series"].is_object() {
        return json!(age(&object["series"]["lastObservedTime"], now));
    }
    match either(object, "lastTimestamp", "deprecatedLastTimestamp") {
        Value::Null => event_first_seen(object, now),
        last => json!(age(last, now)),
    }
}

pub(super) fn event_count(object: &Value, _: Timestamp) -> Value {
    let series = object["series"]["count"].as_i64();
    let count = series.or_else(|| either(object, "count", "deprecatedCount").as_i64()).unwrap_or(0);
    json!(count.max(1))
}

pub(super) fn event_object(object: &Value, _: Timestamp) -> Value {
    let target = either(object, "involvedObject", "regarding");
    let (kind, name) = (text(&target["kind"]).to_lowercase(), text(&target["name"]));
    json!(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

pub(super) fn event_subobject(object: &Value, _: Timestamp) -> Value {
    json!(text(&either(object, "involvedObject", "regarding")["fieldPath"]))
}

pub(super) fn event_source(object: &Value, _: Timestamp) -> Value {
    let source = either(object, "source", "deprecatedSource");
    let first =
        |a: &Value, b: &Value| if text(a).is_empty() { text(b).to_owned() } else { text(a).to_owned() };
    let component = first(&source["component"], either(object, "reportingComponent", "reportingController"));
    let instance = first(&source["host"], &object["reportingInstance"]);
    json!(if instance.is_empty() { component } else { format!("{component}, {instance}") })
}

pub(super) fn event_message(object: &Value, _: Timestamp) -> Value {
    json!(text(either(object, "message", "note")).trim())
}

// Services and addresses.

pub(super) fn service_cluster_ip(object: &Value, _: Timestamp) -> Value {
    json!(or_none(text(&object["spec"]["clusterIPs"][0])))
}

pub(super) fn load_balancer(object: &Value, _: Timestamp) -> Value {
    let ingress = list(&object["status"]["loadBalancer"]["ingress"]).iter();
    joined(ingress.map(|i| if text(&i["ip"]).is_empty() { text(&i["hostname"]) } else { text(&i["ip"]) }))
}

pub(super) fn service_external_ip(object: &Value, now: Timestamp) -> Value {
    let spec = &object["spec"];
    let external = list(&spec["externalIPs"]).iter().map(text).collect::<Vec<_>>().join(",");
    match text(&spec["type"]) {
        "ExternalName" => json!(text(&spec["externalName"])),
        "LoadBalancer" => {
            let assigned = load_balancer(object, now);
            let all: Vec<&str> =
                [text(&assigned), external.as_str()].into_iter().filter(|s| !s.is_empty()).collect();
            json!(if all.is_empty() { "<pending>".to_owned() } else { all.join(",") })
        }
        _ => json!(or_none(&external)),
    }
}

pub(super) fn service_ports(object: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = list(&object["spec"]["ports"])
        .iter()
        .map(|p| match p["nodePort"].as_i64() {
            Some(node) if node != 0 => format!("{}:{node}/{}", p["port"], text(&p["protocol"])),
            _ => format!("{}/{}", p["port"], text(&p["protocol"])),
        })
        .collect();
    json!(or_none(&ports.join(",")))
}

/// At most three of the items, then how many more.
fn shortened(items: &[String]) -> Value {
    let shown = items.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(",");
    json!(if items.len() > 3 {
        format!("{shown} + {} more...", items.len() - 3)
    } else {
        or_none(&shown).to_owned()
    })
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    let mut out = Vec::new();
    for subset in list(&object["subsets"]) {
        let ports = list(&subset["ports"]);
        for address in list(&subset["addresses"]) {
            let ip = text(&address["ip"]);
            if ports.is_empty() {
                out.push(ip.to_owned());
            }
            out.extend(ports.iter().map(|p| format!("{ip}:{}", p["port"])));
        }
    }
    shortened(&out)
}

pub(super) fn slice_endpoints(object: &Value, _: Timestamp) -> Value {
    let all = list(&object["endpoints"]).iter().flat_map(|e| list(&e["addresses"]));
    shortened(&all.map(|a| text(a).to_owned()).collect::<Vec<_>>())
}

pub(super) fn slice_ports(object: &Value, _: Timestamp) -> Value {
    let ports = list(&object["ports"]).iter();
    shortened(
        &ports
            .map(|p| p["port"].as_i64().map_or_else(|| "*".to_owned(), |n| n.to_string()))
            .collect::<Vec<_>>(),
    )
}

pub(super) fn ingress_hosts(object: &Value, _: Timestamp) -> Value {
    let hosts: Vec<String> = list(&object["spec"]["rules"])
        .iter()
        .map(|r| text(&r["host"]).to_owned())
        .filter(|h| !h.is_empty())
        .collect();
    if hosts.is_empty() { json!("*") } else { shortened(&hosts) }
}

pub(super) fn ingress_ports(object: &Value, _: Timestamp) -> Value {
    json!(if list(&object["spec"]["tls"]).is_empty() { "80" } else { "80, 443" })
}

// Workloads.

fn has_condition(object: &Value, kind: &str) -> bool {
    condition::is_true(condition::of(object), kind)
}

pub(super) fn job_status(object: &Value, _: Timestamp) -> Value {
    let order = [
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("", "Terminating"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ];
    let leaving = !object["metadata"]["deletionTimestamp"].is_null();
    let found =
        order.iter().find(|(kind, _)| if kind.is_empty() { leaving } else { has_condition(object, kind) });
    json!(found.map_or("Running", |(_, shown)| shown))
}

pub(super) fn job_completions(object: &Value, _: Timestamp) -> Value {
    let done = object["status"]["succeeded"].as_i64().unwrap_or(0);
    json!(match (object["spec"]["completions"].as_i64(), object["spec"]["parallelism"].as_i64()) {
        (Some(wanted), _) => format!("{done}/{wanted}"),
        (None, Some(parallel)) if parallel > 1 => format!("{done}/1 of {parallel}"),
        _ => format!("{done}/1"),
    })
}

pub(super) fn job_duration(object: &Value, now: Timestamp) -> Value {
    let moment = |key: &str| object["status"][key].as_str().and_then(|t| t.parse::<Timestamp>().ok());
    json!(match (moment("startTime"), moment("completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_age(end.unwrap_or(now).as_second() - start.as_second()),
    })
}

pub(super) fn cron_suspend(object: &Value, _: Timestamp) -> Value {
    json!(match object["spec"]["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    })
}

pub(super) fn cron_last(object: &Value, now: Timestamp) -> Value {
    match &object["status"]["lastScheduleTime"] {
        Value::Null => json!("<none>"),
        last => json!(age(last, now)),
    }
}

pub(super) fn controller(object: &Value, _: Timestamp) -> Value {
    let owner = owner::controller(owner::of(object));
    json!(owner.map_or_else(
        || "<none>".to_owned(),
        |o| {
            let group =
                text(&o["apiVersion"]).split_once('/').map_or(String::new(), |(g, _)| format!(".{g}"));
            format!("{}{group}/{}", text(&o["kind"]).to_lowercase(), text(&o["name"]))
        }
    ))
}

pub(super) fn min_available(object: &Value, _: Timestamp) -> Value {
    scalar(&object["spec"]["minAvailable"])
}

pub(super) fn max_unavailable(object: &Value, _: Timestamp) -> Value {
    scalar(&object["spec"]["maxUnavailable"])
}

fn quota(object: &Value, limits: bool) -> Value {
    let hard = object["status"]["hard"].as_object().into_iter().flatten();
    let entries = hard.filter(|(name, _)| name.starts_with("limits.") == limits);
    let shown = entries.map(|(name, amount)| {
        let used = text(&object["status"]["used"][name.as_str()]);
        format!("{name}: {}/{}", if used.is_empty() { "0" } else { used }, text(amount))
    });
    json!(shown.collect::<Vec<_>>().join(", "))
}

pub(super) fn quota_requests(object: &Value, _: Timestamp) -> Value {
    quota(object, false)
}

pub(super) fn quota_limits(object: &Value, _: Timestamp) -> Value {
    quota(object, true)
}

// Storage, devices, access.

fn access_modes(modes: &Value) -> Value {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    joined(list(modes).iter().map(|m| short(text(m))))
}

pub(super) fn spec_access_modes(object: &Value, _: Timestamp) -> Value {
    access_modes(&object["spec"]["accessModes"])
}

pub(super) fn status_access_modes(object: &Value, _: Timestamp) -> Value {
    access_modes(&object["status"]["accessModes"])
}

pub(super) fn volume_claim(object: &Value, _: Timestamp) -> Value {
    let claim = &object["spec"]["claimRef"];
    json!(if claim.is_object() {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    } else {
        String::new()
    })
}

pub(super) fn token_requests(object: &Value, _: Timestamp) -> Value {
    let audiences = list(&object["spec"]["tokenRequests"])
        .iter()
        .map(|t| text(&t["audience"]))
        .collect::<Vec<_>>()
        .join(",");
    json!(if audiences.is_empty() { "<unset>".to_owned() } else { audiences })
}

pub(super) fn lifecycle_modes(object: &Value, _: Timestamp) -> Value {
    let modes = list(&object["spec"]["volumeLifecycleModes"]).iter().map(text).collect::<Vec<_>>().join(",");
    json!(or_none(&modes))
}

pub(super) fn claim_state(object: &Value, _: Timestamp) -> Value {
    let status = &object["status"];
    let mut states = Vec::new();
    if !object["metadata"]["deletionTimestamp"].is_null() {
        states.push("deleted");
    }
    states.push(if status["allocation"].is_object() { "allocated" } else { "pending" });
    if !list(&status["reservedFor"]).is_empty() {
        states.push("reserved");
    }
    joined(states.into_iter())
}

pub(super) fn role_ref(object: &Value, _: Timestamp) -> Value {
    json!(format!("{}/{}", text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"])))
}

fn subjects(object: &Value, kind: &str) -> Value {
    let chosen = list(&object["subjects"]).iter().filter(|s| s["kind"] == kind);
    let names: Vec<String> = chosen
        .map(|s| match text(&s["namespace"]) {
            "" => text(&s["name"]).to_owned(),
            namespace => format!("{namespace}/{}", text(&s["name"])),
        })
        .collect();
    json!(names.join(", "))
}

pub(super) fn subject_users(object: &Value, _: Timestamp) -> Value {
    subjects(object, "User")
}

pub(super) fn subject_groups(object: &Value, _: Timestamp) -> Value {
    subjects(object, "Group")
}

pub(super) fn subject_accounts(object: &Value, _: Timestamp) -> Value {
    subjects(object, "ServiceAccount")
}

pub(super) fn requested_duration(object: &Value, _: Timestamp) -> Value {
    json!(object["spec"]["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), human_age))
}

pub(super) fn signing_condition(object: &Value, _: Timestamp) -> Value {
    let present = |kind: &str| condition::find(condition::of(object), kind).is_some();
    let mut state: Vec<&str> = if present("Denied") {
        vec!["Denied"]
    } else if present("Approved") {
        vec!["Approved"]
    } else {
        vec!["Pending"]
    };
    if present("Failed") {
        state.push("Failed");
    }
    if !text(&object["status"]["certificate"]).is_empty() {
        state.push("Issued");
    }
    joined(state.into_iter())
}
