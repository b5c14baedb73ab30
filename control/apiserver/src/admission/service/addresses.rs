//! Addresses of services, each an `IPAddress` object: who creates it has the address.
//!
//! That is how upstream's servers give them out, so that any number of servers of a store agree.

use std::net::IpAddr;

use podwire_api::builtin;
use podwire_store::{Guard, KeyValue, Op, Outcome, Revision};
use serde_json::{Value, json};

use super::ranges::{self, Range};
use crate::cache::Scope;
use crate::context::{self, Context};
use crate::handler::bootstrap;
use crate::handler::create::{self, Inserted};
use crate::status::{ApiError, Result};

/// Who gives addresses out, in the label that says so.
pub(super) const GIVER: &str = "ipallocator.k8s.io";
const GIVEN_BY: &str = "ipaddress.kubernetes.io/managed-by";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// A removal that loses against other writes is tried this often.
const ATTEMPTS: usize = 10;

/// An address that a request was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) address: IpAddr,
    /// The write that took it; none was made for a trial.
    revision: Option<Revision>,
}

/// Which service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Owner<'a> {
    pub(super) fn of(service: &'a Value) -> Self {
        let text = |key: &str| service["metadata"][key].as_str().unwrap_or_default();
        Self { namespace: text("namespace"), name: text("name") }
    }

    /// The service that an address says it belongs to, if it is one.
    pub(super) fn said_by(object: &'a Value) -> Option<Self> {
        let parent = &object["spec"]["parentRef"];
        let text = |key: &str| parent[key].as_str().unwrap_or_default();
        (text("group").is_empty() && text("resource") == "services")
            .then(|| Self { namespace: text("namespace"), name: text("name") })
    }
}

/// Why an address was not given.
pub(super) enum Denied {
    /// Somebody has it.
    Taken,
    /// It could not be found out.
    Failed(ApiError),
}

pub(super) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn key(address: IpAddr) -> String {
    context::key(builtin::ip_addresses(), "", &address.to_string())
}

fn is_known(context: &Context, address: IpAddr) -> bool {
    context.caches.of(builtin::ip_addresses()).get(&key(address)).is_some()
}

fn object(address: IpAddr, owner: Owner<'_>) -> Value {
    json!({
        "metadata": {"name": address.to_string(), "labels": {GIVEN_BY: GIVER, FAMILY: family(address)}},
        "spec": {"parentRef": {"resource": "services", "namespace": owner.namespace, "name": owner.name}},
    })
}

/// Whether an address was given out by whoever gives them to services.
pub(super) fn is_given(object: &Value) -> bool {
    object["metadata"]["labels"][GIVEN_BY] == GIVER
}

/// Whether an address says of itself what it should.
pub(super) fn is_labelled(object: &Value, address: IpAddr) -> bool {
    is_given(object) && object["metadata"]["labels"][FAMILY] == family(address)
}

/// The ranges that addresses are taken of now; before any is written down, that of this server.
pub(super) fn ranges(context: &Context, own: Range) -> Vec<Range> {
    let kind = builtin::service_cidrs();
    let scope = Scope { prefix: kind.storage_prefix.to_string(), node: None, key: None };
    let entries = context.caches.of(kind).snapshot(&scope).entries;
    if entries.is_empty() {
        return vec![own];
    }
    entries.iter().flat_map(|entry| ranges::open(&entry.decode(kind))).collect()
}

/// Takes this address for a service.
pub(super) async fn take(
    context: &Context,
    address: IpAddr,
    owner: Owner<'_>,
    dry_run: bool,
) -> Result<Taken, Denied> {
    if dry_run {
        let free = !is_known(context, address);
        return if free { Ok(Taken { address, revision: None }) } else { Err(Denied::Taken) };
    }
    // Boxed: an object is created in the middle of creating another one.
    let kind = builtin::ip_addresses();
    let insert = Box::pin(bootstrap::insert(context, kind, object(address, owner), "kube-apiserver"));
    match insert.await {
        Ok(Inserted::Stored(kv)) => Ok(Taken { address, revision: Some(kv.mod_revision) }),
        Ok(Inserted::Dry(_)) => Err(Denied::Failed(ApiError::internal("an address was only tried"))),
        Err(error) if error.reason == "AlreadyExists" => Err(Denied::Taken),
        Err(error) => Err(Denied::Failed(error)),
    }
}

/// Takes any free address of the ranges for a service; `None` if there is none.
pub(super) async fn take_any(
    context: &Context,
    ranges: &[Range],
    owner: Owner<'_>,
    dry_run: bool,
) -> Result<Option<Taken>> {
    for range in ranges {
        for address in range.from(create::random_u64()) {
            // What the cache does not know yet is found out by trying.
            if is_known(context, address) {
                continue;
            }
            match take(context, address, owner, dry_run).await {
                Ok(taken) => return Ok(Some(taken)),
                Err(Denied::Taken) => {}
                Err(Denied::Failed(error)) => return Err(error),
            }
        }
    }
    Ok(None)
}

impl Taken {
    /// Gives it back, unless somebody else has written to it since.
    pub(super) async fn give_back(self, context: &Context) -> Result<()> {
        let Some(revision) = self.revision else { return Ok(()) };
        remove(context, self.address, revision).await?;
        Ok(())
    }
}

async fn remove(context: &Context, address: IpAddr, revision: Revision) -> Result<Option<KeyValue>> {
    let guard = Guard::ModRevision(revision);
    Ok(match context.store.txn(&key(address), guard, Op::Delete).await? {
        Outcome::Committed { .. } => None,
        Outcome::Conflict { current } => current,
    })
}

/// An address as it is stored at this moment.
pub(super) async fn stored(context: &Context, address: IpAddr) -> Result<Option<(Value, Revision)>> {
    let Some(kv) = context.store.get(&key(address)).await? else { return Ok(None) };
    Ok(Some((context::read(builtin::ip_addresses(), &kv)?, kv.mod_revision)))
}

/// Removes an address that is still as it was seen.
pub(super) async fn forget(context: &Context, address: IpAddr, seen: Revision) -> Result<()> {
    remove(context, address, seen).await?;
    Ok(())
}

/// Takes an address back from a service that has it no more.
pub(super) async fn release(context: &Context, address: IpAddr, owner: Owner<'_>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let Some((object, revision)) = stored(context, address).await? else { return Ok(()) };
        if Owner::said_by(&object) != Some(owner) || remove(context, address, revision).await?.is_none() {
            return Ok(());
        }
    }
    Err(ApiError::modified(builtin::ip_addresses(), &address.to_string()))
}
