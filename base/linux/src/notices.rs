//! The kernel's word that devices changed: links by rtnetlink, every device by its events.
//!
//! Only that something changed is told, not what: who cares looks again, so that a word that was lost costs nothing.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType,
    netlink::{self, SocketAddrNetlink},
};

use crate::rtnl::{Error, socket::set_option};

/// `RTMGRP_LINK`: links come, go and change.
const LINKS: u32 = 1;
/// `RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE`.
const ADDRESSES_AND_ROUTES: u32 = 0x10 | 0x40 | 0x100 | 0x400;
/// `NETLINK_LISTEN_ALL_NSID`.
const LISTEN_EVERYWHERE: i32 = 8;
/// What the kernel itself says about devices; the other group is udev's.
const DEVICES: u32 = 1;

/// A socket that becomes readable when something changed; reading never waits.
pub struct Notices(OwnedFd);

impl Notices {
    /// Changes of links in the network namespace of the calling thread.
    pub fn links() -> Result<Notices, Error> {
        Notices::open(None, LINKS)
    }

    /// Changes of links in the network namespace of the calling thread and in all that have a number there
    /// ([`Batch::number`](crate::rtnl::Batch::number)).
    pub fn links_everywhere() -> Result<Notices, Error> {
        let notices = Notices::links()?;
        let fail = |source| Error::Socket { attempt: "listen to all namespaces", source };
        set_option(&notices.0, LISTEN_EVERYWHERE).map_err(fail)?;
        Ok(notices)
    }

    /// Changes of links, addresses and routes in the network namespace of the calling thread.
    pub fn network() -> Result<Notices, Error> {
        Notices::open(None, LINKS | ADDRESSES_AND_ROUTES)
    }

    /// Devices that come and go, as the namespace of the calling thread is told of them.
    pub fn devices() -> Result<Notices, Error> {
        Notices::open(Some(netlink::KOBJECT_UEVENT), DEVICES)
    }

    fn open(protocol: Option<Protocol>, groups: u32) -> Result<Notices, Error> {
        let fail = |attempt| move |source| Error::Socket { attempt, source };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)
            .map_err(fail("open socket"))?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, groups)).map_err(fail("join group"))?;
        Ok(Notices(fd))
    }

    /// Whether anything was said since the last time. More than the kernel could keep is something, too.
    pub fn drain(&self) -> Result<bool, Error> {
        let (mut said, mut buffer) = (false, [0_u8; 4096]);
        loop {
            match rustix::net::recv(&self.0, &mut buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((0, _)) => return Ok(said),
                Ok(_) | Err(Errno::NOBUFS) => said = true,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(said),
                Err(source) => return Err(Error::Socket { attempt: "receive", source }),
            }
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Notices {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        netns,
        rtnl::{Batch, LinkRef, Socket},
    };

    #[test]
    fn links_that_come_and_go_are_told_in_their_namespace_only() {
        let (one, other) = (netns::create().unwrap(), netns::create().unwrap());
        let elsewhere = other.run(Notices::links).unwrap().unwrap();
        one.run(|| {
            let notices = Notices::links().unwrap();
            assert!(!notices.drain().unwrap());
            let change = |fill: &dyn Fn(&mut Batch)| {
                let mut batch = Batch::new();
                fill(&mut batch);
                Socket::route().unwrap().exchange(&mut batch).unwrap();
            };
            change(&|batch| batch.add_bridge(&crate::rtnl::Bridge { name: "b0", ..Default::default() }));
            assert!(notices.drain().unwrap());
            assert!(!notices.drain().unwrap());
            change(&|batch| batch.del_link(LinkRef::Name("b0")));
            assert!(notices.drain().unwrap());
        })
        .unwrap();
        assert!(!elsewhere.drain().unwrap());
    }
}
