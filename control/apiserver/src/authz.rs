//! Who may do what: masters everything, nodes, scheduler and controllers by fixed rules, others by roles.
//!
//! The fixed rules are pure: they look at the identity and the request only. Whether a node may write a certain pod depends on
//! the object and is decided by [`crate::admission`].

pub(crate) mod rbac;

use crate::core::Core;
use crate::identity::{AUTHENTICATED, Identity};
use crate::request::{RequestInfo, ResourceInfo};
use crate::status::{ApiError, Result};

/// A rule: in `group`, these `resources` (`a/b` is a subresource, `*` all) may be used with `verbs`.
struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch"];
const ALL: &[&str] = &["*"];

const fn rule(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule { group, resources, verbs }
}

/// What a node may do, apart from the limits of [`node_may`].
const NODE: &[Rule] = &[
    rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
    rule("authorization.k8s.io", &["subjectaccessreviews", "localsubjectaccessreviews"], &["create"]),
    rule("", &["services", "persistentvolumes", "persistentvolumeclaims"], READ),
    rule("", &["secrets", "configmaps"], READ),
    rule("", &["serviceaccounts"], &["get"]),
    rule("", &["serviceaccounts/token"], &["create"]),
    rule("", &["nodes"], &["create", "get", "list", "watch", "update", "patch"]),
    rule("", &["nodes/status", "persistentvolumeclaims/status"], &["get", "update", "patch"]),
    rule("", &["pods"], &["get", "list", "watch", "create", "delete"]),
    rule("", &["pods/status"], &["get", "update", "patch"]),
    rule("", &["pods/eviction"], &["create"]),
    rule("", &["events"], WRITE),
    rule("events.k8s.io", &["events"], WRITE),
    rule("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch", "delete"]),
    rule("certificates.k8s.io", &["certificatesigningrequests"], &["create", "get", "list", "watch"]),
    rule("storage.k8s.io", &["csidrivers", "volumeattachments"], READ),
    rule("storage.k8s.io", &["csinodes"], &["get", "create", "update", "patch", "delete"]),
    rule("node.k8s.io", &["runtimeclasses"], READ),
    rule("resource.k8s.io", &["resourceclaims"], &["get"]),
    rule("resource.k8s.io", &["resourceclaims/status", "resourceclaims/driver"], &["update", "patch"]),
    rule("resource.k8s.io", &["resourceslices"], ALL),
];

/// What the scheduler may do.
const SCHEDULER: &[Rule] = &[
    rule("", &["pods", "nodes", "namespaces", "services", "replicationcontrollers"], READ),
    rule("", &["persistentvolumes", "persistentvolumeclaims"], &["get", "list", "watch", "update", "patch"]),
    rule("", &["pods"], &["delete"]),
    rule("", &["pods/binding", "bindings"], &["create"]),
    rule("", &["pods/status"], &["update", "patch"]),
    rule("", &["events"], WRITE),
    rule("events.k8s.io", &["events"], WRITE),
    rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update", "patch"]),
    rule("apps", &["replicasets", "statefulsets"], READ),
    rule("policy", &["poddisruptionbudgets"], READ),
    rule("storage.k8s.io", &["*"], READ),
    rule("resource.k8s.io", &["*"], READ),
    rule(
        "resource.k8s.io",
        &["resourceclaims", "resourceclaims/status", "resourceclaims/binding"],
        &["update", "patch"],
    ),
    rule("scheduling.k8s.io", &["*"], READ),
    rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
    rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];

/// What everybody with a name may ask about themselves.
const SELF: &[Rule] = &[
    rule("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"], &["create"]),
    rule("authentication.k8s.io", &["selfsubjectreviews"], &["create"]),
];

/// Answers whether `identity` may do what `info` says.
pub(crate) fn allowed(identity: &Identity, info: &RequestInfo) -> bool {
    if identity.is_in("system:masters") {
        return true;
    }
    let Some(resource) = &info.resource else { return path_allowed(identity, info) };
    if identity.is_in(AUTHENTICATED) && any(SELF, resource, info.verb) {
        return true;
    }
    if let Some(node) = identity.node_name() {
        return any(NODE, resource, info.verb) && node_may(node, resource, info.verb);
    }
    match identity.user.as_str() {
        "system:kube-scheduler" => any(SCHEDULER, resource, info.verb),
        "system:kube-controller-manager" => true,
        _ => false,
    }
}

/// Answers by the fixed rules and, where those say nothing, by the stored roles.
pub(crate) fn permitted(core: &Core, identity: &Identity, info: &RequestInfo) -> bool {
    allowed(identity, info) || rbac::allows(core, identity, info)
}

