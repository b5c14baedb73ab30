//! The vocabulary of the CNI specification: errors, versions, results, requests, and how Go reads JSON.
//!
//! See <https://github.com/containernetworking/cni/blob/main/SPEC.md>.

pub mod error;
pub mod json;
pub mod request;
pub mod result;
pub mod version;

pub use error::CniError;
pub use json::Object;
pub use request::{Command, Request};
pub use result::{CniResult, Dns, Interface, IpConfig, RouteConfig};
pub use version::Version;
