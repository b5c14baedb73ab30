//! A runtime that speaks CRI over a unix socket and does as the image names say.
//!
//! `run`: runs until stopped. `exit-N`: ends at once with code N. `once-N`: as `exit-N`, but only the first time.
//! `stubborn`: ends only when killed. `absent...`: is not there and cannot be pulled. `pullable...`: can be.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt};
use podwire_wire::cri::{
    self,
    image_service_server::{ImageService, ImageServiceServer},
    runtime_service_server::{RuntimeService, RuntimeServiceServer},
};
use tokio::sync::broadcast;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Boxed {
    pub(crate) config: cri::PodSandboxConfig,
    pub(crate) ready: bool,
    created_at: i64,
    ip: String,
}

#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) config: cri::ContainerConfig,
    pub(crate) sandbox: String,
    pub(crate) state: cri::ContainerState,
    created_at: i64,
    started_at: i64,
    finished_at: i64,
    exit_code: i32,
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) sandboxes: BTreeMap<String, Boxed>,
    pub(crate) containers: BTreeMap<String, Made>,
    pub(crate) calls: Vec<String>,
    pulled: BTreeSet<String>,
    next: u32,
    pub(crate) exec_exit: i32,
    pub(crate) fail_sandbox: Option<String>,
    /// Every pod's address, when it is to be one that answers.
    pub(crate) address: Option<String>,
    pub(crate) without_events: bool,
    /// The event stream opens with its first event, as a server written in Go does it.
    pub(crate) late_events: bool,
    pub(crate) exec_url: String,
    /// Whether it says that it makes user namespaces.
    pub(crate) user_namespaces: bool,
    /// Handlers that sandboxes were run with.
    pub(crate) handlers: Vec<String>,
    /// What every container uses, if it is asked.
    pub(crate) memory_usage: Option<u64>,
    /// Why no container's resources can be changed.
    pub(crate) fail_update: Option<String>,
    /// Images besides those that names conjure up, with a file that stands for what they take.
    pub(crate) images: Vec<(cri::Image, std::path::PathBuf)>,
    /// Calls that are not answered until they are taken out.
    pub(crate) hangs: BTreeSet<&'static str>,
    /// How often the status of a container was asked.
    pub(crate) looks: usize,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) world: Arc<Mutex<World>>,
    events: broadcast::Sender<cri::ContainerEventResponse>,
    released: Arc<tokio::sync::Notify>,
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap()
}

impl Fake {
    pub(crate) fn new() -> Fake {
        let (events, _) = broadcast::channel(1024);
        Fake { world: Arc::default(), events, released: Arc::default() }
    }

