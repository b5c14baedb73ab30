//! Claims of devices: how many a second are allocated and their pods bound, ours beside kube-scheduler, one after the other
//! on one API server of ours; and what claims add to a pod's start, on our node and on upstream's.
//!
//! Claims are made beforehand, or from a template by the controllers that start together with the scheduler: ours, or
//! kube-controller-manager. Pods are there before. Sizes are words: `make bench WHAT="claims nodes=5000 claims=10000"`. Each
//! wait ends after `seconds`, rates are then of what was done so far. `only=ours` leaves upstream's out, `starts=0` the
//! starts of pods.

mod driver;
mod starts;

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use podwire_testkit::{
    claims::Beside,
    node::{Node, bin_dir, peer},
    stack::{Ours, Stack},
    upstream::Peer,
};
use serde_json::{Value, json};

use crate::{
    report::{self, Row},
    scheduler::{
        Burst, Sizes,
        process::Which,
        world::{World, pod, pods_of, request},
    },
};

/// Devices of a node.
const DEVICES: usize = 8;
const DRIVER: &str = "gpu.example.com";

/// What was asked for.
struct Wishes {
    nodes: usize,
    claims: usize,
    templates: usize,
    starts: usize,
    patience: Duration,
    upstream: bool,
}

impl Wishes {
    fn read(words: &[String]) -> Result<Wishes> {
        let patience = Duration::from_secs(60);
        let mut wishes =
            Wishes { nodes: 500, claims: 2_000, templates: 1_000, starts: 30, patience, upstream: true };
        for word in words {
            let (name, value) = word.split_once('=').with_context(|| format!("{word:?} is no name=value"))?;
            let number = || value.parse::<usize>().with_context(|| format!("{word:?} has no number"));
            match name {
                "nodes" => wishes.nodes = number()?.max(1),
                "claims" => wishes.claims = number()?.max(2),
                "templates" => wishes.templates = number()?,
                "starts" => wishes.starts = number()?,
                "seconds" => wishes.patience = Duration::from_secs(number()? as u64),
                "only" if value == "ours" => wishes.upstream = false,
                _ => bail!("{word:?}: there are nodes, claims, templates, starts, seconds and only=ours"),
            }
        }
        if wishes.claims.max(wishes.templates) > wishes.nodes * DEVICES {
            bail!("{} nodes have {} devices", wishes.nodes, wishes.nodes * DEVICES);
        }
        Ok(wishes)
    }
}

/// Measures ours, then upstream's when it is built, and prints the tables.
pub fn run(words: &[String]) -> Result<()> {
    let wishes = Wishes::read(words)?;
    let built = ["kube-scheduler", "kube-controller-manager"].iter().all(|name| peer(name).is_ok());
    if wishes.upstream && !built {
        println!("(the peers are not built: `make peers` puts kube-scheduler beside)");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        allocated(&wishes, wishes.upstream && built).await?;
        if wishes.starts > 0 {
            started(&wishes).await?;
        }
        println!("load of the machine: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
        Ok(())
    })
}

/// Where the claims of a round come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// They are there before the scheduler.
    Beforehand,
    /// The controllers make them while it runs.
    Template,
}

/// The figures of one scheduler; templates with controllers beside.
struct Figures {
    beforehand: Burst,
    template: Option<Burst>,
}

async fn allocated(wishes: &Wishes, upstream: bool) -> Result<()> {
    println!("{} nodes of {DEVICES} devices ...", wishes.nodes);
    let begun = Instant::now();
    let world = World::make(Sizes::empty(wishes.nodes, wishes.patience)).await?;
    furnish(&world, wishes.nodes).await?;
    println!("  made in {:.1} s; API server {:.0} MB", begun.elapsed().as_secs_f64(), world.server.pss()?);
    let ours = Figures::of(&world, wishes, Which::Ours).await?;
    let theirs = if upstream { Some(Figures::of(&world, wishes, Which::Upstream).await?) } else { None };
    let target = if wishes.nodes > 500 { 500.0 } else { 1_000.0 };
    let mut rows =
        rows_of("claims made beforehand", &ours, theirs.as_ref(), |f| Some(&f.beforehand), Some(target));
    rows.extend(rows_of("claims from templates", &ours, theirs.as_ref(), |f| f.template.as_ref(), None));
    report::print(&rows);
    Ok(())
}

