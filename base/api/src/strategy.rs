//! What the server does with objects of one kind that it does not do with all: a [`Strategy`] for each kind, and the
//! steps that are the same for all.
//!
//! One file for each area below `strategy/`; a kind's row names its strategy. The bodies of rules and defaults live in
//! [`crate::validate`], [`crate::defaults`] and [`crate::table`]. Pure.

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod definitions;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod flow;
mod job_selector;
pub(crate) mod network;
pub(crate) mod pod;
pub(crate) mod policy;
pub(crate) mod rbac;
pub(crate) mod storage;
pub(crate) mod workloads;

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::defaults::child;
use crate::definition::Conversion;
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::Errors;
use crate::{Kind, Part, Text, fields, syntax};

/// A JSON object.
pub type Object = Map<String, Value>;

/// When an object's generation counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// Objects have none.
    None,
    /// It starts at one and follows the specification.
    Counted,
    /// It starts at one and stays.
    Fixed,
    /// It counts changes and is absent before the first.
    CountsChanges,
}

/// Plain facts about a kind's objects.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// When the generation counts.
    pub generation: Generation,
    /// Whether an update of an object that is not there creates it.
    pub creates_on_update: bool,
    /// Whether an update without resourceVersion overwrites what is stored.
    pub updates_unconditionally: bool,
    /// Whether dependents are kept when an object is deleted without a word about them, as once all were.
    pub orphans_by_default: bool,
    /// Whether a deletion is answered with the object instead of a status.
    pub deletion_shows_object: bool,
    /// Whether others are admitted by what objects of the kind say.
    pub rules_admission: bool,
    /// How long an object lives without being written again.
    pub ttl: Option<Duration>,
    /// What every request about the kind is warned of.
    pub deprecation: Option<&'static str>,
}

impl Facts {
    /// Facts of a kind with nothing special about it.
    pub const PLAIN: Facts = Facts {
        generation: Generation::None,
        creates_on_update: false,
        updates_unconditionally: true,
        orphans_by_default: false,
        deletion_shows_object: false,
        rules_admission: false,
        ttl: None,
        deprecation: None,
    };
}

/// Where in an object its scale is; each path is of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The replicas that are wanted, such as `.spec.replicas`.
    pub spec_replicas: String,
    /// Those that are there.
    pub status_replicas: String,
    /// The selector as text; empty when there is none.
    pub label_selector: String,
}

/// A right that a change needs beside the one to write the object: the verb of the request on a subresource that is
/// there for this question only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FurtherRight {
    /// The field whose change needs it.
    pub field: &'static str,
    /// What is changed, as the refusal says it.
    pub changed: &'static str,
    /// The subresource.
    pub subresource: &'static str,
    /// The name, empty for all.
    pub name: String,
    /// Whether it must be held in the object's namespace only, instead of everywhere.
    pub within_namespace: bool,
    /// Set when the verb says whether the asker is on the node that the object is bound to: that node, if there is one.
    pub node: Option<Option<String>>,
}

/// The behaviour of one kind; what is not overridden is what most kinds do.
#[allow(
    unused_variables,
    reason = "a method that does nothing has its parameters named for who overrides it"
)]
pub trait Strategy: std::fmt::Debug + Send + Sync {
    /// Plain facts.
    fn facts(&self) -> Facts {
        Facts::PLAIN
    }

