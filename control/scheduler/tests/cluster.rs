//! The scheduler against the real API server, in process: pods in, bindings, conditions and events out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use podwire_apiserver::{Config as ServerConfig, Identity};
use podwire_scheduler::Config;
use podwire_store::{Embedded, EmbeddedConfig};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);

/// An API server and a scheduler that live as long as the test.
struct Cluster {
    client: Client,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    store: Embedded,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server =
            ServerConfig::new(Arc::new(store.clone()), dir.path().join("pki"), listen).build().await.unwrap();
        let client = Client::new(server.client(Identity::admin()), "default");
        let scheduler = podwire_client::Client::new(server.client(Identity::scheduler()), "default");
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        // Pods are refused without the service account that a controller makes in a whole cluster.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::default_namespaced(client.clone());
        accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.ok();
        tasks.spawn(Config::new(scheduler).build().await.unwrap().run(shutdown.clone()));
        Self { client, shutdown, tasks, store, _dir: dir }
    }

    async fn stop(mut self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, async { while self.tasks.join_next().await.is_some() {} })
            .await
            .expect("all participants come to rest");
        self.store.close().await;
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn node(&self, name: &str, cpu: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let resources = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
        let status = json!({"status": {"capacity": resources, "allocatable": resources, "conditions":
            [{"type": "Ready", "status": "True"}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        // What the node controller does once a node is ready.
        let untaint = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(name, &PatchParams::default(), &untaint).await.unwrap();
    }

    async fn create(&self, pod: Value) -> Pod {
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Waits on a watch until the pod satisfies `wanted`.
    async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher(self.pods(), config).boxed();
        let waiting = async {
            while let Some(event) = events.try_next().await.unwrap() {
                if let watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) = event
                    && wanted(&pod)
                {
                    return pod;
                }
            }
            panic!("the watch ended")
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(pod) => pod,
            Err(_) => panic!("not in time: {:#?}", self.pods().get(name).await),
        }
    }

    async fn events(&self, pod: &str, reason: &str) -> Vec<Event> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let fields = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        let begun = Instant::now();
        loop {
            let mut found = api.list(&fields).await.unwrap().items;
            found.retain(|event| event.reason.as_deref() == Some(reason));
            if !found.is_empty() || begun.elapsed() > DEADLINE {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn pod(name: &str, spec: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    if object["spec"]["containers"].is_null() {
        object["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
    }
    object
}

fn cpu(name: &str, amount: &str) -> Value {
    pod(
        name,
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]}),
    )
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_bound_and_the_event_says_where() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4").await;
    cluster.create(pod("web", json!({}))).await;
    let bound = cluster.until("web", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("n1"));
    assert_eq!(condition(&bound, "PodScheduled").unwrap().status, "True");
    let events = cluster.events("web", "Scheduled").await;
    assert_eq!(events[0].message.as_deref(), Some("Successfully assigned default/web to n1"));
    assert_eq!(events[0].reporting_component.as_deref(), Some("default-scheduler"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_fits_nowhere_says_why_and_is_bound_when_room_appears() {
    let cluster = Cluster::start().await;
    cluster.node("small", "1").await;
    cluster.create(cpu("big", "2")).await;
    let waiting = cluster.until("big", |pod| condition(pod, "PodScheduled").is_some()).await;
    let found = condition(&waiting, "PodScheduled").unwrap();
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
                   0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!((found.status.as_str(), found.reason.as_deref()), ("False", Some("Unschedulable")));
    assert_eq!(found.message.as_deref(), Some(message));
    let events = cluster.events("big", "FailedScheduling").await;
    assert_eq!((events[0].message.as_deref(), events[0].type_.as_deref()), (Some(message), Some("Warning")));
    cluster.node("large", "4").await;
    let bound = cluster.until("big", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("large"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_pods_that_ask_for_this_scheduler_and_have_no_gates_are_bound() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4").await;
    cluster.create(pod("foreign", json!({"schedulerName": "another"}))).await;
    cluster.create(pod("gated", json!({"schedulingGates": [{"name": "example.com/wait"}]}))).await;
    cluster.create(pod("plain", json!({}))).await;
    cluster.until("plain", |pod| node_of(pod).is_some()).await;
    for name in ["foreign", "gated"] {
        assert_eq!(node_of(&cluster.pods().get(name).await.unwrap()), None, "{name}");
    }
    let ungate = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    cluster.pods().patch("gated", &PatchParams::default(), &ungate).await.unwrap();
    cluster.until("gated", |pod| node_of(pod).is_some()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_leaves_makes_room_for_one_that_waits() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "1").await;
    cluster.create(cpu("first", "1")).await;
    cluster.until("first", |pod| node_of(pod).is_some()).await;
    cluster.create(cpu("second", "1")).await;
    cluster
        .until("second", |pod| condition(pod, "PodScheduled").is_some_and(|one| one.status == "False"))
        .await;
    cluster.pods().delete("first", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.until("second", |pod| node_of(pod).is_some()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_more_important_pod_takes_the_place_of_a_lesser_one() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "1").await;
    cluster.create(cpu("lesser", "1")).await;
    cluster.until("lesser", |pod| node_of(pod).is_some()).await;
    let mut important = cpu("important", "1");
    important["spec"]["priorityClassName"] = json!("system-node-critical");
    cluster.create(important).await;
    let evicted = cluster.until("lesser", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(
        condition(&evicted, "DisruptionTarget").unwrap().reason.as_deref(),
        Some("PreemptionByScheduler")
    );
    let nominated = |pod: &Pod| pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    cluster.until("important", |pod| nominated(pod).as_deref() == Some("n1")).await;
    assert_eq!(cluster.events("lesser", "Preempted").await.len(), 1);
    // The kubelet's last word.
    cluster.pods().delete("lesser", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.until("important", |pod| node_of(pod).is_some()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_spread_evenly_and_no_node_is_overcommitted() {
    let cluster = Cluster::start().await;
    for name in ["n1", "n2", "n3", "n4"] {
        cluster.node(name, "5").await;
    }
    let begun = Instant::now();
    let mut creations = JoinSet::new();
    for n in 0..200 {
        let pods = cluster.pods();
        let object = serde_json::from_value(cpu(&format!("p{n}"), "100m")).unwrap();
        creations.spawn(async move { pods.create(&PostParams::default(), &object).await.unwrap() });
    }
    creations.join_all().await;
    let created = begun.elapsed();
    let mut per_node = std::collections::BTreeMap::new();
    loop {
        per_node.clear();
        for pod in cluster.pods().list(&ListParams::default()).await.unwrap() {
            if let Some(node) = node_of(&pod) {
                *per_node.entry(node.to_owned()).or_insert(0) += 1;
            }
            assert!(!pod.name_any().is_empty());
        }
        if per_node.values().sum::<usize>() == 200 {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "bound so far: {per_node:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("200 pods: created after {created:?}, all bound after {:?}", begun.elapsed());
    assert_eq!(per_node.values().copied().collect::<Vec<_>>(), [50, 50, 50, 50], "{per_node:?}");
    cluster.stop().await;
}

fn refused(pod: &Pod) -> Option<&str> {
    condition(pod, "PodScheduled").filter(|one| one.status == "False")?.message.as_deref()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_claims_are_not_there_waits_and_says_for_what() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4").await;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    cluster.create(pod("volume", json!({"volumes": volumes}))).await;
    let waiting = cluster.until("volume", |pod| refused(pod).is_some()).await;
    let message = "0/1 nodes are available: persistentvolumeclaim \"data\" not found. no new claims to deallocate, \
                   preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(refused(&waiting), Some(message));
    assert_eq!(condition(&waiting, "PodScheduled").unwrap().reason.as_deref(), Some("Unschedulable"));
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec":
        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        Api::default_namespaced(cluster.client.clone());
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let honest = "pod has unbound immediate PersistentVolumeClaims.";
    let waiting = cluster.until("volume", |pod| refused(pod).is_some_and(|text| text.contains(honest))).await;
    assert_eq!(node_of(&waiting), None);
    cluster
        .create(pod("device", json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "g1"}]})))
        .await;
    let waiting = cluster.until("device", |pod| refused(pod).is_some()).await;
    assert_eq!(refused(&waiting), Some("could not find ResourceClaim \"default/g1\""));
    assert_eq!(node_of(&waiting), None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placed_pod_that_changes_its_labels_or_shrinks_wakes_those_that_wait() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "1").await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}}));
    Api::<Node>::all(cluster.client.clone()).patch("n1", &PatchParams::default(), &labels).await.unwrap();
    cluster.create(cpu("first", "800m")).await;
    cluster.until("first", |pod| node_of(pod).is_some()).await;
    let term =
        json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    cluster.create(pod("beside", json!({"affinity": affinity}))).await;
    cluster.until("beside", |pod| refused(pod).is_some()).await;
    cluster.create(cpu("second", "500m")).await;
    cluster.until("second", |pod| refused(pod).is_some()).await;
    let relabel = Patch::Merge(json!({"metadata": {"labels": {"app": "web"}}}));
    cluster.pods().patch("first", &PatchParams::default(), &relabel).await.unwrap();
    cluster.until("beside", |pod| node_of(pod).is_some()).await;
    let shrink = Patch::Strategic(
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}),
    );
    cluster.pods().patch_subresource("resize", "first", &PatchParams::default(), &shrink).await.unwrap();
    cluster.until("second", |pod| node_of(pod).is_some()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_plugins_are_waited_for_shared_out_and_fought_over() {
    const GPU: &str = "example.com/gpu";
    let wants = |name: &str, count: &str| {
        let resources = json!({"limits": {GPU: count}});
        pod(name, json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}))
    };
    let cluster = Cluster::start().await;
    cluster.node("n1", "4").await;
    cluster.node("n2", "4").await;
    cluster.create(wants("one", "2")).await;
    let waiting = cluster.until("one", |pod| condition(pod, "PodScheduled").is_some()).await;
    let message = "0/2 nodes are available: 2 Insufficient example.com/gpu. no new claims to deallocate, preemption: \
                   0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(condition(&waiting, "PodScheduled").unwrap().message.as_deref(), Some(message));
    // A plugin comes to one of the nodes.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let status = json!({"status": {"capacity": {GPU: "3"}, "allocatable": {GPU: "2"}}});
    nodes.patch_status("n2", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let bound = cluster.until("one", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("n2"));
    cluster.create(wants("two", "1")).await;
    let waiting = cluster.until("two", |pod| condition(pod, "PodScheduled").is_some()).await;
    let message = "0/2 nodes are available: 2 Insufficient example.com/gpu. no new claims to deallocate, preemption: \
                   0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not \
                   helpful for scheduling.";
    assert_eq!(condition(&waiting, "PodScheduled").unwrap().message.as_deref(), Some(message));
    let mut important = wants("important", "1");
    important["spec"]["priorityClassName"] = json!("system-node-critical");
    cluster.create(important).await;
    cluster.until("one", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    cluster.pods().delete("one", &DeleteParams::default().grace_period(0)).await.unwrap();
    let bound = cluster.until("important", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("n2"));
    // What is left is the other's.
    let bound = cluster.until("two", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("n2"));
    cluster.stop().await;
}
