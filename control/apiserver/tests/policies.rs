//! Admission policies: in force with the answer to their write, and bounded whatever they say.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::time::{Duration, Instant};

use podwire_apiserver::Identity;
use serde_json::{Value, json};
use server::{Answer, Server, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn policy(name: &str, change: Value) -> Value {
    let rule =
        json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let mut spec = json!({"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object == null || has(object.data)", "message": "no data"}]});
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn binding(name: &str, params: Value) -> Value {
    let mut spec = json!({"policyName": name, "validationActions": ["Deny"]});
    if params.is_object() {
        spec["paramRef"] = params;
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn enforce(server: &Server, name: &str, change: Value, params: Value) {
    for (path, object) in [(POLICIES, policy(name, change)), (BINDINGS, binding(name, params))] {
        let made = server.post(path, &object).await;
        assert_eq!((made.code, made.headers.get("warning")), (201, None), "{}", made.text);
    }
}

fn map(name: &str, data: Value) -> Value {
    let mut map = json!({"metadata": {"name": name}});
    if data.is_object() {
        map["data"] = data;
    }
    map
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_policy_is_in_force_with_its_binding_and_ends_with_it() {
    let server = start().await;
    assert_eq!(server.post(POLICIES, &policy("data", json!({}))).await.code, 201);
    assert_eq!(server.post(MAPS, &map("before", Value::Null)).await.code, 201);
    assert_eq!(server.post(BINDINGS, &binding("data", Value::Null)).await.code, 201);
    let refused = server.post(MAPS, &map("a", Value::Null)).await;
    assert_eq!((refused.code, &refused.body["reason"]), (422, &json!("Invalid")), "{}", refused.text);
    let words = "ValidatingAdmissionPolicy 'data' with binding 'data' denied request: no data";
    assert_eq!(message(&refused), format!("configmaps \"a\" is forbidden: {words}"));
    assert_eq!(refused.body["details"]["causes"], json!([{"message": words}]));
    assert_eq!(server.post(MAPS, &map("a", json!({"a": "1"}))).await.code, 201);
    for round in 0..5 {
        assert_eq!(server.delete(&format!("{BINDINGS}/data"), &Value::Null).await.code, 200);
        assert_eq!(server.post(MAPS, &map(&format!("b{round}"), Value::Null)).await.code, 201);
        assert_eq!(server.post(BINDINGS, &binding("data", Value::Null)).await.code, 201);
        assert_eq!(server.post(MAPS, &map("c", Value::Null)).await.code, 422);
    }
    server.stop().await;
}

#[tokio::test]
async fn parameters_of_custom_resources_are_those_that_are_stored_now() {
    let server = start().await;
    let schema = json!({"type": "object", "properties": {"most": {"type": "integer"}}});
    let definition = json!({"metadata": {"name": "limits.ex.com"}, "spec": {"group": "ex.com", "scope": "Cluster",
        "names": {"plural": "limits", "kind": "Limit"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
    let rule = json!({"paramKind": {"apiVersion": "ex.com/v1", "kind": "Limit"},
        "validations": [{"expression": "size(object.data) <= params.most",
            "messageExpression": "'at most ' + string(params.most)"}]});
    enforce(&server, "size", rule, json!({"name": "l", "parameterNotFoundAction": "Deny"})).await;
    let two = json!({"a": "1", "b": "2"});
    let unknown = server.post(MAPS, &map("a", two.clone())).await;
    let words = "failed to configure policy: failed to find resource referenced by paramKind: 'ex.com/v1, Kind=Limit'";
    assert!(message(&unknown).ends_with(words), "{}", unknown.text);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.post(definitions, &definition).await.code, 201);
    let none = server.post(MAPS, &map("a", two.clone())).await;
    assert!(message(&none).contains("no params found for policy binding with `Deny`"), "{}", none.text);
    let limit = json!({"apiVersion": "ex.com/v1", "kind": "Limit", "metadata": {"name": "l"}, "most": 1});
    assert_eq!(server.post("/apis/ex.com/v1/limits", &limit).await.code, 201);
    let refused = server.post(MAPS, &map("a", two.clone())).await;
    assert!(message(&refused).ends_with("denied request: at most 1"), "{}", refused.text);
    let more = json!({"most": 2});
    let patched = server.patch("/apis/ex.com/v1/limits/l", "application/merge-patch+json", &more).await;
    assert_eq!(patched.code, 200, "{}", patched.text);
    assert_eq!(server.post(MAPS, &map("a", two)).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn whatever_expressions_cost_ends_in_an_answer() {
    let server = start().await;
    let list: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    let list = format!("[{}]", list.join(","));
    let nested = |depth: usize| {
        (0..depth).fold("true".to_owned(), |inner, level| format!("{list}.all(v{level}, {inner})"))
    };
    // A step costs three, and there are 12^5 + 12^4 + ... of them: 836 977 with the results, below the limit of one
    // evaluation. All together do not stay below that of a policy.
    let variables: Vec<Value> =
        (0..20).map(|number| json!({"name": format!("v{number}"), "expression": nested(5)})).collect();
    let all: Vec<String> = (0..20).map(|number| format!("variables.v{number}")).collect();
    let rule = json!({"variables": variables, "validations": [{"expression": all.join(" && ")}]});
    enforce(&server, "dear", rule, Value::Null).await;
    let started = Instant::now();
    let refused = server.post(MAPS, &map("a", Value::Null)).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    let words =
        "validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(message(&refused).ends_with(words), "{}", refused.text);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    // Other requests are not held up, and the policy can be removed.
    assert_eq!(server.get("/api/v1/namespaces/default").await.code, 200);
    assert_eq!(server.delete(&format!("{BINDINGS}/dear"), &Value::Null).await.code, 200);
    assert_eq!(server.post(MAPS, &map("a", Value::Null)).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn chains_of_variables_are_bounded() {
    let server = start().await;
    let chain = |length: usize| {
        let first = json!({"name": "v0", "expression": "1"});
        let rest = (1..length)
            .map(|at| json!({"name": format!("v{at}"), "expression": format!("variables.v{} + 1", at - 1)}));
        let variables: Vec<Value> = std::iter::once(first).chain(rest).collect();
        let last = format!("variables.v{} == {length}", length - 1);
        json!({"variables": variables, "validations": [{"expression": last}]})
    };
    enforce(&server, "long", chain(500), Value::Null).await;
    assert_eq!(server.post(MAPS, &map("a", Value::Null)).await.code, 201);
    let refused = server.post(POLICIES, &policy("longer", chain(3_000))).await;
    assert_eq!(refused.code, 422);
    assert!(message(&refused).contains("too many variables build on each other"), "{}", &refused.text[..500]);
    server.stop().await;
}

#[tokio::test]
async fn who_may_not_read_parameters_binds_no_policy_to_them() {
    let server = start().await;
    let role = json!({"metadata": {"name": "author"}, "rules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let bound = json!({"metadata": {"name": "author"}, "subjects": [{"kind": "User", "name": "eve"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"}});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    assert_eq!(server.post(&format!("{rbac}/clusterroles"), &role).await.code, 201);
    assert_eq!(server.post(&format!("{rbac}/clusterrolebindings"), &bound).await.code, 201);
    let eve = server.client(Identity::new("eve", &[]));
    // What was granted a moment ago reaches the authorizer through the cache.
    let started = Instant::now();
    while server::send(&eve, "GET", POLICIES, &[], "").await.code != 200 {
        assert!(started.elapsed() < Duration::from_secs(10), "eve may not read policies");
        tokio::task::yield_now().await;
    }
    let post = async |path: &str, object: Value| {
        server::send(&eve, "POST", path, &[("content-type", "application/json")], object.to_string()).await
    };
    let of = |kind: &str| policy("p", json!({"paramKind": {"apiVersion": "v1", "kind": kind}}));
    let refused = post(POLICIES, of("Secret")).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    let words = "must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    assert!(message(&refused).contains(words), "{}", refused.text);
    let made = post(POLICIES, of("ConfigMap")).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let chosen = json!({"selector": {}, "parameterNotFoundAction": "Deny"});
    let refused = post(BINDINGS, binding("p", chosen)).await;
    let words = "does not have \"list\" permission on the object referenced by paramRef";
    assert!(message(&refused).contains(words), "{}", refused.text);
    let named = json!({"name": "x", "namespace": "default", "parameterNotFoundAction": "Deny"});
    assert_eq!(post(BINDINGS, binding("p", named)).await.code, 201);
    // Nor does who changes nothing but the rest of a binding that somebody else made.
    assert_eq!(
        server
            .post(BINDINGS, &binding("q", json!({"selector": {}, "parameterNotFoundAction": "Deny"})))
            .await
            .code,
        201
    );
    let label = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let patch = [("content-type", "application/merge-patch+json")];
    let refused = server::send(&eve, "PATCH", &format!("{BINDINGS}/q"), &patch, label).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    server.stop().await;
}

#[tokio::test]
async fn no_policy_stands_in_the_way_of_removing_policies() {
    let server = start().await;
    let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    let never =
        json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]});
    enforce(&server, "never", never, Value::Null).await;
    assert_eq!(server.post(MAPS, &map("a", Value::Null)).await.code, 422);
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let asked = server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
    assert_eq!(asked.code, 201, "{}", asked.text);
    // What is about nothing that is there changes nothing.
    let orphan = json!({"metadata": {"name": "orphan"}, "spec": {"policyName": "nobody", "validationActions": ["Deny"]}});
    assert_eq!(server.post(BINDINGS, &orphan).await.code, 201);
    assert_eq!(server.delete(&format!("{POLICIES}/never"), &Value::Null).await.code, 200);
    assert_eq!(server.post(MAPS, &map("a", Value::Null)).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_policy_whose_parameters_are_defined_no_more_refuses_until_it_goes() {
    let server = start().await;
    let definition = json!({"metadata": {"name": "limits.ex.com"}, "spec": {"group": "ex.com", "scope": "Cluster",
        "names": {"plural": "limits", "kind": "Limit"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(server.post(definitions, &definition).await.code, 201);
    let kind = json!({"apiVersion": "ex.com/v1", "kind": "Limit"});
    let rule = json!({"paramKind": kind, "validations": [{"expression": "params == null || true"}]});
    enforce(&server, "gone", rule, json!({"selector": {}, "parameterNotFoundAction": "Allow"})).await;
    assert_eq!(server.post(MAPS, &map("a", Value::Null)).await.code, 201);
    assert_eq!(server.delete(&format!("{definitions}/limits.ex.com"), &Value::Null).await.code, 200);
    let missing = async || {
        let answer = server.post(&format!("{MAPS}?dryRun=All"), &map("b", Value::Null)).await;
        message(&answer).contains("failed to find resource referenced by paramKind")
    };
    let started = Instant::now();
    while !missing().await {
        // The objects of the definition are removed first.
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "a definition that is gone still has parameters"
        );
        tokio::task::yield_now().await;
    }
    assert_eq!(server.delete(&format!("{BINDINGS}/gone"), &Value::Null).await.code, 200);
    assert_eq!(server.post(MAPS, &map("b", Value::Null)).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn whoever_writes_many_parameters_gets_an_answer_that_is_bounded() {
    let server = start().await;
    let rule = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "object == null || has(object.data)", "messageExpression": "'not as ' + params.metadata.name"}]});
    assert_eq!(server.post(POLICIES, &policy("many", rule)).await.code, 201);
    let labels = json!({"matchLabels": {"limit": "yes"}});
    let spec = json!({"policyName": "many", "validationActions": ["Warn"],
        "paramRef": {"selector": labels, "parameterNotFoundAction": "Deny"}});
    for number in 0..300 {
        let mut limit = map(&format!("limit-{number}"), json!({"a": "x".repeat(1_000)}));
        limit["metadata"]["labels"] = json!({"limit": "yes"});
        assert_eq!(server.post(MAPS, &limit).await.code, 201);
    }
    let made = server.post(BINDINGS, &json!({"metadata": {"name": "many"}, "spec": spec})).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let warned = server.post(MAPS, &map("a", Value::Null)).await;
    assert_eq!(warned.code, 201, "{}", warned.text);
    let told: Vec<&str> =
        warned.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    let size: usize = told.iter().map(|one| one.len()).sum();
    assert!(!told.is_empty() && size < 16 * 1024, "{} warnings of {size} bytes", told.len());
    assert!(told[0].contains("with binding 'many': not as limit-0"), "{}", told[0]);
    server.stop().await;
}
