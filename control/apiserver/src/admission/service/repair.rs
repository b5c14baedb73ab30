//! Sets right what is given out, at the start and every few minutes: services from before addresses and ports were written
//! down, and what a server has taken that ended before its service was stored.
//!
//! Every server does this, as upstream's do. What nobody seems to have may be on its way, so it is taken back only when
//! that was seen several times. One task ([`Repair::run`]): in, the cached services and addresses; out, writes to the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use podwire_api::{Kind, builtin};
use podwire_store::Revision;
use serde_json::Value;

use super::addresses::{self, Denied, Owner};
use super::ports::{self, Ports};
use super::ranges::Range;
use super::{Grants, node_port};
use crate::cache::Scope;
use crate::context::{self, Context};
use crate::status::{ApiError, Result};

/// A port that nobody has is free after so many rounds.
const PORT_ROUNDS: u8 = 3;
/// An address; a request takes less time than there is between two rounds.
const ADDRESS_ROUNDS: u8 = 1;
/// A bitmap that others write to is written again so often.
const ATTEMPTS: usize = 20;

/// What nobody seems to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Suspect {
    Address(IpAddr, Revision),
    Port(u16),
}

/// How often each was seen.
type Suspects = HashMap<Suspect, u8>;

/// Looks what is given out and to whom.
pub(crate) struct Repair {
    every: Duration,
    suspects: Suspects,
}

/// What is to be done about an address.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    /// A service has it, and it is not written down.
    Create { address: IpAddr, owner: Owner<'a> },
    /// It is written down for somebody who does not have it.
    Replace { address: IpAddr, seen: Revision, owner: Owner<'a> },
    /// Nobody has it.
    Doubt { address: IpAddr, seen: Revision },
}

/// Addresses by what is written down.
type Written = BTreeMap<IpAddr, (Value, Revision)>;

/// What follows from the services and the addresses of a moment.
fn plan<'a>(services: &'a [Value], written: &Written, ranges: &[Range]) -> Vec<Step<'a>> {
    let mut held: BTreeMap<IpAddr, Vec<Owner<'a>>> = BTreeMap::new();
    for service in services {
        for address in Grants::of(service).addresses {
            held.entry(address).or_default().push(Owner::of(service));
        }
    }
    let mut steps = Vec::new();
    for (address, owners) in &held {
        let (address, Some(owner)) = (*address, owners.first().copied()) else { continue };
        if owners.len() > 1 {
            tracing::error!(%address, ?owners, "an address belongs to several services; make all but one anew");
        }
        if !ranges.iter().any(|range| range.contains(address)) {
            tracing::warn!(%address, ?owner, "the address of a service is in no range; make the service anew");
            continue;
        }
        match written.get(&address) {
            None => steps.push(Step::Create { address, owner }),
            Some((object, seen)) => {
                let right = Owner::said_by(object).is_some_and(|said| owners.contains(&said));
                if !right || !addresses::is_labelled(object, address) {
                    steps.push(Step::Replace { address, seen: *seen, owner });
                }
            }
        }
    }
    let orphans = written
        .iter()
        .filter(|(address, (object, _))| addresses::is_given(object) && !held.contains_key(address));
    steps.extend(orphans.map(|(address, (_, seen))| Step::Doubt { address: *address, seen: *seen }));
    steps
}

/// The ports that are taken: those of services, and those that nobody has for less than so many rounds.
fn rebuilt(services: &[Value], stored: Option<&Ports>, before: &Suspects) -> (Ports, Suspects) {
    let (mut taken, mut suspects) = (Ports::default(), Suspects::new());
    for service in services {
        let mut own = BTreeSet::new();
        let spec = &service["spec"];
        let ports = super::ports(spec).iter().map(|port| &port["nodePort"]);
        for port in ports.chain([&spec["healthCheckNodePort"]]).filter_map(node_port) {
            if own.insert(port) && !taken.insert(port) {
                let owner = Owner::of(service);
                tracing::error!(
                    port,
                    ?owner,
                    "a node port is out of range or another's too; make the service anew"
                );
            }
        }
    }
    let leaked: Vec<u16> =
        stored.into_iter().flat_map(Ports::iter).filter(|port| !taken.contains(*port)).collect();
    for port in leaked {
        let rounds = before.get(&Suspect::Port(port)).copied().unwrap_or(0);
        if rounds < PORT_ROUNDS {
            suspects.insert(Suspect::Port(port), rounds + 1);
            taken.insert(port);
        } else {
            tracing::warn!(port, "nobody has a node port that was taken; it is free again");
        }
    }
    (taken, suspects)
}

