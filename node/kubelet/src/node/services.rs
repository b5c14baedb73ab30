//! The cluster's services, for containers' environments.
//!
//! Tasks: one watch. An API server without services counts as one with none.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use podwire_client::{
    Api,
    watcher::{self, Event},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Longest a container waits for the first list.
const PATIENCE: Duration = Duration::from_secs(2);

type Shared = Option<Arc<Vec<Service>>>;

/// The services as last heard of.
pub(crate) struct Services {
    current: watch::Receiver<Shared>,
}

/// Keeps the services current.
pub(crate) struct Follower {
    client: podwire_client::Client,
    sender: watch::Sender<Shared>,
}

impl Services {
    /// The services and the task that keeps them current.
    pub(crate) fn new(client: podwire_client::Client) -> (Services, Follower) {
        let (sender, current) = watch::channel(None);
        (Services { current }, Follower { client, sender })
    }

    /// The services, once they are known or are not going to be soon.
    pub(crate) async fn now(&self) -> Arc<Vec<Service>> {
        let mut current = self.current.clone();
        match tokio::time::timeout(PATIENCE, current.wait_for(Option::is_some)).await {
            Ok(Ok(services)) => services.clone().unwrap_or_default(),
            _ => Arc::default(),
        }
    }
}

impl Follower {
    /// Follows until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&self) {
        let api: Api<Service> = Api::all(self.client.clone());
        let mut events = watcher::watcher(api, watcher::Config::default().without_waits());
        let mut all: BTreeMap<(String, String), Service> = BTreeMap::new();
        let mut listing = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    all.clear();
                    listing = true;
                }
                Ok(Event::InitApply(service) | Event::Apply(service)) => {
                    all.insert(key(&service), service);
                }
                Ok(Event::Delete(service)) => {
                    all.remove(&key(&service));
                }
                Ok(Event::InitDone) => listing = false,
                Err(error) => {
                    tracing::debug!(error = %error, "services not watched; will retry");
                    self.sender
                        .send_if_modified(|old| old.is_none() && old.replace(Arc::default()).is_none());
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    continue;
                }
            }
            if !listing {
                self.sender.send_replace(Some(Arc::new(all.values().cloned().collect())));
            }
        }
    }
}

fn key(service: &Service) -> (String, String) {
    (
        service.metadata.namespace.clone().unwrap_or_default(),
        service.metadata.name.clone().unwrap_or_default(),
    )
}
