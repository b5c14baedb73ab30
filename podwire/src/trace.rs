//! The path of each pod, from what really happened: arrows between participants, with times.
//!
//! Participants draw arrows in layers of their own (`base/trace`). Here a subscriber keeps the newest in a bounded ring, a socket hands the ring to `podwire trace`, and the renderers draw it. The pod's
//! UID is the key: every participant knows it, so no context has to travel through a watch.

mod cost;
mod draw;
mod lanes;
mod mermaid;
mod ring;
mod serve;
mod verb;

pub use self::{
    ring::{ArrowLayer, Ring},
    serve::serve,
    verb::{folder, trace},
};

pub use podwire_trace::TARGET;
use serde::{Deserialize, Serialize};

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
    /// The sandbox or container that a call is about, which both of its ends know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// What came back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reply: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The program that plays the caller, when it is an upstream twin (`kubelet v1.36.4`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caller: String,
    /// The program that plays the called one, when it is an upstream twin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub callee: String,
    /// `client` or `server` for calls that both ends report; `earlier` for one that was not made for this pod.
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

    /// True for an event of a watch that was opened long before: an answer without a question of its own.
    pub fn is_told(&self) -> bool {
        self.what.starts_with("watch:")
    }

    /// What came back, in words: the reply, the failure, or just that it did.
    pub fn answer(&self) -> &str {
        match (self.error.as_str(), self.reply.as_str()) {
            ("", "") => "done",
            ("", reply) => reply,
            (error, _) => error,
        }
    }
}

/// What a reader sees at one moment: somebody is called (or notes, or is told), or an answer comes back.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// The call leaves, the note is made, the event arrives.
    Call(&'a Arrow),
    /// The answer of a call comes back.
    Reply(&'a Arrow),
}

/// Calls and answers in the order they happened: what a call caused stands between it and its answer.
pub fn moments(arrows: &[Arrow]) -> Vec<Moment<'_>> {
    let mut all: Vec<((u64, u8, u64), Moment<'_>)> = Vec::new();
    for arrow in arrows {
        // At the same microsecond: answers before new calls, outer calls before inner, inner answers before outer.
        all.push(((arrow.began(), 1, u64::MAX - arrow.micros), Moment::Call(arrow)));
        if !arrow.is_note() && !arrow.is_told() {
            let rank = if arrow.micros == 0 { 2 } else { 0 };
            all.push(((arrow.ended, rank, arrow.micros), Moment::Reply(arrow)));
        }
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, moment)| moment).collect()
}

/// When the pod's own path began: what was there before it counts from there backwards.
pub fn start(arrows: &[Arrow]) -> u64 {
    let own = arrows.iter().find(|arrow| arrow.side != "earlier");
    own.or(arrows.first()).map_or(0, Arrow::began)
}

/// The upstream program that plays a participant, if one does.
pub fn twin<'a>(arrows: &'a [Arrow], name: &str) -> Option<&'a str> {
    arrows.iter().find_map(|arrow| {
        let played = [(&arrow.from, &arrow.caller), (&arrow.to, &arrow.callee)];
        let known = played.into_iter().find(|(who, by)| who.as_str() == name && !by.is_empty());
        known.map(|(_, by)| by.as_str())
    })
}

/// The arrows of one pod in the order they began; a call that both ends reported is shown once, as its server saw it.
pub fn of_pod(arrows: &[Arrow], uid: &str) -> Vec<Arrow> {
    let mut own: Vec<Arrow> = arrows.iter().filter(|arrow| arrow.uid == uid).cloned().collect();
    name_drivers(&mut own);
    own.sort_by_key(|arrow| (arrow.began(), arrow.ended));
    let mut served: Vec<Arrow> = own.iter().filter(|arrow| arrow.side == "server").cloned().collect();
    own.retain(|arrow| {
        if arrow.side != "client" {
            return true;
        }
        // Each server's report answers one caller's: of calls that are alike the first is the first.
        let same = served.iter().position(|other| is_same_call(arrow, other));
        same.map(|at| served.remove(at)).is_none()
    });
    own
}

/// A driver that the kubelet calls by its name and the runtime by that and its place in the order (`00-dra.net`) is one
/// participant.
fn name_drivers(arrows: &mut [Arrow]) {
    let is_driver =
        |arrow: &&Arrow| arrow.from == "Kubelet" && arrow.what.starts_with("NodePrepareResources ");
    let drivers: Vec<String> = arrows.iter().filter(is_driver).map(|arrow| arrow.to.clone()).collect();
    for arrow in arrows {
        for name in [&mut arrow.from, &mut arrow.to] {
            let digits = |index: &str| index.len() == 2 && index.bytes().all(|byte| byte.is_ascii_digit());
            let plain = name.split_once('-').filter(|(index, _)| digits(index));
            if let Some(driver) = plain.and_then(|(_, plain)| drivers.iter().find(|known| *known == plain)) {
                name.clone_from(driver);
            }
        }
    }
}

