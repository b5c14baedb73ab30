//! Our topology manager beside upstream's: what is configured, how hints merge, which devices pods get.
//!
//! The questions come from `cases`, our answers from `ours`. Upstream's answers to some of them are kept in
//! `recorded.jsonl`; `make interop` asks `tests/peers/topology`, which is upstream's topology manager and device manager, all
//! of them, and whether the kept ones still hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(feature = "interop")]
#[path = "../../../../tests/peers/ask.rs"]
mod ask;
mod cases;
#[allow(dead_code, reason = "not every throw is used")]
#[path = "../../../../tests/peers/dice.rs"]
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
    use super::*;

    #[test]
    fn generated_questions_get_the_answers_of_upstreams_topology_manager() {
        let questions = cases::all();
        let answers = ask::ask("topology", &questions);
        assert_same(questions.iter().zip(&answers));
    }

    #[test]
    fn the_recorded_answers_are_what_upstreams_topology_manager_says() {
        let questions = cases::fixed();
        let fresh: String = questions
            .iter()
            .zip(ask::ask("topology", &questions))
            .map(|pair| format!("{}\n", serde_json::json!(pair)))
            .collect();
        let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("topology-recorded.jsonl");
        std::fs::write(&place, &fresh).unwrap();
        assert!(fresh == RECORDED, "copy {} to node/kubelet/tests/topology/recorded.jsonl", place.display());
    }
}
