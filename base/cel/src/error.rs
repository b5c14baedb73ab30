//! What is wrong with an expression: at compile time with its place, at run time with a text.

use std::fmt;

/// Why an expression is refused before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// The line, from 1; 0 when it is about the whole expression.
    pub line: usize,
    /// The column, from 1; 0 when there is nothing to show.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line as it was written.
    snippet: String,
}

impl CompileError {
    pub(crate) fn at(source: &[char], at: usize, message: impl Into<String>) -> CompileError {
        let before = &source[..at.min(source.len())];
        let line = before.iter().filter(|c| **c == '\n').count();
        let from = before.iter().rposition(|c| *c == '\n').map_or(0, |newline| newline + 1);
        let snippet = source[from..].iter().take_while(|c| **c != '\n').collect();
        // Nothing has no first column.
        let column = if source.is_empty() { 0 } else { before.len() - from + 1 };
        CompileError { line: line + 1, column, message: message.into(), snippet }
    }

    pub(crate) fn whole(message: impl Into<String>) -> CompileError {
        CompileError { line: 0, column: 0, message: message.into(), snippet: String::new() }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(out, "ERROR: <input>:-1:0: {}", self.message);
        }
        write!(out, "ERROR: <input>:{}:{}: {}", self.line, self.column, self.message)?;
        if self.column == 0 {
            return Ok(());
        }
        write!(out, "\n | {}\n | ", self.snippet.replace('\t', " "))?;
        // Wide characters get wide dots, so that the mark stands below its place.
        for c in self.snippet.chars().take(self.column - 1) {
            out.write_str(if c.len_utf8() > 1 { "．" } else { "." })?;
        }
        out.write_str(match self.snippet.chars().nth(self.column - 1) {
            Some(c) if c.len_utf8() > 1 => "＾",
            _ => "^",
        })
    }
}

impl std::error::Error for CompileError {}

/// Every reason why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors(pub Vec<CompileError>);

impl fmt::Display for CompileErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                out.write_str("\n")?;
            }
            error.fmt(out)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileErrors {}

/// Why an evaluation has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression failed; `&&`, `||` and the quantifiers may absorb it.
    #[error("{0}")]
    Failed(String),
    /// The budget is spent. Nothing absorbs it.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
}

impl EvalError {
    pub(crate) fn new(message: impl Into<String>) -> EvalError {
        EvalError::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> EvalError {
        EvalError::Failed("no such overload".to_owned())
    }
}
