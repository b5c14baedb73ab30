//! From the API server's watch to one worker per pod; also adopts and clears what the runtime holds at start.
//!
//! Tasks: one, plus one per pod. Nothing of the runtime is removed before the first complete list of pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use podwire_client::{
    Api,
    watcher::{self, Event},
};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use podwire_wire::ids::PodUid;

use crate::{
    inbox::{Inbox, Signal},
    leftovers,
    node::Node,
    observed::{Observed, Users},
    runtime::watch,
    spec::{self, PodRef},
    static_pods,
    worker::Worker,
};

/// Hears of pods and keeps a worker for each.
pub(crate) struct Source {
    pub(crate) node: Arc<Node>,
    pub(crate) client: podwire_client::Client,
    pub(crate) orphans: mpsc::Receiver<(PodRef, Observed)>,
    /// Rung when a worker has begun on what ran already, so that the runtime is listed once more.
    pub(crate) adopted: Arc<Notify>,
    pub(crate) adoptable: BTreeMap<PodUid, (PodRef, Observed)>,
    /// Pods from this node's files.
    pub(crate) statics: tokio::sync::watch::Receiver<static_pods::Wanted>,
    /// Every pod of the API, since the first complete list.
    pub(crate) listed: Option<BTreeSet<PodUid>>,
    /// Whether files and cgroups of pods long gone were looked for.
    pub(crate) swept: bool,
    pub(crate) workers: tokio_util::task::TaskTracker,
}

/// A pod of which only the uid is known.
fn nameless(uid: &str) -> PodRef {
    PodRef { namespace: String::new(), name: String::new(), uid: uid.into() }
}

