//! The life of a sandbox: run, stop, remove.
//!
//! Steps that could leave something behind come after their journal row; every failure takes back what was done, and
//! what cannot be taken back stays listed as not ready, so that the kubelet can try again.

pub(crate) mod network;
pub(crate) mod pod_files;
pub(crate) mod reaper;
pub(crate) mod sysctls;

use std::sync::{Arc, atomic::Ordering};

use podwire_linux::namespaces::{self, IdMap, PinRequest, UserMaps};
use podwire_trace::Note;
use podwire_wire::{
    cri::{self, ContainerEventType as Happened},
    ids::SandboxId,
};

use crate::{
    container::{
        self,
        spec::{Host, UserNamespace},
    },
    context::Context,
    error::{OpError, Shared, chain},
    host,
    model::{Sandbox, SandboxKey},
    net_devices,
    recovery::records::{SandboxPhase, SandboxRow, SandboxStateRow, row::Kind},
};

/// Runs a sandbox, or joins the run of the same one.
///
/// Cancel safe: the run goes on when the caller leaves.
pub(crate) async fn run(ctx: &Arc<Context>, request: cri::RunPodSandboxRequest) -> Option<Shared<SandboxId>> {
    let (config, key) = match check(request.config, &ctx.host) {
        Ok(checked) => checked,
        Err(error) => return Some(Err(Arc::new(error))),
    };
    let handler = request.runtime_handler;
    ctx.runs
        .run(key.clone(), || {
            let ctx = ctx.clone();
            async move { run_once(&ctx, key, config, handler).await.map_err(Arc::new) }
        })
        .await
}

fn check(
    config: Option<cri::PodSandboxConfig>,
    host: &Host,
) -> Result<(cri::PodSandboxConfig, SandboxKey), OpError> {
    let config = config.ok_or_else(|| OpError::invalid("sandbox config is required"))?;
    let metadata =
        config.metadata.as_ref().ok_or_else(|| OpError::invalid("sandbox config must have metadata"))?;
    for (what, text) in [("name", &metadata.name), ("namespace", &metadata.namespace), ("uid", &metadata.uid)]
    {
        if text.is_empty() {
            return Err(OpError::invalid(format!("sandbox metadata must have a {what}")));
        }
    }
    let key = SandboxKey::of(metadata);
    check_users(&config, host)?;
    sysctls::check(&config)?;
    Ok((config, key))
}

/// A user namespace must be the pod's or the node's, with one range of each kind that begins at root.
fn check_users(config: &cri::PodSandboxConfig, host: &Host) -> Result<(), OpError> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let Some(options) = security.and_then(|security| security.namespace_options.as_ref()) else {
        return Ok(());
    };
    let Some(users) = options.userns_options.as_ref() else { return Ok(()) };
    match cri::NamespaceMode::try_from(users.mode) {
        Ok(cri::NamespaceMode::Node) if users.uids.is_empty() && users.gids.is_empty() => Ok(()),
        Ok(cri::NamespaceMode::Node) => Err(OpError::invalid("the node's user namespace cannot be mapped")),
        Ok(cri::NamespaceMode::Pod) if !host.user_namespaces => {
            let (major, minor) = podwire_linux::kernel::MAPPED_LAYERS;
            let why = format!(
                "user namespaces need Linux {major}.{minor}: overlay must take layers with mapped ids"
            );
            Err(OpError::Precondition { why })
        }
        Ok(cri::NamespaceMode::Pod) => {
            for (what, maps) in [("uid", &users.uids), ("gid", &users.gids)] {
                let fits = |map: &cri::IdMapping| map.container_id == 0 && map.length > 0;
                if maps.len() != 1 || !maps.iter().all(fits) {
                    return Err(OpError::invalid(format!(
                        "a user namespace needs exactly one {what} mapping, from 0"
                    )));
                }
            }
            if options.network == cri::NamespaceMode::Node as i32 {
                return Err(OpError::invalid("a user namespace and the node's network do not go together"));
            }
            Ok(())
        }
        _ => Err(OpError::invalid("this mode of user namespaces is not supported")),
    }
}

