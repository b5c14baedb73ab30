//! A router of its own in a pod (VRF) that a device joins: made with the first device, gone with the last.
//!
//! <https://docs.kernel.org/networking/vrf.html>

use podwire_linux::{
    rtnl::{self, Batch, LinkChange, LinkRef, Socket, Upper, UpperKind},
    sysctl,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attach::AttachError;

/// Written on those that were made here: one that somebody else made in the pod stays.
const OWN: &str = "made with its first network device";

/// What lets programs of the pod that listen everywhere be reached by devices of a router.
const ACCEPT: [&str; 2] = ["net/ipv4/tcp_l3mdev_accept", "net/ipv4/udp_l3mdev_accept"];

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrf {
    /// Its name.
    pub name: String,
    /// Its table of routes.
    pub table: u32,
}

impl Vrf {
    /// The router's number in the socket's namespace, which it is made in if it is not there.
    pub(crate) fn join(&self, socket: &mut Socket) -> Result<u32, AttachError> {
        if let Some(link) = socket.link(LinkRef::Name(&self.name))? {
            return match link.vrf_table {
                Some(table) if table == self.table => Ok(link.index),
                Some(table) => Err(AttachError::OtherTable { name: self.name.clone(), table }),
                None => Err(AttachError::Taken { name: self.name.clone() }),
            };
        }
        let kind = UpperKind::Vrf { table: self.table };
        let upper = Upper { name: &self.name, kind, parent: None, mtu: None, mac: None, netns: None };
        let mut batch = Batch::new();
        batch.add_upper(&upper);
        socket.exchange(&mut batch).map_err(|error| match error.errno() {
            Some(Errno::OPNOTSUPP) => AttachError::Lacks { kind: kind.name() },
            _ => error.into(),
        })?;
        let mut batch = Batch::new();
        let up = LinkChange { up: Some(true), alias: Some(OWN), ..LinkChange::default() };
        batch.set_link(LinkRef::Name(&self.name), &up);
        socket.exchange(&mut batch)?;
        for key in ACCEPT {
            sysctl::write(key, "1")?;
        }
        let made = socket.link(LinkRef::Name(&self.name))?;
        made.map(|link| link.index).ok_or_else(|| AttachError::Absent { name: self.name.clone() })
    }

    /// Ends the router of the socket's namespace if it is one of ours and no device is left in it.
    pub(crate) fn leave(&self, socket: &mut Socket) -> Result<(), rtnl::Error> {
        let Some(link) = socket.link(LinkRef::Name(&self.name))? else { return Ok(()) };
        if link.vrf_table != Some(self.table) || link.alias.as_deref() != Some(OWN) {
            return Ok(());
        }
        if socket.links()?.iter().any(|port| port.master == Some(link.index)) {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.del_link(LinkRef::Index(link.index));
        match socket.exchange(&mut batch) {
            Err(error) if !error.is_absent() => Err(error),
            _ => Ok(()),
        }
    }
}
