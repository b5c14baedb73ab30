//! Rules of dynamic resource allocation: claims, claim templates, device classes and slices, in upstream's order.
//!
//! Here is what several of the kinds have: names, lists that are bounded, selectors and configurations. Expressions
//! are judged by whoever the complaints are collected with.
//!
//! <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-claim-v1/>

mod capacity;
mod claim;
mod class;
mod shown;
mod slice;
mod status;

use std::borrow::Cow;

use serde_json::Value;

use super::error::{Errors, Seen, list, text};
use super::volume::driver_name;
use super::{meta, pod};
use crate::path::Path;
use crate::syntax;

pub(crate) use claim::{claim_change, claim_object, template_change, template_object};
pub(crate) use class::{class_change, class_object};
pub(crate) use slice::{slice_change, slice_object};
pub(crate) use status::claim_status_change;

/// Requests of a claim, and devices that one is given.
const MOST_REQUESTS: usize = 32;
const MOST_SELECTORS: usize = 32;
const MOST_CONFIGS: usize = 32;
const LONGEST_EXPRESSION: usize = 10 * 1024;
const LONGEST_PARAMETERS: usize = 10 * 1024;
/// The longest name in a domain, and the longest with it.
const LONGEST_IDENTIFIER: usize = 32;
const LONGEST_QUALIFIED: usize = 63 + 1 + LONGEST_IDENTIFIER;
const LONGEST_POOL: usize = 253;
const LONGEST_LABEL: usize = 63;
const MOST_BINDING_CONDITIONS: usize = 4;

/// Looks at the items of a list, unless they are too many.
fn each<'a>(
    items: &'a Value,
    most: usize,
    path: &Path<'_>,
    errors: &mut Errors,
    mut one: impl FnMut(&'a Value, &Path<'_>, &mut Errors),
) -> bool {
    let items = list(items);
    if items.len() > most {
        errors.too_many(path, items.len(), most);
        return false;
    }
    for (i, item) in items.iter().enumerate() {
        one(item, &path.index(i), errors);
    }
    true
}

/// [`each`], and then that no two are the same by their key.
fn set<'a, K: Eq + std::hash::Hash + Clone>(
    items: &'a Value,
    most: usize,
    path: &Path<'_>,
    errors: &mut Errors,
    one: impl FnMut(&'a Value, &Path<'_>, &mut Errors),
    key: impl Fn(&'a Value) -> K,
    show: impl Fn(K) -> super::error::Shown,
) {
    if !each(items, most, path, errors, one) {
        return;
    }
    let mut seen = Seen::default();
    for (i, item) in list(items).iter().enumerate() {
        let key = key(item);
        if seen.again(key.clone()) {
            errors.duplicate(&path.index(i), show(key));
        }
    }
}

/// [`set`] of what has a name.
fn named<'a>(
    items: &'a Value,
    field: &str,
    most: usize,
    path: &Path<'_>,
    errors: &mut Errors,
    one: impl FnMut(&'a Value, &Path<'_>, &mut Errors),
) {
    set(items, most, path, errors, one, |item| text(&item[field]), quoted);
}

fn quoted(text: &str) -> super::error::Shown {
    super::error::Shown(format!("{text:?}"))
}

/// Looks at the entries of a map: a complaint about a key is told at the map, one about a value at its key.
fn entries<'a>(
    map: &'a Value,
    longest: usize,
    path: &Path<'_>,
    errors: &mut Errors,
    key: impl Fn(&'a str, &Path<'_>, &mut Errors),
    mut value: impl FnMut(&'a Value, &Path<'_>, &mut Errors),
) {
    for (name, item) in map.as_object().into_iter().flatten() {
        key(name, path, errors);
        value(item, &path.key(&shortened(name, longest)), errors);
    }
}

/// A text without its middle, if it is too long.
fn shortened(text: &str, longest: usize) -> Cow<'_, str> {
    const MARK: &str = "...";
    if text.len() <= longest {
        return text.into();
    }
    let left = longest - MARK.len();
    let part = |range| String::from_utf8_lossy(&text.as_bytes()[range]).into_owned();
    let head = part(0..left.div_ceil(2));
    format!("{head}{MARK}{}", part(text.len() - left / 2..text.len())).into()
}

fn label(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.all_invalid(path, name, syntax::dns_label(name));
}

fn pool_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > LONGEST_POOL {
        errors.too_long(path, LONGEST_POOL);
    }
    for part in name.split('/') {
        errors.all_invalid(path, part, syntax::dns_subdomain(part));
    }
}

