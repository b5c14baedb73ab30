//! The path of each pod, from what really happened: arrows between participants, with times.
//!
//! Participants emit a `tracing` event with the target `arrow` when a call about a pod is over. Here a layer keeps the
//! newest of them in a bounded ring, a socket hands the ring to `podwire trace`, and the renderers draw it. The pod's
//! UID is the key: every participant knows it, so no context has to travel through a watch.

mod draw;
mod ring;
mod serve;
mod verb;

pub use self::{
    ring::{ArrowLayer, Ring},
    serve::serve,
    verb::trace,
};

use serde::{Deserialize, Serialize};

/// The target of events that are arrows.
pub const TARGET: &str = "arrow";

/// One call or happening about one pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrow {
    /// The pod.
    pub uid: String,
    /// `namespace/name`.
    #[serde(default)]
    pub pod: String,
    /// Who called.
    pub from: String,
    /// Who was called; the caller itself for a note.
    pub to: String,
    /// What was asked or done.
    pub what: String,
    /// What came back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reply: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// `client` or `server` for calls that both ends report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub side: String,
    /// When it ended, in microseconds since the epoch.
    pub ended: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
}

impl Arrow {
    /// When it began, in microseconds since the epoch.
    pub fn began(&self) -> u64 {
        self.ended.saturating_sub(self.micros)
    }

    /// True for something that a participant did by itself.
    pub fn is_note(&self) -> bool {
        self.from == self.to
    }
}

/// The arrows of one pod in the order they began; a call that both ends reported is shown once, as its server saw it.
pub fn of_pod(arrows: &[Arrow], uid: &str) -> Vec<Arrow> {
    let mut own: Vec<Arrow> = arrows.iter().filter(|arrow| arrow.uid == uid).cloned().collect();
    own.sort_by_key(|arrow| (arrow.began(), arrow.ended));
    let served: Vec<Arrow> = own.iter().filter(|arrow| arrow.side == "server").cloned().collect();
    own.retain(|arrow| {
        arrow.side != "client"
            || !served.iter().any(|other| {
                other.what == arrow.what
                    && other.to == arrow.to
                    && other.began() + 1000 >= arrow.began()
                    && other.ended <= arrow.ended + 1000
            })
    });
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow(what: &str, side: &str, ended: u64, micros: u64) -> Arrow {
        Arrow {
            uid: "u".to_owned(),
            from: "Kubelet".to_owned(),
            to: "ContainerRuntime".to_owned(),
            what: what.to_owned(),
            side: side.to_owned(),
            ended,
            micros,
            ..Arrow::default()
        }
    }

    #[test]
    fn a_call_reported_by_both_ends_is_shown_once() {
        let all =
            [arrow("RunPodSandbox", "client", 10_000, 5_000), arrow("RunPodSandbox", "server", 9_900, 4_700)];
        let shown = of_pod(&all, "u");
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].side, "server");
    }

    #[test]
    fn a_call_that_only_the_caller_reported_is_kept() {
        let all = [
            arrow("RunPodSandbox", "client", 10_000, 5_000),
            arrow("StartContainer a", "server", 20_000, 100),
        ];
        assert_eq!(of_pod(&all, "u").len(), 2);
    }
}
