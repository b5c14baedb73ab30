//! Deleting: at once, after a grace period, or when the last finalizer is gone.

use std::sync::Arc;

use futures::{StreamExt, stream};
use http::StatusCode;
use podwire_api::Kind;
use podwire_store::{Guard, KeyValue, Op, Outcome};
use serde_json::{Value, json};

use super::create::timestamp;
use super::options::DeleteOptions;
use super::update::{self, Changed, bump_generation};
use super::{Call, list, render};
use crate::admission::{self, Operation, Options, Request, service};
use crate::body::Response;
use crate::cache::Entry;
use crate::context::{self, Context};
use crate::identity::Identity;
use crate::status::{self, ApiError, Result};

/// A deletion that loses against other writes is tried this often.
const ATTEMPTS: usize = 10;
/// How many objects of a collection are deleted side by side.
const AT_A_TIME: usize = 64;

/// Deletes one object.
pub(crate) async fn delete(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let options = DeleteOptions::read(call).await?;
    warn_of_orphans(call, &options);
    let deletion = Deletion {
        context: &call.context,
        identity: &call.identity,
        kind: &call.kind,
        namespace: call.namespace(),
        name: call.name(),
    };
    let removed = deletion.run(&options).await?;
    let object = match removed {
        Removed::Later(kv) => return render::stored(call, StatusCode::OK, rep, kv).await,
        Removed::Gone(object) => object,
    };
    if call.kind.strategy.facts().deletion_shows_object {
        return Ok(render::object(call, StatusCode::OK, rep, object));
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let success = status::success(&call.kind, call.name(), uid);
    Ok(crate::body::json(StatusCode::OK, &success))
}

/// Who deletes without a word about dependents is told that they stay, where that is a surprise.
fn warn_of_orphans(call: &mut Call, options: &DeleteOptions) {
    if options.propagation.is_none() {
        call.warnings.extend(call.kind.strategy.orphan_warning().map(str::to_owned));
    }
}

/// Deletes all objects of a collection that the selectors choose.
pub(crate) async fn delete_collection(call: &mut Call) -> Result<Response> {
    let rep = call.representation()?;
    let options = DeleteOptions::read(call).await?;
    warn_of_orphans(call, &options);
    let listed = list::select_all(call).await?;
    let mut objects: Vec<Value> = Vec::with_capacity(listed.entries.len());
    // Many at a time, so that they share the store's commits.
    let mut results = stream::iter(listed.entries)
        .map(|entry| {
            remove_entry(
                call.context.clone(),
                call.identity.clone(),
                call.kind.clone(),
                entry,
                options.clone(),
            )
        })
        .buffered(AT_A_TIME)
        .boxed();
    while let Some(result) = results.next().await {
        objects.extend(result?);
    }
    drop(results);
    Ok(list::respond_objects(call, rep, listed.revision, objects))
}

/// Deletes one object of a collection; one that is gone already is left out.
async fn remove_entry(
    context: Arc<Context>,
    identity: Arc<Identity>,
    kind: Arc<Kind>,
    entry: Arc<Entry>,
    options: DeleteOptions,
) -> Result<Option<Value>> {
    let name = entry.field("metadata.name").unwrap_or_default();
    let namespace = entry.field("metadata.namespace").unwrap_or_default();
    let deletion = Deletion { context: &context, identity: &identity, kind: &kind, namespace, name };
    match deletion.run(&options).await {
        Ok(Removed::Later(kv)) => Ok(Some(context::read(&kind, &context.served(&kind, kv).await?)?)),
        Ok(Removed::Gone(object)) => Ok(Some(object)),
        Err(error) if error.code == StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a deletion did.
pub(crate) enum Removed {
    /// The object is marked and will go when its time or its finalizers have run out.
    Later(KeyValue),
    /// It is gone; this was its last state.
    Gone(Value),
}

/// The next step of a deletion.
enum Step {
    /// Nothing to do: it is on its way out already.
    Pending,
    /// Write this state.
    Mark(Value),
    /// Remove it.
    Remove(Value),
}

/// One deletion.
pub(crate) struct Deletion<'a> {
    pub(crate) context: &'a Context,
    pub(crate) identity: &'a Identity,
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl Deletion<'_> {
    /// Deletes, again from the start when somebody else wrote in between.
    pub(crate) async fn run(&self, options: &DeleteOptions) -> Result<Removed> {
        let mut stored = self.context.stored(self.kind, self.namespace, self.name).await?;
        for _ in 0..ATTEMPTS {
            let served = self.context.served(self.kind, stored.clone()).await?;
            let object = context::read(self.kind, &served)?;
            self.check(options, &object)?;
            self.admit(&object, options).await?;
            let outcome = match plan(self.kind, object, options, jiff::Timestamp::now()) {
                Step::Pending => return Ok(Removed::Later(stored)),
                Step::Mark(object) if options.dry_run => return Ok(Removed::Gone(object)),
                Step::Remove(object) if options.dry_run => return Ok(Removed::Gone(object)),
                Step::Mark(object) => {
                    let value = self.context.bytes_to_store(self.kind, &object).await?;
                    match update::put(self.context, self.kind, &stored, value).await? {
                        Ok(Changed::Stored(kv)) => return Ok(Removed::Later(kv)),
                        Ok(Changed::Object(object)) => return Ok(Removed::Gone(object)),
                        Err(current) => current,
                    }
                }
                Step::Remove(object) => {
                    let guard = Guard::ModRevision(stored.mod_revision);
                    match self.context.store.txn(&stored.key, guard, Op::Delete).await? {
                        Outcome::Committed { revision, .. } => {
                            service::deleted(self.context, self.kind, &object).await;
                            admission::learn(self.context, self.kind, revision).await;
                            return Ok(Removed::Gone(object));
                        }
                        Outcome::Conflict { current } => current,
                    }
                }
            };
            stored = outcome.ok_or_else(|| ApiError::not_found(self.kind, self.name))?;
        }
        Err(ApiError::modified(self.kind, self.name))
    }

    async fn admit(&self, object: &Value, options: &DeleteOptions) -> Result<()> {
        let request = Request {
            context: self.context,
            identity: self.identity,
            kind: self.kind,
            part: None,
            operation: Operation::Delete,
            namespace: self.namespace,
            name: self.name,
            old: Some(object),
            dry_run: options.dry_run,
            options: if options.by_server { Options::Server } else { Options::Delete(options) },
            told: Some(&options.told),
        };
        admission::admit(&request, &mut Value::Null).await
    }

    fn check(&self, options: &DeleteOptions, object: &Value) -> Result<()> {
        let metadata = &object["metadata"];
        let pairs = [
            ("UID", &options.uid, "uid", "deleted and then recreated"),
            ("ResourceVersion", &options.resource_version, "resourceVersion", "modified"),
        ];
        for (what, wanted, field, perhaps) in pairs {
            let found = metadata[field].as_str().unwrap_or_default();
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != found) {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). \
                     The object might have been {perhaps}"
                );
                return Err(ApiError::conflict_of(&self.kind.group, &self.kind.kind, self.name, &why));
            }
        }
        Ok(())
    }
}

