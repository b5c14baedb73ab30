//! Regular expressions of schemas: compiled when they are first asked, bounded in size, linear in time.

use std::sync::OnceLock;

use regex_lite::{Regex, RegexBuilder};

/// What a compiled expression may take; one of Go's largest fits.
const MOST_BYTES: usize = 2 << 20;
/// How deep groups nest.
const DEEPEST: u32 = 200;

/// An expression in RE2's syntax.
#[derive(Debug)]
pub struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Option<Box<Regex>>>,
}

impl Pattern {
    /// The expression; whether it is one is asked by [`Pattern::check`].
    pub fn new(text: &str) -> Pattern {
        Pattern { text: text.into(), compiled: OnceLock::new() }
    }

    /// Why a text is no expression.
    pub fn check(text: &str) -> Result<(), String> {
        compile(text).map(|_| ()).map_err(|error| error.to_string())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is somewhere in a text; one that is no expression is nowhere.
    pub fn is_match(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compile(&self.text).ok().map(Box::new));
        compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn compile(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(MOST_BYTES).nest_limit(DEEPEST).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_bounded_and_match_anywhere() {
        assert!(Pattern::new("^a+$").is_match("aaa") && !Pattern::new("^a+$").is_match("aab"));
        assert!(Pattern::new("b").is_match("abc"));
        assert!(!Pattern::new("(").is_match("("), "one that is broken matches nothing");
        assert!(Pattern::check("(").is_err());
        assert!(Pattern::check("((a{1000}){1000}){1000}").is_err());
        assert!(Pattern::check(&format!("{}a{}", "(".repeat(5000), ")".repeat(5000))).is_err());
    }
}
