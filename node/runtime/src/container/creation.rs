//! CreateContainer: from CRI's config to a planned container with a snapshot of its image.
//!
//! Nothing runs yet: the process is made at start. A snapshot without a journal row (a crash in between) is found and
//! discarded at the next start of the runtime.

use std::{path::PathBuf, sync::Arc};

use oci_spec::runtime::{LinuxSeccomp, Spec};
use podwire_image::Image;
use podwire_wire::cri::{self, ContainerEventType as Happened, NamespaceMode};
use podwire_wire::ids::ContainerId;

use crate::{
    container::{
        cdi,
        image_volume::Volumes,
        layered, signal,
        spec::{self, Identity, ImageDefaults, Input, Namespaces, PidNamespace, mounts},
    },
    context::Context,
    error::{OpError, Shared, chain},
    host,
    model::{Container, Sandbox},
    plugins::NewContainer,
    recovery::records::{ContainerPhase, ContainerRow, ContainerStateRow, SandboxPhase, row::Kind},
    sandbox as pod,
    sandbox::pod_files,
};

/// Creates a container, or joins the creation of the same one.
///
/// Cancel safe: the creation goes on when the caller leaves.
pub(crate) async fn create(
    ctx: &Arc<Context>,
    request: cri::CreateContainerRequest,
) -> Option<Shared<ContainerId>> {
    let (sandbox, config) = match check(ctx, &request) {
        Ok(checked) => checked,
        Err(error) => return Some(Err(Arc::new(error))),
    };
    let metadata = config.metadata.clone().unwrap_or_default();
    let key = (sandbox.id.clone(), metadata.name, metadata.attempt);
    ctx.creates
        .run(key, || {
            let ctx = ctx.clone();
            async move { create_once(&ctx, &sandbox, config).await.map_err(Arc::new) }
        })
        .await
}

fn check(
    ctx: &Context,
    request: &cri::CreateContainerRequest,
) -> Result<(Arc<Sandbox>, cri::ContainerConfig), OpError> {
    let config = request.config.clone().ok_or_else(|| OpError::invalid("container config is required"))?;
    if config.metadata.as_ref().is_none_or(|metadata| metadata.name.is_empty()) {
        return Err(OpError::invalid("container config must have metadata with a name"));
    }
    let id = &request.pod_sandbox_id;
    let sandbox =
        ctx.registry.sandbox(id).ok_or_else(|| OpError::NotFound { what: "sandbox", id: id.clone() })?;
    must_be_ready(&sandbox)?;
    Ok((sandbox, config))
}

fn must_be_ready(sandbox: &Sandbox) -> Result<(), OpError> {
    if sandbox.phase() == SandboxPhase::Ready {
        return Ok(());
    }
    Err(OpError::Precondition { why: format!("sandbox {} is not ready", sandbox.id) })
}

/// What a container is planned from, found out by blocking look-ups.
struct Found {
    image: Image,
    identity: Identity,
    mounts: Vec<mounts::Resolved>,
    /// Folders the image declares as volumes.
    declared: Vec<mounts::Resolved>,
    /// Holders of the images that volumes show.
    holders: Vec<String>,
    devices: Vec<mounts::ResolvedDevice>,
    seccomp: Option<LinuxSeccomp>,
    default_seccomp: bool,
    apparmor: Option<String>,
    namespaces: Namespaces,
}

async fn create_once(
    ctx: &Arc<Context>,
    sandbox: &Arc<Sandbox>,
    config: cri::ContainerConfig,
) -> Result<ContainerId, OpError> {
    let metadata = config.metadata.clone().unwrap_or_default();
    let known =
        ctx.registry.containers_of(&sandbox.id).into_iter().find(|known| known.metadata() == metadata);
    if let Some(known) = known {
        if known.phase() == ContainerPhase::Created && known.config == config {
            return Ok(known.id().to_owned());
        }
        let name = format!("{}_{}", metadata.name, metadata.attempt);
        return Err(OpError::AlreadyExists { what: "container", name, id: known.id().to_string() });
    }
    let id = host::fresh_id();
    let made = create_named(ctx, sandbox, &id, config).await;
    let container = match made {
        Ok(container) => container,
        Err(error) => {
            if let Err(left) = ctx.blocking(move |ctx| take_back(ctx, &id)).await {
                tracing::warn!(
                    error = chain(&left),
                    "half made container not cleaned up; the next start does"
                );
            }
            return Err(error);
        }
    };
    // A stop that came meanwhile did not see this container: it must not stay.
    if let Err(error) = must_be_ready(sandbox) {
        crate::container::remove_once(ctx, &container).await?;
        return Err(error);
    }
    ctx.events.emit(&ctx.registry, sandbox, container.id(), Happened::ContainerCreatedEvent);
    if let Err(error) = ctx.plugins.post_create_container(&container).await {
        tracing::warn!(container = %container.id(), error, "plugin failed after the container's creation");
    }
    Ok(container.id().to_owned())
}

