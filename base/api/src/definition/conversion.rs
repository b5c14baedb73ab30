//! Conversion by a webhook: what it is asked, and what of its answer is believed.
//!
//! Pure: whoever has a connection carries the review there and back. Upstream's words are kept, as clients see them.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::resource::conform;
use super::{group, list, text, versions};
use crate::path::Path;
use crate::strict::json_type;
use crate::structural::Node;
use crate::validate::{self, Errors};

/// The versions of reviews that are spoken.
pub(super) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const REVIEW: &str = "ConversionReview";
const REVIEW_GROUP: &str = "apiextensions.k8s.io";

/// How the objects of a definition are converted by a webhook.
#[derive(Debug)]
pub struct Conversion {
    name: String,
    group: String,
    kind: String,
    client: Value,
    review_version: Option<&'static str>,
    versions: Vec<(String, Arc<Node>)>,
    storage: String,
    unmarked: String,
}

impl Conversion {
    /// The conversion of a definition that has a webhook for it. `node` gives the schema of a version.
    pub(super) fn of(definition: &Value, node: impl Fn(&Value) -> Arc<Node>) -> Option<Conversion> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let wanted = list(&webhook["conversionReviewVersions"]).iter().map(text);
        let review_version =
            wanted.filter_map(|name| REVIEW_VERSIONS.into_iter().find(|known| *known == name)).next();
        Some(Conversion {
            name: text(&definition["metadata"]["name"]).to_owned(),
            group: group(definition).to_owned(),
            kind: text(&definition["status"]["acceptedNames"]["kind"]).to_owned(),
            client: webhook["clientConfig"].clone(),
            review_version,
            versions: versions(definition)
                .iter()
                .map(|version| (text(&version["name"]).to_owned(), node(version)))
                .collect(),
            storage: super::storage_version(definition).to_owned(),
            unmarked: super::unmarked_version(definition).to_owned(),
        })
    }

    /// The name of the definition.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the webhook is: a `WebhookClientConfig`.
    pub fn client(&self) -> &Value {
        &self.client
    }

    /// The version that objects are stored in.
    pub fn storage(&self) -> &str {
        &self.storage
    }

    /// The version of a stored object that does not say its own.
    pub fn unmarked(&self) -> &str {
        &self.unmarked
    }

    /// The group with a version, as objects say it.
    pub fn api_version(&self, version: &str) -> String {
        format!("{}/{version}", self.group)
    }

    fn node(&self, api_version: &str) -> Option<&Node> {
        let version = api_version.strip_prefix(self.group.as_str())?.strip_prefix('/')?;
        self.versions.iter().find(|(name, _)| name == version).map(|(_, node)| &**node)
    }

    /// Brings an object into the shape of its version, as far as that can be done: what is unknown there goes.
    pub fn conform(&self, object: &mut Value) {
        if let Some(node) = self.node(text(&object["apiVersion"])) {
            conform(node, object);
        }
    }

    /// The same for an object that was stored in its version, perhaps under a former schema: it gets the defaults.
    pub fn restore(&self, object: &mut Value) {
        if let Some(node) = self.node(text(&object["apiVersion"])) {
            conform(node, object);
            node.fill(object);
        }
    }

    /// Whether an object can be converted to a version at all.
    pub fn check(&self, object: &Value, desired: &str) -> Result<(), String> {
        for (word, version) in [("to", desired), ("from", text(&object["apiVersion"]))] {
            if self.node(version).is_none() {
                return Err(format!("request to convert CR {word} an invalid group/version: {version}"));
            }
        }
        Ok(())
    }

    /// The review that asks for objects in another version.
    pub fn ask(&self, uid: &str, objects: &[Value], desired: &str) -> Result<Value, String> {
        let version =
            self.review_version.ok_or_else(|| "no supported conversion review versions".to_owned())?;
        Ok(json!({
            "apiVersion": format!("{REVIEW_GROUP}/{version}"), "kind": REVIEW,
            "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
        }))
    }

    /// Why objects could not be converted, as clients are told.
    pub fn failed(&self, objects: &[Value], why: &str) -> String {
        format!("conversion webhook for {} failed: {why}", self.shown(objects))
    }

    fn shown(&self, objects: &[Value]) -> String {
        let version = objects.first().map_or("", |object| text(&object["apiVersion"]));
        format!("{version}, Kind={}", self.kind)
    }

    /// The objects of a webhook's answer, in their order, with the metadata that it may not change put back.
    pub fn read(
        &self,
        review: Value,
        uid: &str,
        originals: &[Value],
        desired: &str,
    ) -> Result<Vec<Value>, String> {
        let objects = self.response(review, uid).map_err(|why| self.failed(originals, &why))?;
        if objects.len() != originals.len() {
            return Err(format!(
                "conversion webhook for {} returned {} objects, expected {}",
                self.shown(originals),
                objects.len(),
                originals.len()
            ));
        }
        let pairs = objects.into_iter().zip(originals);
        pairs.map(|(object, original)| self.believed(object, original, desired)).collect()
    }

    /// The converted objects of an answer that says that all went well.
    fn response(&self, mut review: Value, uid: &str) -> Result<Vec<Value>, String> {
        let strict = self.review_version == Some("v1");
        self.is_review(text(&review["apiVersion"]), text(&review["kind"]))?;
        let Some(response) = review.get_mut("response").filter(|response| response.is_object()) else {
            return Err("no response provided".to_owned());
        };
        let given = text(&response["uid"]);
        if strict && given != uid {
            return Err(format!("expected response.uid={uid:?}, got {given:?}"));
        }
        let result = &response["result"];
        let (status, message) = (text(&result["status"]), text(&result["message"]));
        match (status, message) {
            ("Success", _) => {}
            (status, "") => return Err(format!("response.result.status was '{status}', not 'Success'")),
            (_, message) => return Err(message.to_owned()),
        }
        match response["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            Value::Null => Ok(Vec::new()),
            other => Err(format!(
                "json: cannot unmarshal {} into Go struct field ConversionResponse.response.convertedObjects of type \
                 []runtime.RawExtension",
                json_type(&other)
            )),
        }
    }

    /// Whether an answer says that it is a review of the version that was asked in; the old version may be silent.
    fn is_review(&self, version: &str, kind: &str) -> Result<(), String> {
        let asked = self.review_version.unwrap_or("v1");
        let own = format!("{REVIEW_GROUP}/{asked}");
        let said =
            (if version.is_empty() { &own } else { version }, if kind.is_empty() { REVIEW } else { kind });
        let other =
            REVIEW_VERSIONS.into_iter().find(|other| said == (&format!("{REVIEW_GROUP}/{other}"), REVIEW));
        match other {
            None => Err(format!(
                "no kind {:?} is registered for version {:?} in scheme \"pkg/runtime/scheme.go:111\"",
                said.1, said.0
            )),
            Some(other) if other != asked => {
                Err(format!("converting ({other}.{REVIEW}) to ({asked}.{REVIEW}): unknown conversion"))
            }
            Some(_) if asked == "v1" && (version.is_empty() || kind.is_empty()) => {
                let got = if version.is_empty() { "/" } else { version };
                Err(format!("expected webhook response of {own}, Kind={REVIEW}, got {got}, Kind={kind}"))
            }
            Some(_) => Ok(()),
        }
    }

    /// One object of an answer, if it can be what the original is in the other version.
    fn believed(&self, mut object: Value, original: &Value, desired: &str) -> Result<Value, String> {
        match &object {
            Value::Object(_) => {}
            Value::Null => return Err("unexpected end of JSON input".to_owned()),
            other => {
                let kind = json_type(other);
                return Err(format!(
                    "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
                ));
            }
        }
        // A version that cannot be read takes the kind with it.
        let unreadable = text(&object["apiVersion"]).matches('/').count() > 1;
        if unreadable || text(&object["kind"]).is_empty() {
            return Err(format!("Object 'Kind' is missing in '{object}'"));
        }
        let shown = self.shown(std::slice::from_ref(original));
        let invalid = |why: String| format!("conversion webhook for {shown} returned invalid object{why}");
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        if version != desired {
            return Err(invalid(format!(
                " at index 0: invalid groupVersion (expected {desired}, received {version})"
            )));
        }
        if kind != text(&original["kind"]) {
            let expected = text(&original["kind"]);
            return Err(invalid(format!(" at index 0: invalid kind (expected {expected}, received {kind})")));
        }
        for (key, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let (before, after) = (text(&original["metadata"][key]), text(&object["metadata"][key]));
            if before != after {
                return Err(invalid(format!(": must have the same {name}: {before} != {after}")));
            }
        }
        let metadata = restored(object["metadata"].take(), &original["metadata"])
            .map_err(|why| format!("conversion webhook for {shown} returned invalid metadata: {why}"))?;
        object["metadata"] = metadata;
        Ok(object)
    }
}

