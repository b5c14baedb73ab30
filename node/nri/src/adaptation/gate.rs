//! Before an event: waiting for the plugins that a pod cannot do without.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use podwire_wire::nri::{Container, Event, PodSandbox};

use super::dispatch::Dispatch;
use super::events::{EventError, Nri};
use super::log::Entry;
use super::plugin::{Plugin, Stage};
use super::required;

impl Nri {
    /// A pod is to be made. Waits for the plugins it cannot do without: without them, whatever is made for it now would
    /// only have to be taken back.
    pub async fn admit_pod_sandbox(&self, pod: PodSandbox) -> Result<(), EventError> {
        let config = &self.registry.config;
        if required::tolerated(config.toleration.as_ref(), &pod, None) {
            return Ok(());
        }
        let required = required::names(&config.required, &pod, None);
        let deadline = Instant::now() + config.required_wait;
        self.gather(&required, deadline, "RunPodSandbox", &pod, None).await
    }

    /// Waits until plugins are connected: those that every pod needs, or else anybody.
    pub async fn wait_for_plugins(&self, longest: Duration) {
        let all: BTreeSet<String> = self.registry.config.required.iter().cloned().collect();
        let mut changes = self.registry.changes();
        let here = |plugins: &[Arc<Plugin>]| plugins.iter().any(|plugin| plugin.stage() == Stage::Ready);
        let waiting = async {
            while required::absent(&self.registry, &all).is_some() || !here(&self.registry.plugins()) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // Ignored: whoever is not there in time has nothing to hear.
        tokio::time::timeout(longest, waiting).await.ok();
    }

    /// An event that must not go on without required plugins.
    pub(super) async fn gated(
        &self,
        event: Event,
        method: &'static str,
        pod: &PodSandbox,
        container: Option<&Container>,
        making: Option<&str>,
    ) -> Result<Dispatch, EventError> {
        let config = &self.registry.config;
        let mut required = required::names(&config.required, pod, container);
        let tolerant = required::tolerated(config.toleration.as_ref(), pod, container);
        let deadline = Instant::now() + config.required_wait;
        loop {
            // Waited for before the event begins: a plugin that comes waits for events under way.
            if !tolerant {
                self.gather(&required, deadline, method, pod, container).await?;
            }
            let under_way = self.registry.begin(&pod.id, making).await;
            let living = |plugin: &&Arc<Plugin>| plugin.stage() != Stage::Gone;
            let here =
                |name: &String| under_way.plugins.iter().filter(living).any(|plugin| plugin.name == *name);
            if tolerant {
                // Only absence is tolerated: one that is there is heard, and its silence fails the pod.
                required.retain(|name| here(name) || self.passed_over(name, method, pod, container));
            }
            if required.iter().all(here) {
                let dispatch = Dispatch::new(event, method, under_way, required, pod);
                return Ok(container.into_iter().fold(dispatch, Dispatch::about));
            }
        }
    }

    /// Notes that a pod goes on without a plugin whose absence it tolerates; never keeps it.
    fn passed_over(
        &self,
        plugin: &str,
        event: &'static str,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> bool {
        self.waiting(plugin, event, pod, container, "tolerated");
        false
    }

    /// Waits until all of `required` are connected.
    async fn gather(
        &self,
        required: &BTreeSet<String>,
        deadline: Instant,
        method: &'static str,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), EventError> {
        let Some(plugin) = required::absent(&self.registry, required) else { return Ok(()) };
        let note = |outcome: &str| self.waiting(&plugin, method, pod, container, outcome);
        note("waiting");
        let left = deadline.saturating_duration_since(Instant::now());
        match required::wait(&self.registry, required, left).await {
            None => Ok(()),
            Some(plugin) => {
                note("absent");
                Err(EventError::Absent { plugin, event: method })
            }
        }
    }

    /// Notes that a pod waits, or waited, for a plugin that is not there.
    fn waiting(
        &self,
        plugin: &str,
        event: &'static str,
        pod: &PodSandbox,
        container: Option<&Container>,
        outcome: &str,
    ) {
        let pod = format!("{}/{}", pod.namespace, pod.name);
        tracing::warn!(plugin, event, pod, outcome, "a pod needs an NRI plugin that is not connected");
        self.registry.log.note(Entry {
            plugin: plugin.to_owned(),
            event: event.to_owned(),
            pod,
            container: container.map(|one| one.name.clone()).unwrap_or_default(),
            outcome: outcome.to_owned(),
            detail: "a required plugin is not connected".to_owned(),
            ..Entry::default()
        });
    }
}
