//! `ResourceQuota`: what is created or grows is charged to its namespace's quotas before it is stored.
//!
//! A charge is a compare-and-swap of a quota's `status.used`, as upstream makes it. Requests of one namespace that wait for
//! their turn are charged together. Between its charge and the end of its write a request holds its namespace's gate open;
//! whoever lowers `status.used` closes it first and counts what is there, so that no controller, however late its view,
//! takes a charge away whose object is about to be stored. What was charged for an object that is not stored in the end
//! is given back; if a request vanishes and nobody knows, the namespace is counted anew.
//!
//! One task ([`Ledger::run`]): in, the namespaces to count anew; out, writes of their quotas.

mod space;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use podwire_api::quota::{Act, Count, Measured, Quota, Wish};
use podwire_api::resources::Resources;
use podwire_api::{Part, apply, builtin};
use podwire_store::{Guard, KeyValue, Op, Outcome};
use serde_json::{Map, Value};
use space::Space;
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::{Operation, Request};
use crate::cache::Scope;
use crate::codec;
use crate::context::{self, Context};
use crate::status::{ApiError, Result};

/// Whom a quota's status is written by.
const MANAGER: &str = "kube-apiserver";
/// A write that loses against others is tried this often.
const ATTEMPTS: usize = 20;

/// The books on all namespaces that have quotas.
#[derive(Default)]
pub(crate) struct Ledger {
    spaces: Mutex<HashMap<String, Arc<Space>>>,
    /// Namespaces whose quotas may have a charge too many.
    doubtful: Mutex<BTreeSet<String>>,
    doubt: Notify,
}

impl Ledger {
    fn space(&self, namespace: &str) -> Arc<Space> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = spaces.get(namespace) {
            return known.clone();
        }
        // Nobody else holds what only the map does.
        spaces.retain(|_, space| Arc::strong_count(space) > 1);
        spaces.entry(namespace.to_owned()).or_default().clone()
    }

    fn doubt(&self, namespace: &str) {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned());
        self.doubt.notify_one();
    }

    /// Counts doubtful namespaces anew until `shutdown`.
    pub(crate) async fn run(context: &Context) {
        let ledger = &context.quotas;
        loop {
            tokio::select! {
                biased;
                () = context.shutdown.cancelled() => return,
                () = ledger.doubt.notified() => {}
            }
            loop {
                let next = ledger.doubtful.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
                let Some(namespace) = next else { break };
                if let Err(error) = recount(context, &namespace).await {
                    tracing::warn!(
                        namespace,
                        why = error.message,
                        "the quotas of a namespace were not counted anew"
                    );
                }
            }
        }
    }
}

/// What one request was charged.
pub(crate) struct Charge<'a> {
    context: &'a Context,
    taken: Option<Taken>,
}

struct Taken {
    namespace: String,
    space: Arc<Space>,
    /// What each quota was charged.
    by_quota: Vec<(String, Resources)>,
    /// Nobody counts before this request is through.
    _open: OwnedRwLockReadGuard<()>,
}

impl<'a> Charge<'a> {
    /// No charge.
    pub(crate) fn nothing(context: &'a Context) -> Self {
        Self { context, taken: None }
    }

    /// Keeps what was charged for an object that is stored, and gives it back for one that is not.
    pub(crate) async fn settle(mut self, end: End) {
        let Some(taken) = &self.taken else { return };
        let is_settled = match end {
            End::Stored => true,
            End::NotStored => {
                let _turn = taken.space.turn().await;
                give_back(self.context, &taken.namespace, &taken.by_quota).await.is_ok()
            }
            // Counted anew when this is dropped.
            End::Unknown => false,
        };
        if is_settled {
            self.taken = None;
        }
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The object is stored.
    Stored,
    /// It is not.
    NotStored,
    /// The store does not know.
    Unknown,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if let Some(taken) = &self.taken {
            self.context.quotas.doubt(&taken.namespace);
        }
    }
}

