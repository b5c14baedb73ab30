//! What a node may do: its own Node, lease and CSI node, and what the pods that are bound to it need.
//!
//! Decides by the request alone and by the graph; never denies, only allows or has no opinion, with upstream's
//! reasons. Where the object's content decides (creations, status), everything is let through here and narrowed by
//! `NodeRestriction` (see [`crate::admission`]).

use std::sync::LazyLock;

use super::Attributes;
use super::graph::Graph;
use super::policy;
use super::references::Sort;
use super::rule::Rule;
use crate::request::ResourceInfo;

/// The rules of the cluster role `system:node`, which nobody is bound to.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let role = policy::cluster_roles().into_iter().find(|role| role["metadata"]["name"] == "system:node");
    role.as_ref().map(Rule::all_of).unwrap_or_default()
});

/// What is said about a request of a node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opinion {
    /// It is a node's business.
    Allow,
    /// Others may decide; this is why not.
    None(String),
}

fn none(why: &str) -> Opinion {
    Opinion::None(why.to_owned())
}

/// Decides about a request of the node called `node`.
pub(crate) fn decide(graph: &Graph, node: &str, asked: &Attributes<'_>) -> Opinion {
    let question = Question { graph, node, verb: asked.verb };
    let own = asked.resource.and_then(|resource| question.about(resource));
    own.unwrap_or_else(|| if RULES.iter().any(|rule| rule.allows(asked)) { Opinion::Allow } else { none("") })
}

struct Question<'a> {
    graph: &'a Graph,
    node: &'a str,
    verb: &'a str,
}

impl Question<'_> {
    /// The opinion on resources that not every node may use alike; `None` for all others.
    fn about(&self, target: &ResourceInfo) -> Option<Opinion> {
        Some(match (target.group.as_str(), target.resource.as_str()) {
            ("", "secrets") => self.read(Sort::Secret, target),
            ("", "configmaps") => self.read(Sort::ConfigMap, target),
            ("", "persistentvolumeclaims") if target.subresource == "status" => self.claim_status(target),
            ("", "persistentvolumeclaims") => {
                self.get(target, |name| self.related(Sort::Claim, target, name))
            }
            ("", "persistentvolumes") => self.get(target, |name| self.graph.connects_volume(self.node, name)),
            ("resource.k8s.io", "resourceclaims") => {
                self.get(target, |name| self.related(Sort::ResourceClaim, target, name))
            }
            ("storage.k8s.io", "volumeattachments") => {
                self.get(target, |name| self.related(Sort::Attachment, target, name))
            }
            ("", "serviceaccounts") => self.account(target),
            ("coordination.k8s.io", "leases") => self.lease(target),
            ("storage.k8s.io", "csinodes") => self.csi_node(target),
            ("resource.k8s.io", "resourceslices") => self.slice(target),
            ("", "nodes") => self.node(target),
            ("", "pods") => self.pod(target),
            _ => return None,
        })
    }

    fn related(&self, sort: Sort, target: &ResourceInfo, name: &str) -> bool {
        let namespace = if matches!(sort, Sort::Attachment | Sort::Slice) { "" } else { &target.namespace };
        self.graph.connects(self.node, sort, namespace, name)
    }

    /// Allows what is related to this node.
    fn when_related(&self, target: &ResourceInfo, related: impl Fn(&str) -> bool) -> Opinion {
        if target.name.is_empty() {
            return none("No Object name found");
        }
        if related(&target.name) { Opinion::Allow } else { self.stranger() }
    }

    fn stranger(&self) -> Opinion {
        Opinion::None(format!("no relationship found between node '{}' and this object", self.node))
    }

    fn get(&self, target: &ResourceInfo, related: impl Fn(&str) -> bool) -> Opinion {
        if self.verb != "get" {
            return none("can only get individual resources of this type");
        }
        if !target.subresource.is_empty() {
            return none("cannot get subresource");
        }
        self.when_related(target, related)
    }

    fn read(&self, sort: Sort, target: &ResourceInfo) -> Opinion {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return none("can only read resources of this type");
        }
        if !target.subresource.is_empty() {
            return none("cannot read subresource");
        }
        if target.namespace.is_empty() {
            return none("can only read namespaced object of this type");
        }
        self.when_related(target, |name| self.related(sort, target, name))
    }

    fn claim_status(&self, target: &ResourceInfo) -> Opinion {
        if !matches!(self.verb, "update" | "patch") {
            return none("can only get/update/patch this type");
        }
        self.when_related(target, |name| self.related(Sort::Claim, target, name))
    }

    fn account(&self, target: &ResourceInfo) -> Opinion {
        if self.verb == "get" && target.subresource.is_empty() {
            return self.read(Sort::Account, target);
        }
        if self.verb != "create" || target.name.is_empty() {
            return none("can only create tokens for individual service accounts");
        }
        if target.subresource != "token" {
            return none("can only create token subresource of serviceaccount");
        }
        self.when_related(target, |name| self.related(Sort::Account, target, name))
    }

    fn lease(&self, target: &ResourceInfo) -> Opinion {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return none("can only get, create, update, patch, or delete a node lease");
        }
        if target.namespace != "kube-node-lease" {
            return none("can only access leases in the \"kube-node-lease\" system namespace");
        }
        if self.verb != "create" && target.name != self.node {
            return none("can only access node lease with the same name as the requesting node");
        }
        Opinion::Allow
    }

    fn csi_node(&self, target: &ResourceInfo) -> Opinion {
        if !matches!(self.verb, "get" | "create" | "update" | "patch" | "delete") {
            return none("can only get, create, update, patch, or delete a CSINode");
        }
        if !target.subresource.is_empty() {
            return none("cannot authorize CSINode subresources");
        }
        if self.verb != "create" && target.name != self.node {
            return none("can only access CSINode with the same name as the requesting node");
        }
        Opinion::Allow
    }

    fn slice(&self, target: &ResourceInfo) -> Opinion {
        if !target.subresource.is_empty() {
            return none("cannot authorize ResourceSlice subresources");
        }
        match self.verb {
            "create" => Opinion::Allow,
            "get" | "update" | "patch" | "delete" => {
                self.when_related(target, |name| self.related(Sort::Slice, target, name))
            }
            "watch" | "list" | "deletecollection" if target.requires("spec.nodeName") == Some(self.node) => {
                Opinion::Allow
            }
            "watch" | "list" | "deletecollection" => {
                none("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => none(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn node(&self, target: &ResourceInfo) -> Opinion {
        let node = self.node;
        match (target.subresource.as_str(), self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Opinion::Allow,
            ("", "get" | "list" | "watch") if target.name == node => Opinion::Allow,
            ("", "get" | "list" | "watch") if target.name.is_empty() => {
                Opinion::None(format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            ("", "get" | "list" | "watch") => {
                let other = &target.name;
                Opinion::None(format!("node '{node}' cannot read '{other}', only its own Node object"))
            }
            _ => none(""),
        }
    }

    fn pod(&self, target: &ResourceInfo) -> Opinion {
        let related = |name: &str| self.related(Sort::Pod, target, name);
        match (target.subresource.as_str(), self.verb) {
            ("", "get") => self.get(target, related),
            ("", "list" | "watch") if target.requires("spec.nodeName") == Some(self.node) => Opinion::Allow,
            ("", "list" | "watch") if !target.name.is_empty() => self.when_related(target, related),
            ("", "list" | "watch") => none("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Opinion::Allow
            }
            _ => none(""),
        }
    }
}
