//! Field errors and the sentences they become.

use std::collections::HashSet;

use serde_json::Value;

use crate::path::Path;

/// Machine-readable reason of a field error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A referenced value does not exist.
    NotFound,
    /// A value is missing.
    Required,
    /// A value must be unique.
    Duplicate,
    /// A value is malformed.
    Invalid,
    /// A value is not one of an enumeration.
    NotSupported,
    /// A value is not allowed here.
    Forbidden,
    /// A value is too long.
    TooLong,
    /// A list is too long.
    TooMany,
    /// A value has the wrong type.
    TypeInvalid,
    /// Something went wrong while the value was looked at.
    Internal,
}

impl Cause {
    /// The reason as `details.causes[].reason` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::NotFound => "FieldValueNotFound",
            Cause::Required => "FieldValueRequired",
            Cause::Duplicate => "FieldValueDuplicate",
            Cause::Invalid => "FieldValueInvalid",
            Cause::NotSupported => "FieldValueNotSupported",
            Cause::Forbidden => "FieldValueForbidden",
            Cause::TooLong => "FieldValueTooLong",
            Cause::TooMany => "FieldValueTooMany",
            Cause::TypeInvalid => "FieldValueTypeInvalid",
            Cause::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Cause::NotFound => "Not found",
            Cause::Required => "Required value",
            Cause::Duplicate => "Duplicate value",
            Cause::Invalid | Cause::TypeInvalid => "Invalid value",
            Cause::NotSupported => "Unsupported value",
            Cause::Forbidden => "Forbidden",
            Cause::TooLong => "Too long",
            Cause::TooMany => "Too many",
            Cause::Internal => "Internal error",
        }
    }
}

/// One complaint about one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Reason.
    pub reason: Cause,
    /// Path of the field.
    pub field: String,
    /// What is wrong, with the offending value.
    pub message: String,
}

impl FieldError {
    /// A complaint in upstream's words.
    pub fn new(reason: Cause, field: String, value: Option<String>, detail: &str) -> FieldError {
        let mut message = reason.words().to_owned();
        for part in value.as_deref().into_iter().chain((!detail.is_empty()).then_some(detail)) {
            message.push_str(": ");
            message.push_str(part);
        }
        FieldError { reason, field: if field.is_empty() { "<nil>".to_owned() } else { field }, message }
    }
}

/// The errors as one line, the way the Status message has them after `Pod "x" is invalid: `.
pub fn summary(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let once = errors.iter().filter(|e| seen.insert((&e.field, &e.message)));
    let mut lines: Vec<String> = once.map(|e| format!("{}: {}", e.field, e.message)).collect();
    match lines.len() {
        1 => lines.remove(0),
        _ => format!("[{}]", lines.join(", ")),
    }
}

/// An offending value, printed as Go's field errors print it.
pub(crate) trait Bad {
    fn show(&self) -> String;
}

impl Bad for &str {
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Bad for &String {
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Bad for i64 {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Bad for &Value {
    fn show(&self) -> String {
        match self {
            Value::String(s) => format!("{s:?}"),
            other => other.to_string(),
        }
    }
}

/// A value that is printed already.
pub(crate) struct Shown(pub(crate) String);

impl Bad for Shown {
    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A struct printed with the names and order of upstream's internal type.
pub(crate) struct Internal<'a>(pub(crate) &'a Value, pub(crate) &'static [(&'static str, &'static str)]);

impl Bad for Internal<'_> {
    fn show(&self) -> String {
        let fields: Vec<String> =
            self.1.iter().map(|(go, json)| format!("\"{go}\":{}", self.0[*json])).collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// What was seen in a list, to tell what is in it twice: a few are compared one by one, many are hashed, so that a list
/// as long as a body can make it does not take time by the square of its length.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    few: Vec<T>,
    many: HashSet<T>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Seen { few: Vec::new(), many: HashSet::new() }
    }
}

impl<T: Eq + std::hash::Hash> Seen<T> {
    const FEW: usize = 16;

    pub(crate) fn has(&self, item: &T) -> bool {
        self.few.contains(item) || (!self.many.is_empty() && self.many.contains(item))
    }

    /// Notes an item; whether it was noted before.
    pub(crate) fn again(&mut self, item: T) -> bool {
        if self.has(&item) {
            return true;
        }
        if self.few.len() < Self::FEW {
            self.few.push(item);
        } else {
            self.many.insert(item);
        }
        false
    }
}

impl<T: Eq + std::hash::Hash> FromIterator<T> for Seen<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut seen = Seen::default();
        for item in items {
            seen.again(item);
        }
        seen
    }
}

/// Complaints of more bytes than this in all are not collected: each may quote the value, and there may be as many as a
/// body has fields.
const MOST_BYTES: usize = 1 << 20;

/// Why an expression that selects devices is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadSelector {
    /// It is no such expression; why.
    Invalid(String),
    /// It may cost too much.
    TooComplex,
}

/// Judges expressions, in a language that this crate does not know.
pub trait Judge: std::fmt::Debug {
    /// Judges an expression that selects devices. What is stored already may use more than what is new, as another
    /// version may have stored it.
    fn selector(&mut self, expression: &str, is_stored: bool) -> Result<(), BadSelector>;
}

/// What is found elsewhere and told among the complaints about an object.
#[derive(Debug, Default)]
pub struct Beside {
    /// Complaints that come before those of the kind's own rules.
    pub before: Vec<FieldError>,
    /// Who judges expressions; without a judge none is looked at.
    pub judge: Option<Box<dyn Judge>>,
}

