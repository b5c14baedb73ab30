//! What objects take of quotas, and whether there is enough: the arithmetic of `ResourceQuota`.
//!
//! Pure. The API server charges by it, the controller counts by it.
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::pod_resources::{PodResources, QosClass, Requirements};
use crate::quantity::Quantity;
use crate::resources::Resources;
use crate::validate::limits::is_extended;
use crate::{Kind, Part};

/// How objects of a kind are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Not at all.
    Nothing,
    /// They are counted.
    Objects,
    /// By the requests and limits of pods.
    Pods,
    /// By type and ports of services.
    Services,
    /// By the storage that claims ask for.
    VolumeClaims,
    /// By the devices that claims ask for.
    DeviceClaims,
}

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is created.
    Create,
    /// It, or a part of it, is changed.
    Update(Option<Part>),
}

const ONE: Quantity = Quantity::from_integer(1);
const OF_PODS: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Where a quota has one of these, each container has to say how much it wants.
const REQUIRED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
const OF_SERVICES: [&str; 3] = ["services", "services.nodeports", "services.loadbalancers"];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// Kinds that had names of their own before all kinds could be counted.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const BY_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const BY_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// As many devices as a claim can have.
const MOST_DEVICES: i64 = 32;

/// A kind as quotas see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    measure: Measure,
    /// `count/pods`, `count/deployments.apps`.
    counted_as: String,
    alias: Option<&'static str>,
}

impl Measured {
    /// How a kind is measured; `None` if it is not.
    pub fn of(kind: &Kind) -> Option<Measured> {
        let measure = kind.strategy.measure();
        let counts = kind.is_stored() && kind.namespaced && measure != Measure::Nothing;
        counts.then(|| Measured::by(measure, &kind.group, &kind.resource))
    }

    /// How a resource that is only counted is measured.
    pub fn counted(group: &str, resource: &str) -> Measured {
        Measured::by(Measure::Objects, group, resource)
    }

    fn by(measure: Measure, group: &str, resource: &str) -> Measured {
        let dot = if group.is_empty() { "" } else { "." };
        let alias = ALIASES.into_iter().find(|alias| group.is_empty() && *alias == resource);
        Measured { measure, counted_as: format!("count/{resource}{dot}{group}"), alias }
    }

    /// Whether only the number of objects matters.
    pub fn is_plain_count(&self) -> bool {
        self.measure == Measure::Objects
    }

    /// Whether a resource that a quota names is measured by this kind.
    pub fn has(&self, name: &str) -> bool {
        if name == self.counted_as {
            return true;
        }
        match self.measure {
            Measure::Nothing => false,
            Measure::Objects => self.alias == Some(name),
            Measure::Pods => {
                let foreign = name.contains('/') && !name.contains("kubernetes.io/");
                let device =
                    name.strip_prefix("requests.").is_some_and(|rest| rest.starts_with(DEVICE_CLASS));
                OF_PODS.contains(&name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || name.starts_with("requests.") && (foreign || device)
            }
            Measure::Services => OF_SERVICES.contains(&name),
            Measure::VolumeClaims => {
                OF_CLAIMS.contains(&name)
                    || name.split_once(BY_STORAGE_CLASS).is_some_and(|(_, rest)| OF_CLAIMS.contains(&rest))
            }
            Measure::DeviceClaims => name.ends_with(BY_DEVICE_CLASS),
        }
    }

    /// Whether what is done can change what an object takes.
    pub fn minds(&self, act: Act, new: &Value, old: Option<&Value>) -> bool {
        let changes_scope = || old.is_some_and(|old| is_terminating(old) != is_terminating(new));
        match (self.measure, act) {
            (Measure::Nothing, _) => false,
            (_, Act::Create) => true,
            (Measure::Pods, Act::Update(None)) => changes_scope(),
            (Measure::Pods, Act::Update(part)) => part == Some(Part::Resize),
            (Measure::Services | Measure::DeviceClaims, Act::Update(part)) => part.is_none(),
            (Measure::VolumeClaims, Act::Update(part)) => matches!(part, None | Some(Part::Status)),
            (Measure::Objects, Act::Update(_)) => false,
        }
    }

    /// Reads what quotas look at.
    pub fn item(&self, object: &Value, now: Timestamp) -> Item {
        let mut item = Item::default();
        item.usage.set(&self.counted_as, ONE);
        match self.measure {
            Measure::Nothing => {}
            Measure::Objects => {
                if let Some(alias) = self.alias {
                    item.usage.set(alias, ONE);
                }
            }
            Measure::Pods => pod(object, now, &mut item),
            Measure::Services => service(&object["spec"], &mut item.usage),
            Measure::VolumeClaims => claim(object, &mut item),
            Measure::DeviceClaims => devices(&object["spec"]["devices"], &mut item.usage),
        }
        item
    }
}

/// What quotas look at in an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Item {
    /// What it takes.
    pub usage: Resources,
    scopes: Option<Scoped>,
    /// Containers that do not say how much they want, by what they do not say.
    silent: BTreeMap<&'static str, BTreeSet<String>>,
}

