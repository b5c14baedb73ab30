//! Counts of pods by domain, kept up to date as pods and nodes come and go. Pure.
//!
//! A *tally* answers "how many pods that match this are in each domain of that key"; it is made when a pod first asks
//! for it and then costs a few additions for each pod that is placed or leaves. An *owned term* is a term of pods that
//! are placed, with the number of its owners in each domain. So no decision has to look at all pods.
//!
//! Pods with the same namespace and labels are one *class*: whether a tally counts them is worked out once.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use podwire_api::selector::{LabelSelector, Operator, lookup};

use super::topology::{EVERYWHERE, Field, FieldId, KeyId, Keys, NODE, Scope, bump, domain};
use crate::node::{Labels, NodeId, NodeInfo};
use crate::pod::{PodInfo, PodTerm, Spread, Template};

/// Counts of all tallies together, before those that nobody asks for go.
const MOST_CELLS: usize = 4 << 20;
/// Sets of nodes and keys, before everything is counted anew.
const MOST_FIELDS: usize = 512;

/// The namespaces' labels.
pub(crate) type Namespaces = HashMap<String, Labels>;

/// Which pods a tally counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// Those that all of the terms mean.
    Meant(Vec<Arc<PodTerm>>),
    /// Those of a namespace that a spread constraint counts: none that is being deleted.
    Spread {
        /// Where they are.
        namespace: String,
        /// What their labels are.
        selector: LabelSelector,
    },
}

impl Who {
    fn counts(&self, class: &Class, namespaces: &Namespaces) -> bool {
        let (namespace, labels) = (&class.of.namespace, &class.of.labels);
        match self {
            Self::Meant(terms) => {
                let of_namespace = namespaces.get(namespace);
                !terms.is_empty() && terms.iter().all(|term| term.selects(namespace, of_namespace, labels))
            }
            Self::Spread { namespace: wanted, selector } => {
                !class.deleting
                    && wanted == namespace
                    && !selector.is_empty()
                    && selector.matches_with(lookup(labels))
            }
        }
    }

    fn depends_on_namespaces(&self) -> bool {
        match self {
            Self::Meant(terms) => terms.iter().any(|term| term.namespace_selector.is_some()),
            Self::Spread { .. } => false,
        }
    }
}

/// What a tally counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Count {
    pub(crate) who: Who,
    pub(crate) key: KeyId,
    pub(crate) field: FieldId,
}

/// Matching pods in each domain.
#[derive(Debug)]
pub(crate) struct Tally {
    what: Count,
    pub(crate) counts: Vec<i32>,
    pub(crate) total: i64,
    classes: HashSet<u32>,
    used: u64,
}

impl Tally {
    /// How many matching pods are in the node's domain; `None` if it is in none.
    pub(crate) fn at(&self, node: &NodeInfo) -> Option<i64> {
        let domain = domain(node, self.what.key)?;
        Some(i64::from(self.counts.get(domain).copied().unwrap_or_default()))
    }

    fn add(&mut self, node: &NodeInfo, by: i32) {
        if let Some(domain) = domain(node, self.what.key) {
            bump(&mut self.counts, domain, by);
            self.total += i64::from(by);
        }
    }
}

/// What a term of a placed pod means to a pod that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Bond {
    /// It must not come near.
    Far,
    /// It is needed near.
    Near,
    /// It is liked near.
    NearPreferred,
    /// It is disliked near.
    FarPreferred,
}

/// A term of placed pods.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) bond: Bond,
    pub(crate) term: Arc<PodTerm>,
    pub(crate) key: KeyId,
    /// Its owners in each domain.
    pub(crate) counts: Vec<i32>,
    owners: i32,
    /// Its owners in any domain.
    pub(crate) placed: i32,
    signposts: Vec<u64>,
}

impl Owned {
    /// How many of its owners are in the node's domain.
    pub(crate) fn at(&self, node: &NodeInfo) -> i64 {
        let found = domain(node, self.key).and_then(|domain| self.counts.get(domain));
        i64::from(found.copied().unwrap_or_default())
    }
}

/// Pods with the same namespace and labels.
#[derive(Debug)]
struct Class {
    of: Arc<Template>,
    deleting: bool,
    pods: u32,
    nodes: HashMap<NodeId, u32>,
    tallies: Vec<u32>,
}

/// What makes two pods members of one class.
#[derive(Debug, Clone)]
struct ClassKey(Arc<Template>, bool);

