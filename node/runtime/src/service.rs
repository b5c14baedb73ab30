//! `runtime.v1.RuntimeService`: one method per RPC, each a translation to an operation and back.

pub(crate) mod events;
pub(crate) mod images;
pub(crate) mod info;
pub(crate) mod metrics;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod traced;
pub(crate) mod view;

use std::{pin::Pin, sync::Arc};

use futures::Stream;
use podwire_wire::cri::{self, runtime_service_server::RuntimeService};
use tokio::sync::broadcast::error::RecvError;
use tonic::{Request, Response, Status};

use crate::{
    container::{self, creation, exec},
    context::{Context, joined},
    error::OpError,
    host,
    model::{Container, Sandbox},
    recovery::records::ContainerPhase,
    sandbox,
    stream::{StreamServer, backend::Streams},
};

type Reply<T> = Result<Response<T>, Status>;
type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// CRI's version, the only one there is.
const API_VERSION: &str = "v1";

/// The service; clones share everything.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) ctx: Arc<Context>,
    pub(crate) streams: StreamServer,
}

impl Service {
    fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>, OpError> {
        self.ctx.registry.sandbox(id).ok_or_else(|| OpError::NotFound { what: "sandbox", id: id.to_owned() })
    }

    fn container(&self, id: &str) -> Result<Arc<Container>, OpError> {
        self.ctx
            .registry
            .container(id)
            .ok_or_else(|| OpError::NotFound { what: "container", id: id.to_owned() })
    }

    /// Runs an operation that outlives its caller.
    async fn detached<T, F>(&self, operation: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, OpError>> + Send + 'static,
    {
        match self.ctx.tasks.spawn(operation).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(Status::internal("the operation panicked")),
        }
    }
}

/// At least one stream, and no separate stderr beside a terminal.
fn check_streams(streams: Streams) -> Result<Streams, OpError> {
    if streams.tty && streams.stderr {
        return Err(OpError::invalid("tty and stderr cannot both be true"));
    }
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(OpError::invalid("one of stdin, stdout or stderr must be set"));
    }
    Ok(streams)
}

fn unimplemented<T>(what: &'static str) -> Reply<T> {
    Err(OpError::Unimplemented { what }.into())
}

