//! Which NUMA nodes a pod's resources come from: the topology manager.
//!
//! Whoever gives out a resource says by [`Hints`] which sets of NUMA nodes could serve a request; [`Topology::align`] finds
//! the set that suits all of them best and says whether the policy lets the pod in. [`devices`] makes the hints for devices
//! of plugins and chooses devices by the outcome. Nothing here holds state or gives anything out: who asks keeps the ledger.
//! Pure but for [`Machine::read`].
//! <https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/>

pub mod devices;
mod machine;
mod mask;
mod merge;
mod policy;

pub use self::{
    machine::{Machine, MachineError, NumaNode},
    mask::NodeMask,
    merge::{Hint, Hints},
    policy::{ConfigError, Policy, PolicyOptions, Scope, Topology, TopologyAffinityError},
};
