//! Asks a peer of this folder: a question per line, an answer per line. Tests of several crates take this file in.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The answers of a program that `make peers` builds.
pub(crate) fn ask(peer: &str, questions: &[Value]) -> Vec<Value> {
    let folder = std::env::var_os("PODWIRE_PEERS").expect("PODWIRE_PEERS names the folder of the peers");
    let program = std::path::Path::new(&folder).join(peer);
    assert!(program.exists(), "{program:?} is missing: run `make peers`");
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = questions.iter().map(|question| format!("{question}\n")).collect();
    let writer = std::thread::Builder::new().name("questions".to_owned());
    let writer = writer.spawn(move || input.write_all(lines.as_bytes())).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the peer ended with {}", output.status);
    writer.join().unwrap().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), questions.len());
    answers
}
