//! Cgroups of pods under the kubelet's own root: one per pod, inside its quality-of-service tier.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use podwire_api::pod_resources::QosClass;
use podwire_linux::cgroup;

use crate::{paths, resources, spec};

/// How long a dead pod's processes get to leave its cgroup.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a pod's cgroup is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    /// The kernel refused.
    #[error("{}", podwire_trace::chain(.0))]
    Refused(cgroup::Error),
    /// The work panicked.
    #[error(transparent)]
    Panicked(#[from] tokio::task::JoinError),
}

impl From<cgroup::Error> for CgroupError {
    fn from(error: cgroup::Error) -> CgroupError {
        CgroupError::Refused(error)
    }
}

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
    pub(crate) async fn ensure_pod(&self, pod: &Pod) -> Result<(), CgroupError> {
        let path = paths::pod_cgroup(&self.root, resources::qos(pod), spec::uid(pod));
        let limits = resources::pod_linux(pod);
        blocking(move || {
            let group = cgroup::group(&path)?;
            group.create()?;
            let resources = cgroup::Resources {
                cpu_shares: u64::try_from(limits.cpu_shares).ok(),
                cpu_quota: (limits.cpu_quota > 0).then_some(limits.cpu_quota),
                cpu_period: (limits.cpu_quota > 0)
                    .then(|| u64::try_from(limits.cpu_period).unwrap_or(100_000)),
                memory_limit: (limits.memory_limit_in_bytes > 0).then_some(limits.memory_limit_in_bytes),
                ..Default::default()
            };
            group.apply(&resources)
        })
        .await
    }

    /// All pods together have this share of the processors, and no more memory than this.
    pub(crate) async fn limit_all(&self, milli_cpu: i64, memory: i64) -> Result<(), CgroupError> {
        let path = paths::pods_cgroup(&self.root);
        let resources = cgroup::Resources {
            cpu_shares: u64::try_from(resources::shares(milli_cpu)).ok(),
            memory_limit: (memory > 0).then_some(memory),
            ..Default::default()
        };
        blocking(move || {
            let group = cgroup::group(&path)?;
            group.create()?;
            group.apply(&resources)
        })
        .await
    }

    /// The pod's cgroup is gone.
    pub(crate) async fn remove_pod(&self, pod: &Pod) -> Result<(), CgroupError> {
        let uid = spec::uid(pod).to_owned();
        let tiers = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
        let all: Vec<String> =
            tiers.into_iter().map(|qos| paths::pod_cgroup(&self.root, qos, &uid)).collect();
        blocking(move || {
            for path in all {
                let group = cgroup::group(&path)?;
                if group.exists() {
                    group.remove(PATIENCE)?;
                }
            }
            Ok(())
        })
        .await
    }
}

async fn blocking(
    work: impl FnOnce() -> Result<(), cgroup::Error> + Send + 'static,
) -> Result<(), CgroupError> {
    Ok(tokio::task::spawn_blocking(work).await??)
}
