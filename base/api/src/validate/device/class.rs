//! Rules of device classes.

use serde_json::Value;

use super::{MOST_CONFIGS, config, each, meta, selectors};
use crate::Kind;
use crate::path::Path;
use crate::validate::error::Errors;
use crate::validate::limits::is_extended;

/// A new class.
pub(crate) fn class_object(object: &Value, errors: &mut Errors) {
    spec(&object["spec"], &Value::Null, errors);
}

/// A class that was changed: what stayed as it is may be what no new one may.
pub(crate) fn class_change(kind: &Kind, new: &Value, old: &Value, errors: &mut Errors) {
    meta::create(kind, new, errors);
    meta::update_known(new, old, errors);
    spec(&new["spec"], &old["spec"], errors);
}

fn spec(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let is_stored = |field: &str| old.is_object() && old[field] == spec[field];
    selectors(&spec["selectors"], is_stored("selectors"), &path.child("selectors"), errors);
    each(&spec["config"], MOST_CONFIGS, &path.child("config"), errors, |one, path, errors| {
        config(one, is_stored("config"), path, errors);
    });
    if let Some(name) = spec["extendedResourceName"].as_str().filter(|name| !is_extended(name)) {
        let here = path.child("extendedResourceName");
        errors.invalid(&here, name, "must be a valid extended resource name");
    }
}
