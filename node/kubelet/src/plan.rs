//! Decides the next steps for one pod on this node.
//!
//! Pure: no clock, no I/O. The worker carries the steps out, observes, and asks again; whatever it has under
//! way is part of the input, so a step is never asked for twice.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container as Spec, Pod};

use podwire_wire::ids::{ContainerId, ContainerName, SandboxId};

use crate::{
    labels,
    observed::{Container, Observed, RunState, Sandbox, Users},
    restart,
    spec::{self, Kind},
};

/// The most time between two sandboxes of a pod that die as soon as they are run.
const SANDBOXES_APART: SignedDuration = SignedDuration::from_secs(10);

/// What is wanted of the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Its containers run as the specification says.
    Run,
    /// Nothing of it runs any more; what it left behind stays readable.
    Stop,
    /// Nothing of it runs or lies here any more; only its object stays.
    Clear,
    /// Nothing of it is left.
    Gone,
}

/// How a preparation that may fail stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Not begun.
    #[default]
    Idle,
    /// Being done.
    Busy,
    /// Done.
    Done,
    /// Failed; may be tried again at the given time.
    Failed {
        /// When to try again.
        retry_at: Timestamp,
    },
}

/// How much of a pod is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TornDown {
    /// Nothing was torn down.
    #[default]
    Not,
    /// Nothing runs; what it left is still there.
    Stopped,
    /// Nothing is left.
    Removed,
}

/// What the worker knows besides the runtime's answers.
#[derive(Clone, Debug, Default)]
pub struct Progressing {
    /// Folders, cgroup and volumes.
    pub prepared: Progress,
    /// RunPodSandbox.
    pub sandbox: Progress,
    /// Image of a container for one attempt.
    pub images: BTreeMap<(ContainerName, u32), Progress>,
    /// Creation and start of a container.
    pub starts: BTreeMap<ContainerName, Progress>,
    /// Containers (by id) being killed.
    pub killing: BTreeSet<ContainerId>,
    /// Containers (by id) being started after they were only created.
    pub resuming: BTreeSet<ContainerId>,
    /// Whether the sandboxes are being stopped or removed.
    pub tearing_down: bool,
    /// How far the pod was torn down.
    pub torn_down: TornDown,
    /// Crash back-off per container name.
    pub backoff: BTreeMap<ContainerName, restart::Backoff>,
    /// Containers (by id) whose startup probe has succeeded, or that have none.
    pub started: BTreeSet<ContainerId>,
    /// Containers (by id) that a probe or hook has condemned, with the reason and a message.
    pub condemned: BTreeMap<ContainerId, String>,
    /// Attempt numbers that the API says are used up, for containers the runtime no longer has.
    pub floors: BTreeMap<ContainerName, u32>,
    /// Containers (by id) whose postStart hook still runs.
    pub hooked: BTreeSet<ContainerId>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make folders, cgroup and volumes.
    Prepare,
    /// Run a sandbox.
    RunSandbox {
        /// Attempt number to run it with.
        attempt: u32,
    },
    /// Stop one sandbox that is of no more use.
    DropSandbox {
        /// Its id.
        id: SandboxId,
    },
    /// See that the image for the next attempt of a container is there.
    EnsureImage {
        /// Container's name.
        container: ContainerName,
        /// Attempt it is for.
        attempt: u32,
    },
    /// Create and start a container.
    Start {
        /// Container's name.
        container: ContainerName,
        /// Attempt number to create it with.
        attempt: u32,
    },
    /// Start a container that was only created.
    Resume {
        /// Container's id.
        id: ContainerId,
        /// Container's name.
        container: ContainerName,
    },
    /// Stop a running container.
    Kill {
        /// Container's id.
        id: ContainerId,
        /// Container's name.
        container: ContainerName,
        /// Sentence for the event.
        why: String,
    },
    /// Stop every sandbox; remove them as well when the pod is to be gone.
    TearDown {
        /// Whether everything is removed.
        remove: bool,
    },
}

