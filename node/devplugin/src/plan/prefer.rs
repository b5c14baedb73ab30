//! Which of the free devices a container should get: near each other, and on as many devices as there are.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{Device, Offer, Refusal};

/// Ids of a choice that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoChoice {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{size} devices are asked for, {must} must be among them and {available} are free")]
    Size { size: usize, must: usize, available: usize },
    #[error("device {id:?} must be among them and is not free")]
    NotFree { id: String },
}

/// `size` of the free ids, with those that must be among them.
///
/// On the NUMA node where most of those that must be are, else on that which has enough and least to spare; among those, the
/// device that the container has least of, then the one that most of is free.
pub(crate) fn prefer(
    offer: &Offer,
    available: &[String],
    must: &[String],
    size: usize,
) -> Result<Vec<String>, NoChoice> {
    let free: BTreeSet<&String> = available.iter().collect();
    let must: BTreeSet<&String> = must.iter().collect();
    if let Some(id) = must.iter().find(|id| !free.contains(**id)) {
        return Err(NoChoice::NotFree { id: (*id).clone() });
    }
    if size < must.len() || size > free.len() {
        return Err(NoChoice::Size { size, must: must.len(), available: free.len() });
    }
    let mut free = by_device(offer, &free, &must)?;
    let order = nodes(&free, size - must.len());
    let mut chosen: Vec<String> = must.into_iter().cloned().collect();
    while chosen.len() < size {
        let rank = |one: &Free<'_>| (order.get(&one.device.numa).copied(), one.taken, Reverse(one.ids.len()));
        let best = free.iter_mut().filter(|one| !one.ids.is_empty()).min_by_key(|one| rank(one));
        let Some((one, id)) = best.and_then(|one| one.ids.pop().map(|id| (one, id))) else { break };
        one.taken += 1;
        chosen.push(id);
    }
    Ok(chosen)
}

/// The free ids by the device that they stand for, in the configuration's order; the lowest number is last, to be taken first.
fn by_device<'a>(
    offer: &'a Offer,
    free: &BTreeSet<&String>,
    must: &BTreeSet<&String>,
) -> Result<Vec<Free<'a>>, Refusal> {
    let mut all: Vec<Free<'_>> =
        offer.devices.iter().map(|device| Free { device, ids: Vec::new(), taken: 0 }).collect();
    let places: BTreeMap<&str, usize> =
        offer.devices.iter().enumerate().map(|(at, device)| (device.id.as_str(), at)).collect();
    for id in free {
        let unknown = || Refusal::Unknown { resource: offer.pool.resource.clone(), id: (*id).clone() };
        let at = offer.own_id(id).and_then(|own| places.get(own)).ok_or_else(unknown)?;
        if must.contains(id) { all[*at].taken += 1 } else { all[*at].ids.push((*id).clone()) }
    }
    let number = |id: &String| id.rsplit_once('#').and_then(|(_, number)| number.parse::<u32>().ok());
    all.iter_mut().for_each(|one| one.ids.sort_by_key(|id| Reverse(number(id))));
    Ok(all)
}

/// A device, its free ids and how many of them the container has got.
struct Free<'a> {
    device: &'a Device,
    ids: Vec<String>,
    taken: usize,
}

/// The NUMA nodes and their places in the order in which they are used up.
fn nodes(free: &[Free<'_>], wanted: usize) -> BTreeMap<Option<u16>, usize> {
    let mut count: BTreeMap<Option<u16>, (usize, usize)> = BTreeMap::new();
    for one in free {
        let (taken, left) = count.entry(one.device.numa).or_default();
        *taken += one.taken;
        *left += one.ids.len();
    }
    let mut order: Vec<(Option<u16>, (usize, usize))> = count.into_iter().collect();
    order.sort_by_key(|(node, (taken, left))| {
        // What is enough goes before what is not; of what is enough the least, of what is not the most.
        let spare = if *left >= wanted { (0, *left) } else { (1, usize::MAX - left) };
        (Reverse(*taken), spare, node.is_none(), *node)
    });
    order.into_iter().enumerate().map(|(at, (node, _))| (node, at)).collect()
}
