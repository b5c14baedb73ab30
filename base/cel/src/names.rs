//! Names of properties as CEL can spell them: `a.b` is `a__dot__b`.
//!
//! <https://kubernetes.io/docs/reference/using-api/cel/#escaping>

use std::borrow::Cow;

/// Words that mean something.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];
/// Words that are kept for languages that include this one.
pub(crate) const KEPT: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a name is a word of the language.
pub(crate) fn is_reserved(name: &str) -> bool {
    WORDS.contains(&name) || KEPT.contains(&name)
}

/// The name under which an expression reaches the property `name`; nothing if it cannot.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    let first = name.bytes().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved(name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.bytes().all(simple) && !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let mut out = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(Cow::Owned(out))
}

/// The property that an expression means by `name`; nothing if it means none.
pub fn unescape(name: &str) -> Option<Cow<'_, str>> {
    if !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find("__") {
        let inside = &rest[start + 2..];
        let length = inside.find('_').unwrap_or(inside.len());
        if length == 0 || !inside[length..].starts_with("__") {
            // No word between two pairs: one underscore is passed over.
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        }
        out.push_str(&rest[..start]);
        let (word, after) = (&inside[..length], &inside[length + 2..]);
        match word {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if is_reserved(word) && word.len() + 4 == name.len() => out.push_str(word),
            _ => return None,
        }
        rest = after;
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_and_read_back() {
        for (name, spelled) in [
            ("a", "a"),
            ("a.b", "a__dot__b"),
            ("a-b/c", "a__dash__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(spelled));
            assert_eq!(unescape(spelled).as_deref(), Some(name));
        }
        for name in ["", "1a", "a b", "é"] {
            assert_eq!(escape(name), None, "{name}");
        }
        assert_eq!(unescape("__nope__"), None);
    }
}
