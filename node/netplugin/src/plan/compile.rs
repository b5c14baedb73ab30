//! Policies become chains: their selectors are acquired, their rules written, and what the old version used is let go only
//! after the new one has what it needs, so that sets that both use stay as they are. Pure.

use podwire_linux::nft::Verdict;

use super::peers::PeerId;
use super::rules::{Resolved, ResolvedRule, Writer};
use super::tables::{Chain, Family, Kind, Rule};
use super::{HeldClusterPolicy, HeldPolicy, Planner, blocks, name_of};
use crate::cluster_policy::{Action, ClusterPolicy};
use crate::policy::{Allowed, Direction, Namespaces, ObjectKey, Peer, Pods, Policy, Port, Selector};

/// Something that a policy keeps in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Peer(PeerId),
    Port(PeerId, (String, Option<u8>)),
    Ranges(Family, String),
    Nodes(String),
}

/// The rules of a cluster policy, by direction: what they do, whom they mean, where they are written.
pub(super) type ClusterRules = Vec<(Direction, Action, ResolvedRule, String)>;

/// The chain of a policy for a direction and family.
pub(super) fn policy_chain(key: &ObjectKey, direction: Direction, family: Family) -> String {
    format!("{}{}-{}", direction.letter(), family.digit(), name_of(&[&key.namespace, &key.name]))
}

impl Planner {
    /// A policy came or changed.
    pub fn policy(&mut self, policy: Policy) {
        if self.is_held(&policy) {
            return;
        }
        let key = policy.key.clone();
        let (mut uses, mut chains) = (Vec::new(), Vec::new());
        let own = Pods { namespaces: Namespaces::Named(key.namespace.clone()), pods: Selector::everything() };
        for direction in Direction::BOTH {
            let Some(rules) = policy.allowed(direction) else { continue };
            let resolved: Vec<(ResolvedRule, &str)> = rules
                .iter()
                .map(|rule| (self.resolve(direction, &own, rule, &mut uses), rule.place.as_str()))
                .collect();
            self.write_chains(&key, direction, &resolved, &mut chains);
        }
        let moved = self.policies.get(&key).is_none_or(|held| {
            held.policy.subjects != policy.subjects
                || Direction::BOTH
                    .iter()
                    .any(|d| held.policy.allowed(*d).is_some() != policy.allowed(*d).is_some())
        });
        let before = self.policies.insert(key.clone(), HeldPolicy { policy, uses, chains: chains.clone() });
        if moved {
            self.govern_namespace(&key.namespace);
        }
        if let Some(before) = before {
            self.let_go(before, &chains);
        }
    }

    /// A policy went.
    pub fn policy_gone(&mut self, key: &ObjectKey) {
        if let Some(before) = self.policies.remove(key) {
            self.govern_namespace(&key.namespace);
            self.let_go(before, &[]);
        }
    }

    fn let_go(&mut self, before: HeldPolicy, kept: &[String]) {
        for chain in before.chains.iter().filter(|chain| !kept.contains(chain)) {
            self.tables.drop_chain(chain);
        }
        self.release(&before.uses);
    }

    fn write_chains(
        &mut self,
        key: &ObjectKey,
        direction: Direction,
        rules: &[(ResolvedRule, &str)],
        chains: &mut Vec<String>,
    ) {
        for family in self.families.clone() {
            let name = policy_chain(key, direction, family);
            let writer = Writer { names: &self.peers, family, direction, chain: &name };
            let mut written = Vec::new();
            let mut further = Vec::new();
            for (at, (rule, place)) in rules.iter().enumerate() {
                let (rules, chain) = writer.write(at, rule, &Verdict::Accept, &format!("{key} {place}"));
                written.extend(rules);
                further.extend(chain);
            }
            for (name, chain) in further {
                self.tables.put_chain(&name, chain);
                chains.push(name);
            }
            let note = format!("{key} {direction}");
            self.tables.put_chain(&name, Chain { note, rules: written });
            chains.push(name);
        }
    }

    /// A cluster policy came or changed.
    pub fn cluster_policy(&mut self, policy: ClusterPolicy) {
        if self.cluster.get(&policy.name).is_some_and(|held| held.policy == policy) {
            return;
        }
        let mut uses = Vec::new();
        let mut rules = ClusterRules::new();
        for rule in &policy.rules {
            let resolved = self.resolve(rule.direction, &policy.subjects, &rule.whom, &mut uses);
            let note = format!("{} {}", policy.name, rule.whom.place);
            rules.push((rule.direction, rule.action, resolved, note));
        }
        let name = policy.name.clone();
        let before = self.cluster.insert(name, HeldClusterPolicy { policy, uses, rules });
        self.govern_all();
        if let Some(before) = before {
            self.release(&before.uses);
        }
    }

    /// A cluster policy went.
    pub fn cluster_policy_gone(&mut self, name: &str) {
        if let Some(before) = self.cluster.remove(name) {
            self.govern_all();
            self.release(&before.uses);
        }
    }

