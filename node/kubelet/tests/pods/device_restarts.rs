//! Devices over restarts of pod, kubelet, plugin and node, in every combination and order, with a second pod caught
//! wherever its devices may be on their way: no device is two pods', none is lost, and what runs goes on.

use std::{collections::BTreeSet, fs, path::PathBuf};

use podwire_wire::cri::ContainerState;

use crate::{
    cluster::Cluster,
    devices::{GPU, env, health, wants},
    plugin::Plugin,
};

const DEVICES: [&str; 3] = ["g0", "g1", "g2"];

/// What goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// The container of the pod that runs ends.
    Pod,
    /// The kubelet is killed.
    Kubelet,
    /// The plugin goes.
    Plugin,
    /// The power goes, and everything with it.
    Node,
}

/// Where the second pod is at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// Nothing is reserved yet.
    Preference,
    /// Reserved and written down.
    Reserved,
    /// The plugin was asked and has not answered.
    Allocate,
    /// The plugin has answered, and that is not written down.
    Checkpoint,
    /// It is written down.
    PreStart,
    /// The runtime was asked for the container.
    Create,
}

const POINTS: [Point; 6] =
    [Point::Preference, Point::Reserved, Point::Allocate, Point::Checkpoint, Point::PreStart, Point::Create];

/// One run: what goes down in which order while the second pod is where, and whether the plugin comes back first.
#[derive(Debug)]
struct Case {
    downs: Vec<Part>,
    point: Point,
    plugin_first: bool,
}

/// Every order of every combination. The points take turns, so that each kind of order meets each of them.
fn cases() -> Vec<Case> {
    let parts = [Part::Pod, Part::Kubelet, Part::Plugin, Part::Node];
    let mut orders: Vec<Vec<Part>> = vec![Vec::new()];
    let mut from = 0;
    while from < orders.len() {
        let longer = parts.iter().filter(|part| !orders[from].contains(part));
        let longer: Vec<Vec<Part>> =
            longer.map(|part| [orders[from].as_slice(), &[*part]].concat()).collect();
        orders.extend(longer);
        from += 1;
    }
    let both = |order: &[Part]| {
        order.contains(&Part::Node) || (order.contains(&Part::Kubelet) && order.contains(&Part::Plugin))
    };
    let mut cases = Vec::new();
    for downs in orders.into_iter().filter(|order| !order.is_empty()) {
        let comings: &[bool] = if both(&downs) { &[false, true] } else { &[false] };
        for plugin_first in comings {
            let point = POINTS[cases.len() % POINTS.len()];
            cases.push(Case { downs: downs.clone(), point, plugin_first: *plugin_first });
        }
    }
    // The kubelet killed at each point, whatever the turns gave it.
    cases.extend(POINTS.map(|point| Case { downs: vec![Part::Kubelet], point, plugin_first: false }));
    cases
}

/// The node that all this happens to.
struct Bed {
    cluster: Cluster,
    plugin: Option<Plugin>,
    kubelet: bool,
    /// The checkpoint as it was before the plugin answered.
    before: Option<Vec<u8>>,
}

impl Bed {
    fn checkpoint(&self) -> PathBuf {
        self.cluster.plugins().join("kubelet_internal_checkpoint")
    }

    fn start_kubelet(&mut self) {
        self.cluster
            .start_kubelet_apart(|config| config.devices.deadline = std::time::Duration::from_secs(10));
        self.kubelet = true;
    }

    fn well_behaved(&self) {
        self.cluster.fake.release();
        if let Some(plugin) = &self.plugin {
            plugin.let_all_go();
        }
    }

    /// A plugin that serves; it registers when there is a kubelet to register with.
    fn serve_plugin(&mut self) {
        let socket = self.cluster.plugins().join("gpu.sock");
        fs::remove_file(&socket).ok();
        let devices = DEVICES.map(crate::plugin::device).to_vec();
        let plugin = Plugin::serve(&self.cluster.fake, socket, GPU, devices);
        plugin.behave(|manners| {
            manners.options.pre_start_required = true;
            manners.options.get_preferred_allocation_available = true;
        });
        self.plugin = Some(plugin);
    }

