//! Rules of admission policies and their bindings, but for what their expressions say: whoever evaluates them judges those.

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
use super::{condition, meta, webhook};
use crate::json_path::JsonPath;
use crate::path::Path;
use crate::syntax;

const MOST_ANNOTATIONS: usize = 20;
/// The longest expression of an annotation, in bytes.
const LONGEST_ANNOTATION: usize = 5 * 1024;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
/// Words that are no names in CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Rules of a policy; its match conditions are looked at again only if they may mean something else than before.
pub(crate) fn policy(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], &path, errors);
    if spec["paramKind"].is_object() {
        param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let here = path.child("matchConstraints");
    if spec["matchConstraints"].is_object() {
        match_resources(&spec["matchConstraints"], &here, errors);
        if list(&spec["matchConstraints"]["resourceRules"]).is_empty() {
            errors.required(&here.child("resourceRules"), "");
        }
    } else {
        errors.required(&here, "");
    }
    if !old.is_some_and(|old| same_conditions(spec, &old["spec"])) {
        webhook::conditions(list(&spec["matchConditions"]), &path.child("matchConditions"), errors);
    }
    let variables = path.child("variables");
    for (at, one) in list(&spec["variables"]).iter().enumerate() {
        variable(one, &variables.index(at), errors);
    }
    let (validations, annotations) = (list(&spec["validations"]), list(&spec["auditAnnotations"]));
    if validations.is_empty() && annotations.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let words = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child(key), words);
        }
        return;
    }
    let here = path.child("validations");
    for (at, one) in validations.iter().enumerate() {
        validation(one, &here.index(at), errors);
    }
    audit_annotations(
        text(&object["metadata"]["name"]),
        annotations,
        &path.child("auditAnnotations"),
        errors,
    );
}

fn same_conditions(new: &Value, old: &Value) -> bool {
    new["paramKind"] == old["paramKind"] && list(&new["matchConditions"]) == list(&old["matchConditions"])
}

fn one_of(of: &Value, key: &str, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match of[key].as_str() {
        None => errors.required(&path.child(key), ""),
        Some(given) if known.contains(&given) => {}
        Some(given) => errors.not_supported(&path.child(key), given, known),
    }
}

fn param_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (given, here) = (text(&kind["apiVersion"]), path.child("apiVersion"));
    let (group, version) = given.split_once('/').unwrap_or(("", given));
    if given.is_empty() {
        errors.required(&here, "");
    } else if version.contains('/') {
        errors.invalid(&here, given, &format!("unexpected GroupVersion string: {given}"));
    } else {
        let joined = |complaints: Vec<String>| complaints.join(",");
        if !group.is_empty() && !syntax::dns_subdomain(group).is_empty() {
            errors.invalid(&here, group, &joined(syntax::dns_subdomain(group)));
        }
        if version.is_empty() {
            errors.invalid(&here, given, "version must be specified");
        } else if !syntax::dns_1035_label(version).is_empty() {
            errors.invalid(&here, version, &joined(syntax::dns_1035_label(version)));
        }
    }
    let (name, here) = (text(&kind["kind"]), path.child("kind"));
    let complaints = syntax::dns_1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&here, "");
    } else if !complaints.is_empty() {
        let words = "may have mixed case, but should otherwise match: ";
        errors.invalid(&here, name, &format!("{words}{}", complaints.join(",")));
    }
}

fn match_resources(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    one_of(given, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for key in ["namespaceSelector", "objectSelector"] {
        match given[key].is_object() {
            true => meta::label_selector(&given[key], &path.child(key), errors),
            false => errors.required(&path.child(key), ""),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let here = path.child(key);
        for (at, rule) in list(&given[key]).iter().enumerate() {
            named_rule(rule, &here.index(at), errors);
        }
    }
}

fn named_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, mut seen) = (path.child("resourceNames"), Seen::default());
    for (at, name) in list(&rule["resourceNames"]).iter().map(text).enumerate() {
        errors.all_invalid(&here.index(at), name, syntax::path_segment(name));
        if seen.again(name) {
            errors.duplicate(&here.index(at), name);
        }
    }
    webhook::rule(rule, path, errors);
}

fn variable(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(&variable["name"]);
    let is_name = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !RESERVED.contains(&name);
    if name.trim().is_empty() {
        errors.required(&path.child("name"), "name is not specified");
    } else if !is_name {
        errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
    }
    if text(&variable["expression"]).trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    }
}

