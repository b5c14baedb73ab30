//! The scheduler's task against a pretended API server in paused time: whatever happens in whatever order, no pod that
//! could run waits, none is lost, none is bound twice and no node gets more than it has.
//!
//! What would help a pod is not written down here: the plugins themselves are asked, about every pod that waits.

mod faults;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use podwire_client::watcher::Event as Seen;
use serde_json::{Value, json};

use super::State;
use super::pretend::{Mood, News, Pretend};
use crate::config::Configuration;
use crate::cycle::{Decision, Searcher};
use crate::framework::PostFilter;
use crate::queue::STALE_MS;

/// A scheduler, its API server and a sequence of chances.
struct Play {
    state: State,
    api: Pretend,
    dice: u64,
    made: usize,
    /// What happened, for whoever reads a failure.
    told: Vec<String>,
}

fn typed<K>(event: Seen<Value>, read: impl Fn(Value) -> serde_json::Result<K>) -> Seen<K> {
    let read = |value: Value| read(value).unwrap();
    match event {
        Seen::Apply(value) => Seen::Apply(read(value)),
        Seen::Delete(value) => Seen::Delete(read(value)),
        Seen::Init => Seen::Init,
        Seen::InitApply(value) => Seen::InitApply(read(value)),
        Seen::InitDone => Seen::InitDone,
    }
}

impl Play {
    fn new(seed: u64) -> Self {
        let api = Pretend::new();
        let mut state = State::new(api.client(), &Configuration::default());
        state.unsynced.clear();
        Self { state, api, dice: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, made: 0, told: Vec::new() }
    }

    fn throw(&mut self, bound: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.dice >> 33).unwrap() % bound
    }

    fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        let at = self.throw(all.len());
        all[at]
    }

    /// Hands on so many of the news.
    fn hear(&mut self, most: usize) {
        for _ in 0..most {
            let Some(news) = self.api.objects().news.pop_front() else { return };
            match news {
                News::Pod(event) => self.state.pod_event(Ok(typed(event, serde_json::from_value::<Pod>))),
                News::Node(event) => self.state.node_event(Ok(typed(event, serde_json::from_value::<Node>))),
            }
        }
    }

    /// Takes in so many of the answers that come soon.
    async fn answers(&mut self, most: usize) {
        for _ in 0..most {
            let next = self.state.writes.join_next_with_id();
            let Ok(Some(done)) = tokio::time::timeout(Duration::from_millis(50), next).await else { return };
            self.state.done(done);
        }
    }

    /// Until nothing moves any more.
    async fn settle(&mut self) {
        loop {
            self.hear(usize::MAX);
            self.state.next_wake();
            self.state.decide_all();
            match self.state.writes.join_next_with_id().await {
                Some(done) => self.state.done(done),
                None if self.api.objects().news.is_empty() && self.state.queue.is_idle() => return,
                None => {}
            }
        }
    }

    /// Lets time pass.
    async fn pass(&mut self, time: Duration) {
        tokio::time::advance(time).await;
        self.settle().await;
    }

    fn log(&mut self, what: String) {
        self.told.push(what);
    }

    fn story(&self) -> String {
        self.told[self.told.len().saturating_sub(40)..].join("\n")
    }

    /// No pod is lost, and none that waits for an event could run.
    fn check(&mut self) {
        let (placed, waiting): (Vec<_>, Vec<_>) = {
            let objects = self.api.objects();
            let uids = objects.pods.values().map(|pod| {
                (pod["metadata"]["uid"].as_str().unwrap().to_owned(), !pod["spec"]["nodeName"].is_null())
            });
            uids.partition(|(_, placed)| *placed)
        };
        for (uid, _) in &placed {
            assert!(self.state.cluster.is_placed(uid), "{uid} is not counted\n{}", self.story());
        }
        let known = self.state.queue.uids();
        for (uid, _) in &waiting {
            let waits = known.iter().any(|one| **one == **uid);
            assert!(waits, "{uid} is lost\n{}", self.story());
        }
        assert_eq!(known.len(), waiting.len(), "{known:?} for {waiting:?}\n{}", self.story());
        for (name, how, fits) in self.helped() {
            assert!(!fits, "{name} sleeps although it {how}\n{}", self.story());
        }
    }

    /// Pods that sleep although they could run, or have room made for them: who, how, and whether it fits as things are.
    fn helped(&mut self) -> Vec<(String, String, bool)> {
        let mut all = Vec::new();
        for pod in self.state.queue.asleep() {
            let profile = &self.state.profiles[0];
            match Searcher::default().decide(&pod, &mut self.state.cluster, profile) {
                Decision::Node { name, .. } => {
                    all.push((pod.name.to_string(), format!("fits on {name}"), true));
                }
                // It waits for those that leave anyway.
                Decision::None(_, PostFilter::Victims { node, pods })
                    if !pods.iter().all(|pod| pod.deleting) =>
                {
                    let pods: Vec<_> = pods.iter().map(|pod| pod.name.to_string()).collect();
                    let how = format!("could have room on {node} without {pods:?}");
                    all.push((pod.name.to_string(), how, false));
                }
                Decision::None(..) => {}
            }
        }
        all
    }

    /// A hint is asked of those who refused the nodes as they are; what only those who refused a node that is thought
    /// emptier wait for, the flush finds, for one pod after the other.
    async fn flush(&mut self) {
        for _ in 0..5 {
            self.api.objects().reap();
            self.pass(Duration::from_millis(STALE_MS + 10_000)).await;
        }
        self.api.objects().reap();
        self.settle().await;
        let helped = self.helped();
        assert!(helped.is_empty(), "{helped:?} after the flush\n{}", self.story());
    }

    /// No pod was bound twice, and no node was given more than it ever had.
    fn check_bindings(&self, largest: &HashMap<String, i64>) {
        let objects = self.api.objects();
        let mut first: HashMap<&str, &str> = HashMap::new();
        for (uid, node) in &objects.bound {
            let before = first.insert(uid, node);
            assert!(before.is_none(), "{uid} was bound to {before:?} and {node}\n{}", self.story());
        }
        for (name, most) in largest {
            let on = objects.pods.values().filter(|pod| pod["spec"]["nodeName"] == **name);
            let used: i64 = on.map(cpu_of).sum();
            assert!(used <= *most, "{name} has {most} and gave {used}\n{}", self.story());
        }
    }
}

