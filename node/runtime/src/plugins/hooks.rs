//! Where plugins may look at, change or veto what the runtime does.
//!
//! The points are NRI's. The runtime calls them in the order NRI promises: RunPodSandbox after the network is up and
//! before the sandbox is ready (who must be there for it is asked before anything is made); CreateContainer on the finished spec; the stop and remove points on every way out.

use futures::future::BoxFuture;
use oci_spec::runtime::{LinuxResources, Spec};
use podwire_image::Image;
use podwire_wire::cri;

use crate::model::{Container, Sandbox};

/// Why a plugin refused.
pub(crate) type HookError = Box<dyn std::error::Error + Send + Sync>;

/// A container that is planned and not yet known to anybody.
#[derive(Clone, Copy)]
pub(crate) struct NewContainer<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) id: &'a str,
    pub(crate) config: &'a cri::ContainerConfig,
    pub(crate) image: &'a Image,
}

/// The points. Every default does nothing.
pub(crate) trait Hooks: Send + Sync + 'static {
    /// Whether anybody listens.
    fn present(&self) -> bool {
        false
    }

    /// A pod is to be made and nothing of it is there yet; an error says who is missing.
    fn admit_pod_sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = sandbox;
        ok()
    }

    /// Waits a while for listeners that were there before the runtime was restarted.
    fn wait_for_listeners(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The pod's network is up; an error takes the sandbox down again.
    fn run_pod_sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = sandbox;
        ok()
    }

    /// All containers of the pod are dead, its network still there; errors are only reported.
    fn stop_pod_sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = sandbox;
        ok()
    }

    /// The pod is about to be forgotten; errors are only reported.
    fn remove_pod_sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = sandbox;
        ok()
    }

    /// The pod's resources changed; errors are only reported.
    fn update_pod_sandbox<'a>(&'a self, sandbox: &'a Sandbox) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = sandbox;
        ok()
    }

    /// The container is planned; plugins may change its spec or veto it.
    fn create_container<'a>(
        &'a self,
        new: NewContainer<'a>,
        spec: &'a mut Spec,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = (new, spec);
        ok()
    }

    /// The creation of a container that plugins were asked about failed: it ends for them too.
    fn undo_create_container<'a>(
        &'a self,
        new: NewContainer<'a>,
        spec: &'a Spec,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = (new, spec);
        ok()
    }

    /// The container is known; errors are only reported.
    fn post_create_container<'a>(&'a self, container: &'a Container) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = container;
        ok()
    }

    /// The container is set up in process `pid` and about to run; an error keeps it from running.
    fn start_container<'a>(
        &'a self,
        container: &'a Container,
        pid: i32,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = (container, pid);
        ok()
    }

    /// The container runs; errors are only reported.
    fn post_start_container<'a>(&'a self, container: &'a Container) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = container;
        ok()
    }

    /// The container's limits are about to change; plugins may change them or veto.
    fn update_container<'a>(
        &'a self,
        container: &'a Container,
        limits: &'a mut LinuxResources,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = (container, limits);
        ok()
    }

    /// The container's limits have changed; errors are only reported.
    fn post_update_container<'a>(&'a self, container: &'a Container) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = container;
        ok()
    }

    /// The container has ended; errors are only reported.
    fn stop_container<'a>(&'a self, container: &'a Container) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = container;
        ok()
    }

    /// The container is about to be forgotten; errors are only reported.
    fn remove_container<'a>(&'a self, container: &'a Container) -> BoxFuture<'a, Result<(), HookError>> {
        let _ = container;
        ok()
    }
}

fn ok<'a>() -> BoxFuture<'a, Result<(), HookError>> {
    Box::pin(std::future::ready(Ok(())))
}
