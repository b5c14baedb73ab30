//! Addresses and node ports of services, given out from their ranges.
//!
//! Several servers of one store give them out side by side, ours and kube-apiserver: an address is an object that is created
//! (`addresses`), a port a bit that is set by compare and swap (`ports`). What a request is given is [`Held`] until the service
//! is stored: a creation that is refused, that loses a race or that is only a trial gives it back. What a server leaves behind
//! that ends in between, `repair` finds.

mod addresses;
mod change;
mod ports;
mod ranges;
mod repair;

use std::collections::BTreeSet;
use std::net::IpAddr;

use addresses::{Denied, Owner, Taken};
use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Kind, builtin};
use ports::{NODE_PORTS, Ports};
use ranges::Range;
pub(crate) use repair::Repair;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Request;
use crate::context::Context;
use crate::status::{ApiError, Result};

/// What services hold, all of them or one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Grants {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<u16>,
}

impl Grants {
    /// What a service holds.
    fn of(service: &Value) -> Self {
        let spec = &service["spec"];
        let several = spec["clusterIPs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let addresses = several.iter().chain([&spec["clusterIP"]]).filter_map(Value::as_str);
        let health = node_port(&spec["healthCheckNodePort"]);
        let ports = ports(spec).iter().filter_map(|port| node_port(&port["nodePort"]));
        Self {
            addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
            ports: ports.chain(health).collect(),
        }
    }

    /// Takes it back from a service that has it no more.
    async fn release(&self, context: &Context, owner: Owner<'_>) {
        for address in &self.addresses {
            if let Err(error) = addresses::release(context, *address, owner).await {
                tracing::warn!(%address, why = error.message, "an address was not given back; it will be later");
            }
        }
        release_ports(context, &self.ports).await;
    }
}

async fn release_ports(context: &Context, ports: &BTreeSet<u16>) {
    if ports.is_empty() {
        return;
    }
    if let Err(error) = ports::release(context, ports).await {
        tracing::warn!(?ports, why = error.message, "node ports were not given back; they will be later");
    }
}

/// Gives a service that is created or changed what it lacks.
pub(crate) async fn hold(context: &Context, request: &Request<'_>, object: &mut Value) -> Result<Held> {
    let mut held = Held::default();
    if !request.is_whole("", "Service") {
        return Ok(held);
    }
    let ask = Ask { context, services: &context.services, dry_run: request.dry_run };
    let given = match request.old {
        Some(old) => ask.reassign(object, old, &mut held).await,
        None => ask.assign(object, &mut held).await,
    };
    match given {
        Ok(()) => Ok(held),
        Err(error) => {
            held.give_back(context).await;
            Err(error)
        }
    }
}

/// Gives back what a removed object held.
pub(crate) async fn deleted(context: &Context, kind: &Kind, object: &Value) {
    if kind.is("", "Service") {
        Grants::of(object).release(context, Owner::of(object)).await;
    }
}

/// Gives back what a changed object holds no more.
pub(crate) async fn changed(context: &Context, kind: &Kind, new: &Value, old: &Value) {
    if kind.is("", "Service") {
        let (mut gone, kept) = (Grants::of(old), Grants::of(new));
        gone.addresses.retain(|address| !kept.addresses.contains(address));
        gone.ports.retain(|port| !kept.ports.contains(port));
        gone.release(context, Owner::of(new)).await;
    }
}

/// What all servers of a store give out of.
pub(crate) struct Allocator {
    /// The range of this server, which is the first one of a new store.
    own: Range,
    cidr: String,
    /// Requests of one server change the bitmap one after the other: they would only lose against each other.
    ports: Semaphore,
}

/// What one request was given: to be settled or given back. If the request goes away, repair finds what nobody has.
#[must_use]
#[derive(Default)]
pub(crate) struct Held {
    addresses: Vec<Taken>,
    ports: BTreeSet<u16>,
}

impl Held {
    /// Leaves it with the service if that is stored. Nobody knows that of a write that broke off, so it stays taken too.
    pub(crate) async fn settle<T>(
        self,
        context: &Context,
        written: &Result<T>,
        is_stored: impl FnOnce(&T) -> bool,
    ) {
        let kept = match written {
            Ok(written) => is_stored(written),
            Err(error) => error.code.is_server_error(),
        };
        if !kept {
            self.give_back(context).await;
        }
    }

