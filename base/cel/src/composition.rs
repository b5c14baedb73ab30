//! Named expressions that others build on: the variables of admission policies.
//!
//! Each is evaluated when it is first asked for and once for all that share a [`Scope`]. Each sees those before it, so that
//! they cannot go round in circles. What they cost is counted apart from who asks for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::depth;
use crate::error::EvalError;
use crate::limits;
use crate::program::{Bindings, Program};
use crate::value::Value;

/// How many levels of trees may build on each other.
const DEEPEST: usize = 4_000;

/// Named expressions in their order, made with an [`crate::Environment`] that has `variables`.
#[derive(Default)]
pub struct Composition {
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    program: Result<Program, String>,
    /// Levels of its tree and of those it builds on.
    levels: usize,
}

impl Composition {
    /// Adds a named expression, or why it could not be compiled, which whoever asks for it is told.
    pub fn add(&mut self, name: &str, program: Result<Program, String>) {
        let levels = program.as_ref().map_or(0, |program| self.levels(program));
        self.entries.push(Entry { name: name.to_owned(), program, levels });
    }

    /// Whether an expression builds on so many others that no stack can be trusted with it.
    pub fn is_too_deep(&self, program: &Program) -> bool {
        self.levels(program) > DEEPEST
    }

    /// Whether one of them mentions a variable.
    pub fn mentions(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.program.as_ref().is_ok_and(|program| program.mentions(name)))
    }

    fn levels(&self, program: &Program) -> usize {
        let built_on = program.composed.iter().filter_map(|at| self.entries.get(*at));
        program.levels + built_on.map(|entry| entry.levels).max().unwrap_or(0)
    }
}

/// More was spent than there was to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("validation failed due to running out of cost budget, no further validation rules will be run")]
pub struct OutOfBudget;

/// What the expressions that are evaluated together share: variables, named expressions as far as they have been asked for,
/// and a budget.
pub struct Scope<'a> {
    composition: &'a Composition,
    bindings: Bindings<'a>,
    known: Mutex<Vec<Option<Result<Value<'a>, EvalError>>>>,
    left: AtomicU64,
    /// What named expressions have cost since somebody settled it.
    owed: AtomicU64,
}

