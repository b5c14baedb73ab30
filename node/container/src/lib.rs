//! One container from OCI spec to execve, and the supervisor that outlives the daemon.
//!
//! Three processes meet here. The daemon holds a [`Supervisor`] handle and plans ([`plan`], pure).
//! The supervisor (one small single-threaded process per node) clones containers and keeps what
//! must not die with the daemon: pidfds, stdio, log files, exit codes. The child, between clone
//! and execve, only makes system calls on memory that was laid out before.
//!
//! It deliberately knows nothing of pods, images or the CRI. No async runtime.

#![allow(unsafe_code)]

mod capability;
mod child;
mod client;
mod error;
mod failure;
#[doc(hidden)]
pub mod hostile;
pub mod plan;
mod prepare;
mod protocol;
mod request;
pub mod resources;
pub mod seccomp;
mod socket;
mod spare_fds;
mod spawn;
mod supervisor;
mod userns;

pub use client::Supervisor;
pub use error::Error;
pub use request::{
    AttachHandle, AttachRequest, ContainerState, ContainerStatus, CreateRequest, Created, Event, ExecHandle,
    ExecRequest, ExecState, OciRuntimeRequest, Rootfs, StartedAt, SupervisorConfig, WindowSize,
};
pub use supervisor::{SupervisorArgs, supervisor_main};
