//! Step 4: what is written into the claims: devices, configuration, and where the devices can be used.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::capacity::Amounts;
use super::error::Error;
use super::request::WantedClaim;
use super::search::Search;
use super::try_device::Given;

/// What each claim gets; `share_id` names the shares.
pub(super) fn results(
    search: &Search<'_>,
    share_id: &mut dyn FnMut() -> String,
) -> Result<Vec<AllocationResult>, Error> {
    let claims = search.wanted.claims.iter().enumerate();
    claims
        .map(|(at, claim)| {
            let given = &search.given[at];
            let results = given.iter().map(|given| device(search, claim, given, share_id)).collect();
            let config = config(claim, &search.alternatives[at]);
            Ok(AllocationResult {
                allocation_timestamp: None,
                devices: Some(DeviceAllocationResult {
                    config: Some(config).filter(|config| !config.is_empty()),
                    results: Some(results),
                }),
                node_selector: node_selector(search, claim, given)?,
            })
        })
        .collect()
}

fn device(
    search: &Search<'_>,
    claim: &WantedClaim<'_>,
    given: &Given,
    share_id: &mut dyn FnMut() -> String,
) -> DeviceRequestAllocationResult {
    let (slice, device) = search.device(given.place);
    let want = &claim.requests[given.request].alternatives[given.alternative];
    let consumed = |amounts: &Amounts| {
        amounts.iter().map(|(name, amount)| (name.clone(), QuantityText(amount.text.clone()))).collect()
    };
    DeviceRequestAllocationResult {
        admin_access: want.admin_access.then_some(true),
        binding_conditions: device.binding_conditions.clone(),
        binding_failure_conditions: device.binding_failure_conditions.clone(),
        consumed_capacity: given.share.as_ref().filter(|amounts| !amounts.is_empty()).map(consumed),
        device: device.name.to_string(),
        driver: slice.pool.driver.to_string(),
        pool: slice.pool.pool.to_string(),
        request: want.full_name.clone(),
        share_id: given.share.as_ref().map(|_| share_id()),
        tolerations: want.tolerations.cloned(),
    }
}

/// The configuration of each class once, then the claim's.
fn config(claim: &WantedClaim<'_>, alternatives: &[usize]) -> Vec<DeviceAllocationConfiguration> {
    let made = |source: &str, requests, opaque: &Option<OpaqueDeviceConfiguration>| {
        DeviceAllocationConfiguration { opaque: opaque.clone(), requests, source: source.to_owned() }
    };
    let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut classes: Vec<(Option<&str>, std::ops::Range<usize>)> = Vec::new();
    for (request, alternative) in claim.requests.iter().zip(alternatives) {
        let want = &request.alternatives[*alternative];
        let Some(class) = want.class else { continue };
        let name = class.metadata.name.as_deref();
        if let Some((_, places)) = classes.iter().find(|(other, _)| *other == name) {
            for one in &mut config[places.clone()] {
                one.requests.get_or_insert_default().push(want.full_name.clone());
            }
            continue;
        }
        let first = config.len();
        let own = class.spec.config.iter().flatten();
        config.extend(own.map(|one| made("FromClass", Some(vec![want.full_name.clone()]), &one.opaque)));
        classes.push((name, first..config.len()));
    }
    let devices = claim.claim.spec.devices.iter();
    for one in devices.flat_map(|devices| devices.config.iter().flatten()) {
        let named = one.requests.as_deref().unwrap_or_default();
        let add = || made("FromClaim", one.requests.clone(), &one.opaque);
        if named.is_empty() {
            config.push(add());
            continue;
        }
        // Upstream says it again for each request that it is about.
        for (request, alternative) in claim.requests.iter().zip(alternatives) {
            let chosen = &request.alternatives[*alternative].full_name;
            if named.iter().any(|name| name == request.name || (request.is_list && name == chosen)) {
                config.push(add());
            }
        }
    }
    config
}

/// The nodes that can use the devices of a claim; `None`: all.
fn node_selector(
    search: &Search<'_>,
    claim: &WantedClaim<'_>,
    given: &[Given],
) -> Result<Option<NodeSelector>, Error> {
    let mut term = NodeSelectorTerm::default();
    for given in given {
        let (slice, device) = search.device(given.place);
        let placement = if slice.per_device { &device.placement } else { &slice.placement };
        if placement.node_name.is_some() || device.binds_to_node {
            let only = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![search.node.name.to_owned()]),
            };
            let term = NodeSelectorTerm { match_fields: Some(vec![only]), match_expressions: None };
            return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
        }
        match placement.selector.as_ref().map_or(&[][..], |selector| &selector.node_selector_terms) {
            [] => {}
            [one] => {
                add(&mut term.match_fields, one.match_fields.as_deref());
                add(&mut term.match_expressions, one.match_expressions.as_deref());
            }
            several => {
                let claim = claim.claim.metadata.name.clone().unwrap_or_default();
                return Err(Error::NodeTerms { claim, count: several.len() });
            }
        }
    }
    let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
    Ok((!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] }))
}

/// Adds requirements that are not there yet.
fn add(to: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    fn values(one: &NodeSelectorRequirement) -> BTreeSet<&String> {
        one.values.iter().flatten().collect()
    }
    for one in from.unwrap_or_default() {
        let known = to.get_or_insert_default();
        let same = |other: &NodeSelectorRequirement| {
            other.key == one.key && other.operator == one.operator && values(other) == values(one)
        };
        if !known.iter().any(same) {
            known.push(one.clone());
        }
    }
}
