//! Real drivers of dynamic resources on a whole node: DRANET moves an interface into a pod and home again, and upstream's
//! test driver gives pods what their claims say.
#![cfg(feature = "interop")]

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    Node,
    claims::{self, Beside, DEVICE, DRIVER, INSIDE, NRI, class_and_template, ip},
    eventually,
    isolate::{OwnFolder, isolate},
    node::peer,
    stack::{Ours, Stack},
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);

/// A process that is ended with its handle.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Ignored: it may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Waits until a device of a driver is published.
fn published(node: &Node, driver: &str, device: &str, log: impl Fn() -> String) -> Result<()> {
    eventually(&format!("{driver} publishes {device}"), PATIENCE, || {
        let slices = node.list("resourceslices").map_err(|error| format!("{error:#}"))?;
        let has = |slice: &Value| {
            let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
            slice["spec"]["driver"] == driver && devices.clone().any(|one| one["name"] == device)
        };
        if slices.iter().any(has) { Ok(()) } else { Err(format!("{slices:?}\n{}", log())) }
    })
}

fn no_claims(node: &Node) -> Result<()> {
    eventually("no claim is left", PATIENCE, || {
        let claims = node.list("resourceclaims").map_err(|error| format!("{error:#}"))?;
        let left: Vec<_> = claims.iter().filter(|one| one["kind"] == "ResourceClaim").collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
}

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  restartPolicy: Never\n  \
         resourceClaims: [{{name: dev, resourceClaimTemplateName: t}}]\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    \
         imagePullPolicy: Never\n    args: [exit-when, /ended, \"0\"]\n    resources: {{claims: [{{name: dev}}]}}\n"
    )
}

/// The claim that was made for a pod.
fn claim_of(node: &Node, pod: &str) -> Result<Value> {
    let pod = node.get("pod", pod)?;
    let name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str();
    node.get("resourceclaim", name.with_context(|| format!("no claim in {pod}"))?)
}

/// Says hello over the cable to whoever asks once.
fn answer_once(address: &str) -> Result<std::thread::JoinHandle<()>> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    let answer = move || {
        let (mut stream, _) = listener.accept().expect("somebody asks");
        // To the end of the question: a connection that is closed before it was read is reset.
        let (mut asked, mut byte) = (Vec::new(), [0]);
        while !asked.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a question") == 1 {
            asked.extend(byte);
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
            .expect("an answer");
    };
    Ok(std::thread::Builder::new().name("far".into()).spawn(answer)?)
}

#[test]
fn dranet_moves_a_claimed_interface_into_a_pod_and_home_again() -> Result<()> {
    isolate()?;
    let _nri = OwnFolder::at(Path::new(NRI))?;
    claims::make_cable()?;
    let node = Node::up(&[])?;
    let dranet = claims::dranet(&node.data_dir.join("dranet"), &Beside::of_node(&node)?)?;
    published(&node, DRIVER, DEVICE, || dranet.log_tail())?;
    node.apply(&claims::of_device())?;
    let far = answer_once("10.77.0.1:8080")?;
    node.apply(&pod("a"))?;
    node.pod_in_phase("a", "Running").with_context(|| dranet.log_tail())?;
    let inside = node.podwire(["exec", "a", "--", "/pod-app", "ls", "/sys/class/net"])?;
    ensure!(inside.split_whitespace().any(|name| name == INSIDE), "{inside}\n{}", dranet.log_tail());
    ensure!(ip(&format!("link show {DEVICE}")).is_err(), "it was moved");
    let said = node.podwire(["exec", "a", "--", "/pod-app", "get", "http://10.77.0.1:8080/"])?;
    ensure!(said.contains("hello"), "{said}");
    far.join().expect("it answered");
    // The driver told in the claim what the pod has.
    eventually("the claim tells of the interface", PATIENCE, || {
        let claim = claim_of(&node, "a").map_err(|error| format!("{error:#}"))?;
        let data = &claim["status"]["devices"][0]["networkData"];
        let told = data["interfaceName"] == INSIDE && data["ips"][0] == "10.77.0.2/24";
        if told { Ok(()) } else { Err(claim.to_string()) }
    })?;
    // There is one such interface: the next pod waits for it.
    node.apply(&pod("b"))?;
    node.pod_when("b", "a reason why it waits", |pod| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|one| one["reason"] == "Unschedulable")
    })?;
    node.podwire(["delete", "pod", "a"])?;
    node.pod_in_phase("b", "Running").with_context(|| dranet.log_tail())?;
    node.podwire(["delete", "pod", "b"])?;
    no_claims(&node)?;
    // Its name is its own again; addresses it brings back none, which is DRANET's way.
    eventually("the interface is home", PATIENCE, || match ip(&format!("link show {DEVICE}")) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error:#}\n{}", dranet.log_tail())),
    })?;
    node.assert_no_pod_residue()?;
    drop(dranet);
    node.down()
}

