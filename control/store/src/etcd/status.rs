//! Refusals as gRPC tells them: the code that etcd gives each.

use tonic::{Code, Status};

use crate::StoreError;
use crate::engine::refused::Refused;

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let code = match &refused {
            Refused::EmptyKey
            | Refused::KeyNotFound
            | Refused::ValueProvided
            | Refused::LeaseProvided
            | Refused::TooManyOps
            | Refused::DuplicateKey
            | Refused::InvalidSortOption
            | Refused::RequestTooLarge => Code::InvalidArgument,
            Refused::Compacted | Refused::FutureRevision | Refused::LeaseTtlTooLarge => Code::OutOfRange,
            Refused::NoSpace => Code::ResourceExhausted,
            Refused::LeaseNotFound => Code::NotFound,
            Refused::LeaseExists => Code::FailedPrecondition,
            Refused::Store(error) => return of_store(error),
        };
        Status::new(code, refused.to_string())
    }
}

/// What became of the store itself; clients know some of it in etcd's words.
fn of_store(error: &StoreError) -> Status {
    match error {
        StoreError::Closed => Status::unavailable("etcdserver: server stopped"),
        StoreError::Compacted { .. } => Refused::Compacted.into(),
        StoreError::FutureRevision { .. } => Refused::FutureRevision.into(),
        StoreError::Quota { .. } | StoreError::Full { .. } => Refused::NoSpace.into(),
        StoreError::TooLarge { .. } => Refused::RequestTooLarge.into(),
        StoreError::Corrupt { .. } => {
            tracing::error!(error = error as &dyn std::error::Error, "the store is damaged");
            Status::data_loss("etcdserver: corrupt cluster")
        }
        other => {
            tracing::error!(error = other as &dyn std::error::Error, "the store cannot answer");
            Status::unknown(other.to_string())
        }
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        of_store(&error)
    }
}
