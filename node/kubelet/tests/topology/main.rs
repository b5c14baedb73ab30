//! Our topology manager beside upstream's: what is configured, how hints merge, which devices pods get.
//!
//! The questions come from `cases`, our answers from `ours`. Upstream's answers to some of them are kept in
//! `recorded.jsonl`; `make interop` asks `tests/peers/topology`, which is upstream's topology manager and device manager, all
//! of them, and whether the kept ones still hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod cases;
mod dice;
mod ours;

use serde_json::Value;

/// One question with upstream's answer per line.
const RECORDED: &str = include_str!("recorded.jsonl");

/// What differs between our answers and upstream's.
fn differences<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Vec<String> {
    pairs
        .filter_map(|(question, theirs)| {
            let ours = ours::answer(question);
            (ours != *theirs).then(|| format!("{question}\n  ours   {ours}\n  theirs {theirs}"))
        })
        .collect()
}

fn assert_same<'a>(pairs: impl ExactSizeIterator<Item = (&'a Value, &'a Value)>) {
    let count = pairs.len();
    let found = differences(pairs);
    assert!(found.is_empty(), "{} of {count} differ:\n{}", found.len(), found.join("\n"));
}

#[test]
fn recorded_answers_of_upstreams_topology_manager_are_ours_too() {
    let lines: Vec<(Value, Value)> =
        RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked: Vec<&Value> = lines.iter().map(|(question, _)| question).collect();
    assert!(asked.iter().copied().eq(&cases::fixed()), "other questions are recorded: see `make interop`");
    assert!(lines.len() >= 150, "{} are too few", lines.len());
    assert_same(lines.iter().map(|(question, answer)| (question, answer)));
}

#[test]
fn every_question_of_topology_is_answered_and_some_pods_are_refused() {
    let questions = cases::all();
    assert!(questions.len() >= 2000, "{} are too few", questions.len());
    let answers: Vec<String> = questions.iter().map(|question| ours::answer(question).to_string()).collect();
    for part in
        ["TopologyAffinityError", "UnexpectedAdmissionError", "\"devices\"", "\"admit\":false", "\"error\""]
    {
        let count = answers.iter().filter(|answer| answer.contains(part)).count();
        assert!(count >= 20, "{count} answers hold {part}");
    }
}

#[cfg(feature = "interop")]
mod interop {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// Upstream's answers, by the program that `make peers` builds.
    fn upstream(questions: &[Value]) -> Vec<Value> {
        let folder = std::env::var_os("PODWIRE_PEERS").expect("PODWIRE_PEERS names the folder of the peers");
        let program = std::path::Path::new(&folder).join("topology");
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

    #[test]
    fn generated_questions_get_the_answers_of_upstreams_topology_manager() {
        let questions = cases::all();
        let answers = upstream(&questions);
        assert_same(questions.iter().zip(&answers));
    }

    #[test]
    fn the_recorded_answers_are_what_upstreams_topology_manager_says() {
        let questions = cases::fixed();
        let fresh: String = questions
            .iter()
            .zip(upstream(&questions))
            .map(|pair| format!("{}\n", serde_json::json!(pair)))
            .collect();
        let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("topology-recorded.jsonl");
        std::fs::write(&place, &fresh).unwrap();
        assert!(fresh == RECORDED, "copy {} to node/kubelet/tests/topology/recorded.jsonl", place.display());
    }
}