/// The steps to begin now, and when to look again even if nothing happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To begin now; they do not depend on each other.
    pub steps: Vec<Step>,
    /// When something becomes due by itself.
    pub wake: Option<Timestamp>,
}

impl Plan {
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |old| old.min(at)));
    }
}

/// What to do next for `pod`, given everything known at `now`.
pub fn next_steps(pod: &Pod, want: &Want, observed: &Observed, going: &Progressing, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    match want {
        Want::Run => run(pod, observed, going, now, &mut plan),
        Want::Stop => stop(pod, observed, going, false, &mut plan),
        Want::Clear | Want::Gone => stop(pod, observed, going, true, &mut plan),
    }
    plan
}

fn run(pod: &Pod, observed: &Observed, going: &Progressing, now: Timestamp, plan: &mut Plan) {
    let prepared = due(&going.prepared, now, plan);
    if prepared == Due::Now {
        plan.steps.push(Step::Prepare);
    }
    let Some(sandbox) = usable_sandbox(pod, observed) else {
        replace_sandbox(pod, observed, going, now, plan);
        return;
    };
    let sandbox = sandbox.to_owned();
    stray(observed, going, &sandbox, plan);
    // An event may tell of a sandbox whose RunPodSandbox or PodSandboxStatus is not answered yet; containers come after both.
    let ready = going.prepared == Progress::Done && going.sandbox != Progress::Busy;
    let mut scene = Scene { pod, observed, going, now, sandbox: &sandbox, may_start: ready, plan };
    scene.ephemeral();
    if scene.init() {
        scene.apps();
    }
}

/// The newest sandbox if containers may run in it.
fn usable_sandbox<'a>(pod: &Pod, observed: &'a Observed) -> Option<&'a str> {
    let sandbox = observed.ready_sandbox()?;
    let host = spec::host_network(pod);
    // A kubelet before this one ran every pod with the node's users, whatever it asked for.
    let own = spec::spec(pod).host_users == Some(false);
    let fits = sandbox.host_network.is_none_or(|h| h == host)
        && (host || !sandbox.ips.is_empty())
        && (!own || sandbox.users != Some(Users::Node));
    fits.then_some(sandbox.id.as_str())
}

fn replace_sandbox(pod: &Pod, observed: &Observed, going: &Progressing, now: Timestamp, plan: &mut Plan) {
    let newest = observed.sandboxes.first();
    if newest.is_some() && !wants_new_sandbox(pod, observed) {
        return;
    }
    // Containers of a sandbox that is of no more use are stopped before another one is run.
    let mut waiting = false;
    for container in observed.containers.values().filter(|c| is_alive(c)) {
        waiting = true;
        kill(going, container, "Pod sandbox changed, it will be killed and re-created.", plan);
    }
    if let Some(broken) = observed.sandboxes.iter().find(|s| s.ready) {
        waiting = true;
        if !going.tearing_down {
            plan.steps.push(Step::DropSandbox { id: broken.id.clone() });
        }
    }
    if waiting {
        return;
    }
    if due(&going.sandbox, now, plan) == Due::Now
        && !matches!(going.prepared, Progress::Failed { .. })
        && newest.is_none_or(|last| may_follow(last, now, plan))
    {
        plan.steps.push(Step::RunSandbox { attempt: newest.map_or(0, |s| s.attempt + 1) });
    }
    if newest.is_none() {
        prefetch(pod, observed, going, now, plan);
    }
}

/// Whether another sandbox may follow this one by now. One that lived for a while, and the first of a pod, are followed at once;
/// after that, sandboxes that die as soon as they are run come further and further apart.
fn may_follow(last: &Sandbox, now: Timestamp, plan: &mut Plan) -> bool {
    let apart = SignedDuration::from_secs((1 << last.attempt.min(5)) - 1).min(SANDBOXES_APART);
    let created = Timestamp::from_nanosecond(i128::from(last.created_at)).unwrap_or(now).min(now);
    let at = created.checked_add(apart).unwrap_or(Timestamp::MAX);
    if at > now {
        plan.wake_at(at);
    }
    at <= now
}