    pub(crate) async fn serve(self, socket: &Path, stop: CancellationToken) {
        let listener = podwire_wire::unix::listen(socket).unwrap();
        tonic::transport::Server::builder()
            .add_service(RuntimeServiceServer::new(self.clone()))
            .add_service(ImageServiceServer::new(self))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop.cancelled_owned())
            .await
            .ok();
    }

    /// Waits while this call hangs, and notes that it does.
    async fn hang(&self, call: &'static str) {
        loop {
            let released = self.released.notified();
            {
                let mut world = self.world.lock().unwrap();
                if !world.hangs.contains(call) {
                    return;
                }
                world.calls.push(format!("hangs {call}"));
            }
            released.await;
        }
    }

    /// Answers what hangs.
    pub(crate) fn release(&self) {
        self.world.lock().unwrap().hangs.clear();
        self.released.notify_waiters();
    }

    pub(crate) fn is_empty(&self) -> bool {
        let world = self.world.lock().unwrap();
        world.sandboxes.is_empty() && world.containers.is_empty()
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.world.lock().unwrap().calls.iter().filter(|c| c.starts_with(name)).count()
    }

    /// Ends a running container of this name as if its process had.
    pub(crate) fn end(&self, name: &str, code: i32) {
        let id = self.end_unheard(name, code);
        self.tell(&id, cri::ContainerEventType::ContainerStoppedEvent);
    }

    /// Ends one without a word; says which.
    pub(crate) fn end_unheard(&self, name: &str, code: i32) -> String {
        let mut world = self.world.lock().unwrap();
        let (id, made) = world
            .containers
            .iter_mut()
            .find(|(_, c)| {
                c.config.metadata.as_ref().unwrap().name == name
                    && c.state == cri::ContainerState::ContainerRunning
            })
            .expect("a running container of that name");
        made.state = cri::ContainerState::ContainerExited;
        made.exit_code = code;
        made.finished_at = now();
        id.clone()
    }

    /// Ends the running container of a pod.
    pub(crate) fn end_of(&self, pod: &str, code: i32) {
        let id = {
            let mut world = self.world.lock().unwrap();
            let World { sandboxes, containers, .. } = &mut *world;
            let of_pod = |id: &str| sandboxes[id].config.metadata.as_ref().unwrap().name == pod;
            let running = |made: &Made| made.state == cri::ContainerState::ContainerRunning;
            let (id, made) = containers
                .iter_mut()
                .find(|(_, made)| running(made) && of_pod(&made.sandbox))
                .expect("a running container of that pod");
            made.state = cri::ContainerState::ContainerExited;
            made.exit_code = code;
            made.finished_at = now();
            id.clone()
        };
        self.tell(&id, cri::ContainerEventType::ContainerStoppedEvent);
    }

    /// Everything that was there is gone.
    pub(crate) fn reboot(&self) {
        let mut world = self.world.lock().unwrap();
        world.sandboxes.clear();
        world.containers.clear();
    }

    /// A container is set back to where a kubelet that died between two calls would have left it.
    pub(crate) fn unstart(&self, name: &str) {
        let mut world = self.world.lock().unwrap();
        let made =
            world.containers.values_mut().find(|c| c.config.metadata.as_ref().unwrap().name == name).unwrap();
        made.state = cri::ContainerState::ContainerCreated;
        made.started_at = 0;
    }

    /// The sandbox of every pod dies.
    pub(crate) fn kill_sandboxes(&self) {
        let ids: Vec<String> = {
            let mut world = self.world.lock().unwrap();
            world.sandboxes.values_mut().for_each(|s| s.ready = false);
            world.sandboxes.keys().cloned().collect()
        };
        for id in ids {
            self.tell(&id, cri::ContainerEventType::ContainerStoppedEvent);
        }
    }

    fn tell(&self, id: &str, kind: cri::ContainerEventType) {
        let event = {
            let world = self.world.lock().unwrap();
            let sandbox = world.containers.get(id).map_or(id, |c| c.sandbox.as_str()).to_owned();
            let Some(held) = world.sandboxes.get(&sandbox) else { return };
            cri::ContainerEventResponse {
                container_id: id.to_owned(),
                container_event_type: kind as i32,
                created_at: now(),
                pod_sandbox_status: Some(sandbox_status(&sandbox, held)),
                containers_statuses: world
                    .containers
                    .iter()
                    .filter(|(_, c)| c.sandbox == sandbox)
                    .map(|(id, c)| container_status(id, c))
                    .collect(),
            }
        };
        self.events.send(event).ok();
    }

    fn note(&self, call: &str, what: &str) -> std::sync::MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap();
        world.calls.push(format!("{call} {what}"));
        world
    }
}

fn image_of(config: &cri::ContainerConfig) -> String {
    let image = config.image.clone().unwrap_or_default();
    let name = if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image };
    name.split(':').next().unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned()
}

fn sandbox_status(id: &str, held: &Boxed) -> cri::PodSandboxStatus {
    let security = held.config.linux.as_ref().and_then(|l| l.security_context.clone()).unwrap_or_default();
    cri::PodSandboxStatus {
        id: id.to_owned(),
        metadata: held.config.metadata.clone(),
        state: if held.ready { 0 } else { 1 },
        created_at: held.created_at,
        network: Some(cri::PodSandboxNetworkStatus { ip: held.ip.clone(), additional_ips: Vec::new() }),
        linux: Some(cri::LinuxPodSandboxStatus {
            namespaces: Some(cri::Namespace { options: security.namespace_options }),
        }),
        labels: held.config.labels.clone(),
        annotations: held.config.annotations.clone(),
        ..Default::default()
    }
}

