//! rtnetlink: links, addresses, routes, rules, neighbours, traffic control.
//!
//! Requests are put into a [`Batch`] and sent in one system call; the kernel answers each of them. A batch is not a
//! transaction: what comes after a refused request still runs, so callers undo what was done. Look-ups go by index or
//! name; dumps are filtered in the kernel and repeated when it says they were interrupted.

pub mod addr;
pub mod link;
pub mod neigh;
pub mod nsid;
pub mod programs;
pub mod route;
pub mod rule;
pub mod socket;
pub mod tc;
pub mod wire;

pub use addr::{Address, NewAddress};
pub use link::{
    Aggregation, Bridge, Link, LinkChange, LinkRef, Mac, Macvlan, MacvlanMode, Peer, PortChange, Upper,
    UpperKind, Veth, VlanRange,
};
pub use neigh::Neighbour;
pub use programs::Xdp;
pub use route::{Kept, Route, Scope};
pub use rule::Rule;
pub use socket::{Error, Outcome, Refusal, Reply, Socket};
pub use tc::Tbf;
pub use wire::{Attrs, Batch, Message};

/// Tries, in a namespace of its own, what pod networks need of the kernel; the error names what it lacks.
pub fn probe() -> Result<(), ProbeError> {
    let refused = |lacking: &'static str| move |source| ProbeError::Lacks { lacking, source };
    let fresh = crate::netns::create()?;
    fresh.run(|| {
        let mut socket = Socket::route().map_err(refused("rtnetlink"))?;
        let mut batch = Batch::new();
        batch.add_bridge(&Bridge { name: "probe0", ..Bridge::default() });
        let replies = socket.exchange(&mut batch).map_err(refused("bridges (CONFIG_BRIDGE)"))?;
        let bridge = socket.made(&replies, "probe0").map_err(refused("rtnetlink"))?.map(|link| link.index);
        let mut batch = Batch::new();
        batch.add_veth(&Veth {
            name: "probe1",
            up: true,
            master: bridge,
            mtu: None,
            mac: None,
            peer: Peer { name: "probe2", netns: None, mac: None },
        });
        socket.exchange(&mut batch).map_err(refused("veth pairs (CONFIG_VETH)"))?;
        Ok(())
    })?
}

/// What the kernel lacks for pod networks.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No namespace could be made.
    #[error("the kernel lacks network namespaces, or we the right to make them")]
    Namespace(#[from] crate::netns::Error),
    /// A kind of link could not be made.
    #[error("the kernel lacks {lacking}")]
    Lacks {
        /// What.
        lacking: &'static str,
        /// The kernel's reason.
        #[source]
        source: Error,
    },
}
