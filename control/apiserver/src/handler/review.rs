//! Reviews: questions about tokens and rights, answered and not stored.

use http::StatusCode;
use podwire_api::apply;
use podwire_api::validate::{Cause, FieldError};
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::{Call, decode};
use crate::authz;
use crate::body::Response;
use crate::handler::render;
use crate::identity::{AUTHENTICATED, Identity};
use crate::request::{RequestInfo, ResourceInfo};
use crate::status::{ApiError, Result};

/// Answers a review.
pub(crate) async fn answer(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let bytes = call.bytes().await?;
    let mut review = decode::object(call, call.kind, &bytes, super::options::FieldValidation::Ignore)?;
    check(call.kind.kind, &review["spec"])?;
    track(call, &mut review)?;
    review["status"] = match call.kind.kind {
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
    Ok(render::value(StatusCode::CREATED, rep, call.kind, &review))
}

/// Refuses questions that ask nothing.
fn check(kind: &str, spec: &Value) -> Result<()> {
    match kind {
        "TokenReview" if spec["token"].as_str().unwrap_or_default().is_empty() => {
            Err(ApiError::bad_request("token is required for TokenReview in authentication"))
        }
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview"
            if spec["resourceAttributes"].is_object() == spec["nonResourceAttributes"].is_object() =>
        {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let error = FieldError {
                reason: Cause::Invalid,
                field: "spec.resourceAttributes".into(),
                message: format!("Invalid value: {}: {why}", spec["resourceAttributes"]),
            };
            Err(ApiError::invalid_of("authorization.k8s.io", "", "", &[error]))
        }
        _ => Ok(()),
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
    apply::track_update(call.kind, None, review, &writer);
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
    match call.core.tokens.identify(&call.core, text, audiences.as_deref()).await {
        Ok(verified) => json!({
            "authenticated": true, "user": user_info(&verified.identity), "audiences": verified.audiences,
        }),
        Err(error) => {
            tracing::debug!(%error, "a reviewed token was refused");
            json!({"user": {}, "error": "invalid bearer token"})
        }
    }
}

fn subject(spec: &Value) -> Identity {
    let mut identity = Identity::new(spec["user"].as_str().unwrap_or_default(), &[]);
    identity.groups = spec["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if !identity.is_in(crate::identity::UNAUTHENTICATED) && !identity.is_in(AUTHENTICATED) {
        identity.groups.push(AUTHENTICATED.into());
    }
    identity
}

/// The verbs authorization knows.
fn verb(text: &str) -> &'static str {
    const KNOWN: &[&str] = &[
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "head",
        "post",
        "put",
        "impersonate",
        "bind",
        "escalate",
        "approve",
        "sign",
        "use",
        "*",
    ];
    KNOWN.iter().find(|known| **known == text).copied().unwrap_or("unknown")
}

fn access(call: &Call, identity: &Identity, spec: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = &spec["resourceAttributes"];
    let info = if resource.is_object() {
        RequestInfo {
            path: String::new(),
            verb: verb(resource["verb"].as_str().unwrap_or_default()),
            resource: Some(ResourceInfo {
                group: text(&resource["group"]),
                version: text(&resource["version"]),
                namespace: text(&resource["namespace"]),
                resource: text(&resource["resource"]),
                name: text(&resource["name"]),
                subresource: text(&resource["subresource"]),
                tail: String::new(),
            }),
        }
    } else {
        let path = &spec["nonResourceAttributes"];
        RequestInfo {
            path: text(&path["path"]),
            verb: verb(path["verb"].as_str().unwrap_or_default()),
            resource: None,
        }
    };
    json!({"allowed": authz::permitted(&call.core, identity, &info)})
}

fn rules(call: &Call, spec: &Value) -> Value {
    let identity = &call.identity;
    let own = json!({
        "verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    });
    let open = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]});
    let (mut resources, mut paths) = (vec![own], vec![open]);
    if identity.is_in("system:masters") {
        resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    }
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    for rule in authz::rbac::rules(&call.core, identity, namespace) {
        if rule["nonResourceURLs"].is_array() { paths.push(rule) } else { resources.push(rule) }
    }
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}
