//! Programs that a test starts beside each other on loopback: `podwire` alone, etcd in ours and the real form, etcdctl.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Result, ensure};
use podwire_testkit::{
    eventually,
    node::{bin_dir, peer},
};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take on a busy machine.
pub const WAIT: Duration = Duration::from_secs(60);

/// A program that runs until it is stopped; it is killed when the test fails.
pub struct Running(Child);

impl Running {
    /// Starts a program that writes what it says into a file, which holds nothing else.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = fs::File::create(log)?;
        Ok(Self(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?))
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        eventually("the end of a program", WAIT, || {
            self.0.try_wait().map_err(|error| error.to_string())?.ok_or_else(|| "it still runs".to_owned())
        })?;
        Ok(())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.0), signal)?)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ignored: it has ended when all is well.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Our program, without what the environment tells it.
pub fn podwire() -> Command {
    let mut command = Command::new(bin_dir().join("podwire"));
    command.env_remove("KUBECONFIG").env_remove("PODWIRE_TRACE_DIR");
    command
}

/// What a program says, which must succeed.
pub fn said(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output()?;
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    ensure!(status.success(), "{command:?}: {status}\n{out}{err}");
    Ok(out.into_owned())
}

/// A port that nobody listens on.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// `podwire etcd`.
pub fn our_etcd() -> Command {
    let mut command = podwire();
    command.arg("etcd");
    command
}

/// The real etcd.
pub fn real_etcd() -> Result<Command> {
    Ok(Command::new(peer("etcd")?))
}

/// Ours or the real one, on loopback, when it answers.
pub fn etcd(program: Command, folder: &Path, log: &Path) -> Result<(Running, String)> {
    let url = format!("http://127.0.0.1:{}", free_port()?);
    Ok((etcd_at(program, folder, log, &url)?, url))
}

/// The same at a certain place.
pub fn etcd_at(mut program: Command, folder: &Path, log: &Path, url: &str) -> Result<Running> {
    let peers = format!("http://127.0.0.1:{}", free_port()?);
    program.arg("--data-dir").arg(folder).args([
        &format!("--listen-client-urls={url}"),
        &format!("--advertise-client-urls={url}"),
        &format!("--listen-peer-urls={peers}"),
        &format!("--initial-advertise-peer-urls={peers}"),
        &format!("--initial-cluster=default={peers}"),
    ]);
    let running = Running::start(program, log)?;
    eventually("an etcd", WAIT, || {
        etcdctl(url, &["endpoint", "health"]).map_err(|error| format!("{error:#}"))
    })?;
    Ok(running)
}

/// What the real etcdctl says.
pub fn etcdctl(url: &str, words: &[&str]) -> Result<String> {
    said(Command::new(peer("etcdctl")?).arg(format!("--endpoints={url}")).args(words))
}
