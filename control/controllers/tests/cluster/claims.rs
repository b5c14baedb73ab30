//! Claims come from templates, go with their pods, survive a controller that is killed, and lose tainted devices.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Cluster, create, eventually, until};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn request() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any"}}]}})
}

fn merge(change: Value) -> Patch<Value> {
    Patch::Merge(change)
}

/// A namespace with a node, and what there is in it.
struct World {
    pods: Api<Pod>,
    claims: Api<ResourceClaim>,
    templates: Api<ResourceClaimTemplate>,
    events: Api<Event>,
    slices: Api<ResourceSlice>,
}

impl World {
    async fn of(cluster: &Cluster) -> World {
        cluster.namespace("c").await;
        cluster.node("n1").await;
        World {
            pods: cluster.within("c"),
            claims: cluster.within("c"),
            templates: cluster.within("c"),
            events: cluster.within("c"),
            slices: cluster.all(),
        }
    }

    async fn template(&self) {
        let metadata = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
        let template = json!({"metadata": {"name": "t"}, "spec": {"metadata": metadata, "spec": request()}});
        create(&self.templates, template).await;
    }

    /// A pod with these claims, from the template, or by name with an `=`.
    async fn pod(&self, name: &str, claims: &[&str]) -> Pod {
        let claim = |claim: &&str| match claim.split_once('=') {
            Some((name, claim)) => json!({"name": name, "resourceClaimName": claim}),
            None => json!({"name": claim, "resourceClaimTemplateName": "t"}),
        };
        let claims: Vec<Value> = claims.iter().map(claim).collect();
        let containers = json!([{"name": "c", "image": "i"}]);
        let pod =
            json!({"metadata": {"name": name}, "spec": {"containers": containers, "resourceClaims": claims}});
        create(&self.pods, pod).await
    }

    /// The claims of a pod as its status tells them, once it tells `count`.
    async fn told(&self, name: &str, count: usize) -> Vec<String> {
        let pod =
            until(&self.pods, name, |pod| pod.is_some_and(|pod| told(pod).len() == count)).await.unwrap();
        told(&pod)
    }

    /// Does what the scheduler does when it has found a device.
    async fn allocate(&self, claim: &str, device: &str, tolerations: Value, pods: &[&Pod]) {
        let protected = json!({"metadata": {"finalizers": [FINALIZER]}});
        self.claims.patch(claim, &PatchParams::default(), &merge(protected)).await.unwrap();
        let mut result = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": device});
        if !tolerations.is_null() {
            result["tolerations"] = tolerations;
        }
        let consumer =
            |pod: &&Pod| json!({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid});
        let reserved: Vec<Value> = pods.iter().map(consumer).collect();
        let status =
            json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}});
        self.claims.patch_status(claim, &PatchParams::default(), &merge(status)).await.unwrap();
    }

    async fn bind(&self, pod: &str) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": "n1"}});
        let _: Value =
            self.pods.create_subresource("binding", pod, &Default::default(), &binding).await.unwrap();
    }

    async fn phase(&self, pod: &str, phase: &str) {
        let status = merge(json!({"status": {"phase": phase}}));
        self.pods.patch_status(pod, &PatchParams::default(), &status).await.unwrap();
    }

    async fn claim_names(&self) -> BTreeSet<String> {
        let all = self.claims.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().filter_map(|claim| claim.metadata.name).collect()
    }

    async fn until_no_claims(&self, why: &str) {
        eventually(why, async || self.claim_names().await.is_empty()).await;
    }
}

fn told(pod: &Pod) -> Vec<String> {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
    statuses.into_iter().flatten().filter_map(|status| status.resource_claim_name).collect()
}

fn reserved(claim: Option<&ResourceClaim>) -> Vec<String> {
    let status = claim.and_then(|claim| claim.status.as_ref());
    let all = status.and_then(|status| status.reserved_for.clone()).unwrap_or_default();
    all.into_iter().map(|consumer| consumer.name).collect()
}

