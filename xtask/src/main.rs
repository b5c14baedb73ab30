//! Chores of the repository: `gen` writes generated code, `tidy` checks the laws of the tree.
//!
//! Not part of the product: nothing here is linked into `podwire`.
#![allow(clippy::print_stdout, clippy::print_stderr, missing_docs, unreachable_pub)]

mod gen_proto;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["gen", "proto"] => gen_proto::run(&root),
        ["tidy"] => tidy::run(&root),
        _ => {
            eprintln!("usage: cargo xtask gen proto | tidy");
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
