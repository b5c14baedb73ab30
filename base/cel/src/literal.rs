//! Escapes in the literals of strings and bytes.

const REFUSED: &str = "unable to unescape string";

/// How many characters the escape at the start of `source` has; nothing if it is none.
pub(crate) fn escape_length(source: &[char]) -> Option<usize> {
    let digits = |from: usize, count: usize, radix: u32| {
        let all = source.get(from..from + count)?.iter().all(|c| c.is_digit(radix));
        all.then_some(from + count)
    };
    match source.get(1)? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(2),
        'x' | 'X' => digits(2, 2, 16),
        'u' => digits(2, 4, 16),
        'U' => digits(2, 8, 16),
        '0'..='3' => digits(2, 2, 8),
        _ => None,
    }
}

/// Line ends become `\n`, whatever they are.
fn normalized(body: &str) -> String {
    body.replace("\r\n", "\n").replace('\r', "\n")
}

/// What the text between the quotes of a string means.
pub(crate) fn string(body: &str, raw: bool) -> Result<String, &'static str> {
    let body = normalized(body);
    if raw {
        return Ok(body);
    }
    let mut out = String::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        match (c, c == '\\') {
            (c, false) => out.push(c),
            _ => {
                let (code, _) = escaped(&mut rest)?;
                out.push(char::from_u32(code).ok_or("invalid unicode code point")?);
            }
        }
    }
    Ok(out)
}

/// What the text between the quotes of bytes means.
pub(crate) fn bytes(body: &str, raw: bool) -> Result<Vec<u8>, &'static str> {
    let body = normalized(body);
    if raw {
        return Ok(body.into_bytes());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match escaped(&mut rest)? {
            (_, true) => return Err(REFUSED),
            (code, false) => out.push(u8::try_from(code).map_err(|_| REFUSED)?),
        }
    }
    Ok(out)
}

/// The code behind a backslash, and whether it is one that only strings may have.
fn escaped(rest: &mut std::str::Chars<'_>) -> Result<(u32, bool), &'static str> {
    let first = rest.next().ok_or(REFUSED)?;
    let mut number = |start: u32, count: usize, radix: u32| {
        (0..count).try_fold(start, |code, _| {
            let digit = rest.next().and_then(|c| c.to_digit(radix)).ok_or(REFUSED)?;
            Ok::<u32, &'static str>(code.wrapping_mul(radix).wrapping_add(digit))
        })
    };
    Ok(match first {
        'a' => (7, false),
        'b' => (8, false),
        'f' => (12, false),
        'n' => (10, false),
        'r' => (13, false),
        't' => (9, false),
        'v' => (11, false),
        '\\' | '\'' | '"' | '`' | '?' => (u32::from(first), false),
        'x' | 'X' => (number(0, 2, 16)?, false),
        'u' => (number(0, 4, 16)?, true),
        'U' => (number(0, 8, 16)?, true),
        '0'..='3' => (number(u32::from(first) - u32::from('0'), 2, 8)?, false),
        _ => return Err(REFUSED),
    })
}
