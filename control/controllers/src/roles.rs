//! Aggregated cluster roles: their rules are those of all roles that their selectors choose.
//!
//! One task owns what it has seen of cluster roles and writes one after the other. The rules of an aggregated role
//! belong to this controller (server-side apply, by force); what somebody writes there by hand does not stay.
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use podwire_api::selector::{LabelSelector, lookup};
use podwire_client::api::{Patch, PatchParams};
use podwire_client::watcher;
use podwire_client::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::watching::{Watch, interrupted, is_status, watch};

/// Upstream's name for who owns the rules.
const MANAGER: &str = "clusterrole-aggregation-controller";
/// A failed write is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// All cluster roles by name.
type Roles = BTreeMap<String, ClusterRole>;

/// Runs until `shutdown`; a write that has begun is finished.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let client = config.client;
    let mut events: Watch<ClusterRole> = watch(&client, "");
    let (mut roles, mut listed) = (Roles::new(), Roles::new());
    let mut synced = false;
    let mut failed = false;
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(event) = events.next() => match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(role)) => drop(listed.insert(role.name_any(), role)),
                Ok(watcher::Event::InitDone) => {
                    roles = std::mem::take(&mut listed);
                    synced = true;
                }
                Ok(watcher::Event::Apply(role)) => drop(roles.insert(role.name_any(), role)),
                Ok(watcher::Event::Delete(role)) => drop(roles.remove(&role.name_any())),
                Err(error) => interrupted("clusterroles", &error),
            },
            () = tokio::time::sleep(RETRY), if failed => {}
        }
        failed = false;
        if synced {
            for (name, rules) in plan(&roles) {
                failed |= !write(&client, &name, &rules).await;
            }
        }
    }
}

/// The aggregated roles whose rules are not what they should be, with what they should be.
fn plan(roles: &Roles) -> Vec<(String, Vec<PolicyRule>)> {
    let wanted = roles.iter().filter_map(|(name, role)| Some((name, role, aggregated(roles, name, role)?)));
    let differ =
        |role: &ClusterRole, rules: &[PolicyRule]| role.rules.as_deref().unwrap_or_default() != rules;
    wanted
        .filter(|(_, role, rules)| differ(role, rules))
        .map(|(name, _, rules)| (name.clone(), rules))
        .collect()
}

/// The rules of all other roles that the selectors of a role choose, each once; `None` if it aggregates nothing.
fn aggregated(roles: &Roles, name: &str, role: &ClusterRole) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_deref().unwrap_or_default();
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let selector = match LabelSelector::try_from(selector) {
            Ok(selector) => selector,
            Err(error) => {
                tracing::warn!(role = name, %error, "a selector cannot be read; the role stays as it is");
                return None;
            }
        };
        let chosen = roles.values().filter(|other| {
            let labels = other.labels();
            other.name_any() != name && selector.matches_with(lookup(labels))
        });
        for rule in chosen.flat_map(|other| other.rules.as_deref().unwrap_or_default()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

/// Writes the rules; answers whether that is settled.
async fn write(client: &Client, name: &str, rules: &[PolicyRule]) -> bool {
    let api: Api<ClusterRole> = Api::all(client.clone());
    let patch = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    match api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(patch)).await {
        Ok(_) => true,
        // It went in the meantime; the watch will say so.
        Err(error) if is_status(&error, 404) => true,
        Err(error) => {
            tracing::warn!(role = name, %error, "the rules of an aggregated role were not written; trying again");
            false
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod tests {
    use super::*;
    use serde_json::Value;

    fn roles(list: Value) -> Roles {
        let list: Vec<ClusterRole> = serde_json::from_value(list).unwrap();
        list.into_iter().map(|role| (role.name_any(), role)).collect()
    }

    fn rule(resource: &str) -> Value {
        json!({"verbs": ["get"], "apiGroups": [""], "resources": [resource]})
    }

    #[test]
    fn a_role_has_the_rules_of_all_it_selects_once_and_in_order_of_names() {
        let sum = json!({"metadata": {"name": "sum", "labels": {"into": "sum"}}, "rules": [rule("own")], "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {"into": "sum"}}, {"matchExpressions": [{"key": "also", "operator": "Exists"}]}]}});
        let part = |name: &str, label: &str, rules: Value| json!({"metadata": {"name": name, "labels": {label: "sum"}}, "rules": rules});
        let mut all = roles(json!([
            sum,
            part("b", "into", json!([rule("pods"), rule("nodes")])),
            part("a", "into", json!([rule("events"), rule("pods")])),
            part("c", "also", json!([rule("secrets")])),
            part("d", "other", json!([rule("never")])),
        ]));
        let planned = plan(&all);
        let expected: Vec<PolicyRule> = ["events", "pods", "nodes", "secrets"]
            .map(|resource| serde_json::from_value(rule(resource)).unwrap())
            .into();
        assert_eq!(planned, [("sum".to_owned(), expected.clone())]);
        all.get_mut("sum").unwrap().rules = Some(expected);
        assert!(plan(&all).is_empty(), "nothing is written twice");
    }

    #[test]
    fn a_role_that_aggregates_nothing_is_left_alone() {
        assert!(plan(&roles(json!([{"metadata": {"name": "plain"}, "rules": [rule("pods")]}]))).is_empty());
    }
}