async fn run_once(
    ctx: &Arc<Context>,
    key: SandboxKey,
    config: cri::PodSandboxConfig,
    handler: String,
) -> Result<SandboxId, OpError> {
    ctx.handlers.check(&handler, &config)?;
    if let Some(known) = ctx.registry.sandbox_by_key(&key) {
        // A caller that gave up before the answer came asks again: it gets what it asked for.
        if known.phase() == SandboxPhase::Ready && known.config == config {
            return Ok(known.id.clone());
        }
        return Err(OpError::AlreadyExists {
            what: "sandbox",
            name: key.to_string(),
            id: known.id.to_string(),
        });
    }
    let row = SandboxRow { id: host::fresh_id(), config: Some(config), handler, created_at: host::now() };
    let sandbox = Arc::new(Sandbox::new(&row, SandboxStateRow::default(), ctx.sandbox_dir(&row.id)));
    // Before anything is made: a pod that waits for a plugin must not cost addresses and links each time it is tried.
    let admitted = ctx.plugins.admit_pod_sandbox(&sandbox).await;
    admitted.map_err(OpError::failed("run the sandbox's plugins"))?;
    ctx.journal.append(Kind::Sandbox(row)).map_err(OpError::failed("write the journal"))?;
    ctx.registry.add_sandbox(sandbox.clone());
    match set_up(ctx, &sandbox).await {
        Ok(()) => {
            for kind in [Happened::ContainerCreatedEvent, Happened::ContainerStartedEvent] {
                ctx.events.emit(&ctx.registry, &sandbox, &sandbox.id, kind);
            }
            Ok(sandbox.id.clone())
        }
        Err(error) => {
            give_up(ctx, &sandbox).await;
            Err(error)
        }
    }
}

