//! The API server as the kubelet calls it, on the bytes that matter: status patches, deletes, creates.

use http::{Method, Request};
use http_body_util::BodyExt;
use podwire_client::Body;
use podwire_trace::{Arrow, Outcome, Participant, Side, What};
use serde_json::Value;

use crate::spec::PodRef;

/// A call that the API server refused or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// It answered with an error.
    #[error("{method} {path}: {code} {message}")]
    Refused {
        /// HTTP method.
        method: Method,
        /// Path.
        path: String,
        /// HTTP status.
        code: u16,
        /// The reason in the Status object.
        reason: String,
        /// The message in the Status object, or the body.
        message: String,
    },
    /// It could not be reached.
    #[error("{method} {path}")]
    Unreachable {
        /// HTTP method.
        method: Method,
        /// Path.
        path: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ApiError {
    /// The HTTP status, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            ApiError::Refused { code, .. } => Some(*code),
            ApiError::Unreachable { .. } => None,
        }
    }

    /// The object does not exist, or not under the uid that was named.
    ///
    /// Another kind of conflict only means that somebody else wrote at the same time.
    pub fn is_gone(&self) -> bool {
        match self {
            ApiError::Refused { code: 404, .. } => true,
            ApiError::Refused { code: 409, message, .. } => {
                message.to_ascii_lowercase().contains("precondition failed: uid")
            }
            _ => false,
        }
    }

    /// Asking again with the same content is useless.
    pub fn is_refused(&self) -> bool {
        matches!(self.code(), Some(400 | 403 | 405 | 415 | 422))
    }

    /// The message the API server gave, or why it could not be reached.
    pub fn message(&self) -> String {
        match self {
            ApiError::Refused { message, .. } => message.clone(),
            ApiError::Unreachable { source, .. } => source.to_string(),
        }
    }
}

/// Content types.
const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

/// A thin client over `podwire_client::Client` that neither decodes nor encodes more than it must.
#[derive(Clone)]
pub struct Api {
    client: podwire_client::Client,
}

impl Api {
    /// Wraps a client.
    pub fn new(client: podwire_client::Client) -> Api {
        Api { client }
    }

    /// One request; the body of a successful answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ApiError> {
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| ApiError::Unreachable {
            method: method.clone(),
            path: path.to_owned(),
            source,
        };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .header(http::header::ACCEPT, JSON)
            .body(Body::from(body))
            .map_err(|e| unreachable(Box::new(e)))?;
        let response = self.client.send(request).await.map_err(|e| unreachable(Box::new(e)))?;
        let code = response.status();
        let bytes = response.into_body().collect().await.map_err(unreachable)?.to_bytes();
        if code.is_success() {
            return Ok(bytes.into());
        }
        let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |key: &str| status.get(key).and_then(Value::as_str).map(str::to_owned);
        Err(ApiError::Refused {
            method,
            path: path.to_owned(),
            code: code.as_u16(),
            reason: text("reason").unwrap_or_default(),
            message: text("message").unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    /// One request on behalf of a pod, drawn on its path.
    async fn call_for(
        &self,
        pod: &PodRef,
        method: Method,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, ApiError> {
        let verb = method.clone();
        let what = What::Http { method: verb.as_str(), path };
        let arrow = Arrow::new(pod.traced(), Participant::Kubelet, Participant::ApiServer, what);
        let call = self.call(method, path, content, body);
        let outcome = |answer: &Result<Vec<u8>, ApiError>| Outcome::of(answer, |_| "200".to_owned());
        Arrow { side: Side::Client, ..arrow }.around_async(call, outcome).await
    }

    /// Reads an object on behalf of a pod, drawn on its path.
    pub(crate) async fn get_for(&self, pod: &PodRef, path: &str) -> Result<Value, ApiError> {
        let answer = self.call_for(pod, Method::GET, path, JSON, Vec::new()).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// One request with JSON in and out.
    pub async fn json(&self, method: Method, path: &str, body: &Value) -> Result<Value, ApiError> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.call(method, path, JSON, bytes).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Reads an object.
    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.json(Method::GET, path, &Value::Null).await
    }

    /// Patches a pod's status.
    pub async fn patch_pod_status(&self, pod: &PodRef, body: &[u8]) -> Result<(), ApiError> {
        let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.namespace, pod.name);
        self.call_for(pod, Method::PATCH, &path, STRATEGIC, body.to_vec()).await.map(drop)
    }

    /// Strategic merge patch of any object.
    pub async fn patch_strategic(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let answer = self.call(Method::PATCH, path, STRATEGIC, body.to_string().into_bytes()).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Merge patch of any object.
    pub async fn patch_merge(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let answer = self.call(Method::PATCH, path, MERGE, body.to_string().into_bytes()).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Removes the object of a pod that is no more, unless another pod has taken its name.
    pub async fn delete_pod(&self, pod: &PodRef) -> Result<(), ApiError> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let options = serde_json::json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid.as_str()},
        });
        self.call_for(pod, Method::DELETE, &path, JSON, options.to_string().into_bytes()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> ApiError {
        let (method, path) = (Method::PATCH, String::new());
        ApiError::Refused { method, path, code, reason: "Conflict".into(), message: message.into() }
    }

    #[test]
    fn only_another_uid_means_that_the_object_is_gone() {
        assert!(refused(404, "pods \"p\" not found").is_gone());
        let other = "Operation cannot be fulfilled on pods \"p\": Precondition failed: UID in precondition: a, UID in object meta: b";
        assert!(refused(409, other).is_gone());
        let busy = "Operation cannot be fulfilled on pods \"p\": the object has been modified";
        assert!(!refused(409, busy).is_gone());
    }
}
