//! A whole node for a test: `podwire up` in a folder of its own, in the calling thread's network namespace.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{eventually::eventually, residue};

/// How long a test waits for what takes milliseconds when all is well.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running (or killed, and restartable) node.
pub struct Node {
    /// Folder of everything durable.
    pub data_dir: PathBuf,
    /// Folder of the binaries under test.
    binaries: PathBuf,
    flags: Vec<String>,
    daemon: Option<Child>,
    /// Removed with the node.
    _folder: Option<tempfile::TempDir>,
}

/// The folder of the binaries under test: `PODWIRE_BIN_DIR`, else beside the test binary.
pub fn bin_dir() -> PathBuf {
    if let Some(folder) = std::env::var_os("PODWIRE_BIN_DIR") {
        return folder.into();
    }
    let exe = std::env::current_exe().unwrap_or_default();
    let folder = exe.parent().unwrap_or(Path::new("."));
    if folder.ends_with("deps") || folder.ends_with("examples") {
        return folder.parent().unwrap_or(folder).to_owned();
    }
    folder.to_owned()
}

fn binary_in(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    if !path.exists() {
        bail!("{path:?} is not built; run the tests with `make test`");
    }
    Ok(path)
}

/// The program that tests run in pods. Its images hold nothing else, so one that needs shared libraries could not start.
pub fn pod_app(folder: &Path) -> Result<PathBuf> {
    let path = binary_in(folder, "pod-app")?;
    if needs_an_interpreter(&fs::read(&path)?) {
        bail!(
            "{path:?} needs shared libraries; build it with `-C target-feature=+crt-static`, as `make test` does"
        );
    }
    Ok(path)
}

/// Whether a 64-bit ELF program has a segment PT_INTERP, the path of a dynamic linker (elf(5)).
fn needs_an_interpreter(program: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let word =
        |at: usize| program.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let half =
        |at: usize| program.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
    let (Some(headers), Some(size), Some(count)) = (word(32), half(54), half(56)) else { return false };
    (0..usize::from(count)).any(|index| {
        let at = usize::try_from(headers).unwrap_or(usize::MAX).saturating_add(index * usize::from(size));
        program.get(at..).is_some_and(|header| header.starts_with(&PT_INTERP.to_le_bytes()))
    })
}

/// A real peer's program, from the folder that `PODWIRE_PEERS` names.
pub fn peer(name: &str) -> Result<PathBuf> {
    let Some(folder) = std::env::var_os("PODWIRE_PEERS") else {
        bail!("PODWIRE_PEERS is not set; run with `make interop`");
    };
    let path = Path::new(&folder).join(name);
    if !path.exists() {
        bail!("peer {name} is not built in {folder:?}; run `make peers`");
    }
    Ok(path)
}

impl Node {
    /// Brings a node up with extra flags and the test image in its store; the thread must be isolated.
    pub fn up(flags: &[&str]) -> Result<Node> {
        let node = Node::up_with(&bin_dir(), flags)?;
        node.import_app()?;
        Ok(node)
    }

    /// Brings a node up from the binaries in `binaries`, with an empty image store.
    pub fn up_with(binaries: &Path, flags: &[&str]) -> Result<Node> {
        let folder = tempfile::Builder::new().prefix("podwire-").tempdir()?;
        let mut node = Node {
            data_dir: folder.path().join("data"),
            binaries: binaries.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            daemon: None,
            _folder: Some(folder),
        };
        node.start()?;
        Ok(node)
    }

    /// A node in a folder that the caller keeps.
    pub fn at(data_dir: &Path, flags: &[&str]) -> Result<Node> {
        Node::at_with(&bin_dir(), data_dir, flags)
    }

    /// A node from the binaries in `binaries`, in a folder that the caller keeps.
    pub fn at_with(binaries: &Path, data_dir: &Path, flags: &[&str]) -> Result<Node> {
        let mut node = Node {
            data_dir: data_dir.to_owned(),
            binaries: binaries.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            daemon: None,
            _folder: None,
        };
        node.start()?;
        Ok(node)
    }

    /// Starts the daemon and returns when it says that the node is ready.
    pub fn start(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        fs::create_dir_all(&self.data_dir)?;
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut daemon = Command::new(self.binary("podwire")?)
            .arg("up")
            .arg("--data-dir")
            .arg(&self.data_dir)
            // How full this machine's disk is must not decide what tests see.
            .args(["--node-name", "node1", "--eviction-hard="])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start podwire up")?;
        let out = daemon.stdout.take().context("no stdout")?;
        let mut lines = BufReader::new(out).lines();
        loop {
            match lines.next() {
                Some(line) => {
                    if line?.starts_with("ready") {
                        break;
                    }
                }
                None => {
                    let status = daemon.wait()?;
                    bail!("podwire up ended with {status}: {}", self.log_tail());
                }
            }
        }
        self.daemon = Some(daemon);
        Ok(begun.elapsed())
    }

    /// From now on the programs in `binaries` are used, as after an upgrade; what runs goes on running.
    pub fn replace_programs(&mut self, binaries: &Path) {
        self.binaries = binaries.to_owned();
    }

    fn binary(&self, name: &str) -> Result<PathBuf> {
        binary_in(&self.binaries, name)
    }

    fn log_path(&self) -> PathBuf {
        self.data_dir.join("podwire.log")
    }

