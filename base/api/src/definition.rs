//! CustomResourceDefinitions: what a definition has to be, which names it gets, and the kinds that it makes.
//!
//! Pure: whoever stores definitions asks [`conditions::settled`] for the status that follows from what is stored, and
//! [`kinds`] for what is served of it.

pub mod conditions;
mod conversion;
mod made;
mod resource;
mod rules;
mod schema_rules;
mod structure;

use serde_json::Value;

pub use conversion::Conversion;
pub(crate) use made::by_priority;
pub use made::{Rules, Source, has_rules, kinds, stored_kind};
pub(crate) use rules::{create, unrecognized_formats, update};

/// The finalizer that keeps a definition until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The group of a definition.
pub fn group(definition: &Value) -> &str {
    text(&definition["spec"]["group"])
}

/// The versions of a definition.
pub fn versions(definition: &Value) -> &[Value] {
    list(&definition["spec"]["versions"])
}

/// The name of the version that objects are stored in.
pub fn storage_version(definition: &Value) -> &str {
    storage_of(&definition["spec"])
}

/// The same of a definition's specification.
pub(crate) fn storage_of(spec: &Value) -> &str {
    let storage = list(&spec["versions"]).iter().find(|version| version["storage"] == true);
    storage.map_or("", |version| text(&version["name"]))
}

/// The version of stored objects that do not say their own: those were stored while there was only the first.
pub fn unmarked_version(definition: &Value) -> &str {
    let first = list(&definition["status"]["storedVersions"]).first().map_or("", text);
    let known = versions(definition).iter().any(|version| version["name"] == first);
    if known { first } else { storage_version(definition) }
}

/// The prefix under which a definition's objects are stored.
pub fn storage_prefix(definition: &Value) -> String {
    format!("/registry/{}/{}/", group(definition), text(&definition["spec"]["names"]["plural"]))
}

/// Whether a definition is on its way out.
pub fn is_terminating(definition: &Value) -> bool {
    definition["metadata"]["deletionTimestamp"].is_string()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