/// Everything up to the container's row; what is left after a failure is the caller's to take back.
async fn create_named(
    ctx: &Arc<Context>,
    sandbox: &Arc<Sandbox>,
    id: &str,
    config: cri::ContainerConfig,
) -> Result<Arc<Container>, OpError> {
    let (pod, requested, name) = (sandbox.clone(), config.clone(), id.to_owned());
    let found = ctx.blocking(move |ctx| look_up(ctx, &pod, &name, &requested)).await?;
    let mut spec = plan(ctx, sandbox, id, &config, &found)?;
    let devices: Vec<String> = config.cdi_devices.iter().map(|device| device.name.clone()).collect();
    cdi::inject(&mut spec, &ctx.settings.cdi_dirs, &devices)
        .map_err(OpError::failed("inject CDI devices"))?;
    let asked = NewContainer { sandbox, id, config: &config, image: &found.image };
    let agreed = ctx.plugins.create_container(asked, &mut spec).await;
    // Plugins that were asked hear of the end of what never began.
    let undo = ctx.plugins.present().then(|| (config.clone(), found.image.clone(), spec.clone()));
    let made = match agreed {
        Ok(()) => {
            let (pod, name) = (sandbox.clone(), id.to_owned());
            ctx.blocking(move |ctx| make(ctx, &pod, name, config, found, spec)).await
        }
        Err(refused) => Err(OpError::failed("create the container's plugins")(refused)),
    };
    if let (Err(_), Some((config, image, spec))) = (&made, &undo)
        && let Err(error) =
            ctx.plugins.undo_create_container(NewContainer { sandbox, id, config, image }, spec).await
    {
        tracing::warn!(container = id, error, "plugin failed at the end of a container that was not made");
    }
    made
}

/// Removes what a failed creation left: mounts, folders, holders of images. Blocks.
fn take_back(ctx: &Context, id: &str) -> Result<(), OpError> {
    let holders: Vec<String> =
        ctx.images.snapshots().into_iter().filter(|name| holder_of(name) == id).collect();
    crate::container::image_volume::undo(ctx, id, &holders)
}

/// The container a snapshot belongs to: its own, or the one whose volume shows the image.
pub(crate) fn holder_of(snapshot: &str) -> &str {
    snapshot.split('.').next().unwrap_or(snapshot)
}

fn look_up(
    ctx: &Context,
    sandbox: &Sandbox,
    id: &str,
    config: &cri::ContainerConfig,
) -> Result<Found, OpError> {
    let reference = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    let image = ctx
        .images
        .find(&reference)
        .ok_or_else(|| OpError::NotFound { what: "image", id: reference.clone() })?;
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default();
    let read = |path| {
        layered::read(&image.layers, path).map_err(OpError::failed(format!("read {path} of the image")))
    };
    let identity =
        spec::user::resolve(&security, &image_user(&image), &read("/etc/passwd")?, &read("/etc/group")?)
            .map_err(OpError::failed("find the container's user"))?;
    let mut volumes = Volumes::new(ctx, id);
    let mut mounts = Vec::with_capacity(config.mounts.len());
    for requested in &config.mounts {
        mounts.push(mount_source(&mut volumes, requested)?);
    }
    let declared = volumes.declared(&image, &config.mounts, sandbox.user_namespace().as_ref())?;
    let holders = volumes.holders;
    let devices = if security.privileged {
        host::all_devices().map_err(OpError::failed("list the node's devices"))?
    } else {
        let mut list = Vec::new();
        for requested in &config.devices {
            list.extend(
                host::devices(requested)
                    .map_err(OpError::failed(format!("use device {}", requested.host_path)))?,
            );
        }
        list
    };
    let (seccomp, default_seccomp) = seccomp(&security)?;
    let apparmor = ctx.apparmor.profile(&security)?;
    let namespaces = namespaces(ctx, sandbox, config)?;
    Ok(Found {
        image,
        identity,
        mounts,
        declared,
        holders,
        devices,
        seccomp,
        default_seccomp,
        apparmor,
        namespaces,
    })
}

