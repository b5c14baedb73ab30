//! As much of a kubelet as a plugin sees: the socket it registers on, and a client of its own socket.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use podwire_devplugin::Plugin;
use podwire_wire::{
    device_plugin::{
        self as v1beta1,
        device_plugin_client::DevicePluginClient,
        registration_server::{Registration, RegistrationServer},
    },
    unix,
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, transport::Channel};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

struct Registrar {
    asked: mpsc::UnboundedSender<v1beta1::RegisterRequest>,
    refusals: Arc<AtomicU32>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(
        &self,
        request: Request<v1beta1::RegisterRequest>,
    ) -> Result<Response<v1beta1::Empty>, Status> {
        self.asked.send(request.into_inner()).unwrap();
        let left = self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() { Err(Status::internal("not yet")) } else { Ok(Response::new(v1beta1::Empty {})) }
    }
}

pub(crate) struct Kubelet {
    folder: tempfile::TempDir,
    asked: mpsc::UnboundedReceiver<v1beta1::RegisterRequest>,
    refusals: Arc<AtomicU32>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Kubelet {
    pub(crate) async fn start() -> Kubelet {
        Kubelet::start_in(tempfile::tempdir().unwrap()).await
    }

    pub(crate) async fn start_in(folder: tempfile::TempDir) -> Kubelet {
        let (sender, asked) = mpsc::unbounded_channel();
        let refusals = Arc::new(AtomicU32::new(0));
        let listener = unix::listen(&folder.path().join("kubelet.sock")).unwrap();
        let stop = CancellationToken::new();
        let registrar = RegistrationServer::new(Registrar { asked: sender, refusals: refusals.clone() });
        let served = tonic::transport::Server::builder()
            .add_service(registrar)
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.clone().cancelled_owned());
        let served = TaskTracker::new().spawn(async move { served.await.unwrap() });
        Kubelet { folder, asked, refusals, stop, served }
    }

    /// Ends, and starts as upstream's does: every socket in the folder is removed before its own is made.
    pub(crate) async fn restart(self) -> Kubelet {
        self.stop.cancel();
        within(self.served).await.unwrap();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            // Ignored: the plugin may have been quicker.
            std::fs::remove_file(entry.unwrap().path()).ok();
        }
        Kubelet::start_in(self.folder).await
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The next registrations are refused.
    pub(crate) fn refuse(&self, count: u32) {
        self.refusals.store(count, Ordering::SeqCst);
    }

    pub(crate) async fn registered(&mut self) -> v1beta1::RegisterRequest {
        within(self.asked.recv()).await.unwrap()
    }

    /// A client of what registers next.
    pub(crate) async fn next_client(&mut self) -> DevicePluginClient<Channel> {
        let asked = self.registered().await;
        self.client(&asked.endpoint)
    }

    pub(crate) fn client(&self, endpoint: &str) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(unix::channel(self.folder.path().join(endpoint)))
    }
}

/// What one container is given.
pub(crate) async fn allocate(
    client: &mut DevicePluginClient<Channel>,
    ids: &[&str],
) -> Result<v1beta1::ContainerAllocateResponse, Status> {
    let devices_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    let container_requests = vec![v1beta1::ContainerAllocateRequest { devices_ids }];
    let answer = within(client.allocate(v1beta1::AllocateRequest { container_requests })).await?;
    Ok(answer.into_inner().container_responses.remove(0))
}

/// A plugin that runs beside the test.
pub(crate) struct Running {
    shutdown: CancellationToken,
    ended: JoinHandle<()>,
}

impl Running {
    pub(crate) fn new(plugin: Plugin) -> Running {
        let shutdown = CancellationToken::new();
        Running { ended: TaskTracker::new().spawn(plugin.run(shutdown.clone())), shutdown }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        within(self.ended).await.unwrap();
    }
}
