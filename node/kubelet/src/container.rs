//! A container of a pod as the runtime's container configuration.

use std::{fs, path::Path, sync::Arc};

use k8s_openapi::api::core::v1::{Container, Pod};
use podwire_wire::cri;

use crate::{
    dns,
    env::{self, EnvError, Sources},
    labels,
    node::Node,
    objects::Kind as ObjectKind,
    ops::StartInput,
    paths, resources,
    security::{self, SecurityError},
    spec::{self, PodRef},
    volumes::{self, MountError},
};

/// Why a container's configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// Its environment.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A config map or secret could not be read.
    #[error("{0}")]
    Source(String),
    /// Its security context.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Its mounts.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Its files on the node.
    #[error("write {path:?}: {source}")]
    Write { path: std::path::PathBuf, source: std::io::Error },
}

impl ConfigError {
    /// The waiting reason.
    pub(crate) fn reason(&self) -> &'static str {
        "CreateContainerConfigError"
    }
}

/// The configuration for starting `input.container`.
pub(crate) async fn config(
    node: &Arc<Node>,
    input: &StartInput,
) -> Result<cri::ContainerConfig, ConfigError> {
    let (pod, container) = (&*input.pod, &input.container);
    let ips = pod_ips(node, input);
    let sources = sources(node, pod, container).await?;
    let services = node.services.now().await;
    let facts = node.env_facts(&ips, &services);
    let env = env::build(pod, container, &sources, &facts)?;
    let mut security = security::container(pod, container, &input.image.user)?;
    if let Some(target) = &input.target {
        let options = security.namespace_options.get_or_insert_default();
        options.pid = cri::NamespaceMode::Target as i32;
        options.target_id.clone_from(target);
    }
    let mounts = mounts(node, input, &env, &ips)?;
    let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let expanded = |list: Option<&Vec<String>>| -> Vec<String> {
        list.into_iter().flatten().map(|text| env::expand(text, lookup)).collect()
    };
    Ok(cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.clone(), attempt: input.attempt }),
        image: Some(cri::ImageSpec {
            image: input.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command: expanded(container.command.as_ref()),
        args: expanded(container.args.as_ref()),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: env
            .iter()
            .map(|(key, value)| cri::KeyValue { key: key.clone(), value: value.clone().into() })
            .collect(),
        mounts,
        labels: labels::container_labels(pod, container),
        annotations: labels::container_annotations(pod, container, input.attempt),
        log_path: paths::container_log(&container.name, input.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources::linux(pod, input.kind, container, node.config.memory_capacity)),
            security_context: Some(security),
        }),
        ..Default::default()
    })
}

fn pod_ips(node: &Node, input: &StartInput) -> Vec<String> {
    if spec::host_network(&input.pod) { node.config.node_ips.clone() } else { input.sandbox.ips.clone() }
}

/// Reads the config maps and secrets that the environment refers to.
async fn sources(node: &Node, pod: &Pod, container: &Container) -> Result<Sources, ConfigError> {
    let mut maps: Vec<&str> = Vec::new();
    let mut secrets: Vec<&str> = Vec::new();
    for from in container.env_from.as_deref().unwrap_or_default() {
        maps.extend(from.config_map_ref.as_ref().map(|r| r.name.as_str()));
        secrets.extend(from.secret_ref.as_ref().map(|r| r.name.as_str()));
    }
    for from in container.env.iter().flatten().filter_map(|v| v.value_from.as_ref()) {
        maps.extend(from.config_map_key_ref.as_ref().map(|r| r.name.as_str()));
        secrets.extend(from.secret_key_ref.as_ref().map(|r| r.name.as_str()));
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut sources = Sources::default();
    for name in maps {
        let fetched = node.objects.get(ObjectKind::ConfigMap, namespace, name, spec::uid(pod)).await;
        if let Some(content) = fetched.map_err(ConfigError::Source)? {
            let text = content.data.iter().map(|(k, v)| (k.clone(), String::from_utf8_lossy(v).into_owned()));
            sources.config_maps.insert(name.to_owned(), text.collect());
        }
    }
    for name in secrets {
        let fetched = node.objects.get(ObjectKind::Secret, namespace, name, spec::uid(pod)).await;
        if let Some(content) = fetched.map_err(ConfigError::Source)? {
            sources.secrets.insert(name.to_owned(), content.data.clone());
        }
    }
    Ok(sources)
}

fn mounts(
    node: &Node,
    input: &StartInput,
    env: &[(String, String)],
    ips: &[String],
) -> Result<Vec<cri::Mount>, ConfigError> {
    let (pod, container) = (&*input.pod, &input.container);
    let root = &node.config.root_dir;
    let mut all = volumes::container_mounts(root, pod, container, &input.mounted, env)?;
    let mounted_at = |path: &str| container.volume_mounts.iter().flatten().any(|m| m.mount_path == path);
    if !mounted_at("/etc/hosts") {
        let path = paths::etc_hosts(root, spec::uid(pod));
        let base = spec::host_network(pod).then(|| fs::read_to_string("/etc/hosts").unwrap_or_default());
        let text = dns::hosts_file(pod, ips, &node.config.dns.domain, base.as_deref());
        write(&path, text.as_bytes(), 0o644)?;
        all.push(bind(&path, "/etc/hosts"));
    }
    let message = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    if !message.is_empty() {
        let path = paths::termination_message(root, spec::uid(pod), &container.name, input.attempt);
        write(&path, b"", 0o666)?;
        all.push(bind(&path, message));
    }
    let logs = paths::pod_logs(&node.config.log_dir, &PodRef::of(pod)).join(&container.name);
    fs::create_dir_all(&logs).map_err(|source| ConfigError::Write { path: logs, source })?;
    Ok(all)
}

fn bind(host: &Path, inside: &str) -> cri::Mount {
    cri::Mount {
        container_path: inside.to_owned(),
        host_path: host.to_string_lossy().into_owned(),
        ..Default::default()
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), ConfigError> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |source| ConfigError::Write { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // Written in place: a container that runs has this very file mounted.
    fs::write(path, bytes).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)
}
