//! `AdmissionReview`: the question and the answer.
//!
//! Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podwire_api::strict;
use serde_json::{Map, Value, json};

use super::super::Request;
use super::super::matching::Matched;
use super::hook::Hook;

/// The question.
pub(super) fn ask(
    request: &Request<'_>,
    hook: &Hook,
    matched: &Matched,
    uid: &str,
    object: &Value,
    old: &Value,
) -> Value {
    let mut asked = self::request(request, matched, object);
    asked["uid"] = uid.into();
    asked["object"] = object.clone();
    asked["oldObject"] = old.clone();
    let version = format!("admission.k8s.io/{}", hook.review_version);
    json!({"kind": "AdmissionReview", "apiVersion": version, "request": asked})
}

/// The request that is asked about, without its objects.
pub(in crate::admission) fn request(request: &Request<'_>, matched: &Matched, object: &Value) -> Value {
    let kind = request.kind;
    let own = request.part.and_then(|part| kind.subresource(part));
    let (group, version, name) = match own {
        Some(own) => (&own.group, &own.version, &own.kind),
        None => (&kind.group, &kind.version, &kind.kind),
    };
    let named = request.named(object);
    let who = request.identity;
    let mut user = json!({"username": who.user, "groups": who.groups});
    if !who.uid.is_empty() {
        user["uid"] = who.uid.as_str().into();
    }
    if !who.extra.is_empty() {
        user["extra"] = json!(who.extra);
    }
    let mut asked = json!({
        "kind": {"group": matched.object_group, "version": matched.object_version, "kind": matched.kind},
        "resource": {"group": matched.group, "version": matched.version, "resource": matched.resource},
        "requestKind": {"group": group, "version": version, "kind": name},
        "requestResource": {"group": kind.group, "version": kind.version, "resource": kind.resource},
        "operation": request.operation.as_str(),
        "userInfo": user,
        "dryRun": request.dry_run,
        "options": request.options.to_value(request.operation),
    });
    if let Some(part) = request.part {
        asked["subResource"] = part.as_str().into();
        asked["requestSubResource"] = part.as_str().into();
    }
    if !named.is_empty() {
        asked["name"] = named.into();
    }
    let namespace = request.placed(object);
    if !namespace.is_empty() {
        asked["namespace"] = namespace.into();
    }
    asked
}

/// The answer.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    /// The status of a refusal.
    pub(super) denied: Option<Value>,
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

impl Answer {
    /// Reads an answer; the error says what is wrong with it.
    pub(super) fn read(bytes: &[u8], uid: &str, version: &str, mutating: bool) -> Result<Answer, String> {
        let review = strict::decode_json(bytes).map_err(|error| error.to_string())?.value;
        let response = &review["response"];
        if !response.is_object() {
            return Err("webhook response was absent".to_owned());
        }
        let strict = version == "v1";
        let given = response["uid"].as_str().unwrap_or_default();
        if strict && given != uid {
            return Err(format!("expected response.uid={uid:?}, got {given:?}"));
        }
        let text = |key: &str| review[key].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if strict && (api_version != "admission.k8s.io/v1" || kind != "AdmissionReview") {
            let got =
                if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}, Kind={kind}"
            ));
        }
        let patch = Self::patch(response, mutating, strict)?;
        let warnings = response["warnings"].as_array().into_iter().flatten();
        let warnings = warnings.filter_map(|text| text.as_str().map(str::to_owned)).collect();
        let denied = (response["allowed"] != true).then(|| response["status"].clone());
        Ok(Answer { denied, patch, warnings })
    }

    fn patch(response: &Value, mutating: bool, strict: bool) -> Result<Option<Value>, String> {
        let given = response["patch"].as_str().filter(|patch| !patch.is_empty());
        let patch_type = response["patchType"].as_str();
        if !mutating {
            return match (strict && given.is_some(), strict && patch_type.is_some()) {
                (true, _) => Err("validating webhook may not return response.patch".to_owned()),
                (false, true) => Err("validating webhook may not return response.patchType".to_owned()),
                _ => Ok(None),
            };
        }
        match (given, patch_type) {
            (Some(_), None) if strict => {
                return Err("webhook returned response.patch but not response.patchType".to_owned());
            }
            (None, Some(_)) if strict => {
                return Err("webhook returned response.patchType but not response.patch".to_owned());
            }
            (Some(_), Some("JSONPatch") | None) => {}
            (Some(_), Some(other)) if strict => return Err(format!("unsupported patch type {other:?}")),
            _ => {}
        }
        let Some(given) = given else { return Ok(None) };
        let undecodable = |why: String| format!("received undecodable patch in webhook response: {why}");
        let bytes = STANDARD.decode(given).map_err(|error| undecodable(error.to_string()))?;
        let patch = strict::decode_json(&bytes).map_err(|error| undecodable(error.to_string()))?.value;
        match patch.as_array() {
            Some(steps) if steps.is_empty() => Ok(None),
            Some(_) => Ok(Some(patch)),
            None => Err(undecodable("the patch is not a list".to_owned())),
        }
    }
}

