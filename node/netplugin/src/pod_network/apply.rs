//! Carries the steps of a PodNetwork out in a pod's network namespace, and takes them back if one fails.
//!
//! Blocking: a namespace belongs to a thread. What is there already as it shall be is left, so that a second attempt at the
//! same pod is the same as the first.

use std::path::Path;

use podwire_linux::nft::{Base, Family, Hook, Table, Transaction, expr::Expr};
use podwire_linux::rtnl::{self, Batch, LinkChange, LinkRef, Neighbour, NewAddress, Socket};
use podwire_linux::{netns, sysctl};

use super::MESH_TABLE;
use super::mesh::Redirection;
use super::plan::{Facts, Step, steps};
use super::spec::{Mistake, PodNetwork};

/// Why a PodNetwork is not in a pod.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object, or the pod for it.
    #[error("the PodNetwork cannot be applied")]
    Mistake(#[from] Mistake),
    /// The namespace.
    #[error("enter the pod's network namespace")]
    Namespace(#[from] netns::Error),
    /// What the pod has could not be read.
    #[error("look at the pod's network")]
    Look(#[source] rtnl::Error),
    /// A step; those before it were taken back.
    #[error("{what}{}", undone.as_ref().map(|error| format!(" (and then: {error})")).unwrap_or_default())]
    Step {
        /// Which one.
        what: String,
        /// Why.
        source: StepError,
        /// What could not be taken back afterwards.
        undone: Option<String>,
    },
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Links, addresses, neighbours, routes, rules, tables.
    #[error(transparent)]
    Netlink(#[from] rtnl::Error),
    /// Settings.
    #[error(transparent)]
    Sysctl(#[from] sysctl::Error),
}

/// What was done, to be taken back in reverse.
enum Done {
    Nothing,
    Batch(Box<dyn FnOnce(&mut Batch) + Send>),
    Sysctl(String, String),
    Mesh,
}

/// Brings a PodNetwork about in the pod at `path`; what was done, in words.
pub fn apply(path: &Path, network: &PodNetwork) -> Result<Vec<String>, Error> {
    netns::Netns::open(path)?.run(|| inside(network))?
}

fn look(network: &PodNetwork) -> Result<Facts, rtnl::Error> {
    let mut socket = Socket::route()?;
    let Some(link) = socket.link(LinkRef::Name(&network.interface))? else { return Ok(Facts::default()) };
    let addresses = socket.addresses(link.index)?.into_iter().filter(|one| one.scope == 0).map(|one| one.net);
    let addresses = addresses.collect();
    let mut gateways = Vec::new();
    for v6 in [false, true] {
        let routes = socket.routes(Some(link.index), v6)?;
        gateways.extend(
            routes.iter().filter(|one| one.destination.prefix_len() == 0).filter_map(|one| one.gateway),
        );
    }
    Ok(Facts { interface: Some((link.index, link.mtu)), addresses, gateways })
}

fn inside(network: &PodNetwork) -> Result<Vec<String>, Error> {
    let facts = look(network).map_err(Error::Look)?;
    let steps = steps(network, &facts)?;
    let mut socket = Socket::route().map_err(Error::Look)?;
    let mut done = Vec::new();
    for step in &steps {
        match carry_out(&mut socket, step) {
            Ok(one) => done.push(one),
            Err(source) => {
                let undone = take_back(&mut socket, done);
                return Err(Error::Step { what: words(step), source, undone });
            }
        }
    }
    Ok(steps.iter().map(words).collect())
}

/// A step for people.
fn words(step: &Step) -> String {
    match step {
        Step::Mtu { mtu, .. } => format!("mtu {mtu}"),
        Step::Sysctl { key, value } => format!("sysctl {}={value}", key.replace('/', ".")),
        Step::Address { net, .. } => format!("address {net}"),
        Step::Neighbour { ip, mac, .. } => format!("neighbor {ip} {mac}"),
        Step::Route(route) => {
            let via = route.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            let table = route.table.map(|table| format!(" table {table}")).unwrap_or_default();
            format!("route {}{via}{table}", route.destination)
        }
        Step::Rule(rule) => format!("rule {} table {}", rule.priority, rule.table),
        Step::Mesh(mesh) => format!("mesh redirection ({} rules)", mesh.inbound.len() + mesh.outbound.len()),
    }
}

/// Adds what may be there already.
fn add(
    socket: &mut Socket,
    build: impl FnOnce(&mut Batch),
    undo: impl FnOnce(&mut Batch) + Send + 'static,
) -> Result<Done, StepError> {
    let mut batch = Batch::new();
    build(&mut batch);
    match socket.exchange(&mut batch) {
        Ok(_) => Ok(Done::Batch(Box::new(undo))),
        Err(error) if error.is_present() => Ok(Done::Nothing),
        Err(error) => Err(error.into()),
    }
}

fn carry_out(socket: &mut Socket, step: &Step) -> Result<Done, StepError> {
    match step.clone() {
        Step::Mtu { link, mtu, before } => {
            let set = move |batch: &mut Batch, mtu| {
                let change = LinkChange { mtu: Some(mtu), ..LinkChange::default() };
                batch.set_link(LinkRef::Index(link), &change);
            };
            add(socket, |batch| set(batch, mtu), move |batch| set(batch, before))
        }
        Step::Sysctl { key, value } => {
            let before = sysctl::read(&key)?;
            sysctl::write(&key, &value)?;
            Ok(Done::Sysctl(key, before))
        }
        Step::Address { link, net } => {
            let new = NewAddress { link, net, no_dad: true, broadcast: true };
            add(socket, |batch| batch.add_address(&new), move |batch| batch.del_address(link, net))
        }
        Step::Neighbour { link, ip, mac } => {
            let new = Neighbour { link, ip, mac };
            add(socket, |batch| batch.set_neighbour(&new), move |batch| batch.del_neighbour(link, ip))
        }
        Step::Route(route) => {
            add(socket, |batch| batch.add_route(&route), move |batch| batch.del_route(&route))
        }
        Step::Rule(rule) => add(socket, |batch| batch.add_rule(&rule), move |batch| batch.del_rule(&rule)),
        Step::Mesh(mesh) => {
            redirect(&mesh)?;
            Ok(Done::Mesh)
        }
    }
}

const TABLE: Table<'static> = Table { family: Family::Inet, name: MESH_TABLE };
/// Where destinations are rewritten.
const DSTNAT: i32 = -100;

fn redirect(mesh: &Redirection) -> Result<(), rtnl::Error> {
    let mut change = Transaction::new();
    // Whatever an earlier attempt left goes in the same transaction.
    change.add_table(TABLE, None);
    change.delete_table(TABLE);
    change.add_table(TABLE, None);
    let mut chain = |name: &str, hook, rules: &[Vec<Expr>]| {
        if !rules.is_empty() {
            change.add_chain(TABLE, name, Some(Base { kind: "nat", hook, priority: DSTNAT, drop: false }));
            rules.iter().for_each(|rule| change.add_rule(TABLE, name, rule, None));
        }
    };
    chain("inbound", Hook::Prerouting, &mesh.inbound);
    chain("outbound", Hook::Output, &mesh.outbound);
    change.commit(&mut Socket::netfilter()?)
}

/// The first thing that could not be taken back.
fn take_back(socket: &mut Socket, done: Vec<Done>) -> Option<String> {
    let mut first: Option<String> = None;
    for one in done.into_iter().rev() {
        let result = match one {
            Done::Nothing => Ok(()),
            Done::Batch(undo) => {
                let mut batch = Batch::new();
                undo(&mut batch);
                socket.exchange(&mut batch).map(drop).map_err(|error| error.to_string())
            }
            Done::Sysctl(key, before) => sysctl::write(&key, &before).map_err(|error| error.to_string()),
            Done::Mesh => {
                let mut change = Transaction::new();
                change.delete_table(TABLE);
                let committed = Socket::netfilter().and_then(|mut socket| change.commit(&mut socket));
                committed.map_err(|error| error.to_string())
            }
        };
        first = first.or(result.err());
    }
    first
}
