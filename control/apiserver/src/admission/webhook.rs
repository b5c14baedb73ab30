//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`: others are asked about what is written, deleted and opened.
//!
//! Mutating webhooks are called one after the other, in the order of their configurations' names, and once more if they
//! want to and something changed after them; validating ones all at once. Audit annotations of an answer have no place
//! to go, as there is no audit log. <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>

pub(super) mod conditions;
mod hook;
pub(super) mod review;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwap;
use futures::future::{BoxFuture, join_all};
use hook::Hook;
use podwire_api::{Kind, Part, builtin, defaults, patch, strict};
use review::Answer;
use serde_json::{Value, json};

use super::matching::{self, Matched};
use super::rights::Rights;
use super::{Options, Request};
use crate::cache::Scope;
use crate::context::Context;
use crate::handler::{create, scale};
use crate::status::{ApiError, Result};

pub(crate) use conditions::complaints;

/// The group whose kinds no webhook is asked about: a broken one must be removable.
const OWN_GROUP: &str = "admissionregistration.k8s.io";

/// The webhooks of all configurations, read again when one has changed.
#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: Known,
    validating: Known,
}

struct Known(ArcSwap<(u64, Vec<Arc<Hook>>)>);

impl Default for Known {
    fn default() -> Self {
        Self(ArcSwap::from_pointee((u64::MAX, Vec::new())))
    }
}

impl Known {
    fn now(&self, context: &Context, kind: &Arc<Kind>) -> Arc<(u64, Vec<Arc<Hook>>)> {
        let cache = context.caches.of(kind);
        let end = cache.end();
        let known = self.0.load_full();
        if known.0 == end {
            return known;
        }
        let scope = Scope { prefix: kind.storage_prefix.to_string(), node: None, key: None };
        let configurations = cache.snapshot(&scope).entries;
        let hooks = configurations.iter().flat_map(|entry| Hook::of_configuration(&entry.decode(kind)));
        let fresh = Arc::new((end, hooks.map(Arc::new).collect()));
        self.0.store(fresh.clone());
        fresh
    }
}

/// Which mutating webhooks are called again.
#[derive(Default)]
pub(super) struct Rounds {
    /// Those that were called and want to be called again if something changes after them.
    called: BTreeSet<String>,
    /// Those after which something changed.
    again: BTreeSet<String>,
    changed: bool,
    /// What the last round left.
    left: Option<Value>,
}

impl Rounds {
    /// Whether a webhook changed the object, so that all plugins see it once more.
    pub(super) fn changed(&self) -> bool {
        self.changed
    }

    fn change(&mut self) {
        self.again.append(&mut self.called);
    }
}

fn is_exempt(request: &Request<'_>) -> bool {
    request.kind.group == OWN_GROUP || matches!(request.options, Options::Server)
}

/// Calls the mutating webhooks: all that match, or in the second round those that want to be called again.
pub(super) fn mutate<'a>(
    request: &'a Request<'a>,
    object: &'a mut Value,
    rounds: &'a mut Rounds,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if is_exempt(request) {
            return Ok(());
        }
        let hooks = request.context.webhooks.mutating.now(request.context, builtin::mutating_webhooks());
        if hooks.1.is_empty() {
            return Ok(());
        }
        let second = rounds.left.take();
        if second.as_ref().is_some_and(|left| left != object) {
            rounds.change();
        }
        for hook in &hooks.1 {
            if second.is_some() && !rounds.again.contains(&hook.id) {
                continue;
            }
            let Some(matched) = matches(request, hook, object).await? else { continue };
            let changed = match ask(request, hook, &matched, object, true).await {
                Ok(None) => false,
                Ok(Some(changes)) => apply(request, hook, &matched, object, &changes).await?,
                Err(refusal) => refusal.open_or_fail(hook).map(|()| false)?,
            };
            if changed {
                rounds.change();
                rounds.changed = true;
            }
            if hook.again {
                rounds.called.insert(hook.id.clone());
            }
        }
        rounds.left = rounds.changed.then(|| object.clone());
        Ok(())
    })
}

