//! From schemas to rules that can be asked, and what is wrong with those that cannot.

use std::sync::Arc;

use podwire_api::definition::{self, has_rules};
use podwire_api::path::Path;
use podwire_api::structural::Node;
use podwire_api::validate::{Cause, FieldError};
use podwire_cel::{Environment, Program, Schema, Type, limits};
use serde_json::{Value, json};

use super::{Rule, Tree, error, evaluate};

const KEY: &str = "x-kubernetes-validations";
const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// How many of the dearest rules are named when all together are too dear; those of less than a hundredth are not.
const DEAREST: usize = 4;

/// The rules of a schema; those that cannot be compiled are left out, which a definition with such was refused for.
pub(super) fn tree(schema: &Value) -> Tree {
    Compiler::default().tree(schema, &Path::root(""), &Place::root())
}

/// What is wrong with the rules of a definition that is right otherwise.
pub(crate) fn complaints(definition: &Value) -> Vec<FieldError> {
    let all = definition::versions(definition);
    let mut errors = Vec::new();
    let spec = Path::root("spec");
    let same = all.iter().all(|version| version["schema"] == all[0]["schema"]);
    let (hoisted, versions) = (spec.child("validation"), spec.child("versions"));
    for (at, version) in all.iter().enumerate().take(if same { 1 } else { all.len() }) {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !has_rules(schema) {
            continue;
        }
        let (element, within);
        let above = match same {
            true => &hoisted,
            false => {
                element = versions.index(at);
                within = element.child("schema");
                &within
            }
        };
        let path = above.child("openAPIV3Schema");
        let mut compiler = Compiler::default();
        compiler.tree(schema, &path, &Place::root());
        errors.append(&mut compiler.finish(&path));
    }
    errors
}

/// What holds for rules because of where they stand.
struct Place {
    root: bool,
    /// How often they can run for one object; none when nothing bounds that.
    times: Option<u64>,
    /// Within what there are no former selves.
    uncorrelated: Option<String>,
}

impl Place {
    fn root() -> Self {
        Self { root: true, times: Some(1), uncorrelated: None }
    }
}

#[derive(Default)]
struct Compiler {
    errors: Vec<FieldError>,
    /// What rules are estimated to cost, and where they are.
    costs: Vec<(u64, String)>,
}

impl Compiler {
    fn tree(&mut self, schema: &Value, path: &Path<'_>, place: &Place) -> Tree {
        let mut tree = Tree { kind: text(&schema["type"]).to_owned(), ..Tree::default() };
        if !has_rules(schema) {
            return tree;
        }
        if schema["x-kubernetes-list-type"] == "map" {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            tree.keys = Some(keys.filter_map(Value::as_str).map(str::to_owned).collect());
        }
        tree.atomic = schema["x-kubernetes-map-type"] == "atomic";
        let listed = schema[KEY].as_array().map(Vec::as_slice).unwrap_or_default();
        if !listed.is_empty() {
            let root = place.root || schema["x-kubernetes-embedded-resource"] == true;
            tree.schema = Schema::from_openapi(schema, "self", root);
            let here = path.child(KEY);
            for (at, rule) in listed.iter().enumerate() {
                tree.rules.extend(self.rule(schema, tree.schema.as_ref(), rule, &here.index(at), place));
            }
        }
        self.below(schema, &mut tree, path, place);
        if let (Some(default), false) = (schema.get("default"), tree.rules.is_empty() && !tree.has_below()) {
            let found = evaluate(&tree, default, None, &path.child("default"));
            self.errors.extend(found);
        }
        tree
    }