impl PartialEq for ClassKey {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
            && (Arc::ptr_eq(&self.0, &other.0)
                || self.0.namespace == other.0.namespace && self.0.labels == other.0.labels)
    }
}

impl Eq for ClassKey {}

impl Hash for ClassKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.namespace, &self.0.labels, self.1).hash(state);
    }
}

/// Values with numbers that are given again.
#[derive(Debug)]
struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = Some(value);
            return id;
        }
        self.all.push(Some(value));
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }

    fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.all.get_mut(id as usize)?.take();
        self.free.push(id);
        value
    }

    fn get(&self, id: u32) -> Option<&T> {
        self.all.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.all.get_mut(id as usize)?.as_mut()
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.all.iter().zip(0..).filter_map(|(one, id)| Some((id, one.as_ref()?)))
    }
}

/// A place where something is looked for: a namespace (empty: any) and a label (empty: any).
fn signpost(namespace: &str, key: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (namespace, key, value).hash(&mut hasher);
    hasher.finish()
}

/// One of the requirements that name their values, if there is one: what does not have it cannot match.
fn telling(selector: &LabelSelector) -> Option<(&str, &[String])> {
    let named = selector.requirements().iter();
    named
        .filter(|one| matches!(one.operator, Operator::Equals | Operator::In))
        .min_by_key(|one| one.values.len())
        .map(|one| (one.key.as_str(), one.values.as_slice()))
}

/// The one or more places where a term is found by the pods that it may mean.
fn signposts(term: &PodTerm) -> Vec<u64> {
    let Some(selector) = &term.selector else { return Vec::new() };
    let mut namespaces: Vec<&str> = term.namespaces.iter().map(String::as_str).collect();
    if term.namespace_selector.is_some() {
        namespaces = vec![""];
    }
    let labels: Vec<(&str, &str)> = match telling(selector) {
        Some((key, values)) => values.iter().map(|value| (key, value.as_str())).collect(),
        None => vec![("", "")],
    };
    let all = namespaces
        .iter()
        .flat_map(|namespace| labels.iter().map(move |(key, value)| signpost(namespace, key, value)));
    let mut all: Vec<u64> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The counts.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) keys: Keys,
    fields: Vec<Field>,
    field_ids: HashMap<Scope, FieldId>,
    classes: Slots<Class>,
    class_ids: HashMap<ClassKey, u32>,
    classes_at: HashMap<u64, HashSet<u32>>,
    tallies: Slots<Tally>,
    tally_ids: HashMap<Count, u32>,
    owned: Slots<Owned>,
    owned_ids: HashMap<(Bond, Arc<PodTerm>), u32>,
    owned_at: HashMap<u64, Vec<u32>>,
    turn: u64,
    cells: usize,
    /// Keys, values and fields at which everything is counted anew.
    limit: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            fields: vec![Field::new(None, &[], &[])],
            field_ids: HashMap::new(),
            classes: Slots::default(),
            class_ids: HashMap::new(),
            classes_at: HashMap::new(),
            tallies: Slots::default(),
            tally_ids: HashMap::new(),
            owned: Slots::default(),
            owned_ids: HashMap::new(),
            owned_at: HashMap::new(),
            turn: 0,
            cells: 0,
            limit: 0,
        }
    }
}

impl Index {
    /// Takes a node in with all its pods.
    pub(crate) fn join(&mut self, node: &mut NodeInfo, namespaces: &Namespaces) {
        self.keys.locate(node);
        self.fields.iter_mut().for_each(|field| field.join(node));
        for pod in node.pods.clone() {
            self.place(node, &pod, namespaces);
        }
    }

    /// Lets a node go with all its pods; what it was like must not have changed since it joined.
    pub(crate) fn leave(&mut self, node: &NodeInfo) {
        node.pods.iter().for_each(|pod| self.unplace(node, pod));
        self.fields.iter_mut().for_each(|field| field.leave(node));
    }

    /// Counts a pod on a node that has joined.
    pub(crate) fn place(&mut self, node: &NodeInfo, pod: &PodInfo, namespaces: &Namespaces) {
        let id = self.class_of(pod, namespaces);
        let Some(class) = self.classes.get_mut(id) else { return };
        class.pods += 1;
        *class.nodes.entry(node.id).or_default() += 1;
        for tally in &class.tallies {
            if let Some(tally) = self.tallies.get_mut(*tally)
                && self.fields[tally.what.field.0 as usize].has(node)
            {
                tally.add(node, 1);
            }
        }
        self.own(node, pod);
    }

