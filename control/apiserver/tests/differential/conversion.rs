//! Conversion webhooks, good and bad, behind both servers: what each server makes of the same reply.
//!
//! One webhook serves both, so that addresses in messages agree. Each step says how it replies and what is asked.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podwire_apiserver::pki::Pki;
use serde_json::{Value, json};

use crate::webhook::{Reply, Webhook};
use crate::{Side, compare};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gauges.conv.ex.com";
const V1: &str = "/apis/conv.ex.com/v1/namespaces/default/gauges";
const V2: &str = "/apis/conv.ex.com/v2/namespaces/default/gauges";
/// Fewer are no comparison.
const LEAST: usize = 60;

/// What a webhook does to the objects that it converts.
type Change = fn(&mut Value);

/// How the webhook replies from a step on.
enum Replies {
    /// As before.
    Same,
    /// Well, but for this change of each object.
    Changed(Change),
    /// With something else altogether.
    With(fn(&Value) -> Reply),
}

/// Why the words of an answer may differ.
#[derive(Clone, Copy)]
enum Allowance {
    /// They do, for this reason; where they do not, it hides the next difference.
    Needed(&'static str),
    /// They do at times.
    Chance,
}

/// One step.
struct Step {
    replies: Replies,
    line: Value,
    /// Why the answers may differ.
    allow: Option<Allowance>,
}

fn get(path: &str) -> Value {
    json!({"m": "GET", "p": path})
}

fn post(path: &str, body: Value) -> Value {
    json!({"m": "POST", "p": path, "b": body})
}

fn merge(path: &str, body: Value) -> Value {
    json!({"m": "PATCH", "p": path, "b": body, "h": {"Content-Type": "application/merge-patch+json"}})
}

/// The answer has this code after a while: upstream takes changes of a definition up later.
fn until(mut line: Value, code: u16) -> Value {
    line["until"] = code.into();
    line
}

fn step(replies: Replies, line: Value) -> Step {
    Step { replies, line, allow: None }
}

/// The webhook changes what it converts, and an object is read.
fn read(change: Change) -> Step {
    step(Replies::Changed(change), get(&format!("{V2}/a")))
}

/// The webhook replies with something else, and an object is read.
fn with(reply: fn(&Value) -> Reply) -> Step {
    step(Replies::With(reply), get(&format!("{V2}/a")))
}

/// The same replies, and this is asked.
fn ask(line: Value) -> Step {
    step(Replies::Same, line)
}

fn definition(client: &Value) -> Value {
    let version = |name: &str, storage: bool, field: &str| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Level", "type": "string", "jsonPath": format!(".spec.{field}")}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    field: {"type": "string"}, "unit": {"type": "string", "default": "bar"}}},
                "status": {"type": "object", "properties": {"seen": {"type": "integer"}}}}}}})
    };
    json!({"metadata": {"name": "gauges.conv.ex.com"}, "spec": {
        "group": "conv.ex.com", "scope": "Namespaced", "names": {"plural": "gauges", "kind": "Gauge"},
        "versions": [version("v1", true, "level"), version("v2", false, "pressure")],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"], "clientConfig": client}}}})
}

fn gauge(version: &str, name: &str) -> Value {
    let field = if version == "v1" { "level" } else { "pressure" };
    json!({"apiVersion": format!("conv.ex.com/{version}"), "kind": "Gauge",
        "metadata": {"name": name, "labels": {"app": "gauge"}, "annotations": {"note": "one"}},
        "spec": {field: "high"}})
}

fn converted(review: &Value) -> Vec<Value> {
    let desired = &review["request"]["desiredAPIVersion"];
    let (from, to) = if *desired == "conv.ex.com/v2" { ("level", "pressure") } else { ("pressure", "level") };
    let one = |object: &Value| {
        let mut out = object.clone();
        out["apiVersion"] = desired.clone();
        if let Some(spec) = out["spec"].as_object_mut() {
            let value = spec.remove(from).unwrap_or_default();
            spec.insert(to.to_owned(), value);
        }
        out
    };
    review["request"]["objects"].as_array().into_iter().flatten().map(one).collect()
}

fn reply(review: &Value, objects: Vec<Value>) -> Reply {
    review_with(
        json!({"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}),
    )
}

fn review_with(response: Value) -> Reply {
    Reply::Json(
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}),
    )
}

fn text(text: &str) -> Reply {
    Reply::Raw(200, text.to_owned())
}

/// The answers to a step may differ for a reason.
fn may(step: Step, why: &'static str) -> Step {
    Step { allow: Some(Allowance::Needed(why)), ..step }
}

/// What a webhook may and may not do to an object that is read.
fn changes() -> Vec<Step> {
    vec![
        read(|_| {}),
        ask(get(V2)),
        ask(get(&format!("{V1}/a"))),
        ask(json!({"m": "GET", "p": V2, "h": {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}})),
        ask(json!({"m": "GET", "p": format!("{V2}/a"),
            "h": {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}})),
        ask(get(&format!("{V2}/a/status"))),
        ask(get(&format!("{V2}/nobody"))),
        read(|object| object["metadata"]["name"] = "b".into()),
        read(|object| object["metadata"]["name"] = Value::Null),
        read(|object| object["metadata"]["namespace"] = "other".into()),
        read(|object| object["metadata"]["uid"] = "b".into()),
        read(|object| object["metadata"]["uid"] = 5.into()),
        read(|object| object["metadata"]["labels"] = json!({"made": "yes"})),
        read(|object| object["metadata"]["labels"] = Value::Null),
        read(|object| object["metadata"]["labels"] = json!({"a": "?"})),
        read(|object| object["metadata"]["labels"] = json!({"a b": "c"})),
        read(|object| object["metadata"]["labels"] = json!({"a": 5})),
        read(|object| object["metadata"]["labels"] = json!(["a"])),
        read(|object| object["metadata"]["annotations"] = json!({"other": "two"})),
        read(|object| object["metadata"]["annotations"] = json!({"a b": "c"})),
        read(|object| object["metadata"]["annotations"] = json!({"a": {}})),
        read(|object| object["metadata"]["finalizers"] = json!(["ex.com/mine"])),
        read(|object| object["metadata"]["ownerReferences"] = json!([{"a": 1}])),
        read(|object| object["metadata"]["creationTimestamp"] = "yesterday".into()),
        read(|object| object["metadata"]["generation"] = 99.into()),
        read(|object| object["metadata"]["managedFields"] = json!([])),
        read(|object| object["metadata"]["unknown"] = 1.into()),
        read(|object| object["metadata"] = Value::Null),
        read(|object| object["metadata"] = json!({})),
        read(|object| object["metadata"] = "none".into()),
        read(|object| drop(object.as_object_mut().and_then(|map| map.remove("metadata")))),
        read(|object| drop(object.as_object_mut().and_then(|map| map.remove("spec")))),
        read(|object| object["spec"] = Value::Null),
        read(|object| object["spec"] = "none".into()),
        read(|object| object["spec"]["pressure"] = 5.into()),
        read(|object| object["spec"]["pressure"] = Value::Null),
        may(read(|object| object["spec"]["unit"] = Value::Null), "upstream keeps a null that has a default"),
        read(|object| object["spec"]["unknown"] = json!({"a": [1]})),
        read(|object| object["status"] = json!({"seen": 3, "other": 4})),
        read(|object| object["apiVersion"] = "conv.ex.com/v1".into()),
        read(|object| object["apiVersion"] = "conv.ex.com/v3".into()),
        read(|object| object["apiVersion"] = "other/v2".into()),
        read(|object| object["apiVersion"] = Value::Null),
        read(|object| object["apiVersion"] = "a/b/c".into()),
        read(|object| object["kind"] = "Meter".into()),
        read(|object| object["kind"] = Value::Null),
        read(|object| *object = 5.into()),
        read(|object| *object = Value::Null),
        read(|object| *object = json!({})),
        read(|object| *object = json!([])),
    ]
}

/// Replies that are no conversion.
fn garbage() -> Vec<Step> {
    vec![
        with(|review| reply(review, Vec::new())),
        with(|review| {
            let mut objects = converted(review);
            objects.extend(converted(review));
            reply(review, objects)
        }),
        with(|review| review_with(json!({"uid": review["request"]["uid"], "result": {"status": "Failed"}}))),
        with(|review| {
            review_with(json!({"uid": review["request"]["uid"],
                "result": {"status": "Failed", "message": "no way", "reason": "Gone", "code": 410}}))
        }),
        with(|review| review_with(json!({"uid": review["request"]["uid"], "result": {"status": "Maybe"}}))),
        with(|review| {
            review_with(json!({"uid": review["request"]["uid"], "convertedObjects": converted(review)}))
        }),
        with(|review| {
            review_with(
                json!({"uid": "x", "result": {"status": "Success"}, "convertedObjects": converted(review)}),
            )
        }),
        with(|review| {
            review_with(json!({"result": {"status": "Success"}, "convertedObjects": converted(review)}))
        }),
        with(|review| {
            review_with(
                json!({"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": "x"}),
            )
        }),
        with(|_| Reply::Json(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}))),
        with(|_| {
            Reply::Json(
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "AdmissionReview", "response": {}}),
            )
        }),
        with(|review| {
            Reply::Json(json!({"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview",
                "response": {"uid": review["request"]["uid"], "result": {"status": "Success"},
                    "convertedObjects": converted(review)}}))
        }),
        with(|_| Reply::Json(json!({"apiVersion": "other/v1", "kind": "ConversionReview", "response": {}}))),
        with(|_| Reply::Json(json!({"response": {}}))),
        with(|_| text("")),
        may(with(|_| text("<html>")), "upstream reads YAML too"),
        with(|_| text("[]")),
        with(|_| text("5")),
        with(|_| text("null")),
        with(|_| text("{}")),
        with(|_| text(r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"#)),
        with(|_| Reply::Raw(500, "no".to_owned())),
        with(|_| Reply::Raw(503, String::new())),
        with(|_| Reply::Raw(404, "not here".to_owned())),
        with(|_| Reply::Raw(403, "not you".to_owned())),
        with(|_| Reply::Raw(400, "not so".to_owned())),
        with(|_| Reply::Raw(409, "not now".to_owned())),
        with(|_| Reply::Raw(418, "not tea".to_owned())),
        with(|_| Reply::Raw(422, "not this".to_owned())),
        with(|_| Reply::Raw(504, "not yet".to_owned())),
        with(|_| Reply::Raw(204, String::new())),
        with(|review| match reply(review, converted(review)) {
            Reply::Json(value) => Reply::Raw(201, value.to_string()),
            other => other,
        }),
    ]
}

