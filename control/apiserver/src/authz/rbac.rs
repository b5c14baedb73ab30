//! Role-based rules: what the stored roles and bindings allow, beyond the fixed rules.
//!
//! Only allows; aggregated cluster roles have to carry their rules already.

use podwire_api::Kind;
use serde_json::Value;

use crate::cache::Scope;
use crate::core::{self, Core};
use crate::identity::Identity;
use crate::request::{RequestInfo, ResourceInfo};

fn kind(resource: &str) -> &'static Kind {
    core::kind("rbac.authorization.k8s.io", "v1", resource)
}

/// Whether a binding gives `identity` what the request needs.
pub(crate) fn allows(core: &Core, identity: &Identity, info: &RequestInfo) -> bool {
    let namespace = info.resource.as_ref().map(|resource| resource.namespace.as_str()).unwrap_or_default();
    let everywhere = bindings(core, "clusterrolebindings", "");
    let here = if namespace.is_empty() { Vec::new() } else { bindings(core, "rolebindings", namespace) };
    everywhere.iter().chain(&here).filter(|binding| concerns(binding, identity)).any(|binding| {
        let rules = rules_of(core, binding, namespace);
        rules.as_array().into_iter().flatten().any(|rule| rule_allows(rule, info))
    })
}

/// Every rule that a binding gives `identity` in a namespace.
pub(crate) fn rules(core: &Core, identity: &Identity, namespace: &str) -> Vec<Value> {
    let everywhere = bindings(core, "clusterrolebindings", "");
    let here = if namespace.is_empty() { Vec::new() } else { bindings(core, "rolebindings", namespace) };
    let mine = everywhere.iter().chain(&here).filter(|binding| concerns(binding, identity));
    mine.filter_map(|binding| match rules_of(core, binding, namespace) {
        Value::Array(rules) => Some(rules),
        _ => None,
    })
    .flatten()
    .collect()
}

fn bindings(core: &Core, resource: &str, namespace: &str) -> Vec<Value> {
    let kind = kind(resource);
    let prefix = match namespace {
        "" => kind.storage_prefix.to_owned(),
        namespace => format!("{}{namespace}/", kind.storage_prefix),
    };
    let snapshot = core.caches.of(kind).snapshot(&Scope { prefix, node: None, key: None });
    snapshot.entries.iter().map(|entry| entry.decode(kind)).collect()
}

fn concerns(binding: &Value, identity: &Identity) -> bool {
    binding["subjects"].as_array().into_iter().flatten().any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => name == identity.user,
            Some("Group") => identity.is_in(name),
            Some("ServiceAccount") => {
                let namespace = subject["namespace"].as_str().unwrap_or_default();
                identity.user == format!("system:serviceaccount:{namespace}:{name}")
            }
            _ => false,
        }
    })
}

fn rules_of(core: &Core, binding: &Value, namespace: &str) -> Value {
    let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
    let (kind, namespace) = match binding["roleRef"]["kind"].as_str() {
        Some("Role") => (kind("roles"), namespace),
        _ => (kind("clusterroles"), ""),
    };
    let found = core.caches.of(kind).get(&core::key(kind, namespace, name));
    found.map_or(Value::Null, |entry| entry.decode(kind)["rules"].take())
}

fn contains(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|item| item == wanted || item == "*")
}

fn rule_allows(rule: &Value, info: &RequestInfo) -> bool {
    if !contains(&rule["verbs"], info.verb) {
        return false;
    }
    match &info.resource {
        Some(resource) => resource_matches(rule, resource),
        None => {
            rule["nonResourceURLs"].as_array().into_iter().flatten().filter_map(Value::as_str).any(|url| {
                url == info.path || url.strip_suffix('*').is_some_and(|prefix| info.path.starts_with(prefix))
            })
        }
    }
}

fn resource_matches(rule: &Value, resource: &ResourceInfo) -> bool {
    let named = match rule["resourceNames"].as_array() {
        Some(names) if !names.is_empty() => names.iter().any(|name| name == resource.name.as_str()),
        _ => true,
    };
    let full = match resource.subresource.as_str() {
        "" => resource.resource.clone(),
        subresource => format!("{}/{subresource}", resource.resource),
    };
    let any_of = format!("*/{}", resource.subresource);
    let listed = contains(&rule["resources"], &full)
        || (!resource.subresource.is_empty() && contains(&rule["resources"], &any_of));
    named && listed && contains(&rule["apiGroups"], &resource.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;
    use serde_json::json;

    fn allowed(rule: &Value, method: &http::Method, path: &str) -> bool {
        rule_allows(rule, &RequestInfo::parse(method, path, &Query::default()))
    }

    #[test]
    fn a_rule_names_verbs_groups_resources_and_objects() {
        let get = &http::Method::GET;
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"], "resourceNames": ["a"]});
        assert!(allowed(&rule, get, "/api/v1/namespaces/x/pods/a"));
        assert!(allowed(&rule, get, "/api/v1/namespaces/x/pods/a/log"));
        assert!(!allowed(&rule, get, "/api/v1/namespaces/x/pods/b"));
        assert!(!allowed(&rule, get, "/api/v1/namespaces/x/pods/a/status"));
        assert!(!allowed(&rule, get, "/api/v1/namespaces/x/pods"));
        assert!(!allowed(&rule, get, "/apis/apps/v1/namespaces/x/pods/a"));
        assert!(!allowed(&rule, &http::Method::DELETE, "/api/v1/namespaces/x/pods/a"));
        let paths = json!({"verbs": ["*"], "nonResourceURLs": ["/metrics", "/debug/*"]});
        assert!(allowed(&paths, get, "/metrics") && allowed(&paths, get, "/debug/x"));
        assert!(!allowed(&paths, get, "/other"));
    }
}
