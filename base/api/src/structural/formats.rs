//! The named formats of texts and numbers that upstream knows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Number;

use super::Kind;

/// Formats of texts, without their dashes.
const TEXTS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format means anything for values of this type; others are ignored.
pub fn is_recognized(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => TEXTS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Whether a format is one of numbers.
pub(super) fn is_numeric(format: &str) -> bool {
    matches!(format, "int32" | "int64" | "float" | "double")
}

/// Whether a number can be held by what the type and format name.
pub(super) fn in_range(kind: Kind, format: Option<&str>, number: &Number) -> bool {
    let float = number.as_f64().unwrap_or_default();
    match (kind, format) {
        (Kind::Integer, Some("int32")) => {
            number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) || is_whole_within(float, 31)
        }
        (Kind::Integer, _) => number.is_i64() || is_whole_within(float, 63),
        (Kind::Number, Some("float")) => float.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

fn is_whole_within(float: f64, bits: i32) -> bool {
    // What has an exponent is not read as a whole number.
    float.fract() == 0.0 && float.abs() < 2_f64.powi(bits) && float.abs() < 1e21
}

/// Whether a text has a format.
pub(super) fn holds(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && sloppy_ip(text).is_some(),
        "ipv6" => text.contains(':') && ip(text).is_some(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => is_ssn(text),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "byte" => !text.is_empty() && text.len().is_multiple_of(4) && STANDARD.decode(text).is_ok(),
        "date" => is_date(text),
        "duration" => crate::time::parse_duration(text).is_some() || is_long_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => text.len() <= 63 && is_name(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_name),
        _ => true,
    }
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    bytes.iter().all(|b| inner(*b)) && ends(bytes.first()) && ends(bytes.last())
}

/// An absolute path, or a URL with a scheme, without control characters.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) || !is_escaped(text) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if !named {
        return false;
    }
    match rest.strip_prefix("//") {
        // A scheme alone is a URL with nothing in it.
        None => true,
        Some(rest) => {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            let port = match host.rsplit_once(':') {
                Some((_, port)) if !host.ends_with(']') => port,
                _ => "",
            };
            !host.contains([' ', '<', '>', '"']) && port.bytes().all(|b| b.is_ascii_digit())
        }
    }
}

fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// `someone@somewhere`, perhaps with a name in front.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match (text.rfind('<'), text.ends_with('>')) {
        (Some(at), true) => &text[at + 1..text.len() - 1],
        (None, false) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let atoms = |text: &str| {
        !text.is_empty() && text.split('.').all(|part| !part.is_empty() && part.chars().all(atom))
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (atoms(local) || quoted) && (atoms(domain) || literal)
}

fn is_hostname(text: &str) -> bool {
    if text.is_empty() || text.len() > 255 {
        return false;
    }
    // Symbols are allowed as well as letters, such as signs and pictures.
    let letter =
        |c: char| c.is_alphabetic() || c.is_ascii_digit() || "$+<=>^`|~".contains(c) || !c.is_ascii();
    let label = |part: &str| {
        let mut ends = [part.chars().next(), part.chars().next_back()].into_iter();
        part.len() <= 63 && part.chars().all(|c| letter(c) || c == '-') && ends.all(|c| c.is_some_and(letter))
    };
    let parts: Vec<&str> = text.split('.').collect();
    let Some((last, rest)) = parts.split_last() else { return false };
    if rest.is_empty() {
        return label(last);
    }
    rest.iter().all(|part| label(part))
        && last.chars().count() >= 2
        && last.len() <= 63
        && last.chars().all(char::is_alphabetic)
}

/// An address as Go reads it: no zone.
fn ip(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv6Addr>()
        .map(IpAddr::from)
        .ok()
        .or_else(|| text.parse::<Ipv4Addr>().map(IpAddr::from).ok())
}

/// An address whose numbers may begin with zeros.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return ip(text);
    }
    let mut out = [0_u8; 4];
    let mut parts = text.split('.');
    for place in &mut out {
        let part = parts.next().filter(|part| !part.is_empty() && part.len() < 20)?;
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        *place = digits.then(|| part.parse::<u64>().ok()).flatten().and_then(|n| u8::try_from(n).ok())?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(out).into())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match sloppy_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    !length.is_empty()
        && length.bytes().all(|b| b.is_ascii_digit())
        && length.parse::<u32>().is_ok_and(|n| n <= most)
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts.iter().all(|part| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::with_capacity(32);
    let mut rest = text;
    for (at, length) in [8_usize, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some(part) = rest.get(..length).filter(|part| part.bytes().all(|b| b.is_ascii_hexdigit())) else {
            return false;
        };
        digits.push_str(part);
        rest = &rest[length..];
    }
    let marked = match version {
        None => true,
        Some(version) => {
            let variant = digits[16..].starts_with(['8', '9', 'a', 'b', 'A', 'B']);
            digits[12..].starts_with(version) && (version == '3' || variant)
        }
    };
    rest.is_empty() && marked
}

