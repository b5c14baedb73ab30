//! What can be asked for at a resource: verbs and subresources, as values instead of words.

use std::fmt;

/// A verb of the API on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// POST.
    Create,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// PATCH.
    Patch,
    /// PUT.
    Update,
    /// GET of a stream of changes.
    Watch,
}

impl Verb {
    /// All verbs, in discovery's order.
    pub const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    /// The word in discovery and in rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }

    /// The verb of a word.
    pub fn parse(word: &str) -> Option<Verb> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == word)
    }

    /// Whether objects are only read.
    pub const fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Verbs(u8);

impl Verbs {
    /// The set of these verbs.
    pub const fn of(verbs: &[Verb]) -> Verbs {
        let (mut bits, mut at) = (0, 0);
        while at < verbs.len() {
            bits |= verbs[at].bit();
            at += 1;
        }
        Verbs(bits)
    }

    /// Whether the verb is one of them.
    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & verb.bit() != 0
    }

    /// The verbs in discovery's order.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.contains(*verb))
    }

    /// Their words in discovery's order.
    pub fn words(self) -> Vec<&'static str> {
        self.iter().map(Verb::as_str).collect()
    }
}

/// A part of an object that has an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Verdicts on a certificate request.
    Approval,
    /// The streams of a running container.
    Attach,
    /// The node of a pod.
    Binding,
    /// Containers for looking into a running pod.
    EphemeralContainers,
    /// A deletion that asks disruption budgets first.
    Eviction,
    /// A command in a running container.
    Exec,
    /// The finalizers of a namespace's specification.
    Finalize,
    /// What a container wrote.
    Log,
    /// Connections into a pod.
    PortForward,
    /// Requests passed on.
    Proxy,
    /// The resources of a pod.
    Resize,
    /// The number of replicas.
    Scale,
    /// The status.
    Status,
    /// A token of an account.
    Token,
}

impl Part {
    const ALL: [Part; 14] = [
        Part::Approval,
        Part::Attach,
        Part::Binding,
        Part::EphemeralContainers,
        Part::Eviction,
        Part::Exec,
        Part::Finalize,
        Part::Log,
        Part::PortForward,
        Part::Proxy,
        Part::Resize,
        Part::Scale,
        Part::Status,
        Part::Token,
    ];

    /// The last element of the path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Part::Approval => "approval",
            Part::Attach => "attach",
            Part::Binding => "binding",
            Part::EphemeralContainers => "ephemeralcontainers",
            Part::Eviction => "eviction",
            Part::Exec => "exec",
            Part::Finalize => "finalize",
            Part::Log => "log",
            Part::PortForward => "portforward",
            Part::Proxy => "proxy",
            Part::Resize => "resize",
            Part::Scale => "scale",
            Part::Status => "status",
            Part::Token => "token",
        }
    }

    /// The part that the last element of a path names.
    pub fn parse(word: &str) -> Option<Part> {
        Self::ALL.into_iter().find(|part| part.as_str() == word)
    }

    /// Whether the body is the object itself with only this part of it open to change.
    pub const fn is_of_object(self) -> bool {
        matches!(
            self,
            Part::Approval | Part::EphemeralContainers | Part::Finalize | Part::Resize | Part::Status
        )
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_values_are_the_same_thing() {
        for verb in Verb::ALL {
            assert_eq!(Verb::parse(verb.as_str()), Some(verb));
        }
        for part in Part::ALL {
            assert_eq!(Part::parse(part.as_str()), Some(part));
        }
        assert_eq!((Verb::parse("impersonate"), Part::parse("")), (None, None));
    }

    #[test]
    fn a_set_has_what_was_put_in_and_is_listed_in_discoverys_order() {
        let set = Verbs::of(&[Verb::Watch, Verb::Create, Verb::Get]);
        assert_eq!(set.words(), ["create", "get", "watch"]);
        assert!(set.contains(Verb::Get) && !set.contains(Verb::List));
    }
}
