//! What a claim or slice loses when it is written, and what a change of a claim asks for beside the right to write it.
//!
//! Which of upstream's features are on is that of 1.36 when nothing is said: all that concern claims, and of slices all
//! but lists as attributes and devices that stand for the node's own resources. What is off stays where it was in use.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use crate::strategy::{FurtherRight, Object};

/// Attributes that have many values.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
const MAPPINGS: &str = "nodeAllocatableResourceMappings";

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What tells devices that claims have from one another.
fn id(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|key| text(&device[key]))
}

fn results(status: &Value) -> &[Value] {
    list(&status["allocation"]["devices"]["results"])
}

/// Drops what drivers say about devices that the claim had and has no more.
pub(super) fn drop_deallocated(new: &mut Object, old: &Value) {
    let before = results(&old["status"]);
    let Some(Value::Object(status)) = new.get_mut("status").filter(|_| !before.is_empty()) else { return };
    let Some(Value::Array(mut devices)) = status.remove("devices") else { return };
    let now = status.get("allocation").map(|given| list(&given["devices"]["results"])).unwrap_or_default();
    let kept: HashSet<[&str; 4]> = now.iter().map(id).collect();
    let gone: HashSet<[&str; 4]> = before.iter().map(id).filter(|one| !kept.contains(one)).collect();
    devices.retain(|device| !gone.contains(&id(device)));
    if !devices.is_empty() {
        status.insert("devices".to_owned(), devices.into());
    }
}

/// Drops what belongs to features that are off and are not used by what is stored.
pub(super) fn drop_what_is_off(new: &mut Object, old: &Value) {
    let before = list(&old["spec"]["devices"]);
    let attributes = |device: &'_ Value| -> bool {
        let mut all = device["attributes"].as_object().into_iter().flatten();
        all.any(|(_, value)| LISTS.iter().any(|list| !value[*list].is_null()))
    };
    let keeps_lists = before.iter().any(attributes);
    let keeps_mappings = before.iter().any(|device| !device[MAPPINGS].is_null());
    let devices = new.get_mut("spec").and_then(|spec| spec.get_mut("devices")).and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten().filter_map(Value::as_object_mut) {
        if !keeps_mappings {
            device.remove(MAPPINGS);
        }
        if let (false, Some(Value::Object(attributes))) = (keeps_lists, device.get_mut("attributes")) {
            let values = attributes.values_mut().filter_map(Value::as_object_mut);
            values.for_each(|value| value.retain(|key, _| !LISTS.contains(&key.as_str())));
        }
    }
}

/// Where a specification asks for devices that others use.
pub(super) fn asks_for_admin_access(spec: &Value) -> Option<String> {
    let requests = list(&spec["devices"]["requests"]);
    let at = requests.iter().position(|request| request["exactly"]["adminAccess"] == true)?;
    // Of templates too, as upstream says it.
    Some(format!("spec.devices.requests[{at}].adminAccess"))
}

/// Where a status begins to give a claim such devices.
pub(super) fn grants_admin_access(new: &Value, old: &Value) -> Option<String> {
    let first = |status: &Value| results(status).iter().position(|result| result["adminAccess"] == true);
    match (first(old), first(new)) {
        (None, Some(at)) => Some(format!("status.allocation.devices.results[{at}].adminAccess")),
        _ => None,
    }
}

/// The rights that a change of a claim's status needs: one to allocate and reserve, one for each driver whose devices
/// are told something new about.
pub(super) fn further_rights(new: &Value, old: &Value) -> Vec<FurtherRight> {
    let mut rights = Vec::new();
    if ["allocation", "reservedFor"].iter().any(|key| new[*key] != old[*key]) {
        rights.push(FurtherRight {
            field: "status.allocation",
            changed: "status.allocation or status.reservedFor",
            subresource: "binding",
            name: String::new(),
            within_namespace: false,
            node: None,
        });
    }
    if new["allocation"].is_null() {
        return rights;
    }
    rights.extend(changed_drivers(new, old).into_iter().map(|driver| FurtherRight {
        field: "status.devices",
        changed: "status.devices",
        subresource: "driver",
        name: driver.to_owned(),
        within_namespace: true,
        node: Some(node(&new["allocation"])),
    }));
    rights
}

/// Drivers with a device about which the status says something else than before.
fn changed_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let mut before: HashMap<[&str; 4], &Value> =
        list(&old["devices"]).iter().map(|device| (id(device), device)).collect();
    let changed = list(&new["devices"]).iter().filter(|device| before.remove(&id(device)) != Some(device));
    let mut drivers: BTreeSet<&str> = changed.map(|device| text(&device["driver"])).collect();
    drivers.extend(before.into_values().map(|device| text(&device["driver"])));
    drivers
}

