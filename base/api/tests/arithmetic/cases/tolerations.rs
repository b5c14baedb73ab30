//! Tolerations of taints.

use serde_json::{Value, json};

use super::Kind;
use crate::dice::Dice;

const EFFECTS: &[&str] = &["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
const VALUES: &[&str] = &["", "v", "w", "5", "+5", "-1", "05", "0", "-0", "-12", "9223372036854775808"];

fn toleration(dice: &mut Dice) -> Value {
    let one = |dice: &mut Dice| {
        let operator = dice.pick(&["", "Equal", "Exists", "Gt", "Lt", "Bogus"]);
        let key = dice.pick(&["", "k", "k", "j"]);
        let mut out = json!({"effect": dice.pick(EFFECTS)});
        for (field, text) in [("key", key), ("operator", operator), ("value", dice.pick(VALUES))] {
            if !text.is_empty() || dice.one_in(2) {
                out[field] = json!(text);
            }
        }
        out
    };
    let tolerations: Vec<Value> = (0..dice.below(3)).map(|_| one(dice)).collect();
    let taint = json!({"key": dice.pick(&["k", "k", "j"]), "value": dice.pick(VALUES), "effect": dice.pick(&EFFECTS[1..])});
    json!({"ask": "toleration", "tolerations": tolerations, "taint": taint})
}

pub(super) fn tolerations() -> Kind {
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    let written = [
        json!([]),
        json!([{}]),
        json!([{"operator": "Exists"}]),
        json!([{"key": "k", "value": "v"}]),
        json!([{"key": "k", "value": "w"}]),
        json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]),
        json!([{"key": "j", "operator": "Exists"}, {"key": "k", "operator": "Exists"}]),
        json!([{"key": "k", "operator": "Gt", "value": "v"}]),
    ];
    let written = written.map(|list| json!({"ask": "toleration", "tolerations": list, "taint": taint}));
    Kind { written: written.to_vec(), make: toleration, all: 320, recorded: 16 }
}
