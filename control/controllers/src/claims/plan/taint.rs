//! Decides when a pod must leave because of a device. Pure; times are milliseconds since 1970.
//!
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-taints-and-tolerations>

use jiff::Timestamp;
use podwire_api::toleration::Toleration;
use serde_json::Value;

use crate::claims::book::Book;
use crate::claims::view::{ClaimView, Given, Place, PodView};

/// When a pod must leave its node; `None` if it need not.
pub(crate) fn leaves_at(place: &Place, pod: &PodView, book: &Book) -> Option<i64> {
    if !pod.bound || pod.deleting || pod.terminal {
        return None;
    }
    let uses = |(name, owned): (&str, bool)| {
        let claim = book.claim(&place.beside(name))?;
        let its_own = !owned || claim.controller == pod.uid;
        let may = its_own && claim.pods().any(|(_, uid)| uid == pod.uid);
        may.then_some(claim)
    };
    pod.claims.iter().filter_map(|claim| ends_at(uses(claim.claim()?)?, book)).min()
}

/// When those who use a claim must leave.
fn ends_at(claim: &ClaimView, book: &Book) -> Option<i64> {
    claim.allocation.iter().flatten().filter_map(|given| device_ends_at(given, book)).min()
}

fn device_ends_at(given: &Given, book: &Book) -> Option<i64> {
    book.taints(&given.pool, &given.device)
        .filter_map(|taint| tolerated_until(taint, &given.tolerations))
        .min()
}

/// When the time is over for which a taint is tolerated; `None` if it is for ever.
fn tolerated_until(taint: &Value, tolerations: &[Value]) -> Option<i64> {
    // The server sets it. What has none is not in force, as upstream has it.
    let added = taint["timeAdded"].as_str()?.parse::<Timestamp>().ok()?.as_millisecond();
    let mut shortest: Option<i64> = None;
    for toleration in tolerations.iter().filter(|one| Toleration::from(*one).tolerates(taint)) {
        let seconds = toleration["tolerationSeconds"].as_i64()?.max(0);
        shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
    }
    Some(added.saturating_add(shortest.unwrap_or(0).saturating_mul(1000)))
}
