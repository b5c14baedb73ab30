//! Label selectors: equality, set and numeric terms of the query syntax, and `LabelSelector` objects.

use std::fmt;

use serde_json::{Map, Value};

use super::{LabelRequirement, Operator, SelectorError};
use crate::syntax;

/// A parsed label selector: all terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    terms: Vec<LabelRequirement>,
    nothing: bool,
}

impl LabelSelector {
    /// Parses the query parameter.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut terms = Parser { tokens: lex(text), at: 0 }.parse()?;
        terms.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { terms, nothing: false })
    }

    /// Reads a `LabelSelector` object; null selects nothing, `{}` everything.
    pub fn from_object(object: &Value) -> Result<LabelSelector, SelectorError> {
        if object.is_null() {
            return Ok(LabelSelector::nothing());
        }
        let strings = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        let labels = object["matchLabels"].as_object().into_iter().flatten();
        let expressions = object["matchExpressions"].as_array().into_iter().flatten();
        LabelSelector::from_parts(
            labels.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())),
            expressions.map(|one| (text(&one["key"]), text(&one["operator"]), strings(&one["values"]))),
        )
    }

    /// The selector of these labels with their values, and of these keys with operators and values.
    pub fn from_parts<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        expressions: impl IntoIterator<Item = (&'a str, &'a str, Vec<String>)>,
    ) -> Result<LabelSelector, SelectorError> {
        let mut terms = Vec::new();
        for (key, value) in labels {
            terms.push(LabelRequirement::new(key, Operator::Equals, vec![value.to_owned()])?);
        }
        for (key, name, values) in expressions {
            let operator = match Operator::by_name(name) {
                Some(Operator::GreaterThan | Operator::LessThan) | None => {
                    return fail(format!("{name:?} is not a valid label selector operator"));
                }
                Some(operator) => operator,
            };
            terms.push(LabelRequirement::new(key, operator, values)?);
        }
        terms.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { terms, nothing: false })
    }

    /// The selector that selects nothing.
    pub fn nothing() -> LabelSelector {
        LabelSelector { terms: Vec::new(), nothing: true }
    }

    /// Also requires that `key` has `value`, or that it has not.
    pub fn require(&mut self, key: &str, value: &str, equal: bool) {
        let operator = if equal { Operator::Equals } else { Operator::NotEquals };
        self.terms.push(LabelRequirement { key: key.to_owned(), operator, values: vec![value.to_owned()] });
    }

    /// Also requires all that `other` does.
    pub fn require_all(&mut self, other: &LabelSelector) {
        self.terms.extend(other.terms.iter().cloned());
        self.nothing |= other.nothing;
    }

    /// The terms, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.terms
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && !self.nothing
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Value::as_str))
    }

    /// Whether an object is selected, given a way to look up its labels.
    pub fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.terms.iter().all(|t| t.holds(label(&t.key)))
    }
}

/// As a query carries it, in the order of the keys; what selects everything or nothing is empty.
impl fmt::Display for LabelSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            write!(out, "{}{term}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Error,
    End,
    Close,
    Comma,
    Bang,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

fn is_special(b: u8) -> bool {
    b"=!(),><".contains(&b)
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Bang,
        "==" | "=" => Token::Equals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        _ => return None,
    })
}

fn lex(text: &str) -> Vec<(Token, String)> {
    let bytes = text.as_bytes();
    let (mut at, mut out) = (0, Vec::new());
    loop {
        while at < bytes.len() && matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
        }
        if at >= bytes.len() {
            out.push((Token::End, String::new()));
            return out;
        }
        let start = at;
        if is_special(bytes[at]) {
            let mut end = at + 1;
            if text.get(at..at + 2).is_some_and(|two| symbol(two).is_some()) {
                end += 1;
            }
            at = end;
            let literal = &text[start..end];
            out.push((symbol(literal).unwrap_or(Token::Error), literal.to_owned()));
        } else {
            while at < bytes.len()
                && !is_special(bytes[at])
                && !matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n')
            {
                at += 1;
            }
            let literal = &text[start..at];
            let token = match literal {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            out.push((token, literal.to_owned()));
        }
    }
}

struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

fn fail<T>(text: String) -> Result<T, SelectorError> {
    Err(SelectorError(text))
}

impl Parser {
    /// The next token; where a value is expected, keywords are plain words.
    fn peek(&self, as_value: bool) -> (Token, &str) {
        let (token, literal) = &self.tokens[self.at.min(self.tokens.len() - 1)];
        match token {
            Token::In | Token::NotIn if as_value => (Token::Identifier, literal),
            _ => (*token, literal),
        }
    }

    fn next(&mut self, as_value: bool) -> (Token, String) {
        let (token, literal) = self.peek(as_value);
        let out = (token, literal.to_owned());
        self.at += 1;
        out
    }

