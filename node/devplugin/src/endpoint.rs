//! The socket of one resource: bound, served, registered with the kubelet, and all of it again when the kubelet starts anew.
//!
//! Tasks: one for each resource, which owns its listener and starts one more for each time it is served. It reads what the
//! pool offers from a `watch` and never waits for another resource.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use podwire_wire::{
    device_plugin::{
        self as v1beta1,
        device_plugin_server::{DevicePlugin, DevicePluginServer},
        registration_client::RegistrationClient,
    },
    unix::{self, ListenError},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, service::Routes};

use crate::plan::{self, Offer};

/// The kubelet's socket in the folder of device plugins.
pub(crate) const KUBELET: &str = "kubelet.sock";
const VERSION: &str = "v1beta1";
/// How long the kubelet may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// A kubelet that is not listening yet, or said no, is asked again after this, and then twice that.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);
/// How long a connection may take to end.
const GRACE: Duration = Duration::from_secs(1);
/// The longest file name of a socket, so that the whole path fits.
const NAME: usize = 56;

/// What is seen of the folder of device plugins, each as a count that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    /// The kubelet made its socket.
    pub(crate) kubelet: u64,
    /// A socket of ours went.
    pub(crate) lost: u64,
}

/// A bound socket and the file that it is.
struct Bound {
    file: (u64, u64),
    stop: CancellationToken,
}

/// One resource.
pub(crate) struct Endpoint {
    resource: String,
    path: PathBuf,
    kubelet: PathBuf,
    offer: watch::Receiver<Arc<Offer>>,
    tasks: TaskTracker,
    bound: Bound,
}

impl Endpoint {
    /// Binds the socket of a resource in the folder; one that nobody answers on is replaced.
    pub(crate) fn bind(folder: &Path, offer: watch::Receiver<Arc<Offer>>) -> Result<Endpoint, ListenError> {
        let resource = offer.borrow().pool.resource.clone();
        let path = folder.join(file_name(&resource));
        let tasks = TaskTracker::new();
        let bound = Bound::new(&path, &offer, &tasks)?;
        Ok(Endpoint { resource, path, kubelet: folder.join(KUBELET), offer, tasks, bound })
    }

    /// The name of the socket's file.
    pub(crate) fn name(&self) -> String {
        file_name(&self.resource)
    }

    /// Serves and registers until `shutdown`, then removes the socket.
    pub(crate) async fn run(mut self, mut seen: watch::Receiver<Seen>, shutdown: CancellationToken) {
        let mut registered: Option<u64> = None;
        let mut pause = FIRST;
        loop {
            let now = *seen.borrow_and_update();
            let step = self.step(now, &mut registered);
            let failed = tokio::select! {
                () = shutdown.cancelled() => break,
                failed = step => failed,
            };
            match failed {
                None => pause = FIRST,
                Some(why) => tracing::warn!(
                    resource = self.resource,
                    why,
                    "not registered with the kubelet; will try again"
                ),
            }
            let again = async {
                // Without its socket there is no kubelet to ask: the folder tells when it comes.
                if registered == Some(now.kubelet) || !self.kubelet.exists() {
                    return std::future::pending().await;
                }
                tokio::time::sleep(pause).await;
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                changed = seen.changed() => if changed.is_err() { break },
                () = again => pause = (pause * 2).min(LONGEST),
            }
        }
        self.bound.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.bound.remove(&self.path);
    }

    /// Binds again if the socket is gone, and registers unless this kubelet knows; says what went wrong.
    async fn step(&mut self, now: Seen, registered: &mut Option<u64>) -> Option<String> {
        if !self.bound.is_there(&self.path) {
            match Bound::new(&self.path, &self.offer, &self.tasks) {
                Ok(bound) => std::mem::replace(&mut self.bound, bound).stop.cancel(),
                Err(error) => return Some(chain(&error)),
            }
            *registered = None;
        }
        if *registered == Some(now.kubelet) || !self.kubelet.exists() {
            return None;
        }
        match tokio::time::timeout(ANSWER, self.register()).await {
            Ok(Ok(())) => {
                tracing::info!(resource = self.resource, "registered with the kubelet");
                *registered = Some(now.kubelet);
                None
            }
            Ok(Err(status)) => Some(status.message().to_owned()),
            Err(_) => Some("the kubelet does not answer".to_owned()),
        }
    }

    async fn register(&self) -> Result<(), Status> {
        let request = v1beta1::RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.name(),
            resource_name: self.resource.clone(),
            options: Some(options()),
        };
        RegistrationClient::new(unix::channel(&self.kubelet)).register(request).await.map(drop)
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

impl Bound {
    fn new(
        path: &Path,
        offer: &watch::Receiver<Arc<Offer>>,
        tasks: &TaskTracker,
    ) -> Result<Bound, ListenError> {
        let listener = unix::listen(path)?;
        let stat =
            path.symlink_metadata().map_err(|source| ListenError::Io { path: path.to_owned(), source })?;
        let stop = CancellationToken::new();
        let service = Service { offer: offer.clone(), stop: stop.clone() };
        tasks.spawn(serve(listener, Routes::new(DevicePluginServer::new(service)), stop.clone()));
        Ok(Bound { file: (stat.dev(), stat.ino()), stop })
    }

