//! Who owns whom, and what follows from it. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

/// Where an object is: a resource by its place in the list of all, a namespace (empty for none), a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) resource: usize,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// One entry of an object's `ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    /// The owner, deleted in the foreground, may not go before this dependent.
    pub(super) blocks: bool,
}

/// What a terminating object waits for that only the collector can bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// Its dependents are to be deleted first.
    Foreground,
    /// Its dependents are to be let go.
    Orphan,
}

impl Waits {
    /// The finalizer that says so.
    pub(super) fn finalizer(self) -> &'static str {
        match self {
            Waits::Foreground => "foregroundDeletion",
            Waits::Orphan => "orphan",
        }
    }
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) place: Place,
    pub(super) owners: Vec<Owner>,
    pub(super) deleting: bool,
    pub(super) waits: Option<Waits>,
}

impl Object {
    fn waits_for(&self, what: Waits) -> bool {
        self.deleting && self.waits == Some(what)
    }
}

/// How an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there.
    Solid,
    /// It is there, and waits for its dependents to go.
    Waiting,
    /// It is gone, or another object has its name.
    Absent,
}

/// How the dependents of an object are treated when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// What is to be done about an object with owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Nobody wants it any more.
    Delete(Policy),
    /// It stays for some of its owners; the others are struck out.
    StrikeOut(Vec<String>),
}

/// Decides about an object by how its owners stand, in the order of its references.
pub(super) fn decide(
    owners: &[Owner],
    standings: &[Standing],
    waits: Option<Waits>,
    has_dependents: bool,
) -> Step {
    if owners.is_empty() {
        return Step::Nothing;
    }
    let of = |wanted: Standing| standings.iter().filter(move |standing| **standing == wanted).count();
    if of(Standing::Solid) > 0 {
        let gone = owners.iter().zip(standings).filter(|(_, standing)| **standing != Standing::Solid);
        let gone: Vec<String> = gone.map(|(owner, _)| owner.uid.clone()).collect();
        return if gone.is_empty() { Step::Nothing } else { Step::StrikeOut(gone) };
    }
    // An owner that waits for this one waits for what this one owns as well.
    if of(Standing::Waiting) > 0 && has_dependents {
        return Step::Delete(Policy::Foreground);
    }
    Step::Delete(match waits {
        Some(Waits::Orphan) => Policy::Orphan,
        Some(Waits::Foreground) => Policy::Foreground,
        None => Policy::Background,
    })
}

/// All objects by uid, and who depends on whom.
#[derive(Debug, Default)]
pub(super) struct Graph {
    objects: HashMap<String, Object>,
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Graph {
    /// What is known of an object.
    pub(super) fn get(&self, uid: &str) -> Option<&Object> {
        self.objects.get(uid)
    }

    /// Takes an object in; whom to look at because of it.
    pub(super) fn seen(&mut self, uid: &str, object: Object) -> HashSet<String> {
        let before = self.objects.insert(uid.to_owned(), object);
        let object = &self.objects[uid];
        for owner in before.iter().flat_map(|before| &before.owners) {
            if !object.owners.iter().any(|now| now.uid == owner.uid) {
                forget(&mut self.dependents, &owner.uid, uid);
            }
        }
        for owner in &object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
        }
        let mut look = HashSet::new();
        let all = before.iter().flat_map(|before| &before.owners).chain(&object.owners);
        let waiting = |owner: &&Owner| self.standing(&owner.uid) == Some(Standing::Waiting);
        look.extend(all.filter(waiting).map(|owner| owner.uid.clone()));
        if object.owners.iter().any(|owner| self.standing(&owner.uid) != Some(Standing::Solid)) {
            look.insert(uid.to_owned());
        }
        if object.deleting && object.waits.is_some() {
            look.insert(uid.to_owned());
            look.extend(self.dependents_of(uid).map(str::to_owned));
        }
        look
    }

    /// Takes an object out; whom to look at because of it.
    pub(super) fn gone(&mut self, uid: &str) -> HashSet<String> {
        let mut look: HashSet<String> = self.dependents_of(uid).map(str::to_owned).collect();
        for owner in self.objects.remove(uid).into_iter().flat_map(|object| object.owners) {
            forget(&mut self.dependents, &owner.uid, uid);
            look.insert(owner.uid);
        }
        look
    }

    /// The uids of objects of one resource.
    pub(super) fn of_resource(&self, resource: usize) -> impl Iterator<Item = &str> {
        let of = move |(_, object): &(&String, &Object)| object.place.resource == resource;
        self.objects.iter().filter(of).map(|(uid, _)| uid.as_str())
    }

