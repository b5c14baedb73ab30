//! The arithmetic on k8s-openapi's types, for the participants that hold objects in them.
//!
//! Nothing is decided here: each type is read into the one that the rules are written for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, NodeCondition, NodeSelectorRequirement, NodeSelectorTerm as TypedTerm, Pod, PodCondition,
    PodSpec, PreferredSchedulingTerm, ResourceRequirements, Taint as TypedTaint,
    Toleration as TypedToleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector as TypedSelector, OwnerReference as TypedReference,
};

use crate::condition::{self, Condition};
use crate::owner::OwnerReference;
use crate::pod_resources::{InitContainer, PodResources, Reached, Requirements, Resize};
use crate::quantity::Quantity;
use crate::resources::Resources;
use crate::selector::{
    LabelSelector, NodePreferences, NodeSelectorTerm, RequiredNodeAffinity, SelectorError,
};
use crate::toleration::{Taint, Toleration};

/// One that cannot be read, which no server sends, is zero.
impl From<&QuantityText> for Quantity {
    fn from(text: &QuantityText) -> Quantity {
        Quantity::parse(&text.0).unwrap_or(Quantity::ZERO)
    }
}

impl From<Quantity> for QuantityText {
    fn from(quantity: Quantity) -> QuantityText {
        QuantityText(quantity.to_string())
    }
}

impl From<Option<&BTreeMap<String, QuantityText>>> for Resources {
    fn from(list: Option<&BTreeMap<String, QuantityText>>) -> Resources {
        let list = list.into_iter().flatten();
        Resources::from_texts(list.map(|(name, amount)| (name.as_str(), amount.0.as_str())))
    }
}

impl From<&ResourceRequirements> for Requirements {
    fn from(resources: &ResourceRequirements) -> Requirements {
        Requirements {
            requests: resources.requests.as_ref().into(),
            limits: resources.limits.as_ref().into(),
        }
    }
}

impl From<&Container> for Requirements {
    fn from(container: &Container) -> Requirements {
        container.resources.as_ref().map(Requirements::from).unwrap_or_default()
    }
}

impl From<&PodSpec> for PodResources {
    fn from(spec: &PodSpec) -> PodResources {
        let init = |one: &Container| InitContainer {
            sidecar: one.restart_policy.as_deref() == Some("Always"),
            resources: one.into(),
        };
        PodResources {
            containers: spec.containers.iter().map(Requirements::from).collect(),
            init: spec.init_containers.iter().flatten().map(init).collect(),
            pod: spec.resources.as_ref().map(Requirements::from),
            overhead: spec.overhead.as_ref().into(),
        }
    }
}

/// With what its status says of a resize.
impl From<&Pod> for PodResources {
    fn from(pod: &Pod) -> PodResources {
        let mut out = pod.spec.as_ref().map(PodResources::from).unwrap_or_default();
        let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return out };
        let reached = |actual: Option<&ResourceRequirements>, allocated: Option<&_>| {
            actual.map(|actual| Reached {
                actual: actual.requests.as_ref().into(),
                allocated: allocated.into(),
            })
        };
        let statuses = || {
            let init = status.init_container_statuses.iter().flatten();
            status.container_statuses.iter().flatten().chain(init)
        };
        let of = |container: &Container| {
            let found = statuses().find(|one| one.name == container.name)?;
            reached(found.resources.as_ref(), found.allocated_resources.as_ref())
        };
        let pending = condition::find(status.conditions.iter().flatten(), "PodResizePending");
        out.reach(
            Resize::pending_for(pending.and_then(|one| one.reason.as_deref())),
            spec.containers.iter().map(of),
            spec.init_containers.iter().flatten().map(of),
            reached(status.resources.as_ref(), status.allocated_resources.as_ref()),
        );
        out
    }
}

impl TryFrom<&TypedSelector> for LabelSelector {
    type Error = SelectorError;

    fn try_from(selector: &TypedSelector) -> Result<LabelSelector, SelectorError> {
        let labels = selector.match_labels.iter().flatten();
        let expressions = selector.match_expressions.iter().flatten();
        LabelSelector::from_parts(
            labels.map(|(key, value)| (key.as_str(), value.as_str())),
            expressions
                .map(|one| (one.key.as_str(), one.operator.as_str(), one.values.clone().unwrap_or_default())),
        )
    }
}

