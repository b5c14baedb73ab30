//! The Go plugin as a process: started, killed, stopped and continued, and what it wrote down.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::Result;
use podwire_testkit::{eventually, node::peer};
use serde_json::Value;

/// A running plugin; killed when dropped.
pub struct GoPlugin {
    child: Child,
    log: PathBuf,
}

impl GoPlugin {
    /// Starts it and returns at once.
    pub fn spawn(socket: &Path, log: &Path) -> Result<GoPlugin> {
        let child = Command::new(peer("nri-plugin")?)
            .args(["-name", "go", "-index", "10", "-full", "-socket"])
            .arg(socket)
            .arg("-log")
            .arg(log)
            .stderr(std::fs::File::create(complaints(log))?)
            .spawn()?;
        Ok(GoPlugin { child, log: log.to_owned() })
    }

    /// Starts it and waits until it was told what exists.
    pub fn start(socket: &Path, log: &Path) -> Result<GoPlugin> {
        // The Go stub does not try again, and a runtime may answer CRI a moment before NRI.
        eventually("NRI's socket is there", Duration::from_secs(60), || {
            if socket.exists() { Ok(()) } else { Err(format!("no {}", socket.display())) }
        })?;
        let plugin = GoPlugin::spawn(socket, log)?;
        eventually("the plugin is synchronized", Duration::from_secs(60), || {
            let told = plugin.lines().iter().any(|line| line["event"] == "Synchronize");
            let complaints = std::fs::read_to_string(complaints(log)).unwrap_or_default();
            if told { Ok(()) } else { Err(complaints) }
        })?;
        Ok(plugin)
    }

    /// What it wrote down.
    pub fn lines(&self) -> Vec<Value> {
        read(&self.log)
    }

    /// Stops it where it is.
    pub fn freeze(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    }

    /// Ends it without warning.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Ignored: it may have ended by itself when it was dropped by the runtime.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for GoPlugin {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where it complains.
fn complaints(log: &Path) -> PathBuf {
    log.with_extension("complaints")
}

/// The lines of a log so far; a line that is being written is not there yet.
pub fn read(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
