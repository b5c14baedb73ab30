//! Rules of webhook configurations.

use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use super::meta;
use crate::path::Path;
use crate::syntax;

const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const MISSING: &str = "must specify one of v1, v1beta1";
const FORM: &str = "; desired format: https://host[/path]";

/// The most match conditions that a webhook may have.
const MOST_CONDITIONS: usize = 64;

/// Side effects that webhooks may have, in order; all but the quiet ones only where they were there before.
const EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const QUIET: [&str; 2] = ["None", "NoneOnDryRun"];

/// What a configuration may go on with because the stored one did already.
#[derive(Default)]
struct Before {
    side_effects: bool,
    unknown_reviews: bool,
    same_names: bool,
    label_values: bool,
    /// Match conditions are those that were there.
    same_conditions: bool,
}

impl Before {
    fn of(new: &[Value], old: &[Value]) -> Before {
        let mut names = Seen::default();
        let selectors = old.iter().flat_map(|hook| [&hook["namespaceSelector"], &hook["objectSelector"]]);
        let conditions = |hook: &Value| hook["matchConditions"].clone();
        Before {
            side_effects: old.iter().any(|hook| !QUIET.contains(&text(&hook["sideEffects"]))),
            unknown_reviews: old.iter().any(|hook| {
                let versions = list(&hook["admissionReviewVersions"]);
                !versions.is_empty() && !versions.iter().any(|version| VERSIONS.contains(&text(version)))
            }),
            // All of them are looked at, also those without a name.
            same_names: old.iter().any(|hook| names.again(text(&hook["name"]))),
            label_values: selectors.into_iter().any(meta::is_bad_selector),
            same_conditions: new.iter().map(conditions).eq(old.iter().map(conditions)),
        }
    }
}

/// Rules of a configuration; only mutating webhooks are called again.
pub(crate) fn configuration(object: &Value, old: Option<&Value>, mutating: bool, errors: &mut Errors) {
    let webhooks = Path::root("webhooks");
    let hooks = list(&object["webhooks"]);
    let before = old.map(|old| Before::of(hooks, list(&old["webhooks"]))).unwrap_or_default();
    let mut names = Seen::default();
    for (at, hook) in hooks.iter().enumerate() {
        let path = webhooks.index(at);
        webhook(hook, mutating, &before, &path, errors);
        let (given, here) = (&hook["admissionReviewVersions"], path.child("admissionReviewVersions"));
        match before.unknown_reviews {
            true => distinct_versions(given, MISSING, &here, errors),
            false => review_versions(given, MISSING, &here, errors),
        }
        let name = text(&hook["name"]);
        if !before.same_names && !name.is_empty() && names.again(name) {
            errors.duplicate(&path.child("name"), name);
        }
    }
}

fn known(hook: &Value, key: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(given) = hook[key].as_str().filter(|given| !supported.contains(given)) {
        errors.not_supported(&path.child(key), given, supported);
    }
}

