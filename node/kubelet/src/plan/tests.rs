//! Tests of the planner.

use serde_json::json;

use super::*;
use crate::observed::Sandbox;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}))
        .unwrap()
}

fn plain() -> Pod {
    pod(json!({"containers": [{"name": "app", "image": "i"}]}))
}

fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: id.into(),
        attempt,
        ready,
        created_at: i64::from(attempt) + 1,
        ips: vec!["10.0.0.1".into()],
        host_network: Some(false),
        users: None,
    }
}

fn container(name: &str, state: RunState, attempt: u32, exit_code: i32) -> Container {
    let status = podwire_wire::cri::ContainerStatus {
        id: format!("{name}-{attempt}"),
        metadata: Some(podwire_wire::cri::ContainerMetadata { name: name.into(), attempt }),
        ..Default::default()
    };
    Container { state, exit_code, finished_at: 100_000_000_000, ..Container::from_status(&status, "s") }
}

fn observed(sandboxes: Vec<Sandbox>, containers: Vec<Container>) -> Observed {
    let mut observed = Observed::default();
    for sandbox in sandboxes {
        observed.merge_sandbox(sandbox);
    }
    for container in containers {
        observed.merge_container(container);
    }
    observed
}

/// Prepared, with the images of the named containers and attempts there.
fn ready(images: &[(&str, u32)]) -> Progressing {
    Progressing {
        prepared: Progress::Done,
        images: images.iter().map(|(n, a)| (((*n).into(), *a), Progress::Done)).collect(),
        ..Default::default()
    }
}

fn steps(pod: &Pod, observed: &Observed, going: &Progressing) -> Vec<Step> {
    next_steps(pod, &Want::Run, observed, going, at(1000)).steps
}

fn start(name: &str, attempt: u32) -> Step {
    Step::Start { container: name.into(), attempt }
}

#[test]
fn a_new_pod_is_prepared_while_its_sandbox_and_image_are_fetched() {
    let all = steps(&plain(), &Observed::default(), &Progressing::default());
    let image = Step::EnsureImage { container: "app".into(), attempt: 0 };
    assert_eq!(all, [Step::Prepare, Step::RunSandbox { attempt: 0 }, image]);
}

#[test]
fn nothing_is_asked_for_twice() {
    let going = Progressing {
        prepared: Progress::Busy,
        sandbox: Progress::Busy,
        images: BTreeMap::from([(("app".into(), 0), Progress::Busy)]),
        ..Default::default()
    };
    assert!(steps(&plain(), &Observed::default(), &going).is_empty());
}

#[test]
fn a_container_waits_for_the_volumes() {
    let seen = observed(vec![sandbox("s", 0, true)], vec![]);
    let unprepared = Progressing { prepared: Progress::Busy, ..ready(&[("app", 0)]) };
    assert!(steps(&plain(), &seen, &unprepared).is_empty());
    assert_eq!(steps(&plain(), &seen, &ready(&[("app", 0)])), [start("app", 0)]);
}

#[test]
fn a_container_waits_for_the_answer_about_its_sandbox_also_when_an_event_was_faster() {
    let seen = observed(vec![sandbox("s", 0, true)], vec![]);
    let unanswered = Progressing { sandbox: Progress::Busy, ..ready(&[("app", 0)]) };
    assert!(steps(&plain(), &seen, &unanswered).is_empty());
}

#[test]
fn volumes_that_failed_hold_the_sandbox_back_until_their_retry() {
    let failed = Progressing { prepared: Progress::Failed { retry_at: at(2000) }, ..ready(&[("app", 0)]) };
    let plan = next_steps(&plain(), &Want::Run, &Observed::default(), &failed, at(1000));
    assert_eq!((plan.steps, plan.wake), (vec![], Some(at(2000))));
}

#[test]
fn containers_start_in_order_even_when_a_later_image_is_there_first() {
    let pod = pod(json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}));
    let seen = observed(vec![sandbox("s", 0, true)], vec![]);
    let mut going = ready(&[("b", 0)]);
    going.images.insert(("a".into(), 0), Progress::Busy);
    assert!(steps(&pod, &seen, &going).is_empty());
    going.images.insert(("a".into(), 0), Progress::Failed { retry_at: at(2000) });
    assert_eq!(steps(&pod, &seen, &going), [start("b", 0)], "an image that cannot be had holds nobody back");
}

#[test]
fn a_post_start_hook_holds_back_the_next_container() {
    let pod = pod(json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}));
    let seen = observed(vec![sandbox("s", 0, true)], vec![container("a", RunState::Running, 0, 0)]);
    let mut going = ready(&[("a", 0), ("b", 0)]);
    going.hooked.insert("a-0".into());
    assert!(steps(&pod, &seen, &going).is_empty());
    going.hooked.clear();
    assert_eq!(steps(&pod, &seen, &going), [start("b", 0)]);
}

