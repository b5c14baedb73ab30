//! PodNetworks that choose pods by their labels, as the watch told of them.
//!
//! A pod that names one by its annotation has that one and no other. Two that choose the same pod contradict each other: the
//! pod waits, and both say so.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::spec;
use crate::plan::Labels;
use crate::policy::{ObjectKey, Selector};

struct Held {
    /// `None` chooses nobody.
    selector: Option<Selector>,
    object: Arc<Value>,
}

/// What was heard, shared by those who hear and those who ask.
#[derive(Clone, Default)]
pub(crate) struct Networks(Arc<Mutex<HashMap<ObjectKey, Held>>>);

/// Who chooses a pod.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice {
    /// Nobody.
    None,
    /// One, with the object.
    One(String, Arc<Value>),
    /// Several, who contradict each other.
    Several(Vec<String>),
}

impl Networks {
    /// One came or changed; one whose selector is not understood chooses nobody, which its condition says.
    pub(crate) fn put(&self, key: ObjectKey, object: Value) {
        let selector = spec::selector(&object).ok().flatten();
        self.with(|held| held.insert(key, Held { selector, object: Arc::new(object) }));
    }

    /// One went.
    pub(crate) fn gone(&self, key: &ObjectKey) {
        self.with(|held| held.remove(key));
    }

    /// Of a list that is complete, of one namespace or of all: whatever is not in it is gone.
    pub(crate) fn keep(&self, namespace: Option<&str>, listed: &HashSet<ObjectKey>) {
        let elsewhere = |key: &ObjectKey| namespace.is_some_and(|namespace| key.namespace != namespace);
        self.with(|held| held.retain(|key, _| elsewhere(key) || listed.contains(key)));
    }

    /// Who chooses a pod with such labels.
    pub(crate) fn choose(&self, namespace: &str, labels: &Labels) -> Choice {
        self.with(|held| {
            let chooses = |(key, one): &(&ObjectKey, &Held)| {
                key.namespace == namespace
                    && one.selector.as_ref().is_some_and(|selector| selector.matches(labels))
            };
            let mut all: Vec<_> = held.iter().filter(chooses).collect();
            all.sort_by_key(|(key, _)| *key);
            match all.as_slice() {
                [] => Choice::None,
                [(key, one)] => Choice::One(key.name.clone(), one.object.clone()),
                several => Choice::Several(several.iter().map(|(key, _)| key.name.clone()).collect()),
            }
        })
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<ObjectKey, Held>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_chooses_two_contradict_and_what_is_gone_does_neither() {
        let networks = Networks::default();
        let key = |name: &str| ObjectKey { namespace: "shop".into(), name: name.into() };
        let labels = Labels::from([("app".into(), "web".into())]);
        let selects = |app: &str| json!({"spec": {"podSelector": {"matchLabels": {"app": app}}}});
        networks.put(key("named-only"), json!({"spec": {}}));
        networks.put(
            key("broken"),
            json!({"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}),
        );
        assert_eq!(networks.choose("shop", &labels), Choice::None);
        networks.put(key("web"), selects("web"));
        networks.put(key("db"), selects("db"));
        assert_eq!(networks.choose("shop", &labels), Choice::One("web".into(), Arc::new(selects("web"))));
        assert_eq!(networks.choose("other", &labels), Choice::None);
        networks.put(key("all"), json!({"spec": {"podSelector": {}}}));
        assert_eq!(networks.choose("shop", &labels), Choice::Several(vec!["all".into(), "web".into()]));
        networks.keep(Some("other"), &HashSet::new());
        networks.keep(Some("shop"), &[key("web")].into());
        assert_eq!(networks.choose("shop", &labels), Choice::One("web".into(), Arc::new(selects("web"))));
        networks.gone(&key("web"));
        assert_eq!(networks.choose("shop", &labels), Choice::None);
    }
}
