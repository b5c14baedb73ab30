//! The path of a pod as arrows: who called whom, for what, about which object, and what came of it.
//!
//! A participant draws its arrows in one layer per protocol: around the call, also when it fails or is given up. An arrow
//! leaves as a `tracing` event with the target [`TARGET`]; the composition root keeps the newest. The pod's UID is the
//! key: every participant knows it, so no context has to travel through a watch. Without a listener nothing is formatted.

mod chain;
mod what;

use std::time::{Duration, Instant};

pub use self::{
    chain::chain,
    what::{Cri, Note, What},
};

/// The target of events that are arrows.
pub const TARGET: &str = "arrow";

/// Whether anybody listens.
pub fn is_heard() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
}

/// The pod whose path an arrow belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Who takes part, in the words of the sequence diagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Participant<'a> {
    /// Whoever typed it.
    KubeCtl,
    /// The API server.
    ApiServer,
    /// The store behind the API server.
    Etcd,
    /// The scheduler.
    Scheduler,
    /// The controllers.
    Controllers,
    /// The kubelet.
    Kubelet,
    /// The container runtime.
    ContainerRuntime,
    /// The CNI plugins of a network.
    CniPlugin,
    /// The CNI plugin that hands out addresses.
    Ipam,
    /// An NRI plugin, by its own name.
    NriPlugin(&'a str),
    /// A device plugin, by the name of its resource.
    DevicePlugin(&'a str),
    /// A driver of dynamic resources, by its name.
    Driver(&'a str),
    /// Somebody else, by the name the API server knows.
    User(&'a str),
}

impl<'a> Participant<'a> {
    /// The name in diagrams.
    pub fn name(self) -> &'a str {
        match self {
            Participant::KubeCtl => "KubeCtl",
            Participant::ApiServer => "APIServer",
            Participant::Etcd => "etcd",
            Participant::Scheduler => "Scheduler",
            Participant::Controllers => "Controllers",
            Participant::Kubelet => "Kubelet",
            Participant::ContainerRuntime => "ContainerRuntime",
            Participant::CniPlugin => "CNIPlugin",
            Participant::Ipam => "IPAM",
            Participant::NriPlugin(name)
            | Participant::DevicePlugin(name)
            | Participant::Driver(name)
            | Participant::User(name) => name,
        }
    }
}

/// Which end of a call draws it, when both may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Only one end ever does.
    #[default]
    Only,
    /// The caller.
    Client,
    /// The called.
    Server,
    /// Only one end does, and later: the call was not made for this pod, which relies on what came of it.
    Earlier,
}

impl Side {
    fn as_str(self) -> &'static str {
        match self {
            Side::Only => "",
            Side::Client => "client",
            Side::Server => "server",
            Side::Earlier => "earlier",
        }
    }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Done {
        /// The answer in a few words; may be empty.
        reply: String,
        /// The id of what was made, when the call made something.
        made: Option<String>,
    },
    /// It failed, in the words of the one who says so.
    Failed(String),
}

impl Outcome {
    /// Answered in these words.
    pub fn reply(words: impl Into<String>) -> Outcome {
        Outcome::Done { reply: words.into(), made: None }
    }

    /// Answered with something new.
    pub fn made(id: &str, words: impl Into<String>) -> Outcome {
        Outcome::Done { reply: words.into(), made: Some(id.to_owned()) }
    }

