//! The node's own object: registered once, its status patched when it changes and slowly otherwise.

use std::{path::Path, sync::Arc, time::Duration};

use http::Method;
use podwire_api::condition::{self, Condition as _};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::Node;
use crate::{api::ApiError, clock, devices::Amounts, runtime::watch::Health};

/// An unchanged status is repeated this often.
const HEARTBEAT: Duration = Duration::from_secs(300);
/// Changes that nobody announces (images, pressure) are looked for this often.
const LOOK: Duration = Duration::from_secs(10);
const MAX_IMAGES: usize = 50;

/// Keeps the node's object current.
pub(crate) struct Reporter {
    pub(crate) node: Arc<Node>,
    pub(crate) health: watch::Receiver<Health>,
    /// Set once the node object exists.
    pub(crate) registered: watch::Sender<bool>,
}

impl Reporter {
    /// Registers, then reports until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = self.register() => {}
        }
        let mut pressure = self.node.pressure.subscribe();
        let mut devices = self.node.devices.amounts();
        let mut last = Value::Null;
        let mut sent = Instant::now();
        let mut ready_since: Option<bool> = None;
        loop {
            let amounts = devices.borrow_and_update().clone();
            let status = self.status(&last, &amounts).await;
            let ready = condition::is_true(listed(&status), "Ready");
            if comparable(&status) != comparable(&last) || sent.elapsed() >= HEARTBEAT {
                let path = format!("/api/v1/nodes/{}/status", self.node.config.node_name);
                let begun = Instant::now();
                match self.node.api.patch_strategic(&path, &json!({"status": status})).await {
                    Ok(_) => {
                        self.node.devices.published(amounts, &path, begun, Instant::now());
                        if ready_since != Some(ready) {
                            let name = &self.node.config.node_name;
                            let reason = if ready { "NodeReady" } else { "NodeNotReady" };
                            let message = format!("Node {name} status is now: {reason}");
                            self.node.events.node("Normal", reason, &message);
                        }
                        ready_since = Some(ready);
                        last = status;
                        sent = Instant::now();
                    }
                    Err(error) if error.code() == Some(404) => self.register().await,
                    Err(error) => tracing::warn!(error = %error, "node status not published; will retry"),
                }
            }
            let pause = if ready { LOOK } else { Duration::from_millis(100) };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                changed = self.health.changed() => if changed.is_err() { return },
                changed = pressure.changed() => if changed.is_err() { return },
                changed = devices.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn register(&self) {
        let mut wait = Duration::from_millis(50);
        while let Err(error) = self.try_register().await {
            tracing::warn!(error = %error, "node not registered; will retry");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(7));
        }
        self.registered.send_replace(true);
    }

    async fn try_register(&self) -> Result<(), ApiError> {
        let name = &self.node.config.node_name;
        let labels = labels(&self.node);
        *self.node.labels.lock().expect("no holder panics") = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned()))
            .collect();
        let mut spec = json!({});
        if let Some(cidr) = &self.node.config.pod_cidr {
            spec = json!({"podCIDR": cidr, "podCIDRs": [cidr]});
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "labels": labels,
                "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            },
            "spec": spec,
        });
        match self.node.api.json(Method::POST, "/api/v1/nodes", &object).await {
            Ok(_) => {
                self.node.events.node("Normal", "Starting", "Starting kubelet.");
                Ok(())
            }
            Err(error) if error.code() == Some(409) => {
                let patch = json!({"metadata": {"labels": object["metadata"]["labels"]}});
                let path = format!("/api/v1/nodes/{name}");
                let answer = self.node.api.patch_strategic(&path, &patch).await?;
                let labels = answer["metadata"]["labels"].as_object().cloned().unwrap_or_default();
                *self.node.labels.lock().expect("no holder panics") =
                    labels.into_iter().map(|(k, v)| (k, v.as_str().unwrap_or_default().to_owned())).collect();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn status(&self, last: &Value, devices: &Amounts) -> Value {
        let node = &self.node;
        let down = self.health.borrow().down.clone();
        let (ready, reason, message) = match down {
            Some(why) => (false, "KubeletNotReady", format!("container runtime is down: {why}")),
            None if self.health.borrow().epoch == 0 => (
                false,
                "KubeletNotReady",
                "container runtime status check may not have completed yet".to_owned(),
            ),
            None => self.runtime_condition().await,
        };
        let now = clock::now_seconds().to_string();
        let conditions = [
            memory_condition(node.pressure.borrow().memory),
            disk_condition(node.pressure.borrow().disk),
            condition(
                "PIDPressure",
                false,
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
            condition("Ready", ready, reason, &message),
        ];
        let conditions: Vec<Value> = conditions
            .into_iter()
            .map(|mut condition| {
                let before = condition::find(listed(last), condition.kind());
                condition["lastTransitionTime"] = json!(now);
                condition::keep_transition_time(before, &mut condition);
                condition["lastHeartbeatTime"] = json!(now);
                condition
            })
            .collect();
        let mut capacity = node.capacity.shown(node.config.max_pods);
        let mut allocatable = node.allocatable.shown(node.config.max_pods);
        for (resource, (all, healthy)) in devices {
            capacity[resource] = json!(all.to_string());
            allocatable[resource] = json!(healthy.to_string());
        }
        let mut addresses: Vec<Value> =
            node.config.node_ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        addresses.push(json!({"type": "Hostname", "address": node.config.node_name}));
        json!({
            "capacity": capacity, "allocatable": allocatable, "conditions": conditions, "addresses": addresses,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.config.listen.port()}},
            "nodeInfo": self.info().await,
            "images": images(node).await,
        })
    }

    async fn runtime_condition(&self) -> (bool, &'static str, String) {
        match self.node.runtime.status().await {
            Err(error) => (false, "KubeletNotReady", format!("container runtime is down: {error}")),
            Ok(answer) => {
                let conditions = answer.status.unwrap_or_default().conditions;
                let bad = conditions
                    .iter()
                    .find(|c| !c.status && matches!(c.r#type.as_str(), "RuntimeReady" | "NetworkReady"));
                match bad {
                    None => (true, "KubeletReady", "kubelet is posting ready status".to_owned()),
                    Some(c) if c.r#type == "NetworkReady" => (
                        false,
                        "KubeletNotReady",
                        format!(
                            "container runtime network not ready: NetworkReady=false reason:{} message:{}",
                            c.reason, c.message
                        ),
                    ),
                    Some(c) => (
                        false,
                        "KubeletNotReady",
                        format!(
                            "container runtime not ready: RuntimeReady=false reason:{} message:{}",
                            c.reason, c.message
                        ),
                    ),
                }
            }
        }
    }

    async fn info(&self) -> Value {
        // Ignored: without an answer the name stays the default until the runtime is back.
        let version = self.node.runtime.version().await.ok();
        if let Some(version) = &version {
            self.node.runtime_label.get_or_init(|| version.runtime_name.clone());
            if version.runtime_name != "podwire" {
                let twin = || format!("{} {}", version.runtime_name, version.runtime_version);
                self.node.runtime.is_played_by(twin());
            }
        }
        let runtime =
            version.map(|v| format!("{}://{}", v.runtime_name, v.runtime_version)).unwrap_or_default();
        let uname = rustix::system::uname();
        let text = |path: &str| {
            std::fs::read_to_string(Path::new(path)).map(|t| t.trim().to_owned()).unwrap_or_default()
        };
        json!({
            "machineID": text("/etc/machine-id"),
            "systemUUID": text("/sys/class/dmi/id/product_uuid"),
            "bootID": podwire_linux::boot::id().unwrap_or_default(),
            "kernelVersion": uname.release().to_string_lossy(),
            "osImage": os_image(),
            "containerRuntimeVersion": runtime,
            "kubeletVersion": self.node.config.version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": architecture(),
        })
    }
}

fn listed(status: &Value) -> impl Iterator<Item = &Value> {
    status["conditions"].as_array().into_iter().flatten()
}

fn condition(kind: &str, on: bool, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": if on { "True" } else { "False" }, "reason": reason, "message": message})
}

fn memory_condition(short: bool) -> Value {
    let (reason, message) = if short {
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
    } else {
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available")
    };
    condition("MemoryPressure", short, reason, message)
}

fn disk_condition(short: bool) -> Value {
    let (reason, message) = if short {
        ("KubeletHasDiskPressure", "kubelet has disk pressure")
    } else {
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure")
    };
    condition("DiskPressure", short, reason, message)
}

/// The status without what changes by itself.
fn comparable(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        for condition in conditions {
            condition["lastHeartbeatTime"] = Value::Null;
        }
    }
    status
}

fn labels(node: &Node) -> Value {
    json!({
        "kubernetes.io/hostname": node.config.node_name,
        "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture(),
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": architecture(),
    })
}

/// The machine's architecture in Go's words.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn os_image() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |n| n.trim_matches('"').to_owned())
}

async fn images(node: &Node) -> Value {
    // Ignored: a runtime that does not answer already shows in the Ready condition.
    let mut images = node.runtime.list_images().await.unwrap_or_default();
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    let all = images.into_iter().take(MAX_IMAGES).map(|image| {
        let names: Vec<String> = image.repo_digests.into_iter().chain(image.repo_tags).take(5).collect();
        json!({"names": names, "sizeBytes": image.size})
    });
    all.collect()
}
