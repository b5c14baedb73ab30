//! Owners and conditions.

use serde_json::{Value, json};

use super::Kind;
use crate::dice::Dice;

fn owner(dice: &mut Dice) -> Value {
    let one = |dice: &mut Dice| {
        let mut out =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": dice.pick(&["u1", "u2", "u3"])});
        match dice.below(3) {
            0 => out["controller"] = json!(true),
            1 => out["controller"] = json!(false),
            _ => {}
        }
        out
    };
    let owners: Vec<Value> = (0..dice.below(4)).map(|_| one(dice)).collect();
    let object = if owners.is_empty() { json!({}) } else { json!({"ownerReferences": owners}) };
    json!({"ask": "owner", "object": object, "owner": {"uid": dice.pick(&["u1", "u2", "u4"])}})
}

pub(super) fn owners() -> Kind {
    Kind { written: Vec::new(), make: owner, all: 80, recorded: 8 }
}

fn condition(dice: &mut Dice, kind: &str) -> Value {
    let mut out = json!({
        "type": kind,
        "status": dice.pick(&["True", "False", "Unknown"]),
        "reason": dice.pick(&["One", "Two"]),
        "message": dice.pick(&["", "said"]),
        "lastTransitionTime": dice.pick(&["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"]),
    });
    if dice.one_in(3) {
        out["observedGeneration"] = json!(1 + dice.below(2));
    }
    out
}

fn change(dice: &mut Dice) -> Value {
    let kinds = ["Ready", "Progressing", "Available"];
    let mut have = Vec::new();
    for kind in kinds {
        if !dice.one_in(3) {
            have.push(condition(dice, kind));
        }
    }
    let kind = dice.pick(&kinds);
    let new = condition(dice, kind);
    // The same again, which changes nothing.
    let same = have.iter().find(|one| one["type"] == kind && dice.one_in(3)).cloned();
    json!({"ask": "condition", "conditions": have, "condition": same.unwrap_or(new)})
}

pub(super) fn conditions() -> Kind {
    Kind { written: Vec::new(), make: change, all: 140, recorded: 10 }
}
