//! Chores of the repository: `gen` writes generated code, `tidy` checks the laws of the tree,
//! `peers` builds the real peers, `vm` runs tests under another kernel.
//!
//! Not part of the product: nothing here is linked into `podwire`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

mod build;
mod demo;
mod fuzz;
mod gen_kinds;
#[cfg(feature = "proto")]
mod gen_proto;
mod lanes;
mod matrix;
mod peers;
mod tidy;
mod vm;

use std::{path::PathBuf, process::ExitCode};

const USAGE: &str = "usage: cargo xtask gen proto | gen kinds | tidy | test | demo | dist | bench | fuzz [TARGET...] [SECONDS] [-jJOBS] | interop [smoke] | takeover [COMMIT] | matrix [all|CELL] | peers [NAME...|smoke] | vm [debug] [hostile] [KERNEL...] [TEST...]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        #[cfg(feature = "proto")]
        ["gen", "proto"] => gen_proto::run(&root),
        ["gen", "kinds"] => gen_kinds::run(&root),
        ["demo"] => demo::run(&root),
        ["dist"] => lanes::dist(&root),
        ["test"] => lanes::test(&root),
        ["interop"] => lanes::interop(&root, ""),
        ["interop", "smoke"] => lanes::interop(&root, "smoke"),
        ["takeover"] => lanes::takeover(&root, lanes::VERSION_BEFORE),
        ["takeover", commit] => lanes::takeover(&root, commit),
        ["bench", rest @ ..] => lanes::bench(&root, rest),
        ["fuzz", rest @ ..] => fuzz::run(&root, rest),
        ["matrix", rest @ ..] => lanes::matrix(&root, rest),
        ["vm", rest @ ..] => vm::run(&root, rest),
        ["tidy"] => tidy::run(&root),
        ["peers", names @ ..] => peers::run(&root, &peers::default_folder(), names),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
