//! Who may do what: masters everything, nodes by what is theirs, all others by the stored roles and bindings.
//!
//! The chain is upstream's: the group `system:masters`, the node authorizer, RBAC. The first that allows decides; none
//! denies. Answers come from indexes that follow the caches ([`rbac`], [`graph`]), never from decoding what is stored.

mod follow;
mod graph;
mod node;
pub(crate) mod policy;
pub(crate) mod rbac;
pub(crate) mod references;
pub(crate) mod rule;

use std::sync::Arc;

use self::graph::Graph;
use self::rbac::{Answer, Binding, Rbac};
use crate::cache::Caches;
use crate::context::Context;
use crate::identity::{Identity, MASTERS};
use crate::request::{RequestInfo, ResourceInfo};
use crate::status::{ApiError, Result};

/// What somebody wants to do, as authorization sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attributes<'a> {
    /// The verb; any word in reviews, one of Kubernetes' own in requests.
    pub(crate) verb: &'a str,
    /// The path, where no resource is meant.
    pub(crate) path: &'a str,
    /// The resource.
    pub(crate) resource: Option<&'a ResourceInfo>,
}

impl<'a> Attributes<'a> {
    /// A verb on a resource.
    pub(crate) fn resource(verb: &'a str, resource: &'a ResourceInfo) -> Self {
        Self { verb, path: "", resource: Some(resource) }
    }

    fn namespace(&self) -> &'a str {
        self.resource.map(|resource| resource.namespace.as_str()).unwrap_or_default()
    }
}

impl<'a> From<&'a RequestInfo> for Attributes<'a> {
    fn from(info: &'a RequestInfo) -> Self {
        Self { verb: info.verb, path: &info.path, resource: info.resource.as_ref() }
    }
}

/// The indexes that decisions are made from.
pub(crate) struct Authorizer {
    pub(crate) rbac: Rbac,
    graph: Graph,
}

/// What was decided.
pub(crate) enum Decision {
    /// Allowed; by a binding, if it was one.
    Allowed(Option<Arc<Binding>>),
    /// Nobody allowed it; what they said.
    NoOpinion(String),
}

impl Decision {
    /// Whether it may be done.
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Why, in upstream's words; empty where those say nothing.
    pub(crate) fn reason(&self, identity: &Identity) -> String {
        match self {
            Self::Allowed(by) => by.as_ref().map(|binding| binding.reason(identity)).unwrap_or_default(),
            Self::NoOpinion(why) => why.clone(),
        }
    }
}

impl Authorizer {
    /// Over what is stored.
    pub(crate) fn new(caches: &Caches) -> Self {
        Self { rbac: Rbac::new(caches), graph: Graph::new(caches) }
    }

    /// Decides whether `identity` may do what is asked.
    pub(crate) fn decide(&self, identity: &Identity, asked: &Attributes<'_>) -> Decision {
        let decision = self.decided(identity, asked);
        let none = ResourceInfo::default();
        let resource = asked.resource.unwrap_or(&none);
        tracing::trace!(
            target: "authorization", user = %identity.user, verb = asked.verb, path = asked.path, group = %resource.group,
            resource = %resource.resource, subresource = %resource.subresource, namespace = %resource.namespace,
            name = %resource.name, allowed = decision.is_allowed(), "decided",
        );
        decision
    }

    fn decided(&self, identity: &Identity, asked: &Attributes<'_>) -> Decision {
        if identity.is_in(MASTERS) {
            return Decision::Allowed(None);
        }
        let mut reasons = Vec::new();
        if identity.is_node() {
            match identity.node_name() {
                None => reasons.push(format!("unknown node for user \"{}\"", identity.user)),
                Some(name) => match node::decide(&self.graph, name, asked) {
                    node::Opinion::Allow => return Decision::Allowed(None),
                    node::Opinion::None(why) => reasons.push(why),
                },
            }
        }
        match self.rbac.answer(identity, asked) {
            Answer::Allowed(binding) => return Decision::Allowed(Some(binding)),
            Answer::Open(missing) => reasons.push(missing_roles(missing)),
        }
        reasons.retain(|reason| !reason.is_empty());
        Decision::NoOpinion(reasons.join("\n"))
    }
}

/// Roles that bindings name and that are not there.
fn missing_roles(mut missing: Vec<String>) -> String {
    missing.sort();
    missing.dedup();
    match missing.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    }
}

/// Decides by the indexes of a server.
pub(crate) fn decide(context: &Context, identity: &Identity, asked: &Attributes<'_>) -> Decision {
    context.authorizer.decide(identity, asked)
}

/// Refuses with upstream's wording.
pub(crate) fn check(context: &Context, identity: &Identity, asked: &Attributes<'_>) -> Result<()> {
    match decide(context, identity, asked) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(why) => Err(forbidden(identity, asked, &why)),
    }
}

/// The refusal: 403, or what upstream says for a path that is no resource.
pub(crate) fn forbidden(identity: &Identity, asked: &Attributes<'_>, reason: &str) -> ApiError {
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let Some(resource) = asked.resource else {
        let why = format!("User \"{}\" cannot {} path \"{}\"", identity.user, asked.verb, asked.path);
        let message = format!("forbidden: {}{because}", sanitized(&why));
        return ApiError::new(http::StatusCode::FORBIDDEN, "Forbidden", message).generic();
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
        identity.user, asked.verb, resource.group
    );
    let why = format!("{}{because}", sanitized(&why));
    ApiError::forbidden(&resource.group, &resource.resource, &resource.name, &why)
}

/// What a browser could take for markup is spelt out, as upstream does.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;
    use http::Method;

    #[test]
    fn refusals_read_as_upstreams_do() {
        let info = |path: &str| RequestInfo::parse(&Method::GET, path, &Query::default());
        let error = forbidden(&Identity::anonymous(), &(&info("/api/v1/pods")).into(), "");
        assert_eq!(
            error.message,
            "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
        );
        let error = forbidden(&Identity::anonymous(), &(&info("/metrics<b>")).into(), "why");
        assert_eq!(
            error.message,
            "forbidden: User \"system:anonymous\" cannot get path \"/metrics&lt;b&gt;\": why"
        );
        assert_eq!(missing_roles(vec!["b".into(), "a".into(), "b".into()]), "RBAC: [a, b]");
    }
}
