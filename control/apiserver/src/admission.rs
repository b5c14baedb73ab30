//! Admission: what the server itself changes and refuses, in upstream's two phases.
//!
//! The plugins of the mutating phase run before an object is prepared and validated, those of the validating phase
//! after it, both in the order of their lists. Each is a file of its own, named as upstream names the plugin. Changes
//! that the server makes by itself (a binding, a mark) pass no admission.

mod certificate_requester;
mod default_toleration_seconds;
mod escalation;
mod expression;
mod limit_ranger;
mod matching;
mod namespace_lifecycle;
mod node_restriction;
mod pod_topology_labels;
pub(crate) mod policy;
mod priority;
pub(crate) mod resource_quota;
mod rights;
mod runtime_class;
pub(crate) mod service;
mod service_account;
mod taint_nodes_by_condition;
pub(crate) mod webhook;

use futures::future::BoxFuture;
use podwire_api::{Kind, Part, builtin};
use podwire_store::Revision;
use resource_quota::Charge;
use serde_json::Value;

use crate::context::Context;
use crate::handler::Call;
use crate::handler::options::{DeleteOptions, WriteOptions};
use crate::identity::Identity;
use crate::status::{ApiError, Result};

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It, or what a subresource takes, is created.
    Create,
    /// It is replaced or patched.
    Update,
    /// It is deleted.
    Delete,
    /// A stream to it is opened.
    Connect,
}

/// What is to be admitted.
pub(crate) struct Request<'a> {
    pub(crate) context: &'a Context,
    pub(crate) identity: &'a Identity,
    pub(crate) kind: &'a Kind,
    /// The part of the object that is written, if not the object itself.
    pub(crate) part: Option<Part>,
    pub(crate) operation: Operation,
    pub(crate) namespace: &'a str,
    /// The name in the URL; empty for a creation by POST.
    pub(crate) name: &'a str,
    /// What is stored now, of an object that is changed or deleted.
    pub(crate) old: Option<&'a Value>,
    /// Everything is done but the writing.
    pub(crate) dry_run: bool,
    /// How it is to be done.
    pub(crate) options: Options<'a>,
    /// Takes what the client is warned of.
    pub(crate) told: Option<&'a Told>,
}

/// What plugins tell the client, whether it is served or not.
pub(crate) type Told = std::sync::Mutex<Vec<String>>;

/// The options of a request.
#[derive(Clone, Copy)]
pub(crate) enum Options<'a> {
    /// It has none.
    None,
    /// The server does it by itself: nobody else is asked.
    Server,
    /// Of a write.
    Write(&'a WriteOptions),
    /// Of a deletion.
    Delete(&'a DeleteOptions),
}

impl Options<'_> {
    /// As webhooks see them.
    fn to_value(self, operation: Operation) -> Value {
        let kind = if operation == Operation::Update { "UpdateOptions" } else { "CreateOptions" };
        match self {
            Options::None | Options::Server => Value::Null,
            Options::Write(options) => options.to_value(kind),
            Options::Delete(options) => options.to_value(),
        }
    }
}

impl<'a> Request<'a> {
    /// What a call does to the object that it names.
    pub(crate) fn of(call: &'a Call, operation: Operation) -> Self {
        Self {
            context: &call.context,
            identity: &call.identity,
            kind: &call.kind,
            part: call.part,
            operation,
            namespace: call.namespace(),
            name: call.name(),
            old: None,
            dry_run: false,
            options: Options::None,
            told: Some(&call.told),
        }
    }

