//! Upstream's participants of a node, none of ours among them, with `podwire netplugin` as a process beside them.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Result;
use podwire_testkit::{
    eventually,
    node::{bin_dir, peer},
    stack::{BRIDGE, Ours, Settings, Stack},
    upstream::{API_PORT, Peer, TOKEN},
};

use super::{
    cases::{Pod, World},
    ground::Ground,
    http::Api,
};

/// What is found dead must still be told of, at the end only.
pub(crate) struct Upstream {
    stack: Stack,
    plugin: Peer,
    namespaces: Vec<String>,
}

impl Upstream {
    /// Starts them, the plugin last and before any pod.
    pub(crate) fn start(world: &World) -> Result<Upstream> {
        let stack = Stack::start_with(
            Ours::NONE,
            &Settings { subnets: world.subnets.clone(), nri: true, ..Settings::default() },
        )?;
        let mut command = Command::new(bin_dir().join("podwire"));
        command.args(["netplugin", "--node-name", "node1", "--table", "beside_upstream"]);
        command.args(["--pod-link", BRIDGE]);
        command.args(world.subnets.iter().flat_map(|subnet| ["--pod-cidr", subnet]));
        command.arg("--kubeconfig").arg(stack.kubeconfig()).arg("--nri-socket").arg(stack.nri_socket());
        command.arg("--trace-dir").arg(stack.path().join("trace"));
        let log = stack.path().join("plugin/netplugin.log");
        let plugin = Peer::start("netplugin", &stack.path().join("plugin"), &mut command)?.until(
            "is connected",
            || {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                if text.contains("ready table=") { Ok(()) } else { Err(text) }
            },
        )?;
        Ok(Upstream { stack, plugin, namespaces: world.namespaces.keys().cloned().collect() })
    }
}

impl Ground for Upstream {
    fn api(&self) -> Result<Api> {
        let authority = std::fs::read(self.stack.path().join("api/pki/apiserver.crt"))?;
        Api::with_token(([127, 0, 0, 1], API_PORT).into(), &authority, TOKEN)
    }

    fn prober(&self, pod: &Pod) -> Result<Command> {
        let mut command = Command::new(peer("kubectl")?);
        command
            .args(["exec", "-i", "-n", &pod.namespace, &pod.name, "--", "/pod-app", "probe"])
            .env("KUBECONFIG", self.stack.kubeconfig())
            .env("HOME", self.stack.path())
            .stderr(Stdio::null());
        Ok(command)
    }

    fn log_tail(&self) -> String {
        format!("{}\n{}", self.stack.log_tails(), self.plugin.log_tail())
    }

    fn down(self: Box<Self>) -> Result<()> {
        for namespace in &self.namespaces {
            let words = ["delete", "pods", "--all", "-n", namespace, "--wait=false"];
            self.stack.kubectl(&words)?;
        }
        eventually("the pods are gone", Duration::from_secs(120), || {
            let left = self.stack.kubectl(&["get", "pods", "-A", "-o", "name"]);
            match left.map_err(|error| format!("{error:#}"))? {
                left if left.is_empty() => Ok(()),
                left => Err(left),
            }
        })?;
        self.stack.assert_no_pod_residue()
    }
}
