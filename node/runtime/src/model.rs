//! Sandboxes and containers in memory: what never changes, what does, and how to find them.
//!
//! Every change of a state goes through `change`, which writes the journal first and changes nothing if that fails, or
//! through `settle`, for what has happened already and for ways out, which show it in any case.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    path::PathBuf,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use oci_spec::runtime::Spec;
use podwire_trace::{Arrow, Note, Participant, Pod};
use podwire_wire::{
    cri,
    ids::{ContainerId, SandboxId},
};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::{
    container::spec::{Namespaces, UserNamespace},
    error::OpError,
    recovery::{
        journal::Journal,
        records::{
            ContainerPhase, ContainerRow, ContainerStateRow, SandboxPhase, SandboxRow, SandboxStateRow,
            row::Kind,
        },
    },
};

/// The identity under which a retry of RunPodSandbox is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SandboxKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) attempt: u32,
}

impl SandboxKey {
    pub(crate) fn of(metadata: &cri::PodSandboxMetadata) -> Self {
        let cri::PodSandboxMetadata { name, uid, namespace, attempt } = metadata.clone();
        SandboxKey { namespace, name, uid, attempt }
    }
}

impl std::fmt::Display for SandboxKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}_{}_{}_{}", self.name, self.namespace, self.uid, self.attempt)
    }
}

/// One step at a time on one thing.
#[derive(Debug)]
pub(crate) struct Turn(Semaphore);

impl Turn {
    fn new() -> Self {
        Turn(Semaphore::new(1))
    }

    /// Waits for one's turn; it ends when the guard is dropped. Cancel safe.
    pub(crate) async fn take(&self) -> SemaphorePermit<'_> {
        self.0.acquire().await.expect("a turn is never closed")
    }
}

/// A pod's sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) key: SandboxKey,
    pub(crate) config: cri::PodSandboxConfig,
    pub(crate) handler: String,
    pub(crate) created_at: i64,
    /// Pins and files of the pod.
    pub(crate) dir: PathBuf,
    pub(crate) turn: Turn,
    /// The plugins were told that it runs, and not yet that it stopped.
    pub(crate) plugins_told: AtomicBool,
    /// Held while the pod's process 1 is being started.
    pub(crate) reaper: Mutex<()>,
    state: Mutex<SandboxStateRow>,
}

impl Sandbox {
    pub(crate) fn new(row: &SandboxRow, state: SandboxStateRow, dir: PathBuf) -> Self {
        let config = row.config.clone().unwrap_or_default();
        let key = SandboxKey::of(&config.metadata.clone().unwrap_or_default());
        let plugins_told = AtomicBool::new(state.phase() != SandboxPhase::Creating || state.plugins_told);
        Sandbox {
            plugins_told,
            id: row.id.as_str().into(),
            key,
            config,
            handler: row.handler.clone(),
            created_at: row.created_at,
            dir,
            turn: Turn::new(),
            reaper: Mutex::new(()),
            state: Mutex::new(state),
        }
    }

    /// Draws something that the runtime did for the pod.
    pub(crate) fn note(&self, note: Note<'_>) {
        let SandboxKey { uid, namespace, name, .. } = &self.key;
        Arrow::note(Pod { uid, namespace, name }, Participant::ContainerRuntime, note);
    }

    pub(crate) fn state(&self) -> SandboxStateRow {
        self.state.lock().expect("no panic while holding a sandbox").clone()
    }

    pub(crate) fn phase(&self) -> SandboxPhase {
        self.state.lock().expect("no panic while holding a sandbox").phase()
    }

    /// Journals the changed state, then shows it.
    pub(crate) fn change(
        &self,
        journal: &Journal,
        edit: impl FnOnce(&mut SandboxStateRow),
    ) -> Result<(), OpError> {
        let mut state = self.state.lock().expect("no panic while holding a sandbox");
        let mut next = state.clone();
        edit(&mut next);
        next.id = self.id.to_string();
        journal.append(Kind::SandboxState(next.clone())).map_err(OpError::failed("write the journal"))?;
        *state = next;
        Ok(())
    }

    /// Shows what has already happened, or a way out; a journal that takes no row now gets it later.
    pub(crate) fn settle(&self, journal: &Journal, edit: impl FnOnce(&mut SandboxStateRow)) {
        let mut state = self.state.lock().expect("no panic while holding a sandbox");
        edit(&mut state);
        state.id = self.id.to_string();
        if let Err(error) = journal.note(Kind::SandboxState(state.clone())) {
            tracing::error!(sandbox = %self.id, %error, "journal not written; it will be tried again");
        }
    }

