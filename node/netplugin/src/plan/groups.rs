//! Which policies govern a sandbox, and the chain they share: replicas of one workload share a group.
//!
//! Three tiers: cluster policies of the Admin tier in order of priority, NetworkPolicies, cluster policies of the Baseline
//! tier. A group of NetworkPolicies ends in a drop, for whoever is governed is closed; the others fall through. Pure.

use std::collections::HashMap;

use podwire_linux::nft::Verdict;

use super::compile::policy_chain;
use super::tables::{Chain, Family, Rule};
use super::{Planner, Sandbox, name_of};
use crate::cluster_policy::Tier;
use crate::policy::{Direction, ObjectKey};

/// Where a group stands in the order of decisions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Level {
    Admin,
    Policies,
    Baseline,
}

impl Level {
    const ALL: [Level; 3] = [Level::Admin, Level::Policies, Level::Baseline];

    fn word(self) -> &'static str {
        match self {
            Level::Admin => "admin",
            Level::Policies => "np",
            Level::Baseline => "base",
        }
    }
}

/// The verdict map of a level.
fn map(level: Level, direction: Direction, family: Family) -> String {
    let side = if direction == Direction::Ingress { "in" } else { "eg" };
    format!("{}-{side}{}", level.word(), family.digit())
}

/// The verdict maps of a direction in the order of decisions.
pub(crate) fn maps_of(direction: Direction, family: Family) -> [String; 3] {
    Level::ALL.map(|level| map(level, direction, family))
}

/// All verdict maps of a family.
pub(super) fn maps(family: Family) -> Vec<String> {
    Direction::BOTH.into_iter().flat_map(|direction| maps_of(direction, family)).collect()
}

struct Group {
    users: usize,
    chains: Vec<String>,
    /// Of cluster policies.
    members: Vec<String>,
    level: Level,
    direction: Direction,
    base: String,
}

/// Groups in use, by name, and which of them each sandbox is in.
#[derive(Default)]
pub(super) struct Groups {
    groups: HashMap<String, Group>,
    of: HashMap<String, HashMap<(Level, Direction), String>>,
}

impl Groups {
    /// The groups of a sandbox for a direction, in the order of decisions.
    pub(super) fn of_sandbox(&self, id: &str, direction: Direction) -> Vec<(Level, &str)> {
        let slots = self.of.get(id);
        let group = |level: Level| Some((level, slots?.get(&(level, direction))?.as_str()));
        Level::ALL.into_iter().filter_map(group).collect()
    }
}

impl Planner {
    pub(super) fn govern_all(&mut self) {
        let mut ids: Vec<String> = self.sandboxes.keys().cloned().collect();
        ids.sort();
        for id in ids {
            self.govern(&id);
        }
        // What the policies say may have changed although who is governed has not.
        let clusterwide = |group: &&String| self.groups.groups[*group].level != Level::Policies;
        let names: Vec<String> = self.groups.groups.keys().filter(clusterwide).cloned().collect();
        for name in names {
            self.write_group(&name);
        }
    }

    pub(super) fn govern_namespace(&mut self, namespace: &str) {
        let own = self.sandboxes.values().filter(|sandbox| sandbox.pod.namespace == namespace);
        let ids: Vec<String> = own.map(|sandbox| sandbox.id.clone()).collect();
        for id in ids {
            self.govern(&id);
        }
    }

    /// Those that govern a sandbox, in the order of decisions.
    pub fn governing(&self, id: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let slots = self.groups.of.get(id).into_iter().flatten();
        let mut slots: Vec<_> = slots.map(|((level, direction), name)| (*level, *direction, name)).collect();
        slots.sort();
        for (level, _, name) in slots {
            let Some(group) = self.groups.groups.get(name) else { continue };
            for member in &group.members {
                let word = if level == Level::Policies {
                    format!("{}/{member}", group.base)
                } else {
                    member.clone()
                };
                if !names.contains(&word) {
                    names.push(word);
                }
            }
        }
        names
    }

    /// Finds the groups of a sandbox and leads its packets there.
    pub(super) fn govern(&mut self, id: &str) {
        let Some(sandbox) = self.sandboxes.get(id).cloned() else { return };
        for direction in Direction::BOTH {
            for level in Level::ALL {
                let members = self.members(&sandbox, level, direction);
                self.join(&sandbox, level, direction, members);
            }
        }
    }

    /// A sandbox is no longer led anywhere.
    pub(super) fn ungovern(&mut self, sandbox: &Sandbox) {
        for direction in Direction::BOTH {
            for level in Level::ALL {
                self.join(sandbox, level, direction, Vec::new());
            }
        }
        self.groups.of.remove(&sandbox.id);
    }

