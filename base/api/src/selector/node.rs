//! Node selectors: which nodes a pod may run on, and which it would rather run on.
//!
//! The rules: <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>. A term that cannot be read,
//! which no server accepts, matches no node.

use serde_json::Value;

use super::{LabelRequirement, Operator};

/// A requirement as it stands in an object: key, operator, values.
type Raw<'a> = (&'a str, &'a str, Vec<String>);

/// A condition on a field of the node; `metadata.name` is the only one with a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FieldTerm {
    key: String,
    equals: bool,
    value: String,
}

/// One term of a node selector: all of its requirements, on labels and on fields, must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeSelectorTerm {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldTerm>,
    readable: bool,
}

impl NodeSelectorTerm {
    /// A term of these requirements on labels and on fields.
    pub fn new<'a>(
        labels: impl IntoIterator<Item = Raw<'a>>,
        fields: impl IntoIterator<Item = Raw<'a>>,
    ) -> NodeSelectorTerm {
        let mut term = NodeSelectorTerm { labels: Vec::new(), fields: Vec::new(), readable: true };
        for (key, operator, values) in labels {
            let read =
                Operator::by_name(operator).map(|operator| LabelRequirement::new(key, operator, values));
            match read {
                Some(Ok(requirement)) => term.labels.push(requirement),
                _ => term.readable = false,
            }
        }
        for (key, operator, mut values) in fields {
            match (operator, values.pop(), values.is_empty()) {
                ("In" | "NotIn", Some(value), true) => {
                    term.fields.push(FieldTerm { key: key.to_owned(), equals: operator == "In", value });
                }
                _ => term.readable = false,
            }
        }
        term
    }

    /// Whether all of it could be read.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether it requires nothing: such a term matches no node.
    pub fn is_empty(&self) -> bool {
        self.readable && self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that a node must have to satisfy the term, if it says so; an empty one when it asks for two at once.
    pub fn only_name(&self) -> Option<&str> {
        let mut names = self.fields.iter().filter(|one| one.equals && one.key == "metadata.name");
        let first = names.next()?.value.as_str();
        Some(if names.all(|one| one.value == first) { first } else { "" })
    }

    /// Whether the node of this name satisfies the term, given a way to look up its labels.
    pub fn matches<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let field = |one: &FieldTerm| {
            let value = if one.key == "metadata.name" { name } else { "" };
            (value == one.value) == one.equals
        };
        self.readable
            && !self.is_empty()
            && self.labels.iter().all(|one| one.holds(label(&one.key)))
            && (name.is_empty() || self.fields.iter().all(field))
    }
}

fn raw(list: &Value) -> impl Iterator<Item = Raw<'_>> {
    list.as_array().into_iter().flatten().map(|one| {
        let values = one["values"].as_array().into_iter().flatten();
        let values = values.filter_map(|value| value.as_str().map(str::to_owned)).collect();
        (one["key"].as_str().unwrap_or_default(), one["operator"].as_str().unwrap_or_default(), values)
    })
}

impl From<&Value> for NodeSelectorTerm {
    fn from(term: &Value) -> NodeSelectorTerm {
        NodeSelectorTerm::new(raw(&term["matchExpressions"]), raw(&term["matchFields"]))
    }
}

/// What a pod requires of its node: every label of its `nodeSelector`, and one term of its affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RequiredNodeAffinity {
    /// Labels with their values.
    pub labels: Vec<(String, String)>,
    /// Terms of which one must match; `None` if there is no such requirement.
    pub terms: Option<Vec<NodeSelectorTerm>>,
}

impl RequiredNodeAffinity {
    /// Whether every node will do.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.terms.is_none()
    }

    /// Whether the pod may run on the node of this name, given a way to look up its labels.
    pub fn matches<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.labels.iter().all(|(key, value)| label(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, &label)))
    }
}

/// Reads a pod's spec.
impl From<&Value> for RequiredNodeAffinity {
    fn from(spec: &Value) -> RequiredNodeAffinity {
        let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let labels = spec["nodeSelector"].as_object().into_iter().flatten();
        let terms = required["nodeSelectorTerms"].as_array().into_iter().flatten();
        RequiredNodeAffinity {
            labels: labels
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            terms: required.is_object().then(|| terms.map(NodeSelectorTerm::from).collect()),
        }
    }
}

/// Terms that make a node more welcome, each with its weight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodePreferences(pub Vec<(i64, NodeSelectorTerm)>);

impl NodePreferences {
    /// The sum of the weights of the terms that match.
    pub fn score<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> i64 {
        self.0.iter().filter(|(_, term)| term.matches(name, &label)).map(|(weight, _)| weight).sum()
    }
}

/// Reads a list of preferred scheduling terms.
impl From<&Value> for NodePreferences {
    fn from(list: &Value) -> NodePreferences {
        let terms = list.as_array().into_iter().flatten();
        let read = |one: &Value| (one["weight"].as_i64().unwrap_or_default(), (&one["preference"]).into());
        NodePreferences(terms.map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_match_labels_and_the_name() {
        let labels = json!({"zone": "a", "cores": "8"});
        let found = |term: Value| NodeSelectorTerm::from(&term).matches("n1", |key| labels[key].as_str());
        let one = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        assert!(found(one("cores", "Gt", json!(["4"]))));
        assert!(!found(one("zone", "NotIn", json!(["a"]))));
        assert!(found(one("gpu", "NotIn", json!(["a"]))));
        assert!(!found(one("gpu", "NotIn", json!([]))), "it cannot be read");
        assert!(found(
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})
        ));
        assert!(!found(json!({})), "an empty term matches nothing");
    }
}