    /// The end of the daemon's log, for failure messages.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Puts the test image `localhost/pod-app:latest` into the node's store.
    pub fn import_app(&self) -> Result<()> {
        let archive = self.data_dir.join("pod-app.tar");
        let app = pod_app(&self.binaries)?;
        let text = self.podwire(
            ["image", "build", "--name", "localhost/pod-app:latest", "--output"]
                .iter()
                .map(OsStr::new)
                .chain([
                    archive.as_os_str(),
                    OsStr::new("--entrypoint"),
                    OsStr::new("/pod-app"),
                    app.as_os_str(),
                ]),
        )?;
        drop(text);
        self.podwire([
            OsStr::new("image"),
            OsStr::new("import"),
            OsStr::new("--data-dir"),
            self.data_dir.as_os_str(),
            archive.as_os_str(),
        ])?;
        fs::remove_file(archive)?;
        Ok(())
    }

    /// Runs one of podwire's verbs; its output, or its complaint as the error.
    pub fn podwire<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let output = Command::new(self.binary("podwire")?)
            .args(args)
            .env("PODWIRE_DATA_DIR", &self.data_dir)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .output()?;
        said(&output)
    }

    /// Runs the real kubectl against the node; its output, or its complaint as the error.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        said(&self.kubectl_command()?.args(args).stdin(Stdio::null()).output()?)
    }

    /// The real kubectl, ready for arguments.
    pub fn kubectl_command(&self) -> Result<Command> {
        let mut command = Command::new(peer("kubectl")?);
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", &self.data_dir);
        Ok(command)
    }

    /// The administrator's credentials.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("admin.kubeconfig")
    }

    /// Applies a manifest given as text.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        let mut child = Command::new(self.binary("podwire")?)
            .args(["apply", "-f", "-"])
            .env("PODWIRE_DATA_DIR", &self.data_dir)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no stdin")?.write_all(manifest.as_bytes())?;
        said(&child.wait_with_output()?)
    }

    /// An object as JSON.
    pub fn get(&self, what: &str, name: &str) -> Result<Value> {
        let text = self.podwire(["get", what, name, "-o", "json"])?;
        serde_json::from_str(&text).with_context(|| format!("parse {what} {name}: {text}"))
    }

    /// Every object of a type in the default namespace.
    pub fn list(&self, what: &str) -> Result<Vec<Value>> {
        let text = self.podwire(["get", what, "-o", "json"])?;
        let list: Value = serde_json::from_str(&text).with_context(|| format!("parse {what}: {text}"))?;
        match list["items"].as_array() {
            Some(items) => Ok(items.clone()),
            None => Ok(vec![list]),
        }
    }

    /// Waits until the pod is in `phase` and returns it.
    pub fn pod_in_phase(&self, name: &str, phase: &str) -> Result<Value> {
        self.pod_when(name, &format!("phase {phase}"), |pod| pod["status"]["phase"] == phase)
    }

    /// Waits until the pod satisfies `wanted` and returns it.
    pub fn pod_when(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("pod {name} with {what}"), PATIENCE, || {
            let pod = self.get("pod", name).map_err(|error| format!("{error:#}"))?;
            if wanted(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
        .with_context(|| self.log_tail())
    }

    /// Ends the daemon without warning, as a crash or the OOM killer would.
    pub fn kill9(&mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("the node is not running")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    /// Ends the daemon as its service manager would; pods keep running.
    pub fn stop(&mut self) -> Result<()> {
        let mut daemon = self.daemon.take().context("the node is not running")?;
        let pid = rustix::process::Pid::from_child(&daemon);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        daemon.wait()?;
        Ok(())
    }

    /// The daemon's process id.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// The names that belong to this node.
    pub fn names(&self) -> Result<residue::Names> {
        let text =
            self.podwire([OsStr::new("instance"), OsStr::new("--data-dir"), self.data_dir.as_os_str()])?;
        let value: Value = serde_json::from_str(&text)?;
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        Ok(residue::Names {
            data_dir: self.data_dir.clone(),
            run_dir: field("runDir").into(),
            cgroup_root: field("cgroupRoot"),
            bridge: field("bridge"),
        })
    }

    /// Fails unless every trace of every pod is gone (within a moment: the kernel frees some things late).
    pub fn assert_no_pod_residue(&self) -> Result<()> {
        let names = self.names()?;
        eventually("no residue of pods", Duration::from_secs(30), || {
            let found = residue::of_pods(&names);
            if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
        })
    }

    /// Stops the node with `podwire down` and fails if anything of it is left.
    pub fn down(mut self) -> Result<()> {
        let names = self.names()?;
        self.podwire(["down"])?;
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait()?;
        }
        eventually("no residue of the node", Duration::from_secs(30), || {
            let found = residue::of_node(&names);
            if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.data_dir.exists()
            && let Err(error) = self.podwire(["down"])
        {
            eprintln!("podwire down: {error:#}");
        }
        if let Some(mut daemon) = self.daemon.take() {
            // Ignored: it may be gone already; nothing more can be done in drop.
            daemon.kill().ok();
            daemon.wait().ok();
        }
    }
}

fn said(output: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    bail!("{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_shared_libraries_is_told_from_one_that_does_not() -> Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(pod_app(folder.path()).is_err());
        // This test itself is linked with shared libraries.
        let app = folder.path().join("pod-app");
        fs::copy(std::env::current_exe()?, &app)?;
        let error = pod_app(folder.path()).unwrap_err().to_string();
        assert!(error.contains("shared libraries"), "{error}");
        // Without the type of its segments it would need none.
        let mut program = fs::read(&app)?;
        let headers = usize::try_from(u64::from_le_bytes(program[32..40].try_into()?))?;
        for header in program[headers..headers + 56 * 16].chunks_mut(56) {
            header[0] = 0;
        }
        fs::write(&app, program)?;
        assert_eq!(pod_app(folder.path())?, app);
        Ok(())
    }
}
