//! Roles and bindings: rules that say something, subjects that can be somebody, a role that cannot be changed.

use serde_json::Value;

use super::error::{Errors, Shown, list, text};
use super::meta;
use crate::path::Path;
use crate::syntax;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules of a Role, or of a ClusterRole.
pub(crate) fn rules(object: &Value, cluster: bool, errors: &mut Errors) {
    let rules = Path::root("rules");
    for (i, rule) in list(&object["rules"]).iter().enumerate() {
        policy_rule(rule, cluster, &rules.index(i), errors);
    }
}

/// The selectors of a ClusterRole, new or changed from `old`; a Role has none.
pub(crate) fn aggregation(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let aggregation = &object["aggregationRule"];
    if !aggregation.is_object() {
        return;
    }
    let before = old.map_or(&[][..], |old| list(&old["aggregationRule"]["clusterRoleSelectors"]));
    let lenient = before.iter().any(meta::is_bad_selector);
    let root = Path::root("aggregationRule");
    let here = root.child("clusterRoleSelectors");
    let selectors = list(&aggregation["clusterRoleSelectors"]);
    if selectors.is_empty() {
        errors.required(&here, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (i, selector) in selectors.iter().enumerate() {
        meta::label_selector_with(selector, lenient, &here.index(i), errors);
        if meta::is_bad_selector(selector) {
            errors.invalid(&here.index(i), &Value::Null, "invalid label selector.");
        }
    }
}

fn policy_rule(rule: &Value, cluster: bool, path: &Path<'_>, errors: &mut Errors) {
    let has = |key: &str| !list(&rule[key]).is_empty();
    if !has("verbs") {
        errors.required(&path.child("verbs"), "verbs must contain at least one value");
    }
    if has("nonResourceURLs") {
        let (here, urls) = (path.child("nonResourceURLs"), &rule["nonResourceURLs"]);
        if !cluster {
            errors.invalid(&here, urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            errors.invalid(&here, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if !has("apiGroups") {
        errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if !has("resources") {
        errors.required(&path.child("resources"), "resource rules must supply at least one resource");
    }
}

/// A RoleBinding or ClusterRoleBinding.
pub(crate) fn binding(object: &Value, cluster: bool, errors: &mut Errors) {
    let path = Path::root("roleRef");
    let role = &object["roleRef"];
    if text(&role["apiGroup"]) != GROUP {
        errors.not_supported(&path.child("apiGroup"), text(&role["apiGroup"]), &[GROUP]);
    }
    let kinds: &[&str] = if cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
    if !kinds.contains(&text(&role["kind"])) {
        errors.not_supported(&path.child("kind"), text(&role["kind"]), kinds);
    }
    match text(&role["name"]) {
        "" => errors.required(&path.child("name"), ""),
        name => errors.all_invalid(&path.child("name"), name, syntax::path_segment(name)),
    }
    let subjects = Path::root("subjects");
    for (i, one) in list(&object["subjects"]).iter().enumerate() {
        subject(one, cluster, &subjects.index(i), errors);
    }
}

fn subject(subject: &Value, cluster: bool, path: &Path<'_>, errors: &mut Errors) {
    let (name, group) = (text(&subject["name"]), text(&subject["apiGroup"]));
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    match text(&subject["kind"]) {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.all_invalid(&path.child("name"), name, syntax::dns_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(&path.child("apiGroup"), group, &[""]);
            }
            if cluster && text(&subject["namespace"]).is_empty() {
                errors.required(&path.child("namespace"), "");
            }
        }
        "User" | "Group" if group != GROUP => errors.not_supported(&path.child("apiGroup"), group, &[GROUP]),
        "User" | "Group" => {}
        other => errors.not_supported(&path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

/// What a binding binds to stays: another role would be another binding.
pub(crate) fn binding_update(new: &Value, old: &Value, errors: &mut Errors) {
    let same = ["apiGroup", "kind", "name"]
        .iter()
        .all(|key| text(&new["roleRef"][*key]) == text(&old["roleRef"][*key]));
    if !same {
        let fields = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
        let shown = fields.map(|(go, key)| format!("\"{go}\":{}", Value::from(text(&new["roleRef"][key]))));
        let shown = Shown(format!("{{{}}}", shown.join(",")));
        errors.invalid(&Path::root("roleRef"), shown, "cannot change roleRef");
    }
}

#[cfg(test)]
mod tests {
    use crate::validate::{create, update};
    use crate::{Kind, by_resource};
    use serde_json::{Value, json};

    fn kind(resource: &str) -> &'static Kind {
        by_resource(super::GROUP, "v1", resource).unwrap()
    }

    fn complaints(resource: &str, mut object: Value) -> Vec<String> {
        object["metadata"] = json!({"name": "x"});
        if kind(resource).namespaced {
            object["metadata"]["namespace"] = "a".into();
        }
        create(kind(resource), &object).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    #[test]
    fn a_rule_says_what_may_be_done_to_what() {
        assert_eq!(
            complaints(
                "roles",
                json!({"rules": [{}, {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}]})
            ),
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
                "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
                "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
            ]
        );
        let paths = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}], "aggregationRule": {}});
        assert_eq!(
            complaints("clusterroles", paths),
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
            ]
        );
    }

    #[test]
    fn a_subject_can_be_somebody() {
        let binding = |subject: Value| json!({"roleRef": {"apiGroup": super::GROUP, "kind": "ClusterRole", "name": "r"}, "subjects": [subject]});
        let account = json!({"kind": "ServiceAccount", "name": "No", "apiGroup": "x"});
        let found = complaints("clusterrolebindings", binding(account));
        assert!(
            found[0].starts_with("subjects[0].name: Invalid value: \"No\": a lowercase RFC 1123 subdomain"),
            "{found:?}"
        );
        assert_eq!(
            found[1..],
            [
                "subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"\"",
                "subjects[0].namespace: Required value",
            ]
        );
        let user = json!({"kind": "User", "name": "u", "apiGroup": "other"});
        assert_eq!(
            complaints("rolebindings", binding(user)),
            [
                "subjects[0].apiGroup: Unsupported value: \"other\": supported values: \"rbac.authorization.k8s.io\""
            ]
        );
        assert_eq!(
            complaints("rolebindings", binding(json!({"kind": "Robot", "name": "u"}))),
            [
                "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\""
            ]
        );
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let binding = |role: &str| {
            json!({
            "metadata": {"name": "b", "namespace": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "roleRef": {"apiGroup": super::GROUP, "kind": "ClusterRole", "name": role}})
        };
        let errors = update(kind("rolebindings"), &binding("cluster-admin"), &binding("view"));
        let errors: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        assert_eq!(
            errors,
            [format!(
                "roleRef: Invalid value: {{\"APIGroup\":\"{}\",\"Kind\":\"ClusterRole\",\"Name\":\"cluster-admin\"}}: cannot change roleRef",
                super::GROUP
            )]
        );
        assert!(update(kind("rolebindings"), &binding("view"), &binding("view")).is_empty());
    }
}
