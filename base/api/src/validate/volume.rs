//! Rules of persistent volumes: what they are made of, where they may be used, and what stays.

use serde_json::Value;

use super::error::{Errors, Shown, list, text};
use super::pod;
use crate::path::Path;
use crate::quantity::Quantity;
use crate::syntax;

pub(super) const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const ONE: &str = "may not specify more than 1 volume type";

/// Every source of a volume, in the order in which upstream looks for them.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Sources that may be mounted with options by annotation.
const WITH_OPTIONS: &[&str] = &[
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// A new volume.
pub(crate) fn create(object: &Value, errors: &mut Errors) {
    volume(object, false, errors);
    mount_options(object, errors);
}

/// A changed volume; upstream looks at it twice, and clients see both.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let required = &old["spec"]["nodeAffinity"]["required"];
    let lenient = list(&required["nodeSelectorTerms"])
        .iter()
        .flat_map(|term| list(&term["matchExpressions"]))
        .flat_map(|expression| list(&expression["values"]))
        .any(|value| !syntax::label_value(text(value)).is_empty());
    volume(new, lenient, errors);
    mount_options(new, errors);
    volume(new, lenient, errors);

    let (spec, before) = (&new["spec"], &old["spec"]);
    if !same_source(spec, before) {
        let root = Path::root("spec");
        errors.forbidden(
            &root.child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        );
    }
    errors.immutable(&Path::root("volumeMode"), &spec["volumeMode"], &before["volumeMode"]);
    if before["nodeAffinity"].is_object() && !same_affinity(&spec["nodeAffinity"], &before["nodeAffinity"]) {
        let words = "field is immutable, except for updating from beta label to GA";
        errors.invalid(&Path::root("nodeAffinity"), Shown(shown_affinity(&spec["nodeAffinity"])), words);
    }
    if before["volumeAttributesClassName"].is_string() && !spec["volumeAttributesClassName"].is_string() {
        let root = Path::root("spec");
        let words = "update from non-nil value to nil is forbidden";
        errors.forbidden(&root.child("volumeAttributesClassName"), words);
    }
}

/// Whether a volume is made of what it was; the secret for growing it may be added.
fn same_source(spec: &Value, before: &Value) -> bool {
    const SECRET: &str = "controllerExpandSecretRef";
    SOURCES.iter().all(|source| {
        let (now, then) = (&spec[*source], &before[*source]);
        if *source == "csi" && now.is_object() && then.is_object() && then[SECRET].is_null() {
            let mut now = now.clone();
            if let Some(csi) = now.as_object_mut() {
                csi.remove(SECRET);
            }
            return now == *then;
        }
        now == then
    })
}

/// Names of labels that are another now.
const RENAMED: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

fn same_affinity(now: &Value, before: &Value) -> bool {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => {
            now.len() == before.len()
                && now.iter().all(|(key, value)| {
                    let Some(old) = before.get(key) else { return false };
                    let renamed = || RENAMED.iter().any(|(from, to)| old == from && value == to);
                    same_affinity(value, old) || (key == "key" && renamed())
                })
        }
        (Value::Array(now), Value::Array(before)) => {
            now.len() == before.len()
                && now.iter().zip(before).all(|(now, before)| same_affinity(now, before))
        }
        _ => now == before,
    }
}

/// The affinity of a volume as upstream's internal type prints itself.
fn shown_affinity(affinity: &Value) -> String {
    let all = |items: &Value, one: &dyn Fn(&Value) -> String| match items {
        Value::Array(items) => format!("[{}]", items.iter().map(one).collect::<Vec<_>>().join(",")),
        _ => "null".to_owned(),
    };
    let requirement = |r: &Value| {
        format!("{{\"Key\":{},\"Operator\":{},\"Values\":{}}}", r["key"], r["operator"], r["values"])
    };
    let term = |t: &Value| {
        let (expressions, fields) =
            (all(&t["matchExpressions"], &requirement), all(&t["matchFields"], &requirement));
        format!("{{\"MatchExpressions\":{expressions},\"MatchFields\":{fields}}}")
    };
    match (affinity, &affinity["required"]) {
        (Value::Object(_), Value::Object(required)) => {
            let terms = all(required.get("nodeSelectorTerms").unwrap_or(&Value::Null), &term);
            format!("{{\"Required\":{{\"NodeSelectorTerms\":{terms}}}}}")
        }
        (Value::Object(_), _) => "{\"Required\":null}".to_owned(),
        _ => "null".to_owned(),
    }
}

fn mount_options(object: &Value, errors: &mut Errors) {
    const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
    let takes = WITH_OPTIONS.iter().any(|source| object["spec"][*source].is_object());
    if !takes && object["metadata"]["annotations"][ANNOTATION].is_string() {
        let metadata = Path::root("metadata");
        let annotations = metadata.child("annotations");
        errors
            .forbidden(&annotations.child(ANNOTATION), "may not specify mount options for this volume type");
    }
}

