//! What decisions cost: a cluster of any size in memory, without an API server. For `examples/cost.rs`, which prints it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cycle::{Decision, Searcher};
use crate::framework::PostFilter;
use crate::node::NodeFacts;
use crate::pod::PodInfo;
use crate::profile::Profile;

/// What the pods to be decided on ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// CPU and memory.
    Plain,
    /// To be spread over zones and hosts, near one app and far from their like.
    Social,
    /// More than is free anywhere, at a higher priority.
    Preempting,
    /// More than any node has.
    Hopeless,
}

/// What deciding came to.
#[derive(Debug, Clone)]
pub struct Cost {
    /// How long building the cluster took.
    pub building: Duration,
    /// How long each decision took, shortest first.
    pub decisions: Vec<Duration>,
    /// How many found a node, and how many made room.
    pub placed: usize,
    /// How many made room.
    pub preempted: usize,
}

fn pod(name: &str, app: usize, over: &Value) -> Option<Pod> {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": format!("app-{app}")}},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/app:1", "resources":
            {"requests": {"cpu": "100m", "memory": "128Mi"}}}]},
    });
    for (field, value) in over.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).ok()
}

fn wanted(wish: Wish, at: usize) -> Option<Pod> {
    let own = json!({"matchLabels": {"app": format!("app-{}", at % 10)}});
    let requests = |cpu: &str| json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
    let over = match wish {
        Wish::Plain => json!({}),
        Wish::Preempting => json!({"priority": 1000, "containers": requests("3500m")}),
        Wish::Hopeless => json!({"containers": requests("100")}),
        Wish::Social => json!({
            "topologySpreadConstraints": [
                {"maxSkew": 50, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": own},
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                 "labelSelector": own}],
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "app-77"}}}]},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"social": "yes"}}}]}},
        }),
    };
    let mut pod = pod(&format!("new-{at}"), at % 10, &over)?;
    if wish == Wish::Social {
        pod.metadata.labels.get_or_insert_default().insert("social".to_owned(), "yes".to_owned());
    }
    Some(pod)
}

/// Decides on so many pods in a cluster of so many nodes with so many pods on each; `None` if an object cannot be read.
pub fn measure(nodes: usize, pods_per_node: usize, wish: Wish, decisions: usize) -> Option<Cost> {
    let begun = Instant::now();
    let mut cluster = Cluster::default();
    for at in 0..nodes {
        let resources = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
        let labels = json!({"kubernetes.io/hostname": format!("n{at}"),
            "topology.kubernetes.io/zone": format!("z{}", at % 3)});
        let object = json!({"metadata": {"name": format!("n{at}"), "labels": labels}, "status": {"allocatable": resources}});
        let node: Node = serde_json::from_value(object).ok()?;
        cluster.set_node(&format!("n{at}"), NodeFacts::new(&node));
    }
    let node_name = |at: usize| json!({"nodeName": format!("n{}", at % nodes.max(1))});
    for at in 0..nodes * pods_per_node {
        let pod = pod(&format!("p{at}"), at % 200, &node_name(at))?;
        let pod = PodInfo::new(&pod, &mut cluster.templates)?;
        cluster.confirm(pod);
    }
    let building = begun.elapsed();
    let profile = Profile::default_for("default-scheduler");
    let mut searcher = Searcher::default();
    let mut out = Cost { building, decisions: Vec::new(), placed: 0, preempted: 0 };
    for at in 0..decisions {
        let pod = Arc::new(PodInfo::new(&wanted(wish, at)?, &mut cluster.templates)?);
        let begun = Instant::now();
        let decision = searcher.decide(&pod, &mut cluster, &profile);
        match decision {
            Decision::Node { name, .. } => {
                cluster.assume(&pod, &name);
                out.placed += 1;
            }
            Decision::None(_, PostFilter::Victims { node, pods }) => {
                cluster.nominations.promise(&pod, &node);
                cluster.touch();
                pods.iter().for_each(|victim| drop(cluster.remove_pod(&victim.uid)));
                out.preempted += 1;
            }
            Decision::None(..) => {}
        }
        out.decisions.push(begun.elapsed());
    }
    out.decisions.sort_unstable();
    Some(out)
}
