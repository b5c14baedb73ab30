//! The objects that are read into types, each by one function.

use std::borrow::Cow;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, Node, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::{ApiResource, DynamicResourceScope, Resource};
use serde::Deserialize;

/// An object that can be read.
///
/// Not for every type that serde can read: its decoder is compiled here, once, and not in each crate that asks for one.
pub trait Object: Resource + Sized + Send + 'static {
    /// Reads an object from its JSON.
    fn read(text: &str) -> serde_json::Result<Self>;
}

/// An object of any kind, of which only the metadata is wanted; the API server is asked for no more than that.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Meta {
    /// The metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
}

impl Resource for Meta {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn metadata_api() -> bool {
        true
    }
}

macro_rules! objects {
    ($($kind:ident),* $(,)?) => {
        $(impl Object for $kind {
            fn read(text: &str) -> serde_json::Result<Self> {
                serde_json::from_str(text)
            }
        })*
    };
}

objects![
    ClusterRole,
    ConfigMap,
    Lease,
    Meta,
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
    ServiceAccount,
];
