//! The arithmetic on k8s-openapi's types, for the participants that hold objects in them.
//!
//! Nothing is decided here: each type is read into the one that the rules are written for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use crate::pod_resources::{InitContainer, PodResources, Requirements};
use crate::quantity::Quantity;
use crate::resources::Resources;

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
