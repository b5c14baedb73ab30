//! Options of writes, from the query and from a `DeleteOptions` body.

use std::sync::Arc;

use podwire_api::strict;
use podwire_api::validate::{Cause, FieldError};
use serde_json::{Value, json};

use super::Call;
use super::decode;
use crate::admission::Told;
use crate::status::{ApiError, Result};

/// What to do about fields nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    Warn,
    /// Refuse the object.
    Strict,
}

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// Do everything but write.
    pub(crate) dry_run: bool,
    /// Unknown fields.
    pub(crate) validation: FieldValidation,
    /// Who owns the fields that are written.
    pub(crate) manager: String,
    /// Whether `manager` was named by the client.
    pub(crate) manager_given: bool,
    /// What the client is warned of.
    pub(crate) told: Arc<Told>,
    /// Whether the server writes what every cluster has, or what only it may write.
    pub(crate) by_server: bool,
}

fn unsupported(field: &str, value: &str, supported: &str) -> FieldError {
    FieldError {
        reason: Cause::NotSupported,
        field: field.to_owned(),
        message: format!("Unsupported value: {value}: supported values: {supported}"),
    }
}

impl WriteOptions {
    /// Reads the query; `kind` names the options in errors (`CreateOptions`).
    pub(crate) fn read(call: &Call, kind: &str) -> Result<Self> {
        let mut errors = Vec::new();
        let dry_run = query_dry_run(call, &mut errors);
        let validation = match call.query.text("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                errors.push(unsupported(
                    "fieldValidation",
                    &quoted(other),
                    "\"\", \"Ignore\", \"Strict\", \"Warn\"",
                ));
                FieldValidation::Warn
            }
        };
        let given = call.query.text("fieldManager");
        if given.is_some_and(|name| name.chars().count() > 128) {
            errors.push(FieldError {
                reason: Cause::TooLong,
                field: "fieldManager".into(),
                message: "Too long: may not be more than 128 bytes".into(),
            });
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid_of("meta.k8s.io", kind, "", &errors));
        }
        let manager = given.map_or_else(|| agent(call), str::to_owned);
        let told = call.told.clone();
        Ok(Self { dry_run, validation, manager, manager_given: given.is_some(), told, by_server: false })
    }
}

impl WriteOptions {
    /// As webhooks see them.
    pub(crate) fn to_value(&self, kind: &str) -> Value {
        let mut out = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            out["dryRun"] = json!(["All"]);
        }
        if self.manager_given {
            out["fieldManager"] = self.manager.as_str().into();
        }
        match self.validation {
            FieldValidation::Strict => out["fieldValidation"] = "Strict".into(),
            FieldValidation::Ignore => out["fieldValidation"] = "Ignore".into(),
            FieldValidation::Warn => {}
        }
        out
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn dry_run(values: &[&str], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.push(unsupported("dryRun", &json!(values).to_string(), "\"All\""));
    }
    !values.is_empty()
}

fn query_dry_run(call: &Call, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = call.query.all("dryRun").filter(|value| !value.is_empty()).collect();
    dry_run(&values, errors)
}

/// The name of the program that asks, up to its version.
fn agent(call: &Call) -> String {
    let header = call.parts.headers.get(http::header::USER_AGENT);
    let text = header.and_then(|value| value.to_str().ok()).unwrap_or("unknown");
    text.split('/').next().unwrap_or_default().chars().take(128).collect()
}

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    /// What the client is warned of.
    pub(crate) told: Arc<Told>,
    /// Seconds, when the client said how many.
    pub(crate) grace: Option<i64>,
    /// `Background`, `Foreground` or `Orphan`.
    pub(crate) propagation: Option<String>,
    /// The object must have this uid.
    pub(crate) uid: Option<String>,
    /// The object must be at this version.
    pub(crate) resource_version: Option<String>,
    /// Do everything but write.
    pub(crate) dry_run: bool,
    /// Whether the server deletes what cannot stay.
    pub(crate) by_server: bool,
}

impl DeleteOptions {
    /// Reads body and query; the body wins.
    pub(crate) async fn read(call: &mut Call) -> Result<Self> {
        let bytes = call.bytes().await?;
        let mut body = if bytes.is_empty() { Value::Null } else { decode::loose(call, &bytes)? };
        if let Some(schema) = strict::message("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
            && !body.is_null()
        {
            strict::conform_message(schema, &mut body)
                .map_err(|error| ApiError::bad_request(error.to_string()))?;
        }
        let mut options = Self { told: call.told.clone(), ..Self::from_value(&body) };
        let mut errors = Vec::new();
        if body.is_null() {
            options.grace = call.query.number("gracePeriodSeconds")?;
            options.propagation = call.query.text("propagationPolicy").map(str::to_owned);
        }
        options.dry_run |= query_dry_run(call, &mut errors);
        let values: Vec<&str> =
            body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        options.dry_run |= dry_run(&values, &mut errors);
        if let Some(policy) = options.propagation.as_deref()
            && !matches!(policy, "Background" | "Foreground" | "Orphan")
        {
            let known = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
            errors.push(unsupported("propagationPolicy", &quoted(policy), known));
        }
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid_of("meta.k8s.io", "DeleteOptions", "", &errors))
        }
    }

    /// The options in a decoded object.
    pub(crate) fn from_value(body: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            grace: body["gracePeriodSeconds"].as_i64(),
            propagation: text(&body["propagationPolicy"]).or_else(|| {
                let orphan = body["orphanDependents"].as_bool()?;
                Some(if orphan { "Orphan" } else { "Background" }.to_owned())
            }),
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            dry_run: false,
            by_server: false,
            told: Arc::default(),
        }
    }

    /// As webhooks see them.
    pub(crate) fn to_value(&self) -> Value {
        let mut out = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            out["dryRun"] = json!(["All"]);
        }
        if let Some(grace) = self.grace {
            out["gracePeriodSeconds"] = grace.into();
        }
        if let Some(policy) = &self.propagation {
            out["propagationPolicy"] = policy.as_str().into();
        }
        for (key, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                out["preconditions"][key] = value.as_str().into();
            }
        }
        out
    }
}
