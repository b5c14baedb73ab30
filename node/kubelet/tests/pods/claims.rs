//! Claims of dynamic resources: prepared before the sandbox, handed to containers, shared, kept over restarts, given back.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use podwire_kubelet::Config;
use podwire_wire::{
    dra_health::{DeviceHealth, DeviceIdentifier, HealthStatus},
    pod_resources::{GetPodResourcesRequest, pod_resources_lister_client::PodResourcesListerClient},
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, NODE, one, phase, waiting},
    driver::{Driver, device},
};

pub(crate) const NET: &str = "net.example.com";
const V1: &[&str] = &["v1.DRAPlugin", "v1beta1.DRAPlugin"];
const REASON: &str = "FailedPrepareDynamicResources";

impl Cluster {
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("kubelet")
    }

    /// A driver that is registered.
    pub(crate) async fn driver(&self, name: &str) -> Driver {
        let driver = Driver::serve(&self.fake, &self.root(), name, "", V1);
        let told = driver.told().await;
        assert!(told.plugin_registered, "{}", told.error);
        driver
    }

    fn claims(&self) -> Api<ResourceClaim> {
        Api::default_namespaced(self.client.clone())
    }

    /// A claim that has devices of these drivers, and nobody to use them.
    pub(crate) async fn claim(&self, name: &str, devices: &[(&str, &str)]) -> ResourceClaim {
        let request = |at: usize| json!({"name": format!("r{at}"), "exactly": {"deviceClassName": "any"}});
        let requests: Vec<Value> = (0..devices.len().max(1)).map(request).collect();
        let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
        let made =
            self.claims().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await;
        made.unwrap();
        let result = |(at, (driver, device)): (usize, &(&str, &str))| json!({"request": format!("r{at}"), "driver": driver, "pool": "pool", "device": device});
        let results: Vec<Value> = devices.iter().enumerate().map(result).collect();
        let status = json!({"status": {"allocation": {"devices": {"results": results}}}});
        self.claims().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap()
    }

    /// Says who may use a claim.
    pub(crate) async fn reserve(&self, claim: &str, pods: &[&Pod]) {
        let users: Vec<Value> = pods
            .iter()
            .map(|pod| json!({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}))
            .collect();
        let status = json!({"status": {"reservedFor": users}});
        self.claims().patch_status(claim, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// A pod that uses a claim, which is reserved for it.
    pub(crate) async fn user(&self, name: &str, claims: &[&str]) -> Pod {
        let pod = self.create(name, using(claims)).await;
        for claim in claims {
            self.reserve(claim, &[&pod]).await;
        }
        pod
    }

    /// The calls of drivers and of the runtime that matter here, in order.
    pub(crate) fn order(&self, of: &[&str]) -> Vec<String> {
        let world = self.fake.world.lock().unwrap();
        let calls = world.calls.iter().filter(|call| of.contains(&call.split(' ').next().unwrap()));
        calls.map(|call| call.split(' ').next().unwrap().to_owned()).collect()
    }

    fn cdi_of(&self, container: &str) -> Vec<String> {
        let world = self.fake.world.lock().unwrap();
        let mut all = world.containers.values();
        let made = all.find(|made| made.config.metadata.as_ref().unwrap().name == container).unwrap();
        made.config.cdi_devices.iter().map(|device| device.name.clone()).collect()
    }

    /// The claims in the checkpoint.
    pub(crate) fn written(&self) -> Vec<Value> {
        let Ok(bytes) = std::fs::read(self.root().join("dra_manager_state")) else { return Vec::new() };
        let file: Value = serde_json::from_slice(&bytes).unwrap();
        let data: Value = serde_json::from_str(file["Data"].as_str().unwrap()).unwrap();
        data["ClaimInfoStateList"].as_array().unwrap().clone()
    }
}

/// A pod whose one container uses all of these claims.
pub(crate) fn using(claims: &[&str]) -> Value {
    let mut spec = one("run:1");
    let named = |name: &&str| json!({"name": name, "resourceClaimName": name});
    spec["resourceClaims"] = claims.iter().map(named).collect();
    let used: Vec<Value> = claims.iter().map(|name| json!({"name": name})).collect();
    spec["containers"][0]["resources"] = json!({"claims": used});
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_prepared_before_the_sandbox_given_to_containers_and_unprepared_before_the_end_is_told() {
    let cluster = Cluster::start().await;
    let driver = cluster.driver(NET).await;
    driver.behave(|manners| manners.devices = vec![device("d0", &["r0"]), device("d1", &["r1"])]);
    cluster.claim("net", &[(NET, "d0"), (NET, "d1")]).await;
    let mut spec = using(&["net"]);
    spec["containers"][0]["resources"]["claims"] = json!([{"name": "net", "request": "r1"}]);
    spec["containers"].as_array_mut().unwrap().push(json!({"name": "other", "image": "run:1"}));
    spec["restartPolicy"] = json!("Never");
    let pod = cluster.create("one", spec).await;
    let message = cluster.event("one", REASON).await;
    let uid = pod.metadata.uid.clone().unwrap();
    let claim = cluster.claims().get("net").await.unwrap().metadata.uid.unwrap();
    assert_eq!(
        message,
        format!(
            "Failed to prepare dynamic resources: prepare dynamic resources: pod one ({uid}) is not allowed to use ResourceClaim net ({claim})"
        )
    );
    assert!(cluster.written().is_empty() && cluster.calls_like("prepare").is_empty(), "nothing is touched");
    cluster.reserve("net", &[&pod]).await;
    cluster.running("one").await;
    let order = cluster.order(&["prepare", "run_pod_sandbox", "create_container"]);
    assert_eq!(order, ["prepare", "run_pod_sandbox", "create_container", "create_container"]);
    assert_eq!(cluster.cdi_of("app"), ["example.com/dev=d1"]);
    assert!(cluster.cdi_of("other").is_empty(), "it did not ask");
    let written = cluster.written();
    assert_eq!(written[0]["ClaimUID"], json!(claim));
    assert_eq!(written[0]["PodUIDs"], json!({uid: {}}));
    assert_eq!(written[0]["DriverState"][NET]["Devices"][0]["CDIDeviceIDs"], json!(["example.com/dev=d0"]));

    let socket = cluster.root().join("pod-resources/kubelet.sock");
    let mut client = PodResourcesListerClient::new(podwire_wire::unix::channel(socket));
    let asked = GetPodResourcesRequest { pod_name: "one".to_owned(), pod_namespace: "default".to_owned() };
    let told = client.get(asked).await.unwrap().into_inner().pod_resources.unwrap();
    let dynamic = &told.containers[0].dynamic_resources;
    assert_eq!((dynamic.len(), dynamic[0].claim_name.as_str()), (1, "net"));
    let first = &dynamic[0].claim_resources[0];
    assert_eq!((first.driver_name.as_str(), first.device_name.as_str()), (NET, "d0"));
    assert!(told.containers[1].dynamic_resources.is_empty());

    driver.hang("unprepare");
    cluster.fake.end("app", 0);
    cluster.fake.end("other", 0);
    cluster.eventually("the driver is asked", || async { cluster.calls_like("unprepare").len() == 1 }).await;
    let ended = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|s| s.container_statuses.clone()).unwrap_or_default();
        !statuses.is_empty() && statuses.iter().all(|s| s.state.as_ref().unwrap().terminated.is_some())
    };
    let pod = cluster.until("one", "seen to have ended", ended).await;
    assert_eq!(phase(&pod), "Running", "its end is not told before its claim is given back");
    driver.behave(|manners| manners.hangs.clear());
    cluster.until("one", "Succeeded", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(cluster.order(&["stop_pod_sandbox", "unprepare"]), ["stop_pod_sandbox", "unprepare"]);
    assert!(cluster.written().is_empty());
    cluster.clear(&["one"]).await;
    assert_eq!(cluster.calls_like("unprepare").len(), 1);
    driver.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_prepare_at_the_same_time_and_a_pod_with_one_that_is_away_waits_for_it() {
    let cluster = Cluster::start().await;
    let (a, b) = (cluster.driver("a.example.com").await, cluster.driver("b.example.com").await);
    for driver in [&a, &b] {
        driver.hang("prepare");
    }
    cluster.claim("one", &[("a.example.com", "d0")]).await;
    cluster.claim("two", &[("a.example.com", "d1"), ("b.example.com", "d0")]).await;
    cluster.claim("three", &[("c.example.com", "d0")]).await;
    cluster.user("both", &["one", "two"]).await;
    cluster.eventually("both are asked", || async { cluster.calls_like("prepare").len() == 2 }).await;
    let mut asked = cluster.calls_like("prepare");
    asked.sort();
    assert_eq!(asked, ["prepare a.example.com one,two", "prepare b.example.com two"]);
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 0);
    for driver in [&a, &b] {
        driver.behave(|manners| manners.hangs.clear());
    }
    cluster.running("both").await;
    cluster.user("waits", &["three"]).await;
    let text = "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver c.example.com is not registered";
    cluster.says("waits", REASON, text).await;
    assert_eq!(phase(&cluster.pods().get("waits").await.unwrap()), "Pending");
    let c = Driver::serve(&cluster.fake, &cluster.root(), "c.example.com", "", &["v1beta1.DRAPlugin"]);
    cluster.running("waits").await;
    assert_eq!(cluster.calls_like("v1beta1").len(), 1, "it knows no newer version");
    // One that never had its claim is gone without any driver.
    c.stop().await;
    cluster.clear(&["both"]).await;
    a.stop().await;
    cluster.claim("four", &[("a.example.com", "d0")]).await;
    cluster.user("never", &["four"]).await;
    cluster.event("never", REASON).await;
    cluster.clear(&["never"]).await;
    let c = cluster.driver("c.example.com").await;
    cluster.clear(&["waits"]).await;
    for driver in [b, c] {
        driver.stop().await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_claim_is_prepared_once_and_unprepared_by_the_last() {
    let mut cluster = Cluster::start().await;
    let driver = cluster.driver(NET).await;
    driver.hang("prepare");
    cluster.claim("net", &[(NET, "d0")]).await;
    let one = cluster.create("one", using(&["net"])).await;
    let two = cluster.create("two", using(&["net"])).await;
    cluster.reserve("net", &[&one, &two]).await;
    cluster.eventually("the driver is asked", || async { cluster.calls_like("prepare").len() == 1 }).await;
    driver.behave(|manners| manners.hangs.clear());
    cluster.running("one").await;
    cluster.running("two").await;
    assert_eq!(cluster.calls_like("prepare").len(), 1);
    cluster.clear(&["one"]).await;
    assert!(cluster.calls_like("unprepare").is_empty());
    // Who runs is not prepared again by the next kubelet, and has what it had.
    cluster.stop_kubelet().await;
    cluster.start_kubelet().await;
    cluster.fake.end("app", 1);
    cluster.eventually("it runs again", || async { cluster.fake.calls("create_container") == 3 }).await;
    assert_eq!(cluster.calls_like("prepare").len(), 1);
    assert_eq!(cluster.cdi_of("app"), ["example.com/dev=d0"]);
    cluster.clear(&["two"]).await;
    assert_eq!(cluster.calls_like("unprepare").len(), 1);
    assert!(cluster.written().is_empty());
    driver.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_fails_hangs_or_babbles_keeps_its_own_pods_from_starting_and_says_why() {
    let mut cluster = Cluster::without_kubelet().await;
    cluster.start_kubelet_with(|config| config.claims.deadline = Duration::from_millis(300)).await;
    let driver = cluster.driver(NET).await;
    let claim = cluster.claim("net", &[(NET, "d0")]).await.metadata.uid.unwrap();
    driver.behave(|manners| drop(manners.fails.insert("prepare", "out of order".to_owned())));
    cluster.user("one", &["net"]).await;
    let says = async |text: &str| {
        let text = format!("Failed to prepare dynamic resources: prepare dynamic resources: {text}");
        cluster.says("one", REASON, &text).await;
    };
    says("NodePrepareResources: rpc error: code = Unknown desc = out of order").await;
    driver.behave(|manners| {
        manners.fails.clear();
        manners.claim_error = Some("no such link".to_owned());
    });
    says("NodePrepareResources failed for ResourceClaim net: no such link").await;
    driver.behave(|manners| {
        manners.claim_error = None;
        manners.skips = true;
    });
    says("NodePrepareResources skipped 1 ResourceClaims").await;
    driver.behave(|manners| manners.babbles = true);
    says("NodePrepareResources returned result for unknown claim UID unheard-of").await;
    driver.behave(|manners| {
        (manners.skips, manners.babbles) = (false, false);
        manners.devices[0].cdi_device_ids = vec![String::new()];
    });
    says("NodePrepareResources failed for ResourceClaim net: \"\" is not the id of a CDI device").await;
    driver.behave(|manners| {
        manners.devices = vec![device("d0", &[])];
        manners.hangs.insert("prepare");
    });
    says(
        "NodePrepareResources: rpc error: code = DeadlineExceeded desc = NodePrepareResources: no answer within 300ms",
    )
    .await;
    cluster.create("other", one("run:1")).await;
    cluster.running("other").await;
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 1, "nobody runs without its claim");
    assert_eq!(
        cluster.written()[0]["ClaimUID"],
        json!(claim),
        "somebody has to undo what may have been done"
    );
    driver.behave(|manners| manners.hangs.clear());
    cluster.running("one").await;
    cluster.clear(&["one", "other"]).await;
    driver.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_killed_in_the_middle_is_asked_again_as_soon_as_it_is_back() {
    let cluster = Cluster::start().await;
    let driver = cluster.driver(NET).await;
    driver.hang("prepare");
    cluster.claim("net", &[(NET, "d0")]).await;
    cluster.user("one", &["net"]).await;
    cluster.eventually("the driver is asked", || async { cluster.calls_like("prepare").len() == 1 }).await;
    driver.kill().await;
    cluster.event("one", REASON).await;
    assert_eq!(cluster.fake.calls("run_pod_sandbox"), 0);
    let driver = cluster.driver(NET).await;
    cluster.running("one").await;
    // A newer instance serves, and when it goes the older one again.
    let newer = Driver::serve(&cluster.fake, &cluster.root(), NET, "-2", V1);
    assert!(newer.told().await.plugin_registered);
    newer.behave(|manners| drop(manners.fails.insert("unprepare", "not yet".to_owned())));
    cluster.delete("one", 1).await;
    let text = "Failed to unprepare dynamic resources: unprepare dynamic resources: NodeUnprepareResources: \
                rpc error: code = Unknown desc = not yet";
    cluster.says("one", "FailedUnprepareDynamicResources", text).await;
    assert!(cluster.pods().get_opt("one").await.unwrap().is_some(), "its end waits for the driver");
    newer.stop().await;
    cluster.gone("one").await;
    assert!(cluster.written().is_empty());
    driver.stop().await;
    cluster.stop().await;
}

fn impatient(config: &mut Config) {
    config.claims.unprepare_timeout = Some(Duration::from_millis(300));
    config.claims.grace = Duration::from_millis(100);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_pod_does_not_wait_for_ever_and_its_devices_are_nobodys_until_they_are_undone() {
    let mut cluster = Cluster::without_kubelet().await;
    cluster.start_kubelet_with(impatient).await;
    let driver = cluster.driver(NET).await;
    cluster.claim("net", &[(NET, "d0")]).await;
    cluster.user("one", &["net"]).await;
    cluster.running("one").await;
    driver.stop().await;
    cluster.delete("one", 1).await;
    let text = "Failed to unprepare dynamic resources: unprepare dynamic resources: DRA driver net.example.com is not registered";
    cluster.says("one", "FailedUnprepareDynamicResources", text).await;
    cluster.gone("one").await;
    assert_eq!(cluster.written().len(), 1, "the claim is kept");
    // The scheduler gives the device to another claim; a driver that is back but cannot undo keeps it from it.
    let driver = Driver::serve(&cluster.fake, &cluster.root(), NET, "", V1);
    driver.behave(|manners| drop(manners.fails.insert("unprepare", "not yet".to_owned())));
    assert!(driver.told().await.plugin_registered);
    let old = cluster.claims().get("net").await.unwrap().metadata.uid.unwrap();
    cluster.claim("next", &[(NET, "d0")]).await;
    cluster.user("two", &["next"]).await;
    let text = format!(
        "Failed to prepare dynamic resources: prepare dynamic resources: device d0 in pool pool of DRA driver {NET} \
         is still prepared for ResourceClaim default/net ({old})"
    );
    cluster.says("two", REASON, &text).await;
    assert_eq!(cluster.calls_like("prepare").len(), 1);
    // The next kubelet knows it too, and undoes it when the driver can.
    cluster.stop_kubelet().await;
    driver.behave(|manners| manners.fails.clear());
    cluster.start_kubelet_with(impatient).await;
    cluster.running("two").await;
    let written: Vec<Value> = cluster.written().iter().map(|claim| claim["ClaimName"].clone()).collect();
    assert_eq!(written, ["next"]);
    cluster.clear(&["two"]).await;
    driver.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_go_when_the_kubelet_starts_and_when_their_driver_stays_away() {
    let mut cluster = Cluster::without_kubelet().await;
    let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
    let publish = async |name: &str, driver: &str, node: &str| {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": name},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "d0"}]}});
        slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    };
    let names = async || -> Vec<String> {
        let all = slices.list(&ListParams::default()).await.unwrap().items.into_iter();
        all.filter_map(|slice| slice.metadata.name).collect()
    };
    publish("stale", NET, NODE).await;
    publish("elsewhere", NET, "node-b").await;
    cluster.start_kubelet_with(impatient).await;
    cluster.eventually("what is stale goes", || async { names().await == ["elsewhere"] }).await;
    let (driver, other) = (cluster.driver(NET).await, cluster.driver("o.example.com").await);
    publish("here", NET, NODE).await;
    publish("others", "o.example.com", NODE).await;
    driver.stop().await;
    cluster.eventually("its slice goes", || async { names().await == ["elsewhere", "others"] }).await;
    other.stop().await;
    cluster.eventually("and the other's", || async { names().await == ["elsewhere"] }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_of_devices_is_in_the_pods_status() {
    let cluster = Cluster::start().await;
    let driver = cluster.driver(NET).await;
    cluster.claim("net", &[(NET, "d0")]).await;
    cluster.user("one", &["net"]).await;
    cluster.running("one").await;
    let health = |pod: &Pod| -> Value {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        let first = statuses.into_iter().flatten().next().and_then(|s| s.allocated_resources_status);
        serde_json::to_value(first.unwrap_or_default()).unwrap()
    };
    let shown = |health: &str, message: Option<&str>| {
        let mut one = json!({"resourceID": "example.com/dev=d0", "health": health});
        if let Some(message) = message {
            one["message"] = json!(message);
        }
        json!([{"name": "claim:net", "resources": [one]}])
    };
    cluster.until("one", "of unknown health", |pod| health(pod) == shown("Unknown", None)).await;
    let tell = |health: HealthStatus, message: &str| {
        driver.health(vec![DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "pool".to_owned(), device_name: "d0".to_owned() }),
            health: health as i32,
            last_updated_time: 0,
            health_check_timeout_seconds: 3600,
            message: message.to_owned(),
        }]);
    };
    tell(HealthStatus::Unhealthy, "too hot");
    cluster.until("one", "unhealthy", |pod| health(pod) == shown("Unhealthy", Some("too hot"))).await;
    tell(HealthStatus::Healthy, "");
    cluster.until("one", "healthy", |pod| health(pod) == shown("Healthy", None)).await;
    driver.stop().await;
    cluster.until("one", "of unknown health again", |pod| health(pod) == shown("Unknown", None)).await;
    let driver = cluster.driver(NET).await;
    cluster.clear(&["one"]).await;
    driver.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_with_a_network_claim_requires_its_driver_and_one_with_another_does_not() {
    let cluster = Cluster::start().await;
    let (net, gpu) = (cluster.driver("dra.net").await, cluster.driver("gpu.example.com").await);
    cluster.claim("net", &[("dra.net", "eth1")]).await;
    cluster.claim("gpu", &[("gpu.example.com", "g0")]).await;
    cluster.user("a", &["gpu"]).await;
    cluster.running("a").await;
    cluster.user("b", &["net"]).await;
    cluster.running("b").await;
    let required = |pod: &str| {
        let world = cluster.fake.world.lock().unwrap();
        let mut all = world.sandboxes.values();
        let held = all.find(|held| held.config.metadata.as_ref().unwrap().name == pod).unwrap();
        held.config.annotations.get("required-plugins.noderesource.dev/pod").cloned()
    };
    assert_eq!((required("a"), required("b").as_deref()), (None, Some("[\"dra.net\"]")));
    cluster.clear(&["a", "b"]).await;
    net.stop().await;
    gpu.stop().await;
    cluster.stop().await;
}

/// Where the kubelet is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// The driver was asked and has not answered.
    Prepare,
    /// The driver has answered, and that is not written down.
    Prepared,
    /// The sandbox is being run.
    Sandbox,
    /// The driver was asked to undo it and has not answered.
    Unprepare,
    /// It has undone it, and that is not written down.
    Unprepared,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_is_killed_at_any_point_goes_on_where_it_was() {
    for point in [Point::Prepare, Point::Prepared, Point::Sandbox, Point::Unprepare, Point::Unprepared] {
        let mut cluster = Cluster::without_kubelet().await;
        cluster.start_kubelet_apart(|_| {});
        let driver = cluster.driver(NET).await;
        cluster.claim("net", &[(NET, "d0")]).await;
        let state = cluster.root().join("dra_manager_state");
        let mut before = None;
        match point {
            Point::Prepare | Point::Prepared => driver.hang("prepare"),
            Point::Sandbox => {
                cluster.fake.world.lock().unwrap().hangs.insert("run_pod_sandbox");
            }
            Point::Unprepare | Point::Unprepared => driver.hang("unprepare"),
        }
        cluster.user("one", &["net"]).await;
        let asked = async |call: &str| {
            cluster
                .eventually(&format!("{call} at {point:?}"), || async { cluster.fake.calls(call) > 0 })
                .await;
        };
        match point {
            Point::Prepare | Point::Prepared => asked("prepare").await,
            Point::Sandbox => asked("hangs run_pod_sandbox").await,
            Point::Unprepare | Point::Unprepared => {
                cluster.running("one").await;
                cluster.delete("one", 1).await;
                asked("unprepare").await;
            }
        }
        if matches!(point, Point::Prepared | Point::Unprepared) {
            before = Some(std::fs::read(&state).unwrap());
            driver.behave(|manners| manners.hangs.clear());
            match point {
                Point::Prepared => drop(cluster.running("one").await),
                _ => cluster.gone("one").await,
            }
        }
        cluster.kill_kubelet().await;
        // As if it had been killed before it wrote down what the driver said.
        if let Some(before) = before {
            std::fs::write(&state, before).unwrap();
            if point == Point::Prepared {
                cluster.fake.reboot();
            }
        }
        driver.behave(|manners| manners.hangs.clear());
        cluster.fake.release();
        cluster.start_kubelet_apart(|_| {});
        if matches!(point, Point::Unprepare | Point::Unprepared) {
            cluster.gone("one").await;
        } else {
            cluster
                .eventually(&format!("it runs after {point:?}"), || async {
                    let world = cluster.fake.world.lock().unwrap();
                    let ready = world.sandboxes.values().filter(|held| held.ready).count();
                    ready == 1 && world.containers.values().any(|made| made.state as i32 == 1)
                })
                .await;
            let boxed = cluster.order(&["prepare", "run_pod_sandbox"]);
            assert_eq!(boxed.first().map(String::as_str), Some("prepare"), "{point:?}: {boxed:?}");
            assert_eq!(cluster.cdi_of("app"), ["example.com/dev=d0"], "{point:?}");
            cluster.running("one").await;
            cluster.clear(&["one"]).await;
        }
        cluster
            .eventually(&format!("nothing is left after {point:?}"), || async {
                cluster.written().is_empty()
            })
            .await;
        assert!(!cluster.calls_like("unprepare").is_empty());
        driver.stop().await;
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_boot_prepared_is_prepared_anew_and_claims_of_vanished_pods_are_undone() {
    let mut cluster = Cluster::start().await;
    let driver = cluster.driver(NET).await;
    cluster.claim("net", &[(NET, "d0")]).await;
    cluster.claim("gone", &[(NET, "d1")]).await;
    cluster.user("one", &["net"]).await;
    cluster.user("two", &["gone"]).await;
    cluster.running("one").await;
    cluster.running("two").await;
    cluster.stop_kubelet().await;
    // The power goes, and while it is away one pod is deleted by force.
    cluster.fake.reboot();
    cluster.delete("two", 0).await;
    cluster.gone("two").await;
    let state = cluster.root().join("dra_manager_state");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    file["BootID"] = json!("another");
    std::fs::write(&state, file.to_string()).unwrap();
    cluster.start_kubelet().await;
    cluster.eventually("it is undone", || async { cluster.calls_like("unprepare").len() == 1 }).await;
    assert_eq!(cluster.calls_like("unprepare"), ["unprepare net.example.com gone"]);
    cluster
        .eventually("it runs again", || async { cluster.calls_like("run_pod_sandbox one").len() == 2 })
        .await;
    assert_eq!(cluster.calls_like("prepare net.example.com net").len(), 2);
    cluster.running("one").await;
    cluster.eventually("one is left", || async { cluster.written().len() == 1 }).await;
    cluster.clear(&["one"]).await;
    driver.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_claim_is_not_known_does_not_run_without_it() {
    let mut cluster = Cluster::start().await;
    let driver = cluster.driver(NET).await;
    cluster.claim("net", &[(NET, "d0")]).await;
    cluster.user("one", &["net"]).await;
    cluster.running("one").await;
    cluster.stop_kubelet().await;
    std::fs::write(cluster.root().join("dra_manager_state"), "{").unwrap();
    cluster.start_kubelet().await;
    cluster.fake.end("app", 1);
    let pod = cluster
        .until("one", "failing", |pod| waiting(pod).is_some_and(|w| w.0 == "CreateContainerConfigError"))
        .await;
    assert_eq!(
        waiting(&pod).unwrap().1,
        "internal error: unable to get claim info for ResourceClaim net in namespace default"
    );
    cluster.clear(&["one"]).await;
    driver.stop().await;
    cluster.stop().await;
}
