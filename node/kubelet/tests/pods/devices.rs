//! Devices of plugins: told to the node, reserved, allocated, kept over restarts, waited for and given back.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use podwire_kubelet::DeviceSettings;
use podwire_wire::pod_resources::{
    AllocatableResourcesRequest, GetPodResourcesRequest, ListPodResourcesRequest,
    pod_resources_lister_client::PodResourcesListerClient,
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, NODE, condition, phase, restarts, waiting},
    plugin::{Plugin, device, on_node, register, unhealthy},
};

pub(crate) const GPU: &str = "example.com/gpu";

impl Cluster {
    pub(crate) fn plugins(&self) -> PathBuf {
        self.dir.path().join("kubelet/device-plugins")
    }

    /// A plugin that is registered.
    pub(crate) async fn plugin(&self, resource: &str, devices: &[&str]) -> Plugin {
        let name = resource.rsplit('/').next().unwrap();
        let socket = self.plugins().join(format!("{name}.sock"));
        // The kubelet clears the folder before it serves.
        self.eventually("the kubelet serves plugins", || async {
            std::os::unix::net::UnixStream::connect(self.plugins().join("kubelet.sock")).is_ok()
        })
        .await;
        let devices = devices.iter().map(|id| device(id)).collect();
        let plugin = Plugin::serve(&self.fake, socket, resource, devices);
        plugin.register().await;
        plugin
    }

    /// Waits until the node has so many of a resource, and so many that can be used.
    pub(crate) async fn has(&self, resource: &str, capacity: &str, allocatable: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        self.eventually(&format!("{resource} is {capacity}, {allocatable}"), || async {
            let status = nodes.get_opt(NODE).await.unwrap().and_then(|node| node.status).unwrap_or_default();
            let of = |list: Option<BTreeMap<String, _>>| {
                list.unwrap_or_default()
                    .get(resource)
                    .map(|q: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| q.0.clone())
                    .unwrap_or_default()
            };
            of(status.capacity) == capacity && of(status.allocatable) == allocatable
        })
        .await;
    }

    /// What the runtime was told of the newest container of this name.
    fn made(&self, name: &str) -> podwire_wire::cri::ContainerConfig {
        let world = self.fake.world.lock().unwrap();
        let all = world.containers.values().filter(|c| c.config.metadata.as_ref().unwrap().name == name);
        all.max_by_key(|c| c.config.metadata.as_ref().unwrap().attempt).unwrap().config.clone()
    }

    pub(crate) fn calls_like(&self, start: &str) -> Vec<String> {
        let world = self.fake.world.lock().unwrap();
        world.calls.iter().filter(|call| call.starts_with(start)).cloned().collect()
    }

    pub(crate) async fn clear(&self, names: &[&str]) {
        for name in names {
            // Its object goes last, when nothing of the pod is left: what it held is free then.
            self.delete(name, 1).await;
            self.gone(name).await;
        }
    }
}

pub(crate) fn wants(count: &str) -> Value {
    json!({"containers": [{"name": "app", "image": "run:1", "resources": {"limits": {GPU: count}}}]})
}

pub(crate) fn env(config: &podwire_wire::cri::ContainerConfig, name: &str) -> Option<String> {
    let found = config.envs.iter().find(|variable| variable.key == name)?;
    Some(String::from_utf8_lossy(&found.value).into_owned())
}

