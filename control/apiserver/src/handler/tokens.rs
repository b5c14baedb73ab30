//! Tokens on request: `POST serviceaccounts/<name>/token`.

use http::StatusCode;
use podwire_api::builtin;
use podwire_api::validate::{Cause, FieldError};
use serde_json::{Value, json};

use super::create::{new_uid, timestamp};
use super::{Call, decode};
use crate::admission::{self, Operation, Request};
use crate::body::{self, Response};
use crate::status::{ApiError, Result};

const HOUR: i64 = 3600;
/// The lifetime kubelets ask for when the program inside may not know about rotation.
const EXTENDABLE: i64 = 3607;
/// What such a token really gets.
const EXTENDED: i64 = 365 * 24 * HOUR;

/// Signs a token for an account, bound to what the body names.
pub(crate) async fn request(call: &mut Call) -> Result<Response> {
    let bytes = call.bytes().await?;
    let mut request = if bytes.is_empty() { json!({}) } else { decode::loose(call, &bytes)? };
    if !request["spec"].is_object() {
        request["spec"] = json!({});
    }
    check_place(call, &request["metadata"])?;
    admission::admit(&Request::of(call, Operation::Create), &mut request).await?;
    let account = call.context.object(&call.kind, call.namespace(), call.name()).await?;
    check_account(call, &request["metadata"], &account["metadata"]["uid"])?;
    let wanted = request["spec"]["expirationSeconds"].as_i64().unwrap_or(HOUR);
    check_lifetime(wanted)?;
    let mut facts = json!({
        "namespace": call.namespace(),
        "serviceaccount": {"name": call.name(), "uid": account["metadata"]["uid"]},
    });
    bind(call, &request["spec"]["boundObjectRef"], &mut facts).await?;
    let issuer = call.context.tokens.issuer().to_owned();
    let audiences = match request["spec"]["audiences"].as_array() {
        Some(list) if !list.is_empty() => list.clone(),
        _ => vec![issuer.as_str().into()],
    };
    let asked = shortened(call, wanted);
    // Only for the audience of this server itself, and only for a pod.
    let own = facts["pod"].is_object() && audiences.iter().all(|audience| *audience == issuer.as_str());
    let life = if asked == EXTENDABLE && own { EXTENDED } else { asked };
    let now = jiff::Timestamp::now().as_second();
    if life != asked {
        facts["warnafter"] = (now + asked).into();
    }
    let claims = json!({
        "iss": issuer, "sub": format!("system:serviceaccount:{}:{}", call.namespace(), call.name()),
        "aud": audiences, "iat": now, "nbf": now, "exp": now + life, "jti": new_uid(), "kubernetes.io": facts,
    });
    let expires = jiff::Timestamp::from_second(now + asked).unwrap_or(jiff::Timestamp::MAX);
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["kind"] = "TokenRequest".into();
    request["metadata"] = json!({
        "name": call.name(), "namespace": call.namespace(), "creationTimestamp": timestamp(jiff::Timestamp::now()),
        "uid": account["metadata"]["uid"],
    });
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = asked.into();
    if request["spec"]["boundObjectRef"].is_null() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({
        "token": call.context.tokens.sign(&claims), "expirationTimestamp": timestamp(expires),
    });
    Ok(body::json(StatusCode::CREATED, &request))
}

/// What the body says about the account must be what the URL says.
fn check_place(call: &Call, metadata: &Value) -> Result<()> {
    let pairs = [("name", call.name(), "name"), ("namespace", call.namespace(), "namespace")];
    for (key, expected, what) in pairs {
        let given = metadata[key].as_str().unwrap_or_default();
        if !given.is_empty() && given != expected {
            let message = format!(
                "Invalid value: {}: must match the service account {what} if specified",
                Value::from(given)
            );
            let error = FieldError { reason: Cause::Invalid, field: format!("metadata.{key}"), message };
            return Err(ApiError::invalid_of("authentication.k8s.io", "TokenRequest", call.name(), &[error]));
        }
    }
    Ok(())
}

/// A uid in the body is a precondition.
fn check_account(call: &Call, metadata: &Value, uid: &Value) -> Result<()> {
    let (given, uid) = (metadata["uid"].as_str().unwrap_or_default(), uid.as_str().unwrap_or_default());
    if given.is_empty() || given == uid {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
    );
    Err(ApiError::conflict_of("authentication.k8s.io", "TokenRequest", call.name(), &why))
}

/// No token lives longer than the server allows.
fn shortened(call: &mut Call, asked: i64) -> i64 {
    match call.context.tokens.longest_life().filter(|longest| asked > *longest) {
        Some(longest) => {
            call.warnings
                .push(format!("requested expiration of {asked} seconds shortened to {longest} seconds"));
            longest
        }
        None => asked,
    }
}

fn check_lifetime(seconds: i64) -> Result<()> {
    let problem = if seconds < 600 {
        "may not specify a duration less than 10 minutes"
    } else if seconds > 1 << 32 {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let error = FieldError {
        reason: Cause::Invalid,
        field: "spec.expirationSeconds".into(),
        message: format!("Invalid value: {seconds}: {problem}"),
    };
    Err(ApiError::invalid_of("authentication.k8s.io", "TokenRequest", "", &[error]))
}

/// Puts the bound object and its node into the claims.
async fn bind(call: &Call, reference: &Value, facts: &mut Value) -> Result<()> {
    if reference.is_null() {
        return Ok(());
    }
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (group, version) = podwire_api::split_api_version(text("apiVersion"));
    let (kind, claim) = match (group, text("kind")) {
        ("", "Pod") => (builtin::pods(), "pod"),
        ("", "Secret") => (builtin::secrets(), "secret"),
        ("", "Node") => (builtin::nodes(), "node"),
        (group, kind) => {
            return Err(ApiError::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let namespace = if kind.namespaced { call.namespace() } else { "" };
    let name = text("name");
    let object = call.context.object(kind, namespace, name).await?;
    if claim == "pod" {
        let account = object["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if account != call.name() {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                call.name()
            )));
        }
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let wanted = text("uid");
    if !wanted.is_empty() && uid != wanted {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict_of("", text("kind"), name, &why));
    }
    if let Some(node) = object["spec"]["nodeName"].as_str().filter(|node| claim == "pod" && !node.is_empty())
    {
        facts["node"] = json!({"name": node});
        if let Ok(node) = call.context.object(builtin::nodes(), "", node).await {
            facts["node"]["uid"] = node["metadata"]["uid"].clone();
        }
    }
    facts[claim] = json!({"name": name, "uid": uid});
    Ok(())
}
