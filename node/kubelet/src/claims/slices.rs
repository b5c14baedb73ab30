//! Resource slices of drivers that are not here: deleted, so that nobody is sent to this node for their devices.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::Claims;

/// Between attempts: at first, doubling up to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

impl Claims {
    /// Deletes the node's slices, or those of one driver; tries until it can. Cancel safe.
    pub(super) async fn wipe(&self, driver: Option<&str>) {
        let own = driver.map(|driver| format!("%2Cspec.driver%3D{driver}")).unwrap_or_default();
        let path = format!(
            "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D{}{own}",
            self.node_name
        );
        let mut wait = RETRY.0;
        loop {
            match self.api.json(Method::DELETE, &path, &json!(null)).await {
                Ok(_) => return,
                // There are none, or the API server does not know the kind.
                Err(error) if error.code() == Some(404) => return,
                Err(error) => {
                    tracing::debug!(
                        driver,
                        error = error.message(),
                        "resource slices not deleted; will try again"
                    );
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(RETRY.1);
        }
    }
}