/// Whether a caller's report and a server's are about one call: by what both know of it, never by the clock, which a busy
/// machine reads late. An object both name is enough, since one of them may not know how it is called; a call that failed
/// may have made nothing that could be named.
fn is_same_call(client: &Arrow, server: &Arrow) -> bool {
    let failed = |arrow: &Arrow| !arrow.error.is_empty();
    let method = |arrow: &Arrow| arrow.what.split(' ').next().map(str::to_owned);
    let same = match (client.about.as_str(), server.about.as_str()) {
        ("", "") => server.what == client.what,
        (mine, theirs) => mine == theirs && method(client) == method(server),
    };
    same && server.to == client.to && failed(server) == failed(client)
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
    fn a_driver_is_one_participant_whoever_calls_it() {
        let to = |mut arrow: Arrow, name: &str| {
            arrow.to = name.to_owned();
            arrow
        };
        let hook = to(arrow("RunPodSandbox", "", 20_000, 100), "00-dra.net");
        let other = to(arrow("RunPodSandbox", "", 30_000, 100), "10-other");
        let prepare = to(arrow("NodePrepareResources net", "", 10_000, 100), "dra.net");
        let names = |all: &[Arrow]| -> Vec<String> {
            of_pod(all, "u").iter().map(|arrow| arrow.to.clone()).collect()
        };
        assert_eq!(names(&[hook.clone(), prepare, other]), ["dra.net", "dra.net", "10-other"]);
        assert_eq!(names(&[hook]), ["00-dra.net"], "nobody says that it is a driver");
    }

    #[test]
    fn one_call_is_known_as_one_however_late_its_ends_report_it() {
        let about = |mut arrow: Arrow, id: &str| {
            arrow.about = id.to_owned();
            arrow
        };
        let late = [
            about(arrow("CreateContainer main", "server", 90_000, 100), "a"),
            about(arrow("CreateContainer main", "client", 50_000, 200), "a"),
            about(arrow("CreateContainer main", "client", 60_000, 200), "b"),
        ];
        let shown = of_pod(&late, "u");
        let sides: Vec<(&str, &str)> =
            shown.iter().map(|one| (one.side.as_str(), one.about.as_str())).collect();
        assert_eq!(sides, [("client", "b"), ("server", "a")], "another container is another call");
        let twice = [
            about(arrow("StopPodSandbox", "client", 10, 1), "s"),
            about(arrow("StopPodSandbox", "client", 20, 1), "s"),
            about(arrow("StopPodSandbox", "server", 30, 1), "s"),
        ];
        assert_eq!(of_pod(&twice, "u").len(), 2, "it was called twice and answered once");
        let mut failed = [arrow("RunPodSandbox", "client", 10, 1), arrow("RunPodSandbox", "server", 30, 1)];
        failed.iter_mut().for_each(|one| one.error = "no".to_owned());
        assert_eq!(of_pod(&failed, "u").len(), 1);
        let unnamed = [
            about(arrow("StopContainer", "client", 10, 1), "a"),
            about(arrow("StopContainer main", "server", 9, 1), "a"),
        ];
        let shown = of_pod(&unnamed, "u");
        assert_eq!(shown.len(), 1, "the caller knew the container by its id only");
        assert_eq!(shown[0].what, "StopContainer main");
    }

    #[test]
    fn what_a_call_caused_stands_between_it_and_its_answer() {
        let all = [arrow("RunPodSandbox", "server", 10_000, 5_000), arrow("inner", "server", 9_000, 2_000)];
        let shown: Vec<String> = moments(&all)
            .iter()
            .map(|moment| match moment {
                Moment::Call(arrow) => format!("call {}", arrow.what),
                Moment::Reply(arrow) => format!("reply {}", arrow.what),
            })
            .collect();
        assert_eq!(shown, ["call RunPodSandbox", "call inner", "reply inner", "reply RunPodSandbox"]);
    }

    #[test]
    fn a_twin_is_known_by_any_arrow_that_names_it() {
        let mut all = [
            arrow("RunPodSandbox", "server", 10_000, 5_000),
            arrow("StopPodSandbox", "server", 9_000, 2_000),
        ];
        assert_eq!(twin(&all, "Kubelet"), None);
        all[1].caller = "kubelet v1".to_owned();
        all[0].callee = "containerd v2".to_owned();
        assert_eq!(
            (twin(&all, "Kubelet"), twin(&all, "ContainerRuntime")),
            (Some("kubelet v1"), Some("containerd v2"))
        );
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
