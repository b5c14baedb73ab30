//! Whether this node takes a pod that was bound to it: the last check, with typed reasons. Pure.
//!
//! A refusal is final: the pod fails, and whoever made it makes another.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use podwire_api::pod_resources::QosClass;
use podwire_api::resources::Resources;
use podwire_api::selector::{RequiredNodeAffinity, lookup};
use podwire_api::toleration::{Taint, tolerated};

use crate::{evict::plan::Pressure, resources, spec};

/// What the node is and has.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Node's name.
    pub(crate) node_name: String,
    /// Node's labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// What pods may use, by name: cpu in thousandths, the others in bytes.
    pub(crate) allocatable: Vec<(String, i64)>,
    /// How many pods may run.
    pub(crate) max_pods: u32,
    /// What the node is short of.
    pub(crate) pressure: Pressure,
    /// Pods that hold resources already.
    pub(crate) active: Vec<Arc<Pod>>,
}

/// Why a pod is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Upstream's reason, e.g. `OutOfcpu`.
    pub(crate) reason: String,
    /// The sentence without its prefix.
    pub(crate) message: String,
}

fn refused(reason: &str, message: String) -> Refused {
    Refused { reason: reason.to_owned(), message }
}

/// Takes the pod, or says why not.
pub(crate) fn admit(pod: &Pod, view: &View) -> Result<(), Refused> {
    pressure(pod, view)?;
    sysctls(pod)?;
    system(pod, view)?;
    resources_fit(pod, view)?;
    affinity(pod, view)?;
    ports(pod, view)
}

/// A node that is short takes only what is critical; short of memory alone, also what has asked for some.
fn pressure(pod: &Pod, view: &View) -> Result<(), Refused> {
    if spec::is_critical(pod) || !(view.pressure.memory || view.pressure.disk) {
        return Ok(());
    }
    if !view.pressure.disk {
        let taint = Taint { key: "node.kubernetes.io/memory-pressure", value: "", effect: "NoSchedule" };
        let tolerates = || tolerated(taint, spec::spec(pod).tolerations.iter().flatten());
        if resources::qos(pod) != QosClass::BestEffort || tolerates() {
            return Ok(());
        }
    }
    let mut conditions = Vec::new();
    conditions.extend(view.pressure.disk.then_some("DiskPressure"));
    conditions.extend(view.pressure.memory.then_some("MemoryPressure"));
    Err(refused("Evicted", format!("The node had condition: [{}]. ", conditions.join(" "))))
}

fn sysctls(pod: &Pod) -> Result<(), Refused> {
    let spec = spec::spec(pod);
    let own = spec.security_context.as_ref().and_then(|s| s.sysctls.as_deref()).unwrap_or_default();
    for sysctl in own {
        let name = podwire_linux::sysctl::dotted(&sysctl.name);
        let forbidden =
            |why: &str| Err(refused("SysctlForbidden", format!("forbidden sysctl: \"{name}\" {why}")));
        if !podwire_api::sysctl::SAFE.contains(&name.as_str()) {
            return forbidden("not allowlisted");
        }
        // In a namespace of the host's the setting would be the host's.
        if name.starts_with("net.") && spec::host_network(pod) {
            return forbidden("not allowed with host net enabled");
        }
        if name.starts_with("kernel.") && spec.host_ipc.unwrap_or(false) {
            return forbidden("not allowed with host ipc enabled");
        }
    }
    Ok(())
}

fn system(pod: &Pod, view: &View) -> Result<(), Refused> {
    let spec = spec::spec(pod);
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let text = "Failed to admit pod as the OS field doesn't match node OS".to_owned();
        return Err(refused("PodOSNotSupported", text));
    }
    if spec.node_name.as_deref().is_some_and(|name| name != view.node_name) {
        return Err(refused(
            "NodeName",
            "Predicate NodeName failed: node(s) didn't match the requested node name".into(),
        ));
    }
    Ok(())
}

/// Why a pod that runs here cannot have the resources it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The node does not have that much.
    Never(Refused),
    /// Others have it.
    Now(Refused),
}

/// Whether a pod that runs here may have what it asks for; `view` is without it.
pub(crate) fn resize(pod: &Pod, view: &View) -> Result<(), Unfit> {
    let wanted = resources::pod_requests(pod);
    for (name, capacity) in &view.allocatable {
        let need = amount(&wanted, name);
        if need > *capacity {
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {need}, capacity: {capacity}");
            return Err(Unfit::Never(refused(&format!("OutOf{name}"), message)));
        }
    }
    resources_fit(pod, view).map_err(Unfit::Now)
}

fn amount(requests: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => requests.milli_value(name),
        _ => requests.value(name),
    }
}

