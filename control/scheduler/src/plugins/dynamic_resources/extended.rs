//! Extended resources that a device class stands for: a pod that asks for them, on a node that has none of its own, gets a claim
//! that the scheduler makes. Here is what that claim asks for, and which container uses which of its requests. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::cluster::devices::Devices;
use crate::pod::{ContainerWants, PodInfo};

/// Marks such claims.
pub(crate) const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// What a claim is called that is only thought of; no real one can be.
const IN_MEMORY: &str = "<extended-resources>";
/// The name of a resource that each class stands for without saying so, with the class's name behind it.
const OF_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// Whether a device class may stand for a resource.
pub(crate) fn is_possible(resource: &str) -> bool {
    let extended =
        resource.contains('/') && !resource.contains("kubernetes.io/") && !resource.starts_with("requests.");
    extended || resource.starts_with(OF_CLASS)
}

/// The resource that a class stands for by its name.
pub(crate) fn of_class(class: &str) -> String {
    format!("{OF_CLASS}{class}")
}

/// What a pod asks for that classes may stand for.
pub(crate) fn wanted(pod: &PodInfo) -> impl Iterator<Item = (&str, i64)> {
    let all = pod.requests.scalar.iter().map(|(name, amount)| (name.as_str(), *amount));
    all.filter(|(name, amount)| *amount > 0 && is_possible(name))
}

/// Whether a class stands for anything that a pod asks for.
pub(crate) fn concerns(pod: &PodInfo, devices: &Devices) -> bool {
    wanted(pod).any(|(name, _)| devices.class_for(name).is_some())
}

/// A container that uses a request for a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) container: String,
    pub(crate) resource: String,
    pub(crate) request: String,
}

#[derive(Debug, Clone)]
struct Wish {
    name: String,
    count: i64,
}

/// What a container needs beside what it can use of others, and what it uses.
fn of_container(
    index: usize,
    container: &ContainerWants,
    resource: &str,
    reusable: &[Option<Wish>],
) -> (Option<Wish>, Vec<Mapping>) {
    let mut mappings = Vec::new();
    let Some(place) = container.requests.iter().position(|(name, _)| name == resource) else {
        return (None, mappings);
    };
    let asked = container.requests[place].1;
    if asked == 0 {
        return (None, mappings);
    }
    let mapping = |request: &str| Mapping {
        container: container.name.clone(),
        resource: resource.to_owned(),
        request: request.to_owned(),
    };
    let mut sum = 0;
    for other in reusable.iter().flatten() {
        sum += other.count;
        mappings.push(mapping(&other.name));
        if sum >= asked {
            return (None, mappings);
        }
    }
    let name = format!("container-{index}-request-{place}");
    mappings.push(mapping(&name));
    (Some(Wish { name, count: asked - sum }), mappings)
}

/// The requests for some resources, by name, and who uses them.
fn requests(pod: &PodInfo, resources: &BTreeMap<&str, &str>) -> (Vec<DeviceRequest>, Vec<Mapping>) {
    let containers = &pod.container_wants;
    let (mut out, mut mappings) = (BTreeMap::new(), Vec::new());
    for (resource, class) in resources {
        let mut lasting: Vec<Option<Wish>> = vec![None; containers.len()];
        for (at, one) in containers.iter().enumerate().filter(|(_, one)| !one.short_lived) {
            let (wish, used) = of_container(at, one, resource, &[]);
            lasting[at] = wish;
            mappings.extend(used);
        }
        // Those that end before the others begin use what is of these, and of each other, at least as much as one of them needs.
        let (mut most, mut names, mut brief): (Option<Wish>, BTreeSet<String>, Vec<Mapping>) =
            Default::default();
        for (at, one) in containers.iter().enumerate().filter(|(_, one)| one.short_lived) {
            let (wish, used) = of_container(at, one, resource, &lasting[at..]);
            brief.extend(used);
            if let Some(wish) = wish {
                names.insert(wish.name.clone());
                if most.as_ref().is_none_or(|most| most.count < wish.count) {
                    most = Some(wish);
                }
            }
        }
        if let Some(most) = &most {
            let others = brief.iter_mut().filter(|one| names.contains(&one.request));
            others.for_each(|one| one.request.clone_from(&most.name));
        }
        mappings.extend(brief);
        for wish in most.into_iter().chain(lasting.into_iter().flatten()) {
            out.insert(wish.name, ((*class).to_owned(), wish.count));
        }
    }
    let request = |(name, (class, count))| DeviceRequest {
        name,
        exactly: Some(ExactDeviceRequest {
            device_class_name: class,
            allocation_mode: Some("ExactCount".to_owned()),
            count: Some(count),
            ..ExactDeviceRequest::default()
        }),
        first_available: None,
    };
    (out.into_iter().map(request).collect(), mappings)
}

