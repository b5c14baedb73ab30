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

/// A CRI call that is over.
pub(crate) fn call<T, E: std::fmt::Display>(
    pod: &PodRef,
    what: &str,
    begun: Instant,
    result: &Result<T, E>,
    reply: impl FnOnce(&T) -> String,
) {
    if !tracing::enabled!(target: "arrow", tracing::Level::DEBUG) {
        return;
    }
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    match result {
        Ok(answer) => {
            let reply = reply(answer);
            emit!(pod, to = "ContainerRuntime", what = what, reply = reply, micros = micros, side = "client");
        }
        Err(error) => {
            emit!(pod, to = "ContainerRuntime", what = what, error = %error, micros = micros, side = "client");
        }
    }
}