/// Calls all validating webhooks that match at once; the first that refuses decides.
pub(super) fn validate<'a>(request: &'a Request<'a>, object: &'a Value) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if is_exempt(request) {
            return Ok(());
        }
        let hooks = request.context.webhooks.validating.now(request.context, builtin::validating_webhooks());
        let mut matching = Vec::new();
        for hook in &hooks.1 {
            if let Some(matched) = matches(request, hook, object).await? {
                matching.push((hook, matched));
            }
        }
        let calls = matching.iter().map(|(hook, matched)| ask(request, hook, matched, object, false));
        let mut answers = join_all(calls).await.into_iter().zip(&matching);
        answers.try_for_each(|(answer, (hook, _))| {
            answer.map(drop).or_else(|refusal| refusal.open_or_fail(hook))
        })
    })
}

/// Why a request does not pass a webhook.
enum Refusal {
    /// The webhook says no, or its answer cannot be carried out.
    Said(ApiError),
    /// It could not be asked.
    Unasked(String),
}

impl Refusal {
    fn open_or_fail(self, hook: &Hook) -> Result<()> {
        match self {
            Refusal::Said(error) => Err(error),
            Refusal::Unasked(why) if hook.fails_open => {
                tracing::warn!(webhook = hook.name, why, "a webhook could not be called and is passed over");
                Ok(())
            }
            Refusal::Unasked(why) => {
                Err(ApiError::internal(format!("failed calling webhook \"{}\": {why}", hook.name)))
            }
        }
    }
}

/// Whether a webhook is asked about this, and as what.
async fn matches(request: &Request<'_>, hook: &Hook, object: &Value) -> Result<Option<Matched>> {
    let Some(matched) = matching::matched(request, object, &hook.rules, hook.equivalent) else {
        return Ok(None);
    };
    if !matching::matches_object(&hook.objects, object, request.old)
        || !matching::matches_namespace(request, &hook.namespaces, object).await?
    {
        return Ok(None);
    }
    if hook.conditions.is_empty() {
        return Ok(Some(matched));
    }
    let old = matched.shown(request, request.old.unwrap_or(&Value::Null)).await?;
    let new = matched.shown(request, object).await?;
    let asked = review::request(request, &matched, &new);
    match hook.conditions.hold(&new, &old, &asked, &Rights::of(request, object)) {
        Ok(true) => Ok(Some(matched)),
        Ok(false) => Ok(None),
        Err(_) if hook.fails_open => Ok(None),
        Err(why) => {
            let kind = request.kind;
            let name = request.named(object);
            Err(ApiError::forbidden(&kind.group, &kind.resource, name, &why))
        }
    }
}

/// Asks a webhook; the patch it answers with, if any.
fn ask<'a>(
    request: &'a Request<'a>,
    hook: &'a Hook,
    matched: &'a Matched,
    object: &'a Value,
    mutating: bool,
) -> BoxFuture<'a, std::result::Result<Option<Value>, Refusal>> {
    Box::pin(async move {
        if request.dry_run && !hook.may_try {
            let words = format!("admission webhook \"{}\" does not support dry run", hook.name);
            return Err(Refusal::Said(ApiError::bad_request(words)));
        }
        let uid = crate::handler::create::new_uid();
        let old = request.old.unwrap_or(&Value::Null);
        let old = matched.shown(request, old).await.map_err(Refusal::Said)?;
        let new = matched.shown(request, object).await.map_err(Refusal::Said)?;
        let body = review::ask(request, hook, matched, &uid, &new, &old);
        let failed = |why: String| Refusal::Unasked(format!("failed to call webhook: {why}"));
        let answered = hook.client.post(request.context, &body).await.map_err(failed)?;
        let answer = Answer::read(&answered, &uid, hook.review_version, mutating)
            .map_err(|why| Refusal::Unasked(format!("received invalid webhook response: {why}")))?;
        if let Some(told) = request.told {
            told.lock().unwrap_or_else(PoisonError::into_inner).extend(answer.warnings);
        }
        match answer.denied {
            Some(status) => Err(Refusal::Said(ApiError::foreign(review::denied(&hook.name, status)))),
            None => Ok(answer.patch),
        }
    })
}