/// The one node that an allocation is good for, if its selector names just that.
fn node(allocation: &Value) -> Option<String> {
    let [term] = list(&allocation["nodeSelector"]["nodeSelectorTerms"]) else { return None };
    let ([], [field]) = (list(&term["matchExpressions"]), list(&term["matchFields"])) else { return None };
    let [name] = list(&field["values"]) else { return None };
    (field["key"] == "metadata.name" && field["operator"] == "In").then(|| text(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn device(name: &str, share: Option<&str>) -> Value {
        let mut device = json!({"driver": "d.example", "pool": "p", "device": name});
        if let Some(share) = share {
            device["shareID"] = share.into();
        }
        device
    }

    fn status(results: &[Value], devices: &[Value]) -> Value {
        json!({"allocation": {"devices": {"results": results}}, "devices": devices})
    }

    #[test]
    fn what_was_said_of_a_device_goes_with_it() {
        let (a, b, shared) = (device("a", None), device("b", None), device("a", Some("s")));
        let old = json!({"status": status(&[a.clone(), b.clone(), shared.clone()], &[])});
        let left = |results: &[Value], devices: &[Value]| {
            let mut new = json!({"status": status(results, devices)}).as_object().unwrap().clone();
            drop_deallocated(&mut new, &old);
            new["status"].get("devices").cloned()
        };
        let all = [a.clone(), b.clone(), shared.clone()];
        assert_eq!(left(&[b.clone(), shared.clone()], &all), Some(json!([b, shared])));
        assert_eq!(left(&[], &all), None);
        let stranger = device("c", None);
        assert_eq!(
            left(&[], std::slice::from_ref(&stranger)),
            Some(json!([stranger])),
            "validation says what is wrong with it"
        );
    }

    #[test]
    fn what_is_off_is_dropped_unless_it_was_there() {
        let spec = |attribute: Value| json!({"spec": {"devices": [{"name": "a", "attributes": {"x": attribute}, MAPPINGS: {"cpu": {}}}]}});
        let after = |old: &Value| {
            let mut new = spec(json!({"ints": [1], "int": 1})).as_object().unwrap().clone();
            drop_what_is_off(&mut new, old);
            Value::Object(new)
        };
        let device = |object: &Value| object["spec"]["devices"][0].clone();
        let dropped = device(&after(&Value::Null));
        assert_eq!(dropped, json!({"name": "a", "attributes": {"x": {"int": 1}}}));
        let kept = device(&after(&spec(json!({"bools": [true]}))));
        assert_eq!((&kept["attributes"]["x"]["ints"], &kept[MAPPINGS]), (&json!([1]), &json!({"cpu": {}})));
    }

    #[test]
    fn a_change_of_a_status_needs_the_rights_of_its_parts() {
        let (a, b) = (device("a", None), device("b", None));
        let mut said = a.clone();
        said["networkData"] = json!({"interfaceName": "eth0"});
        let names = |new: &Value, old: &Value| -> Vec<String> {
            let rights = further_rights(new, old);
            rights.into_iter().map(|right| format!("{}:{}", right.subresource, right.name)).collect()
        };
        let none = json!({});
        let given = status(&[a.clone(), b], &[]);
        assert_eq!(names(&given, &none), ["binding:"]);
        assert_eq!(names(&given, &given), [""; 0]);
        let told = status(results(&given), &[said.clone()]);
        assert_eq!(names(&told, &given), ["driver:d.example"], "said");
        assert_eq!(names(&given, &told), ["driver:d.example"], "taken back");
        assert_eq!(names(&told, &told), [""; 0]);
        assert_eq!(names(&none, &told), ["binding:"], "nobody is asked about devices that are gone");
        let mut reserved = given.clone();
        reserved["reservedFor"] = json!([{"uid": "u"}]);
        assert_eq!(names(&reserved, &given), ["binding:"]);
    }

    #[test]
    fn an_allocation_is_of_a_node_when_its_selector_names_just_that() {
        let on = |term: Value| node(&json!({"nodeSelector": {"nodeSelectorTerms": [term]}}));
        let field = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
        assert_eq!(on(json!({"matchFields": [field]})).as_deref(), Some("n"));
        assert_eq!(on(json!({"matchFields": [field, field]})), None);
        assert_eq!(
            on(json!({"matchFields": [field], "matchExpressions": [{"key": "a", "operator": "Exists"}]})),
            None
        );
        let mut other = field.clone();
        other["operator"] = "NotIn".into();
        assert_eq!(on(json!({"matchFields": [other]})), None);
        assert_eq!(node(&json!({})), None);
    }

    #[test]
    fn admin_access_is_found_where_it_is_asked_for() {
        let spec = |access: Value| json!({"devices": {"requests": [{"firstAvailable": [{}]}, {"exactly": {"adminAccess": access}}]}});
        assert_eq!(
            asks_for_admin_access(&spec(true.into())).as_deref(),
            Some("spec.devices.requests[1].adminAccess")
        );
        assert_eq!(asks_for_admin_access(&spec(false.into())), None);
        let granted = status(&[json!({"adminAccess": true})], &[]);
        let path = "status.allocation.devices.results[0].adminAccess";
        assert_eq!(grants_admin_access(&granted, &json!({})).as_deref(), Some(path));
        assert_eq!(grants_admin_access(&granted, &granted), None);
    }
}