fn mount_source(volumes: &mut Volumes<'_>, requested: &cri::Mount) -> Result<mounts::Resolved, OpError> {
    if requested.image.as_ref().is_some_and(|image| !image.image.is_empty()) {
        return volumes.image(requested);
    }
    if requested.host_path.is_empty() || requested.container_path.is_empty() {
        return Err(OpError::invalid("a mount needs a host path and a container path"));
    }
    host::mount_source(requested)
        .map_err(OpError::failed(format!("failed to mount {:?}", requested.host_path)))
}

fn image_user(image: &Image) -> String {
    image.config.config().as_ref().and_then(|config| config.user().clone()).unwrap_or_default()
}

/// The profile itself, or the word that it is the default one.
fn seccomp(security: &cri::LinuxContainerSecurityContext) -> Result<(Option<LinuxSeccomp>, bool), OpError> {
    use cri::security_profile::ProfileType;
    if security.privileged {
        return Ok((None, false));
    }
    let requested = match (&security.seccomp, security.seccomp_profile_path.as_str()) {
        (Some(profile), _) => profile.clone(),
        (None, "" | "unconfined") => return Ok((None, false)),
        (None, "runtime/default" | "docker/default") => cri::SecurityProfile::default(),
        (None, path) => cri::SecurityProfile {
            profile_type: ProfileType::Localhost as i32,
            localhost_ref: path.strip_prefix("localhost/").unwrap_or(path).to_owned(),
        },
    };
    match ProfileType::try_from(requested.profile_type) {
        Ok(ProfileType::Unconfined) => Ok((None, false)),
        Ok(ProfileType::Localhost) => {
            let path = requested.localhost_ref.strip_prefix("localhost/").unwrap_or(&requested.localhost_ref);
            let text =
                std::fs::read(path).map_err(OpError::failed(format!("read seccomp profile {path:?}")))?;
            let profile = serde_json::from_slice(&text);
            Ok((
                Some(profile.map_err(OpError::failed(format!("understand seccomp profile {path:?}")))?),
                false,
            ))
        }
        _ => Ok((None, true)),
    }
}

/// The pod's namespaces with the PID namespace this container asks for. May start the pod's process 1.
fn namespaces(
    ctx: &Context,
    sandbox: &Sandbox,
    config: &cri::ContainerConfig,
) -> Result<Namespaces, OpError> {
    let mut all = sandbox.namespaces();
    let pod = sandbox.namespace_options();
    let own = config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|security| security.namespace_options.clone())
        .unwrap_or_else(|| pod.clone());
    all.pid = match NamespaceMode::try_from(own.pid) {
        Ok(NamespaceMode::Container) => PidNamespace::Own,
        Ok(NamespaceMode::Node) => PidNamespace::Node,
        Ok(NamespaceMode::Target) => PidNamespace::Join(target(ctx, sandbox, &own.target_id)?),
        _ if pod.pid == NamespaceMode::Node as i32 => PidNamespace::Node,
        _ => PidNamespace::Join(crate::sandbox::reaper::namespace(ctx, sandbox)?),
    };
    Ok(all)
}

/// The PID namespace of a running container of the same pod.
fn target(ctx: &Context, sandbox: &Sandbox, id: &str) -> Result<PathBuf, OpError> {
    let found = ctx.registry.container(id).filter(|known| known.sandbox == sandbox.id);
    let known = found.ok_or_else(|| OpError::NotFound { what: "target container", id: id.to_owned() })?;
    let state = known.state();
    if state.phase() != ContainerPhase::Running {
        return Err(OpError::Precondition { why: format!("target container {id} is not running") });
    }
    Ok(PathBuf::from(format!("/proc/{}/ns/pid", state.pid)))
}

fn plan(
    ctx: &Context,
    sandbox: &Sandbox,
    id: &str,
    config: &cri::ContainerConfig,
    found: &Found,
) -> Result<Spec, OpError> {
    let settings = found.image.config.config().clone().unwrap_or_default();
    let image = ImageDefaults {
        entrypoint: settings.entrypoint().clone().unwrap_or_default(),
        cmd: settings.cmd().clone().unwrap_or_default(),
        env: settings.env().clone().unwrap_or_default(),
        working_dir: settings.working_dir().clone().unwrap_or_default(),
    };
    let cgroup = format!("{}/{id}", ctx.cgroup_parent(&sandbox.config));
    let image_name = config.image.as_ref().map(|image| image.image.as_str()).unwrap_or_default();
    let input = Input {
        sandbox_id: &sandbox.id,
        config,
        sandbox: &sandbox.config,
        hostname: &pod::hostname(sandbox),
        image: &image,
        image_name,
        identity: &found.identity,
        namespaces: &found.namespaces,
        pod_mounts: &pod_files::mounts(&sandbox.dir, sandbox.host_ipc()),
        mounts: &[found.mounts.as_slice(), found.declared.as_slice()].concat(),
        devices: &found.devices,
        seccomp: found.seccomp.clone(),
        apparmor: found.apparmor.as_deref(),
        cgroup: &cgroup,
        host: &ctx.host,
    };
    spec::build(&input).map_err(|error| OpError::invalid(chain(&error)))
}

