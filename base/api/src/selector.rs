//! Label, field and node selectors: parsing with Kubernetes' texts, and matching.

use std::collections::BTreeMap;

mod field;
mod label;
mod node;
mod requirement;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub use node::{NodePreferences, NodeSelectorTerm, RequiredNodeAffinity};
pub use requirement::{LabelRequirement, Operator};

/// A way to look labels up, as selectors want it.
pub fn lookup<'a>(labels: &'a BTreeMap<String, String>) -> impl Fn(&str) -> Option<&'a str> {
    |key| labels.get(key).map(String::as_str)
}

/// A selector was refused; the text is Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);