fn volume(object: &Value, lenient: bool, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    access_modes(spec, "", &path, errors);
    capacity(&spec["capacity"], &path.child("capacity"), errors);
    let here = path.child("persistentVolumeReclaimPolicy");
    let policy = text(&spec["persistentVolumeReclaimPolicy"]);
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        errors.not_supported(&here, policy, &["Delete", "Recycle", "Retain"]);
    }
    if spec["nodeAffinity"].is_object() {
        let affinity = path.child("nodeAffinity");
        match &spec["nodeAffinity"]["required"] {
            Value::Null => {
                errors.required(&affinity.child("required"), "must specify required node constraints");
            }
            selector => pod::node_selector(selector, lenient, &affinity.child("required"), errors),
        }
    }
    sources(spec, text(&object["metadata"]["name"]), &path, errors);
    if policy == "Recycle" && is_root(text(&spec["hostPath"]["path"])) {
        errors.forbidden(&here, "may not be 'recycle' for a hostPath mount of '/'");
    }
    class_and_mode(spec, &path, errors);
}

/// The modes in which a volume can be used; `words` are said when there are none.
pub(super) fn access_modes(spec: &Value, words: &str, path: &Path<'_>, errors: &mut Errors) {
    let (here, modes) = (path.child("accessModes"), list(&spec["accessModes"]));
    if modes.is_empty() {
        errors.required(&here, words);
    }
    which_modes(modes, &here, errors);
}

/// Modes that there are, and of which one excludes the others.
pub(super) fn which_modes(modes: &[Value], here: &Path<'_>, errors: &mut Errors) {
    for mode in modes.iter().map(text).filter(|mode| !MODES.contains(mode)) {
        errors.not_supported(here, mode, MODES);
    }
    let alone = |mode: &Value| mode == "ReadWriteOncePod";
    if modes.iter().any(alone) && modes.iter().any(|mode| MODES.contains(&text(mode)) && !alone(mode)) {
        errors.forbidden(here, "may not use ReadWriteOncePod with other access modes");
    }
}

fn capacity(capacity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let given = capacity.as_object();
    if given.is_none_or(serde_json::Map::is_empty) {
        errors.required(path, "");
    }
    if given.is_none_or(|given| !given.contains_key("storage") || given.len() > 1) {
        errors.not_supported(path, capacity, &["storage"]);
    }
    for (name, amount) in given.into_iter().flatten() {
        let Ok(quantity) = Quantity::parse(text(amount)) else { continue };
        basic_quantity(&quantity, &path.key(name), errors);
        positive_quantity(&quantity, text(amount), &path.key(name), errors);
    }
}

/// An amount that is at least nothing.
pub(super) fn basic_quantity(quantity: &Quantity, path: &Path<'_>, errors: &mut Errors) {
    if quantity.value() < 0 {
        errors.invalid(path, quantity.value(), "must be a valid resource quantity");
    }
}

/// An amount that is more than nothing.
pub(super) fn positive_quantity(quantity: &Quantity, shown: &str, path: &Path<'_>, errors: &mut Errors) {
    if !quantity.is_positive() {
        errors.invalid(path, shown, "must be greater than zero");
    }
}

