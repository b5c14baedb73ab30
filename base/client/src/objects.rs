//! The objects that are read into types, each by one function.

use std::borrow::Cow;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, Node, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::{ApiResource, DynamicResourceScope, Resource};
use serde::Deserialize;
use serde_json::Value;

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

/// An object of any kind with all that is in it.
#[derive(Clone, Debug, Default)]
pub struct DynamicObject {
    /// The metadata, read.
    pub metadata: ObjectMeta,
    /// The whole object, metadata and all.
    pub data: Value,
}

impl Object for DynamicObject {
    fn read(text: &str) -> serde_json::Result<Self> {
        Ok(DynamicObject { metadata: Meta::read(text)?.metadata, data: serde_json::from_str(text)? })
    }
}

/// What is known of a resource at run time only is said by the value that stands for it.
macro_rules! of_any_kind {
    ($name:ident, $only_metadata:literal) => {
        impl Resource for $name {
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
                $only_metadata
            }
        }
    };
}

of_any_kind!(Meta, true);
of_any_kind!(DynamicObject, false);

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
    NetworkPolicy,
    Node,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
    ServiceAccount,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_any_kind_keeps_what_nobody_here_knows() {
        let text = r#"{"kind":"Gadget","metadata":{"name":"g","labels":{"a":"b"}},"spec":{"unknown":[1]}}"#;
        let object = DynamicObject::read(text).unwrap();
        assert_eq!(object.metadata.name.as_deref(), Some("g"));
        assert_eq!(object.data, serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(Meta::read(text).unwrap().metadata, object.metadata);
        assert!(Meta::metadata_api() && !DynamicObject::metadata_api());
    }
}
