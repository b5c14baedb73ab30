//! Evaluates one policy on one request with one parameter.
//!
//! Pure but for what expressions ask the authorizer.

use podwire_cel::{OutOfBudget, Scope, Value as Cel, limits};
use serde_json::Value;

use super::super::Request;
use super::super::expression::{self, Subject};
use super::super::rights::Rights;
use super::compiled::{Expression, Policy, Validation};

/// What a policy is evaluated on.
pub(super) struct Round<'a> {
    pub(super) policy: &'a Policy,
    pub(super) request: &'a Request<'a>,
    pub(super) object: &'a Value,
    pub(super) old: &'a Value,
    /// The request, as rules and as match conditions see it.
    pub(super) asked: &'a Value,
    pub(super) conditions_asked: &'a Value,
    pub(super) namespace: &'a Value,
}

/// Something that a policy is against.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) message: String,
    pub(super) reason: &'static str,
    /// Whether it is refused whatever the binding's actions are.
    pub(super) always: bool,
}

/// What an expression came to.
type Outcome<'a> = Result<Cel<'a>, String>;

impl Round<'_> {
    /// What the policy is against. `left` is what all policies may still spend.
    pub(super) fn evaluate(&self, params: &Value, left: &mut u64) -> Vec<Decision> {
        let fails_open = self.policy.fails_open;
        let failed = |why: String| match fails_open {
            true => Vec::new(),
            false => vec![Decision { message: why, reason: "Invalid", always: false }],
        };
        match self.holds(params, left) {
            Ok(false) => return Vec::new(),
            Ok(true) => {}
            Err(why) => return failed(why),
        }
        let rights = Rights::of(self.request, self.object);
        let subject = Subject {
            object: self.object,
            old: self.old,
            request: self.asked,
            namespace: self.namespace,
            params,
        };
        let bindings = expression::with_authorizer(subject.bindings(), &rights, rights.request_resource());
        let budget = limits::PER_REQUEST.min(*left);
        let scope = Scope::new(&self.policy.variables, bindings, budget);
        let rules = &self.policy.validations;
        let results: Result<Vec<Outcome<'_>>, OutOfBudget> =
            rules.iter().map(|rule| one(&scope, &rule.expression)).collect();
        *left -= budget - scope.left();
        let results = match results {
            Ok(results) => results,
            Err(error) => return failed(error.to_string()),
        };
        let mut decisions = self.decide(subject, &results, scope.left());
        match self.annotations(subject, left) {
            Ok(more) => decisions.extend(more),
            Err(error) => return failed(error.to_string()),
        }
        decisions
    }

    /// Whether the match conditions hold.
    fn holds(&self, params: &Value, left: &mut u64) -> Result<bool, String> {
        let conditions = &self.policy.conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        let rights = Rights::of(self.request, self.object);
        let subject = Subject {
            object: self.object,
            old: self.old,
            request: self.conditions_asked,
            namespace: &Value::Null,
            params,
        };
        let bindings = expression::with_authorizer(subject.bindings(), &rights, rights.request_resource());
        let budget = limits::MATCH_CONDITIONS.min(*left);
        let scope = Scope::new(&self.policy.variables, bindings, budget);
        let holds = conditions.hold_in(&scope);
        *left -= budget - scope.left();
        holds
    }

    /// Turns results into decisions. Messages are made only if something is refused: those of rules that hold are not shown.
    fn decide(&self, subject: Subject<'_>, results: &[Outcome<'_>], left: u64) -> Vec<Decision> {
        let holds = |result: &Outcome<'_>| matches!(result, Ok(Cel::Bool(true)));
        if results.iter().all(holds) {
            return Vec::new();
        }
        let scope = Scope::new(&self.policy.variables, subject.bindings(), left);
        let rules = &self.policy.validations;
        let messages: Result<Vec<Option<String>>, OutOfBudget> =
            rules.iter().map(|rule| made_message(&scope, rule)).collect();
        let fails_open = self.policy.fails_open;
        let decisions = results.iter().zip(rules).enumerate().filter_map(|(at, (result, rule))| {
            let invalid = |message: String| {
                (!fails_open).then_some(Decision { message, reason: "Invalid", always: false })
            };
            match (result, &messages) {
                (Err(why), _) => invalid(why.clone()),
                (Ok(_), Err(error)) => invalid(format!("failed messageExpression: {error}")),
                (Ok(Cel::Bool(true)), Ok(_)) => None,
                (Ok(_), Ok(messages)) => {
                    let made = messages.get(at).cloned().flatten();
                    let message = made.unwrap_or_else(|| match rule.message.as_str() {
                        "" => format!("failed expression: {}", rule.expression.text.trim()),
                        message => message.to_owned(),
                    });
                    Some(Decision { message, reason: rule.reason, always: false })
                }
            }
        });
        decisions.collect()
    }

    /// What is wrong with audit annotations; their values have no place to go.
    fn annotations(&self, subject: Subject<'_>, left: &mut u64) -> Result<Vec<Decision>, OutOfBudget> {
        let mut decisions = Vec::new();
        if self.policy.annotations.is_empty() {
            return Ok(decisions);
        }
        let budget = limits::PER_REQUEST.min(*left);
        let scope = Scope::new(&self.policy.variables, subject.bindings(), budget);
        let results: Result<Vec<Outcome<'_>>, OutOfBudget> =
            self.policy.annotations.iter().map(|annotation| one(&scope, annotation)).collect();
        *left -= budget - scope.left();
        for result in results? {
            if let (Err(message), false) = (result, self.policy.fails_open) {
                decisions.push(Decision { message, reason: "Invalid", always: true });
            }
        }
        Ok(decisions)
    }
}

fn one<'a>(scope: &Scope<'a>, expression: &'a Expression) -> Result<Outcome<'a>, OutOfBudget> {
    let program = match &expression.program {
        Ok(program) => program,
        Err(why) => return Ok(Err(format!("compilation error: {why}"))),
    };
    let value = scope.evaluate(program)?;
    Ok(value.map_err(|error| expression::failed(&expression.text, &error.to_string())))
}

/// The message that an expression makes, if it is one that can be shown.
fn made_message<'a>(scope: &Scope<'a>, rule: &'a Validation) -> Result<Option<String>, OutOfBudget> {
    let Some(expression) = &rule.message_expression else { return Ok(None) };
    let Ok(Cel::String(text)) = one(scope, expression)? else { return Ok(None) };
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= limits::MESSAGE_BYTES && !text.contains('\n');
    Ok(fits.then(|| text.to_owned()))
}
