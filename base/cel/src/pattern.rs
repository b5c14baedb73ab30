//! Regular expressions in RE2's syntax, as Go has it, on a linear-time engine.
//!
//! The syntax of the crate `regex` is nearly that of RE2; what differs is rewritten or refused here. Patterns are bounded in
//! the size that they compile to.

use regex::{Regex, RegexBuilder};

use crate::error::EvalError;
use crate::text::Text;
use crate::value::Value;

/// Bytes that a compiled pattern may take.
const LARGEST: usize = 4 << 20;
/// How often one thing may be repeated.
const MOST_REPEATS: u32 = 1000;
/// How deep groups may nest.
const DEEPEST: u32 = 250;

/// A call whose pattern is known beforehand.
pub(crate) struct Pattern {
    pub regex: Regex,
    pub call: Matching,
}

/// What a pattern is used for.
#[derive(Clone, Copy)]
pub(crate) enum Matching {
    Matches,
    Find,
    FindAll,
}

impl Matching {
    pub(crate) fn of(function: &str) -> Option<Matching> {
        Some(match function {
            "matches" => Matching::Matches,
            "find" => Matching::Find,
            "findAll" => Matching::FindAll,
            _ => return None,
        })
    }
}

/// The pattern of RE2's syntax; the error is for people.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let refused = |why: String| format!("error parsing regexp: {why}");
    let translated = Translate::new(pattern).run().map_err(|why| refused(format!("{why}: `{pattern}`")))?;
    RegexBuilder::new(&translated)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .nest_limit(DEEPEST)
        .build()
        .map_err(|error| refused(error.to_string()))
}

impl Pattern {
    /// The result of the call; `args` are all of its arguments.
    pub(crate) fn apply<'a>(&self, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        let Some(Value::String(text)) = args.first() else { return Err(EvalError::no_such_overload()) };
        match (self.call, args.get(2)) {
            (Matching::Matches, _) => Ok(Value::Bool(self.regex.is_match(text))),
            (Matching::Find, _) => {
                let found = self.regex.find(text).map_or("", |found| found.as_str());
                Ok(Value::text(found.to_owned()))
            }
            (Matching::FindAll, None) => Ok(find_all(&self.regex, text, -1)),
            (Matching::FindAll, Some(Value::Int(most))) => Ok(find_all(&self.regex, text, *most)),
            _ => Err(EvalError::no_such_overload()),
        }
    }
}

fn find_all<'a>(regex: &Regex, text: &str, most: i64) -> Value<'a> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let found = regex.find_iter(text).take(most);
    Value::list(found.map(|found| Value::String(Text::from(found.as_str().to_owned()))).collect())
}

/// A call whose pattern is only known now.
pub(crate) fn call<'a>(call: Matching, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (Some(Value::String(_)), Some(Value::String(pattern))) = (args.first(), args.get(1)) else {
        return Err(EvalError::no_such_overload());
    };
    let regex = compile(pattern).map_err(EvalError::new)?;
    Pattern { regex, call }.apply(args)
}

/// Rewrites a pattern, character by character.
struct Translate<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
    /// Whether a repetition was just read, behind which another must not follow.
    repeated: bool,
}

type Step = Result<(), &'static str>;

impl<'a> Translate<'a> {
    fn new(pattern: &'a str) -> Self {
        let out = String::with_capacity(pattern.len() + 16);
        Translate { rest: pattern.chars().peekable(), out, repeated: false }
    }

