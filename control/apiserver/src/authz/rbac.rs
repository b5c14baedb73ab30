//! Role-based rules: what the stored roles and bindings allow, answered from an index by subject.
//!
//! Only allows. The index follows the caches of the four kinds; a role or binding is parsed when it changes and not
//! when somebody asks. Aggregated cluster roles carry their rules already; a controller puts them there.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use podwire_api::{Kind, builtin};
use serde_json::Value;

use super::Attributes;
use super::follow::{Followed, News};
use super::rule::Rule;
use crate::cache::{Caches, ChangeKind, Entry};
use crate::context;
use crate::identity::Identity;

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// A binding: who has which role where.
#[derive(Debug)]
pub(crate) struct Binding {
    name: String,
    /// Empty for a cluster role binding.
    namespace: String,
    role_kind: String,
    role_name: String,
    /// The key of the role in the store.
    role: String,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    /// The user name that the subject stands for; groups have none.
    fn user(&self) -> Option<String> {
        match self.kind.as_str() {
            "User" => Some(self.name.clone()),
            "ServiceAccount" if !self.namespace.is_empty() => {
                Some(format!("system:serviceaccount:{}:{}", self.namespace, self.name))
            }
            _ => None,
        }
    }

    fn is(&self, identity: &Identity) -> bool {
        if self.kind == "Group" {
            identity.is_in(&self.name)
        } else {
            self.user().as_ref() == Some(&identity.user)
        }
    }

    fn describe(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => format!("ServiceAccount \"{}/{}\"", self.name, self.namespace),
            kind => format!("{kind} \"{}\"", self.name),
        }
    }
}

impl Binding {
    /// A service account without a namespace is one of the binding's own.
    fn read(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = text(&object["metadata"]["namespace"]);
        let (role_kind, role_name) = (text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"]));
        let role = role_key(&role_kind, &namespace, &role_name);
        let subjects = object["subjects"].as_array().into_iter().flatten().map(|subject| Subject {
            kind: text(&subject["kind"]),
            name: text(&subject["name"]),
            namespace: match text(&subject["namespace"]) {
                none if none.is_empty() => namespace.clone(),
                given => given,
            },
        });
        let subjects = subjects.collect();
        Self { name: text(&object["metadata"]["name"]), namespace, role_kind, role_name, role, subjects }
    }

    /// Upstream's words for why somebody was let in.
    pub(crate) fn reason(&self, identity: &Identity) -> String {
        let (kind, name) = match self.namespace.as_str() {
            "" => ("ClusterRoleBinding", self.name.clone()),
            namespace => ("RoleBinding", format!("{}/{namespace}", self.name)),
        };
        let subject = self.subjects.iter().find(|subject| subject.is(identity)).map(Subject::describe);
        format!(
            "RBAC: allowed by {kind} \"{name}\" of {} \"{}\" to {}",
            self.role_kind,
            self.role_name,
            subject.unwrap_or_default()
        )
    }

    fn dangles(&self) -> String {
        match self.role_kind.as_str() {
            "Role" => format!("role.{GROUP} \"{}\" not found", self.role_name),
            _ => format!("clusterrole.{GROUP} \"{}\" not found", self.role_name),
        }
    }
}

/// The key of a role that a binding in `namespace` refers to.
fn role_key(role_kind: &str, namespace: &str, name: &str) -> String {
    match role_kind {
        // A cluster role binding may not refer to a role; there is none in no namespace.
        "Role" => context::key(builtin::roles(), namespace, name),
        "ClusterRole" => context::key(builtin::cluster_roles(), "", name),
        _ => String::new(),
    }
}

/// Bindings by those they are about.
#[derive(Default)]
struct BySubject {
    users: HashMap<String, Vec<Arc<Binding>>>,
    groups: HashMap<String, Vec<Arc<Binding>>>,
}

impl BySubject {
    fn insert(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            let list = match subject.user() {
                Some(user) => self.users.entry(user).or_default(),
                None if subject.kind == "Group" => self.groups.entry(subject.name.clone()).or_default(),
                None => continue,
            };
            if !list.iter().any(|known| Arc::ptr_eq(known, binding)) {
                list.push(binding.clone());
            }
        }
    }

    fn remove(&mut self, binding: &Arc<Binding>) {
        let clean = |map: &mut HashMap<String, Vec<Arc<Binding>>>, key: &str| {
            if let Some(list) = map.get_mut(key) {
                list.retain(|known| !Arc::ptr_eq(known, binding));
                if list.is_empty() {
                    map.remove(key);
                }
            }
        };
        for subject in &binding.subjects {
            match subject.user() {
                Some(user) => clean(&mut self.users, &user),
                None => clean(&mut self.groups, &subject.name),
            }
        }
    }

    /// The bindings that concern somebody; one may come twice.
    fn of<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = &'a Arc<Binding>> {
        let groups = identity.groups.iter().filter_map(|group| self.groups.get(group));
        self.users.get(&identity.user).into_iter().chain(groups).flatten()
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

struct State {
    cluster_roles: Followed,
    roles: Followed,
    cluster_bindings: Followed,
    bindings: Followed,
    /// Rules by the key of their role.
    rules: HashMap<Arc<str>, Arc<[Rule]>>,
    /// Bindings by their own key, to take them out again.
    known: HashMap<Arc<str>, Arc<Binding>>,
    everywhere: BySubject,
    within: HashMap<String, BySubject>,
}

/// The index.
pub(crate) struct Rbac(RwLock<State>);

/// What the bindings say about a question.
pub(crate) enum Answer {
    /// This one allows it.
    Allowed(Arc<Binding>),
    /// None does; these roles are missing.
    Open(Vec<String>),
}

impl Rbac {
    /// An index over what is stored.
    pub(crate) fn new(caches: &Caches) -> Self {
        let follow = |kind: &Kind| Followed::new(caches.of(kind));
        Self(RwLock::new(State {
            cluster_roles: follow(builtin::cluster_roles()),
            roles: follow(builtin::roles()),
            cluster_bindings: follow(builtin::cluster_role_bindings()),
            bindings: follow(builtin::role_bindings()),
            rules: HashMap::new(),
            known: HashMap::new(),
            everywhere: BySubject::default(),
            within: HashMap::new(),
        }))
    }

