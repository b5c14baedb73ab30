//! Where a pod's files lie under the kubelet's root and log folders. Pure.

use std::path::{Path, PathBuf};

use podwire_api::pod_resources::QosClass;

use crate::spec::PodRef;

/// The pod's own folder.
pub fn pod(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid)
}

/// A volume's folder; `plugin` is upstream's escaped plugin name, e.g. `kubernetes.io~empty-dir`.
pub fn volume(root: &Path, uid: &str, plugin: &str, name: &str) -> PathBuf {
    pod(root, uid).join("volumes").join(plugin).join(name)
}

/// Where sub paths of a container's mounts are bound.
pub fn subpath(root: &Path, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
    pod(root, uid).join("volume-subpaths").join(volume).join(container).join(index.to_string())
}

/// The pod's managed hosts file.
pub fn etc_hosts(root: &Path, uid: &str) -> PathBuf {
    pod(root, uid).join("etc-hosts")
}

/// The file a container leaves its last words in.
pub fn termination_message(root: &Path, uid: &str, container: &str, attempt: u32) -> PathBuf {
    pod(root, uid).join("containers").join(container).join(attempt.to_string())
}

/// The folder of the pod's logs.
pub fn pod_logs(log_dir: &Path, pod: &PodRef) -> PathBuf {
    log_dir.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
}

/// A container's log relative to its pod's log folder.
pub fn container_log(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// The cgroup of all pods, relative to the hierarchy's root.
pub fn pods_cgroup(cgroup_root: &str) -> String {
    format!("{}/kubepods", cgroup_root.trim_end_matches('/'))
}

/// The pod's cgroup, relative to the hierarchy's root.
pub fn pod_cgroup(cgroup_root: &str, qos: QosClass, uid: &str) -> String {
    let tier = match qos {
        QosClass::Guaranteed => "",
        QosClass::Burstable => "/burstable",
        QosClass::BestEffort => "/besteffort",
    };
    format!("{}{tier}/pod{uid}", pods_cgroup(cgroup_root))
}
