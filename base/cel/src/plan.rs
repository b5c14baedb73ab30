//! A checked tree made ready to run: names become places, constants are folded, patterns compiled.
//!
//! What is folded, and what counts as part of one attribute, decides the cost at run time; both are as upstream has them. A
//! chain of selections from a variable is one attribute with qualifiers, and so is a choice between two of them.

use std::sync::Arc;

use crate::ast::{Expr, Fold, Kind, Literal};
use crate::check::{Checked, Reference};
use crate::environment::Environment;
use crate::functions::{self, Native};
use crate::map::{Key, Map};
use crate::pattern::{self, Matching, Pattern};
use crate::price::Price;
use crate::text::Text;
use crate::value::Value;

/// A step of an evaluation.
pub(crate) enum Node {
    Const(Value<'static>),
    Attribute {
        attribute: Attribute,
        test: bool,
    },
    And(Vec<Node>),
    Or(Vec<Node>),
    Call(Box<Call>),
    /// `or` and `orValue` of optionals, which do not look at the right side unless they must.
    OptionalOr {
        left: Box<Node>,
        right: Box<Node>,
        value: bool,
    },
    /// Whether a value is one of some constants.
    Among {
        value: Box<Node>,
        of: Vec<Value<'static>>,
    },
    List(Vec<Item>),
    Map(Vec<(Node, Item)>),
    Fold(Box<FoldNode>),
}

/// An element of a list, or the value of an entry.
pub(crate) struct Item {
    pub node: Node,
    pub optional: bool,
}

/// A value that is reached from a variable, from a result, or from one of two attributes.
pub(crate) struct Attribute {
    pub base: Base,
    pub qualifiers: Vec<Qualifier>,
}

pub(crate) enum Base {
    /// A variable of the environment.
    Global(usize),
    /// A named expression.
    Named(usize),
    /// A variable of a comprehension.
    Local(usize),
    /// The accumulator of a macro, which only its step and its result mention.
    Accumulator(usize),
    Relative(Box<Node>),
    Choice(Box<(Node, Attribute, Attribute)>),
}

/// A selection or an index.
#[derive(Clone)]
pub(crate) struct Qualifier {
    pub key: QualifierKey,
    pub optional: bool,
    /// Only whether it is there.
    pub test: bool,
}

#[derive(Clone)]
pub(crate) enum QualifierKey {
    /// What it is applied to.
    Itself,
    Const(Value<'static>),
    Attribute(Arc<Attribute>),
    Node(Arc<Node>),
}

pub(crate) struct Call {
    pub native: Native,
    pub args: Vec<Node>,
    pub price: Price,
    /// Whether all arguments are evaluated even if an early one fails.
    pub eager: bool,
    /// Whether the first argument is an accumulator that is used up.
    pub consumes: bool,
    /// `@not_strictly_false`, which takes errors.
    pub lenient: bool,
    pub pattern: Option<Pattern>,
}

pub(crate) struct FoldNode {
    pub range: Node,
    pub accumulator: usize,
    pub first: usize,
    pub second: Option<usize>,
    pub init: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

/// The steps of `expr`, and how many variables comprehensions have at one time.
pub(crate) struct Plan {
    pub root: Node,
    pub locals: usize,
    /// The named expressions that are asked for.
    pub composed: Vec<usize>,
}

/// Makes an expression ready; an error is about constants that cannot be.
pub(crate) fn plan(expr: &Expr, checked: &Checked, environment: &Environment) -> Result<Plan, String> {
    let mut planner = Planner { checked, environment, scopes: Vec::new(), locals: 0, composed: Vec::new() };
    let root = planner.node(expr)?;
    Ok(Plan { root, locals: planner.locals, composed: planner.composed })
}

struct Planner<'p> {
    checked: &'p Checked,
    environment: &'p Environment,
    scopes: Vec<String>,
    locals: usize,
    composed: Vec<usize>,
}

/// Conversions, which are carried out here if their argument is constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Result<Node, String> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(Node::Const(constant(literal))),
            Kind::Ident(name) => Ok(self.name(expr, name)),
            Kind::Select { operand, field, test_only } => {
                if let Reference::Variable(name) = &self.checked.references[expr.id] {
                    let name = name.clone();
                    return Ok(self.name(expr, &name));
                }
                if let Reference::Type(kind) = &self.checked.references[expr.id] {
                    return Ok(Node::Const(Value::Type(kind.clone())));
                }
                if let Some(place) = self.named(operand, field) {
                    return Ok(named(place, false, *test_only));
                }
                let mut attribute = attribute(self.node(operand)?);
                let key = QualifierKey::Const(Value::String(Text::from(field.clone())));
                attribute.qualify(Qualifier { key, optional: false, test: *test_only });
                Ok(Node::Attribute { attribute, test: *test_only })
            }
            Kind::Call { target, args, .. } => self.call(expr, target.as_deref(), args),
            Kind::List(elements) => {
                let items = elements
                    .iter()
                    .map(|element| Ok(Item { node: self.node(&element.value)?, optional: element.optional }));
                Ok(folded_list(items.collect::<Result<_, String>>()?))
            }
            Kind::Map(entries) => {
                let items = entries.iter().map(|entry| {
                    let key = self.node(&entry.key)?;
                    Ok((key, Item { node: self.node(&entry.value)?, optional: entry.optional }))
                });
                Ok(folded_map(items.collect::<Result<_, String>>()?))
            }
            Kind::Struct { name } => Err(format!("unknown type: {name}")),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn name(&self, expr: &Expr, name: &str) -> Node {
        if let Reference::Type(kind) = &self.checked.references[expr.id] {
            return Node::Const(Value::Type(kind.clone()));
        }
        let base = match self.scopes.iter().rposition(|other| other == name) {
            Some(place) if name.starts_with("@result") => Base::Accumulator(place),
            Some(place) => Base::Local(place),
            None => {
                let place = self.environment.variables().iter().position(|other| other.name == name);
                Base::Global(place.unwrap_or(usize::MAX))
            }
        };
        Node::Attribute { attribute: Attribute { base, qualifiers: Vec::new() }, test: false }
    }