fn rows_of(
    what: &str,
    ours: &Figures,
    theirs: Option<&Figures>,
    choose: fn(&Figures) -> Option<&Burst>,
    target: Option<f64>,
) -> Vec<Row> {
    let Some(own) = choose(ours) else { return Vec::new() };
    let beside = theirs.and_then(choose);
    let less = |what: &str, unit: &'static str, read: fn(&Burst) -> f64| {
        Row::new(what, unit, read(own), beside.map(read), None)
    };
    vec![
        Row::rate(&format!("{what}: allocated, pods bound"), "/s", own.rate, beside.map(|b| b.rate), target),
        less("  start of the processes to first binding", "s", |b| b.first),
        less("  decision p50", "ms", |b| b.decisions.p50),
        less("  decision p99", "ms", |b| b.decisions.p99),
        less("  scheduler CPU each", "ms", |b| b.cpu),
    ]
}

impl Figures {
    async fn of(world: &World, wishes: &Wishes, which: Which) -> Result<Figures> {
        println!("{which} ...");
        let beforehand = round(world, which, Source::Beforehand, wishes.claims).await?;
        let template = match wishes.templates {
            0 | 1 => None,
            count => Some(round(world, which, Source::Template, count).await?),
        };
        Ok(Figures { beforehand, template })
    }
}

/// Makes claims or their template, and pods, lets them be bound, and takes everything away again.
async fn round(world: &World, which: Which, source: Source, count: usize) -> Result<Burst> {
    let what = format!("{source:?}");
    let space = world.space(which, &what).await?;
    let endpoint = &world.server.endpoint;
    let claims = format!("/apis/resource.k8s.io/v1/namespaces/{space}/resourceclaims");
    match source {
        Source::Beforehand => {
            let one = |at: usize| {
                object("ResourceClaim", json!({"name": format!("c{at}")}), json!({"devices": asked_for()}))
            };
            world.many(count, |at| request(endpoint, "POST", &claims, &one(at))).await?;
        }
        Source::Template => {
            let spec = json!({"spec": {"devices": asked_for()}});
            let template = object("ResourceClaimTemplate", json!({"name": "t"}), spec);
            world.post(&claims.replace("resourceclaims", "resourceclaimtemplates"), &template).await?;
        }
    }
    world.many(count, |at| request(endpoint, "POST", &pods_of(&space), &claiming(at, source))).await?;
    let mut bound = world.bound(&space).await?;
    let folder = tempfile::Builder::new().prefix("podwire-bench-").tempdir()?;
    let controllers = match source {
        Source::Beforehand => None,
        Source::Template => Some(controllers(which, folder.path(), &world.server.kubeconfig)?),
    };
    let burst = Burst::of(world, which, &what, &mut bound, count).await;
    let said = controllers.as_ref().map_or(String::new(), Peer::log_tail);
    drop(controllers);
    let burst = burst.with_context(|| said)?;
    world.clear(&space).await?;
    // Nobody is there who would give devices back.
    let held: Vec<Value> = world.list(&claims).await?;
    world
        .many(held.len(), |at| {
            let mut metadata = held[at]["metadata"].clone();
            metadata["finalizers"].take();
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            let claim = object("ResourceClaim", metadata, held[at]["spec"].clone());
            request(endpoint, "PUT", &format!("{claims}/{name}"), &claim)
        })
        .await?;
    world.clear_of(&claims).await?;
    Ok(burst)
}