    /// As `result` says: answered in the words of `reply`, or failed with its error.
    pub fn of<T, E: std::fmt::Display>(result: &Result<T, E>, reply: impl FnOnce(&T) -> String) -> Outcome {
        match result {
            Ok(answer) => Outcome::reply(reply(answer)),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

/// One call, or one thing done, on the path of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow<'a> {
    /// Whose path.
    pub pod: Pod<'a>,
    /// Who called.
    pub from: Participant<'a>,
    /// Who was called; the caller itself for a note.
    pub to: Participant<'a>,
    /// What was asked or done.
    pub what: What<'a>,
    /// The id of the sandbox or container it is about. Both ends of a call know it: one call is known as one by it.
    pub object: &'a str,
    /// Which end draws.
    pub side: Side,
    /// The program that plays the caller, when it is an upstream twin.
    pub caller: &'a str,
    /// The program that plays the called one, when it is an upstream twin.
    pub callee: &'a str,
}

impl<'a> Arrow<'a> {
    /// A call that only its caller draws.
    pub fn new(pod: Pod<'a>, from: Participant<'a>, to: Participant<'a>, what: What<'a>) -> Arrow<'a> {
        Arrow { pod, from, to, what, object: "", side: Side::Only, caller: "", callee: "" }
    }

    /// Draws something that a participant did by itself, now.
    pub fn note(pod: Pod<'a>, who: Participant<'a>, note: Note<'a>) {
        if is_heard() {
            Arrow::new(pod, who, who, What::Note(note)).draw(Duration::ZERO, &Outcome::reply(note.detail()));
        }
    }

    /// Draws something that a participant did so long ago, when it was not known yet of which pod it was.
    pub fn note_from(pod: Pod<'a>, who: Participant<'a>, note: Note<'a>, ago: Duration) {
        tracing::debug!(
            target: TARGET,
            uid = pod.uid,
            pod = %format_args!("{}/{}", pod.namespace, pod.name),
            from = who.name(),
            to = who.name(),
            what = %What::Note(note),
            ago = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX),
        );
    }

    /// Draws the arrow of a call that is over and took so long.
    pub fn draw(&self, took: Duration, outcome: &Outcome) {
        self.draw_from(took, Duration::ZERO, outcome);
    }

    /// Draws the arrow of a call that took so long and has been over for `ago`.
    pub fn draw_from(&self, took: Duration, ago: Duration, outcome: &Outcome) {
        let (reply, made, error) = match outcome {
            Outcome::Done { reply, made } => (reply.as_str(), made.as_deref(), ""),
            Outcome::Failed(error) => ("", None, error.as_str()),
        };
        tracing::debug!(
            target: TARGET,
            uid = self.pod.uid,
            pod = %format_args!("{}/{}", self.pod.namespace, self.pod.name),
            from = self.from.name(),
            to = self.to.name(),
            what = %self.what,
            about = made.unwrap_or(self.object),
            reply,
            error,
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            ago = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX),
            side = self.side.as_str(),
            caller = self.caller,
            callee = self.callee,
        );
    }

    /// Makes a call and draws its arrow around it.
    pub fn around<T>(self, call: impl FnOnce() -> T, outcome: impl FnOnce(&T) -> Outcome) -> T {
        if !is_heard() {
            return call();
        }
        let under_way = UnderWay { arrow: self, begun: Instant::now(), over: false };
        let answer = call();
        under_way.over(&outcome(&answer));
        answer
    }

    /// Awaits a call and draws its arrow around it; one that is dropped before its end was given up.
    ///
    /// Cancel safe if the call is.
    pub async fn around_async<T>(
        self,
        call: impl Future<Output = T>,
        outcome: impl FnOnce(&T) -> Outcome,
    ) -> T {
        if !is_heard() {
            return call.await;
        }
        let under_way = UnderWay { arrow: self, begun: Instant::now(), over: false };
        let answer = call.await;
        under_way.over(&outcome(&answer));
        answer
    }
}

/// A call whose answer is not here yet.
struct UnderWay<'a> {
    arrow: Arrow<'a>,
    begun: Instant,
    over: bool,
}

