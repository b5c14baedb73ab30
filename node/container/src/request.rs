//! What a caller asks of the supervisor and what it gets back.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use oci_spec::runtime::{LinuxCapabilities, Spec};
use podwire_linux::mount::Handing;
use serde::{Deserialize, Serialize};

/// Where the supervisor listens and how it is started when none is there.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// Executable that runs `supervisor_main`.
    pub exe: PathBuf,
    /// Arguments before ours, for example `["supervisor"]`.
    pub exe_args: Vec<OsString>,
    /// Unix socket of the supervisor.
    pub socket: PathBuf,
    /// Folder of its journal and its log file.
    pub state_dir: PathBuf,
    /// A cgroup of its own in every hierarchy, relative to the cgroup root.
    pub cgroup: Option<String>,
}

/// One container to be made; it waits for [`crate::Supervisor::start`].
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// Unique name of the container.
    pub id: String,
    /// The OCI runtime specification.
    pub spec: Spec,
    /// What becomes its `/`.
    pub rootfs: Rootfs,
    /// File for its output in CRI log format; `None` discards the output.
    pub log_path: Option<PathBuf>,
    /// Give it a terminal.
    pub tty: bool,
    /// Keep a stdin open for attach; otherwise stdin is `/dev/null`.
    pub stdin: bool,
    /// Close stdin when the first attach session that had it ends.
    pub stdin_once: bool,
    /// Report whether the kernel killed something in it for want of memory.
    pub oom_watch: bool,
    /// Folder with `config.json`, which hooks of the spec are told.
    pub bundle: Option<PathBuf>,
}

/// One container to be made by an OCI runtime program; it waits for [`crate::Supervisor::start`].
#[derive(Debug, Clone)]
pub struct OciRuntimeRequest {
    /// Unique name of the container.
    pub id: String,
    /// What the bundle's `config.json` says.
    pub spec: Spec,
    /// The program.
    pub runtime: PathBuf,
    /// Where the program keeps its own state.
    pub root: PathBuf,
    /// Folder with `config.json` and the root file system.
    pub bundle: PathBuf,
    /// File for its output in CRI log format; `None` discards the output.
    pub log_path: Option<PathBuf>,
    /// Give it a terminal.
    pub tty: bool,
    /// Keep a stdin open for attach; otherwise stdin is `/dev/null`.
    pub stdin: bool,
    /// Close stdin when the first attach session that had it ends.
    pub stdin_once: bool,
}

/// The root file system of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rootfs {
    /// Layers under a private upper folder.
    Overlay {
        /// Unpacked layers, top first.
        lower: Vec<PathBuf>,
        /// Folder that takes the container's writes.
        upper: PathBuf,
        /// Overlay's work folder beside `upper`.
        work: PathBuf,
        /// Mount `/` read-only.
        readonly: bool,
        /// The newest way of telling the kernel that is tried; older ones follow by themselves.
        #[serde(default, skip_serializing_if = "Handing::is_newest")]
        newest: Handing,
    },
    /// A plain folder.
    Bind {
        /// The folder.
        path: PathBuf,
        /// Mount `/` read-only.
        readonly: bool,
    },
}

/// A created container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Process id of its init as the host sees it.
    pub pid: u32,
}

/// When a container's process was let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedAt {
    /// Nanoseconds since the Unix epoch.
    pub at: u64,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// One more process in a running container.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// The container.
    pub container: String,
    /// Chosen by the caller, unique within the container. Register interest before the call: the
    /// exit event can arrive before [`crate::Supervisor::exec`] returns.
    pub exec_id: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `NAME=value`; `None` takes the container's environment.
    pub env: Option<Vec<String>>,
    /// Working folder; `None` takes the container's.
    pub cwd: Option<PathBuf>,
    /// User, group and supplementary groups; `None` takes the container's.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Capabilities; `None` takes the container's.
    pub caps: Option<LinuxCapabilities>,
    /// Give it a terminal of this size.
    pub tty: Option<WindowSize>,
    /// Give it a stdin; otherwise `/dev/null`.
    pub stdin: bool,
    /// For a container of an OCI runtime: the whole process in the specification's words, as JSON.
    pub process: Option<String>,
}

/// A running exec; its exit arrives as [`Event::ExecExited`].
#[derive(Debug)]
pub struct ExecHandle {
    /// Process id as the host sees it.
    pub pid: u32,
    /// Write end of stdin (with a terminal: its master).
    pub stdin: Option<OwnedFd>,
    /// Read end of stdout (with a terminal: its master).
    pub stdout: Option<OwnedFd>,
    /// Read end of stderr; `None` with a terminal.
    pub stderr: Option<OwnedFd>,
}

/// Which streams of a running container an attach session wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRequest {
    /// Hand out the write end of stdin.
    pub stdin: bool,
    /// Copy stdout (with a terminal: everything).
    pub stdout: bool,
    /// Copy stderr.
    pub stderr: bool,
}

/// Ends of an attach session. Output starts at the moment of the call.
#[derive(Debug)]
pub struct AttachHandle {
    /// Write end of the container's stdin (with a terminal: its master), if it has one.
    pub stdin: Option<OwnedFd>,
    /// Copy of stdout from now on.
    pub stdout: Option<OwnedFd>,
    /// Copy of stderr from now on.
    pub stderr: Option<OwnedFd>,
}

/// What the supervisor knows of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerState {
    /// Its name.
    pub id: String,
    /// Process id of its init.
    pub pid: u32,
    /// Where it is in its life.
    pub status: ContainerStatus,
    /// When its process was let go, in nanoseconds since the epoch.
    #[serde(default)]
    pub started_at: Option<u64>,
    /// Execs that run, or whose exit nobody has heard yet.
    #[serde(default)]
    pub execs: Vec<ExecState>,
}

/// The life of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerStatus {
    /// Set up, waiting for start.
    Created,
    /// Its process runs.
    Running,
    /// Its process has ended.
    Exited {
        /// Exit code; 128 + signal when a signal ended it; 255 when nobody can know.
        code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
        /// The kernel killed something in it for want of memory.
        oom: bool,
        /// Nanoseconds since the Unix epoch.
        finished_at: u64,
    },
}

/// What the supervisor knows of an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecState {
    /// The caller's name for it.
    pub exec_id: String,
    /// Its process id.
    pub pid: u32,
    /// Its exit code once it has ended.
    pub exit_code: Option<i32>,
}

/// Something that happened without being asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Event {
    /// A container's init has ended.
    Exited {
        /// The container.
        id: String,
        /// Exit code; 128 + signal when a signal ended it.
        code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
        /// The kernel killed something in it for want of memory.
        oom: bool,
        /// Nanoseconds since the Unix epoch.
        at: u64,
    },
    /// An exec has ended.
    ExecExited {
        /// The container.
        container: String,
        /// The caller's name for the exec.
        exec_id: String,
        /// Exit code; 128 + signal when a signal ended it.
        code: i32,
    },
    /// The connection to the supervisor is gone: connect again.
    Disconnected,
}