impl From<&TypedTerm> for NodeSelectorTerm {
    fn from(term: &TypedTerm) -> NodeSelectorTerm {
        let raw = |one| {
            let one: &NodeSelectorRequirement = one;
            (one.key.as_str(), one.operator.as_str(), one.values.clone().unwrap_or_default())
        };
        let labels = term.match_expressions.iter().flatten().map(raw);
        NodeSelectorTerm::new(labels, term.match_fields.iter().flatten().map(raw))
    }
}

impl From<&PodSpec> for RequiredNodeAffinity {
    fn from(spec: &PodSpec) -> RequiredNodeAffinity {
        let nodes = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
        let labels = spec.node_selector.iter().flatten();
        RequiredNodeAffinity {
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            terms: required
                .map(|required| required.node_selector_terms.iter().map(NodeSelectorTerm::from).collect()),
        }
    }
}

impl From<&PodSpec> for NodePreferences {
    fn from(spec: &PodSpec) -> NodePreferences {
        let read = |one: &PreferredSchedulingTerm| (i64::from(one.weight), (&one.preference).into());
        let nodes = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred =
            nodes.and_then(|nodes| nodes.preferred_during_scheduling_ignored_during_execution.as_ref());
        NodePreferences(preferred.into_iter().flatten().map(read).collect())
    }
}

impl<'a> From<&'a TypedTaint> for Taint<'a> {
    fn from(taint: &'a TypedTaint) -> Taint<'a> {
        Taint { key: &taint.key, value: taint.value.as_deref().unwrap_or_default(), effect: &taint.effect }
    }
}

impl<'a> From<&'a TypedToleration> for Toleration<'a> {
    fn from(toleration: &'a TypedToleration) -> Toleration<'a> {
        Toleration {
            key: toleration.key.as_deref().unwrap_or_default(),
            operator: toleration.operator.as_deref().unwrap_or_default(),
            value: toleration.value.as_deref().unwrap_or_default(),
            effect: toleration.effect.as_deref().unwrap_or_default(),
        }
    }
}

impl Condition for PodCondition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

impl Condition for NodeCondition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

impl OwnerReference for TypedReference {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn is_controller(&self) -> bool {
        self.controller == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;
    use crate::owner;

    /// Each rule gives the same answer to an object and to the type it is read into.
    #[test]
    fn types_are_read_like_json() {
        let object = json!({
            "metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u1"},
                {"apiVersion": "v1", "kind": "Node", "name": "b", "uid": "u2", "controller": true},
            ]},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
                "initContainers": [
                    {"name": "i", "resources": {"requests": {"cpu": "3"}}},
                    {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
                ],
                "resources": {"limits": {"memory": "2Gi"}},
                "overhead": {"cpu": "10m"},
                "nodeSelector": {"disk": "ssd"},
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["4"]}],
                         "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 7, "preference": {"matchExpressions": [{"key": "n", "operator": "Exists"}]}}],
                }},
                "tolerations": [{"key": "k", "operator": "Gt", "value": "1", "effect": "NoSchedule"}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "4"}}],
            },
        });
        let pod: Pod = serde_json::from_value(object.clone()).unwrap();
        let (json, typed) = (&object["spec"], pod.spec.as_ref().unwrap());
        assert_eq!(PodResources::from(json), PodResources::from(typed));
        assert_eq!(PodResources::in_effect(&object), PodResources::from(&pod));
        assert_eq!(PodResources::from(&pod).requests().milli_value("cpu"), 5010);
        assert_eq!(RequiredNodeAffinity::from(json), RequiredNodeAffinity::from(typed));
        let preferred = &json["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(NodePreferences::from(preferred), NodePreferences::from(typed));
        let toleration = &typed.tolerations.as_ref().unwrap()[0];
        assert_eq!(Toleration::from(&json["tolerations"][0]), Toleration::from(toleration));
        let owners = pod.metadata.owner_references.as_ref().unwrap();
        assert!(owner::is_controlled_by(owners, "u2") && owner::is_controlled_by(owner::of(&object), "u2"));
        assert!(condition::is_true(pod.status.unwrap().conditions.as_ref().unwrap(), "Ready"));
        let node: Node = serde_json::from_value(
            json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        )
        .unwrap();
        let taint = &node.spec.as_ref().unwrap().taints.as_ref().unwrap()[0];
        assert_eq!(Taint::from(taint), Taint { key: "k", value: "v", effect: "NoExecute" });
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        assert!(!condition::is_true(conditions, "Ready"));
        let selector =
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]});
        let read: TypedSelector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(LabelSelector::from_object(&selector), LabelSelector::try_from(&read));
    }
}
