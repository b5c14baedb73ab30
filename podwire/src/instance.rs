//! What `up` calls an instance: one data folder, and every host-global name that derives from it.
//!
//! Two instances on one machine share nothing: sockets, bridge, cgroup root and packet-filter tables
//! all carry the instance's id, so that a residue scan is per instance.

use std::{
    io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Where `podwire up` keeps its state when nothing else is said.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/podwire";
/// Where plugins from elsewhere look for the kubelet.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// One node's private names.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Durable state: store, certificates, images, logs.
    pub data_dir: PathBuf,
    /// Short suffix of every host-global name; empty for the default instance.
    id: String,
}

impl Instance {
    /// The instance that lives in `data_dir` (made absolute, so that every verb derives the same id).
    pub fn at(data_dir: &Path) -> io::Result<Instance> {
        let data_dir = std::path::absolute(data_dir)?;
        let id = if data_dir == Path::new(DEFAULT_DATA_DIR) {
            String::new()
        } else {
            hex::encode(&Sha256::digest(data_dir.as_os_str().as_encoded_bytes())[..4])
        };
        Ok(Instance { data_dir, id })
    }

    fn named(&self, stem: &str) -> String {
        if self.id.is_empty() { stem.to_owned() } else { format!("{stem}-{}", self.id) }
    }

    /// True for the instance in the default data folder.
    pub fn is_default(&self) -> bool {
        self.id.is_empty()
    }

    /// Sockets, pins and journals: what a reboot may forget.
    pub fn run_dir(&self) -> PathBuf {
        Path::new("/run").join(self.named("podwire"))
    }

    /// Where the runtime serves CRI.
    pub fn cri_socket(&self) -> PathBuf {
        self.run_dir().join("cri.sock")
    }

    /// Where NRI plugins register.
    pub fn nri_socket(&self) -> PathBuf {
        self.run_dir().join("nri.sock")
    }

    /// Where `podwire nri` asks about plugins.
    pub fn nri_control_socket(&self) -> PathBuf {
        self.run_dir().join("nri-control.sock")
    }

    /// NRI plugins to start, and the folder of their configuration.
    pub fn nri_folders(&self) -> (PathBuf, PathBuf) {
        if self.is_default() {
            ("/opt/nri/plugins".into(), "/etc/nri/conf.d".into())
        } else {
            (self.data_dir.join("nri/plugins"), self.data_dir.join("nri/conf.d"))
        }
    }

    /// The folder of `device-plugins`, `plugins_registry` and `pod-resources`: where plugins from elsewhere look for a kubelet.
    pub fn plugin_root(&self) -> PathBuf {
        if self.is_default() { "/var/lib/kubelet".into() } else { self.data_dir.join("kubelet") }
    }

    /// Where the supervisor of this instance's containers listens.
    pub fn supervisor_socket(&self) -> PathBuf {
        self.run_dir().join("supervisor.sock")
    }

    /// The pod bridge; at most 15 bytes.
    pub fn bridge(&self) -> String {
        if self.id.is_empty() { "podwire0".to_owned() } else { format!("pw-{}", self.id) }
    }

    /// The name of the pod network, and of everything in the packet filter that belongs to it.
    pub fn network(&self) -> String {
        self.named("podwire")
    }

    /// The packet filter's table of network policies.
    pub fn policy_table(&self) -> String {
        format!("{}_policy", self.network().replace('-', "_"))
    }

    /// Root of this instance's cgroups, in every hierarchy.
    pub fn cgroup_root(&self) -> String {
        format!("/{}", self.named("podwire"))
    }

    /// Default folder of CNI configuration.
    pub fn cni_conf_dir(&self) -> PathBuf {
        self.data_dir.join("cni/net.d")
    }

    /// CNI results and reservations.
    pub fn cni_state_dir(&self) -> PathBuf {
        self.data_dir.join("cni/state")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("admin.kubeconfig")
    }

    /// The names as JSON, for scripts and residue scans.
    pub fn describe(&self) -> String {
        serde_json::json!({
            "dataDir": self.data_dir,
            "runDir": self.run_dir(),
            "criSocket": self.cri_socket(),
            "pluginRoot": self.plugin_root(),
            "nriSocket": self.nri_socket(),
            "cgroupRoot": self.cgroup_root(),
            "bridge": self.bridge(),
            "network": self.network(),
        })
        .to_string()
    }

    /// Holds the daemon's pid, locked while it runs.
    pub fn pid_file(&self) -> PathBuf {
        self.data_dir.join("podwire.pid")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_data_folders_share_no_host_global_name() {
        let one = Instance::at(Path::new("/a/one")).unwrap();
        let two = Instance::at(Path::new("/a/two")).unwrap();
        assert_ne!(one.bridge(), two.bridge());
        assert_ne!(one.run_dir(), two.run_dir());
        assert_ne!(one.cgroup_root(), two.cgroup_root());
        assert_ne!(one.network(), two.network());
        assert!(one.bridge().len() <= 15);
    }

    #[test]
    fn the_default_folder_has_plain_names() {
        let instance = Instance::at(Path::new(DEFAULT_DATA_DIR)).unwrap();
        assert_eq!(instance.bridge(), "podwire0");
        assert_eq!(instance.run_dir(), Path::new("/run/podwire"));
        assert_eq!(instance.plugin_root(), Path::new("/var/lib/kubelet"));
    }
}
