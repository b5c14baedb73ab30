//! Why a request was refused, in etcd's words: clients know its errors by their text.
//! <https://github.com/etcd-io/etcd/blob/v3.6.0/api/v3rpc/rpctypes/error.go>

use crate::StoreError;

/// Why a request was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A request without a key.
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    /// What is to be kept of the key is not there; also a transaction's operation of no kind.
    #[error("etcdserver: key not found")]
    KeyNotFound,
    /// A value although the old one is to be kept.
    #[error("etcdserver: value is provided")]
    ValueProvided,
    /// A lease although the old one is to be kept.
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    /// Too many operations in a transaction.
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    /// A transaction that writes a key twice.
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    /// No such order.
    #[error("etcdserver: invalid sort option")]
    InvalidSortOption,
    /// The revision is no longer to be had.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    /// The revision has not happened.
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    /// The store holds as much as it may.
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    /// There is no such lease.
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// There is such a lease already.
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    /// A lease for too long.
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// A request that is too large.
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    /// The store is not able to.
    #[error("{0}")]
    Store(#[from] StoreError),
}
