//! NRI plugins at the runtime's call points, and the runtime as plugins see it.
//!
//! The points are NRI's, in the order NRI promises: RunPodSandbox after the network is up and before the sandbox is ready
//! (who must be there for it is asked before anything is made); CreateContainer on the finished spec; the stop and remove
//! points on every way out.
//!
//! Tasks: evictions run in the runtime's tracker. Without a plugin every point returns at once and nothing is described.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use oci_spec::runtime::{LinuxResources, Spec};
use podwire_image::Image;
use podwire_nri::{
    EventError, Nri,
    api::{self, ContainerEviction, ContainerUpdate},
    spec as words,
};
use podwire_wire::cri;

use crate::{
    container::{self, creation::image_ref, spec::resources},
    context::Context,
    error::{OpError, chain},
    model::{Container, Sandbox},
    recovery::records::{ContainerPhase, SandboxPhase},
};

/// Why a plugin refused.
pub(crate) type PluginError = Box<dyn std::error::Error + Send + Sync>;

/// A container that is planned and not yet known to anybody.
#[derive(Clone, Copy)]
pub(crate) struct NewContainer<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) id: &'a str,
    pub(crate) config: &'a cri::ContainerConfig,
    pub(crate) image: &'a Image,
}

/// How long plugins may take to come back after a restart.
const RETURN: Duration = Duration::from_secs(10);

/// The runtime as plugins see it; knows the context of operations once that is built.
#[derive(Default)]
pub(crate) struct View {
    ctx: OnceLock<Weak<Context>>,
}

impl View {
    /// Lets plugins see the runtime.
    pub(crate) fn open(&self, ctx: &Arc<Context>) {
        // Ignored: it is opened once, by the one who built it.
        self.ctx.set(Arc::downgrade(ctx)).ok();
    }

    fn ctx(&self) -> Option<Arc<Context>> {
        self.ctx.get()?.upgrade()
    }
}

fn limits(requested: Option<&cri::LinuxContainerResources>) -> Option<api::LinuxResources> {
    requested.map(|requested| words::resources_from_oci(&resources::plan(requested, false)))
}

