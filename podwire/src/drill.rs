//! `podwire netdriver drill`: breaks a driver of network devices at each of its arrows while pods come and go, and counts what
//! pods and devices suffer. The driver may be anybody's: it is known by its process, its slices and its devices only.
//!
//! `plan` says which fault meets which arrow and judges what was seen, `round` carries one out; `victim` is the process that
//! suffers, `door` its way to the API server, `cluster` and `look` what is seen at the API server and in namespaces.

mod cluster;
mod door;
mod look;
mod plan;
mod round;
mod victim;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use serde_json::Value;
use tokio::time::{Instant, sleep};

pub use self::plan::{At, Fault};
use self::{
    cluster::{Cluster, Container, Pod},
    door::Door,
    plan::Tally,
    round::{Drill, PAUSE},
    victim::{Kept, Victim},
};
use crate::{
    cli::DrillArgs,
    client::columns,
    node_parts, remark, say,
    solo::{client, until_signal},
};

/// Runs the drill; fails if it found anything.
pub async fn run(args: DrillArgs) -> Result<ExitCode> {
    let shutdown = until_signal()?;
    let faults = faults(&args)?;
    let mut drill = build(&args).await?;
    let drilled = tokio::select! {
        biased;
        () = shutdown.cancelled() => Err(anyhow!("interrupted")),
        drilled = drill_all(&mut drill, &args, &faults) => drilled,
    };
    let cleaned = drill.clean_up().await;
    let (tally, lines) = drilled.inspect_err(|_| {
        if let Err(error) = &cleaned {
            remark(&format!("and the drill leaves something behind: {error:#}"));
        }
    })?;
    say(columns(&tally.table()).trim_end());
    for line in lines {
        say(&line);
    }
    cleaned?;
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What can be done with what is known of the node, or what was asked for.
fn faults(args: &DrillArgs) -> Result<Vec<Fault>> {
    let can = |fault: &Fault| match fault {
        Fault::Kill | Fault::Hang | Fault::Restart => true,
        Fault::Disconnect => args.driver_command.is_some(),
        Fault::KubeletKill => args.kubelet_pid.is_some(),
        Fault::RuntimeKill => args.runtime_pid.is_some(),
    };
    let cannot: Vec<&Fault> = args.faults.iter().filter(|fault| !can(fault)).collect();
    ensure!(
        cannot.is_empty(),
        "{cannot:?} cannot be done: disconnect wants --driver-command, kubelet-kill and runtime-kill want --kubelet-pid and --runtime-pid"
    );
    ensure!(args.pods > 0 && args.tries > 0, "--pods and --tries want at least one");
    let asked: &[Fault] = if args.faults.is_empty() { Fault::value_variants() } else { &args.faults };
    Ok(asked.iter().copied().filter(can).collect())
}

async fn build(args: &DrillArgs) -> Result<Drill> {
    let cluster = Cluster {
        client: client(&args.kubeconfig).await?,
        namespace: args.namespace.clone(),
        node: args.node_name.clone().unwrap_or_else(node_parts::host_name),
        driver: args.driver_name.clone(),
        prefix: format!("drill-{}", std::process::id()),
    };
    let door = Door::open(&args.kubeconfig).await?;
    let kept = match (&args.driver_command, &args.driver_pid) {
        (Some(line), _) => Kept::Command {
            line: line.clone(),
            environment: vec![("KUBECONFIG", door.kubeconfig())],
            log: args.driver_log.clone(),
        },
        (None, Some(file)) => Kept::File(file.clone()),
        (None, None) => anyhow::bail!("--driver-command or --driver-pid is wanted"),
    };
    let by_file = |what, path: Option<&PathBuf>| path.map(|path| Victim::new(what, Kept::File(path.clone())));
    let mut drill = Drill {
        cluster,
        door,
        driver: Victim::new("driver", kept),
        kubelet: by_file("kubelet", args.kubelet_pid.as_ref()),
        runtime: by_file("runtime", args.runtime_pid.as_ref()),
        container: Container { image: args.image.clone(), args: args.arg.clone() },
        pods: args.pods,
        lasts: args.lasts,
        bound: args.bound,
        devices: Vec::new(),
        plain: Vec::new(),
    };
    drill.driver.start(drill.bound).await?;
    Ok(drill)
}

/// Sees that the drill can see, then carries out every round: the counts, and what was found in words.
async fn drill_all(drill: &mut Drill, args: &DrillArgs, faults: &[Fault]) -> Result<(Tally, Vec<String>)> {
    let parameters: Option<Value> = match &args.parameters {
        Some(text) => Some(serde_json::from_str(text).context("--parameters is no JSON")?),
        None => None,
    };
    look_around(drill).await?;
    drill.cluster.make_template(&args.device_class, parameters.as_ref()).await?;
    let arrows: &[At] = if args.arrows.is_empty() { At::value_variants() } else { &args.arrows };
    let (mut tally, mut lines) = (Tally::default(), Vec::new());
    for (number, round) in plan::rounds(faults, arrows, args.tries).into_iter().enumerate() {
        let found = drill.round(round, number).await.with_context(|| round.name())?;
        let said = found.lines();
        remark(&format!(
            "{}: {} found, worst wait {:.1} s",
            round.name(),
            said.len(),
            found.worst.as_secs_f64()
        ));
        lines.extend(said.into_iter().map(|line| format!("{}: {line}", round.name())));
        tally.add(round, &found);
        if !found.lost.is_empty() && drill.devices.len() < drill.pods {
            let left = drill.devices.len();
            lines.push(format!(
                "nothing more was tried: {left} devices are left, and --pods wants {}",
                drill.pods
            ));
            break;
        }
    }
    Ok((tally, lines))
}

/// Waits for the driver's devices, and looks at what a pod has without any.
async fn look_around(drill: &mut Drill) -> Result<()> {
    let begun = Instant::now();
    let published = loop {
        let published = drill.cluster.published().await?;
        if published.len() >= drill.pods {
            break published;
        }
        ensure!(
            begun.elapsed() < drill.bound,
            "driver {} offers {} devices on node {}; --pods wants {}",
            drill.cluster.driver,
            published.len(),
            drill.cluster.node,
            drill.pods
        );
        drill.driver.check()?;
        sleep(PAUSE).await;
    };
    let host = tokio::task::spawn_blocking(look::links).await?.context("look at the node's links")?;
    drill.devices = plan::devices(&published, &host);
    let name = format!("{}-plain", drill.cluster.prefix);
    drill.cluster.make_pod(&name, &drill.container, false).await?;
    let begun = Instant::now();
    let pod = loop {
        let pods = drill.cluster.pods().await?;
        if let Some(pod) = pods.into_iter().find(|pod: &Pod| pod.name == name && pod.running.is_some()) {
            break pod;
        }
        ensure!(begun.elapsed() < drill.bound, "a pod without any device does not run: {name}");
        sleep(PAUSE).await;
    };
    let links = drill.inside(&[&pod]).await?.remove(&pod.uid);
    let links = links.with_context(|| {
        format!("no process of pod {name} is found by its cgroup, so that no pod can be looked at; run the drill on the node")
    })?;
    drill.plain = links.into_iter().map(|link| link.name).collect();
    drill.cluster.delete_pod(&name, false).await
}