/// Images are looked for while the sandbox is being set up: those that can start first.
fn prefetch(pod: &Pod, observed: &Observed, going: &Progressing, now: Timestamp, plan: &mut Plan) {
    let init = spec::init_containers(pod);
    let first: &[Spec] = if init.is_empty() { &spec::spec(pod).containers } else { &init[..1] };
    for container in first {
        ensure_image(container, next_attempt(observed, going, &container.name), going, now, plan);
    }
}

/// Whether a pod whose sandbox died is worth a new one.
fn wants_new_sandbox(pod: &Pod, observed: &Observed) -> bool {
    if observed.containers.is_empty() {
        return true;
    }
    if spec::restart_policy(pod) == "Never" {
        // Upstream: with attempts behind it, a pod that never restarts is left as it is.
        return false;
    }
    spec::spec(pod).containers.iter().any(|c| match observed.newest(&c.name) {
        None => true,
        Some(newest) => {
            newest.state != RunState::Exited || restart::should_restart(pod, Kind::App, c, newest)
        }
    })
}

/// Containers that live on in older sandboxes are stopped.
fn stray(observed: &Observed, going: &Progressing, sandbox: &str, plan: &mut Plan) {
    for container in observed.containers.values().filter(|c| is_alive(c)) {
        if !container.sandbox.is_empty() && container.sandbox != sandbox {
            kill(going, container, "Pod sandbox changed, it will be killed and re-created.", plan);
        }
    }
}

/// What one round of decisions looks at.
struct Scene<'a> {
    pod: &'a Pod,
    observed: &'a Observed,
    going: &'a Progressing,
    now: Timestamp,
    sandbox: &'a str,
    /// Whether the next container may be started; false once an earlier one is still on its way.
    may_start: bool,
    plan: &'a mut Plan,
}

