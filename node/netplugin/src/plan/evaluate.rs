//! What the table says about a connection: the walk that the kernel does, done on values.
//!
//! For explanations, and to find connections that a change of policies has cut. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use podwire_linux::nft::Verdict;

use super::groups::maps_of;
use super::inside::entry;
use super::known;
use super::tables::{Chain, Family, Key, Match, Side, Tables};
use crate::policy::Direction;

/// A connection that somebody begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Who begins it.
    pub source: IpAddr,
    /// Who answers, after services were resolved.
    pub destination: IpAddr,
    /// Transport protocol.
    pub protocol: u8,
    /// The port that answers, if the protocol has such.
    pub port: Option<u16>,
}

/// What becomes of it on one side, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// It passes.
    pub allowed: bool,
    /// By which rule.
    pub reason: String,
    /// The chains it passed, outermost first.
    pub path: Vec<String>,
}

/// What a table says of one direction; `floor` are the blocks in which only known addresses may speak.
pub fn judge(tables: &Tables, floor: &[IpNet], flow: Flow, direction: Direction) -> Judgement {
    let subject = match direction {
        Direction::Ingress => flow.destination,
        Direction::Egress => flow.source,
    };
    let family = Family::of(subject);
    if Family::of(flow.source) != Family::of(flow.destination) {
        return judged(false, "addresses of two families", Vec::new());
    }
    let of_pods = floor.iter().any(|net| net.contains(&subject));
    if of_pods && !tables.holds(&known(family), Key::Address(subject)) {
        return judged(
            false,
            "the floor: no pod of this node whose rules stand has this address",
            Vec::new(),
        );
    }
    for map in maps_of(direction, family) {
        let Some(Verdict::Jump(chain) | Verdict::Goto(chain)) = tables.way(&map, subject) else { continue };
        let mut path = vec![map.clone()];
        if let Some((verdict, reason)) = walk(tables, chain, flow, &mut path) {
            return judged(verdict == Verdict::Accept, &reason, path);
        }
    }
    judged(true, "default, as no policy governs it", Vec::new())
}

/// What the table in a pod's own namespace says of one direction.
pub fn judge_inside(tables: &Tables, flow: Flow, direction: Direction) -> Judgement {
    let mut path = Vec::new();
    match walk(tables, &entry(direction, Family::of(flow.source)), flow, &mut path) {
        Some((verdict, reason)) => judged(verdict == Verdict::Accept, &reason, path),
        None => judged(true, "default, as no policy governs it", Vec::new()),
    }
}

fn judged(allowed: bool, reason: &str, path: Vec<String>) -> Judgement {
    Judgement { allowed, reason: reason.to_owned(), path }
}

/// The final verdict of a chain with the note of its rule; `None` when packets leave it undecided.
fn walk(tables: &Tables, name: &str, flow: Flow, path: &mut Vec<String>) -> Option<(Verdict, String)> {
    const DEEPEST: usize = 16;
    let chain: &Chain = tables.chain(name)?;
    if path.len() > DEEPEST {
        return None;
    }
    path.push(name.to_owned());
    for rule in &chain.rules {
        if !rule.matches.iter().all(|one| holds(tables, one, flow)) {
            continue;
        }
        match &rule.verdict {
            Verdict::Accept | Verdict::Drop => return Some((rule.verdict.clone(), rule.note.clone())),
            Verdict::Return => break,
            Verdict::Jump(next) => {
                if let Some(found) = walk(tables, next, flow, path) {
                    return Some(found);
                }
            }
            Verdict::Goto(next) => return walk(tables, next, flow, path),
        }
    }
    path.pop();
    None
}

fn holds(tables: &Tables, one: &Match, flow: Flow) -> bool {
    let address = |side: &Side| match side {
        Side::Source => flow.source,
        Side::Destination => flow.destination,
    };
    match one {
        Match::Member(side, set) => tables.holds(set, Key::Address(address(side))),
        Match::Within(side, net) => net.contains(&address(side)),
        Match::Service(set) => flow
            .port
            .is_some_and(|port| tables.holds(set, Key::Service(flow.destination, flow.protocol, port))),
        Match::Protocol(number) => flow.protocol == *number,
        Match::Ports(first, last) => flow.port.is_some_and(|port| (*first..=*last).contains(&port)),
    }
}
