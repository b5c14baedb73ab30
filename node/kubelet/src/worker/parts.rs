//! The parts of a worker's knowledge, each with states of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use podwire_wire::ids::{ContainerId, ContainerName};
use tokio::time::Instant;

use crate::{
    clock,
    images::Found,
    observed::Observed,
    status::{Verdict, Waiting},
    volumes::Mounted,
};

/// What the pod is to the node.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has not been let in yet.
    New,
    /// Its devices are being reserved.
    Reserving,
    /// Its devices are not there, and may come.
    Waiting(Wait),
    /// It holds its resources.
    Admitted,
    /// It has to end, or could not begin, for this reason.
    Ended(Verdict),
}

impl Standing {
    pub(super) fn verdict(&self) -> Option<&Verdict> {
        match self {
            Standing::Ended(verdict) => Some(verdict),
            Standing::New | Standing::Reserving | Standing::Waiting(_) | Standing::Admitted => None,
        }
    }
}

/// A wait for devices.
#[derive(Debug)]
pub(super) struct Wait {
    /// Since when.
    pub(super) since: Instant,
    /// What for.
    pub(super) message: String,
}

/// Where the pod's object in the API stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// It is there, as far as is known.
    Present,
    /// It is being deleted by us.
    Deleting,
    /// It could not be deleted; when to try again.
    RetryAt(Instant),
    /// We have deleted it.
    Deleted,
    /// The API has it no longer.
    Gone,
}

/// The pod's way out: nothing is started any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    /// When the containers' grace is over.
    pub(super) by: Instant,
}

impl Stopping {
    pub(super) fn new(grace: i64) -> Stopping {
        Stopping { by: Instant::now() + Duration::from_secs(u64::try_from(grace).unwrap_or_default()) }
    }

    /// Whether `other` ends it noticeably sooner.
    pub(super) fn is_shortened_by(&self, other: &Stopping) -> bool {
        other.by + Duration::from_millis(500) < self.by
    }
}

/// What is to become of what an ended pod has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// Logs and exit codes can be looked at.
    Kept,
    /// The node needs the room.
    Unwanted,
}

/// What the runtime is known to have of the pod.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) observed: Observed,
    /// When each container was first heard of.
    pub(super) learned: BTreeMap<ContainerId, Instant>,
    /// Whether it is being asked about containers right now.
    pub(super) asking: bool,
    /// Ended containers whose last words are being read.
    pub(super) listening: BTreeSet<ContainerId>,
}

/// What is noted of the pod's containers.
#[derive(Debug, Default)]
pub(super) struct ContainerNotes {
    /// Why they wait, by name.
    pub(super) waiting: BTreeMap<ContainerName, Waiting>,
    /// Those that are ready, by id.
    pub(super) ready: BTreeSet<ContainerId>,
    /// Images found for attempts, by name.
    pub(super) images: BTreeMap<(ContainerName, u32), Found>,
    /// Those whose postStart hook has been begun, by id.
    pub(super) hooked: BTreeSet<ContainerId>,
}

/// Failures in a row of each thing that is tried again.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<String, u32>);

impl Retries {
    /// When a failed thing may be tried again: after 0.5 s, doubling to 10 s.
    pub(super) fn next(&mut self, what: &str) -> Timestamp {
        let count = self.0.entry(what.to_owned()).or_default();
        let wait = Duration::from_millis(500 << (*count).min(5)).min(Duration::from_secs(10));
        *count += 1;
        clock::now().checked_add(wait).unwrap_or(Timestamp::MAX)
    }

    /// It worked.
    pub(super) fn over(&mut self, what: &str) {
        self.0.remove(what);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether the volumes' sources have changed since they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Refresh {
    /// Not that anybody knows.
    #[default]
    Idle,
    /// They have, and the first round is not done yet.
    Queued,
    /// They are being written again.
    UnderWay,
    /// They are being written again, and have changed once more.
    UnderWayAndQueued,
}

/// The pod's volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub(super) mounted: Arc<Mounted>,
    refresh: Refresh,
}

impl Volumes {
    pub(super) fn is_refreshing(&self) -> bool {
        matches!(self.refresh, Refresh::UnderWay | Refresh::UnderWayAndQueued)
    }

    /// The sources changed while nothing can be written.
    pub(super) fn queue(&mut self) {
        self.refresh = if self.is_refreshing() { Refresh::UnderWayAndQueued } else { Refresh::Queued };
    }

    /// They are written again from now on.
    pub(super) fn begin(&mut self) {
        self.refresh = Refresh::UnderWay;
    }

    /// The first round ended; whether the sources changed meanwhile.
    pub(super) fn take_queued(&mut self) -> bool {
        let (next, queued) = match self.refresh {
            Refresh::Queued => (Refresh::Idle, true),
            Refresh::UnderWayAndQueued => (Refresh::UnderWay, true),
            other => (other, false),
        };
        self.refresh = next;
        queued
    }

    /// A round ended; whether another is due.
    pub(super) fn end(&mut self) -> bool {
        matches!(std::mem::take(&mut self.refresh), Refresh::Queued | Refresh::UnderWayAndQueued)
    }
}

/// What the API was told of the pod's status.
#[derive(Debug, Default)]
pub(super) struct Publication {
    /// The status it took last.
    pub(super) last: Option<PodStatus>,
    /// Whether a patch is on its way.
    pub(super) in_flight: bool,
    /// When the newest status goes out.
    pub(super) due: Option<Instant>,
    pub(super) failures: u32,
    /// When the status is written again because the API shows another one.
    pub(super) drift_at: Option<Instant>,
}

impl Publication {
    pub(super) fn is_drifted(&self) -> bool {
        self.drift_at.is_some_and(|at| at <= Instant::now())
    }

    /// When there is something to do about it.
    pub(super) fn wake(&self) -> Option<Instant> {
        [self.due, self.drift_at].into_iter().flatten().min().filter(|_| !self.in_flight)
    }
}

/// When the pod began, as its status says or as of now.
pub(super) fn start_time(pod: &Pod) -> Timestamp {
    let told = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    told.map_or_else(clock::now_seconds, |time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_during_a_round_asks_for_one_more_and_only_one() {
        let mut volumes = Volumes::default();
        assert!(!volumes.end(), "nothing changed");
        volumes.queue();
        let queued = (volumes.take_queued(), volumes.take_queued());
        assert_eq!(queued, (true, false), "it changed before the first round was done");
        volumes.begin();
        volumes.queue();
        volumes.queue();
        assert!(volumes.is_refreshing());
        assert!(volumes.end() && !volumes.is_refreshing() && !volumes.end());
    }

    #[test]
    fn only_a_noticeably_shorter_grace_counts() {
        let long = Stopping::new(30);
        assert!(long.is_shortened_by(&Stopping::new(1)));
        assert!(!long.is_shortened_by(&Stopping::new(30)) && !Stopping::new(1).is_shortened_by(&long));
    }

    #[test]
    fn a_status_on_its_way_wakes_nobody() {
        let due = Some(Instant::now());
        let mut publication = Publication { due, ..Publication::default() };
        assert_eq!(publication.wake(), due);
        publication.in_flight = true;
        assert_eq!(publication.wake(), None);
    }
}
