//! A container of a pod as the runtime's container configuration.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use podwire_linux::beneath;
use podwire_wire::cri;

use crate::{
    claims::GivenError,
    config::Config,
    configmaps_and_secrets::Kind as ObjectKind,
    devices::PrepareError,
    dns,
    env::{self, EnvError, Sources},
    labels,
    node::Node,
    ops::StartInput,
    paths, resources,
    security::{self, SecurityError},
    spec::{self, PodRef},
    users::UsersError,
    volumes::{self, MountError},
};

/// Why a container's configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// Its devices.
    #[error(transparent)]
    Devices(#[from] PrepareError),
    /// Its claims.
    #[error(transparent)]
    Claims(#[from] GivenError),
    /// Its environment.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A config map or secret could not be read.
    #[error("{0}")]
    Source(String),
    /// Its security context.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Its user namespace.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// Its mounts.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Its files on the node.
    #[error("write {path:?}: {source}")]
    Write { path: PathBuf, source: io::Error },
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
    users: cri::UserNamespace,
) -> Result<cri::ContainerConfig, ConfigError> {
    let (pod, container) = (&*input.pod, &input.container);
    let ips = pod_ips(node, input);
    let sources = sources(node, pod, container).await?;
    let services = node.services.now().await;
    let facts = node.env_facts(&ips, &services);
    let env = env::build(pod, container, &sources, &facts)?;
    // After everything that can fail without a plugin, so that one is asked for a container that will be.
    let mut cdi_devices = node.claims.given(pod, container)?;
    let given = node.devices.prepare(pod, container).await?;
    cdi_devices.extend(given.cdi_devices);
    let env = with_devices(env, given.envs);
    let mut security = security::container(pod, container, &input.image.user, users.clone())?;
    if let Some(target) = &input.target {
        let options = security.namespace_options.get_or_insert_default();
        options.pid = cri::NamespaceMode::Target as i32;
        options.target_id = target.to_string();
    }
    let mut mounts = given.mounts;
    mounts.extend(made_mounts(node, input, &env, ips).await?);
    for mount in &mut mounts {
        // Seen from inside, what is on the node's disks belongs to whom it belongs to there.
        mount.uid_mappings.clone_from(&users.uids);
        mount.gid_mappings.clone_from(&users.gids);
    }
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
        annotations: {
            let own = labels::container_annotations(pod, container, input.attempt);
            given.annotations.into_iter().chain(own).collect()
        },
        devices: given.devices,
        cdi_devices,
        log_path: paths::container_log(&container.name, input.attempt),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources::linux(pod, input.kind, container, node.capacity.memory)),
            security_context: Some(security),
        }),
        ..Default::default()
    })
}

/// What devices bring comes first, so that the container's own words come after it.
fn with_devices(own: Vec<(String, String)>, given: BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut all: Vec<_> =
        given.into_iter().filter(|(name, _)| own.iter().all(|(other, _)| other != name)).collect();
    all.extend(own);
    all
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
        let fetched = node.configs.get(ObjectKind::ConfigMap, namespace, name, spec::uid(pod)).await;
        if let Some(content) = fetched.map_err(ConfigError::Source)? {
            let text = content.data.iter().map(|(k, v)| (k.clone(), String::from_utf8_lossy(v).into_owned()));
            sources.config_maps.insert(name.to_owned(), text.collect());
        }
    }
    for name in secrets {
        let fetched = node.configs.get(ObjectKind::Secret, namespace, name, spec::uid(pod)).await;
        if let Some(content) = fetched.map_err(ConfigError::Source)? {
            sources.secrets.insert(name.to_owned(), content.data.clone());
        }
    }
    Ok(sources)
}

/// The container's mounts, made on a thread that may block.
async fn made_mounts(
    node: &Arc<Node>,
    input: &StartInput,
    env: &[(String, String)],
    ips: Vec<String>,
) -> Result<Vec<cri::Mount>, ConfigError> {
    let input = MountInput {
        pod: input.pod.clone(),
        container: input.container.clone(),
        attempt: input.attempt,
        mounted: input.mounted.clone(),
        env: env.to_vec(),
        ips,
    };
    let node = node.clone();
    let root = node.config.root_dir.clone();
    tokio::task::spawn_blocking(move || mounts(&node.config, &input))
        .await
        .map_err(|error| ConfigError::Write { path: root, source: io::Error::other(error) })?
}

/// What the files of a container are made from.
struct MountInput {
    pod: Arc<Pod>,
    container: Container,
    attempt: u32,
    mounted: Arc<volumes::Mounted>,
    env: Vec<(String, String)>,
    ips: Vec<String>,
}

fn mounts(config: &Config, input: &MountInput) -> Result<Vec<cri::Mount>, ConfigError> {
    let (pod, container) = (&*input.pod, &input.container);
    let root = &config.root_dir;
    let below = Path::new("");
    let mut all = volumes::container_mounts(root, pod, container, &input.mounted, &input.env)?;
    let mounted_at = |path: &str| container.volume_mounts.iter().flatten().any(|m| m.mount_path == path);
    if !mounted_at("/etc/hosts") {
        let path = paths::etc_hosts(below, spec::uid(pod));
        let base = spec::host_network(pod).then(|| fs::read_to_string("/etc/hosts").unwrap_or_default());
        let text = dns::hosts_file(pod, &input.ips, &config.dns.domain, base.as_deref());
        write(root, &path, text.as_bytes(), 0o644)?;
        all.push(bind(&root.join(path), "/etc/hosts"));
    }
    let message = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    if !message.is_empty() {
        let path = paths::termination_message(below, spec::uid(pod), &container.name, input.attempt);
        write(root, &path, b"", 0o666)?;
        all.push(bind(&root.join(path), message));
    }
    let logs = paths::pod_logs(below, &PodRef::of(pod)).join(&container.name);
    volumes::folders(&config.log_dir, &logs)
        .map_err(|source| ConfigError::Write { path: config.log_dir.join(logs), source })?;
    Ok(all)
}

fn bind(host: &Path, inside: &str) -> cri::Mount {
    cri::Mount {
        container_path: inside.to_owned(),
        host_path: host.to_string_lossy().into_owned(),
        ..Default::default()
    }
}

/// Written in place: a container that runs has this very file mounted.
fn write(root: &Path, below: &Path, bytes: &[u8], mode: u32) -> Result<(), ConfigError> {
    let written = beneath::folder(root).and_then(|folder| beneath::make::rewrite(folder, below, bytes, mode));
    written.map_err(|error| ConfigError::Write { path: root.join(below), source: volumes::plain(error) })
}
