//! Types of admission policies: their expressions are checked against the schemas of the objects that they are about.
//!
//! One task owns what it has seen and checks one policy after the other, each generation once. What it finds is written
//! into the status of the policy and changes nothing else. Schemas are asked of the API server like anybody does.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking>

mod plan;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;

use futures::StreamExt;
use plan::{Found, Gvk, Gvr};
use podwire_client::api::{ApiResource, Patch, PatchParams};
use podwire_client::watcher::{self, watcher};
use podwire_client::{Api, Client, DynamicObject, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::watching::{interrupted, is_status};

/// Upstream's name for who writes the status.
const MANAGER: &str = "validatingadmissionpolicy-status";
const VERSION: &str = "admissionregistration.k8s.io/v1";
const KIND: &str = "ValidatingAdmissionPolicy";
/// What failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// Runs until `shutdown`; a write that has begun is finished.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) {
    let client = config.client;
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        plural: "validatingadmissionpolicies".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut events = watcher(api.clone(), watcher::Config::default());
    let mut unchecked: BTreeMap<String, Value> = BTreeMap::new();
    // They take turns, so that one that cannot be checked holds up no other.
    let mut last = String::new();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(event) = events.next() => match event {
                Ok(watcher::Event::Init) => unchecked.clear(),
                Ok(watcher::Event::InitApply(policy) | watcher::Event::Apply(policy)) => {
                    let name = policy.name_any();
                    match is_checked(&policy.data) {
                        true => unchecked.remove(&name),
                        false => unchecked.insert(name, policy.data),
                    };
                }
                Ok(watcher::Event::Delete(policy)) => drop(unchecked.remove(&policy.name_any())),
                Ok(watcher::Event::InitDone) => {}
                Err(error) => interrupted("validatingadmissionpolicies", &error),
            },
            () = std::future::ready(()), if !unchecked.is_empty() => {
                let Some((name, policy)) = next(&mut unchecked, &last) else { continue };
                last.clone_from(&name);
                let checked = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    checked = check(&client, &policy["spec"]) => checked,
                };
                let written = match checked {
                    Ok(warnings) => write(&api, &name, generation(&policy), &warnings).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = written {
                    tracing::warn!(policy = name, %error, "the types of a policy were not checked; trying again");
                    unchecked.insert(name, policy);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Takes the first one after `last`, or else the first one of all.
fn next(unchecked: &mut BTreeMap<String, Value>, last: &str) -> Option<(String, Value)> {
    let later = unchecked.range::<str, _>((Bound::Excluded(last), Bound::Unbounded)).next();
    let name = later.map(|(name, _)| name.clone());
    match name {
        Some(name) => unchecked.remove_entry(&name),
        None => unchecked.pop_first(),
    }
}

fn generation(policy: &Value) -> i64 {
    policy["metadata"]["generation"].as_i64().unwrap_or(0)
}

fn is_checked(policy: &Value) -> bool {
    generation(policy) <= policy["status"]["observedGeneration"].as_i64().unwrap_or(0)
}

/// What the type checker has to say about a policy.
async fn check(client: &Client, spec: &Value) -> podwire_client::Result<Vec<Value>> {
    let mut asked = Asked { client, lists: HashMap::new(), documents: HashMap::new() };
    let rules = plan::resources(spec);
    for resource in rules.iter().flatten() {
        asked.list(resource).await?;
    }
    let mut environments = Vec::new();
    let params = match plan::params(spec) {
        Some(kind) => Some(asked.schema(&kind).await?.flatten()),
        None => None,
    };
    for kind in plan::kinds(&rules, |resource| asked.kind(resource)) {
        let Some(schema) = asked.schema(&kind).await? else { continue };
        let environment = plan::environment(spec, schema.as_ref(), params.as_ref().map(Option::as_ref));
        environments.push((kind, environment));
    }
    let mut warnings = Vec::new();
    for (place, text) in plan::expressions(spec) {
        warnings.extend(plan::warning(&place, text, &environments));
        tokio::task::yield_now().await;
    }
    Ok(warnings)
}

/// What the server was asked while one policy is checked, so that it is asked once.
struct Asked<'a> {
    client: &'a Client,
    /// Resources and documents by group and version.
    lists: HashMap<(String, String), Value>,
    documents: HashMap<(String, String), Value>,
}

impl Asked<'_> {
    async fn list(&mut self, resource: &Gvr) -> podwire_client::Result<()> {
        let key = (resource.group.clone(), resource.version.clone());
        if !self.lists.contains_key(&key) {
            let list = get(self.client, &format!("/{}", place(&key.0, &key.1))).await?;
            self.lists.insert(key, list);
        }
        Ok(())
    }

    /// The kind that a resource is.
    fn kind(&self, resource: &Gvr) -> Option<String> {
        let list = self.lists.get(&(resource.group.clone(), resource.version.clone()))?;
        let found = list["resources"].as_array()?.iter().find(|one| one["name"] == *resource.resource)?;
        found["kind"].as_str().map(str::to_owned)
    }

    async fn schema(&mut self, kind: &Gvk) -> podwire_client::Result<Found> {
        let key = (kind.group.clone(), kind.version.clone());
        if !self.documents.contains_key(&key) {
            let document = get(self.client, &format!("/openapi/v3/{}", place(&key.0, &key.1))).await?;
            self.documents.insert(key.clone(), document);
        }
        Ok(self.documents.get(&key).and_then(|document| plan::schema(document, kind)))
    }
}

fn place(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// What is at a path; null for nothing.
async fn get(client: &Client, path: &str) -> podwire_client::Result<Value> {
    match client.get(path).await {
        Err(error) if is_status(&error, 404) => Ok(Value::Null),
        answer => answer,
    }
}

/// Writes the status of a policy that was checked.
async fn write(
    api: &Api<DynamicObject>,
    name: &str,
    generation: i64,
    warnings: &[Value],
) -> podwire_client::Result<()> {
    let status = plan::status(generation, warnings);
    let patch = json!({"apiVersion": VERSION, "kind": KIND, "metadata": {"name": name}, "status": status});
    match api.patch_status(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(patch)).await {
        // It went in the meantime.
        Err(error) if is_status(&error, 404) => Ok(()),
        written => written.map(drop),
    }
}
