//! Which requests webhooks and policies are about: rules, selectors, and the version in which they see an object.

use std::borrow::Cow;
use std::sync::Arc;

use podwire_api::selector::LabelSelector;
use podwire_api::{Kind, Part, builtin};
use serde_json::Value;

use super::{Operation, Request};
use crate::context;
use crate::handler::scale;
use crate::status::{ApiError, Result};

/// Operations on resources.
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    scope: String,
    /// The objects that are meant; empty for all.
    names: Vec<String>,
}

/// What somebody is asked about.
pub(super) struct Matched {
    /// Another version of the same objects, if the rule names that one.
    pub(super) other: Option<Arc<Kind>>,
    /// The resource by the rule's version.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
    /// What the object is.
    pub(super) object_group: String,
    pub(super) object_version: String,
    pub(super) kind: String,
}

impl Matched {
    pub(super) fn api_version(&self) -> String {
        match self.object_group.as_str() {
            "" => self.object_version.clone(),
            group => format!("{group}/{}", self.object_version),
        }
    }

    /// The request as it came, or as another version of the same resource.
    pub(super) fn of(request: &Request<'_>, other: Option<Arc<Kind>>) -> Matched {
        let seen = other.as_deref().unwrap_or(request.kind);
        let own = request.part.and_then(|part| seen.subresource(part));
        let (group, version, name) = match own {
            Some(own) => (&own.group, &own.version, &own.kind),
            None => (&seen.group, &seen.version, &seen.kind),
        };
        Matched {
            group: seen.group.to_string(),
            version: seen.version.to_string(),
            resource: seen.resource.to_string(),
            object_group: group.to_string(),
            object_version: version.to_string(),
            kind: name.to_string(),
            other,
        }
    }

    /// An object as it is seen; a copy only if that is another one than there is.
    pub(super) async fn shown<'v>(&self, request: &Request<'_>, object: &'v Value) -> Result<Cow<'v, Value>> {
        static NULL: Value = Value::Null;
        if object.is_null() {
            return Ok(Cow::Borrowed(&NULL));
        }
        if request.part == Some(Part::Scale) {
            return Ok(Cow::Owned(scale::scale_as_it_is(request.kind, object)));
        }
        let version = self.api_version();
        if self.other.is_none() && object["apiVersion"] == *version && object["kind"] == *self.kind {
            return Ok(Cow::Borrowed(object));
        }
        let mut shown = object.clone();
        if let Some(other) = &self.other {
            shown = in_version(request, request.kind, other, shown).await?;
        }
        shown["apiVersion"] = version.into();
        shown["kind"] = self.kind.as_str().into();
        Ok(Cow::Owned(shown))
    }
}

