//! What is wrong with the expressions of a policy that is right otherwise.
//!
//! Pure.

use podwire_api::path::Path;
use podwire_api::validate::{Cause, FieldError};
use podwire_cel::{Composition, Environment, Type};
use serde_json::Value;

use super::super::expression::{self, Sight};
use super::super::webhook::conditions;
use super::compiled::{Environments, shallow};

/// What is wrong with the expressions of a policy. Match conditions that cannot mean something else than before are not
/// looked at again.
pub(crate) fn complaints(policy: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (spec, path) = (&policy["spec"], Path::root("spec"));
    let listed = |key: &str| spec[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = Found { errors: Vec::new(), variables: Composition::default() };
    let same = |key: &str| old.is_some_and(|old| old["spec"][key] == spec[key]);
    if !same("paramKind") || !same("matchConditions") {
        // They are judged without the variables.
        let sight = Sight { params: spec["paramKind"].is_object(), authorizer: true };
        let path = path.child("matchConditions");
        conditions::complain(&spec["matchConditions"], &sight.environment(), &path, &mut found.errors);
    }
    let mut environments = Environments::new(spec, !listed("variables").is_empty());
    let here = path.child("variables");
    for (at, variable) in listed("variables").iter().enumerate() {
        if let Err(words) = environments.variable(variable, &mut found.variables) {
            found.add(&here.index(at).child("expression"), &variable["expression"], &words);
        }
    }
    let here = path.child("validations");
    for (at, validation) in listed("validations").iter().enumerate() {
        let here = here.index(at);
        found.look(&environments.full, validation, "expression", &[Type::Bool], &here);
        found.look(&environments.messages, validation, "messageExpression", &[Type::String], &here);
    }
    let here = path.child("auditAnnotations");
    for (at, annotation) in listed("auditAnnotations").iter().enumerate() {
        let wanted = [Type::String, Type::Null];
        found.look(&environments.full, annotation, "valueExpression", &wanted, &here.index(at));
    }
    found.errors
}

struct Found {
    errors: Vec<FieldError>,
    variables: Composition,
}

impl Found {
    fn add(&mut self, path: &Path<'_>, shown: &Value, words: &str) {
        let shown = Some(shown.to_string());
        self.errors.push(FieldError::new(Cause::Invalid, path.to_string(), shown, words));
    }

    fn look(&mut self, environment: &Environment, of: &Value, key: &str, wanted: &[Type], path: &Path<'_>) {
        let Some(given) = of[key].as_str().filter(|given| !given.is_empty()) else { return };
        let text = if key == "valueExpression" { given.trim() } else { given };
        let compiled = expression::compile(environment, text, wanted);
        if let Err(words) = compiled.and_then(|program| shallow(program, &self.variables)) {
            self.add(&path.child(key), &of[key], &words);
        }
    }
}
