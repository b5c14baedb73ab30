//! `podwire down`: ends the node's daemon and takes away everything it made on this machine.
//!
//! Objects, images and certificates stay unless `--purge`: the next `up` starts the same pods anew.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podwire_linux::{cgroup, mount};
use podwire_wire::cri::{
    ListPodSandboxRequest, RemovePodSandboxRequest, StopPodSandboxRequest,
    runtime_service_client::RuntimeServiceClient,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cli::DownArgs,
    instance::Instance,
    netdriver,
    node_parts::{self, NetworkFolders},
    say,
    up::lock,
};

/// How long the daemon may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Stops the node and cleans up.
pub async fn down(args: DownArgs) -> Result<()> {
    let instance = Instance::at(&args.data.data_dir)?;
    if !instance.data_dir.exists() && !instance.run_dir().exists() {
        say("nothing to do: there is no node here");
        return Ok(());
    }
    stop_daemon(&instance)?;
    let _lock = lock(&instance)?;
    remove_pods(&instance).await?;
    // Their namespaces are pinned as long as a device is in them.
    netdriver::give_back(&instance)?;
    remove_names(&instance)?;
    if args.purge {
        fs::remove_dir_all(&instance.data_dir).with_context(|| format!("remove {:?}", instance.data_dir))?;
    }
    say("down");
    Ok(())
}

/// Asks the daemon to end; kills it when it does not.
fn stop_daemon(instance: &Instance) -> Result<()> {
    let path = instance.pid_file();
    let Ok(file) = File::options().read(true).write(true).open(&path) else { return Ok(()) };
    if file.try_lock().is_ok() {
        return Ok(());
    }
    let text = fs::read_to_string(&path)?;
    let pid = text.trim().parse::<i32>().ok().and_then(rustix::process::Pid::from_raw);
    let Some(pid) = pid else { bail!("{path:?} holds no process id: {text:?}") };
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)
        .with_context(|| format!("stop process {pid:?}"))?;
    let begun = Instant::now();
    let mut killed = false;
    // The lock falls when the process is gone, whoever its parent is.
    while file.try_lock().is_err() {
        if begun.elapsed() > PATIENCE && !killed {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                .with_context(|| format!("kill process {pid:?}"))?;
            killed = true;
        }
        if begun.elapsed() > PATIENCE * 2 {
            bail!("process {pid:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Removes every sandbox through the runtime itself, which knows its journal.
async fn remove_pods(instance: &Instance) -> Result<()> {
    let folders = NetworkFolders { conf_dir: instance.cni_conf_dir(), bin_dirs: Vec::new() };
    let socket = instance.run_dir().join("down.sock");
    let nobody = podwire_nri::Config::new("podwire", env!("CARGO_PKG_VERSION"));
    let runtime = node_parts::runtime(instance, socket.clone(), &folders, nobody, None)?
        .build()
        .await
        .context("open the runtime's state")?;
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(runtime.run(shutdown.clone()));
    let mut client = RuntimeServiceClient::new(podwire_wire::unix::channel(&socket));
    let listed =
        client.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await.context("list sandboxes")?;
    for sandbox in listed.into_inner().items {
        let pod_sandbox_id = sandbox.id;
        client
            .stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
            .await
            .with_context(|| format!("stop sandbox {pod_sandbox_id}"))?;
        client
            .remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() })
            .await
            .with_context(|| format!("remove sandbox {pod_sandbox_id}"))?;
    }
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// Removes every host-global name of the instance: supervisor, links, packet filter, volumes, cgroups, run folder.
fn remove_names(instance: &Instance) -> Result<()> {
    node_parts::stop_supervisor(instance)?;
    node_parts::remove_network(instance)?;
    let volumes = instance.data_dir.join("kubelet/pods");
    for folder in [&volumes, &instance.run_dir()] {
        unmount_below(folder)?;
    }
    remove_folder(&volumes)?;
    remove_folder(&instance.data_dir.join("logs"))?;
    remove_cgroups(&instance.cgroup_root())?;
    remove_folder(&instance.run_dir())
}

/// Removes a cgroup and everything below it; nothing runs there any more.
fn remove_cgroups(path: &str) -> Result<()> {
    let group = cgroup::group(path).with_context(|| format!("look at cgroup {path}"))?;
    if !group.exists() {
        return Ok(());
    }
    for child in group.children().with_context(|| format!("list cgroup {path}"))? {
        remove_cgroups(&format!("{}/{child}", path.trim_end_matches('/')))?;
    }
    group.remove(Duration::from_secs(5)).with_context(|| format!("remove cgroup {path}"))
}

fn unmount_below(folder: &Path) -> Result<()> {
    let mut targets = mount::mounts_under(folder).context("read mounts")?;
    // Innermost first.
    targets.sort_by_key(|target| std::cmp::Reverse(target.components().count()));
    for target in targets {
        mount::detach(&target).with_context(|| format!("unmount {target:?}"))?;
    }
    Ok(())
}

fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {folder:?}"))
        }
        _ => Ok(()),
    }
}
