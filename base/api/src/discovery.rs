//! Discovery documents: the legacy lists and the aggregated form, made from the registry of kinds.

use serde_json::{Map, Value, json};

use crate::{Kind, Registry, Verb};

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// `GET /api`: the versions of the legacy group.
pub fn api_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `GET /apis`: every group but the legacy one.
pub fn api_group_list(kinds: &Registry) -> Value {
    let named = kinds.groups().into_iter().filter(|(name, _)| !name.is_empty());
    let list: Vec<Value> = named.map(|(name, versions)| group_entry(name, &versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

/// `GET /apis/<group>`.
pub fn api_group(kinds: &Registry, group: &str) -> Option<Value> {
    let (name, versions) = kinds.groups().into_iter().find(|(name, _)| *name == group && !name.is_empty())?;
    let mut entry = group_entry(name, &versions);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(name: &str, versions: &[&str]) -> Value {
    let entry = |version: &str| json!({"groupVersion": api_version(name, version), "version": version});
    let all: Vec<Value> = versions.iter().map(|v| entry(v)).collect();
    json!({"name": name, "versions": all, "preferredVersion": all[0]})
}

/// `GET /api/v1` and `GET /apis/<group>/<version>`.
pub fn api_resource_list(kinds: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in kinds.of_group_version(group, version) {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), kind.resource.as_ref().into());
        entry.insert("singularName".to_owned(), kind.singular.as_ref().into());
        entry.insert("namespaced".to_owned(), kind.namespaced.into());
        entry.insert("kind".to_owned(), kind.kind.as_ref().into());
        entry.insert("verbs".to_owned(), json!(verbs(kind)));
        names(&mut entry, kind);
        resources.push(Value::Object(entry));
        for sub in &kind.subresources {
            let name = format!("{}/{}", kind.resource, sub.part);
            let mut entry = json!({"name": name, "singularName": "", "namespaced": kind.namespaced, "kind": sub.kind, "verbs": sub.verbs.words()});
            if sub.group != group || sub.version != version {
                entry["version"] = json!(sub.version);
                if !sub.group.is_empty() {
                    entry["group"] = json!(sub.group);
                }
            }
            resources.push(entry);
        }
    }
    if resources.is_empty() {
        return None;
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// The verbs of a kind, in upstream's order, which is another for kinds that were defined at run time; those that only
/// wait for their end take nothing in.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    if !kind.schema.is_structural() {
        return kind.verbs.words();
    }
    let all = [
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Create,
        Verb::Update,
        Verb::Watch,
    ];
    let closed = kind.strategy.refuses_creation().is_some();
    let listed = |verb: &Verb| !(closed && matches!(verb, Verb::Patch | Verb::Create | Verb::Update));
    all.into_iter().filter(|verb| kind.allows(*verb) && listed(verb)).map(Verb::as_str).collect()
}

fn names(entry: &mut Map<String, Value>, kind: &Kind) {
    if !kind.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(kind.categories));
    }
}

/// `GET /api` in the aggregated form.
pub fn aggregated_core(kinds: &Registry) -> Value {
    aggregated(kinds, |name| name.is_empty())
}

/// `GET /apis` in the aggregated form.
pub fn aggregated_groups(kinds: &Registry) -> Value {
    aggregated(kinds, |name| !name.is_empty())
}

fn aggregated(kinds: &Registry, wanted: impl Fn(&str) -> bool) -> Value {
    let mut items = Vec::new();
    for (name, versions) in kinds.groups().into_iter().filter(|(name, _)| wanted(name)) {
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let resources: Vec<Value> =
                    kinds.of_group_version(name, version).map(|kind| aggregated_resource(kind)).collect();
                json!({"version": version, "freshness": "Current", "resources": resources})
            })
            .collect();
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut entry = Map::new();
    entry.insert("resource".to_owned(), kind.resource.as_ref().into());
    entry.insert("responseKind".to_owned(), response_kind(&kind.group, &kind.version, &kind.kind));
    entry.insert("scope".to_owned(), if kind.namespaced { "Namespaced" } else { "Cluster" }.into());
    entry.insert("singularResource".to_owned(), kind.singular.as_ref().into());
    entry.insert("verbs".to_owned(), json!(verbs(kind)));
    names(&mut entry, kind);
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|s| json!({"subresource": s.part.as_str(), "responseKind": response_kind(&s.group, &s.version, &s.kind), "verbs": s.verbs.words()}))
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".to_owned(), subresources.into());
    }
    Value::Object(entry)
}

fn response_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_every_kind() {
        let kinds = Registry::builtin();
        let core = api_resource_list(kinds, "", "v1").unwrap();
        let named = |list: &Value, name: &str| {
            list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned()
        };
        let pods = named(&core, "pods").unwrap();
        assert_eq!((pods["kind"].as_str(), pods["shortNames"][0].as_str()), (Some("Pod"), Some("po")));
        let eviction = named(&core, "pods/eviction").unwrap();
        assert_eq!(
            (eviction["group"].as_str(), eviction["kind"].as_str()),
            (Some("policy"), Some("Eviction"))
        );
        assert!(api_resource_list(kinds, "nope", "v1").is_none());
        assert_eq!(api_group(kinds, "apps").unwrap()["preferredVersion"]["groupVersion"], "apps/v1");
        assert!(api_group(kinds, "").is_none());
        let groups = aggregated_groups(kinds);
        let apps =
            groups["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps").unwrap();
        assert_eq!(apps["versions"][0]["resources"][2]["subresources"][0]["subresource"], "scale");
        let total: usize = kinds.kinds().iter().filter(|k| k.group.is_empty()).count();
        assert_eq!(
            aggregated_core(kinds)["items"][0]["versions"][0]["resources"].as_array().unwrap().len(),
            total
        );
        assert_eq!(api_group_list(kinds)["groups"].as_array().unwrap().len(), kinds.groups().len() - 1);
    }
}
