//! Our allocator of devices beside upstream's: the same devices in the same order, the same configuration, the same errors.
//!
//! The questions are written (`written`) or made up (`generated`), our answers come from `ours`. Upstream's answers to some of
//! them are kept in `recorded.jsonl`; `make interop` asks `tests/peers/allocator`, which is upstream's structured allocator, all
//! of them, and whether the kept ones still hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(feature = "interop")]
#[path = "../../../../tests/peers/ask.rs"]
mod ask;
#[allow(dead_code, reason = "not every throw is used")]
#[path = "../../../../tests/peers/dice.rs"]
mod dice;
mod generated;
mod ours;
mod scene;
mod written;

use serde_json::{Value, json};

/// One question with upstream's answer per line.
const RECORDED: &str = include_str!("recorded.jsonl");
/// Every so manieth written question is recorded, and so many of the generated ones.
const RECORDED_WRITTEN: usize = 9;
const RECORDED_GENERATED: usize = 60;
const GENERATED: usize = 10_000;

fn fixed() -> Vec<Value> {
    let mut questions: Vec<Value> = written::all().into_iter().step_by(RECORDED_WRITTEN).collect();
    questions.extend(generated::some(RECORDED_GENERATED));
    questions
}

/// An answer without what may differ: the texts of CEL and of Go's types, empty lists and maps, and how long a search took that
/// failed.
fn comparable(answer: &Value) -> Value {
    let text = answer["error"].as_str().unwrap_or_default();
    let marks = [
        "CEL compile error",
        "CEL runtime error",
        "failed to perform node selection",
        "failed to parse node selector",
    ];
    let error = match marks.iter().find_map(|mark| Some(text.find(mark)? + mark.len())) {
        Some(end) => &text[..end],
        None => text,
    };
    let steps = if text.is_empty() { answer["steps"].clone() } else { Value::Null };
    json!({
        "allocated": answer["results"].is_array(),
        "results": pruned(&answer["results"]),
        "error": error,
        "node": answer["node"].as_bool().unwrap_or_default(),
        "steps": steps,
    })
}

fn pruned(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(pruned).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), pruned(value)));
            let empty = |value: &Value| {
                value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(serde_json::Map::is_empty)
            };
            fields.filter(|(_, value)| !empty(value)).collect()
        }
        other => other.clone(),
    }
}

fn assert_same<'a>(pairs: impl ExactSizeIterator<Item = (&'a Value, &'a Value)>) {
    let count = pairs.len();
    let found: Vec<String> = pairs
        .filter_map(|(question, theirs)| {
            let (ours, theirs) = (comparable(&ours::answer(question)), comparable(theirs));
            (ours != theirs).then(|| format!("{question}\n  ours   {ours}\n  theirs {theirs}"))
        })
        .collect();
    let some = found.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "{} of {count} differ:\n{some}", found.len());
}

#[test]
fn recorded_answers_of_upstreams_allocator_are_ours_too() {
    let lines: Vec<(Value, Value)> =
        RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked: Vec<&Value> = lines.iter().map(|(question, _)| question).collect();
    assert!(asked.iter().copied().eq(&fixed()), "other questions are recorded: see `make interop`");
    assert!(lines.len() >= 200, "{} are too few", lines.len());
    assert_same(lines.iter().map(|(question, answer)| (question, answer)));
}

#[test]
fn there_are_enough_written_questions_with_every_outcome() {
    let questions = written::all();
    assert!(questions.len() >= 500, "{} are too few", questions.len());
    let answers: Vec<Value> = questions.iter().map(ours::answer).collect();
    let allocated = answers.iter().filter(|answer| answer["results"].is_array()).count();
    let refused = answers.iter().filter(|answer| answer.get("error").is_some()).count();
    println!("{} questions: {allocated} allocated, {refused} refused", questions.len());
    assert!(allocated >= 200 && refused >= 100 && questions.len() - allocated - refused >= 200);
}

#[test]
fn each_feature_is_allocated_in_some_generated_questions_and_not_in_others() {
    let questions = generated::some(GENERATED / 5);
    let outcomes: Vec<(String, Value)> =
        questions.iter().map(|question| (question.to_string(), ours::answer(question))).collect();
    for (feature, mark) in generated::FEATURES {
        let with = || outcomes.iter().filter(|(question, _)| question.contains(mark));
        let allocated = with().filter(|(_, answer)| answer["results"].is_array()).count();
        let refused = with().filter(|(_, answer)| answer.get("error").is_some()).count();
        let not = with().count() - allocated - refused;
        println!("{feature}: {allocated} allocated, {not} not, {refused} refused");
        assert!(allocated >= 20 && not >= 20 && refused >= 20, "{feature}: {allocated}, {not}, {refused}");
    }
    for part in generated::IN_ANSWERS {
        let count = outcomes.iter().filter(|(_, answer)| answer.to_string().contains(part)).count();
        println!("{count} answers hold {part}");
        assert!(count >= 2, "{count} answers hold {part}");
    }
}

#[test]
fn shares_have_names_of_their_own() {
    let shares = written::all().iter().map(ours::share_ids).max_by_key(Vec::len).unwrap();
    assert!(shares.len() >= 3);
    let different: std::collections::BTreeSet<&String> = shares.iter().collect();
    assert_eq!(different.len(), shares.len());
}

#[cfg(feature = "interop")]
mod interop {
    use super::*;

    #[test]
    fn written_questions_get_the_answers_of_upstreams_allocator() {
        let questions = written::all();
        let answers = ask::ask("allocator", &questions);
        assert_same(questions.iter().zip(&answers));
    }

    #[test]
    fn generated_questions_get_the_answers_of_upstreams_allocator() {
        let questions = generated::some(GENERATED);
        let answers = ask::ask("allocator", &questions);
        assert_same(questions.iter().zip(&answers));
    }

    #[test]
    fn the_recorded_answers_are_what_upstreams_allocator_says() {
        let questions = fixed();
        let fresh: String = questions
            .iter()
            .zip(ask::ask("allocator", &questions))
            .map(|pair| format!("{}\n", json!(pair)))
            .collect();
        let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("allocator-recorded.jsonl");
        std::fs::write(&place, &fresh).unwrap();
        assert!(
            fresh == RECORDED,
            "copy {} to control/scheduler/tests/allocator/recorded.jsonl",
            place.display()
        );
    }
}