/// Writes in the version that is not stored.
fn writes() -> Vec<Step> {
    let one = |name: &str| format!("{V2}/{name}");
    vec![
        step(Replies::Changed(|_| {}), post(V2, gauge("v2", "made"))),
        ask(get(&format!("{V1}/made"))),
        ask(merge(&one("made"), json!({"spec": {"pressure": "low"}}))),
        ask(merge(&format!("{}/status", one("made")), json!({"status": {"seen": 2}}))),
        ask(merge(&one("made"), json!({"spec": {"pressure": 5}}))),
        ask(post(&format!("{V2}?dryRun=All"), gauge("v2", "dry"))),
        step(
            Replies::Changed(|object| object["metadata"]["name"] = "b".into()),
            post(V2, gauge("v2", "renamed")),
        ),
        step(
            Replies::With(|review| {
                review_with(
                    json!({"uid": review["request"]["uid"], "result": {"status": "Failed", "message": "no way"}}),
                )
            }),
            post(V2, gauge("v2", "refused")),
        ),
        ask(post(&format!("{V2}?dryRun=All"), gauge("v2", "refused"))),
        ask(json!({"m": "DELETE", "p": one("made")})),
        ask(get(&format!("{V1}/made"))),
        ask(get(&format!("{V1}/renamed"))),
        ask(get(&format!("{V1}/refused"))),
        step(Replies::Changed(|_| {}), json!({"m": "DELETE", "p": one("made")})),
        ask(get(&format!("{V1}/made"))),
    ]
}

