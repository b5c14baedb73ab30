//! One container's entry in the pod's status. Pure.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container as Spec, ContainerState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, ContainerUser, LinuxContainerUser, PodStatus,
        VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::Facts;
use crate::{
    observed::{Container, RunState},
    resize, restart,
    spec::{self, Kind},
};

/// The entry of one container.
pub(super) fn status(facts: &Facts<'_>, kind: Kind, container: &Spec) -> ContainerStatus {
    let newest = facts.observed.newest(&container.name);
    let old = facts.last.or(facts.pod.status.as_ref()).and_then(|s| find(s, &container.name));
    let mut status = match newest {
        Some(newest) => present(facts, kind, container, newest),
        None => absent(facts, container, old),
    };
    let running = status.state.as_ref().is_some_and(|s| s.running.is_some());
    let id = newest.map(|c| c.id.as_str()).unwrap_or_default();
    status.started = Some(running && facts.started.contains(id));
    status.ready = match kind {
        Kind::Init => newest.is_some_and(|c| c.state == RunState::Exited && c.exit_code == 0),
        Kind::Ephemeral => false,
        _ => running && facts.started.contains(id) && facts.ready.contains(id) && !facts.stopping_now(),
    };
    if kind == Kind::Ephemeral {
        status.started = None;
    }
    status.volume_mounts = mounts(container);
    if kind != Kind::Ephemeral {
        status.resources = resize::actual(container, newest.filter(|c| c.state == RunState::Running));
        status.allocated_resources = container.resources.as_ref().and_then(|r| r.requests.clone());
    }
    status.allocated_resources_status = facts.devices.get(container.name.as_str()).cloned();
    status
}

impl Facts<'_> {
    fn stopping_now(&self) -> bool {
        self.stopping && !self.observed.any_running()
    }
}

fn present(facts: &Facts<'_>, kind: Kind, container: &Spec, newest: &Container) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: if newest.image.is_empty() {
            container.image.clone().unwrap_or_default()
        } else {
            newest.image.clone()
        },
        image_id: if newest.image_ref.is_empty() {
            newest.image_id.clone()
        } else {
            newest.image_ref.clone()
        },
        container_id: Some(format!("{}://{}", facts.runtime, newest.id)),
        restart_count: i32::try_from(newest.attempt).unwrap_or(i32::MAX),
        user: newest.user.as_ref().map(user),
        ..Default::default()
    };
    let earlier = facts.observed.previous(&container.name).filter(|c| c.state == RunState::Exited);
    status.last_state = Some(earlier.map(|c| terminated(facts.runtime, c)).unwrap_or_default());
    let state = match newest.state {
        RunState::Running => {
            let started_at = Some(Time(seconds(newest.started_at)));
            ContainerState { running: Some(ContainerStateRunning { started_at }), ..Default::default() }
        }
        RunState::Created => waiting(facts, &container.name),
        RunState::Unknown => unknown(facts.runtime, newest),
        RunState::Exited => match why_waiting(facts, kind, container, newest) {
            Some(state) => {
                status.last_state = Some(terminated(facts.runtime, newest));
                state
            }
            None => terminated(facts.runtime, newest),
        },
    };
    status.state = Some(state);
    status
}

/// An ended container that is to run again waits; one that is just being restarted or is done does not.
fn why_waiting(
    facts: &Facts<'_>,
    kind: Kind,
    container: &Spec,
    newest: &Container,
) -> Option<ContainerState> {
    if facts.stopping || !restart::should_restart(facts.pod, kind, container, newest) {
        return None;
    }
    let backoff =
        facts.backoff.get(container.name.as_str()).filter(|b| b.until(newest.finished_at) > facts.now);
    let Some(backoff) = backoff else {
        return facts.waiting.contains_key(container.name.as_str()).then(|| waiting(facts, &container.name));
    };
    let reference = spec::PodRef::of(facts.pod).full();
    let message = format!(
        "back-off {} restarting failed container={} pod={reference}",
        go_duration(backoff.wait.as_secs()),
        container.name
    );
    Some(ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some("CrashLoopBackOff".into()),
            message: Some(message),
        }),
        ..Default::default()
    })
}

