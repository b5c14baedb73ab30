//! Requests that race each other: not which of them wins, but how many, and what the others are told.

use std::collections::BTreeMap;

use futures::future::join_all;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How many clients race.
const RACERS: usize = 12;

/// How often each code and reason was answered in each race.
pub(crate) type Outcome = BTreeMap<String, BTreeMap<String, usize>>;

async fn ask(client: &kube::Client, method: &str, path: &str, media: &str, body: Value) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = client.send(request.body(kube::client::Body::from(body)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn json_body() -> &'static str {
    "application/json"
}

fn count(answers: &[(u16, Value)]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (code, body) in answers {
        // The message of a refusal has to agree too; it names no version and no uid in these races.
        let told = body["message"].as_str().unwrap_or_default();
        *counts
            .entry(format!("{code} {} {told}", body["reason"].as_str().unwrap_or_default()))
            .or_default() += 1;
    }
    counts
}

/// Runs every race against one server.
pub(crate) async fn run(client: &kube::Client) -> Outcome {
    let mut outcome = Outcome::new();
    let create = |name: &'static str, value: usize| {
        ask(
            client,
            "POST",
            MAPS,
            json_body(),
            json!({"metadata": {"name": name}, "data": {"v": value.to_string()}}),
        )
    };
    let answers = join_all((0..RACERS).map(|n| create("race", n))).await;
    outcome.insert("creates of one name".into(), count(&answers));

    let (_, mut object) = ask(client, "GET", &format!("{MAPS}/race"), json_body(), Value::Null).await;
    let path = format!("{MAPS}/race");
    let answers = join_all((0..RACERS).map(|n| {
        object["data"]["v"] = json!(format!("new{n}"));
        ask(client, "PUT", &path, json_body(), object.clone())
    }))
    .await;
    outcome.insert("updates of one version".into(), count(&answers));

    let merge = "application/merge-patch+json";
    let stale = object["metadata"]["resourceVersion"].clone();
    let answers = join_all((0..RACERS).map(|n| {
        let patch = json!({"metadata": {"resourceVersion": stale}, "data": {format!("k{n}"): "v"}});
        ask(client, "PATCH", &path, merge, patch)
    }))
    .await;
    outcome.insert("patches of an old version".into(), count(&answers));

    let delete = |options: Value| ask(client, "DELETE", &path, json_body(), options);
    let wrong = "00000000-0000-4000-8000-000000000000";
    let (code, refused) = delete(json!({"preconditions": {"uid": wrong}})).await;
    let told = refused["message"].as_str().unwrap_or_default();
    let told = told.replace(object["metadata"]["uid"].as_str().unwrap_or("?"), "UID");
    outcome.insert("delete with another uid".into(), [(format!("{code} {told}"), 1)].into());

    let uid = object["metadata"]["uid"].clone();
    let answers = join_all((0..RACERS).map(|_| delete(json!({"preconditions": {"uid": uid.clone()}})))).await;
    let mut counts = BTreeMap::new();
    for (code, _) in &answers {
        *counts.entry(code.to_string()).or_default() += 1;
    }
    outcome.insert("deletes of one object".into(), counts);
    let answers = [ask(client, "GET", &path, json_body(), Value::Null).await];
    outcome.insert("after the deletes".into(), count(&answers));

    // Appends race: whoever is told 200 is in the object, whoever is not is not.
    create("list", 0).await;
    let path = format!("{MAPS}/list");
    let answers = join_all(
        (0..RACERS).map(|n| ask(client, "PATCH", &path, merge, json!({"data": {format!("k{n}"): "v"}}))),
    )
    .await;
    let written = answers.iter().filter(|(code, _)| *code == 200).count();
    let (_, object) = ask(client, "GET", &path, json_body(), Value::Null).await;
    let kept = object["data"].as_object().map_or(0, |data| data.len() - 1);
    outcome.insert(
        "patches without a version".into(),
        [("kept as told".to_owned(), usize::from(written == kept))].into(),
    );

    // A create races a delete: at the end the object is there or not, and every answer is one of the expected.
    let answers = join_all((0..RACERS).map(|n| async move {
        if n % 2 == 0 { create("flip", n).await } else { delete_named(client, "flip").await }
    }))
    .await;
    let odd = answers.iter().filter(|(code, _)| ![200, 201, 404, 409].contains(code)).count();
    outcome.insert("creates against deletes".into(), [("unexpected answers".to_owned(), odd)].into());
    outcome
}

async fn delete_named(client: &kube::Client, name: &str) -> (u16, Value) {
    ask(client, "DELETE", &format!("{MAPS}/{name}"), json_body(), Value::Null).await
}