fn cpu_of(pod: &Value) -> i64 {
    let text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap_or("0m");
    text.trim_end_matches('m').parse().unwrap()
}

const NODES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];
const APPS: [&str; 3] = ["web", "db", "job"];
const KEYS: [&str; 2] = ["zone", "kubernetes.io/hostname"];

/// What pods and nodes are made of.
impl Play {
    fn node(&mut self, name: &str) -> Value {
        let cpu = 1000 * (1 + self.throw(4));
        let pods = self.one_of(&["2", "4", "110"]).to_owned();
        let taints = match self.throw(4) {
            0 => json!([{"key": "special", "value": "yes", "effect": "NoSchedule"}]),
            _ => json!([]),
        };
        let cordoned = self.throw(6) == 0;
        let mut labels = json!({"kubernetes.io/hostname": name});
        if self.throw(5) > 0 {
            labels["zone"] = self.one_of(&["a", "b"]).into();
        }
        if self.throw(3) == 0 {
            labels["disk"] = "fast".into();
        }
        json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"allocatable": {"cpu": format!("{cpu}m"), "memory": "8Gi", "pods": pods}},
        })
    }

    fn pod(&mut self) -> (String, Value) {
        self.made += 1;
        let name = format!("p{}", self.made);
        let app = self.one_of(&APPS);
        let cpu = 250 * (1 + self.throw(10));
        let priority = [0, 0, 0, 5, 10][self.throw(5)];
        let mut spec = json!({
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": format!("{cpu}m")}}}],
        });
        if self.throw(4) == 0 {
            spec["tolerations"] = json!([{"key": "special", "operator": "Exists"}]);
        }
        if self.throw(6) == 0 {
            spec["nodeSelector"] = json!({"disk": "fast"});
        }
        if self.throw(6) == 0 {
            spec["containers"][0]["ports"] =
                json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]);
        }
        if self.throw(8) == 0 {
            spec["preemptionPolicy"] = "Never".into();
        }
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let term = |play: &mut Self| {
            let other = play.one_of(&APPS);
            let key = play.one_of(&KEYS);
            json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": other}}})
        };
        if self.throw(5) == 0 {
            spec["affinity"]["podAntiAffinity"] = json!({required: [term(self)]});
        }
        if self.throw(6) == 0 {
            spec["affinity"]["podAffinity"] = json!({required: [term(self)]});
        }
        if self.throw(5) == 0 {
            let key = self.one_of(&KEYS);
            let taints = self.one_of(&["Honor", "Ignore"]);
            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": taints,
                "labelSelector": {"matchLabels": {"app": app}}}]);
        }
        let metadata = json!({"name": name, "namespace": "default", "uid": name, "labels": {"app": app}});
        (name, json!({"metadata": metadata, "spec": spec, "status": {}}))
    }

    /// One thing happens.
    async fn happen(&mut self, largest: &mut HashMap<String, i64>) {
        let names: Vec<String> = self.api.objects().pods.keys().cloned().collect();
        match self.throw(12) {
            0..=3 => {
                let (name, pod) = self.pod();
                self.log(format!("+ {name} {}", pod["spec"]));
                self.api.objects().put_pod(&name, pod);
            }
            4 | 5 if !names.is_empty() => {
                let name = &names[self.throw(names.len())];
                self.log(format!("- {name}"));
                self.api.objects().delete(name);
            }
            6 | 7 => {
                let name = self.one_of(&NODES);
                let node = self.node(name);
                self.log(format!("node {name} {node}"));
                let cpu = node["status"]["allocatable"]["cpu"].as_str().unwrap().trim_end_matches('m');
                let most = largest.entry(name.to_owned()).or_default();
                *most = (*most).max(cpu.parse().unwrap());
                self.api.objects().put_node(name, node);
            }
            8 => {
                let name = self.one_of(&NODES);
                self.log(format!("no node {name}"));
                self.api.objects().remove_node(name);
            }
            9 if !names.is_empty() => self.change(&names),
            10 => {
                let millis = self.throw(20_000) as u64;
                self.log(format!("{millis} ms"));
                tokio::time::advance(Duration::from_millis(millis)).await;
            }
            _ => {
                self.log("reap".to_owned());
                self.api.objects().reap();
            }
        }
    }

    /// A pod changes its labels, or asks for less.
    fn change(&mut self, names: &[String]) {
        let name = &names[self.throw(names.len())];
        let app = self.one_of(&APPS);
        let relabel = self.throw(2) == 0;
        self.log(format!("change {name}: {}", if relabel { app } else { "asks for less" }));
        let mut objects = self.api.objects();
        let Some(mut pod) = objects.pods.get(name).cloned() else { return };
        if relabel {
            pod["metadata"]["labels"]["app"] = app.into();
        } else {
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m".into();
        }
        objects.put_pod(name, pod);
    }
}

