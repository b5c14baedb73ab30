//! Whom the node takes, whom it turns away, and who has to wait.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Node, node::v1::RuntimeClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, NODE, one, phase};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_port_that_many_pods_want_at_once_is_given_to_one() {
    let mut cluster = Cluster::without_kubelet().await;
    let names: Vec<String> = (0..16).map(|n| format!("p{n}")).collect();
    for name in &names {
        let mut spec = one("run:1");
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080}]);
        cluster.create(name, spec).await;
    }
    cluster.start_kubelet().await;
    let mut running = 0;
    for name in &names {
        let pod = cluster.until(name, "decided", |pod| matches!(phase(pod), "Running" | "Failed")).await;
        if phase(&pod) == "Running" {
            running += 1;
        } else {
            assert_eq!(pod.status.unwrap().reason.as_deref(), Some("NodePorts"));
        }
    }
    assert_eq!(running, 1);
    for name in &names {
        cluster.delete(name, 0).await;
        cluster.gone(name).await;
    }
    cluster.eventually("nothing is left", || async { cluster.fake.is_empty() }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_class_that_cannot_be_read_is_waited_for() {
    let mut cluster = Cluster::without_kubelet().await;
    let classes: Api<RuntimeClass> = Api::all(cluster.client.clone());
    let class: RuntimeClass =
        serde_json::from_value(json!({"metadata": {"name": "sealed"}, "handler": "vm"})).unwrap();
    classes.create(&PostParams::default(), &class).await.unwrap();
    let mut spec = one("run:1");
    spec["runtimeClassName"] = json!("sealed");
    cluster.create("web", spec).await;
    classes.delete("sealed", &DeleteParams::default()).await.unwrap();
    cluster.start_kubelet().await;
    let message = cluster.event("web", "FailedCreatePodSandBox").await;
    assert_eq!(message, "Failed to create pod sandbox: runtimeclass.node.k8s.io \"sealed\" not found");
    assert_eq!(
        cluster.fake.calls("run_pod_sandbox"),
        0,
        "nothing runs in another sandbox than was asked for"
    );
    classes.create(&PostParams::default(), &class).await.unwrap();
    cluster.running("web").await;
    assert_eq!(cluster.fake.world.lock().unwrap().handlers, ["vm"]);
    cluster.delete("web", 1).await;
    cluster.gone("web").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_claims_nobody_here_can_serve_never_runs_without_them() {
    let cluster = Cluster::start().await;
    let mut spec = one("run:1");
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "g1"}]);
    cluster.create("device", spec).await;
    let message = cluster.event("device", "FailedPrepareDynamicResources").await;
    assert_eq!(
        message,
        "Failed to prepare dynamic resources: prepare dynamic resources: fetch ResourceClaim g1: \
         resourceclaims.resource.k8s.io \"g1\" not found"
    );
    let mut spec = one("run:1");
    spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    cluster.create("volume", spec).await;
    let message = cluster.event("volume", "FailedMount").await;
    assert!(message.starts_with("MountVolume.SetUp failed for volume \"v\" : "), "{message}");
    for name in ["device", "volume"] {
        assert_eq!(phase(&cluster.pods().get(name).await.unwrap()), "Pending", "{name}");
        cluster.delete(name, 0).await;
        cluster.gone(name).await;
    }
    assert_eq!(cluster.fake.calls("create_container"), 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_api_cannot_pass_for_one_of_the_nodes_own() {
    let cluster = Cluster::start().await;
    let pod = json!({"metadata": {"name": "sly", "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {"nodeName": NODE, "automountServiceAccountToken": false,
            "containers": [{"name": "app", "image": "run:1"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    cluster.pods().create(&PostParams::default(), &pod).await.unwrap();
    cluster.running("sly").await;
    cluster.delete("sly", 1).await;
    cluster.gone("sly").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_known_by_the_name_it_was_given() {
    let cluster = Cluster::start().await;
    cluster.registered().await;
    let node = Api::<Node>::all(cluster.client.clone()).get(NODE).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["kubernetes.io/hostname"], NODE);
    let addresses = node.status.unwrap().addresses.unwrap();
    let shown = addresses.iter().find(|address| address.type_ == "Hostname").unwrap();
    assert_eq!(shown.address, NODE);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_is_not_for_pods() {
    let mut cluster = Cluster::without_kubelet().await;
    let reserved = podwire_kubelet::Reserved { milli_cpu: 500, memory: 1 << 28, storage: 1 << 20 };
    cluster
        .start_kubelet_with(|config| {
            config.reserved = reserved;
            config.eviction =
                Some(podwire_kubelet::Thresholds { memory: 1 << 20, ..podwire_kubelet::Thresholds::none() });
        })
        .await;
    cluster.registered().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let status = nodes.get(NODE).await.unwrap().status.unwrap();
    let amount = |list: &Option<BTreeMap<String, Quantity>>, name: &str| {
        let text = &list.as_ref().unwrap()[name].0;
        podwire_api::quantity::Quantity::parse(text).unwrap()
    };
    let kept = |name: &str| amount(&status.capacity, name).minus(&amount(&status.allocatable, name));
    assert_eq!(kept("cpu").milli_value(), 500);
    assert_eq!(kept("memory").value(), (1 << 28) + (1 << 20), "and what evictions keep free");
    assert_eq!(kept("ephemeral-storage").value(), 1 << 20);
    let mut spec = one("run:1");
    let all = status.capacity.as_ref().unwrap()["cpu"].0.clone();
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": all}});
    cluster.create("all", spec).await;
    let pod = cluster.until("all", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("OutOfcpu"));
    let pods = podwire_linux::cgroup::group(&podwire_kubelet::paths::pods_cgroup(&cluster.cgroup)).unwrap();
    let most = amount(&status.capacity, "memory").value() - (1 << 28);
    cluster
        .eventually("the kernel keeps to it", || async {
            // The kernel rounds to whole pages.
            pods.stats()
                .memory
                .limit
                .and_then(|limit| i64::try_from(limit).ok())
                .is_some_and(|l| most - l < 4096)
        })
        .await;
    cluster.delete("all", 0).await;
    cluster.gone("all").await;
    cluster.stop().await;
}