/// What scopes ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Scoped {
    Pod { terminating: bool, best_effort: bool, priority_class: Option<String>, across_namespaces: bool },
    Claim { attributes_classes: BTreeSet<String> },
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn nonempty(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Whether a pod still takes something: it has not ended, and its time to end has not run out.
fn is_alive(pod: &Value, now: Timestamp) -> bool {
    let due = || {
        let due: Timestamp = pod["metadata"]["deletionTimestamp"].as_str()?.parse().ok()?;
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64()?;
        due.checked_add(SignedDuration::from_secs(grace)).ok()
    };
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    !ended && due().is_none_or(|due| now <= due)
}

fn pod(pod: &Value, now: Timestamp, item: &mut Item) {
    let spec = &pod["spec"];
    item.scopes = Some(Scoped::Pod {
        terminating: is_terminating(pod),
        best_effort: PodResources::from(spec).qos() == QosClass::BestEffort,
        priority_class: nonempty(&spec["priorityClassName"]).map(str::to_owned),
        across_namespaces: reaches_across(&spec["affinity"]),
    });
    let of_pod = PodResources::from(spec).pod.is_some_and(|own| {
        let known = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
        own.requests.iter().chain(own.limits.iter()).any(|(name, _)| known(name))
    });
    if !of_pod {
        for container in list(&spec["containers"]).iter().chain(list(&spec["initContainers"])) {
            let said = compute(&Requirements::from(&container["resources"]));
            for name in REQUIRED.into_iter().filter(|name| said.get(name).is_none()) {
                let container = container["name"].as_str().unwrap_or_default();
                item.silent.entry(name).or_default().insert(container.to_owned());
            }
        }
    }
    if is_alive(pod, now) {
        let resources = PodResources::in_effect(pod);
        let whole = Requirements { requests: resources.requests(), limits: resources.limits() };
        item.usage.add(&compute(&whole));
    }
}

/// Requests and limits by the names that quotas use.
fn compute(given: &Requirements) -> Resources {
    let mut out = Resources::NONE;
    out.set("pods", ONE);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = given.requests.get(name) {
            out.set(name, *request);
            out.set(&format!("requests.{name}"), *request);
        }
        if let Some(limit) = given.limits.get(name) {
            out.set(&format!("limits.{name}"), *limit);
        }
    }
    for (name, request) in given.requests.iter() {
        let huge = name.starts_with("hugepages-");
        if huge {
            out.set(name, *request);
        }
        if huge || is_extended(name) || name.starts_with(DEVICE_CLASS) {
            out.set(&format!("requests.{name}"), *request);
        }
    }
    out
}

fn reaches_across(affinity: &Value) -> bool {
    let across =
        |term: &Value| !list(&term["namespaces"]).is_empty() || term["namespaceSelector"].is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let side = &affinity[*side];
        list(&side["requiredDuringSchedulingIgnoredDuringExecution"]).iter().any(across)
            || list(&side["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .any(|weighted| across(&weighted["podAffinityTerm"]))
    })
}

