//! What an arrow says: the calls of each protocol and the things participants do by themselves, in the diagrams' words.

use std::fmt;

/// The CRI calls that are about one pod and change it, or tell its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cri {
    /// Makes a sandbox.
    RunPodSandbox,
    /// Tells a sandbox's addresses.
    PodSandboxStatus,
    /// Ends what a sandbox holds.
    StopPodSandbox,
    /// Forgets a sandbox.
    RemovePodSandbox,
    /// Tells what became of the pod's resources.
    UpdatePodSandboxResources,
    /// Plans a container.
    CreateContainer,
    /// Runs a container.
    StartContainer,
    /// Ends a container.
    StopContainer,
    /// Forgets a container.
    RemoveContainer,
    /// Changes a container's limits.
    UpdateContainerResources,
    /// Fetches an image.
    PullImage,
}

impl Cri {
    /// The method's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Cri::RunPodSandbox => "RunPodSandbox",
            Cri::PodSandboxStatus => "PodSandboxStatus",
            Cri::StopPodSandbox => "StopPodSandbox",
            Cri::RemovePodSandbox => "RemovePodSandbox",
            Cri::UpdatePodSandboxResources => "UpdatePodSandboxResources",
            Cri::CreateContainer => "CreateContainer",
            Cri::StartContainer => "StartContainer",
            Cri::StopContainer => "StopContainer",
            Cri::RemoveContainer => "RemoveContainer",
            Cri::UpdateContainerResources => "UpdateContainerResources",
            Cri::PullImage => "PullImage",
        }
    }
}

/// Something that a participant did by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// The API server knows who asks and that he may.
    Authenticated {
        /// Who.
        user: &'a str,
    },
    /// The API server took the object.
    Validated,
    /// The scheduler found a node.
    NodeChosen {
        /// How many nodes there are.
        nodes: usize,
        /// How many of them were found that fit; only between several is scored.
        fit: usize,
        /// The one.
        node: &'a str,
    },
    /// The kubelet has room for the pod.
    Admitted,
    /// The runtime made the pod's network namespace.
    NamespaceMade,
    /// The runtime read which network the pod gets.
    ConfigurationRead {
        /// The network and its plugins in order.
        network: &'a str,
    },
    /// The plugins made this, by their result.
    NetworkMade {
        /// Addresses with their gateways, then interfaces.
        account: &'a str,
    },
    /// The network plugin loaded a pod's rules.
    PoliciesInPlace {
        /// Which policies, and how much it took.
        account: &'a str,
    },
    /// The runtime started a container's process.
    ProcessStarted {
        /// Its number.
        pid: i32,
    },
}

impl Note<'_> {
    /// What else is known of it.
    pub(crate) fn detail(self) -> String {
        match self {
            Note::ProcessStarted { pid } => format!("pid {pid}"),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Authenticated { user } => write!(f, "authenticated {user}, authorized"),
            Note::Validated => f.write_str("admitted, defaulted, validated"),
            Note::NodeChosen { nodes, fit, node } => {
                let plural = if *nodes == 1 { "" } else { "s" };
                match fit {
                    1 => write!(f, "filtered {nodes} node{plural}, 1 fits, chose {node}"),
                    _ => write!(f, "filtered {nodes} node{plural}, scored {fit} that fit, chose {node}"),
                }
            }
            Note::Admitted => f.write_str("admitted"),
            Note::NamespaceMade => f.write_str("network namespace made"),
            Note::ConfigurationRead { network } => write!(f, "configuration read: {network}"),
            Note::NetworkMade { account } | Note::PoliciesInPlace { account } => f.write_str(account),
            Note::ProcessStarted { .. } => f.write_str("container process started"),
        }
    }
}