impl UnderWay<'_> {
    fn over(mut self, outcome: &Outcome) {
        self.over = true;
        self.arrow.draw(self.begun.elapsed(), outcome);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.over {
            let outcome = Outcome::Failed("given up before it was answered".to_owned());
            self.arrow.draw(self.begun.elapsed(), &outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fmt::Debug,
        sync::{Arc, Mutex},
    };

    use tracing::field::{Field, Visit};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    type Drawn = BTreeMap<String, String>;

    #[derive(Clone, Default)]
    struct Collected(Arc<Mutex<Vec<Drawn>>>);

    struct Fields<'a>(&'a mut Drawn);

    impl Visit for Fields<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for Collected {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            assert_eq!(event.metadata().target(), TARGET);
            let mut drawn = Drawn::new();
            event.record(&mut Fields(&mut drawn));
            self.0.lock().unwrap().push(drawn);
        }
    }

    fn drawn(draw: impl FnOnce()) -> Vec<Drawn> {
        let collected = Collected::default();
        let subscriber = tracing_subscriber::registry().with(collected.clone());
        tracing::subscriber::with_default(subscriber, draw);
        collected.0.lock().unwrap().clone()
    }

    fn stop() -> Arrow<'static> {
        let pod = Pod { uid: "u", namespace: "default", name: "web" };
        let what = What::Cri { method: Cri::StopContainer, of: "main" };
        let arrow = Arrow::new(pod, Participant::Kubelet, Participant::ContainerRuntime, what);
        Arrow { object: "id", side: Side::Client, ..arrow }
    }

    #[test]
    fn a_call_is_drawn_with_its_answer_and_a_failed_one_with_its_error() {
        let all = drawn(|| {
            let outcome = |result: &Result<u8, &str>| Outcome::of(result, |code| format!("exit code {code}"));
            assert_eq!(stop().around(|| Ok(7), outcome), Ok(7));
            assert_eq!(stop().around(|| Err("no such container"), outcome), Err("no such container"));
        });
        let seen = |at: usize, key: &str| all[at][key].clone();
        assert_eq!(all.len(), 2);
        assert_eq!((seen(0, "what"), seen(0, "about")), ("StopContainer main".into(), "id".into()));
        assert_eq!((seen(0, "reply"), seen(0, "error")), ("exit code 7".into(), String::new()));
        assert_eq!((seen(1, "reply"), seen(1, "error")), (String::new(), "no such container".into()));
        assert_eq!((seen(1, "pod"), seen(1, "side")), ("default/web".into(), "client".into()));
    }

    #[test]
    fn what_was_made_is_what_the_call_is_about() {
        let all = drawn(|| stop().around(|| (), |()| Outcome::made("new", "container new")));
        assert_eq!(all[0]["about"], "new");
    }

    #[test]
    fn a_call_that_is_given_up_is_drawn_as_such() {
        let all = drawn(|| {
            let call = stop().around_async(std::future::pending::<()>(), |()| Outcome::reply(""));
            let mut call = Box::pin(call);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(call.as_mut().poll(&mut context).is_pending());
        });
        assert_eq!(all.len(), 1);
        assert_eq!(all[0]["error"], "given up before it was answered");
    }

    #[test]
    fn a_call_of_earlier_says_how_long_ago_it_was() {
        let what = What::DevicePlugin { method: "ListAndWatch", container: "" };
        let to = Participant::DevicePlugin("example.com/gpu");
        let arrow = Arrow { side: Side::Earlier, ..Arrow::new(stop().pod, Participant::Kubelet, to, what) };
        let (took, ago) = (Duration::from_millis(2), Duration::from_secs(3));
        let all = drawn(|| arrow.draw_from(took, ago, &Outcome::reply("2 devices")));
        let seen = |key: &str| all[0][key].clone();
        assert_eq!((seen("to"), seen("side")), ("example.com/gpu".into(), "earlier".into()));
        assert_eq!((seen("micros"), seen("ago")), ("2000".into(), "3000000".into()));
    }

    #[test]
    fn a_note_goes_from_somebody_to_himself() {
        let pod = stop().pod;
        let all = drawn(|| {
            Arrow::note(pod, Participant::ContainerRuntime, Note::ProcessStarted { pid: 12 });
            Arrow::note(pod, Participant::Kubelet, Note::Admitted);
        });
        assert_eq!(
            (all[0]["from"].as_str(), all[0]["to"].as_str()),
            ("ContainerRuntime", "ContainerRuntime")
        );
        assert_eq!(
            (all[0]["what"].as_str(), all[0]["reply"].as_str()),
            ("container process started", "pid 12")
        );
        assert_eq!((all[1]["what"].as_str(), all[1]["reply"].as_str()), ("admitted", ""));
    }
}
