//! DefaultBinder: writes the binding.

use crate::framework::{Journey, Name, Plugin, Step};
use crate::report;

/// The plugin.
pub(crate) struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> Name {
        Name::DefaultBinder
    }

    fn bind(&self, journey: &Journey) -> Option<Step> {
        let Journey { client, pod, node, .. } = journey.clone();
        Some(Box::pin(async move { Ok(report::bind(client, &pod, &node).await?) }))
    }
}
