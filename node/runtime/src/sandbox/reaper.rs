//! Process 1 of a pod whose containers share their processes. Made when the first container needs it.

use std::path::PathBuf;

use podwire_container::plan::{Join, NamespaceKind, ReaperRequest};

use crate::{context::Context, error::OpError, model::Sandbox};

/// The pod's PID namespace; its process 1 is started if there is none yet. Blocks.
pub(crate) fn namespace(ctx: &Context, sandbox: &Sandbox) -> Result<PathBuf, OpError> {
    let _one = sandbox.reaper.lock().expect("no panic while starting process 1");
    let known = sandbox.state().reaper_pid;
    if known != 0 {
        return Ok(path(known));
    }
    let cgroup = format!("{}/{}", ctx.cgroup_parent(&sandbox.config), sandbox.id);
    // The namespace must belong to the pod's users, or they could not mount its /proc.
    let user = sandbox.user_namespace().and_then(|users| users.path);
    let join = user
        .into_iter()
        .map(|path| Join { kind: NamespaceKind::User, path: path.to_string_lossy().into_owned() });
    let join = join.collect();
    let request = ReaperRequest { id: sandbox.id.to_string(), cgroup: Some(cgroup), join };
    let made = ctx
        .supervision
        .supervisor()
        .create_reaper(request)
        .map_err(OpError::failed("start the pod's process 1"))?;
    let pid = i32::try_from(made.pid).map_err(OpError::failed("read the process id"))?;
    // It runs whether or not a row says so.
    sandbox.settle(&ctx.journal, |state| state.reaper_pid = pid);
    Ok(path(pid))
}

fn path(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/ns/pid"))
}
