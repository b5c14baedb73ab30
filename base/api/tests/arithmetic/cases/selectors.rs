//! Label selectors as text and as objects, node selectors, preferences for nodes.

use serde_json::{Map, Value, json};

use super::Kind;
use crate::dice::Dice;

const KEYS: &[&str] = &["app", "tier", "n", "example.com/x", "missing", "app"];
const VALUES: &[&str] = &["web", "db", "", "5", "10", "-3", "007", "+5", "a.b_c"];
const BAD: &[&str] = &["-a", "a b", "é", "a/b/c"];

fn labels(dice: &mut Dice) -> Value {
    let pairs = (0..dice.below(5)).map(|_| {
        let value = dice.pick(VALUES);
        (dice.pick(&KEYS[..4]).to_owned(), json!(value))
    });
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn key<'a>(dice: &mut Dice) -> &'a str {
    if dice.one_in(25) { dice.pick(BAD) } else { dice.pick(KEYS) }
}

fn value<'a>(dice: &mut Dice) -> &'a str {
    if dice.one_in(25) { dice.pick(BAD) } else { dice.pick(VALUES) }
}

fn text_term(dice: &mut Dice) -> String {
    let (key, value, other) = (key(dice), value(dice), value(dice));
    match dice.below(14) {
        0 => format!("{key}={value}"),
        1 => format!("{key}=={value}"),
        2 => format!(" {key} != {value} "),
        3 => format!("{key} in ({value},{other})"),
        4 => format!("{key} notin ({value}, {other})"),
        5 => key.to_owned(),
        6 => format!("!{key}"),
        7 => format!("{key}>{value}"),
        8 => format!("{key} < {value}"),
        9 => format!("{key} in ({value},)"),
        10 => format!("{key} in ()"),
        11 => format!("{key} {other} {value}"),
        12 => format!("{key} notin (,{value})"),
        _ => format!("{key}={value}{}", dice.pick(&["=", "!", "(", ")", ">", ", ", "in"])),
    }
}

fn text(dice: &mut Dice) -> Value {
    let terms: Vec<String> = (0..=dice.below(3)).map(|_| text_term(dice)).collect();
    json!({"ask": "text selector", "text": terms.join(","), "labels": labels(dice)})
}

pub(super) fn texts() -> Kind {
    let texts = [
        "",
        ",",
        "app",
        "!app",
        "app=",
        "app=web",
        "app==web",
        "app!=web",
        "app in (web,db)",
        "app in (web",
        "app in web",
        "app notin ()",
        "n>4",
        "n<4",
        "n>x",
        "n>",
        "in in (in)",
        "app=web,",
        ",app",
        "app,,tier",
        "!",
        "!!app",
        "a b",
        "x y z",
        "app in (web,web)",
        "app in (web db)",
        "app === web",
        "app = web tier = x",
        "(",
        "app>5,app<3",
    ];
    let set = json!({"app": "web", "n": "5"});
    let written = texts.map(|text| json!({"ask": "text selector", "text": text, "labels": set}));
    Kind { written: written.to_vec(), make: text, all: 360, recorded: 30 }
}

fn expression(dice: &mut Dice, operators: &[&str]) -> Value {
    let operator = if dice.one_in(20) { "Bogus" } else { dice.pick(operators) };
    let values: Vec<&str> = match operator {
        "Exists" | "DoesNotExist" if !dice.one_in(8) => Vec::new(),
        "Gt" | "Lt" if !dice.one_in(8) => vec![value(dice)],
        _ => (0..dice.below(3)).map(|_| value(dice)).collect(),
    };
    let mut out = json!({"key": key(dice), "operator": operator});
    if !values.is_empty() || dice.one_in(2) {
        out["values"] = json!(values);
    }
    out
}

fn object(dice: &mut Dice) -> Value {
    let mut selector = json!({});
    if dice.one_in(2) {
        let mut pairs = Map::new();
        for _ in 0..dice.below(3) {
            let value = json!(value(dice));
            pairs.insert(key(dice).to_owned(), value);
        }
        selector["matchLabels"] = Value::Object(pairs);
    }
    let terms: Vec<Value> =
        (0..dice.below(3)).map(|_| expression(dice, &["In", "NotIn", "Exists", "DoesNotExist"])).collect();
    if !terms.is_empty() {
        selector["matchExpressions"] = json!(terms);
    }
    json!({"ask": "label selector", "selector": selector, "labels": labels(dice)})
}

pub(super) fn objects() -> Kind {
    let one = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let selectors = [
        json!(null),
        json!({}),
        json!({"matchLabels": {}}),
        json!({"matchLabels": {"app": "web"}}),
        json!({"matchLabels": {"-app": "web"}}),
        json!({"matchLabels": {"app": "-web"}}),
        one("app", "In", json!([])),
        one("app", "NotIn", json!([])),
        one("app", "Exists", json!(["web"])),
        one("app", "Gt", json!(["1"])),
        one("", "Exists", json!([])),
        one("missing", "NotIn", json!(["web"])),
    ];
    let ask = |selector| json!({"ask": "label selector", "selector": selector, "labels": {"app": "web"}});
    Kind { written: selectors.map(ask).to_vec(), make: object, all: 300, recorded: 20 }
}

fn node_object(dice: &mut Dice) -> Value {
    json!({"metadata": {"name": dice.pick(&["n1", "n1", "n2", ""]), "labels": labels(dice)}})
}

fn node_term(dice: &mut Dice) -> Value {
    const OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let mut term = json!({});
    let labels: Vec<Value> = (0..dice.below(3)).map(|_| expression(dice, &OPERATORS)).collect();
    if !labels.is_empty() {
        term["matchExpressions"] = json!(labels);
    }
    if dice.one_in(3) {
        let values = dice.some(&["n1", "n2", "n1", ""], 2);
        let key = dice.pick(&["metadata.name", "metadata.name", "metadata.namespace", "kind"]);
        let operator = dice.pick(&["In", "In", "NotIn", "Exists"]);
        term["matchFields"] = json!([{"key": key, "operator": operator, "values": values}]);
    }
    term
}

fn node(dice: &mut Dice) -> Value {
    let mut spec = json!({"containers": []});
    if dice.one_in(4) {
        spec["nodeSelector"] = labels(dice);
    }
    if !dice.one_in(6) {
        let terms: Vec<Value> = (0..dice.below(4)).map(|_| node_term(dice)).collect();
        let required = json!({"nodeSelectorTerms": terms});
        spec["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    }
    json!({"ask": "node", "pod": {"spec": spec}, "node": node_object(dice)})
}

pub(super) fn nodes() -> Kind {
    let node_of = |required: Value| {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        json!({"ask": "node", "pod": {"spec": {"containers": [], "affinity": affinity}},
            "node": {"metadata": {"name": "n1", "labels": {"app": "web", "n": "5"}}}})
    };
    let term = |key: &str, operator: &str, values: Value| {
        node_of(json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}))
    };
    let field = |key: &str, operator: &str, values: Value| {
        node_of(json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": key, "operator": operator, "values": values}]}]}))
    };
    let written = vec![
        node_of(json!({"nodeSelectorTerms": []})),
        node_of(json!({"nodeSelectorTerms": [{}]})),
        term("n", "Gt", json!(["4"])),
        term("n", "Gt", json!(["5"])),
        term("n", "Lt", json!(["6"])),
        term("n", "Lt", json!(["6", "7"])),
        term("n", "Gt", json!(["x"])),
        term("app", "Lt", json!(["6"])),
        term("missing", "NotIn", json!(["a"])),
        term("missing", "NotIn", json!([])),
        term("app", "Exists", json!(["a"])),
        field("metadata.name", "In", json!(["n1"])),
        field("metadata.name", "In", json!(["n1", "n2"])),
        field("metadata.name", "NotIn", json!(["n2"])),
        field("metadata.namespace", "NotIn", json!(["n2"])),
        field("metadata.namespace", "In", json!([""])),
    ];
    Kind { written, make: node, all: 360, recorded: 30 }
}

fn preference(dice: &mut Dice) -> Value {
    let terms: Vec<Value> =
        (0..dice.below(4)).map(|_| json!({"weight": dice.below(5), "preference": node_term(dice)})).collect();
    json!({"ask": "preferred", "preferred": terms, "node": node_object(dice)})
}

pub(super) fn preferences() -> Kind {
    Kind { written: Vec::new(), make: preference, all: 120, recorded: 8 }
}
