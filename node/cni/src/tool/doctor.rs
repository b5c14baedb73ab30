//! Finds what nobody owns any more, says why it is a leak, and removes it on request.
//!
//! An attachment is alive when it is recorded as attached, in the journal or in the cache of results, in this boot and
//! its namespace is still there. Everything else that carries an attachment's name is a leak.

use std::collections::HashSet;
use std::path::PathBuf;

use podwire_linux::netns::Netns;
use podwire_linux::nft::{Family, Table, netfilter};
use podwire_linux::rtnl::Socket;
use serde_json::Value;

use crate::ipam::Store;
use crate::names;
use crate::networks::conflist::{self, Conflist};
use crate::networks::{Attachment, Error, Networks};
use crate::plugins::{host_local, masquerade, portmap};

/// What kind of thing was leaked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A record of an attachment.
    Record,
    /// A reserved address.
    Address,
    /// A link of the host.
    Link,
    /// A rule of the packet filter.
    Rule,
    /// A cached result.
    Cache,
    /// Something that could not be looked at, so that nobody knows.
    Unread,
}

/// One leak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// Which one.
    pub what: String,
    /// Why it is a leak.
    pub why: String,
}

/// All leaks, and what became of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Found at first.
    pub found: Vec<Finding>,
    /// Still there after the repair; the same as found without one.
    pub left: Vec<Finding>,
    /// Whether a repair was made.
    pub repaired: bool,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.found.is_empty() {
            return write!(f, "nothing is leaked");
        }
        for finding in &self.found {
            let state = match (self.repaired, self.left.contains(finding)) {
                _ if finding.kind == Kind::Unread => "not known",
                (false, _) => "leaked",
                (true, false) => "removed",
                (true, true) => "still there",
            };
            writeln!(f, "{state}: {:?} {}: {}", finding.kind, finding.what, finding.why)?;
        }
        write!(f, "{} found, {} left", self.found.len(), self.left.len())
    }
}

/// Looks for leaks, and removes them when `repair` says so.
pub fn doctor(networks: &Networks, repair: bool) -> Result<Report, Error> {
    let found = examine(networks)?;
    if !repair || found.is_empty() {
        return Ok(Report { left: found.clone(), found, repaired: repair });
    }
    // Ignored: what could not be removed is found again below and reported.
    networks.gc_with(|| alive(networks)).ok();
    networks.forget_dead_results(&alive(networks)?)?;
    Ok(Report { left: examine(networks)?, found, repaired: true })
}

fn is_namespace(path: &std::path::Path) -> bool {
    Netns::open(path).is_ok()
}

/// The attachments that are alive.
fn alive(networks: &Networks) -> Result<Vec<Attachment>, Error> {
    let mut found: Vec<Attachment> = networks
        .attachments()?
        .into_iter()
        .map(|(attachment, _)| attachment)
        .filter(|a| is_namespace(&a.netns))
        .collect();
    let pending: HashSet<(String, String)> =
        networks.pending()?.into_iter().map(|pending| (pending.container_id, pending.ifname)).collect();
    found.retain(|a| !pending.contains(&(a.container_id.clone(), a.ifname.clone())));
    for cached in networks.cached()? {
        let known = |a: &Attachment| a.container_id == cached.container_id && a.ifname == cached.ifname;
        let is_pending = pending.contains(&(cached.container_id.clone(), cached.ifname.clone()));
        if !is_pending && !found.iter().any(known) && is_namespace(&cached.netns) {
            found.push(cached);
        }
    }
    Ok(found)
}

fn examine(networks: &Networks) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for pending in networks.pending()? {
        let what = format!("{} {} on {}", pending.container_id, pending.ifname, pending.network);
        findings.push(Finding { kind: Kind::Record, what, why: pending.reason });
    }
    for (attachment, result) in networks.attachments()? {
        if !is_namespace(&attachment.netns) {
            let what = format!("{} {} on {}", attachment.container_id, attachment.ifname, result.network);
            let why = format!("its namespace {} is gone", attachment.netns.display());
            findings.push(Finding { kind: Kind::Record, what, why });
        }
    }
    let alive = alive(networks)?;
    for cached in networks.cached()? {
        if !alive.iter().any(|a| a.container_id == cached.container_id && a.ifname == cached.ifname) {
            let what = format!("{} {}", cached.container_id, cached.ifname);
            findings.push(Finding { kind: Kind::Cache, what, why: "its attachment is not alive".into() });
        }
    }
    for conflist in conflist::load_all(&networks.config.conf_dir) {
        examine_network(&conflist, &alive, &mut findings);
    }
    Ok(findings)
}

