//! Kinds of dynamic resource allocation.

use serde_json::Value;

use super::{Facts, Generation, Object, Strategy};
use crate::Kind;
use crate::defaults::{self, child};
use crate::quota::Measure;
use crate::table::{self, Column};
use crate::validate::{self, Errors};

/// Facts of all kinds of the group.
const FACTS: Facts = Facts { deletion_shows_object: true, ..Facts::PLAIN };

/// Device classes.
#[derive(Debug)]
pub(crate) struct DeviceClasses;

impl Strategy for DeviceClasses {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, ..FACTS }
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::class(object, errors);
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

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::claim_object(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::device::claim_update(new, old, errors);
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

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::claim_template(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::device::claim_update(new, old, errors);
    }
}

/// Slices of devices.
#[derive(Debug)]
pub(crate) struct Slices;

impl Strategy for Slices {
    fn facts(&self) -> Facts {
        Facts { generation: Generation::Counted, ..FACTS }
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::device::slice_object(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::device::slice_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::SLICE
    }
}
