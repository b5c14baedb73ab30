//! Text to tokens, as CEL's grammar has them.

use crate::ast::Literal;
use crate::literal;
use crate::text::Text;

/// A token and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub at: usize,
    pub kind: Lexeme,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lexeme {
    Ident(String),
    Literal(Literal),
    /// Digits whose value depends on a sign in front: base and digits.
    Number(u32, String),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Why a text is no list of tokens.
#[derive(Debug)]
pub(crate) struct LexError {
    pub at: usize,
    pub message: String,
}

/// The longest first, so that none hides another.
const SYMBOLS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%", "`",
];

/// The tokens of `source`, the last one being the end.
pub(crate) fn tokens(source: &[char]) -> Result<Vec<Token>, LexError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut out = Vec::new();
    loop {
        lexer.skip_blank();
        let at = lexer.at;
        let kind = lexer.next()?;
        let end = kind == Lexeme::End;
        out.push(Token { at, kind });
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    source: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                Some('\t' | ' ' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Result<Lexeme, LexError> {
        let Some(first) = self.peek(0) else { return Ok(Lexeme::End) };
        if let Some(literal) = self.quoted()? {
            return Ok(Lexeme::Literal(literal));
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let from = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.at += 1;
            }
            let word: String = self.source[from..self.at].iter().collect();
            return Ok(match word.as_str() {
                "in" => Lexeme::Symbol("in"),
                "true" => Lexeme::Literal(Literal::Bool(true)),
                "false" => Lexeme::Literal(Literal::Bool(false)),
                "null" => Lexeme::Literal(Literal::Null),
                _ => Lexeme::Ident(word),
            });
        }
        match SYMBOLS.iter().find(|symbol| self.starts_with(symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Lexeme::Symbol(symbol))
            }
            None => Err(self.unrecognized(self.at, self.at + 1)),
        }
    }

    fn unrecognized(&self, from: usize, to: usize) -> LexError {
        let text: String = self.source[from..to.min(self.source.len())].iter().collect();
        LexError { at: from, message: format!("Syntax error: token recognition error at: '{text}'") }
    }

    /// A string or bytes, with their prefixes.
    fn quoted(&mut self) -> Result<Option<Literal>, LexError> {
        let from = self.at;
        let mut ahead = 0;
        let bytes = matches!(self.peek(ahead), Some('b' | 'B'));
        ahead += usize::from(bytes);
        let raw = matches!(self.peek(ahead), Some('r' | 'R'));
        ahead += usize::from(raw);
        let Some(quote @ ('"' | '\'')) = self.peek(ahead) else { return Ok(None) };
        self.at += ahead;
        let long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let body = match long {
            true => self.body(quote, 3, raw),
            false => None,
        };
        // Three quotes without an end are an empty string and the start of another.
        let body = match body {
            Some(body) => body,
            None => {
                self.at = from + ahead;
                self.body(quote, 1, raw).ok_or_else(|| self.unrecognized(from, self.source.len()))?
            }
        };
        let refused = |message: &str| LexError { at: from, message: message.to_owned() };
        Ok(Some(match bytes {
            true => Literal::Bytes(literal::bytes(&body, raw).map_err(refused)?),
            false => Literal::String(Text::from(literal::string(&body, raw).map_err(refused)?)),
        }))
    }

    /// What is between quotes, `many` of them on each side; nothing if they do not end or hold what they must not.
    fn body(&mut self, quote: char, many: usize, raw: bool) -> Option<String> {
        self.at += many;
        let from = self.at;
        loop {
            let c = self.peek(0)?;
            if c == quote && (0..many).all(|ahead| self.peek(ahead) == Some(quote)) {
                let body = self.source[from..self.at].iter().collect();
                self.at += many;
                return Some(body);
            }
            match c {
                '\n' | '\r' if many == 1 => return None,
                '\\' if !raw => self.at += literal::escape_length(&self.source[self.at..])?,
                _ => self.at += 1,
            }
        }
    }

    fn digits(&mut self, out: &mut String, radix: u32) {
        while let Some(c) = self.peek(0).filter(|c| c.is_digit(radix)) {
            out.push(c);
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Lexeme, LexError> {
        let from = self.at;
        let mut text = String::new();
        if self.starts_with("0x") && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit()) {
            self.at += 2;
            self.digits(&mut text, 16);
            return self.integer(from, 16, text);
        }
        self.digits(&mut text, 10);
        let mut float = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            float = true;
            text.push('.');
            self.at += 1;
            self.digits(&mut text, 10);
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                float = true;
                text.extend(&self.source[self.at..=self.at + sign]);
                self.at += 1 + sign;
                self.digits(&mut text, 10);
            }
        }
        if !float {
            return self.integer(from, 10, text);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Lexeme::Literal(Literal::Double(value))),
            _ => Err(LexError { at: from, message: "invalid double literal".to_owned() }),
        }
    }

    fn integer(&mut self, from: usize, radix: u32, digits: String) -> Result<Lexeme, LexError> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return match u64::from_str_radix(&digits, radix) {
                Ok(value) => Ok(Lexeme::Literal(Literal::Uint(value))),
                Err(_) => Err(LexError { at: from, message: "invalid uint literal".to_owned() }),
            };
        }
        Ok(Lexeme::Number(radix, digits))
    }
}
