//! One term of a label selector, which is also one of a node selector.

use std::fmt;

use super::SelectorError;
use crate::syntax;

/// How a term compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=` or `==`.
    Equals,
    /// `!=`; an absent key matches.
    NotEquals,
    /// `in`.
    In,
    /// `notin`; an absent key matches.
    NotIn,
    /// The key alone.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `>`.
    GreaterThan,
    /// `<`.
    LessThan,
}

impl Operator {
    /// The operator that a node selector calls by this name; a label selector knows the first four.
    pub fn by_name(name: &str) -> Option<Operator> {
        Some(match name {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::GreaterThan,
            "Lt" => Operator::LessThan,
            _ => return None,
        })
    }

    fn compares_numbers(self) -> bool {
        matches!(self, Operator::GreaterThan | Operator::LessThan)
    }
}

/// One term of a label selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelRequirement {
    /// Label key.
    pub key: String,
    /// Comparison.
    pub operator: Operator,
    /// Values compared with.
    pub values: Vec<String>,
}

impl LabelRequirement {
    /// A term, if its key is one and its values suit the operator.
    pub fn new(
        key: &str,
        operator: Operator,
        values: Vec<String>,
    ) -> Result<LabelRequirement, SelectorError> {
        let mut errors = Vec::new();
        let complaints = syntax::qualified_name(key);
        if !complaints.is_empty() {
            errors.push(format!("key: Invalid value: {key:?}: {}", complaints.join("; ")));
        }
        errors.extend(complaints_about(key, operator, &values));
        match errors.len() {
            0 => Ok(LabelRequirement { key: key.to_owned(), operator, values }),
            1 => Err(SelectorError(errors.remove(0))),
            _ => Err(SelectorError(format!("[{}]", errors.join(", ")))),
        }
    }

    /// Whether an object whose label of that key is `value` satisfies the term.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let listed = |v: &str| self.values.iter().any(|x| x == v);
        let compare = |v: &str| Some((v.parse::<i64>().ok()?, self.values.first()?.parse::<i64>().ok()?));
        match self.operator {
            Operator::Equals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(compare).is_some_and(|(a, b)| a > b),
            Operator::LessThan => value.and_then(compare).is_some_and(|(a, b)| a < b),
        }
    }
}

/// As a query carries it.
impl fmt::Display for LabelRequirement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::Equals => write!(out, "{key}={values}"),
            Operator::NotEquals => write!(out, "{key}!={values}"),
            Operator::In => write!(out, "{key} in ({values})"),
            Operator::NotIn => write!(out, "{key} notin ({values})"),
            Operator::Exists => write!(out, "{key}"),
            Operator::DoesNotExist => write!(out, "!{key}"),
            Operator::GreaterThan => write!(out, "{key}>{values}"),
            Operator::LessThan => write!(out, "{key}<{values}"),
        }
    }
}

/// What is wrong with the values.
fn complaints_about(key: &str, operator: Operator, values: &[String]) -> Vec<String> {
    let shown = || format!("{values:?}").replace("\", \"", "\",\"");
    let mut errors = Vec::new();
    let mut all = |rule: &str| errors.push(format!("values: Invalid value: {}: {rule}", shown()));
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            all("for 'in', 'notin' operators, values set can't be empty");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            all("values set must be empty for exists and does not exist");
        }
        _ if operator.compares_numbers() && values.len() != 1 => {
            all("for 'Gt', 'Lt' operators, exactly one value is required");
        }
        _ => {}
    }
    for (i, value) in values.iter().enumerate() {
        if operator.compares_numbers() && value.parse::<i64>().is_err() {
            errors.push(format!(
                "values[{i}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
    }
    for (i, value) in values.iter().enumerate() {
        let complaints = syntax::label_value(value);
        if !complaints.is_empty() {
            errors.push(format!("values[{i}][{key}]: Invalid value: {value:?}: {}", complaints.join("; ")));
        }
    }
    errors
}
