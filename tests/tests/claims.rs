//! Claims of devices on a whole node: a driver publishes, a pod claims by a template, gets what the driver prepared, and
//! when it has ended nothing of it is left.
#![allow(unreachable_pub)] // A test has no public items; `pub` says what the other file of it may use.

#[path = "claims/driver.rs"]
mod driver;

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    Node, eventually,
    isolate::{OwnFolder, isolate},
};
use serde_json::Value;

use self::driver::{Driver, NAME};

const PATIENCE: Duration = Duration::from_secs(30);

/// A node with a driver that has two devices, and what pods need to claim one.
struct World {
    driver: Driver,
    node: Node,
    _cdi: OwnFolder,
}

impl World {
    fn up() -> Result<World> {
        isolate()?;
        let cdi = OwnFolder::at(Path::new("/run/cdi"))?;
        driver::describe(&["d0", "d1"])?;
        let node = Node::up(&[])?;
        let driver = Driver::on(&node)?;
        let world = World { driver, node, _cdi: cdi };
        world.publish("")?;
        world.node.apply(&format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: net}}\nspec:\n  selectors: [{{cel: {{expression: \"device.driver == '{NAME}'\"}}}}]\n---\n\
             apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {{name: one}}\nspec:\n  spec: {{devices: {{requests: [{{name: nic, exactly: {{deviceClassName: net}}}}]}}}}\n"
        ))?;
        Ok(world)
    }

    /// Publishes both devices, as the driver does; the first with taints.
    fn publish(&self, taints: &str) -> Result<()> {
        self.node.apply(&format!(
            "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {{name: node1-net}}\nspec:\n  driver: {NAME}\n  nodeName: node1\n  \
             pool: {{name: node1, generation: 1, resourceSliceCount: 1}}\n  devices:\n  - {{name: d0, taints: [{taints}]}}\n  - {{name: d1}}\n"
        ))?;
        Ok(())
    }

    fn pod(&self, name: &str) -> Result<()> {
        self.node.apply(&pod(name, "resourceClaimTemplateName: one"))?;
        Ok(())
    }

    /// What a pod was given, as its process sees it.
    fn device(&self, pod: &str) -> Result<String> {
        let told = self.node.podwire(["exec", pod, "--", "/pod-app", "env", "DEVICE"])?;
        let files = self.node.podwire(["exec", pod, "--", "/pod-app", "ls", "/dev"])?;
        ensure!(files.split_whitespace().any(|name| name == "given"), "{files}");
        Ok(told.trim().to_owned())
    }

    fn claims(&self) -> Result<Vec<Value>> {
        Ok(self
            .node
            .list("resourceclaims")?
            .into_iter()
            .filter(|one| one["kind"] == "ResourceClaim")
            .collect())
    }

    fn until_no_claims(&self) -> Result<()> {
        eventually("no claim is left", PATIENCE, || match self.claims() {
            Ok(claims) if claims.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .with_context(|| self.node.log_tail())
    }

    /// The claim that was made for a pod.
    fn claim_of(&self, pod: &str) -> Result<Value> {
        let pod = self.node.get("pod", pod)?;
        let name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str();
        self.node.get("resourceclaim", name.with_context(|| format!("no claim in {pod}"))?)
    }

    fn down(self) -> Result<()> {
        self.node.assert_no_pod_residue()?;
        drop(self.driver);
        self.node.down()
    }
}

fn pod(name: &str, claim: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  \
         resourceClaims: [{{name: net, {claim}}}]\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    \
         imagePullPolicy: Never\n    args: [exit-when, /ended, \"0\"]\n    resources: {{claims: [{{name: net}}]}}\n"
    )
}

#[test]
fn a_pod_gets_a_device_by_a_template_and_the_next_one_gets_it_when_it_has_ended() -> Result<()> {
    let world = World::up()?;
    let node = &world.node;
    for name in ["a", "b"] {
        world.pod(name)?;
        node.pod_in_phase(name, "Running")?;
    }
    ensure!((world.device("a")?, world.device("b")?) == ("d0".to_owned(), "d1".to_owned()));
    let claim = world.claim_of("a")?;
    ensure!(claim["status"]["reservedFor"][0]["name"] == "a", "{claim}");
    ensure!(claim["metadata"]["finalizers"][0] == "resource.kubernetes.io/delete-protection", "{claim}");
    world.pod("c")?;
    let waits = node.pod_when("c", "a reason why it waits", |pod| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|one| one["reason"] == "Unschedulable")
    })?;
    ensure!(world.claim_of("c")?["status"]["allocation"].is_null(), "{waits}");
    // One ends by itself, and its claim goes while it is still there to be looked at.
    node.podwire(["exec", "a", "--", "/pod-app", "write", "/ended", "x"])?;
    node.pod_in_phase("a", "Succeeded")?;
    node.pod_in_phase("c", "Running").with_context(|| format!("{:?}", world.claims()))?;
    ensure!(world.device("c")? == "d0");
    let names: Vec<Value> = world.claims()?.into_iter().map(|one| one["metadata"]["name"].clone()).collect();
    ensure!(names.len() == 2 && !names.contains(&claim["metadata"]["name"]), "{names:?}");
    for name in ["a", "b", "c"] {
        node.podwire(["delete", "pod", name])?;
    }
    world.until_no_claims()?;
    let calls = world.driver.calls();
    let of = |what: &str| calls.iter().filter(|call| call.starts_with(what)).count();
    ensure!((of("prepare "), of("unprepare ")) == (3, 3), "{calls:?}");
    world.down()
}

fn is(arrow: &Value, from: &str, to: &str, what: &str) -> bool {
    let begins = arrow["what"].as_str().is_some_and(|told| told.starts_with(what));
    arrow["from"] == from && arrow["to"] == to && begins
}

fn times(arrow: &Value) -> (u64, u64) {
    let ended = arrow["ended"].as_u64().unwrap_or_default();
    (ended - arrow["micros"].as_u64().unwrap_or_default(), ended)
}

#[test]
fn the_path_of_a_pod_with_a_claim_shows_the_driver_before_the_sandbox() -> Result<()> {
    let world = World::up()?;
    let node = &world.node;
    world.pod("a")?;
    node.pod_in_phase("a", "Running")?;
    let claim = world.claim_of("a")?["metadata"]["name"].as_str().context("no name")?.to_owned();
    let prepared = format!("NodePrepareResources {claim}");
    let arrows = eventually("the arrows of the pod", PATIENCE, || {
        let text = node.podwire(["trace", "pod/a", "-o", "json"]).map_err(|error| format!("{error:#}"))?;
        let all: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let started = all.iter().any(|arrow| is(arrow, "Kubelet", "ContainerRuntime", "StartContainer"));
        if started { Ok(all) } else { Err(text) }
    })?;
    let find = |from: &str, to: &str, what: &str| {
        let found = arrows.iter().find(|arrow| is(arrow, from, to, what));
        found.cloned().with_context(|| format!("no {what} from {from} to {to} in {arrows:#?}"))
    };
    let path = [
        // The claim is made and told, then the pod is bound, and only then is it the node's.
        find("Controllers", "APIServer", "PATCH /api/v1/namespaces/default/pods/a/status")?,
        find("Scheduler", "APIServer", "POST /api/v1/namespaces/default/pods/a/binding")?,
        find("Kubelet", "Kubelet", "admitted")?,
        find("Kubelet", NAME, &prepared)?,
        find("Kubelet", "ContainerRuntime", "RunPodSandbox")?,
        find("Kubelet", "ContainerRuntime", "PodSandboxStatus")?,
        find("Kubelet", "ContainerRuntime", "CreateContainer main")?,
    ];
    for (at, pair) in path.windows(2).enumerate() {
        // Who watches hears of a write before its answer has ended: only the kubelet's own steps end before the next begins.
        let (begun, ended) = times(&pair[0]);
        let before = if at < 2 { begun } else { ended };
        ensure!(before <= times(&pair[1]).0, "{} is not before {}", pair[0], pair[1]);
    }
    let heard = find("APIServer", "Kubelet", "watch: ADDED")?;
    ensure!(times(&heard).1 <= times(&path[3]).0, "{heard}");
    let picture = node.podwire(["trace", "pod/a", "--width", "120"])?;
    ensure!(picture.contains(&prepared), "{picture}");
    node.podwire(["delete", "pod", "a"])?;
    world.until_no_claims()?;
    world.down()
}

#[test]
fn a_pod_that_its_driver_refuses_says_so_and_starts_when_it_may() -> Result<()> {
    let world = World::up()?;
    let node = &world.node;
    world.driver.refuse(Some("the cable is not plugged in"));
    world.pod("a")?;
    eventually("the pod says why it does not start", PATIENCE, || {
        let events = node.list("events").map_err(|error| format!("{error:#}"))?;
        let said = |event: &Value| {
            event["reason"] == "FailedPrepareDynamicResources"
                && event["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("the cable is not plugged in"))
        };
        if events.iter().any(said) { Ok(()) } else { Err(format!("{events:?}")) }
    })?;
    ensure!(node.get("pod", "a")?["status"]["phase"] == "Pending");
    world.driver.refuse(None);
    node.pod_in_phase("a", "Running")?;
    ensure!(world.device("a")? == "d0");
    node.podwire(["delete", "pod", "a"])?;
    world.until_no_claims()?;
    world.down()
}

#[test]
fn a_shared_claim_outlives_its_pods_and_is_free_after_the_last() -> Result<()> {
    let world = World::up()?;
    let node = &world.node;
    node.apply("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: shared}\nspec: {devices: {requests: [{name: nic, exactly: {deviceClassName: net}}]}}\n")?;
    for name in ["a", "b"] {
        node.apply(&pod(name, "resourceClaimName: shared"))?;
        node.pod_in_phase(name, "Running")?;
        ensure!(world.device(name)? == "d0");
    }
    node.podwire(["delete", "pod", "a"])?;
    eventually("one is left", PATIENCE, || {
        let claim = node.get("resourceclaim", "shared").map_err(|error| format!("{error:#}"))?;
        let users = claim["status"]["reservedFor"].as_array().map_or(0, Vec::len);
        let allocated = claim["status"]["allocation"].is_object();
        if users == 1 && allocated { Ok(()) } else { Err(claim.to_string()) }
    })?;
    ensure!(
        world.driver.calls().iter().all(|call| !call.starts_with("unprepare")),
        "{:?}",
        world.driver.calls()
    );
    node.podwire(["delete", "pod", "b"])?;
    eventually("it is free", PATIENCE, || {
        let claim = node.get("resourceclaim", "shared").map_err(|error| format!("{error:#}"))?;
        let free = claim["status"]["allocation"].is_null() && claim["metadata"]["finalizers"].is_null();
        if free { Ok(()) } else { Err(claim.to_string()) }
    })?;
    ensure!(world.driver.calls() == ["prepare shared", "unprepare shared"], "{:?}", world.driver.calls());
    node.podwire(["delete", "resourceclaim", "shared"])?;
    world.until_no_claims()?;
    world.down()
}

#[test]
fn a_pod_leaves_a_broken_device_and_a_node_that_is_killed_forgets_no_claim() -> Result<()> {
    let mut world = World::up()?;
    for name in ["a", "b"] {
        world.pod(name)?;
        world.node.pod_in_phase(name, "Running")?;
    }
    let claims = [world.claim_of("a")?, world.claim_of("b")?];
    world.node.kill9()?;
    world.node.start()?;
    for (name, claim) in ["a", "b"].into_iter().zip(&claims) {
        ensure!(world.claim_of(name)?["metadata"]["uid"] == claim["metadata"]["uid"], "{claim}");
    }
    ensure!(world.claims()?.len() == 2, "{:?}", world.claims());
    // The driver tells anew what it has, as the kubelet took that away when it began, and that one device is broken.
    eventually("the kubelet has begun", PATIENCE, || match world.node.list("resourceslices") {
        Ok(slices) if slices.iter().all(|one| one["kind"] != "ResourceSlice") => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    world.publish("{key: example.com/broken, effect: NoExecute}")?;
    eventually("the pod is gone", PATIENCE, || match world.node.get("pod", "a") {
        Err(error) if format!("{error:#}").contains("not found") => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let events = world.node.list("events")?;
    let said =
        |one: &Value| one["reason"] == "DeviceTaintManagerEviction" && one["involvedObject"]["name"] == "a";
    ensure!(events.iter().any(said), "{events:?}");
    let left = world.claims()?;
    ensure!(left.iter().all(|one| one["metadata"]["uid"] == claims[1]["metadata"]["uid"]), "{left:?}");
    ensure!(world.node.get("pod", "b")?["status"]["phase"] == "Running");
    world.node.podwire(["delete", "pod", "b"])?;
    world.until_no_claims()?;
    world.down()
}