    /// A kubelet that starts clears the folder before it serves.
    async fn kubelet_serves(&self) {
        self.cluster
            .eventually("the kubelet serves plugins", || async {
                std::os::unix::net::UnixStream::connect(self.cluster.plugins().join("kubelet.sock")).is_ok()
            })
            .await;
    }

    async fn register(&mut self) {
        self.kubelet_serves().await;
        // A plugin sees that its socket was cleared away and serves anew, as real ones do.
        if !self.cluster.plugins().join("gpu.sock").exists() {
            self.stop_plugin().await;
            self.serve_plugin();
        }
        self.plugin.as_ref().unwrap().register().await;
    }

    async fn stop_plugin(&mut self) {
        if let Some(plugin) = self.plugin.take() {
            plugin.stop().await;
        }
    }

    /// How often a call was made or hung so far.
    fn count(&self, call: &str) -> usize {
        self.cluster.fake.calls(call)
    }

    async fn reached(&self, call: &str, before: usize) {
        self.cluster.eventually(call, || async { self.count(call) > before }).await;
    }

    /// Creates the second pod and returns when it is where it is to be caught.
    async fn bring_to(&mut self, point: Point) {
        let plugin = self.plugin.as_ref().unwrap();
        let (call, hangs_at) = match point {
            Point::Preference => ("prefer", Some("prefer")),
            Point::Reserved => ("hangs run_pod_sandbox", None),
            Point::Allocate | Point::Checkpoint => ("allocate", Some("allocate")),
            Point::PreStart => ("prestart", Some("prestart")),
            Point::Create => ("hangs create_container", None),
        };
        let before = self.count(call);
        match hangs_at {
            Some(hang) => plugin.behave(|manners| manners.hangs.extend([hang])),
            None => {
                let hang = call.strip_prefix("hangs ").unwrap();
                let hang = ["run_pod_sandbox", "create_container"].into_iter().find(|known| *known == hang);
                self.cluster.fake.world.lock().unwrap().hangs.insert(hang.unwrap());
            }
        }
        self.cluster.create("second", wants("1")).await;
        self.reached(call, before).await;
        if point == Point::Checkpoint {
            self.before = Some(fs::read(self.checkpoint()).unwrap());
            let before = self.count("prestart");
            self.plugin.as_ref().unwrap().behave(|manners| {
                manners.hangs.insert("prestart");
            });
            self.plugin.as_ref().unwrap().let_go("allocate");
            self.reached("prestart", before).await;
        }
    }

    async fn kill_kubelet(&mut self) {
        self.cluster.kill_kubelet().await;
        // One that died before it wrote down what the plugin answered has left the file as it was before.
        if let Some(before) = self.before.take().filter(|_| self.kubelet) {
            fs::write(self.checkpoint(), before).unwrap();
        }
        self.kubelet = false;
    }

    async fn down(&mut self, part: Part) {
        match part {
            Part::Pod => {
                let running = self.running("first");
                if running.is_some() {
                    self.cluster.fake.end_of("first", 1);
                }
            }
            Part::Kubelet => {
                self.kill_kubelet().await;
            }
            Part::Plugin => self.stop_plugin().await,
            Part::Node => {
                self.kill_kubelet().await;
                self.stop_plugin().await;
                self.cluster.fake.reboot();
                // What was allocated belongs to the boot that is over.
                let text = fs::read_to_string(self.checkpoint()).unwrap();
                let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
                file["BootID"] = "another".into();
                fs::write(self.checkpoint(), file.to_string()).unwrap();
            }
        }
    }

