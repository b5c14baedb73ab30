//! The two API servers: ours with its store in one process, upstream's with etcd in two.

use std::{
    fs,
    io::{BufRead, BufReader},
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
    /// API server and store.
    pub pids: Vec<u32>,
    /// From the start of the process to the first good answer of `/readyz`.
    pub ready: Duration,
    _runs: Runs,
    _folder: tempfile::TempDir,
}

/// What ends with the server; never read.
enum Runs {
    Ours { _process: Ours },
    Upstream { _control: ControlPlane },
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
        let data = folder.path().join("data");
        let begun = Instant::now();
        let mut child = Command::new(bin_dir().join("podwire"))
            .arg("apiserver")
            .arg("--data-dir")
            .arg(&data)
            // It is killed in the end, and what it leaves goes with the folder.
            .arg("--trace-dir")
            .arg(folder.path().join("trace"))
            .arg(format!("--secure-port={PORT}"))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log"))?)
            .spawn()
            .context("start podwire apiserver")?;
        let output = child.stdout.take().context("no output")?;
        let process = Ours(child);
        let line = BufReader::new(output).lines().next().context("no word from podwire apiserver")??;
        let kubeconfig =
            line.split("kubeconfig=").nth(1).with_context(|| format!("podwire said: {line}"))?.to_owned();
        let endpoint = Endpoint::read(kubeconfig.as_ref())?;
        ask_ready(&endpoint).await?;
        let ready = begun.elapsed();
        let pids = vec![process.0.id()];
        Ok(Server { endpoint, pids, ready, _runs: Runs::Ours { _process: process }, _folder: folder })
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
        Ok(Server { endpoint, pids, ready, _runs: Runs::Upstream { _control: control }, _folder: folder })
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
