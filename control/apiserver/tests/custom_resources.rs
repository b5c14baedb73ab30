//! Definitions and the objects of the kinds that they define.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use serde_json::{Value, json};
use server::{Answer, Server, send, start, start_in};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/ex.com/v1/namespaces/default/widgets";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
        "type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {
            "ready": {"type": "boolean"}, "replicas": {"type": "integer"}, "selector": {"type": "string"}}}}}}})
}

fn definition_of(plural: &str, kind: &str, versions: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.ex.com")},
        "spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, "versions": versions}})
}

fn spec() -> Value {
    json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
        "when": {"type": "string", "format": "date"},
        "rows": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
        "either": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "maybe": {"type": "string", "nullable": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }})
}

fn widgets() -> Value {
    definition_of("widgets", "Widget", json!([version("v1", true, spec())]))
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn define(server: &Server, definition: &Value) -> Value {
    let made = server.post(DEFINITIONS, definition).await;
    assert_eq!(made.code, 201, "{}", made.text);
    made.body
}

async fn with_widgets() -> Server {
    let server = start().await;
    define(&server, &widgets()).await;
    server
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

/// Waits for what another task does.
async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_defined_can_be_used_at_once_and_after_a_restart() {
    let server = start().await;
    assert_eq!(server.get(WIDGETS).await.code, 404);
    let made = define(&server, &widgets()).await;
    assert_eq!(
        made["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}),
        "the answer is upstream's"
    );
    assert_eq!(made["spec"]["names"]["listKind"], "WidgetList");
    let first = server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    assert_eq!(first.code, 201, "{}", first.text);
    assert_eq!(first.body["spec"], json!({"size": 1, "color": "red"}));
    assert_eq!(first.body["metadata"]["generation"], 1);
    let stored = server.get(&format!("{DEFINITIONS}/widgets.ex.com")).await.body;
    let conditions: Vec<_> = stored["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap(), c["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(
        conditions,
        [("NamesAccepted", "True", "NoConflicts"), ("Established", "True", "InitialNamesAccepted")]
    );
    assert_eq!(stored["status"]["acceptedNames"]["singular"], "widget");

    let dir = server.stop().await;
    let server = start_in(dir).await;
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.body, first.body, "known when the server is ready");
    assert_eq!(server.post(WIDGETS, &widget("b", json!({"size": 11}))).await.code, 422);
    let list = server.get(WIDGETS).await.body;
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("WidgetList"), &json!("Widget")));
    server.stop().await;
}

#[tokio::test]
async fn objects_are_held_against_their_schema() {
    let server = with_widgets().await;
    for (spec, told, reason) in [
        (json!({}), "spec.size: Required value", "FieldValueRequired"),
        (
            json!({"size": "x"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            "FieldValueTypeInvalid",
        ),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
            "FieldValueInvalid",
        ),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
            "FieldValueNotSupported",
        ),
        (
            json!({"size": 1, "name": "abcdef"}),
            "spec.name: Too long: may not be more than 5 bytes",
            "FieldValueTooLong",
        ),
        (
            json!({"size": 1, "name": "A"}),
            "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
            "FieldValueInvalid",
        ),
        (
            json!({"size": 1, "when": "soon"}),
            "spec.when: Invalid value: \"soon\": spec.when in body must be of type date: \"soon\"",
            "FieldValueTypeInvalid",
        ),
        (
            json!({"size": 1, "rows": [{"k": "a"}, {"k": "b"}, {"k": "c"}]}),
            "spec.rows: Too many: 3: must have at most 2 items",
            "FieldValueTooMany",
        ),
        (
            json!({"size": 1, "rows": [{"k": "a"}, {"k": "a"}]}),
            "spec.rows[1]: Duplicate value: {\"k\":\"a\"}",
            "FieldValueDuplicate",
        ),
        (
            json!({"size": 1, "either": {"a": "x", "b": "y"}}),
            "<nil>: Invalid value: \"\": \"spec.either\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            "FieldValueInvalid",
        ),
        (
            json!({"size": 1, "labels": {"a": 1}}),
            "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\"",
            "FieldValueTypeInvalid",
        ),
    ] {
        let refused = server.post(WIDGETS, &widget("x", spec.clone())).await;
        assert_eq!(refused.code, 422, "{spec}: {}", refused.text);
        assert_eq!(message(&refused), format!("Widget.ex.com \"x\" is invalid: {told}"), "{spec}");
        assert_eq!(refused.body["details"]["causes"][0]["reason"], reason, "{spec}");
    }
    let fine = json!({"size": 2, "port": "http", "maybe": null, "free": {"x": {"y": [1]}}, "color": null, "name": null});
    let made = server.post(WIDGETS, &widget("ok", fine)).await;
    assert_eq!(made.code, 201, "{}", made.text);
    assert_eq!(
        made.body["spec"],
        json!({"size": 2, "port": "http", "maybe": null, "free": {"x": {"y": [1]}}, "color": "red"})
    );
    server.stop().await;
}

#[tokio::test]
async fn what_was_wrong_before_and_is_the_same_is_not_held_against_an_update() {
    let server = start().await;
    let loose =
        json!({"type": "object", "properties": {"name": {"type": "string"}, "other": {"type": "string"}}});
    define(&server, &definition_of("widgets", "Widget", json!([version("v1", true, loose)]))).await;
    assert_eq!(server.post(WIDGETS, &widget("a", json!({"name": "TOO LONG"}))).await.code, 201);
    let tight = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name/maxLength", "value": 3}]);
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let changed = server.patch(&path, "application/json-patch+json", &tight).await;
    assert_eq!(changed.code, 200, "{}", changed.text);
    let same = server.patch(&format!("{WIDGETS}/a"), MERGE, &json!({"spec": {"other": "x"}})).await;
    assert_eq!(same.code, 200, "{}", same.text);
    let worse =
        server.patch(&format!("{WIDGETS}/a"), MERGE, &json!({"spec": {"name": "LONGER STILL"}})).await;
    assert_eq!(worse.code, 422, "{}", worse.text);
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_say_something_else_are_refused() {
    let server = with_widgets().await;
    let mut other = widget("g", json!({"size": 1}));
    other["kind"] = "Gadget".into();
    let refused = server.post(WIDGETS, &other).await;
    assert_eq!(
        (refused.code, message(&refused)),
        (422, "Gadget.ex.com \"g\" is invalid: kind: Invalid value: \"Gadget\": must be Widget"),
    );
    other["apiVersion"] = "ex.com/v2".into();
    let refused = server.post(WIDGETS, &other).await;
    assert_eq!(
        (refused.code, message(&refused)),
        (400, "the API version in the data (ex.com/v2) does not match the expected API version (ex.com/v1)")
    );
    let refused = server.post(WIDGETS, &json!({"metadata": {"name": "g"}})).await;
    assert!(
        refused.code == 400 && message(&refused).contains("Object 'Kind' is missing in"),
        "{}",
        refused.text
    );
    let unknown = json!({"size": 1, "bogus": 1, "rows": [{"k": "a", "zz": 1}]});
    let mut body = widget("g", unknown);
    body["metadata"]["bad"] = 1.into();
    let strict = server.post(&format!("{WIDGETS}?fieldValidation=Strict"), &body).await;
    assert_eq!(
        (strict.code, message(&strict)),
        (
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \
             \"metadata.bad\", unknown field \"spec.bogus\", unknown field \"spec.rows[0].zz\""
        )
    );
    let put = server.put(&format!("{WIDGETS}/g"), &widget("g", json!({"size": 1}))).await;
    assert_eq!(put.code, 404, "nothing is created by an update: {}", put.text);
    server.stop().await;
}

#[tokio::test]
async fn definitions_that_are_wrong_are_refused_with_upstreams_words() {
    let server = start().await;
    let refuse = async |change: &dyn Fn(&mut Value)| {
        let mut wrong = widgets();
        change(&mut wrong);
        let answer = server.post(DEFINITIONS, &wrong).await;
        assert_eq!(answer.code, 422, "{}", answer.text);
        message(&answer).split_once(" is invalid: ").unwrap().1.to_owned()
    };
    const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";
    let at = |path: &str, value: Value| {
        let path = path.to_owned();
        move |definition: &mut Value| {
            let (parent, key) = path.rsplit_once('/').unwrap();
            definition.pointer_mut(parent).unwrap()[key] = value.clone();
        }
    };
    for (path, value, told) in [
        (
            "/metadata/name".to_owned(),
            json!("x.ex.com"),
            "metadata.name: Invalid value: \"x.ex.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            "/spec/scope".to_owned(),
            json!("Some"),
            "spec.scope: Unsupported value: \"Some\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            "/spec/versions/0/schema".to_owned(),
            json!({}),
            "spec.versions[0].schema.openAPIV3Schema: Required value",
        ),
        (
            "/spec/versions/0/storage".to_owned(),
            json!(false),
            "[spec.versions: Invalid value: [{\"Name\":\"v1\",",
        ),
        (
            format!("{SCHEMA}/type"),
            json!("string"),
            "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root",
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/size"),
            json!({"minimum": 1}),
            "spec.validation.openAPIV3Schema.properties[spec].properties[size].type: Required value: must not be empty for specified object fields",
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/name/pattern"),
            json!("("),
            "spec.validation.openAPIV3Schema.properties[spec].properties[name].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: ",
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/color/default"),
            json!("green"),
            "spec.validation.openAPIV3Schema.properties[spec].properties[color].default: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/free/uniqueItems"),
            json!(true),
            "spec.validation.openAPIV3Schema.properties[spec].properties[free].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            format!("{SCHEMA}/anyOf"),
            json!([{"properties": {"nowhere": {"minimum": 1}}}]),
            "spec.validation.openAPIV3Schema.properties[nowhere]: Required value: because it is defined in spec.validation.openAPIV3Schema.anyOf[0].properties[nowhere]",
        ),
        (
            format!("{SCHEMA}/properties/spec/x-kubernetes-validations"),
            json!([{"rule": "self.nowhere"}]),
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.nowhere\",",
        ),
        (
            format!("{SCHEMA}/properties/spec/x-kubernetes-validations"),
            json!([{"rule": "self.size"}]),
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.size\",",
        ),
        (
            format!("{SCHEMA}/properties/spec/properties/labels/x-kubernetes-validations"),
            json!([{"rule": "self.all(a, self.all(b, self[a] != self[b] || a == b))"}]),
            "[spec.validation.openAPIV3Schema.properties[spec].properties[labels].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of ",
        ),
        (
            "/spec/conversion".to_owned(),
            json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "http://a"}}}),
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": ",
        ),
    ] {
        let text = refuse(&at(&path, value)).await;
        assert!(text.starts_with(told), "{path}: {text}");
    }
    let mut grouped = widgets();
    grouped["spec"]["group"] = "ex.k8s.io".into();
    grouped["metadata"]["name"] = "widgets.ex.k8s.io".into();
    let protected = server.post(DEFINITIONS, &grouped).await;
    assert!(message(&protected).contains("metadata.annotations[api-approved.kubernetes.io]: Required value"));
    server.stop().await;
}

