//! Decides whether the node is under pressure, and which pod has to go.

use crate::status::Verdict;

/// When a shortage counts as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Least bytes of memory.
    pub memory: u64,
    /// Least share of the disk.
    pub disk: f64,
    /// Least share of the disk's inodes.
    pub inodes: f64,
}

impl Default for Thresholds {
    /// Upstream's hard thresholds.
    fn default() -> Thresholds {
        Thresholds { memory: 100 * 1024 * 1024, disk: 0.10, inodes: 0.05 }
    }
}

/// What the node has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Supply {
    pub(crate) memory: u64,
    pub(crate) disk: u64,
    pub(crate) disk_total: u64,
    pub(crate) inodes: u64,
    /// 0 on file systems that do not count them.
    pub(crate) inodes_total: u64,
}

/// What the node is short of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
}

/// A pod that may be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) uid: String,
    pub(crate) priority: i32,
    pub(crate) usage: u64,
    pub(crate) request: u64,
}

/// What the node is short of now.
#[allow(clippy::cast_precision_loss)] // Shares of a disk need no more than a float has.
pub(crate) fn pressure(supply: &Supply, thresholds: &Thresholds) -> Pressure {
    let short = |left: u64, total: u64, share: f64| total > 0 && (left as f64) < (total as f64) * share;
    Pressure {
        memory: supply.memory < thresholds.memory,
        disk: short(supply.disk, supply.disk_total, thresholds.disk)
            || short(supply.inodes, supply.inodes_total, thresholds.inodes),
    }
}

/// The pod that goes first, and what it is told: over its request, then low priority, then far over.
pub(crate) fn choose(
    pressure: Pressure,
    supply: &Supply,
    thresholds: &Thresholds,
    mut candidates: Vec<Candidate>,
) -> Option<(String, Verdict)> {
    let (resource, text) = if pressure.memory {
        let (limit, left) = (thresholds.memory / 1024, supply.memory / 1024);
        ("memory", format!("Threshold quantity: {limit}Ki, available: {left}Ki. "))
    } else if pressure.disk {
        (
            "ephemeral-storage",
            format!(
                "Threshold quantity: {:.0}%, available: {}Ki. ",
                thresholds.disk * 100.0,
                supply.disk / 1024
            ),
        )
    } else {
        return None;
    };
    candidates.sort_by_key(|c| {
        let over = c.usage.saturating_sub(c.request);
        (c.usage <= c.request, c.priority, std::cmp::Reverse(over))
    });
    let first = candidates.into_iter().next()?;
    let message = format!("The node was low on resource: {resource}. {text}");
    Some((first.uid, Verdict { reason: "Evicted".into(), message }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supply() -> Supply {
        Supply { memory: 1 << 30, disk: 50, disk_total: 100, inodes: 50, inodes_total: 100 }
    }

    fn candidate(uid: &str, priority: i32, usage: u64, request: u64) -> Candidate {
        Candidate { uid: uid.into(), priority, usage, request }
    }

    #[test]
    fn a_shortage_begins_below_its_threshold() {
        let limits = Thresholds::default();
        assert_eq!(pressure(&supply(), &limits), Pressure::default());
        assert!(pressure(&Supply { memory: 1, ..supply() }, &limits).memory);
        assert!(pressure(&Supply { disk: 9, ..supply() }, &limits).disk);
        assert!(pressure(&Supply { inodes: 4, ..supply() }, &limits).disk);
        assert!(!pressure(&Supply { inodes: 0, inodes_total: 0, ..supply() }, &limits).disk);
    }

    #[test]
    fn who_uses_more_than_asked_for_goes_first_then_the_less_important() {
        let short = Pressure { memory: true, disk: false };
        let all = vec![
            candidate("modest", 0, 10, 100),
            candidate("greedy", 5, 300, 100),
            candidate("small", 0, 110, 100),
            candidate("large", 0, 250, 100),
        ];
        let (uid, verdict) = choose(short, &supply(), &Thresholds::default(), all).unwrap();
        assert_eq!(uid, "large");
        assert!(
            verdict.message.starts_with("The node was low on resource: memory. Threshold quantity: 102400Ki")
        );
        assert_eq!(choose(Pressure::default(), &supply(), &Thresholds::default(), vec![]), None);
    }
}
