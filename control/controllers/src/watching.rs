//! Watches that resume by themselves, and what is common to handling them.

use std::fmt::Debug;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// A watch over objects of one kind.
pub(crate) type Watch<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// Watches all objects of a kind in all namespaces, restricted by a field selector if not empty.
pub(crate) fn watch<K>(client: &Client, fields: &str) -> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + DeserializeOwned + 'static,
{
    let mut config = watcher::Config::default();
    if !fields.is_empty() {
        config = config.fields(fields);
    }
    watcher(Api::all(client.clone()), config).default_backoff().boxed()
}

/// Says that a watch was interrupted; it resumes by itself.
pub(crate) fn interrupted(what: &str, error: &watcher::Error) {
    tracing::warn!(what, %error, "watch interrupted; it is taken up again");
}

/// Whether the API server answered with this HTTP status.
pub(crate) fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
