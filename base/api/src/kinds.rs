//! A served kind: names, scope, verbs, subresources, where it is stored, its shape and its behaviour.
//!
//! A kind is a value. Those that every server knows are made once from `kinds/rows.rs`; others come and go while the
//! server runs. Nothing but a kind's row and its [`Strategy`] knows a kind by name.

pub mod builtin;
mod registry;
mod rows;
mod verb;

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

use crate::schema::Schema;
use crate::strategy::Strategy;

pub use registry::Registry;
pub use verb::{Part, Verb, Verbs};

/// Text that a table has or a client gave.
pub type Text = Cow<'static, str>;

/// A served kind.
#[derive(Debug, Clone)]
pub struct Kind {
    /// API group, empty for the legacy group.
    pub group: Text,
    /// API version.
    pub version: Text,
    /// Kind of one object.
    pub kind: Text,
    /// Kind of a list.
    pub list_kind: Text,
    /// Plural resource name of the URL.
    pub resource: Text,
    /// Singular resource name.
    pub singular: Text,
    /// Short names kubectl accepts.
    pub short_names: Vec<Text>,
    /// Categories, e.g. `all`.
    pub categories: Vec<Text>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Verbs,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Prefix of the storage key, e.g. `/registry/pods/`; empty when nothing is stored.
    pub storage_prefix: Text,
    /// Shape of the object.
    pub schema: Schema,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<Text>,
    /// What the server does with objects of the kind that it does not do with all.
    pub strategy: StrategyRef,
}

/// A subresource of a kind.
#[derive(Debug, Clone)]
pub struct Subresource {
    /// Which part it is.
    pub part: Part,
    /// Group of the body's kind, empty for the legacy group.
    pub group: Text,
    /// Version of the body's kind.
    pub version: Text,
    /// The body's kind.
    pub kind: Text,
    /// Verbs.
    pub verbs: Verbs,
}

/// A strategy of the program or one that was made while it runs.
#[derive(Debug, Clone)]
pub enum StrategyRef {
    /// Part of the program.
    Builtin(&'static dyn Strategy),
    /// Made for one kind.
    Made(Arc<dyn Strategy>),
}

impl Deref for StrategyRef {
    type Target = dyn Strategy;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Builtin(strategy) => *strategy,
            Self::Made(strategy) => strategy.as_ref(),
        }
    }
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Name as error messages write it: `pods`, `deployments.apps`.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_string()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Name as validation errors write it: `Pod`, `Deployment.apps`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_string() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The subresource of this part.
    pub fn subresource(&self, part: Part) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.part == part)
    }

    /// Whether discovery lists the verb.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(verb)
    }

    /// Whether objects are kept; reviews are answered and forgotten.
    pub fn is_stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// Whether `/status` exists, so that the main endpoint leaves `status` alone.
    pub fn has_status(&self) -> bool {
        self.subresource(Part::Status).is_some()
    }

    /// Whether this is the kind of this group and name, in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Whether it is served under this group, version and resource.
    pub fn is_at(&self, group: &str, version: &str, resource: &str) -> bool {
        self.group == group && self.version == version && self.resource == resource
    }
}

/// The built-in kinds, legacy group first, in discovery's order of groups.
pub fn kinds() -> &'static [Arc<Kind>] {
    Registry::builtin().kinds()
}

/// The built-in kind served under this group, version and plural resource name.
pub fn by_resource(group: &str, version: &str, resource: &str) -> Option<&'static Arc<Kind>> {
    Registry::builtin().by_resource(group, version, resource)
}

/// The built-in kind with this group, version and kind name.
pub fn by_gvk(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Kind>> {
    Registry::builtin().by_gvk(group, version, kind)
}

/// Splits `apps/v1` into group and version; `v1` has the empty group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
