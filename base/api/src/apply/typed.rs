//! Comparing, merging and pruning objects along their schema.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Map, Value};

use super::set::Set;
use crate::schema::{Cardinality, Field, ListType, Message};
use crate::structural::{self, Node as SchemaNode};
use crate::validate::Seen;

type Node = Map<String, Value>;

/// What changed between two objects.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    pub(super) fn exclude(&mut self, fields: &Set) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.exclude(fields);
        }
    }
}

/// How a value merges.
#[derive(Clone, Copy)]
enum Shape<'s> {
    Leaf,
    Struct(&'s Message),
    /// A map whose values have the field's element type.
    Map(&'s Field),
    /// A list of elements with keys.
    Keyed(&'s Field),
    /// An object of a structural schema.
    Object(&'s SchemaNode),
    /// A list of elements with keys of a structural schema.
    Rows(&'s SchemaNode),
    /// What no schema names: objects merge field by field, everything else is one value.
    Deduced,
    /// A list of distinct scalars.
    Distinct,
}

fn shape(field: &Field) -> Shape<'_> {
    if field.is_atomic() {
        return Shape::Leaf;
    }
    match field.cardinality {
        Cardinality::One => element(field),
        Cardinality::Map => Shape::Map(field),
        Cardinality::List => match field.list_type() {
            ListType::Atomic => Shape::Leaf,
            ListType::Set => Shape::Distinct,
            ListType::Map => Shape::Keyed(field),
        },
    }
}

/// Shape of one element of a field.
fn element(field: &Field) -> Shape<'_> {
    match field.message() {
        Some(schema) if !schema.atomic => Shape::Struct(schema),
        _ => Shape::Leaf,
    }
}

/// Shape of a field of a struct.
fn below<'s>(schema: &'s Message, name: &str) -> Shape<'s> {
    schema.field(name).map_or(Shape::Leaf, shape)
}

/// Shape of a whole object.
fn root(schema: &Message) -> Shape<'_> {
    schema.structural.as_deref().map_or(Shape::Struct(schema), Shape::Object)
}

/// Shape of a value of a structural schema.
fn of_node(node: &SchemaNode) -> Shape<'_> {
    match (node.kind, node.list_type) {
        _ if node.int_or_string => Shape::Leaf,
        (structural::Kind::Object, _) if node.atomic => Shape::Leaf,
        (structural::Kind::Object, _) => Shape::Object(node),
        (structural::Kind::Array, structural::ListType::Set) => Shape::Distinct,
        (structural::Kind::Array, structural::ListType::Map) => Shape::Rows(node),
        (structural::Kind::Any, _) if node.preserves_unknown => Shape::Deduced,
        _ => Shape::Leaf,
    }
}

/// Shape of an entry of an object with a structural schema.
fn below_node<'s>(node: &'s SchemaNode, name: &str) -> Shape<'s> {
    if node.embedded && name == "metadata" {
        return Shape::Struct(Message::object_meta());
    }
    match node.entry(name) {
        Some(node) => of_node(node),
        None if node.preserves_unknown => Shape::Deduced,
        None => Shape::Leaf,
    }
}

/// The path element of an element that has the keys of a structural schema.
fn key_of_row(node: &SchemaNode, item: &Value) -> String {
    let mut keys = Map::new();
    for key in node.keys() {
        let value = item.get(&**key).filter(|value| !value.is_null());
        let default = || node.items.as_ref()?.property(key)?.default.as_deref();
        if let Some(value) = value.or_else(default) {
            keys.insert(key.to_string(), value.clone());
        }
    }
    format!("k:{}", Value::Object(keys))
}

/// The path element of a keyed list's item; keys that are absent take their declared default.
fn key_of(field: &Field, item: &Value) -> String {
    let schema = field.message();
    let mut keys = Map::new();
    for key in field.keys {
        let value = item.get(key).filter(|v| !v.is_null()).cloned();
        let default = || schema?.field(key).and_then(|f| serde_json::from_str(f.default).ok());
        if let Some(value) = value.or_else(default) {
            keys.insert((*key).to_owned(), value);
        }
    }
    format!("k:{}", Value::Object(keys))
}

