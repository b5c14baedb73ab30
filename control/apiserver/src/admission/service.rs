//! Addresses and node ports of services, given out from their ranges.
//!
//! What a request is given is [`Held`] until the service is stored: a creation that is refused, that loses a race or that
//! is only a trial gives it back.

mod change;

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use podwire_api::validate::{Cause, FieldError};
use podwire_api::{Kind, builtin};
use serde_json::{Value, json};

use super::Request;
use crate::cache::Scope;
use crate::context::Context;
use crate::handler::create;
use crate::status::{ApiError, Result};

/// Ports that a service may have on every node.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;
/// The first of them that is given to those who ask for none in particular, while there are any from here on.
const FIRST_DYNAMIC: u16 = 30_086;

/// What services hold, all of them or one.
#[derive(Clone, Debug, Default)]
struct Grants {
    addresses: HashSet<IpAddr>,
    ports: HashSet<u16>,
}

impl Grants {
    /// What a service holds.
    fn of(service: &Value) -> Self {
        let spec = &service["spec"];
        let address = spec["clusterIP"].as_str().and_then(|text| text.parse().ok());
        let health = node_port(&spec["healthCheckNodePort"]);
        let ports = ports(spec).iter().filter_map(|port| node_port(&port["nodePort"]));
        Self { addresses: address.into_iter().collect(), ports: ports.chain(health).collect() }
    }

    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.ports.is_empty()
    }

    fn add(&mut self, other: &Grants) {
        self.addresses.extend(&other.addresses);
        self.ports.extend(&other.ports);
    }

    fn remove(&mut self, other: &Grants) {
        self.addresses.retain(|address| !other.addresses.contains(address));
        self.ports.retain(|port| !other.ports.contains(port));
    }
}

/// Gives a service that is created or changed what it lacks.
pub(crate) fn hold<'a>(context: &'a Context, request: &Request<'_>, object: &mut Value) -> Result<Held<'a>> {
    let services = &context.services;
    if !request.is_whole("", "Service") {
        return Ok(services.nothing());
    }
    match request.old {
        Some(old) => services.reassign(context, object, old),
        None => services.assign(context, object),
    }
}

/// Gives back what a removed object held.
pub(crate) fn deleted(context: &Context, kind: &Kind, object: &Value) {
    if kind.is("", "Service") {
        context.services.release(object);
    }
}

/// Gives back what a changed object holds no more.
pub(crate) fn changed(context: &Context, kind: &Kind, new: &Value, old: &Value) {
    if kind.is("", "Service") {
        context.services.changed(new, old);
    }
}

/// Gives out cluster addresses and node ports; what is taken is read from the stored services at first use.
pub(crate) struct Allocator {
    base: IpAddr,
    prefix: u8,
    taken: Mutex<Option<Grants>>,
}

/// What one request was given; it goes back unless it is kept.
#[must_use]
pub(crate) struct Held<'a> {
    allocator: &'a Allocator,
    grants: Grants,
}

impl Held<'_> {
    /// Leaves it with the service if that is stored. Nobody knows that of a write that broke off, so it stays taken too.
    pub(crate) fn settle<T>(mut self, written: &Result<T>, is_stored: impl FnOnce(&T) -> bool) {
        let kept = match written {
            Ok(written) => is_stored(written),
            Err(error) => error.code.is_server_error(),
        };
        if kept {
            self.grants = Grants::default();
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.allocator.give_back(&self.grants);
    }
}

impl Allocator {
    /// Addresses of `base/prefix`.
    pub(crate) fn new(base: IpAddr, prefix: u8) -> Self {
        Self { base, prefix, taken: Mutex::new(None) }
    }

    /// The address of the `kubernetes` service.
    pub(crate) fn first(&self) -> IpAddr {
        self.nth(1)
    }

