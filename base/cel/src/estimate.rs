//! What an expression may cost, from its text and the sizes that schemas allow: a range whose upper end is compared with limits.
//!
//! The walk goes over the checked tree, not over the plan: estimates do not know what is folded.

mod calls;
mod range;

use std::collections::HashMap;

pub use self::range::Range;

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::check::Reference;
use crate::depth;
use crate::kind::Type;
use crate::price::{NEW_LIST, NEW_MAP};
use crate::program::Program;
use crate::schema::{Schema, Shape};

/// The accumulators of macros, whose paths say nothing.
const ACCUMULATORS: [&str; 2] = ["@result", "__result__"];

impl Program {
    /// What it may cost at least and at most.
    pub fn estimated_cost(&self) -> Range {
        match self.deep {
            true => depth::on_large_stack(|| self.walked_cost()).unwrap_or(Range::UNKNOWN),
            false => self.walked_cost(),
        }
    }

    fn walked_cost(&self) -> Range {
        let mut estimator = Estimator {
            program: self,
            paths: HashMap::new(),
            sizes: HashMap::new(),
            entries: HashMap::new(),
            locals: Vec::new(),
        };
        estimator.cost(&self.expr)
    }
}

/// Where a value comes from: a variable, then names of fields, `@items`, `@keys`, `@values`.
type Path = Vec<String>;

/// The sizes of what is in a list or a map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Entries) -> Entries {
        Entries { key: self.key.union(other.key), value: self.value.union(other.value), ..self }
    }
}

struct Local {
    name: String,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Estimator<'p> {
    program: &'p Program,
    /// By the numbers of the nodes, as are the next two.
    paths: HashMap<usize, Path>,
    sizes: HashMap<usize, Range>,
    entries: HashMap<usize, Entries>,
    locals: Vec<Local>,
}

/// An argument, as far as its cost is concerned.
struct Argument<'e> {
    expr: &'e Expr,
    cost: Range,
    /// The size that the expression itself tells or its schema allows.
    size: Option<Range>,
    path: Option<Path>,
    kind: &'e Type,
}