    /// Counts a pod no longer.
    pub(crate) fn unplace(&mut self, node: &NodeInfo, pod: &PodInfo) {
        let Some(id) = self.class_ids.get(&ClassKey(pod.template.clone(), pod.deleting)).copied() else {
            return;
        };
        let Some(class) = self.classes.get_mut(id) else { return };
        class.pods = class.pods.saturating_sub(1);
        if let Some(count) = class.nodes.get_mut(&node.id) {
            *count -= 1;
            if *count == 0 {
                class.nodes.remove(&node.id);
            }
        }
        for tally in &class.tallies {
            if let Some(tally) = self.tallies.get_mut(*tally)
                && self.fields[tally.what.field.0 as usize].has(node)
            {
                tally.add(node, -1);
            }
        }
        if class.pods == 0 {
            self.drop_class(id);
        }
        self.disown(node, pod);
    }

    fn class_of(&mut self, pod: &PodInfo, namespaces: &Namespaces) -> u32 {
        let key = ClassKey(pod.template.clone(), pod.deleting);
        if let Some(id) = self.class_ids.get(&key) {
            return *id;
        }
        let mut class = Class {
            of: pod.template.clone(),
            deleting: pod.deleting,
            pods: 0,
            nodes: HashMap::new(),
            tallies: Vec::new(),
        };
        let counting = self.tallies.iter().filter(|(_, tally)| tally.what.who.counts(&class, namespaces));
        class.tallies = counting.map(|(id, _)| id).collect();
        let tallies = class.tallies.clone();
        let posts: Vec<u64> = class_signposts(&class.of).collect();
        let id = self.classes.insert(class);
        for tally in tallies {
            if let Some(tally) = self.tallies.get_mut(tally) {
                tally.classes.insert(id);
            }
        }
        for post in posts {
            self.classes_at.entry(post).or_default().insert(id);
        }
        self.class_ids.insert(key, id);
        id
    }

    fn drop_class(&mut self, id: u32) {
        let Some(class) = self.classes.remove(id) else { return };
        for tally in class.tallies {
            if let Some(tally) = self.tallies.get_mut(tally) {
                tally.classes.remove(&id);
            }
        }
        for post in class_signposts(&class.of) {
            if let Some(there) = self.classes_at.get_mut(&post) {
                there.remove(&id);
                if there.is_empty() {
                    self.classes_at.remove(&post);
                }
            }
        }
        self.class_ids.remove(&ClassKey(class.of, class.deleting));
    }

    fn own(&mut self, node: &NodeInfo, pod: &PodInfo) {
        for (bond, term) in bonds(pod) {
            let id = match self.owned_ids.get(&(bond, term.clone())) {
                Some(id) => *id,
                None => self.new_owned(bond, term),
            };
            if let Some(owned) = self.owned.get_mut(id) {
                owned.owners += 1;
                if let Some(domain) = domain(node, owned.key) {
                    bump(&mut owned.counts, domain, 1);
                    owned.placed += 1;
                }
            }
        }
    }

    fn new_owned(&mut self, bond: Bond, term: &Arc<PodTerm>) -> u32 {
        let key = self.keys.get(&term.topology_key).unwrap_or(KeyId(u32::MAX - 1));
        let signposts = signposts(term);
        let owned = Owned {
            bond,
            term: term.clone(),
            key,
            counts: Vec::new(),
            owners: 0,
            placed: 0,
            signposts: signposts.clone(),
        };
        let id = self.owned.insert(owned);
        signposts.iter().for_each(|post| self.owned_at.entry(*post).or_default().push(id));
        self.owned_ids.insert((bond, term.clone()), id);
        id
    }

    fn disown(&mut self, node: &NodeInfo, pod: &PodInfo) {
        for (bond, term) in bonds(pod) {
            let Some(id) = self.owned_ids.get(&(bond, term.clone())).copied() else { continue };
            let Some(owned) = self.owned.get_mut(id) else { continue };
            owned.owners -= 1;
            if let Some(domain) = domain(node, owned.key) {
                bump(&mut owned.counts, domain, -1);
                owned.placed -= 1;
            }
            if owned.owners > 0 {
                continue;
            }
            if let Some(owned) = self.owned.remove(id) {
                for post in owned.signposts {
                    if let Some(there) = self.owned_at.get_mut(&post) {
                        there.retain(|other| *other != id);
                        if there.is_empty() {
                            self.owned_at.remove(&post);
                        }
                    }
                }
            }
            self.owned_ids.remove(&(bond, term.clone()));
        }
    }

