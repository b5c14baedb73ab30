//! From what CRI asks for and the image's config to an OCI runtime spec.
//!
//! Pure: users, devices, mount sources and seccomp profiles were looked up by the caller; the same input always gives
//! the same spec. Defaults (capabilities, mounts, sysctls) are those a containerd user expects.

pub(crate) mod caps;
pub(crate) mod mounts;
pub(crate) mod process;
pub(crate) mod resources;
pub(crate) mod user;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use oci_spec::runtime::{
    Capability, Linux, LinuxDevice, LinuxNamespace, LinuxNamespaceType, LinuxSeccomp, Process, Root, Spec,
    User,
};
use podwire_wire::cri;

/// Why no spec can be made of a config.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    #[error("no command specified: neither the container nor its image names one")]
    NoCommand,
    #[error("unknown capability {name:?}")]
    UnknownCapability { name: String },
    #[error("mount of {path:?}: {why}")]
    Mount { path: String, why: &'static str },
    #[error("{what} is not supported on this node")]
    Unsupported { what: &'static str },
}

/// What the node can do, found out once at start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// All controllers are on cgroup v2.
    pub(crate) cgroup_v2: bool,
    /// The lowest oom_score_adj this process may give.
    pub(crate) oom_score_floor: i32,
    /// Pods can have user namespaces.
    pub(crate) user_namespaces: bool,
    /// SELinux is active.
    pub(crate) selinux: bool,
    /// The capabilities this process may give.
    pub(crate) capabilities: HashSet<Capability>,
}

/// Where the namespaces of the pod are; `None` means the node's own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces {
    pub(crate) net: Option<PathBuf>,
    pub(crate) ipc: Option<PathBuf>,
    pub(crate) uts: Option<PathBuf>,
    pub(crate) pid: PidNamespace,
    pub(crate) user: Option<UserNamespace>,
}

/// The container's PID namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum PidNamespace {
    /// Its own.
    #[default]
    Own,
    /// The node's.
    Node,
    /// Somebody else's.
    Join(PathBuf),
}

/// The pod's user namespace.
#[derive(Debug, Clone)]
pub(crate) struct UserNamespace {
    pub(crate) path: Option<PathBuf>,
    pub(crate) uids: Vec<cri::IdMapping>,
    pub(crate) gids: Vec<cri::IdMapping>,
}

/// The user a container runs as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// What the image's config says about a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageDefaults {
    pub(crate) entrypoint: Vec<String>,
    pub(crate) cmd: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) working_dir: String,
}

/// Everything a spec is made of.
pub(crate) struct Input<'a> {
    pub(crate) sandbox_id: &'a str,
    pub(crate) config: &'a cri::ContainerConfig,
    pub(crate) sandbox: &'a cri::PodSandboxConfig,
    pub(crate) hostname: &'a str,
    pub(crate) image: &'a ImageDefaults,
    pub(crate) image_name: &'a str,
    pub(crate) identity: &'a Identity,
    pub(crate) namespaces: &'a Namespaces,
    /// The pod's own files mounted into every container (hosts, hostname, resolv.conf, shm).
    pub(crate) pod_mounts: &'a [mounts::PodMount],
    /// The config's mounts with their sources resolved.
    pub(crate) mounts: &'a [mounts::Resolved],
    pub(crate) devices: &'a [mounts::ResolvedDevice],
    pub(crate) seccomp: Option<LinuxSeccomp>,
    /// The AppArmor profile to run under.
    pub(crate) apparmor: Option<&'a str>,
    /// Path of the container's cgroup under each hierarchy.
    pub(crate) cgroup: &'a str,
    pub(crate) host: &'a Host,
}

impl Input<'_> {
    pub(crate) fn security(&self) -> cri::LinuxContainerSecurityContext {
        self.config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default()
    }
}

/// Makes the spec.
pub(crate) fn build(input: &Input<'_>) -> Result<Spec, SpecError> {
    let security = input.security();
    let mut spec = Spec::default();
    spec.set_hostname(None);
    spec.set_process(Some(process(input, &security)?));
    let mut root = Root::default();
    root.set_path(PathBuf::from("rootfs"));
    root.set_readonly(Some(security.readonly_rootfs));
    spec.set_root(Some(root));
    spec.set_mounts(Some(mounts::plan(input, &security)?));
    spec.set_annotations(Some(annotations(input)));
    spec.set_linux(Some(linux(input, &security)?));
    Ok(spec)
}