fn examine_network(conflist: &Conflist, alive: &[Attachment], findings: &mut Vec<Finding>) {
    for plugin in &conflist.plugins {
        let text = |name: &str| plugin.get(name).and_then(Value::as_str);
        let kind = text("type").unwrap_or_default();
        if let Some(ipam) = plugin.get("ipam").filter(|ipam| ipam["type"] == "host-local") {
            let dir = ipam["dataDir"].as_str().unwrap_or(host_local::DATA_DIR);
            addresses(&PathBuf::from(dir), &conflist.name, alive, findings);
        }
        if matches!(kind, "bridge" | "ptp") {
            let table = text("ipMasqTable").unwrap_or(masquerade::TABLE);
            masquerade_rules(table, &conflist.name, alive, findings);
        }
        if kind == "portmap"
            && let Some(table) = text("nftTable").filter(|table| *table != portmap::nft::TABLE)
        {
            port_rules(table, alive, findings);
        }
    }
    links(&conflist.name, alive, findings);
}

fn unread(what: &str, error: &dyn std::error::Error) -> Finding {
    Finding { kind: Kind::Unread, what: what.to_owned(), why: format!("it cannot be read: {error}") }
}

fn addresses(dir: &std::path::Path, network: &str, alive: &[Attachment], findings: &mut Vec<Finding>) {
    if !dir.join(network).is_dir() {
        return;
    }
    let read = Store::open(dir, network).and_then(|store| store.reservations());
    let reservations = match read {
        Ok(reservations) => reservations,
        Err(error) => return findings.push(unread(&format!("addresses of {network}"), &error)),
    };
    for (ip, owner) in reservations {
        let why = match owner {
            None => "the file names no owner".to_owned(),
            Some(owner) => {
                let known = |a: &Attachment| {
                    a.container_id == owner.container && (owner.ifname.is_empty() || a.ifname == owner.ifname)
                };
                if alive.iter().any(known) {
                    continue;
                }
                format!("its owner {} {} is not attached", owner.container, owner.ifname)
            }
        };
        findings.push(Finding { kind: Kind::Address, what: format!("{ip} of {network}"), why });
    }
}

fn masquerade_rules(table: &str, network: &str, alive: &[Attachment], findings: &mut Vec<Finding>) {
    let of_network = names::masquerade_prefix(network, None);
    let known: Vec<String> =
        alive.iter().map(|a| names::masquerade_prefix(network, Some((&a.ifname, &a.container_id)))).collect();
    rules(Table { family: Family::Inet, name: table }, findings, |comment| {
        comment.starts_with(&of_network) && !known.iter().any(|prefix| comment.starts_with(prefix))
    });
}

fn port_rules(table: &str, alive: &[Attachment], findings: &mut Vec<Finding>) {
    for family in [Family::Ip, Family::Ip6] {
        rules(Table { family, name: table }, findings, |comment| {
            !alive.iter().any(|a| a.container_id == comment)
        });
    }
}

fn rules(table: Table<'_>, findings: &mut Vec<Finding>, leaked: impl Fn(&str) -> bool) {
    let found = match netfilter().and_then(|mut socket| socket.nft_rules(table, None)) {
        Ok(found) => found,
        // A table that was never made has no rules.
        Err(error) if error.is_absent() => return,
        Err(error) => return findings.push(unread(&format!("rules of table {}", table.name), &error)),
    };
    for rule in found {
        let Some(comment) = rule.comment.filter(|comment| leaked(comment)) else { continue };
        findings.push(Finding {
            kind: Kind::Rule,
            what: format!("{} in {} {}", rule.handle, table.name, rule.chain),
            why: format!("its owner is not attached: {comment}"),
        });
    }
}

fn links(network: &str, alive: &[Attachment], findings: &mut Vec<Finding>) {
    let found = match Socket::route().and_then(|mut socket| socket.links()) {
        Ok(found) => found,
        Err(error) => return findings.push(unread("links of the node", &error)),
    };
    let ours = format!("cni {network} ");
    for link in found {
        let Some(owner) = link.alias.as_deref().and_then(|alias| alias.strip_prefix(&ours)) else { continue };
        if !alive.iter().any(|a| format!("{} {}", a.container_id, a.ifname) == owner) {
            let why = format!("its owner {owner} is not attached");
            findings.push(Finding { kind: Kind::Link, what: link.name, why });
        }
    }
}
