//! Every kind the API serves: names, scope, verbs, subresources, where it is stored, what can be selected.
//!
//! A new kind is one row in `kinds/rows.rs`; behaviour that differs goes to the module concerned.

mod rows;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::schema::SchemaRef;

/// A served kind.
#[derive(Debug)]
pub struct Kind {
    /// API group, empty for the legacy group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind of one object.
    pub kind: &'static str,
    /// Kind of a list.
    pub list_kind: &'static str,
    /// Plural resource name of the URL.
    pub resource: &'static str,
    /// Singular resource name.
    pub singular: &'static str,
    /// Short names kubectl accepts.
    pub short_names: &'static [&'static str],
    /// Categories, e.g. `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Verbs in discovery's order.
    pub verbs: &'static [&'static str],
    /// Subresources.
    pub subresources: &'static [Subresource],
    /// Prefix of the storage key, e.g. `/registry/pods/`; empty when nothing is stored.
    pub storage_prefix: &'static str,
    /// Shape of the object.
    pub schema: SchemaRef,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub selectable_fields: &'static [&'static str],
}

/// A subresource of a kind.
#[derive(Debug)]
pub struct Subresource {
    /// Last element of the path.
    pub name: &'static str,
    /// Group of the body's kind, empty for the legacy group.
    pub group: &'static str,
    /// Version of the body's kind.
    pub version: &'static str,
    /// The body's kind.
    pub kind: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Name as error messages write it: `pods`, `deployments.apps`.
    pub fn qualified_resource(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    /// Name as validation errors write it: `Pod`, `Deployment.apps`.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether discovery lists the verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Whether `/status` exists, so that the main endpoint leaves `status` alone.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether an update without resourceVersion overwrites what is stored.
    pub fn allows_unconditional_update(&self) -> bool {
        !(self.group == "admissionregistration.k8s.io"
            || matches!(
                self.resource,
                "leases"
                    | "runtimeclasses"
                    | "poddisruptionbudgets"
                    | "csidrivers"
                    | "csistoragecapacities"
                    | "volumeattachments"
                    | "csinodes"
            ))
    }

    /// Whether an update of an object that is not there creates it.
    pub fn allows_create_on_update(&self) -> bool {
        self.group == "rbac.authorization.k8s.io"
            || matches!(
                self.resource,
                "leases" | "runtimeclasses" | "limitranges" | "events" | "services" | "endpoints"
            )
    }

    /// Whether dependents are kept when an object is deleted without a word about them, as once all were.
    pub fn orphans_by_default(&self) -> bool {
        matches!(
            (self.group, self.version, self.resource),
            ("batch", "v1", "jobs") | ("", "v1", "replicationcontrollers")
        )
    }

    /// Whether objects carry a generation that follows their spec.
    pub fn has_generation(&self) -> bool {
        matches!(
            self.group,
            "apps" | "batch" | "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io"
        ) && self.resource != "controllerrevisions"
            || matches!(
                self.resource,
                "pods"
                    | "podtemplates"
                    | "replicationcontrollers"
                    | "endpointslices"
                    | "ingresses"
                    | "ingressclasses"
                    | "networkpolicies"
            )
            || matches!(
                self.resource,
                "poddisruptionbudgets"
                    | "deviceclasses"
                    | "resourceslices"
                    | "priorityclasses"
                    | "csidrivers"
            )
    }

    /// Whether this is the kind of this group and name, in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// All kinds, legacy group first, in discovery's order of groups.
pub fn kinds() -> &'static [Kind] {
    rows::KINDS
}

type Index = HashMap<(&'static str, &'static str, &'static str), &'static Kind>;

/// The kind served under this group, version and plural resource name.
pub fn by_resource(group: &str, version: &str, resource: &str) -> Option<&'static Kind> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    let index = INDEX.get_or_init(|| kinds().iter().map(|k| ((k.group, k.version, k.resource), k)).collect());
    index.get(&(group, version, resource)).copied()
}

/// The kind with this group, version and kind name.
pub fn by_gvk(group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    let index = INDEX.get_or_init(|| kinds().iter().map(|k| ((k.group, k.version, k.kind), k)).collect());
    index.get(&(group, version, kind)).copied()
}

/// Splits `apps/v1` into group and version; `v1` has the empty group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Groups in discovery's order, each with its versions, the preferred first.
pub fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut out: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in kinds() {
        match out.iter_mut().find(|(g, _)| *g == kind.group) {
            Some((_, versions)) => {
                if !versions.contains(&kind.version) {
                    versions.push(kind.version);
                }
            }
            None => out.push((kind.group, vec![kind.version])),
        }
    }
    out
}

/// Kinds of one group and version.
pub fn of_group_version(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    kinds().iter().filter(move |k| k.group == group && k.version == version)
}
