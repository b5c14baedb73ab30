//! The kernel's nouns as safe functions: namespaces, netlink, nf_tables, cgroups, mounts, pidfds.
//!
//! With `node/container` the only home of `unsafe`. Synchronous on purpose: a namespace belongs to a thread.
#![allow(unsafe_code)]

pub mod apparmor;
pub mod background;
pub mod beneath;
pub mod boot;
pub mod boot_journal;
pub mod bpf;
pub mod cgroup;
pub mod ethtool;
#[doc(hidden)]
pub mod hostile;
pub mod kernel;
pub mod mount;
pub mod namespaces;
pub mod netns;
pub mod nft;
pub mod notices;
pub mod pidfd;
pub mod rtnl;
pub mod sysctl;
