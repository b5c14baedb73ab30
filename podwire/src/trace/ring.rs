//! The bounded ring of arrows, and the layer that fills it from `tracing` events.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};

use super::{Arrow, TARGET};

/// How many arrows a process keeps: some hundred pods' worth, about 4 MB at most.
const CAPACITY: usize = 16_384;

/// The newest arrows of this process; cheap to clone.
#[derive(Clone, Default)]
pub struct Ring(Arc<Mutex<VecDeque<Arrow>>>);

impl Ring {
    /// Adds an arrow; the oldest one goes when the ring is full.
    pub fn push(&self, arrow: Arrow) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.len() == CAPACITY {
            ring.pop_front();
        }
        ring.push_back(arrow);
    }

    /// Every arrow, oldest first.
    pub fn snapshot(&self) -> Vec<Arrow> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Takes arrows out of the stream of events; everything else passes by.
pub struct ArrowLayer(pub Ring);

impl<S: tracing::Subscriber> Layer<S> for ArrowLayer {
    #[allow(clippy::disallowed_methods)] // The one clock of the trace; participants report durations.
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut arrow = Arrow::default();
        event.record(&mut Fields(&mut arrow));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        // What is told late says how long ago it was.
        arrow.ended = now.saturating_sub(arrow.ended);
        if !arrow.uid.is_empty() {
            self.0.push(arrow);
        }
    }
}

struct Fields<'a>(&'a mut Arrow);

impl Fields<'_> {
    fn set(&mut self, name: &str, value: String) {
        let slot = match name {
            "uid" => &mut self.0.uid,
            "pod" => &mut self.0.pod,
            "from" => &mut self.0.from,
            "to" => &mut self.0.to,
            "what" => &mut self.0.what,
            "about" => &mut self.0.about,
            "reply" => &mut self.0.reply,
            "error" => &mut self.0.error,
            "side" => &mut self.0.side,
            "caller" => &mut self.0.caller,
            "callee" => &mut self.0.callee,
            _ => return,
        };
        *slot = value;
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "micros" => self.0.micros = value,
            "ago" => self.0.ended = value,
            name => self.set(name, value.to_string()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.set(field.name(), format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn an_event_with_the_target_becomes_an_arrow_and_others_do_not() {
        let ring = Ring::default();
        let subscriber = tracing_subscriber::registry().with(ArrowLayer(ring.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "arrow", uid = %"u1", from = "Kubelet", to = "ContainerRuntime", what = "RunPodSandbox", micros = 42_u64);
            tracing::debug!(uid = "u2", "not an arrow");
        });
        let arrows = ring.snapshot();
        assert_eq!(arrows.len(), 1);
        assert_eq!((arrows[0].uid.as_str(), arrows[0].micros), ("u1", 42));
    }

    #[test]
    fn a_late_report_is_put_where_it_happened() {
        let ring = Ring::default();
        let subscriber = tracing_subscriber::registry().with(ArrowLayer(ring.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "arrow", uid = "u", from = "a", to = "b", what = "now");
            tracing::debug!(target: "arrow", uid = "u", from = "a", to = "b", what = "then", ago = 60_000_000_u64);
        });
        let arrows = ring.snapshot();
        assert!(arrows[1].ended + 50_000_000 < arrows[0].ended, "{arrows:?}");
    }

    #[test]
    fn the_oldest_arrow_goes_when_the_ring_is_full() {
        let ring = Ring::default();
        for number in 0..=CAPACITY {
            ring.push(Arrow { uid: number.to_string(), ..Arrow::default() });
        }
        let arrows = ring.snapshot();
        assert_eq!((arrows.len(), arrows[0].uid.as_str()), (CAPACITY, "1"));
    }
}