    /// The terms of placed pods that mean `pod`, of the wanted sorts.
    pub(crate) fn meaning<'a>(
        &'a self,
        pod: &'a Template,
        namespaces: &'a Namespaces,
        wanted: impl Fn(Bond) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Owned> {
        let of_namespace = namespaces.get(&pod.namespace);
        let anywhere = pod.labels.iter().map(|(key, value)| signpost("", key, value));
        class_signposts(pod)
            .chain(anywhere)
            .chain([signpost("", "", "")])
            .filter_map(|post| self.owned_at.get(&post))
            .flatten()
            .filter_map(|id| self.owned.get(*id))
            .filter(move |owned| wanted(owned.bond) && owned.term.matches(pod, of_namespace))
    }

    /// Gives the topology keys of a pod's terms and constraints numbers, before it is placed or decided on.
    pub(crate) fn number_keys(&mut self, pod: &Template, spread: &[Arc<Spread>], nodes: &mut [NodeInfo]) {
        let of_terms = bonds(pod).map(|(_, term)| term.topology_key.as_str());
        for name in of_terms.chain(spread.iter().map(|one| one.topology_key.as_str())) {
            if let (id, true) = self.keys.number(name) {
                self.keys.locate_all(name, id, nodes);
            }
        }
    }

    /// The set of nodes that a constraint looks at.
    pub(crate) fn field(&self, scope: &Scope) -> FieldId {
        self.field_ids.get(scope).copied().unwrap_or(EVERYWHERE)
    }

    /// The same, made if it is new.
    pub(crate) fn make_field(&mut self, scope: Scope, keys: &[KeyId], nodes: &[NodeInfo]) -> FieldId {
        if let Some(id) = self.field_ids.get(&scope) {
            return *id;
        }
        let id = FieldId(u32::try_from(self.fields.len()).unwrap_or(0));
        let field = Field::new(Some(scope.clone()), keys, nodes);
        self.fields.push(field);
        self.field_ids.insert(scope, id);
        id
    }

    /// How many nodes of a set are in each domain of a key.
    pub(crate) fn domains(&self, field: FieldId, key: KeyId) -> &[i32] {
        self.fields[field.0 as usize].domains(key)
    }

    /// Whether a node is in the set.
    pub(crate) fn covers(&self, field: FieldId, node: &NodeInfo) -> bool {
        self.fields[field.0 as usize].has(node)
    }

    /// A tally that was asked for in this turn.
    pub(crate) fn tally(&self, what: &Count) -> Option<&Tally> {
        self.tallies.get(*self.tally_ids.get(what)?)
    }

    /// Sees to it that a tally is there.
    pub(crate) fn make_tally(&mut self, what: Count, nodes: &[NodeInfo], namespaces: &Namespaces) {
        if let Some(tally) = self.tally_ids.get(&what).and_then(|id| self.tallies.get_mut(*id)) {
            tally.used = self.turn;
            return;
        }
        let found: Vec<u32> = self.candidates(&what.who);
        let mut tally =
            Tally { what, counts: Vec::new(), total: 0, classes: HashSet::new(), used: self.turn };
        let field = &self.fields[tally.what.field.0 as usize];
        for id in found {
            let Some(class) = self.classes.get(id) else { continue };
            if !tally.what.who.counts(class, namespaces) {
                continue;
            }
            tally.classes.insert(id);
            for (node, count) in &class.nodes {
                let node = &nodes[node.at()];
                if field.has(node) {
                    tally.add(node, i32::try_from(*count).unwrap_or(i32::MAX));
                }
            }
        }
        self.cells += tally.counts.len();
        let what = tally.what.clone();
        let id = self.tallies.insert(tally);
        let classes = self.tallies.get(id).map(|tally| tally.classes.clone()).unwrap_or_default();
        for class in classes {
            if let Some(class) = self.classes.get_mut(class) {
                class.tallies.push(id);
            }
        }
        self.tally_ids.insert(what, id);
    }