/// Decides what deleting means for an object as it is now.
fn plan(kind: &Kind, mut object: Value, options: &DeleteOptions, now: jiff::Timestamp) -> Step {
    let policy = options.propagation.as_deref().or_else(|| default_policy(kind, &object));
    let finalizers_changed = propagate(&mut object, policy);
    let held = object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
        || kind.strategy.is_held(&object);
    if object["metadata"]["deletionTimestamp"].is_string() {
        return plan_again(object, options, held, finalizers_changed);
    }
    let grace = kind.strategy.grace(&object, options.grace);
    if grace.unwrap_or(0) == 0 && !held {
        if grace.is_some() {
            mark(&mut object, 0, now);
        }
        return Step::Remove(object);
    }
    if !kind.strategy.mark_terminating(&mut object, &timestamp(now)) {
        mark(&mut object, grace.unwrap_or(0), now);
    }
    Step::Mark(object)
}

/// Writes down that an object is going, and when.
fn mark(object: &mut Value, grace: i64, now: jiff::Timestamp) {
    object["metadata"]["deletionTimestamp"] = timestamp(now + jiff::SignedDuration::from_secs(grace)).into();
    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    bump_generation(object);
}

/// A second deletion can only make it sooner.
fn plan_again(mut object: Value, options: &DeleteOptions, held: bool, finalizers_changed: bool) -> Step {
    let current = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if current == 0 {
        return match (held, finalizers_changed) {
            (false, _) => Step::Remove(object),
            (true, true) => Step::Mark(object),
            (true, false) => Step::Pending,
        };
    }
    let Some(wanted) = options.grace.map(|grace| if grace < 0 { 1 } else { grace }).filter(|g| *g < current)
    else {
        return Step::Pending;
    };
    let due = object["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<jiff::Timestamp>().ok());
    if let Some(due) = due {
        let sooner = due - jiff::SignedDuration::from_secs(current - wanted);
        object["metadata"]["deletionTimestamp"] = timestamp(sooner).into();
    }
    object["metadata"]["deletionGracePeriodSeconds"] = wanted.into();
    if wanted == 0 && !held { Step::Remove(object) } else { Step::Mark(object) }
}

/// What is done with dependents when the client does not say: what was said before, or what the kind is known for.
fn default_policy(kind: &Kind, object: &Value) -> Option<&'static str> {
    let said = |name: &Value| matches!(name.as_str(), Some("foregroundDeletion" | "orphan"));
    let decided = object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(said));
    (kind.strategy.facts().orphans_by_default && !decided).then_some("Orphan")
}