/// Collects complaints.
#[derive(Debug, Default)]
pub struct Errors {
    found: Vec<FieldError>,
    /// How long they are together.
    bytes: usize,
    judge: Option<Box<dyn Judge>>,
}

impl Errors {
    /// Collects complaints with the help of a judge.
    pub(crate) fn with(judge: Option<Box<dyn Judge>>) -> Errors {
        Errors { found: Vec::new(), bytes: 0, judge }
    }

    /// Judges an expression that selects devices; nothing more is once there are complaints enough.
    pub(crate) fn selector(&mut self, path: &Path<'_>, expression: &str, is_stored: bool) {
        if self.are_full() {
            return;
        }
        match self.judge.as_mut().map(|judge| judge.selector(expression, is_stored)) {
            None | Some(Ok(())) => {}
            Some(Err(BadSelector::Invalid(why))) => self.invalid(path, expression, &why),
            Some(Err(BadSelector::TooComplex)) => self.forbidden(path, "too complex, exceeds cost limit"),
        }
    }

    /// Whether there is nothing to complain about.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn done(self) -> Vec<FieldError> {
        self.found
    }

    /// Whether complaints keep further rules from being asked.
    pub(crate) fn block(&self) -> bool {
        use Cause::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
        let blocks = |reason| matches!(reason, NotSupported | Required | TooLong | TooMany | TypeInvalid);
        self.found.iter().any(|error| blocks(error.reason))
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether nothing more is collected.
    pub(crate) fn are_full(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    fn push(&mut self, reason: Cause, path: &Path<'_>, value: Option<String>, detail: &str) {
        if self.are_full() {
            return;
        }
        self.add(FieldError::new(reason, path.to_string(), value, detail));
    }

    /// Takes over a complaint.
    pub(crate) fn add(&mut self, error: FieldError) {
        if self.are_full() {
            return;
        }
        self.bytes += error.field.len() + error.message.len();
        self.found.push(error);
    }

    pub(crate) fn invalid(&mut self, path: &Path<'_>, value: impl Bad, detail: &str) {
        self.push(Cause::Invalid, path, Some(value.show()), detail);
    }

    /// A complaint about something too large to be shown.
    pub(super) fn invalid_without_value(&mut self, path: &Path<'_>, detail: &str) {
        self.push(Cause::Invalid, path, None, detail);
    }

    pub(crate) fn all_invalid(&mut self, path: &Path<'_>, value: &str, details: Vec<String>) {
        for detail in details {
            self.invalid(path, value, &detail);
        }
    }

    pub(crate) fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.push(Cause::Required, path, None, detail);
    }

    pub(crate) fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.push(Cause::Forbidden, path, None, detail);
    }

    /// Takes over complaints that were found elsewhere.
    pub(crate) fn extend(&mut self, others: Vec<FieldError>) {
        others.into_iter().for_each(|error| self.add(error));
    }

    pub(crate) fn duplicate(&mut self, path: &Path<'_>, value: impl Bad) {
        self.duplicate_because(path, value, "");
    }

    pub(super) fn duplicate_because(&mut self, path: &Path<'_>, value: impl Bad, detail: &str) {
        self.push(Cause::Duplicate, path, Some(value.show()), detail);
    }

    pub(crate) fn not_found(&mut self, path: &Path<'_>, value: impl Bad) {
        self.not_found_because(path, value, "");
    }

    pub(crate) fn not_found_because(&mut self, path: &Path<'_>, value: impl Bad, detail: &str) {
        self.push(Cause::NotFound, path, Some(value.show()), detail);
    }

    pub(crate) fn not_supported(&mut self, path: &Path<'_>, value: impl Bad, supported: &[&str]) {
        let listed: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        self.push(
            Cause::NotSupported,
            path,
            Some(value.show()),
            &format!("supported values: {}", listed.join(", ")),
        );
    }

    pub(crate) fn too_long(&mut self, path: &Path<'_>, most: usize) {
        self.push(Cause::TooLong, path, None, &format!("may not be more than {most} bytes"));
    }

    pub(crate) fn too_many(&mut self, path: &Path<'_>, given: usize, most: usize) {
        self.push(Cause::TooMany, path, Some(given.to_string()), &format!("must have at most {most} items"));
    }

    pub(crate) fn immutable(&mut self, path: &Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new, "field is immutable");
        }
    }

    /// [`Errors::immutable`] for a text that is empty when it is absent.
    pub(super) fn immutable_text(&mut self, path: &Path<'_>, new: &Value, old: &Value) {
        if text(new) != text(old) {
            self.invalid(path, text(new), "field is immutable");
        }
    }

    pub(crate) fn nonnegative(&mut self, path: &Path<'_>, value: &Value) {
        if let Some(number) = value.as_i64().filter(|n| *n < 0) {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }

    /// One of an enumeration; empty is `Required`.
    pub(crate) fn one_of(&mut self, path: &Path<'_>, value: &Value, supported: &[&str]) {
        match value.as_str().unwrap_or_default() {
            "" => self.required(path, ""),
            given if supported.contains(&given) => {}
            given => self.not_supported(path, given, supported),
        }
    }
}

/// A floating point number as Go prints it.
pub(crate) fn go_float(number: f64) -> String {
    let plain = format!("{number:e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        exponent if !(-4..6).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => number.to_string(),
    }
}

/// Text of a value, empty when it is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Elements of a value, none when it is no list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
