//! Semantic versions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Native, Res, unfit};
use crate::error::EvalError;
use crate::value::Value;

/// A semantic version.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
    build: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Semver {
    /// Parses a version; the error is for people.
    pub fn parse(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let number = |name: &str, text: &str| {
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!("Invalid character(s) found in {name} number {text:?}"));
            }
            if text.len() > 1 && text.starts_with('0') {
                return Err(format!("{name} number must not contain leading zeroes {text:?}"));
            }
            text.parse::<u64>().map_err(|error| error.to_string())
        };
        let numbers = [number("major", major)?, number("minor", minor)?, number("patch", patch)?];
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(identifier).collect())?;
        let build = build.map_or(Ok(Vec::new()), |build| build.split('.').map(meta).collect())?;
        Ok(Semver { numbers, pre, build })
    }

    /// Parses a version that may begin with `v`, have leading zeros, or lack parts.
    fn parse_normalized(text: &str) -> Result<Semver, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(trimmed).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Semver::parse(&parts.join("."))
    }

    pub(crate) fn cmp(&self, other: &Semver) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let pairs = self.pre.iter().zip(&other.pre);
                let first = pairs.map(|(left, right)| left.compare(right)).find(|order| order.is_ne());
                first.unwrap_or_else(|| self.pre.len().cmp(&other.pre.len()))
            }
        })
    }
}

impl std::fmt::Display for Semver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(out, "{major}.{minor}.{patch}")?;
        for (place, part) in self.pre.iter().enumerate() {
            out.write_str(if place == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(out, "{number}")?,
                Identifier::Text(text) => out.write_str(text)?,
            }
        }
        for (place, part) in self.build.iter().enumerate() {
            write!(out, "{}{part}", if place == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}

impl Identifier {
    fn compare(&self, other: &Identifier) -> Ordering {
        match (self, other) {
            (Identifier::Number(left), Identifier::Number(right)) => left.cmp(right),
            (Identifier::Number(_), Identifier::Text(_)) => Ordering::Less,
            (Identifier::Text(_), Identifier::Number(_)) => Ordering::Greater,
            (Identifier::Text(left), Identifier::Text(right)) => left.cmp(right),
        }
    }
}

fn trimmed(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    match rest.bytes().next() {
        Some(first) if first.is_ascii_digit() => rest.to_owned(),
        _ => format!("0{rest}"),
    }
}

fn meta(text: &str) -> Result<String, String> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(text.to_owned()),
        false => Err(format!("Invalid character(s) found in build meta data {text:?}")),
    }
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return text.parse().map(Identifier::Number).map_err(|error| error.to_string());
    }
    match text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(Identifier::Text(text.to_owned())),
        false => Err(format!("Invalid character(s) found in prerelease {text:?}")),
    }
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "semver" => {
            |args| parsed(args)?.map(|version| Value::Semver(Arc::new(version))).map_err(EvalError::new)
        }
        "isSemver" => |args| Ok(Value::Bool(parsed(args)?.is_ok())),
        "major" => |args| part(args, 0),
        "minor" => |args| part(args, 1),
        "patch" => |args| part(args, 2),
        _ => return None,
    })
}

fn parsed(args: &[Value<'_>]) -> Result<Result<Semver, String>, EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Semver::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_normalized(text)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn part<'a>(args: &mut [Value<'a>], place: usize) -> Res<'a> {
    match args {
        [Value::Semver(version)] => Ok(Value::Int(version.numbers[place].cast_signed())),
        _ => unfit(),
    }
}
