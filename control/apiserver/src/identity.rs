//! Who is asking: the result of authentication, attached to a request as an extension.

use std::collections::BTreeMap;

use podwire_api::syntax;

/// The group of everyone who proved who they are.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of everyone who did not.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of those who may do everything, whatever roles say.
pub(crate) const MASTERS: &str = "system:masters";
/// The user name of a request without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// What the user names of kubelets begin with.
const NODE_PREFIX: &str = "system:node:";

/// The node of the pod that a service account's token is of.
pub(crate) const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Namespace and name in the user name of a service account.
pub(crate) fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let good = syntax::dns_label(namespace).is_empty() && syntax::dns_subdomain(name).is_empty();
    good.then_some((namespace, name))
}

/// A user with its groups, as an authenticator established it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user name.
    pub user: String,
    /// The groups, in the order the authenticator gave them.
    pub groups: Vec<String>,
    /// The uid, where the authenticator knows one (service accounts).
    pub uid: String,
    /// Further facts, for example the pod a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A user who proved its name; `system:authenticated` is added to the groups.
    pub fn new(user: impl Into<String>, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Self { user: user.into(), groups, uid: String::new(), extra: BTreeMap::new() }.authenticated()
    }

    /// The administrator: a member of `system:masters`.
    pub fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    /// The scheduler.
    pub fn scheduler() -> Self {
        Self::new("system:kube-scheduler", &[])
    }

    /// The controllers.
    pub fn controller_manager() -> Self {
        Self::new("system:kube-controller-manager", &[])
    }

    /// The kubelet of one node.
    pub fn node(name: &str) -> Self {
        Self::new(format!("system:node:{name}"), &["system:nodes"])
    }

    /// The network plugin of a node.
    pub fn network_plugin() -> Self {
        let account = "system:serviceaccount:kube-system:podwire-netplugin";
        Self::new(account, &["system:serviceaccounts", "system:serviceaccounts:kube-system"])
    }

    /// Somebody who showed no credentials.
    pub fn anonymous() -> Self {
        Self {
            user: ANONYMOUS.into(),
            groups: vec![UNAUTHENTICATED.into()],
            uid: String::new(),
            extra: BTreeMap::new(),
        }
    }

    /// Adds `system:authenticated`.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    /// Whether this user is in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|mine| mine == group)
    }

    /// Whether this is a kubelet: a node's user name in the nodes' group.
    pub(crate) fn is_node(&self) -> bool {
        self.user.starts_with(NODE_PREFIX) && self.is_in("system:nodes")
    }

    /// The node's name, for a kubelet.
    pub fn node_name(&self) -> Option<&str> {
        let name = if self.is_node() { self.user.strip_prefix(NODE_PREFIX) } else { None };
        name.filter(|name| !name.is_empty())
    }
}
