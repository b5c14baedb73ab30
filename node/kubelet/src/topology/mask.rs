//! Sets of NUMA nodes.

use std::fmt;

/// A set of NUMA nodes with numbers from 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeMask(u64);

impl NodeMask {
    /// How many node numbers fit.
    pub const LIMIT: u32 = 64;
    /// No node.
    pub const EMPTY: NodeMask = NodeMask(0);

    /// The nodes of `ids`; numbers that do not fit are left out, as no machine has them.
    pub fn of(ids: impl IntoIterator<Item = i64>) -> NodeMask {
        let bits = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).filter(|id| *id < Self::LIMIT);
        NodeMask(bits.fold(0, |mask, id| mask | 1 << id))
    }

    /// How many nodes.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes that are in both.
    #[must_use]
    pub fn and(self, other: NodeMask) -> NodeMask {
        NodeMask(self.0 & other.0)
    }

    /// The nodes that are in either.
    #[must_use]
    pub fn or(self, other: NodeMask) -> NodeMask {
        NodeMask(self.0 | other.0)
    }

    /// Whether they share a node.
    pub fn meets(self, other: NodeMask) -> bool {
        self.0 & other.0 != 0
    }

    /// The numbers of the nodes, rising.
    pub fn nodes(self) -> impl Iterator<Item = u32> {
        (0..Self::LIMIT).filter(move |id| self.0 >> id & 1 == 1)
    }

    /// Every set of some of these nodes, the small ones first; 2 to the power of [`count`](Self::count) of them but one.
    pub fn subsets(self) -> Vec<NodeMask> {
        let bits: Vec<u64> = self.nodes().map(|id| 1 << id).collect();
        let mut all: Vec<NodeMask> = Vec::new();
        // Each set of the round before is continued by the nodes behind its last one.
        let mut round: Vec<(u64, usize)> = vec![(0, 0)];
        while !round.is_empty() {
            round = round
                .iter()
                .flat_map(|(mask, next)| {
                    (*next..bits.len()).zip(&bits[*next..]).map(move |(at, bit)| (mask | bit, at + 1))
                })
                .collect();
            all.extend(round.iter().map(|(mask, _)| NodeMask(*mask)));
        }
        all
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.nodes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_machine_has_are_left_out() {
        let mask = NodeMask::of([-1, 0, 63, 64, i64::MAX, i64::MIN]);
        assert_eq!(mask.nodes().collect::<Vec<_>>(), [0, 63]);
        assert_eq!(mask.count(), 2);
    }

    #[test]
    fn subsets_come_small_ones_first_and_each_once() {
        let told: Vec<Vec<u32>> =
            NodeMask::of([1, 3, 4]).subsets().iter().map(|mask| mask.nodes().collect()).collect();
        let expected: Vec<Vec<u32>> =
            vec![vec![1], vec![3], vec![4], vec![1, 3], vec![1, 4], vec![3, 4], vec![1, 3, 4]];
        assert_eq!(told, expected);
        assert!(NodeMask::EMPTY.subsets().is_empty());
    }
}