    fn is_there(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|stat| (stat.dev(), stat.ino()) == self.file)
    }

    /// Somebody else's socket under the same name stays.
    fn remove(&self, path: &Path) {
        if self.is_there(path)
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(?path, %error, "the socket is left behind; the next run replaces it");
        }
    }
}

/// The socket's file name: the resource's, cut if it is long, with a number that keeps two of them apart.
fn file_name(resource: &str) -> String {
    let plain: String = resource.chars().map(|c| if c == '/' { '_' } else { c }).collect();
    if plain.len() <= NAME {
        return format!("podwire-{plain}.sock");
    }
    // FNV-1a.
    let hash = resource.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let cut: String = plain.chars().take(NAME - 17).collect();
    format!("podwire-{cut}-{hash:016x}.sock")
}

fn options() -> v1beta1::DevicePluginOptions {
    v1beta1::DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true }
}

async fn serve(listener: UnixListener, routes: Routes, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            stream = podwire_wire::accept::next(&listener, "device plugin's socket") => stream,
        };
        connections.spawn(converse(stream, routes.clone(), stop.clone()));
    }
    connections.close();
    connections.wait().await;
}

async fn converse(stream: UnixStream, routes: Routes, stop: CancellationToken) {
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // The kubelet goes away as it pleases.
        _ = served.as_mut() => return,
        () = stop.cancelled() => served.as_mut().graceful_shutdown(),
    }
    drop(tokio::time::timeout(GRACE, served).await);
}

struct Service {
    offer: watch::Receiver<Arc<Offer>>,
    stop: CancellationToken,
}

impl Service {
    fn offer(&self) -> Arc<Offer> {
        self.offer.borrow().clone()
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<v1beta1::Empty>,
    ) -> Result<Response<v1beta1::DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<v1beta1::ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<v1beta1::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        // What changed without the kubelet's having to know is not told.
        let news = stream::unfold((self.offer.clone(), None), |(mut offer, before)| async move {
            loop {
                let now = offer.borrow_and_update().told();
                if before.as_ref() != Some(&now) {
                    let list = v1beta1::ListAndWatchResponse { devices: now.clone() };
                    return Some((Ok(list), (offer, Some(now))));
                }
                offer.changed().await.ok()?;
            }
        });
        Ok(Response::new(Box::pin(news.take_until(self.stop.clone().cancelled_owned()))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<v1beta1::PreferredAllocationRequest>,
    ) -> Result<Response<v1beta1::PreferredAllocationResponse>, Status> {
        let offer = self.offer();
        let one = |asked: v1beta1::ContainerPreferredAllocationRequest| {
            let size = usize::try_from(asked.allocation_size).map_err(|_| {
                Status::invalid_argument(format!("{} devices cannot be chosen", asked.allocation_size))
            })?;
            plan::prefer(&offer, &asked.available_device_ids, &asked.must_include_device_ids, size)
                .map(|ids| v1beta1::ContainerPreferredAllocationResponse { device_ids: ids })
                .map_err(|why| Status::invalid_argument(why.to_string()))
        };
        let container_responses =
            request.into_inner().container_requests.into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(Response::new(v1beta1::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<v1beta1::AllocateRequest>,
    ) -> Result<Response<v1beta1::AllocateResponse>, Status> {
        let offer = self.offer();
        let requests = request.into_inner().container_requests.into_iter();
        let given = requests.map(|asked| plan::allocate(&offer, &asked.devices_ids).map_err(refused));
        Ok(Response::new(v1beta1::AllocateResponse { container_responses: given.collect::<Result<_, _>>()? }))
    }

    async fn pre_start_container(
        &self,
        _: Request<v1beta1::PreStartContainerRequest>,
    ) -> Result<Response<v1beta1::PreStartContainerResponse>, Status> {
        Ok(Response::new(v1beta1::PreStartContainerResponse {}))
    }
}

/// The one place where a refusal becomes a code.
fn refused(why: plan::Refusal) -> Status {
    let text = why.to_string();
    match why {
        plan::Refusal::Unknown { .. } => Status::not_found(text),
        plan::Refusal::Unhealthy { .. } => Status::unavailable(text),
        plan::Refusal::TooMany { .. } | plan::Refusal::SamePath { .. } => Status::invalid_argument(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sockets_are_short_and_differ() {
        assert_eq!(file_name("podwire.dev/tun"), "podwire-podwire.dev_tun.sock");
        let long = |end: &str| file_name(&format!("{}.example/{end}", "a".repeat(60)));
        assert!(long("one").len() <= "podwire-.sock".len() + NAME);
        assert_ne!(long("one"), long("two"));
    }
}