    /// Complaints about an object's name.
    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::dns_subdomain(name)
    }

    /// Fills in values a client left out, beyond those that the schema declares.
    fn defaults(&self, object: &mut Object) {}

    /// Sets what only the server decides about a new object.
    fn prepare_create(&self, kind: &Kind, object: &mut Object) {
        if kind.has_status() {
            reset_status(kind, object);
        }
    }

    /// Takes back what an update of the main resource may not change.
    fn prepare_update(&self, kind: &Kind, new: &mut Object, old: &Value) {
        if kind.has_status() {
            copy(new, old, "status");
        }
    }

    /// Takes back what an update of `/status` may not change beyond what none may.
    fn prepare_status(&self, new: &mut Object, old: &Value) {
        copy(child(new, "metadata"), &old["metadata"], "finalizers");
    }

    /// Whether an update of `/status` takes nothing of the metadata, so that nobody owns any of that by it.
    fn status_comes_alone(&self) -> bool {
        false
    }

    /// The object that an update through another subresource makes.
    fn prepare_part(&self, part: Part, new: Value, old: &Value) -> Value {
        new
    }

    /// Fills in times that a client left out; `now` gives the time as objects carry it.
    fn stamp(&self, object: &mut Object, now: &dyn Fn() -> String) {}

    /// A last touch on an update of any part; `now` is the time as objects carry it.
    fn finish_update(&self, part: Option<Part>, new: &mut Value, old: &Value, now: &str) {}

    /// Completes an object whose UID is known, just before it is validated.
    fn complete(&self, object: &mut Value) {}

    /// Whether the specification changed, so that the generation counts.
    fn differs(&self, kind: &Kind, new: &Value, old: &Value) -> bool {
        differs(kind, new, old)
    }

    /// Whether finalizers are the standard ones or qualified, as of all kinds that upstream calls core.
    fn has_core_finalizers(&self) -> bool {
        true
    }

    /// Whether objects of the kind define other kinds.
    fn defines_kinds(&self) -> bool {
        false
    }

    /// Whether objects of the kind say which webhooks are called.
    fn calls_webhooks(&self) -> bool {
        false
    }

    /// Whether objects of the kind are policies, whose expressions requests are admitted by.
    fn is_admission_policy(&self) -> bool {
        false
    }

    /// Why no object of the kind can be created now.
    fn refuses_creation(&self) -> Option<&'static str> {
        None
    }

    /// What every request about the kind is warned of.
    fn deprecation(&self) -> Option<&str> {
        self.facts().deprecation
    }

    /// Whether the kind has the common rules of metadata for its own; else there are only those of any object.
    fn has_common_metadata(&self) -> bool {
        true
    }

    /// Whether a changed object's metadata is compared with the old one's only by the rules of any object.
    fn compares_metadata_once(&self) -> bool {
        false
    }

    /// Whether a changed object's metadata is judged once more like that of a new one; clients see what is said twice.
    fn looks_at_all_metadata_again(&self) -> bool {
        false
    }

    /// The same for an object whose `/status` or `/approval` changed.
    fn parts_look_at_all_metadata_again(&self) -> bool {
        false
    }

    /// Whether the beginning of a name that is to be made up is looked at, or only the name.
    fn looks_at_name_prefix(&self) -> bool {
        true
    }

    /// Whether a change is judged by [`Strategy::validate_change`] alone, beside the rules of any object's metadata.
    fn orders_its_rules(&self) -> bool {
        false
    }

    /// All rules of a change of the object or of a part, the kind's own rules of metadata included.
    fn validate_change(
        &self,
        kind: &Kind,
        part: Option<Part>,
        new: &Value,
        old: &Value,
        errors: &mut Errors,
    ) {
    }

    /// Rules of an object, new or changed.
    fn validate(&self, kind: &Kind, object: &Value, errors: &mut Errors) {}

    /// Rules of a new object alone.
    fn validate_create(&self, object: &Value, errors: &mut Errors) {}

    /// Rules of a change.
    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {}

    /// Rules of a change through a subresource; the common ones of metadata are asked before for `/status` and
    /// `/approval`.
    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {}

    /// What is accepted but told to the client, in upstream's words.
    fn warnings(&self, object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// The same of a change.
    fn change_warnings(&self, part: Option<Part>, new: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Where an object, or a change of it, asks for devices that others use, which only a namespace that is marked for
    /// that may have.
    fn asks_for_admin_access(&self, part: Option<Part>, new: &Value, old: Option<&Value>) -> Option<String> {
        None
    }

    /// Rights that a change needs beside the one to write the object.
    fn further_rights(&self, part: Option<Part>, new: &Value, old: &Value) -> Vec<FurtherRight> {
        Vec::new()
    }

    /// What of the object is stored and has no effect in this version.
    fn unenforced(&self, kind: &Kind, object: &Value) -> Option<String> {
        None
    }

    /// How quotas measure objects of the kind.
    fn measure(&self) -> Measure {
        Measure::Objects
    }

    /// Columns of a table.
    fn columns(&self) -> &[Column] {
        table::PLAIN
    }

    /// The columns as a table defines them.
    fn column_definitions(&self) -> Value {
        table::definitions(self.columns())
    }

    /// Where the number of replicas is, of a kind whose scale is not where it usually is.
    fn scale(&self) -> Option<&ScalePaths> {
        None
    }

    /// A value that changes with what is published of the kind.
    fn revision(&self) -> u64 {
        0
    }

    /// The schema as it is published, of a kind that is not in the table.
    fn published(&self) -> Option<Value> {
        None
    }

    /// Cells of one object, wide columns included.
    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        table::cells(self.columns(), object, now)
    }

    /// Paths that [`Strategy::field`] reads; enough of an object to compute its selectable fields.
    fn field_sources<'a>(&self, kind: &'a Kind) -> Vec<&'a str> {
        kind.selectable_fields.iter().map(Text::as_ref).collect()
    }

    /// The value of a selectable field as selectors see it.
    fn field<'a>(&self, object: &'a Value, field: &str) -> Option<Cow<'a, str>> {
        fields::plain(object, field)
    }

    /// What refusals of field selectors say they are about, beside the field.
    fn selected_kind(&self) -> &'static str {
        ""
    }

    /// The field that an old name of a field selector means now.
    fn renamed_field(&self, field: &str) -> Option<&'static str> {
        None
    }

    /// Whether objects are stored in the shape of another kind.
    fn is_converted(&self) -> bool {
        false
    }

    /// The version that an object is stored in, of a kind whose stored objects say that.
    fn stored_as<'a>(&'a self, object: &'a Value) -> Option<&'a str> {
        None
    }

    /// The webhook that converts objects between the versions of the kind; then nobody else does.
    fn conversion(&self) -> Option<&Conversion> {
        None
    }

    /// Turns an object into its stored shape.
    fn to_storage(&self, object: &mut Value) {}

    /// Turns a stored object into the kind's shape.
    fn to_served(&self, object: &mut Value) {}

    /// How long an object may take to end once it is deleted; none when it goes at once.
    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Whether something beside `metadata.finalizers` keeps a deleted object.
    fn is_held(&self, object: &Value) -> bool {
        false
    }

    /// Marks an object as on its way out in its own way; false when the common way is right.
    fn mark_terminating(&self, object: &mut Value, now: &str) -> bool {
        false
    }

    /// What a client is told who deletes without a word about dependents.
    fn orphan_warning(&self) -> Option<&'static str> {
        None
    }
}

