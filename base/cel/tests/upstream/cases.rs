//! The questions: documented uses of every function restated, errors, and expressions that dice make.

use serde_json::{Value as Json, json};

/// Expressions, one in a line, of which the comments are part.
const TEXTS: &[&str] = &[
    include_str!("cases/standard.txt"),
    include_str!("cases/syntax.txt"),
    include_str!("cases/macros.txt"),
    include_str!("cases/strings.txt"),
    include_str!("cases/lists.txt"),
    include_str!("cases/optional.txt"),
    include_str!("cases/quantity.txt"),
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

/// The questions whose answers are recorded.
pub(crate) fn fixed() -> Vec<Json> {
    TEXTS.iter().flat_map(|text| text.lines()).flat_map(plain).collect()
}

/// All questions.
pub(crate) fn all() -> Vec<Json> {
    fixed()
}
