//! A driver of dynamic resources in a thread of its own: its devices have CDI names, and it notes what it is asked.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use podwire_testkit::{Node, eventually};
use podwire_tests::dra::Sockets;
use podwire_wire::dra_v1::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
    dra_plugin_server::DraPlugin,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// Its name.
pub const NAME: &str = "net.example.com";
/// What its devices are called in CDI.
const KIND: &str = "net.example.com/dev";
const FOLDER: &str = "/run/cdi";

/// What it was asked, and what it is told to do.
#[derive(Default)]
struct Notes {
    calls: Vec<String>,
    registered: bool,
    /// What it answers instead of preparing.
    refuses: Option<String>,
    /// The device of each claim, by uid.
    devices: HashMap<String, String>,
}

#[derive(Clone)]
struct Served {
    kubeconfig: PathBuf,
    notes: Arc<Mutex<Notes>>,
}

/// A running driver.
pub struct Driver {
    served: Served,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// Writes what a container gets with each device; the folder must be the test's own.
pub fn describe(devices: &[&str]) -> Result<()> {
    let device = |name: &&str| {
        let edits = serde_json::json!({
            "env": [format!("DEVICE={name}")],
            "deviceNodes": [{"path": "/dev/given", "hostPath": "/dev/net/tun"}],
        });
        serde_json::json!({"name": name, "containerEdits": edits})
    };
    let devices: Vec<Value> = devices.iter().map(device).collect();
    let spec = serde_json::json!({"cdiVersion": "0.6.0", "kind": KIND, "devices": devices});
    std::fs::write(Path::new(FOLDER).join("net.example.com-dev.json"), spec.to_string()).context("write CDI")
}

impl Driver {
    /// Serves on the node and returns when the kubelet has taken it.
    pub fn on(node: &Node) -> Result<Driver> {
        let instance = node.podwire(["instance", "--data-dir", &node.data_dir.display().to_string()])?;
        let instance: Value = serde_json::from_str(&instance)?;
        let root = PathBuf::from(instance["pluginRoot"].as_str().context("no folder of plugins")?);
        let sockets = Sockets::of(NAME, &root)?;
        let served = Served { kubeconfig: node.kubeconfig(), notes: Arc::default() };
        let (stop, running) = (CancellationToken::new(), served.clone());
        let until = stop.clone();
        let thread = std::thread::Builder::new().name("driver".into()).spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let notes = running.clone();
            let registered = move |taken| notes.lock().registered = taken;
            runtime.block_on(sockets.serve(running, registered, until)).expect("it serves");
        })?;
        let driver = Driver { served, stop, thread: Some(thread) };
        eventually("the driver is registered", Duration::from_secs(20), || {
            if driver.notes().registered { Ok(()) } else { Err("not yet".to_owned()) }
        })?;
        Ok(driver)
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.served.lock()
    }

    /// What it was asked, in order.
    pub fn calls(&self) -> Vec<String> {
        self.notes().calls.clone()
    }

    /// Prepares nothing and says why, until it is told otherwise.
    pub fn refuse(&self, why: Option<&str>) {
        self.notes().refuses = why.map(str::to_owned);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the driver ends");
        }
    }
}

impl Served {
    fn lock(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, call: String) -> std::sync::MutexGuard<'_, Notes> {
        let mut notes = self.lock();
        notes.calls.push(call);
        notes
    }

    /// The devices of a claim, as every driver finds them out: from the claim itself.
    fn given(&self, namespace: &str, name: &str, uid: &str) -> Result<Vec<Device>, String> {
        let output = std::process::Command::new(podwire_testkit::node::bin_dir().join("podwire"))
            .args(["get", "resourceclaim", name, "-n", namespace, "-o", "json", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .output()
            .map_err(|error| error.to_string())?;
        let claim: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
        if claim["metadata"]["uid"] != uid {
            return Err(format!("claim {name} is another one"));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let results = claim["status"]["allocation"]["devices"]["results"].as_array().cloned();
        let own = results.into_iter().flatten().filter(|result| result["driver"] == NAME);
        let device = |result: Value| Device {
            request_names: vec![text(&result["request"])],
            pool_name: text(&result["pool"]),
            device_name: text(&result["device"]),
            cdi_device_ids: vec![format!("{KIND}={}", text(&result["device"]))],
            share_id: None,
        };
        Ok(own.map(device).collect())
    }
}

#[tonic::async_trait]
impl DraPlugin for Served {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let refused = self.note(format!("prepare {}", claim.name)).refuses.clone();
            let given = match refused {
                Some(why) => Err(why),
                None => self.given(&claim.namespace, &claim.name, &claim.uid),
            };
            let answer = match given {
                Ok(devices) => {
                    let names: Vec<&str> = devices.iter().map(|one| one.device_name.as_str()).collect();
                    self.lock().devices.insert(claim.uid.clone(), names.join(","));
                    NodePrepareResourceResponse { devices, error: String::new() }
                }
                Err(error) => NodePrepareResourceResponse { devices: Vec::new(), error },
            };
            claims.insert(claim.uid, answer);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            self.note(format!("unprepare {}", claim.name)).devices.remove(&claim.uid);
            claims.insert(claim.uid, NodeUnprepareResourceResponse::default());
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
