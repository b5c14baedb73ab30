//! Kinds that others read: config maps, secrets, service accounts, limits and quotas.

use serde_json::Value;

use super::{Facts, Object, Strategy};
use crate::defaults::{self, child, each};
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, Part};

/// Config maps.
#[derive(Debug)]
pub(crate) struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::core::config_map(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::core::data_update(new, old, errors);
        validate::core::config_map(new, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CONFIG_MAP
    }
}

/// Secrets.
#[derive(Debug)]
pub(crate) struct Secrets;

impl Strategy for Secrets {
    fn defaults(&self, object: &mut Object) {
        defaults::secret(object);
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::core::secret(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::core::secret_update(new, old, errors);
        validate::core::secret(new, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::SECRET
    }
}

/// Service accounts.
#[derive(Debug)]
pub(crate) struct Accounts;

impl Strategy for Accounts {
    fn facts(&self) -> Facts {
        Facts { deletion_shows_object: true, ..Facts::PLAIN }
    }

    fn prepare_create(&self, _: &Kind, object: &mut Object) {
        each(object, "secrets", |secret| secret.retain(|key, _| key == "name"));
    }

    fn prepare_update(&self, _: &Kind, new: &mut Object, _: &Value) {
        each(new, "secrets", |secret| secret.retain(|key, _| key == "name"));
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }
}

/// Limit ranges.
#[derive(Debug)]
pub(crate) struct LimitRanges;

impl Strategy for LimitRanges {
    fn facts(&self) -> Facts {
        Facts { creates_on_update: true, rules_admission: true, ..Facts::PLAIN }
    }

    fn defaults(&self, object: &mut Object) {
        each(child(object, "spec"), "limits", defaults::limit);
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::limits::limit_range(object, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CREATED
    }
}

/// Resource quotas.
#[derive(Debug)]
pub(crate) struct Quotas;

impl Strategy for Quotas {
    fn facts(&self) -> Facts {
        Facts { deletion_shows_object: true, rules_admission: true, ..Facts::PLAIN }
    }

    fn validate(&self, _: &Kind, object: &Value, errors: &mut Errors) {
        validate::limits::resource_quota(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::limits::resource_quota_update(new, old, errors);
    }

    fn validate_part(&self, part: Part, new: &Value, _: &Value, errors: &mut Errors) {
        if part == Part::Status {
            validate::limits::resource_quota_status(new, errors);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        validate::limits::quota_warnings(object)
    }

    fn columns(&self) -> &[Column] {
        table::columns::QUOTA
    }
}
