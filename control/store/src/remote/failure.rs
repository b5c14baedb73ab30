//! What a failed call means: whether the cluster is away, was too slow, or may have done what was asked.

use std::error::Error;

use tonic::{Code, ConnectError, Status};

use crate::StoreError;

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Asking twice does no harm.
    Read,
    /// It may be done once only.
    Write,
}

/// Words of a server that has not begun with what it was asked.
const NOT_BEGUN: &[&str] = &[
    "etcdserver: no leader",
    "etcdserver: not capable",
    "etcdserver: too many requests",
    "etcdserver: server stopped",
    "etcdserver: rpc not supported for learner",
];

/// Whether the request never left, or the server said that it did nothing about it.
pub(super) fn not_begun(status: &Status) -> bool {
    NOT_BEGUN.contains(&status.message()) || not_connected(status)
}

/// Whether there was no connection to send it on.
fn not_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Whether another member may know better.
pub(super) fn ask_another(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown => true,
        // So a connection that breaks in the middle is told.
        Code::Internal => status.source().is_some(),
        _ => false,
    }
}

/// A member did not answer in time.
pub(super) fn late(attempt: Attempt, waited: std::time::Duration) -> StoreError {
    let reason = format!("no answer in {waited:?}");
    match attempt {
        Attempt::Read => StoreError::TimedOut { reason },
        Attempt::Write => StoreError::OutcomeUnknown { reason },
    }
}

/// The one translation of what etcd says.
pub(super) fn translate(attempt: Attempt, status: &Status) -> StoreError {
    let reason = words(status);
    match (status.code(), status.message()) {
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted") => {
            StoreError::Compacted { oldest: 0 }
        }
        (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision") => {
            StoreError::FutureRevision { requested: 0, current: 0 }
        }
        _ if not_begun(status) => StoreError::Unavailable { reason },
        _ if !ask_another(status) => StoreError::Refused { reason },
        _ if attempt == Attempt::Write => StoreError::OutcomeUnknown { reason },
        (Code::DeadlineExceeded, _) => StoreError::TimedOut { reason },
        (_, message) if message.contains("timed out") => StoreError::TimedOut { reason },
        _ => StoreError::Unavailable { reason },
    }
}

/// All that is known of it.
fn words(status: &Status) -> String {
    with_causes(status.message().to_owned(), status.source())
}

/// An error with its causes, where each says its own fact.
pub(super) fn chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error.source())
}

fn with_causes(mut words: String, mut source: Option<&(dyn Error + 'static)>) -> String {
    while let Some(error) = source {
        let text = error.to_string();
        if !words.contains(&text) {
            if !words.is_empty() {
                words.push_str(": ");
            }
            words.push_str(&text);
        }
        source = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_done_is_told_apart_from_what_was_not() {
        let told = |attempt, code, message: &str| translate(attempt, &Status::new(code, message));
        let timed_out = "etcdserver: request timed out";
        assert!(matches!(
            told(Attempt::Write, Code::Unavailable, timed_out),
            StoreError::OutcomeUnknown { .. }
        ));
        assert!(matches!(told(Attempt::Read, Code::Unavailable, timed_out), StoreError::TimedOut { .. }));
        let leader = "etcdserver: no leader";
        assert!(matches!(told(Attempt::Write, Code::Unavailable, leader), StoreError::Unavailable { .. }));
        let changed = "etcdserver: leader changed";
        assert!(matches!(
            told(Attempt::Write, Code::Unavailable, changed),
            StoreError::OutcomeUnknown { .. }
        ));
        assert!(matches!(told(Attempt::Read, Code::Unavailable, changed), StoreError::Unavailable { .. }));
        let denied = "etcdserver: permission denied";
        assert!(matches!(told(Attempt::Write, Code::PermissionDenied, denied), StoreError::Refused { .. }));
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(matches!(told(Attempt::Read, Code::OutOfRange, compacted), StoreError::Compacted { .. }));
    }
}
