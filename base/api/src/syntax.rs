//! Syntax rules of names, labels, keys and numbers, with the texts Kubernetes gives when they are broken.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

fn pattern(rule: &str, regex: &str, examples: &[&str]) -> String {
    let shown: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{regex}')", shown.join(" or "))
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn matches_label(value: &str) -> bool {
    let b = value.as_bytes();
    !b.is_empty()
        && lower_alnum(b[0])
        && lower_alnum(b[b.len() - 1])
        && b.iter().all(|c| lower_alnum(*c) || *c == b'-')
}

fn matches_subdomain(value: &str) -> bool {
    value.split('.').all(matches_label)
}

fn matches_key(value: &str) -> bool {
    let b = value.as_bytes();
    !b.is_empty()
        && b[0].is_ascii_alphanumeric()
        && b[b.len() - 1].is_ascii_alphanumeric()
        && b.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// `must be no more than n characters`.
pub fn max_length(n: usize) -> String {
    format!("must be no more than {n} characters")
}

fn max_bytes(n: usize) -> String {
    format!("must be no more than {n} bytes")
}

/// Complaints about a lowercase RFC 1123 label.
pub fn dns_label(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 63 {
        out.push(max_length(63));
    }
    if !matches_label(value) {
        out.push(if matches_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            pattern(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    out
}

/// Complaints about a lowercase RFC 1123 subdomain.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    subdomain(value, max_length)
}

/// The same in the words that upstream has for newer kinds.
pub fn long_name(value: &str) -> Vec<String> {
    subdomain(value, max_bytes)
}

fn subdomain(value: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 253 {
        out.push(too_long(253));
    }
    if !matches_subdomain(value) {
        out.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    out
}

/// Complaints about a subdomain that begins with a wildcard, such as `*.example.com`.
pub fn wildcard_subdomain(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 253 {
        out.push(max_length(253));
    }
    if !value.strip_prefix("*.").is_some_and(matches_subdomain) {
        out.push(pattern(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    out
}

/// Complaints about the path of a URL.
pub fn url_path(value: &str) -> Vec<String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !value.is_empty() && value.bytes().all(fits) {
        return Vec::new();
    }
    vec!["Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".to_owned()]
}

/// Complaints about a DNS search domain, which may have underscores.
pub fn dns_search(value: &str) -> Vec<String> {
    let plain: String = value
        .split('.')
        .map(|label| label.strip_prefix('_').unwrap_or(label).replace('_', "-"))
        .collect::<Vec<_>>()
        .join(".");
    let mut out = Vec::new();
    if value.len() > 253 {
        out.push(max_length(253));
    }
    if !matches_subdomain(&plain) {
        out.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    out
}

/// Complaints about a DNS-1035 label (service names).
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 63 {
        out.push(max_length(63));
    }
    if !matches_label(value) || !value.as_bytes()[0].is_ascii_lowercase() {
        out.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    out
}

/// Complaints about a name that only has to fit in a path (roles, bindings).
pub fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"].iter().filter(|c| value.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Complaints about a label key or other qualified name.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut parts = value.split('/');
    let (first, second, third) = (parts.next().unwrap_or(""), parts.next(), parts.next());
    let name = match (second, third) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                out.push("prefix part must be non-empty".to_owned());
            } else {
                out.extend(subdomain(first, max_bytes).into_iter().map(|m| format!("prefix part {m}")));
            }
            name
        }
        _ => {
            out.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern(KEY_RULE, KEY, &["MyName", "my.name", "123-abc"])
            ));
            return out;
        }
    };
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        out.push(format!("name part {}", max_bytes(63)));
    }
    if !matches_key(name) {
        out.push(format!("name part {}", pattern(KEY_RULE, KEY, &["MyName", "my.name", "123-abc"])));
    }
    out
}

/// Complaints about a label value.
pub fn label_value(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 63 {
        out.push(max_bytes(63));
    }
    if !value.is_empty() && !matches_key(value) {
        out.push(pattern(
            &format!(
                "a valid label must be an empty string or {}",
                KEY_RULE.replacen("must consist", "consist", 1)
            ),
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    out
}

/// Complaints about a port number.
pub fn port_number(value: i64) -> Option<&'static str> {
    if (1..=65535).contains(&value) { None } else { Some("must be between 1 and 65535, inclusive") }
}

/// Complaints about a port name.
pub fn port_name(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 15 {
        out.push(max_length(15));
    }
    let mut rule = |broken: bool, text: &str| {
        if broken {
            out.push(text.to_owned());
        }
    };
    let charset = !value.is_empty() && value.bytes().all(|b| lower_alnum(b) || b == b'-');
    rule(!charset, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    rule(!value.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    rule(value.contains("--"), "must not contain consecutive hyphens");
    rule(value.starts_with('-') || value.ends_with('-'), "must not begin or end with a hyphen");
    out
}

/// Complaints about the name of an environment variable (any printable ASCII but `=`).
pub fn env_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        vec!["environment variable name must be non-empty".to_owned()]
    } else if value.bytes().any(|b| !(0x20..0x7f).contains(&b) || b == b'=') {
        vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
    } else {
        Vec::new()
    }
}

/// Complaints about a key of a ConfigMap or Secret.
pub fn config_key(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    if value.len() > 253 {
        out.push(max_length(253));
    }
    if value.is_empty()
        || !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        out.push(pattern(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => out.push("must not be '.'".to_owned()),
        ".." => out.push("must not be '..'".to_owned()),
        v if v.starts_with("..") => out.push("must not start with '..'".to_owned()),
        _ => {}
    }
    out
}

/// Complaints about the name of an HTTP header.
pub fn http_header(value: &str) -> Vec<String> {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![pattern(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// Complaints about the reason of a condition.
pub fn condition_reason(value: &str) -> Vec<String> {
    let b = value.as_bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = !b.is_empty()
        && b[0].is_ascii_alphabetic()
        && word(b[b.len() - 1])
        && b.iter().all(|b| word(*b) || matches!(b, b',' | b':'));
    if fits {
        return Vec::new();
    }
    vec![pattern(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
    )]
}

/// Complaints about a name as C has them.
pub fn c_identifier(value: &str) -> Vec<String> {
    let mut bytes = value.bytes();
    let starts = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if starts && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Vec::new();
    }
    vec![pattern(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// Whether a text is a semantic version: <https://semver.org/spec/v2.0.0.html>.
pub fn is_semantic_version(value: &str) -> bool {
    let (rest, build) = value.split_once('+').map_or((value, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest.split_once('-').map_or((rest, None), |(core, before)| (core, Some(before)));
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let is_digits = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    let is_number = |word: &str| is_digits(word) && (word == "0" || !word.starts_with('0'));
    let numbers: Vec<&str> = core.split('.').take(4).collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_number)
        && before.is_none_or(|all| {
            all.split('.').all(|word| is_word(word) && (!is_digits(word) || is_number(word)))
        })
        && build.is_none_or(|all| all.split('.').all(is_word))
}

/// Complaints about a percentage such as `30%`.
pub fn percent(value: &str) -> Vec<String> {
    match value.strip_suffix('%') {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Vec::new(),
        _ => vec![pattern(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_their_rule() {
        type Rule = fn(&str) -> Vec<String>;
        let rules: [(Rule, &[&str], &[&str]); 6] = [
            (dns_label, &["a", "a-b", "0"], &["", "A", "a.b", "-a", "a_b", "é"]),
            (dns_subdomain, &["a.b", "a"], &["", "a..b", ".a", "A.b"]),
            (dns_1035_label, &["a1"], &["", "1a", "a."]),
            (qualified_name, &["a", "a/b", "x.y/Z_1"], &["", "/a", "a/", "a/b/c", "A!/b", "-a"]),
            (label_value, &["", "a", "A.b_c-1"], &["-", "a b", "a/"]),
            (port_name, &["http", "a1"], &["", "1", "-a", "a--b", "HTTP", "abcdefghijklmnopq"]),
        ];
        for (rule, good, bad) in rules {
            for g in good {
                assert!(rule(g).is_empty(), "{g} should be fine: {:?}", rule(g));
            }
            for b in bad {
                assert!(!rule(b).is_empty(), "{b} should be refused");
            }
        }
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            label_value("a b"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
    }
}