/// Charges what a request takes; refused if there is not enough of something.
pub(super) async fn charge<'a>(
    context: &'a Context,
    request: &Request<'_>,
    object: &Value,
) -> Result<Charge<'a>> {
    let namespace = request.namespace;
    if namespace.is_empty() || names(context, namespace).is_empty() {
        return Ok(Charge::nothing(context));
    }
    let Some(wish) = wish(request, object) else { return Ok(Charge::nothing(context)) };
    let refused = |why: String| request.forbidden(object, &why);
    if request.dry_run {
        let mut quotas = read(context, namespace).await?;
        space::grant(quotas.iter_mut().map(|stored| &mut stored.quota), &wish).map_err(refused)?;
        return Ok(Charge::nothing(context));
    }
    let space = context.quotas.space(namespace);
    let open = space.pass().await;
    // Made before anything is charged: if this request goes away in the middle, nobody else knows what it was charged.
    let taken =
        Taken { namespace: namespace.to_owned(), space: space.clone(), by_quota: Vec::new(), _open: open };
    let mut charge = Charge { context, taken: Some(taken) };
    match space.charge(context, namespace, wish).await? {
        Ok(by_quota) if !by_quota.is_empty() => {
            if let Some(taken) = &mut charge.taken {
                taken.by_quota = by_quota;
            }
        }
        verdict => {
            charge.taken = None;
            verdict.map_err(refused)?;
        }
    }
    Ok(charge)
}

fn wish(request: &Request<'_>, object: &Value) -> Option<Wish> {
    let act = match (request.operation, request.part) {
        (Operation::Create, None) => Act::Create,
        (Operation::Update, part) => Act::Update(part),
        _ => return None,
    };
    let measured = Measured::of(request.kind)?;
    if !measured.minds(act, object, request.old) {
        return None;
    }
    let now = Timestamp::now();
    let item = measured.item(object, now);
    let old = request.old.map(|old| measured.item(old, now));
    Some(Wish { measured, item, old, noted_only: request.part == Some(Part::Status) })
}

/// A quota as it is stored.
struct Stored {
    kv: KeyValue,
    object: Value,
    quota: Quota,
}

/// The names of a namespace's quotas.
fn names(context: &Context, namespace: &str) -> Vec<String> {
    let kind = builtin::resource_quotas();
    let prefix = context::key(kind, namespace, "");
    let snapshot = context.caches.of(kind).snapshot(&Scope { prefix, node: None, key: None });
    let names = snapshot.entries.iter().filter_map(|entry| entry.field("metadata.name"));
    names.map(str::to_owned).collect()
}

/// The quotas of a namespace as they are at this moment.
async fn read(context: &Context, namespace: &str) -> Result<Vec<Stored>> {
    let mut quotas = Vec::new();
    for name in names(context, namespace) {
        quotas.extend(read_one(context, namespace, &name).await?);
    }
    Ok(quotas)
}

async fn read_one(context: &Context, namespace: &str, name: &str) -> Result<Option<Stored>> {
    let kind = builtin::resource_quotas();
    let Some(kv) = context.store.get(&context::key(kind, namespace, name)).await? else { return Ok(None) };
    let object = context::read(kind, &kv)?;
    let quota = Quota::from(&object);
    Ok(Some(Stored { kv, object, quota }))
}

fn written(resources: &Resources) -> Value {
    let amounts = resources.iter().map(|(name, amount)| (name.to_owned(), amount.to_string().into()));
    Value::Object(amounts.collect::<Map<_, _>>())
}

impl Stored {
    /// Writes what is used; false if somebody else wrote in between.
    async fn write(&self, context: &Context) -> Result<bool> {
        let mut new = self.object.clone();
        new["status"]["used"] = written(&self.quota.used);
        let writer = apply::Writer {
            manager: MANAGER,
            operation: apply::Operation::Update,
            subresource: Part::Status.as_str(),
            time: Timestamp::now(),
        };
        apply::track_update(builtin::resource_quotas(), Some(&self.object), &mut new, &writer);
        let op = Op::Put { value: codec::encode(&new, None), ttl: None };
        let guard = Guard::ModRevision(self.kv.mod_revision);
        Ok(matches!(context.store.txn(&self.kv.key, guard, op).await?, Outcome::Committed { .. }))
    }
}

