//! How long the other side has: to register, and to answer a call. Who takes longer has not answered.

use std::time::Duration;

use crate::link::CallError;

/// How long a plugin may take to register, unless the configuration says otherwise.
pub(crate) const REGISTRATION: Duration = Duration::from_secs(5);
/// How long a plugin may take to answer, unless the configuration says otherwise.
pub(crate) const REQUEST: Duration = Duration::from_secs(2);
/// How long a plugin may take to hear that the runtime ends.
pub(crate) const FAREWELL: Duration = Duration::from_millis(500);

/// The answer of an exchange that is over in time.
///
/// Cancel safe if the exchange is.
pub(crate) async fn within<T>(
    limit: Duration,
    exchange: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::time::timeout(limit, exchange).await.unwrap_or(Err(CallError::Timeout(limit)))
}
