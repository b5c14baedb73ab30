//! Cgroups of pods under the kubelet's own root: one per pod, inside its quality-of-service tier.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use podwire_api::pod_resources::QosClass;
use podwire_linux::cgroup;

use crate::{paths, resources, spec};

/// How long a dead pod's processes get to leave its cgroup.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes and removes pods' cgroups.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    root: String,
}

impl Cgroups {
    pub(crate) fn new(root: &str) -> Cgroups {
        Cgroups { root: root.to_owned() }
    }

    /// The pod's cgroup exists and carries its limits.
    pub(crate) async fn ensure_pod(&self, pod: &Pod) -> Result<(), String> {
        let path = paths::pod_cgroup(&self.root, resources::qos(pod), spec::uid(pod));
        let limits = resources::pod_linux(pod);
        blocking(move || {
            let group = cgroup::group(&path).map_err(text)?;
            group.create().map_err(text)?;
            let resources = cgroup::Resources {
                cpu_shares: u64::try_from(limits.cpu_shares).ok(),
                cpu_quota: (limits.cpu_quota > 0).then_some(limits.cpu_quota),
                cpu_period: (limits.cpu_quota > 0)
                    .then(|| u64::try_from(limits.cpu_period).unwrap_or(100_000)),
                memory_limit: (limits.memory_limit_in_bytes > 0).then_some(limits.memory_limit_in_bytes),
                ..Default::default()
            };
            group.apply(&resources).map_err(text)
        })
        .await
    }

    /// The pod's cgroup is gone.
    pub(crate) async fn remove_pod(&self, pod: &Pod) -> Result<(), String> {
        let uid = spec::uid(pod).to_owned();
        let tiers = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
        let all: Vec<String> =
            tiers.into_iter().map(|qos| paths::pod_cgroup(&self.root, qos, &uid)).collect();
        blocking(move || {
            for path in all {
                let group = cgroup::group(&path).map_err(text)?;
                if group.exists() {
                    group.remove(PATIENCE).map_err(text)?;
                }
            }
            Ok(())
        })
        .await
    }
}

async fn blocking(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}

fn text(error: impl std::error::Error) -> String {
    podwire_trace::chain(&error)
}