impl Scene<'_> {
    /// The newest container of this name in the current sandbox.
    fn current(&self, name: &str) -> Option<&Container> {
        self.observed.newest(name).filter(|c| c.sandbox == self.sandbox || c.sandbox.is_empty())
    }

    /// Works on init containers; true when app containers may run.
    fn init(&mut self) -> bool {
        let pod = self.pod;
        let init = spec::init_containers(pod);
        let apps_begun = spec::spec(pod).containers.iter().any(|c| self.current(&c.name).is_some());
        let reached = init.iter().rposition(|c| self.current(&c.name).is_some());
        for (index, container) in init.iter().enumerate() {
            let kind = spec::init_kind(container);
            let passed = apps_begun || reached.is_some_and(|r| index < r);
            let done = match kind {
                Kind::Sidecar => self.sidecar(container, passed),
                _ => passed || self.init_step(container),
            };
            if !done && !apps_begun {
                return false;
            }
        }
        true
    }

    /// One ordinary init container that is next in line; true when it has done its work.
    fn init_step(&mut self, container: &Spec) -> bool {
        let Some(newest) = self.current(&container.name).cloned() else {
            self.advance(container);
            return false;
        };
        match newest.state {
            RunState::Exited if newest.exit_code == 0 => return true,
            RunState::Exited => {
                if restart::should_restart(self.pod, Kind::Init, container, &newest) {
                    self.restart_after(container, &newest);
                }
            }
            RunState::Created => self.advance(container),
            RunState::Running => self.examine(container, &newest),
            RunState::Unknown => kill(self.going, &newest, &in_unknown_state(&newest), self.plan),
        }
        false
    }

    /// A sidecar; true when those after it may start.
    fn sidecar(&mut self, container: &Spec, passed: bool) -> bool {
        self.keep_running(Kind::Sidecar, container);
        let up = self.current(&container.name).is_some_and(|c| {
            c.state == RunState::Running
                && self.going.started.contains(&c.id)
                && !self.going.hooked.contains(&c.id)
        });
        up || passed
    }

    fn apps(&mut self) {
        let pod = self.pod;
        for container in &spec::spec(pod).containers {
            self.keep_running(Kind::App, container);
        }
    }

    fn ephemeral(&mut self) {
        for container in spec::ephemeral_containers(self.pod) {
            if self.current(&container.name).is_none_or(|c| c.state == RunState::Created) {
                self.advance(&container);
            }
        }
    }

    /// Keeps a container running as its restart policy says.
    fn keep_running(&mut self, kind: Kind, container: &Spec) {
        let Some(newest) = self.current(&container.name).cloned() else {
            let died_before = self.observed.newest(&container.name).cloned();
            match died_before {
                Some(old) if !restart::should_restart(self.pod, kind, container, &old) => {}
                _ => self.advance(container),
            }
            return;
        };
        match newest.state {
            RunState::Created => self.advance(container),
            RunState::Running => self.examine(container, &newest),
            RunState::Unknown => kill(self.going, &newest, &in_unknown_state(&newest), self.plan),
            RunState::Exited if restart::should_restart(self.pod, kind, container, &newest) => {
                self.restart_after(container, &newest);
            }
            RunState::Exited => {}
        }
    }

    /// A running container may be condemned, or made from an older specification.
    fn examine(&mut self, container: &Spec, newest: &Container) {
        if let Some(why) = self.going.condemned.get(&newest.id) {
            let why = why.clone();
            kill(self.going, newest, &why, self.plan);
        } else if !newest.hash.is_empty() && newest.hash != labels::hash(container) {
            let why = format!("Container {} definition changed, will be restarted", container.name);
            kill(self.going, newest, &why, self.plan);
        }
    }

    fn restart_after(&mut self, container: &Spec, newest: &Container) {
        let until = self.going.backoff.get(container.name.as_str()).map(|b| b.until(newest.finished_at));
        match until {
            Some(at) if at > self.now => self.plan.wake_at(at),
            _ => self.advance(container),
        }
    }

    /// Brings a container that should run one step closer to running.
    fn advance(&mut self, container: &Spec) {
        if let Some(created) = self.current(&container.name).filter(|c| c.state == RunState::Created) {
            let busy = self.going.starts.get(container.name.as_str()) == Some(&Progress::Busy);
            if !busy && self.may_start && !self.going.resuming.contains(&created.id) {
                let step = Step::Resume { id: created.id.clone(), container: container.name.as_str().into() };
                self.plan.steps.push(step);
            }
            return;
        }
        let attempt = next_attempt(self.observed, self.going, &container.name);
        match ensure_image(container, attempt, self.going, self.now, self.plan) {
            Image::There if self.may_start => {}
            // An image that is being fetched holds back those after it, one that cannot be had does not.
            Image::Coming => {
                self.may_start = false;
                return;
            }
            _ => return,
        }
        // Containers are started in order, one at a time; a postStart hook holds back those after it.
        let busy = self.going.starts.values().any(|p| *p == Progress::Busy) || self.starting_now();
        let hooked = self.going.hooked.iter().any(|id| self.observed.containers.contains_key(id));
        if busy || hooked {
            return;
        }
        let progress = self.going.starts.get(container.name.as_str()).cloned().unwrap_or_default();
        let progress = if progress == Progress::Done { Progress::Idle } else { progress };
        if due(&progress, self.now, self.plan) == Due::Now {
            self.plan.steps.push(Step::Start { container: container.name.as_str().into(), attempt });
        }
    }

    fn starting_now(&self) -> bool {
        self.plan.steps.iter().any(|s| matches!(s, Step::Start { .. }))
    }
}

