//! The health of devices in pods: looked at in their pods' namespaces when the kernel says that a link changed, and told to the
//! kubelet as long as it listens.
//!
//! One task looks; each stream of a kubelet is one more while it lasts. `plan::health` judges.

use std::{io, pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use podwire_linux::{
    netns::Netns,
    notices::Notices,
    rtnl::{LinkRef, Socket},
};
use podwire_wire::dra_health::{
    DeviceHealth, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
    dra_resource_health_server::DraResourceHealth,
};
use tokio::{io::unix::AsyncFd, sync::watch};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    book::Place,
    plan::health::{told, trouble},
    publisher::spoken,
};

/// How long what is told holds, and how often it is told although nothing changed.
const HOLDS: i64 = 30;
const AGAIN: Duration = Duration::from_secs(10);
/// Links change in quick succession: all of them are looked at in one go.
const SETTLE: Duration = Duration::from_millis(20);

/// A device that is in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) place: Place,
    /// Its number there.
    pub(crate) index: u32,
}

impl Watched {
    /// What is the matter with it now.
    fn trouble(&self) -> Option<&'static str> {
        let pod = Netns::open(&self.place.pin).or_else(|_| Netns::open(&self.place.path)).ok();
        let seen = pod.map(|pod| pod.run(|| Socket::route()?.link(LinkRef::Index(self.index))));
        match seen {
            Some(Ok(Ok(link))) => trouble(link.as_ref()),
            // The pod ends, or cannot be looked into: that is said elsewhere.
            _ => None,
        }
    }
}

/// What was seen last.
pub(crate) type Seen = Arc<Vec<((String, String), Option<&'static str>)>>;

/// What looks.
pub(crate) struct Watcher {
    pub(crate) notices: AsyncFd<Notices>,
    pub(crate) attached: watch::Receiver<Vec<Watched>>,
    pub(crate) seen: watch::Sender<Seen>,
}

impl Watcher {
    /// Looks whenever a link changed somewhere or a device came or went, until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let all = self.attached.borrow_and_update().clone();
            let look = move || {
                let one = |watched: Watched| {
                    let trouble = watched.trouble();
                    ((watched.pool, watched.device), trouble)
                };
                Arc::new(all.into_iter().map(one).collect::<Vec<_>>())
            };
            // Only a defect in the look itself fails; what was told stays.
            if let Ok(now) = tokio::task::spawn_blocking(look).await {
                self.seen.send_if_modified(|before| {
                    let changed = *before != now;
                    *before = now;
                    changed
                });
            }
            let changed = tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.changed() => changed,
            };
            if let Err(error) = changed {
                tracing::error!(%error, "changes of devices in pods are no longer told; restart the driver");
                return shutdown.cancelled().await;
            }
        }
    }

    async fn changed(&mut self) -> io::Result<()> {
        tokio::select! {
            said = spoken(&self.notices) => said?,
            changed = self.attached.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            }
        }
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }
}

/// What the kubelet asks.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) seen: watch::Receiver<Seen>,
    pub(crate) shutdown: CancellationToken,
}

fn now(seen: &Seen) -> Vec<DeviceHealth> {
    told(seen.iter().cloned(), jiff::Timestamp::now().as_second(), HOLDS)
}

#[tonic::async_trait]
impl DraResourceHealth for Told {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let mut seen = self.seen.clone();
        seen.mark_changed();
        let shutdown = self.shutdown.clone();
        let all = stream::unfold(seen, |mut seen: watch::Receiver<Seen>| async move {
            // Ignored: that nothing changed in this time is what is told then.
            tokio::time::timeout(AGAIN, seen.changed()).await.map(drop).ok();
            let devices = now(&seen.borrow_and_update());
            Some((Ok(NodeWatchResourcesResponse { devices }), seen))
        });
        Ok(Response::new(all.take_until(shutdown.cancelled_owned()).boxed()))
    }
}
