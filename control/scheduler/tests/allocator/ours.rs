//! Our answers, in the form in which the peer gives upstream's.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::Node as TypedNode;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::serde::de::DeserializeOwned;
use podwire_scheduler::allocator::{
    Allocation, Allocator, Bounds, Classes, Error, Inventory, Node, Selectors, Slice, Taken, Wanted,
};
use serde_json::{Value, json};

/// The selectors of all questions: each text is compiled once.
static SELECTORS: LazyLock<Selectors> = LazyLock::new(|| Selectors::new(1000));

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn list<T: DeserializeOwned>(value: &Value) -> Vec<T> {
    value.as_array().into_iter().flatten().map(read).collect()
}

fn allocate(question: &Value) -> Result<Allocation, Error> {
    let mut inventory = Inventory::default();
    for slice in list::<ResourceSlice>(&question["slices"]) {
        inventory.insert(Slice::read(&slice));
    }
    let mut taken = Taken::default();
    for allocation in list::<AllocationResult>(&question["allocated"]) {
        taken.add(&allocation);
    }
    let classes = list::<DeviceClass>(&question["classes"]).into_iter();
    let classes: Classes =
        classes.map(|class| (class.metadata.name.clone().unwrap(), Arc::new(class))).collect();
    let claims: Vec<ResourceClaim> = list(&question["claims"]);
    let node: TypedNode = read(&question["node"]);
    let labels: BTreeMap<String, String> = node.metadata.labels.unwrap_or_default();
    let node = Node { name: node.metadata.name.as_deref().unwrap(), labels: &labels };
    let claims: Vec<&ResourceClaim> = claims.iter().collect();
    let wanted = Wanted::read(&claims, &classes, &SELECTORS);
    let bounds = Bounds { steps: u64::MAX, stop: &|| false };
    let mut count = 0;
    let mut share_id = || {
        count += 1;
        format!("share {count}")
    };
    let pools = inventory.gather(&node)?;
    Allocator::new(&taken).allocate(&node, &pools, &wanted, bounds, &mut share_id)
}

/// Our answer to a question.
pub(crate) fn answer(question: &Value) -> Value {
    match allocate(question) {
        Ok(Allocation { results, steps }) => {
            let mut results = json!(results);
            for_each_share(&mut results, |share| *share = json!("share"));
            json!({"results": results, "steps": steps})
        }
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            json!({"results": null, "error": text, "node": error.is_about_this_node()})
        }
    }
}

/// The names of the shares that are given out.
pub(crate) fn share_ids(question: &Value) -> Vec<String> {
    let mut ids = Vec::new();
    if let Ok(Allocation { results: Some(results), .. }) = allocate(question) {
        for_each_share(&mut json!(results), |share| ids.push(share.to_string()));
    }
    ids
}

fn for_each_share(results: &mut Value, mut each: impl FnMut(&mut Value)) {
    for result in results.as_array_mut().into_iter().flatten() {
        for device in result["devices"]["results"].as_array_mut().into_iter().flatten() {
            if let Some(share) = device.get_mut("shareID") {
                each(share);
            }
        }
    }
}
