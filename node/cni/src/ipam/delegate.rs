//! The call of an IPAM plugin by an interface plugin: in process when it is ours, executed when somebody else's binary
//! is on the path.

use serde_json::Value;

use crate::plugins;
use crate::plugins::exec;
use crate::spec::error::CniError;
use crate::spec::request::{Command, Request};
use crate::spec::result::CniResult;
use crate::traced;

/// The plugin named by `ipam.type`; `None` is layer 2 without addresses.
pub fn kind(request: &Request) -> Result<Option<String>, CniError> {
    Ok(request.object()?.object("ipam")?.text("type")?.map(str::to_owned))
}

fn call(kind: &str, request: &Request) -> Result<Option<Value>, CniError> {
    traced::ipam(kind, request, || {
        if plugins::is_ipam(kind) && !exec::is_shadowed(kind, &request.path) {
            return plugins::run_delegate(kind, request);
        }
        exec::run(kind, request, exec::DEFAULT_TIMEOUT)
    })
}

/// Asks for addresses.
pub fn add(kind: &str, request: &Request) -> Result<CniResult, CniError> {
    let value = call(kind, &request.with_command(Command::Add))?
        .ok_or_else(|| CniError::internal(format!("IPAM plugin {kind} printed no result")))?;
    CniResult::parse(&value, request.version()?)
}

/// Gives addresses back.
pub fn del(kind: &str, request: &Request) -> Result<(), CniError> {
    call(kind, &request.with_command(Command::Del)).map(|_| ())
}

/// Passes CHECK, GC or STATUS on.
pub fn forward(kind: &str, request: &Request) -> Result<(), CniError> {
    call(kind, request).map(|_| ())
}
