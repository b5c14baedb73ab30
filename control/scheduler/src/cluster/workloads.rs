//! What pods belong to: services and controllers, by which they are spread when they say nothing themselves, and
//! disruption budgets, by which they are spared. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use podwire_api::selector::{LabelSelector, lookup};
use serde_json::Value;

use crate::node::Labels;
use crate::pod::PodInfo;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// Services, controllers and budgets.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    /// Selectors of services by namespace and name.
    services: HashMap<String, BTreeMap<String, Labels>>,
    /// Selectors of controllers by kind, namespace and name.
    controllers: HashMap<(String, Key), LabelSelector>,
    pub(crate) budgets: Budgets,
}

fn key(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn labels(object: &Value) -> Labels {
    let pairs = object.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn of_labels(labels: &Labels) -> LabelSelector {
    let pairs = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    LabelSelector::from_parts(pairs, []).unwrap_or_else(|_| LabelSelector::nothing())
}

impl Workloads {
    /// Takes in a service.
    pub(crate) fn set_service(&mut self, object: &Value) {
        let (namespace, name) = key(object);
        let of_namespace = self.services.entry(namespace).or_default();
        match &object["spec"]["selector"] {
            // A service without selector selects nothing.
            Value::Object(_) => of_namespace.insert(name, labels(&object["spec"]["selector"])),
            _ => of_namespace.remove(&name),
        };
    }

    /// Forgets a service.
    pub(crate) fn remove_service(&mut self, (namespace, name): &Key) {
        if let Some(of_namespace) = self.services.get_mut(namespace) {
            of_namespace.remove(name);
        }
    }

    /// Takes in a replication controller, replica set or stateful set.
    pub(crate) fn set_controller(&mut self, kind: &str, object: &Value) {
        let selector = &object["spec"]["selector"];
        let selector = if kind == "ReplicationController" {
            of_labels(&labels(selector))
        } else {
            LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing())
        };
        self.controllers.insert((kind.to_owned(), key(object)), selector);
    }

    /// Forgets a controller.
    pub(crate) fn remove_controller(&mut self, kind: &str, name: &Key) {
        self.controllers.remove(&(kind.to_owned(), name.clone()));
    }

    /// Which pods belong together with this one, by its services and its controller; `None` if none do.
    pub(crate) fn selector(&self, pod: &PodInfo) -> Option<LabelSelector> {
        let mut merged = Labels::new();
        let services = self.services.get(&pod.namespace).into_iter().flat_map(BTreeMap::values);
        for of_service in
            services.filter(|one| one.iter().all(|(key, value)| pod.labels.get(key) == Some(value)))
        {
            merged.extend(of_service.clone());
        }
        let mut selector = of_labels(&merged);
        let own = pod.controller.as_ref().and_then(|(version, kind, name)| {
            let group = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
            let key = (kind.clone(), (pod.namespace.clone(), name.clone()));
            (version == group).then(|| self.controllers.get(&key)).flatten()
        });
        if let Some(own) = own {
            selector.require_all(own);
        }
        (!selector.is_empty()).then_some(selector)
    }
}

/// How many of some pods may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) allowed: i64,
    selector: LabelSelector,
    /// Pods whose disruption is already accounted for.
    disrupted: BTreeSet<String>,
}

/// The disruption budgets by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    all: HashMap<String, BTreeMap<String, Budget>>,
}

impl Budgets {
    /// Takes in a budget.
    pub(crate) fn set(&mut self, object: &Value) {
        let (namespace, name) = key(object);
        let status = &object["status"];
        let selector = LabelSelector::from_object(&object["spec"]["selector"]);
        let budget = Budget {
            allowed: status["disruptionsAllowed"].as_i64().unwrap_or_default(),
            selector: selector.unwrap_or_else(|_| LabelSelector::nothing()),
            disrupted: status["disruptedPods"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect(),
        };
        self.all.entry(namespace).or_default().insert(name, budget);
    }

    /// Forgets a budget.
    pub(crate) fn remove(&mut self, (namespace, name): &Key) {
        if let Some(of_namespace) = self.all.get_mut(namespace) {
            of_namespace.remove(name);
            if of_namespace.is_empty() {
                self.all.remove(namespace);
            }
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The budgets that count the removal of a pod.
    pub(crate) fn of<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = &'a Budget> {
        let of_namespace = if pod.labels.is_empty() { None } else { self.all.get(&pod.namespace) };
        of_namespace.into_iter().flat_map(BTreeMap::values).filter(|budget| {
            !budget.selector.is_empty()
                && budget.selector.matches_with(lookup(&pod.labels))
                && !budget.disrupted.contains(&*pod.name)
        })
    }
}