const TEST_DRIVER: &str = "test-driver.cdi.k8s.io";

/// Starts upstream's test driver with two devices for the kubelet of this folder.
fn test_driver(kubeconfig: &Path, root: &Path, log: &Path) -> Result<Ended> {
    // It makes the folder of all drivers, but not its own.
    std::fs::create_dir_all(root.join("plugins").join(TEST_DRIVER))?;
    let out = std::fs::File::create(log)?;
    let mut command = Command::new(peer("dra-test-driver")?);
    command
        .args(["--drivername", TEST_DRIVER, "-v", "5", "--kubeconfig"])
        .arg(kubeconfig)
        .args(["kubelet-plugin", "--node-name", "node1", "--num-devices", "2", "--cdi-dir", "/run/cdi"])
        .arg("--plugin-registration-path")
        .arg(root.join("plugins_registry"))
        .arg("--datadir")
        .arg(root.join("plugins"))
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out);
    Ok(Ended(command.spawn()?))
}

fn for_test_driver() -> String {
    let config =
        format!("{{requests: [r], opaque: {{driver: {TEST_DRIVER}, parameters: {{greeting: hello}}}}}}");
    class_and_template(TEST_DRIVER, "", &config)
}

#[test]
fn upstreams_test_driver_gives_pods_what_their_claims_say() -> Result<()> {
    isolate()?;
    let _cdi = OwnFolder::at(Path::new("/run/cdi"))?;
    let node = Node::up(&[])?;
    let log = node.data_dir.join("driver.log");
    let driver = test_driver(&node.kubeconfig(), &Beside::of_node(&node)?.kubelet, &log)?;
    published(&node, TEST_DRIVER, "device-01", || tail(&log))?;
    node.apply(&for_test_driver())?;
    for (name, device) in [("a", "device-00"), ("b", "device-01")] {
        node.apply(&pod(name))?;
        node.pod_in_phase(name, "Running").with_context(|| tail(&log))?;
        let claim = claim_of(&node, name)?;
        ensure!(claim["status"]["allocation"]["devices"]["results"][0]["device"] == device, "{claim}");
        let environment = node.podwire(["exec", name, "--", "/pod-app", "env"])?;
        ensure!(
            environment.lines().any(|line| line == "user_greeting=hello"),
            "{environment}\n{}",
            tail(&log)
        );
    }
    for name in ["a", "b"] {
        node.podwire(["delete", "pod", name])?;
    }
    no_claims(&node)?;
    node.assert_no_pod_residue()?;
    drop(driver);
    node.down()
}

