//! The bounded ring of arrows, and the layer that fills it from `tracing` events.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};

use super::{Arrow, TARGET};

/// Arrows lie one behind the other in chunks of this size. Nearly all of them are never read, and a burst of pods makes
/// thousands: kept one by one they would be scattered over the heap and keep it from being given back.
const CHUNK: usize = 64 << 10;
/// So many chunks are kept: the arrows of the newest 150 pods or so, in 2 MB.
const CHUNKS: usize = 32;
/// The longest word of an arrow that is kept; a runtime's complaint can be of any length.
const LONGEST: usize = 4096;

/// The newest arrows of this process; cheap to clone.
#[derive(Clone, Default)]
pub struct Ring(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Ring {
    /// Adds an arrow; the oldest chunk goes when there are too many.
    pub fn push(&self, arrow: &Arrow) {
        let mut chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = length(arrow);
        if chunks.back().is_none_or(|chunk| chunk.len() + needed > CHUNK) {
            if chunks.len() == CHUNKS {
                chunks.pop_front();
            }
            chunks.push_back(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = chunks.back_mut() {
            write(arrow, chunk);
        }
    }

    /// Every arrow, oldest first.
    pub fn snapshot(&self) -> Vec<Arrow> {
        let chunks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_chunk = |chunk: &Vec<u8>| {
            let mut rest = chunk.as_slice();
            std::iter::from_fn(move || read(&mut rest)).collect::<Vec<_>>()
        };
        chunks.iter().flat_map(of_chunk).collect()
    }
}

/// How many words an arrow has.
const WORDS: usize = 11;

fn words(arrow: &Arrow) -> [&str; WORDS] {
    let Arrow { uid, pod, from, to, what, about, reply, error, caller, callee, side, ended: _, micros: _ } =
        arrow;
    [uid, pod, from, to, what, about, reply, error, caller, callee, side]
        .map(|word| &word[..word.floor_char_boundary(LONGEST)])
}

/// How many bytes [`write()`] adds.
fn length(arrow: &Arrow) -> usize {
    2 * size_of::<u64>() + words(arrow).map(|word| size_of::<u16>() + word.len()).iter().sum::<usize>()
}

fn write(arrow: &Arrow, out: &mut Vec<u8>) {
    out.extend(arrow.ended.to_le_bytes());
    out.extend(arrow.micros.to_le_bytes());
    for word in words(arrow) {
        out.extend(u16::try_from(word.len()).unwrap_or_default().to_le_bytes());
        out.extend(word.as_bytes());
    }
}

/// Takes the next arrow; none at the end.
fn read(rest: &mut &[u8]) -> Option<Arrow> {
    let ended = u64::from_le_bytes(rest.split_off(..8)?.try_into().ok()?);
    let micros = u64::from_le_bytes(rest.split_off(..8)?.try_into().ok()?);
    let mut word = || {
        let length = u16::from_le_bytes(rest.split_off(..2)?.try_into().ok()?);
        let word = rest.split_off(..usize::from(length))?;
        Some(String::from_utf8_lossy(word).into_owned())
    };
    Some(Arrow {
        uid: word()?,
        pod: word()?,
        from: word()?,
        to: word()?,
        what: word()?,
        about: word()?,
        reply: word()?,
        error: word()?,
        caller: word()?,
        callee: word()?,
        side: word()?,
        ended,
        micros,
    })
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
            self.0.push(&arrow);
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
    fn the_oldest_arrows_go_when_the_ring_is_full() {
        let ring = Ring::default();
        let arrow =
            |number: usize| Arrow { uid: number.to_string(), error: "e".repeat(1000), ..Arrow::default() };
        let many = 2 * CHUNKS * CHUNK / length(&arrow(0));
        for number in 0..=many {
            ring.push(&arrow(number));
        }
        let arrows = ring.snapshot();
        let kept: Vec<usize> = arrows.iter().map(|arrow| arrow.uid.parse().unwrap()).collect();
        let first = kept[0];
        assert!(first > many / 3, "{first} of {many}");
        assert_eq!(kept, (first..=many).collect::<Vec<_>>(), "none is missing behind the oldest");
        let held: usize = ring.0.lock().unwrap().iter().map(Vec::capacity).sum();
        assert_eq!(held, CHUNKS * CHUNK);
    }

    #[test]
    fn an_arrow_comes_out_as_it_went_in_and_words_without_end_are_cut() {
        let word = |letter: char| String::from(letter).repeat(3);
        let mut arrow = Arrow {
            uid: word('a'),
            pod: word('b'),
            from: word('c'),
            to: word('d'),
            what: word('e'),
            about: word('f'),
            reply: String::new(),
            error: word('ä'),
            caller: word('i'),
            callee: word('j'),
            side: word('k'),
            ended: 12,
            micros: 13,
        };
        let ring = Ring::default();
        ring.push(&arrow);
        assert_eq!(ring.snapshot(), [arrow.clone()]);
        // A boundary that lies within a letter.
        arrow.error = format!("x{}", "ä".repeat(LONGEST));
        ring.push(&arrow);
        let kept = ring.snapshot().pop().unwrap();
        assert_eq!(kept.error.len(), LONGEST - 1);
        assert_eq!(kept.side, "kkk");
    }
}
