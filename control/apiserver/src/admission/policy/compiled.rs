//! A policy made ready to be evaluated.
//!
//! Pure. An expression that does not compile is kept with the reason, which whoever asks for it is told.

use std::sync::Arc;

use podwire_api::Kind;
use podwire_cel::{Composition, Environment, Program, Type};
use serde_json::Value;

use super::super::expression::{self, Sight};
use super::super::matching::text;
use super::super::webhook::conditions::Conditions;
use super::binding::Target;
use crate::context::Context;

/// A policy.
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) fails_open: bool,
    pub(super) conditions: Conditions,
    pub(super) variables: Composition,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<Expression>,
    /// Whether any expression looks at the namespace.
    pub(super) sees_namespace: bool,
    params: Option<ParamKind>,
}

/// The kind of a policy's parameters.
struct ParamKind {
    group: String,
    version: String,
    kind: String,
}

/// An expression with its text.
pub(super) struct Expression {
    pub(super) text: String,
    pub(super) program: Result<Program, String>,
}

/// A rule of a policy.
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: &'static str,
}

/// The environments of a policy's expressions: with and without the authorizer.
pub(super) struct Environments {
    pub(super) full: Environment,
    pub(super) messages: Environment,
}

impl Environments {
    pub(super) fn new(spec: &Value, composed: bool) -> Environments {
        let params = spec["paramKind"].is_object();
        let of = |authorizer: bool| {
            let environment = Sight { params, authorizer }.environment();
            if composed { environment.with_composition() } else { environment }
        };
        Environments { full: of(true), messages: of(false) }
    }

    /// Compiles the next variable and declares it for what comes after.
    pub(super) fn variable(&mut self, variable: &Value, composition: &mut Composition) -> Result<(), String> {
        let (name, text) = (text(&variable["name"]), text(&variable["expression"]));
        let program =
            expression::compile(&self.full, &text, &[]).and_then(|program| shallow(program, composition));
        let kind = program.as_ref().ok().map(Program::output_type);
        self.full.compose(&name, kind);
        self.messages.compose(&name, kind);
        let compiled = program.as_ref().map(drop).map_err(Clone::clone);
        composition.add(&name, program);
        compiled
    }
}

/// Refuses an expression that builds on too long a chain of variables.
pub(super) fn shallow(program: Program, composition: &Composition) -> Result<Program, String> {
    match composition.is_too_deep(&program) {
        true => Err("compilation failed: too many variables build on each other".to_owned()),
        false => Ok(program),
    }
}

impl Expression {
    fn compile(
        text: &str,
        environment: &Environment,
        wanted: &[Type],
        variables: &Composition,
    ) -> Expression {
        let program =
            expression::compile(environment, text, wanted).and_then(|program| shallow(program, variables));
        Expression { text: text.to_owned(), program }
    }

    fn mentions(&self, name: &str) -> bool {
        self.program.as_ref().is_ok_and(|program| program.mentions(name))
    }
}

impl Policy {
    /// Compiles a policy.
    pub(super) fn compile(object: &Value) -> Policy {
        let spec = &object["spec"];
        let listed = |key: &str| spec[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut environments = Environments::new(spec, true);
        let mut variables = Composition::default();
        for variable in listed("variables") {
            // Whoever asks for it is told why it does not compile.
            environments.variable(variable, &mut variables).ok();
        }
        let conditions = Conditions::read(&spec["matchConditions"], &environments.full);
        let of = |text: &Value, environment: &Environment, wanted: &[Type]| {
            let text = text.as_str().filter(|text| !text.is_empty())?;
            Some(Expression::compile(text, environment, wanted, &variables))
        };
        let validations = listed("validations").iter().filter_map(|validation| {
            Some(Validation {
                expression: of(&validation["expression"], &environments.full, &[Type::Bool])?,
                message: text(&validation["message"]).trim().to_owned(),
                message_expression: of(
                    &validation["messageExpression"],
                    &environments.messages,
                    &[Type::String],
                ),
                reason: reason(validation["reason"].as_str()),
            })
        });
        let validations: Vec<Validation> = validations.collect();
        let values = listed("auditAnnotations").iter().map(|annotation| &annotation["valueExpression"]);
        let annotations: Vec<Expression> =
            values.filter_map(|value| of(value, &environments.full, &[Type::String, Type::Null])).collect();
        let sees = |name: &str| {
            let rules = validations
                .iter()
                .flat_map(|rule| [Some(&rule.expression), rule.message_expression.as_ref()]);
            rules.flatten().chain(&annotations).any(|expression| expression.mentions(name))
        };
        Policy {
            name: text(&object["metadata"]["name"]),
            target: Target::read(&spec["matchConstraints"]),
            fails_open: spec["failurePolicy"] == "Ignore",
            sees_namespace: sees("namespaceObject") || variables.mentions("namespaceObject"),
            conditions,
            variables,
            validations,
            annotations,
            params: spec["paramKind"].is_object().then(|| ParamKind::read(&spec["paramKind"])),
        }
    }

    /// The kind of its parameters, if it has any.
    pub(super) fn param_kind(&self, context: &Context) -> Result<Option<Arc<Kind>>, String> {
        let Some(wanted) = &self.params else { return Ok(None) };
        let ParamKind { group, version, kind } = wanted;
        let kinds = context.kinds.now();
        match kinds.registry.by_gvk(group, version, kind).filter(|kind| kind.is_stored()) {
            Some(kind) => Ok(Some(kind.clone())),
            None => Err(format!(
                "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
            )),
        }
    }
}

impl ParamKind {
    fn read(given: &Value) -> ParamKind {
        let version = text(&given["apiVersion"]);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        ParamKind { group: group.to_owned(), version: version.to_owned(), kind: text(&given["kind"]) }
    }
}

fn reason(given: Option<&str>) -> &'static str {
    match given {
        Some("Unauthorized") => "Unauthorized",
        Some("Forbidden") => "Forbidden",
        Some("RequestEntityTooLarge") => "RequestEntityTooLarge",
        _ => "Invalid",
    }
}
