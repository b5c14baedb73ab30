//! The connection to the supervisor, and who waits for what it will say.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use podwire_container::Supervisor;
use tokio::sync::{oneshot, watch};

use crate::error::OpError;

/// How long an operation waits for a supervisor in place of one that died.
const SUCCESSION: Duration = Duration::from_secs(30);

/// The exit of a container.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) oom: bool,
    pub(crate) at: i64,
}

/// The supervisor that is current, exits that came early, and execs whose exit is waited for.
pub(crate) struct Supervision {
    current: watch::Sender<Supervisor>,
    early: Mutex<HashMap<String, Exit>>,
    execs: Mutex<HashMap<String, oneshot::Sender<i32>>>,
}

impl Supervision {
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        let current = watch::Sender::new(supervisor);
        Supervision { current, early: Mutex::default(), execs: Mutex::default() }
    }

    /// The connection that is current now.
    pub(crate) fn supervisor(&self) -> Supervisor {
        self.current.borrow().clone()
    }

    /// Waits for a successor if the supervisor has died.
    ///
    /// Cancel safe.
    pub(crate) async fn successor(&self) -> Result<(), OpError> {
        let mut current = self.current.subscribe();
        match tokio::time::timeout(SUCCESSION, current.wait_for(Supervisor::is_connected)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(OpError::Unavailable { what: "a supervisor" }),
        }
    }

    /// Another supervisor takes over; the exits of execs under the one before will never be told.
    pub(crate) fn succeed(&self, supervisor: Supervisor) {
        self.execs().clear();
        self.current.send_replace(supervisor);
    }

    /// A container exited whose start is not finished yet.
    pub(crate) fn exited_early(&self, container: &str, exit: Exit) {
        self.early().insert(container.to_owned(), exit);
    }

    /// Takes the exit that came before the container's start was finished, if there was one.
    pub(crate) fn take_early(&self, container: &str) -> Option<Exit> {
        self.early().remove(container)
    }

    /// Waits for an exec that is about to begin; the answer is its exit code.
    pub(crate) fn expect_exec(&self, exec: &str) -> oneshot::Receiver<i32> {
        let (sender, receiver) = oneshot::channel();
        self.execs().insert(exec.to_owned(), sender);
        receiver
    }

    /// Nobody waits for the exec any more.
    pub(crate) fn forget_exec(&self, exec: &str) {
        self.execs().remove(exec);
    }

    /// An exec ended.
    pub(crate) fn exec_exited(&self, exec: &str, code: i32) {
        let waiter = self.execs().remove(exec);
        if let Some(waiter) = waiter {
            // Ignored: the caller may have left.
            waiter.send(code).ok();
        }
    }

    fn early(&self) -> MutexGuard<'_, HashMap<String, Exit>> {
        self.early.lock().expect("no panic while holding early exits")
    }

    fn execs(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<i32>>> {
        self.execs.lock().expect("no panic while holding exec waiters")
    }
}
