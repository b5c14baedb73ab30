//! Definitions of custom resources.

use serde_json::{Value, json};

use super::{Facts, Generation, Object, Strategy, copy, part};
use crate::defaults::{absent, child, set, text};
use crate::definition;
use crate::table::{Column, columns};
use crate::validate::Errors;
use crate::{Kind, Part};

/// Definitions.
#[derive(Debug)]
pub(crate) struct Definitions;

impl Strategy for Definitions {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, updates_unconditionally: false, ..Facts::PLAIN }
    }

    fn has_core_finalizers(&self) -> bool {
        false
    }

    fn defines_kinds(&self) -> bool {
        true
    }

    fn defaults(&self, object: &mut Object) {
        let spec = child(object, "spec");
        let names = child(spec, "names");
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            set(names, "singular", kind.to_lowercase());
            set(names, "listKind", format!("{kind}List"));
        }
        let conversion = child(spec, "conversion");
        set(conversion, "strategy", "None");
        if let Some(service) = conversion
            .get_mut("webhook")
            .and_then(|webhook| webhook.get_mut("clientConfig")?.get_mut("service"))
            && let Value::Object(service) = service
        {
            absent(service, "port", 443);
        }
        let storage = definition::storage_of(part(object, "spec")).to_owned();
        if let Some(Value::Object(status)) = object.get_mut("status")
            && !storage.is_empty()
            && part(status, "storedVersions").as_array().is_none_or(Vec::is_empty)
        {
            status.insert("storedVersions".to_owned(), json!([storage]));
        }
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        let storage = definition::storage_of(part(object, "spec")).to_owned();
        let stored = if storage.is_empty() { Value::Null } else { json!([storage]) };
        let status = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
        object.insert("status".to_owned(), status);
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, old: &Value) {
        copy(new, old, "status");
        let storage = definition::storage_of(part(new, "spec")).to_owned();
        let status = child(new, "status");
        let mut stored = part(status, "storedVersions").as_array().cloned().unwrap_or_default();
        if !storage.is_empty() && !stored.iter().any(|version| *version == storage) {
            stored.push(storage.into());
            status.insert("storedVersions".to_owned(), stored.into());
        }
    }

    fn prepare_status(&self, _: &mut Object, _: &Value) {}

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        definition::create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        definition::update(new, old, errors);
    }

    fn validate_part(&self, _: Part, _: &Value, _: &Value, _: &mut Errors) {}

    fn warnings(&self, object: &Value) -> Vec<String> {
        let formats = definition::unrecognized_formats(object).into_iter();
        formats.map(|format| format!("unrecognized format {format:?}")).collect()
    }

    fn mark_terminating(&self, object: &mut Value, now: &str) -> bool {
        object["metadata"]["deletionTimestamp"] = now.into();
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|name| name == definition::CLEANUP_FINALIZER) {
            finalizers.push(definition::CLEANUP_FINALIZER.into());
        }
        object["metadata"]["finalizers"] = finalizers.into();
        let words = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        let status = &mut object["status"];
        definition::conditions::set(status, "Terminating", true, "InstanceDeletionPending", words, now);
        true
    }

    fn is_held(&self, object: &Value) -> bool {
        // One that is not marked yet is given its finalizer with the mark.
        !definition::is_terminating(object)
    }

    fn columns(&self) -> &[Column] {
        columns::CREATED
    }
}