fn is_free(claim: Option<&ResourceClaim>) -> bool {
    let Some(claim) = claim else { return false };
    let unprotected = claim.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
    let allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    unprotected && !allocated && reserved(Some(claim)).is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_made_from_its_template_and_goes_when_its_pod_has_ended() {
    let cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    world.template().await;
    let pod = world.pod("web", &["net", "gpu"]).await;
    let names = world.told("web", 2).await;
    assert_eq!(world.claim_names().await, names.iter().cloned().collect());
    for (name, of) in names.iter().zip(["net", "gpu"]) {
        let random = name.strip_prefix(&format!("web-{of}-")).unwrap();
        assert!(random.len() == 5 && random.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
        let claim = world.claims.get(name).await.unwrap();
        let metadata = serde_json::to_value(&claim.metadata).unwrap();
        assert_eq!(claim.metadata.name.as_ref(), Some(name));
        assert_eq!(metadata["generateName"], format!("web-{of}-"));
        assert_eq!(metadata["labels"], json!({"a": "b"}));
        assert_eq!(metadata["annotations"], json!({"c": "d", "resource.kubernetes.io/pod-claim-name": of}));
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod.metadata.uid, "controller": true}]);
        assert_eq!(metadata["ownerReferences"], owner);
        assert_eq!(claim.spec.devices.unwrap().requests.unwrap()[0].name, "r");
    }
    let managers = world.pods.get("web").await.unwrap().metadata.managed_fields.unwrap();
    let applied =
        managers.iter().find(|one| one.manager.as_deref() == Some("ResourceClaimController")).unwrap();
    assert_eq!(
        (applied.operation.as_deref(), applied.subresource.as_deref()),
        (Some("Apply"), Some("status"))
    );

    for name in &names {
        world.allocate(name, "d0", Value::Null, &[&pod]).await;
    }
    world.bind("web").await;
    world.phase("web", "Running").await;
    // One that goes by hand comes again, and the other stays told.
    let (lost, kept) = (&names[0], &names[1]);
    let unused = merge(json!({"status": {"reservedFor": null, "allocation": null}}));
    world.claims.patch_status(lost, &PatchParams::default(), &unused).await.unwrap();
    let bare = merge(json!({"metadata": {"finalizers": null}}));
    world.claims.patch(lost, &PatchParams::default(), &bare).await.unwrap();
    world.claims.delete(lost, &DeleteParams::default()).await.unwrap();
    let anew = until(&world.pods, "web", |pod| {
        pod.is_some_and(|pod| told(pod).len() == 2 && !told(pod).contains(lost))
    })
    .await;
    assert!(told(&anew.unwrap()).contains(kept));
    world.phase("web", "Succeeded").await;
    world.until_no_claims("the claims of a pod that has ended are gone").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_its_template_and_says_so() {
    let cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    let pod = world.pod("web", &["net"]).await;
    let message = "PodResourceClaim net: resource claim template \"t\": \
                   resourceclaimtemplate.resource.k8s.io \"t\" not found";
    let said = async || {
        let events = world.events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().find(|event| event.message.as_deref() == Some(message))
    };
    eventually("the event", async || said().await.is_some()).await;
    let event = said().await.unwrap();
    assert_eq!(event.reason.as_deref(), Some("FailedResourceClaimCreation"));
    assert_eq!((event.type_.as_deref(), event.involved_object.uid), (Some("Warning"), pod.metadata.uid));
    assert_eq!(event.source.unwrap().component.as_deref(), Some("resource_claim"));
    eventually("it is counted", async || said().await.unwrap().count > Some(1)).await;
    world.template().await;
    world.told("web", 1).await;
    world.pods.delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
    world.until_no_claims("the garbage collector takes the claim").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_claim_is_free_again_when_the_last_pod_has_ended() {
    let cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    create(&world.claims, json!({"metadata": {"name": "shared"}, "spec": request()})).await;
    let mut pods = Vec::new();
    for name in ["a", "b", "late"] {
        pods.push(world.pod(name, &["gpu=shared"]).await);
    }
    world.allocate("shared", "d0", Value::Null, &[&pods[0], &pods[1]]).await;
    let someone = json!({"apiGroup": "example.com", "resource": "things", "name": "x", "uid": "ux"});
    for name in ["a", "b"] {
        world.bind(name).await;
    }
    // One that got its node otherwise is let in.
    world.bind("late").await;
    until(&world.claims, "shared", |claim| reserved(claim) == ["a", "b", "late"]).await;
    world.phase("a", "Failed").await;
    until(&world.claims, "shared", |claim| reserved(claim) == ["b", "late"]).await;
    world.pods.delete("b", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&world.claims, "shared", |claim| reserved(claim) == ["late"]).await;
    let claim = world.claims.get("shared").await.unwrap();
    assert!(claim.status.unwrap().allocation.is_some(), "one still uses it");
    // What is not a pod is nobody's here to judge, and a pod that never was is none.
    let late = json!({"resource": "pods", "name": "late", "uid": pods[2].metadata.uid});
    let ghost = json!({"resource": "pods", "name": "ghost", "uid": "ug"});
    let all = merge(json!({"status": {"reservedFor": [late, someone, ghost]}}));
    world.claims.patch_status("shared", &PatchParams::default(), &all).await.unwrap();
    until(&world.claims, "shared", |claim| reserved(claim) == ["late", "x"]).await;
    world.phase("late", "Succeeded").await;
    until(&world.claims, "shared", |claim| reserved(claim) == ["x"]).await;
    let none = merge(json!({"status": {"reservedFor": [ghost]}}));
    world.claims.patch_status("shared", &PatchParams::default(), &none).await.unwrap();
    until(&world.claims, "shared", is_free).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_deleted_goes_when_nobody_uses_it_any_more() {
    let cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    for name in ["used", "unused"] {
        create(&world.claims, json!({"metadata": {"name": name}, "spec": request()})).await;
    }
    let pod = world.pod("a", &["gpu=used"]).await;
    world.allocate("used", "d0", Value::Null, &[&pod]).await;
    world.allocate("unused", "d1", Value::Null, &[]).await;
    for name in ["used", "unused"] {
        world.claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until(&world.claims, "unused", |claim| claim.is_none()).await;
    let used = world.claims.get("used").await.unwrap();
    assert!(used.metadata.deletion_timestamp.is_some() && used.status.unwrap().allocation.is_some());
    world.pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    until(&world.claims, "used", |claim| claim.is_none()).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_scheduler_made_for_extended_resources_goes_with_the_pod_that_has_ended() {
    let cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    let pod = world.pod("web", &[]).await;
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod.metadata.uid, "controller": true}]);
    let annotations = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    let name = "web-extended-resources-abcde";
    let metadata = json!({"name": name, "annotations": annotations, "ownerReferences": owner});
    create(&world.claims, json!({"metadata": metadata, "spec": request()})).await;
    world.allocate(name, "d0", Value::Null, &[&pod]).await;
    let mapping = json!([{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}]);
    let status = json!({"status": {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": mapping}}});
    world.pods.patch_status("web", &PatchParams::default(), &merge(status)).await.unwrap();
    world.bind("web").await;
    world.phase("web", "Running").await;
    world.phase("web", "Succeeded").await;
    world.until_no_claims("the claim is gone").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_somebody_else_has_is_left_to_them() {
    let mut cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    world.template().await;
    cluster.hold("after POST /resourceclaims");
    let pod = world.pod("web", &["net"]).await;
    eventually("a claim is made", async || cluster.has_held()).await;
    cluster.kill_controllers().await;
    // It belongs to another pod by now, and nobody has said that it was made for this one.
    let taken = world.claim_names().await.pop_first().unwrap();
    world.claims.delete(&taken, &DeleteParams::default()).await.unwrap();
    create(&world.claims, json!({"metadata": {"name": taken}, "spec": request()})).await;
    cluster.hold("");
    cluster.start_controllers().await;
    let own = world.told("web", 1).await.remove(0);
    assert_ne!(own, taken);
    let owner = world.claims.get(&own).await.unwrap().metadata.owner_references.unwrap().remove(0);
    assert_eq!(Some(owner.uid), pod.metadata.uid);
    assert!(world.claims.get(&taken).await.unwrap().metadata.owner_references.is_none());
    cluster.stop().await;
}

/// Each write that the controller does while a pod begins, and when it has ended.
const WRITES: &[(bool, &str)] = &[
    (true, "POST /resourceclaims"),
    (true, "PATCH /pods/POD/status"),
    (false, "PATCH /resourceclaims/CLAIM/status"),
    (false, "PATCH /resourceclaims/CLAIM"),
    (false, "DELETE /resourceclaims/CLAIM"),
];

impl Cluster {
    /// Kills the controllers when they come to what is held, and begins them again.
    async fn killed_there(&mut self, held: &str) {
        eventually(held, async || self.has_held()).await;
        self.kill_controllers().await;
        self.hold("");
        self.start_controllers().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_killed_at_any_write_makes_no_second_claim_and_leaks_none() {
    let mut cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    world.template().await;
    for (number, (begins, write)) in WRITES.iter().enumerate() {
        for when in ["before", "after"] {
            let name = format!("web{number}{when}");
            let held = format!("{when} {write}").replace("POD", &name);
            if *begins {
                cluster.hold(&held);
            }
            let pod = world.pod(&name, &["net"]).await;
            if *begins {
                cluster.killed_there(&held).await;
            }
            let claim = world.told(&name, 1).await.remove(0);
            assert_eq!(world.claim_names().await, BTreeSet::from([claim.clone()]), "{held}");
            world.allocate(&claim, "d0", Value::Null, &[&pod]).await;
            world.bind(&name).await;
            world.phase(&name, "Running").await;
            let held = held.replace("CLAIM", &claim);
            if !begins {
                cluster.hold(&held);
            }
            world.phase(&name, "Succeeded").await;
            if !begins {
                cluster.killed_there(&held).await;
            }
            world.until_no_claims(&held).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_that_are_killed_again_and_again_leave_every_pod_one_claim_and_then_none() {
    const COUNT: usize = 60;
    let mut cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    world.template().await;
    for number in 0..COUNT {
        world.pod(&format!("p{number}"), &["net", "gpu"]).await;
        if number % 7 == 0 {
            cluster.kill_controllers().await;
            cluster.start_controllers().await;
        }
    }
    let mut all = BTreeSet::new();
    for number in 0..COUNT {
        all.extend(world.told(&format!("p{number}"), 2).await);
    }
    assert_eq!((all.len(), world.claim_names().await), (2 * COUNT, all.clone()));
    for number in 0..COUNT {
        let name = format!("p{number}");
        let pod = world.pods.get(&name).await.unwrap();
        for claim in told(&pod) {
            world.allocate(&claim, "d0", Value::Null, &[&pod]).await;
        }
        world.bind(&name).await;
        match number % 2 {
            0 => world.phase(&name, "Failed").await,
            _ => drop(world.pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap()),
        }
        if number % 7 == 0 {
            cluster.kill_controllers().await;
            cluster.start_controllers().await;
        }
    }
    world.until_no_claims("all claims are gone").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tainted_device_drives_out_those_who_do_not_tolerate_it() {
    let cluster = Cluster::start(|_| {}).await;
    let world = World::of(&cluster).await;
    world.template().await;
    let slice = |taints: Value| {
        let devices = json!([{"name": "d0", "taints": taints}, {"name": "d1"}]);
        json!({"metadata": {"name": "s"}, "spec": {"driver": "d.example.com", "nodeName": "n1", "devices": devices,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
    };
    create(&world.slices, slice(json!([]))).await;
    let exists =
        |seconds: Value| json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    let hasty = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]);
    let pods = [
        ("plain", "d0", Value::Null),
        ("patient", "d0", json!([{"operator": "Exists", "effect": "NoExecute"}])),
        ("hasty", "d0", hasty),
        ("spared", "d0", exists(json!(3600))),
        ("elsewhere", "d1", Value::Null),
    ];
    for (name, device, tolerations) in &pods {
        let pod = world.pod(name, &["net"]).await;
        let claim = world.told(name, 1).await.remove(0);
        world.allocate(&claim, device, tolerations.clone(), &[&pod]).await;
        world.bind(name).await;
        world.phase(name, "Running").await;
    }
    let taint = |effect: &str| {
        merge(json!({"spec": slice(json!([{"key": "example.com/broken", "effect": effect}]))["spec"]}))
    };
    world.slices.patch("s", &PatchParams::default(), &taint("NoSchedule")).await.unwrap();
    world.slices.patch("s", &PatchParams::default(), &taint("NoExecute")).await.unwrap();
    for name in ["plain", "hasty"] {
        let gone = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        let pod = until(&world.pods, name, gone).await.unwrap();
        let conditions = serde_json::to_value(pod.status.unwrap().conditions).unwrap();
        let said =
            conditions.as_array().unwrap().iter().find(|one| one["type"] == "DisruptionTarget").unwrap();
        assert_eq!(
            (&said["status"], &said["reason"]),
            (&json!("True"), &json!("DeletionByDeviceTaintManager"))
        );
        assert_eq!(said["message"], "Device Taint manager: deleting due to NoExecute taint");
    }
    let events = async || {
        let events = world.events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let ours = events.filter(|event| event.reason.as_deref() == Some("DeviceTaintManagerEviction"));
        let said = |event: Event| {
            assert_eq!(event.source.unwrap().component.as_deref(), Some("device-taint-eviction-controller"));
            format!("{} {}", event.involved_object.name.unwrap(), event.message.unwrap())
        };
        ours.map(said).collect::<BTreeSet<_>>()
    };
    let mut wanted: BTreeSet<String> =
        ["plain Marking for deletion", "hasty Marking for deletion"].map(str::to_owned).into();
    eventually("both are said", async || events().await == wanted).await;
    // When the device is well again, nobody has to leave any more.
    world.slices.patch("s", &PatchParams::default(), &taint("NoSchedule")).await.unwrap();
    wanted.insert("spared Cancelling deletion".to_owned());
    eventually("the other stays", async || events().await == wanted).await;
    for name in ["patient", "spared", "elsewhere"] {
        assert!(world.pods.get(name).await.unwrap().metadata.deletion_timestamp.is_none(), "{name}");
    }
    cluster.stop().await;
}