    /// Gives it back: there will be no such service.
    pub(crate) async fn give_back(self, context: &Context) {
        for taken in self.addresses {
            if let Err(error) = taken.give_back(context).await {
                let address = taken.address;
                tracing::warn!(%address, why = error.message, "an address was not given back; it will be later");
            }
        }
        release_ports(context, &self.ports).await;
    }
}

impl Allocator {
    /// Addresses of `base/prefix`.
    pub(crate) fn new(base: IpAddr, prefix: u8) -> Self {
        let network = match base {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                IpAddr::from((u32::from(v4) & mask).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
                IpAddr::from((u128::from(v6) & mask).to_be_bytes())
            }
        };
        Self { own: Range::new(base, prefix), cidr: format!("{network}/{prefix}"), ports: Semaphore::new(1) }
    }

    /// The address of the `kubernetes` service.
    pub(crate) fn first(&self) -> IpAddr {
        self.own.first()
    }

    /// The range of this server, as text.
    pub(crate) fn cidr(&self) -> &str {
        &self.cidr
    }

    /// Until it is this request's turn to change the bitmap of ports.
    async fn turn(&self) -> SemaphorePermit<'_> {
        self.ports.acquire().await.expect("nobody closes the semaphore")
    }
}

/// One request that a service be given what it lacks.
struct Ask<'a> {
    context: &'a Context,
    services: &'a Allocator,
    dry_run: bool,
}

