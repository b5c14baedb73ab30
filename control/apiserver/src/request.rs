//! What a request asks for, read once off its method, path and query: authorization and handlers look at this and at
//! nothing else, so that what is acted on is what was authorized.
//!
//! The reading is upstream's: the path is unescaped once and then split, `/namespaces/X/` before a resource gives the
//! namespace, and `/namespaces/X` alone is the namespace `X` in itself. Whether there is such a route at all is
//! decided by [`crate::handler`].

use http::Method;
use podwire_api::selector::FieldSelector;
use podwire_api::syntax;

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
    /// Name of the object: the path's, or the one that the selector of a list or watch requires.
    pub(crate) name: String,
    /// Subresource, empty for the object itself.
    pub(crate) subresource: String,
    /// What follows the subresource (only `proxy` has such a tail).
    pub(crate) tail: String,
    /// Field values that the selector of a list, watch or collection deletion requires.
    pub(crate) required: Vec<(String, String)>,
    /// How the path is built.
    pub(crate) route: Route,
}

/// What routing must know of a path beside its parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// The resource stands below `/namespaces/X/`.
    pub(crate) in_namespace: bool,
    /// The path itself names the object.
    pub(crate) named: bool,
    /// No resource is served there: an empty part, or an old way of asking that is gone.
    pub(crate) nowhere: bool,
}

impl ResourceInfo {
    /// The value that the selector requires of a field.
    pub(crate) fn requires(&self, field: &str) -> Option<&str> {
        self.required.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }
}

impl RequestInfo {
    /// Reads method, path and query.
    pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let path = unescape(path, false);
        let Some((mut resource, prefix)) = resource_of(&path) else {
            return Self { path, verb: plain_verb(method), resource: None };
        };
        let mut verb = match *method {
            _ if prefix == Prefix::Watch => "watch",
            _ if prefix == Prefix::Proxy => "proxy",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            Method::GET | Method::HEAD => "get",
            _ => "",
        };
        resource.route.named = !resource.name.is_empty();
        let collection = !resource.route.named;
        if collection && verb == "get" {
            verb = if query.flag("watch") { "watch" } else { "list" };
        } else if collection && verb == "delete" {
            verb = "deletecollection";
        }
        if prefix == Prefix::None && collection && matches!(verb, "list" | "watch" | "deletecollection") {
            resource.required = query.get("fieldSelector").map(required).unwrap_or_default();
            // A deletion of many names nobody, even if its selector does.
            let name = resource.requires("metadata.name").filter(|_| verb != "deletecollection");
            resource.name =
                name.filter(|name| syntax::path_segment(name).is_empty()).unwrap_or_default().into();
        }
        let reads = matches!(*method, Method::GET | Method::HEAD);
        resource.route.nowhere |= prefix == Prefix::Proxy || (prefix == Prefix::Watch && !reads);
        Self { path, verb, resource: Some(resource) }
    }
}

/// Whether every `%` of a path begins an escape; what does not is refused before anything is read out of it.
pub(crate) fn is_well_escaped(path: &str) -> bool {
    let two_digits =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    path.split('%').skip(1).all(two_digits)
}

/// The fields that a selector fixes; a selector that cannot be read fixes none, and is refused by the handler.
pub(crate) fn required(selector: &str) -> Vec<(String, String)> {
    let Ok(selector) = FieldSelector::parse(selector) else { return Vec::new() };
    let fixed = selector.requirements().iter().filter(|term| term.equals);
    fixed.map(|term| (term.field.clone(), term.value.clone())).collect()
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

/// A verb that stands in the path before the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    None,
    Watch,
    Proxy,
}

fn resource_of(path: &str) -> Option<(ResourceInfo, Prefix)> {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let mut info = ResourceInfo::default();
    let before = match parts[0] {
        "api" => 1,
        "apis" => 2,
        _ => return None,
    };
    if parts.len() < before + 2 {
        return None;
    }
    if before == 2 {
        info.group = parts[1].to_owned();
    }
    info.version = parts[before].to_owned();
    let empty = parts.iter().position(|part| part.is_empty());
    let all = parts.len();
    parts.drain(..=before);
    let prefix = match parts[0] {
        "watch" if parts.len() > 1 => Prefix::Watch,
        "proxy" if parts.len() > 1 => Prefix::Proxy,
        _ => Prefix::None,
    };
    if prefix != Prefix::None {
        parts.remove(0);
    }
    if parts[0] == "namespaces" && parts.len() > 1 {
        info.namespace = parts[1].to_owned();
        if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
            info.route.in_namespace = true;
            parts.drain(..2);
        }
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or_default().to_owned();
    (info.resource, info.name) = (part(0), part(1));
    if prefix != Prefix::Proxy {
        info.subresource = part(2);
        info.tail = parts.get(3..).unwrap_or_default().join("/");
    }
    // What is passed on may have empty parts; whoever gets it cleans them away.
    let taken = all - parts.len() + 3;
    info.route.nowhere = empty.is_some_and(|at| at < taken || info.subresource != "proxy");
    Some((info, prefix))
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

    #[test]
    fn a_path_is_unescaped_once_and_then_taken_apart() {
        let escaped = parse(&Method::GET, "/api/v1/namespaces/a%2Fb/pods/c", "").resource.unwrap();
        assert_eq!((escaped.namespace.as_str(), escaped.resource.as_str()), ("a", "b"));
        assert_eq!((escaped.name.as_str(), escaped.subresource.as_str()), ("pods", "c"));
        let twice = parse(&Method::GET, "/api/v1/namespaces/a/pods/x%252Fy", "").resource.unwrap();
        assert_eq!(twice.name, "x%2Fy");
        assert!(is_well_escaped("/a%2Fb") && !is_well_escaped("/a%2") && !is_well_escaped("/a%zz"));
    }

    #[test]
    fn what_has_no_route_is_known_as_such() {
        let nowhere = |method: &Method, path: &str| parse(method, path, "").resource.unwrap().route.nowhere;
        assert!(nowhere(&Method::GET, "/api/v1/namespaces//pods"));
        assert!(nowhere(&Method::GET, "/api/v1//pods"));
        assert!(nowhere(&Method::POST, "/api/v1/watch/pods"));
        assert!(nowhere(&Method::GET, "/api/v1/proxy/pods/x"));
        assert!(!nowhere(&Method::GET, "/api/v1/watch/namespaces/a/pods/x"));
        let cluster = parse(&Method::DELETE, "/api/v1/namespaces/a/namespaces/b", "").resource.unwrap();
        assert!(cluster.route.in_namespace && cluster.namespace == "a" && cluster.name == "b");
        let own = parse(&Method::DELETE, "/api/v1/namespaces/a", "").resource.unwrap();
        assert!(!own.route.in_namespace && own.namespace == "a" && own.name == "a");
    }

    #[test]
    fn only_a_reader_gets_a_name_from_its_selector() {
        let query = "fieldSelector=metadata.name%3Dx,spec.nodeName%3Dn1";
        let listed = parse(&Method::GET, "/api/v1/pods", query).resource.unwrap();
        assert_eq!((listed.name.as_str(), listed.requires("spec.nodeName")), ("x", Some("n1")));
        assert!(!listed.route.named);
        let deleted = parse(&Method::DELETE, "/api/v1/namespaces/a/pods", query);
        assert_eq!((deleted.verb, deleted.resource.unwrap().name.as_str()), ("deletecollection", ""));
        let odd = parse(&Method::GET, "/api/v1/secrets", "fieldSelector=metadata.name%3Da%2Fb");
        assert_eq!(odd.resource.unwrap().name, "", "no name that could not be one");
    }
}
