//! Dials a port inside a pod.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use podwire_linux::netns::Netns;

/// How long a pod's port may take to answer.
const DIAL: Duration = Duration::from_secs(10);

/// Connects to `localhost:port` in the namespace at `netns` (the node's if `None`), IPv4 first. Blocks.
pub(crate) fn dial(netns: Option<&Path>, port: u16) -> io::Result<TcpStream> {
    let stream = match netns {
        Some(path) => {
            let netns = Netns::open(path).map_err(io::Error::other)?;
            netns.run(|| connect(port)).map_err(io::Error::other)??
        }
        None => connect(port)?,
    };
    stream.set_nonblocking(true)?;
    // Ignored: only a hint.
    stream.set_nodelay(true).ok();
    Ok(stream)
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&v4, DIAL).or_else(|first| {
        TcpStream::connect_timeout(&SocketAddr::from((Ipv6Addr::LOCALHOST, port)), DIAL).map_err(|_| first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_either_family_is_reached() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = std::net::TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(dial(None, port).is_ok(), "{address}");
        }
    }

    #[test]
    fn a_closed_port_says_refused() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert_eq!(dial(None, port).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
