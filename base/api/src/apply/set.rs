//! A set of field paths, kept as `fieldsV1` writes it.
//!
//! A node without children is a member; a node with children is a member when it has the key `.`.

use serde_json::{Map, Value, json};

type Node = Map<String, Value>;

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Set(Node);

fn is_member(node: &Node) -> bool {
    node.is_empty() || node.contains_key(".")
}

/// Restores the notation after children or membership changed; false when nothing is left.
fn settle(node: &mut Node, member: bool) -> bool {
    node.remove(".");
    if node.is_empty() {
        return member;
    }
    if member {
        node.insert(".".to_owned(), json!({}));
    }
    true
}

fn children(node: &Node) -> impl Iterator<Item = (&String, &Node)> {
    node.iter().filter(|(key, _)| *key != ".").filter_map(|(key, value)| Some((key, value.as_object()?)))
}

impl Set {
    pub(super) fn from_json(value: Value) -> Set {
        match value {
            Value::Object(map) => Set(map),
            _ => Set::default(),
        }
    }

    pub(super) fn into_json(self) -> Value {
        Value::Object(self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The subset below a path element.
    pub(super) fn below(node: &Node, key: &str) -> Option<Node> {
        node.get(key).and_then(Value::as_object).cloned()
    }

    pub(super) fn node(&self) -> &Node {
        &self.0
    }

    /// Puts a child that is a member, has children, or both.
    pub(super) fn attach(parent: &mut Node, key: String, mut child: Node, member: bool) {
        if settle(&mut child, member) {
            parent.insert(key, Value::Object(child));
        }
    }

    pub(super) fn of(root: Node) -> Set {
        Set(root)
    }

    pub(super) fn union(&mut self, other: &Set) {
        union(&mut self.0, &other.0);
    }

    /// Takes out the members of `other`.
    pub(super) fn subtract(&mut self, other: &Set) {
        subtract(&mut self.0, &other.0);
    }

    /// Takes out the members of `other` and everything below them.
    pub(super) fn exclude(&mut self, other: &Set) {
        exclude(&mut self.0, &other.0);
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        Set(intersection(&self.0, &other.0))
    }

    /// Members as paths in the notation of conflict messages.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        paths(&self.0, "", &mut out);
        out
    }
}

fn union(into: &mut Node, other: &Node) {
    for (key, theirs) in children(other) {
        match into.get_mut(key).and_then(Value::as_object_mut) {
            None => {
                into.insert(key.clone(), Value::Object(theirs.clone()));
            }
            Some(mine) => {
                let member = is_member(mine) || is_member(theirs);
                union(mine, theirs);
                settle(mine, member);
            }
        }
    }
}

fn subtract(from: &mut Node, other: &Node) {
    for (key, theirs) in children(other) {
        let Some(mine) = from.get_mut(key).and_then(Value::as_object_mut) else { continue };
        let member = is_member(mine) && !is_member(theirs);
        subtract(mine, theirs);
        if !settle(mine, member) {
            from.remove(key);
        }
    }
}

fn exclude(from: &mut Node, other: &Node) {
    for (key, theirs) in children(other) {
        if is_member(theirs) {
            from.remove(key);
        } else if let Some(mine) = from.get_mut(key).and_then(Value::as_object_mut) {
            let member = is_member(mine);
            exclude(mine, theirs);
            if !settle(mine, member) {
                from.remove(key);
            }
        }
    }
}

fn intersection(a: &Node, b: &Node) -> Node {
    let mut out = Node::new();
    for (key, mine) in children(a) {
        if let Some(theirs) = b.get(key).and_then(Value::as_object) {
            Set::attach(
                &mut out,
                key.clone(),
                intersection(mine, theirs),
                is_member(mine) && is_member(theirs),
            );
        }
    }
    out
}

fn paths(node: &Node, prefix: &str, out: &mut Vec<String>) {
    // Members of a level come before what lies below it.
    for (key, _) in children(node).filter(|(_, below)| is_member(below)) {
        out.push(format!("{prefix}{}", element(key)));
    }
    for (key, below) in children(node) {
        paths(below, &format!("{prefix}{}", element(key)), out);
    }
}

/// One path element: `.name`, `[name="a"]` or `[="x"]`.
pub(super) fn element(key: &str) -> String {
    let (kind, rest) = key.split_at(key.len().min(2));
    match kind {
        "f:" => format!(".{rest}"),
        "v:" => format!("[={rest}]"),
        "k:" => {
            let parsed: Value = serde_json::from_str(rest).unwrap_or_default();
            let pairs = parsed.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={v}"));
            format!("[{}]", pairs.collect::<Vec<_>>().join(","))
        }
        _ => format!("[{rest}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: Value) -> Set {
        Set::from_json(value)
    }

    #[test]
    fn sets_keep_the_notation_of_fields_v1() {
        let a = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let mut union = a.clone();
        union.union(&set(json!({"f:a": {"f:d": {}}, "f:e": {"f:f": {}}})));
        assert_eq!(
            union.into_json(),
            json!({"f:a": {".": {}, "f:b": {}, "f:d": {}}, "f:c": {}, "f:e": {"f:f": {}}})
        );
        let mut rest = a.clone();
        rest.subtract(&set(json!({"f:a": {}})));
        assert_eq!(rest.into_json(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        let mut rest = a.clone();
        rest.subtract(&set(json!({"f:a": {"f:b": {}}})));
        assert_eq!(rest.into_json(), json!({"f:a": {}, "f:c": {}}));
        let mut rest = a.clone();
        rest.exclude(&set(json!({"f:a": {}})));
        assert_eq!(rest.into_json(), json!({"f:c": {}}));
        assert_eq!(a.intersection(&set(json!({"f:a": {}, "f:x": {}}))).into_json(), json!({"f:a": {}}));
        let paths = set(json!({"f:l": {"k:{\"name\":\"a\"}": {"f:image": {}}, "v:\"x\"": {}}})).paths();
        assert_eq!(paths, [".l[=\"x\"]", ".l[name=\"a\"].image"]);
    }
}