    /// CRI's namespace options; all "pod" if nothing was said.
    pub(crate) fn namespace_options(&self) -> cri::NamespaceOption {
        self.config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|security| security.namespace_options.clone())
            .unwrap_or_default()
    }

    /// The pod's user namespace, if it has one of its own.
    pub(crate) fn user_namespace(&self) -> Option<UserNamespace> {
        let requested = self.namespace_options().userns_options?;
        if requested.mode != cri::NamespaceMode::Pod as i32 {
            return None;
        }
        Some(UserNamespace { path: Some(self.dir.join("user")), uids: requested.uids, gids: requested.gids })
    }

    pub(crate) fn host_network(&self) -> bool {
        self.namespace_options().network == cri::NamespaceMode::Node as i32
    }

    pub(crate) fn host_ipc(&self) -> bool {
        self.namespace_options().ipc == cri::NamespaceMode::Node as i32
    }

    pub(crate) fn netns(&self) -> Option<PathBuf> {
        (!self.host_network()).then(|| self.dir.join("net"))
    }

    /// Where containers of this pod find its namespaces; the PID namespace is chosen per container.
    pub(crate) fn namespaces(&self) -> Namespaces {
        Namespaces {
            net: self.netns(),
            ipc: (!self.host_ipc()).then(|| self.dir.join("ipc")),
            uts: (!self.host_network()).then(|| self.dir.join("uts")),
            user: self.user_namespace(),
            ..Default::default()
        }
    }
}

/// A container.
#[derive(Debug)]
pub(crate) struct Container {
    id: ContainerId,
    pub(crate) sandbox: SandboxId,
    pub(crate) row: ContainerRow,
    pub(crate) config: cri::ContainerConfig,
    pub(crate) turn: Turn,
    /// The plugins were told of its end.
    pub(crate) stop_told: AtomicBool,
    being_started: AtomicBool,
    spec: Mutex<Arc<Spec>>,
    state: watch::Sender<ContainerStateRow>,
}

impl Container {
    pub(crate) fn new(row: ContainerRow, state: ContainerStateRow, spec: Spec) -> Self {
        let config = row.config.clone().unwrap_or_default();
        let state = watch::Sender::new(state);
        Container {
            id: row.id.as_str().into(),
            sandbox: row.sandbox_id.as_str().into(),
            row,
            config,
            turn: Turn::new(),
            stop_told: AtomicBool::new(false),
            being_started: AtomicBool::new(false),
            spec: Mutex::new(Arc::new(spec)),
            state,
        }
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(crate) fn metadata(&self) -> cri::ContainerMetadata {
        self.config.metadata.clone().unwrap_or_default()
    }

    pub(crate) fn spec(&self) -> Arc<Spec> {
        self.spec.lock().expect("no panic while holding a spec").clone()
    }

    pub(crate) fn set_spec(&self, spec: Spec) {
        *self.spec.lock().expect("no panic while holding a spec") = Arc::new(spec);
    }

    pub(crate) fn state(&self) -> ContainerStateRow {
        self.state.borrow().clone()
    }

    pub(crate) fn phase(&self) -> ContainerPhase {
        self.state.borrow().phase()
    }

    /// The state as it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<ContainerStateRow> {
        self.state.subscribe()
    }

    /// Journals the changed state, then shows it. `edit` says whether there is anything to change.
    pub(crate) fn change(
        &self,
        journal: &Journal,
        edit: impl FnOnce(&mut ContainerStateRow) -> bool,
    ) -> Result<bool, OpError> {
        let mut outcome = Ok(false);
        self.state.send_if_modified(|state| {
            let mut next = state.clone();
            if !edit(&mut next) {
                return false;
            }
            next.id.clone_from(&self.row.id);
            match journal.append(Kind::ContainerState(next.clone())) {
                Ok(()) => {
                    *state = next;
                    outcome = Ok(true);
                    true
                }
                Err(error) => {
                    outcome = Err(OpError::failed("write the journal")(error));
                    false
                }
            }
        });
        outcome
    }

    /// Shows what has already happened, or a way out; a journal that takes no row now gets it later. `edit` says whether
    /// there is anything to change, and so does the answer.
    pub(crate) fn settle(
        &self,
        journal: &Journal,
        edit: impl FnOnce(&mut ContainerStateRow) -> bool,
    ) -> bool {
        self.state.send_if_modified(|state| {
            let mut next = state.clone();
            if !edit(&mut next) {
                return false;
            }
            next.id.clone_from(&self.row.id);
            *state = next.clone();
            if let Err(error) = journal.note(Kind::ContainerState(next)) {
                let container = self.id();
                tracing::error!(%container, %error, "journal not written; it will be tried again");
            }
            true
        })
    }

