//! Where the servers of a cluster are: the endpoints of the `kubernetes` service, by leases as upstream's servers keep them.
//!
//! Each server writes a key that etcd takes away when nobody writes it again, and lists all such keys in the service's Endpoints and
//! EndpointSlice. A server that dies is gone from there when its key is, and one that ends takes itself out.
//! One task ([`Advertiser::run`]): in, a clock; out, its key and the two objects.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use podwire_api::{Kind, builtin, protobuf};
use podwire_store::{Guard, Op, Outcome};
use serde_json::{Value, json};

use crate::context::Context;
use crate::handler::bootstrap;
use crate::status::{ApiError, Result};

/// Where the keys lie; that of a server is its address.
const LEASES: &str = "/registry/masterleases/";
/// How long a key lives that nobody writes again.
const LIFE: Duration = Duration::from_secs(15);
/// A key is written again so often.
const EVERY: Duration = Duration::from_secs(10);
/// A write that loses against others is tried this often.
const ATTEMPTS: usize = 10;
const SERVICE: &str = "kubernetes";
const NAMESPACE: &str = "default";

/// Where this server is found by pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advertise {
    /// Its address, the same in no two servers.
    pub address: IpAddr,
    /// How long it is listed without a sign of life; a sign is given one and a half times as often.
    pub life: Duration,
}

impl Advertise {
    /// As kube-apiserver: for 15 seconds.
    pub fn new(address: IpAddr) -> Self {
        Self { address, life: LIFE }
    }

    fn every(&self) -> Duration {
        self.life.mul_f64(EVERY.as_secs_f64() / LIFE.as_secs_f64())
    }
}

/// Keeps one server listed.
pub(crate) struct Advertiser {
    own: Advertise,
}

/// The key of a server, as upstream writes it: an Endpoints with its address, and a number that changes with each write.
fn lease(address: IpAddr, generation: i64) -> Value {
    json!({"metadata": {"generation": generation}, "subsets": [{"addresses": [{"ip": address.to_string()}]}]})
}

/// The address that a key names.
fn address_of(value: &[u8]) -> Option<IpAddr> {
    let object = protobuf::decode(builtin::endpoints(), value).ok()?;
    object["subsets"][0]["addresses"][0]["ip"].as_str()?.parse().ok()
}

fn port(context: &Context) -> Value {
    json!({"name": "https", "port": bootstrap::port(context), "protocol": "TCP"})
}

/// The Endpoints with these addresses; ports that somebody wrote stay.
fn endpoints(old: Option<&Value>, addresses: &BTreeSet<String>, port: &Value) -> Value {
    let mut object =
        old.cloned().unwrap_or_else(|| json!({"metadata": {"name": SERVICE, "namespace": NAMESPACE}}));
    object["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"] = "true".into();
    let known = object["subsets"]
        .as_array()
        .filter(|subsets| subsets.len() == 1)
        .map(|subsets| subsets[0]["ports"].clone());
    let ports = known.filter(|ports| ports.as_array().is_some_and(|ports| !ports.is_empty()));
    let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let subset = json!({"addresses": addresses, "ports": ports.unwrap_or_else(|| json!([port]))});
    object["subsets"] = if addresses.is_empty() { json!([]) } else { json!([subset]) };
    object
}

/// The EndpointSlice that says the same.
fn slice(old: Option<&Value>, endpoints: &Value) -> Value {
    let mut object =
        old.cloned().unwrap_or_else(|| json!({"metadata": {"name": SERVICE, "namespace": NAMESPACE}}));
    object["metadata"]["labels"] = json!({"kubernetes.io/service-name": SERVICE});
    let subset = &endpoints["subsets"][0];
    let texts = subset["addresses"].as_array().into_iter().flatten().filter_map(|one| one["ip"].as_str());
    let is_v6 = |text: &&str| text.contains(':');
    let all_v6 = texts.clone().count() > 0 && texts.clone().all(|text| is_v6(&text));
    let family = texts.filter(|text| is_v6(text) == all_v6);
    let listed: Vec<Value> =
        family.map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect();
    object["addressType"] = if all_v6 { "IPv6" } else { "IPv4" }.into();
    object["endpoints"] = listed.into();
    object["ports"] = subset["ports"].clone();
    object
}