/// What was asked or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A CRI call.
    Cri {
        /// The method.
        method: Cri,
        /// The container or image it names; empty for a sandbox.
        of: &'a str,
    },
    /// A verb of CNI at one plugin of the chain.
    Cni {
        /// `ADD`, `DEL`, `CHECK`.
        verb: &'a str,
        /// The interface in the pod.
        interface: &'a str,
        /// The plugin's type.
        plugin: &'a str,
    },
    /// A verb of CNI that a plugin passes on to the one for addresses.
    Ipam {
        /// `ADD`, `DEL`, `CHECK`.
        verb: &'a str,
        /// The plugin's type.
        plugin: &'a str,
    },
    /// An NRI event.
    Nri {
        /// The event.
        event: &'a str,
        /// The container it is about; empty for a pod.
        container: &'a str,
    },
    /// A call of a device plugin.
    DevicePlugin {
        /// The method.
        method: &'a str,
        /// The container it is for; empty when it is for none.
        container: &'a str,
    },
    /// A call of a driver of dynamic resources.
    Dra {
        /// The method.
        method: &'a str,
        /// The names of the claims, with commas.
        claims: &'a str,
    },
    /// A request to the API server.
    Http {
        /// The method.
        method: &'a str,
        /// The path.
        path: &'a str,
    },
    /// An event of a watch that was opened long before: an answer without a question of its own.
    Watch {
        /// `ADDED`, `MODIFIED`, `DELETED`.
        event: &'a str,
    },
    /// A transaction of the store on a pod.
    Store {
        /// `put` or `delete`.
        verb: &'a str,
    },
    /// Something done by oneself.
    Note(Note<'a>),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Cri { method, of: "" } => f.write_str(method.as_str()),
            What::Cri { method, of } => write!(f, "{} {of}", method.as_str()),
            What::Cni { verb, interface, plugin } => write!(f, "{verb} {interface} {plugin}"),
            What::Ipam { verb, plugin } => write!(f, "{verb} {plugin}"),
            What::Nri { event, container: "" } => f.write_str(event),
            What::Nri { event, container } => write!(f, "{event} {container}"),
            What::DevicePlugin { method, container: "" } => f.write_str(method),
            What::DevicePlugin { method, container } => write!(f, "{method} {container}"),
            What::Dra { method, claims } => write!(f, "{method} {claims}"),
            What::Http { method, path } => write!(f, "{method} {path}"),
            What::Watch { event } => write!(f, "watch: {event}"),
            What::Store { verb } => write!(f, "{verb} pod"),
            What::Note(note) => note.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_speaks_its_own_words() {
        let whats = [
            (What::Cri { method: Cri::RunPodSandbox, of: "" }, "RunPodSandbox"),
            (What::Cri { method: Cri::CreateContainer, of: "main" }, "CreateContainer main"),
            (What::Cni { verb: "ADD", interface: "eth0", plugin: "bridge" }, "ADD eth0 bridge"),
            (What::Ipam { verb: "ADD", plugin: "host-local" }, "ADD host-local"),
            (What::Nri { event: "RunPodSandbox", container: "" }, "RunPodSandbox"),
            (What::Nri { event: "StartContainer", container: "main" }, "StartContainer main"),
            (What::DevicePlugin { method: "ListAndWatch", container: "" }, "ListAndWatch"),
            (What::DevicePlugin { method: "Allocate", container: "main" }, "Allocate main"),
            (What::Dra { method: "NodePrepareResources", claims: "net,gpu" }, "NodePrepareResources net,gpu"),
            (What::Http { method: "POST", path: "/api/v1/pods" }, "POST /api/v1/pods"),
            (What::Watch { event: "ADDED" }, "watch: ADDED"),
            (What::Store { verb: "put" }, "put pod"),
            (
                What::Note(Note::NodeChosen { nodes: 1, fit: 1, node: "a" }),
                "filtered 1 node, 1 fits, chose a",
            ),
            (
                What::Note(Note::NodeChosen { nodes: 3, fit: 2, node: "a" }),
                "filtered 3 nodes, scored 2 that fit, chose a",
            ),
        ];
        for (what, words) in whats {
            assert_eq!(what.to_string(), words);
        }
    }
}
