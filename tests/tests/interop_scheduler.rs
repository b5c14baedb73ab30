//! The real kube-scheduler and ours stand by for each other: one lease, one leader, no pod bound twice.
#![cfg(feature = "interop")]

use std::{
    collections::BTreeMap,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use podwire_testkit::{
    eventually, isolate,
    node::peer,
    parts::{self, Api},
    upstream::{Peer, Scratch},
};
use serde_json::{Value, json};

/// A leader that says nothing is replaced after 15 seconds, and a little for a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// A lease that is given back is taken at the next look, long before it would have ended.
const AT_ONCE: Duration = Duration::from_secs(10);
/// 50 millis each, so 80 on a node of 4 CPUs.
const MOST: usize = 80;
const NODES: usize = 3;

struct World {
    api: Api,
    folder: Scratch,
}

/// What `kubectl get` says of the pods: node by name.
type Placed = BTreeMap<String, String>;

impl World {
    fn start() -> Result<World> {
        let folder = Scratch::new()?;
        let api = Api::start(&folder.path().join("api"))?;
        let world = World { api, folder };
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let node = |at: usize| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}")},
                "status": {"capacity": room, "allocatable": room}})
        };
        eventually("the API server answers", PATIENCE, || {
            world.kubectl(&["get", "--raw", "/readyz"], "").map_err(|error| format!("{error:#}"))
        })?;
        world.kubectl(&["create", "-f", "-"], &list((0..NODES).map(node)))?;
        // Nobody else finds them ready.
        world.kubectl(&["taint", "nodes", "--all", "node.kubernetes.io/not-ready:NoSchedule-"], "")?;
        Ok(world)
    }

    fn kubectl(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new(peer("kubectl")?)
            .args(args)
            .arg("--kubeconfig")
            .arg(self.api.kubeconfig("admin"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
        let done = child.wait_with_output()?;
        ensure!(
            done.status.success(),
            "kubectl {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&done.stderr)
        );
        Ok(String::from_utf8(done.stdout)?)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.api.kubeconfig("scheduler")
    }

    fn ours(&self, name: &str) -> Result<Peer> {
        parts::scheduler(&self.folder.path().join(name), &self.kubeconfig())
    }

    fn upstream(&self, name: &str) -> Result<Peer> {
        let kubeconfig = self.kubeconfig();
        Peer::start(
            "kube-scheduler",
            &self.folder.path().join(name),
            Command::new(peer("kube-scheduler")?).arg(format!("--kubeconfig={}", kubeconfig.display())).args(
                [
                    "--authentication-tolerate-lookup-failure=true",
                    "--leader-elect=true",
                    "--bind-address=127.0.0.1",
                ],
            ),
        )
    }

    fn holder(&self) -> String {
        let words =
            ["-n", "kube-system", "get", "lease", "kube-scheduler", "-o", "jsonpath={.spec.holderIdentity}"];
        self.kubectl(&words, "").unwrap_or_default()
    }

    /// Waits for a leader that is none of these; who, and how long it took.
    fn new_leader(&self, but: &[&str], within: Duration) -> Result<(String, Duration)> {
        let begun = Instant::now();
        let leader = eventually("another leads", within, || {
            let holder = self.holder();
            if holder.is_empty() || but.contains(&holder.as_str()) { Err(holder) } else { Ok(holder) }
        })?;
        Ok((leader, begun.elapsed()))
    }

    fn create(&self, prefix: &str, count: usize) -> Result<()> {
        let pod = |at: usize| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{prefix}-{at}")}, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "50m"}}}]}})
        };
        self.kubectl(&["create", "-f", "-"], &list((0..count).map(pod))).map(drop)
    }

    fn placed(&self) -> Result<Placed> {
        let pods: Value = serde_json::from_str(&self.kubectl(&["get", "pods", "-o", "json"], "")?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = pods["items"].as_array().into_iter().flatten();
        Ok(all.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect())
    }

    /// Waits until so many pods are bound; none of `before` has moved and no node has too many.
    fn all_bound(&self, count: usize, before: &Placed) -> Result<Placed> {
        let placed = eventually("all are bound", PATIENCE, || {
            let placed = self.placed().map_err(|error| format!("{error:#}"))?;
            match placed.values().filter(|node| !node.is_empty()).count() {
                bound if bound == count => Ok(placed),
                bound => Err(format!("{bound} of {count}")),
            }
        })?;
        for (pod, node) in before.iter().filter(|(_, node)| !node.is_empty()) {
            ensure!(placed.get(pod) == Some(node), "{pod} moved from {node} to {:?}", placed.get(pod));
        }
        for at in 0..NODES {
            let there = placed.values().filter(|node| **node == format!("n{at}")).count();
            ensure!(there <= MOST, "{there} pods on n{at}");
        }
        Ok(placed)
    }

    /// Who said that pods of this prefix were bound, and that nobody was told twice.
    fn binders(&self, prefix: &str) -> Result<Vec<String>> {
        let words = ["get", "events", "--field-selector", "reason=Scheduled", "-o", "json"];
        let events: Value = serde_json::from_str(&self.kubectl(&words, "")?)?;
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        for event in events["items"].as_array().into_iter().flatten() {
            let pod = event["involvedObject"]["name"].as_str().unwrap_or_default();
            let instance = event["reportingInstance"].as_str().unwrap_or_default();
            if pod.starts_with(&format!("{prefix}-")) {
                let before = told.insert(pod.to_owned(), instance.to_owned());
                ensure!(before.is_none(), "{pod} was bound twice: by {before:?} and by {instance}");
            }
        }
        let mut binders: Vec<String> = told.into_values().collect();
        binders.sort();
        binders.dedup();
        Ok(binders)
    }

    /// Deletes all pods, so that there is room for the next.
    fn clear(&self) -> Result<()> {
        self.kubectl(&["delete", "pods", "--all", "--wait=true", "--timeout=60s"], "").map(drop)
    }
}

fn list(items: impl IntoIterator<Item = Value>) -> String {
    let items: Vec<Value> = items.into_iter().collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

const OURS: &str = "default-scheduler-podwire";

#[test]
fn the_real_scheduler_and_ours_take_over_from_each_other() -> Result<()> {
    isolate()?;
    let world = World::start()?;
    let none = Placed::new();
    let ours = world.ours("first")?;
    let (us, _) = world.new_leader(&[], PATIENCE)?;
    let theirs = world.upstream("second")?;
    world.create("a", 20)?;
    world.all_bound(20, &none)?;
    ensure!(world.binders("a")? == [OURS] && world.holder() == us, "ours leads and binds");

    // Ours is killed amid a burst: the other waits for the lease to end, and binds the rest once.
    world.create("b", 200)?;
    eventually("the first of them are bound", PATIENCE, || {
        let placed = world.placed().map_err(|error| format!("{error:#}"))?;
        let bound = placed.iter().filter(|(pod, node)| pod.starts_with("b-") && !node.is_empty()).count();
        if bound > 0 { Ok(()) } else { Err("none yet".to_owned()) }
    })?;
    ours.kill9();
    let before = world.placed()?;
    world.create("c", 10)?;
    let (them, took) = world.new_leader(&[&us], PATIENCE)?;
    println!("kube-scheduler took over {took:?} after ours was killed");
    world.all_bound(230, &before)?;
    world.binders("b")?;
    let binders = world.binders("c")?;
    ensure!(binders.len() == 1 && binders[0] != OURS, "who was alive bound them: {binders:?}");
    world.clear()?;

    // Ours stands by, and takes over as soon as the other gives the lease back.
    let ours = world.ours("third")?;
    world.create("d", 20)?;
    world.all_bound(20, &none)?;
    ensure!(world.holder() == them && world.binders("d")? == binders, "the other still leads and binds");
    drop(theirs);
    let (us, took) = world.new_leader(&[&them], AT_ONCE)?;
    println!("ours took over {took:?} after kube-scheduler ended");
    world.create("e", 20)?;
    world.all_bound(40, &world.placed()?)?;
    ensure!(world.binders("e")? == [OURS], "ours binds again");

    // And the other way round.
    let theirs = world.upstream("fourth")?;
    world.create("f", 20)?;
    world.all_bound(60, &world.placed()?)?;
    ensure!(world.holder() == us && world.binders("f")? == [OURS], "ours still leads");
    drop(ours);
    let (_, took) = world.new_leader(&[&us], AT_ONCE)?;
    println!("kube-scheduler took over {took:?} after ours ended");
    world.create("g", 20)?;
    world.all_bound(80, &world.placed()?)?;
    ensure!(world.binders("g")? == binders, "the other binds again");

    // Killed, it is replaced when its lease is over.
    let ours = world.ours("fifth")?;
    let them = world.holder();
    theirs.kill9();
    world.create("h", 20)?;
    let (_, took) = world.new_leader(&[&them], PATIENCE)?;
    println!("ours took over {took:?} after kube-scheduler was killed");
    world.all_bound(100, &world.placed()?)?;
    ensure!(world.binders("h")? == [OURS], "ours binds");
    drop(ours);
    Ok(())
}
