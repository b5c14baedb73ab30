//! NodeResourcesBalancedAllocation: nodes that the pod leaves with evenly used resources are better.

use crate::framework::{Cycle, MAX_SCORE, Name, Plugin, Score, Seat};
use crate::pod::PodInfo;
use crate::resources::Resources;

/// The plugin: the resources that are to be even.
pub(crate) struct NodeResourcesBalancedAllocation {
    pub(crate) resources: Vec<String>,
}

impl Default for NodeResourcesBalancedAllocation {
    fn default() -> Self {
        Self { resources: vec!["cpu".to_owned(), "memory".to_owned()] }
    }
}

struct Balance<'a>(&'a [String], &'a PodInfo);

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> Name {
        Name::NodeResourcesBalancedAllocation
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        let asks = self.resources.iter().any(|name| cycle.pod.requests.get(name) != 0);
        asks.then(|| Box::new(Balance(&self.resources, cycle.pod)) as Box<dyn Score>)
    }
}

impl Score for Balance<'_> {
    fn score(&self, seat: &Seat) -> i64 {
        let evenness = |with_pod: bool| {
            let mut shares = Shares::default();
            for name in self.0 {
                let asked = self.1.requests.get(name);
                if asked == 0 && Resources::is_scalar(name) {
                    continue;
                }
                let used = seat.usage.requested.get(name) + if with_pod { asked } else { 0 };
                shares.add(used, seat.facts.allocatable.get(name));
            }
            shares.evenness()
        };
        MAX_SCORE / 2 + (MAX_SCORE / 2 + evenness(true) - evenness(false)) / 2
    }
}

/// Upstream computes this in floating point and truncates; so it is done here, for equal scores.
#[derive(Default)]
struct Shares {
    all: [f64; 8],
    count: usize,
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a share lies between 0 and 1, and there are few of them"
)]
impl Shares {
    fn add(&mut self, used: i64, total: i64) {
        if total != 0 && self.count < self.all.len() {
            self.all[self.count] = (used as f64 / total as f64).min(1.0);
            self.count += 1;
        }
    }

    /// 100 when all shares are equal, 50 when of two resources one is full and the other unused.
    fn evenness(&self) -> i64 {
        let shares = &self.all[..self.count];
        let deviation = match shares {
            [] | [_] => 0.0,
            [one, other] => ((one - other) / 2.0).abs(),
            _ => {
                let count = shares.len() as f64;
                let mean = shares.iter().sum::<f64>() / count;
                let squares = shares.iter().fold(0.0, |sum, share| sum + (share - mean) * (share - mean));
                (squares / count).sqrt()
            }
        };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}
