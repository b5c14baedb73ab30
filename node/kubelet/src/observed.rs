//! What the runtime says about one pod, merged from calls, events and relists.
//!
//! A container's state only moves forward (created, running, exited), a sandbox's from ready to not ready.
//! So an answer that overtook another on its way can be merged in any order.

use std::collections::BTreeMap;

use podwire_wire::{
    cri,
    ids::{ContainerId, ContainerName, SandboxId},
};

use crate::labels;

/// How far a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunState {
    /// Set up, its process waits.
    Created,
    /// Its process runs.
    Running,
    /// The runtime lost track of it.
    Unknown,
    /// Its process has ended.
    Exited,
}

/// Whose user ids a sandbox has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// The node's.
    Node,
    /// Its own, from this id of the node on.
    Own {
        /// The node's id of the pod's root.
        first: u32,
    },
}

impl Users {
    fn of(options: &cri::NamespaceOption) -> Users {
        let own = options.userns_options.as_ref().filter(|u| u.mode == cri::NamespaceMode::Pod as i32);
        let first = own.and_then(|users| users.uids.iter().find(|map| map.container_id == 0));
        first.map_or(Users::Node, |map| Users::Own { first: map.host_id })
    }
}

/// One sandbox of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// How many sandboxes the pod had before this one.
    pub attempt: u32,
    /// Whether its namespaces are up.
    pub ready: bool,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// Addresses, the first is the primary.
    pub ips: Vec<String>,
    /// Whether it uses the node's network, if the runtime says.
    pub host_network: Option<bool>,
    /// Whose user ids it has, if the runtime says.
    pub users: Option<Users>,
}

/// One container of the pod, alive or dead.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// The runtime's id.
    pub id: ContainerId,
    /// Name in the specification.
    pub name: ContainerName,
    /// Sandbox it lives in; empty when the answer did not say.
    pub sandbox: SandboxId,
    /// Restart count it was created with.
    pub attempt: u32,
    /// How far it has come.
    pub state: RunState,
    /// Nanoseconds since the epoch; 0 when it has not happened.
    pub created_at: i64,
    /// Nanoseconds since the epoch; 0 when it has not happened.
    pub started_at: i64,
    /// Nanoseconds since the epoch; 0 when it has not happened.
    pub finished_at: i64,
    /// Exit code, 128 + signal when killed.
    pub exit_code: i32,
    /// The runtime's one word, e.g. `OOMKilled`.
    pub reason: String,
    /// The runtime's sentence, or the termination message once read.
    pub message: String,
    /// Image as it was asked for.
    pub image: String,
    /// Image as it was resolved.
    pub image_ref: String,
    /// Image's own id.
    pub image_id: String,
    /// Hash of the specification it was made from.
    pub hash: String,
    /// Where its log is written.
    pub log_path: String,
    /// Whether the termination message was already read into `message`.
    pub message_read: bool,
    /// Resources that the runtime has applied.
    pub resources: Option<cri::LinuxContainerResources>,
    /// The memory it asked for, if it is to be restarted when that changes.
    pub memory_request: Option<i64>,
    /// Whom its first process runs as.
    pub user: Option<cri::LinuxContainerUser>,
    /// The runtime handler's mounts as reported.
    pub mounts: Vec<cri::Mount>,
}

impl Container {
    /// Reads a CRI status; `sandbox` is the id of the sandbox it lives in, if known.
    pub fn from_status(status: &cri::ContainerStatus, sandbox: &str) -> Container {
        let metadata = status.metadata.clone().unwrap_or_default();
        let labelled = status.annotations.get(labels::CONTAINER_RESTART_COUNT).and_then(|v| v.parse().ok());
        Container {
            id: status.id.as_str().into(),
            name: status.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or(metadata.name).into(),
            sandbox: sandbox.into(),
            attempt: labelled.unwrap_or(metadata.attempt),
            state: run_state(status.state),
            created_at: status.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            image: asked_image(status.image.as_ref()),
            image_ref: status.image_ref.clone(),
            image_id: status.image_id.clone(),
            hash: status.annotations.get(labels::CONTAINER_HASH).cloned().unwrap_or_default(),
            log_path: status.log_path.clone(),
            message_read: false,
            resources: status.resources.as_ref().and_then(|r| r.linux.clone()),
            memory_request: status.annotations.get(labels::MEMORY_REQUEST).and_then(|v| v.parse().ok()),
            user: status.user.as_ref().and_then(|u| u.linux.clone()),
            mounts: status.mounts.clone(),
        }
    }
}

fn asked_image(image: Option<&cri::ImageSpec>) -> String {
    image.map_or_else(String::new, |spec| {
        if spec.image.is_empty() { spec.user_specified_image.clone() } else { spec.image.clone() }
    })
}

fn run_state(state: i32) -> RunState {
    match cri::ContainerState::try_from(state) {
        Ok(cri::ContainerState::ContainerCreated) => RunState::Created,
        Ok(cri::ContainerState::ContainerRunning) => RunState::Running,
        Ok(cri::ContainerState::ContainerExited) => RunState::Exited,
        _ => RunState::Unknown,
    }
}

