//! The supervisor's socket protocol: a hello, then frames of JSON with descriptors beside them.
//!
//! Hello, both ways: 8 bytes magic, u32 version (little endian). A side speaks to any version it
//! knows to be compatible; fields and operations are only ever added, unknown fields are ignored
//! and unknown operations are refused one by one. Frame: u32 length, u32 number of descriptors,
//! body. Requests carry `seq`, `op`, `arg`; answers `seq` and `ok` or `error`; events `event`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::RefusalKind;
use crate::plan::LaunchPlan;
use crate::request::{AttachRequest, Event, WindowSize};
use crate::supervisor::OciRuntimePlan;

/// First bytes of both directions.
pub(crate) const MAGIC: [u8; 8] = *b"PODWSUP\n";
/// Our version of the protocol.
pub(crate) const VERSION: u32 = 1;
/// The oldest version we can talk to.
pub(crate) const OLDEST: u32 = 1;
/// A longer frame ends the connection.
pub(crate) const MAX_FRAME: usize = 8 << 20;
/// More descriptors in one frame end the connection.
pub(crate) const MAX_FDS: usize = 16;
/// Bytes before each body.
pub(crate) const HEADER: usize = 8;
/// Bytes of a hello.
pub(crate) const HELLO: usize = 12;

/// Our side's hello.
pub(crate) fn hello() -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Reads the other side's hello.
pub(crate) fn parse_hello(bytes: [u8; HELLO]) -> Result<u32, String> {
    if bytes[..8] != MAGIC {
        return Err("it does not answer with our magic".to_owned());
    }
    let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if version < OLDEST {
        return Err(format!("it speaks version {version}, we need {OLDEST} or later"));
    }
    Ok(version)
}

/// A frame's header, or why the connection must end.
pub(crate) fn parse_header(bytes: [u8; HEADER]) -> Result<(usize, usize), String> {
    let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let fds = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
    if length > MAX_FRAME || fds > MAX_FDS {
        return Err(format!("a frame of {length} bytes and {fds} descriptors"));
    }
    Ok((length, fds))
}

/// Header and body of one frame.
pub(crate) fn frame(body: &[u8], fds: usize) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("frames are far below 4 GiB");
    let fds = u32::try_from(fds).expect("a handful of descriptors");
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&fds.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A request as the client writes it.
#[derive(Debug, Serialize)]
pub(crate) struct Request<'a, T> {
    pub(crate) seq: u64,
    pub(crate) op: &'a str,
    pub(crate) arg: &'a T,
}

/// A request as the supervisor reads it, the argument still undecoded.
#[derive(Debug, Deserialize)]
pub(crate) struct RawRequest {
    pub(crate) seq: u64,
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) arg: Option<Box<RawValue>>,
}

/// What the supervisor sends: an answer when `seq` is there, else an event.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outgoing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ok: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Refusal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event: Option<Box<RawValue>>,
}

impl Outgoing {
    /// An event for everybody connected.
    pub(crate) fn event(event: &Event) -> Self {
        let event = serde_json::value::to_raw_value(event).expect("events are plain data");
        Outgoing { seq: None, ok: None, error: None, event: Some(event) }
    }
}

/// A refusal on the wire.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) message: String,
}

/// Argument of `create`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CreateArg {
    pub(crate) id: String,
    pub(crate) plan: LaunchPlan,
    pub(crate) log_path: Option<String>,
    pub(crate) tty: Option<WindowSize>,
    pub(crate) stdin: bool,
    #[serde(default)]
    pub(crate) stdin_once: bool,
    pub(crate) oom_watch: bool,
    /// Only in `create-foreign`: who makes it.
    #[serde(rename = "foreign", default, skip_serializing_if = "Option::is_none")]
    pub(crate) oci_runtime: Option<OciRuntimePlan>,
}

/// Argument of operations on one container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct IdArg {
    pub(crate) id: String,
}

/// Argument of `signal`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SignalArg {
    pub(crate) id: String,
    pub(crate) signal: i32,
    #[serde(default)]
    pub(crate) all: bool,
    #[serde(default)]
    pub(crate) exec: Option<String>,
}

/// Argument of `exec`. What is `None` is the container's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ExecArg {
    pub(crate) id: String,
    pub(crate) exec_id: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) cwd: Option<String>,
    pub(crate) user: Option<(u32, u32, Vec<u32>)>,
    pub(crate) caps: Option<crate::plan::CapabilityPlan>,
    pub(crate) tty: Option<WindowSize>,
    pub(crate) stdin: bool,
    /// For a container of an OCI runtime: the whole process in the runtime specification's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<String>,
}

/// Argument of `attach`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AttachArg {
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) streams: AttachRequest,
}

/// Argument of `adopt`: descriptors that a daemon held travel beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AdoptArg {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) fds: Vec<FdRole>,
}

/// Argument of `upgrade`: the program to become.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UpgradeArg {
    pub(crate) exe: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
}

/// Argument of `resize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ResizeArg {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) exec: Option<String>,
    pub(crate) size: WindowSize,
}

/// Answer of `create` and `exec`: a process and which of its descriptors travel beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProcessReply {
    pub(crate) pid: u32,
    #[serde(default)]
    pub(crate) fds: Vec<FdRole>,
}

/// Answer of `attach`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FdsReply {
    #[serde(default)]
    pub(crate) fds: Vec<FdRole>,
}

/// What a descriptor that travels with an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FdRole {
    Stdin,
    Stdout,
    Stderr,
    Pidfd,
    #[serde(other)]
    Unknown,
}