fn resources_fit(pod: &Pod, view: &View) -> Result<(), Refused> {
    let count = u32::try_from(view.active.len()).unwrap_or(u32::MAX);
    if count + 1 > view.max_pods {
        return Err(out_of("pods", 1, i64::from(count), i64::from(view.max_pods)));
    }
    let wanted = resources::pod_requests(pod);
    let active: Vec<Resources> = view.active.iter().map(|other| resources::pod_requests(other)).collect();
    for (name, capacity) in &view.allocatable {
        let need = amount(&wanted, name);
        let used = active.iter().map(|other| amount(other, name)).fold(0, i64::saturating_add);
        if need > 0 && need.saturating_add(used) > *capacity {
            return Err(out_of(name, need, used, *capacity));
        }
    }
    // Pages of a size that the node has none of.
    let unknown = |name: &str| view.allocatable.iter().all(|(known, _)| known != name);
    let huge = wanted.iter().map(|(name, _)| name);
    match huge.into_iter().find(|name| name.starts_with("hugepages-") && unknown(name)) {
        Some(name) => Err(out_of(name, wanted.value(name), 0, 0)),
        None => Ok(()),
    }
}

fn out_of(name: &str, need: i64, used: i64, capacity: i64) -> Refused {
    refused(
        &format!("OutOf{name}"),
        format!(
            "Node didn't have enough resource: {name}, requested: {need}, used: {used}, capacity: {capacity}"
        ),
    )
}

fn affinity(pod: &Pod, view: &View) -> Result<(), Refused> {
    let required = RequiredNodeAffinity::from(spec::spec(pod));
    if required.matches(&view.node_name, lookup(&view.labels)) {
        return Ok(());
    }
    let text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned();
    Err(refused("NodeAffinity", text))
}

fn ports(pod: &Pod, view: &View) -> Result<(), Refused> {
    let wanted = host_ports(pod);
    let taken: Vec<_> = view.active.iter().flat_map(|other| host_ports(other)).collect();
    let clash = wanted.iter().any(|(ip, protocol, port)| {
        taken.iter().any(|(other_ip, other_protocol, other_port)| {
            let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
            port == other_port && protocol == other_protocol && (ip == other_ip || any(ip) || any(other_ip))
        })
    });
    if !clash {
        return Ok(());
    }
    let text =
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned();
    Err(refused("NodePorts", text))
}