async fn give_back(context: &Context, namespace: &str, by_quota: &[(String, Resources)]) -> Result<()> {
    for (name, granted) in by_quota {
        for attempt in 1.. {
            let Some(mut stored) = read_one(context, namespace, name).await? else { break };
            stored.quota.give_back(granted);
            if stored.write(context).await? {
                break;
            }
            if attempt == ATTEMPTS {
                return Err(ApiError::modified(builtin::resource_quotas(), name));
            }
        }
    }
    Ok(())
}

/// What the objects of a namespace take of a quota, as they are stored now.
async fn count(context: &Context, namespace: &str, quota: &Quota) -> Result<Resources> {
    // A request that went away may have left a write behind it. The store does writes in their order, so that one that
    // changes nothing comes back after it.
    let key = context::key(builtin::resource_quotas(), namespace, &quota.name);
    context.store.txn(&key, Guard::ModRevision(u64::MAX), Op::Delete).await?;
    context.caches.wait_for(context.store.revision().await?).await?;
    let now = Timestamp::now();
    let mut count = Count::of(quota);
    let mut seen = BTreeSet::new();
    let kinds = context.kinds.now().registry.clone();
    for kind in kinds.kinds() {
        let Some(measured) = Measured::of(kind) else { continue };
        // Several versions show the same objects.
        if !count.begin(&measured) || !seen.insert(kind.storage_prefix.clone()) {
            continue;
        }
        let prefix = context::key(kind, namespace, "");
        let snapshot = context.caches.of(kind).snapshot(&Scope { prefix, node: None, key: None });
        if measured.is_plain_count() {
            count.add_plain(&measured, snapshot.entries.len());
            continue;
        }
        for entry in &snapshot.entries {
            count.add(&measured.item(&entry.decode(kind), now));
        }
    }
    Ok(count.done())
}

/// Counts a namespace while nothing is being charged in it, and takes away what is used by nothing.
async fn recount(context: &Context, namespace: &str) -> Result<()> {
    let space = context.quotas.space(namespace);
    let _closed = space.close().await;
    for name in names(context, namespace) {
        for _ in 0..ATTEMPTS {
            let Some(mut stored) = read_one(context, namespace, &name).await? else { break };
            let there = count(context, namespace, &stored.quota).await?;
            let before = stored.quota.used.clone();
            for (resource, amount) in there.iter() {
                if before.get(resource).is_some_and(|used| used > amount) {
                    stored.quota.used.set(resource, *amount);
                }
            }
            if stored.quota.used == before || stored.write(context).await? {
                break;
            }
        }
    }
    Ok(())
}

/// What is said to be used is never less than what is there: closes the namespace and raises what was lowered too far.
/// The namespace stays closed until the result is dropped, after the write.
pub(crate) async fn correct(
    request: &Request<'_>,
    new: &mut Value,
    old: &Value,
) -> Result<Option<OwnedRwLockWriteGuard<()>>> {
    if !request.kind.is("", "ResourceQuota") || request.part != Some(Part::Status) {
        return Ok(None);
    }
    let (given, before) = (Quota::from(&*new), Quota::from(old));
    let lowered = |name: &str, amount| before.used.get(name).is_none_or(|used| used > amount);
    if !given.used.iter().any(|(name, amount)| lowered(name, amount)) {
        return Ok(None);
    }
    let context = request.context;
    let closed = context.quotas.space(request.namespace).close().await;
    let there = count(context, request.namespace, &given).await?;
    for (name, amount) in given.used.iter().filter(|(name, amount)| lowered(name, amount)) {
        let floor =
            there.get(name).map(|there| before.used.get(name).map_or(*there, |used| *used.min(there)));
        if let Some(floor) = floor.filter(|floor| floor > amount) {
            new["status"]["used"][name] = floor.to_string().into();
        }
    }
    Ok(Some(closed))
}
