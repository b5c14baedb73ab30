//! Literals that cannot work are refused before they run: durations, moments, patterns, formats, lists of several types.

use crate::ast::{Expr, Kind, Literal};
use crate::check::{Checked, Reference};
use crate::error::CompileError;
use crate::functions::formatting::{Clause, Part, next_part, refusal};
use crate::kind::Type;
use crate::pattern;
use crate::text::Text;
use crate::time::{parse_duration, parse_timestamp};

/// What is wrong with the literals of an expression.
pub(crate) fn validate(source: &[char], expr: &Expr, checked: &Checked) -> Result<(), Vec<CompileError>> {
    let mut validator = Validator { source, checked, errors: Vec::new() };
    validator.visit(expr, false);
    if validator.errors.is_empty() { Ok(()) } else { Err(validator.errors) }
}

struct Validator<'v> {
    source: &'v [char],
    checked: &'v Checked,
    errors: Vec<CompileError>,
}

impl Validator<'_> {
    fn refuse(&mut self, at: usize, message: impl Into<String>) {
        self.errors.push(CompileError::at(self.source, at, message));
    }

    fn of(&self, expr: &Expr) -> &Type {
        &self.checked.types[expr.id]
    }

    /// `exempt`: inside of a call that takes lists of several types.
    fn visit(&mut self, expr: &Expr, exempt: bool) {
        match &expr.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => {}
            Kind::Select { operand, .. } => self.visit(operand, exempt),
            Kind::Call { target, args, .. } => {
                let name = match &self.checked.references[expr.id] {
                    Reference::Function { name, .. } => name.as_str(),
                    _ => "",
                };
                self.call(expr, name, target.as_deref(), args);
                let exempt = exempt || name == "format";
                target.iter().for_each(|target| self.visit(target, exempt));
                args.iter().for_each(|arg| self.visit(arg, exempt));
            }
            Kind::List(elements) => {
                let kinds: Vec<(usize, Type)> = elements
                    .iter()
                    .map(|element| (element.value.at, self.inner(&element.value, element.optional)))
                    .collect();
                if !exempt {
                    self.same(&kinds);
                }
                elements.iter().for_each(|element| self.visit(&element.value, exempt));
            }
            Kind::Map(entries) => {
                if !exempt {
                    let keys: Vec<_> =
                        entries.iter().map(|entry| (entry.key.at, self.of(&entry.key).clone())).collect();
                    let values: Vec<_> = entries
                        .iter()
                        .map(|entry| (entry.value.at, self.inner(&entry.value, entry.optional)))
                        .collect();
                    if self.same(&keys) {
                        self.same(&values);
                    }
                }
                for entry in entries {
                    self.visit(&entry.key, exempt);
                    self.visit(&entry.value, exempt);
                }
            }
            Kind::Fold(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    self.visit(part, exempt);
                }
            }
        }
    }

    fn inner(&self, expr: &Expr, optional: bool) -> Type {
        match (self.of(expr), optional) {
            (Type::Optional(inner), true) => (**inner).clone(),
            (kind, _) => kind.clone(),
        }
    }

    fn same(&mut self, kinds: &[(usize, Type)]) -> bool {
        let Some((_, first)) = kinds.first() else { return true };
        match kinds.iter().find(|(_, kind)| !kind.is_exactly(first)) {
            Some((at, kind)) => {
                self.refuse(*at, format!("expected type '{first}' but found '{kind}'"));
                false
            }
            None => true,
        }
    }

    fn call(&mut self, expr: &Expr, name: &str, target: Option<&Expr>, args: &[Expr]) {
        match (name, args) {
            ("duration", [arg]) if literal(arg).is_some_and(|text| parse_duration(text).is_none()) => {
                self.refuse(arg.at, "invalid duration argument");
            }
            ("timestamp", [arg]) if literal(arg).is_some_and(|text| parse_timestamp(text).is_err()) => {
                self.refuse(arg.at, "invalid timestamp argument");
            }
            ("matches", [.., arg]) if literal(arg).is_some_and(|text| pattern::compile(text).is_err()) => {
                self.refuse(arg.at, "invalid matches argument");
            }
            ("format", [arg]) => {
                if let (Some(format), Kind::List(elements)) = (target.and_then(literal), &arg.kind) {
                    let values: Vec<&Expr> = elements.iter().map(|element| &element.value).collect();
                    self.format(expr, format, &values);
                }
            }
            _ => {}
        }
    }

    fn format(&mut self, expr: &Expr, format: &str, values: &[&Expr]) {
        let mut rest = format;
        let mut next = 0;
        loop {
            match next_part(rest) {
                Ok(None) => break,
                Ok(Some((Part::Text(_), behind))) => rest = behind,
                Ok(Some((Part::Clause(clause), behind))) => {
                    let Some(value) = values.get(next) else {
                        return self.refuse(expr.at, format!("index {next} out of range"));
                    };
                    if let Some(wrong) = self.misfit(&clause, value) {
                        let why = refusal(&clause, self.of(wrong).name());
                        return self.refuse(wrong.at, format!("error during formatting: {why}"));
                    }
                    rest = behind;
                    next += 1;
                }
                Err(why) => return self.refuse(expr.at, why),
            }
        }
        if values.len() > next {
            let message = format!(
                "too many arguments supplied to string.format (expected {next}, got {})",
                values.len()
            );
            self.refuse(expr.at, message);
        }
    }

    /// The part of a value that a clause does not take.
    fn misfit<'e>(&self, clause: &Clause, value: &'e Expr) -> Option<&'e Expr> {
        let kind = self.of(value);
        let fits = match clause {
            _ if matches!(kind, Type::Dyn) => true,
            Clause::String => {
                return match kind {
                    Type::Int
                    | Type::Uint
                    | Type::Double
                    | Type::Bool
                    | Type::String
                    | Type::Bytes
                    | Type::Timestamp
                    | Type::Duration
                    | Type::Null
                    | Type::Type(_) => None,
                    Type::List(_) | Type::Map(_) => match &value.kind {
                        Kind::List(elements) => {
                            elements.iter().find_map(|element| self.misfit(clause, &element.value))
                        }
                        Kind::Map(entries) => entries.iter().find_map(|entry| {
                            self.misfit(clause, &entry.key).or_else(|| self.misfit(clause, &entry.value))
                        }),
                        _ => None,
                    },
                    _ => Some(value),
                };
            }
            Clause::Decimal | Clause::Octal => matches!(kind, Type::Int | Type::Uint),
            Clause::Fixed(_) | Clause::Scientific => matches!(kind, Type::Double | Type::String),
            Clause::Binary => matches!(kind, Type::Int | Type::Uint | Type::Bool),
            Clause::Hex { .. } => matches!(kind, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        (!fits).then_some(value)
    }
}

/// The text of a literal.
fn literal(expr: &Expr) -> Option<&Text<'static>> {
    match &expr.kind {
        Kind::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}