/// How many plays of how many things.
const PLAYS: u64 = 150;
const STEPS: usize = 60;

/// Hints miss nothing: after every event each pod that waits for one is asked about, and none of them could run. After the
/// flush room could be made for none either.
#[tokio::test(start_paused = true)]
async fn no_pod_that_could_run_sleeps_whatever_happens() {
    let mut bound = 0;
    for seed in 0..PLAYS {
        let mut play = Play::new(seed);
        let mut largest = HashMap::new();
        play.api.objects().lingering = seed % 2 == 0;
        for _ in 0..STEPS {
            play.happen(&mut largest).await;
            play.settle().await;
            play.check();
            play.check_bindings(&largest);
        }
        play.flush().await;
        play.check_bindings(&largest);
        bound += play.api.objects().bound.len();
    }
    assert!(bound > 500, "only {bound} pods were bound: the plays are too quiet");
}

/// The API server is away, slow, in conflict or loses its answers, and watches are late: once it is well again, all is as if
/// nothing had been, after the flush at the latest.
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_bound_twice_while_the_api_server_is_out_of_sorts() {
    let mut troubled = 0;
    for seed in 1000..1000 + PLAYS {
        let mut play = Play::new(seed);
        let mut largest = HashMap::new();
        play.api.objects().lingering = seed % 2 == 0;
        for _ in 0..STEPS {
            play.happen(&mut largest).await;
            if play.throw(5) == 0 {
                let moods = [Mood::Away, Mood::Conflict, Mood::Slow, Mood::Mute, Mood::Well];
                let mood = moods[play.throw(moods.len())];
                play.log(format!("{mood:?}"));
                play.api.objects().mood = mood;
                troubled += usize::from(mood != Mood::Well);
            }
            // Some of the news, and some of the answers.
            let most = play.throw(4);
            play.hear(most);
            play.state.next_wake();
            play.state.decide_all();
            let most = play.throw(4);
            play.answers(most).await;
            play.check_bindings(&largest);
        }
        play.log("well again".to_owned());
        play.api.objects().mood = Mood::Well;
        play.settle().await;
        play.flush().await;
        play.check();
        play.check_bindings(&largest);
    }
    assert!(troubled > 500);
}

