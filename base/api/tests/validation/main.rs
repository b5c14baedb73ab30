//! Our validation beside upstream's: what clients are told about objects that are created and changed.
//!
//! The questions are in `cases/`, a file for each area; upstream's answers to all of them are kept in `recorded/`.
//! `make interop` asks `tests/peers/validation` whether they still hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[cfg(feature = "interop")]
#[path = "../../../../tests/peers/ask.rs"]
mod ask;
mod cases;
#[allow(dead_code, reason = "only some tests throw all kinds of dice")]
#[path = "../../../../tests/peers/dice.rs"]
mod dice;
mod ours;

use cases::Case;
use serde_json::{Value, json};

/// One area: its name, its questions and upstream's answers to them.
struct Area {
    name: &'static str,
    cases: &'static str,
    recorded: &'static str,
}

macro_rules! areas {
    ($($name:literal),*) => {
        &[$(Area {
            name: $name,
            cases: include_str!(concat!("cases/", $name, ".json")),
            recorded: include_str!(concat!("recorded/", $name, ".jsonl")),
        }),*]
    };
}

const AREAS: &[Area] = areas![
    "admission",
    "certificates",
    "classes",
    "config",
    "devices",
    "endpoints",
    "events",
    "flow",
    "ingress",
    "jobs",
    "network",
    "nodes",
    "policy",
    "rbac",
    "storage",
    "volumes",
    "workloads"
];

/// Lines of a record: what was asked in short, and the complaints.
fn lines(record: &str) -> Vec<(Value, Vec<String>)> {
    record.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn recorded_complaints_of_upstream_are_ours_too() {
    let (mut found, mut count) = (Vec::new(), 0);
    for area in AREAS {
        let (cases, record) = (cases::of(area.cases), lines(area.recorded));
        let asked: Vec<&Value> = record.iter().map(|(asked, _)| asked).collect();
        assert!(
            asked.iter().copied().eq(cases.iter().map(|case| &case.short)),
            "other questions are recorded for {}: see `make interop`",
            area.name
        );
        count += cases.len();
        for (case, (asked, theirs)) in cases.iter().zip(&record) {
            let ours = ours::complaints(case);
            if ours != *theirs {
                found.push(format!("{asked}\n  ours   {ours:#?}\n  theirs {theirs:#?}"));
            }
        }
    }
    assert!(found.is_empty(), "{} of {count} differ:\n{}", found.len(), found.join("\n"));
}

/// The question as `tests/peers/validation` reads it.
fn question(case: &Case) -> Value {
    json!({"resource": case.kind.resource, "part": case.part.map_or("", |(name, _)| name), "old": case.old, "new": case.new})
}

#[test]
fn every_question_can_be_asked() {
    for area in AREAS {
        for case in cases::of(area.cases) {
            assert!(question(&case)["new"].is_object(), "{}", case.short);
        }
    }
}

#[cfg(feature = "interop")]
mod interop {
    use super::*;
    use crate::ask::ask;

    fn upstream(questions: &[Value]) -> Vec<Value> {
        ask("validation", questions)
    }

    #[test]
    fn the_recorded_complaints_are_upstreams() {
        let mut stale = Vec::new();
        for area in AREAS {
            let cases = cases::of(area.cases);
            let answers = upstream(&cases.iter().map(question).collect::<Vec<_>>());
            let pairs = cases.iter().map(|case| &case.short).zip(answers);
            let fresh: String = pairs.map(|pair| format!("{}\n", json!(pair))).collect();
            if fresh != area.recorded {
                let place =
                    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.jsonl", area.name));
                std::fs::write(&place, &fresh).unwrap();
                stale.push(place);
            }
        }
        assert!(stale.is_empty(), "copy {stale:?} to base/api/tests/validation/recorded");
    }
}