    fn parse(&mut self) -> Result<Vec<LabelRequirement>, SelectorError> {
        let mut terms = Vec::new();
        loop {
            match self.peek(true) {
                (Token::Identifier | Token::Bang, _) => {
                    let term = self.requirement();
                    terms.push(term.map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?);
                    match self.next(true) {
                        (Token::End, _) => return Ok(terms),
                        (Token::Comma, _) => {
                            let (token, literal) = self.peek(true);
                            if !matches!(token, Token::Identifier | Token::Bang) {
                                return fail(format!("found '{literal}', expected: identifier after ','"));
                            }
                        }
                        (_, literal) => {
                            return fail(format!("found '{literal}', expected: ',' or 'end of string'"));
                        }
                    }
                }
                (Token::End, _) => return Ok(terms),
                (_, literal) => {
                    return fail(format!("found '{literal}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let (mut token, mut key) = self.next(true);
        let negated = token == Token::Bang;
        if negated {
            (token, key) = self.next(true);
        }
        if token != Token::Identifier {
            return fail(format!("found '{key}', expected: identifier"));
        }
        let complaints = syntax::qualified_name(&key);
        if !complaints.is_empty() {
            return fail(format!("<nil>: Invalid value: {key:?}: {}", complaints.join("; ")));
        }
        let ends = matches!(self.peek(true).0, Token::End | Token::Comma);
        if negated || ends {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(LabelRequirement { key, operator, values: Vec::new() });
        }
        let operator = match self.next(false) {
            (Token::Equals, _) => Operator::Equals,
            (Token::NotEquals, _) => Operator::NotEquals,
            (Token::In, _) => Operator::In,
            (Token::NotIn, _) => Operator::NotIn,
            (Token::Greater, _) => Operator::GreaterThan,
            (Token::Less, _) => Operator::LessThan,
            (_, literal) => {
                return fail(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt"));
            }
        };
        let by_word = matches!(operator, Operator::In | Operator::NotIn);
        let mut values = if by_word { self.values()? } else { vec![self.exact()?] };
        values.sort();
        values.dedup();
        LabelRequirement::new(&key, operator, values)
    }

    fn exact(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next(true) {
            (Token::Identifier, literal) => Ok(literal),
            (_, literal) => fail(format!("found '{literal}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let (token, literal) = self.next(true);
        if token != Token::Open {
            return fail(format!("found '{literal}' expected: '('"));
        }
        match self.peek(true) {
            (Token::Identifier | Token::Comma, first) => {
                let first = first.to_owned();
                let values = self.identifiers()?;
                match self.next(true).0 {
                    Token::Close => Ok(values),
                    _ => fail(format!("found '{first}', expected: ')'")),
                }
            }
            (Token::Close, _) => {
                self.at += 1;
                Ok(vec![String::new()])
            }
            (_, literal) => fail(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<String>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next(true) {
                (Token::Identifier, literal) => {
                    values.push(literal);
                    match self.peek(true) {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, literal) => return fail(format!("found '{literal}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    let next = self.peek(true).0;
                    if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                        values.push(String::new());
                    }
                    if next == Token::Close {
                        return Ok(values);
                    }
                }
                (_, literal) => return fail(format!("found '{literal}', expected: ',', or identifier")),
            }
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_select_by_their_rule() {
        let labels = json!({"app": "web", "tier": "front", "n": "5"});
        let labels = labels.as_object().unwrap();
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("missing!=x", true),
            ("app in (web, db)", true),
            ("app notin (web,db)", false),
            ("missing notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!missing", true),
            ("n>4", true),
            ("n<4", false),
            ("missing>1", false),
            ("app in ()", false),
            ("app=", false),
            ("in=x", false),
            ("tier in (front,)", true),
            (" app = web , tier ", true),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(selector.matches(labels), expected, "{text}");
        }
    }

    #[test]
    fn bad_selectors_get_upstreams_texts() {
        for (text, error) in [
            ("app=web,", "found '', expected: identifier after ','"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("!", "unable to parse requirement: found '', expected: identifier"),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), error, "{text}");
        }
        let error = LabelSelector::parse("-a=b").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist"
            ),
            "{error}"
        );
    }

    #[test]
    fn object_selectors_match_like_text_ones() {
        let labels = json!({"app": "web"});
        let labels = labels.as_object().unwrap();
        for (object, expected) in [
            (json!(null), false),
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}), false),
        ] {
            assert_eq!(LabelSelector::from_object(&object).unwrap().matches(labels), expected, "{object}");
        }
        assert!(
            LabelSelector::from_object(&json!({"matchExpressions": [{"key": "a", "operator": "Foo"}]}))
                .is_err()
        );
    }
}
