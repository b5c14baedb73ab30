//! What the runtime's own processes ask of the kernel on the path of a pod: programs started, files forced to disk.

use std::{fs, process::Command, time::Duration};

use anyhow::Result;
use podwire_testkit::{eventually, runtimes::Running};

use super::client::Client;

/// Pods that are watched.
const PODS: usize = 5;

/// Prints the counts per pod; says so when strace is not installed.
pub async fn report(runtime: &Running) -> Result<()> {
    let file = runtime.socket.with_file_name("strace.txt");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=execve,execveat,fsync,fdatasync,sync,syncfs", "-o"]).arg(&file);
    for pid in runtime.pids()? {
        strace.arg("-p").arg(pid.to_string());
    }
    let Ok(mut tracer) = strace.spawn() else {
        println!("  (strace is not installed: programs started and fsyncs are not counted)");
        return Ok(());
    };
    let traced = runtime.pids()?;
    eventually("strace attaches", Duration::from_secs(10), || {
        let held = traced.iter().all(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        });
        if held { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let client = Client::new(runtime);
    for number in 0..PODS {
        let pod = client.up(&format!("t{number}")).await?;
        client.down(&pod).await?;
    }
    let pid = tracer.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status()?;
    tracer.wait()?;
    let text = fs::read_to_string(&file)?;
    let count = |name: &str| text.lines().filter(|line| line.contains(name) && line.contains("= 0")).count();
    let forced = count("fsync(") + count("fdatasync(") + count("syncfs(") + count(" sync(");
    let programs = count("execve(") + count("execveat(");
    let others = text.lines().filter(|line| line.contains("execve") && !line.contains("/pod-app")).count();
    println!(
        "  {PODS} pods up and down: {programs} programs started, {others} of them not the container's own; {forced} fsyncs"
    );
    Ok(())
}
