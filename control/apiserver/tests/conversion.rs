//! Conversion webhooks: objects are stored in one version and read, written, listed, watched and selected in another,
//! as a real server behind TLS on loopback converts them; what it may not do is refused, and when it is away only its own
//! kind is.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;
#[path = "support/webhook.rs"]
mod webhook;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::{Answer, Server, Watch, start, start_in};
use webhook::{Reply, Webhook};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/ex.com/v1/namespaces/default/widgets";
const V2: &str = "/apis/ex.com/v2/namespaces/default/widgets";
const MERGE: &str = "application/merge-patch+json";

fn version(name: &str, storage: bool, spec: &Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": if name == "v1" { ".spec.count" } else { ".spec.scale.count" },
            "statusReplicasPath": ".status.count"}},
        "additionalPrinterColumns": [{"name": "Host", "type": "string",
            "jsonPath": if name == "v1" { ".spec.host" } else { ".spec.address.host" }}],
        "selectableFields": [{"jsonPath": if name == "v1" { ".spec.host" } else { ".spec.address.host" }}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"count": {"type": "integer"}}}}}},
    })
}

/// Two versions: in the first the host is a field, in the second it lies in an address.
fn definition(client: &Value, storage: &str) -> Value {
    let first = json!({"host": {"type": "string"}, "count": {"type": "integer"},
        "color": {"type": "string", "default": "red"}});
    let second = json!({"address": {"type": "object", "properties": {"host": {"type": "string"}}},
        "scale": {"type": "object", "properties": {"count": {"type": "integer"}}},
        "color": {"type": "string"}, "shape": {"type": "string", "default": "round"}});
    json!({"metadata": {"name": "widgets.ex.com"}, "spec": {
        "group": "ex.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version("v1", storage == "v1", &first), version("v2", storage == "v2", &second)],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": client}}}})
}

/// One object in the other version.
fn converted(object: &Value, desired: &str) -> Value {
    let mut out = object.clone();
    out["apiVersion"] = desired.into();
    let spec = &object["spec"];
    let mut made = match desired {
        "ex.com/v2" => json!({"address": {"host": spec["host"]}, "scale": {"count": spec["count"]}}),
        _ => json!({"host": spec["address"]["host"], "count": spec["scale"]["count"]}),
    };
    for key in ["color", "shape"] {
        made[key] = spec[key].clone();
    }
    out["spec"] = made;
    out
}

fn answer(review: &Value, objects: Vec<Value>) -> Reply {
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": {
        "uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}}))
}

fn all(review: &Value) -> Vec<Value> {
    let desired = review["request"]["desiredAPIVersion"].as_str().unwrap();
    review["request"]["objects"].as_array().unwrap().iter().map(|object| converted(object, desired)).collect()
}

fn convert(review: &Value) -> Reply {
    answer(review, all(review))
}

