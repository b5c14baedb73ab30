//! Generated clusters, and a pod in each: upstream's own scheduler framework and ours are asked about the same objects.
//!
//! The same nodes must fit, for the same reasons; every plugin must score every node alike; and the same pods must have to
//! go where room can be made. The peer is `tests/peers/scheduler`. What is not compared, because upstream leaves it to
//! chance: which of several equal nodes is chosen.

#![cfg(feature = "interop")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../../tests/peers/ask.rs"]
mod ask;
mod cases;
mod claims;
#[path = "../../../../tests/peers/dice.rs"]
#[allow(dead_code, reason = "other tests take other parts of it")]
mod dice;

use std::collections::BTreeMap;

use podwire_scheduler::Configuration;
use podwire_scheduler::explain::{Explainer, Explanation, Objection};
use serde_json::{Value, json};

fn ours(question: &Value) -> Explanation {
    let mut explainer = Explainer::new(&Configuration::default());
    for object in question["objects"].as_array().unwrap() {
        assert!(explainer.add(object).unwrap(), "{object}");
    }
    explainer.explain(&question["pod"]).unwrap().unwrap()
}

fn objection(one: &Objection) -> Value {
    let mut reasons = one.reasons.clone();
    reasons.sort();
    json!({"plugin": one.plugin, "reasons": reasons, "resolvable": one.resolvable})
}

/// Upstream names extended resources in the order of a map.
fn sorted(refusal: &Value) -> Value {
    let mut refusal = refusal.clone();
    if let Some(reasons) = refusal.get_mut("reasons").and_then(Value::as_array_mut) {
        reasons.sort_by_key(|reason| reason.as_str().unwrap_or_default().to_owned());
    }
    refusal
}

fn map(value: &Value) -> BTreeMap<String, Value> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What a plugin said, without its name.
fn after_the_plugin(error: &str) -> &str {
    error
        .split_once("plugin: ")
        .or_else(|| error.split_once("\"DynamicResources\": "))
        .map_or(error, |(_, text)| text)
}

/// Scores that are not 0: a plugin that has no opinion is not named by either.
fn scores(of_node: &Value) -> BTreeMap<String, i64> {
    let all = of_node.as_object().into_iter().flatten();
    all.filter_map(|(name, score)| Some((name.clone(), score.as_i64().filter(|score| *score != 0)?)))
        .collect()
}

/// What differs.
fn differences(theirs: &Value, ours: &Explanation) -> Vec<String> {
    let mut out = Vec::new();
    let mut compare = |what: &str, theirs: String, ours: String| {
        if theirs != ours {
            out.push(format!("{what}:\n  upstream {theirs}\n  ours     {ours}"));
        }
    };
    if let Some(error) = theirs["error"].as_str() {
        let (error, own) = (after_the_plugin(error), ours.broken.as_deref().unwrap_or_default());
        return if error == own {
            Vec::new()
        } else {
            vec![format!("upstream failed: {error}\n  ours     {own}")]
        };
    }
    compare("broken", String::new(), ours.broken.clone().unwrap_or_default());
    let everywhere = ours.everywhere.as_ref().map_or(Value::Null, objection);
    compare("everywhere", sorted(&theirs["everywhere"]).to_string(), everywhere.to_string());
    let only = ours.only.as_ref().map_or(Value::Null, |only| json!(only));
    compare("only", theirs["only"].to_string(), only.to_string());
    let refused: BTreeMap<_, _> =
        map(&theirs["refused"]).iter().map(|(name, one)| (name.clone(), sorted(one))).collect();
    let our_refused: BTreeMap<_, _> =
        ours.refused.iter().map(|(name, all)| (name.clone(), objection(&all[0]))).collect();
    compare("refused", format!("{refused:?}"), format!("{our_refused:?}"));
    let their_scores: BTreeMap<_, _> =
        map(&theirs["scores"]).iter().map(|(name, one)| (name.clone(), scores(one))).collect();
    let our_scores: BTreeMap<_, _> =
        ours.scores.iter().map(|(name, one)| (name.clone(), scores(&json!(one)))).collect();
    compare("scores", format!("{their_scores:?}"), format!("{our_scores:?}"));
    compare("message", theirs["message"].as_str().unwrap_or_default().to_owned(), ours.message.clone());
    let ineligible = theirs["ineligible"].as_str().unwrap_or_default();
    compare("ineligible", ineligible.to_owned(), ours.ineligible.unwrap_or_default().to_owned());
    let room: BTreeMap<_, _> = map(&theirs["candidates"]).into_iter().collect();
    let own_room: BTreeMap<_, _> = ours
        .candidates
        .iter()
        .map(|(name, room)| {
            let victims: Vec<_> = room.victims.iter().map(|one| one.split_once('/').unwrap().1).collect();
            (name.clone(), json!({"victims": victims, "violations": room.violations}))
        })
        .collect();
    compare("candidates", format!("{room:?}"), format!("{own_room:?}"));
    let unhelped: BTreeMap<_, _> = map(&theirs["unhelped"])
        .iter()
        .map(|(name, one)| (name.clone(), json!(sorted(one)["reasons"])))
        .collect();
    let own_unhelped: BTreeMap<_, _> =
        ours.unhelped.iter().map(|(name, one)| (name.clone(), objection(one)["reasons"].clone())).collect();
    compare("unhelped", format!("{unhelped:?}"), format!("{own_unhelped:?}"));
    let chosen = theirs["chosen"].as_str().unwrap_or_default();
    if !chosen.is_empty() && !ours.best_room.contains(chosen) {
        out.push(format!("chosen: upstream {chosen}, ours one of {:?}", ours.best_room));
    }
    out
}