    /// Acquires what a rule needs.
    fn resolve(
        &mut self,
        direction: Direction,
        subjects: &Pods,
        rule: &Allowed,
        uses: &mut Vec<Use>,
    ) -> ResolvedRule {
        let mut resolved = ResolvedRule::default();
        let named: Vec<(String, Option<u8>)> = rule.ports.iter().flatten().filter_map(named).collect();
        resolved.plain = rule.ports.as_ref().map(|ports| ports.iter().filter_map(plain).collect());
        for peer in &rule.peers {
            let (peer, pods) = match peer {
                Peer::Anybody => {
                    let everybody = Pods {
                        namespaces: Namespaces::Selected(Selector::everything()),
                        pods: Selector::everything(),
                    };
                    (Resolved::Anybody, Some(everybody))
                }
                Peer::Pods(pods) => (Resolved::Pods(self.acquire(pods, uses)), Some(pods.clone())),
                // Nodes have no named ports: a rule that asks for one says nothing about them.
                Peer::Nodes(selector) => {
                    let name = self.nodes.acquire(selector, &mut self.tables);
                    uses.push(Use::Nodes(name.clone()));
                    (Resolved::Nodes(name), None)
                }
                Peer::Block { within, except } if except.is_empty() => (Resolved::Within(*within), None),
                Peer::Block { within, except } => (
                    self.acquire_ranges(blocks::ranges(*within, except), Family::of(within.addr()), uses),
                    None,
                ),
            };
            resolved.peers.push(peer);
            // A named port is the destination's: that of each peer, where connections go out.
            if direction == Direction::Egress
                && let Some(pods) = pods
            {
                for port in &named {
                    resolved.theirs.push((self.acquire_port(&pods, port, uses), port.clone()));
                }
            }
        }
        if direction == Direction::Ingress {
            for port in &named {
                resolved.own.push((self.acquire_port(subjects, port, uses), port.clone()));
            }
        }
        resolved
    }

    fn acquire(&mut self, pods: &Pods, uses: &mut Vec<Use>) -> PeerId {
        let (id, is_new) = self.peers.acquire(pods, &mut self.tables);
        uses.push(Use::Peer(id));
        if is_new {
            for (key, placed) in &mut self.placed {
                let elsewhere = self.peers.namespace(id).is_some_and(|name| name != key.namespace);
                if !elsewhere && self.peers.takes(id, &placed.endpoint, self.namespaces.get(&key.namespace)) {
                    self.peers.enter(id, &placed.endpoint, &mut self.tables);
                    // Ids grow, so that the list stays sorted.
                    placed.peers.push(id);
                }
            }
        }
        id
    }

    fn acquire_port(&mut self, pods: &Pods, port: &(String, Option<u8>), uses: &mut Vec<Use>) -> PeerId {
        let id = self.acquire(pods, uses);
        if self.peers.acquire_port(id, port, &mut self.tables) {
            for placed in self.placed.values().filter(|placed| placed.peers.binary_search(&id).is_ok()) {
                self.peers.enter_port(id, port, &placed.endpoint, &mut self.tables);
            }
        }
        uses.push(Use::Port(id, port.clone()));
        id
    }

    fn acquire_ranges(
        &mut self,
        ranges: Vec<(std::net::IpAddr, std::net::IpAddr)>,
        family: Family,
        uses: &mut Vec<Use>,
    ) -> Resolved {
        let text: String = ranges.iter().map(|(first, last)| format!("{first}-{last} ")).collect();
        let name = format!("b{}-{}", family.digit(), name_of(&[&text]));
        if self.families.contains(&family) {
            *self.block_users.entry(name.clone()).or_insert(0) += 1;
            self.tables.make_set(&name, family, Kind::Blocks, ranges);
            uses.push(Use::Ranges(family, name.clone()));
        }
        Resolved::Ranges(family, name)
    }

    fn release(&mut self, uses: &[Use]) {
        for one in uses.iter().rev() {
            match one {
                Use::Peer(id) => {
                    if self.peers.release(*id, &mut self.tables) {
                        for placed in self.placed.values_mut() {
                            if let Ok(at) = placed.peers.binary_search(id) {
                                placed.peers.remove(at);
                            }
                        }
                    }
                }
                Use::Nodes(name) => self.nodes.release(name, &mut self.tables),
                Use::Port(id, port) => self.peers.release_port(*id, port, &mut self.tables),
                Use::Ranges(_, name) => {
                    if let Some(users) = self.block_users.get_mut(name) {
                        *users -= 1;
                        if *users == 0 {
                            self.block_users.remove(name);
                            self.tables.drop_set(name);
                        }
                    }
                }
            }
        }
    }

    /// The rules of one cluster policy for a direction and family.
    pub(super) fn cluster_rules(
        &self,
        held: &HeldClusterPolicy,
        direction: Direction,
        family: Family,
        chain: &str,
    ) -> (Vec<Rule>, Vec<(String, Chain)>) {
        let prefix = format!("{chain}-{}", name_of(&[&held.policy.name]));
        let writer = Writer { names: &self.peers, family, direction, chain: &prefix };
        let (mut rules, mut further) = (Vec::new(), Vec::new());
        for (at, (_, action, rule, note)) in
            held.rules.iter().enumerate().filter(|(_, one)| one.0 == direction)
        {
            let verdict = match action {
                Action::Accept => Verdict::Accept,
                Action::Deny => Verdict::Drop,
                Action::Pass => Verdict::Return,
            };
            let (written, chain) = writer.write(at, rule, &verdict, note);
            rules.extend(written);
            further.extend(chain);
        }
        (rules, further)
    }
}

fn named(port: &Port) -> Option<(String, Option<u8>)> {
    match port {
        Port::Named(protocol, name) => Some((name.clone(), *protocol)),
        _ => None,
    }
}

fn plain(port: &Port) -> Option<super::rules::Plain> {
    match port {
        Port::All(protocol) => Some((*protocol, None)),
        Port::Range(protocol, first, last) => Some((*protocol, Some((*first, *last)))),
        Port::Named(..) => None,
    }
}
