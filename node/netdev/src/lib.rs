//! The node's network devices: looking at one, moving it into a pod's network namespace, and bringing it home.
//!
//! What is done to a device is decided by whoever owns the pod: the runtime for devices that a container's specification
//! names, a driver for those of a claim. Here nothing is remembered: what a device was is a [`MovedDevice`], which the caller
//! writes down before [`move_in`] and hands back to [`move_out`]. Everything is synchronous and speaks rtnetlink; a network
//! namespace is a property of a thread.
//!
//! The kernel gives hardware back under the pod's name when a namespace ends, and destroys every other kind of device:
//! <https://man7.org/linux/man-pages/man7/network_namespaces.7.html>.

mod moving;

pub use moving::{MoveError, MovedDevice, arrive, look, move_in, move_out};
