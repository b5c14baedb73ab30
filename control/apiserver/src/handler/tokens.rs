//! Tokens on request: `POST serviceaccounts/<name>/token`.

use http::StatusCode;
use podwire_api::validate::{Cause, FieldError};
use serde_json::{Value, json};

use super::create::{new_uid, timestamp};
use super::{Call, decode};
use crate::body::{self, Response};
use crate::core;
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
    let account = call.core.object(call.kind, call.namespace(), call.name()).await?;
    let asked = request["spec"]["expirationSeconds"].as_i64().unwrap_or(HOUR);
    check_lifetime(asked)?;
    let now = jiff::Timestamp::now().as_second();
    let issuer = call.core.tokens.issuer().to_owned();
    let audiences = match request["spec"]["audiences"].as_array() {
        Some(list) if !list.is_empty() => list.clone(),
        _ => vec![issuer.as_str().into()],
    };
    let own = audiences.iter().any(|audience| *audience == issuer.as_str());
    let life = if asked == EXTENDABLE && own { EXTENDED } else { asked };
    let mut facts = json!({
        "namespace": call.namespace(),
        "serviceaccount": {"name": call.name(), "uid": account["metadata"]["uid"]},
    });
    bind(call, &request["spec"]["boundObjectRef"], &mut facts).await?;
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
        "uid": new_uid(),
    });
    request["spec"]["audiences"] = audiences.into();
    request["spec"]["expirationSeconds"] = asked.into();
    if request["spec"]["boundObjectRef"].is_null() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({
        "token": call.core.tokens.sign(&claims), "expirationTimestamp": timestamp(expires),
    });
    Ok(body::json(StatusCode::CREATED, &request))
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
    let Some(name) = reference["name"].as_str() else { return check_node(call, None) };
    let (resource, claim) = match reference["kind"].as_str() {
        Some("Pod") => ("pods", "pod"),
        Some("Secret") => ("secrets", "secret"),
        Some("Node") => ("nodes", "node"),
        other => {
            let kind = other.unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount to object of type {kind}"
            )));
        }
    };
    let kind = core::kind("", "v1", resource);
    let namespace = if kind.namespaced { call.namespace() } else { "" };
    let object = call.core.object(kind, namespace, name).await?;
    let uid = &object["metadata"]["uid"];
    if let Some(wanted) = reference["uid"].as_str().filter(|wanted| !wanted.is_empty() && uid != wanted) {
        let found = uid.as_str().unwrap_or_default();
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        tracing::debug!(found, wanted, "a token was asked for an object that is another one now");
        return Err(ApiError::conflict(kind, name, &why));
    }
    if claim == "pod" {
        let account = object["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if account != call.name() {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                call.name()
            )));
        }
        check_node(call, object["spec"]["nodeName"].as_str())?;
        if let Some(node) = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            facts["node"] = json!({"name": node});
            if let Ok(node) = call.core.object(core::kind("", "v1", "nodes"), "", node).await {
                facts["node"]["uid"] = node["metadata"]["uid"].clone();
            }
        }
    }
    facts[claim] = json!({"name": name, "uid": uid});
    Ok(())
}

/// A node gets tokens only for pods that run on it.
fn check_node(call: &Call, pod_node: Option<&str>) -> Result<()> {
    match call.identity.node_name() {
        Some(node) if pod_node != Some(node) => {
            let why =
                format!("node requested token bound to a pod scheduled on a different node than {node}");
            Err(ApiError::forbidden("", "serviceaccounts", call.name(), &why))
        }
        _ => Ok(()),
    }
}
