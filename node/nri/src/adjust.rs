//! Words for what a plugin changes about a container that is being created.
//!
//! What is taken away and set in one adjustment is taken away first. Fields without a word here are set on
//! [`Adjustment::rest`].

use std::path::{Path, PathBuf};

use podwire_wire::nri::{
    CdiDevice, ContainerAdjustment, CreateContainerResponse, KeyValue, LinuxContainerAdjustment, LinuxDevice,
    LinuxNetDevice, Mount, OptionalFileMode, OptionalUInt32,
};
use rustix::fs::{FileType, Mode};

/// Why a file of the node cannot be given to a container as a device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It cannot be looked at.
    #[error("look at {path:?}")]
    Stat {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{path:?} is not a device")]
    NoDevice {
        /// The file.
        path: PathBuf,
    },
}

/// What is to change about a container.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Adjustment {
    /// Whatever has no word of its own.
    pub rest: ContainerAdjustment,
}

/// The key by which something is taken away.
fn gone(key: &str) -> String {
    format!("-{key}")
}

impl Adjustment {
    /// Nothing is to change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.rest.env.push(KeyValue { key: name.into(), value: value.into() });
        self
    }

    /// Takes a variable away; then it may be set, also where another plugin has set it.
    #[must_use]
    pub fn without_env(self, name: &str) -> Self {
        self.env(gone(name), "")
    }

    /// Sets an annotation of the container.
    #[must_use]
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.rest.annotations.insert(key.into(), value.into());
        self
    }

    /// Takes an annotation away.
    #[must_use]
    pub fn without_annotation(self, key: &str) -> Self {
        self.annotation(gone(key), "")
    }

    /// Shows a folder or file of the node inside; options beside `rbind`, such as `ro`, `nosuid`, `nodev`.
    #[must_use]
    pub fn bind(self, source: &str, destination: &str, options: &[&str]) -> Self {
        let options = ["rbind"].iter().chain(options).map(|&option| option.to_owned()).collect();
        self.mount(Mount {
            destination: destination.to_owned(),
            r#type: "bind".to_owned(),
            source: source.to_owned(),
            options,
        })
    }

    /// Mounts anything.
    #[must_use]
    pub fn mount(mut self, mount: Mount) -> Self {
        self.rest.mounts.push(mount);
        self
    }

    /// Takes the mount at a path away.
    #[must_use]
    pub fn without_mount(self, destination: &str) -> Self {
        self.mount(Mount { destination: gone(destination), ..Mount::default() })
    }

    /// Gives it a device; the runtime allows its use. See [`device_at`] for one that the node has.
    #[must_use]
    pub fn device(mut self, device: LinuxDevice) -> Self {
        self.linux().devices.push(device);
        self
    }

    /// Takes the device at a path away.
    #[must_use]
    pub fn without_device(self, path: &str) -> Self {
        self.device(LinuxDevice { path: gone(path), ..LinuxDevice::default() })
    }

    /// Gives it what a CDI specification on the node says under this name (`vendor/class=device`).
    #[must_use]
    pub fn cdi_device(mut self, name: impl Into<String>) -> Self {
        self.rest.cdi_devices.push(CdiDevice { name: name.into() });
        self
    }

    /// Moves a network interface of the node into the pod under a name of its own.
    #[must_use]
    pub fn net_device(mut self, on_node: impl Into<String>, inside: impl Into<String>) -> Self {
        self.linux().net_devices.insert(on_node.into(), LinuxNetDevice { name: inside.into() });
        self
    }

    /// Sets a namespaced sysctl.
    #[must_use]
    pub fn sysctl(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.linux().sysctl.insert(key.into(), value.into());
        self
    }

    fn linux(&mut self) -> &mut LinuxContainerAdjustment {
        self.rest.linux.get_or_insert_default()
    }
}

impl From<Adjustment> for ContainerAdjustment {
    fn from(adjustment: Adjustment) -> Self {
        adjustment.rest
    }
}

impl From<Adjustment> for CreateContainerResponse {
    fn from(adjustment: Adjustment) -> Self {
        Self { adjust: Some(adjustment.rest), ..Self::default() }
    }
}

/// The device that a file of the node is, for `inside` the container: same numbers, mode and owners.
pub fn device_at(path: &Path, inside: impl Into<String>) -> Result<LinuxDevice, DeviceError> {
    let stat = rustix::fs::stat(path)
        .map_err(|error| DeviceError::Stat { path: path.into(), source: error.into() })?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => "c",
        FileType::BlockDevice => "b",
        _ => return Err(DeviceError::NoDevice { path: path.into() }),
    };
    Ok(LinuxDevice {
        path: inside.into(),
        r#type: kind.to_owned(),
        major: rustix::fs::major(stat.st_rdev).into(),
        minor: rustix::fs::minor(stat.st_rdev).into(),
        file_mode: Some(OptionalFileMode { value: Mode::from_raw_mode(stat.st_mode).bits() }),
        uid: Some(OptionalUInt32 { value: stat.st_uid }),
        gid: Some(OptionalUInt32 { value: stat.st_gid }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_the_node_is_described_by_its_numbers() {
        let null = device_at(Path::new("/dev/null"), "/dev/nothing").unwrap();
        assert_eq!(
            (null.path.as_str(), null.r#type.as_str(), null.major, null.minor),
            ("/dev/nothing", "c", 1, 3)
        );
        assert_eq!(null.file_mode.unwrap().value & 0o777, 0o666);
        assert!(matches!(device_at(Path::new("/proc"), "/x"), Err(DeviceError::NoDevice { .. })));
        assert!(matches!(device_at(Path::new("/dev/none"), "/x"), Err(DeviceError::Stat { .. })));
    }

    #[test]
    fn what_is_taken_away_carries_a_dash() {
        let all = Adjustment::new()
            .without_env("A")
            .env("A", "1")
            .without_mount("/m")
            .bind("/src", "/m", &["ro"])
            .without_device("/dev/x")
            .without_annotation("k")
            .sysctl("net.ipv4.ip_forward", "0")
            .net_device("eth7", "data0")
            .cdi_device("vendor.example/class=one");
        let ContainerAdjustment { env, mounts, annotations, linux, cdi_devices, .. } = all.into();
        assert_eq!(env.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["-A", "A"]);
        assert_eq!(mounts.iter().map(|one| one.destination.as_str()).collect::<Vec<_>>(), ["-/m", "/m"]);
        assert_eq!(mounts[1].options, ["rbind", "ro"]);
        assert!(annotations.contains_key("-k"));
        let linux = linux.unwrap();
        assert_eq!(linux.devices[0].path, "-/dev/x");
        assert_eq!(linux.net_devices["eth7"].name, "data0");
        assert_eq!(linux.sysctl["net.ipv4.ip_forward"], "0");
        assert_eq!(cdi_devices[0].name, "vendor.example/class=one");
    }
}