impl Repair {
    /// A round every so often.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, suspects: Suspects::new() }
    }

    /// Rounds until the server ends; the first one was made at its start.
    pub(crate) async fn run(mut self, context: Arc<Context>) {
        loop {
            tokio::select! {
                biased;
                () = context.shutdown.cancelled() => return,
                () = tokio::time::sleep(self.every) => {}
            }
            if let Err(error) = self.round(&context).await {
                tracing::warn!(why = error.message, "what services hold was not looked through; later again");
            }
        }
    }

    /// One look at all that is given out.
    pub(crate) async fn round(&mut self, context: &Context) -> Result<()> {
        let mut suspects = self.addresses(context).await?;
        suspects.extend(self.ports(context).await?);
        self.suspects = suspects;
        Ok(())
    }

    async fn addresses(&self, context: &Context) -> Result<Suspects> {
        let services: Vec<Value> =
            cached(context, builtin::services()).into_iter().map(|(value, _)| value).collect();
        let written =
            cached(context, builtin::ip_addresses()).into_iter().filter_map(|(object, revision)| {
                let address: IpAddr = object["metadata"]["name"].as_str()?.parse().ok()?;
                Some((address, (object, revision)))
            });
        let ranges = addresses::ranges(context, context.services.own);
        let mut suspects = Suspects::new();
        for step in plan(&services, &written.collect(), &ranges) {
            match step {
                Step::Create { address, owner } => create(context, address, owner).await?,
                Step::Replace { address, seen, owner } => {
                    addresses::forget(context, address, seen).await?;
                    create(context, address, owner).await?;
                }
                Step::Doubt { address, seen } => {
                    let suspect = Suspect::Address(address, seen);
                    let rounds = self.suspects.get(&suspect).copied().unwrap_or(0);
                    if rounds < ADDRESS_ROUNDS {
                        suspects.insert(suspect, rounds + 1);
                    } else {
                        forget(context, address, seen).await?;
                    }
                }
            }
        }
        Ok(suspects)
    }

    async fn ports(&self, context: &Context) -> Result<Suspects> {
        let _turn = context.services.turn().await;
        let kind = builtin::services();
        for _ in 0..ATTEMPTS {
            // The services are read after the bitmap: whose port is not in it then has got it since, and the write fails.
            let stored = ports::read(context).await?;
            let listing = context.store.list(&kind.storage_prefix, None, None, None).await?;
            let services: Result<Vec<Value>> =
                listing.items.iter().map(|kv| context::read(kind, kv)).collect();
            let (ports, suspects) = rebuilt(&services?, stored.ports.as_ref(), &self.suspects);
            if stored.ports.as_ref() == Some(&ports) || stored.write(context, &ports).await? {
                return Ok(suspects);
            }
        }
        Err(ApiError::unavailable("others write to the bitmap of node ports all the time"))
    }
}

fn cached(context: &Context, kind: &Kind) -> Vec<(Value, Revision)> {
    let scope = Scope { prefix: kind.storage_prefix.to_string(), node: None, key: None };
    let entries = context.caches.of(kind).snapshot(&scope).entries;
    entries.iter().map(|entry| (entry.decode(kind), entry.revision)).collect()
}

async fn create(context: &Context, address: IpAddr, owner: Owner<'_>) -> Result<()> {
    match addresses::take(context, address, owner, false).await {
        Ok(_) => {
            tracing::info!(%address, ?owner, "the address of a service was not written down");
            Ok(())
        }
        // By somebody who repairs too, or it was given since the look.
        Err(Denied::Taken) => Ok(()),
        Err(Denied::Failed(error)) => Err(error),
    }
}

