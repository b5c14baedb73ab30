//! The nearest miss: of all devices that a request could not have, the one that came closest, and what stood against it.
//!
//! Only gathered when somebody asks why nothing was found; it decides nothing.

use std::collections::BTreeMap;
use std::fmt;

use super::capacity::Shortage;
use super::constraint::Rule;
use super::error::Origin;
use super::slice::{DeviceId, PoolId};

/// What stood against a request, from far to near.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No slice offers this node any device.
    NoDevice,
    /// A pool makes no sense.
    PoolInvalid {
        /// The pool.
        pool: PoolId,
        /// What is wrong with it.
        reason: String,
    },
    /// Slices of a pool are missing.
    PoolIncomplete {
        /// The pool.
        pool: PoolId,
    },
    /// A selector does not mean the device.
    Selector {
        /// The device.
        device: DeviceId,
        /// Whose selector.
        origin: Origin,
        /// Its place.
        index: usize,
        /// Its text.
        text: String,
    },
    /// The device is for other nodes.
    OtherNode {
        /// The device.
        device: DeviceId,
    },
    /// The device has not what is asked for.
    Capacity {
        /// The device.
        device: DeviceId,
        /// What is short.
        shortage: Shortage,
    },
    /// Another claim has the device.
    InUse {
        /// The device.
        device: DeviceId,
    },
    /// Not enough of a counter is left.
    Counter {
        /// The device.
        device: DeviceId,
        /// The counter set.
        set: String,
        /// The counter.
        counter: String,
    },
    /// A taint is not tolerated.
    Taint {
        /// The device.
        device: DeviceId,
        /// The taint's key.
        key: String,
        /// Its effect.
        effect: String,
    },
    /// A constraint of the claim does not hold.
    Constraint {
        /// The device.
        device: DeviceId,
        /// The place of the constraint.
        index: usize,
        /// What it says.
        rule: Rule,
        /// Of which attribute.
        attribute: String,
        /// Whether the device has that attribute at all.
        told: bool,
    },
    /// Devices were found, but not so many together, or not with what comes after them.
    TooFew {
        /// The most that were found at once.
        found: usize,
    },
    /// It would be more than a claim can have.
    TooMany,
}

impl Miss {
    /// How near it is.
    pub(crate) fn rank(&self) -> usize {
        match self {
            Miss::NoDevice => 0,
            Miss::PoolInvalid { .. } => 1,
            Miss::PoolIncomplete { .. } => 2,
            Miss::OtherNode { .. } => 3,
            Miss::Selector { .. } => 4,
            Miss::Capacity { shortage: Shortage::Short { .. }, .. } => 6,
            Miss::Capacity { .. } => 5,
            Miss::InUse { .. } => 7,
            Miss::Counter { .. } => 8,
            Miss::Taint { .. } => 9,
            Miss::Constraint { .. } => 10,
            Miss::TooFew { .. } => 11,
            Miss::TooMany => 12,
        }
    }
}

/// The nearest miss of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestMiss {
    /// Namespace and name of the claim.
    pub claim: String,
    /// `request` or `request/subrequest`.
    pub request: String,
    /// What stood against it.
    pub miss: Miss,
}

impl fmt::Display for Miss {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::NoDevice => out.write_str("no slice offers the node any device"),
            Miss::PoolInvalid { pool, reason } => write!(out, "pool {pool} makes no sense: {reason}"),
            Miss::PoolIncomplete { pool } => write!(out, "slices of pool {pool} are missing"),
            Miss::Selector { device, origin, index, text } => {
                write!(out, "device {device}: selector {index} of {origin} does not mean it: {text}")
            }
            Miss::OtherNode { device } => write!(out, "device {device} is for other nodes"),
            Miss::Capacity { device, shortage: Shortage::NoSuch(name) } => {
                write!(out, "device {device} has no capacity {name}")
            }
            Miss::Capacity { device, shortage: Shortage::Policy(name) } => {
                write!(out, "device {device} does not give that amount of capacity {name}")
            }
            Miss::Capacity { device, shortage: Shortage::Short { name, asked, left } } => {
                write!(out, "device {device} has {left} left of capacity {name}, {asked} is asked for")
            }
            Miss::InUse { device } => write!(out, "device {device} is in use"),
            Miss::Counter { device, set, counter } => {
                write!(out, "device {device}: not enough is left of counter {set}/{counter}")
            }
            Miss::Taint { device, key, effect } => {
                write!(out, "device {device}: taint {key}:{effect} is not tolerated")
            }
            Miss::Constraint { device, rule, attribute, told, .. } => match (told, rule) {
                (false, _) => write!(out, "device {device} has no attribute {attribute}, which is compared"),
                (true, Rule::Match) => {
                    write!(out, "device {device} differs from the others in attribute {attribute}")
                }
                (true, Rule::Distinct) => {
                    write!(out, "device {device} has the attribute {attribute} of another one")
                }
            },
            Miss::TooFew { found: 1 } => out.write_str("1 device was found, and no more with it"),
            Miss::TooFew { found } => write!(out, "{found} devices were found, and no more with them"),
            Miss::TooMany => out.write_str("more devices than a claim can have"),
        }
    }
}

impl fmt::Display for NearestMiss {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "claim {}, request {}: {}", self.claim, self.request, self.miss)
    }
}

/// The nearest misses of a search, by the places of the alternatives.
#[derive(Debug, Default)]
pub(super) struct Misses(pub(super) BTreeMap<usize, Miss>);

impl Misses {
    /// Of equally near ones the first is kept, of several numbers of devices the highest.
    pub(super) fn note(&mut self, slot: usize, miss: Miss) {
        let known = self.0.entry(slot).or_insert(Miss::NoDevice);
        let more = match (&*known, &miss) {
            (Miss::TooFew { found: known }, Miss::TooFew { found }) => found > known,
            (known, miss) => miss.rank() > known.rank(),
        };
        if more {
            *known = miss;
        }
    }
}
