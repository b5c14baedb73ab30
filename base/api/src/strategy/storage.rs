//! Kinds of storage: volumes, claims on them, classes and drivers.

use serde_json::{Value, json};

use super::{Facts, Generation, Object, Strategy};
use crate::Kind;
use crate::defaults::{self, absent, child, set};
use crate::table::{self, Column};
use crate::validate::{self, Errors};

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

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::cluster::persistent_volume(object, errors);
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
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::workload::claim(object, errors);
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

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::cluster::storage_class(object, errors);
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
}

/// Attachments of volumes to nodes.
#[derive(Debug)]
pub(crate) struct Attachments;

impl Strategy for Attachments {
    fn facts(&self) -> Facts {
        Facts { updates_unconditionally: false, ..FACTS }
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
}
