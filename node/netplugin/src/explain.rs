//! What the kernel's table says about a connection, in words.
//!
//! Read from the kernel, not from anybody's plan: what is explained is what happens.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use crate::links::Links;
use crate::plan::evaluate::{Flow, Judgement, judge};
use crate::plan::known;
use crate::plan::tables::{Family, Key};
use crate::policy::{Direction, SCTP, TCP, UDP};
use crate::table::{Error, Frame, Listing, Table};

/// What becomes of a connection on one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Side {
    /// Policies of this node were asked.
    Judged(Judgement),
    /// This machine itself is never asked, so that it reaches its pods.
    Node,
    /// No pod of this node: another node decides, or nobody.
    Elsewhere,
}

/// What becomes of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The connection.
    pub flow: Flow,
    /// Where it leaves.
    pub egress: Side,
    /// Where it enters.
    pub ingress: Side,
}

impl Explanation {
    /// Nobody on this node forbids it.
    pub fn allowed(&self) -> bool {
        let passes = |side: &Side| !matches!(side, Side::Judged(judgement) if !judgement.allowed);
        passes(&self.egress) && passes(&self.ingress)
    }
}

/// Explains a connection by the table of this name.
pub fn explain(table: &str, flow: Flow) -> Result<Explanation, Error> {
    let frame = Frame { families: Vec::new(), floor: Vec::new(), links: Vec::new() };
    let listing = Table::open(table, frame)?.list()?;
    // Ignored: without them the node's own packets are explained as somebody else's.
    let own = Links::default().own_addresses().unwrap_or_default();
    Ok(explain_by(&listing, &own, flow))
}

fn explain_by(listing: &Listing, own: &HashSet<IpAddr>, flow: Flow) -> Explanation {
    let side = |ip: IpAddr, direction| {
        let of_pods = listing.floor.iter().any(|net| net.contains(&ip));
        if own.contains(&ip) {
            Side::Node
        } else if !of_pods && !listing.tables.holds(&known(Family::of(ip)), Key::Address(ip)) {
            Side::Elsewhere
        } else {
            Side::Judged(judge(&listing.tables, &listing.floor, flow, direction))
        }
    };
    let egress = side(flow.source, Direction::Egress);
    let ingress = match egress {
        Side::Node => Side::Node,
        _ => side(flow.destination, Direction::Ingress),
    };
    Explanation { flow, egress, ingress }
}

/// A port with its protocol as people write it.
pub fn port_text(flow: Flow) -> String {
    let protocol = match flow.protocol {
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        SCTP => "SCTP".to_owned(),
        1 | 58 => "ICMP".to_owned(),
        other => format!("protocol {other}"),
    };
    match flow.port {
        Some(port) => format!("{port}/{protocol}"),
        None => protocol,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flow { source, destination, .. } = self.flow;
        let verdict = if self.allowed() { "allowed" } else { "denied" };
        writeln!(f, "{verdict}: {source} to {destination}, {}", port_text(self.flow))?;
        for (direction, ip, side) in
            [(Direction::Egress, source, &self.egress), (Direction::Ingress, destination, &self.ingress)]
        {
            match side {
                Side::Judged(Judgement { allowed, reason, .. }) => {
                    let verdict = if *allowed { "allowed" } else { "denied" };
                    writeln!(f, "  {direction} of {ip}: {verdict} by {reason}")?;
                }
                Side::Node => writeln!(f, "  {direction} of {ip}: this node itself is never asked")?,
                Side::Elsewhere => writeln!(f, "  {direction} of {ip}: no pod of this node")?,
            }
        }
        Ok(())
    }
}
