//! Security contexts of pod and container merged and put into CRI's words. Pure.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, SELinuxOptions, SeccompProfile, SecurityContext,
};
use podwire_wire::cri;

use crate::spec;

/// Why a container's security context cannot be honoured.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum SecurityError {
    /// The user is root although the pod forbids it.
    #[error("container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})")]
    RunsAsRoot {
        /// Pod as messages name it.
        pod: String,
        /// Container's name.
        container: String,
    },
    /// The image's user is root although the pod forbids it.
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    ImageRunsAsRoot {
        /// Pod as messages name it.
        pod: String,
        /// Container's name.
        container: String,
    },
    /// The image names its user, so that nothing can be proven.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \"{pod}\", container: {container})"
    )]
    ImageUserNotNumeric {
        /// The image's user.
        user: String,
        /// Pod as messages name it.
        pod: String,
        /// Container's name.
        container: String,
    },
    /// An unmasked /proc is for pods with user ids of their own; the node's root could change the kernel through it.
    #[error(
        "`hostUsers` must be false to use `procMount: Unmasked` (pod: \"{pod}\", container: {container})"
    )]
    Unmasked {
        /// Pod as messages name it.
        pod: String,
        /// Container's name.
        container: String,
    },
}

const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The user an image runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    /// Numeric, if it is.
    pub(crate) uid: Option<i64>,
    /// By name otherwise.
    pub(crate) name: String,
}

/// The namespaces a sandbox or container of the pod uses.
pub(crate) fn namespaces(pod: &Pod, users: cri::UserNamespace) -> cri::NamespaceOption {
    let spec = spec::spec(pod);
    let node_or = |node: Option<bool>, other: cri::NamespaceMode| {
        if node.unwrap_or(false) { cri::NamespaceMode::Node as i32 } else { other as i32 }
    };
    let pid = if spec.share_process_namespace.unwrap_or(false) {
        cri::NamespaceMode::Pod
    } else {
        cri::NamespaceMode::Container
    };
    cri::NamespaceOption {
        network: node_or(spec.host_network, cri::NamespaceMode::Pod),
        ipc: node_or(spec.host_ipc, cri::NamespaceMode::Pod),
        pid: node_or(spec.host_pid, pid),
        userns_options: Some(users),
        ..Default::default()
    }
}

/// The sandbox's security context.
pub(crate) fn sandbox(pod: &Pod, users: cri::UserNamespace) -> cri::LinuxSandboxSecurityContext {
    let own = spec::spec(pod).security_context.clone().unwrap_or_default();
    let privileged = spec::init_containers(pod)
        .iter()
        .chain(&spec::spec(pod).containers)
        .any(|c| c.security_context.as_ref().and_then(|s| s.privileged).unwrap_or(false));
    cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, users)),
        selinux_options: own.se_linux_options.as_ref().map(selinux),
        run_as_user: own.run_as_user.map(|value| cri::Int64Value { value }),
        run_as_group: own.run_as_group.map(|value| cri::Int64Value { value }),
        supplemental_groups: supplemental(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged,
        seccomp: Some(cri::SecurityProfile {
            profile_type: cri::security_profile::ProfileType::RuntimeDefault as i32,
            localhost_ref: String::new(),
        }),
        ..Default::default()
    }
}

