//! Tests of the status.

use serde_json::json;

use super::*;
use crate::observed::{Container, Sandbox};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn pod(spec: serde_json::Value) -> Pod {
    let json =
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec});
    serde_json::from_value(json).unwrap()
}

fn plain(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy, "containers": [{"name": "app", "image": "i"}]}))
}

fn container(name: &str, state: RunState, attempt: u32, exit_code: i32) -> Container {
    let status = podwire_wire::cri::ContainerStatus {
        id: format!("{name}-{attempt}"),
        metadata: Some(podwire_wire::cri::ContainerMetadata { name: name.into(), attempt }),
        started_at: 50_000_000_000,
        finished_at: if state == RunState::Exited { 100_000_000_000 } else { 0 },
        ..Default::default()
    };
    Container { state, exit_code, ..Container::from_status(&status, "s") }
}

fn observed(containers: Vec<Container>) -> Observed {
    let mut observed = Observed::default();
    observed.merge_sandbox(Sandbox {
        id: "s".into(),
        attempt: 0,
        ready: true,
        created_at: 1,
        ips: vec!["10.0.0.1".into(), "fd00::1".into()],
        host_network: Some(false),
        users: None,
    });
    for container in containers {
        observed.merge_container(container);
    }
    observed
}

#[derive(Default)]
struct Extra {
    waiting: BTreeMap<ContainerName, Waiting>,
    ready: BTreeSet<ContainerId>,
    started: BTreeSet<ContainerId>,
    backoff: BTreeMap<ContainerName, restart::Backoff>,
    last: Option<PodStatus>,
    stopping: bool,
    verdict: Option<Verdict>,
}

fn status(pod: &Pod, observed: &Observed, extra: &Extra) -> PodStatus {
    compute(&Facts {
        pod,
        observed,
        waiting: &extra.waiting,
        ready: &extra.ready,
        started: &extra.started,
        backoff: &extra.backoff,
        last: extra.last.as_ref(),
        runtime: "podwire",
        host_ips: &["192.0.2.1".to_owned()],
        stopping: extra.stopping,
        held_up: None,
        claimed: false,
        devices: &BTreeMap::new(),
        verdict: extra.verdict.as_ref(),
        resizing: &Resizing::default(),
        start_time: at(10),
        now: at(105),
    })
}

fn up() -> Extra {
    let ids = BTreeSet::from(["app-0".into()]);
    Extra { ready: ids.clone(), started: ids, ..Default::default() }
}

fn is(status: &PodStatus, name: &str) -> (String, Option<String>, Option<String>) {
    let c = find(status, name).unwrap();
    (c.status.clone(), c.reason.clone(), c.message.clone())
}

#[test]
fn a_pod_being_made_is_pending_and_its_containers_wait() {
    let status = status(&plain("Always"), &Observed::default(), &Extra::default());
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let state = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap();
    assert_eq!(state.waiting.unwrap().reason.as_deref(), Some("ContainerCreating"));
    assert_eq!(is(&status, "PodReadyToStartContainers").0, "False");
    let (ready, reason, message) = is(&status, "Ready");
    assert_eq!((ready.as_str(), reason.as_deref()), ("False", Some("ContainersNotReady")));
    assert_eq!(message.as_deref(), Some("containers with unready status: [app]"));
}

#[test]
fn a_running_pod_shows_its_addresses_and_is_ready() {
    let status = status(&plain("Always"), &observed(vec![container("app", RunState::Running, 0, 0)]), &up());
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.pod_ips.as_ref().unwrap().len(), 2);
    for name in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(is(&status, name).0, "True", "{name}");
    }
    let entry = &status.container_statuses.unwrap()[0];
    assert_eq!(entry.container_id.as_deref(), Some("podwire://app-0"));
    assert!(entry.ready && entry.started == Some(true));
}

#[test]
fn a_readiness_gate_holds_readiness_back() {
    let mut pod = plain("Always");
    pod.spec.as_mut().unwrap().readiness_gates =
        Some(vec![k8s_openapi::api::core::v1::PodReadinessGate { condition_type: "lb".into() }]);
    let seen = observed(vec![container("app", RunState::Running, 0, 0)]);
    let (ready, reason, message) = is(&status(&pod, &seen, &up()), "Ready");
    assert_eq!((ready.as_str(), reason.as_deref()), ("False", Some("ReadinessGatesNotReady")));
    assert_eq!(
        message.as_deref(),
        Some("corresponding condition of pod readiness gate \"lb\" does not exist.")
    );
}