fn bare(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = bare(text);
    let digits: Option<Vec<u32>> = text
        .chars()
        .enumerate()
        .map(|(at, c)| if at == 9 && matches!(c, 'X' | 'x') { Some(10) } else { c.to_digit(10) })
        .collect();
    digits.is_some_and(|digits| {
        digits.len() == 10
            && digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>().is_multiple_of(11)
    })
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = bare(text).chars().map(|c| c.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 =
            digits.iter().zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let starts = |prefix: &str| prefix.chars().zip(&digits).all(|(c, digit)| c.to_digit(10) == Some(*digit));
    let known = match digits.len() {
        13 => starts("4"),
        14 => starts("36") || starts("38") || (starts("30") && digits[2] <= 5),
        15 => starts("34") || starts("37") || starts("2131") || starts("1800"),
        16 => {
            starts("4")
                || starts("6011")
                || starts("65")
                || starts("35")
                || (starts("5") && (1..=5).contains(&digits[1]))
        }
        _ => false,
    };
    let doubled = |(at, digit): (usize, &u32)| match (at % 2, digit * 2) {
        (0, _) => *digit,
        (_, twice) if twice > 9 => twice - 9,
        (_, twice) => twice,
    };
    known && digits.iter().rev().enumerate().map(doubled).sum::<u32>().is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let mut rest = text;
    for (at, length) in [3_usize, 2, 4].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        match rest.get(..length) {
            Some(part) if part.bytes().all(|b| b.is_ascii_digit()) => rest = &rest[length..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3
        && parts.iter().all(|part| {
            part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u32>().is_ok_and(|n| n <= 255)
        })
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let bytes = time.as_bytes();
    let two = |at: usize| Some(time.get(at..at + 2)?).filter(|part| part.bytes().all(|b| b.is_ascii_digit()));
    let (Some(hour), Some(minute), Some(second)) = (two(0), two(3), two(6)) else { return false };
    if bytes[2] != b':' || bytes[5] != b':' || hour > "23" || minute > "59" || second > "59" || !is_date(date)
    {
        return false;
    }
    let rest = &time[8..];
    let zone = match rest.find(['z', '+', '-']) {
        Some(at) => {
            let fraction = &rest[..at];
            let digits = fraction.get(1..).unwrap_or_default();
            if !fraction.is_empty() && (digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit())) {
                return false;
            }
            &rest[at..]
        }
        None => return false,
    };
    let shape: String = zone.chars().map(|c| if c.is_ascii_digit() { 'd' } else { c }).collect();
    matches!(shape.as_str(), "z" | "+dd:dd" | "-dd:dd")
}

/// Numbers with the name of a unit, such as `3 days`, anywhere in the text.
fn is_long_duration(text: &str) -> bool {
    const UNITS: &[(&[&str], &str)] = &[
        (&["ns"], "nano"),
        (&["us", "µs"], "micro"),
        (&["ms"], "milli"),
        (&["s"], "sec"),
        (&["m"], "min"),
        (&["h", "hr"], "hour"),
        (&["d"], "day"),
        (&["w", "wk"], "week"),
    ];
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        let unit = digits.trim_start();
        let end = unit.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(unit.len());
        let word = unit[..end].to_lowercase();
        if !word.is_empty()
            && UNITS.iter().any(|(short, long)| short.contains(&word.as_str()) || word.starts_with(long))
        {
            return true;
        }
        rest = &unit[end..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_hold_for_what_they_name() {
        for (format, good, bad) in [
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("uri", "https://a.b/c?d", "a b"),
            ("uri", "/path", "path"),
            ("email", "a@b.c", "a.b.c"),
            ("hostname", "a.example.com", "-a.com"),
            ("ipv4", "010.0.0.1", "10.0.0.256"),
            ("ipv6", "fe80::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:11:22:33:44:55", "00:11:22:33:44"),
            ("uuid", "A987FBC9-4BED-3078-CF07-9141BA07C9F3", "A987FBC9-4BED"),
            ("uuid3", "a987fbc9-4bed-3078-cf07-9141ba07c9f3", "a987fbc9-4bed-4078-8f07-9141ba07c9f3"),
            ("uuid4", "a987fbc9-4bed-4078-8f07-9141ba07c9f3", "a987fbc9-4bed-4078-0f07-9141ba07c9f3"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("isbn10", "0321751043", "0321751044"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "111-11-1111", "111-111-111"),
            ("hexcolor", "#FFF", "#FFFG"),
            ("rgbcolor", "rgb(1,2,255)", "rgb(1,2,256)"),
            ("byte", "ZWxpemFiZXRocG9zZXk=", "ZWxpemFi$"),
            ("date", "2026-02-28", "2026-02-30"),
            ("duration", "1h2m", "1x"),
            ("duration", "3 days", "days"),
            ("date-time", "2026-11-15T12:00:00.5Z", "2026-11-15 12:00:00"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b", "A.b"),
        ] {
            assert!(holds(format, good), "{format} {good}");
            assert!(!holds(format, bad), "{format} {bad}");
        }
        assert!(is_recognized("string", "date-time") && !is_recognized("integer", "date"));
    }
}