    async fn up(&mut self, plugin_first: bool) {
        self.well_behaved();
        if self.plugin.is_none() && plugin_first {
            self.serve_plugin();
        }
        let restarted = !self.kubelet;
        if restarted {
            self.start_kubelet();
        }
        if self.plugin.is_none() {
            self.kubelet_serves().await;
            self.serve_plugin();
            self.register().await;
        } else if restarted {
            self.register().await;
        }
    }

    /// What the running container of a pod was given. At no time has another one the same.
    fn running(&self, pod: &str) -> Option<String> {
        let world = self.cluster.fake.world.lock().unwrap();
        let running = world.containers.values().filter(|made| made.state == ContainerState::ContainerRunning);
        let given: Vec<(String, String)> = running
            .filter_map(|made| {
                let of = &world.sandboxes.get(&made.sandbox)?.config;
                Some((of.metadata.as_ref()?.name.clone(), env(&made.config, "GPU")?))
            })
            .collect();
        let all: Vec<&str> = given.iter().flat_map(|(_, ids)| ids.split(',')).collect();
        let different: BTreeSet<&&str> = all.iter().collect();
        assert_eq!(all.len(), different.len(), "a device of two containers: {given:?}");
        given.into_iter().find(|(name, _)| name == pod).map(|(_, ids)| ids)
    }

    async fn run(&mut self, case: &Case) {
        self.cluster.create("first", wants("1")).await;
        let first = health(&self.cluster.running("first").await)[0].0.clone();
        let asked = format!("allocate {GPU} {first}");
        let (allocated, stopped) = (self.cluster.calls_like(&asked).len(), self.count("stop_container"));
        let sandboxes = self.sandboxes_of("first");
        self.bring_to(case.point).await;
        for part in &case.downs {
            self.down(*part).await;
        }
        self.before = None;
        self.up(case.plugin_first).await;
        self.cluster
            .eventually(&format!("both run: {case:?}"), || async {
                self.running("first").is_some() && self.running("second").is_some()
            })
            .await;
        assert_eq!(self.running("first").unwrap(), first, "{case:?}: the first keeps its device");
        assert_eq!(self.count("stop_container"), stopped, "{case:?}: nothing was stopped");
        let rebooted = case.downs.contains(&Part::Node);
        let allocated = self.cluster.calls_like(&asked).len() - allocated;
        assert_eq!(allocated, usize::from(rebooted), "{case:?}: asked again only after the node's restart");
        if !rebooted {
            assert_eq!(self.sandboxes_of("first"), sandboxes, "{case:?}: its sandbox stays");
        }
        self.cluster.clear(&["first", "second"]).await;
        // None is lost: one pod gets all of them.
        self.cluster.create("all", wants("3")).await;
        self.cluster.running("all").await;
        self.cluster.clear(&["all"]).await;
    }

    fn sandboxes_of(&self, pod: &str) -> Vec<String> {
        let world = self.cluster.fake.world.lock().unwrap();
        let own =
            world.sandboxes.iter().filter(|(_, held)| held.config.metadata.as_ref().unwrap().name == pod);
        own.map(|(id, _)| id.clone()).collect()
    }
}

/// Every order that begins with `first`, on one node.
async fn survive(first: Part) {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.downs[0] == first).collect();
    assert!(cases.len() > 20, "{}", cases.len());
    let cluster = Cluster::without_kubelet().await;
    let mut bed = Bed { cluster, plugin: None, kubelet: false, before: None };
    fs::create_dir_all(bed.cluster.plugins()).unwrap();
    bed.up(false).await;
    bed.cluster.has(GPU, "3", "3").await;
    for case in &cases {
        bed.run(case).await;
    }
    bed.stop_plugin().await;
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_survive_every_order_of_restarts_that_begins_with_the_pod() {
    survive(Part::Pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_survive_every_order_of_restarts_that_begins_with_the_kubelet() {
    survive(Part::Kubelet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_survive_every_order_of_restarts_that_begins_with_the_plugin() {
    survive(Part::Plugin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_survive_every_order_of_restarts_that_begins_with_the_node() {
    survive(Part::Node).await;
}
