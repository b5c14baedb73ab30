//! What expressions in CEL may ask about rights: the variable `authorizer` of admission.

use podwire_cel::Value as Cel;
use podwire_cel::authorizer::{Authorizer, Decision, Object, Question, Resource};

use serde_json::Value;

use super::Request;
use crate::authz::{self, Attributes};
use crate::context::Context;
use crate::identity::{AUTHENTICATED, Identity};
use crate::request::{self, ResourceInfo};

/// The rights of who makes a request.
pub(super) struct Rights<'a> {
    context: &'a Context,
    identity: &'a Identity,
    /// What the request is about.
    resource: Resource,
}

impl<'a> Rights<'a> {
    /// Of who makes this request.
    pub(super) fn of(request: &Request<'a>, object: &Value) -> Rights<'a> {
        let resource = Resource {
            group: request.kind.group.to_string(),
            resource: request.kind.resource.to_string(),
            subresource: request.part.map(podwire_api::Part::as_str).unwrap_or_default().to_owned(),
            namespace: request.placed(object).to_owned(),
            name: request.named(object).to_owned(),
            ..Resource::default()
        };
        Rights { context: request.context, identity: request.identity, resource }
    }

    /// The variable `authorizer.requestResource`.
    pub(super) fn request_resource(&self) -> Cel<'_> {
        Cel::request_resource(self, self.resource.clone())
    }
}

impl Authorizer for Rights<'_> {
    fn authorize(&self, question: &Question) -> Decision {
        let account;
        let identity = match &question.service_account {
            None => self.identity,
            Some((namespace, name)) => {
                let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
                let mut made = Identity::new(format!("system:serviceaccount:{namespace}:{name}"), &groups);
                // Upstream puts it into no group but those of accounts.
                made.groups.retain(|group| group != AUTHENTICATED);
                account = made;
                &account
            }
        };
        let decision = match &question.object {
            Object::Path(path) => {
                let asked = Attributes { verb: &question.verb, path, resource: None };
                authz::decide(self.context, identity, &asked)
            }
            Object::Resource(resource) => {
                let info = ResourceInfo {
                    group: resource.group.clone(),
                    version: "*".to_owned(),
                    resource: resource.resource.clone(),
                    subresource: resource.subresource.clone(),
                    namespace: resource.namespace.clone(),
                    name: resource.name.clone(),
                    required: request::required(&resource.field_selector),
                    ..ResourceInfo::default()
                };
                authz::decide(self.context, identity, &Attributes::resource(&question.verb, &info))
            }
        };
        let reason = decision.reason(identity);
        Decision { allowed: decision.is_allowed(), reason, error: None }
    }
}
