//! Brings the roles and bindings that every cluster begins with into the store, and up to date at every start.
//!
//! As upstream: what is missing is added, nothing is taken away, and an object that says
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone. A binding to another role than the expected
//! one is made anew, because the role of a binding cannot be changed.

use podwire_api::{Kind, builtin};
use serde_json::{Value, json};

use super::{creation, options, server};
use crate::authz::policy;
use crate::authz::rule::{self, Rule};
use crate::context::{self, Context};
use crate::handler::delete::Deletion;
use crate::handler::options::DeleteOptions;
use crate::handler::update::{Change, Extent};
use crate::status::Result;

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Creates or completes all of them, side by side, so that they share the store's commits.
pub(super) async fn run(context: &Context) -> Result<()> {
    let all = [
        (builtin::cluster_roles(), policy::cluster_roles()),
        (builtin::cluster_role_bindings(), policy::cluster_role_bindings()),
        (builtin::roles(), policy::roles()),
        (builtin::role_bindings(), policy::role_bindings()),
    ];
    let objects = all.into_iter().flat_map(|(kind, list)| list.into_iter().map(move |object| (kind, object)));
    let tasks = objects.map(|(kind, object)| ensure(context, kind, object));
    futures::future::try_join_all(tasks).await?;
    Ok(())
}

async fn ensure(context: &Context, kind: &Kind, expected: Value) -> Result<()> {
    let text = |key: &str| expected["metadata"][key].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let Some(entry) = context.caches.of(kind).get(&context::key(kind, &namespace, &name)) else {
        return creation(context, kind, expected).await;
    };
    match plan(&entry.decode(kind), &expected) {
        Step::Nothing => Ok(()),
        Step::Update(_) => {
            tracing::info!(kind = %kind.kind, name, "a role or binding of the cluster's own is completed");
            let (identity, options) = (server(), options());
            let change = Change {
                context,
                identity: &identity,
                kind,
                namespace: &namespace,
                name: &name,
                verb: "update",
                extent: Extent::Server,
                options: &options,
                retry: true,
                untracked: false,
                check_uid: false,
            };
            let completed = |old: &Value| match plan(old, &expected) {
                Step::Update(new) => Ok(new),
                _ => Ok(old.clone()),
            };
            change.run(completed).await.map(|_| ())
        }
        Step::Recreate => {
            tracing::info!(kind = %kind.kind, name, "a binding of the cluster's own is made anew");
            let identity = server();
            let deletion =
                Deletion { context, identity: &identity, kind, namespace: &namespace, name: &name };
            deletion.run(&DeleteOptions::default()).await?;
            creation(context, kind, expected).await
        }
    }
}

/// What has to be done about an object that is there.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Update(Value),
    Recreate,
}

fn plan(existing: &Value, expected: &Value) -> Step {
    if existing["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Step::Nothing;
    }
    let mut new = existing.clone();
    for part in ["annotations", "labels"] {
        for (key, value) in expected["metadata"][part].as_object().into_iter().flatten() {
            if new["metadata"][part].get(key).is_none() {
                new["metadata"][part][key] = value.clone();
            }
        }
    }
    if expected.get("roleRef").is_some() {
        if existing["roleRef"] != expected["roleRef"] {
            return Step::Recreate;
        }
        add_missing(&mut new["subjects"], &expected["subjects"]);
    } else {
        complete_role(&mut new, expected);
    }
    if new == *existing { Step::Nothing } else { Step::Update(new) }
}

fn complete_role(new: &mut Value, expected: &Value) {
    let missing = rule::missing(&Rule::all_of(new), &Rule::all_of(expected));
    if !missing.is_empty() {
        let mut rules = new["rules"].as_array().cloned().unwrap_or_default();
        rules.extend(missing.iter().map(Rule::to_value));
        new["rules"] = rules.into();
    }
    let wanted = &expected["aggregationRule"];
    match new.as_object_mut() {
        Some(role) if wanted.is_null() => {
            role.remove("aggregationRule");
        }
        _ => {
            add_missing(&mut new["aggregationRule"]["clusterRoleSelectors"], &wanted["clusterRoleSelectors"])
        }
    }
}

/// Adds the items of `wanted` that `list` has not.
fn add_missing(list: &mut Value, wanted: &Value) {
    for item in wanted.as_array().into_iter().flatten() {
        match list.as_array_mut() {
            Some(known) if known.contains(item) => {}
            Some(known) => known.push(item.clone()),
            None => *list = json!([item]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Value {
        json!({"metadata": {"name": "r", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}, "rules": rules})
    }

    #[test]
    fn missing_rules_are_added_and_others_kept() {
        let own = json!({"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]});
        let get = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let list = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        let half = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let Step::Update(new) = plan(&role(json!([own, half])), &role(json!([get]))) else {
            panic!("a rule is missing")
        };
        assert_eq!(new["rules"], json!([own, half, list]));
        assert_eq!(plan(&new, &role(json!([get]))), Step::Nothing);
    }

    #[test]
    fn what_says_so_is_left_alone() {
        let mut mine = role(json!([]));
        mine["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        assert_eq!(plan(&mine, &role(all)), Step::Nothing);
    }

    #[test]
    fn a_binding_gets_its_subjects_back_and_never_another_role() {
        let binding = |role: &str, subjects: Value| json!({"metadata": {"name": "b"}, "roleRef": {"name": role}, "subjects": subjects});
        let (me, masters) =
            (json!({"kind": "User", "name": "me"}), json!({"kind": "Group", "name": "masters"}));
        let Step::Update(new) = plan(&binding("x", json!([me])), &binding("x", json!([masters]))) else {
            panic!("a subject is missing")
        };
        assert_eq!(new["subjects"], json!([me, masters]));
        assert_eq!(plan(&binding("other", json!([])), &binding("x", json!([masters]))), Step::Recreate);
    }
}
