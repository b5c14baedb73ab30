//! The container runtime as the kubelet calls it: CRI v1 over a unix socket, one method per call used.
//!
//! Deadlines are upstream's. The channel connects by itself and again after the runtime came back.

mod traced;
pub mod watch;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use podwire_wire::{
    CRI_MESSAGE_LIMIT,
    cri::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient},
    ids::{ContainerId, PodUid, SandboxId},
};
use tonic::{Request, Status, transport::Channel};

use self::traced::Subject;
use crate::{
    observed::{Container, Sandbox},
    spec::PodRef,
};

const DEADLINE: Duration = Duration::from_secs(120);
const SANDBOX_DEADLINE: Duration = Duration::from_secs(240);

/// A call that the runtime refused or did not answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("rpc error: code = {} desc = {}", go_code(.status.code()), .status.message())]
pub struct CallError {
    /// Name of the call.
    pub call: &'static str,
    /// What came back.
    pub status: Status,
}

impl CallError {
    /// Whether the thing asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status.code() == tonic::Code::NotFound
    }

    /// Whether the runtime could not be reached at all.
    pub fn is_unavailable(&self) -> bool {
        self.status.code() == tonic::Code::Unavailable
    }
}

/// The code's name as Go prints it.
fn go_code(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// A handle on the runtime; clones share one connection.
#[derive(Clone)]
pub struct Runtime {
    runtime: RuntimeServiceClient<Channel>,
    image: ImageServiceClient<Channel>,
    /// Name and version of a runtime that is not ours.
    twin: Arc<OnceLock<String>>,
    subject: Option<Arc<Subject>>,
}

/// One call, with its deadline.
macro_rules! call {
    ($client:expr, $method:ident, $request:expr, $deadline:expr) => {{
        let mut request = Request::new($request);
        request.set_timeout($deadline);
        let answer = $client.clone().$method(request).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| CallError { call: stringify!($method), status })
    }};
}

/// One call that is drawn when it is made on behalf of a pod.
macro_rules! drawn {
    ($runtime:expr, $client:ident, $method:ident, $request:expr, $deadline:expr) => {{
        let call = |request| async { call!($runtime.$client, $method, request, $deadline) };
        $runtime.drawn($request, call).await
    }};
}

type Answer<T> = Result<T, CallError>;

impl Runtime {
    /// Connects lazily to `endpoint`, and to `images` for image calls if that is another socket.
    pub fn connect(endpoint: &Path, images: Option<&Path>) -> Runtime {
        let channel = podwire_wire::unix::channel(endpoint);
        let image_channel = images.map_or_else(|| channel.clone(), podwire_wire::unix::channel);
        let runtime = RuntimeServiceClient::new(channel);
        let image = ImageServiceClient::new(image_channel);
        Runtime {
            runtime: runtime
                .max_decoding_message_size(CRI_MESSAGE_LIMIT)
                .max_encoding_message_size(CRI_MESSAGE_LIMIT),
            image: image
                .max_decoding_message_size(CRI_MESSAGE_LIMIT)
                .max_encoding_message_size(CRI_MESSAGE_LIMIT),
            twin: Arc::default(),
            subject: None,
        }
    }

    /// The same runtime, called on behalf of `pod`.
    pub fn for_pod(&self, pod: &PodRef) -> Runtime {
        self.for_container(pod, "")
    }

    /// The same runtime, called on behalf of a pod's container.
    pub fn for_container(&self, pod: &PodRef, container: &str) -> Runtime {
        let subject = Subject { pod: pod.clone(), container: container.to_owned() };
        Runtime { subject: Some(Arc::new(subject)), ..self.clone() }
    }

    /// Says that somebody else's program plays the runtime.
    pub(crate) fn is_played_by(&self, program: String) {
        self.twin.get_or_init(|| program);
    }

    /// Version of the runtime.
    pub async fn version(&self) -> Answer<cri::VersionResponse> {
        call!(self.runtime, version, cri::VersionRequest { version: "0.1.0".into() }, DEADLINE)
    }

    /// Conditions and features of the runtime.
    pub async fn status(&self) -> Answer<cri::StatusResponse> {
        call!(self.runtime, status, cri::StatusRequest { verbose: false }, DEADLINE)
    }