/// The strategy of a kind with nothing special about it.
#[derive(Debug)]
pub struct Plain;

impl Strategy for Plain {}

/// An entry, null when absent.
fn part<'a>(map: &'a Object, key: &str) -> &'a Value {
    map.get(key).unwrap_or(&Value::Null)
}

/// Prepares an object for creation: clients cannot set status, generation starts at one.
pub fn prepare_create(kind: &Kind, object: &mut Value) {
    let Value::Object(map) = object else { return };
    if matches!(kind.strategy.facts().generation, Generation::Counted | Generation::Fixed) {
        child(map, "metadata").insert("generation".to_owned(), json!(1));
    } else {
        child(map, "metadata").remove("generation");
    }
    kind.strategy.prepare_create(kind, map);
}

/// An empty status in the shape Go prints it.
fn reset_status(kind: &Kind, map: &mut Object) {
    map.remove("status");
    let mut whole = Value::Object(std::mem::take(map));
    // Ignored: the object had the kind's shape before its status was taken away.
    crate::strict::conform(kind, &mut whole).ok();
    if let Value::Object(restored) = whole {
        *map = restored;
    }
}

/// Prepares an update of the main resource: status stays, generation follows the spec.
pub fn prepare_update(kind: &Kind, new: &mut Value, old: &Value) {
    let Value::Object(map) = new else { return };
    let generation = old["metadata"]["generation"].clone();
    let metadata = child(map, "metadata");
    if generation.is_null() {
        metadata.remove("generation");
    } else {
        metadata.insert("generation".to_owned(), generation);
    }
    kind.strategy.prepare_update(kind, map, old);
    let counts = matches!(kind.strategy.facts().generation, Generation::Counted | Generation::CountsChanges);
    if counts && kind.strategy.differs(kind, new, old) {
        bump_generation(new);
    }
}

/// Prepares an update of `/status`: everything but the status stays, except labels and annotations.
pub fn prepare_status_update(kind: &Kind, new: &mut Value, old: &Value) {
    let Value::Object(map) = new else { return };
    for (key, value) in old.as_object().into_iter().flatten() {
        if !matches!(key.as_str(), "status" | "metadata") {
            map.insert(key.clone(), value.clone());
        }
    }
    let foreign: Vec<String> = map
        .keys()
        .filter(|key| {
            !matches!(key.as_str(), "status" | "metadata" | "apiVersion" | "kind")
                && old.get(key.as_str()).is_none()
        })
        .cloned()
        .collect();
    for key in foreign {
        map.remove(&key);
    }
    let metadata = child(map, "metadata");
    for key in ["generation", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"] {
        copy(metadata, &old["metadata"], key);
    }
    kind.strategy.prepare_status(map, old);
}

/// Adds one to the generation (also when a pod's graceful deletion begins).
pub fn bump_generation(object: &mut Value) {
    let next = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    object["metadata"]["generation"] = json!(next);
}