fn host_ports(pod: &Pod) -> Vec<(String, String, i32)> {
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::init_kind(c) == spec::Kind::Sidecar);
    sidecars
        .chain(&spec::spec(pod).containers)
        .flat_map(|c| c.ports.as_deref().unwrap_or_default())
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            Some((
                p.host_ip.clone().unwrap_or_default(),
                p.protocol.clone().unwrap_or_else(|| "TCP".into()),
                port,
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn view() -> View {
        View {
            node_name: "n1".into(),
            labels: BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]),
            allocatable: [
                ("cpu", 2000),
                ("memory", 1 << 30),
                ("ephemeral-storage", 10 << 30),
                ("hugepages-2Mi", 4 << 20),
            ]
            .map(|(name, amount)| (name.to_owned(), amount))
            .to_vec(),
            max_pods: 3,
            pressure: Pressure::default(),
            active: Vec::new(),
        }
    }

    #[test]
    fn disk_and_huge_pages_are_counted_like_memory() {
        let asks = |name: &str, amount: &str| {
            pod(json!({"containers": [{"name": "c", "resources": {"requests": {(name): amount}}}]}))
        };
        let with = |name: &str, amount: &str| View { active: vec![Arc::new(asks(name, amount))], ..view() };
        assert_eq!(admit(&asks("hugepages-2Mi", "4Mi"), &view()), Ok(()));
        let refused = admit(&asks("hugepages-2Mi", "4Mi"), &with("hugepages-2Mi", "2Mi")).unwrap_err();
        assert_eq!(refused.reason, "OutOfhugepages-2Mi");
        let refused = admit(&asks("hugepages-1Gi", "1Gi"), &view()).unwrap_err();
        assert_eq!(refused.reason, "OutOfhugepages-1Gi");
        let refused =
            admit(&asks("ephemeral-storage", "6Gi"), &with("ephemeral-storage", "5Gi")).unwrap_err();
        assert_eq!(refused.reason, "OutOfephemeral-storage");
    }

    fn cpu(amount: &str) -> Pod {
        pod(json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]}))
    }

    #[test]
    fn a_pod_that_asks_for_more_cpu_than_is_left_is_out_of_cpu() {
        let view = View { active: vec![Arc::new(cpu("1500m"))], ..view() };
        assert!(admit(&cpu("500m"), &view).is_ok());
        let refused = admit(&cpu("501m"), &view).unwrap_err();
        assert_eq!(refused.reason, "OutOfcpu");
        assert_eq!(
            refused.message,
            "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
        );
    }

    #[test]
    fn a_node_short_of_memory_turns_only_best_effort_pods_away() {
        let view = View { pressure: Pressure { memory: true, disk: false }, ..view() };
        assert!(admit(&cpu("1m"), &view).is_ok());
        let refused = admit(&pod(json!({"containers": [{"name": "c"}]})), &view).unwrap_err();
        assert_eq!(refused.reason, "Evicted");
        assert_eq!(refused.message, "The node had condition: [MemoryPressure]. ");
        let disk = View { pressure: Pressure { memory: false, disk: true }, ..view };
        assert!(admit(&cpu("1m"), &disk).is_err());
    }

    #[test]
    fn more_than_the_node_has_is_never_given_and_what_others_have_is_not_given_now() {
        let view = View { active: vec![Arc::new(cpu("1500m"))], ..view() };
        assert_eq!(resize(&cpu("500m"), &view), Ok(()));
        let Err(Unfit::Now(refused)) = resize(&cpu("600m"), &view) else { panic!("must wait") };
        assert!(refused.message.contains("requested: 600, used: 1500, capacity: 2000"), "{refused:?}");
        let Err(Unfit::Never(refused)) = resize(&cpu("2001m"), &view) else { panic!("can never be") };
        assert_eq!(refused.message, "Node didn't have enough capacity: cpu, requested: 2001, capacity: 2000");
    }

    #[test]
    fn more_pods_than_the_node_takes_are_out_of_pods() {
        let view = View { active: (0..3).map(|_| Arc::new(cpu("1m"))).collect(), ..view() };
        assert_eq!(admit(&cpu("1m"), &view).unwrap_err().reason, "OutOfpods");
    }

    #[test]
    fn a_selector_that_does_not_fit_is_node_affinity() {
        let fits = pod(json!({"containers": [], "nodeSelector": {"disk": "ssd"}}));
        let misses = pod(json!({"containers": [], "nodeSelector": {"disk": "hdd"}}));
        assert!(admit(&fits, &view()).is_ok());
        assert_eq!(admit(&misses, &view()).unwrap_err().reason, "NodeAffinity");
    }

    #[test]
    fn a_host_port_is_given_once_per_address_and_protocol() {
        let with = |ip: &str, protocol: &str| {
            pod(json!({"containers": [{"name": "c", "ports": [
                {"containerPort": 80, "hostPort": 8080, "hostIP": ip, "protocol": protocol}]}]}))
        };
        let view = View { active: vec![Arc::new(with("127.0.0.1", "TCP"))], ..view() };
        assert_eq!(admit(&with("", "TCP"), &view).unwrap_err().reason, "NodePorts");
        assert!(admit(&with("127.0.0.2", "TCP"), &view).is_ok());
        assert!(admit(&with("127.0.0.1", "UDP"), &view).is_ok());
    }

    #[test]
    fn unsafe_sysctls_are_forbidden() {
        let with = |name: &str| {
            pod(json!({"containers": [], "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}))
        };
        assert!(admit(&with("net.ipv4.tcp_syncookies"), &view()).is_ok());
        assert_eq!(admit(&with("kernel.msgmax"), &view()).unwrap_err().reason, "SysctlForbidden");
        assert!(admit(&with("net/ipv4/tcp_syncookies"), &view()).is_ok());
        let mixed = admit(&with("net/ipv4.tcp_syncookies"), &view()).unwrap_err();
        assert_eq!(mixed.message, "forbidden sysctl: \"net.ipv4/tcp_syncookies\" not allowlisted");
    }

    #[test]
    fn a_pod_in_the_hosts_namespaces_may_not_set_the_hosts_sysctls_in_either_spelling() {
        let with = |name: &str, host: &str| {
            pod(
                json!({"containers": [], host: true, "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}),
            )
        };
        for name in ["net.ipv4.tcp_syncookies", "net/ipv4/tcp_syncookies"] {
            let refused = admit(&with(name, "hostNetwork"), &view()).unwrap_err();
            assert_eq!(refused.reason, "SysctlForbidden");
            assert_eq!(
                refused.message,
                "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled"
            );
            assert!(admit(&with(name, "hostIPC"), &view()).is_ok());
        }
        let refused = admit(&with("kernel/shm_rmid_forced", "hostIPC"), &view()).unwrap_err();
        assert_eq!(
            refused.message,
            "forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host ipc enabled"
        );
        assert!(admit(&with("kernel.shm_rmid_forced", "hostNetwork"), &view()).is_ok());
    }
}
