//! Runs the steps of an expression and counts what they cost.
//!
//! Errors are values until somebody absorbs them: `&&` and `||` look at both sides before they fail, a quantifier goes on
//! behind an element that failed. Only an exceeded budget ends everything at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compare::equal;
use crate::composition::Scope;
use crate::environment::Variable;
use crate::error::EvalError;
use crate::list::List;
use crate::map::{Key, Map};
use crate::plan::{Attribute, Base, Call, FoldNode, Item, Node, Qualifier, QualifierKey};
use crate::price::{NEW_LIST, NEW_MAP, Price};
use crate::value::Value;

type Result<T> = std::result::Result<T, EvalError>;

/// The state of one evaluation.
pub(crate) struct Machine<'s, 'p> {
    globals: Vec<Option<Value<'p>>>,
    variables: &'p [Variable],
    locals: Vec<Slot<'p>>,
    cost: u64,
    limit: u64,
    /// Has the named expressions.
    scope: Option<&'s Scope<'p>>,
}

/// The place of a variable of a comprehension.
enum Slot<'p> {
    /// An accumulator whose first value nobody has asked for.
    Unasked(&'p Node),
    Known(Result<Value<'p>>),
}

impl<'s, 'p> Machine<'s, 'p> {
    pub(crate) fn new(
        globals: Vec<Option<Value<'p>>>,
        variables: &'p [Variable],
        locals: usize,
        limit: u64,
        scope: Option<&'s Scope<'p>>,
    ) -> Machine<'s, 'p> {
        let locals = (0..locals).map(|_| Slot::Known(Ok(Value::Null))).collect();
        Machine { globals, variables, locals, cost: 0, limit, scope }
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    fn charge(&mut self, cost: u64) -> Result<()> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::TooExpensive) } else { Ok(()) }
    }

    pub(crate) fn eval(&mut self, node: &'p Node) -> Result<Value<'p>> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute { attribute, test } => {
                let value = self.resolve(attribute);
                // Whether something is there costs nothing but the way to it.
                if !test && !attribute.is_choice() {
                    self.charge(1)?;
                }
                if *test && attribute.is_choice() {
                    self.cost = self.cost.saturating_sub(1);
                }
                match value {
                    Ok(Value::Optional(inner)) if *test => Ok(Value::Bool(inner.is_some())),
                    other => other,
                }
            }
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Call(call) => self.call(call),
            Node::OptionalOr { left, right, value } => match self.eval(left)? {
                Value::Optional(Some(inner)) if *value => Ok((*inner).clone()),
                Value::Optional(None) => self.eval(right),
                other => Ok(other),
            },
            Node::Among { value, of } => {
                let value = self.eval(value)?;
                Ok(Value::Bool(of.iter().any(|one| equal(one, &value))))
            }
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Fold(fold) => self.fold(fold),
        }
    }

    /// `&&` and `||`: the one `decisive` value decides, whatever failed beside it.
    fn logical(&mut self, terms: &'p [Node], decisive: bool) -> Result<Value<'p>> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
                Err(error) => failed = failed.or(Some(error)),
                Ok(_) => failed = failed.or_else(|| Some(EvalError::no_such_overload())),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn call(&mut self, call: &'p Call) -> Result<Value<'p>> {
        if call.lenient {
            return self.not_strictly_false(call);
        }
        let mut args = Vec::with_capacity(call.args.len());
        let mut failed: Option<(usize, EvalError)> = None;
        for (place, node) in call.args.iter().enumerate() {
            let value = match (place, call.consumes) {
                (0, true) => self.take(node),
                _ => self.eval(node),
            };
            match value {
                Ok(value) => args.push(value),
                Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
                Err(error) => {
                    args.push(Value::Null);
                    match &failed {
                        Some(_) => {}
                        None => failed = Some((place, error)),
                    }
                    if !call.eager {
                        break;
                    }
                }
            }
        }
        if let Some((place, error)) = failed {
            return self.failed(call, &args, place, error);
        }
        let price = match call.price {
            // Most calls cost the same whatever they are given.
            Price::Fixed(cost) => cost,
            price => price.before(&args.iter().map(Some).collect::<Vec<_>>()),
        };
        self.charge(price)?;
        if let (Price::Made, [Value::Int(count)]) = (call.price, args.as_slice()) {
            // What would be made is known beforehand, and may be more than fits anywhere.
            let count = u64::try_from(*count).unwrap_or(0);
            if self.cost.saturating_add(count) > self.limit {
                self.charge(count)?;
            }
        }
        let result = match &call.pattern {
            Some(pattern) => pattern.apply(&args),
            None => (call.native)(&mut args),
        };
        if call.price.is_of_result() {
            self.charge(call.price.after(result.as_ref().ok()))?;
        }
        result
    }

    /// A call of which an argument failed; it costs what it would have if all of them were looked at.
    fn failed(
        &mut self,
        call: &Call,
        args: &[Value<'p>],
        place: usize,
        error: EvalError,
    ) -> Result<Value<'p>> {
        if args.len() == call.args.len() {
            let known: Vec<Option<&Value<'_>>> =
                args.iter().enumerate().map(|(at, value)| (at != place).then_some(value)).collect();
            let mut price = call.price.before(&known);
            if call.price.is_of_result() {
                price = call.price.after(None);
            }
            self.charge(price)?;
        }
        Err(error)
    }

    fn not_strictly_false(&mut self, call: &'p Call) -> Result<Value<'p>> {
        let value = self.eval(&call.args[0]);
        self.charge(1)?;
        match value {
            Err(EvalError::TooExpensive) => Err(EvalError::TooExpensive),
            Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
            _ => Ok(Value::Bool(true)),
        }
    }

    /// The value of an accumulator that nobody will ask for again.
    fn take(&mut self, node: &'p Node) -> Result<Value<'p>> {
        let value = self.eval(node)?;
        if let Node::Attribute { attribute: Attribute { base: Base::Accumulator(place), .. }, .. } = node {
            self.locals[*place] = Slot::Known(Ok(Value::Null));
        }
        Ok(value)
    }

    fn local(&mut self, place: usize) -> Result<Value<'p>> {
        if let Slot::Unasked(init) = self.locals[place] {
            let value = self.eval(init);
            if let Err(EvalError::TooExpensive) = value {
                return value;
            }
            self.locals[place] = Slot::Known(value);
        }
        match &self.locals[place] {
            Slot::Known(value) => value.clone(),
            Slot::Unasked(_) => Err(EvalError::no_such_overload()),
        }
    }

    fn resolve(&mut self, attribute: &'p Attribute) -> Result<Value<'p>> {
        let start = match &attribute.base {
            Base::Global(place) => {
                let value = self.globals.get(*place).cloned().flatten();
                value.ok_or_else(|| {
                    let name = self.variables.get(*place).map_or("", |variable| variable.name.as_str());
                    EvalError::new(format!("no such attribute(s): {name}"))
                })?
            }
            Base::Named(place) => match self.scope {
                Some(scope) => scope.named(*place)?,
                None => return Err(EvalError::new("no such attribute(s): variables")),
            },
            Base::Local(place) | Base::Accumulator(place) => self.local(*place)?,
            Base::Relative(node) => self.eval(node)?,
            Base::Choice(choice) => {
                return match self.eval(&choice.0)? {
                    Value::Bool(true) => self.resolve(&choice.1),
                    Value::Bool(false) => self.resolve(&choice.2),
                    _ => Err(EvalError::no_such_overload()),
                };
            }
        };
        let (mut value, mut optional) = match start {
            named if matches!(attribute.base, Base::Named(_)) => (named, false),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        for qualifier in &attribute.qualifiers {
            optional = optional || qualifier.optional;
            match self.qualify(value, qualifier, optional)? {
                Some(inner) => value = inner,
                None => return Ok(Value::Optional(None)),
            }
        }
        Ok(if optional { Value::Optional(Some(Arc::new(value))) } else { value })
    }

    /// One selection or index. `optional` makes what is missing none instead of an error.
    fn qualify(
        &mut self,
        of: Value<'p>,
        qualifier: &'p Qualifier,
        optional: bool,
    ) -> Result<Option<Value<'p>>> {
        let key = match &qualifier.key {
            QualifierKey::Itself => {
                self.charge(1)?;
                return Ok(Some(if qualifier.test { Value::Bool(true) } else { of }));
            }
            QualifierKey::Const(key) => Ok(key.clone()),
            QualifierKey::Attribute(attribute) => self.resolve(attribute),
            QualifierKey::Node(node) => self.eval(node),
        };
        let found = match key {
            Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
            Err(error) => Err(error),
            Ok(key) => element(&of, &key, optional || qualifier.test),
        };
        if !optional || matches!(found, Ok(Some(_))) {
            self.charge(1)?;
        }
        match (found?, qualifier.test) {
            (found, true) if !optional => Ok(Some(Value::Bool(found.is_some()))),
            (found, _) => Ok(found),
        }
    }

    fn list(&mut self, items: &'p [Item]) -> Result<Value<'p>> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            match self.eval(&item.node) {
                Ok(value) if !item.optional => values.push(value),
                Ok(Value::Optional(value)) => values.extend(value.map(|value| (*value).clone())),
                Ok(other) => {
                    self.charge(NEW_LIST)?;
                    let message =
                        format!("cannot initialize optional list element from non-optional value {other}");
                    return Err(EvalError::new(message));
                }
                Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
                Err(error) => {
                    self.charge(NEW_LIST)?;
                    return Err(error);
                }
            }
        }
        self.charge(NEW_LIST)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'p [(Node, Item)]) -> Result<Value<'p>> {
        let made = self.entries(entries);
        if let Err(EvalError::TooExpensive) = made {
            return Err(EvalError::TooExpensive);
        }
        self.charge(NEW_MAP)?;
        Ok(Value::Map(Map::Made(Arc::new(made?))))
    }

    fn entries(&mut self, entries: &'p [(Node, Item)]) -> Result<BTreeMap<Key<'p>, Value<'p>>> {
        let mut made = BTreeMap::new();
        for (key, item) in entries {
            let key = self.eval(key)?;
            let value = self.eval(&item.node)?;
            let key = Key::of(&key)
                .ok_or_else(|| EvalError::new(format!("unsupported key type: {}", key.kind())))?;
            match (value, item.optional) {
                (value, false) => drop(made.insert(key, value)),
                (Value::Optional(Some(value)), true) => drop(made.insert(key, (*value).clone())),
                (Value::Optional(None), true) => drop(made.remove(&key)),
                (other, true) => {
                    let message = format!(
                        "cannot initialize optional entry '{}' from non-optional value {other}",
                        key.value()
                    );
                    return Err(EvalError::new(message));
                }
            }
        }
        Ok(made)
    }

    fn fold(&mut self, fold: &'p FoldNode) -> Result<Value<'p>> {
        let range = self.eval(&fold.range)?;
        self.locals[fold.accumulator] = Slot::Unasked(&fold.init);
        match &range {
            Value::List(list) => self.fold_list(fold, list)?,
            Value::Map(map) => {
                for key in map.keys() {
                    let value = match fold.second {
                        Some(_) => map.get(&key).unwrap_or(Ok(Value::Null)),
                        None => Ok(Value::Null),
                    };
                    if !self.step(fold, Ok(key), value)? {
                        break;
                    }
                }
            }
            other => {
                let message = format!("got '{}', expected iterable type", other.kind());
                return Err(EvalError::new(message));
            }
        }
        self.eval(&fold.result)
    }

    fn fold_list(&mut self, fold: &'p FoldNode, list: &List<'p>) -> Result<()> {
        for place in 0..list.len() {
            let Some(value) = list.get(place) else { break };
            let more = match fold.second {
                Some(_) => {
                    let number = i64::try_from(place).unwrap_or(i64::MAX);
                    self.step(fold, Ok(Value::Int(number)), value)?
                }
                None => self.step(fold, value, Ok(Value::Null))?,
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// One element; whether more are wanted.
    fn step(
        &mut self,
        fold: &'p FoldNode,
        first: Result<Value<'p>>,
        second: Result<Value<'p>>,
    ) -> Result<bool> {
        self.locals[fold.first] = Slot::Known(first);
        if let Some(place) = fold.second {
            self.locals[place] = Slot::Known(second);
        }
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
            Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
            _ => {}
        }
        let next = self.eval(&fold.step);
        if let Err(EvalError::TooExpensive) = next {
            return Err(EvalError::TooExpensive);
        }
        self.locals[fold.accumulator] = Slot::Known(next);
        Ok(true)
    }
}

/// What is under a key or at an index; `presence` makes what is missing none instead of an error.
fn element<'a>(of: &Value<'a>, key: &Value<'a>, presence: bool) -> Result<Option<Value<'a>>> {
    let missing = |message: String| if presence { Ok(None) } else { Err(EvalError::new(message)) };
    if Key::of(key).is_none() {
        return Err(EvalError::new(format!("invalid qualifier type: {}", key.kind().name())));
    }
    match of {
        Value::Map(map) => match map.get(key) {
            Some(value) => value.map(Some),
            None => missing(format!("no such key: {key}")),
        },
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => *index,
                Value::Uint(index) => i64::try_from(*index).unwrap_or(i64::MAX),
                Value::Double(index) => match crate::map::whole(*index) {
                    Some(index) => index,
                    None => return Err(EvalError::new(format!("unsupported index value {index} in list"))),
                },
                other => {
                    let message = format!("unsupported index type '{}' in list", other.kind().name());
                    return Err(EvalError::new(message));
                }
            };
            match usize::try_from(index).ok().and_then(|index| list.get(index)) {
                Some(value) => value.map(Some),
                None => missing(format!("index out of bounds: {index}")),
            }
        }
        _ => missing(format!("no such key: {key}")),
    }
}
