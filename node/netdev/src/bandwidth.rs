//! How fast a device that was made for a pod may send and receive: a token bucket for each direction, in the pod.
//!
//! What it sends passes its own bucket; what it receives is sent through a link of kind ifb beside it, which has the other. Both
//! go with it. A pod that may administer its network can change them.

use std::time::Duration;

use podwire_linux::rtnl::{self, Batch, LinkRef, Socket, Tbf};
use rustix::io::Errno;

use crate::attach::AttachError;

/// How long packets may wait for their turn.
const LATENCY: Duration = Duration::from_millis(25);
/// A bucket holds what comes in this part of a second, and at least some of the largest packets.
const PART: u64 = 100;
const LEAST: u64 = 128 * 1024;

fn bucket(bits: u64) -> Tbf {
    let bytes = (bits / 8).max(1);
    Tbf::new(bytes, u32::try_from((bytes / PART).max(LEAST)).unwrap_or(u32::MAX), LATENCY)
}

/// The link that the packets that come in for a device pass: a name for each, and the same each time.
fn beside(device: &str) -> String {
    // FNV-1a.
    let hash =
        device.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("ifb{hash:08x}")
}

/// Limits a device of the socket's namespace to so many bits per second in each direction.
pub(crate) fn limit(socket: &mut Socket, device: &str, bits: u64) -> Result<(), AttachError> {
    let link = |socket: &mut Socket, name: &str| {
        let found = socket.link(LinkRef::Name(name))?;
        found.ok_or_else(|| AttachError::Absent { name: name.to_owned() })
    };
    let (own, name) = (link(socket, device)?, beside(device));
    let mut batch = Batch::new();
    batch.add_plain("ifb", &name, Some(own.mtu), None);
    socket.exchange(&mut batch).map_err(|error| match error.errno() {
        Some(Errno::OPNOTSUPP) => AttachError::Lacks { kind: "ifb" },
        Some(Errno::EXIST) => AttachError::Taken { name: name.clone() },
        _ => error.into(),
    })?;
    let ifb = link(socket, &name)?.index;
    let mut batch = Batch::new();
    batch.add_tbf(own.index, bucket(bits));
    batch.add_tbf(ifb, bucket(bits));
    batch.add_ingress(own.index);
    batch.add_redirect(own.index, ifb);
    socket.exchange(&mut batch)?;
    Ok(())
}

/// Takes away what was made beside a device that has gone.
pub(crate) fn leave(socket: &mut Socket, device: &str) -> Result<(), rtnl::Error> {
    let found = socket.link(LinkRef::Name(&beside(device)))?;
    let Some(link) = found.filter(|link| link.kind.as_deref() == Some("ifb")) else { return Ok(()) };
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Index(link.index));
    match socket.exchange(&mut batch) {
        Err(error) if !error.is_absent() => Err(error),
        _ => Ok(()),
    }
}