/// Whether a path is that of the root folder, however it is written.
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn class_and_mode(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        errors.all_invalid(&path.child("storageClassName"), class, syntax::dns_subdomain(class));
    }
    if let Some(mode) = spec["volumeMode"].as_str()
        && !matches!(mode, "Block" | "Filesystem")
    {
        errors.not_supported(&path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    if let Some(class) = spec["volumeAttributesClassName"].as_str() {
        let here = path.child("volumeAttributesClassName");
        match class {
            "" => errors.required(&here, "an empty string is disallowed"),
            class => errors.all_invalid(&here, class, syntax::dns_subdomain(class)),
        }
        if !spec["csi"].is_object() {
            errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

/// Rules of a volume that is written into an attachment.
pub(super) fn inline(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WORDS: &str = "may not be specified in the context of inline volumes";
    let has = |field: &str| !spec[field].is_null();
    for field in ["claimRef", "capacity"].into_iter().filter(|field| has(field)) {
        errors.forbidden(&path.child(field), WORDS);
    }
    if !has("csi") {
        errors.required(&path.child("csi"), "has to be specified in the context of inline volumes");
    }
    access_modes(spec, "", path, errors);
    if !matches!(text(&spec["persistentVolumeReclaimPolicy"]), "" | "Retain") {
        let here = path.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&here, "may only be Retain in the context of inline volumes");
    }
    if has("nodeAffinity") {
        errors.forbidden(&path.child("nodeAffinity"), WORDS);
    }
    sources(spec, "", path, errors);
    if !text(&spec["storageClassName"]).is_empty() {
        errors.forbidden(&path.child("storageClassName"), WORDS);
    }
    if spec["volumeMode"].as_str().is_some_and(|mode| mode != "Filesystem") {
        let words = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(&path.child("volumeMode"), words);
    }
}

fn sources(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for source in SOURCES.iter().filter(|source| spec[**source].is_object()) {
        // Upstream never refuses a second one here.
        if found && *source != "flexVolume" {
            let shown = if *source == "cephfs" { "cephFS" } else { *source };
            errors.forbidden(&path.child(shown), ONE);
            continue;
        }
        found = true;
        let shown = if *source == "gcePersistentDisk" { "persistentDisk" } else { *source };
        one_source(source, &spec[*source], name, &path.child(shown), errors);
        if *source == "local" && !spec["nodeAffinity"].is_object() {
            errors.required(&path.child("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

/// Fields that may not be empty.
fn needed(fields: &[&str], source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        if text(&source[*field]).is_empty() && list(&source[*field]).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
}

fn one_source(kind: &str, source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "hostPath" => pod::host_path(source, path, errors),
        "gcePersistentDisk" => {
            needed(&["pdName"], source, path, errors);
            partition(source, path, errors);
        }
        "awsElasticBlockStore" => {
            needed(&["volumeID"], source, path, errors);
            partition(source, path, errors);
        }
        "glusterfs" => glusterfs(source, path, errors),
        "flocker" => flocker(source, path, errors),
        "nfs" => {
            needed(&["server", "path"], source, path, errors);
            if !text(&source["path"]).starts_with('/') {
                errors.invalid(&path.child("path"), text(&source["path"]), "must be an absolute path");
            }
        }
        "rbd" => needed(&["monitors", "image"], source, path, errors),
        "quobyte" => quobyte(source, path, errors),
        "cephfs" => needed(&["monitors"], source, path, errors),
        "iscsi" => iscsi(source, name, path, errors),
        "cinder" => {
            needed(&["volumeID"], source, path, errors);
            secret_reference(&source["secretRef"], &path.child("secretRef"), errors);
        }
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => flex(source, path, errors),
        "azureFile" => {
            needed(&["secretName", "shareName"], source, path, errors);
            if source["secretNamespace"].as_str() == Some("") {
                errors.required(&path.child("secretNamespace"), "");
            }
        }
        "vsphereVolume" => needed(&["volumePath"], source, path, errors),
        "photonPersistentDisk" => needed(&["pdID"], source, path, errors),
        "portworxVolume" => needed(&["volumeID"], source, path, errors),
        "azureDisk" => azure_disk(source, path, errors),
        "scaleIO" => needed(&["gateway", "system", "volumeName"], source, path, errors),
        "local" => match text(&source["path"]) {
            "" => errors.required(&path.child("path"), ""),
            value => pod::no_backsteps(value, &path.child("path"), errors),
        },
        "storageos" => storageos(source, path, errors),
        "csi" => csi(source, path, errors),
        _ => {}
    }
}

fn partition(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let partition = source["partition"].as_i64().unwrap_or(0);
    if !(0..=255).contains(&partition) {
        errors.invalid(&path.child("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

fn glusterfs(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    needed(&["endpoints", "path"], source, path, errors);
    let here = path.child("endpointsNamespace");
    match source["endpointsNamespace"].as_str() {
        Some("") => {
            errors.invalid(&here, "", "if the endpointnamespace is set, it must be a valid namespace name");
        }
        Some(namespace) => errors.all_invalid(&here, namespace, syntax::dns_label(namespace)),
        None => {}
    }
}

fn flocker(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, uuid) = (text(&source["datasetName"]), text(&source["datasetUUID"]));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(
                path,
                "resource",
                "datasetName and datasetUUID can not be specified simultaneously",
            );
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const WORDS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(&source["registry"]);
    if registry.is_empty() {
        errors.required(&path.child("registry"), WORDS);
    } else if text(&source["tenant"]).len() >= 65 {
        let words = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), words);
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&path.child("registry"), registry, WORDS);
        }
    }
    needed(&["volume"], source, path, errors);
}

/// Whether Go would take a text apart into a host and a port.
fn is_host_and_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(inner) => return ![inner, port].iter().any(|part| part.contains(['[', ']'])),
            None => return false,
        },
        None => host,
    };
    !host.contains([':', '[', ']']) && !port.contains(['[', ']'])
}

fn iscsi(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let portal = text(&source["targetPortal"]);
    needed(&["targetPortal"], source, path, errors);
    let initiator = source["initiatorName"].as_str();
    if initiator.is_some() && name.len() + 1 + portal.len() > 64 {
        let words = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.invalid(&path.child("targetportal"), portal, words);
    }
    match text(&source["iqn"]) {
        "" => errors.required(&path.child("iqn"), ""),
        iqn if !is_iscsi_name(iqn) => errors.invalid(&path.child("iqn"), iqn, "must be valid format"),
        _ => {}
    }
    let lun = source["lun"].as_i64().unwrap_or(0);
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
    }
    let (secret, needs) = (&source["secretRef"], |field: &str| source[field] == true);
    let here = path.child("secretRef");
    if (needs("chapAuthDiscovery") || needs("chapAuthSession")) && !secret.is_object() {
        errors.required(&here, "");
    }
    if secret.is_object() {
        needed(&["name"], secret, &here, errors);
    }
    if let Some(initiator) = initiator.filter(|initiator| !is_iscsi_name(initiator)) {
        errors.invalid(&path.child("initiatorname"), initiator, "must be valid format");
    }
}

/// Whether a name has the form of one of the three families of names.
fn is_iscsi_name(name: &str) -> bool {
    let plain =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_alphanumeric());
    // The character after the family may be any.
    let after = |family: &str| {
        let rest = name.strip_prefix(family)?;
        rest.char_indices().nth(1).map(|(at, _)| &rest[at..])
    };
    if name.starts_with("eui") {
        return after("eui").is_some_and(|rest| plain(rest, 16));
    }
    if name.starts_with("naa") {
        return after("naa").is_some_and(|rest| plain(rest, 32));
    }
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let Some((date, rest)) = rest.split_at_checked(8) else { return false };
    let dated = date.bytes().zip("dddd-dd.".bytes()).all(|(b, form)| match form {
        b'd' => b.is_ascii_digit(),
        form => b == form,
    });
    let Some((authority, target)) = rest.split_once(':') else { return false };
    dated
        && !authority.is_empty()
        && authority.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !target.is_empty()
        && !target.contains(|c: char| c.is_ascii_whitespace() || ",;*&$|".contains(c))
}

/// A secret whose name and namespace must both be said.
fn secret_reference(secret: &Value, path: &Path<'_>, errors: &mut Errors) {
    if secret.is_object() {
        needed(&["name", "namespace"], secret, path, errors);
    }
}

fn fibre_channel(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (list(&source["targetWWNs"]), list(&source["wwids"]));
    let here = path.child("targetWWNs");
    match (names.is_empty(), ids.is_empty()) {
        (true, true) => errors.required(&here, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => {
            let words = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(&here, &source["targetWWNs"], words);
        }
        _ => {}
    }
    if names.is_empty() {
        return;
    }
    match source["lun"].as_i64() {
        None => errors.required(&path.child("lun"), "lun is required if targetWWNs is specified"),
        Some(lun) if !(0..=255).contains(&lun) => {
            errors.invalid(&path.child("lun"), lun, "must be between 0 and 255, inclusive");
        }
        Some(_) => {}
    }
}

fn flex(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    needed(&["driver"], source, path, errors);
    let here = path.child("options");
    for (key, _) in source["options"].as_object().into_iter().flatten() {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.invalid(&here.key(key), key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    needed(&["diskName", "diskURI"], source, path, errors);
    for (field, supported) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if let Some(value) = source[field].as_str().filter(|value| !supported.contains(value)) {
            errors.not_supported(&path.child(field), value, &supported);
        }
    }
    let uri = text(&source["diskURI"]);
    let (begin, form) = match source["kind"].as_str() {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => {
            ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
        }
    };
    if !uri.starts_with(begin) {
        errors.not_supported(&path.child("diskURI"), uri, &[form]);
    }
}

fn storageos(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(&source["volumeName"]) {
        "" => errors.required(&path.child("volumeName"), ""),
        name => errors.all_invalid(&path.child("volumeName"), name, syntax::dns_label(name)),
    }
    let namespace = text(&source["volumeNamespace"]);
    if !namespace.is_empty() {
        errors.all_invalid(&path.child("volumeNamespace"), namespace, syntax::dns_label(namespace));
    }
    secret_reference(&source["secretRef"], &path.child("secretRef"), errors);
}

fn csi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    driver_name(text(&source["driver"]), &path.child("driver"), errors);
    needed(&["volumeHandle"], source, path, errors);
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let (here, secret) = (path.child(field), &source[field]);
        if !secret.is_object() {
            continue;
        }
        match text(&secret["name"]) {
            "" => errors.required(&here.child("name"), ""),
            name => errors.all_invalid(&here.child("name"), name, syntax::dns_subdomain(name)),
        }
        match text(&secret["namespace"]) {
            "" => errors.required(&here.child("namespace"), ""),
            namespace => {
                errors.all_invalid(&here.child("namespace"), namespace, syntax::dns_label(namespace))
            }
        }
    }
}

/// The name of a driver of the Container Storage Interface.
pub(super) fn driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.all_invalid(path, name, syntax::dns_subdomain(&name.to_lowercase()));
}
