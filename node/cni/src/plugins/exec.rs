//! Plugins of others: found on the path, executed as the specification says, killed when they hang.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde_json::Value;

use crate::spec::error::{CniError, code};
use crate::spec::request::{Command, Request};

/// How long an executed plugin may take when nobody says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The bytes by which a copy of our binary is recognised.
pub const MARKER: &str = "podwire-cni multicall binary, format 1";

/// The most a plugin may print.
const LARGEST: u64 = 16 << 20;

/// Whether a text can be the name of a program in a folder.
pub fn is_name(kind: &str) -> bool {
    !kind.is_empty() && !kind.contains('/') && kind != "." && kind != ".."
}

/// What a plugin said, in a length that people read and that fits into an answer.
fn excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 2048;
    let cut = bytes.len() > MOST;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).trim().to_owned();
    if cut { format!("{text} ... ({} bytes)", bytes.len()) } else { text }
}

/// The first regular file of this name on the path.
pub fn find(kind: &str, path: &[PathBuf]) -> Result<PathBuf, CniError> {
    if kind.is_empty() {
        return Err(CniError::config("no plugin name provided"));
    }
    if !is_name(kind) {
        return Err(CniError::config(format!("invalid plugin name: {kind:?}")));
    }
    let found = path
        .iter()
        .map(|dir| dir.join(kind))
        .find(|file| std::fs::metadata(file).is_ok_and(|meta| meta.is_file()));
    found.ok_or_else(|| {
        let dirs: Vec<String> = path.iter().map(|dir| dir.display().to_string()).collect();
        CniError::internal(format!("failed to find plugin {kind:?} in path [{}]", dirs.join(" ")))
    })
}

/// Whether the path has a binary of this name that is not ours.
pub fn is_shadowed(kind: &str, path: &[PathBuf]) -> bool {
    find(kind, path).is_ok_and(|file| !is_ours(&file))
}

/// Whether a file is our multicall binary, however it is called.
pub fn is_ours(file: &Path) -> bool {
    type Seen = HashMap<(u64, u64, i64, u64), bool>;
    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
    let Ok(meta) = std::fs::metadata(file) else { return false };
    if std::fs::metadata("/proc/self/exe").is_ok_and(|own| (own.dev(), own.ino()) == (meta.dev(), meta.ino()))
    {
        return true;
    }
    let key = (meta.dev(), meta.ino(), meta.mtime_nsec() ^ meta.mtime(), meta.len());
    if let Some(known) = SEEN.lock().ok().and_then(|seen| seen.get(&key).copied()) {
        return known;
    }
    let ours =
        std::fs::read(file).is_ok_and(|bytes| memchr::memmem::find(&bytes, MARKER.as_bytes()).is_some());
    if let Ok(mut seen) = SEEN.lock() {
        seen.insert(key, ours);
    }
    ours
}

