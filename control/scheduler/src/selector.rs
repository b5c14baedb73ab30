//! Matching of labels, nodes and taints, read once from the objects. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    /// The object could not be understood: it matches nothing.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

impl Requirement {
    fn new(key: &str, operator: &str, values: Option<&Vec<String>>) -> Self {
        let values = || values.cloned().unwrap_or_default();
        let number = || values().first().and_then(|value| value.parse().ok());
        let operator = match operator {
            "In" => Operator::In(values()),
            "NotIn" => Operator::NotIn(values()),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => number().map_or(Operator::Never, Operator::Gt),
            "Lt" => number().map_or(Operator::Never, Operator::Lt),
            _ => Operator::Never,
        };
        Self { key: key.to_owned(), operator }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Operator::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt(bound) => number().is_some_and(|number| number > *bound),
            Operator::Lt(bound) => number().is_some_and(|number| number < *bound),
            Operator::Never => false,
        }
    }
}

/// A label selector of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelMatch(Vec<Requirement>);

impl LabelMatch {
    /// Reads a selector; an absent one selects nothing, which `None` stands for.
    pub(crate) fn new(selector: &LabelSelector) -> Self {
        let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In(vec![value.clone()]),
        });
        let expressions = selector
            .match_expressions
            .iter()
            .flatten()
            .map(|one| Requirement::new(&one.key, &one.operator, one.values.as_ref()));
        Self(equal.chain(expressions).collect())
    }

    /// Also asks that `key` has `value` (or has not).
    pub(crate) fn and(&mut self, key: &str, value: &str, equal: bool) {
        let values = vec![value.to_owned()];
        let operator = if equal { Operator::In(values) } else { Operator::NotIn(values) };
        self.0.push(Requirement { key: key.to_owned(), operator });
    }

    /// Whether all requirements hold.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|one| one.matches(labels.get(&one.key).map(String::as_str)))
    }
}

/// One term of a node selector: all of its requirements, on labels and on the node's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Reads a term.
    pub(crate) fn new(term: &NodeSelectorTerm) -> Self {
        let read = |list: &Option<Vec<NodeSelectorRequirement>>| {
            let one = |r: &NodeSelectorRequirement| Requirement::new(&r.key, &r.operator, r.values.as_ref());
            list.iter().flatten().map(one).collect::<Vec<_>>()
        };
        Self { labels: read(&term.match_expressions), fields: read(&term.match_fields) }
    }

    /// Whether the node satisfies the term; an empty term matches no node.
    pub(crate) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let field = |one: &Requirement| one.key == "metadata.name" && one.matches(Some(name));
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.labels.iter().all(|one| one.matches(labels.get(&one.key).map(String::as_str)))
            && self.fields.iter().all(field)
    }
}

/// Whether one of `tolerations` tolerates `taint`.
pub(crate) fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|one| tolerates(one, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    let (wanted, value) =
        (toleration.value.as_deref().unwrap_or_default(), taint.value.as_deref().unwrap_or_default());
    let numbers = || Some((value.parse::<i64>().ok()?, wanted.parse::<i64>().ok()?));
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => wanted == value,
        "Gt" => numbers().is_some_and(|(value, wanted)| value > wanted),
        "Lt" => numbers().is_some_and(|(value, wanted)| value < wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn term(value: Value) -> NodeTerm {
        NodeTerm::new(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn node_terms_match_labels_and_the_name() {
        let labels = Labels::from([("zone".into(), "a".into()), ("cores".into(), "8".into())]);
        let found = |value| term(value).matches("n1", &labels);
        assert!(found(json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]})));
        assert!(!found(json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]})));
        assert!(found(json!({"matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a"]}]})));
        assert!(found(
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})
        ));
        assert!(!found(json!({})), "an empty term matches nothing");
    }

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        let found = |value| tolerated(&taint, &[serde_json::from_value(value).unwrap()]);
        assert!(found(json!({"operator": "Exists"})));
        assert!(found(json!({"key": "k", "value": "v"})));
        assert!(!found(json!({"key": "k", "value": "w"})));
        assert!(!found(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})));
    }
}