/// Snapshot, journal row, table entry. Blocks.
fn make(
    ctx: &Context,
    sandbox: &Sandbox,
    id: String,
    config: cri::ContainerConfig,
    found: Found,
    mut spec: Spec,
) -> Result<Arc<Container>, OpError> {
    let snapshot =
        ctx.images.prepare(&id, &found.image).map_err(OpError::failed("prepare the image's snapshot"))?;
    if let Some(users) = &found.namespaces.user {
        let (uid, gid) = (pod::root_of(&users.uids), pod::root_of(&users.gids));
        std::os::unix::fs::chown(&snapshot.upper, Some(uid), Some(gid))
            .map_err(OpError::failed("give the snapshot to the pod's root"))?;
    }
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let stop_signal = found.image.config.config().as_ref().and_then(|config| config.stop_signal().clone());
    let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
    let row = ContainerRow {
        created_at: host::now(),
        sandbox_id: sandbox.id.to_string(),
        image_id: found.image.id.clone(),
        image_ref: image_ref(&found.image),
        spec: serde_json::to_string(&spec).map_err(OpError::failed("write the spec"))?,
        lower: snapshot.lower.iter().map(text).collect(),
        upper: text(&snapshot.upper),
        work: text(&snapshot.work),
        log_path: log_path(&sandbox.config, &config),
        stop_signal: signal::choose(config.stop_signal, stop_signal.as_deref()),
        default_seccomp: found.default_seccomp,
        mounts: found.mounts.iter().map(|mount| mount.requested.clone()).collect(),
        user: Some(cri::LinuxContainerUser {
            uid: i64::from(found.identity.uid),
            gid: i64::from(found.identity.gid),
            supplemental_groups: found.identity.groups.iter().map(|gid| i64::from(*gid)).collect(),
        }),
        image_volumes: found.holders.clone(),
        config: Some(config),
        id: id.clone(),
    };
    let state = ContainerStateRow { id: id.clone(), resources, ..Default::default() };
    let written = ctx
        .journal
        .append(Kind::Container(row.clone()))
        .and_then(|()| ctx.journal.append(Kind::ContainerState(state.clone())));
    if let Err(error) = written {
        // The first of the two may be in the file.
        ctx.journal.forget(Kind::ContainerGone(id.clone()));
        if let Err(error) = ctx.images.discard(&id) {
            tracing::warn!(container = %id, error = &error as &dyn std::error::Error, "snapshot not discarded");
        }
        return Err(OpError::failed("write the journal")(error));
    }
    if row.default_seccomp {
        add_default_seccomp(&mut spec);
    }
    let container = Arc::new(Container::new(row, state, spec));
    ctx.registry.add_container(container.clone());
    Ok(container)
}

/// The default profile for the spec's own capabilities; too large to be journalled with every container.
pub(crate) fn add_default_seccomp(spec: &mut Spec) {
    let caps = spec
        .process()
        .as_ref()
        .and_then(|process| process.capabilities().as_ref())
        .and_then(|sets| sets.bounding().clone())
        .unwrap_or_default();
    if let Some(linux) = spec.linux_mut() {
        linux.set_seccomp(Some(podwire_container::seccomp::default_profile(&caps)));
    }
}

/// The image by digest, as the status shows it; its id if it never had a name.
pub(crate) fn image_ref(image: &Image) -> String {
    image.repo_digests.first().cloned().unwrap_or_else(|| image.id.clone())
}

fn log_path(sandbox: &cri::PodSandboxConfig, config: &cri::ContainerConfig) -> String {
    if sandbox.log_directory.is_empty() || config.log_path.is_empty() {
        return String::new();
    }
    PathBuf::from(&sandbox.log_directory).join(&config.log_path).to_string_lossy().into_owned()
}
