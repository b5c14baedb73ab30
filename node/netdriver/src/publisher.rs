//! What is offered, written to the API server: as soon as it changes, and again when somebody deletes it.
//!
//! Two tasks: one looks at the node whenever the kernel says that its network changed, or a device went away or came home;
//! the other watches our slices and writes what differs.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use podwire_client::{
    Api, Client, DynamicObject, Error, ResourceExt,
    api::{ApiResource, DeleteParams, GroupVersionKind, Patch, PatchParams},
    watcher::{self, Event},
};
use podwire_linux::notices::Notices;
use serde_json::Value;
use tokio::{io::unix::AsyncFd, sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    figures::Figures,
    filter::Filter,
    inventory::{self, Inventory},
    keeper::Absent,
    plan::{
        devices::{Device, Offer, devices},
        slices::{Pool, Write},
    },
    publications::Publications,
};

/// Links come in quick succession: all of them are looked at in one go.
const SETTLE: Duration = Duration::from_millis(10);
/// A node where links come and go without end still has time for other things.
const PAUSE: Duration = Duration::from_millis(50);
/// A failed write is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What is offered: what can be prepared now, and what is published, which is that and what is away.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offered {
    pub(crate) devices: BTreeMap<String, Device>,
    pub(crate) published: BTreeMap<String, Value>,
}

/// What looks at the node.
pub(crate) struct Looker {
    pub(crate) inventory: Inventory,
    pub(crate) notices: AsyncFd<Notices>,
    pub(crate) offers: Vec<Offer>,
    pub(crate) skip: Vec<String>,
    pub(crate) filter: Filter,
    pub(crate) absent: watch::Receiver<Absent>,
    pub(crate) offered: watch::Sender<Arc<Offered>>,
}

impl Looker {
    /// Looks, and tells what is offered if that is not what it was. Blocking.
    pub(crate) fn look(&mut self) -> Result<(), inventory::Error> {
        let seen = self.inventory.look()?;
        let all = devices(&seen, &self.offers, &self.skip).into_iter();
        let all: BTreeMap<String, Device> = all
            .filter(|device| self.filter.passes(device))
            .map(|device| (device.name.clone(), device))
            .collect();
        let mut published: BTreeMap<String, Value> =
            all.iter().map(|(name, device)| (name.clone(), device.published())).collect();
        published.extend(self.absent.borrow_and_update().clone());
        let now = Offered { devices: all, published };
        self.offered.send_if_modified(|before| {
            let changed = **before != now;
            if changed {
                *before = Arc::new(now);
            }
            changed
        });
        Ok(())
    }

    /// Looks whenever there may be something new, until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let changed = tokio::select! {
                () = shutdown.cancelled() => return,
                changed = self.changed() => changed,
            };
            if let Err(error) = changed {
                tracing::error!(%error, "changes of the node's network are no longer told; restart the driver");
                return shutdown.cancelled().await;
            }
            let looked = tokio::task::spawn_blocking(move || {
                let looked = self.look();
                (self, looked)
            });
            // Only a defect in the look itself gets here; what is offered stays what it is.
            let Ok((back, looked)) = looked.await else { return shutdown.cancelled().await };
            self = back;
            if let Err(error) = looked {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the node cannot be looked at; will look again"
                );
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn changed(&mut self) -> io::Result<()> {
        tokio::select! {
            said = spoken(&self.notices) => said?,
            away = self.absent.changed() => if away.is_err() {
                std::future::pending::<()>().await;
            }
        }
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }
}

#[expect(deprecated, reason = "the unsafe successor asks for what an owned descriptor already gives")]
pub(crate) fn readable(notices: Notices) -> io::Result<AsyncFd<Notices>> {
    AsyncFd::new(notices)
}

pub(crate) async fn spoken(socket: &AsyncFd<Notices>) -> io::Result<()> {
    loop {
        let mut ready = socket.readable().await?;
        let said = socket.get_ref().drain().map_err(io::Error::other)?;
        ready.clear_ready();
        if said {
            return Ok(());
        }
    }
}

/// What writes slices.
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) driver: String,
    pub(crate) node: String,
    pub(crate) offered: watch::Receiver<Arc<Offered>>,
    pub(crate) figures: Figures,
    pub(crate) publications: Publications,
}

