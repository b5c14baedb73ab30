//! The journal's rows: what is known of a sandbox and of a container, in two parts each (what never changes, what does).
//!
//! Field numbers are a format on disk: append, never reuse.

use podwire_wire::cri;

/// One journal row.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Row {
    #[prost(oneof = "row::Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub(crate) kind: Option<row::Kind>,
}

/// The kinds of rows.
pub(crate) mod row {
    use super::{ContainerRow, ContainerStateRow, SandboxRow, SandboxStateRow};

    /// What a row says.
    #[expect(clippy::large_enum_variant, reason = "rows are short-lived and prost does not box")]
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(crate) enum Kind {
        #[prost(message, tag = "1")]
        Sandbox(SandboxRow),
        #[prost(message, tag = "2")]
        SandboxState(SandboxStateRow),
        #[prost(string, tag = "3")]
        SandboxGone(String),
        #[prost(message, tag = "4")]
        Container(ContainerRow),
        #[prost(message, tag = "5")]
        ContainerState(ContainerStateRow),
        #[prost(string, tag = "6")]
        ContainerGone(String),
    }
}

/// A sandbox as it was asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SandboxRow {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<cri::PodSandboxConfig>,
    #[prost(string, tag = "3")]
    pub(crate) handler: String,
    #[prost(int64, tag = "4")]
    pub(crate) created_at: i64,
}

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SandboxPhase {
    /// Being made; whatever exists of it must be taken down after a crash.
    Creating = 0,
    /// Usable.
    Ready = 1,
    /// Stopped; its network and namespaces are gone or going.
    NotReady = 2,
}

/// What changes in a sandbox.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SandboxStateRow {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(enumeration = "SandboxPhase", tag = "2")]
    pub(crate) phase: i32,
    #[prost(string, repeated, tag = "3")]
    pub(crate) ips: Vec<String>,
    /// The CNI result as JSON; empty if the network was never attached.
    #[prost(string, tag = "4")]
    pub(crate) cni_result: String,
    /// The network was detached.
    #[prost(bool, tag = "5")]
    pub(crate) detached: bool,
    /// Process 1 of the shared PID namespace; zero without one.
    #[prost(int32, tag = "6")]
    pub(crate) reaper_pid: i32,
    #[prost(message, optional, tag = "7")]
    pub(crate) overhead: Option<cri::LinuxContainerResources>,
    #[prost(message, optional, tag = "8")]
    pub(crate) resources: Option<cri::LinuxContainerResources>,
    /// Devices of the node that its containers were given.
    #[prost(message, repeated, tag = "9")]
    pub(crate) net_devices: Vec<MovedDevice>,
    /// While it is being made: there are plugins that may have been told of it.
    #[prost(bool, tag = "10")]
    pub(crate) plugins_told: bool,
}

/// A network device of the node in a pod.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MovedDevice {
    /// What the node calls it.
    #[prost(string, tag = "1")]
    pub(crate) host: String,
    /// What it is called in the pod.
    #[prost(string, tag = "2")]
    pub(crate) inside: String,
    /// It was up before.
    #[prost(bool, tag = "3")]
    pub(crate) up: bool,
    /// Its lasting addresses, with their prefix lengths.
    #[prost(string, repeated, tag = "4")]
    pub(crate) addresses: Vec<String>,
}

/// A container as it was asked for and planned.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerRow {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) config: Option<cri::ContainerConfig>,
    #[prost(int64, tag = "4")]
    pub(crate) created_at: i64,
    #[prost(string, tag = "5")]
    pub(crate) image_id: String,
    #[prost(string, tag = "6")]
    pub(crate) image_ref: String,
    /// The OCI spec as JSON, without a seccomp profile that `default_seccomp` names.
    #[prost(string, tag = "7")]
    pub(crate) spec: String,
    #[prost(string, repeated, tag = "8")]
    pub(crate) lower: Vec<String>,
    #[prost(string, tag = "9")]
    pub(crate) upper: String,
    #[prost(string, tag = "10")]
    pub(crate) work: String,
    #[prost(string, tag = "11")]
    pub(crate) log_path: String,
    #[prost(int32, tag = "12")]
    pub(crate) stop_signal: i32,
    #[prost(bool, tag = "13")]
    pub(crate) default_seccomp: bool,
    #[prost(message, repeated, tag = "14")]
    pub(crate) mounts: Vec<cri::Mount>,
    #[prost(message, optional, tag = "15")]
    pub(crate) user: Option<cri::LinuxContainerUser>,
    /// Snapshots of image volumes, to be discarded with the container.
    #[prost(string, repeated, tag = "16")]
    pub(crate) image_volumes: Vec<String>,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ContainerPhase {
    /// Planned; no process.
    Created = 0,
    /// Being started; a crash now may have left a process.
    Starting = 1,
    /// Its process runs.
    Running = 2,
    /// Its process ended.
    Exited = 3,
}

/// What changes in a container.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerStateRow {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(enumeration = "ContainerPhase", tag = "2")]
    pub(crate) phase: i32,
    #[prost(int32, tag = "3")]
    pub(crate) pid: i32,
    #[prost(int64, tag = "4")]
    pub(crate) started_at: i64,
    #[prost(int64, tag = "5")]
    pub(crate) finished_at: i64,
    #[prost(int32, tag = "6")]
    pub(crate) exit_code: i32,
    #[prost(string, tag = "7")]
    pub(crate) reason: String,
    #[prost(string, tag = "8")]
    pub(crate) message: String,
    #[prost(bool, tag = "9")]
    pub(crate) removing: bool,
    #[prost(message, optional, tag = "10")]
    pub(crate) resources: Option<cri::LinuxContainerResources>,
}
