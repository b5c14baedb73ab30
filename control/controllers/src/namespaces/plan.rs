//! Decides what a namespace lacks, and words the conditions of one that is being emptied. Pure.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

/// The finalizer that only this controller takes off.
pub(crate) const FINALIZER: &str = "kubernetes";

/// What has been seen of a namespace and its contents.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) exists: bool,
    pub(crate) deleting: bool,
    /// Whether the `default` service account is there.
    pub(crate) account: bool,
    /// What the published certificate bundle holds.
    pub(crate) bundle: Option<String>,
    /// What was asked for and has not been seen yet.
    pub(crate) being_made: HashSet<Missing>,
}

/// Something a namespace lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Missing {
    /// The `default` service account.
    Account,
    /// The certificate bundle.
    Bundle,
    /// The right content of the certificate bundle.
    BundleContent,
}

/// What is to be made now; forgets what has arrived since it was asked for.
pub(crate) fn missing(seen: &mut Seen, ca: &str) -> Vec<Missing> {
    if seen.account {
        seen.being_made.remove(&Missing::Account);
    }
    if seen.bundle.is_some() {
        seen.being_made.remove(&Missing::Bundle);
    }
    if seen.bundle.as_deref() == Some(ca) {
        seen.being_made.remove(&Missing::BundleContent);
    }
    if !seen.exists || seen.deleting {
        return Vec::new();
    }
    let lacks = [
        (Missing::Account, !seen.account),
        (Missing::Bundle, seen.bundle.is_none()),
        (Missing::BundleContent, seen.bundle.as_deref().is_some_and(|found| found != ca)),
    ];
    lacks
        .into_iter()
        .filter(|(what, lacks)| *lacks && !seen.being_made.contains(what))
        .map(|(what, _)| what)
        .collect()
}

/// What is left in a namespace that is being emptied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// Objects left, by resource (`pods.`, `deployments.apps`).
    pub(crate) resources: BTreeMap<String, usize>,
    /// Objects held by each finalizer.
    pub(crate) finalizers: BTreeMap<String, usize>,
    /// What could not be deleted, in the API server's words.
    pub(crate) failures: Vec<String>,
    /// What could not be discovered.
    pub(crate) undiscovered: Option<String>,
}

impl Remains {
    /// Whether the namespace may go.
    pub(crate) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.failures.is_empty() && self.undiscovered.is_none()
    }

    /// The conditions that say so; `now` is RFC 3339.
    pub(crate) fn conditions(&self, now: &str) -> Value {
        let condition = |kind: &str, bad: Option<(&str, String)>, good: (&str, &str)| {
            let status = if bad.is_some() { "True" } else { "False" };
            let (reason, message) = bad.unwrap_or((good.0, good.1.to_owned()));
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
        };
        let counted = |counts: &BTreeMap<String, usize>, word: &str| {
            counts
                .iter()
                .map(|(name, count)| format!("{name} {word} {count} resource instances"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        json!([
            condition(
                "NamespaceDeletionDiscoveryFailure",
                self.undiscovered.clone().map(|text| ("DiscoveryFailed", text)),
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                None,
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                (!self.failures.is_empty()).then(|| ("ContentDeletionFailed", self.failures.join(", "))),
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
            condition(
                "NamespaceContentRemaining",
                (!self.resources.is_empty()).then(|| {
                    (
                        "SomeResourcesRemain",
                        format!("Some resources are remaining: {}", counted(&self.resources, "has")),
                    )
                }),
                ("ContentRemoved", "All content successfully removed"),
            ),
            condition(
                "NamespaceFinalizersRemaining",
                (!self.finalizers.is_empty()).then(|| {
                    let text = counted(&self.finalizers, "in");
                    (
                        "SomeFinalizersRemain",
                        format!("Some content in the namespace has finalizers remaining: {text}"),
                    )
                }),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_namespace_lacks_both_and_each_is_asked_for_once() {
        let mut seen = Seen { exists: true, ..Seen::default() };
        assert_eq!(missing(&mut seen, "ca"), [Missing::Account, Missing::Bundle]);
        seen.being_made.extend([Missing::Account, Missing::Bundle]);
        assert_eq!(missing(&mut seen, "ca"), []);
        (seen.account, seen.bundle) = (true, Some("ca".into()));
        assert_eq!(missing(&mut seen, "ca"), []);
        (seen.account, seen.bundle) = (false, None);
        assert_eq!(missing(&mut seen, "ca"), [Missing::Account, Missing::Bundle], "deleted ones come back");
    }

    #[test]
    fn a_bundle_that_was_tampered_with_is_put_right() {
        let mut seen = Seen { exists: true, account: true, bundle: Some("forged".into()), ..Seen::default() };
        assert_eq!(missing(&mut seen, "ca"), [Missing::BundleContent]);
    }

    #[test]
    fn a_namespace_on_its_way_out_gets_nothing() {
        let mut seen = Seen { exists: true, deleting: true, ..Seen::default() };
        assert_eq!(missing(&mut seen, "ca"), []);
        assert_eq!(missing(&mut Seen::default(), "ca"), [], "nor one that was never seen");
    }

    #[test]
    fn what_remains_is_said_in_kubernetes_words() {
        let mut remains = Remains::default();
        assert!(remains.is_empty());
        assert_eq!(remains.conditions("t")[3]["reason"], "ContentRemoved");
        remains.resources.insert("pods.".into(), 2);
        remains.finalizers.insert("example.com/hold".into(), 1);
        let conditions = remains.conditions("t");
        assert_eq!(conditions[3]["message"], "Some resources are remaining: pods. has 2 resource instances");
        assert_eq!(
            conditions[4]["message"],
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
        assert_eq!((&conditions[3]["status"], &conditions[2]["status"]), (&json!("True"), &json!("False")));
    }
}