#[test]
fn ended_pods_have_the_phase_of_their_exit_codes() {
    for (policy, codes, expected) in [
        ("Never", vec![0, 0], "Succeeded"),
        ("Never", vec![0, 1], "Failed"),
        ("OnFailure", vec![0, 0], "Succeeded"),
        ("OnFailure", vec![0, 1], "Running"),
        ("Always", vec![0, 0], "Running"),
    ] {
        let pod = pod(json!({"restartPolicy": policy,
            "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}));
        let all = ["a", "b"].iter().zip(&codes).map(|(n, c)| container(n, RunState::Exited, 0, *c)).collect();
        let status = status(&pod, &observed(all), &Extra::default());
        assert_eq!(status.phase.as_deref(), Some(expected), "{policy} {codes:?}");
    }
}

#[test]
fn a_pod_is_not_over_while_a_sidecar_runs() {
    let pod = pod(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "app", "image": "i"}]}));
    let app = container("app", RunState::Exited, 0, 0);
    let with = observed(vec![app.clone(), container("side", RunState::Running, 0, 0)]);
    assert_eq!(status(&pod, &with, &Extra::default()).phase.as_deref(), Some("Running"));
    let without = observed(vec![app, container("side", RunState::Exited, 0, 143)]);
    assert_eq!(status(&pod, &without, &Extra::default()).phase.as_deref(), Some("Succeeded"));
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let pod = pod(json!({"restartPolicy": "Never", "initContainers": [{"name": "i1", "image": "i"}],
        "containers": [{"name": "app", "image": "i"}]}));
    let status = status(&pod, &observed(vec![container("i1", RunState::Exited, 0, 1)]), &Extra::default());
    assert_eq!(status.phase.as_deref(), Some("Failed"));
}

#[test]
fn a_settled_phase_never_changes_again() {
    let last = PodStatus { phase: Some("Succeeded".into()), ..Default::default() };
    let extra = Extra { last: Some(last), ..up() };
    let seen = observed(vec![container("app", RunState::Running, 1, 0)]);
    assert_eq!(status(&plain("Never"), &seen, &extra).phase.as_deref(), Some("Succeeded"));
}

#[test]
fn a_container_in_back_off_waits_and_keeps_its_last_end() {
    let backoff = restart::Backoff { wait: restart::INITIAL, raised: at(90) };
    let extra = Extra { backoff: BTreeMap::from([("app".into(), backoff)]), ..Default::default() };
    let seen = observed(vec![container("app", RunState::Exited, 3, 1)]);
    let status = status(&plain("Always"), &seen, &extra);
    let entry = &status.container_statuses.as_ref().unwrap()[0];
    let waiting = entry.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(waiting.message.as_deref(), Some("back-off 10s restarting failed container=app pod=p_n(u)"));
    assert_eq!(entry.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 1);
    assert_eq!((entry.restart_count, status.phase.as_deref()), (3, Some("Running")));
}

#[test]
fn a_condition_keeps_its_time_until_it_changes() {
    let seen = observed(vec![container("app", RunState::Running, 0, 0)]);
    let mut first = status(&plain("Always"), &seen, &up());
    for condition in first.conditions.as_mut().unwrap() {
        condition.last_transition_time = Some(Time(at(60)));
    }
    let extra = Extra { last: Some(first), ready: BTreeSet::new(), ..up() };
    let second = status(&plain("Always"), &seen, &extra);
    assert_eq!(find(&second, "Initialized").unwrap().last_transition_time, Some(Time(at(60))));
    assert_eq!(find(&second, "Ready").unwrap().last_transition_time, Some(Time(at(105))));
}

#[test]
fn a_verdict_fails_the_pod_once_nothing_runs() {
    let verdict = Verdict { reason: "Evicted".into(), message: "out of memory".into(), disruption: true };
    let extra = Extra { verdict: Some(verdict), stopping: true, ..up() };
    let running = observed(vec![container("app", RunState::Running, 0, 0)]);
    assert_eq!(status(&plain("Always"), &running, &extra).phase.as_deref(), Some("Running"));
    let over = status(&plain("Always"), &observed(vec![container("app", RunState::Exited, 0, 0)]), &extra);
    assert_eq!((over.phase.as_deref(), over.reason.as_deref()), (Some("Failed"), Some("Evicted")));
    assert_eq!(is(&over, "Ready").1.as_deref(), Some("PodFailed"));
}

#[test]
fn a_deleted_pod_ends_with_the_phase_of_how_it_ended() {
    let mut pod = plain("Always");
    pod.metadata.deletion_timestamp = Some(Time(at(100)));
    let extra = Extra { stopping: true, ..Default::default() };
    for (code, expected) in [(0, "Succeeded"), (137, "Failed")] {
        let status = status(&pod, &observed(vec![container("app", RunState::Exited, 0, code)]), &extra);
        assert_eq!(status.phase.as_deref(), Some(expected));
        assert_eq!(is(&status, "PodReadyToStartContainers").0, "False", "said before the network is gone");
    }
}
