//! What the runtime tells over NRI: a sandbox that runs has its devices before the answer, one that ends gives them back.
//!
//! Thin over the stub: every decision is the keeper's.

use std::path::PathBuf;

use podwire_nri::{
    api::{Container, ContainerUpdate, Event, PodSandbox},
    stub::{Answer, Happened, Plugin, Refusal},
};
use podwire_trace::{Arrow, Note, Participant, chain};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    figures::{Came, Door, Figures},
    keeper::{Sandbox, Word},
};

/// The driver's place in the order of plugins: before all that look at what a pod has.
pub(crate) const INDEX: &str = "00";

/// The driver as the runtime calls it.
pub(crate) struct Hooks {
    driver: String,
    words: mpsc::Sender<Word>,
    figures: Figures,
}

impl Hooks {
    pub(crate) fn new(driver: &str, words: mpsc::Sender<Word>, figures: Figures) -> Hooks {
        Hooks { driver: driver.to_owned(), words, figures }
    }

    async fn ask<T>(
        &self,
        word: impl FnOnce(oneshot::Sender<Result<T, crate::keeper::Error>>) -> Word,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let ending = || Refusal::from("the network driver is ending");
        self.words.send(word(answer)).await.map_err(|_| ending())?;
        answered.await.map_err(|_| ending())?.map_err(|error| chain(&error).into())
    }

    async fn run_sandbox(&self, pod: &PodSandbox) -> Result<(), Refusal> {
        let begun = Instant::now();
        let asked = self.ask(|answer| Word::Run(sandbox(pod), answer)).await;
        let is_none = asked.as_ref().is_ok_and(Vec::is_empty);
        let came = if is_none { Came::Noop } else { Came::of(&asked) };
        self.figures.call(Door::Nri, "RunPodSandbox", came, begun.elapsed());
        let whose = podwire_trace::Pod { uid: &pod.uid, namespace: &pod.namespace, name: &pod.name };
        for account in asked? {
            Arrow::note(whose, Participant::Driver(&self.driver), Note::NetworkMade { account: &account });
        }
        Ok(())
    }
}

fn sandbox(pod: &PodSandbox) -> Sandbox {
    let namespaces = pod.linux.iter().flat_map(|linux| &linux.namespaces);
    let network = namespaces.into_iter().find(|one| one.r#type == "network" && !one.path.is_empty());
    Sandbox {
        id: pod.id.clone(),
        pod_uid: pod.uid.clone(),
        netns: network.map(|network| PathBuf::from(&network.path)),
    }
}

impl Plugin for Hooks {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox, Event::StopPodSandbox, Event::RemovePodSandbox]
    }

    fn synchronize(&self, pods: Vec<PodSandbox>, _: Vec<Container>) -> Answer<'_, Vec<ContainerUpdate>> {
        Box::pin(async move {
            let all = pods.iter().map(sandbox).collect();
            self.ask(|answer| Word::Sandboxes(all, answer)).await?;
            Ok(Vec::new())
        })
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        Box::pin(async move {
            match what.event {
                Event::RunPodSandbox => self.run_sandbox(&what.pod).await,
                Event::StopPodSandbox | Event::RemovePodSandbox => {
                    let begun = Instant::now();
                    let done = self.ask(|answer| Word::Gone(what.pod.id, answer)).await;
                    let stops = what.event == Event::StopPodSandbox;
                    let method = if stops { "StopPodSandbox" } else { "RemovePodSandbox" };
                    self.figures.call(Door::Nri, method, Came::of(&done), begun.elapsed());
                    done
                }
                _ => Ok(()),
            }
        })
    }
}
