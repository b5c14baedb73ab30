//! nf_tables in one transaction, without any binary.
//!
//! A [`Transaction`] is all or nothing: the kernel applies every message or none. Rules are lists of [`Expr`]; the small
//! vocabulary in [`expr`] reads like `nft`'s own (`expr::tcp_dport(80)`), and rules and elements carry a comment that the
//! `nft` tool shows, by which their owner finds them again.
//!
//! Expressions and attributes: <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netfilter/nf_tables.h>.

pub mod conntrack;
pub mod expr;
pub mod listing;
pub mod log;
pub mod pool;
pub mod query;
pub mod transaction;

pub use crate::rtnl::socket::{Error, Socket};
pub use expr::{CmpOp, Expr, Register, Verdict};
pub use listing::{ListedChain, ListedRule};
pub use pool::netfilter;
pub use query::{FoundElement, FoundRule};
pub use transaction::{Base, Element, Hook, Set, Transaction};

/// The protocol family a table is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// Frames of a bridge.
    Bridge = 7,
    /// IPv6.
    Ip6 = 10,
}

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table<'a> {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: &'a str,
}
