//! What plugins were told and how they answered, for people: the newest entries, and a stream of what happens next.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// How many entries are kept.
const KEPT: usize = 2048;
/// How far a reader may fall behind before it misses entries.
const BEHIND: usize = 1024;

/// One thing that happened between the runtime and a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    /// When, in microseconds since the epoch.
    pub at: u64,
    /// The plugin, as `NN-name`; a required one that never came has no number.
    pub plugin: String,
    /// What it was asked or told, or what became of it (`connected`, `disconnected`, `turned away`).
    pub event: String,
    /// The pod, as `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The container's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    /// `ok`, `refused`, `failed`, `waiting`, `absent`, `tolerated`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// What it wants changed, or what went wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// How long it took, in microseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub micros: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature serde asks for.
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A duration as entries carry it.
pub(super) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// The newest entries, and whoever reads along.
pub(super) struct Log {
    kept: Mutex<VecDeque<Entry>>,
    live: broadcast::Sender<Entry>,
}

impl Default for Log {
    fn default() -> Self {
        Self { kept: Mutex::default(), live: broadcast::channel(BEHIND).0 }
    }
}

impl Log {
    /// Notes an entry with the time it is now.
    pub(super) fn note(&self, mut entry: Entry) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        entry.at = micros(now);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        if self.live.receiver_count() > 0 {
            // Ignored: the reader has just gone.
            self.live.send(entry.clone()).ok();
        }
        kept.push_back(entry);
    }

    /// The kept entries, oldest first, and what comes after them.
    pub(super) fn follow(&self) -> (Vec<Entry>, broadcast::Receiver<Entry>) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.iter().cloned().collect(), self.live.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_goes_and_a_reader_gets_the_rest() {
        let log = Log::default();
        let entry = |n: usize| Entry { event: n.to_string(), ..Entry::default() };
        (0..=KEPT).for_each(|n| log.note(entry(n)));
        let (kept, mut live) = log.follow();
        assert_eq!((kept.len(), kept[0].event.as_str()), (KEPT, "1"));
        log.note(entry(7777));
        assert_eq!(live.try_recv().unwrap().event, "7777");
    }
}
