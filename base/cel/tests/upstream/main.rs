//! Our CEL beside upstream's: values, types, what is refused, and what it costs.
//!
//! The questions come from `cases`, our answers from `ours`. Upstream's answers to some of them are kept in `recorded.jsonl`;
//! `make interop` asks `tests/peers/cel` all of them, and whether the kept ones still hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(feature = "interop")]
#[path = "../../../../tests/peers/ask.rs"]
mod ask;
mod cases;
#[allow(dead_code, reason = "not every throw is used")]
#[path = "../../../../tests/peers/dice.rs"]
mod dice;
mod generate;
mod ours;

use serde_json::Value as Json;

/// One question with upstream's answer per line.
const RECORDED: &str = include_str!("recorded.jsonl");

/// What of an answer is compared: what is refused or fails may do so in other words.
fn essence(answer: &Json) -> Json {
    let mut answer = answer.clone();
    let fields = answer.as_object_mut().unwrap();
    fields.remove("why");
    // Over some errors upstream's count of the cost fails in turn, which ends the evaluation in the middle.
    if fields.get("failed").and_then(Json::as_str).is_some_and(|why| why.starts_with("internal error")) {
        return serde_json::json!({"failed": true});
    }
    if let Some(failed) = fields.get_mut("failed") {
        *failed = Json::Bool(true);
    }
    answer
}

/// What differs between our answers and upstream's; where upstream panics, any answer is better.
fn differences<'a>(pairs: impl Iterator<Item = (&'a Json, &'a Json)>) -> Vec<String> {
    pairs
        .filter(|(_, theirs)| theirs.get("panics").is_none())
        .filter_map(|(question, theirs)| {
            let ours = ours::answer(question);
            let (left, right) = (essence(&ours), essence(theirs));
            let left = if right.as_object().unwrap().len() == 1 && left["failed"] == true {
                right.clone()
            } else {
                left
            };
            (left != right).then(|| format!("{question}\n  ours   {ours}\n  theirs {theirs}"))
        })
        .collect()
}

fn assert_same<'a>(pairs: impl ExactSizeIterator<Item = (&'a Json, &'a Json)>) {
    let count = pairs.len();
    let found = differences(pairs);
    assert!(found.is_empty(), "{} of {count} differ:\n{}", found.len(), found.join("\n"));
}

#[test]
fn recorded_answers_of_upstream_are_ours_too() {
    let lines: Vec<(Json, Json)> = RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked: Vec<&Json> = lines.iter().map(|(question, _)| question).collect();
    assert!(asked.iter().copied().eq(&cases::fixed()), "other questions are recorded: see `make interop`");
    assert!(lines.len() >= 150, "{} are too few", lines.len());
    assert_same(lines.iter().map(|(question, answer)| (question, answer)));
}

#[test]
fn every_question_is_answered() {
    let questions = cases::all();
    assert!(questions.len() >= 6000, "{} are too few", questions.len());
    assert!(questions.iter().all(|question| ours::answer(question).is_object()));
}

#[cfg(feature = "interop")]
mod interop {
    use super::*;
    use crate::ask::ask;

    fn upstream(questions: &[Json]) -> Vec<Json> {
        ask("cel", questions)
    }

    #[test]
    fn generated_questions_get_upstreams_answers() {
        let questions = cases::all();
        let answers = upstream(&questions);
        assert_same(questions.iter().zip(&answers));
    }

    #[test]
    fn the_recorded_answers_are_what_upstream_says() {
        let questions = cases::fixed();
        let fresh: String = questions
            .iter()
            .zip(upstream(&questions))
            .map(|pair| format!("{}\n", serde_json::json!(pair)))
            .collect();
        let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded.jsonl");
        std::fs::write(&place, &fresh).unwrap();
        assert!(fresh == RECORDED, "copy {} to base/cel/tests/upstream", place.display());
    }
}