/// If a hint were to miss something, the flush would bring the pod back; and a pod that nothing helps is asked about no more
/// often than that.
#[tokio::test(start_paused = true)]
async fn a_pod_that_sleeps_is_woken_by_the_flush_and_not_before() {
    let mut play = Play::new(1);
    let node = json!({"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}});
    play.api.objects().put_node("n0", node);
    let (name, mut pod) = play.pod();
    pod["spec"] = json!({"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "i",
        "resources": {"requests": {"cpu": "2000m"}}}]});
    play.api.objects().put_pod(&name, pod);
    play.settle().await;
    assert_eq!(play.state.queue.asleep().len(), 1);
    // Room that nobody tells of, as if a hint had missed it.
    let roomy: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}, "status":
        {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "9"}}}))
    .unwrap();
    drop(play.state.cluster.set_node("n1", crate::node::NodeFacts::new(&roomy)));
    play.pass(Duration::from_millis(STALE_MS - 1_000)).await;
    assert!(play.api.objects().bound.is_empty());
    play.pass(Duration::from_millis(1_001)).await;
    assert_eq!(play.api.objects().bound, [(name, "n1".to_owned())]);
}

/// Nodes go and are tainted while pods are on their way: those that arrive are told so, and nobody is decided for them again.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_while_pods_are_on_their_way_takes_no_more() {
    let mut play = Play::new(2);
    for name in ["n0", "n1"] {
        let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi",
            "pods": "110"}}});
        play.api.objects().put_node(name, node);
    }
    play.api.objects().mood = Mood::Slow;
    for at in 0..20 {
        let name = format!("p{at}");
        let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec":
            {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}});
        play.api.objects().put_pod(&name, pod);
    }
    play.hear(usize::MAX);
    play.state.decide_all();
    assert_eq!(play.state.bindings.len(), 20, "all are on their way");
    play.api.objects().remove_node("n0");
    let tainted = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
    play.api.objects().put_node("n1", tainted);
    let late = json!({"metadata": {"name": "late", "namespace": "default", "uid": "late"}, "spec":
        {"containers": [{"name": "c", "image": "i"}]}});
    play.api.objects().put_pod("late", late);
    play.settle().await;
    assert_eq!(play.api.objects().bound.len(), 20, "they arrive once each, and the late one has no node");
    play.check_bindings(&HashMap::from([("n1".to_owned(), 4000)]));
    assert_eq!(play.state.bindings.len(), 0);
    let node = json!({"metadata": {"name": "n2"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi",
        "pods": "110"}}});
    play.api.objects().put_node("n2", node);
    play.settle().await;
    let objects = play.api.objects();
    assert_eq!(objects.bound.last(), Some(&("late".to_owned(), "n2".to_owned())));
}

