//! One namespace with quotas: who passes, who counts, whose turn it is, and who is charged together.

use std::sync::{Arc, Mutex, PoisonError};

use podwire_api::quota::{Quota, Wish};
use podwire_api::resources::Resources;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, Semaphore, SemaphorePermit, oneshot};

use super::{ATTEMPTS, give_back, read};
use crate::context::Context;
use crate::status::{ApiError, Result};

/// What each quota grants, or why one does not.
type Verdict = std::result::Result<Vec<(String, Resources)>, String>;

/// A namespace.
pub(super) struct Space {
    gate: Arc<RwLock<()>>,
    turns: Semaphore,
    waiting: Mutex<Vec<Waiter>>,
}

struct Waiter {
    wish: Wish,
    answer: oneshot::Sender<Verdict>,
}

impl Default for Space {
    fn default() -> Self {
        Self { gate: Arc::default(), turns: Semaphore::new(1), waiting: Mutex::default() }
    }
}

impl Space {
    /// Passes the gate; it stays open until the result is dropped.
    pub(super) async fn pass(&self) -> OwnedRwLockReadGuard<()> {
        self.gate.clone().read_owned().await
    }

    /// Closes the gate once everybody is through, until the result is dropped.
    pub(super) async fn close(&self) -> OwnedRwLockWriteGuard<()> {
        self.gate.clone().write_owned().await
    }

    /// Waits for its turn to write quotas.
    pub(super) async fn turn(&self) -> SemaphorePermit<'_> {
        self.turns.acquire().await.expect("nobody closes the turns")
    }

    /// Charges a wish together with all that wait. Not cancel safe: what was charged when it is broken off is not known.
    pub(super) async fn charge(&self, context: &Context, namespace: &str, wish: Wish) -> Result<Verdict> {
        loop {
            let (answer, mut verdict) = oneshot::channel();
            self.waiting().push(Waiter { wish: wish.clone(), answer });
            let turn = self.turn().await;
            // Whoever had the turn before may have done it already.
            if let Ok(verdict) = verdict.try_recv() {
                return Ok(verdict);
            }
            let batch: Vec<Waiter> = std::mem::take(&mut *self.waiting());
            charge_all(context, namespace, batch).await?;
            drop(turn);
            if let Ok(verdict) = verdict.try_recv() {
                return Ok(verdict);
            }
            // The one who had taken this wish in went away in the middle of it.
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waiter>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a wish takes of each quota; all of them are left alone if one refuses.
pub(super) fn grant<'a>(quotas: impl Iterator<Item = &'a mut Quota>, wish: &Wish) -> Verdict {
    let mut granted = Vec::new();
    for quota in quotas {
        let share = quota.grant(wish)?;
        if !share.is_empty() {
            granted.push((quota, share));
        }
    }
    let take = |(quota, share): (&mut Quota, Resources)| {
        quota.take(&share);
        (quota.name.clone(), share)
    };
    Ok(granted.into_iter().map(take).collect())
}

/// Decides on all wishes in their order, writes each quota once, and tells everybody.
async fn charge_all(context: &Context, namespace: &str, batch: Vec<Waiter>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let mut quotas = read(context, namespace).await?;
        let before: Vec<Resources> = quotas.iter().map(|stored| stored.quota.used.clone()).collect();
        let verdicts: Vec<Verdict> = batch
            .iter()
            .map(|waiter| grant(quotas.iter_mut().map(|stored| &mut stored.quota), &waiter.wish))
            .collect();
        let mut written = Vec::new();
        let mut lost = false;
        let changed = quotas.iter().zip(&before).filter(|(stored, before)| stored.quota.used != **before);
        for (stored, _) in changed {
            if !stored.write(context).await? {
                lost = true;
                break;
            }
            written.push(stored.quota.name.as_str());
        }
        if !lost {
            for (waiter, verdict) in batch.into_iter().zip(verdicts) {
                // Ignored: who went away meanwhile has put its namespace in doubt.
                waiter.answer.send(verdict).ok();
            }
            return Ok(());
        }
        // Somebody changed a quota: what was charged to those before it is undone, and all is decided again.
        for (name, share) in
            verdicts.iter().flatten().flatten().filter(|(name, _)| written.contains(&name.as_str()))
        {
            give_back(context, namespace, &[(name.clone(), share.clone())]).await?;
        }
    }
    Err(ApiError::internal("resource quota evaluation timed out"))
}