/// Takes an address back that no service has, as the store says.
async fn forget(context: &Context, address: IpAddr, seen: Revision) -> Result<()> {
    let Some((object, revision)) = addresses::stored(context, address).await? else { return Ok(()) };
    if let Some(owner) = Owner::said_by(&object) {
        match context.object(builtin::services(), owner.namespace, owner.name).await {
            Ok(service) if Grants::of(&service).addresses.contains(&address) => return Ok(()),
            Err(error) if error.code != http::StatusCode::NOT_FOUND => return Err(error),
            _ => {}
        }
    }
    if revision == seen {
        tracing::warn!(%address, "no service has an address that was taken; it is free again");
        addresses::forget(context, address, seen).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, address: &str) -> Value {
        json!({"metadata": {"namespace": "d", "name": name}, "spec": {"clusterIP": address, "clusterIPs": [address]}})
    }

    fn address(text: &str, name: &str, giver: &str) -> (IpAddr, (Value, Revision)) {
        let labels =
            json!({"ipaddress.kubernetes.io/managed-by": giver, "ipaddress.kubernetes.io/ip-family": "IPv4"});
        let parent = json!({"resource": "services", "namespace": "d", "name": name});
        let object = json!({"metadata": {"name": text, "labels": labels}, "spec": {"parentRef": parent}});
        (text.parse().unwrap(), (object, 7))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_service_has_its_address_and_an_address_its_service() {
        let services = ["a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.3", "far 10.9.9.9", "none None"].map(|text| {
            let (name, address) = text.split_once(' ').unwrap();
            service(name, address)
        });
        let written = Written::from([
            address("10.0.0.1", "a", addresses::GIVER),
            address("10.0.0.3", "somebody", addresses::GIVER),
            address("10.0.0.4", "gone", addresses::GIVER),
            address("10.0.0.5", "gateway", "example.com"),
        ]);
        let ranges = [Range::parse("10.0.0.0/24").unwrap()];
        let owner = |name| Owner { namespace: "d", name };
        let expected = [
            Step::Create { address: ip("10.0.0.2"), owner: owner("b") },
            Step::Replace { address: ip("10.0.0.3"), seen: 7, owner: owner("c") },
            Step::Doubt { address: ip("10.0.0.4"), seen: 7 },
        ];
        assert_eq!(plan(&services, &written, &ranges), expected);
        let mut wrong = address("10.0.0.1", "a", addresses::GIVER);
        wrong.1.0["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"] = "IPv6".into();
        let written = Written::from([wrong]);
        let steps = plan(&services[..1], &written, &ranges);
        assert_eq!(steps, [Step::Replace { address: ip("10.0.0.1"), seen: 7, owner: owner("a") }]);
    }

    #[test]
    fn a_port_that_nobody_has_is_free_after_some_rounds_and_one_in_use_is_always_taken() {
        let spec =
            json!({"ports": [{"nodePort": 30_001}, {"nodePort": 30_001}], "healthCheckNodePort": 30_002});
        let services = [json!({"metadata": {"name": "a"}, "spec": spec})];
        let (ports, suspects) = rebuilt(&services, None, &Suspects::new());
        assert_eq!((ports.iter().collect::<Vec<_>>(), suspects.len()), (vec![30_001, 30_002], 0));
        let mut stored = ports;
        stored.insert(30_009);
        let mut suspects = Suspects::new();
        for _ in 0..PORT_ROUNDS {
            let (ports, next) = rebuilt(&services, Some(&stored), &suspects);
            assert_eq!(ports, stored, "it may be on its way");
            suspects = next;
        }
        let (ports, suspects) = rebuilt(&services, Some(&stored), &suspects);
        assert_eq!((ports.iter().collect::<Vec<_>>(), suspects.len()), (vec![30_001, 30_002], 0));
    }
}
