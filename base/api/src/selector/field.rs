//! Field selectors: `spec.nodeName=n1,status.phase!=Failed` with backslash escapes.

use std::borrow::Cow;

use super::SelectorError;
use crate::Kind;

/// One term of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// Path of the field.
    pub field: String,
    /// `=` when true, `!=` when false.
    pub equals: bool,
    /// Value compared with.
    pub value: String,
}

/// A parsed field selector: all terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Parses the query parameter.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            let (field, equals, value) = cut(part).ok_or_else(|| {
                SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            terms.push(FieldRequirement { field: field.to_owned(), equals, value: unescape(value)? });
        }
        Ok(FieldSelector { terms })
    }

    /// The selector of the objects that have this value in this field.
    pub fn exactly(field: &str, value: &str) -> FieldSelector {
        let term = FieldRequirement { field: field.to_owned(), equals: true, value: value.to_owned() };
        FieldSelector { terms: vec![term] }
    }

    /// Refuses fields the kind cannot be selected by, and maps old names to new ones.
    pub fn check(&mut self, kind: &Kind) -> Result<(), SelectorError> {
        for term in &mut self.terms {
            if let Some(field) = kind.strategy.renamed_field(&term.field) {
                term.field = field.to_owned();
            }
            let field = term.field.as_str();
            let known = field == "metadata.name"
                || (field == "metadata.namespace" && kind.namespaced)
                || kind.selectable_fields.iter().any(|known| known == field);
            if !known {
                return Err(SelectorError(if kind.selectable_fields.is_empty() {
                    format!(
                        "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                } else {
                    format!("field label not supported{}: {field}", kind.strategy.selected_kind())
                }));
            }
        }
        Ok(())
    }

    /// The terms.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.terms
    }

    /// The terms as (field, `=` or `!=`, value).
    pub fn terms(&self) -> impl Iterator<Item = (&str, &'static str, &str)> {
        self.terms.iter().map(|t| (t.field.as_str(), if t.equals { "=" } else { "!=" }, t.value.as_str()))
    }

    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value the field is required to have, if there is such a term.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equals && t.field == field).map(|t| t.value.as_str())
    }

    /// Whether an object with these field values is selected; an absent field counts as empty.
    pub fn matches<'a>(&self, fields: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        self.terms.iter().all(|t| {
            let value = fields(&t.field);
            (value.as_deref().unwrap_or("") == t.value) == t.equals
        })
    }
}

fn split(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, b) in text.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                out.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn cut(part: &str) -> Option<(&str, bool, &str)> {
    for at in 0..part.len() {
        let rest = &part.as_bytes()[at..];
        if rest.starts_with(b"!=") {
            return Some((&part[..at], false, &part[at + 2..]));
        }
        if rest.starts_with(b"==") {
            return Some((&part[..at], true, &part[at + 2..]));
        }
        if rest.starts_with(b"=") {
            return Some((&part[..at], true, &part[at + 1..]));
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.to_owned());
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(e @ ('\\' | ',' | '=')) => out.push(e),
                Some(e) => return Err(escape_error(&format!("\\{e}"))),
                None => return Err(escape_error("\\")),
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

fn escape_error(sequence: &str) -> SelectorError {
    SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_parse_match_and_complain() {
        let s = FieldSelector::parse("spec.nodeName=n1,status.phase!=Failed,a==b\\,c\\=d").unwrap();
        let value = |f: &str| -> Option<Cow<'static, str>> {
            Some(Cow::Borrowed(match f {
                "spec.nodeName" => "n1",
                "status.phase" => "Running",
                "a" => "b,c=d",
                _ => return None,
            }))
        };
        assert!(s.matches(value));
        assert!(!s.matches(|f| if f == "status.phase" { Some("Failed".into()) } else { value(f) }));
        assert_eq!(s.exact("spec.nodeName"), Some("n1"));
        for (text, error) in [
            ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
            ("a=b\\x", "invalid field selector: invalid escape sequence: \\x"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn only_known_fields_can_be_selected() {
        let pod = crate::by_resource("", "v1", "pods").unwrap();
        let mut s = FieldSelector::parse("spec.host=a").unwrap();
        s.check(pod).unwrap();
        assert_eq!(s.exact("spec.nodeName"), Some("a"));
        let mut s = FieldSelector::parse("spec.foo=a").unwrap();
        assert_eq!(s.check(pod).unwrap_err().to_string(), "field label not supported: spec.foo");
    }
}
