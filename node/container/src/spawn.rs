//! Starting the supervisor from the daemon's own executable.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::request::SupervisorConfig;

/// Connects to the supervisor, starting one when none listens.
pub(crate) fn connect_or_spawn(cfg: &SupervisorConfig) -> Result<UnixStream, Error> {
    match connect(cfg) {
        Ok(stream) => return Ok(stream),
        Err(error) if nobody_there(&error) => {}
        Err(source) => return Err(Error::Socket { socket: cfg.socket.clone(), source }),
    }
    let spawned = spawn(cfg);
    // When two daemons start at once, the lock lets one supervisor through, and both connect to it.
    match (connect(cfg), spawned) {
        (Ok(stream), _) => Ok(stream),
        (Err(_), Err(source)) => Err(Error::Spawn { exe: cfg.exe.clone(), source }),
        (Err(_), Ok(())) => {
            let log = cfg.state_dir.join("supervisor.log");
            Err(Error::NotListening { socket: cfg.socket.clone(), log })
        }
    }
}

fn connect(cfg: &SupervisorConfig) -> io::Result<UnixStream> {
    UnixStream::connect(&cfg.socket)
}

fn nobody_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Returns when the supervisor, detached from us, listens.
fn spawn(cfg: &SupervisorConfig) -> io::Result<()> {
    let mut command = Command::new(&cfg.exe);
    command.args(&cfg.exe_args);
    command.arg("--socket").arg(&cfg.socket).arg("--state-dir").arg(&cfg.state_dir);
    if let Some(cgroup) = &cfg.cgroup {
        command.arg("--cgroup").arg(cgroup);
    }
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{} ({})", said.trim(), output.status)))
}
