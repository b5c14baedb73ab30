//! The rules in CEL that schemas of definitions have (`x-kubernetes-validations`): compiled and priced when a definition is
//! written, evaluated when its objects are.
//!
//! Rules are compiled when the first object needs them, from the definition in the watch cache.

mod compile;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use podwire_api::definition::{self, Rules, Source};
use podwire_api::path::Path;
use podwire_api::validate::{Cause, FieldError};
use podwire_cel::{Bindings, EvalError, Program, Schema, Value as Cel, limits};
use serde_json::Value;

pub(crate) use compile::complaints;

/// The rules of a schema and of all below it.
#[derive(Default)]
struct Tree {
    /// The JSON type, which messages name.
    kind: String,
    schema: Option<Arc<Schema>>,
    rules: Vec<Rule>,
    properties: BTreeMap<String, Tree>,
    items: Option<Box<Tree>>,
    additional: Option<Box<Tree>>,
    /// The keys of elements that can be told apart.
    keys: Option<Vec<String>>,
    /// Whether the entries of the object have no former selves.
    atomic: bool,
}

/// One rule.
struct Rule {
    program: Program,
    uses_old: bool,
    optional_old: bool,
    text: String,
    message: String,
    message_expression: Option<Program>,
    reason: Cause,
    field_path: String,
}

impl Rule {
    /// What the rule is called in messages.
    fn name(&self) -> &str {
        if self.message.is_empty() { &self.text } else { &self.message }
    }
}

/// The rules of one version of a definition.
pub(crate) struct Lazy {
    source: Arc<dyn Source>,
    version: String,
    tree: OnceLock<Option<Tree>>,
}

impl std::fmt::Debug for Lazy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "rules of {}", self.version)
    }
}

impl Lazy {
    pub(crate) fn new(source: Arc<dyn Source>, version: &str) -> Self {
        Self { source, version: version.to_owned(), tree: OnceLock::new() }
    }

    fn compile(&self) -> Option<Tree> {
        let definition = self.source.definition()?;
        let version =
            definition::versions(&definition).iter().find(|version| version["name"] == self.version)?;
        Some(compile::tree(&version["schema"]["openAPIV3Schema"]))
    }
}

impl Rules for Lazy {
    fn complaints(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let Some(tree) = self.tree.get_or_init(|| self.compile()) else {
            // What cannot be asked is not allowed.
            return vec![error(
                Cause::Invalid,
                &Path::root(""),
                None,
                "the validation rules could not be read",
            )];
        };
        evaluate(tree, new, old, &Path::root(""))
    }
}

/// All complaints of a tree's rules about a value.
fn evaluate(tree: &Tree, new: &Value, old: Option<&Value>, path: &Path<'_>) -> Vec<FieldError> {
    let mut run = Run { budget: Some(limits::PER_REQUEST), errors: Vec::new() };
    let same = old.is_some_and(|old| old == new);
    run.value(tree, new, old, same, path);
    run.errors
}

fn error(reason: Cause, path: &Path<'_>, value: Option<String>, detail: &str) -> FieldError {
    FieldError::new(reason, path.to_string(), value, detail)
}

struct Run {
    /// What is left to spend; nothing is evaluated any more when there is none.
    budget: Option<u64>,
    errors: Vec<FieldError>,
}

impl Run {
    fn value(&mut self, tree: &Tree, new: &Value, old: Option<&Value>, same: bool, path: &Path<'_>) {
        if new.is_null() || self.budget.is_none() {
            return;
        }
        if !tree.rules.is_empty() {
            self.rules(tree, new, old.filter(|old| !old.is_null()), same, path);
        }
        match new {
            Value::Object(entries) => {
                let former = |name: &str| old.filter(|_| !tree.atomic).and_then(|old| old.get(name));
                for (name, value) in entries {
                    if let Some(below) = &tree.additional {
                        self.below(below, value, former(name), same, &path.key(name));
                    }
                    if let Some(below) = tree.properties.get(name) {
                        self.below(below, value, former(name), same, &path.child(name));
                    }
                }
            }
            Value::Array(items) => {
                let Some(below) = &tree.items else { return };
                let former = Former::of(tree.keys.as_deref(), old);
                for (at, item) in items.iter().enumerate() {
                    self.below(below, item, former.of_item(item), same, &path.index(at));
                }
            }
            _ => {}
        }
    }

    /// What has no former self is the same when that is true of what it is in.
    fn below(&mut self, tree: &Tree, new: &Value, old: Option<&Value>, same: bool, path: &Path<'_>) {
        let same = old.map_or(same, |old| old == new);
        self.value(tree, new, old, same, path);
    }

