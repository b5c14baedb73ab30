//! Owner references: who manages an object.
//!
//! The rules: <https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/>. What becomes of
//! objects whose owners go is the garbage collector's to decide.

use serde_json::Value;

/// One entry of an object's `ownerReferences`.
pub trait OwnerReference {
    /// The owner's uid.
    fn uid(&self) -> &str;
    /// Whether the owner manages the object.
    fn is_controller(&self) -> bool;
}

impl OwnerReference for Value {
    fn uid(&self) -> &str {
        self["uid"].as_str().unwrap_or_default()
    }

    fn is_controller(&self) -> bool {
        self["controller"] == true
    }
}

/// The references of an object.
pub fn of(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The reference to the owner that manages the object; there is one at most.
pub fn controller<'a, R: OwnerReference + 'a>(references: impl IntoIterator<Item = &'a R>) -> Option<&'a R> {
    references.into_iter().find(|one| one.is_controller())
}

/// Whether the owner with this uid manages the object.
pub fn is_controlled_by<'a, R>(references: impl IntoIterator<Item = &'a R>, uid: &str) -> bool
where
    R: OwnerReference + 'a,
{
    controller(references).is_some_and(|one| one.uid() == uid)
}