    /// Whether an object is created or changed.
    fn writes(&self) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update)
    }

    /// Refuses an object, in the words all plugins use: 403.
    fn forbidden(&self, object: &Value, why: &str) -> ApiError {
        let given = |key: &str| object["metadata"][key].as_str().filter(|text| !text.is_empty());
        let name = Some(self.name).filter(|name| !name.is_empty());
        let name = name.or_else(|| given("name")).or_else(|| given("generateName"));
        ApiError::forbidden(&self.kind.group, &self.kind.resource, name.unwrap_or("Unknown"), why)
    }

    /// The name of the object: that in the URL, or its own.
    fn named<'o>(&'o self, object: &'o Value) -> &'o str {
        match self.name {
            "" => object["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        }
    }

    /// The namespace of the request; a namespace is in itself.
    fn placed<'o>(&'o self, object: &'o Value) -> &'o str {
        let namespaces = builtin::namespaces();
        match self.kind.is(&namespaces.group, &namespaces.kind) {
            true => self.named(object),
            false => self.namespace,
        }
    }

    /// Whether it is about an object of this kind, and not about a part of one.
    fn is_whole(&self, group: &str, kind: &str) -> bool {
        self.part.is_none() && self.kind.is(group, kind)
    }
}

/// A plugin that may change what it admits.
trait Mutating: Sync {
    /// Whether the plugin has anything to say about this.
    fn handles(&self, request: &Request<'_>) -> bool;

    /// Completes or refuses the object; of a deletion and of a stream there is none.
    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>>;
}

/// A plugin that sees what will be stored.
trait Validating: Sync {
    /// Whether the plugin has anything to say about this.
    fn handles(&self, request: &Request<'_>) -> bool;

    /// Refuses the object.
    fn validate<'a>(&'a self, request: &'a Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<()>>;
}

/// The mutating phase, in upstream's order; webhooks come after it.
const MUTATING: &[&dyn Mutating] = &[
    &namespace_lifecycle::NamespaceLifecycle,
    &limit_ranger::LimitRanger,
    &service_account::ServiceAccount,
    &node_restriction::NodeRestriction,
    &taint_nodes_by_condition::TaintNodesByCondition,
    &priority::Priority,
    &default_toleration_seconds::DefaultTolerationSeconds,
    &runtime_class::RuntimeClass,
    &pod_topology_labels::PodTopologyLabels,
];

/// What upstream does when it stores an object: after all that changes it.
const STORING: &[&dyn Mutating] =
    &[&certificate_requester::CertificateRequester, &escalation::Escalation, &policy::ParamPermission];

/// The validating phase, in upstream's order.
const VALIDATING: &[&dyn Validating] =
    &[&limit_ranger::LimitRanger, &priority::Priority, &runtime_class::RuntimeClass];

/// Waits until the plugins know of a change to what they act by: who has been told of a rule finds it in force.
pub(crate) async fn learn(context: &Context, kind: &Kind, revision: Revision) {
    if !kind.strategy.facts().rules_admission {
        return;
    }
    if let Err(error) = context.caches.wait_for(revision).await {
        tracing::warn!(why = error.message, "a rule is stored and not in force yet");
    }
}

/// The mutating phase.
///
/// If a webhook changed something, all plugins see the object once more, and those webhooks that want to.
pub(crate) async fn mutate(request: &Request<'_>, object: &mut Value) -> Result<()> {
    let mut rounds = webhook::Rounds::default();
    run(MUTATING, request, object).await?;
    webhook::mutate(request, object, &mut rounds).await?;
    if rounds.changed() {
        run(MUTATING, request, object).await?;
        webhook::mutate(request, object, &mut rounds).await?;
    }
    run(STORING, request, object).await
}

async fn run(plugins: &[&dyn Mutating], request: &Request<'_>, object: &mut Value) -> Result<()> {
    for plugin in plugins.iter().filter(|plugin| plugin.handles(request)) {
        plugin.admit(request, object).await?;
    }
    Ok(())
}

/// The validating phase. Quotas come last, and what they are charged is settled by whether the object is stored.
pub(crate) async fn validate<'a>(
    context: &'a Context,
    request: &Request<'_>,
    object: &Value,
) -> Result<Charge<'a>> {
    check(request, object).await?;
    resource_quota::charge(context, request, object).await
}

async fn check(request: &Request<'_>, object: &Value) -> Result<()> {
    for plugin in VALIDATING.iter().filter(|plugin| plugin.handles(request)) {
        plugin.validate(request, object).await?;
    }
    policy::validate(request, object).await?;
    webhook::validate(request, object).await
}

/// Both phases, for what is not stored itself: a deletion, a stream, the body of a subresource.
pub(crate) async fn admit(request: &Request<'_>, object: &mut Value) -> Result<()> {
    mutate(request, object).await?;
    check(request, object).await
}
