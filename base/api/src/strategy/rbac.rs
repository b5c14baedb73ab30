//! Roles and their bindings, in a namespace and in the cluster.

use serde_json::Value;

use super::{Facts, Object, Strategy};
use crate::table::{self, Column};
use crate::validate::{self, Errors};
use crate::{Kind, defaults, syntax};

const FACTS: Facts = Facts { creates_on_update: true, ..Facts::PLAIN };

/// Roles.
#[derive(Debug)]
pub(crate) struct Roles;

impl Strategy for Roles {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::path_segment(name)
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate(&self, kind: &Kind, object: &Value, errors: &mut Errors) {
        validate::rbac::rules(object, !kind.namespaced, errors);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate::rbac::aggregation(object, None, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::rbac::aggregation(new, Some(old), errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::CREATED
    }
}

/// Bindings of roles.
#[derive(Debug)]
pub(crate) struct Bindings;

impl Strategy for Bindings {
    fn facts(&self) -> Facts {
        FACTS
    }

    fn name_complaints(&self, name: &str) -> Vec<String> {
        syntax::path_segment(name)
    }

    fn defaults(&self, object: &mut Object) {
        defaults::role_binding(object);
    }

    fn looks_at_all_metadata_again(&self) -> bool {
        true
    }

    fn validate(&self, kind: &Kind, object: &Value, errors: &mut Errors) {
        validate::rbac::binding(object, !kind.namespaced, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        validate::rbac::binding_update(new, old, errors);
    }

    fn columns(&self) -> &[Column] {
        table::columns::BINDING
    }
}
