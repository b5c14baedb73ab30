//! URLs, read as Go reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Native, Res, unfit};
use crate::error::EvalError;
use crate::map::{Key, Map};
use crate::text::Text;
use crate::value::Value;

/// An absolute URL or an absolute path.
#[derive(Clone, Debug, Default)]
pub struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    /// The path as it is escaped.
    path: String,
    query: String,
    force_query: bool,
    fragment: String,
    omit_host: bool,
}

pub(super) fn native(name: &str) -> Option<Native> {
    Some(match name {
        "url" => |args| match args {
            [Value::String(text)] => Url::convert(text).map(|url| Value::Url(Arc::new(url))).map_err(|why| {
                EvalError::new(format!("URL parse error during conversion from string: {why}"))
            }),
            _ => unfit(),
        },
        "isURL" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(check_request(text).is_ok())),
            _ => unfit(),
        },
        "getScheme" => |args| text(args, |url| url.scheme.clone()),
        "getHost" => |args| text(args, |url| url.host.clone()),
        "getHostname" => |args| text(args, |url| url.host_and_port().0),
        "getPort" => |args| text(args, |url| url.host_and_port().1),
        "getEscapedPath" => |args| text(args, |url| url.path.clone()),
        "getQuery" => |args| match args {
            [Value::Url(url)] => Ok(url.query()),
            _ => unfit(),
        },
        _ => return None,
    })
}

fn text<'a>(args: &mut [Value<'a>], part: fn(&Url) -> String) -> Res<'a> {
    match args {
        [Value::Url(url)] => Ok(Value::text(part(url))),
        _ => unfit(),
    }
}

/// Why a text is no URI of a request, in Go's words.
pub(crate) fn check_request(text: &str) -> Result<(), String> {
    parse(text, true).map(drop).map_err(|why| format!("parse {}: {why}", quoted(text)))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Url {
    fn convert(text: &str) -> Result<Url, String> {
        check_request(text)?;
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = parse(rest, false).map_err(|why| format!("parse {}: {why}", quoted(rest)))?;
        unescape(fragment, Mode::Fragment)?;
        fragment.clone_into(&mut url.fragment);
        Ok(url)
    }

    fn host_and_port(&self) -> (String, String) {
        let (mut host, mut port) = (self.host.as_str(), "");
        if let Some(colon) = host.rfind(':').filter(|colon| is_port(&host[*colon..])) {
            (host, port) = (&host[..colon], &host[colon + 1..]);
        }
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (inner.unwrap_or(host).to_owned(), port.to_owned())
    }

    fn query(&self) -> Value<'static> {
        let mut found: BTreeMap<Key<'static>, Vec<Value<'static>>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(key), Ok(value)) = (unescape(key, Mode::Query), unescape(value, Mode::Query)) else {
                continue;
            };
            found.entry(Key::String(Text::from(key))).or_default().push(Value::text(value));
        }
        let entries = found.into_iter().map(|(key, values)| (key, Value::list(values)));
        Value::Map(Map::Made(Arc::new(entries.collect())))
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.scheme.is_empty() {
            write!(out, "{}:", self.scheme)?;
        }
        out.write_str(&self.opaque)?;
        if self.opaque.is_empty() {
            let authority = !self.host.is_empty() || self.user.is_some();
            if authority || (!self.omit_host && !self.path.is_empty() && !self.scheme.is_empty()) {
                out.write_str("//")?;
            }
            if let Some(user) = &self.user {
                write!(out, "{user}@")?;
            }
            out.write_str(&self.host)?;
            out.write_str(&self.path)?;
        }
        if self.force_query || !self.query.is_empty() {
            write!(out, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(out, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Path,
    Host,
    Query,
    Fragment,
    User,
}

fn parse(text: &str, request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        "*".clone_into(&mut url.path);
        return Ok(url);
    }
    let (scheme, mut rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    match rest.strip_suffix('?') {
        Some(before) if !before.contains('?') => (rest, url.force_query) = (before, true),
        _ => {
            let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
            query.clone_into(&mut url.query);
            rest = before;
        }
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let authority = !url.scheme.is_empty() || (!request && !rest.starts_with("///"));
    if authority && let Some(behind) = rest.strip_prefix("//") {
        let end = behind.find('/').unwrap_or(behind.len());
        (url.user, url.host) = parse_authority(&behind[..end])?;
        rest = &behind[end..];
    } else if !url.scheme.is_empty() && rest.starts_with('/') {
        url.omit_host = true;
    }
    let path = unescape(rest, Mode::Path)?;
    url.path = if is_encoded(rest) { rest.to_owned() } else { escape(&path) };
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_authority(authority: &str) -> Result<(Option<String>, String), String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = parse_host(host)?;
    if let Some(user) = user {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(fine) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        for part in user.splitn(2, ':') {
            unescape(part, Mode::User)?;
        }
    }
    Ok((user.map(str::to_owned), host))
}

fn parse_host(host: &str) -> Result<String, String> {
    if let Some(inside) = host.strip_prefix('[') {
        let end = inside.rfind(']').ok_or("missing ']' in host")?;
        let port = &inside[end + 1..];
        if !is_port(port) {
            return Err(format!("invalid port {} after host", quoted(port)));
        }
        let address = inside[..end].split("%25").next().unwrap_or_default();
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("invalid host".to_owned());
        }
        return Ok(host.replacen("%25", "%", 1));
    }
    if let Some(colon) = host.find(':') {
        let port = &host[colon..];
        if !is_port(port) {
            return Err(format!("invalid port {} after host", quoted(port)));
        }
    }
    unescape(host, Mode::Host)
}

fn is_port(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|d| d.is_ascii_digit()))
}

fn unescape(text: &str, mode: Mode) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'%' => {
                let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
                    let end = (at + 3).min(bytes.len());
                    let shown = quoted(&String::from_utf8_lossy(&bytes[at..end]));
                    return Err(format!("invalid URL escape {shown}"));
                };
                if mode == Mode::Host && high < 8 {
                    let shown = quoted(&String::from_utf8_lossy(&bytes[at..at + 3]));
                    return Err(format!("invalid URL escape {shown}"));
                }
                out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                at += 3;
                continue;
            }
            b'+' if mode == Mode::Query => out.push(b' '),
            _ => {
                let plain = byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte);
                if mode == Mode::Host && byte < 0x80 && !plain {
                    let shown = quoted(&char::from(byte).to_string());
                    return Err(format!("invalid character {shown} in host name"));
                }
                out.push(byte);
            }
        }
        at += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Whether a path is escaped where it has to be.
fn is_encoded(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte))
}

fn escape(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