#[tokio::test]
async fn a_definition_whose_names_are_taken_waits_for_them() {
    let server = with_widgets().await;
    let second = definition_of("gadgets", "Widget", json!([version("v1", true, spec())]));
    define(&server, &second).await;
    let path = format!("{DEFINITIONS}/gadgets.ex.com");
    let status = server.get(&path).await.body["status"].clone();
    assert_eq!(
        (&status["conditions"][0]["reason"], &status["conditions"][1]["reason"]),
        (&json!("ListKindConflict"), &json!("NotAccepted"))
    );
    assert_eq!(server.get("/apis/ex.com/v1/gadgets").await.code, 404);
    assert_eq!(server.delete(&format!("{DEFINITIONS}/widgets.ex.com"), &Value::Null).await.code, 200);
    eventually("the names are given on", || async {
        server.get("/apis/ex.com/v1/gadgets").await.code == 200
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn status_and_scale_have_their_own_doors() {
    let server = start().await;
    let mut one = version(
        "v1",
        true,
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "x": {"type": "string"}}}),
    );
    one["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    define(&server, &definition_of("widgets", "Widget", json!([one]))).await;
    let mut body = widget("a", json!({"replicas": 2}));
    body["status"] = json!({"ready": true});
    let made = server.post(WIDGETS, &body).await;
    assert_eq!((made.code, made.body.get("status")), (201, None), "{}", made.text);
    let path = format!("{WIDGETS}/a");
    let status = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 9},
                        "status": {"ready": true, "replicas": 1, "selector": "a=b"}});
    let written = server.patch(&format!("{path}/status"), MERGE, &status).await;
    assert_eq!((written.code, &written.body["status"]["ready"]), (200, &json!(true)), "{}", written.text);
    assert_eq!(written.body["spec"]["replicas"], 2);
    assert_eq!(
        (written.body["metadata"].get("labels"), &written.body["metadata"]["generation"]),
        (None, &json!(1))
    );
    let wrong = server.patch(&format!("{path}/status"), MERGE, &json!({"status": {"ready": "yes"}})).await;
    assert_eq!(
        message(&wrong),
        "Widget.ex.com \"a\" is invalid: status.ready: Invalid value: \"string\": ready in body must be of type boolean: \"string\""
    );
    let main = server.patch(&path, MERGE, &json!({"spec": {"x": "y"}, "status": {"ready": false}})).await;
    assert_eq!(
        (&main.body["status"]["ready"], &main.body["metadata"]["generation"]),
        (&json!(true), &json!(2))
    );

    let scale = server.get(&format!("{path}/scale")).await.body;
    assert_eq!(
        (&scale["kind"], &scale["spec"], &scale["status"]),
        (&json!("Scale"), &json!({"replicas": 2}), &json!({"replicas": 1, "selector": "a=b"}))
    );
    let scaled = server.patch(&format!("{path}/scale"), MERGE, &json!({"spec": {"replicas": 5}})).await;
    assert_eq!((scaled.code, &scaled.body["spec"]["replicas"]), (200, &json!(5)), "{}", scaled.text);
    let after = server.get(&path).await.body;
    assert_eq!((&after["spec"]["replicas"], &after["metadata"]["generation"]), (&json!(5), &json!(3)));
    server.patch(&path, MERGE, &json!({"spec": {"replicas": null}})).await;
    let missing = server.get(&format!("{path}/scale")).await;
    assert_eq!(missing.code, 500, "{}", missing.text);
    server.stop().await;
}