/// A pod in NRI's words.
fn pod(ctx: &Context, sandbox: &Sandbox) -> api::PodSandbox {
    let state = sandbox.state();
    let parent = ctx.cgroup_parent(&sandbox.config);
    let spaces = sandbox.namespaces();
    let named = [("network", spaces.net), ("ipc", spaces.ipc), ("uts", spaces.uts)];
    let namespaces = named
        .into_iter()
        // What was released is no longer there to be entered.
        .filter(|_| !state.detached)
        .filter_map(|(kind, path)| {
            let path = path?.to_string_lossy().into_owned();
            Some(api::LinuxNamespace { r#type: kind.to_owned(), path })
        })
        .collect();
    let asked = sandbox.config.linux.clone().unwrap_or_default();
    let linux = api::LinuxPodSandbox {
        pod_overhead: limits(state.overhead.as_ref().or(asked.overhead.as_ref())),
        pod_resources: limits(state.resources.as_ref().or(asked.resources.as_ref())),
        cgroups_path: format!("{parent}/{}", sandbox.id),
        cgroup_parent: parent,
        namespaces,
        resources: None,
    };
    api::PodSandbox {
        id: sandbox.id.to_string(),
        name: sandbox.key.name.clone(),
        uid: sandbox.key.uid.clone(),
        namespace: sandbox.key.namespace.clone(),
        labels: sandbox.config.labels.clone(),
        annotations: pod_annotations(sandbox),
        runtime_handler: sandbox.handler.clone(),
        linux: Some(linux),
        pid: u32::try_from(state.reaper_pid).unwrap_or_default(),
        ips: state.ips,
    }
}

/// The pod's own annotations, and those by which plugins know a pod on every runtime.
fn pod_annotations(sandbox: &Sandbox) -> HashMap<String, String> {
    let mut all = sandbox.config.annotations.clone();
    let key = &sandbox.key;
    let own = [
        ("container-type", "sandbox"),
        ("sandbox-id", &sandbox.id),
        ("sandbox-log-directory", &sandbox.config.log_directory),
        ("sandbox-name", &key.name),
        ("sandbox-namespace", &key.namespace),
        ("sandbox-uid", &key.uid),
    ];
    all.extend(own.map(|(name, value)| (format!("io.kubernetes.cri.{name}"), value.to_owned())));
    all
}

/// What CRI asked for of a container, and its spec, in NRI's words.
fn planned(spec: &Spec, config: &cri::ContainerConfig, id: &str, digest: &str) -> api::Container {
    let mut described = words::describe(spec);
    // What CRI says of an annotation counts.
    described.annotations.extend(config.annotations.clone());
    let asked = config.image.clone().unwrap_or_default();
    let name = if asked.user_specified_image.is_empty() { asked.image } else { asked.user_specified_image };
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let profile = security.and_then(|security| security.seccomp.as_ref());
    let linux = described.linux.get_or_insert_default();
    linux.seccomp_profile = profile.map(|profile| api::SecurityProfile {
        profile_type: profile.profile_type,
        localhost_ref: profile.localhost_ref.clone(),
    });
    api::Container {
        name: config.metadata.as_ref().map(|known| known.name.clone()).unwrap_or_default(),
        labels: config.labels.clone(),
        image: Some(api::Image { name, digest: digest_of(digest), config_digest: id.to_owned() }),
        cdi_devices: config
            .cdi_devices
            .iter()
            .map(|device| api::CdiDevice { name: device.name.clone() })
            .collect(),
        ..described
    }
}

/// A container that is planned and not yet made, in NRI's words.
fn new_container(new: NewContainer<'_>, spec: &Spec) -> api::Container {
    let mut planned = planned(spec, new.config, &new.image.id, &image_ref(new.image));
    if let Some(linux) = &mut planned.linux {
        linux.seccomp_policy = words::describe_seccomp(spec);
    }
    api::Container { id: new.id.to_owned(), pod_sandbox_id: new.sandbox.id.to_string(), ..planned }
}

/// The digest in a name with one.
fn digest_of(reference: &str) -> String {
    reference.split_once('@').map(|(_, digest)| digest.to_owned()).unwrap_or_default()
}

/// A container in NRI's words.
fn known(container: &Container) -> api::Container {
    let state = container.state();
    let phase = match state.phase() {
        ContainerPhase::Created | ContainerPhase::Starting => api::ContainerState::ContainerCreated,
        ContainerPhase::Running => api::ContainerState::ContainerRunning,
        ContainerPhase::Exited => api::ContainerState::ContainerStopped,
    };
    let row = &container.row;
    let spec = container.spec();
    let mut planned = planned(&spec, &container.config, &row.image_id, &row.image_ref);
    // The default filter is named by its profile; its many lines would be told with every event.
    if !row.default_seccomp
        && let Some(linux) = &mut planned.linux
    {
        linux.seccomp_policy = words::describe_seccomp(&spec);
    }
    api::Container {
        id: row.id.clone(),
        pod_sandbox_id: row.sandbox_id.clone(),
        state: phase as i32,
        pid: u32::try_from(state.pid).unwrap_or_default(),
        created_at: row.created_at,
        started_at: state.started_at,
        finished_at: state.finished_at,
        exit_code: state.exit_code,
        status_reason: state.reason,
        status_message: state.message,
        ..planned
    }
}

/// The plugins behind the runtime's call points.
pub(crate) struct Plugins {
    nri: Nri,
    view: Arc<View>,
}

impl Plugins {
    pub(crate) fn new(nri: Nri, view: Arc<View>) -> Self {
        Plugins { nri, view }
    }

    /// The context, if there is anybody to tell about the pod.
    fn audience(&self, sandbox: &Sandbox) -> Option<Arc<Context>> {
        if self.nri.is_idle_for(&sandbox.config.annotations) { None } else { self.view.ctx() }
    }

    /// The context and a container's pod, if there is anybody to tell about it.
    fn audience_of(&self, container: &Container) -> Option<(Arc<Context>, Arc<Sandbox>)> {
        let ctx = self.view.ctx()?;
        let sandbox = ctx.registry.sandbox(&container.sandbox)?;
        if self.nri.is_idle_for(&sandbox.config.annotations) { None } else { Some((ctx, sandbox)) }
    }

    /// Tells the plugins about a pod.
    async fn tell<'a, R>(
        &'a self,
        sandbox: &Sandbox,
        event: impl FnOnce(&'a Nri, api::PodSandbox) -> R,
    ) -> Result<(), PluginError>
    where
        R: Future<Output = Result<(), EventError>>,
    {
        let Some(ctx) = self.audience(sandbox) else { return Ok(()) };
        event(&self.nri, pod(&ctx, sandbox)).await.map_err(PluginError::from)
    }

    /// Tells the plugins about a container.
    async fn tell_of<'a, R>(
        &'a self,
        container: &Container,
        event: impl FnOnce(&'a Nri, api::PodSandbox, api::Container) -> R,
    ) -> Result<(), PluginError>
    where
        R: Future<Output = Result<(), EventError>>,
    {
        let Some((ctx, sandbox)) = self.audience_of(container) else { return Ok(()) };
        event(&self.nri, pod(&ctx, &sandbox), known(container)).await.map_err(PluginError::from)
    }

    /// Whether anybody listens.
    pub(crate) fn present(&self) -> bool {
        !self.nri.is_idle()
    }

    /// A pod is to be made and nothing of it is there yet; an error says who is missing.
    pub(crate) async fn admit_pod_sandbox(&self, sandbox: &Sandbox) -> Result<(), PluginError> {
        self.tell(sandbox, |nri, pod| nri.admit_pod_sandbox(pod)).await
    }

    /// Waits a while for plugins that were there before the runtime was restarted.
    pub(crate) async fn wait_for_listeners(&self) {
        self.nri.wait_for_plugins(RETURN).await
    }

    /// The pod's network is up; an error takes the sandbox down again.
    pub(crate) async fn run_pod_sandbox(&self, sandbox: &Sandbox) -> Result<(), PluginError> {
        self.tell(sandbox, |nri, pod| nri.run_pod_sandbox(pod)).await
    }

    /// All containers of the pod are dead, its network still there; errors are only reported.
    pub(crate) async fn stop_pod_sandbox(&self, sandbox: &Sandbox) -> Result<(), PluginError> {
        self.tell(sandbox, |nri, pod| nri.stop_pod_sandbox(pod)).await
    }

    /// The pod is about to be forgotten; errors are only reported.
    pub(crate) async fn remove_pod_sandbox(&self, sandbox: &Sandbox) -> Result<(), PluginError> {
        self.tell(sandbox, |nri, pod| nri.remove_pod_sandbox(pod)).await
    }

    /// The pod's resources changed; errors are only reported.
    pub(crate) async fn update_pod_sandbox(&self, sandbox: &Sandbox) -> Result<(), PluginError> {
        self.tell(sandbox, |nri, pod| async move {
            let state = pod.linux.clone().unwrap_or_default();
            let (overhead, asked) =
                (state.pod_overhead.unwrap_or_default(), state.pod_resources.unwrap_or_default());
            nri.update_pod_sandbox(pod.clone(), overhead, asked).await?;
            nri.post_update_pod_sandbox(pod).await
        })
        .await
    }

    /// The container is planned; plugins may change its spec or veto it.
    pub(crate) async fn create_container(
        &self,
        new: NewContainer<'_>,
        spec: &mut Spec,
    ) -> Result<(), PluginError> {
        let Some(ctx) = self.audience(new.sandbox) else { return Ok(()) };
        let requested = self.nri.create_container(pod(&ctx, new.sandbox), new_container(new, spec)).await?;
        let applied = words::apply(&requested.adjust, spec)?;
        if let Some(class) = applied.blockio_class.filter(|class| !class.is_empty()) {
            return Err(format!("there is no block I/O class {class:?} on this node").into());
        }
        crate::container::cdi::inject(spec, &ctx.settings.cdi_dirs, &applied.cdi_devices)?;
        change_others(&ctx, requested.updates).await;
        evict(&ctx, requested.evictions);
        Ok(())
    }

    /// The creation of a container that plugins were asked about failed: it ends for them too.
    pub(crate) async fn undo_create_container(
        &self,
        new: NewContainer<'_>,
        spec: &Spec,
    ) -> Result<(), PluginError> {
        let Some(ctx) = self.audience(new.sandbox) else { return Ok(()) };
        let (pod, container) = (pod(&ctx, new.sandbox), new_container(new, spec));
        let updates = self.nri.stop_container(pod.clone(), container.clone()).await?;
        change_others(&ctx, updates).await;
        self.nri.remove_container(pod, container).await.map_err(PluginError::from)
    }

    /// The container is known; errors are only reported.
    pub(crate) async fn post_create_container(&self, container: &Container) -> Result<(), PluginError> {
        self.tell_of(container, |nri, pod, container| nri.post_create_container(pod, container)).await
    }

    /// The container is set up in process `pid` and about to run; an error keeps it from running.
    pub(crate) async fn start_container(&self, container: &Container, pid: i32) -> Result<(), PluginError> {
        let pid = u32::try_from(pid).unwrap_or_default();
        self.tell_of(container, move |nri, pod, container| {
            nri.start_container(pod, api::Container { pid, ..container })
        })
        .await
    }

    /// The container runs; errors are only reported.
    pub(crate) async fn post_start_container(&self, container: &Container) -> Result<(), PluginError> {
        self.tell_of(container, |nri, pod, container| nri.post_start_container(pod, container)).await
    }

    /// The container's limits are about to change; plugins may change them or veto.
    pub(crate) async fn update_container(
        &self,
        container: &Container,
        limits: &mut LinuxResources,
    ) -> Result<(), PluginError> {
        let Some((ctx, sandbox)) = self.audience_of(container) else { return Ok(()) };
        let asked = words::resources_from_oci(limits);
        let requested = self.nri.update_container(pod(&ctx, &sandbox), known(container), asked).await?;
        words::apply_resources(&requested.resources, limits)?;
        change_others(&ctx, requested.updates).await;
        evict(&ctx, requested.evictions);
        Ok(())
    }

    /// The container's limits have changed; errors are only reported.
    pub(crate) async fn post_update_container(&self, container: &Container) -> Result<(), PluginError> {
        self.tell_of(container, |nri, pod, container| nri.post_update_container(pod, container)).await
    }

    /// The container has ended; errors are only reported.
    pub(crate) async fn stop_container(&self, container: &Container) -> Result<(), PluginError> {
        let Some((ctx, sandbox)) = self.audience_of(container) else { return Ok(()) };
        let updates = self.nri.stop_container(pod(&ctx, &sandbox), known(container)).await?;
        change_others(&ctx, updates).await;
        Ok(())
    }

    /// The container is about to be forgotten; errors are only reported.
    pub(crate) async fn remove_container(&self, container: &Container) -> Result<(), PluginError> {
        // The number may be another process's by now.
        self.tell_of(container, |nri, pod, container| {
            nri.remove_container(pod, api::Container { pid: 0, ..container })
        })
        .await
    }
}

/// Carries out updates of other containers; returns those that failed.
async fn change_others(ctx: &Arc<Context>, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate> {
    let mut failed = Vec::new();
    for update in updates {
        if let Err(error) = change(ctx, &update).await {
            tracing::warn!(container = %update.container_id, error = chain(&error), "plugin's update not carried out");
            if !update.ignore_failure {
                failed.push(update);
            }
        }
    }
    failed
}

async fn change(ctx: &Arc<Context>, update: &ContainerUpdate) -> Result<(), OpError> {
    let id = update.container_id.clone();
    let found = ctx.registry.container(&id).ok_or(OpError::NotFound { what: "container", id })?;
    let Some(wanted) = update.linux.as_ref().and_then(|linux| linux.resources.as_ref()) else {
        return Ok(());
    };
    let mut changed = LinuxResources::default();
    words::apply_resources(wanted, &mut changed)
        .map_err(OpError::failed("understand the plugin's limits"))?;
    let mut spec = (*found.spec()).clone();
    let mut all = spec.linux().as_ref().and_then(|linux| linux.resources().clone()).unwrap_or_default();
    words::apply_resources(wanted, &mut all).map_err(OpError::failed("understand the plugin's limits"))?;
    if let Some(linux) = spec.linux_mut() {
        linux.set_resources(Some(all));
    }
    found.set_spec(spec);
    if found.phase() == ContainerPhase::Running {
        let cgroup = found.cgroup();
        ctx.blocking(move |_| container::apply(&cgroup, &changed)).await?;
    }
    Ok(())
}

/// Kills containers plugins want gone, behind the call that said so.
fn evict(ctx: &Arc<Context>, evictions: Vec<ContainerEviction>) {
    for eviction in evictions {
        let Some(found) = ctx.registry.container(&eviction.container_id) else { continue };
        tracing::info!(container = %found.id(), reason = eviction.reason, "plugin evicts a container");
        let taken = ctx.clone();
        ctx.tasks.spawn(async move {
            if let Err(error) = container::stop(&taken, &found, 0).await {
                tracing::warn!(container = %found.id(), error = chain(&error), "container not evicted");
            }
        });
    }
}

impl podwire_nri::Host for View {
    fn snapshot(&self) -> BoxFuture<'_, (Vec<api::PodSandbox>, Vec<api::Container>)> {
        Box::pin(async move {
            let Some(ctx) = self.ctx() else { return Default::default() };
            let sandboxes = ctx.registry.sandboxes();
            // A pod whose plugins have agreed counts from that moment, not only once it is ready.
            let ready = sandboxes.iter().filter(|sandbox| match sandbox.phase() {
                SandboxPhase::Ready => true,
                SandboxPhase::Creating => sandbox.plugins_told.load(Ordering::Relaxed),
                // Its end has yet to be told.
                SandboxPhase::NotReady => {
                    !sandbox.state().detached && sandbox.plugins_told.load(Ordering::Relaxed)
                }
            });
            let containers = ctx.registry.containers();
            let alive = containers.iter().filter(|container| container.phase() != ContainerPhase::Exited);
            (
                ready.map(|sandbox| pod(&ctx, sandbox)).collect(),
                alive.map(|container| known(container)).collect(),
            )
        })
    }

    fn update_containers(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'_, Vec<ContainerUpdate>> {
        Box::pin(async move {
            match self.ctx() {
                Some(ctx) => change_others(&ctx, updates).await,
                None => updates,
            }
        })
    }

    fn evict(&self, eviction: ContainerEviction) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(ctx) = self.ctx() {
                evict(&ctx, vec![eviction]);
            }
        })
    }
}