/// Refuses with upstream's wording.
pub(crate) fn check(core: &Core, identity: &Identity, info: &RequestInfo) -> Result<()> {
    if permitted(core, identity, info) { Ok(()) } else { Err(forbidden(identity, info)) }
}

/// The refusal: 403, or what upstream says for a path that is no resource.
pub(crate) fn forbidden(identity: &Identity, info: &RequestInfo) -> ApiError {
    let Some(resource) = &info.resource else {
        let why = format!("User \"{}\" cannot {} path \"{}\"", identity.user, info.verb, info.path);
        return ApiError::new(http::StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}"))
            .generic();
    };
    let shown = match resource.subresource.as_str() {
        "" => resource.resource.clone(),
        subresource => format!("{}/{subresource}", resource.resource),
    };
    let place = match resource.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{shown}\" in API group \"{}\" {place}",
        identity.user, info.verb, resource.group
    );
    ApiError::forbidden(&resource.group, &resource.resource, &resource.name, &why)
}

fn any(rules: &[Rule], resource: &ResourceInfo, verb: &str) -> bool {
    let full;
    let name = if resource.subresource.is_empty() {
        resource.resource.as_str()
    } else {
        full = format!("{}/{}", resource.resource, resource.subresource);
        &full
    };
    rules.iter().any(|rule| {
        rule.group == resource.group
            && rule.resources.iter().any(|allowed| *allowed == "*" || *allowed == name)
            && rule.verbs.iter().any(|allowed| *allowed == "*" || *allowed == verb)
    })
}

/// A node writes only its own node, lease and CSI node, and reads secrets one by one.
fn node_may(node: &str, resource: &ResourceInfo, verb: &str) -> bool {
    let own = resource.name == node;
    match (resource.group.as_str(), resource.resource.as_str(), verb) {
        ("", "nodes", "create") => true,
        ("", "nodes", "get" | "list" | "watch") => true,
        ("", "nodes", _) => own,
        ("coordination.k8s.io", "leases", "create") => resource.namespace == "kube-node-lease",
        ("coordination.k8s.io", "leases", _) => own && resource.namespace == "kube-node-lease",
        ("storage.k8s.io", "csinodes", "create") => true,
        ("storage.k8s.io", "csinodes", _) => own,
        ("", "secrets" | "configmaps", _) => !resource.name.is_empty(),
        _ => true,
    }
}

/// Paths that are no resources: health for all, discovery for everybody with a name.
fn path_allowed(identity: &Identity, info: &RequestInfo) -> bool {
    if !matches!(info.verb, "get" | "head") {
        return false;
    }
    let path = info.path.trim_end_matches('/');
    let public = ["/healthz", "/livez", "/readyz", "/version"];
    if public.contains(&path) {
        return true;
    }
    let open = ["/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz", "/.well-known", "/openid/v1"];
    let service_account = identity.is_in("system:serviceaccounts");
    identity.is_in(AUTHENTICATED)
        && open.iter().any(|prefix| {
            let inside =
                path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            inside && (service_account || !matches!(*prefix, "/.well-known" | "/openid/v1"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;
    use http::Method;

    fn info(method: &Method, path: &str) -> RequestInfo {
        RequestInfo::parse(method, path, &Query::default())
    }

    #[test]
    fn refusals_read_as_upstreams_do() {
        let error = forbidden(&Identity::anonymous(), &info(&Method::GET, "/api/v1/pods"));
        assert_eq!(
            error.message,
            "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
        );
        let error = forbidden(&Identity::anonymous(), &info(&Method::GET, "/metrics"));
        assert_eq!(error.message, "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"");
    }

    #[test]
    fn a_node_writes_itself_and_no_other() {
        let node = Identity::node("n1");
        assert!(allowed(&node, &info(&Method::PATCH, "/api/v1/nodes/n1/status")));
        assert!(!allowed(&node, &info(&Method::PATCH, "/api/v1/nodes/n2/status")));
        assert!(!allowed(&node, &info(&Method::GET, "/api/v1/secrets")));
        assert!(allowed(&node, &info(&Method::GET, "/api/v1/namespaces/a/secrets/s")));
        assert!(!allowed(&node, &info(&Method::POST, "/apis/apps/v1/namespaces/a/deployments")));
    }

    #[test]
    fn health_is_public_and_discovery_is_not() {
        assert!(allowed(&Identity::anonymous(), &info(&Method::GET, "/readyz")));
        assert!(!allowed(&Identity::anonymous(), &info(&Method::GET, "/apis")));
        assert!(allowed(&Identity::scheduler(), &info(&Method::GET, "/apis/apps/v1")));
        assert!(allowed(&Identity::scheduler(), &info(&Method::POST, "/api/v1/namespaces/a/pods/p/binding")));
        assert!(!allowed(&Identity::scheduler(), &info(&Method::POST, "/api/v1/namespaces/a/pods")));
    }
}