/// The metadata of the original with the labels and annotations of what was made of it.
fn restored(mut given: Value, original: &Value) -> Result<Value, String> {
    let Value::Object(given) = &mut given else {
        return Err(match given {
            Value::Null => "missing metadata in converted object".to_owned(),
            other => format!("invalid metadata of type {} in converted object", go_type(&other)),
        });
    };
    let mut metadata = original.as_object().cloned().unwrap_or_default();
    for key in ["labels", "annotations"] {
        let texts = match given.remove(key) {
            None | Some(Value::Null) => {
                metadata.remove(key);
                continue;
            }
            Some(Value::Object(texts)) => texts,
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{key} of type {} in converted object",
                    go_type(&other)
                ));
            }
        };
        check_texts(key, &texts, metadata.get(key))?;
        metadata.insert(key.to_owned(), Value::Object(texts));
    }
    Ok(Value::Object(metadata))
}

fn check_texts(key: &str, texts: &Map<String, Value>, before: Option<&Value>) -> Result<(), String> {
    if let Some((name, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
        let kind = go_type(value);
        return Err(format!("metadata.{key}[{name}] must be a string, but is {kind} in converted object"));
    }
    if before.and_then(Value::as_object) == Some(texts) {
        return Ok(());
    }
    let mut errors = Errors::default();
    let (path, texts) = (Path::root("metadata"), Value::Object(texts.clone()));
    match key {
        "labels" => validate::labels(&texts, &path.child("labels"), &mut errors),
        _ => validate::annotations(&texts, &path.child("annotation"), &mut errors),
    }
    match errors.done() {
        errors if errors.is_empty() => Ok(()),
        errors => Err(validate::summary(&errors)),
    }
}

/// How Go names the type of a decoded JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversion() -> Conversion {
        let definition = json!({
            "metadata": {"name": "widgets.ex.com"},
            "spec": {"group": "ex.com", "versions": [
                {"name": "v1", "storage": true}, {"name": "v2"}],
                "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v9", "v1"]}}},
            "status": {"acceptedNames": {"kind": "Widget"}, "storedVersions": ["v1"]},
        });
        Conversion::of(&definition, |_| Arc::new(Node::root(&Value::Null))).unwrap()
    }

    fn widget(version: &str) -> Value {
        json!({"apiVersion": format!("ex.com/{version}"), "kind": "Widget", "metadata": {"name": "a",
            "namespace": "n", "uid": "u", "generation": 3, "labels": {"a": "b"}, "annotations": {"c": "d"}}})
    }

    fn read(change: impl Fn(&mut Value)) -> Result<Vec<Value>, String> {
        let mut review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": "x", "result": {"status": "Success"}, "convertedObjects": [widget("v2")]}});
        change(&mut review);
        conversion().read(review, "x", &[widget("v1")], "ex.com/v2")
    }

    #[test]
    fn labels_and_annotations_are_the_webhooks_and_the_rest_of_the_metadata_is_not() {
        let read = read(|review| {
            let metadata = &mut review["response"]["convertedObjects"][0]["metadata"];
            metadata["labels"] = json!({"a": "other"});
            metadata["annotations"] = Value::Null;
            metadata["generation"] = json!(99);
            metadata["finalizers"] = json!(["its/own"]);
        })
        .unwrap();
        let mut wanted = widget("v2");
        wanted["metadata"]["labels"] = json!({"a": "other"});
        wanted["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(read, [wanted]);
    }

    #[test]
    fn an_answer_that_is_not_one_is_not_believed() {
        const FOR: &str = "conversion webhook for ex.com/v1, Kind=Widget";
        let set = |path: &'static str, value: Value| {
            read(move |review| {
                let (parent, key) = path.rsplit_once('/').unwrap();
                review.pointer_mut(parent).unwrap()[key] = value.clone();
            })
            .unwrap_err()
        };
        let object = "/response/convertedObjects";
        for (told, words) in [
            (
                set("/kind", json!("")),
                " failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=",
            ),
            (set("/response", json!(null)), " failed: no response provided"),
            (set("/response/uid", json!("y")), " failed: expected response.uid=\"x\", got \"y\""),
            (
                set("/response/result", json!({"status": "Failed"})),
                " failed: response.result.status was 'Failed', not 'Success'",
            ),
            (set("/response/result", json!({"status": "Failure", "message": "no way"})), " failed: no way"),
            (set("/response/convertedObjects", json!([])), " returned 0 objects, expected 1"),
            (
                set("/response/convertedObjects", json!([widget("v1")])),
                " returned invalid object at index 0: invalid groupVersion (expected ex.com/v2, received ex.com/v1)",
            ),
        ] {
            assert_eq!(told, format!("{FOR}{words}"));
        }
        assert_eq!(set(object, json!([{}])), "Object 'Kind' is missing in '{}'");
        let change = |key: &'static str, value: Value| {
            read(move |review| review["response"]["convertedObjects"][0]["metadata"][key] = value.clone())
                .unwrap_err()
        };
        for (told, words) in [
            (change("name", json!("b")), " returned invalid object: must have the same name: a != b"),
            (
                change("namespace", json!(null)),
                " returned invalid object: must have the same namespace: n != ",
            ),
            (change("uid", json!("v")), " returned invalid object: must have the same UID: u != v"),
            (
                change("labels", json!([])),
                " returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
            ),
            (
                change("labels", json!({"a": 1})),
                " returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
            ),
        ] {
            assert_eq!(told, format!("{FOR}{words}"));
        }
        assert!(change("labels", json!({"a": "?"})).starts_with(&format!(
            "{FOR} returned invalid metadata: metadata.labels: Invalid value: \"?\": "
        )));
    }

    #[test]
    fn an_answer_of_the_old_version_that_is_no_object_is_refused() {
        let old = Conversion { review_version: Some("v1beta1"), ..conversion() };
        for answer in [json!(5), json!("x"), json!([]), json!(null), json!({"response": 5})] {
            let told = old.read(answer, "x", &[widget("v1")], "ex.com/v2").unwrap_err();
            assert_eq!(told, "conversion webhook for ex.com/v1, Kind=Widget failed: no response provided");
        }
    }

    #[test]
    fn only_versions_of_the_definition_are_converted() {
        let check = |version: &str, desired: &str| conversion().check(&widget(version), desired);
        assert_eq!(check("v1", "ex.com/v2"), Ok(()));
        assert_eq!(
            check("v0", "ex.com/v2").unwrap_err(),
            "request to convert CR from an invalid group/version: ex.com/v0"
        );
        assert_eq!(
            check("v1", "ex.com/v3").unwrap_err(),
            "request to convert CR to an invalid group/version: ex.com/v3"
        );
    }
}
