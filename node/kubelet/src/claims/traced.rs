//! The arrows of drivers: each call for a pod.

use podwire_trace::{Arrow, Outcome, Participant, What};

use crate::{runtime::CallError, spec::PodRef};

/// Awaits a call of a driver for a pod's claims, and draws it.
pub(super) async fn drawn<T>(
    pod: Option<&PodRef>,
    driver: &str,
    method: &'static str,
    claims: &str,
    call: impl Future<Output = Result<T, CallError>>,
    reply: impl FnOnce(&T) -> String,
) -> Result<T, CallError> {
    // What is done for pods that are no more is on nobody's path.
    let Some(pod) = pod else { return call.await };
    let (what, to) = (What::Dra { method, claims }, Participant::Driver(driver));
    let arrow = Arrow::new(pod.traced(), Participant::Kubelet, to, what);
    arrow.around_async(call, |answer| Outcome::of(answer, reply)).await
}
