//! Claims to devices, allocated by the scheduler against the real API server, in process: whoever asks gets a device of its own, once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod extended;
mod faults;
mod world;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use podwire_scheduler::explain::{Explainer, KINDS};
use serde_json::{Value, json};
use world::{World, claim, device, exactly, node_of, pod, refused, slice};

fn results(claim: &Value) -> Vec<String> {
    let all = claim["status"]["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    all.iter().map(|one| format!("{}/{}", text(one, "pool"), text(one, "device"))).collect()
}

fn users(claim: &Value) -> Vec<String> {
    let all = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn is_bound(pod: &Pod) -> bool {
    node_of(pod).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_the_device_of_its_claim_and_goes_where_it_is() {
    let world = World::start().await;
    world.nodes(&["n1", "n2"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n2", &[device("d0", "a100"), device("d1", "h100")])).await;
    let wanted = json!({"deviceClassName": "gpu", "selectors":
        [{"cel": {"expression": "device.attributes['gpu.example.com'].model == 'h100'"}}]});
    world.claim(claim("c", json!([{"name": "r", "exactly": wanted}]))).await;
    world.create(pod("web", &["c"])).await;
    let bound = world.until("web", is_bound).await;
    assert_eq!(node_of(&bound), Some("n2"));
    let claim = world.get_claim("c").await;
    assert_eq!((results(&claim), users(&claim)), (vec!["n2/d1".to_owned()], vec!["web".to_owned()]));
    let reserved = json!({"resource": "pods", "name": "web", "uid": bound.metadata.uid});
    assert_eq!(claim["status"]["reservedFor"], json!([reserved]));
    assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    let selector = &claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0];
    assert_eq!(selector["values"], json!(["n2"]));
    assert!(claim["status"]["allocation"]["allocationTimestamp"].is_string());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_device_is_given_to_two_claims_and_those_that_wait_get_what_is_given_back() {
    let world = World::start().await;
    world.nodes(&["n1", "n2", "n3"]).await;
    world.class("gpu", json!({})).await;
    for node in ["n1", "n2", "n3"] {
        world.slice(slice(node, &[device("d0", "x"), device("d1", "x"), device("d2", "x")])).await;
    }
    for at in 0..12 {
        world.claim(claim(&format!("c{at}"), exactly("gpu", 1))).await;
        world.create(pod(&format!("p{at}"), &[&format!("c{at}")])).await;
    }
    let bound = || async {
        let all = world.all_pods().await;
        (all.iter().filter(|pod| is_bound(pod)).count() == 9).then_some(all)
    };
    let all = world.eventually("nine pods have devices", bound).await;
    let mut given: Vec<String> = world.all_claims().await.iter().flat_map(results).collect();
    given.sort();
    let unique: std::collections::BTreeSet<_> = given.iter().cloned().collect();
    assert_eq!((given.len(), unique.len()), (9, 9), "{given:?}");
    let waiting = all.iter().find(|pod| !is_bound(pod)).unwrap().metadata.name.clone().unwrap();
    let said = world.until(&waiting, |pod| refused(pod).is_some()).await;
    let text = refused(&said).unwrap();
    assert!(
        text.starts_with("0/3 nodes are available: 3 cannot allocate all claims. still not schedulable"),
        "{text}"
    );
    assert!(text.contains("is in use"), "{text}");
    // What the claim controller does when a pod is done.
    let done = all.iter().find(|pod| is_bound(pod)).unwrap().metadata.name.clone().unwrap();
    let back = json!({"status": {"allocation": null, "reservedFor": null}});
    world.patch_claim_status(&done.replace('p', "c"), back).await;
    world
        .eventually("the tenth has one", || async {
            (world.all_pods().await.iter().filter(|pod| is_bound(pod)).count() == 10).then_some(())
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_share_a_claim_share_its_device_and_its_node() {
    let world = World::start().await;
    world.nodes(&["n1", "n2"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "x")])).await;
    world.slice(slice("n2", &[device("d0", "x")])).await;
    world.claim(claim("shared", exactly("gpu", 1))).await;
    for name in ["a", "b", "c", "d"] {
        world.create(pod(name, &["shared"])).await;
    }
    let mut nodes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        nodes.extend(node_of(&world.until(name, is_bound).await).map(str::to_owned));
    }
    nodes.dedup();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    let claim = world.get_claim("shared").await;
    let mut users = users(&claim);
    users.sort();
    assert_eq!((results(&claim).len(), users), (1, ["a", "b", "c", "d"].map(str::to_owned).to_vec()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_claim_class_and_slice_and_says_for_which() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.create(pod("web", &["c"])).await;
    let says = |text: &'static str| move |pod: &Pod| refused(pod).is_some_and(|it| it.contains(text));
    world.until("web", says("could not find ResourceClaim \"default/c\"")).await;
    world.claim(claim("c", exactly("gpu", 1))).await;
    world.until("web", says("0/1 nodes are available: request r: device class gpu does not exist.")).await;
    world.class("gpu", json!({})).await;
    world.until("web", says("1 cannot allocate all claims. still not schedulable (nearest miss: claim default/c, request r: no slice offers the node any device)")).await;
    let mut half = slice("n1", &[device("d0", "x")]);
    half["spec"]["pool"]["resourceSliceCount"] = json!(2);
    world.slice(half.clone()).await;
    world.until("web", says("slices of pool gpu.example.com/n1 are missing")).await;
    half["metadata"]["name"] = json!("other-half");
    half["spec"]["devices"] = json!([device("d1", "x")]);
    world.slice(half).await;
    world.until("web", is_bound).await;
    assert_eq!(results(&world.get_claim("c").await), ["n1/d0"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_a_controller_makes_are_waited_for_and_must_be_the_pods_own() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "x")])).await;
    let mut made = pod("web", &[]);
    made["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let made = world.create(made).await;
    world
        .until("web", |pod| refused(pod) == Some("pod \"default/web\": ResourceClaim not created yet"))
        .await;
    // Somebody else's claim of the name.
    world.claim(claim("web-gpu-1", exactly("gpu", 1))).await;
    let statuses = |name: &str| json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}});
    world.patch_pod_status("web", statuses("web-gpu-1")).await;
    let foreign = "ResourceClaim default/web-gpu-1 was not created for Pod default/web (Pod is not owner)";
    world.until("web", |pod| refused(pod) == Some(foreign)).await;
    let mut own = claim("web-gpu-2", exactly("gpu", 1));
    own["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "web",
        "uid": made.metadata.uid, "controller": true}]);
    world.claim(own).await;
    world.patch_pod_status("web", statuses("web-gpu-2")).await;
    world.until("web", is_bound).await;
    assert_eq!(results(&world.get_claim("web-gpu-2").await), ["n1/d0"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_that_was_killed_after_allocating_leaves_a_claim_that_is_used_or_given_back() {
    let mut world = World::start().await;
    world.nodes(&["n1", "n2"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "x")])).await;
    world.slice(slice("n2", &[device("d0", "x")])).await;
    world.stop_scheduler().await;
    // What a scheduler had written when it was killed: allocated for n1, with and without the reservation.
    let allocated = |node: &str| {
        json!({"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": node, "device": "d0"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}})
    };
    world.claim(claim("half", exactly("gpu", 1))).await;
    let half = world.create(pod("half", &["half"])).await;
    let user = json!({"resource": "pods", "name": "half", "uid": half.metadata.uid});
    world
        .patch_claim_status("half", json!({"status": {"allocation": allocated("n1"), "reservedFor": [user]}}))
        .await;
    // Allocated where its pod cannot go.
    world.claim(claim("astray", exactly("gpu", 1))).await;
    world.patch_claim_status("astray", json!({"status": {"allocation": allocated("n2")}})).await;
    let mut astray = pod("astray", &["astray"]);
    astray["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    world.start_scheduler().await;
    world.until("half", |pod| node_of(pod) == Some("n1")).await;
    world.create(astray).await;
    // n1's only device is the other pod's, so it waits; but what it had on n2 is given back.
    let freed = || async {
        let claim = world.get_claim("astray").await;
        claim["status"]["allocation"].is_null().then_some(())
    };
    world.eventually("the claim is given back", freed).await;
    let free = world.slice_with("n1-more", "n1-more", "n1", &[device("d7", "x")]);
    world.slice(free).await;
    world.until("astray", |pod| node_of(pod) == Some("n1")).await;
    assert_eq!(results(&world.get_claim("astray").await), ["n1-more/d7"]);
    assert_eq!(results(&world.get_claim("half").await), ["n1/d0"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_that_has_no_answer_keeps_its_own_pod_waiting_with_the_reason() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "x"), device("d1", "x")])).await;
    let wanted = json!({"deviceClassName": "gpu", "selectors":
        [{"cel": {"expression": "device.attributes['gpu.example.com'].absent == 'x'"}}]});
    world.claim(claim("odd", json!([{"name": "r", "exactly": wanted}]))).await;
    world.create(pod("odd", &["odd"])).await;
    let waiting = world.until("odd", |pod| refused(pod).is_some()).await;
    let text = refused(&waiting).unwrap();
    let begin =
        "running \"DynamicResources\" filter plugin: claim default/odd: selector #0: CEL runtime error: ";
    assert!(text.starts_with(begin), "{text}");
    assert_eq!(world::reason(&waiting), Some("SchedulerError"));
    world.claim(claim("even", exactly("gpu", 2))).await;
    world.create(pod("even", &["even"])).await;
    world.until("even", is_bound).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_alternative_that_a_node_has_decides_where_a_pod_goes() {
    let world = World::start().await;
    world.nodes(&["n1", "n2", "n3"]).await;
    let model = |name: &str| json!([{"cel": {"expression": format!("device.attributes['gpu.example.com'].model == '{name}'")}}]);
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "slow")])).await;
    world.slice(slice("n2", &[device("d0", "fast")])).await;
    world.slice(slice("n3", &[device("d0", "slow")])).await;
    let alternatives = json!([
        {"name": "fast", "deviceClassName": "gpu", "selectors": model("fast")},
        {"name": "slow", "deviceClassName": "gpu", "selectors": model("slow")}]);
    world.claim(claim("c", json!([{"name": "r", "firstAvailable": alternatives}]))).await;
    world.create(pod("web", &["c"])).await;
    let bound = world.until("web", is_bound).await;
    assert_eq!(node_of(&bound), Some("n2"));
    let claim = world.get_claim("c").await;
    assert_eq!(claim["status"]["allocation"]["devices"]["results"][0]["request"], "r/fast");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binding_waits_until_the_driver_has_made_the_device_ready() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.class("gpu", json!({})).await;
    let mut fabric = device("d0", "x");
    fabric["bindsToNode"] = json!(true);
    fabric["bindingConditions"] = json!(["example.com/attached"]);
    fabric["bindingFailureConditions"] = json!(["example.com/broken"]);
    world.slice(slice("n1", &[fabric])).await;
    world.claim(claim("c", exactly("gpu", 1))).await;
    world.create(pod("web", &["c"])).await;
    let allocated = || async {
        let claim = world.get_claim("c").await;
        (!claim["status"]["allocation"].is_null()).then_some(claim)
    };
    world.eventually("the claim is allocated", allocated).await;
    let events = world.events("web", "BindingConditionsPending").await;
    assert_eq!(events[0].message.as_deref(), Some("waiting for binding conditions for device on node n1"));
    assert!(!is_bound(&world.pods().get("web").await.unwrap()));
    let condition = |kind: &str| {
        json!([{"driver": "gpu.example.com", "pool": "n1", "device": "d0", "conditions":
        [{"type": kind, "status": "True", "reason": "Told", "message": "so", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}])
    };
    // It fails first: the pod is taken from the claim, which is given back and allocated anew.
    world.patch_claim_status("c", json!({"status": {"devices": condition("example.com/broken")}})).await;
    let anew = || async {
        let claim = world.get_claim("c").await;
        let fresh = claim["status"]["devices"].is_null() && users(&claim) == ["web"];
        fresh.then_some(())
    };
    world.eventually("the claim is allocated anew", anew).await;
    world.patch_claim_status("c", json!({"status": {"devices": condition("example.com/attached")}})).await;
    world.until("web", is_bound).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_cannot_have_its_claim_is_explained_by_node_and_request() {
    let world = World::start().await;
    world.nodes(&["n1", "n2", "n3"]).await;
    world.class("gpu", json!({})).await;
    let mut tainted = device("d0", "x");
    tainted["taints"] = json!([{"key": "example.com/sick", "effect": "NoSchedule"}]);
    world.slice(slice("n1", &[tainted])).await;
    world.slice(slice("n2", &[device("d0", "x")])).await;
    world.claim(claim("two", exactly("gpu", 2))).await;
    world.create(pod("web", &["two"])).await;
    let waiting = world.until("web", |pod| refused(pod).is_some()).await;
    assert!(
        refused(&waiting).unwrap().contains("nearest miss: claim default/two, request r: 1 device was found")
    );
    let mut explainer = Explainer::new(&podwire_scheduler::Configuration::default());
    for (path, kind) in KINDS {
        for mut object in world.list(path).await {
            object["kind"] = kind.into();
            explainer.add(&object).unwrap();
        }
    }
    let found = explainer.explain(&json!(waiting)).unwrap().unwrap();
    let details = |node: &str| found.refused[node][0].details.join("; ");
    assert_eq!(found.refused["n1"][0].reasons, ["cannot allocate all claims"]);
    assert_eq!(
        details("n1"),
        "claim default/two, request r: device gpu.example.com/n1/d0: taint example.com/sick:NoSchedule is not tolerated"
    );
    assert_eq!(details("n2"), "claim default/two, request r: 1 device was found, and no more with it");
    assert_eq!(details("n3"), "claim default/two, request r: no slice offers the node any device");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_somebody_changes_all_the_time_is_written_all_the_same() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.class("gpu", json!({})).await;
    let devices: Vec<Value> = (0..20).map(|at| device(&format!("d{at:02}"), "x")).collect();
    world.slice(slice("n1", &devices)).await;
    for at in 0..20 {
        world.claim(claim(&format!("c{at}"), exactly("gpu", 1))).await;
    }
    let touching = async {
        for round in 0.. {
            let label = Patch::Merge(json!({"metadata": {"labels": {"round": format!("{round}")}}}));
            let name = format!("c{}", round % 20);
            world.claims().patch(&name, &PatchParams::default(), &label).await.unwrap();
        }
    };
    let binding = async {
        for at in 0..20 {
            world.create(pod(&format!("p{at}"), &[&format!("c{at}")])).await;
        }
        for at in 0..20 {
            world.until(&format!("p{at}"), is_bound).await;
        }
    };
    tokio::select! {
        () = touching => unreachable!("it goes on for ever"),
        () = binding => {}
    }
    let given: std::collections::BTreeSet<_> = world.all_claims().await.iter().flat_map(results).collect();
    assert_eq!(given.len(), 20);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_deleted_while_it_waits_leaves_the_device_to_others() {
    let world = World::start().await;
    world.nodes(&["n1"]).await;
    world.class("gpu", json!({})).await;
    world.slice(slice("n1", &[device("d0", "x")])).await;
    world.claim(claim("c", exactly("gpu", 2))).await;
    world.create(pod("greedy", &["c"])).await;
    world.until("greedy", |pod| refused(pod).is_some()).await;
    world.pods().delete("greedy", &DeleteParams::default().grace_period(0)).await.unwrap();
    world.claim(claim("one", exactly("gpu", 1))).await;
    world
        .pods()
        .create(&PostParams::default(), &serde_json::from_value(pod("web", &["one"])).unwrap())
        .await
        .unwrap();
    world.until("web", is_bound).await;
    world.stop().await;
}