impl Sandbox {
    /// Reads a CRI sandbox status.
    pub fn from_status(status: &cri::PodSandboxStatus) -> Sandbox {
        let network = status.network.clone().unwrap_or_default();
        let mut ips: Vec<String> = Vec::new();
        if !network.ip.is_empty() {
            ips.push(network.ip);
        }
        ips.extend(network.additional_ips.into_iter().map(|ip| ip.ip).filter(|ip| !ip.is_empty()));
        let options =
            status.linux.as_ref().and_then(|l| l.namespaces.as_ref()).and_then(|n| n.options.as_ref());
        Sandbox {
            id: status.id.as_str().into(),
            attempt: status.metadata.as_ref().map_or(0, |m| m.attempt),
            ready: status.state == cri::PodSandboxState::SandboxReady as i32,
            created_at: status.created_at,
            ips,
            host_network: options.map(|o| o.network == cri::NamespaceMode::Node as i32),
            users: options.map(Users::of),
        }
    }
}

/// Everything the runtime holds for one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Sandboxes, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Containers by id.
    pub containers: BTreeMap<ContainerId, Container>,
}

impl Observed {
    /// The newest sandbox, if it is ready.
    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }

    /// The newest container called `name`: highest attempt, then latest.
    pub fn newest(&self, name: &str) -> Option<&Container> {
        self.named(name).max_by_key(|c| (c.attempt, c.created_at))
    }

    /// The one before the newest.
    pub fn previous(&self, name: &str) -> Option<&Container> {
        let newest = self.newest(name)?;
        self.named(name).filter(|c| c.id != newest.id).max_by_key(|c| (c.attempt, c.created_at))
    }

    /// Every container called `name`.
    pub fn named<'a, 'b>(&'a self, name: &'b str) -> impl Iterator<Item = &'a Container> + use<'a, 'b> {
        self.containers.values().filter(move |c| c.name == name)
    }

    /// Whether any process may still run.
    pub fn any_running(&self) -> bool {
        self.containers.values().any(|c| matches!(c.state, RunState::Running | RunState::Unknown))
    }

    /// Whether the runtime holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Takes in a sandbox; says whether anything changed.
    pub fn merge_sandbox(&mut self, mut new: Sandbox) -> bool {
        if let Some(old) = self.sandboxes.iter_mut().find(|s| s.id == new.id) {
            new.ready &= old.ready;
            if new.ips.is_empty() {
                new.ips = std::mem::take(&mut old.ips);
            }
            let changed = *old != new;
            *old = new;
            return changed;
        }
        self.sandboxes.push(new);
        self.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.attempt, s.created_at)));
        true
    }

    /// Takes in a container; says whether anything changed.
    pub fn merge_container(&mut self, mut new: Container) -> bool {
        let Some(old) = self.containers.get_mut(&new.id) else {
            self.containers.insert(new.id.clone(), new);
            return true;
        };
        if new.state < old.state {
            return false;
        }
        if new.sandbox.is_empty() {
            new.sandbox = std::mem::take(&mut old.sandbox);
        }
        if old.message_read && new.state == old.state {
            new.message_read = true;
            new.message = std::mem::take(&mut old.message);
        }
        let changed = *old != new;
        *old = new;
        changed
    }

    /// Forgets a container that the runtime no longer has.
    pub fn forget_container(&mut self, id: &str) -> bool {
        self.containers.remove(id).is_some()
    }

    /// Forgets a sandbox and what lived in it.
    pub fn forget_sandbox(&mut self, id: &str) {
        self.sandboxes.retain(|s| s.id != id);
        self.containers.retain(|_, c| c.sandbox != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str, state: RunState, attempt: u32) -> Container {
        let status = cri::ContainerStatus {
            id: id.into(),
            metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt }),
            ..Default::default()
        };
        Container { state, ..Container::from_status(&status, "box") }
    }

    #[test]
    fn an_event_that_was_overtaken_does_not_move_a_container_back() {
        let mut observed = Observed::default();
        assert!(observed.merge_container(container("a", RunState::Exited, 0)));
        assert!(!observed.merge_container(container("a", RunState::Running, 0)));
        assert_eq!(observed.newest("app").unwrap().state, RunState::Exited);
    }

    #[test]
    fn the_newest_container_is_the_one_of_the_highest_attempt() {
        let mut observed = Observed::default();
        observed.merge_container(container("b", RunState::Running, 3));
        observed.merge_container(container("a", RunState::Exited, 2));
        assert_eq!(observed.newest("app").unwrap().id, "b");
        assert_eq!(observed.previous("app").unwrap().id, "a");
    }

    #[test]
    fn a_sandbox_that_died_does_not_come_back() {
        let mut observed = Observed::default();
        let status = cri::PodSandboxStatus { id: "s".into(), ..Default::default() };
        let ready = Sandbox { ready: true, ips: vec!["10.0.0.2".into()], ..Sandbox::from_status(&status) };
        observed.merge_sandbox(ready.clone());
        assert!(observed.merge_sandbox(Sandbox { ready: false, ips: vec![], ..ready.clone() }));
        observed.merge_sandbox(ready);
        assert!(observed.ready_sandbox().is_none());
        assert_eq!(observed.sandboxes[0].ips, ["10.0.0.2"]);
    }
}