#[tonic::async_trait]
impl RuntimeService for Service {
    async fn version(&self, _: Request<cri::VersionRequest>) -> Reply<cri::VersionResponse> {
        Ok(Response::new(cri::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: self.ctx.settings.runtime_name.clone(),
            runtime_version: self.ctx.settings.runtime_version.clone(),
            runtime_api_version: API_VERSION.to_owned(),
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<cri::RunPodSandboxRequest>,
    ) -> Reply<cri::RunPodSandboxResponse> {
        let pod_sandbox_id = joined(sandbox::run(&self.ctx, request.into_inner()).await)?.into_string();
        Ok(Response::new(cri::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Reply<cri::StopPodSandboxResponse> {
        joined(sandbox::stop(&self.ctx, &request.into_inner().pod_sandbox_id).await)?;
        Ok(Response::new(cri::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Reply<cri::RemovePodSandboxResponse> {
        joined(sandbox::remove(&self.ctx, &request.into_inner().pod_sandbox_id).await)?;
        Ok(Response::new(cri::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Reply<cri::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let containers = self.ctx.registry.containers_of(&sandbox.id);
        let info = if request.verbose {
            crate::service::info::sandbox(&self.ctx, &sandbox)
        } else {
            Default::default()
        };
        Ok(Response::new(cri::PodSandboxStatusResponse {
            status: Some(view::sandbox_status(&sandbox)),
            info,
            containers_statuses: containers
                .iter()
                .map(|container| view::container_status(container))
                .collect(),
            timestamp: host::now(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Reply<cri::ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        let all = self.ctx.registry.sandboxes();
        let fitting = all.iter().filter(|sandbox| view::sandbox_fits(filter.as_ref(), sandbox));
        let items = fitting.map(|sandbox| view::sandbox_item(sandbox)).collect();
        Ok(Response::new(cri::ListPodSandboxResponse { items }))
    }

    type StreamPodSandboxesStream = BoxStream<cri::StreamPodSandboxesResponse>;
    async fn stream_pod_sandboxes(
        &self,
        _: Request<cri::StreamPodSandboxesRequest>,
    ) -> Reply<Self::StreamPodSandboxesStream> {
        unimplemented("StreamPodSandboxes")
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Reply<cri::CreateContainerResponse> {
        let container_id = joined(creation::create(&self.ctx, request.into_inner()).await)?.into_string();
        Ok(Response::new(cri::CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Reply<cri::StartContainerResponse> {
        let container = self.container(&request.into_inner().container_id)?;
        let ctx = self.ctx.clone();
        self.detached(async move { container::start(&ctx, &container).await }).await?;
        Ok(Response::new(cri::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<cri::StopContainerRequest>,
    ) -> Reply<cri::StopContainerResponse> {
        let request = request.into_inner();
        if let Some(container) = self.ctx.registry.container(&request.container_id) {
            let ctx = self.ctx.clone();
            self.detached(async move { container::stop(&ctx, &container, request.timeout).await }).await?;
        }
        Ok(Response::new(cri::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Reply<cri::RemoveContainerResponse> {
        if let Some(container) = self.ctx.registry.container(&request.into_inner().container_id) {
            let ctx = self.ctx.clone();
            let done = ctx.container_removes.run(container.id().to_owned(), || {
                let ctx = ctx.clone();
                async move { container::remove_once(&ctx, &container).await.map_err(Arc::new) }
            });
            joined(done.await)?;
        }
        Ok(Response::new(cri::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Reply<cri::ListContainersResponse> {
        let filter = request.into_inner().filter;
        let all = self.ctx.registry.containers();
        let fitting = all.iter().filter(|container| view::container_fits(filter.as_ref(), container));
        let containers = fitting.map(|container| view::container_item(container)).collect();
        Ok(Response::new(cri::ListContainersResponse { containers }))
    }

    type StreamContainersStream = BoxStream<cri::StreamContainersResponse>;
    async fn stream_containers(
        &self,
        _: Request<cri::StreamContainersRequest>,
    ) -> Reply<Self::StreamContainersStream> {
        unimplemented("StreamContainers")
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Reply<cri::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let info =
            if request.verbose { crate::service::info::container(&container) } else { Default::default() };
        Ok(Response::new(cri::ContainerStatusResponse {
            status: Some(view::container_status(&container)),
            info,
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Reply<cri::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let (ctx, requested) = (self.ctx.clone(), request.linux.unwrap_or_default());
        self.detached(async move { container::update(&ctx, &container, &requested).await }).await?;
        Ok(Response::new(cri::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<cri::ReopenContainerLogRequest>,
    ) -> Reply<cri::ReopenContainerLogResponse> {
        let container = self.container(&request.into_inner().container_id)?;
        if container.phase() != ContainerPhase::Running {
            return Err(OpError::Precondition {
                why: format!("container {} is not running", container.id()),
            }
            .into());
        }
        self.ctx
            .blocking(move |ctx| {
                ctx.supervision
                    .supervisor()
                    .reopen_log(container.id())
                    .map_err(OpError::failed("reopen the container's log"))
            })
            .await?;
        Ok(Response::new(cri::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<cri::ExecSyncRequest>) -> Reply<cri::ExecSyncResponse> {
        Ok(Response::new(exec::sync(&self.ctx, request.into_inner()).await?))
    }

    async fn exec(&self, request: Request<cri::ExecRequest>) -> Reply<cri::ExecResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let streams = check_streams(Streams {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        })?;
        if container.phase() != ContainerPhase::Running {
            return Err(OpError::Precondition {
                why: format!("container {} is not running", container.id()),
            }
            .into());
        }
        let url = self
            .streams
            .exec_url(container.id(), request.cmd, streams)
            .map_err(OpError::failed("make a URL"))?;
        Ok(Response::new(cri::ExecResponse { url }))
    }

    async fn attach(&self, request: Request<cri::AttachRequest>) -> Reply<cri::AttachResponse> {
        let request = request.into_inner();
        let container = self.container(&request.container_id)?;
        let streams = check_streams(Streams {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        })?;
        if container.phase() != ContainerPhase::Running {
            return Err(OpError::Precondition {
                why: format!("container {} is not running", container.id()),
            }
            .into());
        }
        let url = self.streams.attach_url(container.id(), streams).map_err(OpError::failed("make a URL"))?;
        Ok(Response::new(cri::AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<cri::PortForwardRequest>,
    ) -> Reply<cri::PortForwardResponse> {
        let request = request.into_inner();
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let ports = request.port.iter().filter_map(|port| u16::try_from(*port).ok()).collect();
        let url = self.streams.port_forward_url(&sandbox.id, ports).map_err(OpError::failed("make a URL"))?;
        Ok(Response::new(cri::PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<cri::ContainerStatsRequest>,
    ) -> Reply<cri::ContainerStatsResponse> {
        let container = self.container(&request.into_inner().container_id)?;
        let stats = self.ctx.blocking(move |ctx| Ok(stats::container(&ctx.images, &container))).await?;
        Ok(Response::new(cri::ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<cri::ListContainerStatsRequest>,
    ) -> Reply<cri::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let filter = cri::ContainerFilter {
            id: filter.id,
            state: None,
            pod_sandbox_id: filter.pod_sandbox_id,
            label_selector: filter.label_selector,
        };
        let stats = self
            .ctx
            .blocking(move |ctx| {
                let all = ctx.registry.containers();
                let fitting = all.iter().filter(|known| known.phase() == ContainerPhase::Running);
                let fitting = fitting.filter(|known| view::container_fits(Some(&filter), known));
                Ok(fitting.map(|known| stats::container(&ctx.images, known)).collect())
            })
            .await?;
        Ok(Response::new(cri::ListContainerStatsResponse { stats }))
    }

    type StreamContainerStatsStream = BoxStream<cri::StreamContainerStatsResponse>;
    async fn stream_container_stats(
        &self,
        _: Request<cri::StreamContainerStatsRequest>,
    ) -> Reply<Self::StreamContainerStatsStream> {
        unimplemented("StreamContainerStats")
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<cri::PodSandboxStatsRequest>,
    ) -> Reply<cri::PodSandboxStatsResponse> {
        let sandbox = self.sandbox(&request.into_inner().pod_sandbox_id)?;
        let stats = self.ctx.blocking(move |ctx| Ok(stats::sandbox(ctx, &sandbox))).await?;
        Ok(Response::new(cri::PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<cri::ListPodSandboxStatsRequest>,
    ) -> Reply<cri::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = Some(cri::PodSandboxStateValue { state: cri::PodSandboxState::SandboxReady as i32 });
        let filter = cri::PodSandboxFilter { id: filter.id, state, label_selector: filter.label_selector };
        let stats = self
            .ctx
            .blocking(move |ctx| {
                let all = ctx.registry.sandboxes();
                let fitting = all.iter().filter(|known| view::sandbox_fits(Some(&filter), known));
                Ok(fitting.map(|known| stats::sandbox(ctx, known)).collect())
            })
            .await?;
        Ok(Response::new(cri::ListPodSandboxStatsResponse { stats }))
    }

    type StreamPodSandboxStatsStream = BoxStream<cri::StreamPodSandboxStatsResponse>;
    async fn stream_pod_sandbox_stats(
        &self,
        _: Request<cri::StreamPodSandboxStatsRequest>,
    ) -> Reply<Self::StreamPodSandboxStatsStream> {
        unimplemented("StreamPodSandboxStats")
    }

    async fn update_runtime_config(
        &self,
        _: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Reply<cri::UpdateRuntimeConfigResponse> {
        // The pod CIDR only matters to a runtime that writes CNI configs from a template; ours does not.
        Ok(Response::new(cri::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, request: Request<cri::StatusRequest>) -> Reply<cri::StatusResponse> {
        let verbose = request.into_inner().verbose;
        Ok(Response::new(self.ctx.blocking(move |ctx| Ok(crate::service::info::status(ctx, verbose))).await?))
    }

    async fn checkpoint_container(
        &self,
        _: Request<cri::CheckpointContainerRequest>,
    ) -> Reply<cri::CheckpointContainerResponse> {
        unimplemented("CheckpointContainer")
    }

    type GetContainerEventsStream = BoxStream<cri::ContainerEventResponse>;
    async fn get_container_events(
        &self,
        _: Request<cri::GetEventsRequest>,
    ) -> Reply<Self::GetContainerEventsStream> {
        let events = futures::stream::unfold(Some(self.ctx.events.subscribe()), |listener| async move {
            let mut listener = listener?;
            match listener.recv().await {
                Ok(event) => Some((Ok(event), Some(listener))),
                Err(RecvError::Closed) => None,
                Err(RecvError::Lagged(_)) => Some((
                    Err(Status::data_loss("the listener was too slow; list and subscribe again")),
                    None,
                )),
            }
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<cri::ListMetricDescriptorsRequest>,
    ) -> Reply<cri::ListMetricDescriptorsResponse> {
        Ok(Response::new(cri::ListMetricDescriptorsResponse { descriptors: metrics::descriptors() }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<cri::ListPodSandboxMetricsRequest>,
    ) -> Reply<cri::ListPodSandboxMetricsResponse> {
        let pod_metrics = self.ctx.blocking(|ctx| Ok(metrics::all(ctx))).await?;
        Ok(Response::new(cri::ListPodSandboxMetricsResponse { pod_metrics }))
    }

    type StreamPodSandboxMetricsStream = BoxStream<cri::StreamPodSandboxMetricsResponse>;
    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<cri::StreamPodSandboxMetricsRequest>,
    ) -> Reply<Self::StreamPodSandboxMetricsStream> {
        unimplemented("StreamPodSandboxMetrics")
    }

    async fn runtime_config(
        &self,
        _: Request<cri::RuntimeConfigRequest>,
    ) -> Reply<cri::RuntimeConfigResponse> {
        // Always said: an empty answer would mean systemd.
        let cgroup_driver = cri::CgroupDriver::Cgroupfs as i32;
        Ok(Response::new(cri::RuntimeConfigResponse {
            linux: Some(cri::LinuxRuntimeConfiguration { cgroup_driver }),
        }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<cri::UpdatePodSandboxResourcesRequest>,
    ) -> Reply<cri::UpdatePodSandboxResourcesResponse> {
        let ctx = self.ctx.clone();
        self.detached(async move { sandbox::update(&ctx, request.into_inner()).await }).await?;
        Ok(Response::new(cri::UpdatePodSandboxResourcesResponse {}))
    }
}
