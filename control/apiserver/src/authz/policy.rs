//! The roles and bindings that every cluster begins with, read from a table.
//!
//! Only the facts; [`crate::handler::bootstrap`] brings them into the store.

use serde_json::{Value, json};

use super::rbac::GROUP;

/// One role or binding per line, its rules below it; the file says how.
const TABLE: &str = include_str!("policy.txt");
/// What the labels begin with by which roles are aggregated.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The cluster roles.
pub(crate) fn cluster_roles() -> Vec<Value> {
    read("ClusterRole")
}

/// The cluster role bindings.
pub(crate) fn cluster_role_bindings() -> Vec<Value> {
    read("ClusterRoleBinding")
}

/// The roles of single namespaces.
pub(crate) fn roles() -> Vec<Value> {
    read("Role")
}

/// The role bindings of single namespaces.
pub(crate) fn role_bindings() -> Vec<Value> {
    read("RoleBinding")
}

/// All objects of a kind.
fn read(kind: &str) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    let mut taken = false;
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(rule) = line.strip_prefix("    ") {
            let rules =
                out.last_mut().filter(|_| taken).and_then(|role| role.get_mut("rules")?.as_array_mut());
            if let Some(rules) = rules {
                rules.push(read_rule(rule));
            }
            continue;
        }
        taken = line.split(' ').next() == Some(kind);
        if taken {
            out.push(read_object(kind, line));
        }
    }
    out
}

fn read_rule(line: &str) -> Value {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let parts: Vec<&str> = line.split(" | ").collect();
    match parts.as_slice() {
        [verbs, paths] => json!({"verbs": words(verbs), "nonResourceURLs": words(paths)}),
        [verbs, groups, resources, names @ ..] => {
            let groups: Vec<&str> =
                groups.split(' ').map(|group| if group == "core" { "" } else { group }).collect();
            let mut rule = json!({"verbs": words(verbs), "apiGroups": groups, "resources": words(resources)});
            if let [names] = names {
                rule["resourceNames"] = words(names).into();
            }
            rule
        }
        _ => unreachable!("every rule of the table has verbs and something to use them on"),
    }
}

fn read_object(kind: &str, line: &str) -> Value {
    let mut words = line.split(' ').skip(1);
    let name = words.next().unwrap_or_default();
    let mut object = json!({"metadata": {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }});
    if let (true, Some((namespace, name))) = (matches!(kind, "Role" | "RoleBinding"), name.split_once('/')) {
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["name"] = name.into();
    }
    if matches!(kind, "Role" | "ClusterRole") {
        object["rules"] = json!([]);
    }
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "into" => object["metadata"]["labels"][format!("{AGGREGATE}{value}")] = "true".into(),
            "from" => {
                let mut labels = json!({});
                labels[format!("{AGGREGATE}{value}")] = "true".into();
                // Its rules are put there by a controller.
                object["rules"] = Value::Null;
                object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
            }
            "Role" | "ClusterRole" => {
                object["roleRef"] = json!({"apiGroup": GROUP, "kind": key, "name": value});
            }
            _ => subjects(&mut object).push(subject(key, value)),
        }
    }
    object
}

fn subjects(object: &mut Value) -> &mut Vec<Value> {
    if object["subjects"].is_null() {
        object["subjects"] = json!([]);
    }
    object["subjects"].as_array_mut().expect("it was made a list")
}

fn subject(key: &str, value: &str) -> Value {
    match (key, value.split_once('/')) {
        ("account", Some((namespace, name))) => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        ("group", _) => json!({"apiGroup": GROUP, "kind": "Group", "name": value}),
        _ => json!({"apiGroup": GROUP, "kind": "User", "name": value}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(all: &'a [Value], name: &str) -> &'a Value {
        all.iter().find(|object| object["metadata"]["name"] == name).unwrap()
    }

    #[test]
    fn the_table_holds_upstreams_roles_and_a_few_bindings_of_ours() {
        let (roles, bindings) = (cluster_roles(), cluster_role_bindings());
        let ours = |object: &&Value| object["metadata"]["name"].as_str().unwrap().starts_with("podwire:");
        assert_eq!(roles.iter().filter(|role| !ours(role)).count(), 69);
        assert_eq!(bindings.iter().filter(|binding| !ours(binding)).count(), 50);
        assert_eq!((super::roles().len(), role_bindings().len()), (7, 7));
        for binding in &bindings {
            let role = binding["roleRef"]["name"].as_str().unwrap();
            assert!(
                roles.iter().any(|known| known["metadata"]["name"] == role),
                "{role} is bound and not there"
            );
        }
        assert!(named(&bindings, "system:node").get("subjects").is_none(), "nobody is bound to system:node");
    }

    #[test]
    fn a_line_becomes_an_object() {
        let roles = cluster_roles();
        assert_eq!(
            named(&roles, "edit")["metadata"]["labels"],
            json!({"kubernetes.io/bootstrapping": "rbac-defaults", "rbac.authorization.k8s.io/aggregate-to-admin": "true"})
        );
        assert_eq!(
            named(&roles, "edit")["aggregationRule"],
            json!({"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]})
        );
        assert_eq!(
            named(&roles, "cluster-admin")["rules"],
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}])
        );
        assert_eq!(
            named(&role_bindings(), "system:controller:bootstrap-signer")["subjects"],
            json!([{"kind": "ServiceAccount", "name": "bootstrap-signer", "namespace": "kube-system"}])
        );
    }
}