    fn run(mut self) -> Result<String, &'static str> {
        while let Some(c) = self.rest.next() {
            let repeats = match c {
                '\\' => {
                    self.escape()?;
                    false
                }
                '[' => {
                    self.class()?;
                    false
                }
                '(' => {
                    self.group()?;
                    false
                }
                '*' | '+' | '?' => self.repetition(c)?,
                '{' => self.braces()?,
                c => {
                    self.literal(c);
                    false
                }
            };
            self.repeated = repeats;
        }
        Ok(self.out)
    }

    fn literal(&mut self, c: char) {
        match c {
            ']' | '}' | '#' | '&' | '~' | '-' => {
                self.out.push('\\');
                self.out.push(c);
            }
            c => self.out.push(c),
        }
    }

    fn repetition(&mut self, c: char) -> Result<bool, &'static str> {
        if self.repeated {
            return Err("invalid nested repetition operator");
        }
        self.out.push(c);
        self.lazy();
        Ok(true)
    }

    /// A `?` behind a repetition.
    fn lazy(&mut self) {
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
    }

    fn braces(&mut self) -> Result<bool, &'static str> {
        let mut ahead = self.rest.clone();
        let inside: String = ahead.by_ref().take_while(|c| *c != '}').take(16).collect();
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let zeros = text.len() > 1 && text.starts_with('0');
            plain.then(|| text.parse::<u32>().unwrap_or(u32::MAX)).filter(|_| !zeros)
        };
        let (least, most) = match inside.split_once(',') {
            None => (number(&inside), number(&inside)),
            Some((least, "")) => (number(least), Some(0)),
            Some((least, most)) => (number(least), number(most)),
        };
        let (Some(least), Some(most)) = (least, most) else {
            self.out.push_str("\\{");
            return Ok(false);
        };
        let open = inside.ends_with(',');
        if least > MOST_REPEATS || most > MOST_REPEATS || (!open && least > most) {
            return Err("invalid repeat count");
        }
        if self.repeated {
            return Err("invalid nested repetition operator");
        }
        self.out.push('{');
        self.out.push_str(&inside);
        self.out.push('}');
        self.rest = ahead;
        self.lazy();
        Ok(true)
    }

    /// What opens a group: its flags and its name are nearly the same in both.
    fn group(&mut self) -> Step {
        self.out.push('(');
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.out.push('?');
        if matches!(self.rest.peek(), Some('P' | '<')) {
            return Ok(());
        }
        for c in self.rest.by_ref() {
            match c {
                'i' | 'm' | 's' | 'U' | '-' => self.out.push(c),
                ':' | ')' => {
                    self.out.push(c);
                    return Ok(());
                }
                _ => return Err("invalid or unsupported Perl syntax"),
            }
        }
        Err("missing closing )")
    }

    /// An escape outside of brackets.
    fn escape(&mut self) -> Step {
        let c = self.rest.next().ok_or("trailing backslash at end of expression")?;
        match c {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str("[\\t\\n\\x0C\\r ]"),
            'S' => self.out.push_str("[^\\t\\n\\x0C\\r ]"),
            'b' => self.out.push_str("(?-u:\\b)"),
            'B' => self.out.push_str("(?:(?-u:\\b{start-half})(?-u:\\b{end-half})|\\B)"),
            'A' | 'z' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'Q' => self.quoted(),
            c => return self.escaped(c),
        }
        Ok(())
    }

    /// `\Q` up to `\E`.
    fn quoted(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.out.push_str(&regex::escape(&c.to_string()));
        }
    }

    /// An escape that means the same inside and outside of brackets.
    fn escaped(&mut self, c: char) -> Step {
        match c {
            'p' | 'P' => {
                self.out.push('\\');
                self.out.push(c);
                let name = self.rest.next().ok_or("invalid character class range")?;
                self.out.push(name);
                if name == '{' {
                    for c in self.rest.by_ref() {
                        self.out.push(c);
                        if c == '}' {
                            break;
                        }
                    }
                }
            }
            c => {
                let code = self.code(c)?;
                self.out.push_str(&format!("\\x{{{code:x}}}"));
            }
        }
        Ok(())
    }

    /// The character that is meant by a backslash and `c`.
    fn code(&mut self, c: char) -> Result<u32, &'static str> {
        Ok(match c {
            'a' => 7,
            'f' => 12,
            't' => 9,
            'n' => 10,
            'r' => 13,
            'v' => 11,
            'x' => self.hexadecimal().ok_or("invalid escape sequence")?,
            '0'..='7' => {
                let mut code = u32::from(c) - u32::from('0');
                let mut digits = 1;
                while digits < 3
                    && let Some(next) = self.rest.next_if(|next| ('0'..='7').contains(next))
                {
                    code = code * 8 + u32::from(next) - u32::from('0');
                    digits += 1;
                }
                if c != '0' && digits == 1 {
                    return Err("invalid escape sequence");
                }
                code
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => u32::from(c),
            _ => return Err("invalid escape sequence"),
        })
    }

    /// Two digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Option<u32> {
        let mut code: u32 = 0;
        if self.rest.next_if_eq(&'{').is_none() {
            for _ in 0..2 {
                code = code * 16 + self.rest.next()?.to_digit(16)?;
            }
            return Some(code);
        }
        loop {
            match self.rest.next()? {
                '}' => return char::from_u32(code).map(u32::from),
                c => code = code.checked_mul(16)?.checked_add(c.to_digit(16)?)?,
            }
        }
    }

    /// A character in brackets, or a range that begins with it.
    fn range(&mut self, from: u32) -> Step {
        let mut ahead = self.rest.clone();
        let mut to = from;
        if ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']') {
            self.rest = ahead;
            to = match self.rest.next() {
                Some('\\') => {
                    let c = self.rest.next().ok_or("missing closing ]")?;
                    self.code(c)?
                }
                Some(c) => u32::from(c),
                None => return Err("missing closing ]"),
            };
        }
        if to < from {
            return Err("invalid character class range");
        }
        self.out.push_str(&format!("\\x{{{from:x}}}-\\x{{{to:x}}}"));
        Ok(())
    }

    /// What is in brackets. RE2 has no operators there.
    fn class(&mut self) -> Step {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        while let Some(c) = self.rest.next() {
            match c {
                ']' if !first => {
                    self.out.push(']');
                    return Ok(());
                }
                '[' if self.rest.peek() == Some(&':') && self.named_class() => {}
                '\\' => match self.rest.next().ok_or("missing closing ]")? {
                    'd' => self.out.push_str("0-9"),
                    'D' => self.out.push_str("[^0-9]"),
                    'w' => self.out.push_str("0-9A-Za-z_"),
                    'W' => self.out.push_str("[^0-9A-Za-z_]"),
                    's' => self.out.push_str("\\t\\n\\x0C\\r\\x20"),
                    'S' => self.out.push_str("[^\\t\\n\\x0C\\r\\x20]"),
                    'p' => self.escaped('p')?,
                    'P' => self.escaped('P')?,
                    c => {
                        let from = self.code(c)?;
                        self.range(from)?;
                    }
                },
                c => {
                    self.range(u32::from(c))?;
                }
            }
            first = false;
        }
        Err("missing closing ]")
    }

    /// `[:alpha:]` and its like.
    fn named_class(&mut self) -> bool {
        let mut ahead = self.rest.clone();
        let inside: String = ahead.by_ref().take_while(|c| *c != ']').take(16).collect();
        if !inside.ends_with(':') || inside.len() < 3 {
            return false;
        }
        self.out.push('[');
        self.out.push_str(&inside);
        self.out.push(']');
        self.rest = ahead;
        true
    }
}
