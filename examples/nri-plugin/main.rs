//! An NRI plugin to copy: variables, folders and devices for containers by annotation, and CPU shares on request.
//!
//! It shows what most plugins need: staying connected and changing containers unprompted, refusing instead of being passed
//! over, hearing of the runtime's end, and being started by a runtime or by anybody else. Everything a pod says is checked
//! against what the node's owner allows; what is not allowed is refused with the reason, never left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use podwire_nri::adjust::{Adjustment, device_at};
use podwire_nri::api::{
    Container, ContainerUpdate, CreateContainerResponse, Event, FailurePolicy, LinuxContainerUpdate,
    LinuxCpu, LinuxResources, OptionalUInt64, PodSandbox,
};
use podwire_nri::pod;
use podwire_nri::stub::{Answer, DEFAULT_SOCKET, Handle, Happened, Late, Plugin, Refusal, Stub};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// `env.nri-plugin.example/NAME: value` sets a variable.
const ENV: &str = "env.nri-plugin.example/";
/// `device.nri-plugin.example/ANY: /dev/path` gives a device of the node.
const DEVICE: &str = "device.nri-plugin.example/";
/// `folder.nri-plugin.example/ANY: /path` shows a folder of the node, read-only.
const FOLDER: &str = "folder.nri-plugin.example/";

#[derive(Debug, Parser)]
struct Args {
    /// Where the runtime listens, unless it started this program itself.
    #[arg(long, default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// A device that pods may ask for; may be given more than once.
    #[arg(long)]
    allow_device: Vec<PathBuf>,
    /// A folder that pods may ask for; may be given more than once.
    #[arg(long)]
    allow_folder: Vec<PathBuf>,
    /// CPU shares for every running container when the program gets SIGHUP.
    #[arg(long, default_value_t = 256)]
    shares: u64,
}

struct Example {
    args: Args,
    /// Containers that run, and whose they are; [`Plugin::synchronize`] tells it anew at every connection.
    running: Mutex<BTreeMap<String, String>>,
}

impl Example {
    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the pod's annotations ask for, or why that is not given.
    fn wanted(&self, pod: &PodSandbox) -> Result<Adjustment, Refusal> {
        let mut adjustment = Adjustment::new();
        let allowed = |list: &[PathBuf], path: &str| list.iter().any(|one| one == Path::new(path));
        for (key, value) in &pod.annotations {
            if let Some(name) = key.strip_prefix(ENV) {
                adjustment = adjustment.env(name, value);
            } else if key.starts_with(DEVICE) {
                if !allowed(&self.args.allow_device, value) {
                    return Err(format!("{key}: {value:?} is not given to pods").into());
                }
                adjustment = adjustment.device(device_at(Path::new(value), value)?);
            } else if key.starts_with(FOLDER) {
                if !allowed(&self.args.allow_folder, value) {
                    return Err(format!("{key}: {value:?} is not shown to pods").into());
                }
                adjustment = adjustment.bind(value, value, &["ro", "nosuid", "nodev"]);
            }
        }
        Ok(adjustment)
    }

    /// Sets the CPU shares of all running containers, whatever connection there is.
    async fn share(&self, runtime: &Handle) {
        let shares =
            LinuxCpu { shares: Some(OptionalUInt64 { value: self.args.shares }), ..LinuxCpu::default() };
        let resources = LinuxResources { cpu: Some(shares), ..LinuxResources::default() };
        let linux = Some(LinuxContainerUpdate { resources: Some(resources) });
        let update = |id: &String| ContainerUpdate {
            container_id: id.clone(),
            linux: linux.clone(),
            ignore_failure: true,
        };
        let updates: Vec<_> = self.running().keys().map(update).collect();
        let count = updates.len();
        match runtime.update_containers(updates, Vec::new()).await {
            Ok(failed) => tracing::info!(count, failed = failed.len(), "shares set"),
            Err(error) => tracing::warn!(%error, "shares not set"),
        }
    }
}

impl Plugin for Example {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::RunPodSandbox,
            Event::CreateContainer,
            Event::PostStartContainer,
            Event::StopContainer,
            Event::RemoveContainer,
        ]
    }

    fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Answer<'_, Vec<ContainerUpdate>> {
        tracing::info!(pods = pods.len(), containers = containers.len(), "connected");
        // The truth: what it does not name is gone.
        *self.running() = containers.into_iter().map(|one| (one.id, one.pod_sandbox_id)).collect();
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn happened(&self, what: Happened) -> Answer<'_, ()> {
        Box::pin(async move {
            match (what.event, what.container) {
                (Event::RunPodSandbox, _) => {
                    let netns = pod::network_namespace(&what.pod);
                    let addresses = pod::addresses(&what.pod)?;
                    tracing::info!(pod = what.pod.name, ?netns, ?addresses, "the network is up");
                    // What cannot be given later is refused now, before anything is made.
                    self.wanted(&what.pod)?;
                }
                (Event::PostStartContainer, Some(container)) => {
                    self.running().insert(container.id, container.pod_sandbox_id);
                }
                (Event::RemoveContainer, Some(container)) => {
                    self.running().remove(&container.id);
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn create_container(&self, pod: PodSandbox, _: Container) -> Answer<'_, CreateContainerResponse> {
        Box::pin(async move { Ok(self.wanted(&pod)?.into()) })
    }

    fn stop_container(&self, _: PodSandbox, container: Container) -> Answer<'_, Vec<ContainerUpdate>> {
        self.running().remove(&container.id);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn shutdown(&self) -> Answer<'_, ()> {
        tracing::info!("the runtime ends; it may come back");
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = Args::parse();
    let stub = Stub {
        socket: args.socket.clone(),
        // No pod goes on without this plugin's word: a runtime that knows the policy fails the pod, on others the plugin
        // itself refuses before they lose patience.
        failure_policy: Some(FailurePolicy { fail_request: true, keep_connected: false }),
        late: Late::Refuse,
        ..Stub::new("nri-plugin", "50")
    }
    .with_environment(std::env::vars_os())?;
    let plugin = Arc::new(Example { args, running: Mutex::default() });
    let serving = stub.serve(plugin.clone());
    let (runtime, shutdown) = (serving.handle(), CancellationToken::new());
    let (mut hangup, mut terminate) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let running = serving.run(shutdown.clone());
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => return Ok(ended?),
            _ = hangup.recv() => plugin.share(&runtime).await,
            _ = terminate.recv() => shutdown.cancel(),
            _ = tokio::signal::ctrl_c() => shutdown.cancel(),
        }
    }
}
