//! What a request asks for, read off its method and path and nothing else.

use http::Method;

use crate::query::{Query, unescape};

/// The parts of a request that authorization and routing look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestInfo {
    /// The decoded path.
    pub(crate) path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; lower-case method else.
    pub(crate) verb: &'static str,
    /// Set when the path names a resource.
    pub(crate) resource: Option<ResourceInfo>,
}

/// The resource part of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceInfo {
    /// API group; empty is the core group.
    pub(crate) group: String,
    /// API version.
    pub(crate) version: String,
    /// Namespace, empty for cluster scope or all namespaces.
    pub(crate) namespace: String,
    /// Plural name of the resource.
    pub(crate) resource: String,
    /// Name of the object, empty for a collection.
    pub(crate) name: String,
    /// Subresource, empty for the object itself.
    pub(crate) subresource: String,
    /// What follows the subresource (only `proxy` has such a tail).
    pub(crate) tail: String,
}

impl RequestInfo {
    /// Reads method, path and query.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info = Self { path: unescape(path, false), verb: plain_verb(method), resource: None };
        let Some((mut resource, legacy_watch)) = resource_of(path) else { return info };
        let collection = resource.name.is_empty();
        info.verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if collection => "deletecollection",
            Method::DELETE => "delete",
            Method::GET | Method::HEAD if legacy_watch || (collection && query.flag("watch")) => "watch",
            Method::GET | Method::HEAD if collection => "list",
            _ => info.verb,
        };
        if collection && matches!(info.verb, "list" | "watch" | "deletecollection") {
            resource.name = query.get("fieldSelector").and_then(single_name).unwrap_or_default();
        }
        info.resource = Some(resource);
        info
    }
}

/// The name that a selector `metadata.name=x` pins down, so that rules about one object apply.
fn single_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        Some(value.strip_prefix('=').unwrap_or(value).to_owned())
    })
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "unknown",
    }
}

fn resource_of(path: &str) -> Option<(ResourceInfo, bool)> {
    let mut parts = path.trim_matches('/').split('/').map(|part| unescape(part, false));
    let mut info = ResourceInfo::default();
    match parts.next()?.as_str() {
        "api" => {}
        "apis" => info.group = parts.next().filter(|group| !group.is_empty())?,
        _ => return None,
    }
    info.version = parts.next().filter(|version| !version.is_empty())?;
    let mut rest: Vec<String> = parts.collect();
    let watch = rest.first().is_some_and(|part| part == "watch") && rest.len() > 1;
    if watch {
        rest.remove(0);
    }
    if rest.first().is_some_and(|part| part == "namespaces") && rest.len() > 1 {
        info.namespace.clone_from(&rest[1]);
        if rest.len() > 2 && !matches!(rest[2].as_str(), "status" | "finalize") {
            rest.drain(..2);
        }
    }
    let mut rest = rest.into_iter();
    info.resource = rest.next().filter(|resource| !resource.is_empty())?;
    info.name = rest.next().unwrap_or_default();
    info.subresource = rest.next().unwrap_or_default();
    info.tail = rest.collect::<Vec<_>>().join("/");
    Some((info, watch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &Method, path: &str, query: &str) -> RequestInfo {
        RequestInfo::parse(method, path, &Query::parse(query))
    }

    #[test]
    fn a_namespaced_subresource_is_taken_apart() {
        let info = parse(&Method::GET, "/api/v1/namespaces/default/pods/web/log", "follow=true");
        let resource = info.resource.unwrap();
        assert_eq!((info.verb, resource.namespace.as_str()), ("get", "default"));
        assert_eq!((resource.resource.as_str(), resource.name.as_str()), ("pods", "web"));
        assert_eq!(resource.subresource, "log");
    }

    #[test]
    fn a_namespace_is_itself_a_resource() {
        let info = parse(&Method::PUT, "/api/v1/namespaces/old/finalize", "");
        let resource = info.resource.unwrap();
        assert_eq!((resource.resource.as_str(), resource.name.as_str()), ("namespaces", "old"));
        assert_eq!((resource.namespace.as_str(), resource.subresource.as_str()), ("old", "finalize"));
    }

    #[test]
    fn collections_have_verbs_of_their_own() {
        assert_eq!(parse(&Method::GET, "/apis/apps/v1/deployments", "").verb, "list");
        assert_eq!(parse(&Method::GET, "/apis/apps/v1/deployments", "watch=true").verb, "watch");
        assert_eq!(parse(&Method::DELETE, "/api/v1/namespaces/a/pods", "").verb, "deletecollection");
        assert_eq!(parse(&Method::GET, "/api/v1/watch/pods", "").verb, "watch");
        let named = parse(&Method::GET, "/api/v1/secrets", "watch=1&fieldSelector=metadata.name%3Dtls");
        assert_eq!(named.resource.unwrap().name, "tls");
        assert!(parse(&Method::GET, "/healthz", "").resource.is_none());
        assert!(parse(&Method::GET, "/api/v1", "").resource.is_none());
    }
}