/// Executes a plugin of the path and reads its answer.
pub fn run(kind: &str, request: &Request, timeout: Duration) -> Result<Option<Value>, CniError> {
    if request.command == Command::Del && !is_name(kind) {
        // It was refused at ADD and has done nothing: the pod must be able to go.
        return Ok(None);
    }
    let file = find(kind, &request.path)?;
    let input = request.conf.to_string();
    let path = std::env::join_paths(&request.path)
        .map_err(|error| CniError::internal(format!("plugin path: {error}")))?;
    let mut command = std::process::Command::new(&file);
    command
        .env("CNI_COMMAND", request.command.as_str())
        .env("CNI_CONTAINERID", &request.container_id)
        .env("CNI_NETNS", &request.netns)
        .env("CNI_IFNAME", &request.ifname)
        .env("CNI_ARGS", &request.args)
        .env("CNI_PATH", path)
        .envs(request.trace.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if request.netns_override {
        command.env("CNI_NETNS_OVERRIDE", "1");
    }
    let child = spawn(&mut command)
        .map_err(|error| CniError::internal(format!("execute plugin {}: {error}", file.display())))?;
    let output = finish(child, kind, input.as_bytes(), timeout)?;
    read_answer(kind, &output)
}

/// A file being replaced is busy for a moment.
fn spawn(command: &mut std::process::Command) -> std::io::Result<Child> {
    for _ in 0..5 {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
    command.spawn()
}

/// What an executed program left.
pub(crate) struct Output {
    pub(crate) ok: bool,
    status: String,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Feeds a child and waits for it; kills its group when it takes too long.
pub(crate) fn finish(
    mut child: Child,
    kind: &str,
    input: &[u8],
    timeout: Duration,
) -> Result<Output, CniError> {
    let pid = Pid::from_child(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let failed = |error| CniError::internal(format!("start a thread for plugin {kind}: {error}"));
        let writer = named("cni-stdin").spawn_scoped(scope, move || {
            // Ignored: a plugin that does not read its input may still answer.
            stdin.map(|mut pipe| pipe.write_all(input).ok())
        });
        let reader = |pipe: Option<Box<dyn Read + Send>>| {
            move || {
                let mut bytes = Vec::new();
                // Ignored: what was read until the error is judged as the answer.
                pipe.map(|pipe| pipe.take(LARGEST).read_to_end(&mut bytes).ok());
                bytes
            }
        };
        let out = stdout.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let err = stderr.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let out = named("cni-stdout").spawn_scoped(scope, reader(out)).map_err(failed)?;
        let err = named("cni-stderr").spawn_scoped(scope, reader(err)).map_err(failed)?;
        writer.map_err(failed)?;
        let in_time = wait_until(pid, Instant::now() + timeout);
        if !in_time {
            // Ignored: the group may have ended by itself in this very moment.
            kill_process_group(pid, Signal::KILL).ok();
        }
        let status =
            child.wait().map_err(|error| CniError::internal(format!("wait for plugin {kind}: {error}")))?;
        // Children of the plugin may hold the pipes open: end them too.
        kill_process_group(pid, Signal::KILL).ok();
        let stdout = out.join().unwrap_or_default();
        let stderr = err.join().unwrap_or_default();
        Ok::<_, CniError>((
            in_time,
            Output { ok: status.success(), status: status.to_string(), stdout, stderr },
        ))
    });
    match ended? {
        (true, output) => Ok(output),
        (false, output) => Err(CniError::internal(format!(
            "plugin {kind} did not answer within {} ms and was killed",
            timeout.as_millis()
        ))
        .details(excerpt(&output.stderr))),
    }
}

/// Waits for the process to end; false when the deadline came first.
fn wait_until(pid: Pid, deadline: Instant) -> bool {
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

fn read_answer(kind: &str, output: &Output) -> Result<Option<Value>, CniError> {
    let stderr = excerpt(&output.stderr);
    if !output.ok {
        let said: Option<CniError> =
            serde_json::from_slice(&output.stdout).ok().and_then(|value| CniError::from_value(&value));
        let said = said.map(|error| CniError {
            msg: excerpt(error.msg.as_bytes()),
            details: excerpt(error.details.as_bytes()),
            ..error
        });
        return Err(said.unwrap_or_else(|| {
            let text = match (output.stdout.is_empty(), stderr.is_empty()) {
                (true, true) => format!("netplugin failed with no error message: {}", output.status),
                (true, false) => format!("netplugin failed: {stderr:?}: {}", output.status),
                (false, _) => format!(
                    "netplugin failed but error parsing its diagnostic message {:?}: {stderr:?}",
                    excerpt(&output.stdout)
                ),
            };
            CniError::internal(format!("plugin {kind}: {text}"))
        }));
    }
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let value: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let shown: String = String::from_utf8_lossy(&output.stdout).chars().take(200).collect();
        CniError::new(code::DECODE, format!("plugin {kind} printed no JSON: {error}"))
            .details(format!("{shown:?} {stderr}"))
    })?;
    Ok(if value.is_null() { None } else { Some(value) })
}