impl<'a> Scope<'a> {
    /// Over variables, with a budget for everything together.
    pub fn new(composition: &'a Composition, bindings: Bindings<'a>, budget: u64) -> Scope<'a> {
        Scope {
            composition,
            bindings,
            known: Mutex::new(vec![None; composition.entries.len()]),
            left: AtomicU64::new(budget),
            owed: AtomicU64::new(0),
        }
    }

    /// What is left of the budget.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Evaluates an expression; the inner error is its own, the outer one ends everything.
    pub fn evaluate(&self, program: &'a Program) -> Result<Result<Value<'a>, EvalError>, OutOfBudget> {
        let run = || program.run(&self.bindings, limits::PER_CALL, Some(self));
        let outcome = match depth::is_deep_at(self.composition.levels(program)) {
            false => run(),
            true => depth::on_large_stack(run).ok_or(OutOfBudget)?,
        };
        let spent = self.owed.swap(0, Ordering::Relaxed).saturating_add(outcome.cost);
        let left = self.left().checked_sub(spent);
        self.left.store(left.unwrap_or(0), Ordering::Relaxed);
        left.map(|_| outcome.value).ok_or(OutOfBudget)
    }

    /// The value of a named expression by its place.
    pub(crate) fn named(&self, place: usize) -> Result<Value<'a>, EvalError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(value)) = known().get(place) {
            return value.clone();
        }
        let Some(entry) = self.composition.entries.get(place) else {
            return Err(EvalError::new("no such attribute(s): variables"));
        };
        let value = match &entry.program {
            Err(why) => Err(format!("composited variable {:?} fails to compile: {why}", entry.name)),
            Ok(program) => {
                let outcome = program.run(&self.bindings, limits::PER_CALL, Some(self));
                let owed = self.owed.fetch_add(outcome.cost, Ordering::Relaxed).saturating_add(outcome.cost);
                if owed > self.left() {
                    // Nothing absorbs it, so that nothing more is evaluated.
                    return Err(EvalError::TooExpensive);
                }
                outcome.value.map_err(|error| {
                    format!("composited variable {:?} fails to evaluate: {error}", entry.name)
                })
            }
        };
        let value = value.map_err(EvalError::new);
        if let Some(slot) = known().get_mut(place) {
            *slot = Some(value.clone());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Environment, Type};

    fn compile(variables: &[(&str, &str)], text: &str) -> Result<(Composition, Program), String> {
        let mut environment = Environment::kubernetes().with_variable("object", Type::Dyn).with_composition();
        let mut composition = Composition::default();
        for (name, text) in variables {
            let program = environment.compile(text).map_err(|errors| errors.to_string());
            environment.compose(name, program.as_ref().ok().map(Program::output_type));
            composition.add(name, program);
        }
        let program = environment.compile(text).map_err(|errors| errors.0[0].message.clone())?;
        Ok((composition, program))
    }

    fn evaluate(variables: &[(&str, &str)], text: &str) -> Result<(String, u64), String> {
        let object = json!({"a": 1, "list": [1, 2, 3]});
        let (composition, program) = compile(variables, text)?;
        let bindings = Bindings::new().with("object", Value::json(&object));
        let scope = Scope::new(&composition, bindings, 1_000);
        let value = scope.evaluate(&program).map_err(|error| error.to_string())?;
        Ok((value.map_err(|error| error.to_string())?.to_string(), 1_000 - scope.left()))
    }

    #[test]
    fn a_variable_is_evaluated_once_and_only_if_it_is_asked_for() {
        let variables = [("a", "object.a + 1"), ("b", "variables.a * 10"), ("broken", "object.nothing")];
        assert_eq!(evaluate(&variables, "variables.b"), Ok(("20".to_owned(), 8)));
        assert_eq!(evaluate(&variables, "variables.b + variables.b"), Ok(("40".to_owned(), 11)));
        assert_eq!(evaluate(&variables, "variables.a == 2 || variables.broken"), Ok(("true".to_owned(), 6)));
        let failed = "composited variable \"broken\" fails to evaluate: no such key: nothing";
        assert_eq!(evaluate(&variables, "variables.broken"), Err(failed.to_owned()));
        assert_eq!(
            evaluate(&variables, "has(variables.b) && variables.?b.orValue(1) == 20").unwrap().0,
            "true"
        );
    }

    #[test]
    fn variables_have_types_and_see_those_before_them() {
        assert_eq!(evaluate(&[("a", "1")], "variables.b"), Err("undefined field 'b'".to_owned()));
        let wrong = "found no matching overload for '_+_' applied to '(int, string)'";
        assert_eq!(evaluate(&[("a", "1")], "variables.a + 'x'"), Err(wrong.to_owned()));
        assert_eq!(evaluate(&[("a", "1"), ("a", "variables.a + 1")], "variables.a").unwrap().0, "2");
        assert_eq!(evaluate(&[("l", "object.list")], "variables.l[1]").unwrap().0, "2");
        assert_eq!(
            evaluate(&[("l", "['x']")], "variables.l.all(variables, variables == 'x')").unwrap().0,
            "true"
        );
        assert!(evaluate(&[("a", "1")], "dyn(variables).a").unwrap_err().contains("by its name"));
    }

    #[test]
    fn what_variables_cost_ends_everything() {
        let dear =
            "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a+b+c > 0)))";
        let spent = evaluate(&[("a", dear)], "variables.a || true");
        assert_eq!(spent, Err(OutOfBudget.to_string()));
    }

    #[test]
    fn a_long_chain_gets_a_stack_of_its_own_and_a_longer_one_is_told() {
        let chain = |length: usize| {
            let names: Vec<String> = (0..=length).map(|at| format!("v{at}")).collect();
            let texts: Vec<String> = (0..length).map(|at| format!("variables.v{at} + 1")).collect();
            let mut listed = vec![("v0", "object.a")];
            listed.extend((0..length).map(|at| (names[at + 1].as_str(), texts[at].as_str())));
            compile(&listed, &format!("variables.v{length}")).unwrap()
        };
        let (composition, program) = chain(1_000);
        assert!(!composition.is_too_deep(&program));
        let object = json!({"a": 1});
        let bindings = Bindings::new().with("object", Value::json(&object));
        let scope = Scope::new(&composition, bindings, limits::PER_REQUEST);
        assert_eq!(scope.evaluate(&program).unwrap().unwrap().to_string(), "1001");
        let (composition, program) = chain(4_000);
        assert!(composition.is_too_deep(&program));
    }
}