pub(crate) fn health(pod: &Pod) -> Vec<(String, String)> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
    let all = statuses.into_iter().flatten().flat_map(|s| s.allocated_resources_status.unwrap_or_default());
    let all = all.flat_map(|status| status.resources.unwrap_or_default());
    all.map(|device| (device.resource_id, device.health.unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_told_reserved_allocated_once_and_given_back() {
    let cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster.has(GPU, "2", "2").await;
    plugin.behave(|manners| manners.options.pre_start_required = true);
    plugin.list(vec![unhealthy("g0"), device("g1"), device("g2")]);
    cluster.has(GPU, "3", "2").await;
    // Options are heard of at registration.
    plugin.register().await;
    let mut spec = wants("2");
    spec["containers"][0]["args"] = json!(["--with=$(GPU)"]);
    cluster.create("one", spec).await;
    let pod = cluster.running("one").await;
    assert_eq!(health(&pod), [("g1".into(), "Healthy".into()), ("g2".into(), "Healthy".into())]);
    let made = cluster.made("app");
    assert_eq!(env(&made, "GPU").as_deref(), Some("g1,g2"));
    assert_eq!(made.args, ["--with=g1,g2"]);
    let inside: Vec<_> =
        made.devices.iter().map(|d| (d.container_path.as_str(), d.permissions.as_str())).collect();
    assert_eq!(inside, [("/dev/g1", "rw"), ("/dev/g2", "rw")]);
    assert_eq!(made.annotations["gpu.example.com"], "g1.g2");
    let cdi: Vec<_> = made.cdi_devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(cdi, ["example.com/gpu=g1", "example.com/gpu=g2"]);
    assert!(
        made.mounts.iter().any(|m| m.container_path == "/opt/gpu" && m.host_path == "/opt" && m.readonly)
    );
    let order: Vec<String> = {
        let world = cluster.fake.world.lock().unwrap();
        let first = world.calls.iter().map(|call| call.split(' ').next().unwrap().to_owned());
        first
            .filter(|c| ["run_pod_sandbox", "allocate", "prestart", "create_container"].contains(&c.as_str()))
            .collect()
    };
    assert_eq!(order, ["run_pod_sandbox", "allocate", "prestart", "create_container"]);

    cluster.fake.end("app", 1);
    cluster.until("one", "restarted", |pod| restarts(pod) == 1 && phase(pod) == "Running").await;
    assert_eq!(env(&cluster.made("app"), "GPU").as_deref(), Some("g1,g2"));
    assert_eq!(cluster.calls_like("allocate").len(), 1, "once per container, not per run");
    assert_eq!(cluster.calls_like("prestart").len(), 2, "before every run");

    cluster.create("two", wants("1")).await;
    let pod = cluster.until("two", "refused", |pod| phase(pod) == "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(
        status.message.as_deref(),
        Some(
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/gpu. \
             Requested: 1, Available: 0, which is unexpected"
        )
    );
    cluster.clear(&["two", "one"]).await;
    cluster.create("three", wants("2")).await;
    cluster.running("three").await;
    assert_eq!(cluster.calls_like("allocate").len(), 2);
    cluster.clear(&["three"]).await;
    plugin.stop().await;
    cluster.has(GPU, "3", "0").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_told_who_holds_what() {
    let cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &[]).await;
    plugin.list(vec![on_node("g0", 0), device("g1"), unhealthy("g2")]);
    cluster.has(GPU, "3", "2").await;
    cluster.create("one", wants("1")).await;
    cluster.running("one").await;
    let socket = cluster.dir.path().join("kubelet/pod-resources/kubelet.sock");
    let mut client = PodResourcesListerClient::new(podwire_wire::unix::channel(socket));
    let list = client.list(ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources;
    assert_eq!(list.len(), 1);
    assert_eq!((list[0].name.as_str(), list[0].namespace.as_str()), ("one", "default"));
    let held = &list[0].containers[0].devices;
    assert_eq!(held.len(), 1);
    assert_eq!(
        (held[0].resource_name.as_str(), held[0].device_ids.as_slice()),
        (GPU, &["g0".to_owned()][..])
    );
    assert_eq!(held[0].topology.as_ref().unwrap().nodes[0].id, 0);
    let all = client.get_allocatable_resources(AllocatableResourcesRequest {}).await.unwrap().into_inner();
    let ids: Vec<_> = all.devices.iter().flat_map(|devices| devices.device_ids.clone()).collect();
    assert_eq!(ids, ["g0", "g1"]);
    let of = |name: &str| GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: "default".to_owned(),
    };
    let one = client.get(of("one")).await.unwrap().into_inner().pod_resources.unwrap();
    assert_eq!(one.containers[0].devices, *held);
    let missing = client.get(of("nobody")).await.unwrap_err();
    assert_eq!(missing.message(), "pod nobody in namespace default not found");
    cluster.clear(&["one"]).await;
    plugin.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_pods_keep_their_devices_when_kubelet_and_plugin_restart() {
    let mut cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster.has(GPU, "2", "2").await;
    cluster.create("one", wants("1")).await;
    let pod = cluster.running("one").await;
    let held = health(&pod);
    plugin.stop().await;
    cluster.until("one", "without health", |pod| health(pod)[0].1 == "Unhealthy").await;
    cluster.stop_kubelet().await;
    cluster.start_kubelet().await;
    cluster.has(GPU, "0", "0").await;
    let pod = cluster
        .until("one", "of unknown health", |pod| health(pod).first().is_some_and(|d| d.1 == "Unknown"))
        .await;
    assert_eq!(phase(&pod), "Running");
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster.until("one", "healthy again", |pod| health(pod) == held).await;
    cluster.create("two", wants("1")).await;
    let pod = cluster.running("two").await;
    assert_ne!(health(&pod)[0].0, held[0].0, "one device is one pod's");
    cluster.stop_kubelet().await;
    cluster.start_kubelet().await;
    plugin.stop().await;
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster.has(GPU, "2", "2").await;
    cluster.fake.end("app", 0);
    cluster
        .eventually("what ended runs again", || async { cluster.fake.calls("create_container") == 3 })
        .await;
    assert_eq!(cluster.calls_like("allocate").len(), 2);
    assert_eq!(cluster.fake.calls("stop_container"), 0, "nothing was stopped");
    // Everything that ran is gone, and so is the plugin: the pods wait, and get what they had.
    cluster.stop_kubelet().await;
    plugin.stop().await;
    cluster.fake.reboot();
    let before = cluster.fake.calls("run_pod_sandbox");
    cluster.start_kubelet().await;
    cluster
        .says(
            "one",
            "WaitingForDevices",
            "Waiting for devices: the device plugin of example.com/gpu is not registered",
        )
        .await;
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster
        .eventually("both run again", || async { cluster.fake.calls("run_pod_sandbox") == before + 2 })
        .await;
    cluster.until("one", "back with its device", |pod| phase(pod) == "Running" && health(pod) == held).await;
    cluster.clear(&["one", "two"]).await;
    plugin.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_a_plugin_that_is_away_but_not_for_ever() {
    let mut cluster = Cluster::without_kubelet().await;
    let patience = |config: &mut podwire_kubelet::Config| {
        config.devices = DeviceSettings {
            patience: Duration::from_millis(1500),
            grace: Duration::from_millis(100),
            ..config.devices.clone()
        };
    };
    cluster.start_kubelet_with(patience).await;
    let plugin = cluster.plugin(GPU, &["g0"]).await;
    cluster.has(GPU, "1", "1").await;
    plugin.stop().await;
    cluster.has(GPU, "0", "0").await;
    cluster.create("one", wants("1")).await;
    let pod = cluster
        .until("one", "waiting", |pod| {
            pod.status
                .iter()
                .flat_map(|s| s.conditions.iter().flatten())
                .any(|c| c.reason.as_deref() == Some("WaitingForDevices"))
        })
        .await;
    assert_eq!((phase(&pod), condition(&pod, "PodReadyToStartContainers")), ("Pending", Some("False")));
    let plugin = cluster.plugin(GPU, &["g0"]).await;
    let pod = cluster.running("one").await;
    assert_eq!(condition(&pod, "PodReadyToStartContainers"), Some("True"));
    cluster.clear(&["one"]).await;
    plugin.stop().await;
    cluster.has(GPU, "0", "0").await;
    cluster.create("two", wants("1")).await;
    let pod = cluster.until("two", "refused", |pod| phase(pod) == "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(
        (status.reason.as_deref(), status.message.as_deref()),
        (
            Some("UnexpectedAdmissionError"),
            Some(
                "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices \
                 example.com/gpu, which is unexpected"
            )
        )
    );
    assert_eq!(cluster.told("two", "WaitingForDevices").await, 1);
    // One that is deleted while it waits is gone at once.
    cluster.create("three", wants("1")).await;
    cluster.event("three", "WaitingForDevices").await;
    cluster.clear(&["two", "three"]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_fails_or_hangs_holds_up_its_own_pods_only() {
    let mut cluster = Cluster::without_kubelet().await;
    cluster.start_kubelet_with(|config| config.devices.deadline = Duration::from_millis(300)).await;
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster.has(GPU, "2", "2").await;
    plugin.behave(|manners| manners.fails = Some("out of order".to_owned()));
    cluster.create("one", wants("1")).await;
    let pod = cluster
        .until("one", "failing", |pod| waiting(pod).is_some_and(|w| w.0 == "CreateContainerConfigError"))
        .await;
    let message = "device plugin of example.com/gpu: Allocate: rpc error: code = Unknown desc = out of order";
    assert_eq!(waiting(&pod).unwrap().1, message);
    cluster.says("one", "Failed", &format!("Error: {message}")).await;
    plugin.behave(|manners| {
        manners.fails = None;
        manners.hangs.insert("allocate");
    });
    cluster
        .until("one", "timed out", |pod| waiting(pod).is_some_and(|w| w.1.contains("DeadlineExceeded")))
        .await;
    cluster.create("other", crate::cluster::one("run:1")).await;
    cluster.running("other").await;
    plugin.behave(|manners| manners.hangs.clear());
    let pod = cluster.running("one").await;
    let asked = cluster.calls_like("allocate");
    assert!(asked.iter().all(|call| *call == asked[0]), "it is asked for the same device: {asked:?}");
    assert_eq!(health(&pod).len(), 1);
    // One that hangs in what it prefers is not waited for.
    plugin.behave(|manners| {
        manners.options.get_preferred_allocation_available = true;
        manners.hangs.insert("prefer");
    });
    plugin.register().await;
    cluster.create("two", wants("1")).await;
    cluster.running("two").await;
    assert_eq!(cluster.calls_like("prefer").len(), 1);
    cluster.clear(&["one", "two", "other"]).await;
    plugin.behave(|manners| {
        manners.hangs.clear();
        manners.prefers = vec!["g1".to_owned()];
    });
    cluster.create("three", wants("1")).await;
    let pod = cluster.running("three").await;
    assert_eq!(health(&pod)[0].0, "g1");
    cluster.clear(&["three"]).await;
    plugin.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_may_announce_itself_in_the_registry() {
    let cluster = Cluster::start().await;
    let registry = cluster.dir.path().join("kubelet/plugins_registry");
    let bad = Plugin::serve(&cluster.fake, registry.join("bad.sock"), "cpu", Vec::new());
    let told = bad.told().await;
    assert!(!told.plugin_registered);
    assert_eq!(told.error, "the ResourceName \"cpu\" is invalid");
    let plugin = Plugin::serve(&cluster.fake, registry.join("deep/gpu.sock"), GPU, vec![device("g0")]);
    assert!(plugin.told().await.plugin_registered);
    cluster.has(GPU, "1", "1").await;
    cluster.create("one", wants("1")).await;
    cluster.running("one").await;
    // Another one takes over while the first still serves, and the first goes.
    let next =
        Plugin::serve(&cluster.fake, registry.join("gpu-2.sock"), GPU, vec![device("g0"), device("g1")]);
    cluster.has(GPU, "2", "2").await;
    plugin.stop().await;
    cluster.create("two", wants("1")).await;
    cluster.running("two").await;
    cluster.has(GPU, "2", "2").await;
    std::fs::remove_file(registry.join("gpu-2.sock")).unwrap();
    cluster.has(GPU, "2", "0").await;
    assert_eq!(phase(&cluster.pods().get("one").await.unwrap()), "Running");
    cluster.clear(&["one", "two"]).await;
    next.stop().await;
    bad.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_plugin_serves_again_when_a_newer_one_goes() {
    let cluster = Cluster::start().await;
    let old = cluster.plugin(GPU, &["g0"]).await;
    cluster.has(GPU, "1", "1").await;
    let new = Plugin::serve(
        &cluster.fake,
        cluster.plugins().join("new.sock"),
        GPU,
        vec![device("g0"), device("g1")],
    );
    new.register().await;
    cluster.has(GPU, "2", "2").await;
    new.stop().await;
    cluster.has(GPU, "1", "1").await;
    old.stop().await;
    cluster.has(GPU, "1", "0").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_that_are_none_are_turned_away() {
    let cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &["g0"]).await;
    let folder = cluster.plugins();
    std::os::unix::fs::symlink("gpu.sock", folder.join("link.sock")).unwrap();
    let fifo = folder.join("fifo.sock");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    for (version, endpoint, resource, words) in [
        (
            "v1",
            "gpu.sock",
            GPU,
            "requested API version \"v1\" is not supported by kubelet. Supported version is \"v1beta1\"",
        ),
        ("v1beta1", "gpu.sock", "gpu", "the ResourceName \"gpu\" is invalid"),
        ("v1beta1", "gpu.sock", "kubernetes.io/gpu", "the ResourceName \"kubernetes.io/gpu\" is invalid"),
        ("v1beta1", "gpu.sock", "example.com/a b", "the ResourceName \"example.com/a b\" is invalid"),
        (
            "v1beta1",
            "../device-plugins/gpu.sock",
            GPU,
            "is not the name of a file in the folder of device plugins",
        ),
        ("v1beta1", "link.sock", "example.com/link", "is not a socket"),
        ("v1beta1", "fifo.sock", "example.com/fifo", "is not a socket"),
        ("v1beta1", "none.sock", "example.com/none", "failed to dial device plugin"),
    ] {
        let refused = register(&folder, version, endpoint, resource).await.unwrap_err();
        assert!(refused.message().contains(words), "{endpoint}: {}", refused.message());
    }
    cluster.has(GPU, "1", "1").await;
    // Names that are none are left out, and the others are there.
    plugin.list(vec![device(""), device(&"x".repeat(2000)), device("g0"), device("g1")]);
    cluster.has(GPU, "2", "2").await;
    plugin.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_plugins_and_ten_thousand_devices_are_heard_of() {
    let cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &[]).await;
    let many: Vec<String> = (0..10_000).map(|n| format!("gpu-{n:05}")).collect();
    plugin.list(many.iter().map(|id| device(id)).collect());
    cluster.has(GPU, "10k", "10k").await;
    let others: Vec<Plugin> = (0..100)
        .map(|n| {
            let resource = format!("example.com/r{n}");
            Plugin::serve(
                &cluster.fake,
                cluster.plugins().join(format!("r{n}.sock")),
                &resource,
                vec![device("d")],
            )
        })
        .collect();
    futures::future::join_all(others.iter().map(Plugin::register)).await;
    cluster.has("example.com/r99", "1", "1").await;
    cluster.has("example.com/r0", "1", "1").await;
    cluster.create("big", wants("1000")).await;
    let pod = cluster.running("big").await;
    assert_eq!(health(&pod).len(), 1000);
    cluster.clear(&["big"]).await;
    for other in others {
        other.stop().await;
    }
    plugin.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_pass_their_devices_on_and_sidecars_keep_theirs() {
    let cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &["g0", "g1", "g2"]).await;
    cluster.has(GPU, "3", "3").await;
    let limits = |count: &str| json!({"limits": {GPU: count}});
    let spec = json!({
        "initContainers": [
            {"name": "first", "image": "exit-0:1", "resources": limits("2")},
            {"name": "side", "image": "run:1", "restartPolicy": "Always", "resources": limits("1")},
        ],
        "containers": [{"name": "app", "image": "run:1", "resources": limits("2")}],
    });
    cluster.create("one", spec).await;
    cluster.running("one").await;
    let ids = |name: &str| env(&cluster.made(name), "GPU").unwrap();
    assert_eq!((ids("first"), ids("side"), ids("app")), ("g0,g1".into(), "g0".into(), "g1,g2".into()));
    assert_eq!(cluster.calls_like("allocate").len(), 3, "once for every container");
    cluster.clear(&["one"]).await;
    plugin.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_hangs_in_any_call_is_alone_with_it() {
    let mut cluster = Cluster::without_kubelet().await;
    cluster.start_kubelet_with(|config| config.devices.deadline = Duration::from_millis(300)).await;
    let other = cluster.plugin("example.com/nic", &["n0"]).await;
    let socket = cluster.plugins().join("gpu.sock");
    let plugin = Plugin::serve(&cluster.fake, socket, GPU, vec![device("g0")]);
    // In its options: others register meanwhile.
    plugin.behave(|manners| {
        manners.options.pre_start_required = true;
        manners.hangs.extend(["options", "list"]);
    });
    let beside = async {
        other.list(vec![device("n0"), device("n1")]);
        cluster.has("example.com/nic", "2", "2").await;
        let late = cluster.plugin("example.com/late", &["l0"]).await;
        cluster.has("example.com/late", "1", "1").await;
        plugin.let_go("options");
        late
    };
    let ((), late) = tokio::join!(plugin.register(), beside);
    // In its list: a pod waits for it, and another pod does not.
    cluster.create("one", wants("1")).await;
    let words = "Waiting for devices: the device plugin of example.com/gpu has not told its devices";
    cluster.says("one", "WaitingForDevices", words).await;
    cluster.create("other", crate::cluster::one("run:1")).await;
    cluster.running("other").await;
    // In what it does before a container starts: the pod says so, and gets it in the end.
    plugin.behave(|manners| manners.hangs.extend(["prestart"]));
    plugin.let_go("list");
    cluster
        .until("one", "timed out", |pod| {
            waiting(pod).is_some_and(|w| {
                w.1.contains("device plugin of example.com/gpu: PreStartContainer")
                    && w.1.contains("DeadlineExceeded")
            })
        })
        .await;
    plugin.let_go("prestart");
    cluster.running("one").await;
    assert_eq!(cluster.calls_like("allocate").len(), 1, "allocated once, however often it starts");
    cluster.clear(&["one", "other"]).await;
    for one in [plugin, other, late] {
        one.stop().await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_flap_and_vanish_leave_those_who_hold_them_alone() {
    let cluster = Cluster::start().await;
    let plugin = cluster.plugin(GPU, &["g0", "g1"]).await;
    cluster.has(GPU, "2", "2").await;
    cluster.create("one", wants("1")).await;
    let held = health(&cluster.running("one").await);
    assert_eq!(held, [("g0".to_owned(), "Healthy".to_owned())]);
    for _ in 0..50 {
        plugin.list(vec![unhealthy("g0"), device("g1")]);
        plugin.list(vec![device("g0"), device("g1")]);
        plugin.list(vec![device("g1")]);
        tokio::task::yield_now().await;
    }
    // What it holds has vanished: it runs on, and nobody else gets the device under the same name.
    cluster.has(GPU, "1", "1").await;
    cluster.until("one", "of unknown health", |pod| health(pod)[0].1 == "Unknown").await;
    plugin.list(vec![device("g0"), device("g1")]);
    cluster.has(GPU, "2", "2").await;
    cluster.create("two", wants("1")).await;
    assert_eq!(health(&cluster.running("two").await)[0].0, "g1");
    let one = cluster.until("one", "healthy again", |pod| health(pod) == held).await;
    assert_eq!((restarts(&one), cluster.fake.calls("stop_container")), (0, 0));
    cluster.clear(&["one", "two"]).await;
    plugin.stop().await;
    cluster.stop().await;
}