    /// The index at the state of the caches.
    fn current(&self) -> RwLockReadGuard<'_, State> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if state.is_current() {
            return state;
        }
        drop(state);
        self.0.write().unwrap_or_else(PoisonError::into_inner).catch_up();
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a binding gives `identity` what is asked for.
    pub(crate) fn answer(&self, identity: &Identity, asked: &Attributes<'_>) -> Answer {
        let state = self.current();
        let mut missing = Vec::new();
        for binding in state.concerning(identity, asked.namespace()) {
            match state.rules.get(binding.role.as_str()) {
                Some(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Answer::Allowed(binding.clone());
                }
                Some(_) => {}
                None => missing.push(binding.dangles()),
            }
        }
        Answer::Open(missing)
    }

    /// Every rule that bindings give `identity` in a namespace (and everywhere).
    pub(crate) fn rules_of(&self, identity: &Identity, namespace: &str) -> Vec<Rule> {
        let state = self.current();
        let mut seen: Vec<&Arc<Binding>> = Vec::new();
        for binding in state.concerning(identity, namespace) {
            if !seen.iter().any(|known| Arc::ptr_eq(known, binding)) {
                seen.push(binding);
            }
        }
        let rules = seen.iter().filter_map(|binding| state.rules.get(binding.role.as_str()));
        rules.flat_map(|rules| rules.iter().cloned()).collect()
    }

    /// The rules of a role as a binding in `namespace` refers to it.
    pub(crate) fn rules_in(&self, role_kind: &str, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        self.current().rules.get(role_key(role_kind, namespace, name).as_str()).cloned()
    }
}

impl State {
    fn is_current(&self) -> bool {
        let followed = [&self.cluster_roles, &self.roles, &self.cluster_bindings, &self.bindings];
        followed.iter().all(|followed| followed.is_current())
    }

    /// Bindings of the whole cluster first, then the namespace's.
    fn concerning<'a>(
        &'a self,
        identity: &'a Identity,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<Binding>> {
        let here = if namespace.is_empty() { None } else { self.within.get(namespace) };
        self.everywhere.of(identity).chain(here.into_iter().flat_map(|here| here.of(identity)))
    }

    fn catch_up(&mut self) {
        while !self.cluster_roles.is_current() {
            let news = self.cluster_roles.news();
            take_roles(&mut self.rules, &self.cluster_roles, builtin::cluster_roles(), news);
        }
        while !self.roles.is_current() {
            let news = self.roles.news();
            take_roles(&mut self.rules, &self.roles, builtin::roles(), news);
        }
        while !self.cluster_bindings.is_current() {
            let news = self.cluster_bindings.news();
            self.take_bindings(builtin::cluster_role_bindings(), news);
        }
        while !self.bindings.is_current() {
            let news = self.bindings.news();
            self.take_bindings(builtin::role_bindings(), news);
        }
    }

    fn take_bindings(&mut self, kind: &Kind, news: News) {
        match news {
            News::All(entries) => {
                let stale = self.known.keys().filter(|key| key.starts_with(kind.storage_prefix.as_ref()));
                for key in stale.cloned().collect::<Vec<_>>() {
                    self.forget(&key);
                }
                for entry in &entries {
                    self.learn(kind, entry);
                }
            }
            News::Changes(changes) => {
                for change in changes {
                    self.forget(&change.entry.key);
                    if change.kind != ChangeKind::Deleted {
                        self.learn(kind, &change.entry);
                    }
                }
            }
        }
    }

    fn learn(&mut self, kind: &Kind, entry: &Entry) {
        let binding = Arc::new(Binding::read(&entry.decode(kind)));
        let place = match binding.namespace.as_str() {
            "" => &mut self.everywhere,
            namespace => self.within.entry(namespace.to_owned()).or_default(),
        };
        place.insert(&binding);
        self.known.insert(entry.key.clone(), binding);
    }

    fn forget(&mut self, key: &str) {
        let Some(binding) = self.known.remove(key) else { return };
        if binding.namespace.is_empty() {
            self.everywhere.remove(&binding);
        } else if let Some(place) = self.within.get_mut(&binding.namespace) {
            place.remove(&binding);
            if place.is_empty() {
                self.within.remove(&binding.namespace);
            }
        }
    }
}

fn take_roles(rules: &mut HashMap<Arc<str>, Arc<[Rule]>>, followed: &Followed, kind: &Kind, news: News) {
    match news {
        News::All(entries) => {
            rules.retain(|key, _| !key.starts_with(kind.storage_prefix.as_ref()));
            for entry in entries {
                rules.insert(entry.key.clone(), Rule::all_of(&followed.decode(&entry)).into());
            }
        }
        News::Changes(changes) => {
            for change in changes {
                if change.kind == ChangeKind::Deleted {
                    rules.remove(&change.entry.key);
                } else {
                    let role = followed.decode(&change.entry);
                    rules.insert(change.entry.key.clone(), Rule::all_of(&role).into());
                }
            }
        }
    }
}
