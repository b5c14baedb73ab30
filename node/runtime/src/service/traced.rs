//! The layer around the CRI services that draws each call that is about a pod: who asked, and how it ended.
//!
//! It knows the pod from the request or from the table of what exists; a call about what nobody knows is not drawn.

use std::sync::Arc;

use podwire_trace::{Arrow, Cri, Outcome, Participant, Pod, Side, What};
use podwire_wire::cri::{self, image_service_server::ImageService, runtime_service_server::RuntimeService};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use crate::model::Registry;

type Reply<T> = Result<Response<T>, Status>;

/// How much of an id people read.
const SHORT: usize = 13;

/// A service whose calls are drawn.
#[derive(Clone)]
pub(crate) struct Traced<S> {
    pub(crate) service: S,
    pub(crate) registry: Arc<Registry>,
}

/// What a call is about.
struct Subject {
    pod: cri::PodSandboxMetadata,
    /// The container or image by name; empty for a sandbox.
    of: String,
    /// The id that both ends know; empty when it is yet to be made.
    object: String,
}

impl Subject {
    fn of_pod(pod: Option<&cri::PodSandboxMetadata>) -> Option<Subject> {
        let pod = pod.filter(|pod| !pod.uid.is_empty())?.clone();
        Some(Subject { pod, of: String::new(), object: String::new() })
    }

    fn of_sandbox(registry: &Registry, id: &str) -> Option<Subject> {
        let sandbox = registry.sandbox(id)?;
        let subject = Subject::of_pod(sandbox.config.metadata.as_ref())?;
        Some(Subject { object: sandbox.id.to_string(), ..subject })
    }

    fn of_container(registry: &Registry, id: &str) -> Option<Subject> {
        let container = registry.container(id)?;
        let subject = Subject::of_sandbox(registry, &container.sandbox)?;
        Some(Subject { of: container.metadata().name, object: container.id().to_string(), ..subject })
    }
}

/// A request that is drawn.
trait Drawn {
    /// What answers it.
    type Answer;
    const METHOD: Cri;

    fn subject(&self, registry: &Registry) -> Option<Subject>;

    fn outcome(answer: &Self::Answer) -> Outcome {
        let _ = answer;
        Outcome::reply("")
    }
}

/// Requests that name a sandbox or a container and are answered with nothing.
macro_rules! by_id {
    ($($Request:ident -> $Answer:ident, $method:ident, $of:ident($id:ident);)*) => {
        $(impl Drawn for cri::$Request {
            type Answer = cri::$Answer;
            const METHOD: Cri = Cri::$method;

            fn subject(&self, registry: &Registry) -> Option<Subject> {
                Subject::$of(registry, &self.$id)
            }
        })*
    };
}

by_id! {
    StopPodSandboxRequest -> StopPodSandboxResponse, StopPodSandbox, of_sandbox(pod_sandbox_id);
    RemovePodSandboxRequest -> RemovePodSandboxResponse, RemovePodSandbox, of_sandbox(pod_sandbox_id);
    UpdatePodSandboxResourcesRequest -> UpdatePodSandboxResourcesResponse, UpdatePodSandboxResources, of_sandbox(pod_sandbox_id);
    StartContainerRequest -> StartContainerResponse, StartContainer, of_container(container_id);
    StopContainerRequest -> StopContainerResponse, StopContainer, of_container(container_id);
    RemoveContainerRequest -> RemoveContainerResponse, RemoveContainer, of_container(container_id);
    UpdateContainerResourcesRequest -> UpdateContainerResourcesResponse, UpdateContainerResources, of_container(container_id);
}

impl Drawn for cri::RunPodSandboxRequest {
    type Answer = cri::RunPodSandboxResponse;
    const METHOD: Cri = Cri::RunPodSandbox;

    fn subject(&self, _: &Registry) -> Option<Subject> {
        Subject::of_pod(self.config.as_ref()?.metadata.as_ref())
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        let id = &answer.pod_sandbox_id;
        Outcome::made(id, format!("sandbox {id:.SHORT$}"))
    }
}

impl Drawn for cri::PodSandboxStatusRequest {
    type Answer = cri::PodSandboxStatusResponse;
    const METHOD: Cri = Cri::PodSandboxStatus;

    fn subject(&self, registry: &Registry) -> Option<Subject> {
        Subject::of_sandbox(registry, &self.pod_sandbox_id)
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        let network = answer.status.as_ref().and_then(|status| status.network.as_ref());
        Outcome::reply(network.map(|network| network.ip.as_str()).unwrap_or_default())
    }
}

impl Drawn for cri::CreateContainerRequest {
    type Answer = cri::CreateContainerResponse;
    const METHOD: Cri = Cri::CreateContainer;

    fn subject(&self, registry: &Registry) -> Option<Subject> {
        let told = || Subject::of_pod(self.sandbox_config.as_ref()?.metadata.as_ref());
        let subject = Subject::of_sandbox(registry, &self.pod_sandbox_id).or_else(told)?;
        let container = self.config.as_ref().and_then(|config| config.metadata.as_ref());
        let of = container.map(|metadata| metadata.name.clone()).unwrap_or_default();
        Some(Subject { of, object: String::new(), ..subject })
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        let id = &answer.container_id;
        Outcome::made(id, format!("container {id:.SHORT$}"))
    }
}

