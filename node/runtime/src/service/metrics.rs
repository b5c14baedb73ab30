//! CRI metrics under cAdvisor's names: the table of descriptors, and one pod's values.
//!
//! CRI carries whole numbers only, so counters of seconds are whole seconds.

mod sources;

use podwire_wire::cri;

use crate::{
    context::Context,
    host,
    model::{Container, Sandbox},
    recovery::records::{ContainerPhase, SandboxPhase},
    service::stats,
};

/// Labels every metric has.
const LABELS: [&str; 6] = ["container", "id", "image", "name", "namespace", "pod"];

/// A metric's name, what it says, and the labels it has beside the common ones.
type Row = (&'static str, &'static str, &'static [&'static str]);

const DESCRIPTORS: [Row; 50] = [
    ("container_blkio_device_usage_total", "Bytes moved to and from block devices", &["device", "operation"]),
    ("container_cpu_cfs_periods_total", "Enforcement periods that have passed", &[]),
    ("container_cpu_cfs_throttled_periods_total", "Enforcement periods in which the quota was used up", &[]),
    ("container_cpu_cfs_throttled_seconds_total", "Seconds spent throttled", &[]),
    ("container_cpu_system_seconds_total", "Seconds of CPU spent in the kernel", &[]),
    ("container_cpu_usage_seconds_total", "Seconds of CPU used", &["cpu"]),
    ("container_cpu_user_seconds_total", "Seconds of CPU spent in programs", &[]),
    ("container_file_descriptors", "Open file descriptors", &[]),
    ("container_fs_inodes_free", "Free inodes of the writable layer's file system", &["device"]),
    ("container_fs_inodes_total", "Inodes of the writable layer's file system", &["device"]),
    ("container_fs_limit_bytes", "Size of the writable layer's file system", &["device"]),
    ("container_fs_reads_bytes_total", "Bytes read", &["device"]),
    ("container_fs_reads_total", "Reads", &["device"]),
    ("container_fs_usage_bytes", "Bytes in the writable layer", &["device"]),
    ("container_fs_writes_bytes_total", "Bytes written", &["device"]),
    ("container_fs_writes_total", "Writes", &["device"]),
    ("container_last_seen", "When the container was last seen, in seconds since 1970", &[]),
    ("container_memory_cache", "Bytes of page cache", &[]),
    ("container_memory_failcnt", "How often the memory limit was hit", &[]),
    ("container_memory_failures_total", "Page faults", &["failure_type", "scope"]),
    ("container_memory_kernel_usage", "Bytes of kernel memory", &[]),
    ("container_memory_mapped_file", "Bytes of mapped files", &[]),
    ("container_memory_max_usage_bytes", "The most memory ever used", &[]),
    ("container_memory_rss", "Bytes of anonymous memory", &[]),
    ("container_memory_swap", "Bytes swapped out", &[]),
    ("container_memory_usage_bytes", "Bytes of memory charged", &[]),
    ("container_memory_working_set_bytes", "Bytes of memory that cannot be dropped at once", &[]),
    ("container_network_receive_bytes_total", "Bytes received", &["interface"]),
    ("container_network_receive_errors_total", "Errors while receiving", &["interface"]),
    ("container_network_receive_packets_dropped_total", "Packets dropped while receiving", &["interface"]),
    ("container_network_receive_packets_total", "Packets received", &["interface"]),
    ("container_network_transmit_bytes_total", "Bytes sent", &["interface"]),
    ("container_network_transmit_errors_total", "Errors while sending", &["interface"]),
    ("container_network_transmit_packets_dropped_total", "Packets dropped while sending", &["interface"]),
    ("container_network_transmit_packets_total", "Packets sent", &["interface"]),
    ("container_oom_events_total", "Processes killed for want of memory", &[]),
    ("container_processes", "Processes", &[]),
    ("container_sockets", "Open sockets", &[]),
    ("container_spec_cpu_period", "The CPU quota's period in microseconds", &[]),
    ("container_spec_cpu_quota", "The CPU quota in microseconds; absent without one", &[]),
    ("container_spec_cpu_shares", "The CPU weight in shares", &[]),
    ("container_spec_memory_limit_bytes", "The memory limit; zero without one", &[]),
    ("container_spec_memory_reservation_limit_bytes", "The memory reservation", &[]),
    ("container_spec_memory_swap_limit_bytes", "The limit of memory and swap; zero without one", &[]),
    ("container_start_time_seconds", "When the container started, in seconds since 1970", &[]),
    ("container_threads", "Threads", &[]),
    ("container_threads_max", "The limit of threads; zero without one", &[]),
    ("container_ulimits_soft", "The soft limit of open files", &["ulimit"]),
    ("container_hugetlb_usage_bytes", "Bytes of huge pages", &["pagesize"]),
    ("container_hugetlb_max_usage_bytes", "The most huge pages ever used, in bytes", &["pagesize"]),
];

