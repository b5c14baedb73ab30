//! A node in a network namespace of its own: a real API server and the runtime's side of NRI in this process, a driver that can
//! be killed, and a kubelet that is the test.

use std::{
    os::fd::{AsFd, AsRawFd},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use ipnet::IpNet;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::Node,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use podwire_apiserver::{Config as ServerConfig, Identity};
use podwire_client::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use podwire_linux::{
    netns::{self, Netns},
    rtnl::{self, Batch, LinkChange, LinkRef, NewAddress, Peer, Socket, Veth},
};
use podwire_netdev::Snapshot;
use podwire_netdriver::{Config, NAME, Offer};
use podwire_nri::{
    EventError, Host, Nri,
    api::{Container, ContainerEviction, ContainerUpdate, LinuxNamespace, LinuxPodSandbox, PodSandbox},
};
use podwire_wire::{
    dra_health::{
        NodeWatchResourcesRequest, NodeWatchResourcesResponse,
        dra_resource_health_client::DraResourceHealthClient,
    },
    dra_v1::{
        Claim, Device, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
        dra_plugin_client::DraPluginClient,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{runtime::Runtime, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const NODE: &str = "node1";

/// Runs a test in a network namespace of its own.
pub(crate) fn in_node(test: impl Future<Output = ()>) {
    podwire_testkit::isolate().unwrap();
    // Threads that this one starts are in its namespace.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
    runtime.shutdown_background();
}

/// Waits until something is there.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(why) => assert!(begun.elapsed() < DEADLINE, "{what}: {why}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The pods that the runtime has.
#[derive(Default)]
struct Pods(Mutex<Vec<PodSandbox>>);

impl Host for Pods {
    fn snapshot(&self) -> BoxFuture<'_, (Vec<PodSandbox>, Vec<Container>)> {
        Box::pin(async { (self.0.lock().unwrap().clone(), Vec::new()) })
    }

    fn update_containers(&self, _: Vec<ContainerUpdate>) -> BoxFuture<'_, Vec<ContainerUpdate>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn evict(&self, _: ContainerEviction) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

pub(crate) struct World {
    pub(crate) admin: Client,
    pub(crate) nri: Nri,
    pods: Arc<Pods>,
    config: Config,
    driver: Option<(Runtime, CancellationToken, JoinSet<()>)>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    _dir: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start(offers: &[&str]) -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = podwire_store::EmbeddedConfig::new(dir.path().join("store")).open().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server =
            ServerConfig::new(Arc::new(store), dir.path().join("pki"), listen).build().await.unwrap();
        let admin = Client::new(server.client(Identity::admin()), "default");
        // The driver has the rights of its manifest and no others.
        let mut account =
            Identity::new("system:serviceaccount:kube-system:podwire-netdriver", &["system:serviceaccounts"]);
        account.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![NODE.to_owned()]);
        let client = Client::new(server.client(account), "default");
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        grant(&admin).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        Api::<Node>::all(admin.clone()).create(&PostParams::default(), &node).await.unwrap();
        let mut nri = podwire_nri::Config::new("podwire", "test");
        nri.socket = Some(dir.path().join("nri.sock"));
        nri.required = vec![NAME.to_owned()];
        nri.required_wait = Duration::from_millis(200);
        let pods = Arc::new(Pods::default());
        let adaptation = nri.build(pods.clone()).await.unwrap();
        let handle = adaptation.handle();
        tasks.spawn(adaptation.run(shutdown.clone()));
        let config = Config {
            client,
            node_name: NODE.to_owned(),
            driver_name: NAME.to_owned(),
            kubelet_dir: dir.path().join("kubelet"),
            nri_socket: dir.path().join("nri.sock"),
            state_dir: dir.path().join("state"),
            cdi_dir: dir.path().join("cdi"),
            sysfs: "/sys".into(),
            filter: String::new(),
            offers: offers.iter().flat_map(|text| Offer::parse(text).unwrap()).collect(),
            skip: Vec::new(),
        };
        let mut world = World { admin, nri: handle, pods, config, driver: None, shutdown, tasks, _dir: dir };
        world.start_driver().await;
        world
    }

    pub(crate) async fn start_driver(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let config = self.config.clone();
        let handle = runtime.handle().clone();
        let driver = until("the driver starts", async || {
            let _inside = handle.enter();
            config.clone().build().map_err(|error| podwire_trace::chain(&error))
        })
        .await;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn_on(driver.run(stop.clone()), runtime.handle());
        self.driver = Some((runtime, stop, tasks));
        until("the driver is connected", async || {
            let plugins = self.nri.plugins();
            let is_ready = plugins.iter().any(|one| one.name == NAME && one.ready);
            if is_ready { Ok(()) } else { Err(format!("{plugins:?}")) }
        })
        .await;
    }

    /// Ends the driver without warning.
    pub(crate) async fn kill_driver(&mut self) {
        let (runtime, ..) = self.driver.take().unwrap();
        runtime.shutdown_background();
        until("the driver is gone", async || {
            let is_there = self.nri.plugins().iter().any(|one| one.name == NAME && one.connected);
            if is_there { Err("it is there".to_owned()) } else { Ok(()) }
        })
        .await;
    }

    pub(crate) async fn stop(mut self) {
        if let Some((runtime, stop, mut tasks)) = self.driver.take() {
            stop.cancel();
            tokio::time::timeout(DEADLINE, tasks.join_next()).await.expect("the driver comes to rest");
            runtime.shutdown_background();
        }
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// The slices of the driver, by name.
    pub(crate) async fn slices(&self) -> Vec<Value> {
        let list = self.admin.get("/apis/resource.k8s.io/v1/resourceslices").await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Waits until a device is published, or is not.
    pub(crate) async fn published(&self, device: &str, wanted: bool) -> Value {
        until(&format!("{device} is published: {wanted}"), async || {
            let slices = self.slices().await;
            let mut all = slices
                .iter()
                .flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default());
            let found = all.find(|one| one["name"] == device);
            match (found, slices.is_empty()) {
                (Some(found), _) if wanted => Ok(found),
                (None, false) if !wanted => Ok(Value::Null),
                _ => Err(format!("{slices:?}")),
            }
        })
        .await
    }

    /// A claim that is allocated to a device and reserved for a pod of the same name.
    pub(crate) async fn claim(&self, name: &str, device: &str, parameters: Value) -> String {
        self.claim_of(name, json!({"device": device}), parameters).await
    }

    /// The same with all that is said of what was allocated.
    pub(crate) async fn claim_of(&self, name: &str, allocated: Value, parameters: Value) -> String {
        let mut result = json!({"request": "nic", "driver": NAME, "pool": NODE});
        result.as_object_mut().unwrap().extend(allocated.as_object().unwrap().clone());
        let made = self.write(name, false, &parameters).await.unwrap();
        let api: Api<ResourceClaim> = Api::namespaced(self.admin.clone(), "default");
        let status = json!({"status": {
            "reservedFor": [{"resource": "pods", "name": name, "uid": format!("pod-{name}")}],
            "allocation": {"devices": {
                "results": [result],
                "config": [{"source": "FromClaim", "requests": ["nic"], "opaque": {"driver": NAME, "parameters": parameters}}],
            }, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]}},
        }});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        made
    }

    /// Writes a claim or a template with a configuration; its uid, or what the API server says.
    pub(crate) async fn write(
        &self,
        name: &str,
        template: bool,
        parameters: &Value,
    ) -> Result<String, String> {
        let devices = json!({"devices": {
            "requests": [{"name": "nic", "exactly": {"deviceClassName": NAME}}],
            "config": [{"requests": ["nic"], "opaque": {"driver": NAME, "parameters": parameters}}],
        }});
        let object = |kind: &str, spec: Value| json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let params = PostParams::default();
        let made = if template {
            let api: Api<ResourceClaimTemplate> = Api::namespaced(self.admin.clone(), "default");
            api.create(&params, &object("ResourceClaimTemplate", json!({"spec": devices}))).await
        } else {
            let api: Api<ResourceClaim> = Api::namespaced(self.admin.clone(), "default");
            api.create(&params, &object("ResourceClaim", devices)).await
        };
        made.map(|made| made.metadata.uid.unwrap()).map_err(|error| error.to_string())
    }

    /// Puts the shipped policy in force.
    pub(crate) async fn policy(&self) {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/netdriver-policy.yaml");
        for document in serde_yaml_ng::Deserializer::from_str(&std::fs::read_to_string(file).unwrap()) {
            let object = Value::deserialize(document).unwrap();
            let params = PostParams::default();
            let made = match object["kind"].as_str().unwrap() {
                "ValidatingAdmissionPolicy" => {
                    Api::<ValidatingAdmissionPolicy>::all(self.admin.clone()).create(&params, &object).await
                }
                _ => {
                    Api::<ValidatingAdmissionPolicyBinding>::all(self.admin.clone())
                        .create(&params, &object)
                        .await
                }
            };
            made.unwrap();
        }
    }

    /// What the driver has told of a claim's first device, once its condition Ready is that.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> Value {
        let api: Api<ResourceClaim> = Api::namespaced(self.admin.clone(), "default");
        until(&format!("{name} is {reason}"), async || {
            let claim = api.get_value(name).await.unwrap().unwrap();
            let device = claim["status"]["devices"][0].clone();
            let ready =
                device["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "Ready");
            if ready.is_some_and(|ready| ready["reason"] == reason) {
                Ok(device)
            } else {
                Err(claim["status"].to_string())
            }
        })
        .await
    }

    fn kubelet(&self) -> DraPluginClient<tonic::transport::Channel> {
        DraPluginClient::new(podwire_wire::unix::channel(
            self.config.kubelet_dir.join("plugins").join(NAME).join("dra.sock"),
        ))
    }

    /// How devices in pods are, as the kubelet hears it.
    pub(crate) async fn health(&self) -> Streaming<NodeWatchResourcesResponse> {
        let socket = self.config.kubelet_dir.join("plugins").join(NAME).join("dra.sock");
        let mut kubelet = DraResourceHealthClient::new(podwire_wire::unix::channel(socket));
        kubelet.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap().into_inner()
    }

    /// NodePrepareResources, as the kubelet calls it; the names of devices, or what the driver says.
    pub(crate) async fn prepare(&self, name: &str, uid: &str) -> Result<Vec<String>, String> {
        let devices = self.prepared(name, uid).await?;
        Ok(devices.into_iter().map(|device| device.device_name).collect())
    }

    /// The same with all that is told of the devices.
    pub(crate) async fn prepared(&self, name: &str, uid: &str) -> Result<Vec<Device>, String> {
        let claims = vec![named(name, uid)];
        let answer =
            self.kubelet().node_prepare_resources(NodePrepareResourcesRequest { claims }).await.unwrap();
        let one = answer.into_inner().claims.remove(uid).expect("an answer for each claim");
        if one.error.is_empty() { Ok(one.devices) } else { Err(one.error) }
    }

    pub(crate) async fn unprepare(&self, name: &str, uid: &str) -> Result<(), String> {
        let claims = vec![named(name, uid)];
        let answer =
            self.kubelet().node_unprepare_resources(NodeUnprepareResourcesRequest { claims }).await.unwrap();
        let one = answer.into_inner().claims.remove(uid).expect("an answer for each claim");
        if one.error.is_empty() { Ok(()) } else { Err(one.error) }
    }

    /// Has a sandbox of a pod run.
    pub(crate) async fn run(&self, pod: &Pod) -> Result<(), EventError> {
        let sandbox = pod.sandbox();
        self.nri.run_pod_sandbox(sandbox.clone()).await?;
        self.pods.0.lock().unwrap().push(sandbox);
        Ok(())
    }

    /// Has a sandbox end, as far as plugins hear.
    pub(crate) async fn end(&self, pod: &Pod) {
        self.forget(pod);
        self.nri.stop_pod_sandbox(pod.sandbox()).await.unwrap();
        self.nri.remove_pod_sandbox(PodSandbox { linux: None, ..pod.sandbox() }).await.unwrap();
    }

    /// The runtime has it no more, and told nobody.
    pub(crate) fn forget(&self, pod: &Pod) {
        self.pods.0.lock().unwrap().retain(|one| one.id != pod.id);
    }

    /// The runtime ran it and asked nobody.
    pub(crate) fn ran(&self, pod: &Pod) {
        self.pods.0.lock().unwrap().push(pod.sandbox());
    }

    pub(crate) fn pins(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.config.state_dir.join("netns")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn cdi_dir(&self) -> PathBuf {
        self.config.cdi_dir.clone()
    }

    /// The files for the runtime's Container Device Interface: name and content.
    pub(crate) fn cdi(&self) -> Vec<(String, Value)> {
        let entries = std::fs::read_dir(&self.config.cdi_dir).into_iter().flatten().map(Result::unwrap);
        let read = |path: PathBuf| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        entries.map(|entry| (entry.file_name().into_string().unwrap(), read(entry.path()))).collect()
    }

    pub(crate) async fn events(&self) -> Vec<Value> {
        let list = self.admin.get("/api/v1/namespaces/default/events").await.unwrap();
        list["items"].as_array().unwrap().clone()
    }
}

fn named(name: &str, uid: &str) -> Claim {
    Claim { namespace: "default".to_owned(), uid: uid.to_owned(), name: name.to_owned() }
}

async fn grant(admin: &Client) {
    let text = include_str!("../../../../dist/netdriver.yaml");
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).unwrap();
        let params = PostParams::default();
        match object["kind"].as_str().unwrap() {
            "ClusterRole" => {
                drop(Api::<ClusterRole>::all(admin.clone()).create(&params, &object).await.unwrap())
            }
            "ClusterRoleBinding" => {
                drop(Api::<ClusterRoleBinding>::all(admin.clone()).create(&params, &object).await.unwrap());
            }
            _ => {}
        }
    }
}

