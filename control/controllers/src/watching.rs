//! Watches that resume by themselves, and what is common to handling them.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::BoxStream;
use podwire_client::watcher::{self, watcher};
use podwire_client::{Api, Client, Object};

/// What panicked is not tried again before this.
const PANIC_PAUSE: Duration = Duration::from_millis(500);

/// A watch over objects of one kind.
pub(crate) type Watch<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// Watches all objects of a kind in all namespaces, restricted by a field selector if not empty.
pub(crate) fn watch<K>(client: &Client, fields: &str) -> Watch<K>
where
    K: Object<DynamicType = ()>,
{
    let mut config = watcher::Config::default();
    if !fields.is_empty() {
        config = config.fields(fields);
    }
    watcher(Api::all(client.clone()), config)
}

/// Says that a watch was interrupted; it resumes by itself.
pub(crate) fn interrupted(what: &str, error: &watcher::Error) {
    tracing::warn!(what, %error, "watch interrupted; it is taken up again");
}

/// What `work` comes to, or `failed` some time after it panicked: whoever waits for the outcome waits for ever otherwise.
pub(crate) async fn caught<T>(work: impl Future<Output = T>, failed: T) -> T {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        Err(_) => {
            tracing::error!("a task of a controller panicked; it is tried again");
            tokio::time::sleep(PANIC_PAUSE).await;
            failed
        }
    }
}

/// Whether the API server answered with this HTTP status.
pub(crate) fn is_status(error: &podwire_client::Error, code: u16) -> bool {
    matches!(error, podwire_client::Error::Api(status) if status.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_panics_has_failed_and_work_that_does_not_has_not() {
        assert_eq!(caught(async { 1 }, 2).await, 1);
        let bug = async { if std::hint::black_box(true) { panic!("a bug") } else { 1 } };
        assert_eq!(caught(bug, 2).await, 2);
    }
}