fn validation(validation: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(&validation["expression"]).trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    }
    let given = text(&validation["messageExpression"]);
    if !given.is_empty() && given.trim().is_empty() {
        errors.invalid(&path.child("messageExpression"), given, "must be non-empty if specified");
    }
    let message = text(&validation["message"]);
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&path.child("message"), message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&path.child("message"), message, "must not contain line breaks");
    }
    if let Some(reason) = validation["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
        errors.not_supported(&path.child("reason"), reason, &REASONS);
    }
}

fn audit_annotations(name: &str, given: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if given.len() > MOST_ANNOTATIONS {
        let shown = |one: &Value| {
            let part = |key: &str| Value::from(text(&one[key])).to_string();
            format!("{{\"Key\":{},\"ValueExpression\":{}}}", part("key"), part("valueExpression"))
        };
        let shown = format!("[{}]", given.iter().map(shown).collect::<Vec<_>>().join(","));
        let words = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        errors.invalid(path, Shown(shown), &words);
    }
    let mut keys = Seen::default();
    for (at, one) in given.iter().enumerate() {
        let here = path.index(at);
        let key = text(&one["key"]);
        match name {
            "" => errors.invalid(&here.child("key"), key, "requires metadata.name be non-empty"),
            name => {
                let full = format!("{name}/{key}");
                errors.all_invalid(&here.child("key"), &full, syntax::qualified_name(&full));
            }
        }
        let expression = text(&one["valueExpression"]).trim();
        if expression.is_empty() {
            errors.required(&here.child("valueExpression"), "valueExpression is not specified");
        } else if expression.len() > LONGEST_ANNOTATION {
            let words = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            errors.required(&here.child("valueExpression"), &words);
        }
        if keys.again(key) {
            errors.duplicate(&here.child("key"), key);
        }
    }
}

/// Rules of a binding.
pub(crate) fn binding(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let (name, here) = (text(&spec["policyName"]), path.child("policyName"));
    match name {
        "" => errors.required(&here, ""),
        name => errors.all_invalid(&here, name, syntax::dns_subdomain(name)),
    }
    if spec["paramRef"].is_object() {
        param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    if spec["matchResources"].is_object() {
        match_resources(&spec["matchResources"], &path.child("matchResources"), errors);
    }
    let (given, here) = (list(&spec["validationActions"]), path.child("validationActions"));
    let mut seen = Seen::default();
    for (at, action) in given.iter().map(text).enumerate() {
        if !ACTIONS.contains(&action) {
            errors.not_supported(&here.index(at), action, &ACTIONS);
        }
        if seen.again(action) {
            errors.duplicate(&here.index(at), action);
        }
    }
    if seen.has(&"Deny") && seen.has(&"Warn") {
        let words = "must not contain both Deny and Warn (repeating the same validation failure information in the \
            API response and headers serves no purpose)";
        errors.invalid(&here, &spec["validationActions"], words);
    }
    if given.is_empty() {
        errors.required(&here, "at least one validation action is required");
    }
}

fn param_ref(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (text(&given["name"]), &given["selector"]);
    if !name.is_empty() {
        errors.all_invalid(&path.child("name"), name, syntax::path_segment(name));
        if selector.is_object() {
            errors.forbidden(&path.child("name"), EXCLUSIVE);
        }
    }
    if selector.is_object() {
        meta::label_selector(selector, &path.child("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.child("selector"), EXCLUSIVE);
        }
    } else if name.is_empty() {
        errors.required(path, "one of name or selector must be specified");
    }
    let here = path.child("parameterNotFoundAction");
    match text(&given["parameterNotFoundAction"]) {
        "" => errors.required(&here, ""),
        "Deny" | "Allow" => {}
        other => errors.not_supported(&here, other, &["Deny", "Allow"]),
    }
}

/// Rules of what is said about a policy.
pub(crate) fn status(object: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let (checking, warnings) =
        (path.child("typeChecking"), &object["status"]["typeChecking"]["expressionWarnings"]);
    let warned = checking.child("expressionWarnings");
    for (at, warning) in list(warnings).iter().enumerate() {
        let here = warned.index(at);
        if text(&warning["warning"]).is_empty() {
            errors.required(&here.child("warning"), "");
        }
        match text(&warning["fieldRef"]).trim() {
            "" => errors.required(&here.child("fieldRef"), ""),
            given if JsonPath::parse(&format!(".{}", given.trim_start_matches('.'))).is_none() => {
                errors.invalid(&here.child("fieldRef"), given, "invalid JSONPath");
            }
            _ => {}
        }
    }
    condition::all(&object["status"]["conditions"], &path.child("conditions"), errors);
}
