//! What the pods of the table stand on: a node of ours, or upstream's own participants with `podwire netplugin` beside them.

use std::process::Command;

use anyhow::Result;
use podwire_testkit::{Node, node::bin_dir};

use super::{
    cases::{Pod, World},
    http::Api,
};

/// A node on which pods can be made.
pub(crate) trait Ground {
    /// The way to its API server.
    fn api(&self) -> Result<Api>;
    /// `/pod-app probe` in a pod, with its input and output.
    fn prober(&self, pod: &Pod) -> Result<Command>;
    /// The ends of logs, for failure messages.
    fn log_tail(&self) -> String;
    /// Ends it, and fails if anything is left.
    fn down(self: Box<Self>) -> Result<()>;
}

/// A node of ours.
#[allow(dead_code, reason = "the table on upstream's participants has another ground")]
pub(crate) fn ours(world: &World) -> Result<Box<dyn Ground>> {
    let subnets = world.subnets.iter().flat_map(|subnet| ["--pod-cidr", subnet]);
    Ok(Box::new(Node::up(&subnets.collect::<Vec<_>>())?))
}

impl Ground for Node {
    fn api(&self) -> Result<Api> {
        Api::of(&self.kubeconfig())
    }

    fn prober(&self, pod: &Pod) -> Result<Command> {
        let mut command = Command::new(bin_dir().join("podwire"));
        command
            .args(["exec", "-i", "-n", &pod.namespace, &pod.name, "--", "/pod-app", "probe"])
            .env("PODWIRE_DATA_DIR", self.names()?.data_dir)
            .env_remove("KUBECONFIG");
        Ok(command)
    }

    fn log_tail(&self) -> String {
        Node::log_tail(self)
    }

    fn down(self: Box<Self>) -> Result<()> {
        Node::down(*self)
    }
}