#[tokio::test]
async fn tables_selectors_and_discovery_follow_the_definition() {
    let server = start().await;
    let mut one = version("v1", true, spec());
    one["additionalPrinterColumns"] = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": ".spec.rows[?(@.k==\"b\")].v", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    one["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    let mut definition = definition_of("widgets", "Widget", json!([one]));
    definition["spec"]["names"]["shortNames"] = json!(["wd"]);
    definition["spec"]["names"]["categories"] = json!(["all"]);
    define(&server, &definition).await;
    server.post(WIDGETS, &widget("a", json!({"size": 4, "rows": [{"k": "b", "v": 7}]}))).await;
    server.post(WIDGETS, &widget("b", json!({"size": 5, "color": "blue"}))).await;
    let table = send(&server.admin, "GET", WIDGETS, &[("accept", TABLE)], "").await.body;
    let names: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Size", "Ready", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("a"), json!(4), json!("7")]);
    let blue = server.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dblue")).await.body;
    assert_eq!(blue["items"].as_array().unwrap().len(), 1);
    let unknown = server.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D4")).await;
    assert_eq!((unknown.code, message(&unknown)), (400, "field label not supported: spec.size"));
    let resources = server.get("/apis/ex.com/v1").await.body["resources"].clone();
    assert_eq!(
        (&resources[0]["shortNames"], &resources[0]["categories"], &resources[0]["verbs"]),
        (
            &json!(["wd"]),
            &json!(["all"]),
            &json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"])
        )
    );
    let document = server.get("/openapi/v3/apis/ex.com/v1").await.body;
    let schema = &document["components"]["schemas"]["com.ex.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["maximum"], 10);
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert!(document["components"]["schemas"]["com.ex.v1.WidgetList"].is_object());
    let older = server.get("/openapi/v2").await.body;
    let spec = &older["definitions"]["com.ex.v1.Widget"]["properties"]["spec"]["properties"];
    assert_eq!((spec["either"].get("oneOf"), &spec["size"]["type"]), (None, &json!("integer")));
    server.stop().await;
}

#[tokio::test]
async fn versions_are_served_side_by_side_and_stored_in_one() {
    let server = start().await;
    let old = json!({"type": "object", "properties": {"a": {"type": "string"}, "both": {"type": "string"}}});
    let new = json!({"type": "object", "properties": {"b": {"type": "string", "default": "x"}, "both": {"type": "string"}}});
    let mut first = version("v1beta1", false, old);
    first["deprecated"] = true.into();
    define(&server, &definition_of("widgets", "Widget", json!([first, version("v1", true, new)]))).await;
    let groups = server.get("/apis/ex.com").await.body;
    assert_eq!(groups["preferredVersion"]["version"], "v1");
    let beta = "/apis/ex.com/v1beta1/namespaces/default/widgets";
    let mut body = widget("w", json!({"a": "1", "both": "2"}));
    body["apiVersion"] = "ex.com/v1beta1".into();
    let made = server.post(beta, &body).await;
    assert_eq!(
        (made.code, &made.body["spec"]),
        (201, &json!({"both": "2"})),
        "what the stored version does not have is lost: {}",
        made.text
    );
    let warned = made.headers["warning"].to_str().unwrap();
    assert_eq!(warned, "299 - \"ex.com/v1beta1 Widget is deprecated; use ex.com/v1 Widget\"");
    let seen = server.get(&format!("{WIDGETS}/w")).await.body;
    assert_eq!((&seen["apiVersion"], &seen["spec"]["both"]), (&json!("ex.com/v1"), &json!("2")));
    assert_eq!(seen["spec"]["b"], "x", "defaults come from the version that is stored");
    let again = server.get(beta).await.body;
    assert_eq!(again["items"][0]["spec"], json!({"both": "2"}));
    assert_eq!(again["items"][0]["apiVersion"], "ex.com/v1beta1");

    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let mut definition = server.get(&path).await.body;
    definition["spec"]["versions"][0]["storage"] = true.into();
    definition["spec"]["versions"][1]["storage"] = false.into();
    let changed = server.put(&path, &definition).await;
    assert_eq!(changed.body["status"]["storedVersions"], json!(["v1", "v1beta1"]), "{}", changed.text);
    let mut definition = changed.body;
    definition["spec"]["versions"].as_array_mut().unwrap().pop();
    definition["metadata"]["resourceVersion"] =
        server.get(&path).await.body["metadata"]["resourceVersion"].clone();
    let refused = server.put(&path, &definition).await;
    assert!(
        message(&refused)
            .contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was"),
        "{}",
        refused.text
    );
    server.stop().await;
}

#[tokio::test]
async fn server_side_apply_merges_as_the_schema_says() {
    let server = with_widgets().await;
    let path = |manager: &str| format!("{WIDGETS}/a?fieldManager={manager}");
    let one = server
        .patch(&path("one"), APPLY, &widget("a", json!({"size": 1, "rows": [{"k": "x", "v": 1}]})))
        .await;
    assert_eq!(one.code, 201, "{}", one.text);
    let two = server.patch(&path("two"), APPLY, &widget("a", json!({"rows": [{"k": "y", "v": 2}]}))).await;
    assert_eq!(two.code, 200, "{}", two.text);
    assert_eq!(two.body["spec"]["rows"], json!([{"k": "x", "v": 1}, {"k": "y", "v": 2}]));
    assert_eq!(two.body["spec"]["color"], "red", "defaults come with every write");
    let conflict =
        server.patch(&path("two"), APPLY, &widget("a", json!({"rows": [{"k": "x", "v": 3}]}))).await;
    assert_eq!(conflict.code, 409, "{}", conflict.text);
    server.stop().await;
}

#[tokio::test]
async fn a_changed_definition_is_served_at_once_and_ends_watches() {
    use http_body_util::BodyExt;
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    let mut watch =
        server::raw(&server.admin, "GET", &format!("{WIDGETS}?watch=true"), &[], "").await.into_body();
    watch.frame().await.unwrap().unwrap();
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let more = json!([
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/extra",
         "value": {"type": "string", "default": "new"}},
        {"op": "add", "path": "/spec/versions/0/selectableFields", "value": [{"jsonPath": ".spec.extra"}]}]);
    let changed = server.patch(&path, "application/json-patch+json", &more).await;
    assert_eq!((changed.code, &changed.body["metadata"]["generation"]), (200, &json!(2)), "{}", changed.text);
    let end = tokio::time::timeout(Duration::from_secs(10), watch.frame()).await.expect("the watch ends");
    assert!(end.is_none(), "watches of the old kind end");
    let seen = server.get(&format!("{WIDGETS}/a")).await.body;
    assert_eq!(seen["spec"]["extra"], "new", "what is stored gets its defaults when it is read");
    server.post(WIDGETS, &widget("b", json!({"size": 1, "extra": "other"}))).await;
    let found = server.get(&format!("{WIDGETS}?fieldSelector=spec.extra%3Dother")).await.body;
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "the new field can be selected by");
    server.stop().await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let server = with_widgets().await;
    server.post(WIDGETS, &widget("a", json!({"size": 1}))).await;
    let mut held = widget("held", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["ex.com/hold"]);
    assert_eq!(server.post(WIDGETS, &held).await.code, 201);
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let going = server.delete(&path, &Value::Null).await;
    assert_eq!(going.code, 200, "{}", going.text);
    assert_eq!(going.body["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(going.body["status"]["conditions"][2]["reason"], "InstanceDeletionPending");
    eventually("the free one is gone", || async { server.get(&format!("{WIDGETS}/a")).await.code == 404 })
        .await;
    let refused = server.post(WIDGETS, &widget("late", json!({"size": 1}))).await;
    assert_eq!(
        (refused.code, message(&refused)),
        (
            403,
            "widgets.ex.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
        )
    );
    assert_eq!(server.get(&path).await.code, 200, "it waits for what is held");
    let freed =
        server.patch(&format!("{WIDGETS}/held"), MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(freed.code, 200, "{}", freed.text);
    eventually("the definition is gone", || async { server.get(&path).await.code == 404 }).await;
    eventually("the kind is gone", || async { server.get(WIDGETS).await.code == 404 }).await;
    define(&server, &widgets()).await;
    assert_eq!(server.get(WIDGETS).await.body["items"], json!([]), "nothing is left of them");
    server.stop().await;
}

/// A definition with rules at several places.
fn ruled() -> Value {
    let spec = json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "name stays"}]},
        "rows": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 10}, "v": {"type": "integer"}},
                "x-kubernetes-validations": [
                    {"rule": "!has(self.v) || self.v > 0", "messageExpression": "'row ' + self.k + ' is not positive'", "fieldPath": ".v"},
                    {"rule": "!has(oldSelf.v) || self.v >= oldSelf.v", "reason": "FieldValueForbidden", "message": "rows only grow"}]}},
        "once": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true, "message": "begins with first"}]},
    }, "x-kubernetes-validations": [{"rule": "!has(self.min) || !has(self.max) || self.min <= self.max"}]});
    definition_of("widgets", "Widget", json!([version("v1", true, spec)]))
}

