//! What the runtime tells over NRI: a pod's rules stand before RunPodSandbox is answered, and go when the pod goes.
//!
//! Thin over the stub: every decision is the keeper's.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use podwire_nri::api::{ConfigureRequest, Container, ContainerUpdate, Event, PodSandbox};
use podwire_nri::stub::{Answer, Happened, Plugin, Refusal};
use podwire_trace::{Arrow, Note, Participant};
use tokio::sync::{mpsc, oneshot, watch};

use crate::keeper::{Run, Source, Standing, Status, Word};
use crate::plan::Sandbox;
use crate::pod_network::attach::{self, Given};
use crate::pod_network::{chosen::Networks, status::Statuses};
use crate::policy::ObjectKey;
use crate::source::Sources;

/// The plugin's name among plugins.
pub const NAME: &str = "netplugin";
/// Its place in their order: after those that give a pod further links.
pub(crate) const INDEX: &str = "90";

/// As runtimes call it.
const LABEL: &str = "90-netplugin";

/// How long runtimes wait unless they say otherwise, in milliseconds.
const USUAL: u64 = 2000;

/// The plugin as the runtime calls it.
pub(crate) struct Hooks {
    words: mpsc::Sender<Word>,
    status: watch::Receiver<Status>,
    sources: Sources,
    statuses: Statuses,
    networks: Networks,
    /// How long the runtime waits for an answer, in milliseconds.
    patience: AtomicU64,
}

impl Hooks {
    /// Tells the keeper what the runtime tells.
    pub(crate) fn new(
        words: mpsc::Sender<Word>,
        status: watch::Receiver<Status>,
        sources: Sources,
        statuses: Statuses,
        networks: Networks,
    ) -> Hooks {
        Hooks { words, status, sources, statuses, networks, patience: AtomicU64::new(USUAL) }
    }

    /// As long as an answer may take that the runtime still hears.
    fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::Relaxed) * 3 / 4)
    }

    async fn tell(&self, word: Word) -> Result<(), Refusal> {
        self.words.send(word).await.map_err(|_| Refusal::from("the network plugin is ending"))
    }

    async fn run_sandbox(&self, pod: PodSandbox) -> Result<(), Refusal> {
        let Some((sandbox, netns)) = sandbox(&pod)? else { return Ok(()) };
        let namespace = sandbox.pod.namespace.clone();
        let until = tokio::time::Instant::now() + self.patience();
        let interrupted =
            self.status.borrow().interrupted.iter().next().map(|(source, why)| (*source, why.clone()));
        if let Some((source, why)) = interrupted {
            // What was heard so far may be old: it is asked for, or the pod waits.
            self.sources
                .reread(&namespace, self.patience() / 2)
                .await
                .map_err(|error| unread(source, &why, &error))?;
        }
        if !attach::names_one(&pod) {
            // Whether one chooses it is not known before all of them are.
            let listed = |status: &Status| status.listed.contains(&Source::PodNetworks);
            let mut status = self.status.clone();
            let heard = tokio::time::timeout(self.patience() / 2, status.wait_for(listed)).await;
            if !matches!(heard, Ok(Ok(_))) {
                let missing = self.status.borrow().missing();
                return Err(format!("whether a PodNetwork chooses the pod is not known: {missing}").into());
            }
        }
        let given = Given {
            client: &self.sources.client,
            networks: &self.networks,
            statuses: &self.statuses,
            label: LABEL,
            patience: self.patience() / 2,
        };
        let further = given.attach(&pod, netns.clone()).await?;
        let (answer, answered) = oneshot::channel();
        self.tell(Word::Run(Run { sandbox, netns, further, answer })).await?;
        let standing = match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(standing)) => standing?,
            Ok(Err(_)) => return Err("the network plugin is ending".into()),
            Err(_) => {
                let missing = self.status.borrow().missing();
                let missing = if missing.is_empty() {
                    format!("namespace {namespace} is not known yet")
                } else {
                    missing
                };
                return Err(format!("network policies of the pod cannot be put in place: {missing}").into());
            }
        };
        note(&pod, &standing);
        Ok(())
    }

    async fn gone(&self, id: String) -> Result<(), Refusal> {
        let (answer, answered) = oneshot::channel();
        self.tell(Word::Gone(id, answer)).await?;
        match tokio::time::timeout(self.patience(), answered).await {
            Ok(Ok(done)) => Ok(done?),
            _ => Err("the pod's rules may still stand".into()),
        }
    }
}

fn unread(source: Source, why: &str, error: &str) -> Refusal {
    format!("{source:?} cannot be heard ({why}) and cannot be read: {error}").into()
}

fn note(pod: &PodSandbox, standing: &Standing) {
    if podwire_trace::is_heard() {
        let whose = podwire_trace::Pod { uid: &pod.uid, namespace: &pod.namespace, name: &pod.name };
        let policies =
            if standing.policies.is_empty() { "none".to_owned() } else { standing.policies.join(", ") };
        let account = format!(
            "network policies in place: {policies} ({} changes in one transaction)",
            standing.changes
        );
        Arrow::note(whose, Participant::NriPlugin(LABEL), Note::PoliciesInPlace { account: &account });
    }
}

/// The pod's sandbox and its network namespace; `None` for a pod on the node's network.
fn sandbox(pod: &PodSandbox) -> Result<Option<(Sandbox, PathBuf)>, Refusal> {
    let namespaces = pod.linux.iter().flat_map(|linux| &linux.namespaces);
    let network = namespaces.into_iter().find(|one| one.r#type == "network" && !one.path.is_empty());
    let Some(network) = network else { return Ok(None) };
    let addresses = pod.ips.iter().map(|ip| ip.parse().map_err(|_| format!("{ip:?} is no address")));
    let sandbox = Sandbox {
        id: pod.id.clone(),
        pod: ObjectKey { namespace: pod.namespace.clone(), name: pod.name.clone() },
        uid: pod.uid.clone(),
        labels: pod.labels.clone().into_iter().collect(),
        addresses: addresses.collect::<Result<_, _>>()?,
    };
    Ok(Some((sandbox, PathBuf::from(&network.path))))
}

impl Plugin for Hooks {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::StopPodSandbox, Event::RemovePodSandbox]
    }

    fn configure(&self, request: ConfigureRequest) -> Answer<'_, ()> {
        if let Ok(limit) = u64::try_from(request.request_timeout)
            && limit > 0
        {
            self.patience.store(limit, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn synchronize(&self, pods: Vec<PodSandbox>, _: Vec<Container>) -> Answer<'_, Vec<ContainerUpdate>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for pod in &pods {
                match sandbox(pod) {
                    Ok(found) => all.extend(found),
                    Err(error) => tracing::error!(
                        pod = pod.name,
                        error,
                        "a pod that runs is not understood and stays closed"
                    ),
                }
            }
            self.tell(Word::Sandboxes(all)).await?;
            Ok(Vec::new())
        })
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        Box::pin(async move {
            match what.event {
                Event::RunPodSandbox => self.run_sandbox(what.pod).await,
                Event::StopPodSandbox | Event::RemovePodSandbox => {
                    if what.event == Event::RemovePodSandbox {
                        attach::detach(&self.statuses, &self.networks, &what.pod);
                    }
                    self.gone(what.pod.id).await
                }
                _ => Ok(()),
            }
        })
    }
}
