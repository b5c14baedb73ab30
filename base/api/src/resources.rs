//! Amounts of resources by name, as a `ResourceList` holds them.
//!
//! Quantities were checked when the object was written; one that cannot be read counts as absent here.

use std::borrow::Cow;

use serde_json::Value;

use crate::quantity::Quantity;

/// Names that most lists are made of.
const KNOWN: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "pods"];

/// Amounts by resource name, in the order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    amounts: Vec<(Cow<'static, str>, Quantity)>,
}

fn owned(name: &str) -> Cow<'static, str> {
    match KNOWN.iter().find(|known| **known == name) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(name.to_owned()),
    }
}

impl Resources {
    /// No resources.
    pub const NONE: Resources = Resources { amounts: Vec::new() };

    /// Reads names with the texts of their quantities.
    pub fn from_texts<'a>(list: impl IntoIterator<Item = (&'a str, &'a str)>) -> Resources {
        let mut out = Resources::NONE;
        for (name, text) in list {
            if let Ok(amount) = Quantity::parse(text) {
                out.set(name, amount);
            }
        }
        out
    }

    /// How much there is of a resource, if it is named at all.
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.place(name).ok().map(|at| &self.amounts[at].1)
    }

    /// The amount of a resource as a whole number; zero if it is not named.
    pub fn value(&self, name: &str) -> i64 {
        self.get(name).map_or(0, Quantity::value)
    }

    /// The amount of a resource in thousandths; zero if it is not named.
    pub fn milli_value(&self, name: &str) -> i64 {
        self.get(name).map_or(0, Quantity::milli_value)
    }

    /// The names with their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Quantity)> {
        self.amounts.iter().map(|(name, amount)| (name.as_ref(), amount))
    }

    /// Whether no resource is named.
    pub fn is_empty(&self) -> bool {
        self.amounts.is_empty()
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, name: &str, amount: Quantity) {
        match self.place(name) {
            Ok(at) => self.amounts[at].1 = amount,
            Err(at) => self.amounts.insert(at, (owned(name), amount)),
        }
    }

    /// Keeps the resources for which `keep` holds.
    pub fn retain(&mut self, keep: impl Fn(&str, &Quantity) -> bool) {
        self.amounts.retain(|(name, amount)| keep(name, amount));
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Resources) {
        self.combine(other, |own, other| own.plus(other));
    }

    /// Raises each amount to at least that of `other`.
    pub fn raise_to(&mut self, other: &Resources) {
        self.combine(other, |own, other| if other > own { *other } else { *own });
    }

    fn combine(&mut self, other: &Resources, with: impl Fn(&Quantity, &Quantity) -> Quantity) {
        for (name, amount) in &other.amounts {
            match self.place(name) {
                Ok(at) => self.amounts[at].1 = with(&self.amounts[at].1, amount),
                Err(at) => self.amounts.insert(at, (name.clone(), *amount)),
            }
        }
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.amounts.binary_search_by(|(own, _)| own.as_ref().cmp(name))
    }
}

/// Reads a `ResourceList` object; anything else is no resources.
impl From<&Value> for Resources {
    fn from(list: &Value) -> Resources {
        let list = list.as_object().into_iter().flatten();
        Resources::from_texts(list.filter_map(|(name, amount)| Some((name.as_str(), amount.as_str()?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_added_and_raised_by_name() {
        let mut sum = Resources::from(&json!({"memory": "1Gi", "cpu": "100m", "x.example/nic": "junk"}));
        assert_eq!(sum.get("x.example/nic"), None, "what cannot be read is absent");
        sum.add(&Resources::from(&json!({"cpu": "1", "x.example/nic": "2"})));
        sum.raise_to(&Resources::from(&json!({"cpu": "1", "memory": "2Gi"})));
        let shown: Vec<String> = sum.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(shown, ["cpu=1100m", "memory=2Gi", "x.example/nic=2"]);
        assert_eq!((sum.milli_value("cpu"), sum.value("memory"), sum.value("none")), (1100, 2 << 30, 0));
    }
}
