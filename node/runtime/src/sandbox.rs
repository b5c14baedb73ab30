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
    core::Core,
    error::{OpError, Shared, chain},
    host,
    model::{Sandbox, SandboxKey},
    net_devices,
    recovery::records::{SandboxPhase, SandboxRow, SandboxStateRow, row::Kind},
};

/// Runs a sandbox, or joins the run of the same one.
///
/// Cancel safe: the run goes on when the caller leaves.
pub(crate) async fn run(core: &Arc<Core>, request: cri::RunPodSandboxRequest) -> Option<Shared<SandboxId>> {
    let (config, key) = match check(request.config, &core.host) {
        Ok(checked) => checked,
        Err(error) => return Some(Err(Arc::new(error))),
    };
    let handler = request.runtime_handler;
    core.runs
        .run(key.clone(), || {
            let core = core.clone();
            async move { run_once(&core, key, config, handler).await.map_err(Arc::new) }
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
    core: &Arc<Core>,
    key: SandboxKey,
    config: cri::PodSandboxConfig,
    handler: String,
) -> Result<SandboxId, OpError> {
    core.handlers.check(&handler, &config)?;
    if let Some(known) = core.registry.sandbox_by_key(&key) {
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
    let sandbox = Arc::new(Sandbox::new(&row, SandboxStateRow::default(), core.sandbox_dir(&row.id)));
    // Before anything is made: a pod that waits for a plugin must not cost addresses and links each time it is tried.
    let admitted = core.plugins.admit_pod_sandbox(&sandbox).await;
    admitted.map_err(OpError::failed("run the sandbox's plugins"))?;
    core.journal.append(Kind::Sandbox(row)).map_err(OpError::failed("write the journal"))?;
    core.registry.add_sandbox(sandbox.clone());
    match set_up(core, &sandbox).await {
        Ok(()) => {
            for kind in [Happened::ContainerCreatedEvent, Happened::ContainerStartedEvent] {
                core.events.emit(&core.registry, &sandbox, &sandbox.id, kind);
            }
            Ok(sandbox.id.clone())
        }
        Err(error) => {
            give_up(core, &sandbox).await;
            Err(error)
        }
    }
}

/// Takes back a sandbox that could not be made; keeps it listed if that fails too.
async fn give_up(core: &Arc<Core>, sandbox: &Arc<Sandbox>) {
    let undone = match tear_down(core, sandbox).await {
        Ok(()) => {
            tell_removed(core, sandbox).await;
            forget(core, sandbox).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = undone {
        let error = chain(&error);
        tracing::warn!(sandbox = %sandbox.id, error, "half made sandbox not cleaned up; it stays listed");
        sandbox.settle(&core.journal, |state| state.phase = SandboxPhase::NotReady as i32);
    }
}

/// Namespaces, files, network, plugins; then the sandbox is ready.
async fn set_up(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let (ips, cni_result) = {
        let sandbox = sandbox.clone();
        core.blocking(move |core| {
            make_namespaces(&sandbox)?;
            attach(core, &sandbox)
        })
        .await?
    };
    // The plugins see the addresses, but nobody else sees a ready sandbox before they agreed.
    sandbox.change(&core.journal, |state| {
        state.ips = ips;
        state.cni_result = cni_result;
        state.plugins_told = core.plugins.present();
    })?;
    sandbox.plugins_told.store(true, Ordering::Relaxed);
    core.plugins.run_pod_sandbox(sandbox).await.map_err(OpError::failed("run the sandbox's plugins"))?;
    sandbox.change(&core.journal, |state| state.phase = SandboxPhase::Ready as i32)
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
fn attach(core: &Core, sandbox: &Sandbox) -> Result<(Vec<String>, String), OpError> {
    let Some(attachment) = network::attachment(sandbox, &core.cgroup_parent(&sandbox.config)) else {
        return Ok((Vec::new(), String::new()));
    };
    let failed = |error: podwire_cni_lib::Error| {
        OpError::failed(format!("failed to setup network for sandbox {:?}", sandbox.id))(error)
    };
    let conflist = core.networks.current().map_err(failed)?;
    let result = core.networks.ensure_in(&conflist, &attachment).map_err(failed)?;
    let ips = result.ips.iter().map(|net| net.addr().to_string()).collect();
    Ok((ips, result.raw.to_string()))
}

/// Stops a sandbox; an unknown one is stopped already. Joins a stop under way.
///
/// Cancel safe: the stop goes on when the caller leaves.
pub(crate) async fn stop(core: &Arc<Core>, id: &str) -> Option<Shared<()>> {
    let Some(sandbox) = core.registry.sandbox(id) else { return Some(Ok(())) };
    core.stops
        .run(sandbox.id.clone(), || {
            let core = core.clone();
            async move { stop_once(&core, &sandbox).await.map_err(Arc::new) }
        })
        .await
}

async fn stop_once(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let _turn = sandbox.turn.take().await;
    if sandbox.phase() == SandboxPhase::Creating {
        return Err(OpError::Precondition { why: format!("sandbox {} is still being made", sandbox.id) });
    }
    // From here on no container can be created in it. A full disk is no reason not to stop.
    sandbox.settle(&core.journal, |state| state.phase = SandboxPhase::NotReady as i32);
    let stops = core.registry.containers_of(&sandbox.id).into_iter().map(|container| {
        let core = core.clone();
        async move { container::stop(&core, &container, 0).await }
    });
    for stopped in futures::future::join_all(stops).await {
        stopped?;
    }
    tear_down(core, sandbox).await
}

/// Plugins, network, process 1 of a shared PID namespace, namespaces: everything a stopped pod must not hold.
pub(crate) async fn tear_down(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    if sandbox.state().detached {
        return Ok(());
    }
    if sandbox.plugins_told.load(Ordering::Relaxed)
        && let Err(error) = core.plugins.stop_pod_sandbox(sandbox).await
    {
        tracing::warn!(sandbox = %sandbox.id, error, "plugin failed at the sandbox's stop");
    }
    let taken = sandbox.clone();
    core.blocking(move |core| {
        let sandbox = taken;
        if sandbox.state().reaper_pid != 0 {
            core.supervision
                .supervisor()
                .delete(&sandbox.id)
                .map_err(OpError::failed("end the pod's process 1"))?;
        }
        net_devices::give_back(&sandbox);
        if let Some(attachment) = network::attachment(&sandbox, &core.cgroup_parent(&sandbox.config)) {
            // The namespace goes right after and takes eth0 with it.
            core.networks.detach_dying(&attachment).map_err(OpError::failed(format!(
                "failed to destroy network for sandbox {:?}",
                sandbox.id
            )))?;
        }
        pod_files::release(&sandbox.dir).map_err(OpError::failed("release the pod's namespaces"))
    })
    .await?;
    sandbox.settle(&core.journal, |state| {
        state.detached = true;
        state.reaper_pid = 0;
        state.net_devices.clear();
    });
    Ok(())
}

/// Removes a sandbox and its containers; an unknown one is removed already. Joins a removal under way.
///
/// Cancel safe: the removal goes on when the caller leaves.
pub(crate) async fn remove(core: &Arc<Core>, id: &str) -> Option<Shared<()>> {
    let Some(sandbox) = core.registry.sandbox(id) else { return Some(Ok(())) };
    if let Some(Err(error)) = stop(core, &sandbox.id).await {
        return Some(Err(error));
    }
    core.removes
        .run(sandbox.id.clone(), || {
            let core = core.clone();
            async move { remove_once(&core, &sandbox).await.map_err(Arc::new) }
        })
        .await
}

async fn remove_once(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let _turn = sandbox.turn.take().await;
    if core.registry.sandbox(&sandbox.id).is_none() {
        return Ok(());
    }
    let removes = core.registry.containers_of(&sandbox.id).into_iter().map(|container| {
        let core = core.clone();
        async move { container::remove_once(&core, &container).await }
    });
    for removed in futures::future::join_all(removes).await {
        removed?;
    }
    tell_removed(core, sandbox).await;
    core.events.emit(&core.registry, sandbox, &sandbox.id, Happened::ContainerDeletedEvent);
    forget(core, sandbox).await
}

/// Tells the plugins once that the sandbox goes.
pub(crate) async fn tell_removed(core: &Arc<Core>, sandbox: &Arc<Sandbox>) {
    if sandbox.plugins_told.swap(false, Ordering::Relaxed)
        && let Err(error) = core.plugins.remove_pod_sandbox(sandbox).await
    {
        tracing::warn!(sandbox = %sandbox.id, error, "plugin failed at the sandbox's removal");
    }
}

/// The files, then the journal row, then the table entry.
pub(crate) async fn forget(core: &Arc<Core>, sandbox: &Arc<Sandbox>) -> Result<(), OpError> {
    let taken = sandbox.clone();
    core.blocking(move |core| {
        pod_files::remove(&taken.dir).map_err(OpError::failed("remove the pod's files"))?;
        core.journal.forget(Kind::SandboxGone(taken.id.to_string()));
        Ok(())
    })
    .await?;
    core.registry.drop_sandbox(&sandbox.id);
    Ok(())
}

/// Records what the kubelet made of the pod's resources and tells the plugins.
pub(crate) async fn update(
    core: &Arc<Core>,
    request: cri::UpdatePodSandboxResourcesRequest,
) -> Result<(), OpError> {
    let id = request.pod_sandbox_id;
    let sandbox = core.registry.sandbox(&id).ok_or(OpError::NotFound { what: "sandbox", id })?;
    let _turn = sandbox.turn.take().await;
    sandbox.change(&core.journal, |state| {
        state.overhead = request.overhead;
        state.resources = request.resources;
    })?;
    if let Err(error) = core.plugins.update_pod_sandbox(&sandbox).await {
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
