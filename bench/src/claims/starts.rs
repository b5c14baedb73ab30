//! How long pods take to start with no, one and eight claims of a driver that does nothing, in turns. Claims are made
//! before their pod is.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{
    driver::{Idle, NAME},
    object,
};
use crate::{
    api::{
        client::{Connection, Endpoint},
        millis,
    },
    measure::percentile,
    pods::{Cluster, pod},
};

/// How many claims a pod has.
const CASES: [usize; 3] = [0, 1, 8];
/// As many as a slice may have.
const DEVICES: usize = 128;
const PATIENCE: Duration = Duration::from_secs(60);

/// Median milliseconds from POST to Running by case.
pub(super) type Figures = [f64; CASES.len()];

/// Measures so many pods of each case on the node `node1` whose kubelet has that folder.
pub(super) async fn measure(kubeconfig: &Path, kubelet: &Path, count: usize) -> Result<Figures> {
    let driver = Idle::serve(kubelet)?;
    driver.registered().await?;
    let bench = Bench { cluster: Cluster::connect(kubeconfig).await?, endpoint: Endpoint::read(kubeconfig)? };
    bench.furnish().await?;
    let mut samples = CASES.map(|_| Vec::new());
    for turn in 0..=count {
        for (case, times) in CASES.iter().zip(&mut samples) {
            let took = bench.start(&format!("t{turn}-{case}"), *case).await?;
            // The first of each pays for what is cold.
            if turn > 0 {
                times.push(took);
            }
        }
    }
    Ok(samples.map(|times| millis(percentile(&times, 50))))
}

struct Bench {
    cluster: Cluster,
    endpoint: Endpoint,
}

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

impl Bench {
    async fn post(&self, connection: &mut Connection, path: &str, object: &Value) -> Result<()> {
        connection.ask(&self.endpoint.request("POST", path, &object.to_string())).await?;
        Ok(())
    }

    /// What the driver would publish, and a class of it.
    async fn furnish(&self) -> Result<()> {
        let mut connection = self.endpoint.connect().await?;
        let chosen = json!([{"cel": {"expression": format!("device.driver == '{NAME}'")}}]);
        let class = object("DeviceClass", json!({"name": "idle"}), json!({"selectors": chosen}));
        self.post(&mut connection, "/apis/resource.k8s.io/v1/deviceclasses", &class).await?;
        let devices: Vec<Value> = (0..DEVICES).map(|at| json!({"name": format!("d{at}")})).collect();
        let pool = json!({"name": "node1", "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": NAME, "nodeName": "node1", "pool": pool, "devices": devices});
        let slice = object("ResourceSlice", json!({"name": "node1-idle"}), spec);
        self.post(&mut connection, "/apis/resource.k8s.io/v1/resourceslices", &slice).await
    }

    /// Makes claims and a pod that has them; from its POST until it runs. Then they go, and their devices are free again.
    async fn start(&self, name: &str, claims: usize) -> Result<Duration> {
        let mut connection = self.endpoint.connect().await?;
        let names: Vec<String> = (0..claims).map(|at| format!("{name}-{at}")).collect();
        for name in &names {
            let asked = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "idle"}}]});
            let claim = object("ResourceClaim", json!({"name": name}), json!({"devices": asked}));
            self.post(&mut connection, CLAIMS, &claim).await?;
        }
        let mut wanted = pod(name)?;
        if let Some(spec) = &mut wanted.spec {
            let all = names.iter().map(|name| json!({"name": name, "resourceClaimName": name}));
            spec.resource_claims = Some(serde_json::from_value(all.collect())?);
            let used = names.iter().map(|name| json!({"name": name}));
            let used = json!({"claims": used.collect::<Vec<Value>>()});
            spec.containers[0].resources = Some(serde_json::from_value(used)?);
        }
        let took = self.cluster.start_of(name, &wanted).await?;
        self.cluster.stop(name).await?;
        for name in &names {
            connection.ask(&self.endpoint.request("DELETE", &format!("{CLAIMS}/{name}"), "")).await?;
        }
        self.until_none(&mut connection).await?;
        Ok(took)
    }

    async fn until_none(&self, connection: &mut Connection) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            connection.ask(&self.endpoint.request("GET", CLAIMS, "")).await?;
            let list: Value = serde_json::from_slice(&connection.body()?)?;
            if list["items"].as_array().context("no list")?.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("claims are left: {list}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