/// Sets the finalizers by which the garbage collector knows what to do with dependents.
fn propagate(object: &mut Value, policy: Option<&str>) -> bool {
    let Some(policy) = policy else { return false };
    let wanted = match policy {
        "Foreground" => Some("foregroundDeletion"),
        "Orphan" => Some("orphan"),
        _ => None,
    };
    let before = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let mut after: Vec<Value> = before
        .iter()
        .filter(|name| !matches!(name.as_str(), Some("foregroundDeletion" | "orphan")))
        .cloned()
        .collect();
    after.extend(wanted.map(Value::from));
    if after == before {
        return false;
    }
    if after.is_empty() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
    } else {
        object["metadata"]["finalizers"] = json!(after);
    }
    true
}

#[cfg(test)]
mod tests {
    use podwire_api::builtin;

    use super::*;

    fn pod(node: &str, phase: &str) -> Value {
        json!({"metadata": {"name": "p", "generation": 1}, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 30},
               "status": {"phase": phase}})
    }

    fn now() -> jiff::Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn kind() -> &'static Kind {
        builtin::pods()
    }

    #[test]
    fn a_pod_nobody_runs_goes_at_once_and_a_running_one_gets_its_grace() {
        assert!(matches!(
            plan(kind(), pod("", "Pending"), &DeleteOptions::default(), now()),
            Step::Remove(_)
        ));
        assert!(matches!(
            plan(kind(), pod("n", "Succeeded"), &DeleteOptions::default(), now()),
            Step::Remove(_)
        ));
        let Step::Mark(marked) = plan(kind(), pod("n", "Running"), &DeleteOptions::default(), now()) else {
            panic!("a running pod is not removed at once")
        };
        assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
        assert_eq!(marked["metadata"]["generation"], 2);
        let sooner = DeleteOptions { grace: Some(5), ..DeleteOptions::default() };
        let Step::Mark(again) = plan(kind(), marked.clone(), &sooner, now()) else { panic!("not shortened") };
        assert_eq!(again["metadata"]["deletionTimestamp"], "2026-01-01T00:00:05Z");
        let later = DeleteOptions { grace: Some(60), ..DeleteOptions::default() };
        assert!(matches!(plan(kind(), again.clone(), &later, now()), Step::Pending));
        let force = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        assert!(matches!(plan(kind(), again, &force, now()), Step::Remove(_)));
    }

    #[test]
    fn jobs_leave_their_pods_behind_unless_told_otherwise() {
        let background = DeleteOptions { propagation: Some("Background".into()), ..DeleteOptions::default() };
        for (group, resource) in [("batch", "jobs"), ("", "replicationcontrollers")] {
            let kind = podwire_api::by_resource(group, "v1", resource).unwrap();
            let object = json!({"metadata": {"name": "x"}});
            let Step::Mark(marked) = plan(kind, object.clone(), &DeleteOptions::default(), now()) else {
                panic!("{resource} go at once")
            };
            assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
            assert!(matches!(plan(kind, object, &background, now()), Step::Remove(_)));
            let foreground = json!({"metadata": {"name": "x", "finalizers": ["foregroundDeletion"]}});
            let Step::Mark(marked) = plan(kind, foreground, &DeleteOptions::default(), now()) else {
                panic!("what was said before counts")
            };
            assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        }
    }

    #[test]
    fn finalizers_hold_an_object_and_propagation_sets_them() {
        let kind = builtin::config_maps();
        let foreground = DeleteOptions { propagation: Some("Foreground".into()), ..DeleteOptions::default() };
        let Step::Mark(marked) = plan(kind, json!({"metadata": {"name": "x"}}), &foreground, now()) else {
            panic!("foreground deletion waits")
        };
        assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    }
}