fn container_status(id: &str, made: &Made) -> cri::ContainerStatus {
    cri::ContainerStatus {
        id: id.to_owned(),
        metadata: made.config.metadata.clone(),
        state: made.state as i32,
        created_at: made.created_at,
        started_at: made.started_at,
        finished_at: made.finished_at,
        exit_code: made.exit_code,
        image: made.config.image.clone(),
        image_ref: "sha256:feed".to_owned(),
        image_id: "sha256:feed".to_owned(),
        labels: made.config.labels.clone(),
        annotations: made.config.annotations.clone(),
        resources: made
            .config
            .linux
            .as_ref()
            .map(|linux| cri::ContainerResources { linux: linux.resources.clone() }),
        ..Default::default()
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl RuntimeService for Fake {
    type StreamPodSandboxesStream = Streamed<cri::StreamPodSandboxesResponse>;
    type StreamContainersStream = Streamed<cri::StreamContainersResponse>;
    type StreamContainerStatsStream = Streamed<cri::StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Streamed<cri::StreamPodSandboxStatsResponse>;
    type StreamPodSandboxMetricsStream = Streamed<cri::StreamPodSandboxMetricsResponse>;
    type GetContainerEventsStream = Streamed<cri::ContainerEventResponse>;

    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        Ok(Response::new(cri::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "fake".into(),
            runtime_version: "1.2.3".into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        let condition =
            |name: &str| cri::RuntimeCondition { r#type: name.into(), status: true, ..Default::default() };
        let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
        let features = cri::RuntimeHandlerFeatures {
            user_namespaces: self.world.lock().unwrap().user_namespaces,
            ..Default::default()
        };
        Ok(Response::new(cri::StatusResponse {
            status: Some(cri::RuntimeStatus { conditions }),
            runtime_handlers: vec![cri::RuntimeHandler { name: String::new(), features: Some(features) }],
            ..Default::default()
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<cri::RunPodSandboxRequest>,
    ) -> Answer<cri::RunPodSandboxResponse> {
        self.hang("run_pod_sandbox").await;
        let request = request.into_inner();
        let config = request.config.unwrap();
        let id = {
            let mut world = self.note("run_pod_sandbox", &config.metadata.as_ref().unwrap().name);
            if let Some(why) = &world.fail_sandbox {
                return Err(Status::unknown(why.clone()));
            }
            world.handlers.push(request.runtime_handler);
            world.next += 1;
            let id = format!("box{}", world.next);
            let ip = world
                .address
                .clone()
                .unwrap_or_else(|| format!("10.9.{}.{}", world.next / 256, world.next % 256));
            world.sandboxes.insert(id.clone(), Boxed { config, ready: true, created_at: now(), ip });
            id
        };
        self.tell(&id, cri::ContainerEventType::ContainerStartedEvent);
        Ok(Response::new(cri::RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let mut world = self.note("stop_pod_sandbox", &id);
        if let Some(held) = world.sandboxes.get_mut(&id) {
            held.ready = false;
        }
        for made in world.containers.values_mut().filter(|c| c.sandbox == id) {
            if made.state == cri::ContainerState::ContainerRunning {
                made.state = cri::ContainerState::ContainerExited;
                made.exit_code = 137;
            }
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        drop(self.note("remove_pod_sandbox", &id));
        self.tell(&id, cri::ContainerEventType::ContainerDeletedEvent);
        let mut world = self.world.lock().unwrap();
        world.sandboxes.remove(&id);
        world.containers.retain(|_, c| c.sandbox != id);
        Ok(Response::new(Default::default()))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let world = self.world.lock().unwrap();
        let held = world.sandboxes.get(&id).ok_or_else(|| Status::not_found("no such sandbox"))?;
        Ok(Response::new(cri::PodSandboxStatusResponse {
            status: Some(sandbox_status(&id, held)),
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        let world = self.world.lock().unwrap();
        let items = world.sandboxes.iter().map(|(id, held)| cri::PodSandbox {
            id: id.clone(),
            metadata: held.config.metadata.clone(),
            state: if held.ready { 0 } else { 1 },
            created_at: held.created_at,
            labels: held.config.labels.clone(),
            ..Default::default()
        });
        Ok(Response::new(cri::ListPodSandboxResponse { items: items.collect() }))
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Answer<cri::CreateContainerResponse> {
        self.hang("create_container").await;
        let request = request.into_inner();
        let config = request.config.unwrap();
        let id = {
            let mut world = self.note("create_container", &config.metadata.as_ref().unwrap().name);
            world.next += 1;
            let id = format!("ctr{}", world.next);
            let made = Made {
                config,
                sandbox: request.pod_sandbox_id,
                state: cri::ContainerState::ContainerCreated,
                created_at: now(),
                started_at: 0,
                finished_at: 0,
                exit_code: 0,
            };
            world.containers.insert(id.clone(), made);
            id
        };
        self.tell(&id, cri::ContainerEventType::ContainerCreatedEvent);
        Ok(Response::new(cri::CreateContainerResponse { container_id: id }))
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Answer<cri::StartContainerResponse> {
        let id = request.into_inner().container_id;
        let code = {
            let mut world = self.note("start_container", &id);
            let made = world.containers.get_mut(&id).ok_or_else(|| Status::not_found("no such container"))?;
            made.state = cri::ContainerState::ContainerRunning;
            made.started_at = now();
            let image = image_of(&made.config);
            let first = made.config.metadata.as_ref().unwrap().attempt == 0;
            let once = image.strip_prefix("once-").filter(|_| first);
            once.or(image.strip_prefix("exit-")).map(|code| code.parse::<i32>().unwrap())
        };
        self.tell(&id, cri::ContainerEventType::ContainerStartedEvent);
        if let Some(code) = code {
            {
                let mut world = self.world.lock().unwrap();
                let made = world.containers.get_mut(&id).unwrap();
                made.state = cri::ContainerState::ContainerExited;
                made.exit_code = code;
                made.finished_at = now();
            }
            self.tell(&id, cri::ContainerEventType::ContainerStoppedEvent);
        }
        Ok(Response::new(Default::default()))
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        let request = request.into_inner();
        let id = request.container_id;
        let stubborn = {
            let world = self.note("stop_container", &format!("{id} {}", request.timeout));
            let made = world.containers.get(&id).ok_or_else(|| Status::not_found("no such container"))?;
            image_of(&made.config) == "stubborn"
        };
        if stubborn {
            tokio::time::sleep(Duration::from_secs(u64::try_from(request.timeout).unwrap())).await;
        }
        {
            let mut world = self.world.lock().unwrap();
            let Some(made) = world.containers.get_mut(&id) else {
                return Ok(Response::new(Default::default()));
            };
            if made.state == cri::ContainerState::ContainerRunning {
                made.exit_code = if stubborn { 137 } else { 0 };
                made.finished_at = now();
            }
            made.state = cri::ContainerState::ContainerExited;
        }
        self.tell(&id, cri::ContainerEventType::ContainerStoppedEvent);
        Ok(Response::new(Default::default()))
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        drop(self.note("remove_container", &id));
        self.tell(&id, cri::ContainerEventType::ContainerDeletedEvent);
        self.world.lock().unwrap().containers.remove(&id);
        Ok(Response::new(Default::default()))
    }

    async fn list_containers(
        &self,
        _: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        let world = self.world.lock().unwrap();
        let containers = world.containers.iter().map(|(id, made)| cri::Container {
            id: id.clone(),
            pod_sandbox_id: made.sandbox.clone(),
            metadata: made.config.metadata.clone(),
            state: made.state as i32,
            created_at: made.created_at,
            labels: made.config.labels.clone(),
            ..Default::default()
        });
        Ok(Response::new(cri::ListContainersResponse { containers: containers.collect() }))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let mut world = self.world.lock().unwrap();
        let made = world.containers.get(&id).ok_or_else(|| Status::not_found("no such container"))?;
        let status = Some(container_status(&id, made));
        world.looks += 1;
        Ok(Response::new(cri::ContainerStatusResponse { status, ..Default::default() }))
    }

    async fn exec_sync(&self, request: Request<cri::ExecSyncRequest>) -> Answer<cri::ExecSyncResponse> {
        let request = request.into_inner();
        let world = self.note("exec_sync", &request.cmd.join(" "));
        Ok(Response::new(cri::ExecSyncResponse { exit_code: world.exec_exit, ..Default::default() }))
    }

    async fn get_container_events(
        &self,
        _: Request<cri::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        if self.world.lock().unwrap().without_events {
            return Err(Status::unimplemented("no events"));
        }
        let mut events = self.events.subscribe();
        let late = self.world.lock().unwrap().late_events;
        let first = if late { events.recv().await.ok() } else { None };
        let rest = futures::stream::unfold(events, |mut events| async move {
            loop {
                match events.recv().await {
                    Ok(event) => return Some((Ok(event), events)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        let stream = futures::stream::iter(first.map(Ok)).chain(rest);
        Ok(Response::new(stream.boxed()))
    }

    async fn stream_pod_sandboxes(
        &self,
        _: Request<cri::StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        Err(Status::unimplemented("stream_pod_sandboxes"))
    }

    async fn stream_containers(
        &self,
        _: Request<cri::StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        Err(Status::unimplemented("stream_containers"))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Answer<cri::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let mut world = self.note("update_container_resources", &request.container_id);
        if let Some(why) = world.fail_update.clone() {
            return Err(Status::internal(why));
        }
        let made = world.containers.get_mut(&request.container_id);
        let made = made.ok_or_else(|| Status::not_found("no such container"))?;
        made.config.linux.get_or_insert_default().resources = request.linux;
        Ok(Response::new(cri::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        _: Request<cri::ReopenContainerLogRequest>,
    ) -> Answer<cri::ReopenContainerLogResponse> {
        Err(Status::unimplemented("reopen_container_log"))
    }

    async fn exec(&self, request: Request<cri::ExecRequest>) -> Answer<cri::ExecResponse> {
        let request = request.into_inner();
        let world = self.note("exec", &format!("{} {}", request.container_id, request.cmd.join(" ")));
        Ok(Response::new(cri::ExecResponse { url: world.exec_url.clone() }))
    }

    async fn attach(&self, _: Request<cri::AttachRequest>) -> Answer<cri::AttachResponse> {
        Err(Status::unimplemented("attach"))
    }

    async fn port_forward(&self, _: Request<cri::PortForwardRequest>) -> Answer<cri::PortForwardResponse> {
        Err(Status::unimplemented("port_forward"))
    }

    async fn container_stats(
        &self,
        _: Request<cri::ContainerStatsRequest>,
    ) -> Answer<cri::ContainerStatsResponse> {
        Err(Status::unimplemented("container_stats"))
    }

    async fn list_container_stats(
        &self,
        _: Request<cri::ListContainerStatsRequest>,
    ) -> Answer<cri::ListContainerStatsResponse> {
        let world = self.note("list_container_stats", "");
        let Some(value) = world.memory_usage else {
            return Err(Status::unimplemented("list_container_stats"));
        };
        let one = |id: &String| cri::ContainerStats {
            attributes: Some(cri::ContainerAttributes { id: id.clone(), ..Default::default() }),
            memory: Some(cri::MemoryUsage {
                usage_bytes: Some(cri::UInt64Value { value }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let stats = world.containers.keys().map(one).collect();
        Ok(Response::new(cri::ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        _: Request<cri::StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        Err(Status::unimplemented("stream_container_stats"))
    }

    async fn pod_sandbox_stats(
        &self,
        _: Request<cri::PodSandboxStatsRequest>,
    ) -> Answer<cri::PodSandboxStatsResponse> {
        Err(Status::unimplemented("pod_sandbox_stats"))
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<cri::ListPodSandboxStatsRequest>,
    ) -> Answer<cri::ListPodSandboxStatsResponse> {
        Err(Status::unimplemented("list_pod_sandbox_stats"))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        _: Request<cri::StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        Err(Status::unimplemented("stream_pod_sandbox_stats"))
    }

    async fn update_runtime_config(
        &self,
        _: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Answer<cri::UpdateRuntimeConfigResponse> {
        Err(Status::unimplemented("update_runtime_config"))
    }

    async fn checkpoint_container(
        &self,
        _: Request<cri::CheckpointContainerRequest>,
    ) -> Answer<cri::CheckpointContainerResponse> {
        Err(Status::unimplemented("checkpoint_container"))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<cri::ListMetricDescriptorsRequest>,
    ) -> Answer<cri::ListMetricDescriptorsResponse> {
        Err(Status::unimplemented("list_metric_descriptors"))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<cri::ListPodSandboxMetricsRequest>,
    ) -> Answer<cri::ListPodSandboxMetricsResponse> {
        Err(Status::unimplemented("list_pod_sandbox_metrics"))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<cri::StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        Err(Status::unimplemented("stream_pod_sandbox_metrics"))
    }

    async fn runtime_config(
        &self,
        _: Request<cri::RuntimeConfigRequest>,
    ) -> Answer<cri::RuntimeConfigResponse> {
        Err(Status::unimplemented("runtime_config"))
    }

    async fn update_pod_sandbox_resources(
        &self,
        _: Request<cri::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<cri::UpdatePodSandboxResourcesResponse> {
        Err(Status::unimplemented("update_pod_sandbox_resources"))
    }
}

#[tonic::async_trait]
impl ImageService for Fake {
    type StreamImagesStream = Streamed<cri::StreamImagesResponse>;

    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Answer<cri::ImageStatusResponse> {
        let name = request.into_inner().image.unwrap().image;
        let world = self.world.lock().unwrap();
        let there =
            world.pulled.contains(&name) || !(name.starts_with("absent") || name.starts_with("pullable"));
        let image = there.then(|| cri::Image {
            id: "sha256:feed".to_owned(),
            repo_tags: vec![name],
            size: 7,
            uid: Some(cri::Int64Value { value: 0 }),
            ..Default::default()
        });
        Ok(Response::new(cri::ImageStatusResponse { image, ..Default::default() }))
    }

    async fn pull_image(&self, request: Request<cri::PullImageRequest>) -> Answer<cri::PullImageResponse> {
        let name = request.into_inner().image.unwrap().image;
        let mut world = self.note("pull_image", &name);
        if name.starts_with("absent") {
            return Err(Status::not_found(format!("{name}: not found")));
        }
        world.pulled.insert(name);
        Ok(Response::new(cri::PullImageResponse { image_ref: "sha256:feed".to_owned() }))
    }

    async fn list_images(&self, _: Request<cri::ListImagesRequest>) -> Answer<cri::ListImagesResponse> {
        let images = self.world.lock().unwrap().images.iter().map(|(image, _)| image.clone()).collect();
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    async fn stream_images(&self, _: Request<cri::StreamImagesRequest>) -> Answer<Self::StreamImagesStream> {
        Err(Status::unimplemented("stream_images"))
    }

    async fn remove_image(
        &self,
        request: Request<cri::RemoveImageRequest>,
    ) -> Answer<cri::RemoveImageResponse> {
        let id = request.into_inner().image.unwrap().image;
        let mut world = self.note("remove_image", &id);
        world.images.retain(|(image, file)| {
            let stays = image.id != id;
            if !stays {
                std::fs::remove_file(file).ok();
            }
            stays
        });
        Ok(Response::new(Default::default()))
    }

    async fn image_fs_info(&self, _: Request<cri::ImageFsInfoRequest>) -> Answer<cri::ImageFsInfoResponse> {
        drop(self.note("image_fs_info", ""));
        Err(Status::unimplemented("image_fs_info"))
    }
}
