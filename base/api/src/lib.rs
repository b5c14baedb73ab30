//! Kubernetes objects as data: the kinds table, defaulting, validation, selectors, patches. Pure.

mod kinds;
pub mod schema;

pub use kinds::{Kind, Subresource, by_gvk, by_resource, groups, kinds, of_group_version, split_api_version};