/// Takes back a sandbox that could not be made; keeps it listed if that fails too.
async fn give_up(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) {
    let undone = match tear_down(ctx, sandbox).await {
        Ok(()) => {
            tell_removed(ctx, sandbox).await;
            forget(ctx, sandbox).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = undone {
        let error = chain(&error);
        tracing::warn!(sandbox = %sandbox.id, error, "half made sandbox not cleaned up; it stays listed");
        sandbox.settle(&ctx.journal, |state| state.phase = SandboxPhase::NotReady as i32);
    }
}

/// Namespaces, files, network, plugins; then the sandbox is ready.
async fn set_up(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let (ips, cni_result) = {
        let sandbox = sandbox.clone();
        ctx.blocking(move |ctx| {
            make_namespaces(&sandbox)?;
            attach(ctx, &sandbox)
        })
        .await?
    };
    // The plugins see the addresses, but nobody else sees a ready sandbox before they agreed.
    sandbox.change(&ctx.journal, |state| {
        state.ips = ips;
        state.cni_result = cni_result;
        state.plugins_told = ctx.plugins.present();
    })?;
    sandbox.plugins_told.store(true, Ordering::Relaxed);
    ctx.plugins.run_pod_sandbox(sandbox).await.map_err(OpError::failed("run the sandbox's plugins"))?;
    sandbox.change(&ctx.journal, |state| state.phase = SandboxPhase::Ready as i32)
}

/// The name the pod's containers see.
pub(crate) fn hostname(sandbox: &Sandbox) -> String {
    if !sandbox.config.hostname.is_empty() {
        return sandbox.config.hostname.clone();
    }
    String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
}

fn user_maps(users: &UserNamespace) -> UserMaps {
    let maps = |list: &[cri::IdMapping]| {
        let map = |map: &cri::IdMapping| IdMap {
            container: map.container_id,
            host: map.host_id,
            length: map.length,
        };
        list.iter().map(map).collect()
    };
    UserMaps { uids: maps(&users.uids), gids: maps(&users.gids) }
}

/// The node's id of the pod's root.
pub(crate) fn root_of(maps: &[cri::IdMapping]) -> u32 {
    maps.iter().find(|map| map.container_id == 0).map(|map| map.host_id).unwrap_or_default()
}

fn make_namespaces(sandbox: &Sandbox) -> Result<(), OpError> {
    let dir = &sandbox.dir;
    pod_files::make(dir).map_err(OpError::failed(format!("make folder {}", dir.display())))?;
    let (host_network, host_ipc) = (sandbox.host_network(), sandbox.host_ipc());
    let hostname = hostname(sandbox);
    let request = PinRequest {
        net: !host_network,
        ipc: !host_ipc,
        uts: !host_network,
        hostname: (!host_network).then(|| hostname.clone()),
        sysctls: sysctls::of(&sandbox.config, host_network, sandbox.user_namespace().is_some()),
        userns: sandbox.user_namespace().map(|users| user_maps(&users)),
    };
    if request.net || request.ipc || request.uts {
        namespaces::pin(dir, &request).map_err(OpError::failed("make the pod's namespaces"))?;
        if request.net {
            sandbox.note(Note::NamespaceMade);
        }
    } else if !request.sysctls.is_empty() {
        return Err(OpError::invalid("sysctls need namespaces of the pod's own"));
    }
    let owner = sandbox.user_namespace().map(|users| (root_of(&users.uids), root_of(&users.gids)));
    let files =
        pod_files::PodFiles { hostname: &hostname, dns: sandbox.config.dns_config.as_ref(), host_ipc, owner };
    pod_files::write(dir, &files).map_err(OpError::failed("write the pod's files"))
}

/// Attaches the pod's network; gives its addresses and the plugins' result.
fn attach(ctx: &Context, sandbox: &Sandbox) -> Result<(Vec<String>, String), OpError> {
    let Some(attachment) = network::attachment(sandbox, &ctx.cgroup_parent(&sandbox.config)) else {
        return Ok((Vec::new(), String::new()));
    };
    let failed = |error: podwire_cni_lib::Error| {
        OpError::failed(format!("failed to setup network for sandbox {:?}", sandbox.id))(error)
    };
    let conflist = ctx.networks.current().map_err(failed)?;
    let result = ctx.networks.ensure_in(&conflist, &attachment).map_err(failed)?;
    let ips = result.ips.iter().map(|net| net.addr().to_string()).collect();
    Ok((ips, result.raw.to_string()))
}

/// Stops a sandbox; an unknown one is stopped already. Joins a stop under way.
///
/// Cancel safe: the stop goes on when the caller leaves.
pub(crate) async fn stop(ctx: &Arc<Context>, id: &str) -> Option<Shared<()>> {
    let Some(sandbox) = ctx.registry.sandbox(id) else { return Some(Ok(())) };
    ctx.stops
        .run(sandbox.id.clone(), || {
            let ctx = ctx.clone();
            async move { stop_once(&ctx, &sandbox).await.map_err(Arc::new) }
        })
        .await
}

async fn stop_once(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let _turn = sandbox.turn.take().await;
    if sandbox.phase() == SandboxPhase::Creating {
        return Err(OpError::Precondition { why: format!("sandbox {} is still being made", sandbox.id) });
    }
    // From here on no container can be created in it. A full disk is no reason not to stop.
    sandbox.settle(&ctx.journal, |state| state.phase = SandboxPhase::NotReady as i32);
    let stops = ctx.registry.containers_of(&sandbox.id).into_iter().map(|container| {
        let ctx = ctx.clone();
        async move { container::stop(&ctx, &container, 0).await }
    });
    for stopped in futures::future::join_all(stops).await {
        stopped?;
    }
    tear_down(ctx, sandbox).await
}

/// Plugins, network, process 1 of a shared PID namespace, namespaces: everything a stopped pod must not hold.
pub(crate) async fn tear_down(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    if sandbox.state().detached {
        return Ok(());
    }
    if sandbox.plugins_told.load(Ordering::Relaxed)
        && let Err(error) = ctx.plugins.stop_pod_sandbox(sandbox).await
    {
        tracing::warn!(sandbox = %sandbox.id, error, "plugin failed at the sandbox's stop");
    }
    let taken = sandbox.clone();
    ctx.blocking(move |ctx| {
        let sandbox = taken;
        if sandbox.state().reaper_pid != 0 {
            ctx.supervision
                .supervisor()
                .delete(&sandbox.id)
                .map_err(OpError::failed("end the pod's process 1"))?;
        }
        net_devices::give_back(&sandbox);
        if let Some(attachment) = network::attachment(&sandbox, &ctx.cgroup_parent(&sandbox.config)) {
            // The namespace goes right after and takes eth0 with it.
            ctx.networks.detach_dying(&attachment).map_err(OpError::failed(format!(
                "failed to destroy network for sandbox {:?}",
                sandbox.id
            )))?;
        }
        pod_files::release(&sandbox.dir).map_err(OpError::failed("release the pod's namespaces"))
    })
    .await?;
    sandbox.settle(&ctx.journal, |state| {
        state.detached = true;
        state.reaper_pid = 0;
        state.net_devices.clear();
    });
    Ok(())
}

/// Removes a sandbox and its containers; an unknown one is removed already. Joins a removal under way.
///
/// Cancel safe: the removal goes on when the caller leaves.
pub(crate) async fn remove(ctx: &Arc<Context>, id: &str) -> Option<Shared<()>> {
    let Some(sandbox) = ctx.registry.sandbox(id) else { return Some(Ok(())) };
    if let Some(Err(error)) = stop(ctx, &sandbox.id).await {
        return Some(Err(error));
    }
    ctx.removes
        .run(sandbox.id.clone(), || {
            let ctx = ctx.clone();
            async move { remove_once(&ctx, &sandbox).await.map_err(Arc::new) }
        })
        .await
}

async fn remove_once(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let _turn = sandbox.turn.take().await;
    if ctx.registry.sandbox(&sandbox.id).is_none() {
        return Ok(());
    }
    let removes = ctx.registry.containers_of(&sandbox.id).into_iter().map(|container| {
        let ctx = ctx.clone();
        async move { container::remove_once(&ctx, &container).await }
    });
    for removed in futures::future::join_all(removes).await {
        removed?;
    }
    tell_removed(ctx, sandbox).await;
    ctx.events.emit(&ctx.registry, sandbox, &sandbox.id, Happened::ContainerDeletedEvent);
    forget(ctx, sandbox).await
}

/// Tells the plugins once that the sandbox goes.
pub(crate) async fn tell_removed(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) {
    if sandbox.plugins_told.swap(false, Ordering::Relaxed)
        && let Err(error) = ctx.plugins.remove_pod_sandbox(sandbox).await
    {
        tracing::warn!(sandbox = %sandbox.id, error, "plugin failed at the sandbox's removal");
    }
}

/// The files, then the journal row, then the table entry.
pub(crate) async fn forget(ctx: &Arc<Context>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let taken = sandbox.clone();
    ctx.blocking(move |ctx| {
        pod_files::remove(&taken.dir).map_err(OpError::failed("remove the pod's files"))?;
        ctx.journal.forget(Kind::SandboxGone(taken.id.to_string()));
        Ok(())
    })
    .await?;
    ctx.registry.drop_sandbox(&sandbox.id);
    Ok(())
}

/// Records what the kubelet made of the pod's resources and tells the plugins.
pub(crate) async fn update(
    ctx: &Arc<Context>,
    request: cri::UpdatePodSandboxResourcesRequest,
) -> Result<(), OpError> {
    let id = request.pod_sandbox_id;
    let sandbox = ctx.registry.sandbox(&id).ok_or(OpError::NotFound { what: "sandbox", id })?;
    let _turn = sandbox.turn.take().await;
    sandbox.change(&ctx.journal, |state| {
        state.overhead = request.overhead;
        state.resources = request.resources;
    })?;
    if let Err(error) = ctx.plugins.update_pod_sandbox(&sandbox).await {
        tracing::warn!(sandbox = %sandbox.id, error, "plugin failed at the sandbox's update");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_namespace_is_refused_where_the_kernel_cannot_map_layers() {
        let maps = vec![cri::IdMapping { host_id: 1 << 16, container_id: 0, length: 1 << 16 }];
        let users =
            cri::UserNamespace { mode: cri::NamespaceMode::Pod as i32, uids: maps.clone(), gids: maps };
        let options = cri::NamespaceOption { userns_options: Some(users), ..Default::default() };
        let security =
            cri::LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let linux = cri::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() };
        let config = cri::PodSandboxConfig { linux: Some(linux), ..Default::default() };
        let able = Host { user_namespaces: true, ..Default::default() };
        check_users(&config, &able).unwrap();
        let refused = check_users(&config, &Host::default()).unwrap_err();
        assert!(refused.to_string().contains("Linux 5.19"), "{refused}");
    }
}