    /// Tells the runtime the pod network's range.
    pub async fn update_pod_cidr(&self, cidr: &str) -> Answer<()> {
        let network_config = Some(cri::NetworkConfig { pod_cidr: cidr.to_owned() });
        let request =
            cri::UpdateRuntimeConfigRequest { runtime_config: Some(cri::RuntimeConfig { network_config }) };
        call!(self.runtime, update_runtime_config, request, DEADLINE).map(drop)
    }

    /// Runs a sandbox and reads back its status.
    pub async fn run_sandbox(&self, config: cri::PodSandboxConfig, handler: &str) -> Answer<Sandbox> {
        let request = cri::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        let id = drawn!(self, runtime, run_pod_sandbox, request, SANDBOX_DEADLINE)?.pod_sandbox_id;
        self.sandbox_status(&id.into()).await
    }

    /// Status of a sandbox.
    pub async fn sandbox_status(&self, id: &SandboxId) -> Answer<Sandbox> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
        let answer = drawn!(self, runtime, pod_sandbox_status, request, DEADLINE)?;
        Ok(Sandbox::from_status(&answer.status.unwrap_or_default()))
    }

    /// Stops a sandbox; one that is gone counts as stopped.
    pub async fn stop_sandbox(&self, id: &SandboxId) -> Answer<()> {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_string() };
        gone_is_fine(drawn!(self, runtime, stop_pod_sandbox, request, DEADLINE).map(drop))
    }

    /// Removes a sandbox with its containers; one that is gone counts as removed.
    pub async fn remove_sandbox(&self, id: &SandboxId) -> Answer<()> {
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_string() };
        gone_is_fine(drawn!(self, runtime, remove_pod_sandbox, request, DEADLINE).map(drop))
    }

    /// Every sandbox the runtime has.
    pub async fn list_sandboxes(&self) -> Answer<Vec<cri::PodSandbox>> {
        Ok(call!(self.runtime, list_pod_sandbox, cri::ListPodSandboxRequest::default(), DEADLINE)?.items)
    }

    /// Every sandbox of one pod.
    pub async fn sandboxes_of(&self, uid: &PodUid) -> Answer<Vec<cri::PodSandbox>> {
        let label_selector = [(crate::labels::POD_UID.to_owned(), uid.to_string())].into();
        let filter = Some(cri::PodSandboxFilter { label_selector, ..Default::default() });
        Ok(call!(self.runtime, list_pod_sandbox, cri::ListPodSandboxRequest { filter }, DEADLINE)?.items)
    }

    /// Every container the runtime has.
    pub async fn list_containers(&self) -> Answer<Vec<cri::Container>> {
        Ok(call!(self.runtime, list_containers, cri::ListContainersRequest::default(), DEADLINE)?.containers)
    }

    /// Creates a container.
    pub async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: cri::ContainerConfig,
        sandbox_config: cri::PodSandboxConfig,
    ) -> Answer<ContainerId> {
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(drawn!(self, runtime, create_container, request, DEADLINE)?.container_id.into())
    }

    /// Starts a created container.
    pub async fn start_container(&self, id: &ContainerId) -> Answer<()> {
        let request = cri::StartContainerRequest { container_id: id.to_string() };
        drawn!(self, runtime, start_container, request, DEADLINE).map(drop)
    }

    /// Stops a container, waiting `grace` seconds before it is killed.
    pub async fn stop_container(&self, id: &ContainerId, grace: i64) -> Answer<()> {
        let request = cri::StopContainerRequest { container_id: id.to_string(), timeout: grace };
        let deadline = DEADLINE + Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        gone_is_fine(drawn!(self, runtime, stop_container, request, deadline).map(drop))
    }

    /// Removes a container; one that is gone counts as removed.
    pub async fn remove_container(&self, id: &ContainerId) -> Answer<()> {
        let request = cri::RemoveContainerRequest { container_id: id.to_string() };
        gone_is_fine(drawn!(self, runtime, remove_container, request, DEADLINE).map(drop))
    }

    /// Status of a container in `sandbox`; `None` when the runtime does not have it.
    pub async fn container_status(&self, id: &ContainerId, sandbox: &SandboxId) -> Answer<Option<Container>> {
        let request = cri::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
        match call!(self.runtime, container_status, request, DEADLINE) {
            Ok(answer) => Ok(answer.status.map(|status| Container::from_status(&status, sandbox))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Changes the limits of a container.
    pub async fn update_resources(
        &self,
        id: &ContainerId,
        linux: cri::LinuxContainerResources,
    ) -> Answer<()> {
        let request = cri::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(linux),
            ..Default::default()
        };
        drawn!(self, runtime, update_container_resources, request, DEADLINE).map(drop)
    }

    /// Makes the runtime reopen a container's log file.
    pub async fn reopen_log(&self, id: &ContainerId) -> Answer<()> {
        let request = cri::ReopenContainerLogRequest { container_id: id.to_string() };
        call!(self.runtime, reopen_container_log, request, DEADLINE).map(drop)
    }

    /// Runs a command in a container and waits for its end.
    pub async fn exec_sync(
        &self,
        id: &ContainerId,
        cmd: &[String],
        timeout: Duration,
    ) -> Answer<cri::ExecSyncResponse> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request =
            cri::ExecSyncRequest { container_id: id.to_string(), cmd: cmd.to_vec(), timeout: seconds };
        call!(self.runtime, exec_sync, request, DEADLINE + timeout)
    }

    /// URL of an interactive command.
    pub async fn exec(&self, request: cri::ExecRequest) -> Answer<String> {
        Ok(call!(self.runtime, exec, request, DEADLINE)?.url)
    }

    /// URL of an attachment.
    pub async fn attach(&self, request: cri::AttachRequest) -> Answer<String> {
        Ok(call!(self.runtime, attach, request, DEADLINE)?.url)
    }

    /// URL of a port forwarding.
    pub async fn port_forward(&self, request: cri::PortForwardRequest) -> Answer<String> {
        Ok(call!(self.runtime, port_forward, request, DEADLINE)?.url)
    }

    /// Stream of what happens to sandboxes and containers.
    pub async fn events(&self) -> Answer<tonic::Streaming<cri::ContainerEventResponse>> {
        let answer = self.runtime.clone().get_container_events(cri::GetEventsRequest {}).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| CallError { call: "get_container_events", status })
    }

    /// Usage of every container.
    pub async fn container_stats(&self) -> Answer<Vec<cri::ContainerStats>> {
        Ok(call!(self.runtime, list_container_stats, cri::ListContainerStatsRequest::default(), DEADLINE)?
            .stats)
    }

    /// Every image the runtime has.
    pub async fn list_images(&self) -> Answer<Vec<cri::Image>> {
        Ok(call!(self.image, list_images, cri::ListImagesRequest::default(), DEADLINE)?.images)
    }

    /// An image, if the runtime has it.
    pub async fn image_status(&self, image: cri::ImageSpec) -> Answer<Option<cri::Image>> {
        let request = cri::ImageStatusRequest { image: Some(image), verbose: false };
        Ok(call!(self.image, image_status, request, DEADLINE)?.image)
    }

    /// Pulls an image; there is no deadline, the caller may drop the future.
    pub async fn pull_image(
        &self,
        image: cri::ImageSpec,
        auth: Option<cri::AuthConfig>,
        sandbox_config: Option<cri::PodSandboxConfig>,
    ) -> Answer<String> {
        let request = cri::PullImageRequest { image: Some(image), auth, sandbox_config };
        let call = |request| async {
            let answer = self.image.clone().pull_image(Request::new(request)).await;
            answer.map(tonic::Response::into_inner).map_err(|status| CallError { call: "pull_image", status })
        };
        Ok(self.drawn(request, call).await?.image_ref)
    }

    /// The folder that images lie in, if the runtime says so.
    pub async fn image_folder(&self) -> Answer<Option<std::path::PathBuf>> {
        let answer = call!(self.image, image_fs_info, cri::ImageFsInfoRequest::default(), DEADLINE)?;
        let first = answer.image_filesystems.into_iter().next().and_then(|found| found.fs_id);
        Ok(first.map(|id| id.mountpoint.into()))
    }

    /// Removes an image.
    pub async fn remove_image(&self, image: &str) -> Answer<()> {
        let image = Some(cri::ImageSpec { image: image.to_owned(), ..Default::default() });
        call!(self.image, remove_image, cri::RemoveImageRequest { image }, DEADLINE).map(drop)
    }
}

fn gone_is_fine(answer: Answer<()>) -> Answer<()> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