/// All descriptors.
pub(crate) fn descriptors() -> Vec<cri::MetricDescriptor> {
    let keys = |extra: &[&str]| LABELS.iter().chain(extra).map(|key| (*key).to_owned()).collect();
    DESCRIPTORS
        .iter()
        .map(|(name, help, extra)| cri::MetricDescriptor {
            name: (*name).to_owned(),
            help: (*help).to_owned(),
            label_keys: keys(extra),
        })
        .collect()
}

/// Collects values with the labels of one container or pod.
pub(crate) struct Sheet {
    labels: [String; 6],
    timestamp: i64,
    metrics: Vec<cri::Metric>,
}

impl Sheet {
    /// Notes a value; `extra` are the values of the metric's own labels, in the table's order.
    pub(crate) fn put(&mut self, name: &str, extra: &[&str], value: u64) {
        debug_assert!(
            DESCRIPTORS.iter().any(|(known, _, keys)| *known == name && keys.len() == extra.len()),
            "{name}"
        );
        let counter = name.ends_with("_total");
        let kind = if counter { cri::MetricType::Counter } else { cri::MetricType::Gauge };
        self.metrics.push(cri::Metric {
            name: name.to_owned(),
            timestamp: self.timestamp,
            metric_type: kind as i32,
            label_values: self
                .labels
                .iter()
                .cloned()
                .chain(extra.iter().map(|text| (*text).to_owned()))
                .collect(),
            value: Some(cri::UInt64Value { value }),
        });
    }
}

/// The values of every ready pod. Blocks.
pub(crate) fn all(ctx: &Context) -> Vec<cri::PodSandboxMetrics> {
    let sandboxes = ctx.registry.sandboxes();
    sandboxes
        .iter()
        .filter(|known| known.phase() == SandboxPhase::Ready)
        .map(|known| pod(ctx, known))
        .collect()
}

fn pod(ctx: &Context, sandbox: &Sandbox) -> cri::PodSandboxMetrics {
    let timestamp = host::now();
    let key = &sandbox.key;
    let labels = [
        String::new(),
        sandbox.id.to_string(),
        String::new(),
        "POD".into(),
        key.namespace.clone(),
        key.name.clone(),
    ];
    let mut sheet = Sheet { labels, timestamp, metrics: Vec::new() };
    sources::links(sandbox, &mut sheet);
    let members = ctx.registry.containers_of(&sandbox.id);
    let running = members.iter().filter(|member| member.phase() == ContainerPhase::Running);
    let container_metrics = running.map(|member| container(ctx, sandbox, member, timestamp)).collect();
    cri::PodSandboxMetrics {
        pod_sandbox_id: sandbox.id.to_string(),
        metrics: sheet.metrics,
        container_metrics,
    }
}

fn container(
    ctx: &Context,
    sandbox: &Sandbox,
    container: &Container,
    timestamp: i64,
) -> cri::ContainerMetrics {
    let image = container.config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    let key = &sandbox.key;
    let name = container.metadata().name;
    let id = container.id().to_string();
    let labels = [name, id.clone(), image, id.clone(), key.namespace.clone(), key.name.clone()];
    let mut sheet = Sheet { labels, timestamp, metrics: Vec::new() };
    let cgroup = container.cgroup();
    let usage = stats::read(&cgroup);
    sources::usage(&usage, &mut sheet);
    sources::limits(&container.state().resources.unwrap_or_default(), &usage, &mut sheet);
    sources::cgroup_files(&cgroup, &mut sheet);
    sources::file_system(&ctx.images, container, &mut sheet);
    let seconds = |nanos: i64| u64::try_from(nanos / 1_000_000_000).unwrap_or_default();
    sheet.put("container_last_seen", &[], seconds(timestamp));
    sheet.put("container_start_time_seconds", &[], seconds(container.state().started_at));
    cri::ContainerMetrics { container_id: id, metrics: sheet.metrics }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_is_told_once_and_explained() {
        let all = descriptors();
        let names: std::collections::HashSet<_> = all.iter().map(|known| &known.name).collect();
        assert_eq!(names.len(), DESCRIPTORS.len());
        assert!(all.iter().all(|known| !known.help.is_empty() && known.label_keys.len() >= LABELS.len()));
    }

    #[test]
    fn a_value_has_as_many_labels_as_its_descriptor_has_keys() {
        let mut sheet = Sheet { labels: Default::default(), timestamp: 1, metrics: Vec::new() };
        sheet.put("container_network_receive_bytes_total", &["eth0"], 5);
        let keys =
            descriptors().into_iter().find(|known| known.name == sheet.metrics[0].name).unwrap().label_keys;
        assert_eq!(sheet.metrics[0].label_values.len(), keys.len());
        assert_eq!(sheet.metrics[0].metric_type, cri::MetricType::Counter as i32);
    }
}
