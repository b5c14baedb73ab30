//! `ValidatingAdmissionPolicy`: requests are admitted by expressions in CEL.
//!
//! Policies with a binding are compiled once when they change; a request is compared with the rules of each, and what
//! matches is evaluated on the object itself. Which of several refusals is told is decided by the names of policies and
//! bindings. Audit annotations and the action `Audit` have no place to go, as there is no audit log.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>

mod binding;
mod compiled;
mod complaints;
mod evaluate;
mod params;
mod permission;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwap;
use binding::{Binding, Target};
use compiled::Policy;
use evaluate::{Decision, Round};
use futures::future::BoxFuture;
use http::StatusCode;
use podwire_api::{Kind, builtin};
use serde_json::{Value, json};

use super::matching::{self, Matched};
use super::webhook::review;
use super::{Options, Request};
use crate::cache::Scope;
use crate::context::Context;
use crate::status::{ApiError, Result};

pub(crate) use complaints::complaints;
pub(super) use permission::ParamPermission;

/// The group of the kinds that say what is admitted.
const OWN_GROUP: &str = "admissionregistration.k8s.io";
/// Groups whose resources are questions, which no policy may stand in the way of.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];
/// The most that all policies may spend on one request; each evaluation has upstream's limit beside that.
const BUDGET: u64 = 100_000_000;
/// The most warnings that are kept; fewer fit into the answer.
const MOST_WARNINGS: usize = 256;
/// After spending so much others get a turn.
const TURN: u64 = 1_000_000;

/// The policies in force, read again when one or a binding has changed.
pub(crate) struct Policies(ArcSwap<Known>);

impl Default for Policies {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(Known { ends: (u64::MAX, u64::MAX), ..Known::default() }))
    }
}

#[derive(Default)]
struct Known {
    /// Where the caches of policies and of bindings ended.
    ends: (u64, u64),
    in_force: Vec<(Arc<Policy>, Vec<Arc<Binding>>)>,
    /// By their keys, with the revision that was read.
    policies: HashMap<String, (u64, Arc<Policy>)>,
    bindings: HashMap<String, (u64, Arc<Binding>)>,
}

impl Policies {
    fn now(&self, context: &Context) -> Arc<Known> {
        let (policies, bindings) = (builtin::admission_policies(), builtin::policy_bindings());
        let ends = (context.caches.of(policies).end(), context.caches.of(bindings).end());
        let known = self.0.load_full();
        if known.ends == ends {
            return known;
        }
        let fresh = Arc::new(known.renewed(context, ends));
        self.0.store(fresh.clone());
        fresh
    }
}

impl Known {
    /// What is stored now; what has not changed is not read again.
    fn renewed(&self, context: &Context, ends: (u64, u64)) -> Known {
        let stored = |kind: &Kind| {
            let scope = Scope { prefix: kind.storage_prefix.to_string(), node: None, key: None };
            context.caches.of(kind).snapshot(&scope).entries
        };
        let mut fresh = Known { ends, ..Known::default() };
        let mut by_policy: BTreeMap<String, Vec<Arc<Binding>>> = BTreeMap::new();
        let kind = builtin::policy_bindings();
        for entry in stored(kind) {
            let binding = match self.bindings.get(&*entry.key) {
                Some((revision, binding)) if *revision == entry.revision => binding.clone(),
                _ => Arc::new(Binding::read(&entry.decode(kind))),
            };
            fresh.bindings.insert(entry.key.to_string(), (entry.revision, binding.clone()));
            by_policy.entry(binding.policy.clone()).or_default().push(binding);
        }
        let kind = builtin::admission_policies();
        for entry in stored(kind) {
            let name = entry.key.strip_prefix(&*kind.storage_prefix).unwrap_or_default();
            let Some(bindings) = by_policy.remove(name) else { continue };
            let policy = match self.policies.get(&*entry.key) {
                Some((revision, policy)) if *revision == entry.revision => policy.clone(),
                _ => Arc::new(Policy::compile(&entry.decode(kind))),
            };
            fresh.policies.insert(entry.key.to_string(), (entry.revision, policy.clone()));
            fresh.in_force.push((policy, bindings));
        }
        fresh
    }
}

fn is_exempt(request: &Request<'_>) -> bool {
    let kind = request.kind;
    let own = kind.group == OWN_GROUP && kind.resource.contains("admissionpolic");
    own || REVIEWS.contains(&&*kind.group) || matches!(request.options, Options::Server)
}

/// Refuses what a policy in force refuses.
pub(super) fn validate<'a>(request: &'a Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if is_exempt(request) {
            return Ok(());
        }
        let known = request.context.policies.now(request.context);
        let mut verdict = Verdict { request, object, denied: None, left: BUDGET };
        for (policy, bindings) in &known.in_force {
            verdict.hear(policy, bindings).await?;
        }
        match verdict.denied {
            None => Ok(()),
            Some(denial) => Err(denial.error(request, object)),
        }
    })
}

/// The first refusal.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: &'static str,
}