/// An object of one version of a kind as one of another.
pub(super) async fn in_version(
    request: &Request<'_>,
    from: &Kind,
    to: &Kind,
    object: Value,
) -> Result<Value> {
    let converted = request.context.in_version(from, to, object).await;
    converted.map_err(|error| ApiError::internal(error.message))
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// A text, or nothing.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A selector; one that cannot be read chooses everything.
pub(super) fn selector(given: &Value) -> LabelSelector {
    match given {
        Value::Object(terms) if !terms.is_empty() => LabelSelector::from_object(given).unwrap_or_default(),
        _ => LabelSelector::default(),
    }
}

/// Whether rules are about a request, and as which version of it.
pub(super) fn matched(
    request: &Request<'_>,
    object: &Value,
    rules: &[Rule],
    equivalent: bool,
) -> Option<Matched> {
    let kind = request.kind;
    let part = request.part.map(Part::as_str).unwrap_or_default();
    let (operation, name) = (request.operation.as_str(), request.named(object));
    let fits = |kind: &Kind| rules.iter().any(|rule| rule.fits(operation, kind, part, name));
    if fits(kind) {
        return Some(Matched::of(request, None));
    }
    if !equivalent || !kind.is_stored() {
        return None;
    }
    let kinds = request.context.kinds.now();
    let other = kinds.registry.kinds().iter().find(|other| {
        let same = other.storage_prefix == kind.storage_prefix;
        same && (&other.group, &other.version) != (&kind.group, &kind.version) && fits(other)
    })?;
    Some(Matched::of(request, Some(other.clone())))
}

/// Whether the object is or was one that a selector chooses.
pub(super) fn matches_object(objects: &LabelSelector, new: &Value, old: Option<&Value>) -> bool {
    let none = serde_json::Map::new();
    let matches = |object: &Value| {
        object.is_object() && objects.matches(object["metadata"]["labels"].as_object().unwrap_or(&none))
    };
    objects.is_empty() || matches(new) || old.is_some_and(matches)
}

/// Whether the request is in a namespace that a selector chooses; a namespace is in itself, and what is in none always is.
pub(super) async fn matches_namespace(
    request: &Request<'_>,
    selector: &LabelSelector,
    object: &Value,
) -> Result<bool> {
    if selector.is_empty() {
        return Ok(true);
    }
    let namespaces = builtin::namespaces();
    if request.kind.is("", "Namespace") {
        let seen = if object.is_object() { Some(object) } else { request.old };
        let labels = seen.and_then(|seen| seen["metadata"]["labels"].as_object());
        return Ok(labels.map_or(selector.matches(&Default::default()), |labels| selector.matches(labels)));
    }
    if request.namespace.is_empty() {
        return Ok(true);
    }
    let key = context::key(namespaces, "", request.namespace);
    if let Some(entry) = request.context.caches.of(namespaces).get(&key) {
        return Ok(entry.matches(Some(selector), None));
    }
    let namespace = request.context.object(namespaces, "", request.namespace).await?;
    let none = serde_json::Map::new();
    Ok(selector.matches(namespace["metadata"]["labels"].as_object().unwrap_or(&none)))
}

impl Rule {
    /// Rules of a list.
    pub(super) fn read_all(rules: &Value) -> Vec<Rule> {
        rules.as_array().into_iter().flatten().map(Rule::read).collect()
    }

    fn read(rule: &Value) -> Rule {
        let resources = texts(&rule["resources"]).into_iter().map(|name| match name.split_once('/') {
            Some((resource, part)) => (resource.to_owned(), part.to_owned()),
            None => (name, String::new()),
        });
        Rule {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: resources.collect(),
            scope: text(&rule["scope"]),
            names: texts(&rule["resourceNames"]),
        }
    }

    fn fits(&self, operation: &str, kind: &Kind, part: &str, name: &str) -> bool {
        let named = |list: &[String], name: &str| list.iter().any(|one| one == "*" || one == name);
        let resource = |(resource, own): &(String, String)| {
            (resource == "*" || *resource == *kind.resource) && (own == "*" || own == part)
        };
        let scope = match self.scope.as_str() {
            "Cluster" => !kind.namespaced,
            "Namespaced" => kind.namespaced,
            _ => true,
        };
        scope
            && named(&self.operations, operation)
            && named(&self.groups, &kind.group)
            && named(&self.versions, &kind.version)
            && self.resources.iter().any(resource)
            && (self.names.is_empty() || self.names.iter().any(|one| one == name))
    }
}

impl Operation {
    /// As rules and reviews name it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

#[cfg(test)]
mod tests {
    use podwire_api::by_resource;
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_name_operations_resources_parts_and_scopes() {
        let rule = |resources: Value, scope: &str| {
            Rule::read(
                &json!({"operations": ["CREATE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": resources, "scope": scope}),
            )
        };
        let (pods, nodes) = (by_resource("", "v1", "pods").unwrap(), by_resource("", "v1", "nodes").unwrap());
        for (rule, kind, part, fits) in [
            (rule(json!(["pods"]), "*"), pods, "", true),
            (rule(json!(["pods"]), "*"), pods, "status", false),
            (rule(json!(["*"]), "*"), pods, "status", false),
            (rule(json!(["pods/*"]), "*"), pods, "status", true),
            (rule(json!(["pods/*"]), "*"), pods, "", true),
            (rule(json!(["*/status"]), "*"), pods, "status", true),
            (rule(json!(["*/*"]), "Namespaced"), nodes, "", false),
            (rule(json!(["*/*"]), "Cluster"), nodes, "", true),
        ] {
            assert_eq!(
                rule.fits("CREATE", kind, part, "x"),
                fits,
                "{:?} {} {part}",
                rule.resources,
                kind.resource
            );
            assert!(!rule.fits("DELETE", kind, part, "x"));
        }
        let named = Rule { names: vec!["a".to_owned()], ..rule(json!(["pods"]), "*") };
        assert!(named.fits("CREATE", pods, "", "a") && !named.fits("CREATE", pods, "", "b"));
    }
}