/// The container's security context, or why it cannot be had.
pub(crate) fn container(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    users: cri::UserNamespace,
) -> Result<cri::LinuxContainerSecurityContext, SecurityError> {
    let pod_own = spec::spec(pod).security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(pod_own.run_as_user);
    if own.run_as_non_root.or(pod_own.run_as_non_root).unwrap_or(false) {
        refuse_root(pod, container, user, image)?;
    }
    let privileged = own.privileged.unwrap_or(false);
    let (uid, name) = match (user, image) {
        (Some(value), _) => (Some(value), String::new()),
        (None, image) if !image.name.is_empty() => (None, image.name.clone()),
        (None, image) => (image.uid, String::new()),
    };
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    if unmasked && users.mode != cri::NamespaceMode::Pod as i32 {
        let pod = spec::PodRef::of(pod).full();
        return Err(SecurityError::Unmasked { pod, container: container.name.clone() });
    }
    let unmasked = unmasked || privileged;
    let paths = |all: &[&str]| all.iter().map(|&p| p.to_owned()).collect();
    Ok(cri::LinuxContainerSecurityContext {
        capabilities: capabilities(&own),
        privileged,
        namespace_options: Some(namespaces(pod, users)),
        selinux_options: own.se_linux_options.as_ref().or(pod_own.se_linux_options.as_ref()).map(selinux),
        run_as_user: uid.map(|value| cri::Int64Value { value }),
        run_as_username: name,
        run_as_group: own.run_as_group.or(pod_own.run_as_group).map(|value| cri::Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: supplemental(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked { Vec::new() } else { paths(MASKED) },
        readonly_paths: if unmasked { Vec::new() } else { paths(READ_ONLY) },
        seccomp: Some(seccomp(own.seccomp_profile.as_ref().or(pod_own.seccomp_profile.as_ref()), privileged)),
        apparmor: own.app_armor_profile.as_ref().or(pod_own.app_armor_profile.as_ref()).map(apparmor),
        ..Default::default()
    })
}

fn refuse_root(
    pod: &Pod,
    container: &Container,
    user: Option<i64>,
    image: &ImageUser,
) -> Result<(), SecurityError> {
    let name = container.name.clone();
    let full = spec::PodRef::of(pod).full();
    match (user, image.uid) {
        (Some(0), _) => Err(SecurityError::RunsAsRoot { pod: full, container: name }),
        (Some(_), _) => Ok(()),
        (None, _) if !image.name.is_empty() => {
            Err(SecurityError::ImageUserNotNumeric { user: image.name.clone(), pod: full, container: name })
        }
        (None, None | Some(0)) => Err(SecurityError::ImageRunsAsRoot { pod: full, container: name }),
        (None, Some(_)) => Ok(()),
    }
}

fn capabilities(own: &SecurityContext) -> Option<cri::Capability> {
    let own = own.capabilities.as_ref()?;
    Some(cri::Capability {
        add_capabilities: own.add.clone().unwrap_or_default(),
        drop_capabilities: own.drop.clone().unwrap_or_default(),
        ..Default::default()
    })
}

fn selinux(own: &SELinuxOptions) -> cri::SeLinuxOption {
    cri::SeLinuxOption {
        user: own.user.clone().unwrap_or_default(),
        role: own.role.clone().unwrap_or_default(),
        r#type: own.type_.clone().unwrap_or_default(),
        level: own.level.clone().unwrap_or_default(),
    }
}

fn seccomp(own: Option<&SeccompProfile>, privileged: bool) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let (kind, path) = match own {
        _ if privileged => (ProfileType::Unconfined, None),
        None => (ProfileType::Unconfined, None),
        Some(profile) => match profile.type_.as_str() {
            "RuntimeDefault" => (ProfileType::RuntimeDefault, None),
            "Localhost" => (ProfileType::Localhost, profile.localhost_profile.clone()),
            _ => (ProfileType::Unconfined, None),
        },
    };
    cri::SecurityProfile { profile_type: kind as i32, localhost_ref: path.unwrap_or_default() }
}

fn apparmor(own: &AppArmorProfile) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let kind = match own.type_.as_str() {
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        _ => ProfileType::Unconfined,
    };
    cri::SecurityProfile {
        profile_type: kind as i32,
        localhost_ref: own.localhost_profile.clone().unwrap_or_default(),
    }
}

fn supplemental(pod: &Pod) -> Vec<i64> {
    let own = spec::spec(pod).security_context.clone().unwrap_or_default();
    let mut groups = own.supplemental_groups.unwrap_or_default();
    groups.extend(own.fs_group);
    groups
}

fn groups_policy(pod: &Pod) -> i32 {
    let own = spec::spec(pod).security_context.as_ref();
    match own.and_then(|s| s.supplemental_groups_policy.as_deref()) {
        Some("Strict") => cri::SupplementalGroupsPolicy::Strict as i32,
        _ => cri::SupplementalGroupsPolicy::Merge as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(context: serde_json::Value) -> Pod {
        let json = serde_json::json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "securityContext": context}});
        serde_json::from_value(json).unwrap()
    }

    fn app() -> Container {
        Container { name: "app".into(), ..Default::default() }
    }

    fn made(
        pod: &Pod,
        app: &Container,
        image: &ImageUser,
    ) -> Result<cri::LinuxContainerSecurityContext, SecurityError> {
        container(pod, app, image, crate::users::of_node())
    }

    #[test]
    fn an_unmasked_proc_needs_user_ids_of_the_pods_own() {
        let pod = pod(serde_json::json!({}));
        let mut app = app();
        let image = ImageUser::default();
        for privileged in [false, true] {
            app.security_context = Some(SecurityContext {
                proc_mount: Some("Unmasked".into()),
                privileged: Some(privileged),
                ..Default::default()
            });
            let refused = made(&pod, &app, &image).unwrap_err();
            assert!(matches!(refused, SecurityError::Unmasked { .. }), "{refused}");
        }
        let map = vec![cri::IdMapping { host_id: 65_536, container_id: 0, length: 65_536 }];
        let users = cri::UserNamespace { mode: cri::NamespaceMode::Pod as i32, uids: map.clone(), gids: map };
        let context = container(&pod, &app, &image, users.clone()).unwrap();
        assert!(context.masked_paths.is_empty() && context.readonly_paths.is_empty());
        assert_eq!(context.namespace_options.unwrap().userns_options, Some(users));
        app.security_context = None;
        assert!(!made(&pod, &app, &image).unwrap().masked_paths.is_empty());
    }

    #[test]
    fn run_as_non_root_refuses_a_root_image() {
        let pod = pod(serde_json::json!({"runAsNonRoot": true}));
        let refused = made(&pod, &app(), &ImageUser { uid: Some(0), name: String::new() }).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: app)"
        );
        assert!(made(&pod, &app(), &ImageUser { uid: Some(7), name: String::new() }).is_ok());
    }

    #[test]
    fn the_containers_context_wins_over_the_pods() {
        let pod = pod(serde_json::json!({"runAsUser": 5, "fsGroup": 9, "supplementalGroups": [8]}));
        let mut app = app();
        app.security_context = Some(SecurityContext { run_as_user: Some(6), ..Default::default() });
        let context = made(&pod, &app, &ImageUser::default()).unwrap();
        assert_eq!(context.run_as_user.unwrap().value, 6);
        assert_eq!(context.supplemental_groups, [8, 9]);
    }
}
