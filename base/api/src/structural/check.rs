//! What is wrong with a value, in the words and the order of upstream's validator.
//!
//! On an update nothing is said about what did not change: a value that equals its former self is not looked into. Work
//! and complaints are bounded.

use std::collections::HashMap;

use serde_json::{Number, Value};

use super::{Additional, Kind, ListType, Node, Rule, formats};
use crate::path::Path;
use crate::validate::{Cause, FieldError, go_float};

/// Complaints of more bytes than this in all are not collected.
const MOST_BYTES: usize = 1 << 20;
/// A schema is held against no more values than this for one object.
const MOST_WORK: usize = 20_000_000;

/// One validation of one object.
pub(crate) struct Check<'a> {
    /// The field that the value is in; empty for a whole object.
    prefix: &'a str,
    bytes: usize,
    work: usize,
}

/// What came of a value: its complaints, and how many things were right about it.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: usize,
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Takes over what another came to, each complaint once.
    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        for error in other.errors {
            self.add(error);
        }
    }

    fn add(&mut self, error: FieldError) {
        // Few complaints are the rule; many are cut off before this becomes slow.
        if self.errors.len() > 1000 || !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

impl<'a> Check<'a> {
    /// A validation of what is in this field, or of a whole object.
    pub(crate) fn new(prefix: &'a str) -> Self {
        Check { prefix, bytes: 0, work: 0 }
    }

    /// All complaints about a value; of one that was another before, only those that it did not have then.
    pub(crate) fn run(mut self, node: &Node, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = self.value(node, value, old, &Path::root("")).errors;
        if self.work > MOST_WORK {
            let error = self.plain("the schema takes too much work to validate this object".to_owned());
            errors.push(error);
        }
        errors
    }

    fn is_spent(&self) -> bool {
        self.bytes > MOST_BYTES || self.work > MOST_WORK
    }

    /// A complaint about a place.
    fn error(&mut self, cause: Cause, path: &Path<'_>, value: Option<String>, detail: &str) -> FieldError {
        let path = path.to_string();
        let field = match (self.prefix, path.as_str()) {
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}.{path}"),
        };
        let error = FieldError::new(cause, field, value, detail);
        self.bytes += error.field.len() + error.message.len();
        error
    }

    /// A complaint that names its place itself.
    fn plain(&mut self, detail: String) -> FieldError {
        let error = FieldError::new(Cause::Invalid, self.prefix.to_owned(), Some("\"\"".to_owned()), &detail);
        self.bytes += error.message.len();
        error
    }

    fn value(&mut self, node: &Node, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Outcome {
        let mut out = Outcome::default();
        self.work += 1;
        if self.is_spent() || old.is_some_and(|old| old == value) {
            return out;
        }
        self.kind(node, value, path, &mut out);
        if value.is_null() {
            self.enumeration(node, value, path, &mut out);
            return out;
        }
        let junctors = self.junctors(node, value, path);
        out.merge(junctors);
        match value {
            Value::String(text) => {
                out.matches += 1;
                self.text(node, text, path, &mut out);
            }
            Value::Number(number) => {
                out.matches += 2;
                self.number(node, number, path, &mut out);
            }
            Value::Array(list) => {
                out.matches += 2;
                self.list(node, list, old, path, &mut out);
            }
            _ => {}
        }
        out.matches += 1;
        self.enumeration(node, value, path, &mut out);
        if let Value::Object(object) = value {
            out.matches += 1;
            self.object(node, object, old, path, &mut out);
        }
        out.matches += 1;
        out
    }

    fn kind(&mut self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        let both = [Kind::Integer, Kind::String];
        let one = [node.kind];
        let wanted: &[Kind] = match (node.int_or_string, node.kind) {
            (true, _) => &both,
            (false, Kind::Any) => &[],
            (false, _) => &one,
        };
        let format = node
            .rules
            .iter()
            .find_map(|rule| if let Rule::Format(name) = rule { Some(&**name) } else { None });
        if wanted.is_empty() && format.is_none() {
            return;
        }
        let words = || wanted.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(",");
        let (found, found_format) = kind_of(value);
        if value.is_null() {
            if wanted.is_empty() || node.nullable {
                out.matches += 1;
            } else {
                let error = self.mismatch(path, &words(), "null");
                out.add(error);
            }
            return;
        }
        out.matches += 1;
        let numeric = wanted.iter().any(|kind| matches!(kind, Kind::Number | Kind::Integer));
        let whole = found == "number" && value.as_f64().is_some_and(|f| f.fract() == 0.0);
        let fits = wanted.iter().any(|kind| kind.as_str() == found)
            || (whole && wanted.contains(&Kind::Integer))
            || (found == "integer" && wanted.contains(&Kind::Number));
        let textual = value.is_string() || value.is_array();
        let error = match format {
            Some(format) if !(textual || fits || found_format == format) => {
                self.mismatch(path, format, found_format)
            }
            Some(_) if textual && !numeric => return out.matches += 1,
            _ if !fits && !wanted.is_empty() => self.mismatch(path, &words(), found),
            _ => return out.matches += 1,
        };
        out.add(error);
    }

    fn mismatch(&mut self, path: &Path<'_>, wanted: &str, found: &str) -> FieldError {
        let detail = format!("{path} in body must be of type {wanted}: {found:?}");
        self.error(Cause::TypeInvalid, path, Some(format!("{found:?}")), &detail)
    }

    fn junctors(&mut self, node: &Node, value: &Value, path: &Path<'_>) -> Outcome {
        let mut out = Outcome { matches: 2, ..Outcome::default() };
        for rule in &node.rules {
            match rule {
                Rule::AnyOf(nodes) => {
                    let tried = self.alternatives(nodes, value, path, true);
                    if tried.valid == 0 {
                        let error =
                            self.plain(format!("\"{path}\" must validate at least one schema (anyOf)"));
                        out.add(error);
                    }
                    out.merge(tried.first.or(tried.best).unwrap_or_default());
                }
                Rule::OneOf(nodes) => {
                    let tried = self.alternatives(nodes, value, path, false);
                    match tried.valid {
                        1 => out.merge(tried.first.unwrap_or_default()),
                        count => {
                            let found = match count {
                                0 => "Found none valid".to_owned(),
                                count => format!("Found {count} valid alternatives"),
                            };
                            let error = self.plain(format!(
                                "\"{path}\" must validate one and only one schema (oneOf). {found}"
                            ));
                            out.add(error);
                            if count == 0 {
                                out.merge(tried.best.unwrap_or_default());
                            }
                        }
                    }
                }
                Rule::AllOf(nodes) => {
                    let mut valid = 0;
                    for node in nodes {
                        let one = self.value(node, value, None, path);
                        valid += usize::from(one.is_valid());
                        out.merge(one);
                    }
                    if valid != nodes.len() {
                        let more = if valid == 0 { ". None validated" } else { "" };
                        let error =
                            self.plain(format!("\"{path}\" must validate all the schemas (allOf){more}"));
                        out.add(error);
                    }
                }
                Rule::Not(node) if self.value(node, value, None, path).is_valid() => {
                    let error = self.plain(format!("\"{path}\" must not validate the schema (not)"));
                    out.add(error);
                }
                _ => {}
            }
        }
        out
    }

    fn alternatives(&mut self, nodes: &[Node], value: &Value, path: &Path<'_>, first_only: bool) -> Tried {
        let mut tried = Tried::default();
        for node in nodes {
            let one = self.value(node, value, None, path);
            if one.is_valid() {
                tried.valid += 1;
                tried.first.get_or_insert(one);
                if first_only {
                    break;
                }
            } else if tried.best.as_ref().is_none_or(|best| one.matches > best.matches) {
                tried.best = Some(one);
            }
        }
        tried
    }

    /// The first thing that is wrong with a text, and its format.
    fn text(&mut self, node: &Node, text: &str, path: &Path<'_>, out: &mut Outcome) {
        let count = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let quoted = || Some(format!("{text:?}"));
        let wrong = |rule: &Rule| match rule {
            Rule::MaxLength(most) if count() > *most => {
                let unit = if *most == 1 { "byte" } else { "bytes" };
                Some((Cause::TooLong, None, format!("may not be more than {most} {unit}")))
            }
            Rule::MinLength(least) if count() < *least => Some((
                Cause::Invalid,
                quoted(),
                format!("{path} in body should be at least {least} chars long"),
            )),
            Rule::Pattern(pattern) if !pattern.is_match(text) => Some((
                Cause::Invalid,
                quoted(),
                format!("{path} in body should match '{}'", pattern.as_str()),
            )),
            _ => None,
        };
        let first = node.rules.iter().find_map(wrong);
        if let Some((cause, value, detail)) = first {
            let error = self.error(cause, path, value, &detail);
            out.add(error);
        }
        let format = node
            .rules
            .iter()
            .find_map(|rule| if let Rule::Format(name) = rule { Some(&**name) } else { None });
        let Some(format) = format.filter(|format| !formats::is_numeric(format)) else { return };
        out.matches += 1;
        if !formats::holds(format, text) {
            let detail = format!("{path} in body must be of type {format}: {text:?}");
            let error = self.error(Cause::TypeInvalid, path, quoted(), &detail);
            out.add(error);
        }
    }

    fn number(&mut self, node: &Node, number: &Number, path: &Path<'_>, out: &mut Outcome) {
        let format = node
            .rules
            .iter()
            .find_map(|rule| if let Rule::Format(name) = rule { Some(&**name) } else { None });
        if !formats::in_range(node.kind, format, number) {
            let kind = node.kind.as_str();
            let with = format.map_or("(default format)".to_owned(), |format| format!("with format {format}"));
            let error = self.plain(format!("Checked value must be of type {kind} {with} in {path}"));
            out.add(error);
        }
        for rule in &node.rules {
            let detail = match *rule {
                Rule::MultipleOf(factor) if limited(number, factor) <= 0.0 => {
                    let shown = limit(number, factor);
                    let words = format!("factor MultipleOf declared for {path} must be positive: {shown}");
                    let error = self.error(Cause::Invalid, path, Some(shown), &words);
                    out.add(error);
                    continue;
                }
                Rule::MultipleOf(factor) if !is_multiple(number, limited(number, factor)) => {
                    format!("should be a multiple of {}", limit(number, factor))
                }
                Rule::Minimum(least, exclusive) if is_beyond(number, least, exclusive, false) => {
                    let words = if exclusive { "greater than" } else { "greater than or equal to" };
                    format!("should be {words} {}", limit(number, least))
                }
                Rule::Maximum(most, exclusive) if is_beyond(number, most, exclusive, true) => {
                    let words = if exclusive { "less than" } else { "less than or equal to" };
                    format!("should be {words} {}", limit(number, most))
                }
                _ => continue,
            };
            let shown = number
                .as_i64()
                .map_or_else(|| go_float(number.as_f64().unwrap_or_default()), |n| n.to_string());
            let error = self.error(Cause::Invalid, path, Some(shown), &format!("{path} in body {detail}"));
            out.add(error);
        }
    }

    fn list(&mut self, node: &Node, list: &[Value], old: Option<&Value>, path: &Path<'_>, out: &mut Outcome) {
        if let Some(items) = &node.items {
            let former = Former::of(node, old);
            for (at, item) in list.iter().enumerate() {
                if self.is_spent() {
                    return;
                }
                let one = self.value(items, item, former.of_item(node, item), &path.index(at));
                out.merge(one);
            }
        }
        let count = i64::try_from(list.len()).unwrap_or(i64::MAX);
        for rule in &node.rules {
            let error = match *rule {
                Rule::MinItems(least) if count < least => {
                    let detail = format!("{path} in body should have at least {least} items");
                    self.error(Cause::Invalid, path, Some(count.to_string()), &detail)
                }
                Rule::MaxItems(most) if count > most => {
                    let detail = format!("must have at most {most} {}", plural(most));
                    self.error(Cause::TooMany, path, Some(count.to_string()), &detail)
                }
                _ => continue,
            };
            out.add(error);
        }
    }

    fn enumeration(&mut self, node: &Node, value: &Value, path: &Path<'_>, out: &mut Outcome) {
        for rule in &node.rules {
            let Rule::Enum(values) = rule else { continue };
            if values.iter().any(|known| is_same(known, value)) && !value.is_null() {
                continue;
            }
            let known: Vec<String> = values
                .iter()
                .map(|known| {
                    known
                        .as_str()
                        .map_or_else(|| format!("{:?}", known.to_string()), |text| format!("{text:?}"))
                })
                .collect();
            let detail = format!("supported values: {}", known.join(", "));
            let error = self.error(Cause::NotSupported, path, Some(shown(value)), &detail);
            out.add(error);
        }
    }

    fn object(
        &mut self,
        node: &Node,
        object: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        path: &Path<'_>,
        out: &mut Outcome,
    ) {
        let count = i64::try_from(object.len()).unwrap_or(i64::MAX);
        for rule in &node.rules {
            let error = match *rule {
                Rule::MinProperties(least) if count < least => {
                    let detail = format!("{path} in body should have at least {least} properties");
                    self.error(Cause::Invalid, path, Some(count.to_string()), &detail)
                }
                Rule::MaxProperties(most) if count > most => {
                    let detail = format!("must have at most {most} {}", plural(most));
                    self.error(Cause::TooMany, path, Some(count.to_string()), &detail)
                }
                _ => continue,
            };
            out.add(error);
        }
        // A map that is one value has no parts that could be the same as before.
        let old = old.filter(|_| !node.atomic);
        let former = |name: &str| old.and_then(|old| old.get(name));
        for (name, value) in object {
            if self.is_spent() {
                return;
            }
            let known = node.property(name);
            match (known, &node.additional) {
                (Some(_), _) => {}
                (None, Additional::Allowed(false)) => {
                    let detail = format!("{path}.{name} in body is a forbidden property");
                    let error = self.error(Cause::Invalid, path, Some(format!("{name:?}")), &detail);
                    out.add(error);
                }
                (None, Additional::Schema(node)) => {
                    let one = self.value(node, value, former(name), &path.child(name));
                    out.merge(one);
                }
                (None, _) => {}
            }
        }
        for (name, node) in &node.properties {
            if let Some(value) = object.get(&**name) {
                let one = self.value(node, value, former(name), &path.child(name));
                out.merge(one);
            }
        }
        for rule in &node.rules {
            let Rule::Required(names) = rule else { continue };
            for name in names.iter().filter(|name| !object.contains_key(&***name)) {
                let error = self.error(Cause::Required, &path.child(name), None, "");
                out.add(error);
            }
        }
    }
}

/// What came of the alternatives of a junctor.
#[derive(Default)]
struct Tried {
    valid: usize,
    first: Option<Outcome>,
    best: Option<Outcome>,
}

/// The former elements of a list that has keys.
struct Former<'v>(HashMap<String, &'v Value>);