    fn nth(&self, n: u32) -> IpAddr {
        match self.base {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix.min(32))).unwrap_or(0);
                IpAddr::from(((u32::from(v4) & mask) + n).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix.min(128))).unwrap_or(0);
                IpAddr::from(((u128::from(v6) & mask) + u128::from(n)).to_be_bytes())
            }
        }
    }

    fn size(&self) -> u32 {
        let bits = if self.base.is_ipv4() { 32 } else { 128 } - self.prefix.min(128);
        1_u32.checked_shl(u32::from(bits.min(16))).unwrap_or(1 << 16)
    }

    /// Nothing yet.
    fn nothing(&self) -> Held<'_> {
        Held { allocator: self, grants: Grants::default() }
    }

    /// Gives a new service its address and its ports.
    fn assign(&self, context: &Context, service: &mut Value) -> Result<Held<'_>> {
        let mut held = self.nothing();
        if service["spec"]["type"] != "ExternalName" {
            self.assign_address(context, service, &mut held)?;
            self.assign_ports(context, service, &Grants::default(), &mut held)?;
        }
        Ok(held)
    }

    /// Keeps over an update what the service has, and gives it what it lacks now.
    fn reassign(&self, context: &Context, new: &mut Value, old: &Value) -> Result<Held<'_>> {
        let mut held = self.nothing();
        change::carry_over(new, old);
        change::drop_what_the_type_forbids(new, old);
        if new["spec"]["type"] == "ExternalName" {
            return Ok(held);
        }
        if !old["spec"]["clusterIP"].is_string() {
            self.assign_address(context, new, &mut held)?;
        }
        self.assign_ports(context, new, &Grants::of(old), &mut held)?;
        Ok(held)
    }

    fn assign_address(&self, context: &Context, service: &mut Value, held: &mut Held<'_>) -> Result<()> {
        let asked = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        if asked == "None" {
            service["spec"]["clusterIPs"] = json!(["None"]);
        } else {
            let address = self.take_address(context, service, &asked)?;
            held.grants.addresses.insert(address);
            service["spec"]["clusterIP"] = address.to_string().into();
            service["spec"]["clusterIPs"] = json!([address.to_string()]);
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
            service["spec"]["ipFamilies"] = json!([if self.base.is_ipv4() { "IPv4" } else { "IPv6" }]);
        }
        if service["spec"]["ipFamilyPolicy"].is_null() {
            service["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        }
        Ok(())
    }

    /// Gives every port its node port; ports of one number, for several protocols, share theirs.
    fn assign_ports(
        &self,
        context: &Context,
        service: &mut Value,
        own: &Grants,
        held: &mut Held<'_>,
    ) -> Result<()> {
        if !has_node_ports(&service["spec"]) {
            return Ok(());
        }
        let give = service["spec"]["allocateLoadBalancerNodePorts"] != json!(false);
        let wanted = ports(&service["spec"]).to_vec();
        let mut given: Vec<(i64, u16)> = Vec::new();
        for (at, port) in wanted.iter().enumerate() {
            let (number, asked) = (port["port"].as_i64().unwrap_or(0), node_port(&port["nodePort"]));
            if asked.is_none() && !give {
                continue;
            }
            let shared = given.iter().find(|(other, _)| *other == number).map(|(_, port)| *port);
            let later = || {
                wanted[at..].iter().find_map(|other| {
                    (other["port"] == port["port"]).then(|| node_port(&other["nodePort"])).flatten()
                })
            };
            let chosen = match (asked, shared) {
                (None, Some(shared)) => shared,
                (Some(asked), Some(shared)) if asked == shared => shared,
                (asked, _) => {
                    let asked = asked.or_else(later);
                    let field = format!("spec.ports[{at}].nodePort");
                    self.take_port(context, service, asked, own, held, &field)?
                }
            };
            given.push((number, chosen));
            service["spec"]["ports"][at]["nodePort"] = chosen.into();
        }
        if change::has_health_port(&service["spec"]) {
            let asked = node_port(&service["spec"]["healthCheckNodePort"]);
            let port = self.take_port(context, service, asked, own, held, "spec.healthCheckNodePort")?;
            service["spec"]["healthCheckNodePort"] = port.into();
        }
        Ok(())
    }

    fn taken(&self) -> MutexGuard<'_, Option<Grants>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_address(&self, context: &Context, service: &Value, asked: &str) -> Result<IpAddr> {
        let mut guard = self.taken();
        let taken = &mut guard.get_or_insert_with(|| stored(context)).addresses;
        if asked.is_empty() {
            let free = (10..self.size().saturating_sub(1)).map(|n| self.nth(n)).find(|a| !taken.contains(a));
            let address =
                free.ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
            taken.insert(address);
            return Ok(address);
        }
        let refuse = |why: &str| {
            let message = format!("Invalid value: [\"{asked}\"]: failed to allocate IP {asked}: {why}");
            refused(service, "spec.clusterIPs", message)
        };
        let address: IpAddr = asked.parse().map_err(|_| refuse("not a valid IP"))?;
        if !taken.insert(address) {
            return Err(refuse("provided IP is already allocated"));
        }
        Ok(address)
    }

    fn take_port(
        &self,
        context: &Context,
        service: &Value,
        asked: Option<u16>,
        own: &Grants,
        held: &mut Held<'_>,
        field: &str,
    ) -> Result<u16> {
        if let Some(asked) = asked.filter(|asked| own.ports.contains(asked)) {
            return Ok(asked);
        }
        let mut guard = self.taken();
        let taken = &mut guard.get_or_insert_with(|| stored(context)).ports;
        let port = match asked {
            Some(asked) => {
                let refuse =
                    |why: String| Err(refused(service, field, format!("Invalid value: {asked}: {why}")));
                if !NODE_PORTS.contains(&asked) {
                    let (from, to) = (NODE_PORTS.start(), NODE_PORTS.end());
                    return refuse(format!(
                        "provided port is not in the valid range. The range of valid ports is {from}-{to}"
                    ));
                }
                if taken.contains(&asked) {
                    return refuse("provided port is already allocated".to_owned());
                }
                asked
            }
            None => free_port(taken)
                .ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?,
        };
        taken.insert(port);
        held.grants.ports.insert(port);
        Ok(port)
    }

    /// Takes back what a removed service held.
    fn release(&self, service: &Value) {
        self.give_back(&Grants::of(service));
    }

    /// Takes back what a changed service holds no more.
    fn changed(&self, new: &Value, old: &Value) {
        let mut gone = Grants::of(old);
        gone.remove(&Grants::of(new));
        self.give_back(&gone);
    }

    fn give_back(&self, grants: &Grants) {
        // Most requests were given nothing.
        if grants.is_empty() {
            return;
        }
        if let Some(taken) = self.taken().as_mut() {
            taken.remove(grants);
        }
    }
}

/// A port that nobody has, not the one that was given back last.
fn free_port(taken: &HashSet<u16>) -> Option<u16> {
    let dynamic = FIRST_DYNAMIC..=*NODE_PORTS.end();
    let start = FIRST_DYNAMIC + create::random_number() % (NODE_PORTS.end() - FIRST_DYNAMIC);
    let from_there = (start..=*NODE_PORTS.end()).chain(dynamic).chain(NODE_PORTS);
    from_there.into_iter().find(|port| !taken.contains(port))
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

fn stored(context: &Context) -> Grants {
    let services = builtin::services();
    let scope = Scope { prefix: services.storage_prefix.to_string(), node: None, key: None };
    let mut all = Grants::default();
    for entry in context.caches.of(services).snapshot(&scope).entries {
        all.add(&Grants::of(&entry.decode(services)));
    }
    all
}