/// The status that a client is answered with when a webhook refuses.
pub(super) fn denied(name: &str, status: Value) -> Value {
    let mut status = match status {
        Value::Object(status) => status,
        _ => Map::new(),
    };
    status.retain(|key, _| matches!(key.as_str(), "status" | "message" | "reason" | "details" | "code"));
    let code =
        status.get("code").and_then(Value::as_u64).filter(|code| (400..600).contains(code)).unwrap_or(400);
    let text = |key: &str| status.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let head = format!("admission webhook \"{name}\" denied the request");
    let message = match text("message").or_else(|| text("reason")) {
        Some(words) => format!("{head}: {words}"),
        None => format!("{head} without explanation"),
    };
    let mut out = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code,
    });
    if let Some(reason) = text("reason") {
        out["reason"] = reason.into();
    }
    if let Some(details) = status.get("details").filter(|details| details.is_object()) {
        out["details"] = details.clone();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: Value, mutating: bool) -> Result<Answer, String> {
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Answer::read(review.to_string().as_bytes(), "u", "v1", mutating)
    }

    #[test]
    fn an_answer_that_is_not_one_is_not_believed() {
        let patch = STANDARD.encode("[{\"op\":\"remove\",\"path\":\"/a\"}]");
        let good = read(
            json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch", "warnings": ["w"]}),
            true,
        )
        .unwrap();
        assert_eq!((good.denied, good.warnings), (None, vec!["w".to_owned()]));
        assert_eq!(good.patch, Some(json!([{"op": "remove", "path": "/a"}])));
        for (response, mutating, words) in [
            (json!({"uid": "other", "allowed": true}), true, "expected response.uid=\"u\", got \"other\""),
            (
                json!({"uid": "u", "patch": patch}),
                true,
                "webhook returned response.patch but not response.patchType",
            ),
            (
                json!({"uid": "u", "patchType": "JSONPatch"}),
                true,
                "webhook returned response.patchType but not response.patch",
            ),
            (json!({"uid": "u", "patch": patch}), false, "validating webhook may not return response.patch"),
            (json!(null), false, "webhook response was absent"),
        ] {
            assert_eq!(read(response, mutating).unwrap_err(), words);
        }
        let bare = json!({"response": {"uid": "u", "allowed": true}}).to_string();
        assert_eq!(
            Answer::read(bare.as_bytes(), "u", "v1", true).unwrap_err(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
        assert!(Answer::read(b"<html>", "u", "v1", true).is_err());
    }

    #[test]
    fn a_refusal_keeps_code_and_reason_and_says_whose_it_is() {
        let status = denied(
            "a.ex.com",
            json!({"code": 418, "message": "no tea", "reason": "Teapot", "details": {"causes": []}}),
        );
        assert_eq!(status["message"], "admission webhook \"a.ex.com\" denied the request: no tea");
        assert_eq!(
            (&status["code"], &status["reason"], &status["status"]),
            (&json!(418), &json!("Teapot"), &json!("Failure"))
        );
        let bare = denied("a.ex.com", Value::Null);
        assert_eq!(bare["message"], "admission webhook \"a.ex.com\" denied the request without explanation");
        assert_eq!(denied("a.ex.com", json!({"code": 200, "reason": "Odd"}))["code"], 400);
    }
}