fn widget(version: &str, name: &str, host: &str) -> Value {
    let spec = match version {
        "v1" => json!({"host": host, "count": 2}),
        _ => json!({"address": {"host": host}, "scale": {"count": 2}}),
    };
    json!({"apiVersion": format!("ex.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// A server with the definition and its webhook.
async fn begun(storage: &str) -> (Server, Webhook) {
    let server = start().await;
    let hook = Webhook::start(&server.pki, convert).await;
    let made = server.post(DEFINITIONS, &definition(&hook.client(), storage)).await;
    assert_eq!(made.code, 201, "{}", made.text);
    (server, hook)
}

async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn an_object_is_stored_in_one_version_and_read_and_written_in_another() {
    let (server, hook) = begun("v1").await;
    let made = server.post(V2, &widget("v2", "a", "one")).await;
    assert_eq!((made.code, &made.body["spec"]["address"]["host"]), (201, &json!("one")), "{}", made.text);
    assert_eq!(made.body["spec"].get("shape"), None, "what the stored version does not know is lost");
    assert_eq!(made.body["spec"]["color"], "red", "the stored version's default is there when it is read");
    let review = hook.asked()[0].clone();
    assert_eq!(
        (&review["apiVersion"], &review["kind"]),
        (&json!("apiextensions.k8s.io/v1"), &json!("ConversionReview"))
    );
    let request = &review["request"];
    assert_eq!(request["desiredAPIVersion"], "ex.com/v1");
    assert!(request["uid"].as_str().is_some_and(|uid| uid.len() == 36));
    assert_eq!(request["objects"].as_array().unwrap().len(), 1);
    assert_eq!(request["objects"][0]["spec"]["shape"], "round", "it has the defaults of its own version");
    assert_eq!(request["objects"][0]["metadata"].get("resourceVersion"), None);

    let asked = hook.asked().len();
    let stored = server.get(&format!("{V1}/a")).await;
    assert_eq!(stored.body["spec"], json!({"host": "one", "count": 2, "color": "red"}));
    assert_eq!(stored.body["apiVersion"], "ex.com/v1");
    assert_eq!(hook.asked().len(), asked, "nobody is asked about the stored version");

    let path = format!("{V2}/a");
    let mut read = server.get(&path).await.body;
    assert_eq!(read["metadata"]["uid"], stored.body["metadata"]["uid"]);
    assert_eq!(read["metadata"]["resourceVersion"], stored.body["metadata"]["resourceVersion"]);
    read["spec"]["address"]["host"] = "two".into();
    let put = server.put(&path, &read).await;
    assert_eq!((put.code, &put.body["spec"]["address"]["host"]), (200, &json!("two")), "{}", put.text);
    assert_eq!(put.body["metadata"]["generation"], 2);
    let patched = server.patch(&path, MERGE, &json!({"spec": {"address": {"host": "three"}}})).await;
    assert_eq!((patched.code, &patched.body["spec"]["address"]["host"]), (200, &json!("three")));
    assert_eq!(server.get(&format!("{V1}/a")).await.body["spec"]["host"], "three");

    let status = server.patch(&format!("{path}/status"), MERGE, &json!({"status": {"count": 7}})).await;
    assert_eq!((status.code, &status.body["status"]["count"]), (200, &json!(7)), "{}", status.text);
    let scale = server.get(&format!("{path}/scale")).await;
    assert_eq!((&scale.body["spec"]["replicas"], &scale.body["status"]["replicas"]), (&json!(2), &json!(7)));
    let scaled = server.patch(&format!("{path}/scale"), MERGE, &json!({"spec": {"replicas": 5}})).await;
    assert_eq!((scaled.code, &scaled.body["spec"]["replicas"]), (200, &json!(5)), "{}", scaled.text);
    assert_eq!(server.get(&format!("{V1}/a")).await.body["spec"]["count"], 5);

    assert_eq!(server.delete(&path, &Value::Null).await.code, 200);
    assert_eq!(server.get(&format!("{V1}/a")).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_list_is_one_review_and_is_selected_by_what_the_asked_version_says() {
    let (server, hook) = begun("v1").await;
    for (name, host) in [("a", "one"), ("b", "two"), ("c", "one")] {
        assert_eq!(server.post(V1, &widget("v1", name, host)).await.code, 201);
    }
    assert_eq!(hook.asked().len(), 0);
    let names = |answer: &Answer| -> Vec<String> {
        let items = answer.body["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = server.get(V2).await;
    assert_eq!(names(&listed), ["a", "b", "c"]);
    assert_eq!(listed.body["apiVersion"], "ex.com/v2");
    assert_eq!(listed.body["items"][1]["apiVersion"], "ex.com/v2");
    assert_eq!(listed.body["items"][1]["spec"]["address"]["host"], "two");
    assert_eq!(hook.asked().len(), 1, "one review for all of them");
    assert_eq!(hook.asked()[0]["request"]["objects"].as_array().unwrap().len(), 3);
    assert_eq!(server.get(V2).await.text, listed.text);
    assert_eq!(hook.asked().len(), 1, "what was made of them is kept");

    let chosen = server.get(&format!("{V2}?fieldSelector=spec.address.host%3Done")).await;
    assert_eq!(names(&chosen), ["a", "c"], "{}", chosen.text);
    assert_eq!(server.get(&format!("{V2}?fieldSelector=spec.host%3Done")).await.code, 400);
    assert_eq!(names(&server.get(&format!("{V1}?fieldSelector=spec.host%3Dtwo")).await), ["b"]);
    let first = server.get(&format!("{V2}?limit=2")).await;
    let token = first.body["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&first), ["a", "b"]);
    let rest = server.get(&format!("{V2}?limit=2&continue={token}")).await;
    assert_eq!(
        (names(&rest), &rest.body["items"][0]["apiVersion"]),
        (vec!["c".to_owned()], &json!("ex.com/v2"))
    );
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = server::send(&server.admin, "GET", V2, &[("accept", table)], "").await;
    assert_eq!(table.body["rows"][1]["cells"], json!(["b", "two"]));
    let gone = server.delete(&format!("{V2}?fieldSelector=spec.address.host%3Done"), &Value::Null).await;
    assert_eq!((gone.code, names(&gone)), (200, vec!["a".to_owned(), "c".to_owned()]));
    assert_eq!(names(&server.get(V2).await), ["b"]);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_shows_the_asked_version_and_ends_with_an_error_that_says_why() {
    let (server, hook) = begun("v1").await;
    server.post(V1, &widget("v1", "a", "one")).await;
    let mut watch =
        Watch::open(&server.admin, &format!("{V2}?watch=1&fieldSelector=spec.address.host%3Done")).await;
    let first = watch.next().await.unwrap();
    assert_eq!((&first["type"], &first["object"]["apiVersion"]), (&json!("ADDED"), &json!("ex.com/v2")));
    assert_eq!(first["object"]["spec"]["address"]["host"], "one");
    server.patch(&format!("{V1}/a"), MERGE, &json!({"spec": {"host": "two"}})).await;
    let left = watch.next().await.unwrap();
    assert_eq!(
        (&left["type"], &left["object"]["spec"]["address"]["host"]),
        (&json!("DELETED"), &json!("one")),
        "it has left what is selected"
    );
    server.patch(&format!("{V1}/a"), MERGE, &json!({"spec": {"host": "one"}})).await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
    hook.answer(|_| Reply::Raw(500, "no".into()));
    server.patch(&format!("{V1}/a"), MERGE, &json!({"spec": {"count": 9}})).await;
    let failed = watch.next().await.unwrap();
    assert_eq!((&failed["type"], &failed["object"]["code"]), (&json!("ERROR"), &json!(500)), "{failed}");
    assert!(
        failed["object"]["message"]
            .as_str()
            .unwrap()
            .starts_with("conversion webhook for ex.com/v1, Kind=Widget failed: "),
        "{failed}"
    );
    assert!(watch.next().await.is_none(), "the watch ends");
    let mut own = Watch::open(&server.admin, &format!("{V1}?watch=1")).await;
    assert_eq!(own.next().await.unwrap()["object"]["spec"]["count"], 9, "the stored version needs nobody");
    server.stop().await;
}

#[tokio::test]
async fn what_a_webhook_may_not_do_is_refused_and_nothing_else_is_affected() {
    let (server, hook) = begun("v1").await;
    server.post(V1, &widget("v1", "a", "one")).await;
    let path = format!("{V2}/a");
    let change = |change: fn(&mut Value)| {
        hook.answer(move |review| {
            let mut objects = all(review);
            objects.iter_mut().for_each(change);
            answer(review, objects)
        });
    };
    let said = async |words: &str| {
        let read = server.get(&path).await;
        assert_eq!((read.code, read.body.get("reason")), (500, None), "{}", read.text);
        let wanted = format!("conversion webhook for ex.com/v1, Kind=Widget {words}");
        assert!(message(&read).starts_with(&wanted), "{} is not {wanted}", message(&read));
        let listed = server.get(V2).await;
        assert_eq!(listed.code, 500);
        assert!(message(&listed).starts_with(&wanted), "{} is not {wanted}", message(&listed));
        assert_eq!(server.get(&format!("{V1}/a")).await.code, 200);
        assert_eq!(server.get("/api/v1/namespaces/default/configmaps").await.code, 200);
    };
    change(|object| object["metadata"]["name"] = "b".into());
    said("returned invalid object: must have the same name: a != b").await;
    change(|object| object["metadata"]["uid"] = "b".into());
    said("returned invalid object: must have the same UID: ").await;
    change(|object| object["apiVersion"] = "ex.com/v3".into());
    said("returned invalid object at index 0: invalid groupVersion (expected ex.com/v2, received ex.com/v3)")
        .await;
    change(|object| object["kind"] = "Gadget".into());
    said("returned invalid object at index 0: invalid kind (expected Widget, received Gadget)").await;
    change(|object| object["metadata"]["labels"] = json!({"a": "?"}));
    said("returned invalid metadata: metadata.labels: Invalid value: \"?\"").await;
    hook.answer(|review| answer(review, Vec::new()));
    said("returned 0 objects, expected 1").await;
    hook.answer(|review| {
        Reply::Json(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": review["request"]["uid"], "result": {"status": "Failed", "message": "no way"}}}))
    });
    said("failed: no way").await;
    hook.answer(|_| {
        Reply::Json(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": "x", "result": {"status": "Success"}}}))
    });
    said("failed: expected response.uid=").await;
    hook.answer(|_| Reply::Raw(200, "<html>".into()));
    said("failed: couldn't get version/kind; json parse error: ").await;
    hook.answer(|_| Reply::Raw(200, "[".repeat(1 << 20)));
    said("failed: ").await;
    hook.answer(|_| Reply::Raw(200, format!("\"{}\"", "x".repeat(17 << 20))));
    said("failed: ").await;
    hook.answer(|_| Reply::Raw(500, "tired".into()));
    said("failed: an error on the server (\"tired\") has prevented the request from succeeding").await;

    change(|object| {
        object["metadata"]["labels"] = json!({"made": "yes"});
        object["metadata"]["finalizers"] = json!(["ex.com/mine"]);
        object["metadata"]["ownerReferences"] = json!([]);
        object["spec"]["unknown"] = 1.into();
    });
    let read = server.get(&path).await;
    assert_eq!(read.code, 200, "{}", read.text);
    assert_eq!(read.body["metadata"]["labels"], json!({"made": "yes"}));
    assert_eq!(read.body["metadata"].get("finalizers"), None, "only labels and annotations are its own");
    assert_eq!(read.body["spec"].get("unknown"), None, "the version's schema prunes");
    let chosen = server.get(&format!("{V2}?labelSelector=made%3Dyes")).await;
    assert_eq!(chosen.body["items"].as_array().unwrap().len(), 1, "{}", chosen.text);
    server.stop().await;
}

#[tokio::test]
async fn while_a_webhook_is_away_its_definition_can_be_changed_and_deleted() {
    let (server, hook) = begun("v1").await;
    server.post(V1, &widget("v1", "a", "one")).await;
    let mut kept = widget("v1", "held", "one");
    kept["metadata"]["finalizers"] = json!(["ex.com/held"]);
    server.post(V1, &kept).await;
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    // Nobody listens there.
    let nobody =
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": "https://127.0.0.1:1/x"}}}}});
    assert_eq!(server.patch(&path, MERGE, &nobody).await.code, 200);
    let begun = Instant::now();
    let away = server.get(&format!("{V2}/a")).await;
    assert_eq!(away.code, 500);
    assert_eq!(
        message(&away),
        "conversion webhook for ex.com/v1, Kind=Widget failed: Post \"https://127.0.0.1:1/x?timeout=30s\": \
         dial tcp 127.0.0.1:1: connect: connection refused"
    );
    assert_eq!(server.post(V2, &widget("v2", "b", "x")).await.code, 500);
    assert_eq!(server.delete(&format!("{V2}/a"), &Value::Null).await.code, 500);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(
        server.delete(&format!("{V1}/a"), &Value::Null).await.code,
        200,
        "the stored version needs nobody"
    );

    // It comes back, and it goes for good; both are seen at once.
    let back = json!({"spec": {"conversion": {"webhook": {"clientConfig": hook.client()}}}});
    assert_eq!(server.patch(&path, MERGE, &back).await.code, 200);
    assert_eq!(server.get(&format!("{V2}/held")).await.body["spec"]["address"]["host"], "one");
    assert_eq!(server.patch(&path, MERGE, &nobody).await.code, 200);
    assert_eq!(server.delete(&path, &Value::Null).await.code, 200);
    let held = format!("{V1}/held");
    let marked = async || server.get(&held).await.body["metadata"]["deletionTimestamp"].is_string();
    eventually("the definition takes its objects along", marked).await;
    assert_eq!(server.patch(&held, MERGE, &json!({"metadata": {"finalizers": null}})).await.code, 200);
    eventually("the definition is gone", async || server.get(&path).await.code == 404).await;
    server.stop().await;
}

#[tokio::test]
async fn objects_keep_the_version_that_they_were_stored_in_until_they_are_written() {
    let server = start().await;
    let hook = Webhook::start(&server.pki, convert).await;
    let mut alone = definition(&hook.client(), "v1");
    alone["spec"]["versions"].as_array_mut().unwrap().pop();
    alone["spec"]["conversion"] = json!({"strategy": "None"});
    assert_eq!(server.post(DEFINITIONS, &alone).await.code, 201);
    for name in ["a", "b"] {
        assert_eq!(server.post(V1, &widget("v1", name, "one")).await.code, 201);
    }
    // Another version comes, and objects are stored in that from now on.
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let both = json!({"spec": {"versions": definition(&hook.client(), "v2")["spec"]["versions"],
        "conversion": definition(&hook.client(), "v2")["spec"]["conversion"]}});
    let changed = server.patch(&path, MERGE, &both).await;
    assert_eq!(
        (changed.code, &changed.body["status"]["storedVersions"]),
        (200, &json!(["v1", "v2"])),
        "{}",
        changed.text
    );
    let read = server.get(&format!("{V2}/a")).await;
    assert_eq!((read.code, &read.body["spec"]["address"]["host"]), (200, &json!("one")), "{}", read.text);
    assert_eq!(hook.asked().len(), 1, "it lies there in the first version");
    let version = read.body["metadata"]["resourceVersion"].clone();
    let written = server.put(&format!("{V2}/a"), &read.body).await;
    assert_eq!(written.code, 200);
    assert_ne!(written.body["metadata"]["resourceVersion"], version, "writing the same stores it anew");
    let asked = hook.asked().len();
    assert_eq!(server.get(&format!("{V2}/a")).await.code, 200);
    assert_eq!(hook.asked().len(), asked, "now it lies there in the second");
    assert_eq!(server.get(&format!("{V1}/a")).await.body["spec"]["host"], "one");
    assert_eq!(hook.asked().len(), asked + 1);

    // Whoever starts anew knows it as well.
    let server = start_in(server.stop().await).await;
    let listed = server.get(V2).await;
    let hosts: Vec<&Value> = listed.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["spec"]["address"]["host"])
        .collect();
    assert_eq!(hosts, [&json!("one"), &json!("one")], "{}", listed.text);
    let last = hook.asked().last().unwrap()["request"]["objects"].clone();
    assert_eq!((last.as_array().unwrap().len(), &last[0]["metadata"]["name"]), (1, &json!("b")));
    server.stop().await;
}

#[tokio::test]
async fn an_admission_webhook_is_asked_in_the_version_that_it_names() {
    let (server, hook) = begun("v1").await;
    let admission = Webhook::start(&server.pki, |review| {
        let patch = json!([{"op": "add", "path": "/spec/color", "value": "blue"}]);
        match review["request"]["object"]["spec"]["address"]["host"].as_str() {
            Some("bad") => Reply::answer(review, json!({"allowed": false})),
            _ => Reply::patch(review, &patch),
        }
    })
    .await;
    let configuration = json!({"metadata": {"name": "m"}, "webhooks": [{
        "name": "m.ex.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": admission.client(), "timeoutSeconds": 5,
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["ex.com"], "apiVersions": ["v2"], "resources": ["widgets"]}]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(server.post(path, &configuration).await.code, 201);
    let made = server.post(V1, &widget("v1", "a", "one")).await;
    assert_eq!((made.code, &made.body["spec"]["color"]), (201, &json!("blue")), "{}", made.text);
    let request = admission.asked()[0]["request"].clone();
    assert_eq!(
        (&request["kind"]["version"], &request["requestKind"]["version"]),
        (&json!("v2"), &json!("v1"))
    );
    assert_eq!(request["object"]["apiVersion"], "ex.com/v2");
    assert_eq!(server.post(V1, &widget("v1", "b", "bad")).await.code, 400);
    hook.answer(|_| Reply::Raw(500, "no".into()));
    let failed = server.post(V1, &widget("v1", "c", "one")).await;
    assert_eq!(failed.code, 500);
    assert!(
        message(&failed).contains("conversion webhook for ex.com/v1, Kind=Widget failed: "),
        "{}",
        failed.text
    );
    server.stop().await;
}

#[tokio::test]
async fn reviews_are_of_the_version_that_the_webhook_understands() {
    let (server, hook) = begun("v1").await;
    let path = format!("{DEFINITIONS}/widgets.ex.com");
    let old =
        json!({"spec": {"conversion": {"webhook": {"conversionReviewVersions": ["v0", "v1beta1", "v1"]}}}});
    assert_eq!(server.patch(&path, MERGE, &old).await.code, 200);
    // Of this version neither the kind nor the uid is looked at.
    hook.answer(|review| {
        Reply::Json(json!({"response": {"result": {"status": "Success"}, "convertedObjects": all(review)}}))
    });
    assert_eq!(server.post(V2, &widget("v2", "a", "one")).await.code, 201);
    assert_eq!(hook.asked()[0]["apiVersion"], "apiextensions.k8s.io/v1beta1");
    for (nothing, told) in [
        ("5", "json: cannot unmarshal number into"),
        ("[]", "json: cannot unmarshal array into"),
        ("null", "no response provided"),
        ("{}", "no response provided"),
    ] {
        hook.answer(move |_| Reply::Raw(200, nothing.to_owned()));
        let read = server.get(&format!("{V2}/a")).await;
        assert_eq!(read.code, 500, "{nothing}: {}", read.text);
        assert!(message(&read).contains(told), "{nothing}: {}", read.text);
    }
    for (conversion, told) in [
        (
            json!({"conversionReviewVersions": ["v9"]}),
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
        ),
        (json!({"conversionReviewVersions": []}), "spec.conversion.conversionReviewVersions: Required value"),
        (
            json!({"clientConfig": {"url": "http://a"}}),
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
        ),
        (
            json!({"clientConfig": {"url": null}}),
            "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
        ),
        (
            json!({"clientConfig": null}),
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
        (
            json!({"clientConfig": {"caBundle": "Cg=="}}),
            "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"Cg==\": unable to load root certificates: unable to parse bytes as PEM block",
        ),
    ] {
        let refused =
            server.patch(&path, MERGE, &json!({"spec": {"conversion": {"webhook": conversion}}})).await;
        assert_eq!(refused.code, 422, "{}", refused.text);
        assert!(message(&refused).contains(told), "{} lacks {told}", message(&refused));
    }
    let none = server.patch(&path, MERGE, &json!({"spec": {"conversion": {"strategy": "None"}}})).await;
    assert!(message(&none).contains("spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook"), "{}", none.text);
    server.stop().await;
}
