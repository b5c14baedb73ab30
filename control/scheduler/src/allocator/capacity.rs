//! Consumable capacity: what a request takes of a device, and whether that much is left.
//!
//! What is asked for, else the policy's default, else all of it; rounded up to what the policy allows.

use std::collections::BTreeMap;

use podwire_api::quantity::Quantity;

use super::slice::{Amount, Device};

/// One capacity of a device.
#[derive(Debug)]
pub(super) struct Capacity {
    pub(super) value: Amount,
    pub(super) policy: Option<Policy>,
}

/// How much may be asked for at once.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) default: Option<Amount>,
    pub(super) range: Option<Range>,
    /// In ascending order.
    pub(super) values: Option<Vec<Amount>>,
}

#[derive(Debug)]
pub(super) struct Range {
    pub(super) min: Option<Amount>,
    pub(super) max: Option<Amount>,
    pub(super) step: Option<Amount>,
}

/// Amounts by the names of capacities.
pub(super) type Amounts = BTreeMap<String, Amount>;

/// Why a device has not enough for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The device has no capacity of that name.
    NoSuch(String),
    /// The policy of that capacity does not allow the amount.
    Policy(String),
    /// That much of the capacity is asked for, and less is left.
    Short {
        /// The capacity.
        name: String,
        /// What is asked for.
        asked: String,
        /// What is left.
        left: String,
    },
}

/// Whether a device has what is asked for; `taken` says how much of a capacity is taken already.
pub(super) fn check(
    device: &Device,
    asked: &Amounts,
    taken: impl Fn(&str) -> Quantity,
) -> Result<(), Shortage> {
    if let Some(name) = asked.keys().find(|name| !device.capacity.contains_key(*name)) {
        return Err(Shortage::NoSuch(name.clone()));
    }
    for (name, capacity) in &device.capacity {
        let needed = needed(asked.get(name), capacity).filter(|needed| capacity.allows(needed));
        let Some(needed) = needed else { return Err(Shortage::Policy(name.clone())) };
        let taken = taken(name);
        if taken.plus(&needed.value) > capacity.value.value {
            let left = capacity.value.value.minus(&taken).to_string();
            return Err(Shortage::Short { name: name.clone(), asked: needed.text, left });
        }
    }
    Ok(())
}

/// What a share of a device takes of each of its capacities.
pub(super) fn consumed(device: &Device, asked: &Amounts) -> Amounts {
    let take =
        |(name, capacity): (&String, &Capacity)| Some((name.clone(), needed(asked.get(name), capacity)?));
    device.capacity.iter().filter_map(take).collect()
}

/// What is taken for what is asked; `None` if the policy makes no sense, which no server accepts.
fn needed(asked: Option<&Amount>, capacity: &Capacity) -> Option<Amount> {
    let policy = capacity.policy.as_ref();
    let Some(asked) = asked else {
        return Some(policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&capacity.value).clone());
    };
    if let Some(range) = policy.and_then(|policy| policy.range.as_ref())
        && let Some(min) = &range.min
    {
        return round_up(asked, min, range.step.as_ref());
    }
    let values = policy.and_then(|policy| policy.values.as_ref());
    let enough = values.into_iter().flatten().find(|value| asked.value <= value.value);
    Some(enough.unwrap_or(asked).clone())
}

fn round_up(asked: &Amount, min: &Amount, step: Option<&Amount>) -> Option<Amount> {
    if asked.value < min.value {
        return Some(min.clone());
    }
    let Some(step) = step else { return Some(asked.clone()) };
    let (min, step) = (min.value.value(), step.value.value());
    let beyond = asked.value.value().wrapping_sub(min);
    let steps = beyond.checked_div(step)? + i64::from(beyond.checked_rem(step)? != 0);
    Some(Amount::of(Quantity::from_bytes(min.wrapping_add(step.wrapping_mul(steps)))))
}

impl Capacity {
    /// Whether an amount is one that the policy allows.
    fn allows(&self, amount: &Amount) -> bool {
        let Some(policy) = &self.policy else { return true };
        if policy.default.as_ref().is_some_and(|default| default.value == amount.value) {
            return true;
        }
        if let Some(range) = &policy.range {
            return range.max.as_ref().is_none_or(|max| amount.value <= max.value) && range.steps_to(amount);
        }
        let values = policy.values.as_deref().unwrap_or_default();
        values.is_empty() || values.iter().any(|value| value.value == amount.value)
    }
}

impl Range {
    fn steps_to(&self, amount: &Amount) -> bool {
        let Some(step) = &self.step else { return true };
        let Some(min) = &self.min else { return false };
        let beyond = amount.value.value().wrapping_sub(min.value.value());
        beyond.checked_rem(step.value.value()) == Some(0)
    }
}