/// A webhook that is not there, one that nobody believes, and none at all.
fn away(stranger: &str) -> Vec<Step> {
    let leads = |client: Value| {
        merge(DEFINITION, json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}}))
    };
    let one = format!("{V2}/a");
    vec![
        ask(leads(json!({"url": "https://127.0.0.1:1/x"}))),
        ask(until(get(&one), 500)),
        ask(post(V2, gauge("v2", "away"))),
        ask(merge(&one, json!({"spec": {"pressure": "low"}}))),
        ask(json!({"m": "DELETE", "p": one})),
        ask(get(&format!("{V1}/a"))),
        ask(merge(&format!("{V1}/a"), json!({"spec": {"level": "low"}}))),
        ask(leads(json!({"url": "https://no-such-host.invalid/x"}))),
        ask(leads(json!({"url": null, "service": {"namespace": "default", "name": "nobody", "path": "/x"}}))),
        ask(leads(json!({"caBundle": stranger}))),
        ask(merge(DEFINITION, json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}))),
        ask(until(get(&one), 200)),
        ask(json!({"m": "DELETE", "p": one})),
    ]
}

/// Asks both; what differs.
async fn both(left: &mut Side, right: &mut Side, line: &Value) -> Vec<String> {
    let asked = async { tokio::join!(left.ask_until(line), right.ask_until(line)) };
    let answered = tokio::time::timeout(std::time::Duration::from_secs(50), asked).await;
    let (ours, upstream) = answered.unwrap_or_else(|_| panic!("no answer to {line}"));
    let mut out = compare::differences(&ours.body, &upstream.body);
    if ours.code != upstream.code {
        out.push(format!("code: ours {}, upstream {}", ours.code, upstream.code));
    }
    if !line["until"].is_null() && line["until"] != upstream.code {
        out.push(format!("waited for {}, and {} came", line["until"], upstream.body));
    }
    if (&ours.warning, &ours.media) != (&upstream.warning, &upstream.media) {
        out.push(format!(
            "headers: {:?}, upstream {:?}",
            (ours.warning, ours.media),
            (upstream.warning, upstream.media)
        ));
    }
    out
}

