//! Rules of storage classes, attachments of volumes, and drivers of the Container Storage Interface.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
use super::{meta, volume};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

/// Bytes that parameters of a class or what is told about an attachment may have in all.
const MOST_BYTES: usize = 256 * 1024;
const IMMUTABLE: &str = "field is immutable";

/// A storage class.
pub(crate) fn class(object: &Value, errors: &mut Errors) {
    provisioner(text(&object["provisioner"]), &Path::root("provisioner"), errors);
    parameters(&object["parameters"], true, errors);
    let policy = text(&object["reclaimPolicy"]);
    if !matches!(policy, "" | "Delete" | "Retain") {
        errors.not_supported(&Path::root("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let (here, modes) = (Path::root("volumeBindingMode"), ["Immediate", "WaitForFirstConsumer"]);
    match object["volumeBindingMode"].as_str() {
        None => errors.required(&here, ""),
        Some(mode) if !modes.contains(&mode) => errors.not_supported(&here, mode, &modes),
        Some(_) => {}
    }
    topologies(&object["allowedTopologies"], errors);
}

/// How volumes of a class are made stays.
pub(crate) fn class_update(new: &Value, old: &Value, errors: &mut Errors) {
    class(new, errors);
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(&Path::root(field), &new[field], &old[field]);
    }
}

fn provisioner(name: &str, path: &Path<'_>, errors: &mut Errors) {
    match name {
        "" => errors.required(path, ""),
        name => {
            let name = name.to_lowercase();
            errors.all_invalid(path, &name, syntax::qualified_name(&name));
        }
    }
}

fn parameters(given: &Value, may_be_none: bool, errors: &mut Errors) {
    const MOST: usize = 512;
    let (path, given) = (Path::root("parameters"), given.as_object());
    let count = given.map_or(0, serde_json::Map::len);
    if count > MOST {
        return errors.too_long(&path, MOST);
    }
    let mut size = 0;
    for (key, value) in given.into_iter().flatten() {
        if key.is_empty() {
            errors.invalid(&path, "", "field can not be empty.");
        }
        size += key.len() + text(value).len();
    }
    if size > MOST_BYTES {
        errors.too_long(&path, MOST_BYTES);
    }
    if count == 0 && !may_be_none {
        errors.required(&path, "must contain at least one key/value pair");
    }
}

fn topologies(terms: &Value, errors: &mut Errors) {
    let path = Path::root("allowedTopologies");
    let mut all = Seen::default();
    for (i, term) in list(terms).iter().enumerate() {
        let here = path.index(i);
        let expressions = here.child("matchLabelExpressions");
        let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (j, expression) in list(&term["matchLabelExpressions"]).iter().enumerate() {
            let at = expressions.index(j);
            let (key, values) = (text(&expression["key"]), list(&expression["values"]));
            if values.is_empty() {
                errors.required(&at.child("values"), "");
            }
            let (mut set, at_values) = (BTreeSet::new(), at.child("values"));
            for (k, value) in values.iter().map(text).enumerate() {
                if !set.insert(value) {
                    errors.duplicate(&at_values.index(k), value);
                }
            }
            errors.all_invalid(&at.child("key"), key, syntax::qualified_name(key));
            if keys.insert(key, set).is_some() {
                errors.duplicate(&at.child("key"), key);
            }
        }
        // Upstream compares with as many empty ones as there are, too.
        if keys.is_empty() {
            for _ in list(terms) {
                if errors.are_full() {
                    return;
                }
                errors.duplicate(&expressions, "");
            }
        }
        if all.again(keys) {
            errors.duplicate(&expressions, "");
        }
    }
}

/// A class of volume attributes.
pub(crate) fn attributes_class(object: &Value, errors: &mut Errors) {
    provisioner(text(&object["driverName"]), &Path::root("driverName"), errors);
    parameters(&object["parameters"], false, errors);
}

/// A class of volume attributes never changes.
pub(crate) fn attributes_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    for field in ["driverName", "parameters"] {
        if new[field] != old[field] {
            errors.forbidden(&Path::root(field), &format!("updates to {field} are forbidden."));
        }
    }
    attributes_class(new, errors);
}

/// An attachment of a volume to a node.
pub(crate) fn attachment(object: &Value, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let path = Path::root("spec");
    let spec = &object["spec"];
    volume::driver_name(text(&spec["attacher"]), &path.child("attacher"), errors);
    let here = path.child("source");
    let (inline, name) =
        (&spec["source"]["inlineVolumeSpec"], spec["source"]["persistentVolumeName"].as_str());
    match (inline.is_object(), name) {
        (false, None) => errors.required(&here, ONE),
        (true, Some(_)) => errors.forbidden(&here, ONE),
        (false, Some("")) => {
            errors
                .required(&here.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (false, Some(_)) => {}
        (true, None) => volume::inline(inline, &here.child("inlineVolumeSpec"), errors),
    }
    let node = text(&spec["nodeName"]);
    errors.all_invalid(&path.child("nodeName"), node, syntax::dns_subdomain(node));
    attachment_status(&object["status"], errors);
    if let Some(name) = name {
        let here = Path::root("spec.source.persistentVolumeName");
        errors.all_invalid(&here, name, syntax::dns_subdomain(name));
    }
}

fn attachment_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let told = status["attachmentMetadata"].as_object().into_iter().flatten();
    if told.map(|(key, value)| key.len() + text(value).len()).sum::<usize>() > MOST_BYTES {
        errors.too_long(&path.child("attachmentMetadata"), MOST_BYTES);
    }
    for field in ["attachError", "detachError"] {
        let (here, error) = (path.child(field), &status[field]);
        if text(&error["message"]).len() > 1024 {
            // Upstream names the other limit.
            errors.too_long(&here.child("message"), MOST_BYTES);
        }
        if let Some(code) = error["errorCode"].as_i64().filter(|code| *code < 0) {
            errors.invalid(&here.child("errorCode"), code, "must be between 0 and 2147483647, inclusive");
        }
    }
}

/// What is attached where stays.
pub(crate) fn attachment_update(new: &Value, old: &Value, errors: &mut Errors) {
    attachment(new, errors);
    if new["spec"] != old["spec"] {
        errors.invalid(&Path::root("spec"), Shown(shown_attachment(&new["spec"])), IMMUTABLE);
    }
}

/// The specification of an attachment as upstream's internal type prints itself; a volume inside is left out.
fn shown_attachment(spec: &Value) -> String {
    format!(
        "{{\"Attacher\":{},\"Source\":{{\"PersistentVolumeName\":{},\"InlineVolumeSpec\":null}},\"NodeName\":{}}}",
        Value::from(text(&spec["attacher"])),
        spec["source"]["persistentVolumeName"],
        Value::from(text(&spec["nodeName"])),
    )
}

/// A driver.
pub(crate) fn driver(object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    for (field, shown) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if spec[field].is_null() {
            errors.required(&path.child(shown), "");
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if let Some(policy) = spec["fsGroupPolicy"].as_str().filter(|policy| !policies.contains(policy)) {
        errors.not_supported(&path.child("fsGroupPolicy"), policy, &policies);
    }
    token_requests(&spec["tokenRequests"], &path.child("tokenRequests"), errors);
    let modes = ["Persistent", "Ephemeral"];
    for mode in list(&spec["volumeLifecycleModes"]).iter().map(text).filter(|mode| !modes.contains(mode)) {
        errors.not_supported(&path.child("volumeLifecycleModes"), mode, &modes);
    }
    if spec["seLinuxMount"].is_null() {
        errors.required(&path.child("seLinuxMount"), "");
    }
    if let Some(period) = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64().filter(|period| *period < 10) {
        let here = path.child("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&here, period, "must be greater than or equal to 10 seconds");
    }
    let secrets = &spec["serviceAccountTokenInSecrets"];
    if secrets.is_boolean() && list(&spec["tokenRequests"]).is_empty() {
        let words = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&path.child("serviceAccountTokenInSecrets"), secrets, words);
    }
}

fn token_requests(requests: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut audiences = Seen::default();
    for (i, request) in list(requests).iter().enumerate() {
        let (here, audience) = (path.index(i), text(&request["audience"]));
        if audiences.again(audience) {
            errors.duplicate(&here.child("audience"), audience);
            continue;
        }
        let Some(seconds) = request["expirationSeconds"].as_i64() else { continue };
        let here = here.child("expirationSeconds");
        if seconds < 600 {
            errors.invalid(&here, seconds, "may not specify a duration less than 10 minutes");
        }
        if seconds > 1 << 32 {
            errors.invalid(&here, seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
}

/// How a driver is attached, and for how long its volumes live, stays.
pub(crate) fn driver_update(new: &Value, old: &Value, errors: &mut Errors) {
    driver(new, errors);
    let path = Path::root("spec");
    for (field, shown) in
        [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
    {
        errors.immutable(&path.child(shown), &new["spec"][field], &old["spec"][field]);
    }
}

/// The drivers of a node.
pub(crate) fn driver_node(object: &Value, errors: &mut Errors) {
    let root = Path::root("spec");
    let path = root.child("drivers");
    let mut names = Seen::default();
    for (i, driver) in list(&object["spec"]["drivers"]).iter().enumerate() {
        let here = path.index(i);
        let (name, node) = (text(&driver["name"]), text(&driver["nodeID"]));
        volume::driver_name(name, &here.child("name"), errors);
        if node.is_empty() {
            errors.required(&here.child("nodeID"), "");
        }
        if node.len() > 256 {
            errors.invalid(&here.child("nodeID"), node, "must be 256 characters or less");
        }
        let allocatable = here.child("allocatable");
        errors.nonnegative(&allocatable.child("count"), &driver["allocatable"]["count"]);
        if names.again(name) {
            errors.duplicate(&here.child("name"), name);
        }
        let mut keys = Seen::default();
        for key in list(&driver["topologyKeys"]).iter().map(text) {
            if key.is_empty() {
                errors.required(&here, "");
            }
            if keys.again(key) {
                errors.duplicate(&here, key);
            }
            errors.all_invalid(&here, key, syntax::qualified_name(key));
        }
    }
}

/// Drivers come and go; of one that stays only the number of volumes changes.
pub(crate) fn driver_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    driver_node(new, errors);
    let root = Path::root("spec");
    let path = root.child("drivers");
    let mut now: HashMap<&str, Vec<&Value>> = HashMap::new();
    for driver in list(&new["spec"]["drivers"]) {
        now.entry(text(&driver["name"])).or_default().push(driver);
    }
    for before in list(&old["spec"]["drivers"]) {
        for driver in now.get(text(&before["name"])).into_iter().flatten() {
            let same = |key: &str| driver[key] == before[key];
            if same("nodeID") && same("topologyKeys") {
                continue;
            }
            let shown = format!(
                "{{\"Name\":{},\"NodeID\":{},\"TopologyKeys\":{},\"Allocatable\":null}}",
                driver["name"],
                Value::from(text(&driver["nodeID"])),
                driver["topologyKeys"],
            );
            errors.invalid(&path, Shown(shown), IMMUTABLE);
        }
    }
}

/// How much storage there is for a class in a part of the cluster.
pub(crate) fn capacity(object: &Value, lenient: bool, errors: &mut Errors) {
    let here = Path::root("nodeTopology");
    if object["nodeTopology"].is_object() {
        meta::label_selector_with(&object["nodeTopology"], lenient, &here, errors);
    }
    let class = text(&object["storageClassName"]);
    errors.all_invalid(&Path::root("storageClassName"), class, syntax::dns_subdomain(class));
    let amount = text(&object["capacity"]);
    if Quantity::parse(amount).is_ok_and(|quantity| quantity.is_negative()) {
        errors.invalid(&Path::root("capacity"), amount, "must be greater than or equal to 0");
    }
}

/// What a capacity is of stays.
pub(crate) fn capacity_update(new: &Value, old: &Value, errors: &mut Errors) {
    let topology = &old["nodeTopology"];
    capacity(new, topology.is_object() && meta::is_bad_selector(topology), errors);
    for field in ["nodeTopology", "storageClassName"] {
        errors.immutable(&Path::root(field), &new[field], &old[field]);
    }
}