    /// The uids of objects of whose owners some were never seen.
    pub(super) fn with_unseen_owners(&self) -> impl Iterator<Item = &str> {
        let unseen = |owner: &Owner| !self.objects.contains_key(&owner.uid);
        let of = move |(_, object): &(&String, &Object)| object.owners.iter().any(unseen);
        self.objects.iter().filter(of).map(|(uid, _)| uid.as_str())
    }

    /// Who names this object as an owner.
    pub(super) fn dependents_of(&self, uid: &str) -> impl Iterator<Item = &str> {
        self.dependents.get(uid).into_iter().flatten().map(String::as_str)
    }

    /// Whether a dependent keeps this object from going.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        let blocks = |dependent: &str| {
            let object = self.objects.get(dependent);
            object.is_some_and(|object| object.owners.iter().any(|owner| owner.uid == uid && owner.blocks))
        };
        self.dependents_of(uid).any(blocks)
    }

    /// How an object stands; `None` for one that was never seen, which the server has to be asked about.
    pub(super) fn standing(&self, uid: &str) -> Option<Standing> {
        let object = self.objects.get(uid)?;
        Some(if object.waits_for(Waits::Foreground) { Standing::Waiting } else { Standing::Solid })
    }
}

fn forget(dependents: &mut HashMap<String, BTreeSet<String>>, owner: &str, uid: &str) {
    if let Some(all) = dependents.get_mut(owner) {
        all.remove(uid);
        if all.is_empty() {
            dependents.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, owners: &[&str]) -> Object {
        let owner = |uid: &&str| Owner {
            uid: (*uid).to_owned(),
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: (*uid).to_owned(),
            blocks: true,
        };
        Object {
            place: Place { resource: 0, namespace: "default".into(), name: name.into() },
            owners: owners.iter().map(owner).collect(),
            deleting: false,
            waits: None,
        }
    }

    fn waiting(name: &str, owners: &[&str]) -> Object {
        Object { deleting: true, waits: Some(Waits::Foreground), ..object(name, owners) }
    }

    fn set(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_owner_that_stays_keeps_an_object_and_the_others_are_struck_out() {
        use Standing::{Absent, Solid, Waiting};
        let owners = object("x", &["a", "b"]).owners;
        let decided =
            |standings: &[Standing], has_dependents| decide(&owners, standings, None, has_dependents);
        assert_eq!(decided(&[Solid, Solid], false), Step::Nothing);
        assert_eq!(decided(&[Solid, Absent], false), Step::StrikeOut(vec!["b".into()]));
        assert_eq!(decided(&[Waiting, Solid], true), Step::StrikeOut(vec!["a".into()]));
        assert_eq!(decided(&[Absent, Absent], true), Step::Delete(Policy::Background));
        assert_eq!(decided(&[Absent, Waiting], true), Step::Delete(Policy::Foreground));
        assert_eq!(decided(&[Absent, Waiting], false), Step::Delete(Policy::Background));
        assert_eq!(
            decide(&owners, &[Absent, Absent], Some(Waits::Orphan), true),
            Step::Delete(Policy::Orphan)
        );
        assert_eq!(decide(&[], &[], None, true), Step::Nothing, "what has no owner is nobody's to collect");
    }

    #[test]
    fn those_are_looked_at_for_whom_something_changed() {
        let mut graph = Graph::default();
        assert_eq!(
            graph.seen("child", object("child", &["parent"])),
            set(&["child"]),
            "its owner is unknown"
        );
        assert_eq!(graph.seen("parent", object("parent", &[])), set(&[]));
        assert_eq!(graph.seen("child", object("child", &["parent"])), set(&[]), "all is well");
        assert_eq!(graph.seen("parent", waiting("parent", &[])), set(&["parent", "child"]));
        assert!(graph.is_blocked("parent"));
        assert_eq!(graph.gone("child"), set(&["parent"]), "its owner may go now");
        assert!(!graph.is_blocked("parent"));
        assert_eq!(graph.seen("child", object("child", &["parent"])), set(&["child", "parent"]));
        assert_eq!(graph.gone("parent"), set(&["child"]), "nobody owns it any more");
        assert_eq!(graph.seen("child", object("child", &[])), set(&[]), "it was let go");
        assert_eq!(graph.dependents_of("parent").count(), 0);
    }
}
