//! Pod templates as Go prints them: the names that upstream's controllers give to what they make are hashes of that text.
//!
//! A table says how Go names and orders the fields of everything that a pod template is made of; `cargo xtask gen kinds`
//! writes it from the published modules. The text is pinned to that version: a field that upstream adds changes every hash.

#[rustfmt::skip]
mod generated;

use serde_json::Value;

use generated::TYPES;

/// Letters and digits of a hash: none that make words, none that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// A time that was never set.
const NO_TIME: &str = "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}";

/// A type of Go's.
enum GoType {
    /// Another name for a type.
    Named(&'static str),
    /// A struct with its fields in their order.
    Struct(&'static [GoField]),
}

/// A field of a struct.
struct GoField {
    name: &'static str,
    /// Its name in JSON; empty for one whose fields are those of the object itself.
    json: &'static str,
    ty: &'static str,
}

const fn g(name: &'static str, json: &'static str, ty: &'static str) -> GoField {
    GoField { name, json, ty }
}

/// The hash of a pod template as it is stored, for names and labels; `collisions` counts names that were taken.
///
/// Upstream's `ComputeHash`: FNV-1a over the printed template, then `SafeEncodeString`.
pub fn pod_template_hash(template: &Value, collisions: Option<u32>) -> String {
    let mut hash = Fnv::default();
    hash.add(pod_template_text(template).as_bytes());
    if let Some(collisions) = collisions {
        hash.add(&u64::from(collisions).to_le_bytes());
    }
    let letter = |digit: u8| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]);
    hash.0.to_string().bytes().map(letter).collect()
}

/// A pod template as Go prints it with all names and types.
fn pod_template_text(template: &Value) -> String {
    let mut out = String::with_capacity(4096);
    print("v1.PodTemplateSpec", template, true, &mut out);
    out
}

/// <http://www.isthe.com/chongo/tech/comp/fnv/>, FNV-1a of 32 bits.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0x811c_9dc5)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

fn print(ty: &str, value: &Value, typed: bool, out: &mut String) {
    if typed {
        out.push('(');
        out.push_str(ty);
        out.push(')');
    }
    if let Some(inner) = ty.strip_prefix('*') {
        return if value.is_null() { out.push_str("<nil>") } else { print(inner, value, false, out) };
    }
    if let Some(element) = ty.strip_prefix("[]") {
        return list(element, value, out);
    }
    if let Some((_, element)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return map(element, value, out);
    }
    match ty {
        "v1.Time" => out.push_str(NO_TIME),
        "intstr.IntOrString" => int_or_string(value, out),
        "resource.Quantity" => quantity(value.as_str().unwrap_or("0"), out),
        _ => match TYPES.binary_search_by(|(name, _)| (*name).cmp(ty)).map(|at| &TYPES[at].1) {
            Ok(GoType::Struct(fields)) => structure(fields, value, out),
            Ok(GoType::Named(other)) => print(other, value, false, out),
            Err(_) => scalar(ty, value, out),
        },
    }
}

fn structure(fields: &[GoField], value: &Value, out: &mut String) {
    out.push('{');
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        out.push_str(field.name);
        out.push(':');
        let own = if field.json.is_empty() { value } else { &value[field.json] };
        print(field.ty, own, true, out);
    }
    out.push('}');
}

fn list(element: &str, value: &Value, out: &mut String) {
    let Some(items) = value.as_array().filter(|items| !items.is_empty()) else {
        return out.push_str("<nil>");
    };
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        print(element, item, false, out);
    }
    out.push(']');
}

fn map(element: &str, value: &Value, out: &mut String) {
    let Some(entries) = value.as_object().filter(|map| !map.is_empty()) else { return out.push_str("<nil>") };
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    out.push_str("map[");
    for (at, (key, entry)) in sorted.into_iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        print(element, entry, false, out);
    }
    out.push(']');
}

fn scalar(ty: &str, value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Null if ty == "bool" => out.push_str("false"),
        Value::Null if ty.starts_with("int") || ty.starts_with("uint") => out.push('0'),
        Value::Null => {}
        other => out.push_str(&other.to_string()),
    }
}

fn int_or_string(value: &Value, out: &mut String) {
    let (kind, number, text) = match value {
        Value::String(text) => (1, 0, text.as_str()),
        other => (0, other.as_i64().unwrap_or(0), ""),
    };
    out.push_str(&format!("{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"));
}

/// A quantity's insides: what was parsed of its canonical text, and that text if upstream keeps it.
fn quantity(text: &str, out: &mut String) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let number: i64 = digits.parse().unwrap_or(0);
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().zip(1u32..).find(|(one, _)| **one == suffix);
    let decimal = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    let (value, scale, format, kept) = match binary {
        Some((_, step)) => (number.saturating_mul(1 << (10 * step)), 0, "BinarySI", number & 7 != 0),
        None => {
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|rest| rest.parse().ok());
            let known = decimal.iter().find(|(one, _)| *one == suffix).map(|(_, scale)| *scale);
            let (scale, format) = match (known, exponent) {
                (Some(scale), _) => (scale, "DecimalSI"),
                (None, Some(scale)) => (scale, "DecimalExponent"),
                (None, None) => (0, "DecimalSI"),
            };
            (
                number,
                scale,
                format,
                scale % 3 == 0 && !digits.ends_with("000") && (number == 0 || !digits.starts_with('0')),
            )
        }
    };
    let kept = if kept { text } else { "" };
    out.push_str(&format!(
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
         d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){kept} Format:(resource.Format){format}}}"
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{by_resource, defaults};

    fn template(resource: &str, app: &str) -> Value {
        let template = json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}});
        let mut object = json!({"metadata": {"name": app}, "spec": {"selector": {"matchLabels": {"app": app}}, "template": template}});
        defaults::apply(by_resource("apps", "v1", resource).unwrap(), &mut object);
        object["spec"]["template"].take()
    }

    /// Hashes that a real controller manager of 1.36 gave.
    #[test]
    fn templates_have_upstreams_hashes() {
        let web = template("deployments", "web");
        assert_eq!(pod_template_text(&web).len(), 3445, "{}", pod_template_text(&web));
        assert_eq!(pod_template_hash(&web, None), "bfb6488d7");
        assert_eq!(pod_template_hash(&template("daemonsets", "ds"), None), "7cc4485d96");
        assert_ne!(pod_template_hash(&web, Some(1)), "bfb6488d7");
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(TYPES.is_sorted_by_key(|(name, _)| *name));
    }
}
