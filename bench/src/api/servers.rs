//! The two API servers: ours with its store in one process, upstream's with etcd in two.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    node::bin_dir,
    upstream::{self, ControlPlane, Peer},
};

use super::client::Endpoint;

/// An API server under test.
pub struct Server {
    /// How to reach it.
    pub endpoint: Endpoint,
    /// Credentials of its administrator.
    pub kubeconfig: PathBuf,
    /// API server and store.
    pub pids: Vec<u32>,
    /// From the start of the process to the first good answer of `/readyz`.
    pub ready: Duration,
    runs: Runs,
    folder: tempfile::TempDir,
}

/// What ends with the server.
enum Runs {
    Ours(Ours),
    /// Never read.
    Upstream {
        _control: ControlPlane,
    },
}

struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Where ours listens.
const PORT: u16 = 6443;

impl Server {
    /// Starts ours on an empty folder.
    pub async fn ours() -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("podwire-bench-").tempdir()?;
        let begun = Instant::now();
        let (process, endpoint, kubeconfig) = start_ours(folder.path()).await?;
        let ready = begun.elapsed();
        let pids = vec![process.0.id()];
        Ok(Server { endpoint, kubeconfig, pids, ready, runs: Runs::Ours(process), folder })
    }

    /// Kills ours and starts it again on the same folder; how long it took to be ready. Upstream's is left alone.
    pub async fn start_again(&mut self) -> Result<Option<Duration>> {
        let Runs::Ours(process) = &mut self.runs else { return Ok(None) };
        process.0.kill()?;
        process.0.wait()?;
        let begun = Instant::now();
        let (process, endpoint, kubeconfig) = start_ours(self.folder.path()).await?;
        let took = begun.elapsed();
        self.kubeconfig = kubeconfig;
        self.pids = vec![process.0.id()];
        self.endpoint = endpoint;
        self.runs = Runs::Ours(process);
        Ok(Some(took))
    }

    /// Starts upstream's on an empty folder; etcd, keys and certificates do not count in the time.
    pub async fn upstream() -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("podwire-bench-").tempdir()?;
        upstream::node_address()?;
        let control = upstream::control_plane(&folder.path().join("control"))?;
        let endpoint = Endpoint::read(&control.kubeconfig)?;
        ask_ready(&endpoint).await?;
        let pids: Vec<u32> = control.peers.iter().map(Peer::pid).collect();
        let ready = age(pids[0])?;
        let kubeconfig = control.kubeconfig.clone();
        Ok(Server { endpoint, kubeconfig, pids, ready, runs: Runs::Upstream { _control: control }, folder })
    }

    /// Proportional set size of its processes.
    pub fn pss(&self) -> Result<f64> {
        Ok(crate::measure::Processes::of_pids(&self.pids).pss_bytes()? as f64 / 1e6)
    }

    /// CPU time of its processes so far.
    pub fn cpu(&self) -> Result<Duration> {
        crate::measure::Processes::of_pids(&self.pids).cpu()
    }
}

/// Starts our server on what is in `folder` and waits until it is ready.
async fn start_ours(folder: &Path) -> Result<(Ours, Endpoint, PathBuf)> {
    let mut child = Command::new(bin_dir().join("podwire"))
        .arg("apiserver")
        .arg("--data-dir")
        .arg(folder.join("data"))
        // It is killed in the end, and what it leaves goes with the folder.
        .arg("--trace-dir")
        .arg(folder.join("trace"))
        .arg(format!("--secure-port={PORT}"))
        .stdout(Stdio::piped())
        .stderr(fs::File::create(folder.join("log"))?)
        .spawn()
        .context("start podwire apiserver")?;
    let output = child.stdout.take().context("no output")?;
    let process = Ours(child);
    let line = BufReader::new(output).lines().next().context("no word from podwire apiserver")??;
    let kubeconfig = line.split("kubeconfig=").nth(1).with_context(|| format!("podwire said: {line}"))?;
    let kubeconfig = PathBuf::from(kubeconfig);
    let endpoint = Endpoint::read(&kubeconfig)?;
    ask_ready(&endpoint).await?;
    Ok((process, endpoint, kubeconfig))
}

async fn ask_ready(endpoint: &Endpoint) -> Result<()> {
    let request = endpoint.request("GET", "/readyz", "");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = async { endpoint.connect().await?.ask(&request).await };
        match answer.await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => bail!("not ready: {error:#}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// How long ago a process was started.
fn age(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let started: f64 = fields.get(19).context("no start time")?.parse()?;
    let uptime = fs::read_to_string("/proc/uptime")?;
    let uptime: f64 = uptime.split(' ').next().context("no uptime")?.parse()?;
    Ok(Duration::from_secs_f64((uptime - started / 100.0).max(0.0)))
}
