//! Reviews: questions about tokens and rights, answered and not stored.

use http::StatusCode;
use podwire_api::apply;
use podwire_api::validate::{Cause, FieldError};
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::{Call, decode};
use crate::authz::{self, Attributes};
use crate::body::Response;
use crate::handler::render;
use crate::identity::Identity;
use crate::request::ResourceInfo;
use crate::status::{ApiError, Result};

/// Answers a review.
pub(crate) async fn answer(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let bytes = call.bytes().await?;
    let mut review =
        decode::object(call, &call.kind.clone(), &bytes, super::options::FieldValidation::Ignore)?;
    super::create::check_namespace(&call.kind, call.namespace(), &mut review)?;
    check(&call.kind.kind, &review)?;
    track(call, &mut review)?;
    review["status"] = match call.kind.kind.as_ref() {
        "TokenReview" => token(call, &review["spec"]).await,
        "SelfSubjectReview" => json!({"userInfo": user_info(&call.identity)}),
        "SelfSubjectAccessReview" => access(call, &call.identity, &review["spec"]),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access(call, &subject(&review["spec"]), &review["spec"])
        }
        "SelfSubjectRulesReview" => rules(call, &review["spec"]),
        _ => return Err(ApiError::method_not_allowed()),
    };
    if call.kind.kind == "SelfSubjectReview" {
        review["metadata"]["creationTimestamp"] = super::create::now().into();
    }
    Ok(render::value(StatusCode::CREATED, rep, &call.kind, &review))
}

/// Refuses questions that ask nothing, or about another namespace than the one they are asked in.
fn check(kind: &str, review: &Value) -> Result<()> {
    let spec = &review["spec"];
    if kind == "TokenReview" {
        let none = spec["token"].as_str().unwrap_or_default().is_empty();
        let why = "token is required for TokenReview in authentication";
        return if none { Err(ApiError::bad_request(why)) } else { Ok(()) };
    }
    if !kind.ends_with("AccessReview") {
        return Ok(());
    }
    let mut errors = Vec::new();
    let mut invalid = |field: &str, value: &Value, why: &str| {
        let message = format!("Invalid value: {value}: {why}");
        errors.push(FieldError { reason: Cause::Invalid, field: field.into(), message });
    };
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_object(), path.is_object()) {
        (true, true) => invalid(
            "spec.nonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        ),
        (false, false) => invalid(
            "spec.resourceAttributes",
            resource,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty()
        && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if kind != "SelfSubjectAccessReview" && nobody {
        invalid("spec.user", &Value::from(""), "at least one of user or group must be specified");
    }
    if kind == "LocalSubjectAccessReview" {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let asked = text(&resource["namespace"]);
        if resource.is_object() && asked != text(&review["metadata"]["namespace"]) {
            let field = "spec.resourceAttributes.namespace";
            invalid(field, &asked.into(), "must match metadata.namespace");
        }
        if path.is_object() {
            invalid("spec.nonResourceAttributes", path, "disallowed on this kind of request");
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid_of("authorization.k8s.io", "", "", &errors))
    }
}

/// Says whose fields the question's are, as for any created object.
fn track(call: &Call, review: &mut Value) -> Result<()> {
    let options = WriteOptions::read(call, "CreateOptions")?;
    let writer = apply::Writer {
        manager: &options.manager,
        operation: apply::Operation::Update,
        subresource: "",
        time: jiff::Timestamp::now(),
    };
    apply::track_update(&call.kind, None, review, &writer);
    Ok(())
}

fn user_info(identity: &Identity) -> Value {
    let mut info = json!({"username": identity.user, "groups": identity.groups});
    if !identity.uid.is_empty() {
        info["uid"] = identity.uid.as_str().into();
    }
    if !identity.extra.is_empty() {
        info["extra"] = json!(identity.extra);
    }
    info
}

async fn token(call: &Call, spec: &Value) -> Value {
    let text = spec["token"].as_str().unwrap_or_default();
    let audiences: Option<Vec<String>> = spec["audiences"]
        .as_array()
        .filter(|list| !list.is_empty())
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    match call.context.tokens.identify(&call.context, text, audiences.as_deref()).await {
        Ok(verified) => json!({
            "authenticated": true, "user": user_info(&verified.identity), "audiences": verified.audiences,
        }),
        Err(error) => {
            tracing::debug!(%error, "a reviewed token was refused");
            json!({"user": {}, "error": "invalid bearer token"})
        }
    }
}

/// Whom the question is about; it has the groups that are named, and no others.
fn subject(spec: &Value) -> Identity {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    Identity {
        user: spec["user"].as_str().unwrap_or_default().to_owned(),
        groups: strings(&spec["groups"]),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        extra: extra.map(|(key, values)| (key.to_lowercase(), strings(values))).collect(),
    }
}

/// The fields that a selector in a question fixes.
fn required(selector: &Value) -> Vec<(String, String)> {
    if let Some(raw) = selector["rawSelector"].as_str().filter(|raw| !raw.is_empty()) {
        return crate::request::required(raw);
    }
    let terms = selector["requirements"].as_array().into_iter().flatten();
    let fixed = terms.filter(|term| term["operator"] == "In");
    let pairs = fixed.filter_map(|term| match term["values"].as_array().map(Vec::as_slice) {
        Some([one]) => Some((term["key"].as_str()?.to_owned(), one.as_str()?.to_owned())),
        _ => None,
    });
    pairs.collect()
}

fn access(call: &Call, identity: &Identity, spec: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let decision = if resource.is_object() {
        let info = ResourceInfo {
            group: text(&resource["group"]),
            version: text(&resource["version"]),
            namespace: text(&resource["namespace"]),
            resource: text(&resource["resource"]),
            name: text(&resource["name"]),
            subresource: text(&resource["subresource"]),
            required: required(&resource["fieldSelector"]),
            ..ResourceInfo::default()
        };
        let verb = text(&resource["verb"]);
        authz::decide(&call.context, identity, &Attributes::resource(&verb, &info))
    } else {
        let (verb, path) = (text(&path["verb"]), text(&path["path"]));
        authz::decide(&call.context, identity, &Attributes { verb: &verb, path: &path, resource: None })
    };
    let mut status = json!({"allowed": decision.is_allowed()});
    let reason = decision.reason(identity);
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    status
}

/// The rules that roles give; nodes have more than can be listed.
fn rules(call: &Call, spec: &Value) -> Value {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in call.context.authorizer.rbac.rules_of(&call.identity, namespace) {
        if rule.urls.is_empty() { resources.push(rule.to_value()) } else { paths.push(rule.to_value()) }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if call.identity.is_node() {
        status["incomplete"] = true.into();
        status["evaluationError"] = "node authorizer does not support user rule resolution".into();
    }
    status
}
