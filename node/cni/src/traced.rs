//! The layer that draws calls of plugins on the path of their pod: one arrow per plugin of the chain, and one for the
//! plugin that hands out addresses.
//!
//! The pod is known from `CNI_ARGS`; calls that name none are not drawn. What a plugin of somebody else's program asks of
//! its own IPAM plugin cannot be seen from here.

use podwire_trace::{Arrow, Note, Outcome, Participant, Pod, What};
use serde_json::Value;

use crate::networks::{Attachment, conflist::Conflist};
use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};
use crate::spec::result::CniResult;

type Answer = Result<Option<Value>, CniError>;

/// The pod in `CNI_ARGS`, as runtimes name it.
fn pod_of<'a>(args: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Pod<'a>> {
    let mut pod = Pod::default();
    for (key, value) in args {
        match key {
            "K8S_POD_UID" => pod.uid = value,
            "K8S_POD_NAMESPACE" => pod.namespace = value,
            "K8S_POD_NAME" => pod.name = value,
            _ => {}
        }
    }
    (!pod.uid.is_empty() && podwire_trace::is_heard()).then_some(pod)
}

fn pod_of_request(request: &Request) -> Option<Pod<'_>> {
    pod_of(request.args.split(';').filter_map(|pair| pair.split_once('=')))
}

/// The network of an attachment is known.
pub(crate) fn configuration(conflist: &Conflist, attachment: &Attachment) {
    let args = attachment.args.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let Some(pod) = pod_of(args) else { return };
    let plugins: Vec<&str> = (0..conflist.plugins.len()).map(|step| conflist.kind(step)).collect();
    let network = format!("{}, {}", conflist.name, plugins.join(" + "));
    Arrow::note(pod, Participant::ContainerRuntime, Note::ConfigurationRead { network: &network });
}

/// Calls one plugin of a chain.
pub(crate) fn plugin(kind: &str, request: &Request, call: impl FnOnce() -> Answer) -> Answer {
    let Some(pod) = pod_of_request(request) else { return call() };
    let what = What::Cni { verb: request.command.as_str(), interface: &request.ifname, plugin: kind };
    let arrow = Arrow::new(pod, Participant::ContainerRuntime, Participant::CniPlugin, what);
    let noted = || {
        let answer = call();
        if let Some(made) = made(request, &answer) {
            Arrow::note(pod, Participant::CniPlugin, Note::NetworkMade { account: &made });
        }
        answer
    };
    Arrow { object: &request.container_id, ..arrow }.around(noted, |answer| outcome(request, answer))
}

/// Calls the plugin for addresses on behalf of another.
pub(crate) fn ipam(kind: &str, request: &Request, call: impl FnOnce() -> Answer) -> Answer {
    let Some(pod) = pod_of_request(request) else { return call() };
    let what = What::Ipam { verb: request.command.as_str(), plugin: kind };
    let arrow = Arrow::new(pod, Participant::CniPlugin, Participant::Ipam, what);
    Arrow { object: &request.container_id, ..arrow }.around(call, |answer| outcome(request, answer))
}

/// The result of an ADD, as far as it can be read.
fn result(request: &Request, answer: &Answer) -> Option<CniResult> {
    let value = answer.as_ref().ok()?.as_ref().filter(|_| request.command == Command::Add)?;
    // Ignored: a result that cannot be read is the caller's error to tell.
    CniResult::parse(value, request.version().ok()?).ok()
}

/// What a plugin added to the result of those before it: addresses with their gateways, then interfaces.
fn made(request: &Request, answer: &Answer) -> Option<String> {
    let account = |result: &CniResult| {
        let ips = result.ips.iter().map(|ip| match ip.gateway {
            Some(gateway) => format!("{} via {gateway}", ip.address),
            None => ip.address.to_string(),
        });
        let links = result.interfaces.iter().map(|link| link.name.clone());
        ips.chain(links).collect::<Vec<_>>().join(", ")
    };
    let now = account(&result(request, answer)?);
    let before = request.prev_result().ok().flatten().map(|before| account(&before)).unwrap_or_default();
    (now != before).then_some(now)
}

/// The addresses, or the plugin's words.
fn outcome(request: &Request, answer: &Answer) -> Outcome {
    Outcome::of(answer, |_| {
        let ips = result(request, answer).map(|result| result.ips).unwrap_or_default();
        ips.iter().map(|ip| ip.address.addr().to_string()).collect::<Vec<_>>().join(", ")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;

    fn request(command: Command, prev: &Value) -> Request {
        Request {
            command,
            container_id: "s".into(),
            netns: String::new(),
            ifname: "eth0".into(),
            args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=u".into(),
            path: Vec::new(),
            netns_override: false,
            trace: Vec::new(),
            netns_is_dying: false,
            is_program: false,
            conf: json!({"cniVersion": "1.0.0", "name": "n", "prevResult": prev}),
        }
    }

    /// Where a subscriber writes for the test to read.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    impl std::io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn drawn(draw: impl FnOnce()) -> Vec<String> {
        let page = Page::default();
        let written = page.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || written.clone())
            .finish();
        // Where one alone listens, a thread without a listener that meets an event first turns it off for all.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        tracing::subscriber::with_default(subscriber, draw);
        page.lines()
    }

    #[test]
    fn each_plugin_and_its_ipam_are_arrows_of_their_own_and_a_failure_is_one_too() {
        let result = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "veth1"}],
            "ips": [{"address": "10.88.0.2/16", "gateway": "10.88.0.1"}]});
        let lines = drawn(|| {
            let first = request(Command::Add, &Value::Null);
            let addresses = || ipam("host-local", &first, || Ok(Some(result.clone())));
            plugin("bridge", &first, addresses).unwrap();
            plugin("portmap", &request(Command::Add, &result), || Ok(Some(result.clone()))).unwrap();
            let del = request(Command::Del, &result);
            plugin("portmap", &del, || Err(CniError::internal("no such table"))).unwrap_err();
            let unnamed = Request { args: String::new(), ..del };
            plugin("portmap", &unnamed, || Ok(None)).unwrap();
        });
        let wanted = [
            ["from=\"CNIPlugin\" to=\"IPAM\"", "what=ADD host-local", "reply=\"10.88.0.2\""],
            ["to=\"CNIPlugin\"", "what=10.88.0.2/16 via 10.88.0.1, veth1", "pod=default/web"],
            ["from=\"ContainerRuntime\"", "what=ADD eth0 bridge", "reply=\"10.88.0.2\""],
            ["to=\"CNIPlugin\"", "what=ADD eth0 portmap", "about=\"s\""],
            ["to=\"CNIPlugin\"", "what=DEL eth0 portmap", "no such table"],
        ];
        assert_eq!(lines.len(), wanted.len(), "{lines:#?}");
        for (line, words) in lines.iter().zip(wanted) {
            assert!(words.iter().all(|word| line.contains(word)), "{words:?} in {line}");
        }
    }
}
