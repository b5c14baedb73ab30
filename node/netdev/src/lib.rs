//! The node's network devices: looking at one, moving it into a pod's network namespace, and bringing it home.
//!
//! What is done to a device is decided by whoever owns the pod: the runtime for devices that a container's specification
//! names ([`MovedDevice`]), a driver for those of a claim ([`Snapshot`], [`Inside`], [`Child`]). Here nothing is remembered: what
//! a device was is a value, which the caller writes down before anything is touched and hands back to undo it. Everything is
//! synchronous and speaks rtnetlink; a network namespace is a property of a thread.
//!
//! The kernel gives hardware back under the pod's name when a namespace ends, and destroys every other kind of device:
//! <https://man7.org/linux/man-pages/man7/network_namespaces.7.html>.

mod attach;
mod bandwidth;
mod child;
mod moving;
mod snapshot;
mod switches;
mod vrf;

pub use attach::{AttachError, Attached, Found, Inside, Rule, attach, bring_home, find, settle_inside};
pub use child::{Child, ChildError, ChildKind, make, unmake};
pub use moving::{MoveError, MovedDevice, arrive, look, move_in, move_out};
pub use snapshot::{Aggregated, Neighbour, Route, Snapshot};
pub use switches::{Switchboard, Switched};
pub use vrf::Vrf;
