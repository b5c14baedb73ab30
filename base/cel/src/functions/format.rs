//! Named formats of texts.

use std::sync::Arc;

use podwire_api::syntax;

use super::{Native, Res, unfit, url};
use crate::time::parse_date;
use crate::value::Value;

/// A named format.
pub struct Format {
    /// What it is called.
    pub name: &'static str,
    /// The name by which expressions find it.
    key: &'static str,
    /// Characters of its pattern, by which a check is priced.
    pub(crate) pattern: u64,
    complaints: fn(&str) -> Vec<String>,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}

const fn format(
    key: &'static str,
    name: &'static str,
    pattern: u64,
    complaints: fn(&str) -> Vec<String>,
) -> Format {
    Format { name, key, pattern, complaints }
}

static FORMATS: [Format; 13] = [
    format("dns1123Label", "DNS1123Label", 30, syntax::dns_label),
    format("dns1123Subdomain", "DNS1123Subdomain", 60, syntax::dns_subdomain),
    format("dns1035Label", "DNS1035Label", 30, syntax::dns_1035_label),
    format("qualifiedName", "QualifiedName", 60, syntax::qualified_name),
    format("dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| syntax::dns_label(&prefix(text))),
    format("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        syntax::dns_subdomain(&prefix(text))
    }),
    format("dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| syntax::dns_1035_label(&prefix(text))),
    format("labelValue", "LabelValue", 40, syntax::label_value),
    format("uri", "URI", 1103, |text| url::check_request(text).err().into_iter().collect()),
    format("uuid", "uuid", 70, |text| unless(is_uuid(text), "does not match the UUID format")),
    format("byte", "byte", 84, |text| unless(is_base64(text), "invalid base64")),
    format("date", "date", 71, |text| unless(parse_date(text).is_some(), "invalid date")),
    format("datetime", "datetime", 71, |text| unless(is_date_time(text), "invalid datetime")),
];

/// The names under which the formats are functions.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.key)
}

fn unless(fine: bool, complaint: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![complaint.to_owned()] }
}

/// What begins a name may end with a dash, which is what is left away here.
fn prefix(text: &str) -> String {
    match text.len() > 1 && text.ends_with('-') && text.is_char_boundary(text.len() - 2) {
        true => format!("{}a", &text[..text.len() - 2]),
        false => text.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (place, count) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(count) {
            Some((digits, behind)) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest = behind,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && !body.is_empty()
        && body.bytes().all(plain)
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let Some((date, time)) = text.split_once('t').filter(|_| text.len() >= 4) else { return false };
    let time = time.split('t').next().unwrap_or_default();
    parse_date(date).is_some() && is_time(time)
}

fn is_time(text: &str) -> bool {
    let two = |text: &str, most: &str| {
        text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) && text <= most
    };
    let (Some(hour), Some(minute), Some(second)) = (text.get(..2), text.get(3..5), text.get(6..8)) else {
        return false;
    };
    let colons = text.get(2..3) == Some(":") && text.get(5..6) == Some(":");
    let mut rest = &text[8..];
    // Any character may stand before the fraction.
    if let Some(c) = rest.chars().next() {
        let behind = &rest[c.len_utf8()..];
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        let zone = &behind[digits..];
        if digits > 0 && is_zone(zone) {
            rest = zone;
        }
    }
    colons && two(hour, "23") && two(minute, "59") && two(second, "59") && is_zone(rest)
}

fn is_zone(text: &str) -> bool {
    let digits = |part: Option<&str>| part.is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    text == "z"
        || (text.len() == 6
            && text.starts_with(['+', '-'])
            && digits(text.get(1..3))
            && text.get(3..4) == Some(":")
            && digits(text.get(4..6)))
}

fn find(key: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.key == key)
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "format.named" => |args| match args {
            [Value::String(key)] => {
                Ok(Value::Optional(find(key).map(|format| Arc::new(Value::Format(format)))))
            }
            _ => unfit(),
        },
        "validate" => validate,
        name => return constant(name.strip_prefix("format.")?),
    })
}

/// A function without arguments for each format.
fn constant(key: &str) -> Option<Native> {
    macro_rules! constants {
        ($($place:literal),*) => {
            match FORMATS.iter().position(|format| format.key == key)? {
                $($place => |_| Ok(Value::Format(&FORMATS[$place])),)*
                _ => return None,
            }
        };
    }
    let native: Native = constants!(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    Some(native)
}

fn validate<'a>(args: &mut [Value<'a>]) -> Res<'a> {
    let [Value::Format(format), Value::String(text)] = args else { return unfit() };
    let complaints = (format.complaints)(text);
    if complaints.is_empty() {
        return Ok(Value::Optional(None));
    }
    let complaints = Value::list(complaints.into_iter().map(Value::text).collect());
    Ok(Value::Optional(Some(Arc::new(complaints))))
}