#[test]
fn the_next_init_container_waits_for_the_last_one_to_succeed() {
    let pod = pod(json!({"initContainers": [{"name": "i1", "image": "i"}, {"name": "i2", "image": "i"}],
        "containers": [{"name": "app", "image": "i"}]}));
    let going = ready(&[("i1", 0), ("i2", 0), ("app", 0)]);
    let boxed = vec![sandbox("s", 0, true)];
    assert_eq!(steps(&pod, &observed(boxed.clone(), vec![]), &going), [start("i1", 0)]);
    let running = observed(boxed.clone(), vec![container("i1", RunState::Running, 0, 0)]);
    assert!(steps(&pod, &running, &going).is_empty());
    let done = observed(boxed.clone(), vec![container("i1", RunState::Exited, 0, 0)]);
    assert_eq!(steps(&pod, &done, &going), [start("i2", 0)]);
    // The first one's corpse may have been removed since.
    let later = observed(boxed, vec![container("i2", RunState::Exited, 0, 0)]);
    assert_eq!(steps(&pod, &later, &going), [start("app", 0)]);
}

#[test]
fn a_sidecar_must_have_started_before_those_after_it() {
    let pod = pod(json!({"initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "app", "image": "i"}]}));
    let seen = observed(vec![sandbox("s", 0, true)], vec![container("side", RunState::Running, 0, 0)]);
    let mut going = ready(&[("app", 0)]);
    assert!(steps(&pod, &seen, &going).is_empty());
    going.started.insert("side-0".into());
    assert_eq!(steps(&pod, &seen, &going), [start("app", 0)]);
}

#[test]
fn a_sidecar_is_restarted_even_in_a_pod_that_never_restarts() {
    let pod = pod(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "side", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "app", "image": "i"}]}));
    let seen = observed(
        vec![sandbox("s", 0, true)],
        vec![container("side", RunState::Exited, 0, 1), container("app", RunState::Running, 0, 0)],
    );
    assert_eq!(steps(&pod, &seen, &ready(&[("side", 1)])), [start("side", 1)]);
}

#[test]
fn the_first_restart_is_at_once_and_the_next_waits_for_its_back_off() {
    let seen = observed(vec![sandbox("s", 0, true)], vec![container("app", RunState::Exited, 0, 1)]);
    let mut going = ready(&[("app", 1)]);
    assert_eq!(steps(&plain(), &seen, &going), [start("app", 1)]);
    going.backoff.insert("app".into(), restart::Backoff { wait: restart::INITIAL, raised: at(90) });
    let plan = next_steps(&plain(), &Want::Run, &seen, &going, at(105));
    assert_eq!((plan.steps, plan.wake), (vec![], Some(at(110))));
    let plan = next_steps(&plain(), &Want::Run, &seen, &going, at(110));
    assert_eq!(plan.steps, [start("app", 1)]);
}

#[test]
fn restart_policies_decide_by_exit_code() {
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 1, false),
    ] {
        let pod = pod(json!({"restartPolicy": policy, "containers": [{"name": "app", "image": "i"}]}));
        let seen = observed(vec![sandbox("s", 0, true)], vec![container("app", RunState::Exited, 0, code)]);
        let expected = if again { vec![start("app", 1)] } else { vec![] };
        assert_eq!(steps(&pod, &seen, &ready(&[("app", 1)])), expected, "{policy} {code}");
    }
}

#[test]
fn exit_code_rules_of_a_container_win_over_the_pods_policy() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "app", "image": "i",
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}]}));
    let ended =
        |code| observed(vec![sandbox("s", 0, true)], vec![container("app", RunState::Exited, 0, code)]);
    assert_eq!(steps(&pod, &ended(42), &ready(&[("app", 1)])), [start("app", 1)]);
    assert!(steps(&pod, &ended(41), &ready(&[("app", 1)])).is_empty());
}

#[test]
fn a_container_that_was_only_created_is_started_without_counting_a_restart() {
    let seen = observed(vec![sandbox("s", 0, true)], vec![container("app", RunState::Created, 0, 0)]);
    let resume = Step::Resume { id: "app-0".into(), container: "app".into() };
    assert_eq!(steps(&plain(), &seen, &ready(&[])), [resume]);
}

#[test]
fn a_dead_sandbox_is_followed_by_the_next_attempt_once_its_containers_are_stopped() {
    let alive = observed(vec![sandbox("s", 0, false)], vec![container("app", RunState::Running, 0, 0)]);
    let all = steps(&plain(), &alive, &ready(&[]));
    assert!(matches!(all.as_slice(), [Step::Kill { id, .. }] if id == "app-0"), "{all:?}");
    let dead = observed(vec![sandbox("s", 0, false)], vec![container("app", RunState::Exited, 0, 137)]);
    assert_eq!(steps(&plain(), &dead, &ready(&[])), [Step::RunSandbox { attempt: 1 }]);
}

