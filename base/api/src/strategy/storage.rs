//! Kinds of storage: volumes, claims on them, classes and drivers.

use serde_json::{Value, json};

use super::{Facts, Generation, Object, Strategy, copy, keep_metadata};
use crate::defaults::{self, absent, child, set};
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part};

/// Facts of all kinds of the area.
const FACTS: Facts = Facts { deletion_shows_object: true, ..Facts::PLAIN };

/// Persistent volumes.
#[derive(Debug)]
pub(crate) struct Volumes;

impl Strategy for Volumes {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn defaults(&self, object: &mut Object) {
        set(child(object, "status"), "phase", "Pending");
        let spec = child(object, "spec");
        set(spec, "persistentVolumeReclaimPolicy", "Retain");
        absent(spec, "volumeMode", "Filesystem");
        if let Some(Value::Object(host)) = spec.get_mut("hostPath") {
            absent(host, "type", "");
        }
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        object.insert("status".to_owned(), json!({"phase": "Pending"}));
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::volume::create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::volume::update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::PERSISTENT_VOLUME
    }
}

/// Claims on persistent volumes.
#[derive(Debug)]
pub(crate) struct VolumeClaims;

impl Strategy for VolumeClaims {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn defaults(&self, object: &mut Object) {
        set(child(object, "status"), "phase", "Pending");
        absent(child(object, "spec"), "volumeMode", "Filesystem");
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        object.insert("status".to_owned(), json!({"phase": "Pending"}));
        validate::claim::normalize_sources(child(object, "spec"), None);
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, old: &Value) {
        copy(new, old, "status");
        validate::claim::normalize_sources(child(new, "spec"), Some(&old["spec"]));
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::claim::create(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::claim::update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::claim::status(new, errors);
        }
    }

    fn measure(&self) -> Measure {
        Measure::VolumeClaims
    }

    fn columns(&self) -> &[Column] {
        table::columns::CLAIM
    }
}

/// Storage classes.
#[derive(Debug)]
pub(crate) struct Classes;

impl Strategy for Classes {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn defaults(&self, object: &mut Object) {
        absent(object, "reclaimPolicy", "Delete");
        absent(object, "volumeBindingMode", "Immediate");
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::storage::class(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::storage::class_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::STORAGE_CLASS
    }
}

/// Drivers of the Container Storage Interface: they count only their changes.
#[derive(Debug)]
pub(crate) struct Drivers;

impl Strategy for Drivers {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::CountsChanges, updates_unconditionally: false, ..FACTS }
    }

    fn defaults(&self, object: &mut Object) {
        defaults::storage_driver(object);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::storage::driver(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::storage::driver_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CSI_DRIVER
    }
}

/// The drivers of a node.
#[derive(Debug)]
pub(crate) struct DriverNodes;

impl Strategy for DriverNodes {
    fn facts(&self) -> Facts {
        Facts { updates_unconditionally: false, ..FACTS }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::storage::driver_node(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::storage::driver_node_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CSI_NODE
    }
}

/// Capacities of storage.
#[derive(Debug)]
pub(crate) struct Capacities;

impl Strategy for Capacities {
    fn facts(&self) -> Facts {
        Facts { updates_unconditionally: false, ..FACTS }
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::storage::capacity(object, false, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::storage::capacity_update(new, old, errors);
    }
}

/// Attachments of volumes to nodes.
#[derive(Debug)]
pub(crate) struct Attachments;

impl Strategy for Attachments {
    fn facts(&self) -> Facts {
        Facts { updates_unconditionally: false, ..FACTS }
    }

    fn prepare_status(&self, new: &mut Object, old: &Value) {
        keep_metadata(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::storage::attachment(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::storage::attachment_update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, old: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::storage::attachment_update(new, old, errors);
        }
    }

    fn columns(&self) -> &[Column] {
        table::columns::VOLUME_ATTACHMENT
    }
}

/// Classes of volume attributes.
#[derive(Debug)]
pub(crate) struct AttributesClasses;

impl Strategy for AttributesClasses {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::storage::attributes_class(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::storage::attributes_class_update(new, old, errors);
    }
}