impl Advertiser {
    pub(crate) fn new(own: Advertise) -> Self {
        Self { own }
    }

    /// Until the server ends; then it is listed no more.
    pub(crate) async fn run(self, context: Arc<Context>) {
        loop {
            if let Err(error) = self.round(&context).await {
                tracing::warn!(
                    why = error.message,
                    "the endpoints of the API servers were not looked through; soon again"
                );
            }
            tokio::select! {
                biased;
                () = context.shutdown.cancelled() => break,
                () = tokio::time::sleep(self.own.every()) => {}
            }
        }
        if let Err(error) = self.leave(&context).await {
            tracing::warn!(why = error.message, "this server stays among the endpoints until its key ends");
        }
    }

    async fn round(&self, context: &Context) -> Result<()> {
        self.sign(context).await?;
        list(context, false).await
    }

    fn key(&self) -> String {
        format!("{LEASES}{}", self.own.address)
    }

    /// Writes the key anew, so that it lives on.
    async fn sign(&self, context: &Context) -> Result<()> {
        let (kind, key) = (builtin::endpoints(), self.key());
        for _ in 0..ATTEMPTS {
            let stored = context.store.get(&key).await?;
            let guard = stored.as_ref().map_or(Guard::Absent, |kv| Guard::ModRevision(kv.mod_revision));
            let before = stored.and_then(|kv| protobuf::decode(kind, &kv.value).ok());
            let generation = before.and_then(|object| object["metadata"]["generation"].as_i64()).unwrap_or(0);
            let value = protobuf::encode(kind, &lease(self.own.address, generation.wrapping_add(1)));
            let op = Op::Put { value: value.into(), ttl: Some(self.own.life) };
            if let Outcome::Committed { .. } = context.store.txn(&key, guard, op).await? {
                return Ok(());
            }
        }
        Err(ApiError::unavailable(format!("somebody else writes {key}: two servers have one address")))
    }

    async fn leave(&self, context: &Context) -> Result<()> {
        context.store.txn(&self.key(), Guard::Any, Op::Delete).await?;
        list(context, true).await
    }
}

/// Makes the two objects say which keys there are; none at all only when `ending`.
async fn list(context: &Context, ending: bool) -> Result<()> {
    let leases = context.store.list(LEASES, None, None, None).await?;
    let addresses: BTreeSet<String> = leases
        .items
        .iter()
        .filter_map(|kv| address_of(&kv.value))
        .map(|address| address.to_string())
        .collect();
    if addresses.is_empty() && !ending {
        return Err(ApiError::internal("no API server is listed although this one has just signed"));
    }
    let port = port(context);
    let written = agree(context, builtin::endpoints(), |old| endpoints(old, &addresses, &port)).await?;
    agree(context, builtin::endpoint_slices(), |old| slice(old, &written)).await?;
    Ok(())
}

/// Creates or changes an object until it is as it should be; returns that.
async fn agree(context: &Context, kind: &Kind, make: impl Fn(Option<&Value>) -> Value) -> Result<Value> {
    for _ in 0..ATTEMPTS {
        let old = match context.object(kind, NAMESPACE, SERVICE).await {
            Ok(old) => Some(old),
            Err(error) if error.code == http::StatusCode::NOT_FOUND => None,
            Err(error) => return Err(error),
        };
        let new = make(old.as_ref());
        if old.as_ref() == Some(&new) {
            return Ok(new);
        }
        let written = match &old {
            None => bootstrap::insert(context, kind, new.clone(), "kube-apiserver").await.map(|_| ()),
            Some(_) => bootstrap::replace(context, kind, &new, "kube-apiserver").await,
        };
        match written {
            Ok(()) => return Ok(new),
            Err(error) if error.code == http::StatusCode::CONFLICT => {}
            Err(error) => return Err(error),
        }
    }
    Err(ApiError::modified(kind, SERVICE))
}