fn count(number: usize) -> Quantity {
    Quantity::from_integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn service(spec: &Value, usage: &mut Resources) {
    let ports = list(&spec["ports"]);
    let given = || ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (balancers, node_ports) = match spec["type"].as_str() {
        Some("NodePort") => (0, ports.len()),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (1, given()),
        Some("LoadBalancer") => (1, ports.len()),
        _ => (0, 0),
    };
    usage.set("services", ONE);
    usage.set("services.loadbalancers", count(balancers));
    usage.set("services.nodeports", count(node_ports));
}

fn claim(claim: &Value, item: &mut Item) {
    let usage = &mut item.usage;
    let annotated = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    let class = nonempty(annotated).or_else(|| nonempty(&claim["spec"]["storageClassName"]));
    let mut take = |name: &str, amount: Quantity| {
        usage.set(name, amount);
        if let Some(class) = class {
            usage.set(&format!("{class}{BY_STORAGE_CLASS}{name}"), amount);
        }
    };
    take("persistentvolumeclaims", ONE);
    let storage = |list: &Value| Resources::from(list).get("storage").map(Quantity::rounded_to_whole);
    if let Some(asked) = storage(&claim["spec"]["resources"]["requests"]) {
        let allocated = storage(&claim["status"]["allocatedResources"]);
        take("requests.storage", allocated.filter(|allocated| *allocated > asked).unwrap_or(asked));
    }
    let names = [
        &claim["spec"]["volumeAttributesClassName"],
        &claim["status"]["currentVolumeAttributesClassName"],
        &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let attributes_classes = names.into_iter().filter_map(nonempty).map(str::to_owned).collect();
    item.scopes = Some(Scoped::Claim { attributes_classes });
}

fn devices(devices: &Value, usage: &mut Resources) {
    let asked = |request: &Value| {
        let number = match request["allocationMode"].as_str() {
            Some("ExactCount") => request["count"].as_i64().unwrap_or(0),
            Some("All") => MOST_DEVICES,
            _ => 0,
        };
        let class = request["deviceClassName"].as_str().unwrap_or_default();
        (format!("{class}{BY_DEVICE_CLASS}"), Quantity::from_integer(number))
    };
    for request in list(&devices["requests"]) {
        // Of what is alternatively asked for, the most of each class may come.
        let mut most = Resources::NONE;
        let alternatives = list(&request["firstAvailable"]);
        let exactly = Some(&request["exactly"]).filter(|exactly| exactly.is_object());
        for (name, number) in alternatives.iter().chain(exactly).map(asked) {
            if most.get(&name).is_none_or(|known| number > *known) {
                most.set(&name, number);
            }
        }
        usage.add(&most);
    }
}

/// One condition on the objects that a quota is about.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scope {
    name: String,
    operator: String,
    values: Vec<String>,
}

impl Item {
    fn is_in(&self, scope: &Scope) -> bool {
        match &self.scopes {
            None => false,
            Some(Scoped::Pod { terminating, best_effort, priority_class, across_namespaces }) => {
                match scope.name.as_str() {
                    "Terminating" => *terminating,
                    "NotTerminating" => !terminating,
                    "BestEffort" => *best_effort,
                    "NotBestEffort" => !best_effort,
                    "PriorityClass" => scope.selects(priority_class.as_deref()),
                    "CrossNamespacePodAffinity" => *across_namespaces,
                    _ => false,
                }
            }
            Some(Scoped::Claim { attributes_classes }) if scope.name == "VolumeAttributesClass" => {
                match attributes_classes.is_empty() {
                    true => scope.selects(None),
                    false => attributes_classes.iter().any(|class| scope.selects(Some(class))),
                }
            }
            Some(Scoped::Claim { .. }) => false,
        }
    }
}

impl Scope {
    fn selects(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|listed| listed == value);
        match self.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => value.is_none_or(|value| !listed(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// A quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// What its specification allows.
    pub wanted: Resources,
    /// What its status says is allowed: what is enforced.
    pub hard: Resources,
    /// What its status says is taken.
    pub used: Resources,
    scopes: Vec<Scope>,
}

/// Reads a `ResourceQuota`.
impl From<&Value> for Quota {
    fn from(object: &Value) -> Quota {
        let spec = &object["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = list(&spec["scopes"]).iter().map(|name| Scope {
            name: text(name),
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let selected = list(&spec["scopeSelector"]["matchExpressions"]).iter().map(|one| Scope {
            name: text(&one["scopeName"]),
            operator: text(&one["operator"]),
            values: list(&one["values"]).iter().map(text).collect(),
        });
        Quota {
            name: text(&object["metadata"]["name"]),
            wanted: (&spec["hard"]).into(),
            hard: (&object["status"]["hard"]).into(),
            used: (&object["status"]["used"]).into(),
            scopes: named.chain(selected).collect(),
        }
    }
}

fn masked<'a>(resources: &Resources, names: impl Iterator<Item = &'a str>) -> Resources {
    let mut out = Resources::NONE;
    for name in names {
        if let Some(amount) = resources.get(name) {
            out.set(name, *amount);
        }
    }
    out
}

fn printed(resources: &Resources) -> String {
    resources.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

/// What an object takes beyond what it took before; nothing is given back by a change.
fn beyond(new: &Resources, old: &Resources) -> Resources {
    let mut out = Resources::NONE;
    for (name, amount) in new.iter() {
        let more = old.get(name).map_or(*amount, |before| amount.minus(before));
        if more.is_positive() {
            out.set(name, more);
        }
    }
    out
}

/// A wish to take something of quotas.
#[derive(Debug, Clone)]
pub struct Wish {
    /// How the kind is measured.
    pub measured: Measured,
    /// The object as it is to be.
    pub item: Item,
    /// The object as it was.
    pub old: Option<Item>,
    /// Whether it is only noted: the status of an object is not refused.
    pub noted_only: bool,
}

impl Quota {
    /// Whether the quota is about such an object, by its scopes.
    pub fn covers(&self, item: &Item) -> bool {
        self.scopes.iter().all(|scope| item.is_in(scope))
    }

    /// What a wish takes of this quota, or why it is not granted. Nothing is taken of a quota that it does not concern.
    pub fn grant(&self, wish: &Wish) -> Result<Resources, String> {
        let names: Vec<&str> =
            self.hard.iter().map(|(name, _)| name).filter(|name| wish.measured.has(name)).collect();
        if names.is_empty() || !self.covers(&wish.item) {
            return Ok(Resources::NONE);
        }
        self.check_said(&names, &wish.item)?;
        if names.iter().any(|name| self.used.get(name).is_none()) {
            return Err(format!("status unknown for quota: {}, resources: {}", self.name, names.join(",")));
        }
        let none = Resources::NONE;
        let before = wish.old.as_ref().filter(|old| self.covers(old)).map_or(&none, |old| &old.usage);
        let asked = masked(&beyond(&wish.item.usage, before), self.hard.iter().map(|(name, _)| name));
        let exceeded: Vec<&str> = asked
            .iter()
            .filter(|(name, amount)| {
                let used = self.used.get(name).copied().unwrap_or(Quantity::ZERO);
                self.hard.get(name).is_some_and(|hard| used.plus(amount) > *hard)
            })
            .map(|(name, _)| name)
            .collect();
        if exceeded.is_empty() || wish.noted_only {
            return Ok(asked);
        }
        let shown = |list: &Resources| printed(&masked(list, exceeded.iter().copied()));
        Err(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            self.name,
            shown(&asked),
            shown(&self.used),
            shown(&self.hard)
        ))
    }

    fn check_said(&self, names: &[&str], item: &Item) -> Result<(), String> {
        let missing = item.silent.iter().filter(|(name, _)| names.contains(name));
        let missing: Vec<String> = missing
            .map(|(name, containers)| {
                let containers: Vec<&str> = containers.iter().map(String::as_str).collect();
                format!("{name} for: {}", containers.join(","))
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!("failed quota: {}: must specify {}", self.name, missing.join("; ")))
    }

    /// Takes what was granted.
    pub fn take(&mut self, granted: &Resources) {
        self.used.add(granted);
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, granted: &Resources) {
        for (name, amount) in granted.iter() {
            if let Some(used) = self.used.get(name) {
                let rest = used.minus(amount);
                self.used.set(name, if rest.is_negative() { Quantity::ZERO } else { rest });
            }
        }
    }

    /// The resources that objects of a kind are measured by, of those the quota allows.
    pub fn measured_by<'a>(&'a self, measured: &'a Measured) -> impl Iterator<Item = &'a str> {
        self.wanted.iter().map(|(name, _)| name).filter(|name| measured.has(name))
    }
}

/// Counts what objects take of one quota.
#[derive(Debug)]
pub struct Count<'a> {
    quota: &'a Quota,
    sum: Resources,
}

impl<'a> Count<'a> {
    /// Nothing is counted yet, and nothing known of any resource.
    pub fn of(quota: &'a Quota) -> Self {
        Count { quota, sum: Resources::NONE }
    }

    /// Counts a kind's objects; false if the quota is not about them.
    pub fn begin(&mut self, measured: &Measured) -> bool {
        let names: Vec<&str> = self.quota.measured_by(measured).collect();
        for name in &names {
            if self.sum.get(name).is_none() {
                self.sum.set(name, Quantity::ZERO);
            }
        }
        !names.is_empty()
    }

    /// Counts one object.
    pub fn add(&mut self, item: &Item) {
        if self.quota.covers(item) {
            self.sum.add(&masked(&item.usage, self.quota.wanted.iter().map(|(name, _)| name)));
        }
    }

    /// Counts objects of which only the number matters.
    pub fn add_plain(&mut self, measured: &Measured, number: usize) {
        if self.quota.scopes.is_empty() {
            for name in self.quota.measured_by(measured).collect::<Vec<_>>() {
                let before = self.sum.get(name).copied().unwrap_or(Quantity::ZERO);
                self.sum.set(name, before.plus(&count(number)));
            }
        }
    }

    /// What was counted, for the resources that were asked about.
    pub fn done(self) -> Resources {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn measured(group: &str, resource: &str) -> Measured {
        Measured::of(crate::by_resource(group, "v1", resource).unwrap()).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn wish(resource: &str, object: &Value, old: Option<&Value>) -> Wish {
        let measured = measured("", resource);
        let item = measured.item(object, now());
        Wish { item, old: old.map(|old| measured.item(old, now())), measured, noted_only: false }
    }

    fn quota(hard: Value, used: Value, spec: Value) -> Quota {
        Quota::from(
            &json!({"metadata": {"name": "rq"}, "spec": spec, "status": {"hard": hard, "used": used}}),
        )
    }

    fn pod(resources: Value) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn a_pod_takes_its_requests_and_limits_until_it_has_ended() {
        let mut object =
            pod(json!({"requests": {"cpu": "100m", "hugepages-2Mi": "4Mi", "example.com/gpu": "2"},
            "limits": {"memory": "1Gi"}}));
        let pods = measured("", "pods");
        assert_eq!(
            printed(&pods.item(&object, now()).usage),
            "count/pods=1,cpu=100m,hugepages-2Mi=4Mi,limits.memory=1Gi,pods=1,requests.cpu=100m,requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi"
        );
        object["metadata"] =
            json!({"deletionTimestamp": "2026-01-01T00:00:29Z", "deletionGracePeriodSeconds": 30});
        assert_eq!(printed(&pods.item(&object, now()).usage), "count/pods=1", "its time has run out");
        object["metadata"] =
            json!({"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30});
        assert_eq!(pods.item(&object, now()).usage.value("pods"), 1, "not quite");
        object["status"] = json!({"phase": "Failed"});
        assert_eq!(printed(&pods.item(&object, now()).usage), "count/pods=1");
    }

    #[test]
    fn refusals_say_what_was_asked_used_and_limited() {
        let cpu = quota(
            json!({"pods": "5", "requests.cpu": "1"}),
            json!({"pods": "2", "requests.cpu": "500m"}),
            json!({}),
        );
        let small = wish("pods", &pod(json!({"requests": {"cpu": "500m"}})), None);
        assert_eq!(printed(&cpu.grant(&small).unwrap()), "pods=1,requests.cpu=500m");
        let large = wish("pods", &pod(json!({"requests": {"cpu": "600m"}})), None);
        assert_eq!(
            cpu.grant(&large).unwrap_err(),
            "exceeded quota: rq, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
        );
        let silent = wish("pods", &pod(json!({"requests": {"memory": "1"}})), None);
        assert_eq!(cpu.grant(&silent).unwrap_err(), "failed quota: rq: must specify requests.cpu for: c");
        let young = quota(json!({"pods": "5"}), json!({}), json!({}));
        assert_eq!(young.grant(&small).unwrap_err(), "status unknown for quota: rq, resources: pods");
        let other = quota(json!({"services": "0"}), json!({}), json!({}));
        assert!(other.grant(&small).unwrap().is_empty(), "it is not about pods");
    }

    #[test]
    fn a_change_takes_only_what_is_more() {
        let hard = quota(json!({"cpu": "2"}), json!({"cpu": "1"}), json!({}));
        let (old, new) = (pod(json!({"requests": {"cpu": "1"}})), pod(json!({"requests": {"cpu": "1500m"}})));
        assert_eq!(printed(&hard.grant(&wish("pods", &new, Some(&old))).unwrap()), "cpu=500m");
        assert!(hard.grant(&wish("pods", &old, Some(&new))).unwrap().is_empty());
        let mut taken = hard.clone();
        taken.take(&hard.grant(&wish("pods", &new, Some(&old))).unwrap());
        assert_eq!(printed(&taken.used), "cpu=1500m");
        taken.give_back(&Resources::from(&json!({"cpu": "500m"})));
        assert_eq!(taken.used, hard.used);
    }

    #[test]
    fn scopes_choose_what_a_quota_is_about() {
        let of = |spec: Value| quota(json!({"pods": "0"}), json!({"pods": "0"}), spec);
        let mut object = pod(json!({}));
        object["spec"]["activeDeadlineSeconds"] = 5.into();
        object["spec"]["priorityClassName"] = "high".into();
        object["spec"]["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"podAffinityTerm": {"namespaces": ["x"]}}]}});
        let selector = |operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        for (spec, refused) in [
            (json!({"scopes": ["Terminating", "BestEffort"]}), true),
            (json!({"scopes": ["NotTerminating"]}), false),
            (json!({"scopes": ["NotBestEffort"]}), false),
            (json!({"scopes": ["CrossNamespacePodAffinity"]}), true),
            (json!({"scopes": ["VolumeAttributesClass"]}), false),
            (selector("In", &["low", "high"]), true),
            (selector("NotIn", &["high"]), false),
            (selector("Exists", &[]), true),
            (selector("DoesNotExist", &[]), false),
        ] {
            assert_eq!(of(spec.clone()).grant(&wish("pods", &object, None)).is_err(), refused, "{spec}");
        }
    }

    #[test]
    fn services_claims_and_all_other_objects_are_measured_their_own_way() {
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        assert_eq!(
            printed(&measured("", "services").item(&service, now()).usage),
            "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"
        );
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1.5"}}},
            "status": {"allocatedResources": {"storage": "1"}}});
        assert_eq!(
            printed(&measured("", "persistentvolumeclaims").item(&claim, now()).usage),
            "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/requests.storage=2,persistentvolumeclaims=1,requests.storage=2"
        );
        let devices = json!({"spec": {"devices": {"requests": [
            {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"firstAvailable": [{"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}, {"deviceClassName": "nic", "allocationMode": "All"}]}]}}});
        assert_eq!(
            printed(&measured("resource.k8s.io", "resourceclaims").item(&devices, now()).usage),
            "count/resourceclaims.resource.k8s.io=1,gpu.deviceclass.resource.k8s.io/devices=3,nic.deviceclass.resource.k8s.io/devices=32"
        );
        assert_eq!(
            printed(&measured("", "secrets").item(&json!({}), now()).usage),
            "count/secrets=1,secrets=1"
        );
        assert_eq!(
            printed(&measured("apps", "deployments").item(&json!({}), now()).usage),
            "count/deployments.apps=1"
        );
        assert!(Measured::of(crate::by_resource("", "v1", "events").unwrap()).is_none());
        assert!(Measured::of(crate::by_resource("", "v1", "nodes").unwrap()).is_none());
    }

    #[test]
    fn what_is_there_is_counted_by_scope() {
        let spec =
            json!({"hard": {"pods": "9", "count/configmaps": "9", "cpu": "9"}, "scopes": ["NotTerminating"]});
        let quota = quota(json!({}), json!({}), spec);
        let pods = measured("", "pods");
        let mut count = Count::of(&quota);
        assert!(
            count.begin(&pods)
                && count.begin(&measured("", "configmaps"))
                && !count.begin(&measured("", "secrets"))
        );
        count.add(&pods.item(&pod(json!({"requests": {"cpu": "1"}})), now()));
        let mut terminating = pod(json!({"requests": {"cpu": "1"}}));
        terminating["spec"]["activeDeadlineSeconds"] = 1.into();
        count.add(&pods.item(&terminating, now()));
        count.add_plain(&measured("", "configmaps"), 3);
        assert_eq!(
            printed(&count.done()),
            "count/configmaps=0,cpu=1,pods=1",
            "no config map is in the scope"
        );
    }
}
