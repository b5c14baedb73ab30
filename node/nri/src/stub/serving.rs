//! A plugin that stays connected, and the handle by which the rest of its program reaches the runtime.
//!
//! Spawns nothing of its own: [`Serving::run`] owns the connection, whose tasks end with it.

use std::sync::Arc;
use std::time::Duration;

use podwire_wire::nri::{ContainerEviction, ContainerUpdate};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Connection, Error, Plugin, Stub, answer, ask_to_update};
use crate::link::{CallError, Link};

/// The first pause before connecting anew; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A plugin that is to be kept connected.
pub struct Serving {
    stub: Stub,
    plugin: Arc<dyn Plugin>,
    live: watch::Sender<Option<Link>>,
}

impl Serving {
    pub(super) fn new(stub: Stub, plugin: Arc<dyn Plugin>) -> Self {
        Self { stub, plugin, live: watch::channel(None).0 }
    }

    /// What reaches the runtime from elsewhere in the program, whichever connection there is by then.
    pub fn handle(&self) -> Handle {
        Handle { live: self.live.subscribe(), timeout: self.stub.timeout }
    }

    /// Stays connected until `shutdown`: connects anew whenever the runtime went away.
    ///
    /// A plugin that the runtime started cannot connect anew; it ends with [`Error::Ended`], and whoever started it
    /// starts it again.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let mut pause = PAUSE;
        loop {
            match self.connect(&shutdown).await {
                Some(Ok((connection, synchronized))) => {
                    pause = PAUSE;
                    self.attend(&connection, synchronized, &shutdown).await;
                    self.live.send_replace(None);
                    connection.close().await;
                    if shutdown.is_cancelled() {
                        return Ok(());
                    }
                    tracing::warn!(plugin = self.stub.name, "the runtime went away");
                    self.may_return()?;
                }
                Some(Err(error)) if self.stub.descriptor.is_some() => return Err(error),
                Some(Err(error)) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "not connected; will retry");
                }
                None => return Ok(()),
            }
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// `None` if it is told to end first.
    async fn connect(
        &self,
        shutdown: &CancellationToken,
    ) -> Option<Result<(Connection, answer::Synchronized), Error>> {
        let connecting = async {
            let stream = self.stub.dial().await?;
            self.stub.speak(stream, self.plugin.clone()).await
        };
        tokio::select! {
            () = shutdown.cancelled() => None,
            connected = connecting => Some(connected),
        }
    }

    /// Lets the handle have the connection once the plugin knows what exists; returns when either side ends.
    async fn attend(
        &self,
        connection: &Connection,
        mut synchronized: answer::Synchronized,
        shutdown: &CancellationToken,
    ) {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = connection.ended() => return,
            told = synchronized.wait_for(|told| *told) => if told.is_err() { return },
        }
        self.live.send_replace(Some(connection.link.clone()));
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = connection.ended() => {}
        }
    }

    fn may_return(&self) -> Result<(), Error> {
        if self.stub.descriptor.is_none() {
            return Ok(());
        }
        Err(Error::Ended { name: self.stub.name.clone(), index: self.stub.index.clone() })
    }
}

/// Reaches the runtime over whichever connection there is; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    live: watch::Receiver<Option<Link>>,
    timeout: Duration,
}

impl Handle {
    /// Whether the plugin is connected and has been told what exists.
    pub fn is_connected(&self) -> bool {
        self.live.borrow().as_ref().is_some_and(|link| !link.is_closed())
    }

    /// Waits until the plugin is connected and has been told what exists; `false` if it has ended for good.
    ///
    /// Cancel safe.
    pub async fn connected(&mut self) -> bool {
        self.live.wait_for(|live| live.as_ref().is_some_and(|link| !link.is_closed())).await.is_ok()
    }

    /// Asks the runtime to change containers, unprompted; returns those it could not change.
    ///
    /// [`CallError::Closed`] means that there is no connection now: wait for the next one, in which `synchronize` tells
    /// anew what exists. Never call it from within a hook: upstream's runtimes answer only when the hook has returned.
    pub async fn update_containers(
        &self,
        update: Vec<ContainerUpdate>,
        evict: Vec<ContainerEviction>,
    ) -> Result<Vec<ContainerUpdate>, CallError> {
        let link = self.live.borrow().clone().ok_or(CallError::Closed)?;
        ask_to_update(&link, self.timeout, update, evict).await
    }
}
