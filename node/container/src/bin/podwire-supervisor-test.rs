//! The supervisor as an executable of its own, for tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    podwire_container::supervisor_main(std::env::args_os().skip(1).collect())
}