fn copy(map: &mut Object, from: &Value, key: &str) {
    match from.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// Whether anything but metadata and status changed; where there is a specification only that counts.
fn differs(kind: &Kind, new: &Value, old: &Value) -> bool {
    if kind.schema.field("spec").is_some() {
        return new["spec"] != old["spec"];
    }
    let rest = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(k, _)| !matches!(k.as_str(), "metadata" | "status" | "apiVersion" | "kind"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    rest(new) != rest(old)
}

/// Puts back what clients may change of the metadata, for kinds whose status comes alone.
fn keep_metadata(new: &mut Object, old: &Value) {
    for key in ["labels", "annotations", "finalizers"] {
        copy(child(new, "metadata"), &old["metadata"], key);
    }
}

/// Takes over what is written about field owners.
fn keep_owners(out: &mut Value, new: &Value) {
    if let Some(owners) = new["metadata"].get("managedFields") {
        out["metadata"]["managedFields"] = owners.clone();
    }
}

/// The old object with one part of the new one.
fn graft(old: &Value, new: &Value, path: &[&str; 2]) -> Value {
    let mut out = old.clone();
    keep_owners(&mut out, new);
    match (new[path[0]].get(path[1]), out[path[0]].as_object_mut()) {
        (Some(part), _) => out[path[0]][path[1]] = part.clone(),
        (None, Some(parent)) => {
            parent.remove(path[1]);
        }
        (None, None) => {}
    }
    out
}

/// The sentence for what is stored and has no effect yet.
fn stored_only(what: &str) -> String {
    format!("{what}: stored, but this version does not enforce it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, resource: &str) -> &'static Kind {
        crate::by_resource(group, "v1", resource).unwrap()
    }

    #[test]
    fn only_what_has_no_effect_is_warned_about() {
        let of = |group: &str, resource: &str, object: &Value| {
            let kind = kind(group, resource);
            kind.strategy.unenforced(kind, object)
        };
        let none = json!({"metadata": {"name": "x", "labels": {"a": "b"}}});
        assert_eq!(of("", "namespaces", &none), None);
        assert_eq!(of("", "pods", &none), None);
        let labelled = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        let words = "pod-security.kubernetes.io/enforce: stored, but this version does not enforce it";
        assert_eq!(of("", "namespaces", &labelled).as_deref(), Some(words));
        for (group, resource) in
            [("networking.k8s.io", "networkpolicies"), ("policy", "poddisruptionbudgets")]
        {
            assert!(of(group, resource, &none).is_some(), "{resource}");
        }
    }

    #[test]
    fn clients_cannot_set_status_on_creation() {
        let mut pod = json!({"metadata": {"generation": 9}, "spec": {"containers": []}, "status": {"phase": "Running"}});
        prepare_create(kind("", "pods"), &mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["metadata"]["generation"], 1);
        let mut namespace = json!({"metadata": {"name": "n"}});
        prepare_create(kind("", "namespaces"), &mut namespace);
        assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
        let mut node = json!({"metadata": {}, "status": {"capacity": {"cpu": "1"}}});
        prepare_create(kind("", "nodes"), &mut node);
        assert_eq!(node["status"]["capacity"]["cpu"], "1");
        let mut deployment = json!({"metadata": {}, "spec": {}, "status": {"replicas": 3}});
        prepare_create(kind("apps", "deployments"), &mut deployment);
        assert_eq!(deployment["status"], json!({}));
    }

    #[test]
    fn generation_follows_the_spec_only() {
        let old = json!({"metadata": {"generation": 4}, "spec": {"a": 1}, "status": {"phase": "Running"}});
        let mut same = json!({"metadata": {"generation": 7, "labels": {"a": "b"}}, "spec": {"a": 1}, "status": {"phase": "Failed"}});
        prepare_update(kind("", "pods"), &mut same, &old);
        assert_eq!(
            (same["metadata"]["generation"].as_i64(), same["status"]["phase"].as_str()),
            (Some(4), Some("Running"))
        );
        let mut changed = json!({"metadata": {}, "spec": {"a": 2}});
        prepare_update(kind("", "pods"), &mut changed, &old);
        assert_eq!(changed["metadata"]["generation"], 5);
    }

    #[test]
    fn the_status_endpoint_leaves_the_spec_alone() {
        let old = json!({"metadata": {"generation": 4, "ownerReferences": [{"uid": "u"}]}, "spec": {"a": 1}, "status": {"qosClass": "Burstable"}});
        let mut new =
            json!({"metadata": {"labels": {"x": "y"}}, "spec": {"a": 2}, "status": {"phase": "Running"}});
        prepare_status_update(kind("", "pods"), &mut new, &old);
        assert_eq!(
            new,
            json!({"metadata": {"generation": 4, "labels": {"x": "y"}, "ownerReferences": [{"uid": "u"}]}, "spec": {"a": 1}, "status": {"phase": "Running", "qosClass": "Burstable"}})
        );
    }
}
