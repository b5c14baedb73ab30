//! From bound to Running to gone.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use kube::runtime::watcher;
use serde_json::json;

use crate::cluster::{Cluster, condition, one, phase, restarts, waiting};

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_pod_runs_with_its_address_and_goes_without_a_trace() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    let pod = cluster.running("web").await;
    let status = pod.status.as_ref().unwrap();
    assert!(status.pod_ip.as_deref().unwrap().starts_with("10.9.0."));
    assert_eq!(status.host_ip.as_deref(), Some("127.0.0.1"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert!(status.start_time.is_some());
    for name in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&pod, name), Some("True"), "{name}");
    }
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert!(container.container_id.as_deref().unwrap().starts_with("fake://ctr"));
    assert_eq!((container.restart_count, container.started), (0, Some(true)));
    let uid = pod.metadata.uid.clone().unwrap();
    let folder = cluster.dir.path().join("kubelet/pods").join(&uid);
    assert!(folder.join("etc-hosts").exists());

    cluster.delete("web", 30).await;
    cluster.gone("web").await;
    assert!(cluster.fake.is_empty());
    assert!(!folder.exists(), "the pod's folder is removed");
    assert!(std::fs::read_dir(cluster.dir.path().join("kubelet/logs")).unwrap().next().is_none());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_one_after_another_before_the_apps() {
    let cluster = Cluster::start().await;
    let spec = json!({
        "initContainers": [
            {"name": "one", "image": "exit-0:1"},
            {"name": "side", "image": "run:1", "restartPolicy": "Always"},
            {"name": "two", "image": "exit-0:1"},
        ],
        "containers": [{"name": "app", "image": "run:1"}, {"name": "more", "image": "run:1"}],
    });
    cluster.create("web", spec).await;
    cluster.running("web").await;
    let calls = cluster.fake.world.lock().unwrap().calls.clone();
    let created: Vec<&str> = calls.iter().filter_map(|c| c.strip_prefix("create_container ")).collect();
    assert_eq!(created, ["one", "side", "two", "app", "more"]);
    cluster.delete("web", 5).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_is_stopped_after_the_apps() {
    let cluster = Cluster::start().await;
    let spec = json!({
        "initContainers": [{"name": "side", "image": "run:1", "restartPolicy": "Always"}],
        "containers": [{"name": "app", "image": "run:1"}],
    });
    cluster.create("web", spec).await;
    cluster.running("web").await;
    let ids: Vec<String> = cluster.fake.world.lock().unwrap().containers.keys().cloned().collect();
    cluster.delete("web", 5).await;
    cluster.gone("web").await;
    let calls = cluster.fake.world.lock().unwrap().calls.clone();
    let stops: Vec<&str> = calls
        .iter()
        .filter_map(|c| c.strip_prefix("stop_container "))
        .map(|c| c.split(' ').next().unwrap())
        .collect();
    assert_eq!(stops, [ids[1].as_str(), ids[0].as_str()]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_like_pod_ends_succeeded_or_failed() {
    let cluster = Cluster::start().await;
    for (name, image, expected) in [("good", "exit-0:1", "Succeeded"), ("bad", "exit-3:1", "Failed")] {
        let mut spec = one(image);
        spec["restartPolicy"] = json!("Never");
        cluster.create(name, spec).await;
        let pod = cluster.until(name, expected, |pod| phase(pod) == expected).await;
        let state =
            pod.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
        let reason = if expected == "Succeeded" { "Completed" } else { "Error" };
        assert_eq!(state.reason.as_deref(), Some(reason));
        cluster.delete(name, 0).await;
        cluster.gone(name).await;
    }
    cluster
        .eventually("the runtime is empty", || async {
            cluster.fake.world.lock().unwrap().sandboxes.is_empty()
        })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_container_is_restarted_at_once_and_then_backs_off() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("exit-1:1")).await;
    let pod = cluster
        .until("web", "backing off", |pod| {
            waiting(pod).is_some_and(|(reason, _)| reason == "CrashLoopBackOff")
        })
        .await;
    let (_, message) = waiting(&pod).unwrap();
    let uid = pod.metadata.uid.clone().unwrap();
    assert_eq!(message, format!("back-off 10s restarting failed container=app pod=web_default({uid})"));
    assert_eq!(restarts(&pod), 1);
    assert_eq!(phase(&pod), "Running");
    let told = cluster.event("web", "BackOff").await;
    assert_eq!(told, format!("Back-off restarting failed container app in pod web_default({uid})"));
    cluster
        .eventually("the second start is counted, not written again", || async {
            cluster.counts("web", "Started").await == [2]
        })
        .await;
    let last =
        pod.status.unwrap().container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 1);
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_heard_and_the_container_restarted() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    cluster.fake.end("app", 9);
    cluster.until("web", "restarted", |pod| restarts(pod) == 1 && phase(pod) == "Running").await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stubborn_container_gets_its_grace_and_a_shorter_one_shortens_it() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("stubborn:1")).await;
    cluster.running("web").await;
    cluster.delete("web", 3600).await;
    cluster.eventually("being stopped", || async { cluster.fake.calls("stop_container") == 1 }).await;
    let began = Instant::now();
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pre_stop_hook_runs_before_the_container_is_stopped() {
    let cluster = Cluster::start().await;
    let spec = json!({"containers": [{"name": "app", "image": "run:1", "lifecycle": {
        "postStart": {"exec": {"command": ["hello"]}}, "preStop": {"exec": {"command": ["bye"]}}}}]});
    cluster.create("web", spec).await;
    cluster.running("web").await;
    cluster.delete("web", 5).await;
    cluster.gone("web").await;
    let calls = cluster.fake.world.lock().unwrap().calls.clone();
    let at = |what: &str| {
        calls.iter().position(|c| c.starts_with(what)).unwrap_or_else(|| panic!("{what}: {calls:?}"))
    };
    assert!(at("start_container") < at("exec_sync hello"));
    assert!(at("exec_sync bye") < at("stop_container"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_liveness_probe_restarts_and_says_why() {
    let cluster = Cluster::start().await;
    let spec = json!({"containers": [{"name": "app", "image": "run:1", "livenessProbe":
        {"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1}}]});
    cluster.create("web", spec).await;
    cluster.running("web").await;
    cluster.fake.world.lock().unwrap().exec_exit = 1;
    cluster.until("web", "restarted", |pod| restarts(pod) >= 1).await;
    assert_eq!(
        cluster.event("web", "Killing").await,
        "Container app failed liveness probe, will be restarted"
    );
    assert!(cluster.event("web", "Unhealthy").await.starts_with("Liveness probe failed:"));
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_its_probe() {
    let cluster = Cluster::start().await;
    cluster.fake.world.lock().unwrap().exec_exit = 1;
    let spec = json!({"containers": [{"name": "app", "image": "run:1", "readinessProbe":
        {"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1}}]});
    cluster.create("web", spec).await;
    let pod = cluster.until("web", "running, not ready", |pod| phase(pod) == "Running").await;
    assert_eq!(condition(&pod, "Ready"), Some("False"));
    cluster.fake.world.lock().unwrap().exec_exit = 0;
    cluster.running("web").await;
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_past_its_deadline_fails() {
    let cluster = Cluster::start().await;
    let mut spec = one("run:1");
    spec["activeDeadlineSeconds"] = json!(1);
    cluster.create("web", spec).await;
    let pod = cluster.until("web", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
    cluster.delete("web", 0).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_pods_at_once_all_run_and_all_go() {
    let cluster = Cluster::start().await;
    let names: Vec<String> = (0..40).map(|n| format!("p{n}")).collect();
    for name in &names {
        cluster.create(name, one("run:1")).await;
    }
    for name in &names {
        cluster.running(name).await;
    }
    for name in &names {
        cluster.delete(name, 5).await;
    }
    for name in &names {
        cluster.gone(name).await;
    }
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 40, "one sandbox each");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_needs_one_status_to_run_and_one_to_go() {
    let cluster = Cluster::start().await;
    cluster.registered().await;
    let config = watcher::Config::default().fields("metadata.name=web");
    let mut events = watcher::watcher(cluster.pods(), config).boxed();
    cluster.create("web", one("run:1")).await;
    let mut seen: Vec<(bool, String)> = Vec::new();
    let watching = async {
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                    seen.push((pod.metadata.deletion_timestamp.is_some(), phase(&pod).to_owned()));
                    if seen.last().unwrap() == &(false, "Running".to_owned()) {
                        cluster.delete("web", 30).await;
                    }
                }
                watcher::Event::Delete(_) => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(crate::cluster::DEADLINE, watching).await.expect("the pod comes and goes");
    let expected = [(false, "Pending"), (false, "Running"), (true, "Running"), (true, "Succeeded")];
    assert_eq!(seen, expected.map(|(deleted, phase)| (deleted, phase.to_owned())));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_another_client_wrote_is_seen_for_a_while_and_then_set_right() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    let unready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}], "message": "not mine"}});
    let params = kube::api::PatchParams::default();
    let mut took = Duration::ZERO;
    // A change of the kubelet's own that is still on its way sets it right sooner: then once more.
    for _ in 0..3 {
        let begun = Instant::now();
        cluster.pods().patch_status("web", &params, &kube::api::Patch::Strategic(&unready)).await.unwrap();
        let pod = cluster.until("web", "unready", |pod| condition(pod, "Ready") == Some("False")).await;
        assert_eq!(pod.status.unwrap().message.as_deref(), Some("not mine"));
        let pod = cluster.running("web").await;
        assert_eq!(pod.status.unwrap().message, None);
        took = begun.elapsed();
        if took > Duration::from_secs(8) {
            break;
        }
    }
    assert!(took > Duration::from_secs(8), "set right after {took:?}");
    // What is set right is not written again and again.
    let version = cluster.pods().get("web").await.unwrap().metadata.resource_version;
    cluster.fake.end("app", 1);
    let pod = cluster.until("web", "restarted", |pod| restarts(pod) == 1 && phase(pod) == "Running").await;
    assert_ne!(pod.metadata.resource_version, version, "an own change goes out at once");
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}
