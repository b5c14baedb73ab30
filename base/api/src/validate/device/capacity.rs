//! Rules of a device's capacities, and of what claims that share one may ask for.

use std::fmt;

use serde_json::Value;

use super::{quoted, set};
use crate::path::Path;
use crate::quantity::Quantity;
use crate::validate::error::{Errors, list, text};
use crate::validate::pod::is_native;

const MOST_CHOICES: usize = 10;

/// A quantity with its spelling, which is how complaints have it.
#[derive(Clone, Copy)]
struct Amount<'a> {
    text: &'a str,
    is: Quantity,
}

impl<'a> Amount<'a> {
    fn read(value: &'a Value) -> Option<Self> {
        let text = value.as_str()?;
        Some(Self { text, is: Quantity::parse(text).ok()? })
    }

    /// One that Go always writes.
    fn written(value: &'a Value) -> Self {
        Self::read(value).unwrap_or(Self { text: "0", is: Quantity::from_integer(0) })
    }
}

impl fmt::Display for Amount<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text)
    }
}

/// A capacity; only one of a device that is shared says what may be asked for.
pub(super) fn capacity(capacity: &Value, shares: bool, path: &Path<'_>, errors: &mut Errors) {
    let (policy, here) = (&capacity["requestPolicy"], path.child("requestPolicy"));
    if !policy.is_object() {
        return;
    }
    if !shares {
        return errors.forbidden(&here, "allowMultipleAllocations must be true");
    }
    let (choices, range) = (&policy["validValues"], &policy["validRange"]);
    let given = match (list(choices).is_empty(), range.is_object()) {
        (false, true) => {
            let words = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            return errors.forbidden(&here, words);
        }
        (false, false) => "validValues",
        (true, true) => "validRange",
        (true, false) => return,
    };
    let most = Amount::written(&capacity["value"]);
    let Some(usual) = Amount::read(&policy["default"]) else {
        return errors.required(&here.child("default"), &format!("required when {given} is defined"));
    };
    match given {
        "validValues" => valid_values(choices, usual, most, &here.child(given), errors),
        _ => valid_range(range, usual, most, &here.child(given), errors),
    }
}

fn valid_values(choices: &Value, usual: Amount<'_>, most: Amount<'_>, path: &Path<'_>, errors: &mut Errors) {
    let all: Vec<Amount<'_>> = list(choices).iter().map(Amount::written).collect();
    for (i, pair) in all.windows(2).enumerate() {
        if pair[0].is > pair[1].is {
            errors.invalid(&path.index(i + 1), pair[1].text, "values must be sorted in ascending order");
        }
    }
    let one = |choice: &Value, path: &Path<'_>, errors: &mut Errors| {
        let choice = Amount::written(choice);
        if choice.is > most.is {
            let words = format!("option is larger than capacity value: {most}");
            errors.invalid(path, choice.text, &words);
        }
    };
    let key = |choice: &Value| Amount::written(choice).is.value().to_string();
    set(choices, MOST_CHOICES, path, errors, one, key, |key| quoted(&key));
    // Too many are not looked at, so none of them is the usual one.
    if all.len() > MOST_CHOICES || !all.iter().any(|choice| choice.is == usual.is) {
        errors.invalid(path, usual.text, "default value is not valid according to the requestPolicy");
    }
}

fn valid_range(range: &Value, usual: Amount<'_>, capacity: Amount<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(least) = Amount::read(&range["min"]) else {
        return errors.required(&path.child("min"), "required when validRange is defined");
    };
    let mut check = |is_wrong: bool, field: &str, shown: Amount<'_>, words: String| {
        if is_wrong {
            errors.invalid(&path.child(field), shown.text, &words);
        }
    };
    check(least.is > capacity.is, "min", least, format!("min is larger than capacity value: {capacity}"));
    check(usual.is < least.is, "min", usual, format!("default is less than min: {least}"));
    let most = Amount::read(&range["max"]);
    if let Some(most) = most {
        check(least.is > most.is, "max", least, format!("min is larger than max: {most}"));
        check(most.is > capacity.is, "max", most, format!("max is larger than capacity value: {capacity}"));
        check(usual.is > most.is, "max", usual, format!("default is more than max: {most}"));
    }
    let Some(step) = Amount::read(&range["step"]) else { return };
    let first = least.is.plus(&step.is);
    let words = format!("one step {first} is larger than capacity value: {capacity}");
    check(first > capacity.is, "step", step, words);
    for value in std::iter::once(usual).chain(most) {
        let words = format!("value is not a multiple of a given step ({step}) from ({least})");
        check(!is_step(value.is, least.is, step.is), "step", value, words);
    }
}

/// Whether a value is so many steps from the least one. Upstream falls over a step of nothing; here no value is one.
fn is_step(value: Quantity, least: Quantity, step: Quantity) -> bool {
    match step.value() {
        0 => false,
        step => value.value().wrapping_sub(least.value()).wrapping_rem(step) == 0,
    }
}

/// What a device takes of the node's own resources.
pub(super) fn node_resources(mappings: &Value, capacities: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (name, mapping) in mappings.as_object().into_iter().flatten() {
        let here = path.key(name);
        if !is_native(name) {
            errors.invalid(&here, name, "must be a node allocatable resource name");
        }
        let (factor, key) = (&mapping["allocationMultiplier"], &mapping["capacityKey"]);
        if factor.is_null() && key.is_null() {
            errors.invalid(&here, "", "at least one of allocationMultiplier or capacityKey must be set");
            continue;
        }
        if let Some(factor) = Amount::read(factor).filter(|factor| !factor.is.is_positive()) {
            errors.invalid(&here.child("allocationMultiplier"), factor.text, "must be positive");
        }
        let here = here.child("capacityKey");
        match text(key) {
            "" if key.is_string() => errors.invalid(&here, "", "capacityKey must not be an empty string"),
            given if key.is_string() && capacities[given].is_null() => errors.not_found(&here, given),
            _ => {}
        }
    }
}
