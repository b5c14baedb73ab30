//! Aggregated cluster roles get their rules, and keep them.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{Cluster, create, until};

fn reads(role: Option<&ClusterRole>, resource: &str) -> bool {
    let rules = role.and_then(|role| role.rules.as_deref()).unwrap_or_default();
    rules.iter().any(|rule| rule.resources.as_ref().is_some_and(|all| all.iter().any(|one| one == resource)))
}

#[tokio::test]
async fn admin_edit_and_view_are_the_sum_of_their_parts() {
    let cluster = Cluster::start(|_| {}).await;
    let roles = cluster.all::<ClusterRole>();
    until(&roles, "view", |role| reads(role, "pods/log") && !reads(role, "secrets")).await;
    until(&roles, "edit", |role| reads(role, "pods/log") && reads(role, "secrets")).await;
    // Edit is a part of admin, and brings what it got itself.
    until(&roles, "admin", |role| reads(role, "pods/log") && reads(role, "rolebindings")).await;

    let label = "rbac.authorization.k8s.io/aggregate-to-view";
    let widgets = json!([{"verbs": ["get"], "apiGroups": ["example.org"], "resources": ["widgets"]}]);
    create(&roles, json!({"metadata": {"name": "widgets", "labels": {label: "true"}}, "rules": widgets}))
        .await;
    until(&roles, "admin", |role| reads(role, "widgets")).await;

    let own =
        Patch::Merge(json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["everything"]}]}));
    roles.patch("view", &PatchParams::default(), &own).await.unwrap();
    until(&roles, "view", |role| reads(role, "widgets") && !reads(role, "everything")).await;
    roles.delete("widgets", &Default::default()).await.unwrap();
    until(&roles, "admin", |role| reads(role, "pods/log") && !reads(role, "widgets")).await;
    cluster.stop().await;
}
