//! The paths of kubectl's templates, as printer columns have them: names, indices, wildcards, filters.
//!
//! Paths have no brackets around them and begin with a dot. Recursive descent and arithmetic are not read.

use serde_json::Value;

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Name(String),
    /// From, to (exclusive) and by how much; negative ones count from the end.
    Slice(Option<i64>, Option<i64>),
    Index(i64),
    All,
    Filter(Vec<Step>, Option<(Operator, Value)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Reads a path; none when it is not one.
    pub fn parse(text: &str) -> Option<JsonPath> {
        let mut reader = Reader { rest: text };
        let steps = reader.steps()?;
        reader.rest.is_empty().then_some(JsonPath(steps))
    }

    /// The first value at the path.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        find(&self.0, value).into_iter().next()
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.eat("[") {
                steps.push(self.bracket()?);
            } else if self.eat(".") {
                match self.name()? {
                    // A dot alone is the whole object; one before a bracket adds nothing.
                    name if name.is_empty() && (self.rest.is_empty() || self.rest.starts_with('[')) => {}
                    name if name.is_empty() => return None,
                    name if name == "*" => steps.push(Step::All),
                    name => steps.push(Step::Name(name)),
                }
            } else {
                return Some(steps);
            }
        }
    }

    /// A name, in which a backslash takes the meaning from what follows.
    fn name(&mut self) -> Option<String> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => out.push(chars.next()?.1),
                '.' | '[' | ']' | ' ' | ')' | '=' | '!' | '<' | '>' => {
                    end = at;
                    break;
                }
                c => out.push(c),
            }
        }
        self.rest = &self.rest[end..];
        Some(out)
    }

    fn bracket(&mut self) -> Option<Step> {
        if self.eat("?(") {
            return self.filter();
        }
        let step = if self.eat("*") {
            Step::All
        } else if self.rest.starts_with(['\'', '"']) {
            Step::Name(self.text()?)
        } else {
            let end = self.rest.find(']')?;
            let (inside, rest) = self.rest.split_at(end);
            self.rest = rest;
            let number = |text: &str| text.trim().parse::<i64>().ok();
            match inside.split_once(':') {
                None => Step::Index(number(inside)?),
                Some((from, to)) if !to.contains(':') => {
                    let part =
                        |text: &str| if text.trim().is_empty() { Some(None) } else { number(text).map(Some) };
                    Step::Slice(part(from)?, part(to)?)
                }
                Some(_) => return None,
            }
        };
        self.eat("]").then_some(step)
    }

    fn text(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let end = self.rest[1..].find(quote)? + 1;
        let text = self.rest[1..end].to_owned();
        self.rest = &self.rest[end + 1..];
        Some(text)
    }

    fn filter(&mut self) -> Option<Step> {
        self.rest = self.rest.trim_start();
        if !self.eat("@") {
            return None;
        }
        let steps = self.steps()?;
        self.rest = self.rest.trim_start();
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let operator = operators.into_iter().find(|(word, _)| self.eat(word)).map(|(_, operator)| operator);
        let comparison = match operator {
            None => None,
            Some(operator) => {
                self.rest = self.rest.trim_start();
                let value = if self.rest.starts_with(['\'', '"']) {
                    Value::from(self.text()?)
                } else {
                    let end = self.rest.find(')')?;
                    let (inside, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    serde_json::from_str(inside.trim()).ok()?
                };
                Some((operator, value))
            }
        };
        self.rest = self.rest.trim_start();
        self.eat(")]").then_some(Step::Filter(steps, comparison))
    }
}

fn find<'v>(steps: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in steps {
        found = found.into_iter().flat_map(|value| follow(step, value)).collect();
    }
    found
}

fn follow<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match (step, value) {
        (Step::Name(name), Value::Object(map)) => map.get(name).into_iter().collect(),
        // A name after a list is looked for in each of its elements.
        (Step::Name(_), Value::Array(list)) => list.iter().flat_map(|item| follow(step, item)).collect(),
        (Step::All, Value::Array(list)) => list.iter().collect(),
        (Step::All, Value::Object(map)) => map.values().collect(),
        (Step::Index(at), Value::Array(list)) => list.get(place(*at, list.len())).into_iter().collect(),
        (Step::Slice(from, to), Value::Array(list)) => {
            let from = from.map_or(0, |at| place(at, list.len()));
            let to = to.map_or(list.len(), |at| place(at, list.len())).min(list.len());
            list.get(from..to).unwrap_or_default().iter().collect()
        }
        (Step::Filter(steps, comparison), Value::Array(list)) => {
            list.iter().filter(|item| holds(steps, comparison.as_ref(), item)).collect()
        }
        _ => Vec::new(),
    }
}

fn place(at: i64, length: usize) -> usize {
    match usize::try_from(at) {
        Ok(at) => at,
        Err(_) => {
            length.checked_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)).unwrap_or(usize::MAX)
        }
    }
}

fn holds(steps: &[Step], comparison: Option<&(Operator, Value)>, item: &Value) -> bool {
    let found = find(steps, item);
    let Some(found) = found.first() else { return false };
    let Some((operator, wanted)) = comparison else { return true };
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (found, wanted) {
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        (Value::Number(one), Value::Number(other)) => {
            one.as_f64().and_then(|one| one.partial_cmp(&other.as_f64()?))
        }
        (one, other) => (**one == *other).then_some(Equal),
    };
    match operator {
        Operator::Equal => order == Some(Equal),
        Operator::NotEqual => order != Some(Equal),
        Operator::Less => order == Some(Less),
        Operator::LessOrEqual => matches!(order, Some(Less | Equal)),
        Operator::Greater => order == Some(Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_where_kubectls_do() {
        let object = json!({
            "spec": {"a": 1, "b.c": 2, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]},
            "status": {"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        let first = |path: &str| JsonPath::parse(path).and_then(|path| path.first(&object).cloned());
        for (path, value) in [
            (".spec.a", Some(json!(1))),
            (".spec.b\\.c", Some(json!(2))),
            (".spec['b.c']", Some(json!(2))),
            (".spec.list[0].n", Some(json!("x"))),
            (".spec.list[-1].n", Some(json!("y"))),
            (".spec.list[1:].v", Some(json!(2))),
            (".spec.list[*].v", Some(json!(1))),
            (".status.conditions[?(@.type==\"Ready\")].status", Some(json!("True"))),
            (".status.conditions[?(@.type == 'Synced')].status", Some(json!("False"))),
            (".spec.list[?(@.v>1)].n", Some(json!("y"))),
            (".spec.missing.deep", None),
            ("spec", None),
            (".spec.list[", None),
        ] {
            assert_eq!(first(path), value, "{path}");
        }
    }
}
