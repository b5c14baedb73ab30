//! Namespaces, nodes and the pods that nobody else removes.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::{CA, Cluster, create, until};

fn taints(node: Option<&Node>) -> Vec<String> {
    let taints = node.and_then(|node| node.spec.as_ref()).and_then(|spec| spec.taints.clone());
    taints.unwrap_or_default().iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

fn ready(node: Option<&Node>) -> Option<String> {
    let conditions = node?.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|one| one.type_ == "Ready")?.status.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_namespace_gets_its_account_and_certificates_and_keeps_them() {
    let cluster = Cluster::start(|_| {}).await;
    create(&cluster.all::<Namespace>(), json!({"metadata": {"name": "team"}})).await;
    for namespace in ["default", "kube-system", "team"] {
        let accounts = cluster.within::<ServiceAccount>(namespace);
        until(&accounts, "default", |found| found.is_some()).await;
        let maps = cluster.within::<ConfigMap>(namespace);
        let map = until(&maps, "kube-root-ca.crt", |found| found.is_some()).await.unwrap();
        assert_eq!(map.data.unwrap()["ca.crt"], CA);
    }
    let maps = cluster.within::<ConfigMap>("team");
    let content = |map: Option<&ConfigMap>| map?.data.as_ref()?.get("ca.crt").cloned();
    let forged = Patch::Merge(json!({"data": {"ca.crt": "forged"}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &forged).await.unwrap();
    until(&maps, "kube-root-ca.crt", |map| content(map).as_deref() == Some(CA)).await;
    maps.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
    until(&maps, "kube-root-ca.crt", |map| content(map).as_deref() == Some(CA)).await;
    let accounts = cluster.within::<ServiceAccount>("team");
    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    until(&accounts, "default", |found| found.is_some()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_namespace_is_emptied_and_then_gone() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.namespace("team").await;
    create(&cluster.within::<Secret>("team"), json!({"metadata": {"name": "s"}})).await;
    cluster.pod("team", "unbound", json!({})).await;
    let begun = Instant::now();
    cluster.all::<Namespace>().delete("team", &DeleteParams::default()).await.unwrap();
    until(&cluster.all::<Namespace>(), "team", |found| found.is_none()).await;
    println!("namespace gone after {:?}", begun.elapsed());
    assert!(cluster.within::<Secret>("team").get_opt("s").await.unwrap().is_none());
    assert!(cluster.within::<Pod>("team").get_opt("unbound").await.unwrap().is_none());
    cluster.namespace("team").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_namespace_takes_custom_resources_along() {
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    let cluster = Cluster::start(|_| {}).await;
    cluster.namespace("team").await;
    let of = |group: &str, version: &str, kind: &str| {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    };
    let make = |object| serde_json::from_value::<DynamicObject>(object).unwrap();
    let definitions: kube::Api<DynamicObject> =
        kube::Api::all_with(cluster.client(), &of("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
    let mut left = Vec::new();
    // The second is not in the version that its group prefers.
    for (plural, kind, version) in [("widgets", "Widget", "v1"), ("gizmos", "Gizmo", "v1beta1")] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.ex.com")},
            "spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": version, "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        definitions.create(&Default::default(), &make(definition)).await.unwrap();
        let resource = of("ex.com", version, kind);
        let objects: kube::Api<DynamicObject> =
            kube::Api::namespaced_with(cluster.client(), "team", &resource);
        let object = json!({"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": "x"}});
        objects.create(&Default::default(), &make(object)).await.unwrap();
        left.push(objects);
    }
    cluster.all::<Namespace>().delete("team", &DeleteParams::default()).await.unwrap();
    until(&cluster.all::<Namespace>(), "team", |found| found.is_none()).await;
    for objects in left {
        assert!(objects.get_opt("x").await.unwrap().is_none(), "all versions are looked through");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_waits_for_its_pods_and_finalizers_and_says_so() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.node("n1").await;
    cluster.namespace("team").await;
    cluster.pod("team", "running", json!({"nodeName": "n1"})).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&cluster.within::<ConfigMap>("team"), held).await;
    let namespaces = cluster.all::<Namespace>();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let message = |namespace: Option<&Namespace>, kind: &str| {
        let conditions = namespace?.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|one| one.type_ == kind && one.status == "True")?.message.clone()
    };
    let pods_left = "Some resources are remaining: pods. has 1 resource instances";
    until(&namespaces, "team", |found| {
        message(found, "NamespaceContentRemaining").as_deref() == Some(pods_left)
    })
    .await;
    let map = cluster.within::<ConfigMap>("team").get("held").await.unwrap();
    assert!(map.metadata.deletion_timestamp.is_none(), "pods go first");
    // The kubelet's last word.
    cluster.within::<Pod>("team").delete("running", &DeleteParams::default().grace_period(0)).await.unwrap();
    let finalizer =
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    until(&namespaces, "team", |found| {
        message(found, "NamespaceFinalizersRemaining").as_deref() == Some(finalizer)
    })
    .await;
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    cluster.within::<ConfigMap>("team").patch("held", &PatchParams::default(), &release).await.unwrap();
    until(&namespaces, "team", |found| found.is_none()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_is_unreachable_its_pods_are_evicted_and_it_may_return() {
    let cluster = Cluster::start(|config| config.node_grace = Duration::from_millis(1500)).await;
    until(&cluster.within::<ServiceAccount>("default"), "default", |found| found.is_some()).await;
    cluster.node("n1").await;
    let other = cluster.keep_alive("n2").await;
    let nodes = cluster.all::<Node>();
    until(&nodes, "n1", |node| node.is_some() && taints(node).is_empty()).await;
    let patient = json!({"nodeName": "n1", "tolerations": [{"operator": "Exists"}]});
    cluster.pod("default", "patient", patient).await;
    let hasty = json!({"nodeName": "n1", "tolerations": [{"key": "node.kubernetes.io/unreachable",
        "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}, {"key": "node.kubernetes.io/not-ready",
        "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]});
    cluster.pod("default", "hasty", hasty).await;
    // Renewals of the lease keep it alive beyond the grace.
    let leases = cluster.within::<Lease>("kube-node-lease");
    create(&cluster.all::<Namespace>(), json!({"metadata": {"name": "other"}})).await;
    create(&leases, json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}})).await;
    for _ in 0..10 {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let renewal = Patch::Merge(json!({"spec": {"renewTime": now}}));
        leases.patch("n1", &PatchParams::default(), &renewal).await.unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(ready(nodes.get_opt("n1").await.unwrap().as_ref()).as_deref(), Some("True"));
    }
    // Then it falls silent.
    until(&nodes, "n1", |node| ready(node).as_deref() == Some("Unknown")).await;
    let both = ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
    until(&nodes, "n1", |node| taints(node) == both).await;
    let pods = cluster.within::<Pod>("default");
    let evicted =
        until(&pods, "hasty", |pod| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()))
            .await
            .unwrap();
    let conditions = evicted.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|one| one.reason.as_deref() == Some("DeletionByTaintManager")));
    assert!(pods.get("patient").await.unwrap().metadata.deletion_timestamp.is_none());
    // It returns.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    cluster.ready("n1", "True").await;
    until(&nodes, "n1", |node| taints(node).is_empty()).await;
    drop(other);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_driven_out_when_no_node_is_ready() {
    let cluster = Cluster::start(|_| {}).await;
    until(&cluster.within::<ServiceAccount>("default"), "default", |found| found.is_some()).await;
    let nodes = cluster.all::<Node>();
    cluster.node("n1").await;
    cluster.node("n2").await;
    cluster.pod("default", "web", json!({"nodeName": "n1"})).await;
    cluster.ready("n2", "False").await;
    until(&nodes, "n2", |node| taints(node).contains(&DRIVING.to_owned())).await;
    cluster.ready("n1", "False").await;
    let kept = ["node.kubernetes.io/not-ready:NoSchedule"];
    until(&nodes, "n1", |node| taints(node) == kept).await;
    until(&nodes, "n2", |node| taints(node) == kept).await;
    assert!(cluster.within::<Pod>("default").get("web").await.unwrap().metadata.deletion_timestamp.is_none());
    // One that is ready again says that the other one is really down.
    cluster.ready("n2", "True").await;
    until(&nodes, "n2", |node| taints(node).is_empty()).await;
    cluster.stop().await;
}

const DRIVING: &str = "node.kubernetes.io/not-ready:NoExecute";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_registers_with_the_not_ready_taint_loses_it_when_it_is_ready() {
    let cluster = Cluster::start(|_| {}).await;
    let nodes = cluster.all::<Node>();
    let taint = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
    create(&nodes, json!({"metadata": {"name": "n1"}, "spec": {"taints": taint}})).await;
    assert_eq!(
        taints(nodes.get_opt("n1").await.unwrap().as_ref()),
        ["node.kubernetes.io/not-ready:NoSchedule"]
    );
    cluster.ready("n1", "True").await;
    until(&nodes, "n1", |node| taints(node).is_empty()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unready_or_cordoned_node_is_tainted() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.node("n1").await;
    cluster.node("n2").await;
    let nodes = cluster.all::<Node>();
    until(&nodes, "n1", |node| node.is_some() && taints(node).is_empty()).await;
    cluster.ready("n1", "False").await;
    let both = ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"];
    until(&nodes, "n1", |node| taints(node) == both).await;
    cluster.ready("n1", "True").await;
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch("n1", &PatchParams::default(), &cordon).await.unwrap();
    until(&nodes, "n1", |node| taints(node) == ["node.kubernetes.io/unschedulable:NoSchedule"]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_nobody_else_removes_are_removed() {
    let cluster = Cluster::start(|config| {
        config.orphan_quarantine = Duration::from_millis(300);
        config.terminated_pod_threshold = 1;
    })
    .await;
    until(&cluster.within::<ServiceAccount>("default"), "default", |found| found.is_some()).await;
    let pods = cluster.within::<Pod>("default");
    cluster.node("n1").await;
    cluster.node("n2").await;
    cluster.pod("default", "stays", json!({"nodeName": "n1"})).await;
    cluster.pod("default", "orphan", json!({"nodeName": "n2"})).await;
    cluster.all::<Node>().delete("n2", &DeleteParams::default()).await.unwrap();
    until(&pods, "orphan", |pod| pod.is_none()).await;
    for name in ["done-1", "done-2"] {
        cluster.pod("default", name, json!({"nodeName": "n1"})).await;
        let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        pods.patch_status(name, &PatchParams::default(), &done).await.unwrap();
        // Age is counted in seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    until(&pods, "done-1", |pod| pod.is_none()).await;
    assert!(pods.get_opt("done-2").await.unwrap().is_some());
    assert!(pods.get("stays").await.unwrap().metadata.deletion_timestamp.is_none());
    cluster.stop().await;
}
