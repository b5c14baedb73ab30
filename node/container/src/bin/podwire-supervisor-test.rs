//! The supervisor as an executable of its own, for tests of this crate.

use std::path::PathBuf;
use std::process::ExitCode;

use podwire_container::{SupervisorArgs, supervisor_main};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mut parsed = SupervisorArgs { socket: PathBuf::new(), state_dir: PathBuf::new(), cgroup: None };
    while let (Some(flag), Some(value)) = (args.next(), args.next()) {
        match flag.to_str() {
            Some("--socket") => parsed.socket = value.into(),
            Some("--state-dir") => parsed.state_dir = value.into(),
            Some("--cgroup") => parsed.cgroup = value.into_string().ok(),
            _ => return ExitCode::from(2),
        }
    }
    supervisor_main(parsed)
}