fn entries<'a>(shape: Shape<'a>, value: &'a Value) -> Vec<Item<'a>> {
    match (shape, value) {
        (Shape::Struct(schema), Value::Object(map)) => {
            map.iter().map(|(k, v)| (format!("f:{k}"), below(schema, k), v)).collect()
        }
        (Shape::Object(node), Value::Object(map)) => {
            map.iter().map(|(k, v)| (format!("f:{k}"), below_node(node, k), v)).collect()
        }
        (Shape::Rows(node), Value::Array(items)) => {
            let row = node.items.as_deref().map_or(Shape::Leaf, of_node);
            items.iter().map(|v| (key_of_row(node, v), row, v)).collect()
        }
        (Shape::Deduced, Value::Object(map)) => {
            map.iter().map(|(k, v)| (format!("f:{k}"), Shape::Deduced, v)).collect()
        }
        (Shape::Map(field), Value::Object(map)) => {
            map.iter().map(|(k, v)| (format!("f:{k}"), element(field), v)).collect()
        }
        (Shape::Keyed(field), Value::Array(items)) => {
            items.iter().map(|v| (key_of(field, v), element(field), v)).collect()
        }
        (Shape::Distinct, Value::Array(items)) => {
            items.iter().map(|v| (format!("v:{v}"), Shape::Leaf, v)).collect()
        }
        _ => Vec::new(),
    }
}

/// Shape of an entry of a struct or map.
fn child<'s>(shape: Shape<'s>, name: &str) -> Shape<'s> {
    match shape {
        Shape::Struct(schema) => below(schema, name),
        Shape::Map(field) => element(field),
        Shape::Object(node) => below_node(node, name),
        Shape::Deduced => Shape::Deduced,
        _ => Shape::Leaf,
    }
}

/// Whether a value is owned as one.
fn is_leaf(shape: Shape<'_>, value: Option<&Value>) -> bool {
    match shape {
        Shape::Leaf => true,
        Shape::Deduced => !value.is_some_and(Value::is_object),
        _ => false,
    }
}

