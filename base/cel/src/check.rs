//! Gives every node its type and every call its overloads, or says what does not fit.

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::declare::{self, Overload};
use crate::environment::Environment;
use crate::error::CompileError;
use crate::kind::Type;
use crate::unify::{Bindings, most_general};

/// Upstream stops after so many errors.
const MOST_ERRORS: usize = 100;

/// What named expressions are fields of.
pub(crate) const VARIABLES: &str = "variables";

/// What the checker found, by the numbers of the nodes.
pub(crate) struct Checked {
    pub types: Vec<Type>,
    pub references: Vec<Reference>,
}

/// What a name or a call means.
#[derive(Clone, Debug, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A variable: of the environment or of a comprehension.
    Variable(String),
    /// `variables`, of which the named expressions are fields.
    Variables,
    /// A type as a value.
    Type(Type),
    /// A function with what it is called in full, and the overloads that may be meant.
    Function { name: String, overloads: Vec<&'static str>, namespaced: bool },
}

/// Checks `expr`, which has `nodes` nodes.
pub(crate) fn check(
    source: &[char],
    expr: &Expr,
    nodes: usize,
    environment: &Environment,
) -> Result<Checked, Vec<CompileError>> {
    let mut checker = Checker {
        source,
        environment,
        scopes: Vec::new(),
        bindings: Bindings::default(),
        types: vec![Type::Error; nodes],
        references: vec![Reference::None; nodes],
        errors: Vec::new(),
    };
    checker.expr(expr);
    if !checker.errors.is_empty() {
        let mut errors = checker.errors;
        errors.sort_by_key(|error| (error.line, error.column));
        errors.truncate(MOST_ERRORS);
        return Err(errors);
    }
    let bindings = checker.bindings;
    let types = checker.types.iter().map(|kind| bindings.resolve(kind, true)).collect();
    Ok(Checked { types, references: checker.references })
}

struct Checker<'c> {
    source: &'c [char],
    environment: &'c Environment,
    /// Variables of comprehensions, the innermost last.
    scopes: Vec<(String, Type)>,
    bindings: Bindings,
    types: Vec<Type>,
    references: Vec<Reference>,
    errors: Vec<CompileError>,
}

