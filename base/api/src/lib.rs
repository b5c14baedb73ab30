//! Kubernetes objects as data: the kinds table, defaulting, validation, selectors, arithmetic, patches. Pure.

pub mod apply;
pub mod condition;
pub mod convert;
pub mod defaults;
pub mod definition;
pub mod discovery;
pub mod fields;
pub mod go_types;
pub mod image;
pub mod json_path;
mod kinds;
pub mod openapi;
pub mod owner;
pub mod patch;
pub mod path;
pub mod pod_resources;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod strategy;
pub mod strict;
pub mod structural;
pub mod syntax;
pub mod sysctl;
pub mod table;
pub mod time;
pub mod toleration;
#[cfg(feature = "typed")]
mod typed;
pub mod validate;
pub mod warnings;

pub use kinds::{
    Kind, Part, Registry, StrategyRef, Subresource, Text, Verb, Verbs, builtin, by_gvk, by_resource, kinds,
    split_api_version,
};