impl Publisher {
    /// Writes until `shutdown`. The slices stay: the kubelet deletes them if nobody comes back.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.publish() => {}
        }
    }

    async fn publish(&mut self) {
        let node_uid = self.node_uid().await;
        let pool = Pool { driver: self.driver.clone(), node: self.node.clone(), node_uid };
        let kind = GroupVersionKind::gvk("resource.k8s.io", "v1", "ResourceSlice");
        let resource = ApiResource::from_gvk_with_plural(&kind, "resourceslices");
        let own = format!("spec.nodeName={},spec.driver={}", self.node, self.driver);
        let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut events = watcher::watcher(all, watcher::Config::default().fields(&own));
        let (mut published, mut listed) = (BTreeMap::new(), None);
        let mut behind = false;
        loop {
            let again = async {
                if !behind {
                    return std::future::pending().await;
                }
                tokio::time::sleep(AGAIN).await;
            };
            tokio::select! {
                changed = self.offered.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = again => {}
                event = events.next() => match event {
                    Some(Ok(event)) => heard(event, &mut published, &mut listed),
                    Some(Err(error)) => tracing::warn!(error = &error as &dyn std::error::Error, "our slices cannot be watched; will try again"),
                    None => return std::future::pending().await,
                },
            }
            if listed != Some(true) {
                continue;
            }
            let devices: Vec<Value> = self.offered.borrow_and_update().published.values().cloned().collect();
            behind = !self.write(pool.changes(&devices, &published), &mut published).await;
        }
    }

    /// Carries changes out, and takes them for told; says whether all went well.
    async fn write(&self, writes: Vec<Write>, published: &mut BTreeMap<String, Value>) -> bool {
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        for write in writes {
            let (name, done) = match write {
                Write::Put(put) => {
                    let (name, slice) = *put;
                    let params = PatchParams::apply(&self.driver).force();
                    let begun = Instant::now();
                    let done = api.patch(&name, &params, &Patch::Apply(slice.clone())).await.map(drop);
                    if done.is_ok() {
                        self.publications.written(&name, &slice, begun);
                        published.insert(name.clone(), slice);
                        self.figures.published(jiff::Timestamp::now().as_second());
                    }
                    (name, done)
                }
                Write::Delete(name) => {
                    let done = match api.delete(&name, &DeleteParams::default()).await {
                        Err(Error::Api(status)) if status.code == 404 => Ok(()),
                        done => done,
                    };
                    if done.is_ok() {
                        self.publications.deleted(&name);
                        published.remove(&name);
                    }
                    (name, done)
                }
            };
            if let Err(error) = done {
                tracing::warn!(slice = name, %error, "a slice is not written; will try again");
                return false;
            }
        }
        true
    }

    /// Slices go with the node's object.
    async fn node_uid(&self) -> String {
        let nodes: Api<Node> = Api::all(self.client.clone());
        loop {
            match nodes.get_opt(&self.node).await {
                Ok(Some(node)) if node.metadata.uid.is_some() => {
                    return node.metadata.uid.unwrap_or_default();
                }
                Ok(_) => tracing::info!(
                    node = self.node,
                    "the node is not known yet; its devices are published when it is"
                ),
                Err(error) => tracing::warn!(%error, "the node cannot be read; will try again"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

fn heard(event: Event<DynamicObject>, published: &mut BTreeMap<String, Value>, listed: &mut Option<bool>) {
    match event {
        Event::Init => {
            published.clear();
            *listed = Some(false);
        }
        Event::InitDone => *listed = Some(true),
        Event::InitApply(slice) | Event::Apply(slice) => {
            // What we wrote ourselves comes back; what is older than that is not news.
            let generation = |slice: &Value| slice.pointer("/spec/pool/generation").and_then(Value::as_i64);
            let name = slice.name_any();
            let before = published.get(&name).and_then(generation);
            if *listed == Some(false) || before.is_none() || before < generation(&slice.data) {
                published.insert(name, slice.data);
            }
        }
        Event::Delete(slice) => {
            published.remove(&slice.name_any());
        }
    }
}