impl<'v> Former<'v> {
    fn of(node: &Node, old: Option<&'v Value>) -> Self {
        let list = old.and_then(Value::as_array).filter(|_| node.list_type == ListType::Map);
        Former(list.into_iter().flatten().map(|item| (key(node, item), item)).collect())
    }

    fn of_item(&self, node: &Node, item: &Value) -> Option<&'v Value> {
        if self.0.is_empty() { None } else { self.0.get(&key(node, item)).copied() }
    }
}

fn key(node: &Node, item: &Value) -> String {
    let parts: Vec<String> = node.keys().iter().map(|key| item[&**key].to_string()).collect();
    parts.join(",")
}

/// The JSON type of a value and Go's name of its format.
fn kind_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn plural(count: i64) -> &'static str {
    if count == 1 { "item" } else { "items" }
}

/// A value as field errors print it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

fn is_same(known: &Value, value: &Value) -> bool {
    match (known, value) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

/// A limit as upstream prints it beside a number: whole beside whole ones.
fn limit(number: &Number, limit: f64) -> String {
    if number.is_i64() { format!("{:.0}", limited(number, limit)) } else { go_float(limit) }
}

/// A limit as upstream holds it against a number: whole ones are held against what is whole of it.
fn limited(number: &Number, limit: f64) -> f64 {
    if number.is_i64() { limit.trunc() } else { limit }
}

/// Whether a number is on the wrong side of a limit.
fn is_beyond(number: &Number, limit: f64, exclusive: bool, upper: bool) -> bool {
    let number = match number.as_i64() {
        // Whole numbers are compared as such, to which limits are cut.
        #[allow(clippy::cast_precision_loss, reason = "upstream's limits are floats as well")]
        Some(whole) => {
            let limit = limit.trunc();
            let order = (whole as f64).partial_cmp(&limit);
            return beyond(order, exclusive, upper);
        }
        None => number.as_f64().unwrap_or_default(),
    };
    beyond(number.partial_cmp(&limit), exclusive, upper)
}

fn beyond(order: Option<std::cmp::Ordering>, exclusive: bool, upper: bool) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match order {
        Some(Equal) => exclusive,
        Some(Greater) => upper,
        Some(Less) => !upper,
        None => true,
    }
}

fn is_multiple(number: &Number, factor: f64) -> bool {
    let number = number.as_f64().unwrap_or_default();
    let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    times.fract() == 0.0
}
