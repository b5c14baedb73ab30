//! A pod from apply to Running and back to nothing, through the whole binary and every real boundary.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{Node, eventually, isolate, residue};
use serde_json::Value;

fn pod(name: &str, args: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{set: test}}}}\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: IfNotPresent\n    args: {args}\n"
    )
}

fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap_or(-1)
}

fn all_running(node: &Node, count: usize, within: Duration) -> Result<Vec<Value>> {
    eventually(&format!("{count} pods Running"), within, || {
        let pods = node.list("pods").map_err(|error| format!("{error:#}"))?;
        let running = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running" && pod["status"]["podIP"].is_string());
        match running.count() {
            running if running == count => Ok(pods),
            running => {
                let waiting = pods.iter().find(|pod| pod["status"]["phase"] != "Running");
                Err(format!(
                    "{running} of {}; e.g. {}",
                    pods.len(),
                    waiting.map_or(String::new(), |pod| pod["status"].to_string())
                ))
            }
        }
    })
    .with_context(|| node.log_tail())
}

#[test]
fn a_pod_goes_from_apply_to_running_and_back_to_nothing() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    assert_eq!(node.apply(&pod("web", "[serve, \"80\"]"))?.trim(), "pod/web created");
    let web = node.pod_in_phase("web", "Running")?;
    let address = web["status"]["podIP"].as_str().context("no podIP")?.to_owned();
    assert_eq!(web["spec"]["nodeName"], "node1", "the scheduler bound it");
    assert_eq!(web["status"]["qosClass"], "BestEffort");

    let answer = eventually("HTTP to the pod", Duration::from_secs(5), || {
        node.podwire(["exec", "web", "--", "/pod-app", "get", &format!("http://{address}/")])
            .map_err(|error| error.to_string())
    })?;
    assert_eq!(answer.trim(), "hello from web");
    assert_eq!(node.podwire(["exec", "web", "--", "/pod-app", "hostname"])?.trim(), "web");
    let code = node.podwire(["exec", "web", "--", "/pod-app", "exit", "7"]).unwrap_err();
    assert!(code.to_string().contains("exit status: 7"), "{code}");
    assert!(node.podwire(["logs", "web"])?.contains("listening on 80"));

    let reasons: Vec<String> = node
        .list("events")?
        .iter()
        .filter(|event| event["involvedObject"]["name"] == "web")
        .filter_map(|event| event["reason"].as_str().map(str::to_owned))
        .collect();
    for wanted in ["Scheduled", "Created", "Started"] {
        assert!(reasons.iter().any(|reason| reason == wanted), "event {wanted} in {reasons:?}");
    }
    assert_eq!(node.podwire(["delete", "pod", "web"])?.trim(), "pod \"web\" deleted from default namespace");
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn limits_and_volumes_reach_the_container() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: hidden}\nstringData: {key: s3cret}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: full, labels: {a: b}}\nspec:\n  terminationGracePeriodSeconds: 1\n  initContainers:\n  - {name: first, image: localhost/pod-app:latest, imagePullPolicy: Never, args: [write, /data/from-init, done], volumeMounts: [{name: data, mountPath: /data}]}\n  containers:\n  - name: main\n    image: localhost/pod-app:latest\n    imagePullPolicy: Never\n    args: [sleep, \"600\"]\n    env:\n    - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}\n    - {name: KEY, valueFrom: {secretKeyRef: {name: hidden, key: key}}}\n    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}\n    - {name: BOTH, value: \"$(COLOUR)-$(NODE)\"}\n    resources: {limits: {memory: 64Mi, cpu: 250m}}\n    volumeMounts: [{name: data, mountPath: /data}, {name: settings, mountPath: /settings}, {name: labels, mountPath: /labels}]\n  volumes:\n  - {name: data, emptyDir: {}}\n  - {name: settings, configMap: {name: settings}}\n  - {name: labels, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}\n",
    )?;
    let full = node.pod_in_phase("full", "Running")?;
    assert_eq!(full["status"]["qosClass"], "Burstable", "the init container asks for nothing");
    let run = |args: &[&str]| {
        node.podwire(["exec", "full", "--", "/pod-app"].into_iter().chain(args.iter().copied()))
    };
    assert_eq!(run(&["env", "BOTH"])?.trim(), "blue-node1");
    assert_eq!(run(&["env", "KEY"])?.trim(), "s3cret");
    assert_eq!(run(&["cat", "/data/from-init"])?.trim(), "done");
    assert_eq!(run(&["cat", "/settings/colour"])?.trim(), "blue");
    assert_eq!(run(&["cat", "/labels/labels"])?.trim(), "a=\"b\"");
    let names = node.names()?;
    let limit = memory_limit(&names, full["metadata"]["uid"].as_str().unwrap_or_default())?;
    assert_eq!(limit, (64 * 1024 * 1024).to_string());
    node.podwire(["delete", "pod", "full"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

/// The memory limit of the pod's running container, v1 or v2.
fn memory_limit(names: &residue::Names, uid: &str) -> Result<String> {
    for (top, file) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
    {
        let root = Path::new(top).join(names.cgroup_root.trim_start_matches('/')).join("kubepods");
        for class in ["", "burstable", "besteffort"] {
            let pod = root.join(class).join(format!("pod{uid}"));
            for container in fs::read_dir(&pod).into_iter().flatten().flatten().map(|entry| entry.path()) {
                let runs = fs::read_to_string(container.join("cgroup.procs"))
                    .is_ok_and(|pids| !pids.trim().is_empty());
                if runs && let Ok(text) = fs::read_to_string(container.join(file)) {
                    return Ok(text.trim().to_owned());
                }
            }
        }
    }
    bail!("no memory cgroup of pod {uid} below {}", names.cgroup_root)
}

#[test]
fn containers_outlive_a_killed_daemon_and_are_adopted() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    for number in 0..20 {
        node.apply(&pod(&format!("p{number}"), "[log, \"100000\", \"20\"]"))?;
    }
    let before = all_running(&node, 20, Duration::from_secs(60))?;
    let ids = |pods: &[Value]| -> Vec<String> {
        let mut ids: Vec<String> =
            pods.iter().map(|pod| pod["status"]["containerStatuses"][0]["containerID"].to_string()).collect();
        ids.sort();
        ids
    };
    // Asked to go just before the crash: it must still go.
    node.podwire(["delete", "pod", "p19", "--wait=false", "--grace-period=1"])?;
    node.kill9()?;
    let log = container_log(&node, "p0")?;
    let size = fs::metadata(&log)?.len();
    eventually("a log line while no daemon runs", Duration::from_secs(30), || {
        let now = fs::metadata(&log).map_err(|error| error.to_string())?.len();
        if now > size { Ok(()) } else { Err(format!("still {now} bytes")) }
    })?;
    node.start()?;
    eventually("p19 gone", Duration::from_secs(20), || match node.get("pod", "p19") {
        Err(error) if error.to_string().contains("NotFound") => Ok(()),
        other => Err(format!("{other:?}")),
    })?;
    let after = all_running(&node, 19, Duration::from_secs(20))?;
    assert!(after.iter().all(|pod| restarts(pod) == 0), "no restart is counted: {after:?}");
    let survivors: Vec<Value> = before.into_iter().filter(|pod| pod["metadata"]["name"] != "p19").collect();
    assert_eq!(ids(&survivors), ids(&after), "the same containers run");
    node.podwire(["delete", "pods", "--all", "--grace-period=1"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

fn container_log(node: &Node, pod: &str) -> Result<std::path::PathBuf> {
    for entry in fs::read_dir(node.data_dir.join("logs"))? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name.display().to_string().starts_with(&format!("default_{pod}_")))
        {
            return Ok(path.join("main/0.log"));
        }
    }
    bail!("no log of {pod}")
}

#[test]
fn a_kill_in_the_middle_of_creations_loses_and_leaks_nothing() -> Result<()> {
    isolate()?;
    let mut node = Node::up(&[])?;
    let all: Vec<String> = (0..100).map(|number| pod(&format!("c{number}"), "[sleep, \"3600\"]")).collect();
    node.apply(&all.join("---\n"))?;
    node.kill9()?;
    node.start()?;
    let pods = all_running(&node, 100, Duration::from_secs(180))?;
    let restarted: Vec<&Value> =
        pods.iter().filter(|pod| restarts(pod) != 0).map(|pod| &pod["status"]).collect();
    assert!(restarted.is_empty(), "no restart is counted: {restarted:#?}");
    let mut addresses: Vec<&str> = pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 100, "every pod has an address of its own");
    node.podwire(["delete", "pods", "--all", "--grace-period=1"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn three_hundred_cycles_leave_nothing() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    for round in 0..15 {
        let all: Vec<String> =
            (0..20).map(|number| pod(&format!("r{round}-{number}"), "[sleep, \"3600\"]")).collect();
        node.apply(&all.join("---\n"))?;
        all_running(&node, 20, Duration::from_secs(60))?;
        node.podwire(["delete", "pods", "--all", "--grace-period=1"])?;
    }
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn two_nodes_run_side_by_side() -> Result<()> {
    isolate()?;
    let one = Node::up(&[])?;
    let two = Node::up(&["--listen", "127.0.0.1:6444", "--pod-cidr", "10.99.0.0/16"])?;
    for node in [&one, &two] {
        node.apply(&pod("web", "[serve, \"80\"]"))?;
    }
    let first = one.pod_in_phase("web", "Running")?;
    let second = two.pod_in_phase("web", "Running")?;
    assert!(first["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.88.")), "{first}");
    assert!(second["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.99.")), "{second}");
    one.down()?;
    assert_eq!(
        two.podwire(["exec", "web", "--", "/pod-app", "hostname"])?.trim(),
        "web",
        "the other node is not disturbed"
    );
    two.down()
}

#[test]
fn what_is_wrong_with_a_pod_is_said_in_its_status() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    node.apply(&pod("good", "[sleep, \"600\"]"))?;
    node.apply(
        &pod("no-image", "[sleep, \"1\"]")
            .replace("pod-app:latest", "absent:latest")
            .replace("IfNotPresent", "Never"),
    )?;
    node.apply(&pod("no-command", "[x]").replace("args: [x]", "command: [/does-not-exist]"))?;
    let waiting = |pod: &Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    node.pod_when("no-image", "ErrImageNeverPull", |pod| waiting(pod) == "ErrImageNeverPull")?;
    node.pod_when("no-command", "a start error", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        let text = status.to_string();
        text.contains("does-not-exist") && (text.contains("StartError") || text.contains("RunContainerError"))
    })?;
    let error = node
        .apply("apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {containers: []}\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("Invalid") && error.contains("spec.containers: Required value"), "{error}");
    let error = node.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: [\n").unwrap_err().to_string();
    assert!(error.contains("error parsing"), "{error}");
    let good = node.pod_in_phase("good", "Running")?;
    assert_eq!(restarts(&good), 0, "the others are not disturbed");
    node.podwire(["delete", "pods", "--all", "--grace-period=1"])?;
    node.assert_no_pod_residue()?;
    node.down()
}

#[test]
fn a_taken_data_folder_and_a_taken_port_are_named() -> Result<()> {
    isolate()?;
    let node = Node::up(&[])?;
    let second = |data: &Path| -> Result<String> {
        let output = Command::new(podwire_testkit::node::bin_dir().join("podwire"))
            .args(["up", "--data-dir"])
            .arg(data)
            .stdin(Stdio::null())
            .output()?;
        assert!(!output.status.success());
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let said = second(&node.data_dir)?;
    assert!(said.contains("is used by process") && said.contains("--data-dir"), "{said}");
    let other = tempfile::tempdir()?;
    let said = second(other.path())?;
    assert!(said.contains("127.0.0.1:6443"), "{said}");
    assert_eq!(node.list("nodes")?.len(), 1, "the first node is not disturbed");
    node.down()
}