    /// The classes that may be counted.
    fn candidates(&self, who: &Who) -> Vec<u32> {
        let at = |namespace: &str, selector: &LabelSelector| -> Vec<u32> {
            let posts: Vec<u64> = match telling(selector) {
                Some((key, values)) => values.iter().map(|value| signpost(namespace, key, value)).collect(),
                None => vec![signpost(namespace, "", "")],
            };
            posts.iter().filter_map(|post| self.classes_at.get(post)).flatten().copied().collect()
        };
        match who {
            Who::Spread { namespace, selector } => at(namespace, selector),
            Who::Meant(terms) => match terms.first().map(Arc::as_ref) {
                Some(PodTerm { selector: Some(selector), namespace_selector: None, namespaces, .. }) => {
                    namespaces.iter().flat_map(|namespace| at(namespace, selector)).collect()
                }
                Some(PodTerm { selector: Some(_), .. }) => self.classes.iter().map(|(id, _)| id).collect(),
                _ => Vec::new(),
            },
        }
    }

    /// Begins a decision; forgets tallies that nobody asked for lately when there are too many.
    pub(crate) fn begin(&mut self) {
        self.turn += 1;
        if self.cells < MOST_CELLS && self.tally_ids.len() < MOST_CELLS / 1024 {
            return;
        }
        let mut by_use: Vec<(u64, u32)> = self.tallies.iter().map(|(id, tally)| (tally.used, id)).collect();
        by_use.sort_unstable();
        let half = by_use.len().div_ceil(2);
        by_use[..half].iter().for_each(|(_, id)| self.drop_tally(*id));
        self.cells = self.tallies.iter().map(|(_, tally)| tally.counts.len()).sum();
    }

    fn drop_tally(&mut self, id: u32) {
        let Some(tally) = self.tallies.remove(id) else { return };
        for class in &tally.classes {
            if let Some(class) = self.classes.get_mut(*class) {
                class.tallies.retain(|other| *other != id);
            }
        }
        self.tally_ids.remove(&tally.what);
    }

    /// A namespace's labels changed: what depended on them is counted anew when it is asked for.
    pub(crate) fn namespaces_changed(&mut self) {
        let stale: Vec<u32> = self
            .tallies
            .iter()
            .filter(|(_, tally)| tally.what.who.depends_on_namespaces())
            .map(|(id, _)| id)
            .collect();
        stale.into_iter().for_each(|id| self.drop_tally(id));
    }

    /// Whether so much was asked for in the past that it is better to begin anew.
    pub(crate) fn is_bloated(&self, nodes: usize) -> bool {
        let size = self.fields.len() + self.keys.len();
        size > self.limit.max(MOST_FIELDS)
            || self.keys.size > self.limit.max(MOST_FIELDS) + 4 * nodes * (self.keys.len() + 1)
    }

    /// Notes that what is there now is needed.
    pub(crate) fn settle(&mut self) {
        self.limit = 2 * (self.fields.len() + self.keys.len()).max(self.keys.size);
    }

    /// Counts kept, for those who watch memory.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        (self.class_ids.len(), self.tally_ids.len(), self.owned_ids.len())
    }
}

/// All terms of a pod.
pub(crate) fn bonds(pod: &Template) -> impl Iterator<Item = (Bond, &Arc<PodTerm>)> {
    let far = pod.far.iter().map(|term| (Bond::Far, term));
    let near = pod.near.iter().map(|term| (Bond::Near, term));
    let liked = pod.near_preferred.iter().map(|term| (Bond::NearPreferred, term));
    far.chain(near).chain(liked).chain(pod.far_preferred.iter().map(|term| (Bond::FarPreferred, term)))
}

/// Where a pod's class is found, and terms of its own namespace that may mean it.
fn class_signposts(pod: &Template) -> impl Iterator<Item = u64> + '_ {
    let namespace = pod.namespace.as_str();
    pod.labels
        .iter()
        .map(move |(key, value)| signpost(namespace, key, value))
        .chain([signpost(namespace, "", "")])
}

impl Index {
    /// What an affinity to others asks for: pods that all its terms mean, by the key of one of them.
    pub(crate) fn near(&self, pod: &Template, term: &PodTerm) -> Count {
        let key = self.keys.get(&term.topology_key).unwrap_or(NODE);
        Count { who: Who::Meant(pod.near.clone()), key, field: EVERYWHERE }
    }

    /// What one term asks for.
    pub(crate) fn meant(&self, term: &Arc<PodTerm>) -> Count {
        let key = self.keys.get(&term.topology_key).unwrap_or(NODE);
        Count { who: Who::Meant(vec![term.clone()]), key, field: EVERYWHERE }
    }
}
