//! Operations that callers may join: one run per key at a time, everybody gets its result.
//!
//! The operation runs in the participant's task tracker, so it outlives a caller whose deadline passed; a retry
//! finds it still running and waits for the same result instead of starting a second one.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio_util::task::TaskTracker;

type Waiter<V> = Shared<BoxFuture<'static, Option<V>>>;

/// The running operations by key.
pub(crate) struct Joins<K, V: Clone> {
    tasks: TaskTracker,
    running: Arc<Mutex<HashMap<K, Waiter<V>>>>,
}

/// Takes the operation out of the table when it ended, however it ended.
struct Leave<K: Eq + Hash, V: Clone> {
    running: Arc<Mutex<HashMap<K, Waiter<V>>>>,
    key: K,
}

impl<K: Eq + Hash, V: Clone> Drop for Leave<K, V> {
    fn drop(&mut self) {
        if let Ok(mut running) = self.running.lock() {
            running.remove(&self.key);
        }
    }
}

impl<K: Eq + Hash + Clone + Send + 'static, V: Clone + Send + Sync + 'static> Joins<K, V> {
    pub(crate) fn new(tasks: &TaskTracker) -> Self {
        Joins { tasks: tasks.clone(), running: Arc::new(Mutex::new(HashMap::new())) }
    }

    /// Joins the operation running under `key`, or starts `operation`. `None` if it panicked.
    ///
    /// Cancel safe: a dropped caller does not end the operation.
    pub(crate) async fn run<F>(&self, key: K, operation: impl FnOnce() -> F) -> Option<V>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let waiter = {
            let mut running = self.running.lock().expect("no panic while holding the join table");
            match running.get(&key) {
                Some(waiter) => waiter.clone(),
                None => {
                    let leave = Leave { running: self.running.clone(), key: key.clone() };
                    let work = operation();
                    let handle = self.tasks.spawn(async move {
                        let result = work.await;
                        drop(leave);
                        result
                    });
                    let waiter = async move { handle.await.ok() }.boxed().shared();
                    running.insert(key, waiter.clone());
                    waiter
                }
            }
        };
        waiter.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };
    use tokio::sync::Notify;

    #[tokio::test]
    async fn a_second_caller_joins_and_a_dropped_first_does_not_stop_it() {
        let joins = Arc::new(Joins::<&str, u32>::new(&TaskTracker::new()));
        let runs = Arc::new(AtomicU32::new(0));
        let gate = Arc::new(Notify::new());
        let start = |joins: &Arc<Joins<&'static str, u32>>| {
            let (joins, runs, gate) = (joins.clone(), runs.clone(), gate.clone());
            async move {
                joins
                    .run("pod", || async move {
                        runs.fetch_add(1, Ordering::SeqCst);
                        gate.notified().await;
                        7
                    })
                    .await
            }
        };
        let first = tokio::time::timeout(Duration::from_millis(20), start(&joins)).await;
        assert!(first.is_err(), "the first caller gave up");
        let (second, ()) = tokio::join!(start(&joins), async {
            tokio::task::yield_now().await;
            gate.notify_one();
        });
        assert_eq!(second, Some(7));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        gate.notify_one();
        assert_eq!(start(&joins).await, Some(7), "a finished operation is not remembered");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }
}
