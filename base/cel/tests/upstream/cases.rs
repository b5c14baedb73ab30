//! The questions: documented uses of every function restated, errors, and expressions that dice make.

use serde_json::{Value as Json, json};

use crate::dice::Dice;
use crate::generate;

/// How many expressions dice make without a schema, and as many with one.
const GENERATED: usize = 1500;

/// Expressions, one in a line, of which the comments are part.
const TEXTS: &[&str] = &[
    include_str!("cases/standard.txt"),
    include_str!("cases/syntax.txt"),
    include_str!("cases/macros.txt"),
    include_str!("cases/strings.txt"),
    include_str!("cases/lists.txt"),
    include_str!("cases/optional.txt"),
    include_str!("cases/quantity.txt"),
    include_str!("cases/network.txt"),
    include_str!("cases/semver.txt"),
    include_str!("cases/url.txt"),
    include_str!("cases/format.txt"),
];

/// What `x` and `y` are: each expression that mentions them is asked with all of these.
fn inputs() -> Vec<(Json, Json)> {
    vec![
        (json!(null), json!(1)),
        (json!(5), json!("a")),
        (json!({"a": 1, "b": "c", "y": {"z": {"w": true}}}), json!("a")),
        (json!([1, 2, 3]), json!(1)),
        (json!(["a", "b"]), json!([])),
        (json!({"a": {"b": 2.5}}), json!({"a": {"b": 2.5}})),
        (json!("[a-c]+"), json!("text")),
        (json!(true), json!(-1.5)),
    ]
}

fn plain(expr: &str) -> Vec<Json> {
    let mentions = |name: char| {
        let text: Vec<char> = expr.chars().collect();
        (0..text.len()).any(|at| {
            let word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
            text[at] == name
                && !word(at.checked_sub(1).and_then(|before| text.get(before)))
                && !word(text.get(at + 1))
        })
    };
    let question = |(x, y): &(Json, Json)| json!({"env": "plain", "expr": expr, "x": x, "y": y});
    match mentions('x') || mentions('y') {
        true => inputs().iter().map(question).collect(),
        false => vec![json!({"env": "plain", "expr": expr})],
    }
}

/// Expressions on objects with a schema: each is asked of every object, beside which the next one is the old one.
fn with_schema(expr: &str) -> Vec<Json> {
    let schema: Json = serde_json::from_str(include_str!("cases/schema.json")).unwrap();
    let objects: Vec<Json> = serde_json::from_str(include_str!("cases/objects.json")).unwrap();
    let mut questions: Vec<Json> = (0..objects.len())
        .map(|at| {
            let (new, old) = (&objects[at], &objects[(at + 1) % objects.len()]);
            json!({"env": "schema", "expr": expr, "schema": schema, "self": new, "old": old})
        })
        .collect();
    if expr.contains("oldSelf") {
        questions.push(
            json!({"env": "schema", "expr": expr, "schema": schema, "self": objects[0], "old": objects[0]}),
        );
    }
    questions
}

/// Rules at the root of a resource, at single values, and with an old value that may be missing.
fn elsewhere() -> Vec<Json> {
    let text = json!({"type": "string", "maxLength": 10});
    let root = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}}});
    let object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "n", "labels": {"l": "m"}}, "spec": {"a": 1}});
    let mut questions = Vec::new();
    for expr in [
        "self.metadata.name",
        "self.metadata.labels",
        "self.kind == 'A'",
        "self.spec.a",
        "self.apiVersion",
        "self.metadata",
    ] {
        questions.push(json!({"env": "schema", "root": true, "expr": expr, "schema": root, "self": object}));
        questions.push(json!({"env": "schema", "expr": expr, "schema": root, "self": object}));
    }
    for expr in ["self == oldSelf", "self.size() < 5", "oldSelf + self", "self.a", "self.all(c, true)"] {
        questions.push(json!({"env": "schema", "expr": expr, "schema": text, "self": "new", "old": "old"}));
    }
    for expr in [
        "oldSelf.hasValue()",
        "oldSelf.orValue('none') == self",
        "!oldSelf.hasValue() || oldSelf.value() == self",
        "oldSelf == self",
        "oldSelf.optMap(o, o + self).orValue('x')",
        "oldSelf.size()",
    ] {
        for old in [json!(null), json!("new")] {
            questions
                .push(json!({"env": "optional", "expr": expr, "schema": text, "self": "new", "old": old}));
        }
    }
    let list =
        json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}});
    for expr in [
        "self.all(i, i.n > 0)",
        "self.map(i, i.n).sum()",
        "self == oldSelf",
        "self[0] == oldSelf[0]",
        "self.exists(i, i == oldSelf[0])",
    ] {
        let values = json!([{"n": 1}, {"n": 2}]);
        questions
            .push(json!({"env": "schema", "expr": expr, "schema": list, "self": values, "old": [{"n": 1}]}));
    }
    questions
}

/// Selectors, asked of a device with everything, of one with little, and of a broken one.
fn on_devices(expr: &str) -> Vec<Json> {
    let full = json!({
        "driver": "driver.example.com",
        "allowMultipleAllocations": true,
        "attributes": {
            "one": {"int": 1}, "text": {"string": "hello"}, "flag": {"bool": true},
            "driver.example.com/version": {"version": "2.1.0"}, "other.example.com/zone": {"string": "a"},
        },
        "capacity": {"memory": {"value": "10Gi"}, "other.example.com/size": {"value": "5"}},
    });
    let bare = json!({"driver": "driver.example.com"});
    let broken = json!({"driver": "driver.example.com", "attributes": {"a": {"version": "x"}}});
    [full, bare, broken]
        .into_iter()
        .map(|device| json!({"env": "device", "expr": expr, "device": device}))
        .collect()
}

/// The questions whose answers are recorded.
pub(crate) fn fixed() -> Vec<Json> {
    let plain = TEXTS.iter().flat_map(|text| text.lines()).flat_map(plain);
    let authorized =
        include_str!("cases/authorizer.txt").lines().map(|expr| json!({"env": "authorizer", "expr": expr}));
    let devices = include_str!("cases/device.txt").lines().flat_map(on_devices);
    plain.chain(elsewhere()).chain(authorized).chain(devices).collect()
}

/// All questions.
pub(crate) fn all() -> Vec<Json> {
    let mut questions = fixed();
    questions.extend(include_str!("cases/schema.txt").lines().flat_map(with_schema));
    let mut dice = Dice::new(18);
    for _ in 0..GENERATED {
        let expr = generate::expression(&mut dice, false);
        questions.push(json!({"env": "plain", "expr": expr, "x": 3, "y": "text"}));
        let expr = generate::expression(&mut dice, true);
        questions.extend(with_schema(&expr).into_iter().take(1));
    }
    for count in [10, 100, 247, 248, 249, 250, 251, 252, 300] {
        let deep = |open: &str, inner: &str, close: &str| json!({"env": "plain", "expr": format!("{}{inner}{}", open.repeat(count), close.repeat(count))});
        questions.extend([
            deep("(", "1", ")"),
            deep("1 + ", "1", ""),
            deep("2 * ", "1", ""),
            json!({"env": "plain", "expr": format!("{}1{}.size()", "[".repeat(count), "]".repeat(count))}),
            deep("", "x", ".a"),
            deep("true ? 1 : ", "1", ""),
            deep("true && ", "true", ""),
            deep("!", "true", ""),
            deep("dyn(", "1", ")"),
            deep("[1].all(i, ", "true", ")"),
            deep("1 == ", "1", ""),
        ]);
    }
    questions
}