    fn below(&mut self, schema: &Value, tree: &mut Tree, path: &Path<'_>, place: &Place) {
        let bounded = |most: &Value| place.times.and_then(|times| Some(times.saturating_mul(most.as_u64()?)));
        let lost = |lost: bool| place.uncorrelated.clone().or_else(|| lost.then(|| path.to_string()));
        if schema["items"].is_object() {
            let place = Place {
                root: false,
                times: bounded(&schema["maxItems"]),
                uncorrelated: lost(schema["x-kubernetes-list-type"] != "map"),
            };
            tree.items = Some(Box::new(self.tree(&schema["items"], &path.child("items"), &place)));
        }
        if schema["additionalProperties"].is_object() {
            let place = Place {
                root: false,
                times: bounded(&schema["maxProperties"]),
                uncorrelated: lost(tree.atomic),
            };
            let child = path.child("additionalProperties");
            tree.additional = Some(Box::new(self.tree(&schema["additionalProperties"], &child, &place)));
        }
        let properties = path.child("properties");
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if has_rules(property) {
                let place = Place { root: false, times: place.times, uncorrelated: lost(tree.atomic) };
                tree.properties.insert(name.clone(), self.tree(property, &properties.key(name), &place));
            }
        }
    }

    fn rule(
        &mut self,
        schema: &Value,
        shape: Option<&Arc<Schema>>,
        rule: &Value,
        path: &Path<'_>,
        place: &Place,
    ) -> Option<Rule> {
        let before = self.errors.len();
        self.words(schema, rule, path);
        if self.errors.len() > before {
            return None;
        }
        let at = path.child("rule");
        let Some(shape) = shape else {
            let words = "compilation failed: rules cannot see a value of this schema";
            self.errors.push(error(Cause::Invalid, &at, Some(internal(rule)), words));
            return None;
        };
        let optional_old = rule["optionalOldSelf"] == true;
        let environment = Environment::kubernetes().with_schema("self", shape);
        let environment = match optional_old {
            true => environment.with_optional_schema("oldSelf", shape),
            false => environment.with_schema("oldSelf", shape),
        };
        let program = match environment.compile(text(&rule["rule"])) {
            Ok(program) if matches!(program.output_type(), Type::Bool) => program,
            Ok(_) => {
                let words = "cel expression must evaluate to a bool";
                self.errors.push(error(Cause::Invalid, &at, Some(internal(rule)), words));
                return None;
            }
            Err(errors) => {
                let words = format!("compilation failed: {errors}");
                self.errors.push(error(Cause::Invalid, &at, Some(internal(rule)), &words));
                return None;
            }
        };
        let times = place.times.unwrap_or_else(|| {
            let list = json!({"type": "array", "items": schema});
            Schema::from_openapi(&list, "self", false).map_or(limits::REQUEST_BYTES, |list| list.most())
        });
        self.price("estimated rule cost", program.estimated_cost().most.saturating_mul(times), &at);
        let message_expression = self.message(rule, &environment, path);
        let uses_old = program.mentions("oldSelf");
        self.old(rule, uses_old, path, place);
        Some(Rule {
            program,
            uses_old,
            optional_old,
            text: text(&rule["rule"]).trim().to_owned(),
            message: text(&rule["message"]).trim().to_owned(),
            message_expression,
            reason: match text(&rule["reason"]) {
                "FieldValueForbidden" => Cause::Forbidden,
                "FieldValueRequired" => Cause::Required,
                "FieldValueDuplicate" => Cause::Duplicate,
                _ => Cause::Invalid,
            },
            field_path: normal(text(&rule["fieldPath"])),
        })
    }

    fn message(&mut self, rule: &Value, environment: &Environment, path: &Path<'_>) -> Option<Program> {
        let source = rule["messageExpression"].as_str().filter(|source| !source.is_empty())?;
        let at = path.child("messageExpression");
        let words = match environment.compile(source) {
            Ok(program) if matches!(program.output_type(), Type::String) => {
                self.price("estimated messageExpression cost", program.estimated_cost().most, &at);
                return Some(program);
            }
            Ok(_) => "messageExpression must evaluate to a string".to_owned(),
            Err(errors) => format!("messageExpression compilation failed: {errors}"),
        };
        self.errors.push(error(Cause::Invalid, &at, Some(internal(rule)), &words));
        None
    }

    /// Rules of former selves can only stand where there are such.
    fn old(&mut self, rule: &Value, uses_old: bool, path: &Path<'_>, place: &Place) {
        if let (true, Some(within)) = (uses_old, &place.uncorrelated) {
            let words =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
            let shown = Some(format!("{:?}", text(&rule["rule"])));
            self.errors.push(error(Cause::Invalid, &path.child("rule"), shown, &words));
        } else if !uses_old && rule["optionalOldSelf"].is_boolean() {
            let words = "may not be set if oldSelf is not used in rule";
            let shown = Some(rule["optionalOldSelf"].to_string());
            self.errors.push(error(Cause::Invalid, &path.child("optionalOldSelf"), shown, words));
        }
    }

    /// What can be said of a rule without compiling it.
    fn words(&mut self, schema: &Value, rule: &Value, path: &Path<'_>) {
        let broken = |text: &str| text.contains(['\n', '\r']);
        let (source, message) = (text(&rule["rule"]), text(&rule["message"]));
        let shown = |text: &str| Some(format!("{text:?}"));
        let mut add = |cause, field: &str, value, words: &str| {
            self.errors.push(error(cause, &path.child(field), value, words));
        };
        if source.trim().is_empty() {
            add(Cause::Required, "rule", None, "rule is not specified");
        } else if !message.is_empty() && message.trim().is_empty() {
            add(Cause::Invalid, "message", shown(message), "must be non-empty if specified");
        } else if broken(message.trim()) {
            add(Cause::Invalid, "message", shown(message), "must not contain line breaks");
        } else if broken(source.trim()) && message.trim().is_empty() {
            add(Cause::Required, "message", None, "message must be specified if rule contains line breaks");
        }
        let expression = text(&rule["messageExpression"]);
        if !expression.is_empty() && expression.trim().is_empty() {
            add(
                Cause::Required,
                "messageExpression",
                None,
                "messageExpression must be non-empty if specified",
            );
        }
        if let Some(reason) = rule["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
            let known: Vec<String> = REASONS.iter().map(|reason| format!("{reason:?}")).collect();
            let words = format!("supported values: {}", known.join(", "));
            add(Cause::NotSupported, "reason", shown(reason), &words);
        }
        let place = text(&rule["fieldPath"]);
        if !place.is_empty() && place.trim().is_empty() {
            add(Cause::Invalid, "fieldPath", shown(place), "must be non-empty if specified");
        }
        if broken(place) {
            add(Cause::Invalid, "fieldPath", shown(place), "must not contain line breaks");
        }
        if !place.is_empty() && !leads_somewhere(schema, place) {
            add(Cause::Invalid, "fieldPath", shown(place), "must be a valid path");
        }
    }

    fn price(&mut self, what: &str, cost: u64, path: &Path<'_>) {
        if cost > limits::ESTIMATED_PER_RULE {
            let words = exceeds(what, cost, limits::ESTIMATED_PER_RULE);
            self.errors.push(error(Cause::Forbidden, path, None, &words));
        }
        self.costs.push((cost, path.to_string()));
    }

    /// The complaints, with those about all rules together.
    fn finish(mut self, path: &Path<'_>) -> Vec<FieldError> {
        let total = self.costs.iter().fold(0_u64, |sum, (cost, _)| sum.saturating_add(*cost));
        if total > limits::ESTIMATED_PER_SCHEMA {
            self.costs.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            let counts = |(cost, _): &&(u64, String)| *cost >= limits::ESTIMATED_PER_SCHEMA / 100;
            for (_, place) in self.costs.iter().filter(counts).take(DEAREST) {
                let words = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
                self.errors.push(FieldError::new(Cause::Forbidden, place.clone(), None, words));
            }
            let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            let words = exceeds(what, total, limits::ESTIMATED_PER_SCHEMA);
            self.errors.push(error(Cause::Forbidden, path, None, &words));
        }
        self.errors
    }
}