/// The controllers of either side.
fn controllers(which: Which, folder: &Path, kubeconfig: &Path) -> Result<Peer> {
    match which {
        Which::Ours => {
            let mut command = Command::new(bin_dir().join("podwire"));
            command.arg("controllers").arg("--kubeconfig").arg(kubeconfig);
            command.env("PODWIRE_TRACE_DIR", folder.join("trace"));
            Peer::start("podwire-controllers", folder, &mut command)
        }
        Which::Upstream => {
            let mut command = Command::new(peer("kube-controller-manager")?);
            command.arg(format!("--kubeconfig={}", kubeconfig.display())).args([
                &format!("--flex-volume-plugin-dir={}", folder.join("flex-volume").display()),
                "--controllers=resourceclaim-controller",
                "--leader-elect=false",
                "--secure-port=0",
                // Its default of 20 requests per second would be measured, not it.
                "--kube-api-qps=5000",
                "--kube-api-burst=5000",
            ]);
            Peer::start("kube-controller-manager", folder, &mut command)
        }
    }
}

/// The class, and a slice of devices for each node.
async fn furnish(world: &World, nodes: usize) -> Result<()> {
    let endpoint = &world.server.endpoint;
    let text = format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].model == 'x'");
    let class =
        object("DeviceClass", json!({"name": "gpu"}), json!({"selectors": [{"cel": {"expression": text}}]}));
    world.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await?;
    world
        .many(nodes, |at| request(endpoint, "POST", "/apis/resource.k8s.io/v1/resourceslices", &slice(at)))
        .await
}

fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

fn slice(node: usize) -> Value {
    let device = |at: usize| {
        json!({"name": format!("gpu-{at}"), "capacity": {"memory": {"value": "80Gi"}}, "attributes":
            {"model": {"string": "x"}, "index": {"int": at}, "firmware": {"version": "1.2.3"}}})
    };
    let devices: Vec<Value> = (0..DEVICES).map(device).collect();
    let name = format!("n{node}");
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    object(
        "ResourceSlice",
        json!({"name": format!("{name}-gpu")}),
        json!({"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}),
    )
}

/// One device of the class that an expression of the claim's own chooses.
fn asked_for() -> Value {
    let own = format!("device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0");
    let exactly = json!({"deviceClassName": "gpu", "selectors": [{"cel": {"expression": own}}]});
    json!({"requests": [{"name": "r", "exactly": exactly}]})
}

fn claiming(at: usize, source: Source) -> Value {
    let mut pod = pod(&format!("w{at}"), 0);
    pod["spec"]["resourceClaims"] = match source {
        Source::Beforehand => json!([{"name": "gpu", "resourceClaimName": format!("c{at}")}]),
        Source::Template => json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]),
    };
    pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
    pod
}

/// What claims add to a pod's start, on our node and on upstream's participants.
async fn started(wishes: &Wishes) -> Result<()> {
    println!("{} pods with each number of claims, on our node ...", wishes.starts);
    let node = Node::up(&[])?;
    let beside = Beside::of_node(&node)?;
    let ours = starts::measure(&beside.kubeconfig, &beside.kubelet, wishes.starts).await?;
    node.down()?;
    let theirs = if wishes.upstream && crate::upstream::is_built() {
        println!("on upstream's ...");
        let stack = Stack::start(Ours::NONE)?;
        Some(starts::measure(&stack.kubeconfig(), &stack.kubelet_root(), wishes.starts).await?)
    } else {
        None
    };
    let row = |what: &str, target: Option<f64>, read: fn(&starts::Figures) -> f64| {
        Row::new(what, "ms", read(&ours), theirs.as_ref().map(read), target)
    };
    report::print(&[
        row("a pod's start without a claim, p50", None, |f| f[0]),
        row("with one claim", None, |f| f[1]),
        row("  it adds", Some(10.0), |f| f[1] - f[0]),
        row("with eight claims", None, |f| f[2]),
        row("  they add", Some(15.0), |f| f[2] - f[0]),
    ]);
    Ok(())
}