#[test]
fn sandboxes_that_die_at_once_come_further_and_further_apart() {
    let after = |attempt: u32, seconds: i64| {
        let born = Sandbox { created_at: 1_000_000_000_000, ..sandbox("s", attempt, false) };
        let plan =
            next_steps(&plain(), &Want::Run, &observed(vec![born], vec![]), &ready(&[]), at(1000 + seconds));
        (plan.steps.contains(&Step::RunSandbox { attempt: attempt + 1 }), plan.wake)
    };
    assert_eq!(after(0, 0), (true, None));
    assert_eq!(after(1, 0), (false, Some(at(1001))));
    assert_eq!(after(1, 1), (true, None));
    assert_eq!(after(3, 6), (false, Some(at(1007))));
    assert_eq!(after(200, 9), (false, Some(at(1010))));
    assert_eq!(after(200, 10), (true, None));
    // A sandbox from the future (the clock was set back) is waited for no longer than any other.
    assert_eq!(after(1, -500).1, Some(at(501)));
}

#[test]
fn a_pod_that_never_restarts_gets_no_second_sandbox() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "app", "image": "i"}]}));
    let dead = observed(vec![sandbox("s", 0, false)], vec![container("app", RunState::Exited, 0, 137)]);
    assert!(steps(&pod, &dead, &ready(&[])).is_empty());
}

#[test]
fn a_sandbox_without_an_address_is_dropped() {
    let bare = Sandbox { ips: vec![], ..sandbox("s", 0, true) };
    let all = steps(&plain(), &observed(vec![bare], vec![]), &ready(&[]));
    assert_eq!(all, [Step::DropSandbox { id: "s".into() }]);
}

#[test]
fn a_changed_image_restarts_its_container() {
    let mut running = container("app", RunState::Running, 0, 0);
    running.hash = "other".into();
    let seen = observed(vec![sandbox("s", 0, true)], vec![running]);
    let all = steps(&plain(), &seen, &ready(&[]));
    assert!(matches!(&all[..], [Step::Kill { why, .. }] if why.contains("definition changed")), "{all:?}");
}

#[test]
fn a_condemned_container_is_killed_once() {
    let seen = observed(vec![sandbox("s", 0, true)], vec![container("app", RunState::Running, 0, 0)]);
    let mut going = ready(&[]);
    going.condemned.insert("app-0".into(), "it failed".into());
    assert_eq!(steps(&plain(), &seen, &going).len(), 1);
    going.killing.insert("app-0".into());
    assert!(steps(&plain(), &seen, &going).is_empty());
}

#[test]
fn stopping_ends_apps_then_sidecars_from_the_last_then_the_sandbox() {
    let pod = pod(json!({"initContainers": [{"name": "s1", "image": "i", "restartPolicy": "Always"},
        {"name": "s2", "image": "i", "restartPolicy": "Always"}], "containers": [{"name": "app", "image": "i"}]}));
    let names = ["app", "s2", "s1"];
    for round in 0..names.len() {
        let seen = names.iter().enumerate().map(|(at, name)| {
            container(name, if at < round { RunState::Exited } else { RunState::Running }, 0, 0)
        });
        let seen = observed(vec![sandbox("s", 0, true)], seen.collect());
        let plan = next_steps(&pod, &Want::Gone, &seen, &ready(&[]), at(0));
        assert!(matches!(&plan.steps[..], [Step::Kill { container, .. }] if container == names[round]));
    }
    let over = observed(vec![sandbox("s", 0, true)], vec![container("app", RunState::Exited, 0, 0)]);
    let plan = next_steps(&pod, &Want::Gone, &over, &ready(&[]), at(0));
    assert_eq!(plan.steps, [Step::TearDown { remove: true }]);
}

#[test]
fn a_pod_stopped_before_is_still_removed_when_it_is_deleted() {
    let over = observed(vec![sandbox("s", 0, false)], vec![container("app", RunState::Exited, 0, 0)]);
    let going = Progressing { torn_down: TornDown::Stopped, ..ready(&[]) };
    assert!(next_steps(&plain(), &Want::Stop, &over, &going, at(0)).steps.is_empty());
    for want in [Want::Clear, Want::Gone] {
        let plan = next_steps(&plain(), &want, &over, &going, at(0));
        assert_eq!(plan.steps, [Step::TearDown { remove: true }], "{want:?}");
    }
}

#[test]
fn nothing_is_torn_down_while_a_sandbox_is_being_run() {
    let going = Progressing { sandbox: Progress::Busy, ..ready(&[]) };
    assert!(next_steps(&plain(), &Want::Gone, &Observed::default(), &going, at(0)).steps.is_empty());
}

#[test]
fn an_ephemeral_container_starts_beside_init_and_is_never_restarted() {
    let pod = pod(
        json!({"initContainers": [{"name": "i1", "image": "i"}], "containers": [{"name": "app", "image": "i"}],
        "ephemeralContainers": [{"name": "debug", "image": "d"}]}),
    );
    let init = container("i1", RunState::Running, 0, 0);
    let seen = observed(vec![sandbox("s", 0, true)], vec![init.clone()]);
    assert_eq!(steps(&pod, &seen, &ready(&[("debug", 0)])), [start("debug", 0)]);
    let over = observed(vec![sandbox("s", 0, true)], vec![init, container("debug", RunState::Exited, 0, 1)]);
    assert!(steps(&pod, &over, &ready(&[("debug", 1)])).is_empty());
}
