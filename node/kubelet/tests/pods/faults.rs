//! What goes wrong, and what a restart of the kubelet finds.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Cluster, one, phase, restarts, waiting};
use crate::runtime::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_kubelet_adopts_what_runs_and_clears_what_was_deleted_meanwhile() {
    let mut cluster = Cluster::start().await;
    for name in ["stays", "goes", "ends"] {
        cluster.create(name, one("run:1")).await;
        cluster.running(name).await;
    }
    cluster.stop_kubelet().await;
    assert_eq!(cluster.fake.world.lock().unwrap().sandboxes.len(), 3, "containers outlive the kubelet");
    cluster.delete("goes", 0).await;
    cluster.delete("ends", 30).await;
    cluster.start_kubelet().await;
    cluster.gone("ends").await;
    cluster
        .eventually("only one is left", || async { cluster.fake.world.lock().unwrap().sandboxes.len() == 1 })
        .await;
    let pod = cluster.running("stays").await;
    assert_eq!(restarts(&pod), 0);
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 3, "nothing was made again");
    cluster.delete("stays", 1).await;
    cluster.gone("stays").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_end_was_told_before_the_kubelet_died_still_goes() {
    let mut cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    cluster.stop_kubelet().await;
    // The last run got as far as this: all is taken down and told, only the object is left.
    cluster.fake.world.lock().unwrap().sandboxes.clear();
    cluster.fake.world.lock().unwrap().containers.clear();
    cluster.delete("web", 30).await;
    let ended = json!({"status": {"phase": "Failed"}});
    let patch = Patch::Merge(&ended);
    cluster.pods().patch_status("web", &PatchParams::default(), &patch).await.unwrap();
    cluster.start_kubelet().await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_sandbox_is_replaced_with_the_next_attempt() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    let before = cluster.running("web").await;
    cluster.fake.kill_sandboxes();
    let pod = cluster
        .until("web", "in a new sandbox", |pod| {
            phase(pod) == "Running"
                && restarts(pod) == 1
                && pod.status.as_ref().unwrap().pod_ip != before.status.as_ref().unwrap().pod_ip
        })
        .await;
    assert_eq!(pod.status.unwrap().pod_ips.unwrap().len(), 1, "the old address is gone");
    let attempts: Vec<u32> = cluster
        .fake
        .world
        .lock()
        .unwrap()
        .sandboxes
        .values()
        .filter(|s| s.ready)
        .map(|s| s.config.metadata.as_ref().unwrap().attempt)
        .collect();
    assert_eq!(attempts, [1]);
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster
        .eventually("both are removed", || async { cluster.fake.world.lock().unwrap().sandboxes.is_empty() })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_shows_upstreams_reasons_and_the_pod_can_still_be_deleted() {
    let cluster = Cluster::start().await;
    cluster.create("web", one("absent:1")).await;
    cluster
        .until("web", "failing to pull", |pod| waiting(pod).is_some_and(|(r, _)| r == "ErrImagePull"))
        .await;
    let pod = cluster
        .until("web", "backing off", |pod| waiting(pod).is_some_and(|(r, _)| r == "ImagePullBackOff"))
        .await;
    assert!(waiting(&pod).unwrap().1.starts_with("Back-off pulling image \"absent:1\": "));
    assert_eq!(cluster.event("web", "Pulling").await, "Pulling image \"absent:1\"");
    let mut never = one("absent:1");
    never["containers"][0]["imagePullPolicy"] = json!("Never");
    cluster.create("never", never).await;
    let pod = cluster
        .until("never", "refused", |pod| waiting(pod).is_some_and(|(r, _)| r == "ErrImageNeverPull"))
        .await;
    assert_eq!(
        waiting(&pod).unwrap().1,
        "Container image \"absent:1\" is not present with pull policy of Never"
    );
    for name in ["web", "never"] {
        cluster.delete(name, 5).await;
        cluster.gone(name).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_fails_is_tried_again_and_says_why() {
    let cluster = Cluster::start().await;
    cluster.fake.world.lock().unwrap().fail_sandbox = Some("no network today".into());
    cluster.create("web", one("run:1")).await;
    let message = cluster.event("web", "FailedCreatePodSandBox").await;
    assert_eq!(message, "Failed to create pod sandbox: rpc error: code = Unknown desc = no network today");
    cluster.fake.world.lock().unwrap().fail_sandbox = None;
    cluster.running("web").await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_without_events_is_relisted() {
    an_end_is_noticed_when(|world| world.without_events = true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_whose_event_stream_opens_late_is_ready_at_once() {
    an_end_is_noticed_when(|world| world.late_events = true).await;
}

/// A container that ends is started again by a kubelet whose runtime is like that.
async fn an_end_is_noticed_when(like_that: impl FnOnce(&mut World)) {
    let mut cluster = Cluster::without_kubelet().await;
    like_that(&mut cluster.fake.world.lock().unwrap());
    cluster.start_kubelet().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    cluster.fake.end("app", 1);
    cluster.until("web", "restarted", |pod| restarts(pod) == 1 && phase(pod) == "Running").await;
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_the_node_has_no_room_for_is_turned_away() {
    let cluster = Cluster::start().await;
    let spec =
        json!({"containers": [{"name": "app", "image": "run:1", "resources": {"requests": {"cpu": "999"}}}]});
    cluster.create("big", spec).await;
    let pod = cluster.until("big", "failed", |pod| phase(pod) == "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert!(status.message.unwrap().starts_with("Pod was rejected: Node didn't have enough resource: cpu"));
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 0);
    cluster.delete("big", 0).await;
    cluster.gone("big").await;
    cluster.stop().await;
}

/// Between the look at what runs and the pod's worker nobody hears of the pod.
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_while_a_kubelet_starts_is_started_again() {
    let mut cluster = Cluster::start().await;
    cluster.create("one", one("run:1")).await;
    cluster.running("one").await;
    cluster.stop_kubelet().await;
    cluster.fake.world.lock().unwrap().looks = 0;
    cluster.hold_pods(true);
    cluster.start_kubelet().await;
    // Once for what there is to adopt, once for whose pods nobody knows; the pods come later.
    let looked = || async { cluster.fake.world.lock().unwrap().looks == 2 };
    cluster.eventually("the kubelet has looked at what runs", looked).await;
    cluster.fake.end_unheard("app", 0);
    cluster.hold_pods(false);
    cluster
        .eventually("what ended runs again", || async { cluster.fake.calls("create_container") == 2 })
        .await;
    cluster.running("one").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_a_pod_runs_again_and_the_restart_is_counted() {
    let mut cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    cluster.stop_kubelet().await;
    cluster.fake.reboot();
    cluster.start_kubelet().await;
    let pod = cluster.until("web", "restarted", |pod| restarts(pod) == 1 && phase(pod) == "Running").await;
    assert_eq!(pod.status.unwrap().pod_ips.unwrap().len(), 1);
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_only_created_is_started_by_the_next_kubelet() {
    let mut cluster = Cluster::start().await;
    cluster.create("web", one("run:1")).await;
    cluster.running("web").await;
    cluster.stop_kubelet().await;
    cluster.fake.unstart("app");
    cluster.start_kubelet().await;
    cluster.eventually("started again", || async { cluster.fake.calls("start_container") == 2 }).await;
    let pod = cluster.running("web").await;
    assert_eq!((restarts(&pod), cluster.fake.calls("create_container")), (0, 1));
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pod_long_gone_left_behind_is_swept() {
    let mut cluster = Cluster::without_kubelet().await;
    let root = cluster.dir.path().join("kubelet");
    let left = [root.join("pods/dead-1/volumes"), root.join("logs/default_web_dead-1/app")];
    for folder in &left {
        std::fs::create_dir_all(folder).unwrap();
    }
    let cgroup = podwire_linux::cgroup::group(&cluster.pod_cgroup("dead-2")).unwrap();
    cgroup.create().unwrap();
    cluster.start_kubelet().await;
    cluster
        .eventually("all swept", || async {
            !cgroup.exists()
                && !root.join("pods/dead-1").exists()
                && !root.join("logs/default_web_dead-1").exists()
        })
        .await;
    cluster.stop().await;
}