#[tokio::test]
async fn rules_are_asked_about_new_and_changed_objects() {
    let server = start().await;
    define(&server, &ruled()).await;
    for (spec, told) in [
        (
            json!({"min": 3, "max": 2}),
            "spec: Invalid value: failed rule: !has(self.min) || !has(self.max) || self.min <= self.max",
        ),
        (json!({"rows": [{"k": "a", "v": 0}]}), "spec.rows[0].v: Invalid value: row a is not positive"),
        (json!({"once": "second"}), "spec.once: Invalid value: \"second\": begins with first"),
    ] {
        let refused = server.post(WIDGETS, &widget("x", spec)).await;
        assert_eq!(message(&refused), format!("Widget.ex.com \"x\" is invalid: {told}"));
    }
    let blocked = server.post(WIDGETS, &widget("x", json!({"min": "x"}))).await;
    let causes = blocked.body["details"]["causes"].as_array().unwrap().clone();
    assert!(
        causes[1]["message"].as_str().unwrap().contains("some validation rules were not checked"),
        "{}",
        blocked.text
    );
    let made = server
        .post(
            WIDGETS,
            &widget(
                "a",
                json!({"min": 1, "max": 2, "name": "n", "once": "first", "rows": [{"k": "a", "v": 5}]}),
            ),
        )
        .await;
    assert_eq!(made.code, 201, "{}", made.text);
    let path = format!("{WIDGETS}/a");
    let renamed = server.patch(&path, MERGE, &json!({"spec": {"name": "m"}})).await;
    assert_eq!(
        message(&renamed),
        "Widget.ex.com \"a\" is invalid: spec.name: Invalid value: \"m\": name stays"
    );
    let shrunk = server
        .patch(&path, MERGE, &json!({"spec": {"rows": [{"k": "b", "v": 1}, {"k": "a", "v": 4}]}}))
        .await;
    assert_eq!(message(&shrunk), "Widget.ex.com \"a\" is invalid: spec.rows[1]: Forbidden: rows only grow");
    let grown = server
        .patch(&path, MERGE, &json!({"spec": {"rows": [{"k": "b", "v": 1}, {"k": "a", "v": 6}]}}))
        .await;
    assert_eq!(grown.code, 200, "{}", grown.text);
    let later = server.patch(&path, MERGE, &json!({"spec": {"once": "later"}})).await;
    assert_eq!(later.code, 200, "{}", later.text);

    // Rules that come later are not held against what stays as it is.
    let stricter = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/min/x-kubernetes-validations",
                           "value": [{"rule": "self > 100"}]}]);
    let changed = server
        .patch(&format!("{DEFINITIONS}/widgets.ex.com"), "application/json-patch+json", &stricter)
        .await;
    assert_eq!(changed.code, 200, "{}", changed.text);
    assert_eq!(server.patch(&path, MERGE, &json!({"spec": {"max": 9}})).await.code, 200);
    let refused = server.patch(&path, MERGE, &json!({"spec": {"min": 2}})).await;
    assert_eq!(
        message(&refused),
        "Widget.ex.com \"a\" is invalid: spec.min: Invalid value: 2: failed rule: self > 100"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_format_that_means_nothing_is_told() {
    let server = start().await;
    let odd = json!({"type": "object", "properties": {"a": {"type": "string", "format": "nope"}}});
    let definition = definition_of("widgets", "Widget", json!([version("v1", true, odd)]));
    for query in ["?dryRun=All", ""] {
        let made = server.post(&format!("{DEFINITIONS}{query}"), &definition).await;
        assert_eq!(made.code, 201, "{}", made.text);
        let told = made.headers.get("warning").map(|text| text.to_str().unwrap());
        assert_eq!(told, Some("299 - \"unrecognized format \\\"nope\\\"\""), "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn built_in_kinds_keep_their_place() {
    let server = start().await;
    let mut taken = definition_of("ingresses", "Ingress", json!([version("v1", true, spec())]));
    taken["metadata"] = json!({"name": "ingresses.networking.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
    taken["spec"]["group"] = "networking.k8s.io".into();
    define(&server, &taken).await;
    let list = server.get("/apis/networking.k8s.io/v1/ingresses").await;
    assert_eq!((list.code, &list.body["kind"]), (200, &json!("IngressList")));
    let resources = server.get("/apis/networking.k8s.io/v1").await.body["resources"].clone();
    let shown = resources.as_array().unwrap().iter().filter(|r| r["name"] == "ingresses").count();
    assert_eq!(shown, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_schema_bomb_is_bounded() {
    let server = start().await;
    let many: serde_json::Map<String, Value> =
        (0..10_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let wide = json!({"type": "object", "properties": many});
    define(&server, &definition_of("widgets", "Widget", json!([version("v1", true, wide)]))).await;
    assert_eq!(server.post(WIDGETS, &widget("a", json!({"p9999": "x"}))).await.code, 201);
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "object", "properties": {"d": deep}});
    }
    let refused =
        server.post(DEFINITIONS, &definition_of("deeps", "Deep", json!([version("v1", true, deep)]))).await;
    assert_eq!(refused.code, 400, "{}", refused.text);
    let pattern = json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "((a{1000}){1000}){1000}"}}});
    let refused = server
        .post(DEFINITIONS, &definition_of("bombs", "Bomb", json!([version("v1", true, pattern)])))
        .await;
    assert_eq!(refused.code, 422, "{}", &refused.text[..refused.text.len().min(500)]);
    server.stop().await;
}