/// A pod with one sandbox.
pub(crate) struct Pod {
    pub(crate) id: String,
    pub(crate) uid: String,
    pub(crate) netns: Netns,
}

impl Pod {
    pub(crate) fn of(name: &str) -> Pod {
        Pod { id: format!("sandbox-{name}"), uid: format!("pod-{name}"), netns: netns::create().unwrap() }
    }

    fn sandbox(&self) -> PodSandbox {
        let path = format!("/proc/self/fd/{}", self.netns.as_fd().as_raw_fd());
        let namespaces = vec![LinuxNamespace { r#type: "network".to_owned(), path }];
        PodSandbox {
            id: self.id.clone(),
            name: self.uid.clone(),
            uid: self.uid.clone(),
            namespace: "default".to_owned(),
            linux: Some(LinuxPodSandbox { namespaces, ..LinuxPodSandbox::default() }),
            ..PodSandbox::default()
        }
    }

    pub(crate) fn seen(&self, name: &str) -> Option<Snapshot> {
        self.netns.run(|| seen(name)).unwrap()
    }
}

/// A device of the calling thread's namespace.
pub(crate) fn seen(name: &str) -> Option<Snapshot> {
    Snapshot::take(&mut Socket::route().unwrap(), LinkRef::Name(name)).unwrap()
}

/// Gives the node a pair of devices, of which `name` has an address, a route and an alternative name.
pub(crate) fn make_device(name: &str) -> Snapshot {
    let other = format!("{name}x");
    let mut socket = Socket::route().unwrap();
    let mut batch = Batch::new();
    let peer = Peer { name: &other, netns: None, mac: None };
    batch.add_veth(&Veth { name, up: true, master: None, mtu: Some(1400), mac: None, peer });
    batch.set_link(LinkRef::Name(&other), &LinkChange { up: Some(true), ..LinkChange::default() });
    socket.exchange(&mut batch).unwrap();
    let link = socket.link(LinkRef::Name(name)).unwrap().unwrap().index;
    let mut batch = Batch::new();
    batch.add_altname(link, &format!("{name}-other"));
    let number: u8 = name.trim_start_matches("eth").parse().unwrap();
    let net: IpNet = format!("192.0.{}.7/24", number + 1).parse().unwrap();
    batch.add_address(&NewAddress { link, net, no_dad: true, broadcast: true });
    let destination = format!("198.51.{}.0/24", number + 99).parse().unwrap();
    let gateway = format!("192.0.{}.1", number + 1).parse().unwrap();
    let route = rtnl::Route::by_gateway(destination, gateway, link);
    batch.add_route(&route);
    socket.exchange(&mut batch).unwrap();
    seen(name).unwrap()
}

pub(crate) fn remove_device(name: &str) {
    let mut batch = Batch::new();
    batch.del_link(LinkRef::Name(name));
    Socket::route().unwrap().exchange(&mut batch).unwrap();
}