impl Denial {
    fn error(self, request: &Request<'_>, object: &Value) -> ApiError {
        let Denial { policy, binding, message, reason } = self;
        let with = binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
        let words = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
        let mut error = request.forbidden(object, &words).cause("", &words, "");
        error.reason = reason;
        error.code = match reason {
            "Unauthorized" => StatusCode::UNAUTHORIZED,
            "Forbidden" => StatusCode::FORBIDDEN,
            "RequestEntityTooLarge" => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        error
    }
}

/// What policies have said about a request so far.
struct Verdict<'a> {
    request: &'a Request<'a>,
    object: &'a Value,
    denied: Option<Denial>,
    left: u64,
}

impl Verdict<'_> {
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, message: String, reason: &'static str) {
        let denial = || Denial {
            policy: policy.name.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            message,
            reason,
        };
        self.denied.get_or_insert_with(denial);
    }

    /// What cannot be decided is refused or passed over, as the policy wants it.
    fn fail(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if !policy.fails_open {
            let what = if binding.is_some() { "binding" } else { "policy" };
            self.deny(policy, binding, format!("failed to configure {what}: {why}"), "Invalid");
        }
    }

    /// Whether a target is about this, and as what.
    async fn matches(&self, target: &Target) -> Result<Option<Matched>> {
        let (request, object) = (self.request, self.object);
        if !matching::matches_object(&target.objects, object, request.old)
            || matching::matched(request, object, &target.excluded, target.equivalent).is_some()
        {
            return Ok(None);
        }
        let matched = match target.rules.as_slice() {
            [] => Some(Matched::of(request, None)),
            rules => matching::matched(request, object, rules, target.equivalent),
        };
        match matched {
            Some(matched) if matching::matches_namespace(request, &target.namespaces, object).await? => {
                Ok(Some(matched))
            }
            _ => Ok(None),
        }
    }

    async fn hear(&mut self, policy: &Policy, bindings: &[Arc<Binding>]) -> Result<()> {
        let Some(matched) = self.matches(&policy.target).await? else { return Ok(()) };
        let kind = match policy.param_kind(self.request.context) {
            Ok(kind) => kind,
            Err(why) => {
                self.fail(policy, None, &why);
                return Ok(());
            }
        };
        let (request, object) = (self.request, self.object);
        let new = matched.shown(request, object).await?;
        let old = matched.shown(request, request.old.unwrap_or(&Value::Null)).await?;
        let asked = review::request(request, &matched, &new);
        let conditions_asked = conditions_asked(&matched, &asked);
        let mut namespace = None;
        for binding in bindings {
            if let Some(target) = &binding.target
                && self.matches(target).await?.is_none()
            {
                continue;
            }
            let params = match params::collect(request, object, kind.as_ref(), binding).await? {
                Ok(params) => params,
                Err(why) => {
                    self.fail(policy, Some(binding), &why);
                    continue;
                }
            };
            let many = params.len() > 1;
            if namespace.is_none() {
                namespace = Some(self.namespace(policy).await?);
            }
            let round = Round {
                policy,
                request,
                object: &new,
                old: &old,
                asked: &asked,
                conditions_asked: &conditions_asked,
                namespace: namespace.as_ref().unwrap_or(&Value::Null),
            };
            for param in params {
                // To read it is work too, as much as an expression pays for looking at all of a text.
                self.left = self.left.saturating_sub(param.len() as u64 / 10);
                let before = self.left;
                let decisions = round.evaluate(&param.read(), &mut self.left);
                self.carry_out(policy, binding, decisions);
                if many || before - self.left > TURN {
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, policy: &Policy, binding: &Binding, decisions: Vec<Decision>) {
        for decision in decisions {
            if binding.denies || decision.always {
                self.deny(policy, Some(binding), decision.message.clone(), decision.reason);
            }
            if let (true, false, Some(told)) = (binding.warns, decision.always, self.request.told) {
                let words = format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                    policy.name, binding.name, decision.message
                );
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.len() < MOST_WARNINGS {
                    told.push(words);
                }
            }
        }
    }

    /// The namespace as expressions see it; null if none of them looks at it, or there is none.
    async fn namespace(&self, policy: &Policy) -> Result<Value> {
        let request = self.request;
        if !policy.sees_namespace || request.namespace.is_empty() || request.kind.is("", "Namespace") {
            return Ok(Value::Null);
        }
        let mut stored = request.context.object(builtin::namespaces(), "", request.namespace).await?;
        let mut metadata = stored["metadata"].take();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata
                .retain(|key, _| !matches!(key.as_str(), "managedFields" | "ownerReferences" | "selfLink"));
        }
        Ok(json!({"metadata": metadata, "spec": stored["spec"], "status": stored["status"]}))
    }
}

/// The request as match conditions see it: under the resource that was asked for.
fn conditions_asked<'v>(matched: &Matched, asked: &'v Value) -> Cow<'v, Value> {
    if matched.other.is_none() {
        return Cow::Borrowed(asked);
    }
    let mut asked = asked.clone();
    asked["resource"] = asked["requestResource"].clone();
    Cow::Owned(asked)
}
