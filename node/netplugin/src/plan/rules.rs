//! What a rule of a policy is in the kernel's words: one rule for each peer and port, or, where both are many, a chain of
//! the ports that each peer leads to, so that a policy is as long as what it says. Pure.

use ipnet::IpNet;
use podwire_linux::nft::Verdict;

use super::peers::{PeerId, peer_set};
use super::tables::{Chain, Family, Match, Rule, Side};
use crate::policy::Direction;

/// A peer whose sets exist.
#[derive(Clone, Debug)]
pub(super) enum Resolved {
    Anybody,
    Pods(PeerId),
    /// What the names of the selector's sets end with.
    Nodes(String),
    Within(IpNet),
    /// A set of ranges, of a family.
    Ranges(Family, String),
}

/// Ports of a protocol: all, or from one to another.
pub(super) type Plain = (u8, Option<(u16, u16)>);

/// A rule of a policy whose sets exist.
#[derive(Clone, Debug, Default)]
pub(super) struct ResolvedRule {
    pub(super) peers: Vec<Resolved>,
    /// `None` is all traffic.
    pub(super) plain: Option<Vec<Plain>>,
    /// Sets of destination, protocol and port that hold beside the peer: named ports of those who are governed.
    pub(super) own: Vec<(PeerId, (String, Option<u8>))>,
    /// Such sets that say the peer as well: named ports of peers.
    pub(super) theirs: Vec<(PeerId, (String, Option<u8>))>,
}

/// How sets are called.
pub(super) trait SetNames {
    fn addresses(&self, id: PeerId, family: Family) -> Option<String>;
    fn services(&self, id: PeerId, family: Family, port: &(String, Option<u8>)) -> Option<String>;
}

impl SetNames for super::peers::Peers {
    fn addresses(&self, id: PeerId, family: Family) -> Option<String> {
        super::peers::Peers::addresses(self, id, family)
    }

    fn services(&self, id: PeerId, family: Family, port: &(String, Option<u8>)) -> Option<String> {
        super::peers::Peers::services(self, id, family, port)
    }
}

/// Where rules go and what they do.
pub(super) struct Writer<'a, N> {
    pub(super) names: &'a N,
    pub(super) family: Family,
    pub(super) direction: Direction,
    /// What the names of further chains begin with.
    pub(super) chain: &'a str,
}

impl<N: SetNames> Writer<'_, N> {
    /// The rules, and the chain of ports that they need, if they need one.
    pub(super) fn write(
        &self,
        at: usize,
        rule: &ResolvedRule,
        verdict: &Verdict,
        note: &str,
    ) -> (Vec<Rule>, Option<(String, Chain)>) {
        let counted = *verdict == Verdict::Drop;
        let make = |matches: Vec<Match>, verdict: &Verdict| Rule {
            matches,
            verdict: verdict.clone(),
            note: note.to_owned(),
            counted,
        };
        let peers: Vec<Vec<Match>> = rule.peers.iter().filter_map(|peer| self.peer(peer)).collect();
        let ports = self.ports(rule);
        let mut rules = Vec::new();
        let mut further = None;
        // A verdict that returns would return from the chain of ports only.
        if peers.len() > 1 && ports.len() > 1 && *verdict != Verdict::Return {
            let name = format!("{}-{at}", self.chain);
            rules.extend(
                peers
                    .into_iter()
                    .map(|peer| Rule { counted: false, ..make(peer, &Verdict::Jump(name.clone())) }),
            );
            let inner = ports.into_iter().map(|port| make(port, verdict)).collect();
            further = Some((name, Chain { note: note.to_owned(), rules: inner }));
        } else {
            for peer in &peers {
                rules.extend(ports.iter().map(|port| make([peer.clone(), port.clone()].concat(), verdict)));
            }
        }
        for (id, port) in &rule.theirs {
            if let Some(set) = self.names.services(*id, self.family, port) {
                rules.push(make(vec![Match::Service(set)], verdict));
            }
        }
        (rules, further)
    }

    /// What the other end must be; `None` when it cannot be of this family.
    fn peer(&self, peer: &Resolved) -> Option<Vec<Match>> {
        let side = match self.direction {
            Direction::Ingress => Side::Source,
            Direction::Egress => Side::Destination,
        };
        Some(match peer {
            Resolved::Anybody => Vec::new(),
            Resolved::Pods(id) => vec![Match::Member(side, self.names.addresses(*id, self.family)?)],
            Resolved::Nodes(name) => vec![Match::Member(side, peer_set(self.family, name))],
            Resolved::Within(net) if Family::of(net.addr()) != self.family => return None,
            // All of a family needs no look.
            Resolved::Within(net) if net.prefix_len() == 0 => Vec::new(),
            Resolved::Within(net) => vec![Match::Within(side, *net)],
            Resolved::Ranges(family, _) if *family != self.family => return None,
            Resolved::Ranges(_, set) => vec![Match::Member(side, set.clone())],
        })
    }

    /// What the port must be, each of them a list of matches.
    fn ports(&self, rule: &ResolvedRule) -> Vec<Vec<Match>> {
        let Some(plain) = &rule.plain else { return vec![Vec::new()] };
        let numbers = plain.iter().map(|(protocol, range)| {
            let range = range.map(|(first, last)| Match::Ports(first, last));
            std::iter::once(Match::Protocol(*protocol)).chain(range).collect()
        });
        let named = rule.own.iter().filter_map(|(id, port)| self.names.services(*id, self.family, port));
        numbers.chain(named.map(|set| vec![Match::Service(set)])).collect()
    }
}