impl Checker<'_> {
    fn refuse(&mut self, at: usize, message: String) {
        self.errors.push(CompileError::at(self.source, at, message));
    }

    fn undeclared(&mut self, at: usize, name: &str) {
        self.refuse(at, format!("undeclared reference to '{name}' (in container '')"));
    }

    fn mismatch(&mut self, at: usize, expected: &Type, found: &Type) {
        self.refuse(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn set(&mut self, expr: &Expr, kind: Type) {
        self.types[expr.id] = kind;
    }

    fn of(&self, expr: &Expr) -> Type {
        self.types[expr.id].clone()
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            Kind::Literal(literal) => self.set(expr, of_literal(literal)),
            Kind::Ident(name) => match self.variable(name) {
                Some((kind, reference)) => {
                    self.references[expr.id] = reference;
                    self.set(expr, kind);
                }
                None if name == VARIABLES && self.environment.is_composed() => {
                    // Upstream lets them be passed around as a whole, which nothing can be done with.
                    self.refuse(expr.at, "each of the variables is to be asked for by its name".to_owned());
                }
                None => self.undeclared(expr.at, name),
            },
            Kind::Select { operand, field, test_only } => self.select(expr, operand, field, *test_only),
            Kind::Call { target, function, args } => self.call(expr, target.as_deref(), function, args),
            Kind::List(elements) => {
                let mut joined = None;
                for element in elements {
                    self.expr(&element.value);
                    let kind = self.element(&element.value, element.optional);
                    joined = Some(self.join(joined, kind));
                }
                let of = joined.unwrap_or_else(|| self.bindings.fresh());
                self.set(expr, Type::list(of));
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    self.expr(&entry.key);
                    let key = self.of(&entry.key);
                    keys = Some(self.join(keys, key));
                    self.expr(&entry.value);
                    let value = self.element(&entry.value, entry.optional);
                    values = Some(self.join(values, value));
                }
                let key = keys.unwrap_or_else(|| self.bindings.fresh());
                let value = values.unwrap_or_else(|| self.bindings.fresh());
                self.set(expr, Type::map(key, value));
            }
            Kind::Struct { name } => self.undeclared(expr.at, name),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    /// A variable by its name, or a type.
    fn variable(&self, name: &str) -> Option<(Type, Reference)> {
        if let Some((_, kind)) = self.scopes.iter().rev().find(|(other, _)| other == name) {
            return Some((kind.clone(), Reference::Variable(name.to_owned())));
        }
        if let Some(variable) = self.environment.variable(name) {
            return Some((variable.kind.clone(), Reference::Variable(name.to_owned())));
        }
        let kind = type_named(name)?;
        Some((Type::Type(Some(kind.clone().into())), Reference::Type(kind)))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test_only: bool) {
        if !test_only
            && let Some(name) = expr.qualified_name()
            && let Some((kind, reference)) = self.variable(&name)
        {
            self.references[expr.id] = reference;
            self.set(expr, kind);
            return;
        }
        let kind = self.field(expr.at, operand, field, false);
        let kind = if test_only { Type::Bool } else { self.bindings.resolve(&kind, false) };
        self.set(expr, kind);
    }

    /// Whether an operand is `variables`, the named expressions, and nothing else of that name.
    fn is_variables(&self, operand: &Expr) -> bool {
        matches!(&operand.kind, Kind::Ident(name) if name == VARIABLES)
            && self.environment.is_composed()
            && self.variable(VARIABLES).is_none()
    }

    /// The type of a field.
    fn field(&mut self, at: usize, operand: &Expr, field: &str, optional: bool) -> Type {
        if self.is_variables(operand) {
            self.references[operand.id] = Reference::Variables;
            let found = match self.environment.composed(field) {
                Some((_, kind)) => kind.clone(),
                None => {
                    self.refuse(at, format!("undefined field '{field}'"));
                    Type::Error
                }
            };
            return if optional { Type::optional(found) } else { found };
        }
        self.expr(operand);
        let of = self.bindings.resolve(&self.of(operand), false);
        let (target, was_optional) = unwrapped(&of);
        let found = match target {
            Type::Map(both) => both.1.clone(),
            Type::Object(schema) => match schema.field(field).filter(|field| field.is_exposed()) {
                Some(schema) => schema.kind(),
                None => {
                    self.refuse(at, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Library(_) => {
                self.refuse(at, format!("undefined field '{field}'"));
                Type::Error
            }
            Type::Free(_) => {
                self.bindings.assign(&Type::Dyn, target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.refuse(at, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(found) } else { found }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, function: &str, args: &[Expr]) {
        if function == "_?._" {
            let Kind::Literal(Literal::String(field)) = &args[1].kind else { return };
            self.set(&args[1], Type::String);
            let kind = self.field(expr.at, &args[0], field, true);
            let kind = self.bindings.resolve(&kind, false);
            self.set(expr, kind);
            self.reference(expr, function, vec!["select_optional_field"], false);
            return;
        }
        for arg in args {
            self.expr(arg);
        }
        if let Some(name) = target.and_then(|target| Some(format!("{}.{function}", target.qualified_name()?)))
            && let Some((name, overloads)) = self.environment.function(&name)
        {
            return self.overload(expr, name, overloads, None, args, true);
        }
        if let Some(target) = target {
            self.expr(target);
        }
        match self.environment.function(function) {
            Some((name, overloads)) => self.overload(expr, name, overloads, target, args, false),
            None => self.undeclared(expr.at, function),
        }
    }

    fn reference(&mut self, expr: &Expr, name: &str, overloads: Vec<&'static str>, namespaced: bool) {
        self.references[expr.id] = Reference::Function { name: name.to_owned(), overloads, namespaced };
    }

    fn overload(
        &mut self,
        expr: &Expr,
        name: &'static str,
        overloads: &[Overload],
        target: Option<&Expr>,
        args: &[Expr],
        namespaced: bool,
    ) {
        if name == "_&&_" || name == "_||_" {
            return self.logical(expr, name, args);
        }
        let given: Vec<Type> = target.into_iter().chain(args).map(|arg| self.of(arg)).collect();
        let mut found: Option<Type> = None;
        let mut chosen = Vec::new();
        for overload in overloads.iter().filter(|overload| overload.member == target.is_some()) {
            if overload.args.len() != given.len() {
                continue;
            }
            let mut params = Vec::new();
            let (wanted, result) = match overload.generic {
                false => (overload.args.clone(), overload.result.clone()),
                true => {
                    let wanted: Vec<Type> =
                        overload.args.iter().map(|arg| self.bindings.instance(arg, &mut params)).collect();
                    (wanted, self.bindings.instance(&overload.result, &mut params))
                }
            };
            if !self.bindings.assign_all(&given, &wanted) {
                continue;
            }
            chosen.push(overload.id);
            let result = self.bindings.resolve(&result, false);
            found = Some(match found {
                None => result,
                Some(before) if !before.is_dyn() && !result.is_exactly(&before) => Type::Dyn,
                Some(before) => before,
            });
        }
        let Some(kind) = found else {
            let mut shown: Vec<String> =
                given.iter().map(|kind| self.bindings.resolve(kind, true).to_string()).collect();
            let instance = match target {
                Some(_) => format!("{}.", shown.remove(0)),
                None => String::new(),
            };
            let message = format!(
                "found no matching overload for '{name}' applied to '{instance}({})'",
                shown.join(", ")
            );
            return self.refuse(expr.at, message);
        };
        self.set(expr, kind);
        self.reference(expr, name, chosen, namespaced);
    }

    fn logical(&mut self, expr: &Expr, name: &'static str, args: &[Expr]) {
        let mut refused = false;
        for arg in args {
            let kind = self.of(arg);
            if !self.bindings.assign(&kind, &Type::Bool) {
                self.mismatch(arg.at, &Type::Bool, &kind);
                refused = true;
            }
        }
        if !refused {
            self.set(expr, Type::Bool);
        }
        let overload = if name == "_&&_" { "logical_and" } else { "logical_or" };
        self.reference(expr, name, vec![overload], false);
    }

    /// The type of an element or a value of a literal, without the optional around it.
    fn element(&mut self, value: &Expr, optional: bool) -> Type {
        let kind = self.of(value);
        if !optional {
            return kind;
        }
        let (inner, was_optional) = unwrapped(&kind);
        if !was_optional && !inner.is_dyn() {
            self.mismatch(value.at, &Type::optional(inner.clone()), inner);
        }
        inner.clone()
    }

    /// The type of elements of which those before had the type `before`. That they are all of one is looked at later, when
    /// the types are known.
    fn join(&mut self, before: Option<Type>, kind: Type) -> Type {
        let Some(before) = before else { return kind };
        match self.bindings.assign(&before, &kind) {
            true => most_general(&before, &kind).clone(),
            false => Type::Dyn,
        }
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) {
        self.expr(&fold.range);
        self.expr(&fold.init);
        let range = self.bindings.resolve(&self.of(&fold.range), false);
        let accu = self.of(&fold.init);
        let (first, second) = match &range {
            Type::List(inner) if fold.var2.is_some() => (Type::Int, (**inner).clone()),
            Type::List(inner) => ((**inner).clone(), Type::Dyn),
            Type::Map(both) => both.as_ref().clone(),
            Type::Dyn | Type::Any | Type::Error | Type::Free(_) => {
                self.bindings.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.refuse(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((fold.accu_var.clone(), accu.clone()));
        self.scopes.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((var2.clone(), second));
        }
        self.expr(&fold.condition);
        self.assert(&fold.condition, &Type::Bool);
        self.expr(&fold.step);
        self.assert(&fold.step, &accu);
        self.scopes.truncate(depth + 1);
        self.expr(&fold.result);
        self.scopes.truncate(depth);
        let kind = self.bindings.resolve(&self.of(&fold.result), false);
        self.set(expr, kind);
    }

    fn assert(&mut self, expr: &Expr, kind: &Type) {
        let found = self.of(expr);
        if !self.bindings.assign(kind, &found) {
            self.mismatch(expr.at, kind, &found);
        }
    }
}

fn of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// What is in an optional, and whether it is one.
fn unwrapped(kind: &Type) -> (&Type, bool) {
    match kind {
        Type::Optional(inner) => (inner, true),
        other => (other, false),
    }
}

/// A type by the name that expressions use.
fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "optional_type" => Type::optional(Type::Dyn),
        "timestamp" | "duration" => return None,
        name => declare::named(name)?,
    })
}
