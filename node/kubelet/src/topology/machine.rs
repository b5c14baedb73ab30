//! The NUMA nodes of a machine and how far they are from each other.

use std::{fs, io, path::Path};

use super::mask::NodeMask;

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// How far every node of the machine is from it, in the order of the machine's nodes; empty where it is not known.
    pub distances: Vec<u64>,
}

/// The NUMA nodes of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    nodes: Vec<NumaNode>,
    mask: NodeMask,
}

/// Why a machine's nodes are not known.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The kernel does not tell.
    #[error("read {path}")]
    Read {
        /// Which file or folder.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel tells something that is no number.
    #[error("{path}: {text:?} is not a list of distances")]
    Distances {
        /// Which file.
        path: String,
        /// What it holds.
        text: String,
    },
    /// A node's number is beyond what a set of nodes holds.
    #[error("NUMA node {id}: the number must be in range 0-63")]
    TooHigh {
        /// The number.
        id: u32,
    },
    /// A node is named twice.
    #[error("NUMA node {id} is named twice")]
    Twice {
        /// The number.
        id: u32,
    },
}

impl Machine {
    /// A machine with these nodes.
    pub fn new(nodes: Vec<NumaNode>) -> Result<Machine, MachineError> {
        let mut mask = NodeMask::EMPTY;
        for &NumaNode { id, .. } in &nodes {
            if id >= NodeMask::LIMIT {
                return Err(MachineError::TooHigh { id });
            }
            let one = NodeMask::of([i64::from(id)]);
            if mask.meets(one) {
                return Err(MachineError::Twice { id });
            }
            mask = mask.or(one);
        }
        Ok(Machine { nodes, mask })
    }

    /// What the kernel tells under `folder` (`/sys/devices/system/node`); one node, 0, where it tells of none.
    pub fn read(folder: &Path) -> Result<Machine, MachineError> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Machine::new(vec![alone()]),
            Err(source) => return Err(MachineError::Read { path: folder.display().to_string(), source }),
        };
        let mut nodes = Vec::new();
        for entry in entries {
            let entry =
                entry.map_err(|source| MachineError::Read { path: folder.display().to_string(), source })?;
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else {
                continue;
            };
            nodes.push(NumaNode { id, distances: distances(&entry.path().join("distance"))? });
        }
        nodes.sort_by_key(|node| node.id);
        Machine::new(if nodes.is_empty() { vec![alone()] } else { nodes })
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// All of its nodes as a set.
    pub fn mask(&self) -> NodeMask {
        self.mask
    }

    /// How far the nodes of `mask` are from each other: the sum over every pair, each node with itself among them.
    /// Sets of as many nodes compare as their averages do.
    pub(super) fn distance(&self, mask: NodeMask) -> u64 {
        let within = |node: &&NumaNode| mask.meets(NodeMask::of([i64::from(node.id)]));
        let others: Vec<usize> =
            self.nodes.iter().enumerate().filter(|(_, node)| within(node)).map(|(at, _)| at).collect();
        let rows = self.nodes.iter().filter(within);
        let pairs =
            rows.flat_map(|row| others.iter().map(|at| row.distances.get(*at).copied().unwrap_or_default()));
        pairs.fold(0, u64::saturating_add)
    }
}

/// The node of a machine that has no others.
fn alone() -> NumaNode {
    NumaNode { id: 0, distances: vec![10] }
}

fn distances(path: &Path) -> Result<Vec<u64>, MachineError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // Kernels without ACPI tables tell no distances.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(MachineError::Read { path: path.display().to_string(), source }),
    };
    text.split_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|_| MachineError::Distances {
        path: path.display().to_string(),
        text: text.trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(folder: &Path, name: &str, distance: Option<&str>) {
        fs::create_dir_all(folder.join(name)).unwrap();
        if let Some(text) = distance {
            fs::write(folder.join(name).join("distance"), text).unwrap();
        }
    }

    #[test]
    fn the_kernels_nodes_are_read_with_their_distances() {
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), "node1", Some("21 10\n"));
        node(folder.path(), "node0", Some("10 21\n"));
        node(folder.path(), "power", None);
        fs::write(folder.path().join("online"), "0-1\n").unwrap();
        let machine = Machine::read(folder.path()).unwrap();
        let expected =
            vec![NumaNode { id: 0, distances: vec![10, 21] }, NumaNode { id: 1, distances: vec![21, 10] }];
        assert_eq!(machine.nodes(), expected);
        assert_eq!(machine.mask(), NodeMask::of([0, 1]));
        assert_eq!(machine.distance(NodeMask::of([0, 1])), 62);
    }

    #[test]
    fn a_machine_that_tells_of_no_nodes_has_one() {
        let folder = tempfile::tempdir().unwrap();
        for place in [folder.path().to_owned(), folder.path().join("nowhere")] {
            assert_eq!(Machine::read(&place).unwrap().mask(), NodeMask::of([0]));
        }
    }

    #[test]
    fn nodes_that_cannot_be_are_refused() {
        let bad = |ids: &[u32]| {
            let nodes = ids.iter().map(|id| NumaNode { id: *id, distances: Vec::new() }).collect();
            Machine::new(nodes).unwrap_err().to_string()
        };
        assert_eq!(bad(&[0, 64]), "NUMA node 64: the number must be in range 0-63");
        assert_eq!(bad(&[1, 1]), "NUMA node 1 is named twice");
        let folder = tempfile::tempdir().unwrap();
        node(folder.path(), "node0", Some("10 far\n"));
        let error = Machine::read(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("\"10 far\" is not a list of distances"), "{error}");
    }
}
