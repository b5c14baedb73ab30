//! Rules of flow control: which requests belong together, and how much of the server each level may have.

use serde_json::Value;

use super::error::{Errors, Seen, Shown, list, text};
use crate::path::Path;
use crate::syntax;

const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// A flow schema.
pub(crate) fn schema(object: &Value, errors: &mut Errors) {
    const MOST: i64 = 10_000;
    let path = Path::root("spec");
    let spec = &object["spec"];
    let name = text(&object["metadata"]["name"]);
    let (here, precedence) =
        (path.child("matchingPrecedence"), spec["matchingPrecedence"].as_i64().unwrap_or(0));
    if precedence <= 0 {
        errors.invalid(&here, precedence, "must be a positive value");
    }
    if precedence > MOST {
        errors.invalid(&here, precedence, &format!("must not be greater than {MOST}"));
    }
    if precedence == 1 && name != "exempt" {
        let words = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&here, precedence, words);
    }
    let method = &spec["distinguisherMethod"];
    if method.is_object() && !matches!(text(&method["type"]), "ByNamespace" | "ByUser") {
        let here = path.child("distinguisherMethod");
        let shown = Shown(format!("{{\"Type\":{}}}", Value::from(text(&method["type"]))));
        errors.not_supported(&here.child("type"), shown, &["ByNamespace", "ByUser"]);
    }
    let here = path.child("priorityLevelConfiguration");
    match text(&spec["priorityLevelConfiguration"]["name"]) {
        "" => errors.required(&here.child("name"), "must reference a priority level"),
        level => errors.all_invalid(&here.child("name"), level, syntax::dns_subdomain(level)),
    }
    let here = path.child("rules");
    for (i, rule) in list(&spec["rules"]).iter().enumerate() {
        rule_with_subjects(rule, &here.index(i), errors);
    }
}

fn rule_with_subjects(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, subjects) = (path.child("subjects"), list(&rule["subjects"]));
    if subjects.is_empty() {
        errors.required(&here, "subjects must contain at least one value");
    }
    for (i, one) in subjects.iter().enumerate() {
        subject(one, &here.index(i), errors);
    }
    let (resources, others) = (list(&rule["resourceRules"]), list(&rule["nonResourceRules"]));
    if resources.is_empty() && others.is_empty() {
        errors.required(path, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let here = path.child("resourceRules");
    for (i, rule) in resources.iter().enumerate() {
        resource_rule(rule, &here.index(i), errors);
    }
    let here = path.child("nonResourceRules");
    for (i, rule) in others.iter().enumerate() {
        url_rule(rule, &here.index(i), errors);
    }
}

/// Kinds of subjects, each with its field.
const SUBJECTS: &[(&str, &str)] =
    &[("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(&subject["kind"]);
    let Some((_, field)) = SUBJECTS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(&path.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let (here, given) = (path.child(field), &subject[*field]);
    let (name, namespace) = (text(&given["name"]), text(&given["namespace"]));
    if !given.is_object() {
        errors.required(&here, &format!("{field} is required when subject kind is '{kind}'"));
    } else {
        if name.is_empty() {
            errors.required(&here.child("name"), "");
        } else if kind == "ServiceAccount" && name != "*" {
            errors.all_invalid(&here.child("name"), name, syntax::dns_subdomain(name));
        }
        match (kind, namespace) {
            ("ServiceAccount", "") => {
                errors.required(&here.child("namespace"), "must specify namespace for service account");
            }
            ("ServiceAccount", namespace) => {
                errors.all_invalid(&here.child("namespace"), namespace, syntax::dns_label(namespace));
            }
            _ => {}
        }
    }
    for (other, field) in
        SUBJECTS.iter().filter(|(other, field)| *other != kind && subject[*field].is_object())
    {
        errors.forbidden(
            &path.child(field),
            &format!("{field} is forbidden when subject kind is not '{other}'"),
        );
    }
}

fn has_wildcard(values: &[Value]) -> bool {
    values.iter().any(|value| value == "*")
}

fn verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (here, verbs) = (path.child("verbs"), list(&rule["verbs"]));
    if verbs.is_empty() {
        errors.required(&here, "verbs must contain at least one value");
    } else if has_wildcard(verbs) {
        if verbs.len() > 1 {
            errors.invalid(&here, &rule["verbs"], "if '*' is present, must not specify other verbs");
        }
    } else if !verbs.iter().all(|verb| VERBS.contains(&text(verb))) {
        errors.not_supported(&here, &rule["verbs"], VERBS);
    }
}

fn resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    for (field, one, many) in
        [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")]
    {
        let (here, given) = (path.child(field), list(&rule[field]));
        if given.is_empty() {
            errors.required(&here, &format!("resource rules must supply at least one {one}"));
        } else if given.len() > 1 && has_wildcard(given) {
            let words = format!("if '*' is present, must not specify other {many}");
            errors.invalid(&here, &rule[field], &words);
        }
    }
    let (here, namespaces) = (path.child("namespaces"), list(&rule["namespaces"]));
    if namespaces.is_empty() && rule["clusterScope"] != true {
        let words = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&here, words);
    } else if has_wildcard(namespaces) {
        if namespaces.len() > 1 {
            let words = "if '*' is present, must not specify other namespaces";
            errors.invalid(&here, &rule["namespaces"], words);
        }
    } else {
        for (i, namespace) in namespaces.iter().map(text).enumerate() {
            let words = "each member of this list must be '*' or a DNS-1123 label; ";
            let complaints = syntax::dns_label(namespace).iter().map(|c| format!("{words}{c}")).collect();
            errors.all_invalid(&here.index(i), namespace, complaints);
        }
    }
}

fn url_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    let (here, urls) = (path.child("nonResourceURLs"), list(&rule["nonResourceURLs"]));
    if urls.is_empty() {
        return errors.required(&here, "nonResourceURLs must contain at least one value");
    }
    if has_wildcard(urls) {
        if urls.len() > 1 {
            let words = "if '*' is present, must not specify other non-resource URLs";
            errors.invalid(&here, &rule["nonResourceURLs"], words);
        }
        return;
    }
    for (i, url) in urls.iter().map(text).enumerate() {
        if let Some(words) = url_complaint(url) {
            errors.invalid(&here.index(i), url, words);
        }
    }
}

