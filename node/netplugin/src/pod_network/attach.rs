//! A pod that names a PodNetwork, or that one chooses, gets it inside RunPodSandbox: read by name or known from the watch,
//! applied in the pod's namespace, told in its status. What cannot be read or applied refuses the pod, with the reason.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use podwire_client::api::{Api, ApiResource, GroupVersionKind};
use podwire_client::{Client, DynamicObject};
use podwire_nri::api::PodSandbox;
use podwire_nri::stub::Refusal;
use podwire_trace::{Arrow, Outcome, Participant, Side, What};
use serde_json::Value;

use super::chosen::{Choice, Networks};
use super::status::Statuses;
use super::{ANNOTATION, apply, spec};
use crate::plan::Labels;

pub(crate) const VERSION: &str = "net.podwire.dev/v1alpha1";

pub(crate) fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("net.podwire.dev", "v1alpha1", "PodNetwork");
    ApiResource::from_gvk_with_plural(&kind, "podnetworks")
}

/// The name in the pod's annotation; one that no object can have is refused before it becomes part of a path.
fn named(pod: &PodSandbox) -> Result<Option<&str>, Refusal> {
    let Some(name) = pod.annotations.get(ANNOTATION) else { return Ok(None) };
    let proper = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if name.len() <= 253 && bytes.iter().copied().all(proper) && ends(bytes.first()) && ends(bytes.last()) {
        return Ok(Some(name));
    }
    let shown: String = name.chars().take(64).collect();
    Err(format!("{ANNOTATION}: {shown:?} is no name of a PodNetwork").into())
}

/// What a pod's PodNetwork comes from.
pub(crate) struct Given<'a> {
    /// The way to those that pods name.
    pub(crate) client: &'a Client,
    /// Those that choose pods.
    pub(crate) networks: &'a Networks,
    /// Where it is told what became of a pod.
    pub(crate) statuses: &'a Statuses,
    /// The plugin's name among the participants of a pod's path.
    pub(crate) label: &'a str,
    /// How long an object may take to be read.
    pub(crate) patience: Duration,
}

/// Whether a pod says itself which PodNetwork it wants.
pub(crate) fn names_one(pod: &PodSandbox) -> bool {
    pod.annotations.contains_key(ANNOTATION)
}

impl Given<'_> {
    /// Gives the pod what its annotation names, or else what chooses it; the further addresses that it has then.
    pub(crate) async fn attach(&self, pod: &PodSandbox, netns: PathBuf) -> Result<Vec<IpAddr>, Refusal> {
        let (name, object) = match named(pod)? {
            Some(name) => {
                let api = Api::namespaced_with(self.client.clone(), &pod.namespace, &resource());
                let reading = tokio::time::timeout(self.patience, read(&api, self.label, pod, name));
                let object = reading.await.map_err(|_| {
                    format!("PodNetwork {name} could not be read within {:?}", self.patience)
                })??;
                (name.to_owned(), Arc::new(object))
            }
            None => match self.networks.choose(&pod.namespace, &labels(pod)) {
                Choice::None => return Ok(Vec::new()),
                Choice::One(name, object) => (name, object),
                Choice::Several(names) => {
                    let reason = format!(
                        "PodNetworks {} all choose the pod (spec.podSelector); its annotation {ANNOTATION} can name one",
                        names.join(" and ")
                    );
                    let refused = Err(reason.clone());
                    names.iter().for_each(|name| self.statuses.tell(name, pod, &refused));
                    return Err(reason.into());
                }
            },
        };
        let mut addresses = Vec::new();
        let done = match spec::read(&object) {
            Err(mistake) => Err(format!("PodNetwork {name}: {mistake}")),
            Ok(network) => {
                addresses.extend(network.addresses.iter().map(ipnet::IpNet::addr));
                match tokio::task::spawn_blocking(move || apply::apply(&netns, &network)).await {
                    Ok(Ok(steps)) => Ok(steps),
                    Ok(Err(error)) => Err(format!("PodNetwork {name}: {}", chain(&error))),
                    Err(error) => Err(format!("PodNetwork {name}: applying it broke off: {error}")),
                }
            }
        };
        self.statuses.tell(&name, pod, &done);
        done.map(|_| addresses).map_err(Refusal::from)
    }
}

fn labels(pod: &PodSandbox) -> Labels {
    pod.labels.clone().into_iter().collect()
}

/// Takes the pod out of the status of what it named, or of what chose it.
pub(crate) fn detach(statuses: &Statuses, networks: &Networks, pod: &PodSandbox) {
    let name = match (named(pod), statuses.network_of(pod)) {
        (Ok(Some(name)), _) => Some(name.to_owned()),
        (_, Some(name)) => Some(name),
        // An earlier process gave it; whoever chooses it now has chosen it then, as a rule.
        _ => match networks.choose(&pod.namespace, &labels(pod)) {
            Choice::One(name, _) => Some(name),
            _ => None,
        },
    };
    if let Some(name) = name {
        statuses.sandbox_gone(&name, pod);
    }
}

async fn read(api: &Api<DynamicObject>, label: &str, pod: &PodSandbox, name: &str) -> Result<Value, Refusal> {
    let path = format!("/apis/{VERSION}/namespaces/{}/podnetworks/{name}", pod.namespace);
    let whose = podwire_trace::Pod { uid: &pod.uid, namespace: &pod.namespace, name: &pod.name };
    let what = What::Http { method: "GET", path: &path };
    let arrow = Arrow::new(whose, Participant::NriPlugin(label), Participant::ApiServer, what);
    let call = async { api.get_opt(name).await.map_err(|error| error.to_string()) };
    let outcome = |answer: &Result<Option<DynamicObject>, String>| match answer {
        Ok(None) => Outcome::reply("404"),
        Ok(Some(_)) => Outcome::reply("200"),
        Err(error) => Outcome::reply(error.as_str()),
    };
    let arrow = Arrow { side: Side::Client, ..arrow };
    match arrow.around_async(call, outcome).await {
        Ok(Some(object)) => Ok(object.data),
        Ok(None) => Err(format!("there is no PodNetwork {name} in namespace {}", pod.namespace).into()),
        Err(error) => Err(format!("PodNetwork {name} could not be read: {error}").into()),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_a_path_is_refused() {
        let pod = |name: &str| PodSandbox {
            annotations: [(ANNOTATION.to_owned(), name.to_owned())].into(),
            ..PodSandbox::default()
        };
        assert_eq!(named(&pod("mesh.v2")).unwrap(), Some("mesh.v2"));
        assert_eq!(named(&PodSandbox::default()).unwrap(), None);
        for wrong in ["", "../secrets/x", "a/b", "a?b", "A", "-a", "a.", "a%2fb", &"a".repeat(254)] {
            assert!(named(&pod(wrong)).is_err(), "{wrong:?}");
        }
    }
}