impl Ask<'_> {
    /// Gives a new service its address and its ports.
    async fn assign(&self, service: &mut Value, held: &mut Held) -> Result<()> {
        if service["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        self.give_address(service, held).await?;
        self.give_ports(service, &BTreeSet::new(), held).await
    }

    /// Keeps over an update what the service has, and gives it what it lacks now.
    async fn reassign(&self, new: &mut Value, old: &Value, held: &mut Held) -> Result<()> {
        change::carry_over(new, old);
        change::drop_what_the_type_forbids(new, old);
        if new["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        if !old["spec"]["clusterIP"].is_string() {
            self.give_address(new, held).await?;
        }
        self.give_ports(new, &Grants::of(old).ports, held).await
    }

    async fn give_address(&self, service: &mut Value, held: &mut Held) -> Result<()> {
        let asked = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        if asked == "None" {
            service["spec"]["clusterIPs"] = json!(["None"]);
        } else {
            let taken = self.take_address(service, &asked).await?;
            held.addresses.push(taken);
            service["spec"]["clusterIP"] = taken.address.to_string().into();
            service["spec"]["clusterIPs"] = json!([taken.address.to_string()]);
        }
        let selectorless = service["spec"]["selector"].as_object().is_none_or(serde_json::Map::is_empty);
        if asked == "None" && selectorless {
            // Nobody here picks the endpoints, so they may be of any family.
            for (key, value) in
                [("ipFamilies", json!(["IPv4", "IPv6"])), ("ipFamilyPolicy", json!("RequireDualStack"))]
            {
                if service["spec"][key].is_null() {
                    service["spec"][key] = value;
                }
            }
        }
        if service["spec"]["ipFamilies"].is_null() {
            service["spec"]["ipFamilies"] = json!([addresses::family(self.services.first())]);
        }
        if service["spec"]["ipFamilyPolicy"].is_null() {
            service["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        }
        Ok(())
    }

    async fn take_address(&self, service: &Value, asked: &str) -> Result<Taken> {
        let owner = Owner::of(service);
        let mut ranges = addresses::ranges(self.context, self.services.own);
        if asked.is_empty() {
            let first = self.services.first();
            ranges.retain(|range| range.first().is_ipv4() == first.is_ipv4());
            let taken = addresses::take_any(self.context, &ranges, owner, self.dry_run).await?;
            return taken.ok_or_else(|| {
                let name = &service["metadata"]["name"];
                ApiError::internal(format!(
                    "failed to allocate a serviceIP for Service {name}: range is full"
                ))
            });
        }
        let refuse = |why: &str| {
            let message = format!("Invalid value: [\"{asked}\"]: failed to allocate IP {asked}: {why}");
            refused(service, "spec.clusterIPs", message)
        };
        let address: IpAddr = asked.parse().map_err(|_| refuse("not a valid IP"))?;
        if address.is_ipv4() != self.services.first().is_ipv4() {
            let family = addresses::family(address);
            let message = format!("Invalid value: [\"{asked}\"]: {family} is not configured on this cluster");
            return Err(refused(service, "spec.clusterIPs[0]", message));
        }
        if !ranges.iter().any(|range| range.contains(address)) {
            return Err(refuse("the provided network does not match the current range"));
        }
        match addresses::take(self.context, address, owner, self.dry_run).await {
            Ok(taken) => Ok(taken),
            Err(Denied::Taken) => Err(refuse("provided IP is already allocated")),
            Err(Denied::Failed(error)) => Err(error),
        }
    }

    /// Gives the ports of a service their node ports, all in one change of the bitmap.
    async fn give_ports(&self, service: &mut Value, own: &BTreeSet<u16>, held: &mut Held) -> Result<()> {
        if !lacks_ports(&service["spec"], own) {
            return Ok(());
        }
        let _turn = self.services.turn().await;
        // Each loss is somebody else's change; the request's time bounds them.
        loop {
            let stored = ports::read(self.context).await?;
            let Some(mut taken) = stored.ports.clone() else {
                let message = "the provided range does not match the current range";
                return Err(ApiError::internal(format!("failed to allocate a nodePort: {message}")));
            };
            let mut with = service.clone();
            let given = choose_ports(&mut with, own, &mut taken)?;
            if self.dry_run || given.is_empty() || stored.write(self.context, &taken).await? {
                *service = with;
                if !self.dry_run {
                    held.ports.extend(given);
                }
                return Ok(());
            }
        }
    }
}

/// Whether there is a port to give or to take, beside those that the service has of its own.
fn lacks_ports(spec: &Value, own: &BTreeSet<u16>) -> bool {
    let give = gives_ports(spec);
    let lacks = |port: &Value| node_port(&port["nodePort"]).map_or(give, |port| !own.contains(&port));
    let health = || node_port(&spec["healthCheckNodePort"]).is_none_or(|port| !own.contains(&port));
    has_node_ports(spec) && (ports(spec).iter().any(lacks) || (change::has_health_port(spec) && health()))
}

fn gives_ports(spec: &Value) -> bool {
    spec["allocateLoadBalancerNodePorts"] != json!(false)
}

/// Chooses a node port for every port; ports of one number, for several protocols, share theirs. Returns what is taken.
fn choose_ports(service: &mut Value, own: &BTreeSet<u16>, taken: &mut Ports) -> Result<BTreeSet<u16>> {
    let mut chosen = BTreeSet::new();
    let wanted = ports(&service["spec"]).to_vec();
    let mut given: Vec<(i64, u16)> = Vec::new();
    for (at, port) in wanted.iter().enumerate() {
        let (number, asked) = (port["port"].as_i64().unwrap_or(0), node_port(&port["nodePort"]));
        if asked.is_none() && !gives_ports(&service["spec"]) {
            continue;
        }
        let shared = given.iter().find(|(other, _)| *other == number).map(|(_, port)| *port);
        let later = || {
            wanted[at..].iter().find_map(|other| {
                (other["port"] == port["port"]).then(|| node_port(&other["nodePort"])).flatten()
            })
        };
        let node_port = match (asked, shared) {
            (None, Some(shared)) => shared,
            (Some(asked), Some(shared)) if asked == shared => shared,
            (asked, _) => {
                let field = format!("spec.ports[{at}].nodePort");
                take_port(service, asked.or_else(later), own, taken, &mut chosen, &field)?
            }
        };
        given.push((number, node_port));
        service["spec"]["ports"][at]["nodePort"] = node_port.into();
    }
    if change::has_health_port(&service["spec"]) {
        let asked = node_port(&service["spec"]["healthCheckNodePort"]);
        let port = take_port(service, asked, own, taken, &mut chosen, "spec.healthCheckNodePort")?;
        service["spec"]["healthCheckNodePort"] = port.into();
    }
    Ok(chosen)
}

fn take_port(
    service: &Value,
    asked: Option<u16>,
    own: &BTreeSet<u16>,
    taken: &mut Ports,
    chosen: &mut BTreeSet<u16>,
    field: &str,
) -> Result<u16> {
    if let Some(asked) = asked.filter(|asked| own.contains(asked)) {
        return Ok(asked);
    }
    let port = match asked {
        Some(asked) => {
            let refuse = |why: String| Err(refused(service, field, format!("Invalid value: {asked}: {why}")));
            if !NODE_PORTS.contains(&asked) {
                let (from, to) = (NODE_PORTS.start(), NODE_PORTS.end());
                return refuse(format!(
                    "provided port is not in the valid range. The range of valid ports is {from}-{to}"
                ));
            }
            if taken.contains(asked) {
                return refuse("provided port is already allocated".to_owned());
            }
            asked
        }
        None => {
            taken.free().ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?
        }
    };
    taken.insert(port);
    chosen.insert(port);
    Ok(port)
}

fn refused(service: &Value, field: &str, message: String) -> ApiError {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let error = FieldError { reason: Cause::Invalid, field: field.into(), message };
    ApiError::invalid(builtin::services(), name, &[error])
}

fn ports(spec: &Value) -> &[Value] {
    spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn node_port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| port.try_into().ok()).filter(|port| *port != 0)
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(spec["type"].as_str(), Some("NodePort" | "LoadBalancer"))
}
