//! Compaction that nobody asks for: what is older than some time, or than some number of revisions.

use std::collections::VecDeque;
use std::time::Duration;

use podwire_wire::etcd::CompactionRequest;
use tokio_util::sync::CancellationToken;

use super::Etcd;
use crate::Revision;
use crate::engine::read;
use crate::engine::refused::Refused;
use crate::engine::writer::Work;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoCompaction {
    /// What is younger than this.
    Period(Duration),
    /// So many revisions.
    Revisions(u64),
}

/// How often a period is looked at in the course of it.
const LOOKS: u32 = 10;
/// How often numbers of revisions are looked at.
const EVERY: Duration = Duration::from_secs(300);

impl Etcd {
    /// Compacts as configured until `shutdown`.
    pub(super) async fn compact_by_itself(&self, shutdown: CancellationToken) {
        let Some(kept) = self.config().auto_compaction else { return };
        let every = match kept {
            AutoCompaction::Period(period) => (period / LOOKS).max(Duration::from_millis(100)),
            AutoCompaction::Revisions(_) => EVERY,
        };
        let mut seen: VecDeque<Revision> = VecDeque::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let newest = self.engine().read().revision();
            let before = match kept {
                AutoCompaction::Revisions(count) => newest.checked_sub(count),
                AutoCompaction::Period(_) => {
                    seen.push_back(newest);
                    if seen.len() > LOOKS as usize { seen.pop_front() } else { None }
                }
            };
            let Some(before) = before.filter(|before| *before > 0) else { continue };
            let request = CompactionRequest { revision: read::signed(before), physical: false };
            match self.engine().submit(Work::Compact(request)).await {
                Ok(_) => tracing::info!(revision = before, "compacted"),
                // Nothing was written since the last time.
                Err(Refused::Compacted) => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "not compacted; will retry")
                }
            }
        }
    }
}
