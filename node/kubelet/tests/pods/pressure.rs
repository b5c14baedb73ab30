//! A disk that runs full: what goes, in which order, and what is given back.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use podwire_kubelet::Thresholds;
use podwire_wire::cri;
use serde_json::{Value, json};

use crate::cluster::{Cluster, condition, phase};

const MIB: usize = 1 << 20;

/// A cluster whose kubelet has a disk of 32 MiB, half of which must stay free.
struct Small {
    cluster: Option<Cluster>,
    root: PathBuf,
}

impl Drop for Small {
    fn drop(&mut self) {
        podwire_linux::mount::detach_all_under(&self.root).ok();
    }
}

impl Small {
    async fn start() -> Small {
        let mut cluster = Cluster::without_kubelet().await;
        let root = cluster.dir.path().join("kubelet");
        std::fs::create_dir(&root).unwrap();
        podwire_linux::mount::tmpfs(&root, 32 << 20, 0o755).unwrap();
        let period = Duration::from_millis(50);
        cluster
            .start_kubelet_with(|config| {
                config.eviction = Some(Thresholds { disk: 0.5, period, ..Thresholds::none() });
            })
            .await;
        Small { cluster: Some(cluster), root }
    }

    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().unwrap()
    }

    async fn stop(mut self) {
        self.cluster.take().unwrap().stop().await;
    }

    /// A pod that runs, with a folder to write to.
    async fn pod(&self, name: &str, volume: Value) -> (Pod, PathBuf) {
        let spec = json!({"volumes": [{"name": "scratch", "emptyDir": volume}], "containers": [
            {"name": "app", "image": "run:1", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}]});
        self.cluster().create(name, spec).await;
        let pod = self.cluster().running(name).await;
        let uid = pod.metadata.uid.clone().unwrap();
        let folder = self.root.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir/scratch");
        (pod, folder)
    }

    /// Waits for some more looks at the disk.
    async fn rounds(&self) {
        let fake = &self.cluster().fake;
        let before = fake.calls("image_fs_info");
        self.cluster().eventually("rounds", || async { fake.calls("image_fs_info") > before + 6 }).await;
    }
}

fn fill(file: &Path, size: usize) {
    std::fs::write(file, vec![1; size]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_that_fills_the_disk_is_evicted_and_gives_it_back() {
    let small = Small::start().await;
    let cluster = small.cluster();
    let (_, first) = small.pod("first", json!({})).await;
    let (big, folder) = small.pod("big", json!({})).await;
    let (_, last) = small.pod("last", json!({})).await;
    fill(&first.join("data"), MIB);
    fill(&last.join("data"), MIB);
    fill(&folder.join("data"), 15 * MIB);
    let evicted = cluster.until("big", "evicted", |pod| phase(pod) == "Failed").await;
    let status = evicted.status.as_ref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let message = status.message.clone().unwrap();
    let begin = "The node was low on resource: ephemeral-storage. Threshold quantity: 16Mi, available: ";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(condition(&evicted, "DisruptionTarget"), Some("True"));
    let uid = big.metadata.uid.unwrap();
    cluster
        .eventually("its files, logs and containers are gone", || async {
            let world = cluster.fake.world.lock().unwrap();
            !small.root.join("pods").join(&uid).exists()
                && !small.root.join(format!("logs/default_big_{uid}")).exists()
                && (world.sandboxes.len(), world.containers.len()) == (2, 2)
        })
        .await;
    small.rounds().await;
    for name in ["first", "last"] {
        assert_eq!(phase(&cluster.pods().get(name).await.unwrap()), "Running", "{name} took nothing");
    }
    let kept = cluster.pods().get("big").await.unwrap().status.unwrap();
    let ended = kept.container_statuses.unwrap()[0].state.clone().unwrap().terminated;
    assert!(ended.is_some(), "how it ended is still told");
    assert_eq!(cluster.told("big", "Evicted").await, 1);
    for name in ["first", "big", "last"] {
        cluster.delete(name, 1).await;
        cluster.gone(name).await;
    }
    small.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_images_and_pods_that_have_ended_go_before_any_that_runs() {
    let small = Small::start().await;
    let cluster = small.cluster();
    let done = json!({"restartPolicy": "Never", "containers": [{"name": "app", "image": "exit-0:1"}]});
    cluster.create("done", done).await;
    let done = cluster.until("done", "done", |pod| phase(pod) == "Succeeded").await;
    small.pod("web", json!({})).await;
    let image = |id: &str, tag: &str, pinned| {
        let file = small.root.join(id);
        let image = cri::Image { id: id.into(), repo_tags: vec![tag.into()], pinned, ..Default::default() };
        (image, file)
    };
    let images = [
        image("sha256-pause", "pause:1", true),
        image("sha256-used", "docker.io/library/run:1", false),
        image("sha256-old", "old:1", false),
    ];
    let large = images[2].1.clone();
    cluster.fake.world.lock().unwrap().images.extend(images);
    fill(&large, 17 * MIB);
    cluster.eventually("the image is removed", || async { !large.exists() }).await;
    small.rounds().await;
    let removed: Vec<String> = {
        let world = cluster.fake.world.lock().unwrap();
        assert_eq!(world.sandboxes.len(), 1, "what has ended is cleared away");
        world.calls.iter().filter(|call| call.starts_with("remove_image")).cloned().collect()
    };
    assert_eq!(removed, ["remove_image sha256-old"]);
    let uid = done.metadata.uid.unwrap();
    assert!(!small.root.join("pods").join(uid).exists());
    assert_eq!(phase(&cluster.pods().get("web").await.unwrap()), "Running");
    let kept = cluster.pods().get("done").await.unwrap();
    assert_eq!(phase(&kept), "Succeeded");
    let ended = kept.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated;
    assert_eq!(ended.unwrap().exit_code, 0);
    for name in ["web", "done"] {
        cluster.delete(name, 1).await;
        cluster.gone(name).await;
    }
    small.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overfull_volume_ends_its_pod_and_that_is_said_once() {
    let small = Small::start().await;
    let cluster = small.cluster();
    let (_, folder) = small.pod("web", json!({"sizeLimit": "1Mi"})).await;
    fill(&folder.join("data"), 2 * MIB);
    let pod = cluster.until("web", "evicted", |pod| phase(pod) == "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert_eq!(
        status.message.as_deref(),
        Some("Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". ")
    );
    small.rounds().await;
    assert_eq!(cluster.told("web", "Evicted").await, 1);
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    small.stop().await;
}
