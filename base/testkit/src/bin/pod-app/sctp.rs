//! SCTP in the one-to-one style, which the standard library has not: `listen` serves it, `probe` tries it.
//!
//! A kernel without SCTP says so when the socket is made; nothing here decides what that means.

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt},
};

/// Connections that may wait to be taken.
const BACKLOG: i32 = 128;

fn socket(family: AddressFamily, flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::SCTP))?)
}

/// Listens on a port of both families.
pub(crate) fn listen(port: u16) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::INET6, SocketFlags::empty())?;
    rustix::net::bind(&socket, &SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port)))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Takes connections, for ever, and keeps the last of them: they are the other end's to abort.
pub(crate) fn accept_all(listener: &OwnedFd) {
    /// More than are tried at once.
    const KEPT: usize = 256;
    let mut kept = VecDeque::new();
    loop {
        // Ignored: a connection that ended before it was taken.
        let Ok(taken) = rustix::net::accept(listener) else { continue };
        // Ignored: one that is not aborted is shut down.
        aborted_when_closed(&taken).ok();
        kept.push_back(taken);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// Aborted rather than shut down: nobody remembers it. An association that is shut down with somebody who is gone keeps its
/// network namespace for minutes.
fn aborted_when_closed(socket: &OwnedFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Whether an association comes about in this time: `1` it does, `0` nobody answers, `r` it is refused.
pub(crate) fn attempt(to: SocketAddr, limit: Duration) -> io::Result<char> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketFlags::NONBLOCK)?;
    aborted_when_closed(&socket)?;
    // From the one address that leads there: of a socket that has all of them the other end would learn every one.
    rustix::net::bind(&socket, &SocketAddr::new(own_address(to)?.ip(), 0))?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let wait = Timespec::try_from(limit).map_err(io::Error::other)?;
            if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&wait))? == 0 {
                return Ok('0');
            }
            match sockopt::socket_error(&socket)? {
                Ok(()) => {}
                Err(Errno::TIMEDOUT) => return Ok('0'),
                Err(_) => return Ok('r'),
            }
        }
        Err(_) => return Ok('r'),
    }
    Ok('1')
}

fn own_address(to: SocketAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(to)?;
    socket.local_addr()
}