enum Image {
    There,
    Coming,
    Failed,
}

/// Asks for the image if need be.
fn ensure_image(
    container: &Spec,
    attempt: u32,
    going: &Progressing,
    now: Timestamp,
    plan: &mut Plan,
) -> Image {
    let progress = going.images.get(&(container.name.as_str().into(), attempt)).cloned().unwrap_or_default();
    match due(&progress, now, plan) {
        Due::Now => {
            plan.steps.push(Step::EnsureImage { container: container.name.as_str().into(), attempt });
            if matches!(progress, Progress::Failed { .. }) { Image::Failed } else { Image::Coming }
        }
        Due::Later if progress == Progress::Busy => Image::Coming,
        Due::Later => Image::Failed,
        Due::Done => Image::There,
    }
}

/// The attempt number a new container of this name gets.
pub fn next_attempt(observed: &Observed, going: &Progressing, name: &str) -> u32 {
    let floor = going.floors.get(name).copied().unwrap_or_default();
    observed.newest(name).map_or(floor, |c| c.attempt + 1)
}

#[derive(PartialEq, Eq)]
enum Due {
    Now,
    Later,
    Done,
}

fn due(progress: &Progress, now: Timestamp, plan: &mut Plan) -> Due {
    match progress {
        Progress::Idle => Due::Now,
        Progress::Busy => Due::Later,
        Progress::Done => Due::Done,
        Progress::Failed { retry_at } if *retry_at <= now => Due::Now,
        Progress::Failed { retry_at } => {
            plan.wake_at(*retry_at);
            Due::Later
        }
    }
}

fn is_alive(container: &Container) -> bool {
    matches!(container.state, RunState::Running | RunState::Unknown)
}

fn kill(going: &Progressing, container: &Container, why: &str, plan: &mut Plan) {
    if !going.killing.contains(&container.id) {
        plan.steps.push(Step::Kill {
            id: container.id.clone(),
            container: container.name.as_str().into(),
            why: why.to_owned(),
        });
    }
}

/// Stops everything: app containers first, then sidecars from the last to the first, then the sandboxes.
fn stop(pod: &Pod, observed: &Observed, going: &Progressing, remove: bool, plan: &mut Plan) {
    let sidecars: Vec<&str> = spec::init_containers(pod)
        .iter()
        .filter(|c| spec::init_kind(c) == Kind::Sidecar)
        .map(|c| c.name.as_str())
        .collect();
    let is_sidecar = |c: &&Container| sidecars.contains(&c.name.as_str());
    let mut running = false;
    for container in observed.containers.values().filter(|c| is_alive(c) && !is_sidecar(c)) {
        running = true;
        kill(going, container, &stopping(container), plan);
    }
    for name in sidecars.iter().rev() {
        if running {
            break;
        }
        for container in observed.named(name).filter(|c| is_alive(c)) {
            running = true;
            kill(going, container, &stopping(container), plan);
        }
    }
    let in_flight = going.sandbox == Progress::Busy
        || going.prepared == Progress::Busy
        || !going.killing.is_empty()
        || !going.resuming.is_empty()
        || going.starts.values().any(|p| *p == Progress::Busy);
    let wanted = if remove { TornDown::Removed } else { TornDown::Stopped };
    if !running && !in_flight && !going.tearing_down && going.torn_down < wanted {
        plan.steps.push(Step::TearDown { remove });
    }
}

fn in_unknown_state(container: &Container) -> String {
    format!("Container {} is in unknown state, try killing it before restart", container.name)
}

fn stopping(container: &Container) -> String {
    format!("Stopping container {}", container.name)
}

/// When a pod with `activeDeadlineSeconds` must end.
pub fn deadline(pod: &Pod, started: Option<Timestamp>) -> Option<Timestamp> {
    let seconds = spec::spec(pod).active_deadline_seconds?;
    started?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

#[cfg(test)]
mod tests;
