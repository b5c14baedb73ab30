//! `podwire up`: the life of a node, read top to bottom.
//!
//! Order of start: lock, store, API server, runtime, kubelet, scheduler and controllers. Order of end: the reverse;
//! containers keep running, the next `up` adopts them, `down` ends them.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use podwire_apiserver::Identity;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{check, cli::UpArgs, instance::Instance, node_parts, say};

/// Holds the data folder for this process; released by the kernel however the process ends.
pub struct Lock(#[allow(dead_code)] File);

/// Takes the data folder, or says who has it.
pub fn lock(instance: &Instance) -> Result<Lock> {
    fs::create_dir_all(&instance.data_dir).with_context(|| format!("create data folder {:?}", instance.data_dir))?;
    let path = instance.pid_file();
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
    if file.try_lock().is_err() {
        let holder = fs::read_to_string(&path).unwrap_or_default();
        bail!(
            "data folder {:?} is used by process {}; stop it with `podwire down` or choose another --data-dir",
            instance.data_dir,
            holder.trim()
        );
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Lock(file))
}

/// Runs the node until SIGTERM or SIGINT.
pub async fn up(args: UpArgs) -> Result<()> {
    if let Some(misses) = check::blocking(&check::findings()) {
        bail!("this machine cannot run pods:\n{misses}");
    }
    let instance = Instance::at(&args.data.data_dir)?;
    let _lock = lock(&instance)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let node_name = args.node_name.clone().unwrap_or_else(node_parts::host_name);
    let node_ip = args.node_ip.unwrap_or_else(node_parts::node_address);
    let control = Control::start(&instance, &args, node_ip).await?;
    let runtime = NodeRuntime::start(&instance, &args).await?;
    let kubelet = start_kubelet(&instance, &args, &control, &runtime, &node_name, node_ip).await?;
    let deciders = start_deciders(&control).await?;

    kubelet.ready().await;
    notify_systemd("READY=1");
    say(&format!("ready node={node_name} server=https://{} kubeconfig={}", control.address, control.kubeconfig));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = control.failed() => tracing::error!("the API server ended by itself"),
        () = runtime.failed() => tracing::error!("the runtime ended by itself"),
    }
    notify_systemd("STOPPING=1");
    deciders.stop().await;
    kubelet.stop().await;
    runtime.stop().await;
    control.stop().await;
    Ok(())
}

/// A participant running in this process, with the switch that ends it.
struct Running {
    shutdown: CancellationToken,
    tasks: TaskTracker,
    ready: CancellationToken,
}

impl Running {
    fn new() -> Running {
        Running { shutdown: CancellationToken::new(), tasks: TaskTracker::new(), ready: CancellationToken::new() }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn ready(&self) {
        self.ready.cancelled().await;
    }

    /// Returns when every task ended although nobody asked.
    async fn failed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
