//! The types of admission policies are checked against the schemas of what they are about.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Cluster, create, until};

fn policy(name: &str, rule: Value, validations: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": validations}})
}

fn rule(group: &str, resources: Value) -> Value {
    json!({"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": resources})
}

/// Places and warnings of a policy that was checked in a generation.
fn told(policy: Option<&ValidatingAdmissionPolicy>, generation: i64) -> Option<Vec<(String, String)>> {
    let status = policy?.status.as_ref()?;
    let checking =
        status.type_checking.as_ref().filter(|_| status.observed_generation == Some(generation))?;
    let warnings = checking.expression_warnings.iter().flatten();
    Some(warnings.map(|warning| (warning.field_ref.clone(), warning.warning.clone())).collect())
}

#[tokio::test]
async fn what_is_wrong_with_the_types_of_a_policy_is_told_in_its_status() {
    let cluster = Cluster::start(|_| {}).await;
    let policies = cluster.all::<ValidatingAdmissionPolicy>();
    let apps = rule("apps", json!(["deployments", "statefulsets", "deployments/scale"]));
    let good = json!([{"expression": "object.spec.replicas > 1 && object.metadata.name != 'x'"}]);
    create(&policies, policy("good", apps.clone(), good.clone())).await;
    until(&policies, "good", |policy| told(policy, 1) == Some(Vec::new())).await;

    // It is in force whatever is said about it.
    let bad =
        json!([{"expression": "object.spec.size > 1", "messageExpression": "object.spec.replicas + 'x'"}]);
    policies
        .patch("good", &PatchParams::default(), &Patch::Merge(json!({"spec": {"validations": bad}})))
        .await
        .unwrap();
    until(&policies, "good", |policy| {
        let Some(told) = told(policy, 2) else { return false };
        let kinds = ["apps/v1, Kind=Deployment", "apps/v1, Kind=StatefulSet"];
        let undefined =
            "ERROR: <input>:1:12: undefined field 'size'\n | object.spec.size > 1\n | ...........^\n";
        let first = kinds.map(|kind| format!("{kind}: {undefined}")).join("\n");
        assert_eq!(told[0], ("spec.validations[0].expression".to_owned(), first));
        assert_eq!(told[1].0, "spec.validations[0].messageExpression");
        assert!(
            told[1].1.contains("found no matching overload for '_+_' applied to '(int, string)'"),
            "{told:?}"
        );
        told.len() == 2
    })
    .await;

    // What cannot be looked up is not checked, and says so by an empty result.
    let stars = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
    create(&policies, policy("stars", stars, json!([{"expression": "object.nothing == 1"}]))).await;
    until(&policies, "stars", |policy| told(policy, 1) == Some(Vec::new())).await;
    let nobody = rule("no.such.group", json!(["things"]));
    create(&policies, policy("nobody", nobody, json!([{"expression": "object.nothing == 1"}]))).await;
    until(&policies, "nobody", |policy| told(policy, 1) == Some(Vec::new())).await;
    cluster.stop().await;
}

#[tokio::test]
async fn custom_resources_are_checked_by_their_definitions() {
    let cluster = Cluster::start(|_| {}).await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer"}}}}});
    let definition = json!({"metadata": {"name": "crontabs.stable.example.com"}, "spec": {"group": "stable.example.com",
        "scope": "Namespaced", "names": {"plural": "crontabs", "kind": "CronTab"}, "versions": [{"name": "v1",
            "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = cluster.all::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>();
    create(&definitions, definition).await;
    let policies = cluster.all::<ValidatingAdmissionPolicy>();
    let crontabs = rule("stable.example.com", json!(["crontabs"]));
    let validations = json!([{"expression": "object.spec.replicas > '1'"}, {"expression": "object.spec.replicas > 1"},
        {"expression": "object.spec.maxRetries < 10"}]);
    create(&policies, policy("tabs", crontabs, validations)).await;
    until(&policies, "tabs", |policy| {
        let Some(told) = told(policy, 1) else { return false };
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[0].0, "spec.validations[0].expression");
        assert!(told[0].1.starts_with("stable.example.com/v1, Kind=CronTab: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'"), "{told:?}");
        assert_eq!(told[1].0, "spec.validations[2].expression");
        assert!(told[1].1.contains("undefined field 'maxRetries'"), "{told:?}");
        true
    })
    .await;
    cluster.stop().await;
}
