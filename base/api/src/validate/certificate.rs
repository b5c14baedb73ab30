//! Rules of certificate requests: what is asked for, and that who approves does so in `/approval` and nobody takes it back.
//!
//! The signature of a request is not verified: that is up to who signs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use crate::path::Path;
use crate::syntax;

/// Conditions that say what became of a request; they are true or not there.
const VERDICTS: &[&str] = &["Approved", "Denied", "Failed"];

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Through which part a request is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// The request itself.
    Main,
    /// `/status`, where certificates come.
    Status,
    /// `/approval`, where verdicts come.
    Approval,
}

/// A new request.
pub(crate) fn create(object: &Value, errors: &mut Errors) {
    request(object, None, errors);
}

/// A request after an update through `part`; what was there before it was looked at so closely may stay.
pub(crate) fn update(new: &Value, old: &Value, part: Through, errors: &mut Errors) {
    request(new, Some(old), errors);
    let path = Path::root("status");
    let here = path.child("conditions");
    let of = |object: &Value, verdict: &str| -> Vec<Value> {
        let all = list(&object["status"]["conditions"]).iter();
        all.filter(|condition| text(&condition["type"]) == verdict).cloned().collect()
    };
    for verdict in VERDICTS {
        if of(new, verdict).len() < of(old, verdict).len() {
            errors.forbidden(&here, &format!("updates may not remove a condition of type {verdict:?}"));
        }
    }
    let approval = part == Through::Approval;
    for verdict in VERDICTS.iter().filter(|verdict| !approval && **verdict != "Failed") {
        let (now, before) = (of(new, verdict), of(old, verdict));
        if now.len() > before.len() {
            errors.forbidden(&here, &format!("updates may not add a condition of type {verdict:?}"));
        } else if now.len() == before.len() && now != before {
            errors.forbidden(&here, &format!("updates may not modify a condition of type {verdict:?}"));
        }
    }
    let (issued, before) = (text(&new["status"]["certificate"]), text(&old["status"]["certificate"]));
    if issued != before {
        let here = path.child("certificate");
        if part != Through::Status {
            errors.forbidden(&here, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(&here, "updates may not modify existing certificate content");
        }
    }
}

fn request(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = &new["spec"];
    if let Err(words) = signing_request(text(&spec["request"])) {
        errors.invalid(&path.child("request"), &spec["request"], words);
    }
    usages(list(&spec["usages"]), old, &path.child("usages"), errors);
    signer(text(&spec["signerName"]), old, &path.child("signerName"), errors);
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let words = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&path.child("expirationSeconds"), seconds, words);
    }
    conditions(new, old, errors);
    let issued = text(&new["status"]["certificate"]);
    let before = old.map(|old| text(&old["status"]["certificate"]));
    let tolerated = before.is_some_and(|before| before == issued || certificates(before).is_err());
    if let Err(words) = certificates(issued)
        && !tolerated
    {
        errors.invalid(&Path::root("status").child("certificate"), "<certificate data>", &words);
    }
}

fn usages(usages: &[Value], old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let unknown = |usage: &Value| !USAGES.contains(&text(usage));
    let before = old.map_or(&[][..], |old| list(&old["spec"]["usages"]));
    if usages.is_empty() {
        errors.required(path, "");
    }
    if !before.iter().any(unknown) {
        for (i, usage) in usages.iter().enumerate().filter(|(_, usage)| unknown(usage)) {
            errors.not_supported(&path.index(i), text(usage), USAGES);
        }
    }
    let mut seen = Seen::default();
    let twice = before.iter().filter(|usage| seen.again(text(usage))).count() > 0;
    let mut seen = Seen::default();
    for (i, usage) in usages.iter().map(text).enumerate() {
        if seen.again(usage) && !twice {
            errors.duplicate(&path.index(i), usage);
        }
    }
}

/// The name of who signs, such as `example.com/signer-name`.
fn signer(name: &str, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    const LEGACY: &str = "kubernetes.io/legacy-unknown";
    const MOST_DOMAIN: usize = 253;
    const MOST: usize = MOST_DOMAIN + 1 + 253 + 63 + 1;
    if name == LEGACY && !old.is_some_and(|old| old["spec"]["signerName"] == LEGACY) {
        return errors.invalid(path, name, "the legacy signerName is not allowed via this API version");
    }
    if name.is_empty() {
        return errors.required(path, "");
    }
    let [domain, rest] = name.split('/').collect::<Vec<_>>()[..] else {
        let words = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, words);
    };
    if domain.len() > MOST_DOMAIN {
        errors.too_long(path, MOST_DOMAIN);
    }
    labels(domain, syntax::dns_label, path, errors);
    if !domain.contains('.') {
        let words = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, domain, words);
    }
    labels(rest, syntax::dns_subdomain, path, errors);
    if name.len() > MOST {
        errors.too_long(path, MOST);
    }
}

