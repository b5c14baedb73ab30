//! Whole specs from whole configs.

use super::mounts::{PodMount, Resolved};
use super::*;

struct Fixture {
    config: cri::ContainerConfig,
    sandbox: cri::PodSandboxConfig,
    image: ImageDefaults,
    namespaces: Namespaces,
    pod_mounts: Vec<PodMount>,
    mounts: Vec<Resolved>,
    host: Host,
}

impl Fixture {
    fn new() -> Self {
        let metadata = cri::PodSandboxMetadata {
            name: "web".into(),
            namespace: "shop".into(),
            uid: "u-1".into(),
            attempt: 0,
        };
        Fixture {
            config: cri::ContainerConfig {
                metadata: Some(cri::ContainerMetadata { name: "main".into(), attempt: 1 }),
                command: vec!["/bin/serve".into()],
                linux: Some(cri::LinuxContainerConfig::default()),
                ..Default::default()
            },
            sandbox: cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() },
            image: ImageDefaults::default(),
            namespaces: Namespaces { net: Some("/run/x/net".into()), ..Default::default() },
            pod_mounts: vec![PodMount {
                source: "/run/x/hosts".into(),
                target: "/etc/hosts",
                follows_root: true,
            }],
            mounts: vec![],
            host: Host { oom_score_floor: -1000, ..Default::default() },
        }
    }

    fn security(&mut self) -> &mut cri::LinuxContainerSecurityContext {
        self.config.linux.get_or_insert_default().security_context.get_or_insert_default()
    }

    fn build(&self) -> Spec {
        self.try_build().unwrap()
    }

    fn try_build(&self) -> Result<Spec, SpecError> {
        build(&Input {
            sandbox_id: "s1",
            config: &self.config,
            sandbox: &self.sandbox,
            hostname: "web",
            image: &self.image,
            image_name: "img",
            identity: &Identity { uid: 5, gid: 6, groups: vec![6, 7] },
            namespaces: &self.namespaces,
            pod_mounts: &self.pod_mounts,
            mounts: &self.mounts,
            devices: &[],
            seccomp: None,
            apparmor: None,
            cgroup: "/pod/c1",
            host: &self.host,
        })
    }
}

fn targets(spec: &Spec) -> Vec<String> {
    spec.mounts().as_ref().unwrap().iter().map(|m| m.destination().to_string_lossy().into_owned()).collect()
}

fn bind(target: &str, source: &str) -> Resolved {
    Resolved {
        requested: cri::Mount {
            container_path: target.into(),
            host_path: source.into(),
            ..Default::default()
        },
        source: source.into(),
    }
}

#[test]
fn an_unprivileged_container_joins_the_pod_and_keeps_its_own_pids() {
    let spec = Fixture::new().build();
    let linux = spec.linux().as_ref().unwrap();
    let kinds: Vec<_> =
        linux.namespaces().as_ref().unwrap().iter().map(|ns| (ns.typ(), ns.path().clone())).collect();
    assert!(kinds.contains(&(LinuxNamespaceType::Network, Some("/run/x/net".into()))));
    assert!(kinds.contains(&(LinuxNamespaceType::Pid, None)));
    assert!(
        !kinds.iter().any(|(typ, _)| *typ == LinuxNamespaceType::Ipc),
        "the node's IPC namespace is not replaced"
    );
    assert_eq!(linux.cgroups_path().as_ref().unwrap(), &PathBuf::from("/pod/c1"));
    let user = spec.process().as_ref().unwrap().user();
    assert_eq!((user.uid(), user.gid(), user.additional_gids().clone()), (5, 6, Some(vec![6, 7])));
    assert_eq!(spec.annotations().as_ref().unwrap()["io.kubernetes.cri.sandbox-namespace"], "shop");
}

#[test]
fn a_mount_of_the_config_replaces_the_pods_file() {
    let mut fixture = Fixture::new();
    fixture.mounts = vec![
        bind("/var/run/secrets/deep", "/src/deep"),
        bind("/etc/hosts", "/src/hosts"),
        bind("/var", "/src/var"),
    ];
    let spec = fixture.build();
    let all = targets(&spec);
    assert_eq!(all.iter().filter(|target| *target == "/etc/hosts").count(), 1);
    let at = |target: &str| all.iter().position(|known| known == target).unwrap();
    assert!(at("/var") < at("/var/run/secrets/deep"), "parents first");
    let hosts = &spec.mounts().as_ref().unwrap()[at("/etc/hosts")];
    assert_eq!(hosts.source().as_ref().unwrap(), &PathBuf::from("/src/hosts"));
}

#[test]
fn privileged_opens_everything() {
    let mut fixture = Fixture::new();
    fixture.security().privileged = true;
    fixture.security().masked_paths = vec!["/proc/kcore".into()];
    let spec = fixture.build();
    let linux = spec.linux().as_ref().unwrap();
    assert!(linux.masked_paths().is_none() && linux.readonly_paths().is_none());
    let devices = linux.resources().as_ref().unwrap().devices().clone().unwrap();
    assert!(devices.len() == 1 && devices[0].allow());
    let sys =
        spec.mounts().as_ref().unwrap().iter().find(|m| m.destination() == &PathBuf::from("/sys")).unwrap();
    assert!(sys.options().as_ref().unwrap().contains(&"rw".to_owned()));
}

#[test]
fn a_recursive_read_only_mount_must_be_read_only_and_private() {
    let mut fixture = Fixture::new();
    let mut mount = bind("/data", "/src");
    mount.requested.recursive_read_only = true;
    fixture.mounts = vec![mount.clone()];
    assert!(mounts::rootfs_propagation(&fixture.mounts).is_none());
    let input_fails = |fixture: &Fixture| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fixture.build())).is_err()
    };
    assert!(input_fails(&fixture));
    mount.requested.readonly = true;
    fixture.mounts = vec![mount.clone()];
    let spec = fixture.build();
    let options = spec.mounts().as_ref().unwrap().last().unwrap().options().clone().unwrap();
    assert!(options.contains(&"rro".to_owned()));
    mount.requested.propagation = 2;
    fixture.mounts = vec![mount];
    assert!(input_fails(&fixture));
    assert_eq!(mounts::rootfs_propagation(&fixture.mounts).as_deref(), Some("rshared"));
}

#[test]
fn a_read_only_root_makes_the_pods_files_read_only() {
    let mut fixture = Fixture::new();
    fixture.security().readonly_rootfs = true;
    let spec = fixture.build();
    assert_eq!(spec.root().as_ref().unwrap().readonly(), Some(true));
    let hosts = spec
        .mounts()
        .as_ref()
        .unwrap()
        .iter()
        .find(|m| m.destination() == &PathBuf::from("/etc/hosts"))
        .unwrap();
    assert!(hosts.options().as_ref().unwrap().contains(&"ro".to_owned()));
}

#[test]
fn an_selinux_label_is_refused_where_it_would_mean_something_and_ignored_elsewhere() {
    let mut fixture = Fixture::new();
    fixture.security().selinux_options =
        Some(cri::SeLinuxOption { level: "s0:c1,c2".into(), ..Default::default() });
    assert_eq!(*fixture.build().process().as_ref().unwrap().selinux_label(), None);
    fixture.host.selinux = true;
    let refused = fixture.try_build().unwrap_err();
    assert_eq!(refused.to_string(), "an SELinux label is not supported on this node");
    fixture.security().selinux_options = Some(cri::SeLinuxOption::default());
    fixture.try_build().unwrap();
}