fn webhook(hook: &Value, mutating: bool, before: &Before, path: &Path<'_>, errors: &mut Errors) {
    qualified(text(&hook["name"]), &path.child("name"), errors);
    let rules = path.child("rules");
    for (at, one) in list(&hook["rules"]).iter().enumerate() {
        rule(one, &rules.index(at), errors);
    }
    known(hook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    known(hook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    let effects: &[&str] = if before.side_effects { &EFFECTS } else { &QUIET };
    if hook["sideEffects"].is_null() {
        let words = format!("must specify one of {}", effects.join(", "));
        errors.required(&path.child("sideEffects"), &words);
    }
    known(hook, "sideEffects", effects, path, errors);
    if let Some(seconds) = hook["timeoutSeconds"].as_i64().filter(|seconds| !(1..=30).contains(seconds)) {
        let words = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, words);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        meta::label_selector_with(&hook[key], before.label_values, &path.child(key), errors);
    }
    if mutating {
        known(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    }
    client(&hook["clientConfig"], &path.child("clientConfig"), errors);
    if !before.same_conditions {
        conditions(list(&hook["matchConditions"]), &path.child("matchConditions"), errors);
    }
}

/// Rules of where a webhook is.
pub(crate) fn client(client: &Value, here: &Path<'_>, errors: &mut Errors) {
    match (client["url"].as_str(), client["service"].is_object()) {
        (Some(address), false) => url(address, &here.child("url"), errors),
        (None, true) => service(&client["service"], &here.child("service"), errors),
        _ => errors.required(here, "exactly one of url or service is required"),
    }
}

/// Rules of match conditions but for what their expressions say, which whoever evaluates them judges.
pub(super) fn conditions(listed: &[Value], path: &Path<'_>, errors: &mut Errors) {
    if listed.len() > MOST_CONDITIONS {
        errors.too_many(path, listed.len(), MOST_CONDITIONS);
    }
    let mut seen = Seen::default();
    for (at, condition) in listed.iter().enumerate() {
        let here = path.index(at);
        if text(&condition["expression"]).trim().is_empty() {
            errors.required(&here.child("expression"), "");
        }
        let (name, place) = (text(&condition["name"]), here.child("name"));
        match name {
            "" => errors.required(&place, ""),
            name => errors.all_invalid(&place, name, syntax::qualified_name(name)),
        }
        if !name.is_empty() && seen.again(name) {
            errors.duplicate(&place, name);
        }
    }
}

fn qualified(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let complaints = syntax::dns_subdomain(name);
    if !complaints.is_empty() {
        errors.invalid(path, name, &complaints.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

fn alone(rule: &Value, key: &str, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let given = list(&rule[key]);
    if given.is_empty() {
        errors.required(&path.child(key), "");
    }
    if given.len() > 1 && given.iter().any(|one| one == "*") {
        let words = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&path.child(key), &rule[key], &words);
    }
}

/// Rules of what operations on what resources are meant.
pub(super) fn rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    alone(rule, "operations", "operations", path, errors);
    let here = path.child("operations");
    for (at, operation) in list(&rule["operations"]).iter().enumerate() {
        let supported = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        if !supported.contains(&text(operation)) {
            errors.not_supported(&here.index(at), text(operation), &supported);
        }
    }
    alone(rule, "apiGroups", "API groups", path, errors);
    alone(rule, "apiVersions", "API versions", path, errors);
    let here = path.child("apiVersions");
    for (at, _) in list(&rule["apiVersions"]).iter().enumerate().filter(|(_, one)| text(one).is_empty()) {
        errors.required(&here.index(at), "");
    }
    resources(&rule["resources"], &path.child("resources"), errors);
    known(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

fn resources(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    let names: Vec<&str> = list(given).iter().map(text).collect();
    if names.is_empty() {
        errors.required(path, "");
    }
    let (mut all_parts, mut of_all) = (Seen::default(), Seen::default());
    let mut whole = false;
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() {
            errors.required(&path.index(at), "");
            continue;
        }
        let Some((resource, part)) = name.split_once('/') else {
            whole = *name != "*";
            continue;
        };
        if all_parts.has(&resource) {
            let words = format!("if '{resource}/*' is present, must not specify {name}");
            errors.invalid(&path.index(at), *name, &words);
        }
        if of_all.has(&part) {
            let words = format!("if '*/{part}' is present, must not specify {name}");
            errors.invalid(&path.index(at), *name, &words);
        }
        if part == "*" {
            all_parts.again(resource);
        }
        if resource == "*" {
            of_all.again(part);
        }
    }
    if names.len() > 1 && names.contains(&"*/*") {
        errors.invalid(path, given, "if '*/*' is present, must not specify other resources");
    }
    if names.contains(&"*") && whole {
        let words = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, given, words);
    }
}

/// Rules of the versions of reviews that a webhook understands; `missing` is what is said when there are none.
pub(crate) fn review_versions(given: &Value, missing: &str, path: &Path<'_>, errors: &mut Errors) {
    distinct_versions(given, missing, path, errors);
    let versions = list(given);
    if !versions.is_empty() && !versions.iter().any(|version| VERSIONS.contains(&text(version))) {
        errors.invalid(path, given, "must include at least one of v1, v1beta1");
    }
}

fn distinct_versions(given: &Value, missing: &str, path: &Path<'_>, errors: &mut Errors) {
    if list(given).is_empty() {
        return errors.required(path, missing);
    }
    let mut seen = Seen::default();
    for (at, version) in list(given).iter().map(text).enumerate() {
        if seen.again(version) {
            errors.invalid(&path.index(at), version, "duplicate version");
            continue;
        }
        errors.all_invalid(&path.index(at), version, syntax::dns_1035_label(version));
    }
}

/// Splits a URL into scheme, user, host, the rest, query and fragment; what is not there is empty.
fn url(given: &str, path: &Path<'_>, errors: &mut Errors) {
    let (rest, fragment) = given.split_once('#').unwrap_or((given, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_scheme = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    let (scheme, rest) = rest.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", rest));
    let scheme = &*scheme.to_ascii_lowercase();
    let authority = rest.strip_prefix("//").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if scheme != "https" {
        errors.invalid(path, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid(path, "", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Upstream names the one where the other is missing.
    for (missing, named) in [("namespace", "name"), ("name", "namespace")] {
        if text(&service[missing]).is_empty() {
            errors.required(&path.child(named), "");
        }
    }
    let port = service["port"].as_i64().unwrap_or(0);
    if let Some(words) = syntax::port_number(port) {
        errors.invalid(&path.child("port"), port, &format!("port is not valid: {words}"));
    }
    let at = text(&service["path"]);
    let here = path.child("path");
    match at {
        "" | "/" => return,
        "//" => return errors.invalid(&here, at, "segment[0] may not be empty"),
        _ => {}
    }
    if !at.starts_with('/') {
        errors.invalid(&here, at, "must start with a '/'");
    }
    let mut steps = at.chars();
    steps.next();
    let steps = steps.as_str();
    for (number, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&here, at, &format!("segment[{number}] may not be empty"));
            continue;
        }
        for failure in syntax::dns_subdomain(step) {
            errors.invalid(&here, at, &format!("segment[{number}]: {failure}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::create;
    use super::*;

    fn complaints(hooks: Value) -> Vec<String> {
        let group = "admissionregistration.k8s.io";
        let kind = crate::by_resource(group, "v1", "mutatingwebhookconfigurations").unwrap();
        let mut object = json!({"metadata": {"name": "x"}, "webhooks": hooks});
        crate::defaults::apply(kind, &mut object);
        create(kind, &object).into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    fn hook(change: Value) -> Value {
        let mut hook = json!({"name": "a.ex.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://h/x"}, "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
        crate::patch::merge(&mut hook, &change).unwrap();
        hook
    }

    #[test]
    fn a_webhook_says_when_and_how_it_is_called() {
        assert!(complaints(json!([hook(json!({}))])).is_empty());
        for (change, words) in [
            (
                json!({"name": "a.b"}),
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
            ),
            (
                json!({"sideEffects": null}),
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            ),
            (
                json!({"sideEffects": "Some"}),
                "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
            ),
            (
                json!({"timeoutSeconds": 31}),
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ),
            (
                json!({"clientConfig": {"url": null}}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (
                json!({"clientConfig": {"url": "http://h"}}),
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            ),
            (
                json!({"clientConfig": {"url": "https://h?a=b"}}),
                "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
            ),
            (
                json!({"clientConfig": {"url": null, "service": {"name": "s", "namespace": "n", "path": "a//b"}}}),
                "webhooks[0].clientConfig.service.path: Invalid value: \"a//b\": must start with a '/'",
            ),
            (
                json!({"admissionReviewVersions": ["v2"]}),
                "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
            ),
            (
                json!({"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]}),
                "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"",
            ),
            (
                json!({"matchConditions": [{"name": "a b", "expression": " "}]}),
                "webhooks[0].matchConditions[0].expression: Required value",
            ),
            (
                json!({"rules": [{"operations": ["CREATE", "*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*/*", "pods"]}]}),
                "webhooks[0].rules[0].operations: Invalid value: [\"CREATE\",\"*\"]: if '*' is present, must not specify other operations",
            ),
        ] {
            let found = complaints(json!([hook(change)]));
            assert!(found.iter().any(|line| line == words), "{words} in {found:#?}");
        }
        let twice = complaints(json!([hook(json!({})), hook(json!({}))]));
        assert_eq!(twice, ["webhooks[1].name: Duplicate value: \"a.ex.com\""]);
    }
}
