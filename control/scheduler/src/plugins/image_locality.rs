//! ImageLocality: nodes that already have the pod's large images are better, the less so the fewer nodes have them.

use crate::cluster::Cluster;
use crate::framework::{Cycle, MAX_SCORE, Name, Plugin, Score, Seat};

const MIN: i64 = 23 << 20;
const MAX_PER_CONTAINER: i64 = 1000 << 20;

/// The plugin.
pub(crate) struct ImageLocality;

struct Images<'a> {
    /// Each image with the share of nodes that have it.
    wanted: Vec<(&'a str, f64)>,
    highest: i64,
}

impl Plugin for ImageLocality {
    fn name(&self) -> Name {
        Name::ImageLocality
    }

    fn pre_score<'a>(&'a self, cycle: Cycle<'a>, _: &[Seat<'a>]) -> Option<Box<dyn Score + 'a>> {
        let containers = i64::try_from(cycle.pod.containers).unwrap_or(1).max(1);
        let spread = |image: &'a String| (image.as_str(), spread(cycle.cluster, image));
        let wanted = cycle.pod.images.iter().map(spread).filter(|(_, spread)| *spread > 0.0).collect();
        Some(Box::new(Images { wanted, highest: MAX_PER_CONTAINER * containers }))
    }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
fn spread(cluster: &Cluster, image: &str) -> f64 {
    cluster.nodes_with_image(image) as f64 / cluster.order().len() as f64
}

impl Score for Images<'_> {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "upstream scales sizes in floating point and truncates"
    )]
    fn score(&self, seat: &Seat) -> i64 {
        let present = self.wanted.iter().filter_map(|(image, spread)| {
            let size = *seat.facts.images.get(*image)?;
            Some((size as f64 * spread) as i64)
        });
        let sum: i64 = present.sum();
        MAX_SCORE * (sum.clamp(MIN, self.highest) - MIN) / (self.highest - MIN)
    }
}
