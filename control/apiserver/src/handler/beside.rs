//! What of a kind's rules only the server can answer: who may do what, what a namespace is marked with, and whether
//! expressions that select devices are any.
//!
//! Kinds say what they want to know; nothing is looked up for one that does not. Only fields are complained about here:
//! whether a request may be made at all was decided before.

use podwire_api::strategy::FurtherRight;
use podwire_api::validate::{self, Beside, Cause, FieldError};
use podwire_api::{Kind, Part, builtin, syntax};
use podwire_cel::device::Judge;
use serde_json::Value;

use crate::authz::{self, Attributes, Decision};
use crate::context::Context;
use crate::identity::{self, Identity};
use crate::request::ResourceInfo;

/// So many bytes of selectors are compiled on the spot; that takes a millisecond or two.
const ON_THE_SPOT: usize = 16 * 1024;
/// The label of namespaces whose claims may have devices that others use.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

/// Who writes what, and where.
pub(crate) struct Asker<'a> {
    pub(crate) context: &'a Context,
    pub(crate) identity: &'a Identity,
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: &'a str,
    /// The verb of the request.
    pub(crate) verb: &'a str,
}

impl Asker<'_> {
    /// Complaints about a new object.
    pub(crate) async fn of_new(&self, object: &Value) -> Vec<FieldError> {
        let mut before = Vec::new();
        self.admin_access(None, object, None, &mut before).await;
        judged(before, |beside| validate::create_beside(self.kind, object, beside)).await
    }

    /// Complaints about a change.
    pub(crate) async fn of_change(&self, part: Option<Part>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut before = Vec::new();
        self.admin_access(part, new, Some(old), &mut before).await;
        let rights = self.kind.strategy.further_rights(part, new, old);
        before.extend(rights.iter().filter_map(|right| self.refused(right)));
        let check = |beside| match part {
            None | Some(Part::Scale) => validate::update_beside(self.kind, new, old, beside),
            Some(part) => validate::update_part_beside(self.kind, part, new, old, beside),
        };
        judged(before, check).await
    }

    /// Devices that others use are only for namespaces that are marked so.
    async fn admin_access(
        &self,
        part: Option<Part>,
        new: &Value,
        old: Option<&Value>,
        out: &mut Vec<FieldError>,
    ) {
        let Some(field) = self.kind.strategy.asks_for_admin_access(part, new, old) else { return };
        match self.context.object(builtin::namespaces(), "", self.namespace).await {
            Ok(namespace) if namespace["metadata"]["labels"][ADMIN_ACCESS] == "true" => {}
            Ok(_) => {
                let words = format!(
                    "admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
                );
                out.push(FieldError::new(Cause::Forbidden, field, None, &words));
            }
            Err(error) => {
                let words = format!("could not retrieve namespace to verify admin access: {}", error.message);
                out.push(FieldError::new(Cause::Internal, field, None, &words));
            }
        }
    }

    /// The complaint about a right that is not held.
    fn refused(&self, right: &FurtherRight) -> Option<FieldError> {
        let resource = ResourceInfo {
            group: self.kind.group.to_string(),
            version: self.kind.version.to_string(),
            namespace: if right.within_namespace { self.namespace.to_owned() } else { String::new() },
            resource: self.kind.resource.to_string(),
            name: right.name.clone(),
            subresource: right.subresource.to_owned(),
            ..ResourceInfo::default()
        };
        let verbs = self.verbs(right);
        let mut first = None;
        for verb in &verbs {
            let asked = Attributes::resource(verb, &resource);
            match authz::decide(self.context, self.identity, &asked) {
                Decision::Allowed(_) => return None,
                Decision::NoOpinion(why) => {
                    first.get_or_insert_with(|| authz::forbidden(self.identity, &asked, &why).message);
                }
            }
        }
        let shown = if right.node.is_some() { format!("[{}]", verbs.join(" ")) } else { verbs.join(" ") };
        let words = format!(
            "changing {} requires resource=\"{}/{}\", verb=\"{shown}\" permission: {}",
            right.changed,
            self.kind.resource,
            right.subresource,
            first.unwrap_or_default()
        );
        Some(FieldError::new(Cause::Forbidden, right.field.to_owned(), None, &words))
    }

    /// The verbs of which one is enough.
    fn verbs(&self, right: &FurtherRight) -> Vec<String> {
        let Some(node) = &right.node else { return vec![self.verb.to_owned()] };
        let anywhere = format!("arbitrary-node:{}", self.verb);
        match node {
            Some(node) if runs_on(self.identity, node) => {
                vec![format!("associated-node:{}", self.verb), anywhere]
            }
            _ => vec![anywhere],
        }
    }
}

/// Validates. Many long selectors take seconds to compile, which happens where no other request waits for the thread;
/// then everything is looked at once more, with what was found.
async fn judged(before: Vec<FieldError>, check: impl Fn(Beside) -> Vec<FieldError>) -> Vec<FieldError> {
    let judge = Judge::with_room(ON_THE_SPOT);
    let beside = |before: Vec<FieldError>| Beside { before, judge: Some(Box::new(judge.clone())) };
    let errors = check(beside(before.clone()));
    if !judge.has_rest() {
        return errors;
    }
    let compiler = judge.clone();
    match tokio::task::spawn_blocking(move || compiler.compile_rest()).await {
        Ok(()) => check(beside(before)),
        Err(error) => {
            let words = format!("selectors were not compiled: {error}");
            vec![FieldError::new(Cause::Internal, "spec".to_owned(), None, &words)]
        }
    }
}

/// Whether a service account's token is of a pod on a node.
fn runs_on(identity: &Identity, node: &str) -> bool {
    let is_account = identity::account_of(&identity.user).is_some();
    let nodes = identity.extra.get(identity::NODE_NAME).map(Vec::as_slice).unwrap_or_default();
    is_account && nodes == [node] && !node.is_empty() && syntax::dns_subdomain(node).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_of_a_pod_says_on_which_node_its_account_runs() {
        let with = |user: &str, nodes: &[&str]| {
            let mut identity = Identity::new(user, &[]);
            let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
            identity.extra.insert(identity::NODE_NAME.to_owned(), nodes);
            identity
        };
        let account = "system:serviceaccount:a:driver";
        assert!(runs_on(&with(account, &["n"]), "n"));
        assert!(!runs_on(&with(account, &["m"]), "n"));
        assert!(!runs_on(&with(account, &["n", "n"]), "n"));
        assert!(!runs_on(&with(account, &[""]), ""));
        assert!(!runs_on(&with("system:node:n", &["n"]), "n"));
        assert!(!runs_on(&with("system:serviceaccount:a", &["n"]), "n"));
        assert!(!runs_on(&Identity::node("n"), "n"));
    }
}