/// Ten thousand pods come and go at once, some of them decided, some on their way: nothing of them is left.
#[tokio::test(start_paused = true)]
async fn ten_thousand_pods_made_and_deleted_at_once_leave_nothing() {
    let mut play = Play::new(3);
    for at in 0..50 {
        let name = format!("n{at}");
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status":
            {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        play.api.objects().put_node(&name, node);
    }
    for at in 0..10_000 {
        let name = format!("p{at}");
        let far = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector":
            {"matchLabels": {"app": format!("a{}", at % 300)}}}]);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name,
                "labels": {"app": format!("a{}", at % 300)}},
            "spec": {"affinity": {"podAntiAffinity": {required: far}}, "containers": [{"name": "c", "image": "i",
                "resources": {"requests": {"cpu": "10m"}}}]}});
        play.api.objects().put_pod(&name, pod);
    }
    play.hear(5_000);
    play.state.decide_all();
    play.hear(2_000);
    play.state.decide_all();
    let names: Vec<String> = play.api.objects().pods.keys().cloned().collect();
    for name in names {
        play.api.objects().delete(&name);
    }
    play.settle().await;
    assert!(play.state.queue.uids().is_empty());
    assert!(play.state.cluster.placed_uids().is_empty());
    assert_eq!((play.state.bindings.len(), play.state.tasks.len()), (0, 0));
    for node in play.state.cluster.nodes() {
        assert_eq!((node.usage.pods, node.usage.requested.milli_cpu), (0, 0));
    }
}

/// A pod with a thousand terms is decided on like any other, and its wishes are forgotten with it.
#[tokio::test(start_paused = true)]
async fn a_pod_with_a_thousand_affinity_terms_is_placed_and_forgotten() {
    let mut play = Play::new(4);
    for at in 0..100 {
        let name = format!("n{at}");
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "a"}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        play.api.objects().put_node(&name, node);
    }
    let term = |at: usize, key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": format!("a{at}")}}});
    let far: Vec<Value> = (0..1_000).map(|at| term(at, "kubernetes.io/hostname")).collect();
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for at in 0..99 {
        let name = format!("p{at}");
        let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels":
            {"app": format!("a{at}")}}, "spec": {"nodeName": format!("n{at}"), "containers": [{"name": "c"}]}});
        play.api.objects().put_pod(&name, pod);
    }
    let pod = json!({"metadata": {"name": "shy", "namespace": "default", "uid": "shy"}, "spec":
        {"affinity": {"podAntiAffinity": {required: far}}, "containers": [{"name": "c", "image": "i"}]}});
    play.api.objects().put_pod("shy", pod);
    play.settle().await;
    assert_eq!(
        play.api.objects().bound,
        [("shy".to_owned(), "n99".to_owned())],
        "the only node without them"
    );
    let terms = play.state.cluster.index.sizes();
    play.api.objects().delete("shy");
    play.settle().await;
    assert_eq!((terms.2, play.state.cluster.index.sizes().2), (1_000, 0));
}

/// A plugin that panics costs its pod a back-off, and no other anything.
#[tokio::test(start_paused = true)]
async fn a_plugin_that_panics_stops_nobody_else() {
    let mut play = Play::new(5);
    let node = json!({"metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi",
        "pods": "110"}}});
    play.api.objects().put_node("n0", node);
    let broken = crate::profile::Row { plugin: Arc::new(Broken), weight: 0, filters: true, scores: false };
    play.state.profiles[0].rows.insert(0, broken);
    for name in ["bad", "good", "fine"] {
        let pod = json!({"metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        play.api.objects().put_pod(name, pod);
    }
    play.settle().await;
    let bound: Vec<String> = play.api.objects().bound.iter().map(|(uid, _)| uid.clone()).collect();
    assert_eq!(bound, ["good", "fine"]);
    play.state.profiles[0].rows.remove(0);
    play.pass(Duration::from_secs(2)).await;
    assert_eq!(play.api.objects().bound.last().map(|(uid, _)| uid.clone()).as_deref(), Some("bad"));
}

struct Broken;

impl crate::framework::Plugin for Broken {
    fn name(&self) -> crate::framework::Name {
        crate::framework::Name::NodeName
    }

    fn pre_filter<'a>(&'a self, cycle: crate::framework::Cycle<'a>) -> crate::framework::PreFilter<'a> {
        assert!(*cycle.pod.name != *"bad", "a bug in a plugin");
        crate::framework::PreFilter::Skip
    }
}
