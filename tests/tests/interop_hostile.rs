//! The hostile calls of CRI against ours and against containerd: ours must pass each, what differs is told.
//!
//! `PODWIRE_HOSTILE_REPORT=file` writes the two columns; docs/security.md keeps them.
#![cfg(feature = "interop")]
#![allow(clippy::print_stdout, reason = "what differs belongs into the log of the run")]
#![allow(unreachable_pub, dead_code)] // The files are shared with the hostile suite, which uses all of them.

#[path = "../hostile/cri.rs"]
mod cri;
#[path = "../hostile/on_runtime.rs"]
mod on_runtime;
#[path = "../hostile/processes.rs"]
mod processes;
#[path = "../hostile/row.rs"]
mod row;

use anyhow::Result;

use self::{
    on_runtime::OnRuntime,
    row::{World, compared, report, settle, verdicts},
};

#[test]
fn hostile_calls_beside_containerd() -> Result<()> {
    let (ours, end) = verdicts("CRI calls on ours", cri::ROWS, OnRuntime::make)?;
    // Whatever of containerd is left is taken away with its folder; it is not judged here.
    let (theirs, _) =
        verdicts("CRI calls on containerd", cri::ROWS, || OnRuntime::with(|bed| bed.containerd(false)))?;
    let table = compared(["ours", "containerd"], &ours, &theirs);
    println!("{table}");
    report("CRI calls beside containerd", &table)?;
    settle("CRI calls", &ours, end)
}
