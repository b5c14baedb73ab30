//! Constraints between the devices of a claim: an attribute that all have in common, or that differs.
//!
//! A constraint that does not hold for some devices does not hold for more of them either, so that the search turns back at once.

use k8s_openapi::api::resource::v1::DeviceConstraint;

use super::slice::{Attribute, Device};

/// What a constraint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All devices have the same value.
    Match,
    /// All devices have different values.
    Distinct,
}

/// Where a device would go.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    /// The name of the request.
    pub(super) request: &'a str,
    /// With the name of the subrequest, if it is one of several.
    pub(super) subrequest: Option<&'a str>,
}

/// A constraint, and what it knows of the devices chosen so far.
#[derive(Clone, Debug)]
pub(super) struct Constraint<'a> {
    pub(super) rule: Rule,
    pub(super) attribute: &'a str,
    /// The requests it is about; empty: all.
    requests: &'a [String],
    count: usize,
    /// For `Match` the value of the first device. For `Distinct` upstream keeps one value for each request, the last one: of
    /// several devices of one request only neighbours are compared, and taking one back forgets the request's value.
    values: Vec<(&'a str, &'a Attribute)>,
}

impl<'a> Constraint<'a> {
    /// `None` if it says nothing that is known.
    pub(super) fn read(from: &'a DeviceConstraint) -> Option<Constraint<'a>> {
        let (rule, attribute) = match (&from.match_attribute, &from.distinct_attribute) {
            (Some(name), _) => (Rule::Match, name),
            (None, Some(name)) => (Rule::Distinct, name),
            (None, None) => return None,
        };
        let requests = from.requests.as_deref().unwrap_or_default();
        Some(Constraint { rule, attribute, requests, count: 0, values: Vec::new() })
    }

    fn is_about(&self, spot: Spot<'_>) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| name == spot.request || Some(name.as_str()) == spot.subrequest)
    }

    /// Whether the device has the attribute.
    pub(super) fn is_told(&self, driver: &str, device: &Device) -> bool {
        lookup(device, driver, self.attribute).is_some()
    }

    /// Adds a device if that is allowed. Whatever was added is removed again, the last one first.
    pub(super) fn add(&mut self, spot: Spot<'a>, driver: &str, device: &'a Device) -> bool {
        if !self.is_about(spot) {
            return true;
        }
        let Some(value) = lookup(device, driver, self.attribute) else { return false };
        if self.count > 0 && !self.allows(value) {
            return false;
        }
        match self.rule {
            Rule::Match if self.count == 0 => self.values = vec![("", value)],
            Rule::Match => {}
            Rule::Distinct => {
                self.values.retain(|(request, _)| *request != spot.request);
                self.values.push((spot.request, value));
            }
        }
        self.count += 1;
        true
    }

    pub(super) fn remove(&mut self, spot: Spot<'_>) {
        if !self.is_about(spot) {
            return;
        }
        self.count -= 1;
        if self.rule == Rule::Distinct {
            self.values.retain(|(request, _)| *request != spot.request);
        }
    }

    fn allows(&self, value: &Attribute) -> bool {
        let mut others = self.values.iter().map(|(_, other)| *other);
        match self.rule {
            Rule::Match => *value != Attribute::Unknown && others.all(|other| other == value),
            Rule::Distinct => others.all(|other| *value != Attribute::Unknown && other != value),
        }
    }
}

/// The attribute of that name, which the driver may have left without its own domain.
fn lookup<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a Attribute> {
    device.attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        device.attributes.get(id).filter(|_| domain == driver)
    })
}
