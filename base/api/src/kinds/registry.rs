//! The kinds a server knows: a value that is replaced as a whole when a kind comes or goes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{Kind, rows};
use crate::definition::by_priority;

/// The kinds that are served, with their indexes.
#[derive(Debug, Default)]
pub struct Registry {
    /// Legacy group first, in discovery's order of groups.
    kinds: Vec<Arc<Kind>>,
    by_resource: HashMap<String, Vec<Arc<Kind>>>,
    by_kind: HashMap<String, Vec<Arc<Kind>>>,
}

impl Registry {
    /// The kinds that every server knows.
    pub fn builtin() -> &'static Arc<Registry> {
        static BUILTIN: OnceLock<Arc<Registry>> = OnceLock::new();
        BUILTIN.get_or_init(|| Arc::new(Registry::new(rows::ROWS.iter().map(|row| Arc::new(row.into())))))
    }

    /// A registry of these kinds.
    pub fn new(kinds: impl IntoIterator<Item = Arc<Kind>>) -> Registry {
        let mut registry = Registry::default();
        for kind in kinds {
            registry.by_resource.entry(kind.resource.to_string()).or_default().push(kind.clone());
            registry.by_kind.entry(kind.kind.to_string()).or_default().push(kind.clone());
            registry.kinds.push(kind);
        }
        registry
    }

    /// The same without some kinds and with others; one of the same group, version and resource is replaced where it
    /// stands.
    #[must_use]
    pub fn changed(&self, gone: &[Arc<Kind>], new: &[Arc<Kind>]) -> Registry {
        let mut kinds = self.kinds.clone();
        kinds.retain(|kind| !gone.iter().any(|gone| kind.is_at(&gone.group, &gone.version, &gone.resource)));
        for kind in new {
            let same = |other: &Arc<Kind>| other.is_at(&kind.group, &kind.version, &kind.resource);
            match kinds.iter().position(same) {
                Some(at) => kinds[at] = kind.clone(),
                None => kinds.insert(place(&kinds, kind), kind.clone()),
            }
        }
        Registry::new(kinds)
    }

    /// All kinds, legacy group first, in discovery's order of groups.
    pub fn kinds(&self) -> &[Arc<Kind>] {
        &self.kinds
    }

    /// The kind served under this group, version and plural resource name.
    pub fn by_resource(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Kind>> {
        let named = self.by_resource.get(resource)?;
        named.iter().find(|kind| kind.group == group && kind.version == version)
    }

    /// The kind with this group, version and kind name.
    pub fn by_gvk(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let named = self.by_kind.get(kind)?;
        named.iter().find(|kind| kind.group == group && kind.version == version)
    }

    /// Groups in discovery's order, each with its versions, the preferred first.
    pub fn groups(&self) -> Vec<(&str, Vec<&str>)> {
        let mut out: Vec<(&str, Vec<&str>)> = Vec::new();
        for kind in &self.kinds {
            match out.iter_mut().find(|(group, _)| *group == kind.group) {
                Some((_, versions)) => {
                    if !versions.contains(&kind.version.as_ref()) {
                        versions.push(&kind.version);
                    }
                }
                None => out.push((&kind.group, vec![&kind.version])),
            }
        }
        out
    }

    /// Kinds of one group and version.
    pub fn of_group_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.kinds.iter().filter(move |kind| kind.group == group && kind.version == version)
    }
}

/// Where a kind comes: into its group, so that discovery lists groups in one piece, behind those of its version, and
/// before those of lesser ones.
fn place(kinds: &[Arc<Kind>], kind: &Kind) -> usize {
    let of_group = |other: &Arc<Kind>| other.group == kind.group;
    if let Some(last) = kinds.iter().rposition(|other| of_group(other) && other.version == kind.version) {
        return last + 1;
    }
    let lesser = |other: &Arc<Kind>| of_group(other) && by_priority(&kind.version, &other.version).is_lt();
    let end = || kinds.iter().rposition(of_group).map(|last| last + 1);
    kinds.iter().position(lesser).or_else(end).unwrap_or(kinds.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_kind(resource: &'static str) -> Registry {
        let model = Registry::builtin().by_resource("", "v1", "configmaps").unwrap();
        let mut kind = Kind::clone(model);
        kind.group = "apps".into();
        (kind.resource, kind.kind) = (resource.into(), "Extra".into());
        Registry::builtin().changed(&[], &[Arc::new(kind)])
    }

    #[test]
    fn a_kind_comes_into_its_group_and_goes_again() {
        let more = with_kind("extras");
        assert_eq!(more.kinds().len(), Registry::builtin().kinds().len() + 1);
        assert_eq!(more.groups(), Registry::builtin().groups());
        assert_eq!(more.by_resource("apps", "v1", "extras").unwrap().kind, "Extra");
        assert_eq!(more.by_gvk("apps", "v1", "Extra").unwrap().resource, "extras");
        let groups: Vec<_> = more.kinds().iter().map(|kind| kind.group.clone()).collect();
        let mut pieces = groups.clone();
        pieces.dedup();
        assert_eq!(pieces.len(), more.groups().len(), "each group in one piece");
        let extra = more.by_resource("apps", "v1", "extras").unwrap().clone();
        let less = more.changed(&[extra], &[]);
        assert!(
            less.by_resource("apps", "v1", "extras").is_none()
                && less.by_gvk("apps", "v1", "Extra").is_none()
        );
    }

    #[test]
    fn a_kind_is_replaced_where_it_stands() {
        let again = with_kind("deployments");
        assert_eq!(again.kinds().len(), Registry::builtin().kinds().len());
        assert_eq!(again.by_resource("apps", "v1", "deployments").unwrap().kind, "Extra");
        assert!(again.by_gvk("apps", "v1", "Deployment").is_none());
    }
}