/// Walks through all steps with both servers.
pub(crate) async fn walk(left: &mut Side, right: &mut Side, pki: &Pki) {
    let hook = Webhook::start(pki, |review| reply(review, converted(review))).await;
    let mut steps = vec![
        ask(post(DEFINITIONS, definition(&hook.client()))),
        ask(until(get(V2), 200)),
        ask(until(post(V1, gauge("v1", "a")), 201)),
    ];
    steps.extend(changes());
    steps.extend(garbage());
    let slow = step(Replies::With(|_| Reply::Hang), get(&format!("{V2}/a")));
    // Go has several words for a deadline that has passed, and ours are among them.
    steps.push(Step { allow: Some(Allowance::Chance), ..slow });
    steps.extend(writes());
    steps.extend(away(&STANDARD.encode(pki.ca_pem())));
    assert!(steps.len() >= LEAST, "only {} steps", steps.len());
    let mut report = Vec::new();
    for (number, Step { replies, line, allow }) in steps.into_iter().enumerate() {
        match replies {
            Replies::Same => {}
            Replies::Changed(change) => hook.answer(move |review| {
                let mut objects = converted(review);
                objects.iter_mut().for_each(change);
                reply(review, objects)
            }),
            Replies::With(reply) => hook.answer(reply),
        }
        let differences = both(left, right, &line).await;
        match allow {
            Some(_) if differences.iter().any(|one| one.starts_with("code: ")) => {
                report.push(format!("step {number}: {}", differences.join("\n    ")));
            }
            Some(Allowance::Needed(why)) if differences.is_empty() => {
                report.push(format!("step {number} agrees: {why}"))
            }
            None if !differences.is_empty() => {
                report.push(format!(
                    "step {number}: {} {}\n    {}",
                    line["m"],
                    line["p"],
                    differences.join("\n    ")
                ));
            }
            _ => {}
        }
    }
    assert!(report.is_empty(), "{} answers differ:\n{}", report.len(), report.join("\n"));
}