fn is_hollow(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// What changes when `old` becomes `new`; managedFields do not count.
pub(super) fn compare(schema: &Message, old: &Value, new: &Value) -> Changes {
    let mut sides = Sides::default();
    compare_parts(root(schema), Some(old), Some(new), &mut sides);
    let [added, modified, removed] = [sides.added, sides.modified, sides.removed].map(Set::of);
    Changes { added, modified, removed }
}

#[derive(Default)]
struct Sides {
    added: Node,
    modified: Node,
    removed: Node,
}

/// Compares the children of two values of one shape.
fn compare_parts(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Sides) {
    if matches!(shape, Shape::Struct(_) | Shape::Map(_) | Shape::Object(_) | Shape::Deduced) {
        return compare_fields(shape, old.and_then(Value::as_object), new.and_then(Value::as_object), out);
    }
    let mut pairs: BTreeMap<String, (Shape<'_>, Option<&Value>, Option<&Value>)> = BTreeMap::new();
    for (key, shape, value) in old.map(|v| entries(shape, v)).unwrap_or_default() {
        pairs.insert(key, (shape, Some(value), None));
    }
    for (key, shape, value) in new.map(|v| entries(shape, v)).unwrap_or_default() {
        pairs.entry(key).or_insert((shape, None, None)).2 = Some(value);
    }
    for (key, (shape, old, new)) in pairs {
        if old != new {
            compare_value(key, shape, old, new, out);
        }
    }
}

fn compare_fields(shape: Shape<'_>, old: Option<&Node>, new: Option<&Node>, out: &mut Sides) {
    let below = |name: &str| child(shape, name);
    for (name, value) in new.into_iter().flatten() {
        let was = old.and_then(|o| o.get(name));
        if was != Some(value) && name != "managedFields" {
            compare_value(format!("f:{name}"), below(name), was, Some(value), out);
        }
    }
    for (name, value) in old.into_iter().flatten() {
        if !new.is_some_and(|n| n.contains_key(name)) && name != "managedFields" {
            compare_value(format!("f:{name}"), below(name), Some(value), None, out);
        }
    }
}

fn compare_value(key: String, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Sides) {
    let leaf = is_leaf(shape, old.or(new)) || is_hollow(old) && is_hollow(new);
    let mut below = Sides::default();
    if !leaf {
        compare_parts(shape, old, new, &mut below);
    }
    let (added, removed) = (old.is_none(), new.is_none());
    for (set, part, member) in [
        (&mut out.removed, below.removed, removed),
        (&mut out.modified, below.modified, leaf && !added && !removed),
    ] {
        if member || !part.is_empty() {
            Set::attach(set, key.clone(), part, member);
        }
    }
    Set::attach(&mut out.added, key, below.added, added);
}

/// The fields a configuration names.
pub(super) fn field_set(schema: &Message, value: &Value) -> Set {
    Set::of(fields_of(root(schema), value))
}

fn fields_of(shape: Shape<'_>, value: &Value) -> Node {
    let mut out = Node::new();
    for (key, below, value) in entries(shape, value) {
        let named = match shape {
            Shape::Struct(_) | Shape::Deduced => false,
            Shape::Object(node) => node.additional_schema().is_some(),
            _ => true,
        };
        let named = named || (matches!(below, Shape::Deduced) && value.is_object());
        let leaf = is_leaf(below, Some(value));
        let member = named || leaf || value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let children = if leaf { Node::new() } else { fields_of(below, value) };
        Set::attach(&mut out, key, children, member);
    }
    out
}

/// The live object with the configuration laid over it.
pub(super) fn merge(schema: &Message, live: &Value, config: &Value) -> Value {
    merge_value(root(schema), live, config)
}

fn merge_value(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    match (shape, live, config) {
        (
            Shape::Struct(_) | Shape::Map(_) | Shape::Object(_) | Shape::Deduced,
            Value::Object(old),
            Value::Object(new),
        ) => {
            let mut out = old.clone();
            for (key, value) in new {
                let below = child(shape, key);
                let merged = old.get(key).map_or_else(|| value.clone(), |was| merge_value(below, was, value));
                out.insert(key.clone(), merged);
            }
            Value::Object(out)
        }
        (Shape::Keyed(_) | Shape::Rows(_) | Shape::Distinct, Value::Array(_), Value::Array(_)) => {
            Value::Array(merge_lists(&entries(shape, live), &entries(shape, config)))
        }
        _ => config.clone(),
    }
}

/// A part of a value: its path element, its shape, itself.
type Item<'a> = (String, Shape<'a>, &'a Value);

/// Where each key stands first.
fn first_of<'a>(items: &'a [Item<'_>]) -> HashMap<&'a str, usize> {
    let mut places = HashMap::with_capacity(items.len());
    for (at, (key, ..)) in items.iter().enumerate() {
        places.entry(key.as_str()).or_insert(at);
    }
    places
}

/// Merges two lists: the configuration's order holds for its items, items only the live list has stay in front of
/// what follows them there.
fn merge_lists(olds: &[Item<'_>], news: &[Item<'_>]) -> Vec<Value> {
    let (known, wanted) = (first_of(olds), first_of(news));
    let old_of = |key: &str| known.get(key).map(|at| &olds[*at]);
    let is_new = |key: &str| wanted.contains_key(key);
    let mut shared: VecDeque<&str> =
        news.iter().map(|(k, ..)| k.as_str()).filter(|k| old_of(k).is_some()).collect();
    let mut out = Vec::with_capacity(olds.len() + news.len());
    let (mut l, mut r) = (0, 0);
    while l < olds.len() || r < news.len() {
        if let (Some((old, ..)), Some((new, ..))) = (olds.get(l), news.get(r)) {
            let waits = shared.front().is_some_and(|next| next != old);
            if old != new && is_new(old) && waits {
                l += 1;
                continue;
            }
        }
        if let Some((key, _, value)) = olds.get(l) {
            if !is_new(key) {
                out.push((*value).clone());
                l += 1;
                continue;
            }
            if wanted.get(key.as_str()).is_some_and(|at| *at <= r) {
                l += 1;
            }
        }
        if let Some((key, shape, value)) = news.get(r) {
            out.push(
                old_of(key).map_or_else(|| (*value).clone(), |(_, _, old)| merge_value(*shape, old, value)),
            );
            r += 1;
            if shared.front() == Some(&key.as_str()) {
                shared.pop_front();
            }
        }
    }
    out
}

/// Complaints about items of a configuration that have the same key.
pub(super) fn duplicates(schema: &Message, config: &Value) -> Vec<String> {
    let mut out = Vec::new();
    duplicates_in(root(schema), config, "", &mut out);
    out
}

fn duplicates_in(shape: Shape<'_>, value: &Value, path: &str, out: &mut Vec<String>) {
    let items = entries(shape, value);
    let mut seen = Seen::default();
    for (key, below, value) in &items {
        if seen.again(key) {
            out.push(format!("{path}: duplicate entries for key {}", super::set::element(key)));
        }
        duplicates_in(*below, value, &format!("{path}{}", super::set::element(key)), out);
    }
}

/// Removes from the object what `given_up` names and nobody owns any more.
pub(super) fn remove(schema: &Message, object: &mut Value, given_up: &Set, owned: &Set) {
    remove_parts(root(schema), object, given_up.node(), owned.node());
}

fn remove_parts(shape: Shape<'_>, value: &mut Value, given_up: &Node, owned: &Node) {
    let nothing = Node::new();
    // Tells whether the child goes; otherwise prunes below it.
    let leaves = |key: &str, below: Shape<'_>, child: &mut Value| {
        let Some(given) = Set::below(given_up, key) else { return false };
        let kept = Set::below(owned, key);
        let named = key.starts_with("f:") || given.is_empty() || given.contains_key(".");
        // A field stays when anything below it is owned, an item only when it is owned itself.
        let owned_here =
            kept.as_ref().is_some_and(|k| key.starts_with("f:") || k.is_empty() || k.contains_key("."));
        if named && !owned_here {
            return true;
        }
        let hollow = is_hollow(Some(child));
        remove_parts(below, child, &given, kept.as_ref().unwrap_or(&nothing));
        if !hollow && is_hollow(Some(child)) {
            // What lost all its content stays as nothing, which its owner still owns.
            *child = Value::Null;
        }
        false
    };
    match (shape, value) {
        (Shape::Struct(schema), Value::Object(map)) => {
            map.retain(|k, v| !leaves(&format!("f:{k}"), below(schema, k), v));
        }
        (Shape::Object(node), Value::Object(map)) => {
            map.retain(|k, v| !leaves(&format!("f:{k}"), below_node(node, k), v));
        }
        (Shape::Rows(node), Value::Array(items)) => {
            let row = node.items.as_deref().map_or(Shape::Leaf, of_node);
            items.retain_mut(|v| !leaves(&key_of_row(node, v), row, v));
        }
        (Shape::Deduced, Value::Object(map)) => {
            map.retain(|k, v| !leaves(&format!("f:{k}"), Shape::Deduced, v));
        }
        (Shape::Map(field), Value::Object(map)) => {
            map.retain(|k, v| !leaves(&format!("f:{k}"), element(field), v))
        }
        (Shape::Keyed(field), Value::Array(items)) => {
            items.retain_mut(|v| !leaves(&key_of(field, v), element(field), v))
        }
        (Shape::Distinct, Value::Array(items)) => {
            items.retain_mut(|v| !leaves(&format!("v:{v}"), Shape::Leaf, v))
        }
        _ => {}
    }
}