    /// The names of those that govern a sandbox, in order.
    fn members(&self, sandbox: &Sandbox, level: Level, direction: Direction) -> Vec<String> {
        let labels = self.labels_of(sandbox);
        let tier = match level {
            Level::Policies => {
                let first = ObjectKey { namespace: sandbox.pod.namespace.clone(), name: String::new() };
                let own = self
                    .policies
                    .range(first..)
                    .take_while(|(key, _)| key.namespace == sandbox.pod.namespace);
                let governing = own.filter(|(_, held)| {
                    held.policy.allowed(direction).is_some() && held.policy.subjects.matches(labels)
                });
                return governing.map(|(key, _)| key.name.clone()).collect();
            }
            Level::Admin => Tier::Admin,
            Level::Baseline => Tier::Baseline,
        };
        let namespace = self.namespaces.get(&sandbox.pod.namespace);
        let mut governing: Vec<(u32, &String)> = self
            .cluster
            .iter()
            .filter(|(_, held)| {
                held.policy.tier == tier && held.policy.governs(&sandbox.pod.namespace, namespace, labels)
            })
            .filter(|(_, held)| held.rules.iter().any(|rule| rule.0 == direction))
            .map(|(name, held)| (held.policy.priority, name))
            .collect();
        governing.sort();
        governing.into_iter().map(|(_, name)| name.clone()).collect()
    }

    fn join(&mut self, sandbox: &Sandbox, level: Level, direction: Direction, members: Vec<String>) {
        let home = if level == Level::Policies { sandbox.pod.namespace.as_str() } else { "" };
        let name = (!members.is_empty()).then(|| {
            let mut parts = vec![level.word(), home];
            parts.extend(members.iter().map(String::as_str));
            format!("{}{}", direction.letter(), name_of(&parts))
        });
        let slot = self.groups.of.entry(sandbox.id.clone()).or_default();
        let before = slot.get(&(level, direction)).cloned();
        if before == name {
            return;
        }
        match &name {
            Some(name) => slot.insert((level, direction), name.clone()),
            None => slot.remove(&(level, direction)),
        };
        if let Some(name) = &name {
            self.enter_group(name, home, level, direction, members);
        }
        for ip in &sandbox.addresses {
            let family = Family::of(*ip);
            let way = name.as_ref().map(|name| {
                let chain = group_chain(level, family, name);
                if level == Level::Policies { Verdict::Goto(chain) } else { Verdict::Jump(chain) }
            });
            self.tables.lead(&map(level, direction, family), *ip, way);
        }
        if let Some(before) = before {
            self.leave_group(&before);
        }
    }

    fn enter_group(
        &mut self,
        name: &str,
        home: &str,
        level: Level,
        direction: Direction,
        members: Vec<String>,
    ) {
        if let Some(group) = self.groups.groups.get_mut(name) {
            group.users += 1;
            return;
        }
        let group = Group { users: 1, chains: Vec::new(), members, level, direction, base: home.to_owned() };
        self.groups.groups.insert(name.to_owned(), group);
        self.write_group(name);
    }

    fn leave_group(&mut self, name: &str) {
        let Some(group) = self.groups.groups.get_mut(name) else { return };
        group.users -= 1;
        if group.users == 0
            && let Some(group) = self.groups.groups.remove(name)
        {
            for chain in &group.chains {
                self.tables.drop_chain(chain);
            }
        }
    }

    /// Writes the chains of a group.
    fn write_group(&mut self, name: &str) {
        let Some(group) = self.groups.groups.get(name) else { return };
        let (level, direction) = (group.level, group.direction);
        let mut chains: Vec<(String, Chain)> = Vec::new();
        for family in &self.families {
            let chain = group_chain(level, *family, name);
            let rules = match level {
                Level::Policies => policies(&group.base, &group.members, direction, *family),
                Level::Admin | Level::Baseline => {
                    let mut all = Vec::new();
                    for held in group.members.iter().filter_map(|name| self.cluster.get(name)) {
                        let (rules, further) = self.cluster_rules(held, direction, *family, &chain);
                        all.extend(rules);
                        chains.extend(further);
                    }
                    all
                }
            };
            let note = format!("{} {direction} {}", level.word(), group.members.join(" "));
            chains.push((chain, Chain { note, rules }));
        }
        let before = std::mem::take(&mut self.groups.groups.get_mut(name).expect("looked up above").chains);
        let names: Vec<String> = chains.iter().map(|(name, _)| name.clone()).collect();
        for (name, chain) in chains {
            self.tables.put_entry(&name, chain);
        }
        for gone in before.iter().filter(|chain| !names.contains(chain)) {
            self.tables.drop_chain(gone);
        }
        self.groups.groups.get_mut(name).expect("looked up above").chains = names;
    }
}

pub(super) fn group_chain(level: Level, family: Family, name: &str) -> String {
    format!("{}{}-{name}", level.word(), family.digit())
}

/// One policy after the other, and who was not allowed by any is dropped.
fn policies(namespace: &str, members: &[String], direction: Direction, family: Family) -> Vec<Rule> {
    let jump = |name: &String| {
        let key = ObjectKey { namespace: namespace.to_owned(), name: name.clone() };
        let verdict = Verdict::Jump(policy_chain(&key, direction, family));
        Rule { matches: Vec::new(), verdict, note: key.to_string(), counted: false }
    };
    let mut rules: Vec<Rule> = members.iter().map(jump).collect();
    let note = format!("no rule allows it, of {namespace}/{}", members.join(&format!(", {namespace}/")));
    rules.push(Rule { matches: Vec::new(), verdict: Verdict::Drop, note, counted: true });
    rules
}