/// Complaints about the first part between dots that breaks a rule.
fn labels(whole: &str, rule: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut Errors) {
    let bad = whole.split('.').map(|label| (label, rule(label))).find(|(_, bad)| !bad.is_empty());
    for (label, words) in bad.iter().flat_map(|(label, all)| all.iter().map(move |words| (label, words))) {
        errors.invalid(path, whole, &format!("validating label {label:?}: {words}"));
    }
}

fn conditions(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let root = Path::root("status");
    let path = root.child("conditions");
    let before = old.map_or(&[][..], |old| list(&old["status"]["conditions"]));
    let had = |kind: &str| before.iter().any(|condition| text(&condition["type"]) == kind);
    let both = had("Approved") && had("Denied");
    let nameless = had("");
    let mut kinds = Seen::default();
    let twice = before.iter().filter(|condition| kinds.again(text(&condition["type"]))).count() > 0;
    let (mut seen, mut judged) = (Seen::default(), None);
    for (i, condition) in list(&new["status"]["conditions"]).iter().enumerate() {
        let here = path.index(i);
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        if kind.is_empty() && !nameless {
            errors.required(&here.child("type"), "");
        }
        let supported: &[&str] =
            if VERDICTS.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.required(&here.child("status"), "");
        } else if !supported.contains(&status) {
            errors.not_supported(&here.child("status"), status, supported);
        }
        let judges = matches!(kind, "Approved" | "Denied");
        if judges && judged.replace(kind).is_some_and(|other| other != kind) && !both {
            errors.invalid(&path, kind, "Approved and Denied conditions are mutually exclusive");
        }
        if seen.again(kind) && !twice {
            errors.duplicate(&here.child("type"), kind);
        }
    }
}

/// A block of PEM: its type, whether it has headers, its bytes, and what follows.
struct Block<'a> {
    kind: &'a str,
    headers: bool,
    bytes: Vec<u8>,
    rest: &'a str,
}

/// Beginnings of blocks that are none, after which nothing more is looked for: each costs a search to the end.
const MOST_FALSE: usize = 64;

/// The first block of PEM in a text; what is none is skipped, as long as there are `tries`.
fn block<'a>(mut text: &'a str, tries: &mut usize) -> Option<Block<'a>> {
    const BEGIN: &str = "-----BEGIN ";
    loop {
        *tries = tries.checked_sub(1)?;
        let start = if text.starts_with(BEGIN) { 0 } else { text.find("\n-----BEGIN ")? + 1 };
        let after = &text[start + BEGIN.len()..];
        let (line, body) = after.split_once('\n').unwrap_or((after, ""));
        text = body;
        let Some(kind) = line.trim_end().strip_suffix("-----") else { continue };
        let end = format!("-----END {kind}-----");
        let Some(at) = body.find(&end) else { continue };
        let (content, rest) = (&body[..at], &body[at + end.len()..]);
        let headers = content.lines().take_while(|line| line.contains(':')).count();
        let base64: String = content.lines().skip(headers).flat_map(str::split_whitespace).collect();
        let Ok(bytes) = STANDARD.decode(base64) else { continue };
        *tries += 1;
        return Some(Block { kind, headers: headers > 0, bytes, rest });
    }
}

/// One element of DER: its tag, its content, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..=0x7f => (usize::from(*short), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Whether bytes are what is signed, by what, and the signature: the frame of requests and certificates.
fn is_signed(bytes: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const BITS: u8 = 0x03;
    let parts = || {
        let (outer, content, _) = element(bytes)?;
        let (signed, _, rest) = element(content)?;
        let (by, _, rest) = element(rest)?;
        let (signature, _, rest) = element(rest)?;
        Some([outer, signed, by] == [SEQUENCE; 3] && signature == BITS && rest.is_empty())
    };
    parts() == Some(true)
}

fn signing_request(given: &str) -> Result<(), &'static str> {
    const WORDS: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = STANDARD.decode(given).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(WORDS)?;
    let mut tries = MOST_FALSE;
    let block = block(&pem, &mut tries).filter(|block| block.kind == "CERTIFICATE REQUEST").ok_or(WORDS)?;
    if element(&block.bytes).is_some_and(|(_, _, rest)| !rest.is_empty()) {
        return Err("asn1: syntax error: trailing data");
    }
    if is_signed(&block.bytes) { Ok(()) } else { Err("x509: malformed certificate request") }
}

fn certificates(given: &str) -> Result<(), String> {
    if given.is_empty() {
        return Ok(());
    }
    let pem = STANDARD.decode(given).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let (mut rest, mut blocks, mut tries) = (pem.as_str(), 0, MOST_FALSE);
    while let Some(block) = block(rest, &mut tries) {
        if block.kind != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.kind));
        }
        if block.headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.bytes.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        if !is_signed(&block.bytes) {
            return Err("x509: malformed certificate".to_owned());
        }
        (rest, blocks) = (block.rest, blocks + 1);
    }
    if blocks == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}
