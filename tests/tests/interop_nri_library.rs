//! Plugins written with our library on our runtime and on containerd: started by the runtime itself, changing containers
//! unprompted, and refusing instead of being passed over.
#![cfg(feature = "interop")]
#![allow(unreachable_pub)] // A test has no public items; `pub` says what other files of it may use.

#[path = "nri_twins/bed.rs"]
mod bed;
#[allow(dead_code, reason = "the twins use all of it")]
#[path = "nri_twins/client.rs"]
mod client;

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_nri::{
    api::Event,
    stub::{Answer, Happened, Late, Plugin, Stub},
};
use podwire_testkit::{
    eventually, isolate,
    node::bin_dir,
    runtimes::{Bed, Running},
};
use tokio_util::sync::CancellationToken;

use self::bed::{bed, block_on, ready};

const SOON: Duration = Duration::from_secs(30);

/// A folder with the example as a plugin to be started; it writes its process id there.
fn installed(bed: &Bed, name: &str) -> Result<(PathBuf, PathBuf)> {
    let (folder, pid) = (bed.path().join(format!("{name}-plugins")), bed.path().join(format!("{name}.pid")));
    std::fs::create_dir_all(&folder)?;
    let script = folder.join("50-nri-plugin");
    let program = bin_dir().join("examples/nri-plugin");
    ensure!(program.exists(), "cargo build -p podwire-nri --example nri-plugin");
    let line = format!(
        "#!/bin/sh\necho $$ >{}\nexec {} --allow-device /dev/null --shares 77 2>{}\n",
        pid.display(),
        program.display(),
        pid.with_extension("log").display()
    );
    std::fs::write(&script, line)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok((folder, pid))
}

/// The CPU shares of a process' group: as such, or as the weight that stands for 77 of them.
fn has_shares(pid: u32) -> Result<bool> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if controllers.split(',').any(|one| one == "cpu") {
            let file = format!("/sys/fs/cgroup/{controllers}{path}/cpu.shares");
            let file =
                if Path::new(&file).exists() { file } else { format!("/sys/fs/cgroup/cpu{path}/cpu.shares") };
            return Ok(std::fs::read_to_string(file)?.trim() == "77");
        }
    }
    let path = groups.trim().strip_prefix("0::").context("no group")?;
    Ok(std::fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.weight"))?.trim() == "3")
}

fn started_by(runtime: &Running, pid_file: &Path) -> Result<()> {
    block_on(async {
        let client = ready(runtime).await?;
        let wants = [
            ("env.nri-plugin.example/GREETING", "hello"),
            ("device.nri-plugin.example/nothing", "/dev/null"),
        ];
        let sandbox = client.run("wants", &wants).await?;
        let container = client.create(&sandbox, "main").await?;
        client.start(&container).await?;
        let pid = client.pid(&container).await?;
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ"))?;
        ensure!(environment.split('\0').any(|one| one == "GREETING=hello"), "{environment}");
        ensure!(!has_shares(pid)?, "it has the shares already");
        let plugin: i32 = std::fs::read_to_string(pid_file)?.trim().parse()?;
        let plugin = rustix::process::Pid::from_raw(plugin).context("no process")?;
        rustix::process::kill_process(plugin, rustix::process::Signal::HUP)?;
        eventually("the shares are set", SOON, || match has_shares(pid) {
            Ok(true) => Ok(()),
            other => Err(format!("{other:?}")),
        })?;
        let refused = client.run("greedy", &[("device.nri-plugin.example/x", "/dev/mem")]).await.err();
        let why = format!("{:#}", refused.context("it was given what nobody may have")?);
        ensure!(why.contains("/dev/mem") && why.contains("is not given to pods"), "{why}");
        client.down(&sandbox.id).await
    })
    .with_context(|| std::fs::read_to_string(pid_file.with_extension("log")).unwrap_or_default())
}

#[test]
fn the_plugin_to_copy_is_started_by_both_runtimes_and_changes_containers_there() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    {
        let (folder, pid) = installed(&bed, "ours")?;
        let ours = bed.ours_with(true, &[("--nri-plugin-dir", folder.as_path())])?;
        started_by(&ours, &pid).context("ours")?;
    }
    let (folder, pid) = installed(&bed, "theirs")?;
    let theirs = bed.containerd_with(true, &format!("plugin_path = \"{}\"\n", folder.display()))?;
    started_by(&theirs, &pid).context("containerd")
}

/// A plugin that never decides.
struct Hesitant;

impl Plugin for Hesitant {
    fn events(&self) -> Vec<Event> {
        vec![Event::RunPodSandbox]
    }

    fn happened(&self, _: Happened) -> Answer<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// What becomes of a pod whose plugin never decides.
fn hesitated(runtime: &Running, late: Late) -> Result<Result<()>> {
    let socket = runtime.nri_socket.clone().context("no NRI")?;
    block_on(async {
        let client = ready(runtime).await?;
        let serving = Stub { socket, late, ..Stub::new("hesitant", "10") }.serve(Arc::new(Hesitant));
        let (mut handle, shutdown) = (serving.handle(), CancellationToken::new());
        let pod = async {
            let connected = tokio::time::timeout(SOON, handle.connected()).await;
            let ran = client.run(&format!("{late:?}").to_lowercase(), &[]).await;
            shutdown.cancel();
            connected.context("the plugin connects")?;
            let ran = match ran {
                Ok(sandbox) => client.down(&sandbox.id).await,
                Err(error) => Err(error),
            };
            Ok(ran)
        };
        let (ended, ran) = tokio::join!(serving.run(shutdown.clone()), pod);
        ended?;
        ran
    })
}

#[test]
fn a_plugin_that_refuses_when_late_is_not_passed_over_on_either_runtime() -> Result<()> {
    isolate()?;
    let bed = bed()?;
    for runtime in [bed.ours(true)?, bed.containerd(true)?] {
        let why =
            hesitated(&runtime, Late::Refuse)?.err().context("the pod ran without its plugin's word")?;
        ensure!(format!("{why:#}").contains("no decision about RunPodSandbox"), "{}: {why:#}", runtime.name);
        // Without that it is passed over, on both: it is not required.
        hesitated(&runtime, Late::Wait)?.context(runtime.name)?;
    }
    Ok(())
}
