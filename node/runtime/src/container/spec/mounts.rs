//! Mounts and devices of a container: the usual file systems, the pod's files, CRI's mounts in order of depth.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, LinuxIdMapping, LinuxIdMappingBuilder, Mount,
};
use podwire_wire::cri;

use super::{Input, SpecError};

/// A file or folder of the pod that every container sees, unless the config mounts something there itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodMount {
    pub(crate) source: PathBuf,
    pub(crate) target: &'static str,
    /// Follows the root file system: read-only if that is.
    pub(crate) follows_root: bool,
}

/// One of CRI's mounts with its source looked up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resolved {
    pub(crate) requested: cri::Mount,
    pub(crate) source: PathBuf,
}

/// A device of the node that the container may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedDevice {
    pub(crate) path: PathBuf,
    pub(crate) block: bool,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) access: String,
}

impl ResolvedDevice {
    /// The node to make in the container's /dev.
    pub(crate) fn node(&self) -> Option<LinuxDevice> {
        let mut device = LinuxDevice::default();
        device.set_path(self.path.clone());
        device.set_typ(if self.block { LinuxDeviceType::B } else { LinuxDeviceType::C });
        device.set_major(i64::from(self.major));
        device.set_minor(i64::from(self.minor));
        device.set_file_mode(Some(self.mode));
        device.set_uid(Some(self.uid));
        device.set_gid(Some(self.gid));
        Some(device)
    }
}

fn mount(target: &str, typ: &str, source: &str, options: &[&str]) -> Mount {
    let mut mount = Mount::default();
    mount.set_destination(PathBuf::from(target));
    mount.set_typ(Some(typ.to_owned()));
    mount.set_source(Some(PathBuf::from(source)));
    mount.set_options(Some(options.iter().map(|option| (*option).to_owned()).collect()));
    mount
}

/// All mounts in the order they are made.
pub(crate) fn plan(
    input: &Input<'_>,
    security: &cri::LinuxContainerSecurityContext,
) -> Result<Vec<Mount>, SpecError> {
    let is_requested = |target: &str| {
        input.mounts.iter().any(|mount| clean(&mount.requested.container_path) == Path::new(target))
    };
    let mut list: Vec<Mount> = defaults(security.privileged)
        .into_iter()
        .filter(|mount| mount.destination().to_str().is_none_or(|target| !is_requested(target)))
        .collect();
    for pod in input.pod_mounts.iter().filter(|pod| !is_requested(pod.target)) {
        let access = if pod.follows_root && security.readonly_rootfs { "ro" } else { "rw" };
        list.push(mount(pod.target, "bind", &pod.source.to_string_lossy(), &["rbind", "rprivate", access]));
    }
    let mut ordered: Vec<&Resolved> = input.mounts.iter().collect();
    ordered.sort_by_key(|mount| clean(&mount.requested.container_path).components().count());
    for requested in ordered {
        list.push(bind(requested)?);
    }
    Ok(list)
}

fn defaults(privileged: bool) -> Vec<Mount> {
    let access = if privileged { "rw" } else { "ro" };
    vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ]
}

/// A path without `.` and doubled or trailing slashes.
pub(crate) fn clean(path: &str) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            std::path::Component::Normal(name) => out.push(name),
            std::path::Component::ParentDir => {
                out.pop();
            }
            _ => {}
        }
    }
    out
}

fn bind(mount: &Resolved) -> Result<Mount, SpecError> {
    use cri::MountPropagation as Propagation;
    let requested = &mount.requested;
    let refuse = |why| SpecError::Mount { path: requested.container_path.clone(), why };
    let propagation = match Propagation::try_from(requested.propagation) {
        Ok(Propagation::PropagationHostToContainer) => "rslave",
        Ok(Propagation::PropagationBidirectional) => "rshared",
        _ => "rprivate",
    };
    if requested.recursive_read_only && !requested.readonly {
        return Err(refuse("recursive read-only needs read-only"));
    }
    if requested.recursive_read_only && propagation != "rprivate" {
        return Err(refuse("recursive read-only needs private propagation"));
    }
    let access = match (requested.recursive_read_only, requested.readonly) {
        (true, _) => "rro",
        (_, true) => "ro",
        _ => "rw",
    };
    let mut options = vec!["rbind", propagation, access];
    if requested.image.as_ref().is_some_and(|image| !image.image.is_empty()) {
        // Files to read, from whoever made the image: they give nobody rights.
        options.extend(["nosuid", "nodev"]);
    }
    let mut out = self::mount(
        &clean(&requested.container_path).to_string_lossy(),
        "bind",
        &mount.source.to_string_lossy(),
        &options,
    );
    if !requested.uid_mappings.is_empty() || !requested.gid_mappings.is_empty() {
        out.set_uid_mappings(Some(requested.uid_mappings.iter().map(id_mapping).collect()));
        out.set_gid_mappings(Some(requested.gid_mappings.iter().map(id_mapping).collect()));
    }
    Ok(out)
}

/// CRI's id mapping in the spec's words.
pub(crate) fn id_mapping(mapping: &cri::IdMapping) -> LinuxIdMapping {
    LinuxIdMappingBuilder::default()
        .host_id(mapping.host_id)
        .container_id(mapping.container_id)
        .size(mapping.length)
        .build()
        .expect("every field of a mapping is set")
}

/// A mount that takes part in propagation needs a root that does too.
pub(crate) fn rootfs_propagation(mounts: &[Resolved]) -> Option<String> {
    let strongest = mounts.iter().map(|mount| mount.requested.propagation).max().unwrap_or_default();
    match strongest {
        1 => Some("rslave".to_owned()),
        2 => Some("rshared".to_owned()),
        _ => None,
    }
}

/// The device cgroup: nothing, then what every container needs, then its own devices; everything when privileged.
pub(crate) fn device_rules(devices: &[ResolvedDevice], privileged: bool) -> Vec<LinuxDeviceCgroup> {
    let rule = |allow, typ, major: Option<i64>, minor: Option<i64>, access: &str| {
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(allow);
        rule.set_typ(typ);
        rule.set_major(major);
        rule.set_minor(minor);
        rule.set_access(Some(access.to_owned()));
        rule
    };
    if privileged {
        return vec![rule(true, Some(LinuxDeviceType::A), None, None, "rwm")];
    }
    let mut list = vec![
        rule(false, Some(LinuxDeviceType::A), None, None, "rwm"),
        rule(true, Some(LinuxDeviceType::C), None, None, "m"),
        rule(true, Some(LinuxDeviceType::B), None, None, "m"),
    ];
    // null, zero, full, random, urandom, tty, console, ptmx, pseudo terminals.
    for (major, minor) in [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)] {
        list.push(rule(true, Some(LinuxDeviceType::C), Some(major), Some(minor), "rwm"));
    }
    list.push(rule(true, Some(LinuxDeviceType::C), Some(136), None, "rwm"));
    for device in devices {
        let typ = if device.block { LinuxDeviceType::B } else { LinuxDeviceType::C };
        list.push(rule(
            true,
            Some(typ),
            Some(i64::from(device.major)),
            Some(i64::from(device.minor)),
            &device.access,
        ));
    }
    list
}