impl Drawn for cri::PullImageRequest {
    type Answer = cri::PullImageResponse;
    const METHOD: Cri = Cri::PullImage;

    fn subject(&self, _: &Registry) -> Option<Subject> {
        let subject = Subject::of_pod(self.sandbox_config.as_ref()?.metadata.as_ref())?;
        let image = self.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        Some(Subject { of: image.clone(), object: image, ..subject })
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        Outcome::reply(answer.image_ref.as_str())
    }
}

/// A caller that is not ours, by its gRPC library: ours says `tonic`, everything written in Go says `grpc-go`.
fn foreign_caller(metadata: &MetadataMap) -> Option<String> {
    let agent = metadata.get("user-agent")?.to_str().ok()?;
    (!agent.contains("tonic")).then(|| format!("by {agent}"))
}

impl<S> Traced<S> {
    /// Answers a request and draws that.
    async fn drawn<Q: Drawn, F: Future<Output = Reply<Q::Answer>>>(
        &self,
        request: Request<Q>,
        call: impl FnOnce(Request<Q>) -> F,
    ) -> Reply<Q::Answer> {
        let heard = podwire_trace::is_heard();
        let Some(subject) = heard.then(|| request.get_ref().subject(&self.registry)).flatten() else {
            return call(request).await;
        };
        let caller = foreign_caller(request.metadata()).unwrap_or_default();
        let cri::PodSandboxMetadata { uid, namespace, name, .. } = &subject.pod;
        let what = What::Cri { method: Q::METHOD, of: &subject.of };
        let pod = Pod { uid, namespace, name };
        let arrow = Arrow {
            object: &subject.object,
            side: Side::Server,
            caller: &caller,
            ..Arrow::new(pod, Participant::Kubelet, Participant::ContainerRuntime, what)
        };
        let outcome = |reply: &Reply<Q::Answer>| match reply {
            Ok(answer) => Q::outcome(answer.get_ref()),
            Err(status) => Outcome::Failed(status.message().to_owned()),
        };
        arrow.around_async(call(request), outcome).await
    }
}

/// Every method of a service: those that are drawn, those that are passed on, and streams.
macro_rules! layer {
    (
        $Service:ident;
        drawn { $($drawn:ident($DrawnRequest:ident) -> $DrawnAnswer:ident;)* }
        passed { $($passed:ident($Request:ident) -> $Answer:ident;)* }
        streams { $($stream:ident($StreamRequest:ident) -> $Stream:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl<S: $Service> $Service for Traced<S> {
            $(async fn $drawn(&self, request: Request<cri::$DrawnRequest>) -> Reply<cri::$DrawnAnswer> {
                self.drawn(request, |request| self.service.$drawn(request)).await
            })*

            $(async fn $passed(&self, request: Request<cri::$Request>) -> Reply<cri::$Answer> {
                self.service.$passed(request).await
            })*

            $(type $Stream = S::$Stream;
            async fn $stream(&self, request: Request<cri::$StreamRequest>) -> Reply<Self::$Stream> {
                self.service.$stream(request).await
            })*
        }
    };
}

layer! {
    RuntimeService;
    drawn {
        run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
        stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
        remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
        pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
        update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse;
        create_container(CreateContainerRequest) -> CreateContainerResponse;
        start_container(StartContainerRequest) -> StartContainerResponse;
        stop_container(StopContainerRequest) -> StopContainerResponse;
        remove_container(RemoveContainerRequest) -> RemoveContainerResponse;
        update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
    }
    passed {
        version(VersionRequest) -> VersionResponse;
        list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
        list_containers(ListContainersRequest) -> ListContainersResponse;
        container_status(ContainerStatusRequest) -> ContainerStatusResponse;
        reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse;
        exec_sync(ExecSyncRequest) -> ExecSyncResponse;
        exec(ExecRequest) -> ExecResponse;
        attach(AttachRequest) -> AttachResponse;
        port_forward(PortForwardRequest) -> PortForwardResponse;
        container_stats(ContainerStatsRequest) -> ContainerStatsResponse;
        list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse;
        pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse;
        list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse;
        update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse;
        status(StatusRequest) -> StatusResponse;
        checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse;
        list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse;
        list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse;
        runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse;
    }
    streams {
        stream_pod_sandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesStream;
        stream_containers(StreamContainersRequest) -> StreamContainersStream;
        stream_container_stats(StreamContainerStatsRequest) -> StreamContainerStatsStream;
        stream_pod_sandbox_stats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsStream;
        get_container_events(GetEventsRequest) -> GetContainerEventsStream;
        stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsStream;
    }
}

layer! {
    ImageService;
    drawn {
        pull_image(PullImageRequest) -> PullImageResponse;
    }
    passed {
        list_images(ListImagesRequest) -> ListImagesResponse;
        image_status(ImageStatusRequest) -> ImageStatusResponse;
        remove_image(RemoveImageRequest) -> RemoveImageResponse;
        image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse;
    }
    streams {
        stream_images(StreamImagesRequest) -> StreamImagesStream;
    }
}
