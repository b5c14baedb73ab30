//! The policies, scopes and options that an administrator chooses from, and what they make of merged hints.

use std::{collections::BTreeMap, num::IntErrorKind};

use super::{
    machine::Machine,
    mask::NodeMask,
    merge::{self, Hint, Hints, Nearness},
};

/// How strictly resources are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Not at all.
    #[default]
    None,
    /// As well as possible.
    BestEffort,
    /// A pod whose resources could be aligned better on this machine is refused.
    Restricted,
    /// A pod whose resources do not come from one node is refused.
    SingleNumaNode,
}

/// What is aligned together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scope {
    /// Each container by itself, in their order, the init containers first.
    #[default]
    Container,
    /// All containers of a pod.
    Pod,
}

/// Settings of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyOptions {
    /// Among sets of as many nodes the one whose nodes are closest to each other is taken.
    pub prefer_closest: bool,
    /// On machines with more nodes the kubelet does not start.
    pub max_allowable_nodes: usize,
}

/// The nodes on which a machine's resources are aligned unless it is told otherwise.
const MOST_NODES: usize = 8;

const PREFER_CLOSEST: &str = "prefer-closest-numa-nodes";
const MAX_ALLOWABLE: &str = "max-allowable-numa-nodes";

impl Default for PolicyOptions {
    fn default() -> PolicyOptions {
        PolicyOptions { prefer_closest: false, max_allowable_nodes: MOST_NODES }
    }
}

/// Why a topology manager cannot be had as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No policy is called so.
    #[error("unknown policy: \"{0}\"")]
    Policy(String),
    /// No scope is called so.
    #[error("unknown scope: \"{0}\"")]
    Scope(String),
    /// No option is called so.
    #[error("unknown Topology Manager Policy option: {0:?}")]
    Option(String),
    /// Neither true nor false.
    #[error("bad value for option {name:?}: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Bool {
        /// The option.
        name: &'static str,
        /// What it is set to.
        value: String,
    },
    /// Not a number.
    #[error("unable to convert policy option to integer {name:?}: strconv.Atoi: parsing {value:?}: {why}")]
    Number {
        /// The option.
        name: &'static str,
        /// What it is set to.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A lower limit than there always is.
    #[error("the minimum value of {MAX_ALLOWABLE:?} should not be less than {MOST_NODES}")]
    TooLow,
    /// The machine does not tell how far its nodes are from each other.
    #[error("cannot discover NUMA topology: error getting NUMA distances from cadvisor")]
    NoDistances,
    /// The machine has more nodes than are allowed.
    #[error("unsupported on machines with more than {0} NUMA Nodes")]
    TooManyNodes(usize),
}

/// A pod's resources cannot be aligned as the policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Resources cannot be allocated with Topology locality")]
pub struct TopologyAffinityError;

impl TopologyAffinityError {
    /// The reason in the status of a pod that is refused for it.
    pub const REASON: &'static str = "TopologyAffinityError";
}

impl PolicyOptions {
    /// The options of a configuration.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<PolicyOptions, ConfigError> {
        let mut parsed = PolicyOptions::default();
        for (name, value) in options {
            match name.as_str() {
                PREFER_CLOSEST => {
                    parsed.prefer_closest = boolean(value)
                        .ok_or_else(|| ConfigError::Bool { name: PREFER_CLOSEST, value: value.clone() })?;
                }
                MAX_ALLOWABLE => parsed.max_allowable_nodes = most_nodes(value)?,
                _ => return Err(ConfigError::Option(name.clone())),
            }
        }
        Ok(parsed)
    }
}

/// Go's words for true and false.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn most_nodes(text: &str) -> Result<usize, ConfigError> {
    let number: i64 = text.parse().map_err(|error: std::num::ParseIntError| ConfigError::Number {
        name: MAX_ALLOWABLE,
        value: text.to_owned(),
        why: match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        },
    })?;
    usize::try_from(number).ok().filter(|number| *number >= MOST_NODES).ok_or(ConfigError::TooLow)
}

/// A topology manager: a policy for a machine.
#[derive(Clone, Debug)]
pub struct Topology {
    policy: Policy,
    scope: Scope,
    options: PolicyOptions,
    machine: Machine,
}

impl Topology {
    /// As configured; with the policy `none` nothing else is looked at.
    pub fn new(
        policy: &str,
        scope: &str,
        options: &BTreeMap<String, String>,
        machine: Machine,
    ) -> Result<Topology, ConfigError> {
        if policy == "none" {
            let options = PolicyOptions::default();
            return Ok(Topology { policy: Policy::None, scope: Scope::Container, options, machine });
        }
        let options = PolicyOptions::parse(options)?;
        let count = machine.nodes().len();
        if options.prefer_closest && machine.nodes().iter().any(|node| node.distances.len() != count) {
            return Err(ConfigError::NoDistances);
        }
        if count > options.max_allowable_nodes {
            return Err(ConfigError::TooManyNodes(options.max_allowable_nodes));
        }
        let policy = match policy {
            "best-effort" => Policy::BestEffort,
            "restricted" => Policy::Restricted,
            "single-numa-node" => Policy::SingleNumaNode,
            _ => return Err(ConfigError::Policy(policy.to_owned())),
        };
        let scope = match scope {
            "container" => Scope::Container,
            "pod" => Scope::Pod,
            _ => return Err(ConfigError::Scope(scope.to_owned())),
        };
        Ok(Topology { policy, scope, options, machine })
    }

    /// How strictly resources are aligned.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// What is aligned together; of no meaning with the policy [`Policy::None`].
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The machine whose nodes they are.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The nodes from which the resources of a container, or of a pod by [`scope`](Self::scope), are to come: those that
    /// suit the hints of every provider, each by the names of its resources. `None`: from anywhere.
    pub fn align(
        &self,
        providers: &[BTreeMap<String, Hints>],
    ) -> Result<Option<NodeMask>, TopologyAffinityError> {
        let best = self.best(providers);
        match self.policy {
            Policy::Restricted | Policy::SingleNumaNode if !best.preferred => Err(TopologyAffinityError),
            _ => Ok(best.nodes),
        }
    }

    /// The hint that suits every provider best, whether the policy lets the pod in with it or not.
    pub fn best(&self, providers: &[BTreeMap<String, Hints>]) -> Hint {
        let nearness = if self.options.prefer_closest { Nearness::Closest } else { Nearness::Lowest };
        let mut resources = merge::listed(providers);
        match self.policy {
            Policy::None => Hint { nodes: None, preferred: false },
            Policy::BestEffort | Policy::Restricted => merge::merge(&resources, &self.machine, nearness),
            Policy::SingleNumaNode => {
                let single = |nodes: Option<NodeMask>| nodes.is_none_or(|nodes| nodes.count() == 1);
                for hints in &mut resources {
                    hints.retain(|hint| hint.preferred && single(hint.nodes));
                }
                let best = merge::merge(&resources, &self.machine, Nearness::Lowest);
                // All nodes are what is left where no resource minds.
                Hint { nodes: best.nodes.filter(|nodes| *nodes != self.machine.mask()), ..best }
            }
        }
    }
}