    /// Says that somebody starts it, until the answer is dropped.
    pub(crate) fn begin_start(&self) -> StartUnderWay<'_> {
        self.being_started.store(true, Ordering::SeqCst);
        StartUnderWay(self)
    }

    pub(crate) fn is_being_started(&self) -> bool {
        self.being_started.load(Ordering::SeqCst)
    }

    /// Its start was begun by a daemon that is gone: nobody will say how it ended.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.phase() == ContainerPhase::Starting && !self.is_being_started()
    }

    /// The container's cgroup below each hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        self.spec()
            .linux()
            .as_ref()
            .and_then(|linux| linux.cgroups_path().as_ref())
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}

/// A start that somebody is at work on.
pub(crate) struct StartUnderWay<'a>(&'a Container);

impl Drop for StartUnderWay<'_> {
    fn drop(&mut self) {
        self.0.being_started.store(false, Ordering::SeqCst);
    }
}

/// All sandboxes and containers of this runtime.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    inner: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    sandboxes: HashMap<SandboxId, Arc<Sandbox>>,
    containers: HashMap<ContainerId, Arc<Container>>,
}

impl Registry {
    pub(crate) fn add_sandbox(&self, sandbox: Arc<Sandbox>) {
        self.write().sandboxes.insert(sandbox.id.clone(), sandbox);
    }

    pub(crate) fn add_container(&self, container: Arc<Container>) {
        self.write().containers.insert(container.id().clone(), container);
    }

    pub(crate) fn drop_sandbox(&self, id: &SandboxId) {
        self.write().sandboxes.remove(id);
    }

    pub(crate) fn drop_container(&self, id: &ContainerId) {
        self.write().containers.remove(id);
    }

    /// By full id or a prefix that fits only one.
    pub(crate) fn sandbox(&self, id: &str) -> Option<Arc<Sandbox>> {
        find(&self.read().sandboxes, id)
    }

    /// By full id or a prefix that fits only one.
    pub(crate) fn container(&self, id: &str) -> Option<Arc<Container>> {
        find(&self.read().containers, id)
    }

    pub(crate) fn sandbox_by_key(&self, key: &SandboxKey) -> Option<Arc<Sandbox>> {
        self.read().sandboxes.values().find(|sandbox| sandbox.key == *key).cloned()
    }

    /// Every sandbox, newest first.
    pub(crate) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        let mut list: Vec<_> = self.read().sandboxes.values().cloned().collect();
        list.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
        list
    }

    /// Every container, newest first.
    pub(crate) fn containers(&self) -> Vec<Arc<Container>> {
        let mut list: Vec<_> = self.read().containers.values().cloned().collect();
        list.sort_by_key(|container| std::cmp::Reverse(container.row.created_at));
        list
    }

    /// The containers of one sandbox, newest first.
    pub(crate) fn containers_of(&self, sandbox: &SandboxId) -> Vec<Arc<Container>> {
        let mut list: Vec<_> = self
            .read()
            .containers
            .values()
            .filter(|container| container.sandbox == *sandbox)
            .cloned()
            .collect();
        list.sort_by_key(|container| std::cmp::Reverse(container.row.created_at));
        list
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Tables> {
        self.inner.read().expect("no panic while holding the registry")
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Tables> {
        self.inner.write().expect("no panic while holding the registry")
    }
}

fn find<K: Borrow<str> + Eq + Hash, T>(table: &HashMap<K, Arc<T>>, id: &str) -> Option<Arc<T>> {
    if let Some(found) = table.get(id) {
        return Some(found.clone());
    }
    if id.is_empty() {
        return None;
    }
    let mut fitting = table.iter().filter(|(known, _)| Borrow::<str>::borrow(*known).starts_with(id));
    match (fitting.next(), fitting.next()) {
        (Some((_, only)), None) => Some(only.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_finds_a_thing_only_if_it_fits_one() {
        let registry = Registry::default();
        for id in ["abc1", "abd2"] {
            let row = SandboxRow { id: id.into(), ..Default::default() };
            registry.add_sandbox(Arc::new(Sandbox::new(&row, SandboxStateRow::default(), "/x".into())));
        }
        assert_eq!(registry.sandbox("abc").unwrap().id, "abc1");
        assert!(registry.sandbox("ab").is_none());
        assert!(registry.sandbox("").is_none());
        assert_eq!(registry.sandbox("abd2").unwrap().id, "abd2");
    }
}