/// The same on a stack of which one side is upstream's: the claim of a pod is made, allocated, prepared, and gone when the
/// pod has ended.
fn walk(stack: &Stack) -> Result<()> {
    let log = stack.path().join("driver.log");
    let _driver = test_driver(&stack.kubeconfig(), &stack.kubelet_root(), &log)?;
    let logs = || format!("{}\n{}", stack.log_tails(), tail(&log));
    let says = |args: &[&str], wanted: &str| {
        eventually(&format!("{args:?} says {wanted:?}"), PATIENCE, || match stack.kubectl(args) {
            Ok(said) if said.trim() == wanted => Ok(()),
            Ok(said) => Err(said),
            Err(error) => Err(format!("{error:#}")),
        })
        .with_context(logs)
    };
    says(
        &["get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].name}"],
        "device-00 device-01",
    )?;
    stack.apply_admitted(&format!("{}---\n{}---\n{}", for_test_driver(), pod("a"), pod("b")))?;
    for name in ["pod/a", "pod/b"] {
        stack.kubectl(&["wait", "--for=condition=Ready", name, "--timeout=90s"]).with_context(logs)?;
        says(&["exec", name, "--", "/pod-app", "env", "user_greeting"], "hello")?;
    }
    let claims = stack.kubectl(&["get", "resourceclaims", "-o", "json"])?;
    let claims: Value = serde_json::from_str(&claims)?;
    for (claim, name) in claims["items"].as_array().into_iter().flatten().zip(["a", "b"]) {
        let metadata = &claim["metadata"];
        let random = metadata["name"].as_str().and_then(|full| full.strip_prefix(&format!("{name}-dev-")));
        ensure!(random.is_some_and(|random| random.len() == 5), "{metadata}");
        ensure!(metadata["generateName"] == format!("{name}-dev-"), "{metadata}");
        ensure!(metadata["annotations"]["resource.kubernetes.io/pod-claim-name"] == "dev", "{metadata}");
        ensure!(metadata["ownerReferences"][0]["controller"] == true, "{metadata}");
        ensure!(claim["status"]["reservedFor"][0]["name"] == name, "{claim}");
    }
    // One ends, and its claim goes while the pod stays.
    let ended = ["exec", "a", "--", "/pod-app", "write", "/ended", "x"];
    stack.kubectl(&ended)?;
    says(&["get", "pod", "a", "-o", "jsonpath={.status.phase}"], "Succeeded")?;
    let left = "jsonpath={.items[*].metadata.annotations.resource\\.kubernetes\\.io/pod-claim-name} {.items[*].status.reservedFor[*].name}";
    says(&["get", "resourceclaims", "-o", left], "dev b")?;
    // A broken device drives its pod out.
    let slice = stack.kubectl(&["get", "resourceslices", "-o", "jsonpath={.items[0].metadata.name}"])?;
    let taint = r#"[{"op": "add", "path": "/spec/devices/1/taints", "value": [{"key": "example.com/broken", "effect": "NoExecute"}]}]"#;
    // The driver publishes anew what it knows, so that the taint is there for a moment only.
    eventually("a pod leaves a broken device", PATIENCE, || {
        let tell = |error: anyhow::Error| format!("{error:#}");
        stack.kubectl(&["patch", "resourceslice", slice.trim(), "--type=json", "-p", taint]).map_err(tell)?;
        let left = stack.kubectl(&["get", "pod", "b", "--ignore-not-found", "-o", "name"]).map_err(tell)?;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .with_context(logs)?;
    let events = stack.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"])?;
    ensure!(events.contains("DeviceTaintManagerEviction"), "{events}");
    stack.kubectl(&["delete", "pod", "a"])?;
    stack.assert_no_pod_residue()
}

#[test]
fn our_kubelet_prepares_what_the_real_scheduler_and_controller_manager_made() -> Result<()> {
    isolate()?;
    let _cdi = OwnFolder::at(Path::new("/run/cdi"))?;
    let upstream = Ours { api: false, store: false, controllers: false, scheduler: false, ..Ours::ALL };
    walk(&Stack::start(upstream)?)
}

#[test]
fn the_real_kubelet_prepares_what_our_scheduler_and_claim_controller_made() -> Result<()> {
    isolate()?;
    let _cdi = OwnFolder::at(Path::new("/run/cdi"))?;
    walk(&Stack::start(Ours { api: false, store: false, kubelet: false, ..Ours::ALL })?)
}
