//! Has drivers undo what they did for claims that nobody uses any more.

use std::{io, sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::time::Instant;

use super::{
    Busy, Claims,
    book::{Todo, Turn},
    driver::AwayError,
    prepare::{batches, complete, names, on_the_wire},
    traced::drawn,
};
use crate::{runtime::CallError, spec::PodRef};

/// Between attempts: at first, doubling up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How often is looked for what pods that are no more have left, besides when a driver comes.
const RELOOK: Duration = Duration::from_secs(60);

/// Why a claim is not unprepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnprepareError {
    /// The driver is not there.
    #[error(transparent)]
    Away(#[from] AwayError),
    /// The driver failed or did not answer.
    #[error("NodeUnprepareResources: {error}")]
    Call { error: CallError },
    /// The driver's answer cannot be used.
    #[error("{why}")]
    Answer { why: String },
    /// It could not be written down.
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(io::Error),
    /// Somebody else has drivers at work on it.
    #[error("another pod's drivers are at work on the same ResourceClaim")]
    Busy,
}

impl Claims {
    /// Nothing of the pod runs any more: its claims are unprepared unless others use them. Waits for drivers that do not, as
    /// long as it may; then the claims stay in the book, and with them their devices. `failed` hears of every failure. Says
    /// whether the claims are undone. Not cancel safe, but it may be dropped: the next kubelet goes on.
    pub(crate) async fn unprepare(self: &Arc<Self>, pod: &PodRef, failed: impl Fn(&UnprepareError)) -> bool {
        let until = self.settings.unprepare_timeout.map(|timeout| Instant::now() + timeout);
        let (mut came, mut freed) = (self.came.subscribe(), self.freed.subscribe());
        let mut wait = RETRY.0;
        self.state().stalled.remove(&pod.uid);
        loop {
            came.mark_unchanged();
            freed.mark_unchanged();
            let error = match self.leave(pod).await {
                Ok(()) => return true,
                Err(error) => error,
            };
            failed(&error);
            if until.is_some_and(|until| until <= Instant::now()) {
                self.state().book.give_up(&pod.uid);
                tracing::error!(%pod, %error, "the pod ends though its claims are not unprepared; they are kept back");
                return false;
            }
            let elsewhere = async {
                match error {
                    UnprepareError::Busy => drop(freed.changed().await),
                    _ => std::future::pending().await,
                }
            };
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Ignored: the senders are our own, so they do not go.
                _ = came.changed() => wait = RETRY.0,
                () = elsewhere => {}
                () = over => {}
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(RETRY.1),
            }
        }
    }

    async fn leave(self: &Arc<Self>, pod: &PodRef) -> Result<(), UnprepareError> {
        let turn = self.state().book.leave(&pod.uid);
        match turn {
            Turn::Wait => Err(UnprepareError::Busy),
            Turn::Go { changed: false, todo } if todo.is_empty() => Ok(()),
            Turn::Go { todo, .. } => self.undo(Some(pod), todo).await,
        }
    }

    /// Has all drivers undo these claims, and takes those out of the book that they have undone.
    async fn undo(self: &Arc<Self>, pod: Option<&PodRef>, todo: Vec<Todo>) -> Result<(), UnprepareError> {
        let busy = Busy { claims: self, keys: todo.iter().map(|one| one.key.clone()).collect() };
        let batches = batches(&todo);
        let asked = join_all(batches.iter().map(|(driver, todo)| self.ask_undo(pod, driver, todo))).await;
        {
            let mut state = self.state();
            busy.keys.iter().for_each(|key| state.book.settle(key));
        }
        let saved = self.save().await.map_err(UnprepareError::Checkpoint);
        asked.into_iter().find_map(Result::err).map_or(saved, Err)
    }

    async fn ask_undo(
        &self,
        pod: Option<&PodRef>,
        driver: &str,
        todo: &[Todo],
    ) -> Result<(), UnprepareError> {
        const CALL: &str = "NodeUnprepareResources";
        let asked = self.driver(driver)?;
        let call = asked.unprepare(on_the_wire(todo), self.settings.deadline);
        let answer = drawn(pod, driver, CALL, &names(todo), call, |_| String::new()).await;
        let answer = answer.map_err(|error| UnprepareError::Call { error })?;
        let all = complete(CALL, todo, &answer.claims, |claim| &claim.error)
            .map_err(|why| UnprepareError::Answer { why })?;
        let mut state = self.state();
        for (one, _) in all {
            state.book.unprepared_by(&one.key, driver);
        }
        Ok(())
    }

    /// Undoes what pods that are no more have left, whenever that may work.
    pub(super) async fn reconcile(self: &Arc<Self>) {
        let (mut came, mut settled) = (self.came.subscribe(), self.settled.subscribe());
        // Ignored: the senders are our own, so they do not go.
        drop(settled.wait_for(|settled| *settled).await);
        loop {
            came.mark_unchanged();
            let (changed, todo) = {
                let mut state = self.state();
                state.book.forsaken(|pod| self.inboxes.get(pod).is_some())
            };
            if changed || !todo.is_empty() {
                let names = names(&todo);
                match self.undo(None, todo).await {
                    Ok(()) => {
                        tracing::info!(claims = names, "claims of pods that are no more are unprepared")
                    }
                    Err(error) => {
                        tracing::warn!(claims = names, %error, "claims of pods that are no more are kept; will try again");
                    }
                }
            }
            tokio::select! {
                _ = came.changed() => {}
                () = tokio::time::sleep(RELOOK) => {}
            }
        }
    }
}