impl<'p> Estimator<'p> {
    fn kind(&self, expr: &Expr) -> &'p Type {
        &self.program.checked.types[expr.id]
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn path(&self, expr: &Expr) -> Option<Path> {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return Some(local.path.clone());
        }
        self.paths.get(&expr.id).cloned()
    }

    /// The most that the schema of a variable allows at a path.
    fn allowed(&self, path: Option<&Path>) -> Option<Range> {
        let (first, rest) = path?.split_first()?;
        let variable = self.program.variables.iter().find(|variable| variable.name == *first)?;
        let mut schema: &Schema = variable.schema.as_ref()?;
        for name in rest {
            schema = match (name.as_str(), schema.shape()) {
                ("@items" | "@values", Shape::List { items, .. }) => items,
                ("@items" | "@values", Shape::Map { values, .. }) => values,
                ("@keys", Shape::Map { keys, .. }) => keys,
                ("@items" | "@values" | "@keys", _) => return None,
                (name, Shape::Object { .. }) => schema.field(name)?,
                // Whatever an attribute of a device is called, they are all bounded in the same way.
                (_, Shape::Map { values, .. }) if matches!(values.shape(), Shape::Any) => values,
                _ => return None,
            };
        }
        Some(Range { least: 0, most: schema.most() })
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(Range::fixed(size));
        }
        if let Some(size) = self.allowed(self.path(expr).as_ref()) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.kind(expr)) {
            return Some(Range::fixed(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn entries(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
    }

    fn set_entries(&mut self, expr: &Expr, entries: Option<Entries>) {
        if let Some(entries) = entries {
            self.entries.insert(expr.id, entries);
        }
    }

    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) | Kind::Struct { .. } => Range::fixed(0),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select { operand, field, test_only } => {
                if let Reference::Variable(name) = &self.program.checked.references[expr.id] {
                    return self.ident(expr, name);
                }
                if let Reference::Type(kind) = &self.program.checked.references[expr.id] {
                    return self.ident(expr, kind.name());
                }
                let cost = self.cost(operand);
                if *test_only {
                    return cost;
                }
                let step = match self.kind(operand) {
                    Type::Map(_) | Type::Object(_) | Type::Library(_) => 1,
                    _ => 0,
                };
                let mut path = self.path(operand).unwrap_or_default();
                path.push(field.clone());
                self.paths.insert(expr.id, path);
                cost.plus(Range::fixed(step))
            }
            Kind::Call { target, args, .. } => self.call(expr, target.as_deref(), args),
            Kind::List(elements) => {
                let mut cost = Range::fixed(NEW_LIST);
                let mut value = Range { least: if elements.is_empty() { 0 } else { u64::MAX }, most: 0 };
                for element in elements {
                    cost = cost.plus(self.cost(&element.value));
                    value = value.union(self.size_or_unknown(&element.value));
                }
                self.set_entries(expr, Some(Entries { is_list: true, key: Range::fixed(1), value }));
                cost
            }
            Kind::Map(entries) => {
                let mut cost = Range::fixed(NEW_MAP);
                let none = Range { least: if entries.is_empty() { 0 } else { u64::MAX }, most: 0 };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.set_entries(expr, Some(Entries { is_list: false, key, value }));
                cost
            }
            Kind::Fold(fold) if is_binding(fold) => self.binding(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn ident(&mut self, expr: &Expr, name: &str) -> Range {
        let path = self.local(name).map_or_else(|| vec![name.to_owned()], |local| local.path.clone());
        self.paths.insert(expr.id, path);
        Range::fixed(1)
    }

    fn argument<'e>(&mut self, expr: &'e Expr) -> Argument<'e>
    where
        'p: 'e,
    {
        let cost = self.cost(expr);
        let path = self
            .path(expr)
            .filter(|path| path.first().is_some_and(|first| !ACCUMULATORS.contains(&first.as_str())));
        Argument { expr, cost, size: self.size(expr), path, kind: self.kind(expr) }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, args: &[Expr]) -> Range {
        let Reference::Function { name, overloads, namespaced } = &self.program.checked.references[expr.id]
        else {
            return Range::fixed(0);
        };
        if name == "dyn" {
            // Only the checker is told something by it.
            let cost = self.cost(&args[0]);
            let (size, entries) = (self.size(&args[0]), self.entries(&args[0]));
            self.set_size(expr, size);
            self.set_entries(expr, entries);
            return cost.plus(Range::fixed(1));
        }
        let arguments: Vec<Argument<'_>> = args.iter().map(|arg| self.argument(arg)).collect();
        let target = target.filter(|_| !namespaced).map(|target| self.argument(target));
        let mut cost = Range { least: u64::MAX, most: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let (price, size) = self.function(expr, name, overload, target.as_ref(), &arguments);
            cost = cost.union(price);
            result = match (result, size) {
                (Some(before), Some(size)) => Some(before.union(size)),
                (before, size) => before.or(size),
            };
            let step = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(of)) = (step, args.first()) {
                result = self.entries(of).map(|entries| entries.value);
                let mut path = self.path(of).unwrap_or_default();
                path.push(step.to_owned());
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        self.set_size(expr, result);
        target.map_or(Range::fixed(0), |target| target.cost).plus(cost)
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let depth = self.locals.len();
        self.push_value(&fold.accu_var, &fold.init);
        let entries = self.entries(&fold.range);
        let is_list = entries
            .map_or_else(|| matches!(self.kind(&fold.range), Type::List(_)), |entries| entries.is_list);
        let path = self.path(&fold.range).unwrap_or_default();
        let mut element = |name: &str, step: &str, size: Option<Range>| {
            let mut path = path.clone();
            path.push(step.to_owned());
            self.locals.push(Local { name: name.to_owned(), path, size, entries: None });
        };
        let (key, value) = (entries.map(|entries| entries.key), entries.map(|entries| entries.value));
        match (&fold.var2, is_list) {
            (None, true) => element(&fold.var, "@items", value),
            (None, false) => element(&fold.var, "@keys", key),
            (Some(var2), true) => {
                element(&fold.var, "@indices", key);
                element(var2, "@items", value);
            }
            (Some(var2), false) => {
                element(&fold.var, "@keys", key);
                element(var2, "@values", value);
            }
        }
        let each = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.locals.truncate(depth + 1);
        cost = cost.plus(self.cost(&fold.result));
        self.locals.truncate(depth);
        let count = self.size_or_unknown(&fold.range);
        cost = cost.plus(count.times(each));
        match &fold.init.kind {
            Kind::Literal(_) => {
                let size = self.size(&fold.init);
                self.set_size(expr, size);
            }
            Kind::List(_) | Kind::Map(_) => {
                self.set_size(expr, Some(count));
                let entries = self.entries(&fold.step);
                self.set_entries(expr, entries);
            }
            _ => {}
        }
        cost
    }

    fn binding(&mut self, expr: &Expr, fold: &Fold) -> Range {
        let cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accu_var, &fold.init);
        let cost = cost.plus(self.cost(&fold.result));
        self.locals.pop();
        let (size, entries) = (self.size(&fold.result), self.entries(&fold.result));
        self.set_size(expr, size);
        self.set_entries(expr, entries);
        cost
    }

    /// A variable that is the value of an expression.
    fn push_value(&mut self, name: &str, value: &Expr) {
        let local = Local {
            name: name.to_owned(),
            path: self.path(value).unwrap_or_default(),
            size: self.size(value),
            entries: self.entries(value),
        };
        self.locals.push(local);
    }
}

/// A fold over nothing, which gives a value a name.
fn is_binding(fold: &Fold) -> bool {
    matches!(&fold.range.kind, Kind::List(elements) if elements.is_empty())
        && matches!(fold.condition.kind, Kind::Literal(Literal::Bool(false)))
        && fold.accu_var != ACCUMULATORS[1]
}

fn literal_size(expr: &Expr) -> Option<u64> {
    Some(match &expr.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count() as u64,
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        Kind::Literal(_) => 1,
        Kind::List(elements) => elements.len() as u64,
        Kind::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}

/// Whether all values of a type are of one size.
fn is_scalar(kind: &Type) -> bool {
    match kind {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
