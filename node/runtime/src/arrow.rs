//! The runtime's part of a pod's trace: one event per arrow of the mission's sequence diagrams.

use std::time::Instant;

use crate::model::Sandbox;

/// A call under way, told when it is over.
pub(crate) struct Arrow {
    from: &'static str,
    to: &'static str,
    begun: Instant,
}

impl Arrow {
    /// A CRI call as the server sees it.
    pub(crate) fn cri() -> Self {
        Arrow { from: "Kubelet", to: "ContainerRuntime", begun: Instant::now() }
    }

    /// A call of the pod's network plugins.
    pub(crate) fn cni() -> Self {
        Arrow { from: "ContainerRuntime", to: "CNIPlugin", begun: Instant::now() }
    }

    /// A call of the plugins beside the runtime.
    pub(crate) fn nri() -> Self {
        Arrow { from: "ContainerRuntime", to: "NetworkPlugin", begun: Instant::now() }
    }

    /// Something the runtime did by itself.
    pub(crate) fn own() -> Self {
        Arrow { from: "ContainerRuntime", to: "ContainerRuntime", begun: Instant::now() }
    }

    /// Something the network plugins say they did.
    pub(crate) fn plugins_own() -> Self {
        Arrow { from: "CNIPlugin", to: "CNIPlugin", begun: Instant::now() }
    }

    /// Tells it; `reply` is what came back.
    pub(crate) fn over(self, sandbox: &Sandbox, what: &str, reply: &str) {
        self.tell(sandbox, &sandbox.id, what, reply, "");
    }

    /// Tells a call about one of the sandbox's containers.
    pub(crate) fn over_container(self, sandbox: &Sandbox, id: &str, what: &str, reply: &str) {
        self.tell(sandbox, id, what, reply, "");
    }

    /// Tells a call that failed.
    pub(crate) fn failed(self, sandbox: &Sandbox, what: &str, error: &str) {
        self.tell(sandbox, "", what, "", error);
    }

    fn tell(self, sandbox: &Sandbox, about: &str, what: &str, reply: &str, error: &str) {
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let key = &sandbox.key;
        let caller = if self.from == "Kubelet" { sandbox.caller.get() } else { None };
        tracing::debug!(
            target: "arrow",
            uid = %key.uid,
            pod = %format_args!("{}/{}", key.namespace, key.name),
            from = self.from,
            to = self.to,
            what,
            about,
            reply,
            error,
            micros,
            side = "server",
            caller = caller.map_or("", String::as_str),
        );
    }
}

/// A caller that is not ours, by its gRPC library: ours says `tonic`, everything written in Go says `grpc-go`.
pub(crate) fn foreign_caller(metadata: &tonic::metadata::MetadataMap) -> Option<String> {
    let agent = metadata.get("user-agent")?.to_str().ok()?;
    (!agent.contains("tonic")).then(|| format!("by {agent}"))
}
