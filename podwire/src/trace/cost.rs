//! What tracing costs: reports arrows the way participants do and counts the processor time they take.

use std::time::Duration;

use podwire_trace::{Arrow, Cri, Outcome, Participant, Pod, Side, What};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of processor time that one reported arrow takes from its caller's thread, with a full ring.
pub fn nanos_per_arrow() -> u64 {
    const ROUNDS: u64 = 40_000;
    let mut spent = 0;
    // The first half fills the ring and warms everything up.
    for half in 0..2 {
        let begun = thread_nanos();
        for number in 0..ROUNDS {
            let (name, uid) = (half.to_string(), format!("3a1f5c1e-7f2d-4b0c-9a57-{number:012}"));
            let pod = Pod { uid: &uid, namespace: "default", name: "a-pod-with-a-name" };
            let what = What::Cri { method: Cri::CreateContainer, of: &name };
            let arrow = Arrow {
                side: Side::Server,
                ..Arrow::new(pod, Participant::Kubelet, Participant::ContainerRuntime, what)
            };
            arrow.draw(Duration::from_micros(number), &Outcome::reply(format!("container {number}")));
        }
        spent = thread_nanos() - begun;
    }
    spent / ROUNDS
}

/// Processor time of this thread: what others do with the machine meanwhile does not count.
fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