#[test]
fn upstreams_scheduler_decides_the_same_about_every_generated_cluster() {
    let questions = cases::all();
    let answers = ask::ask("scheduler", &questions);
    let mut wrong = 0;
    let (mut fits, mut fits_nowhere, mut preempts, mut nowhere) = (0, 0, 0, 0);
    let mut plugins: BTreeMap<String, usize> = BTreeMap::new();
    for (at, (question, theirs)) in questions.iter().zip(&answers).enumerate() {
        let ours = ours(question);
        let found = differences(theirs, &ours);
        if !found.is_empty() {
            wrong += 1;
            if wrong <= 12 {
                println!("question {at}: pod {}", question["pod"]);
                found.iter().for_each(|one| println!("{one}"));
            }
        }
        fits += usize::from(!ours.scores.is_empty());
        nowhere += usize::from(ours.everywhere.is_some());
        fits_nowhere += usize::from(!ours.refused.is_empty() && ours.scores.is_empty());
        preempts += usize::from(!ours.candidates.is_empty());
        for objection in ours.refused.values().filter_map(|all| all.first()) {
            *plugins.entry(objection.plugin.to_owned()).or_default() += 1;
        }
        for (name, score) in ours.scores.values().flatten().filter(|(_, score)| **score != 0) {
            *plugins
                .entry(format!("score of {name}, e.g. {score}").split(',').next().unwrap().to_owned())
                .or_default() += 1;
        }
    }
    println!(
        "{} clusters: in {fits} the pod fits, in {fits_nowhere} on no node, in {nowhere} nowhere, room in {preempts}",
        questions.len()
    );
    println!("{plugins:#?}");
    assert!(questions.len() >= 1000);
    assert!(fits > 100 && fits_nowhere > 100 && preempts > 50, "the clusters are too much alike");
    assert_eq!(wrong, 0, "of {} clusters are decided otherwise", questions.len());
}

#[test]
fn upstreams_scheduler_decides_the_same_about_every_pod_with_claims() {
    let questions = claims::all();
    let answers = ask::ask("scheduler", &questions);
    let mut wrong = 0;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, (question, theirs)) in questions.iter().zip(&answers).enumerate() {
        let ours = ours(question);
        let found = differences(theirs, &ours);
        if !found.is_empty() {
            wrong += 1;
            if wrong <= 12 {
                println!("question {at}: {question}");
                found.iter().for_each(|one| println!("{one}"));
            }
        }
        let mut see = |what: &str| *seen.entry(what.to_owned()).or_default() += 1;
        if !ours.scores.is_empty() {
            see("fits");
        }
        if ours.scores.values().any(|of| of.get("DynamicResources").is_some_and(|score| *score > 0)) {
            see("alternatives count");
        }
        if let Some(text) = &ours.broken {
            see(if text.contains("CEL runtime error") { "CEL runtime error" } else { "broken" });
        }
        if let Some(one) = &ours.everywhere {
            see(one.reasons[0].split([':', '"']).next().unwrap());
        }
        ours.refused.values().for_each(|all| see(&all[0].reasons[0]));
        let asks = question["pod"].to_string();
        if !ours.scores.is_empty()
            && (asks.contains("\"example.com/gpu\"") || asks.contains("deviceclass.resource"))
        {
            see("an extended resource is had");
        }
    }
    println!("{} pods with claims: {seen:#?}", questions.len());
    for what in [
        "fits",
        "alternatives count",
        "CEL runtime error",
        "cannot allocate all claims",
        "an extended resource is had",
    ] {
        assert!(seen.get(what).is_some_and(|count| *count > 20), "too few: {what}");
    }
    assert!(seen.get("resourceclaim not available on the node").is_some_and(|count| *count > 20));
    assert_eq!(wrong, 0, "of {} pods are decided otherwise", questions.len());
}
