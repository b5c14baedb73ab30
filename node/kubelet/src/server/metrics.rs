//! Numbers about this node: Prometheus text, and the summary of usage.

use std::{collections::BTreeMap, fmt::Write};

use podwire_wire::cri;
use serde_json::{Value, json};

use super::Refusal;
use crate::{labels, node::Node};

/// The metrics page, with upstream's names.
pub(super) fn text(node: &Node) -> String {
    let pods = node.pods.lock().expect("no holder panics");
    let containers = pods
        .values()
        .filter_map(|known| known.status.as_ref())
        .flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses).flatten())
        .filter(|s| s.state.as_ref().is_some_and(|state| state.running.is_some()))
        .count();
    let running = pods
        .values()
        .filter(|known| known.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running")))
        .count();
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, value: String| {
        // Ignored: writing to a string cannot fail.
        write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{value}\n").ok();
    };
    gauge("kubelet_running_pods", "Pods whose phase is Running", format!("kubelet_running_pods {running}"));
    gauge(
        "kubelet_running_containers",
        "Containers by state",
        format!("kubelet_running_containers{{container_state=\"running\"}} {containers}"),
    );
    gauge(
        "kubelet_desired_pods",
        "Pods this node is to run",
        format!("kubelet_desired_pods{{static=\"\"}} {}", pods.len()),
    );
    gauge(
        "kubelet_node_name",
        "Name of this node",
        format!("kubelet_node_name{{node=\"{}\"}} 1", node.config.node_name),
    );
    out.extend(node.config.more_metrics.as_ref().map(crate::MoreMetrics::text));
    out
}

/// Usage of the node and its pods as the metrics server reads it.
pub(super) async fn summary(node: &Node) -> Result<Value, Refusal> {
    let stats = node.runtime.container_stats().await?;
    let now = crate::clock::now_seconds().to_string();
    let mut pods: BTreeMap<String, Vec<cri::ContainerStats>> = BTreeMap::new();
    for one in stats {
        let uid = one.attributes.as_ref().and_then(|a| a.labels.get(labels::POD_UID)).cloned();
        pods.entry(uid.unwrap_or_default()).or_default().push(one);
    }
    let mut items = Vec::new();
    for (uid, containers) in pods {
        let label = |key: &str| {
            let first = containers.first().and_then(|c| c.attributes.as_ref());
            first.and_then(|a| a.labels.get(key)).cloned().unwrap_or_default()
        };
        let sum = |read: fn(&cri::ContainerStats) -> u64| -> u64 { containers.iter().map(read).sum() };
        items.push(json!({
            "podRef": {"name": label(labels::POD_NAME), "namespace": label(labels::POD_NAMESPACE), "uid": uid},
            "startTime": now,
            "cpu": {"time": now, "usageCoreNanoSeconds": sum(cpu), "usageNanoCores": sum(nano)},
            "memory": {"time": now, "workingSetBytes": sum(working), "usageBytes": sum(used), "rssBytes": sum(rss)},
            "containers": containers.iter().map(|c| container(c, &now)).collect::<Vec<_>>(),
        }));
    }
    Ok(json!({"node": machine(node, &now), "pods": items}))
}

fn value(field: Option<&cri::UInt64Value>) -> u64 {
    field.map(|v| v.value).unwrap_or_default()
}

fn cpu(stats: &cri::ContainerStats) -> u64 {
    value(stats.cpu.as_ref().and_then(|c| c.usage_core_nano_seconds.as_ref()))
}

fn nano(stats: &cri::ContainerStats) -> u64 {
    value(stats.cpu.as_ref().and_then(|c| c.usage_nano_cores.as_ref()))
}

fn working(stats: &cri::ContainerStats) -> u64 {
    value(stats.memory.as_ref().and_then(|m| m.working_set_bytes.as_ref()))
}

fn used(stats: &cri::ContainerStats) -> u64 {
    value(stats.memory.as_ref().and_then(|m| m.usage_bytes.as_ref()))
}

fn rss(stats: &cri::ContainerStats) -> u64 {
    value(stats.memory.as_ref().and_then(|m| m.rss_bytes.as_ref()))
}

fn container(stats: &cri::ContainerStats, now: &str) -> Value {
    let name = stats.attributes.as_ref().and_then(|a| a.labels.get(labels::CONTAINER_NAME));
    json!({
        "name": name, "startTime": now,
        "cpu": {"time": now, "usageCoreNanoSeconds": cpu(stats), "usageNanoCores": nano(stats)},
        "memory": {"time": now, "workingSetBytes": working(stats), "usageBytes": used(stats), "rssBytes": rss(stats)},
        "rootfs": {"time": now, "usedBytes": value(stats.writable_layer.as_ref().and_then(|w| w.used_bytes.as_ref()))},
    })
}

fn machine(node: &Node, now: &str) -> Value {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let read = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib: u64 = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default();
        kib * 1024
    };
    let (total, available) = (read("MemTotal:"), read("MemAvailable:"));
    json!({
        "nodeName": node.config.node_name, "startTime": now,
        "memory": {"time": now, "availableBytes": available, "workingSetBytes": total.saturating_sub(available)},
    })
}
