//! nfnetlink sockets kept open between uses, by network namespace.
//!
//! Closing one waits until the kernel has freed whatever its last transactions deleted, some twenty milliseconds; a
//! long-lived process therefore keeps a few.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::{Error, Socket};
use crate::netns::{Identity, Netns};

/// More than work at once on two cores; the rest is closed.
const KEPT: usize = 16;

static IDLE: Mutex<Vec<(Identity, Socket)>> = Mutex::new(Vec::new());

/// A socket that goes back to the pool when dropped.
pub struct Pooled {
    socket: Option<Socket>,
    netns: Option<Identity>,
}

/// A socket in the calling thread's network namespace.
pub fn netfilter() -> Result<Pooled, Error> {
    let netns = Netns::current().and_then(|netns| netns.identity()).ok();
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = idle.iter().position(|(identity, _)| Some(*identity) == netns);
    if let Some(at) = at {
        let (_, socket) = idle.swap_remove(at);
        return Ok(Pooled { socket: Some(socket), netns });
    }
    drop(idle);
    Ok(Pooled { socket: Some(Socket::netfilter()?), netns })
}

impl Deref for Pooled {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        self.socket.as_ref().expect("held until dropped")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Socket {
        self.socket.as_mut().expect("held until dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let (Some(socket), Some(netns)) = (self.socket.take(), self.netns) else { return };
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push((netns, socket));
        }
    }
}
