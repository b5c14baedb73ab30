//! What every operation works with: the stores, the supervisor, the journal, the tables, the running tasks.
//!
//! Tasks: every operation runs in `tasks` and outlives its caller; one task (`exits`) takes the supervisor's events and
//! only updates states, never calling the supervisor itself.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use podwire_cni_lib::Networks;
use podwire_image::ImageStore;
use tokio_util::task::TaskTracker;

use podwire_wire::ids::{ContainerId, SandboxId};

use crate::{
    config::Settings,
    container::{apparmor::Confinement, oci_runtimes::OciRuntimes, spec::Host},
    error::{OpError, Shared},
    joins::Joins,
    model::{Registry, SandboxKey},
    plugins::Plugins,
    recovery::journal::Journal,
    service::events::Events,
    supervision::Supervision,
};

/// The parts that operations share; every operation holds it in an `Arc`.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) host: Host,
    pub(crate) handlers: OciRuntimes,
    /// Whether pods can have user namespaces here, once somebody has asked.
    pub(crate) user_namespaces: OnceLock<bool>,
    pub(crate) images: ImageStore,
    pub(crate) networks: Arc<Networks>,
    pub(crate) journal: Journal,
    pub(crate) registry: Arc<Registry>,
    pub(crate) events: Events,
    pub(crate) plugins: Plugins,
    pub(crate) apparmor: Confinement,
    pub(crate) tasks: TaskTracker,
    pub(crate) runs: Joins<SandboxKey, Shared<SandboxId>>,
    pub(crate) creates: Joins<(SandboxId, String, u32), Shared<ContainerId>>,
    pub(crate) removes: Joins<SandboxId, Shared<()>>,
    pub(crate) container_removes: Joins<ContainerId, Shared<()>>,
    pub(crate) stops: Joins<SandboxId, Shared<()>>,
    pub(crate) supervision: Supervision,
}

impl Context {
    /// Whether the kernel makes user namespaces and maps the ids of mounts where containers lie. Tried once.
    pub(crate) fn has_user_namespaces(&self) -> bool {
        self.host.user_namespaces
            && *self.user_namespaces.get_or_init(|| {
                let tried = podwire_linux::namespaces::try_mapped_mount(&self.settings.data_dir);
                if let Err(error) = &tried {
                    let error: &dyn std::error::Error = error;
                    tracing::warn!(error, "pods cannot have user namespaces of their own here");
                }
                tried.is_ok()
            })
    }

    /// The folder of one sandbox's pins and files.
    pub(crate) fn sandbox_dir(&self, id: &str) -> PathBuf {
        self.settings.run_dir.join("sandboxes").join(id)
    }

    /// The folder of one container's own files.
    pub(crate) fn container_dir(&self, id: &str) -> PathBuf {
        self.settings.data_dir.join("containers").join(id)
    }

    /// Makes the folder of one container's own files, which only root enters: images put setuid files and device nodes
    /// into volumes, and bundles tell the environment.
    pub(crate) fn make_container_dir(&self, id: &str) -> io::Result<()> {
        private_folder(&self.container_dir(id))
    }

    /// The cgroup a pod's containers go below.
    pub(crate) fn cgroup_parent(&self, config: &podwire_wire::cri::PodSandboxConfig) -> String {
        let requested = config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()).unwrap_or_default();
        let parent = if requested.is_empty() { self.settings.cgroup_root.as_str() } else { requested };
        format!("/{}", parent.trim_matches('/'))
    }

    /// Runs blocking work off the async threads.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Context) -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, OpError> {
        let ctx = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&ctx)).await;
        done.map_err(OpError::failed("finish blocking work"))?
    }
}

/// Makes `folder` and closes it, and the one it lies in, to everybody but root.
fn private_folder(folder: &Path) -> io::Result<()> {
    const ROOT_ONLY: u32 = 0o700;
    fs::DirBuilder::new().recursive(true).mode(ROOT_ONLY).create(folder)?;
    // Versions before made both as the umask let them.
    for made in [Some(folder), folder.parent()].into_iter().flatten() {
        if fs::metadata(made)?.mode() & 0o7777 != ROOT_ONLY {
            fs::set_permissions(made, fs::Permissions::from_mode(ROOT_ONLY))?;
        }
    }
    Ok(())
}

/// The result of a joined operation, or what to say when it panicked.
pub(crate) fn joined<T>(result: Option<Shared<T>>) -> Result<T, tonic::Status> {
    match result {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(tonic::Status::from(error.as_ref())),
        None => Err(tonic::Status::internal("the operation panicked")),
    }
}
