//! What a resize is made of: allocations, changes, what is told.

use serde_json::{Value, json};

use super::*;
use crate::admission::Refused;

fn pod(resources: Value) -> Pod {
    let container = json!({"name": "c", "image": "i", "resources": resources,
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"}]});
    let object = json!({"metadata": {"name": "p", "generation": 2}, "spec": {"containers": [container]}});
    serde_json::from_value(object).unwrap()
}

fn running(applied: cri::LinuxContainerResources) -> Observed {
    let status = cri::ContainerStatus {
        id: "id".into(),
        metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 0 }),
        state: cri::ContainerState::ContainerRunning as i32,
        resources: Some(cri::ContainerResources { linux: Some(applied) }),
        ..Default::default()
    };
    let mut observed = Observed::default();
    observed.merge_container(Container::from_status(&status, "box"));
    observed
}

fn applied(of: &Pod) -> cri::LinuxContainerResources {
    resources::linux(of, Kind::App, &spec::spec(of).containers[0], 8 << 30)
}

#[test]
fn a_pod_keeps_what_it_was_given_until_it_is_given_more() {
    let small = pod(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}));
    let large = Arc::new(pod(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})));
    let mut resizing = Resizing::default();
    let shown = resizing.hear(&Allocation::of(&small), large.clone());
    assert!(Allocation::of(&shown).is(&Allocation::of(&small)));
    assert!(Arc::ptr_eq(resizing.desired.as_ref().unwrap(), &large));
    // The wish is taken back: in other words, but the same amounts.
    let same = Arc::new(pod(json!({"requests": {"cpu": "0.1"}, "limits": {"cpu": "0.2"}})));
    resizing.pending = Some(Pending {
        unfit: Unfit::Now(Refused { reason: "OutOfcpu".into(), message: "no".into() }),
        generation: Some(2),
    });
    let shown = resizing.hear(&Allocation::of(&small), same.clone());
    assert!(Arc::ptr_eq(&shown, &same));
    assert!(resizing.desired.is_none() && resizing.pending.is_none());
}

#[test]
fn what_an_earlier_kubelet_gave_is_taken_over_and_what_is_asked_for_waits() {
    let mut asks = pod(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}));
    asks.status = serde_json::from_value(json!({
        "conditions": [{"type": "PodResizeInProgress", "status": "True", "observedGeneration": 1,
            "reason": "Error", "message": "busy"}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": "100m"},
            "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "1Gi"}}}]}))
    .unwrap();
    let (resizing, given) = Resizing::adopt(&Arc::new(asks));
    let expected = pod(json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "1Gi"}}));
    assert!(Allocation::of(&given).is(&Allocation::of(&expected)));
    assert!(resizing.desired.is_some());
    assert_eq!(resizing.progress, Some(InProgress { generation: Some(1), error: Some("busy".into()) }));
}

#[test]
fn only_what_differs_is_changed_and_restarted_only_where_that_was_asked_for() {
    let before = pod(json!({"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}));
    let observed = running(applied(&before));
    assert_eq!(changes(&before, &observed, 8 << 30), []);
    let cpu = pod(json!({"requests": {"cpu": "200m"}, "limits": {"memory": "64Mi"}}));
    let found = changes(&cpu, &observed, 8 << 30);
    assert_eq!((found.len(), found[0].restart, found[0].shrinks), (1, false, false));
    assert_eq!(found[0].wanted.cpu_shares, 204);
    let memory = pod(json!({"requests": {"cpu": "100m"}, "limits": {"memory": "32Mi"}}));
    let found = changes(&memory, &observed, 8 << 30);
    assert_eq!((found[0].restart, found[0].shrinks), (true, true));
}

#[test]
fn memory_is_not_lowered_below_what_is_used() {
    let change = |name: &str| Change {
        id: name.into(),
        name: name.into(),
        wanted: cri::LinuxContainerResources { memory_limit_in_bytes: 1000, ..Default::default() },
        shrinks: true,
        restart: false,
    };
    let usage = |id: &ContainerId| if *id == "a" { Some(1000) } else { Some(999) };
    assert_eq!(too_small(&[change("b")], usage), None);
    assert_eq!(
        too_small(&[change("a"), change("b")], usage).unwrap(),
        "cannot decrease memory limits: attempting to set container \"a\" memory limit (1000) below current \
         usage (1000)"
    );
    assert_eq!(
        too_small(&[change("a")], |_| None).unwrap(),
        "cannot decrease memory limits: missing container \"a\" memory usage"
    );
}

#[test]
fn a_status_shows_what_is_in_force() {
    let before = pod(
        json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "5m", "memory": "64Mi"}}),
    );
    let observed = running(applied(&before));
    let asks = pod(
        json!({"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "8m", "memory": "128Mi"}}),
    );
    let container = &spec::spec(&asks).containers[0];
    let shown = actual(container, observed.newest("c")).unwrap();
    let text = |list: &Option<Quantities>, name: &str| list.as_ref().unwrap()[name].0.clone();
    assert_eq!(text(&shown.requests, "cpu"), "100m");
    assert_eq!(text(&shown.limits, "memory"), (64 << 20).to_string());
    // The kernel tells neither from 10m.
    assert_eq!(text(&shown.limits, "cpu"), "8m");
    let same = actual(&spec::spec(&before).containers[0], observed.newest("c")).unwrap();
    assert_eq!(text(&same.limits, "memory"), "64Mi", "the same amount stays as it was written");
    assert_eq!(actual(container, None).as_ref(), container.resources.as_ref());
}

#[test]
fn conditions_say_what_is_in_the_way() {
    let refused = Refused { reason: "OutOfcpu".into(), message: "Node didn't have enough".into() };
    let resizing = Resizing {
        pending: Some(Pending { unfit: Unfit::Never(refused), generation: Some(3) }),
        progress: Some(InProgress { generation: Some(2), error: None }),
        ..Resizing::default()
    };
    let shown = resizing.conditions(None, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].type_.as_str(), shown[0].reason.as_deref()), (PENDING, Some("Infeasible")));
    assert_eq!(shown[0].message.as_deref(), Some("Node didn't have enough"));
    assert_eq!(shown[0].observed_generation, Some(3));
    assert_eq!((shown[1].type_.as_str(), shown[1].reason.as_deref()), (IN_PROGRESS, None));
    let told = told("Pod resize started", &pod(json!({"requests": {"cpu": "1"}})), Some(3), None);
    assert_eq!(
        told,
        r#"Pod resize started: {"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"generation":3}"#
    );
}
