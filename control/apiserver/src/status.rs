//! Errors as clients see them: Kubernetes' `Status` object, with upstream's reasons and wording.

use std::collections::HashSet;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::body::{self, Response};
use podwire_api::Kind;
use podwire_api::validate::FieldError;
use podwire_store::StoreError;

/// A request that failed; the one translation into HTTP is [`ApiError::response`].
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    /// HTTP status code.
    pub(crate) code: StatusCode,
    /// The machine-readable reason, empty where upstream has none.
    pub(crate) reason: &'static str,
    /// What a person reads.
    pub(crate) message: String,
    /// `details` of the Status object.
    pub(crate) details: Map<String, Value>,
    /// `metadata.continue`, only for an expired list.
    pub(crate) continue_token: Option<String>,
    /// Whether `details` is there even if it is empty.
    generic: bool,
    /// What the client was warned of before the request failed.
    warnings: Box<[String]>,
    /// The whole Status, when somebody else made it.
    whole: Option<Box<Value>>,
}

/// The result of everything that may end in a Status.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

fn qualify(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl ApiError {
    /// An error without details.
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            continue_token: None,
            generic: false,
            warnings: Box::default(),
            whole: None,
        }
    }

    /// A refusal by somebody else, who made its Status.
    pub(crate) fn foreign(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| StatusCode::from_u16(code.try_into().ok()?).ok());
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        Self {
            whole: Some(Box::new(status)),
            ..Self::new(code.unwrap_or(StatusCode::BAD_REQUEST), "", message)
        }
    }

    fn about(mut self, name: &str, group: &str, kind: &str) -> Self {
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                self.details.insert(key.into(), value.into());
            }
        }
        self
    }

    /// Marks an error that upstream's router makes, which carries empty details.
    pub(crate) fn generic(mut self) -> Self {
        self.generic = true;
        self
    }

    /// Warnings that were made before the request failed are told nevertheless.
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings.into();
        self
    }

    /// Adds one machine-readable cause.
    pub(crate) fn cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = Map::new();
        for (key, value) in [("reason", reason), ("message", message), ("field", field)] {
            if !value.is_empty() {
                cause.insert(key.into(), value.into());
            }
        }
        let causes = self.details.entry("causes").or_insert_with(|| json!([]));
        if let Some(list) = causes.as_array_mut() {
            list.push(Value::Object(cause));
        }
        self
    }

    /// Tells the client when to come back.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.details.insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// 500 about an object that a watch cannot show.
    pub(crate) fn unreadable(self) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", self.message)
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403 about a resource.
    pub(crate) fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let qualified = qualify(resource, group);
        let message = if name.is_empty() {
            format!("{qualified} is forbidden: {why}")
        } else {
            format!("{qualified} \"{name}\" is forbidden: {why}")
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(name, group, resource)
    }

    /// 404 about an object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified_resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(name, &kind.group, &kind.resource)
    }

    /// 404 about a resource nobody serves.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).generic()
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).generic()
    }

    /// 409 on create.
    pub(crate) fn already_exists(kind: &Kind, name: &str, deleting: bool) -> Self {
        let prefix = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{name}\" already exists", kind.qualified_resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(name, &kind.group, &kind.resource)
    }

    /// 409 on write.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        Self::conflict_of(&kind.group, &kind.resource, name, why)
    }

    /// 409 about something that is named otherwise than by its resource.
    pub(crate) fn conflict_of(group: &str, what: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualify(what, group));
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(name, group, what)
    }

    /// 409 because somebody else wrote first.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 410.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 413.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// What a client is told when etcd does not take an object.
    pub(crate) fn too_large_to_store() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", "etcdserver: request is too large")
    }

    /// 406.
    pub(crate) fn not_acceptable(supported: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {supported}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).generic()
    }

    /// 415.
    pub(crate) fn unsupported_media(supported: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {supported}"
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 422 with one cause per field error.
    pub(crate) fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_of(&kind.group, &kind.kind, name, errors)
    }

    /// 422 about an object that no row of the kinds table describes (options, for example).
    pub(crate) fn invalid_of(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        // The causes may say a thing twice, as upstream's do; the message does not.
        let mut seen = HashSet::new();
        let lines: Vec<String> = errors
            .iter()
            .filter(|e| seen.insert((&e.field, &e.message)))
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect();
        let text = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{shown} \"{name}\" is invalid: {text}");
        let mut error =
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(name, group, kind);
        for e in errors {
            error = error.cause(e.reason.as_str(), &e.message, &e.field);
        }
        error
    }

    /// 422 without causes: a patch that cannot be applied.
    pub(crate) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).generic()
    }

    /// 500.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        let error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message.clone());
        error.cause("", message.trim_start_matches("Internal error occurred: "), "")
    }

    /// 503.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 504 because the request took too long.
    pub(crate) fn timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).generic()
    }

    /// 504 because the revision asked for has not been written yet.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .cause("ResourceVersionTooLarge", "Too large resource version", "")
            .retry_after(1)
    }

    /// The Status object.
    pub(crate) fn to_value(&self) -> Value {
        if let Some(status) = &self.whole {
            return Value::clone(status);
        }
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_empty() || self.generic {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }

    /// The HTTP response: the only place where an error becomes one.
    pub(crate) fn response(&self) -> Response {
        let mut response = body::json(self.code, &self.to_value());
        body::warn(&mut response, &self.warnings);
        if let Some(seconds) = self.details.get("retryAfterSeconds").and_then(Value::as_u64) {
            response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Compacted { .. } => {
                Self::expired("The resourceVersion for the provided list is too old.")
            }
            StoreError::TooLarge { limit, .. } => Self::too_large(limit),
            StoreError::Closed => Self::unavailable("the server is shutting down"),
            // Nothing was done: asking again does no harm.
            StoreError::Unavailable { .. } => Self::unavailable(error.to_string()),
            // Of an outcome that is not known something may have been done: who asks again has to look first.
            StoreError::TimedOut { .. } | StoreError::OutcomeUnknown { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", error.to_string())
            }
            other => {
                let message = crate::error_chain(&other);
                tracing::error!(error = %message, "the store refused a request");
                Self::internal(message)
            }
        }
    }
}

/// A Status of success, as deletion answers for most kinds.
pub(crate) fn success(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", &kind.group), ("kind", &kind.resource), ("uid", uid)] {
        if !value.is_empty() {
            details.insert(key.into(), value.into());
        }
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    })
}