impl Tree {
    fn has_below(&self) -> bool {
        !self.properties.is_empty() || self.items.is_some() || self.additional.is_some()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// How much dearer than allowed something is.
fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "only printed, with one digit")]
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// A rule as upstream's internal type prints it.
fn internal(rule: &Value) -> String {
    // Go writes these so that they can stand in a page.
    let escaped = |text: String| text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let word = |key: &str| escaped(Value::from(text(&rule[key])).to_string());
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        word("rule"),
        word("message"),
        word("messageExpression"),
        rule["reason"],
        word("fieldPath"),
        rule["optionalOldSelf"]
    )
}

/// The names of a path such as `.a.b` or `.a['x']`; none when it is not one.
fn names(path: &str) -> Option<Vec<String>> {
    let mut out = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("['") {
            let (name, after) = after.split_once("']")?;
            out.push(name.replace("\\'", "'"));
            rest = after;
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            out.push(after.get(..end).filter(|name| !name.is_empty())?.to_owned());
            rest = &after[end..];
        }
    }
    Some(out)
}

fn leads_somewhere(schema: &Value, path: &str) -> bool {
    let node = Node::of(schema);
    names(path).is_some_and(|names| names.iter().try_fold(&node, |node, name| node.entry(name)).is_some())
}

/// A path as field errors write it.
fn normal(path: &str) -> String {
    names(path.trim()).unwrap_or_default().join(".")
}
