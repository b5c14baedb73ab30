//! What holds for every kind of the registry, whatever its strategy says.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

#[path = "support/server.rs"]
mod server;

use podwire_api::{Kind, Part, Registry, Verb};
use serde_json::{Value, json};
use server::{Answer, Server, send, start};

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Where the objects of a kind are.
fn collection(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let place = if kind.namespaced { "/namespaces/default" } else { "" };
    format!("{root}/{}{place}/{}", kind.version, kind.resource)
}

fn stored() -> impl Iterator<Item = &'static Kind> {
    Registry::builtin().kinds().iter().map(|kind| &**kind).filter(|kind| kind.is_stored())
}

async fn read(server: &Server, path: &str, accept: &str) -> Answer {
    send(&server.admin, "GET", path, &[("accept", accept)], "").await
}

#[tokio::test]
async fn every_kind_is_listed_in_every_form() {
    let server = start().await;
    for kind in stored() {
        let (path, version) = (collection(kind), kind.api_version());
        let list = server.get(&path).await;
        let named = (list.code, list.body["kind"].as_str(), list.body["apiVersion"].as_str());
        assert_eq!(named, (200, Some(&*kind.list_kind), Some(version.as_str())), "{path}");
        let table = read(&server, &path, TABLE).await;
        assert_eq!((table.code, table.body["kind"].as_str()), (200, Some("Table")), "{path}");
        let width = table.body["columnDefinitions"].as_array().unwrap().len();
        for row in table.body["rows"].as_array().unwrap() {
            assert_eq!(row["cells"].as_array().unwrap().len(), width, "{path}: {row}");
        }
        let partial = read(&server, &path, PARTIAL).await;
        assert_eq!(partial.body["kind"], "PartialObjectMetadataList", "{path}");
        let response = server::raw(&server.admin, "GET", &path, &[("accept", PROTOBUF)], "").await;
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let mut decoded = podwire_api::protobuf::decode_any(&bytes).unwrap();
        if decoded["items"].is_null() {
            decoded["items"] = json!([]);
        }
        assert_eq!(decoded, list.body, "{path}");
        let selected =
            server.get(&format!("{path}?fieldSelector=metadata.name%3Dnobody&labelSelector=a%3Db")).await;
        assert_eq!(selected.body["items"], json!([]), "{path}");
        for field in &kind.selectable_fields {
            let selected = server.get(&format!("{path}?fieldSelector={field}%3Dnobody")).await;
            assert_eq!((selected.code, &selected.body["items"]), (200, &json!([])), "{path}: {field}");
        }
        let unknown = server.get(&format!("{path}?fieldSelector=spec.nothing%3Dx")).await;
        assert_eq!(unknown.code, 400, "{path}: {}", unknown.text);
        let watch = format!("{path}?watch=true&resourceVersion=0");
        let watched = server::raw(&server.admin, "GET", &watch, &[], "").await;
        assert_eq!(watched.status().as_u16(), 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found_in_every_kind() {
    let server = start().await;
    for kind in stored() {
        let path = format!("{}/nobody", collection(kind));
        let missing = server.get(&path).await;
        let words = format!("{} \"nobody\" not found", kind.qualified_resource());
        assert_eq!((missing.code, missing.body["message"].as_str()), (404, Some(words.as_str())), "{path}");
        assert_eq!(server.delete(&path, &Value::Null).await.code, 404, "{path}");
        let patch = server.patch(&path, "application/merge-patch+json", &json!({})).await;
        assert_eq!(patch.code, 404, "{path}: {}", patch.text);
        for sub in kind.subresources.iter().filter(|sub| sub.part == Part::Status) {
            assert!(sub.verbs.contains(Verb::Get), "{path}");
            assert_eq!(server.get(&format!("{path}/status")).await.code, 404, "{path}");
        }
    }
    server.stop().await;
}

/// Whatever a kind wants of its objects, an empty one is created or refused with the reason, and a foreign one refused.
#[tokio::test]
async fn every_kind_says_what_an_empty_object_lacks() {
    let server = start().await;
    let mut created = 0;
    for kind in stored() {
        let path = format!("{}?dryRun=All", collection(kind));
        let empty =
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "empty"}});
        let answer = server.post(&path, &empty).await;
        match answer.code {
            201 => created += 1,
            422 => assert!(!answer.body["details"]["causes"].as_array().unwrap().is_empty(), "{path}"),
            _ => panic!("{path}: {} {}", answer.code, answer.text),
        }
        let nameless =
            server.post(&path, &json!({"apiVersion": kind.api_version(), "kind": kind.kind})).await;
        assert_eq!(nameless.code, 422, "{path}: {}", nameless.text);
        let foreign = json!({"apiVersion": "v1", "kind": "Nothing", "metadata": {"name": "x"}});
        assert_eq!(server.post(&path, &foreign).await.code, 400, "{path}");
        let own = format!("{}/empty?dryRun=All&fieldManager=m", collection(kind));
        let applied = server.patch(&own, "application/apply-patch+yaml", &empty).await;
        assert_eq!(applied.code, answer.code, "{path}: {}", applied.text);
    }
    assert!(created > 10, "many kinds want nothing but a name");
    server.stop().await;
}
