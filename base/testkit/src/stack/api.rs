//! The API server of a stack on its store, each ours or upstream's.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Ours;
use crate::{
    parts,
    upstream::{self, ControlPlane, ETCD, NODE_ADDRESS, Peer, Serving},
};

/// A running API server, and the store if that is a process of its own; they end in this order.
pub(super) enum Api {
    Ours(parts::Api, Option<Peer>),
    Upstream(ControlPlane),
}

impl Api {
    /// Starts the store and the API server on it; our store is the embedded one of our API server.
    pub(super) fn start(ours: Ours, folder: &Path) -> Result<Api> {
        let store = match (ours.api, ours.store) {
            (true, true) => None,
            (false, true) => Some(parts::etcd(folder)?),
            (_, false) => Some(upstream::etcd(folder)?),
        };
        Ok(match (ours.api, store) {
            (true, None) => Api::Ours(parts::Api::start(folder)?, None),
            (true, Some(etcd)) => {
                Api::Ours(parts::Api::start_with(folder, &[&format!("--etcd-servers={ETCD}")])?, Some(etcd))
            }
            (false, store) => Api::Upstream(upstream::control_plane_on(folder, store)?),
        })
    }

    /// Starts the controllers, ours or kube-controller-manager.
    pub(super) fn controllers(&self, ours: bool, folder: &Path) -> Result<Peer> {
        let who = if ours { "controllers" } else { "admin" };
        let start = if ours { parts::controllers } else { upstream::controllers };
        start(folder, &self.kubeconfig(who), &self.authority())
    }

    /// Credentials of `who`; upstream's knows the administrator only.
    pub(super) fn kubeconfig(&self, who: &str) -> PathBuf {
        match self {
            Api::Ours(api, _) => api.kubeconfig(who),
            Api::Upstream(control) => control.kubeconfig.clone(),
        }
    }

    /// Who signed its certificate.
    fn authority(&self) -> PathBuf {
        match self {
            Api::Ours(api, _) => api.serving().client_ca,
            Api::Upstream(control) => control.serving.clone(),
        }
    }

    /// What the node's kubelet shows and trusts.
    pub(super) fn serving(&self) -> Result<Serving> {
        match self {
            Api::Ours(api, _) => Ok(api.serving()),
            Api::Upstream(control) => {
                let (cert, key) = control.authority.issue(
                    "node1",
                    "/O=system:nodes/CN=system:node:node1",
                    &format!("DNS:node1,IP:{NODE_ADDRESS}"),
                )?;
                Ok(Serving { cert, key, client_ca: control.authority.certificate() })
            }
        }
    }

    /// The ends of the logs.
    pub(super) fn log_tails(&self) -> String {
        let peers: Vec<&Peer> = match self {
            Api::Ours(api, store) => std::iter::once(&api.peer).chain(store).collect(),
            Api::Upstream(control) => control.peers.iter().collect(),
        };
        peers.into_iter().map(Peer::log_tail).collect::<Vec<_>>().join("\n")
    }
}