    /// The place of a named expression, if `operand` is what those are fields of.
    fn named(&mut self, operand: &Expr, field: &str) -> Option<usize> {
        if !matches!(self.checked.references[operand.id], Reference::Variables) {
            return None;
        }
        let (place, _) = self.environment.composed(field)?;
        self.composed.push(*place);
        Some(*place)
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, args: &[Expr]) -> Result<Node, String> {
        let Reference::Function { name, overloads, namespaced } = &self.checked.references[expr.id] else {
            return Err("call without a function".to_owned());
        };
        if let ("_?._", [operand, Expr { kind: Kind::Literal(Literal::String(field)), .. }]) =
            (name.as_str(), args)
            && let Some(place) = self.named(operand, field)
        {
            return Ok(named(place, true, false));
        }
        let target = target.filter(|_| !namespaced);
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            nodes.push(self.node(arg)?);
        }
        let overload = match overloads.as_slice() {
            [one] => one,
            _ => "",
        };
        match name.as_str() {
            "_&&_" => Ok(Node::And(nodes)),
            "_||_" => Ok(Node::Or(nodes)),
            "_?_:_" => {
                let [condition, then, otherwise] = three(nodes)?;
                let branches = (condition, attribute(then), attribute(otherwise));
                let attribute = Attribute { base: Base::Choice(Box::new(branches)), qualifiers: Vec::new() };
                Ok(Node::Attribute { attribute, test: false })
            }
            "_[_]" => index(nodes, false),
            "_[?_]" | "_?._" => index(nodes, true),
            "or" | "orValue" if nodes.len() == 2 => {
                let [left, right] = two(nodes)?;
                Ok(Node::OptionalOr {
                    left: Box::new(left),
                    right: Box::new(right),
                    value: name == "orValue",
                })
            }
            "@in" if overload == "in_list" => among(nodes),
            name => call(name, overload, nodes),
        }
    }

    fn fold(&mut self, fold: &Fold) -> Result<Node, String> {
        let range = self.node(&fold.range)?;
        let depth = self.scopes.len();
        self.scopes.push(fold.accu_var.clone());
        self.scopes.push(fold.var.clone());
        self.scopes.extend(fold.var2.clone());
        self.locals = self.locals.max(self.scopes.len());
        let condition = self.node(&fold.condition)?;
        let step = self.node(&fold.step)?;
        // The names of the elements are no longer there; their places stay taken.
        for name in &mut self.scopes[depth + 1..] {
            name.clear();
        }
        let result = self.node(&fold.result)?;
        // The initial value does not see the accumulator, and is evaluated while all places are taken.
        self.scopes[depth].clear();
        let init = self.node(&fold.init)?;
        self.scopes.truncate(depth);
        Ok(Node::Fold(Box::new(FoldNode {
            range,
            accumulator: depth,
            first: depth + 1,
            second: fold.var2.as_ref().map(|_| depth + 2),
            init,
            condition,
            step,
            result,
        })))
    }
}

impl Attribute {
    /// Whether it is a choice between two, which costs nothing by itself.
    pub(crate) fn is_choice(&self) -> bool {
        matches!(self.base, Base::Choice(_))
    }

