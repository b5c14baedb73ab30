//! Garbage: who goes with its owner, who stays, and who waits for whom.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, ServiceAccount};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Resource, ResourceExt};
use podwire_api::Kind;
use serde_json::{Value, json};

use crate::support::{Cluster, create, until};

async fn start() -> Cluster {
    let cluster = Cluster::start(|config| {
        config.garbage_delay = Duration::ZERO;
        config.discovery_period = Duration::from_millis(200);
    })
    .await;
    until(&cluster.within::<ServiceAccount>("default"), "default", |found| found.is_some()).await;
    cluster
}

/// A reference to an owner, which may not go before its dependent when it is deleted in the foreground.
fn owned_by<K: Resource<DynamicType = ()>>(owner: &K) -> Value {
    json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": owner.name_any(), "uid": owner.uid().unwrap(),
        "blockOwnerDeletion": true})
}

fn map(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

fn owners(map: Option<&ConfigMap>) -> Vec<String> {
    map.map(|map| map.owner_references().iter().map(|owner| owner.name.clone()).collect()).unwrap_or_default()
}

fn is_deleting(map: Option<&ConfigMap>) -> bool {
    map.is_some_and(|map| map.metadata.deletion_timestamp.is_some())
}

async fn gone(maps: &Api<ConfigMap>, name: &str) {
    until(maps, name, |found| found.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_with_the_last_of_their_owners() {
    let cluster = start().await;
    let maps = cluster.within::<ConfigMap>("default");
    let one = create(&maps, map("one", &[])).await;
    let two = create(&cluster.within::<Secret>("default"), json!({"metadata": {"name": "two"}})).await;
    let child = create(&maps, map("child", &[owned_by(&one), owned_by(&two)])).await;
    create(&maps, map("grandchild", &[owned_by(&child)])).await;
    maps.delete("one", &DeleteParams::background()).await.unwrap();
    until(&maps, "child", |found| owners(found) == ["two"]).await;
    assert!(maps.get_opt("grandchild").await.unwrap().is_some(), "its owner is there");
    cluster.within::<Secret>("default").delete("two", &DeleteParams::background()).await.unwrap();
    gone(&maps, "child").await;
    gone(&maps, "grandchild").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_owner_that_the_server_does_not_have_is_gone() {
    let cluster = start().await;
    let maps = cluster.within::<ConfigMap>("default");
    let real = create(&maps, map("real", &[])).await;
    let mut ghost = owned_by(&real);
    ghost["uid"] = "11111111-2222-3333-4444-555555555555".into();
    let mut stranger = owned_by(&real);
    stranger["apiVersion"] = "example.com/v1".into();
    stranger["kind"] = "Gadget".into();
    stranger["uid"] = "99999999-2222-3333-4444-555555555555".into();
    create(&maps, map("of-a-ghost", &[ghost])).await;
    create(&maps, map("of-a-stranger", &[stranger])).await;
    create(&maps, map("of-the-real-one", &[owned_by(&real)])).await;
    let node = create(&cluster.all::<Node>(), json!({"metadata": {"name": "n1"}})).await;
    create(&maps, map("of-a-node", &[owned_by(&node)])).await;
    gone(&maps, "of-a-ghost").await;
    cluster.all::<Node>().delete("n1", &DeleteParams::background()).await.unwrap();
    gone(&maps, "of-a-node").await;
    for name in ["of-a-stranger", "of-the-real-one", "real"] {
        assert!(
            maps.get_opt(name).await.unwrap().is_some_and(|map| !is_deleting(Some(&map))),
            "{name} stays"
        );
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_foreground_the_owner_goes_last() {
    let cluster = start().await;
    let maps = cluster.within::<ConfigMap>("default");
    let top = create(&maps, map("top", &[])).await;
    let middle = create(&maps, map("middle", &[owned_by(&top)])).await;
    let mut bottom = map("bottom", &[owned_by(&middle)]);
    bottom["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&maps, bottom).await;
    maps.delete("top", &DeleteParams::foreground()).await.unwrap();
    until(&maps, "bottom", is_deleting).await;
    for name in ["top", "middle"] {
        assert!(is_deleting(maps.get_opt(name).await.unwrap().as_ref()), "{name} waits");
    }
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("bottom", &PatchParams::default(), &release).await.unwrap();
    for name in ["bottom", "middle", "top"] {
        gone(&maps, name).await;
    }
    create(&maps, map("alone", &[])).await;
    maps.delete("alone", &DeleteParams::foreground()).await.unwrap();
    gone(&maps, "alone").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_stay_and_know_no_owner() {
    let cluster = start().await;
    let maps = cluster.within::<ConfigMap>("default");
    let owner = create(&maps, map("owner", &[])).await;
    create(&maps, map("child", &[owned_by(&owner)])).await;
    maps.delete("owner", &DeleteParams::orphan()).await.unwrap();
    gone(&maps, "owner").await;
    let child = maps.get("child").await.unwrap();
    assert_eq!((owners(Some(&child)), is_deleting(Some(&child))), (vec![], false));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_deleted_stays_and_the_rest_goes() {
    let cluster = start().await;
    let maps = cluster.within::<ConfigMap>("default");
    let owner = create(&maps, map("owner", &[])).await;
    // An owner of another uid is no owner, but these namespaces may not go.
    let names = ["default", "kube-system", "kube-public"];
    let mut ghost = owned_by(&owner);
    ghost["uid"] = "11111111-2222-3333-4444-555555555555".into();
    ghost["kind"] = "Node".into();
    let orphaned = Patch::Merge(json!({"metadata": {"ownerReferences": [ghost]}}));
    for name in names {
        cluster.all::<Namespace>().patch(name, &PatchParams::default(), &orphaned).await.unwrap();
    }
    for number in 0..20 {
        create(&maps, map(&format!("child-{number}"), &[owned_by(&owner)])).await;
    }
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    for number in 0..20 {
        gone(&maps, &format!("child-{number}")).await;
    }
    for name in names {
        assert!(cluster.all::<Namespace>().get(name).await.unwrap().metadata.deletion_timestamp.is_none());
    }
    cluster.stop().await;
}

/// A kind like config maps, in a group of its own.
fn gadgets() -> Arc<Kind> {
    let model = podwire_api::builtin::config_maps();
    Arc::new(Kind {
        group: "example.com".into(),
        kind: "Gadget".into(),
        list_kind: "GadgetList".into(),
        resource: "gadgets".into(),
        singular: "gadget".into(),
        short_names: Vec::new(),
        storage_prefix: "/registry/example.com/gadgets/".into(),
        ..(**model).clone()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_come_later_own_and_are_owned_as_all_others() {
    let cluster = start().await;
    let maps = cluster.within::<ConfigMap>("default");
    create(&maps, map("early", &[])).await;
    cluster.server.serve_kind(gadgets()).await.unwrap();
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Gadget");
    let gadgets: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), "default", &ApiResource::from_gvk(&gvk));
    let gadget = |name: &str, owners: &[Value]| {
        let metadata = json!({"name": name, "ownerReferences": owners});
        serde_json::from_value(
            json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": metadata}),
        )
    };
    let owner: DynamicObject = gadget("owner", &[]).unwrap();
    let owner = gadgets.create(&PostParams::default(), &owner).await.unwrap();
    // In a version that is not the one that is watched: it is the same object all the same.
    let owned = json!({"apiVersion": "example.com/v9", "kind": "Gadget", "name": "owner", "uid": owner.uid().unwrap()});
    let child: DynamicObject = gadget("child", std::slice::from_ref(&owned)).unwrap();
    gadgets.create(&PostParams::default(), &child).await.unwrap();
    create(&maps, map("of-a-gadget", &[owned])).await;
    gadgets.delete("owner", &DeleteParams::background()).await.unwrap();
    gone(&maps, "of-a-gadget").await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while gadgets.get_opt("child").await.unwrap().is_some() {
        assert!(tokio::time::Instant::now() < deadline, "the gadget's child goes with it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.stop().await;
}
