//! A process that the drill kills, hangs and starts: its own child, or one that somebody else looks after.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::{Instant, sleep};

/// How often a process is looked at that is to end or to come.
const PAUSE: Duration = Duration::from_millis(20);

/// How the process is found, and started if it is ours.
pub enum Kept {
    /// By a file that somebody else keeps.
    File(PathBuf),
    /// By a command of the shell.
    Command {
        /// The command, which the shell becomes.
        line: String,
        /// What it finds in its environment.
        environment: Vec<(&'static str, PathBuf)>,
        /// Where it writes.
        log: Option<PathBuf>,
    },
}

/// The process.
pub struct Victim {
    what: &'static str,
    kept: Kept,
    child: Option<Child>,
    /// Whom we stopped.
    hung: Option<Pid>,
}

impl Victim {
    /// Not started yet, if it is ours.
    pub fn new(what: &'static str, kept: Kept) -> Victim {
        Victim { what, kept, child: None, hung: None }
    }

    fn pid(&mut self) -> Result<Pid> {
        let pid = match (&self.kept, &mut self.child) {
            (Kept::File(path), _) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("read {path:?}"))?;
                let pid = text.trim().parse().ok().and_then(Pid::from_raw);
                pid.with_context(|| format!("{path:?} holds no process id but {:?}", text.trim()))?
            }
            (Kept::Command { line, .. }, Some(child)) => {
                if let Some(status) = child.try_wait().context("look at the command")? {
                    bail!("the {} ended by itself with {status}: `{line}`", self.what);
                }
                Pid::from_child(child)
            }
            (Kept::Command { .. }, None) => bail!("the {} is not started", self.what),
        };
        test_kill_process(pid).with_context(|| format!("the {} ({pid:?}) is not there", self.what))?;
        Ok(pid)
    }

    /// Whether it is there.
    pub fn check(&mut self) -> Result<()> {
        self.pid().map(drop)
    }

    /// Whether the drill starts it.
    pub fn is_ours(&self) -> bool {
        matches!(self.kept, Kept::Command { .. })
    }

    /// Starts it, or waits until somebody else has.
    pub async fn start(&mut self, bound: Duration) -> Result<()> {
        match &self.kept {
            Kept::File(_) => {
                let begun = Instant::now();
                while let Err(error) = self.pid() {
                    if begun.elapsed() > bound {
                        return Err(error.context(format!("nobody starts the {} anew", self.what)));
                    }
                    sleep(PAUSE).await;
                }
                Ok(())
            }
            Kept::Command { line, environment, log } => {
                let out = || -> Result<Stdio> {
                    let Some(path) = log else { return Ok(Stdio::null()) };
                    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                    Ok(file.with_context(|| format!("open {path:?}"))?.into())
                };
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(format!("exec {line}"));
                command.envs(environment.iter().map(|(name, path)| (name, path)));
                command.stdin(Stdio::null()).stdout(out()?).stderr(out()?);
                self.child = Some(command.spawn().with_context(|| format!("start `{line}`"))?);
                Ok(())
            }
        }
    }

    /// Starts it anew if it has ended by itself, as whoever looks after it would.
    pub async fn revive(&mut self, bound: Duration) -> Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let Some(status) = child.try_wait().context("look at the command")? else { return Ok(()) };
        crate::remark(&format!("the {} ended by itself with {status}; it is started anew", self.what));
        self.start(bound).await
    }

    fn send(&mut self, signal: Signal) -> Result<Pid> {
        let pid = self.pid()?;
        kill_process(pid, signal).with_context(|| format!("signal the {}", self.what))?;
        Ok(pid)
    }

    async fn gone(&mut self, pid: Pid, bound: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() <= bound {
            let ended = match &mut self.child {
                Some(child) => child.try_wait().context("wait for the command")?.is_some(),
                None => test_kill_process(pid).is_err(),
            };
            if ended {
                self.child = None;
                return Ok(());
            }
            sleep(PAUSE).await;
        }
        bail!("the {} does not end", self.what)
    }

    /// Ends it without a word.
    pub async fn kill(&mut self, bound: Duration) -> Result<()> {
        let pid = self.send(Signal::KILL)?;
        self.gone(pid, bound).await
    }

    /// Asks it to end; one that does not is killed.
    pub async fn end(&mut self, bound: Duration) -> Result<()> {
        let pid = self.send(Signal::TERM)?;
        match self.gone(pid, bound).await {
            Ok(()) => Ok(()),
            Err(_) => self.kill(bound).await,
        }
    }

    /// Stops it in whatever it does.
    pub fn hang(&mut self) -> Result<()> {
        self.hung = Some(self.send(Signal::STOP)?);
        Ok(())
    }

    /// Lets it go on.
    pub fn go_on(&mut self) -> Result<()> {
        let Some(pid) = self.hung.take() else { return Ok(()) };
        kill_process(pid, Signal::CONT).with_context(|| format!("let the {} go on", self.what))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Ignored throughout: it may have ended, and then there is nothing to be put right.
        self.go_on().ok();
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