    fn rules(&mut self, tree: &Tree, new: &Value, old: Option<&Value>, same: bool, path: &Path<'_>) {
        let Some(schema) = &tree.schema else { return };
        let kind = || Some(format!("{:?}", tree.kind));
        let typed = |value| Cel::typed(value, schema);
        for rule in &tree.rules {
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            let Some(budget) = self.budget else { return };
            let bindings = typed(new).and_then(|new| bindings(rule, new, old.map(&typed).transpose()?));
            let (value, cost) = match &bindings {
                Ok(bindings) => {
                    let outcome = rule.program.evaluate(bindings, limits::PER_CALL);
                    (outcome.value, outcome.cost)
                }
                Err(error) => (Err(error.clone()), 0),
            };
            if cost > budget {
                let words = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(error(Cause::Invalid, path, kind(), words));
                self.budget = None;
                return;
            }
            self.budget = Some(budget - cost);
            match value {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => {
                    let found = self.refusal(tree, rule, bindings.ok().as_ref(), new, path);
                    // What was wrong before and is the same is not held against an update.
                    if rule.uses_old || !same {
                        self.errors.extend(found);
                    }
                }
                Err(EvalError::TooExpensive) => {
                    let words = format!(
                        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        EvalError::TooExpensive,
                        rule.name()
                    );
                    self.errors.push(error(Cause::Invalid, path, kind(), &words));
                    self.budget = None;
                    return;
                }
                Err(failed) => {
                    let words = match failed.to_string() {
                        why if why.starts_with("no such overload") => format!(
                            "'{why}': call arguments did not match a supported operator, function or macro signature for \
                             rule: {}",
                            rule.name()
                        ),
                        why => format!("{why} evaluating rule: {}", rule.name()),
                    };
                    self.errors.push(error(Cause::Invalid, path, kind(), &words));
                }
            }
        }
    }

    /// The complaint of a rule that does not hold.
    fn refusal(
        &mut self,
        tree: &Tree,
        rule: &Rule,
        bindings: Option<&Bindings<'_>>,
        value: &Value,
        path: &Path<'_>,
    ) -> Option<FieldError> {
        let told = match (&rule.message_expression, bindings) {
            (Some(expression), Some(bindings)) => match self.message(expression, bindings) {
                Ok(told) => told,
                Err(words) => {
                    self.budget = None;
                    return Some(error(Cause::Invalid, path, Some(format!("{:?}", tree.kind)), &words));
                }
            },
            _ => None,
        };
        let told = told.unwrap_or_else(|| match rule.message.is_empty() {
            true => format!("failed rule: {}", rule.text),
            false => rule.message.clone(),
        });
        let shown = match (tree.kind.as_str(), value) {
            ("object" | "array", _) => None,
            (_, Value::String(text)) => Some(format!("{text:?}")),
            (_, value) => Some(value.to_string()),
        };
        let place = path.to_string();
        let field = match (place.as_str(), rule.field_path.as_str()) {
            (_, "") => place,
            ("", inner) => inner.to_owned(),
            (place, inner) => format!("{place}.{inner}"),
        };
        Some(match rule.reason {
            Cause::Forbidden | Cause::Required => FieldError::new(rule.reason, field, None, &told),
            Cause::Duplicate => FieldError::new(rule.reason, field, shown, ""),
            _ => FieldError::new(Cause::Invalid, field, shown, &told),
        })
    }

    /// What a message expression says; nothing when it says nothing that can be shown.
    fn message(&mut self, expression: &Program, bindings: &Bindings<'_>) -> Result<Option<String>, String> {
        let budget = self.budget.unwrap_or(0);
        let outcome = expression.evaluate(bindings, limits::PER_CALL);
        if outcome.cost > budget {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation \
                        rules will be run"
                .to_owned());
        }
        self.budget = Some(budget - outcome.cost);
        match outcome.value {
            Ok(Cel::String(text)) => {
                let text = text.to_string();
                let text = text.trim();
                let fits = !text.is_empty() && text.len() <= limits::MESSAGE_BYTES && !text.contains('\n');
                Ok(fits.then(|| text.to_owned()))
            }
            Err(EvalError::TooExpensive) => {
                Err("no further validation rules will be run due to call cost exceeds limit for messageExpression".to_owned())
            }
            _ => Ok(None),
        }
    }
}

/// What a rule sees.
fn bindings<'a>(rule: &Rule, new: Cel<'a>, old: Option<Cel<'a>>) -> Result<Bindings<'a>, EvalError> {
    let bindings = Bindings::new().with("self", new);
    Ok(match (rule.optional_old, old) {
        (true, old) => bindings.with("oldSelf", Cel::Optional(old.map(Arc::new))),
        (false, Some(old)) => bindings.with("oldSelf", old),
        (false, None) => bindings,
    })
}

/// The former elements of a list whose elements have keys.
struct Former<'v, 'k> {
    by_key: HashMap<String, &'v Value>,
    keys: &'k [String],
}

impl<'v, 'k> Former<'v, 'k> {
    fn of(keys: Option<&'k [String]>, old: Option<&'v Value>) -> Self {
        let Some(keys) = keys else { return Former { by_key: HashMap::new(), keys: &[] } };
        let items = old.and_then(Value::as_array).into_iter().flatten();
        Former { by_key: items.map(|item| (key(keys, item), item)).collect(), keys }
    }

    fn of_item(&self, item: &Value) -> Option<&'v Value> {
        if self.by_key.is_empty() { None } else { self.by_key.get(&key(self.keys, item)).copied() }
    }
}

fn key(keys: &[String], item: &Value) -> String {
    let parts: Vec<String> = keys.iter().map(|key| item[key].to_string()).collect();
    parts.join(",")
}
