//! The kubelet's arrows: one tracing event per call about a pod, for whoever draws the path of a pod.

use tokio::time::Instant;

use crate::spec::PodRef;

/// The target that the composition root collects.
macro_rules! emit {
    ($pod:expr, $($rest:tt)*) => {
        tracing::debug!(
            target: "arrow",
            uid = %$pod.uid,
            pod = %format_args!("{}/{}", $pod.namespace, $pod.name),
            from = "Kubelet",
            $($rest)*
        )
    };
}

/// Something the kubelet decided by itself.
pub(crate) fn note(pod: &PodRef, what: &str) {
    emit!(pod, to = "Kubelet", what = what, micros = 0u64);
}

/// Calls about one pod to one of the kubelet's neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Calls<'a> {
    pod: &'a PodRef,
    to: &'static str,
    callee: &'a str,
    about: &'a str,
}

impl<'a> Calls<'a> {
    /// CRI calls; `twin` names a runtime that is not ours.
    pub(crate) fn cri(pod: &'a PodRef, twin: &'a str) -> Self {
        Calls { pod, to: "ContainerRuntime", callee: twin, about: "" }
    }

    /// Requests to the API server.
    pub(crate) fn api(pod: &'a PodRef) -> Self {
        Calls { pod, to: "APIServer", callee: "", about: "" }
    }

    /// What the call is about: the id of a sandbox or container. The other side tells it too, so that one call is known as
    /// one.
    pub(crate) fn about(self, id: &'a str) -> Self {
        Calls { about: id, ..self }
    }

    /// A call is over.
    pub(crate) fn over<T, E: std::fmt::Display>(
        self,
        what: &str,
        begun: Instant,
        result: &Result<T, E>,
        reply: impl FnOnce(&T) -> String,
    ) {
        if !tracing::enabled!(target: "arrow", tracing::Level::DEBUG) {
            return;
        }
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let Calls { pod, to, callee, about } = self;
        match result {
            Ok(answer) => {
                let reply = reply(answer);
                emit!(
                    pod,
                    to = to,
                    callee = callee,
                    what = what,
                    about = about,
                    reply = reply,
                    micros = micros,
                    side = "client"
                );
            }
            Err(error) => {
                emit!(pod, to = to, callee = callee, what = what, error = %error, micros = micros, side = "client");
            }
        }
    }
}
