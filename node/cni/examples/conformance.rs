//! `conformance BIN_DIR` runs the CNI conformance suite against the plugins of a folder and prints its report.

use std::io::Write;
use std::process::ExitCode;

fn main() -> std::io::Result<ExitCode> {
    let Some(dir) = std::env::args_os().nth(1) else {
        writeln!(std::io::stderr(), "usage: conformance BIN_DIR")?;
        return Ok(ExitCode::FAILURE);
    };
    let report = podwire_cni_lib::conformance::run(dir.as_ref());
    writeln!(std::io::stdout(), "{report}")?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