fn process(input: &Input<'_>, security: &cri::LinuxContainerSecurityContext) -> Result<Process, SpecError> {
    let mut process = Process::default();
    process.set_terminal(Some(input.config.tty));
    process.set_args(Some(process::args(input.config, input.image)?));
    process.set_env(Some(process::env(input.config, input.image, input.hostname)));
    process.set_cwd(PathBuf::from(process::cwd(input.config, input.image)));
    let mut user = User::default();
    user.set_uid(input.identity.uid);
    user.set_gid(input.identity.gid);
    user.set_additional_gids(Some(input.identity.groups.clone()));
    process.set_user(user);
    process.set_capabilities(Some(caps::sets(security, &input.host.capabilities)?));
    process.set_no_new_privileges(Some(security.no_new_privs));
    // Limits of open files and the like are those of the supervisor.
    process.set_rlimits(None);
    let requested =
        input.config.linux.as_ref().and_then(|linux| linux.resources.as_ref()).map(|r| r.oom_score_adj);
    process.set_oom_score_adj(requested.map(|score| process::oom_score(score, input.host.oom_score_floor)));
    process.set_apparmor_profile(input.apparmor.map(str::to_owned));
    // Without the policy's labels on its files a labelled process reads nothing, and those are not set here. Where
    // SELinux is off, labels mean nothing to anybody.
    if input.host.selinux
        && security.selinux_options.as_ref().is_some_and(|requested| !process::is_no_label(requested))
    {
        return Err(SpecError::Unsupported { what: "an SELinux label" });
    }
    Ok(process)
}

fn linux(input: &Input<'_>, security: &cri::LinuxContainerSecurityContext) -> Result<Linux, SpecError> {
    let mut linux = Linux::default();
    linux.set_cgroups_path(Some(PathBuf::from(input.cgroup)));
    linux.set_namespaces(Some(namespaces(input, security)));
    let requested = input.config.linux.as_ref().and_then(|linux| linux.resources.clone()).unwrap_or_default();
    let mut limits = resources::plan(&requested, input.host.cgroup_v2);
    limits.set_devices(Some(mounts::device_rules(input.devices, security.privileged)));
    linux.set_resources(Some(limits));
    let devices: Vec<LinuxDevice> = input.devices.iter().filter_map(mounts::ResolvedDevice::node).collect();
    linux.set_devices(Some(devices));
    linux.set_rootfs_propagation(mounts::rootfs_propagation(input.mounts));
    if security.privileged {
        linux.set_masked_paths(None);
        linux.set_readonly_paths(None);
    } else {
        linux.set_masked_paths(Some(security.masked_paths.clone()));
        linux.set_readonly_paths(Some(security.readonly_paths.clone()));
        linux.set_seccomp(input.seccomp.clone());
    }
    if let Some(user) = &input.namespaces.user {
        linux.set_uid_mappings(Some(user.uids.iter().map(mounts::id_mapping).collect()));
        linux.set_gid_mappings(Some(user.gids.iter().map(mounts::id_mapping).collect()));
    }
    Ok(linux)
}

fn namespaces(input: &Input<'_>, security: &cri::LinuxContainerSecurityContext) -> Vec<LinuxNamespace> {
    let one = |typ, path: Option<PathBuf>| {
        let mut namespace = LinuxNamespace::default();
        namespace.set_typ(typ);
        namespace.set_path(path);
        namespace
    };
    let mut list = vec![one(LinuxNamespaceType::Mount, None)];
    let wanted = input.namespaces;
    for (typ, path) in [
        (LinuxNamespaceType::Network, &wanted.net),
        (LinuxNamespaceType::Ipc, &wanted.ipc),
        (LinuxNamespaceType::Uts, &wanted.uts),
    ] {
        if let Some(path) = path {
            list.push(one(typ, Some(path.clone())));
        }
    }
    match &wanted.pid {
        PidNamespace::Own => list.push(one(LinuxNamespaceType::Pid, None)),
        PidNamespace::Node => {}
        PidNamespace::Join(path) => list.push(one(LinuxNamespaceType::Pid, Some(path.clone()))),
    }
    if let Some(user) = &wanted.user {
        list.push(one(LinuxNamespaceType::User, user.path.clone()));
    }
    if input.host.cgroup_v2 && !security.privileged {
        list.push(one(LinuxNamespaceType::Cgroup, None));
    }
    list
}

fn annotations(input: &Input<'_>) -> HashMap<String, String> {
    let mut map = HashMap::new();
    let metadata = input.sandbox.metadata.clone().unwrap_or_default();
    let name = input.config.metadata.as_ref().map(|m| m.name.clone()).unwrap_or_default();
    for (key, value) in [
        ("container-type", "container".to_owned()),
        ("sandbox-id", input.sandbox_id.to_owned()),
        ("sandbox-name", metadata.name),
        ("sandbox-namespace", metadata.namespace),
        ("sandbox-uid", metadata.uid),
        ("container-name", name),
        ("image-name", input.image_name.to_owned()),
    ] {
        map.insert(format!("io.kubernetes.cri.{key}"), value);
    }
    map
}

#[cfg(test)]
#[path = "spec/tests.rs"]
mod tests;