/// Applies a webhook's patch; whether anything changed.
async fn apply(
    request: &Request<'_>,
    hook: &Hook,
    matched: &Matched,
    object: &mut Value,
    changes: &Value,
) -> Result<bool> {
    if object.is_null() {
        return Err(ApiError::internal(format!(
            "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
            hook.name
        )));
    }
    let before = matched.shown(request, object).await?.into_owned();
    let Some(mut new) = patched(&hook.name, &before, changes)? else { return Ok(false) };
    if request.part == Some(Part::Scale) {
        scale::set_replicas(request.kind, object, new["spec"]["replicas"].clone());
        return Ok(true);
    }
    if let Some(other) = &matched.other {
        new = matching::in_version(request, other, request.kind, new).await?;
        new["kind"] = request.kind.kind.as_ref().into();
    }
    if request.part.is_none_or(Part::is_of_object) {
        strict::conform(request.kind, &mut new).map_err(ApiError::internal)?;
        create::fill_in(request.kind, &mut new);
    }
    for key in ["name", "namespace", "uid"] {
        let (given, kept) = (&new["metadata"][key], &object["metadata"][key]);
        let fixed = key == "namespace" || request.old.is_some();
        if fixed && given != kept {
            let words =
                format!("admission webhook \"{}\" changed metadata.{key}, which may not change", hook.name);
            return Err(ApiError::internal(words));
        }
    }
    *object = new;
    Ok(true)
}

/// An object as the patch of a webhook makes it; none when it stays as it is.
fn patched(hook: &str, before: &Value, changes: &Value) -> Result<Option<Value>> {
    let mut new = before.clone();
    patch::json(&mut new, changes).map_err(ApiError::internal)?;
    if new == *before {
        return Ok(None);
    }
    for key in ["apiVersion", "kind"] {
        if new[key] != before[key] {
            let words = format!("admission webhook \"{hook}\" changed the {key} of the object");
            return Err(ApiError::internal(words));
        }
    }
    if new["metadata"].is_null() && new.is_object() {
        new["metadata"] = json!({});
    }
    let Some(Value::Object(metadata)) = new.get_mut("metadata") else {
        let words = format!("admission webhook \"{hook}\" made something else of the object's metadata");
        return Err(ApiError::internal(words));
    };
    // What the books on field owners say is not a webhook's to change.
    match before["metadata"].get("managedFields") {
        Some(fields) => drop(metadata.insert("managedFields".to_owned(), fields.clone())),
        None => drop(metadata.remove("managedFields")),
    }
    Ok(Some(new))
}

/// What an answer to the review `uid` makes of an object of a kind, before it is validated; the error says why nothing.
pub(crate) fn answered(
    answer: &[u8],
    uid: &str,
    kind: &Kind,
    object: &Value,
) -> std::result::Result<Value, String> {
    let answer = Answer::read(answer, uid, "v1", true)?;
    if let Some(status) = answer.denied {
        return Err(review::denied("a", status).to_string());
    }
    let Some(changes) = answer.patch else { return Ok(object.clone()) };
    let patched = patched("a", object, &changes).map_err(|error| error.message)?;
    let Some(mut new) = patched else { return Ok(object.clone()) };
    strict::conform(kind, &mut new).map_err(|error| error.to_string())?;
    defaults::apply(kind, &mut new);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_leaves_no_object_is_refused_and_the_books_stay() {
        let before = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}});
        let put = |path: &str, value: Value| {
            patched("h", &before, &json!([{"op": "replace", "path": path, "value": value}]))
        };
        let kept = put("/metadata", json!({"name": "a", "labels": {}})).unwrap().unwrap();
        assert_eq!(kept["metadata"]["managedFields"], json!([{"manager": "m"}]));
        assert_eq!(put("/metadata/name", json!("a")).unwrap(), None);
        for value in [json!("x"), json!([]), json!(1)] {
            let told = put("/metadata", value).unwrap_err().message;
            assert!(told.contains("metadata"), "{told}");
        }
        for value in [json!("x"), json!(null), json!([])] {
            assert!(put("", value).is_err());
        }
    }
}
