//! Extended resources that a device class stands for.

use serde_json::{Value, json};

use crate::world::{World, device, node_of, refused, slice};
use crate::{is_bound, results, users};

const GPU: &str = "example.com/gpu";

fn asking(name: &str, count: &str) -> Value {
    let resources = json!({"requests": {GPU: count}, "limits": {GPU: count}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_devices_for_an_extended_resource_by_a_claim_that_is_made_for_it() {
    let world = World::start().await;
    world.nodes(&["n1", "n2"]).await;
    world.slice(slice("n2", &[device("d0", "x"), device("d1", "x"), device("d2", "x")])).await;
    world.create(asking("web", "2")).await;
    let says = "0/2 nodes are available: 2 Insufficient example.com/gpu.";
    world.until("web", |pod| refused(pod).is_some_and(|text| text.starts_with(says))).await;
    world.class("gpu", json!({"extendedResourceName": GPU})).await;
    let bound = world.until("web", is_bound).await;
    assert_eq!(node_of(&bound), Some("n2"));
    let told = json!(bound.status.unwrap().extended_resource_claim_status);
    let name = told["resourceClaimName"].as_str().unwrap();
    assert!(name.starts_with("web-extended-resources-"), "{name}");
    let mapping = json!({"containerName": "c", "requestName": "container-0-request-0", "resourceName": GPU});
    assert_eq!(told["requestMappings"], json!([mapping]));
    let claim = world.get_claim(name).await;
    assert_eq!(
        (results(&claim), users(&claim)),
        (vec!["n2/d0".to_owned(), "n2/d1".to_owned()], vec!["web".to_owned()])
    );
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"], "true");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], json!(bound.metadata.uid));
    // One is left, and no more.
    world.create(asking("greedy", "2")).await;
    let waiting = world.until("greedy", |pod| refused(pod).is_some()).await;
    assert!(refused(&waiting).unwrap().starts_with("0/2 nodes are available: 2 cannot allocate all claims."));
    world.create(asking("modest", "1")).await;
    world.until("modest", is_bound).await;
    let mut given: Vec<String> = world.all_claims().await.iter().flat_map(results).collect();
    given.sort();
    assert_eq!(given, ["n2/d0", "n2/d1", "n2/d2"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_for_resources_that_an_earlier_attempt_left_goes_before_the_next() {
    let mut world = World::start().await;
    world.nodes(&["n1"]).await;
    world.slice(slice("n1", &[device("d0", "x")])).await;
    world.class("gpu", json!({"extendedResourceName": GPU})).await;
    world.stop_scheduler().await;
    let pod = world.create(asking("web", "1")).await;
    let exactly = json!({"deviceClassName": "gpu", "count": 1});
    world.claim(json!({"metadata": {"name": "web-extended-resources-left", "finalizers":
            ["resource.kubernetes.io/delete-protection"],
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences":
            [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod.metadata.uid, "controller": true}]},
        "spec": {"devices": {"requests": [{"name": "container-0-request-0", "exactly": exactly}]}}})).await;
    let result = json!({"request": "container-0-request-0", "driver": "gpu.example.com", "pool": "n1", "device": "d0"});
    let allocation = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    world.patch_claim_status("web-extended-resources-left", allocation).await;
    world.start_scheduler().await;
    world.until("web", is_bound).await;
    let claims = world.all_claims().await;
    assert_eq!(claims.len(), 1);
    assert_ne!(claims[0]["metadata"]["name"], "web-extended-resources-left");
    assert_eq!(results(&claims[0]), ["n1/d0"]);
    world.stop().await;
}
