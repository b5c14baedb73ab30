//! Kinds of dynamic resource allocation.

mod changes;

use serde_json::Value;

use super::{Facts, FurtherRight, Generation, Object, Strategy, keep_metadata};
use crate::defaults::{self, child};
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part, syntax};

/// Facts of all kinds of the group.
const FACTS: Facts = Facts { deletion_shows_object: true, ..Facts::PLAIN };

/// Device classes.
#[derive(Debug)]
pub(crate) struct DeviceClasses;

impl Strategy for DeviceClasses {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, ..FACTS }
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::long_name(name)
    }

    fn looks_at_name_prefix(&self) -> bool {
        false
    }

    fn orders_its_rules(&self) -> bool {
        true
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::class_object(object, errors);
    }

    fn validate_change(&self, kind: &Kind, _: Option<Part>, new: &Value, old: &Value, errors: &mut Errors) {
        validate::device::class_change(kind, new, old, errors);
    }
}

/// Claims.
#[derive(Debug)]
pub(crate) struct Claims;

impl Strategy for Claims {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn measure(&self) -> Measure {
        Measure::DeviceClaims
    }

    fn defaults(&self, object: &mut Object) {
        defaults::device_claim(child(object, "spec"));
    }

    fn status_comes_alone(&self) -> bool {
        true
    }

    fn prepare_status(&self, new: &mut Object, old: &Value) {
        keep_metadata(new, old);
        changes::drop_deallocated(new, old);
    }

    fn orders_its_rules(&self) -> bool {
        true
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::claim_object(object, errors);
    }

    fn validate_change(
        &self,
        kind: &Kind,
        part: Option<Part>,
        new: &Value,
        old: &Value,
        errors: &mut Errors,
    ) {
        match part {
            Some(Part::Status) => validate::device::claim_status_change(new, old, errors),
            _ => validate::device::claim_change(kind, new, old, errors),
        }
    }

    fn asks_for_admin_access(&self, part: Option<Part>, new: &Value, old: Option<&Value>) -> Option<String> {
        match (part, old) {
            (Some(Part::Status), Some(old)) => changes::grants_admin_access(&new["status"], &old["status"]),
            (None, None) => changes::asks_for_admin_access(&new["spec"]),
            // A specification does not change.
            _ => None,
        }
    }

    fn further_rights(&self, part: Option<Part>, new: &Value, old: &Value) -> Vec<FurtherRight> {
        match part {
            Some(Part::Status) => changes::further_rights(&new["status"], &old["status"]),
            _ => Vec::new(),
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::CLAIM_STATE
    }
}

/// Templates of claims.
#[derive(Debug)]
pub(crate) struct ClaimTemplates;

impl Strategy for ClaimTemplates {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn defaults(&self, object: &mut Object) {
        defaults::device_claim(child(child(object, "spec"), "spec"));
    }

    fn orders_its_rules(&self) -> bool {
        true
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::template_object(object, errors);
    }

    fn validate_change(&self, kind: &Kind, _: Option<Part>, new: &Value, old: &Value, errors: &mut Errors) {
        validate::device::template_change(kind, new, old, errors);
    }

    fn asks_for_admin_access(&self, _: Option<Part>, new: &Value, old: Option<&Value>) -> Option<String> {
        if old.is_some() { None } else { changes::asks_for_admin_access(&new["spec"]["spec"]) }
    }
}

/// Slices of devices.
#[derive(Debug)]
pub(crate) struct Slices;

impl Strategy for Slices {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, ..FACTS }
    }

    fn defaults(&self, object: &mut Object) {
        defaults::each(child(object, "spec"), "devices", |device| {
            let mappings = device.get_mut("nodeAllocatableResourceMappings").and_then(Value::as_object_mut);
            let mappings =
                mappings.into_iter().flat_map(|all| all.values_mut()).filter_map(Value::as_object_mut);
            mappings.for_each(|mapping| defaults::absent(mapping, "allocationMultiplier", "1"));
        });
    }

    fn selected_kind(&self) -> &'static str {
        " for resource.k8s.io/v1, Kind=ResourceSlice"
    }

    fn stamp(&self, object: &mut Object, now: &dyn Fn() -> String) {
        defaults::each(child(object, "spec"), "devices", |device| {
            defaults::each(device, "taints", |taint| {
                if taint.get("timeAdded").is_none_or(Value::is_null) {
                    taint.insert("timeAdded".to_owned(), now().into());
                }
            });
        });
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        changes::drop_what_is_off(object, &Value::Null);
    }

    // After the generation was counted, as upstream does.
    fn finish_update(&self, _: Option<Part>, new: &mut Value, old: &Value, _: &str) {
        if let Value::Object(new) = new {
            changes::drop_what_is_off(new, old);
        }
    }

    fn orders_its_rules(&self) -> bool {
        true
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::slice_object(object, errors);
    }

    fn validate_change(&self, _: &Kind, _: Option<Part>, new: &Value, old: &Value, errors: &mut Errors) {
        validate::device::slice_change(new, old, errors);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let driver = object["spec"]["driver"].as_str().unwrap_or_default();
        if !driver.chars().any(char::is_uppercase) {
            return Vec::new();
        }
        vec![format!(
            "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
        )]
    }

    fn change_warnings(&self, _: Option<Part>, new: &Value) -> Vec<String> {
        self.warnings(new)
    }

    fn columns(&self) -> &[Column] {
        table::columns::SLICE
    }
}
