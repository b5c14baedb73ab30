//! Nobody gives away rights that they do not have: checks on writes of roles and bindings.
//!
//! As upstream: members of `system:masters` may; a role also with the verb `escalate` on it, a binding with the verb
//! `bind` on the role it names (asked in the binding's namespace); else the writer's own rules must cover what is
//! given.

use futures::future::BoxFuture;
use podwire_api::{Kind, builtin};
use serde_json::Value;

use super::{Mutating, Request};
use crate::authz::rbac::GROUP;
use crate::authz::rule::{self, Rule};
use crate::authz::{self, Attributes};
use crate::context::Context;
use crate::identity::{Identity, MASTERS};
use crate::request::ResourceInfo;
use crate::status::{ApiError, Result};

/// The check, which upstream makes in the storage of these kinds.
pub(super) struct Escalation;

impl Mutating for Escalation {
    fn handles(&self, request: &Request<'_>) -> bool {
        let guarded = ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"];
        let (kind, whole) = (request.kind, request.part.is_none());
        request.writes() && whole && guarded.iter().any(|guarded| kind.is(GROUP, guarded))
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        let Request { context, identity, kind, name, .. } = *request;
        let grant = Grant { context, identity, kind, requested: name };
        Box::pin(async move { grant.check(object, request.old).await })
    }
}

/// One write of an object by somebody.
struct Grant<'a> {
    context: &'a Context,
    identity: &'a Identity,
    kind: &'a Kind,
    /// The name in the URL; empty for a creation by POST.
    requested: &'a str,
}

impl Grant<'_> {
    /// Refuses a role or binding that gives more than its writer has. `old` is what it replaces.
    async fn check(&self, new: &Value, old: Option<&Value>) -> Result<()> {
        if self.identity.is_in(MASTERS) {
            return Ok(());
        }
        if old.is_some_and(|old| only_collectors_fields_differ(new, old)) {
            return Ok(());
        }
        // What was taken from the writer a moment ago must not count any more.
        self.context.caches.wait_for(self.context.store.revision().await?).await?;
        match &*self.kind.resource {
            "roles" | "clusterroles" => self.check_role(new, old),
            _ => self.check_binding(new),
        }
    }

    fn may(&self, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let target = ResourceInfo {
            group: GROUP.into(),
            version: "*".into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..ResourceInfo::default()
        };
        authz::decide(self.context, self.identity, &Attributes::resource(verb, &target)).is_allowed()
    }

    fn check_role(&self, new: &Value, old: Option<&Value>) -> Result<()> {
        let (namespace, name) = (text(&new["metadata"]["namespace"]), text(&new["metadata"]["name"]));
        if self.may("escalate", &self.kind.resource, namespace, self.requested) {
            return Ok(());
        }
        self.covered(namespace, name, &Rule::all_of(new))?;
        let aggregates = |role: &Value| {
            role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
        };
        if self.kind.resource == "clusterroles" && (aggregates(new) || old.is_some_and(aggregates)) {
            self.covered(namespace, name, &everything()).map_err(|_| {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                ApiError::forbidden(GROUP, &self.kind.resource, name, why)
            })?;
        }
        Ok(())
    }

    fn check_binding(&self, new: &Value) -> Result<()> {
        let (namespace, name) = (text(&new["metadata"]["namespace"]), text(&new["metadata"]["name"]));
        let (role_kind, role) = (text(&new["roleRef"]["kind"]), text(&new["roleRef"]["name"]));
        let roles = match role_kind {
            "Role" => builtin::roles(),
            "ClusterRole" => builtin::cluster_roles(),
            // Left to validation.
            _ => return Ok(()),
        };
        if text(&new["roleRef"]["apiGroup"]) == GROUP && self.may("bind", &roles.resource, namespace, role) {
            return Ok(());
        }
        let rules = self.context.authorizer.rbac.rules_in(role_kind, namespace, role);
        let rules = rules.ok_or_else(|| ApiError::not_found(roles, role))?;
        self.covered(namespace, name, &rules)
    }

    fn covered(&self, namespace: &str, name: &str, rules: &[Rule]) -> Result<()> {
        let held = self.context.authorizer.rbac.rules_of(self.identity, namespace);
        let missing = rule::missing(&held, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let user = Value::from(self.identity.user.as_str());
        let why = format!(
            "user {user} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            rule::quoted(&self.identity.groups),
            rule::describe(&missing)
        );
        Err(ApiError::forbidden(GROUP, &self.kind.resource, name, &why))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// All verbs on all resources and all paths.
fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

/// Whether only what the garbage collector writes is different.
fn only_collectors_fields_differ(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for key in ["ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"] {
                metadata.remove(key);
            }
        }
        object
    };
    without(new) == without(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finalizers_and_owners_alone_give_nobody_anything() {
        let old = json!({"metadata": {"name": "r", "finalizers": ["x"]}, "rules": []});
        assert!(only_collectors_fields_differ(&json!({"metadata": {"name": "r"}, "rules": []}), &old));
        let more = json!({"metadata": {"name": "r", "finalizers": ["x"]}, "rules": [{"verbs": ["get"]}]});
        assert!(!only_collectors_fields_differ(&more, &old));
    }
}