/// The claim that a pod needs on a node that lacks these resources, each with its class. Its uid is made up.
pub(super) fn claim(pod: &PodInfo, resources: &BTreeMap<&str, &str>) -> (ResourceClaim, Vec<Mapping>) {
    let (requests, mappings) = requests(pod, resources);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    let metadata = ObjectMeta {
        namespace: Some(pod.namespace.clone()),
        name: Some(IN_MEMORY.to_owned()),
        uid: Some(format!("{IN_MEMORY} of {}", pod.uid)),
        owner_references: Some(vec![owner]),
        annotations: Some([(ANNOTATION.to_owned(), "true".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let devices = DeviceClaim { requests: Some(requests), ..DeviceClaim::default() };
    (ResourceClaim { metadata, spec: ResourceClaimSpec { devices: Some(devices) }, status: None }, mappings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use serde_json::{Value, json};

    fn container(name: &str, gpus: i64, more: Value) -> Value {
        let mut made = json!({"name": name, "image": "i", "resources": {"requests":
            {"cpu": "1", "example.com/gpu": gpus.to_string(), "memory": "1Gi"}}});
        for (key, value) in more.as_object().unwrap() {
            made[key] = value.clone();
        }
        made
    }

    type Pairs<T> = Vec<(String, T)>;

    fn asked(spec: Value) -> (Pairs<i64>, Pairs<String>) {
        let pod = pod(json!({"spec": spec}));
        let (claim, mappings) = claim(&pod, &BTreeMap::from([("example.com/gpu", "gpu")]));
        let requests = claim.spec.devices.unwrap().requests.unwrap();
        let count = |one: &DeviceRequest| one.exactly.as_ref().unwrap().count.unwrap();
        (
            requests.iter().map(|one| (one.name.clone(), count(one))).collect(),
            mappings.into_iter().map(|one| (one.container, one.request)).collect(),
        )
    }

    fn pairs<T: Copy>(of: &[(&str, T)]) -> Pairs<T> {
        of.iter().map(|(name, one)| ((*name).to_owned(), *one)).collect()
    }

    #[test]
    fn each_container_has_a_request_numbered_by_its_place_and_that_of_the_resource() {
        let (requests, mappings) =
            asked(json!({"containers": [container("a", 1, json!({})), container("b", 2, json!({}))]}));
        assert_eq!(requests, pairs(&[("container-0-request-1", 1), ("container-1-request-1", 2)]));
        let users = mappings.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect::<Vec<_>>();
        assert_eq!(users, [("a", "container-0-request-1"), ("b", "container-1-request-1")]);
    }

    #[test]
    fn containers_that_end_first_use_what_the_others_will_use() {
        let init = [
            container("small", 1, json!({})),
            container("large", 5, json!({})),
            container("larger", 6, json!({})),
            container("side", 1, json!({"restartPolicy": "Always"})),
        ];
        let (requests, mappings) =
            asked(json!({"initContainers": init, "containers": [container("main", 2, json!({}))]}));
        let wanted =
            [("container-2-request-1", 3), ("container-3-request-1", 1), ("container-4-request-1", 2)];
        assert_eq!(requests, pairs(&wanted));
        let of = |name: &str| {
            let own = mappings.iter().filter(|(container, _)| container == name);
            own.map(|(_, request)| request.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("small"), ["container-3-request-1"]);
        let all = ["container-3-request-1", "container-4-request-1", "container-2-request-1"];
        assert_eq!((of("large"), of("larger")), (all.to_vec(), all.to_vec()));
    }

    #[test]
    fn resources_of_kubernetes_itself_are_no_devices_but_those_named_by_class() {
        let possible = |name: &str| is_possible(name);
        assert!(possible("example.com/gpu") && possible("deviceclass.resource.kubernetes.io/gpu"));
        for name in ["cpu", "hugepages-2Mi", "node.kubernetes.io/x", "requests.example.com/gpu"] {
            assert!(!possible(name), "{name}");
        }
    }
}
