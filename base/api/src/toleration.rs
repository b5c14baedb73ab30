//! Whether a pod tolerates a taint of its node.
//!
//! The rules: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>. Both sides are borrowed
//! from whatever holds them; an absent field is an empty text.

use serde_json::Value;

/// A taint of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taint<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value.
    pub value: &'a str,
    /// What it does to pods: `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: &'a str,
}

/// A toleration of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// The key of the taints it is for; empty: of all.
    pub key: &'a str,
    /// How values compare; empty: `Equal`.
    pub operator: &'a str,
    /// The value compared with.
    pub value: &'a str,
    /// The effect it is for; empty: every one.
    pub effect: &'a str,
}

impl Toleration<'_> {
    /// Whether this taint is tolerated.
    pub fn tolerates<'t>(&self, taint: impl Into<Taint<'t>>) -> bool {
        let taint = taint.into();
        if !self.effect.is_empty() && self.effect != taint.effect
            || !self.key.is_empty() && self.key != taint.key
        {
            return false;
        }
        let numbers = || Some((integer(taint.value)?, integer(self.value)?));
        match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Gt" => numbers().is_some_and(|(value, bound)| value > bound),
            "Lt" => numbers().is_some_and(|(value, bound)| value < bound),
            _ => false,
        }
    }
}

/// A number in the one spelling that counts: no sign but a minus, no zeros in front.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let spelled = text == "0" || digits.starts_with(|c: char| matches!(c, '1'..='9'));
    spelled.then(|| text.parse().ok()).flatten()
}

/// Whether one of the tolerations tolerates the taint.
pub fn tolerated<'t, T: Into<Toleration<'t>>>(
    taint: impl Into<Taint<'t>>,
    tolerations: impl IntoIterator<Item = T>,
) -> bool {
    let taint = taint.into();
    tolerations.into_iter().any(|one| one.into().tolerates(taint))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

impl<'a> From<&'a Value> for Taint<'a> {
    fn from(object: &'a Value) -> Taint<'a> {
        Taint { key: text(object, "key"), value: text(object, "value"), effect: text(object, "effect") }
    }
}

impl<'a> From<&'a Value> for Toleration<'a> {
    fn from(object: &'a Value) -> Toleration<'a> {
        Toleration {
            key: text(object, "key"),
            operator: text(object, "operator"),
            value: text(object, "value"),
            effect: text(object, "effect"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        let found = |one: Value| tolerated(&taint, [&one]);
        assert!(found(json!({"operator": "Exists"})));
        assert!(found(json!({"key": "k", "value": "v"})));
        assert!(!found(json!({"key": "k", "value": "w"})));
        assert!(!found(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})));
    }
}