    fn qualify(&mut self, qualifier: Qualifier) {
        match &mut self.base {
            Base::Choice(choice) => {
                choice.1.qualify(qualifier.clone());
                choice.2.qualify(qualifier);
            }
            _ => self.qualifiers.push(qualifier),
        }
    }
}

/// The value of a named expression; its name counts as a selection.
fn named(place: usize, optional: bool, test: bool) -> Node {
    let qualifiers = vec![Qualifier { key: QualifierKey::Itself, optional, test }];
    Node::Attribute { attribute: Attribute { base: Base::Named(place), qualifiers }, test }
}

/// The attribute that a step is, or one that begins with its result.
fn attribute(node: Node) -> Attribute {
    match node {
        Node::Attribute { attribute, test: false } => attribute,
        other => Attribute { base: Base::Relative(Box::new(other)), qualifiers: Vec::new() },
    }
}

fn index(nodes: Vec<Node>, optional: bool) -> Result<Node, String> {
    let [operand, index] = two(nodes)?;
    let mut attribute = attribute(operand);
    let key = match index {
        Node::Const(value) if Key::of(&value).is_none() => {
            return Err(format!("invalid qualifier type: {}", value.kind().name()));
        }
        Node::Const(value) => QualifierKey::Const(value),
        Node::Attribute { attribute, test: false } => QualifierKey::Attribute(Arc::new(attribute)),
        other => QualifierKey::Node(Arc::new(other)),
    };
    attribute.qualify(Qualifier { key, optional, test: false });
    Ok(Node::Attribute { attribute, test: false })
}

fn two(nodes: Vec<Node>) -> Result<[Node; 2], String> {
    nodes.try_into().map_err(|_| "two operands are needed".to_owned())
}

fn three(nodes: Vec<Node>) -> Result<[Node; 3], String> {
    nodes.try_into().map_err(|_| "three operands are needed".to_owned())
}

/// Whether a value is in a list; constants become a set, and nothing is in an empty one.
fn among(nodes: Vec<Node>) -> Result<Node, String> {
    let [value, list] = two(nodes)?;
    let Node::Const(Value::List(constants)) = &list else {
        return call("@in", "in_list", vec![value, list]);
    };
    if constants.len() == 0 {
        return Ok(Node::Const(Value::Bool(false)));
    }
    let of: Vec<Value<'static>> = constants.iter().flatten().collect();
    let simple = |value: &Value<'_>| {
        matches!(value, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_))
    };
    match of.iter().all(simple) {
        true => Ok(Node::Among { value: Box::new(value), of }),
        false => call("@in", "in_list", vec![value, list]),
    }
}

fn call(name: &str, overload: &str, mut args: Vec<Node>) -> Result<Node, String> {
    let native = functions::native(name).ok_or_else(|| format!("no such overload: {name}"))?;
    if CONVERSIONS.contains(&name)
        && let [Node::Const(value)] = args.as_slice()
    {
        let made = native(&mut [value.clone()]).map_err(|error| error.to_string())?;
        if let Some(made) = made.into_static() {
            return Ok(Node::Const(made));
        }
    }
    let pattern = match (name, args.get(1)) {
        (_, Some(Node::Const(Value::String(text)))) => match Matching::of(name) {
            Some(call) => Some(Pattern { regex: pattern::compile(text)?, call }),
            None => None,
        },
        _ => None,
    };
    let consumes = matches!(name, "_+_" | "cel.@mapInsert")
        && matches!(
            &args[0],
            Node::Attribute { attribute: Attribute { base: Base::Accumulator(_), qualifiers }, .. }
                if qualifiers.is_empty()
        );
    let eager = args.len() < 3 && pattern.is_none() && overload != "string_format";
    args.shrink_to_fit();
    Ok(Node::Call(Box::new(Call {
        native,
        price: Price::of(name, overload),
        args,
        eager,
        consumes,
        lenient: name == "@not_strictly_false",
        pattern,
    })))
}

fn folded_list(items: Vec<Item>) -> Node {
    let constants = items.iter().map(|item| match (&item.node, item.optional) {
        (Node::Const(value), false) => Some(value.clone()),
        _ => None,
    });
    match constants.collect::<Option<Vec<_>>>() {
        Some(values) => Node::Const(Value::list(values)),
        None => Node::List(items),
    }
}

fn folded_map(entries: Vec<(Node, Item)>) -> Node {
    let constants = entries.iter().map(|(key, item)| match (key, &item.node, item.optional) {
        (Node::Const(key), Node::Const(value), false) => Some((Key::of(key)?, value.clone())),
        _ => None,
    });
    match constants.collect::<Option<_>>() {
        Some(entries) => Node::Const(Value::Map(Map::Made(Arc::new(entries)))),
        None => Node::Map(entries),
    }
}

/// The value of a literal.
fn constant(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(text.clone()),
        Literal::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}
