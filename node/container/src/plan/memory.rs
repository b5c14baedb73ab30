//! Which memory nodes a process may take from, as `set_mempolicy` wants it told.

use oci_spec::runtime::{LinuxMemoryPolicy, MemoryPolicyFlagType as Flag, MemoryPolicyModeType as Mode};
use serde::{Deserialize, Serialize};

use super::PlanError;

/// Nodes beyond this the kernel does not know either.
const MOST_NODES: u32 = 1024;

/// A memory policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPolicyPlan {
    /// `MPOL_*` with its flags.
    pub mode: u32,
    /// One bit per node, the lowest first.
    pub nodes: Vec<u64>,
}

pub(super) fn policy(wanted: &LinuxMemoryPolicy) -> Result<MemoryPolicyPlan, PlanError> {
    let mode = match wanted.mode() {
        Mode::MpolDefault => 0,
        Mode::MpolPreferred => 1,
        Mode::MpolBind => 2,
        Mode::MpolInterleave => 3,
        Mode::MpolLocal => 4,
        Mode::MpolPreferredMany => 5,
        Mode::MpolWeightedInterleave => 6,
    };
    let flag = |flag: &Flag| match flag {
        Flag::MpolFNumaBalancing => 1 << 13,
        Flag::MpolFRelativeNodes => 1 << 14,
        Flag::MpolFStaticNodes => 1 << 15,
    };
    let flags = wanted.flags().iter().flatten().map(flag).fold(0, |all: u32, one: u32| all | one);
    Ok(MemoryPolicyPlan { mode: mode | flags, nodes: nodes(wanted.nodes().as_deref().unwrap_or_default())? })
}

/// `0-3,7` as a mask.
fn nodes(text: &str) -> Result<Vec<u64>, PlanError> {
    let invalid = || PlanError::Invalid {
        field: "memoryPolicy.nodes",
        value: text.to_owned(),
        reason: "is not a list of node numbers and ranges",
    };
    let number =
        |text: &str| text.trim().parse().ok().filter(|number: &u32| *number < MOST_NODES).ok_or_else(invalid);
    let mut mask: Vec<u64> = Vec::new();
    for part in text.split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(invalid());
        }
        for node in first..=last {
            let word = node as usize / 64;
            if mask.len() <= word {
                mask.resize(word + 1, 0);
            }
            mask[word] |= 1 << (node % 64);
        }
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_numbers_and_ranges() {
        assert_eq!(nodes("").unwrap(), Vec::<u64>::new());
        assert_eq!(nodes("0-2,5").unwrap(), [0b10_0111]);
        assert_eq!(nodes("1, 64").unwrap(), [0b10, 1]);
        for wrong in ["x", "3-1", "1,", "-1", "1024", "0-"] {
            assert!(nodes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes_and_flags_have_the_kernels_numbers() {
        let text = r#"{"mode":"MPOL_INTERLEAVE","nodes":"0","flags":["MPOL_F_STATIC_NODES","MPOL_F_NUMA_BALANCING"]}"#;
        let plan = policy(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(plan, MemoryPolicyPlan { mode: 3 | 1 << 15 | 1 << 13, nodes: vec![1] });
    }
}
