//! A request for a certificate says who made it, and what the client says about that counts for nothing.
//!
//! No plugin upstream, where the storage of these requests does it.

use futures::future::BoxFuture;
use serde_json::Value;

use super::{Mutating, Operation, Request};
use crate::identity::Identity;
use crate::status::Result;

/// The plugin.
pub(super) struct CertificateRequester;

impl Mutating for CertificateRequester {
    fn handles(&self, request: &Request<'_>) -> bool {
        let kind = request.kind;
        request.operation == Operation::Create
            && request.part.is_none()
            && kind.is("certificates.k8s.io", "CertificateSigningRequest")
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        sign_with_requester(request.identity, object);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn sign_with_requester(identity: &Identity, object: &mut Value) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    spec.insert("username".into(), identity.user.as_str().into());
    spec.insert("groups".into(), identity.groups.clone().into());
    spec.remove("uid");
    spec.remove("extra");
    if !identity.uid.is_empty() {
        spec.insert("uid".into(), identity.uid.as_str().into());
    }
    if !identity.extra.is_empty() {
        spec.insert("extra".into(), serde_json::json!(identity.extra));
    }
}