/// The name of an attribute or a capacity, with or without a domain.
fn qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').take(3).collect();
    match parts.as_slice() {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            match *domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => driver_name(domain, path, errors),
            }
            match *id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                id => identifier(id, path, errors),
            }
        }
        // As upstream has it.
        _ => {}
    }
}

/// The name of an attribute with its domain.
fn fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    qualified_name(name, path, errors);
    if !name.contains('/') {
        let words = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(path, name, words);
    }
}

fn identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > LONGEST_IDENTIFIER {
        errors.too_long(path, LONGEST_IDENTIFIER);
    }
    errors.all_invalid(path, id, syntax::c_identifier(id));
}

fn label_name(key: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.all_invalid(path, key, syntax::qualified_name(key));
}

/// What selects devices; expressions that are as they were stored may be what no new one may.
fn selectors(selectors: &Value, is_stored: bool, path: &Path<'_>, errors: &mut Errors) {
    each(selectors, MOST_SELECTORS, path, errors, |selector, path, errors| {
        let here = path.child("cel");
        if !selector["cel"].is_object() {
            return errors.required(&here, "");
        }
        let (expression, here) = (text(&selector["cel"]["expression"]), here.child("expression"));
        if expression.len() > LONGEST_EXPRESSION {
            return errors.too_long(&here, LONGEST_EXPRESSION);
        }
        errors.selector(&here, expression, is_stored);
    });
}

/// A configuration for drivers; parameters that are as they were stored may be longer than new ones.
fn config(config: &Value, is_stored: bool, path: &Path<'_>, errors: &mut Errors) {
    let (here, opaque) = (path.child("opaque"), &config["opaque"]);
    if !opaque.is_object() {
        return errors.required(&here, "");
    }
    driver_name(text(&opaque["driver"]), &here.child("driver"), errors);
    let longest = if is_stored { usize::MAX } else { LONGEST_PARAMETERS };
    raw(&opaque["parameters"], longest, &here.child("parameters"), errors);
}

/// A JSON object that is not looked into.
fn raw(value: &Value, longest: usize, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Null => errors.required(path, ""),
        value if longest != usize::MAX && is_longer(value, longest) => errors.too_long(path, longest),
        Value::Object(_) => {}
        _ => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// Whether a value takes more bytes than that as JSON without blanks.
fn is_longer(value: &Value, longest: usize) -> bool {
    struct Room(usize);
    impl std::io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(longest), value).is_err()
}

fn node_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.all_invalid(path, name, syntax::dns_subdomain(name));
}

const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

fn toleration(toleration: &Value, path: &Path<'_>, errors: &mut Errors) {
    let key = text(&toleration["key"]);
    if !key.is_empty() {
        label_name(key, &path.child("key"), errors);
    }
    let (value, here) = (text(&toleration["value"]), path.child("value"));
    match text(&toleration["operator"]) {
        "Exists" if !value.is_empty() => {
            errors.invalid(&here, value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => errors.all_invalid(&here, value, syntax::label_value(value)),
        "" => errors.required(&path.child("operator"), ""),
        other => errors.not_supported(&path.child("operator"), other, &["Equal", "Exists"]),
    }
    let effect = text(&toleration["effect"]);
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(&path.child("effect"), effect, EFFECTS);
    }
}

/// Conditions that a device waits for before a pod is bound, and those that end the wait.
fn binding_conditions(given: &Value, path: &Path<'_>, errors: &mut Errors) {
    const BOTH: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for field in BOTH {
        each(&given[field], MOST_BINDING_CONDITIONS, &path.child(field), errors, |name, path, errors| {
            label_name(text(name), path, errors);
        });
    }
    let [waits, fails] = BOTH.map(|field| list(&given[field]));
    let among: Seen<&str> = waits.iter().map(text).collect();
    for (field, names) in BOTH.into_iter().zip([waits, fails]) {
        let (here, mut seen) = (path.child(field), Seen::default());
        for (i, name) in names.iter().map(text).enumerate() {
            if seen.again(name) {
                errors.duplicate(&here.index(i), name);
            }
            if field == BOTH[1] && among.has(&name) {
                let words = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(&here.index(i), name, words);
            }
        }
    }
    for (field, other) in [(0, 1), (1, 0)] {
        if [waits, fails][field].is_empty() && ![waits, fails][other].is_empty() {
            let (field, other) = (BOTH[field], BOTH[other]);
            let words = format!("{field} are required to use {other}");
            errors.invalid(&path.child(field), shown::any(&given[field]), &words);
        }
    }
}

/// A selector of nodes.
fn node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    pod::node_selector(selector, false, path, errors);
}
