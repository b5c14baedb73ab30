//! One event on its way to the plugins: to whom, how their answers are judged, what is noted and drawn of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use podwire_trace::{Arrow, Outcome, Participant, Pod, What};
use podwire_wire::nri::{
    Container, Event, PluginInstance, PodSandbox, ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
};

use super::events::EventError;
use super::log::{Entry, micros};
use super::plugin::Plugin;
use super::registry::UnderWay;
use crate::link::CallError;
use crate::merge::{Conflict, Merged};

/// One event on its way to the plugins.
pub(super) struct Dispatch {
    event: Event,
    method: &'static str,
    under_way: UnderWay,
    pub(super) required: BTreeSet<String>,
    pod: PodName,
    container: String,
}

/// The pod an event is about, as people know it.
struct PodName {
    uid: String,
    namespace: String,
    name: String,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Dispatch {
    pub(super) fn new(
        event: Event,
        method: &'static str,
        under_way: UnderWay,
        required: BTreeSet<String>,
        pod: &PodSandbox,
    ) -> Self {
        let PodSandbox { uid, namespace, name, .. } = pod;
        let pod = PodName { uid: uid.clone(), namespace: namespace.clone(), name: name.clone() };
        Self { event, method, under_way, required, pod, container: String::new() }
    }

    /// The container it is about.
    pub(super) fn about(mut self, container: &Container) -> Self {
        self.container.clone_from(&container.name);
        self
    }

    /// Calls one plugin and draws that; an event of a pod without a name is not drawn.
    async fn drawn<R>(
        &self,
        plugin: &Plugin,
        event: &'static str,
        call: impl Future<Output = Result<R, CallError>>,
    ) -> Result<R, CallError> {
        let PodName { uid, namespace, name } = &self.pod;
        if uid.is_empty() || !podwire_trace::is_heard() {
            return call.await;
        }
        let label = plugin.label();
        let what = What::Nri { event, container: &self.container };
        let (pod, to) = (Pod { uid, namespace, name }, Participant::NriPlugin(&label));
        let outcome = |answer: &Result<R, CallError>| match answer {
            Err(error) if error.unimplemented() => Outcome::reply("not implemented"),
            _ => Outcome::of(answer, |_| String::new()),
        };
        Arrow::new(pod, Participant::ContainerRuntime, to, what).around_async(call, outcome).await
    }

    fn note(&self, plugin: &Plugin, outcome: &str, detail: String, begun: Instant) {
        self.under_way.registry().log.note(Entry {
            plugin: plugin.label(),
            event: self.method.to_owned(),
            pod: self.pod.to_string(),
            container: self.container.clone(),
            outcome: outcome.to_owned(),
            detail,
            micros: micros(begun.elapsed()),
            ..Entry::default()
        });
    }

    /// A plugin wants what another has.
    pub(super) fn conflict(&self, plugin: &Plugin, conflict: Conflict) -> EventError {
        tracing::warn!(plugin = plugin.label(), pod = %self.pod, error = %conflict, "NRI plugins contradict each other");
        plugin.stats.failed(format!("{}: {conflict}", self.method));
        self.note(plugin, "conflict", conflict.to_string(), Instant::now());
        conflict.into()
    }

    /// The plugins that want to hear of it and are ready, in order.
    pub(super) async fn hearers(&self) -> Vec<Arc<Plugin>> {
        let mut hearers = Vec::new();
        for plugin in self.under_way.plugins.iter().filter(|plugin| plugin.hears(self.event)) {
            // One that goes away while being synchronized is treated as one that does not answer.
            if plugin.ready().await || self.required.contains(&plugin.name) {
                hearers.push(plugin.clone());
            }
        }
        hearers
    }

    /// Tells one plugin.
    async fn tell<A: prost::Message>(
        &self,
        plugin: &Plugin,
        request: &A,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), CallError> {
        let call = plugin.notify(self.event, self.method, request, pod, container);
        self.drawn(plugin, self.method, call).await
    }

    /// Tells one after another; the first refusal ends it.
    pub(super) async fn notify_all<A: prost::Message>(
        &self,
        request: &A,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), EventError> {
        for plugin in self.hearers().await {
            let begun = Instant::now();
            let told = self.tell(&plugin, request, pod, container).await;
            self.judge(&plugin, told, begun, |()| String::new())?;
        }
        Ok(())
    }

    /// Tells everyone, and reports the first refusal at the end.
    pub(super) async fn notify_everyone<A: prost::Message>(
        &self,
        request: &A,
        pod: &PodSandbox,
        container: Option<&Container>,
    ) -> Result<(), EventError> {
        let mut first = Ok(());
        for plugin in self.hearers().await {
            let begun = Instant::now();
            let told = self.tell(&plugin, request, pod, container).await;
            let judged = self.judge(&plugin, told, begun, |()| String::new()).map(drop);
            first = first.and(judged);
        }
        first
    }

    /// Asks one plugin; `None` if it dropped out and the event may go on without it.
    pub(super) async fn ask<A: prost::Message, R: prost::Message + Default>(
        &self,
        plugin: &Plugin,
        request: &A,
        words: impl FnOnce(&R) -> String,
    ) -> Result<Option<R>, EventError> {
        let begun = Instant::now();
        let answer = self.drawn(plugin, self.method, plugin.call(self.method, request)).await;
        self.judge(plugin, answer, begun, words)
    }

    /// Whether the event cannot go on without the plugin.
    fn needs(&self, plugin: &Plugin) -> bool {
        self.required.contains(&plugin.name) || plugin.policy.fail_request
    }

    /// Whether not to know the event is no consent of the plugin.
    fn binding(&self, plugin: &Plugin, event: Event) -> bool {
        self.needs(plugin) && plugin.asked_for(event)
    }

    /// What an answer, or its absence, means for the event.
    fn judge<R>(
        &self,
        plugin: &Plugin,
        answer: Result<R, CallError>,
        begun: Instant,
        words: impl FnOnce(&R) -> String,
    ) -> Result<Option<R>, EventError> {
        let error = match answer {
            Ok(answer) => {
                let wanted = words(&answer);
                if !wanted.is_empty() {
                    plugin.stats.adjusted(self.method);
                }
                self.note(plugin, "ok", wanted, begun);
                return Ok(Some(answer));
            }
            Err(error) if error.unimplemented() && !self.binding(plugin, self.event) => return Ok(None),
            Err(error) => error,
        };
        let (label, event) = (plugin.label(), self.method);
        let why =
            plugin.link.broken().map_or_else(|| error.to_string(), |broken| format!("{error}: {broken}"));
        if error.unimplemented() {
            let reason = format!("it asked to hear of {event} and does not know it: {why}");
            self.note(plugin, "failed", reason.clone(), begun);
            return Err(EventError::Failed { plugin: label, event, reason });
        }
        if error.answered() {
            self.note(plugin, "refused", why.clone(), begun);
            tracing::warn!(plugin = label, event, pod = %self.pod, error = why, "NRI plugin refused");
            return Err(EventError::Refused { plugin: label, event, message: why });
        }
        self.note(plugin, "failed", why.clone(), begun);
        let keep = matches!(error, CallError::Timeout(_)) && plugin.policy.keep_connected;
        if !keep && !plugin.link.is_closed() {
            tracing::warn!(
                plugin = label,
                event,
                pod = %self.pod,
                error = why,
                "NRI plugin dropped; it may connect anew"
            );
            plugin.link.close();
        }
        if self.needs(plugin) {
            return Err(EventError::Failed { plugin: label, event, reason: why });
        }
        Ok(None)
    }

    /// Shows validating plugins what became of the container; any of them may reject it.
    pub(super) async fn validate(
        &self,
        pod: PodSandbox,
        container: Container,
        merged: &Merged,
    ) -> Result<(), EventError> {
        let event = Event::ValidateContainerAdjustment;
        let validators: Vec<_> = self.under_way.plugins.iter().filter(|plugin| plugin.hears(event)).collect();
        if validators.is_empty() {
            return Ok(());
        }
        let instance =
            |plugin: &Arc<Plugin>| PluginInstance { name: plugin.name.clone(), index: plugin.index.clone() };
        let request = ValidateContainerAdjustmentRequest {
            pod: Some(pod),
            container: Some(container),
            adjust: Some(merged.adjust.clone()),
            update: merged.updates.clone(),
            owners: Some(merged.owners()),
            plugins: self.under_way.plugins.iter().map(instance).collect(),
        };
        let (begun, request) = (Instant::now(), &request);
        let verdicts = validators.iter().map(|plugin| async move {
            let method = "ValidateContainerAdjustment";
            let call = plugin.call::<_, ValidateContainerAdjustmentResponse>(method, request);
            (plugin, self.drawn(plugin, method, call).await)
        });
        for (plugin, verdict) in futures::future::join_all(verdicts).await {
            let reason = match verdict {
                Ok(verdict) if verdict.reject => verdict.reason,
                Ok(_) => continue,
                // One that subscribes to everything without validating has nothing against it.
                Err(error) if error.unimplemented() && !self.binding(plugin, event) => continue,
                Err(error) => error.to_string(),
            };
            self.note(plugin, "rejected", reason.clone(), begun);
            return Err(EventError::Rejected { plugin: plugin.label(), reason });
        }
        Ok(())
    }
}
