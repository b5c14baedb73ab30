//! nfnetlink sockets of the process's own network namespace, kept open between uses.
//!
//! Closing one waits until the kernel has freed whatever its last transactions deleted, some twenty milliseconds; a
//! long-lived process therefore keeps a few. Sockets in the namespaces of pods are closed: an open one would keep the
//! namespace, and all that is in it, after the pod is gone.
//! `nft_rcv_nl_event` in <https://github.com/torvalds/linux/blob/v6.12/net/netfilter/nf_tables_api.c>.

use std::ops::{Deref, DerefMut};
use std::path::Path;
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

/// The calling thread's network namespace, if it is the process's own.
fn home() -> Option<Identity> {
    let of = |netns: Result<Netns, _>| netns.and_then(|netns| netns.identity()).ok();
    let here = of(Netns::current())?;
    // That of the thread which began the process.
    (of(Netns::open(Path::new("/proc/self/ns/net")))? == here).then_some(here)
}

/// A socket in the calling thread's network namespace.
pub fn netfilter() -> Result<Pooled, Error> {
    let netns = home();
    if netns.is_none() {
        return Ok(Pooled { socket: Some(Socket::netfilter()?), netns });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(identity: Identity) -> usize {
        IDLE.lock().unwrap().iter().filter(|(other, _)| *other == identity).count()
    }

    #[test]
    fn a_socket_in_a_pods_namespace_does_not_keep_it() {
        let home = Netns::current().unwrap().identity().unwrap();
        drop(netfilter().unwrap());
        assert!(kept(home) > 0, "at home one is kept for the next time");
        let elsewhere = std::thread::Builder::new().name("elsewhere".to_owned()).spawn(|| {
            crate::netns::unshare().unwrap();
            drop(netfilter().unwrap());
            Netns::current().unwrap().identity().unwrap()
        });
        assert_eq!(kept(elsewhere.unwrap().join().unwrap()), 0);
    }
}
