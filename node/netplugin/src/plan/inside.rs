//! What the table in a pod's own namespace is to hold: the groups that govern the pod, whatever its addresses there are, and
//! all that they refer to. For links whose packets never pass this machine. Pure.

use std::collections::BTreeSet;

use podwire_linux::nft::Verdict;

use super::Planner;
use super::groups::{Level, group_chain};
use super::tables::{Chain, Family, Match, Rule, Tables};
use crate::policy::Direction;

/// Where the decisions of a direction begin.
pub fn entry(direction: Direction, family: Family) -> String {
    let word = if direction == Direction::Ingress { "in" } else { "out" };
    format!("{word}{}", family.digit())
}

/// Which sets have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// These.
    Sets(BTreeSet<String>),
    /// Any may have.
    All,
}

impl Touched {
    fn holds(&self, name: &str) -> bool {
        match self {
            Touched::Sets(names) => names.contains(name),
            Touched::All => true,
        }
    }
}

impl Planner {
    /// Brings what a pod's own table is to hold in line with what governs it. Sets that were held before and are not
    /// `touched` are left as they are.
    pub fn inside(&self, id: &str, held: &mut Tables, touched: &Touched) {
        let (mut chains, mut sets) = (BTreeSet::new(), BTreeSet::new());
        let mut ahead = Vec::new();
        for direction in Direction::BOTH {
            for family in &self.families {
                let name = entry(direction, *family);
                let chain = self.entry_chain(id, direction, *family);
                ahead.extend(leads(&chain));
                held.put_chain(&name, chain);
                chains.insert(name);
            }
        }
        while let Some(name) = ahead.pop() {
            let Some(chain) = self.tables.chain(&name) else { continue };
            if !chains.insert(name.clone()) {
                continue;
            }
            ahead.extend(leads(chain));
            sets.extend(chain.rules.iter().flat_map(|rule| &rule.matches).filter_map(set_of));
            held.put_chain(&name, chain.clone());
        }
        for name in &sets {
            if (touched.holds(name) || held.set(name).is_none())
                && let Some(set) = self.tables.set(name)
            {
                held.copy_set(name, set);
            }
        }
        for name in held.names_beside(&chains, &sets) {
            held.drop_chain(&name);
            held.drop_set(&name);
        }
    }

    /// Tier after tier; NetworkPolicies are final for whom they govern.
    fn entry_chain(&self, id: &str, direction: Direction, family: Family) -> Chain {
        let lead = |(level, group): (Level, &str)| {
            let chain = group_chain(level, family, group);
            let verdict = if level == Level::Policies { Verdict::Goto(chain) } else { Verdict::Jump(chain) };
            Rule { matches: Vec::new(), verdict, note: "policies".into(), counted: false }
        };
        let rules = self.groups.of_sandbox(id, direction).into_iter().map(lead).collect();
        Chain { note: format!("{direction} of this pod"), rules }
    }
}

fn leads(chain: &Chain) -> impl Iterator<Item = String> + '_ {
    chain.rules.iter().filter_map(|rule| match &rule.verdict {
        Verdict::Jump(name) | Verdict::Goto(name) => Some(name.clone()),
        _ => None,
    })
}

fn set_of(one: &Match) -> Option<String> {
    match one {
        Match::Member(_, set) | Match::Service(set) => Some(set.clone()),
        Match::Within(..) | Match::Protocol(_) | Match::Ports(..) => None,
    }
}
