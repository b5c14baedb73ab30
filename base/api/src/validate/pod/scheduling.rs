//! Rules of tolerations, affinity, spread constraints and gates.

use serde_json::Value;

use super::super::error::{Errors, Seen, list, text};
use super::super::meta;
use crate::path::Path;
use crate::syntax;

pub(in crate::validate) fn tolerations(tolerations: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, toleration) in list(tolerations).iter().enumerate() {
        let here = path.index(i);
        let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
        let (value, effect) = (text(&toleration["value"]), text(&toleration["effect"]));
        if !key.is_empty() {
            errors.all_invalid(&here.child("key"), key, syntax::qualified_name(key));
        } else if operator != "Exists" {
            let words =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&here.child("operator"), operator, words);
        }
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            errors.invalid(
                &here.child("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        match operator {
            "Equal" | "" => {
                let complaints = syntax::label_value(value);
                if !complaints.is_empty() {
                    errors.invalid(&here.child("operator"), value, &complaints.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(
                    &here.child("operator"),
                    value,
                    "value must be empty when `operator` is 'Exists'",
                );
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                errors.not_supported(&here.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"])
            }
            other => errors.not_supported(&here.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            errors.not_supported(
                &here.child("effect"),
                effect,
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            );
        }
    }
}

pub(super) fn gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let readiness = path.child("readinessGates");
    for (i, gate) in list(&spec["readinessGates"]).iter().enumerate() {
        let kind = text(&gate["conditionType"]);
        errors.all_invalid(&readiness.index(i).child("conditionType"), kind, syntax::qualified_name(kind));
    }
    let path = path.child("schedulingGates");
    let gates = list(&spec["schedulingGates"]);
    let mut seen = Seen::default();
    for (i, gate) in gates.iter().enumerate() {
        let name = text(&gate["name"]);
        errors.all_invalid(&path.index(i), name, syntax::qualified_name(name));
        if seen.again(name) {
            errors.duplicate(&path.index(i), name);
        }
    }
}

pub(super) fn affinity(affinity: &Value, path: &Path<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let node = &affinity["nodeAffinity"];
    let here = path.child("nodeAffinity");
    if node[REQUIRED].is_object() {
        node_selector(&node[REQUIRED], false, &here.child(REQUIRED), errors);
    }
    let preferred = here.child(PREFERRED);
    for (i, term) in list(&node[PREFERRED]).iter().enumerate() {
        let at = preferred.index(i);
        weight(term, &at, errors);
        node_term(&term["preference"], false, &at.child("preference"), errors);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let here = path.child(field);
        let required = here.child(REQUIRED);
        for (i, term) in list(&affinity[field][REQUIRED]).iter().enumerate() {
            pod_term(term, &required.index(i), errors);
        }
        let preferred = here.child(PREFERRED);
        for (i, term) in list(&affinity[field][PREFERRED]).iter().enumerate() {
            let at = preferred.index(i);
            weight(term, &at, errors);
            pod_term(&term["podAffinityTerm"], &at.child("podAffinityTerm"), errors);
        }
    }
}

/// A selector of nodes; `lenient` does not look at values.
pub(in crate::validate) fn node_selector(
    selector: &Value,
    lenient: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let terms = path.child("nodeSelectorTerms");
    let given = list(&selector["nodeSelectorTerms"]);
    if given.is_empty() {
        errors.required(&terms, "must have at least one node selector term");
    }
    for (i, term) in given.iter().enumerate() {
        node_term(term, !lenient, &terms.index(i), errors);
    }
}

fn weight(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = term["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn node_term(term: &Value, values_too: bool, path: &Path<'_>, errors: &mut Errors) {
    let expressions = path.child("matchExpressions");
    for (i, expression) in list(&term["matchExpressions"]).iter().enumerate() {
        let here = expressions.index(i);
        let values = list(&expression["values"]);
        match text(&expression["operator"]) {
            "Gt" | "Lt" if values.len() == 1 => {}
            "Gt" | "Lt" => {
                errors.required(
                    &here.child("values"),
                    "must be specified single value when `operator` is 'Lt' or 'Gt'",
                );
            }
            common if meta::operator_and_values(common, values, &here, errors) => {}
            other => errors.invalid(&here.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(&expression["key"]);
        errors.all_invalid(&here.child("key"), key, syntax::qualified_name(key));
        let at = here.child("values");
        for (j, value) in values.iter().enumerate().filter(|_| values_too) {
            errors.all_invalid(&at.index(j), text(value), syntax::label_value(text(value)));
        }
    }
    let fields = path.child("matchFields");
    for (i, field) in list(&term["matchFields"]).iter().enumerate() {
        let here = fields.index(i);
        if !matches!(text(&field["operator"]), "In" | "NotIn") {
            errors.invalid(
                &here.child("operator"),
                text(&field["operator"]),
                "not a valid selector operator",
            );
        } else if list(&field["values"]).len() != 1 {
            errors.required(
                &here.child("values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            );
        }
        if text(&field["key"]) != "metadata.name" {
            errors.invalid(&here.child("key"), text(&field["key"]), "not a valid field selector key");
            continue;
        }
        let at = here.child("values");
        for (j, name) in list(&field["values"]).iter().map(text).enumerate() {
            errors.all_invalid(&at.index(j), name, syntax::dns_subdomain(name));
        }
    }
}

fn pod_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        if term[selector].is_object() {
            meta::label_selector(&term[selector], &path.child(selector), errors);
        }
    }
    for namespace in list(&term["namespaces"]) {
        errors.all_invalid(&path.child("namespace"), text(namespace), syntax::dns_label(text(namespace)));
    }
    let key = text(&term["topologyKey"]);
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    errors.all_invalid(&path.child("topologyKey"), key, syntax::qualified_name(key));
}

pub(super) fn spread(constraints: &Value, path: &Path<'_>, errors: &mut Errors) {
    let given = list(constraints);
    for (i, constraint) in given.iter().enumerate() {
        let here = path.index(i);
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&here.child("maxSkew"), skew, "must be greater than zero");
        }
        if text(&constraint["topologyKey"]).is_empty() {
            errors.required(&here.child("topologyKey"), "can not be empty");
        }
        let when = text(&constraint["whenUnsatisfiable"]);
        if !matches!(when, "DoNotSchedule" | "ScheduleAnyway") {
            errors.not_supported(
                &here.child("whenUnsatisfiable"),
                when,
                &["DoNotSchedule", "ScheduleAnyway"],
            );
        }
        if let Some(domains) = constraint["minDomains"].as_i64() {
            if domains <= 0 {
                errors.invalid(&here.child("minDomains"), domains, "must be greater than zero");
            }
            if when != "DoNotSchedule" {
                let words = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}");
                errors.invalid(&here.child("minDomains"), domains, &words);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint[field].as_str().filter(|p| !matches!(*p, "Honor" | "Ignore")) {
                errors.not_supported(&here.child(field), policy, &["Honor", "Ignore"]);
            }
        }
        let same = |o: &Value| {
            o["topologyKey"] == constraint["topologyKey"]
                && o["whenUnsatisfiable"] == constraint["whenUnsatisfiable"]
        };
        if given[i + 1..].iter().any(same) {
            let shown = format!("{{{}, {when}}}", text(&constraint["topologyKey"]));
            errors.duplicate(&here.child("{topologyKey, whenUnsatisfiable}"), &shown);
        }
        meta::label_selector(&constraint["labelSelector"], &here.child("labelSelector"), errors);
    }
}