/// A number of seconds as Go prints a duration.
pub(crate) fn go_duration(seconds: i64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

fn absent(facts: &Facts<'_>, container: &Spec, old: Option<&ContainerStatus>) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting(facts, &container.name)),
        last_state: Some(ContainerState::default()),
        ..Default::default()
    };
    let Some(old) = old else { return status };
    status.restart_count = old.restart_count;
    status.last_state = old.last_state.clone().or_else(|| Some(ContainerState::default()));
    let Some(state) = &old.state else { return status };
    if state.terminated.is_some() {
        return old.clone();
    }
    if state.running.is_some() {
        // It ran, and the runtime no longer knows it: nobody can say how it ended.
        let lost = ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: 137,
                reason: Some("ContainerStatusUnknown".into()),
                message: Some("The container could not be located when the pod was terminated".into()),
                ..Default::default()
            }),
            ..Default::default()
        };
        if facts.stopping {
            status.container_id = old.container_id.clone();
            status.state = Some(lost);
        } else {
            status.last_state = Some(lost);
            status.restart_count += 1;
        }
    }
    status
}

fn waiting(facts: &Facts<'_>, name: &str) -> ContainerState {
    let (reason, message) = match facts.waiting.get(name) {
        Some(why) => (why.reason.clone(), Some(why.message.clone()).filter(|m| !m.is_empty())),
        None if spec::init_containers(facts.pod).is_empty() => ("ContainerCreating".to_owned(), None),
        None => ("PodInitializing".to_owned(), None),
    };
    let waiting = Some(ContainerStateWaiting { reason: Some(reason), message });
    ContainerState { waiting, ..Default::default() }
}

fn terminated(runtime: &str, container: &Container) -> ContainerState {
    let reason = match (container.reason.as_str(), container.exit_code) {
        ("", 0) => "Completed".to_owned(),
        ("", _) => "Error".to_owned(),
        (reason, _) => reason.to_owned(),
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(format!("{runtime}://{}", container.id)),
            exit_code: container.exit_code,
            reason: Some(reason),
            message: Some(container.message.clone()).filter(|m| !m.is_empty()),
            started_at: (container.started_at > 0).then(|| Time(seconds(container.started_at))),
            finished_at: (container.finished_at > 0).then(|| Time(seconds(container.finished_at))),
            signal: None,
        }),
        ..Default::default()
    }
}

fn unknown(runtime: &str, container: &Container) -> ContainerState {
    let mut state = terminated(runtime, container);
    if let Some(terminated) = &mut state.terminated {
        terminated.reason = Some("ContainerStatusUnknown".into());
        terminated.exit_code = 137;
    }
    state
}

/// Nanoseconds since the epoch as a time in whole seconds.
pub(crate) fn seconds(nanos: i64) -> Timestamp {
    Timestamp::from_second(nanos.div_euclid(1_000_000_000)).unwrap_or_default()
}

fn user(user: &podwire_wire::cri::LinuxContainerUser) -> ContainerUser {
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: Some(user.supplemental_groups.clone()),
        }),
    }
}

fn mounts(container: &Spec) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?;
    let all = mounts.iter().map(|m| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only.filter(|&r| r),
        recursive_read_only: m.read_only.unwrap_or(false).then(|| "Disabled".to_owned()),
        ..Default::default()
    });
    Some(all.collect())
}

/// The entry for a container in a whole status.
pub(crate) fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .find(|s| s.name == name)
}

/// Whether the status says that the container has run at some time.
pub(crate) fn ran_before(status: &PodStatus, name: &str) -> bool {
    let ran =
        |state: Option<&ContainerState>| state.is_some_and(|s| s.running.is_some() || s.terminated.is_some());
    find(status, name).is_some_and(|s| ran(s.state.as_ref()) || ran(s.last_state.as_ref()))
}
