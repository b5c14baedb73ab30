//! Pods made and watched over the API, timed from the outside.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::{
    api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};

/// Long enough that only a defect reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

/// An API server whose pods are measured.
pub struct Cluster {
    pods: Api<Pod>,
    maps: Api<ConfigMap>,
    client: kube::Client,
}

impl Cluster {
    /// Connects with a kubeconfig.
    pub async fn connect(kubeconfig: &Path) -> Result<Cluster> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.read_timeout = None;
        let client = kube::Client::try_from(config)?;
        Ok(Cluster {
            pods: Api::namespaced(client.clone(), "default"),
            maps: Api::namespaced(client.clone(), "default"),
            client,
        })
    }

    /// The nodes of the cluster.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Makes one pod; the time until a watch shows it Running with an address.
    pub async fn start(&self, name: &str) -> Result<Duration> {
        self.start_of(name, &pod(name)?).await
    }

    /// The same of a pod that the caller has changed.
    pub async fn start_of(&self, name: &str, pod: &Pod) -> Result<Duration> {
        let version = self.version().await?;
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = self.pods.watch(&params, &version).await?.boxed();
        let begun = Instant::now();
        self.pods.create(&PostParams::default(), pod).await?;
        let seen = async {
            while let Some(event) = events.try_next().await? {
                if let WatchEvent::Modified(pod) | WatchEvent::Added(pod) = event
                    && is_running(&pod)
                {
                    return Ok(begun.elapsed());
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(PATIENCE, seen).await.context("not Running in time")?
    }

    /// Makes and deletes one pod; both times.
    pub async fn start_and_stop(&self, name: &str) -> Result<(Duration, Duration)> {
        let start = self.start(name).await?;
        Ok((start, self.stop(name).await?))
    }

    /// The same with one of an extended resource.
    pub async fn start_and_stop_with(&self, name: &str, resource: &str) -> Result<(Duration, Duration)> {
        let mut pod = pod(name)?;
        let limits = serde_json::json!({"limits": {resource: "1"}});
        if let Some(spec) = &mut pod.spec {
            spec.containers[0].resources = Some(serde_json::from_value(limits)?);
        }
        let start = self.start_of(name, &pod).await?;
        Ok((start, self.stop(name).await?))
    }

    /// Deletes one pod; the time until it is gone.
    pub async fn stop(&self, name: &str) -> Result<Duration> {
        let version = self.version().await?;
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = self.pods.watch(&params, &version).await?.boxed();
        let begun = Instant::now();
        self.pods.delete(name, &DeleteParams::default()).await?;
        let gone = async {
            while let Some(event) = events.try_next().await? {
                if matches!(event, WatchEvent::Deleted(_)) {
                    return Ok(begun.elapsed());
                }
            }
            bail!("the watch ended")
        };
        tokio::time::timeout(PATIENCE, gone).await.context("not gone in time")?
    }

    /// Makes `count` pods at once over 8 connections' worth of concurrency; the time until all are Running.
    pub async fn burst(&self, count: usize) -> Result<Duration> {
        let version = self.version().await?;
        let mut events = self.pods.watch(&WatchParams::default(), &version).await?.boxed();
        let begun = Instant::now();
        let seeing = async {
            let mut running = BTreeSet::new();
            while running.len() < count {
                match events.try_next().await?.context("the watch ended")? {
                    WatchEvent::Modified(pod) | WatchEvent::Added(pod) if is_running(&pod) => {
                        running.insert(pod.metadata.name.unwrap_or_default());
                    }
                    _ => {}
                }
            }
            Ok(begun.elapsed())
        };
        let both = async { tokio::try_join!(self.create(count), seeing) };
        let (_, took) = tokio::time::timeout(PATIENCE, both).await.context("not all Running in time")??;
        Ok(took)
    }

    /// Makes `count` pods and does not wait for them.
    pub async fn create(&self, count: usize) -> Result<()> {
        let mut done = futures::stream::iter(0..count)
            .map(|number| async move {
                self.pods.create(&PostParams::default(), &pod(&format!("b{number}"))?).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(8);
        while done.try_next().await?.is_some() {}
        Ok(())
    }

    /// Makes `count` objects that nobody acts on, and deletes them.
    pub async fn objects(&self, count: usize) -> Result<()> {
        let mut done = futures::stream::iter(0..count)
            .map(|number| async move {
                let mut map = ConfigMap::default();
                map.metadata.name = Some(format!("m{number}"));
                map.data = Some([("key".to_owned(), format!("{number:01000}"))].into());
                self.maps.create(&PostParams::default(), &map).await?;
                self.maps.delete(&format!("m{number}"), &DeleteParams::default()).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(64);
        while done.try_next().await?.is_some() {}
        Ok(())
    }

    /// Waits until every pod there is runs; how many of them ran before, and the restarts they count.
    pub async fn all_running(&self) -> Result<(usize, i32)> {
        let list = self.pods.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = self.pods.watch(&WatchParams::default(), &version).await?.boxed();
        let mut pods: BTreeMap<String, Pod> =
            list.items.into_iter().map(|pod| (pod.metadata.name.clone().unwrap_or_default(), pod)).collect();
        let before = pods.values().filter(|pod| is_running(pod)).count();
        let seeing = async {
            while !pods.values().all(is_running) {
                if let WatchEvent::Modified(pod) = events.try_next().await?.context("the watch ended")? {
                    pods.insert(pod.metadata.name.clone().unwrap_or_default(), pod);
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, seeing).await.context("not all Running in time")??;
        Ok((before, pods.values().map(restarts).sum()))
    }

    /// Deletes every pod; the time until all are gone.
    pub async fn delete_all(&self) -> Result<Duration> {
        let list = self.pods.list(&ListParams::default()).await?;
        let mut left: BTreeSet<String> =
            list.items.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        let version = list.metadata.resource_version.unwrap_or_default();
        let mut events = self.pods.watch(&WatchParams::default(), &version).await?.boxed();
        let begun = Instant::now();
        let names: Vec<String> = left.iter().cloned().collect();
        let deleting = async {
            let mut done = futures::stream::iter(names)
                .map(|name| async move { self.pods.delete(&name, &DeleteParams::default()).await })
                .buffer_unordered(8);
            while done.try_next().await?.is_some() {}
            anyhow::Ok(())
        };
        let seeing = async {
            while !left.is_empty() {
                if let WatchEvent::Deleted(pod) = events.try_next().await?.context("the watch ended")? {
                    left.remove(&pod.metadata.name.unwrap_or_default());
                }
            }
            Ok(begun.elapsed())
        };
        let (_, took) = tokio::time::timeout(PATIENCE, async { tokio::try_join!(deleting, seeing) })
            .await
            .context("not all gone in time")??;
        Ok(took)
    }

    async fn version(&self) -> Result<String> {
        let list = self.pods.list(&ListParams::default().limit(1)).await?;
        list.metadata.resource_version.context("no resourceVersion")
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status
        .as_ref()
        .is_some_and(|status| status.phase.as_deref() == Some("Running") && status.pod_ip.is_some())
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.map(|container| container.restart_count).sum()
}

/// A pod with one container that sleeps.
pub fn pod(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(serde_json::json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{
                "name": "main", "image": "localhost/pod-app:latest", "imagePullPolicy": "IfNotPresent",
                "args": ["sleep", "3600"],
            }],
            "automountServiceAccountToken": false,
        },
    }))?)
}
