//! Devices that are made for a pod and end with it: macvlan, ipvlan, vlan, dummy, and a veth into a bridge.
//!
//! Each is born in the pod's namespace; only the end of a veth that belongs to the bridge stays on the node.

use std::os::fd::AsFd;

use podwire_linux::{
    netns::Netns,
    rtnl::{self, Batch, LinkRef, Macvlan, MacvlanMode, Peer, Socket, Upper, UpperKind, Veth},
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attach::{AttachError, Attached, Inside, leave_nothing, settle_inside};

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildKind {
    /// Shares its parent's wire under a hardware address of its own.
    Macvlan,
    /// Shares its parent's wire and hardware address.
    Ipvlan,
    /// One VLAN of its parent's wire.
    Vlan {
        /// The tag.
        id: u16,
    },
    /// Goes nowhere.
    Dummy,
    /// A wire into a bridge.
    Veth,
}

impl ChildKind {
    /// As rtnetlink names it.
    pub fn name(self) -> &'static str {
        match self {
            ChildKind::Macvlan => "macvlan",
            ChildKind::Ipvlan => "ipvlan",
            ChildKind::Vlan { .. } => "vlan",
            ChildKind::Dummy => "dummy",
            ChildKind::Veth => "veth",
        }
    }
}

/// A device to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// What.
    pub kind: ChildKind,
    /// On top of which device of the node; none for one that goes nowhere.
    pub parent: Option<String>,
    /// What the end on the node is called, if it has one.
    pub node_end: Option<String>,
}

/// Why a device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// There is no such parent.
    #[error("there is no network device {name:?} on the node to make one on")]
    NoParent {
        /// Its name.
        name: String,
    },
    /// It could not be made or set up.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl From<rtnl::Error> for ChildError {
    fn from(error: rtnl::Error) -> ChildError {
        ChildError::Attach(error.into())
    }
}

/// Makes a device in the pod and sets it up; the calling thread is in the node's namespace. Nothing is left of one that could
/// not be set up whole.
pub fn make(pod: &Netns, child: &Child, inside: &Inside) -> Result<Attached, ChildError> {
    let taken =
        pod.run(|| Socket::route()?.link(LinkRef::Name(&inside.name))).map_err(AttachError::from)??;
    if taken.is_some() {
        return Err(AttachError::Taken { name: inside.name.clone() }.into());
    }
    create(pod, child, inside)?;
    let settled = pod.run(|| settle_inside(inside)).map_err(AttachError::from)?;
    settled.map_err(|first| match unmake(Some(pod), child, inside, None) {
        Ok(()) => first.into(),
        Err(undo) => AttachError::Undo { first: Box::new(first), undo: Box::new(undo) }.into(),
    })
}

fn create(pod: &Netns, child: &Child, inside: &Inside) -> Result<(), ChildError> {
    let mut here = Socket::route()?;
    let parent = match &child.parent {
        Some(name) => {
            let link = here.link(LinkRef::Name(name))?;
            Some(link.ok_or_else(|| ChildError::NoParent { name: name.clone() })?.index)
        }
        None => None,
    };
    let (name, netns) = (inside.name.as_str(), Some(pod.as_fd()));
    let mut batch = Batch::new();
    let upper = |kind| Upper { name, kind, parent, mtu: None, mac: None, netns };
    match child.kind {
        ChildKind::Macvlan => batch.add_macvlan(&Macvlan {
            name,
            parent: parent.unwrap_or(0),
            mode: MacvlanMode::Bridge,
            mtu: None,
            mac: None,
            broadcast_queue: None,
            netns,
        }),
        ChildKind::Ipvlan => batch.add_upper(&upper(UpperKind::Ipvlan { mode: 0 })),
        ChildKind::Vlan { id } => batch.add_upper(&upper(UpperKind::Vlan { id })),
        ChildKind::Dummy => batch.add_upper(&upper(UpperKind::Dummy)),
        ChildKind::Veth => batch.add_veth(&Veth {
            name: child.node_end.as_deref().unwrap_or_default(),
            up: true,
            master: parent,
            mtu: inside.mtu,
            mac: None,
            peer: Peer { name, netns, mac: None },
        }),
    }
    here.exchange(&mut batch).map(drop).map_err(|error| match error.errno() {
        Some(Errno::OPNOTSUPP) => AttachError::Lacks { kind: child.kind.name() }.into(),
        _ => error.into(),
    })
}

/// Ends a device that was made for a pod. One that is gone already is what was wanted.
pub fn unmake(
    pod: Option<&Netns>,
    child: &Child,
    inside: &Inside,
    index: Option<u32>,
) -> Result<(), AttachError> {
    if let Some(name) = &child.node_end {
        remove(LinkRef::Name(name))?;
    }
    let Some(pod) = pod else { return Ok(()) };
    let removed = pod.run(|| match index {
        // The number is its own as long as it is there.
        Some(index) => remove(LinkRef::Index(index)),
        None => match Socket::route()?.link(LinkRef::Name(&inside.name))? {
            Some(link) if link.kind.as_deref() == Some(child.kind.name()) => {
                remove(LinkRef::Index(link.index))
            }
            _ => Ok(()),
        },
    });
    removed??;
    leave_nothing(Some(pod), inside)
}

fn remove(link: LinkRef<'_>) -> Result<(), rtnl::Error> {
    let mut batch = Batch::new();
    batch.del_link(link);
    match Socket::route()?.exchange(&mut batch) {
        Err(error) if !error.is_absent() => Err(error),
        _ => Ok(()),
    }
}