impl Source {
    /// Runs until `shutdown`, then waits for the workers to come to rest.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.take_stock() => {}
        }
        let api: Api<Pod> = Api::all(self.client.clone());
        let config =
            watcher::Config::default().fields(&format!("spec.nodeName={}", self.node.config.node_name));
        let mut events = watcher::watcher(api, config);
        let mut batch: Vec<Pod> = Vec::new();
        let mut statics = self.statics.clone();
        let mut has_files = true;
        self.apply_statics(&shutdown);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(event)) => self.heard(event, &mut batch, &shutdown).await,
                    Some(Err(error)) => tracing::warn!(error = %error, "pods not watched; will retry"),
                    None => break,
                },
                changed = statics.changed(), if has_files => match changed {
                    Ok(()) => self.apply_statics(&shutdown),
                    Err(_) => has_files = false,
                },
                Some((pod, observed)) = self.orphans.recv() => self.orphan(pod, observed, &shutdown),
            }
        }
        self.workers.close();
        self.workers.wait().await;
    }

    /// What the runtime holds from before, so that a pod that runs already is never started again.
    async fn take_stock(&mut self) {
        let mut wait = Duration::from_millis(20);
        loop {
            match self.try_stock().await {
                Ok(found) => {
                    self.adoptable = found;
                    return;
                }
                Err(error) => {
                    tracing::warn!(error = %error, "the runtime does not answer; will retry");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    async fn try_stock(&self) -> Result<BTreeMap<PodUid, (PodRef, Observed)>, crate::runtime::CallError> {
        let mut found = BTreeMap::new();
        for (uid, listing) in watch::list(&self.node.runtime).await? {
            let observed = watch::observe(&self.node.runtime, &listing).await?;
            for sandbox in &observed.sandboxes {
                if let Some(Users::Own { first }) = sandbox.users
                    && (sandbox.ready || observed.any_running())
                {
                    self.node.users.adopt(&uid, first);
                }
            }
            let reference = listing.pod.unwrap_or_else(|| nameless(&uid));
            found.insert(uid, (reference, observed));
        }
        Ok(found)
    }

    async fn heard(&mut self, event: Event<Pod>, batch: &mut Vec<Pod>, shutdown: &CancellationToken) {
        match event {
            Event::Init => batch.clear(),
            Event::InitApply(pod) | Event::Apply(pod) if static_pods::is_mirror(&pod) => self.mirror(&pod),
            Event::Delete(pod) if static_pods::is_mirror(&pod) => {
                self.node.mirrors.gone(&pod);
                self.remake_mirrors();
            }
            Event::InitApply(pod) => batch.push(pod),
            Event::InitDone => {
                self.listed = Some(batch.iter().map(|pod| spec::uid(pod).into()).collect());
                // What runs already holds its resources before anything new may ask for them.
                batch.sort_by_cached_key(|pod| {
                    let runs = self.adoptable.contains_key(spec::uid(pod));
                    (!runs, pod.metadata.creation_timestamp.as_ref().map(|at| at.0))
                });
                std::mem::take(batch).into_iter().for_each(|pod| self.apply(pod, shutdown));
                self.settle(shutdown).await;
            }
            Event::Apply(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(spec::uid(&pod).into());
                }
                self.apply(pod, shutdown);
            }
            Event::Delete(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.remove(spec::uid(&pod));
                }
                if let Some(inbox) = self.node.inboxes.get(spec::uid(&pod)) {
                    inbox.gone();
                }
            }
        }
    }

    /// A mirror that is being deleted goes at once; one that shows something else is replaced.
    fn mirror(&self, pod: &Pod) {
        let hash = spec::annotation(pod, "kubernetes.io/config.mirror").unwrap_or_default();
        let wanted = self.statics.borrow().contains_key(hash);
        if wanted && pod.metadata.deletion_timestamp.is_none() {
            self.node.mirrors.seen(pod);
            self.node.inboxes.signal(hash, Signal::Mirrored);
            return;
        }
        self.delete_mirror(PodRef::of(pod));
    }

    fn delete_mirror(&self, reference: PodRef) {
        let node = self.node.clone();
        self.node.tasks.spawn(async move {
            if let Err(error) = node.api.delete_pod(&reference).await {
                tracing::debug!(pod = %reference, error = %error, "mirror not deleted");
            }
        });
    }

    /// Every static pod without a mirror gets one.
    fn remake_mirrors(&self) {
        for (uid, pod) in self.statics.borrow().iter() {
            if self.node.mirrors.of(pod).is_some() {
                continue;
            }
            let (node, pod, uid) = (self.node.clone(), pod.clone(), uid.clone());
            self.node.tasks.spawn(async move {
                static_pods::make_mirror(&node, &pod).await;
                node.inboxes.signal(&uid, Signal::Mirrored);
            });
        }
    }

    /// Begins and ends pods as the files of this node say.
    fn apply_statics(&mut self, shutdown: &CancellationToken) {
        let wanted = self.statics.borrow().clone();
        for (uid, pod) in wanted.iter() {
            if self.node.inboxes.get(uid).is_none() {
                let observed = self.adoptable.remove(uid).map(|(_, observed)| observed).unwrap_or_default();
                self.spawn(pod.clone(), observed, shutdown);
            }
        }
        for uid in self.node.inboxes.uids() {
            let known = self.node.pods.lock().expect("no holder panics").get(&uid).map(|k| k.pod.clone());
            let ended = known.is_some_and(|pod| spec::is_static(&pod)) && !wanted.contains_key(&uid);
            if ended && let Some(inbox) = self.node.inboxes.get(&uid) {
                inbox.gone();
            }
        }
        for reference in self.node.mirrors.stale(&wanted) {
            self.delete_mirror(reference);
        }
        self.remake_mirrors();
    }

    fn apply(&mut self, mut pod: Pod, shutdown: &CancellationToken) {
        // Only this node says which pods are its own; one of the API that claims to be would count as critical.
        if spec::is_static(&pod) {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
        }
        let uid = PodUid::from(spec::uid(&pod));
        let pod = Arc::new(pod);
        if let Some(inbox) = self.node.inboxes.get(&uid) {
            inbox.pod(pod);
            return;
        }
        let observed = self.adoptable.remove(&uid).map(|(_, observed)| observed).unwrap_or_default();
        self.spawn(pod, observed, shutdown);
    }

    fn spawn(&self, pod: Arc<Pod>, observed: Observed, shutdown: &CancellationToken) -> Arc<Inbox> {
        let uid = PodUid::from(spec::uid(&pod));
        let inbox = Arc::new(Inbox::default());
        self.node.inboxes.add(uid.clone(), inbox.clone());
        if !observed.is_empty() {
            // Between the look at the runtime and this inbox, whatever happened to the pod was told to nobody.
            self.adopted.notify_one();
        }
        let worker = Worker::new(self.node.clone(), inbox.clone(), pod, observed);
        let node = self.node.clone();
        let shutdown = shutdown.clone();
        self.workers.spawn(async move {
            // One bad pod must not take others with it, nor block its own next try.
            if AssertUnwindSafe(worker.run(shutdown)).catch_unwind().await.is_err() {
                tracing::error!(%uid, "a pod's worker panicked; the pod's next change begins another");
            }
            node.inboxes.remove(&uid);
            node.pod_forgotten(&uid);
        });
        inbox
    }

    /// After a complete list: pods that are no longer in it are gone, and so is what the runtime still has of others.
    async fn settle(&mut self, shutdown: &CancellationToken) {
        let Some(listed) = &self.listed else { return };
        for uid in self.node.inboxes.uids() {
            if !listed.contains(&uid)
                && !self.statics.borrow().contains_key(&uid)
                && let Some(inbox) = self.node.inboxes.get(&uid)
            {
                inbox.gone();
            }
        }
        let statics = self.statics.borrow().clone();
        self.node.devices.settle(|uid| {
            listed.contains(uid)
                || statics.contains_key(uid)
                || self.adoptable.contains_key(uid)
                || self.node.inboxes.get(uid).is_some()
        });
        for (_, (reference, observed)) in std::mem::take(&mut self.adoptable) {
            self.orphan(reference, observed, shutdown);
        }
        // From here on every pod that has anything here has a worker.
        self.node.claims.settle();
        if !std::mem::replace(&mut self.swept, true) {
            let node = self.node.clone();
            let looked = tokio::task::spawn_blocking(move || leftovers::uids(&node.config)).await;
            for uid in looked.unwrap_or_default() {
                self.orphan(nameless(&uid), Observed::default(), shutdown);
            }
        }
    }

    /// Something runs that no pod of the API wants.
    fn orphan(&mut self, pod: PodRef, observed: Observed, shutdown: &CancellationToken) {
        let Some(listed) = &self.listed else { return };
        if listed.contains(&pod.uid)
            || self.statics.borrow().contains_key(&pod.uid)
            || self.node.inboxes.get(&pod.uid).is_some()
        {
            return;
        }
        tracing::info!(pod = %pod, uid = %pod.uid, "clearing a pod that the API no longer has");
        let mut object = Pod::default();
        object.metadata.name = Some(pod.name);
        object.metadata.namespace = Some(pod.namespace);
        object.metadata.uid = Some(pod.uid.into_string());
        object.metadata.deletion_grace_period_seconds = Some(1);
        let inbox = self.spawn(Arc::new(object), observed, shutdown);
        inbox.gone();
    }
}
