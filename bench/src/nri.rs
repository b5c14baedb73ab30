//! What NRI plugins add to RunPodSandbox and CreateContainer: none, one, eight of the same Go plugin, on our runtime and
//! on containerd. The cases take turns, so that a machine that gets slower does so for all of them.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    critest, eventually,
    images::{Files, Image, Layer},
    node::{bin_dir, peer},
    runtimes::{Bed, Running},
};
use serde_json::json;

use crate::{
    measure::percentile,
    report::{self, Row},
    runtime::client::Client,
};

/// Turns, and pods in each.
const TURNS: usize = 6;
const PODS: usize = 12;
/// How many plugins are connected.
const CASES: [usize; 3] = [0, 1, 8];

/// Median times of RunPodSandbox and CreateContainer in milliseconds, by case.
struct Figures {
    run: [f64; CASES.len()],
    create: [f64; CASES.len()],
}

/// Measures ours, and containerd when it is built.
pub async fn run() -> Result<()> {
    let app = std::fs::read(bin_dir().join("pod-app"))?;
    let tools = Files::default().file("pod-app", app.clone(), 0o755);
    let pause = Files::default().file("pause", app, 0o755);
    let bed = Bed::new(vec![
        Image::new(&["app:latest"], &Layer::new(&tools)?, &json!({"Entrypoint": ["/pod-app"]}))?,
        Image::new(&["sandbox:latest"], &Layer::new(&pause)?, &json!({"Entrypoint": ["/pause"]}))?,
    ])?;
    ensure!(peer("nri-plugin").is_ok(), "the plugin is not built; run `make peers`");
    let ours = measure(&bed.ours(true)?, bed.path()).await?;
    let theirs = match peer("containerd") {
        Ok(_) => Some(measure(&bed.containerd(true)?, bed.path()).await?),
        Err(_) => None,
    };
    let mut rows = Vec::new();
    for (what, read) in
        [("RunPodSandbox", (|f| f.run) as fn(&Figures) -> [f64; 3]), ("CreateContainer", |f| f.create)]
    {
        let beside = |pick: fn([f64; 3]) -> f64| theirs.as_ref().map(|t| pick(read(t)));
        let mut row = |name: &str, pick: fn([f64; 3]) -> f64, target| {
            rows.push(Row::new(
                &format!("{what}, p50, {name}"),
                "ms",
                pick(read(&ours)),
                beside(pick),
                target,
            ));
        };
        row("no plugin", |t| t[0], None);
        row("1 plugin adds", |t| t[1] - t[0], Some(0.3));
        row("8 plugins add", |t| t[2] - t[0], Some(2.0));
    }
    report::print(&rows);
    Ok(())
}

/// Plugins that change nothing; ended when dropped.
struct Plugins(Vec<Child>);

impl Plugins {
    /// Starts them and returns once each was told what exists.
    fn connect(count: usize, socket: &Path, folder: &Path) -> Result<Plugins> {
        let program = peer("nri-plugin")?;
        let logs: Vec<PathBuf> = (0..count).map(|number| folder.join(format!("idle{number}.log"))).collect();
        let mut plugins = Plugins(Vec::new());
        for (number, log) in logs.iter().enumerate() {
            std::fs::File::create(log)?;
            let (name, index) = (format!("idle{number}"), format!("{:02}", 10 + number));
            let mut command = Command::new(&program);
            command.args(["-name", &name, "-index", &index, "-socket"]).arg(socket).arg("-log").arg(log);
            plugins.0.push(command.stderr(Stdio::null()).spawn().context("start the plugin")?);
        }
        eventually("the plugins are synchronized", Duration::from_secs(60), || {
            let told =
                |log: &&PathBuf| std::fs::read_to_string(log).is_ok_and(|text| text.contains("Synchronize"));
            let done = logs.iter().filter(told).count();
            if done == count { Ok(()) } else { Err(format!("{done} of {count}")) }
        })?;
        Ok(plugins)
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Ignored: it may have ended already.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

async fn measure(runtime: &Running, folder: &Path) -> Result<Figures> {
    println!("{} ...", runtime.name);
    let socket = runtime.nri_socket.clone().context("no NRI")?;
    let client = Client::new(runtime);
    client.pull("localhost/app:latest").await?;
    client.pull(critest::SANDBOX_IMAGE).await?;
    let mut times: [[Vec<Duration>; CASES.len()]; 2] = Default::default();
    for turn in 0..TURNS {
        for (case, count) in CASES.into_iter().enumerate() {
            let _plugins = Plugins::connect(count, &socket, folder)?;
            for number in 0..PODS {
                let begun = Instant::now();
                let sandbox = client.run(&format!("n{turn}-{count}-{number}")).await?;
                let run = begun.elapsed();
                let begun = Instant::now();
                let pod = client.create(sandbox).await?;
                let create = begun.elapsed();
                client.down(&pod).await?;
                // The first of a turn also pays for what the change of plugins left cold.
                if number > 0 {
                    times[0][case].push(run);
                    times[1][case].push(create);
                }
            }
        }
    }
    let median = |one: &Vec<Duration>| percentile(one, 50).as_secs_f64() * 1000.0;
    Ok(Figures { run: times[0].each_ref().map(median), create: times[1].each_ref().map(median) })
}