fn url_complaint(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        url if !url.starts_with('/') => Some("must start with slash"),
        url if url.contains(' ') => Some("must not contain white-space"),
        url if url.contains("//") => Some("must not contain double slash"),
        url if url.matches('*').count() > 1 || (url.contains('*') && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

/// A level of priority.
pub(crate) fn level(object: &Value, errors: &mut Errors) {
    const ANNOTATION: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    if object["metadata"]["annotations"][ANNOTATION].is_string() {
        let metadata = Path::root("metadata");
        errors.forbidden(&metadata.child("annotations"), &format!("annotation '{ANNOTATION}' is forbidden"));
    }
    let path = Path::root("spec");
    let spec = &object["spec"];
    let (here, kind) = (path.child("type"), text(&spec["type"]));
    if (text(&object["metadata"]["name"]) == "exempt") != (kind == "Exempt") {
        errors.invalid(&here, kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (&spec["limited"], &spec["exempt"]);
    match kind {
        "Exempt" => {
            if limited.is_object() {
                errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
            }
            let here = path.child("exempt");
            shares(exempt, &here, errors);
            lendable(exempt, &here, errors);
        }
        "Limited" => {
            if exempt.is_object() {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            if limited.is_object() {
                limited_level(limited, &path.child("limited"), errors);
            } else {
                errors.required(&path.child("limited"), "must not be empty when type is Limited");
            }
        }
        "" => errors.required(&here, ""),
        other => errors.not_supported(&here, other, &["Exempt", "Limited"]),
    }
}

fn shares(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = level["nominalConcurrencyShares"].as_i64().filter(|shares| *shares < 0) {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
}

fn lendable(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = level["lendablePercent"].as_i64().filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(&path.child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn limited_level(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    shares(level, path, errors);
    let here = path.child("limitResponse");
    let (response, queuing) = (&level["limitResponse"], &level["limitResponse"]["queuing"]);
    match text(&response["type"]) {
        "Reject" if queuing.is_object() => {
            let words = "must be nil if limited.limitResponse.type is not Limited";
            errors.forbidden(&here.child("queuing"), words);
        }
        "Reject" => {}
        "Queue" if queuing.is_object() => queues(queuing, &here.child("queuing"), errors),
        "Queue" => {
            let words = "must not be empty if limited.limitResponse.type is Limited";
            errors.required(&here.child("queuing"), words);
        }
        "" => errors.required(&here.child("type"), ""),
        other => errors.not_supported(&here.child("type"), other, &["Queue", "Reject"]),
    }
    lendable(level, path, errors);
    if let Some(percent) = level["borrowingLimitPercent"].as_i64().filter(|percent| *percent < 0) {
        let here = path.child("borrowingLimitPercent");
        errors.invalid(&here, percent, "if specified, must be a non-negative integer");
    }
}

fn queues(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MOST: i64 = 10_000_000;
    const BITS: f64 = 60.0;
    let number = |field: &str| queuing[field].as_i64().unwrap_or(0);
    let (length, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
    if length <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), length, "must be positive");
    }
    let here = path.child("queues");
    if queues <= 0 {
        errors.invalid(&here, queues, "must be positive");
    } else if queues > MOST {
        errors.invalid(&here, queues, &format!("must not be greater than {MOST}"));
    }
    let here = path.child("handSize");
    let as_float = |number: i64| f64::from(i32::try_from(number).unwrap_or(i32::MAX));
    if hand <= 0 {
        errors.invalid(&here, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&here, hand, &format!("should not be greater than queues ({queues})"));
    } else if (as_float(queues).log2() * as_float(hand)).ceil() > BITS {
        let words = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than 60"
        );
        errors.invalid(&here, hand, &words);
    }
}

/// The conditions of either.
pub(crate) fn status(object: &Value, errors: &mut Errors) {
    let root = Path::root("status");
    let path = root.child("conditions");
    let mut kinds = Seen::default();
    for (i, condition) in list(&object["status"]["conditions"]).iter().enumerate() {
        let (here, kind) = (path.index(i), text(&condition["type"]));
        if kinds.again(kind) {
            errors.duplicate(&here.child("type"), kind);
        }
        if kind.is_empty() {
            errors.required(&here.child("type"), "");
        }
    }
}
