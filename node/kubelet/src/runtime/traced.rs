//! The layer around CRI calls that draws those made on behalf of a pod.

use podwire_trace::{Arrow, Cri, Outcome, Participant, Side, What};
use podwire_wire::cri;

use super::Answer;
use crate::spec::PodRef;

/// On whose behalf calls are made.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) pod: PodRef,
    /// The container, for calls that name only its id.
    pub(super) container: String,
}

/// A request that is drawn.
pub(super) trait Drawn {
    /// What answers it.
    type Answer;
    const METHOD: Cri;

    /// The container or image it names, if it does.
    fn names(&self) -> Option<&str> {
        None
    }

    /// The id it is about; empty when it is yet to be made.
    fn object(&self) -> &str;

    fn outcome(answer: &Self::Answer) -> Outcome {
        let _ = answer;
        Outcome::reply("")
    }
}

macro_rules! by_id {
    ($($Request:ident -> $Answer:ident, $method:ident($id:ident);)*) => {
        $(impl Drawn for cri::$Request {
            type Answer = cri::$Answer;
            const METHOD: Cri = Cri::$method;

            fn object(&self) -> &str {
                &self.$id
            }
        })*
    };
}

by_id! {
    StopPodSandboxRequest -> StopPodSandboxResponse, StopPodSandbox(pod_sandbox_id);
    RemovePodSandboxRequest -> RemovePodSandboxResponse, RemovePodSandbox(pod_sandbox_id);
    StartContainerRequest -> StartContainerResponse, StartContainer(container_id);
    StopContainerRequest -> StopContainerResponse, StopContainer(container_id);
    RemoveContainerRequest -> RemoveContainerResponse, RemoveContainer(container_id);
    UpdateContainerResourcesRequest -> UpdateContainerResourcesResponse, UpdateContainerResources(container_id);
}

impl Drawn for cri::RunPodSandboxRequest {
    type Answer = cri::RunPodSandboxResponse;
    const METHOD: Cri = Cri::RunPodSandbox;

    fn object(&self) -> &str {
        ""
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        Outcome::made(&answer.pod_sandbox_id, format!("sandbox {}", answer.pod_sandbox_id))
    }
}

impl Drawn for cri::PodSandboxStatusRequest {
    type Answer = cri::PodSandboxStatusResponse;
    const METHOD: Cri = Cri::PodSandboxStatus;

    fn object(&self) -> &str {
        &self.pod_sandbox_id
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        let network = answer.status.as_ref().and_then(|status| status.network.as_ref());
        Outcome::reply(network.map(|network| network.ip.as_str()).unwrap_or_default())
    }
}

impl Drawn for cri::CreateContainerRequest {
    type Answer = cri::CreateContainerResponse;
    const METHOD: Cri = Cri::CreateContainer;

    fn names(&self) -> Option<&str> {
        Some(&self.config.as_ref()?.metadata.as_ref()?.name)
    }

    fn object(&self) -> &str {
        ""
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        Outcome::made(&answer.container_id, format!("container {}", answer.container_id))
    }
}

impl Drawn for cri::PullImageRequest {
    type Answer = cri::PullImageResponse;
    const METHOD: Cri = Cri::PullImage;

    fn names(&self) -> Option<&str> {
        Some(&self.image.as_ref()?.image)
    }

    fn object(&self) -> &str {
        self.names().unwrap_or_default()
    }

    fn outcome(answer: &Self::Answer) -> Outcome {
        Outcome::reply(answer.image_ref.as_str())
    }
}

impl super::Runtime {
    /// Makes a call, drawn if it is on behalf of a pod and somebody listens.
    pub(super) async fn drawn<Q: Drawn, F: Future<Output = Answer<Q::Answer>>>(
        &self,
        request: Q,
        call: impl FnOnce(Q) -> F,
    ) -> Answer<Q::Answer> {
        let Some(Subject { pod, container }) = self.subject.as_deref().filter(|_| podwire_trace::is_heard())
        else {
            return call(request).await;
        };
        let (of, object) = (request.names().unwrap_or(container).to_owned(), request.object().to_owned());
        let what = What::Cri { method: Q::METHOD, of: &of };
        let arrow = Arrow {
            object: &object,
            side: Side::Client,
            callee: self.twin.get().map_or("", String::as_str),
            ..Arrow::new(pod.traced(), Participant::Kubelet, Participant::ContainerRuntime, what)
        };
        let outcome = |answer: &Answer<Q::Answer>| match answer {
            Ok(answer) => Q::outcome(answer),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        arrow.around_async(call(request), outcome).await
    }
}
