//! Rules of probes and lifecycle handlers.

use serde_json::Value;

use super::super::error::{Errors, list, text};
use crate::path::Path;
use crate::syntax;

pub(super) fn probe(probe: &Value, once: bool, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    handler(probe, grace, path, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.nonnegative(&path.child(field), &probe[field]);
    }
    if let Some(seconds) = probe["terminationGracePeriodSeconds"].as_i64().filter(|s| *s <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
    let threshold = probe["successThreshold"].as_i64().unwrap_or(0);
    if once && threshold != 1 {
        errors.invalid(&path.child("successThreshold"), threshold, "must be 1");
    }
    if !once && !probe["terminationGracePeriodSeconds"].is_null() {
        let seconds = &probe["terminationGracePeriodSeconds"];
        errors.invalid(
            &path.child("terminationGracePeriodSeconds"),
            seconds,
            "must not be set for readinessProbes",
        );
    }
}

/// Exactly one kind of handler, and its own fields.
pub(super) fn handler(handler: &Value, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for field in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[field];
        if !action.is_object() {
            continue;
        }
        let here = path.child(field);
        if found {
            errors.forbidden(&here, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match field {
            "exec" => {
                if list(&action["command"]).is_empty() {
                    errors.required(&here.child("command"), "");
                }
            }
            "httpGet" => http_get(action, &here, errors),
            "sleep" => sleep(action, grace, &here, errors),
            _ => port_or_name(&action["port"], &here.child("port"), errors),
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(action: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(&action["path"]).is_empty() {
        errors.required(&path.child("path"), "");
    }
    port_or_name(&action["port"], &path.child("port"), errors);
    let scheme = text(&action["scheme"]);
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in list(&action["httpHeaders"]) {
        let name = text(&header["name"]);
        errors.all_invalid(&path.child("httpHeaders"), name, syntax::http_header(name));
    }
}

fn sleep(action: &Value, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let seconds = action["seconds"].as_i64().unwrap_or(0);
    if let Some(grace) = grace
        && (seconds < 0 || seconds > grace)
    {
        let words = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, &words);
    }
}

/// A port given by number or by name.
pub(in crate::validate) fn port_or_name(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.all_invalid(path, name, syntax::port_name(name)),
        number => {
            let number = number.as_i64().unwrap_or(0);
            if let Some(words) = syntax::port_number(number) {
                errors.invalid(path, number, words);
            }
        }
    }
}
