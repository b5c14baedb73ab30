//! What the claim controller keeps of pods, claims and slices. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use podwire_api::owner;
use serde_json::Value;

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Another object of the same namespace.
    pub(crate) fn beside(&self, name: &str) -> Self {
        Self::new(self.namespace.as_str(), name)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Where a claim of a pod comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum From {
    /// Somebody made it under this name.
    Claim(String),
    /// It is made for the pod from this template.
    Template(String),
    /// A way that is not known here.
    Unknown,
}

/// What the pod's status says of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    NotNeeded,
    Name(String),
}

/// One entry of a pod's `resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodClaim {
    pub(crate) name: String,
    pub(crate) from: From,
    pub(crate) told: Told,
}

impl PodClaim {
    /// The name of the claim, if there is one by now, and whether it must have been made for the pod.
    pub(crate) fn claim(&self) -> Option<(&str, bool)> {
        match (&self.from, &self.told) {
            (From::Claim(name), _) => Some((name, false)),
            (From::Template(_), Told::Name(name)) => Some((name, true)),
            _ => None,
        }
    }
}

/// A pod as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PodView {
    pub(crate) uid: String,
    /// Whether it has a node.
    pub(crate) bound: bool,
    pub(crate) deleting: bool,
    pub(crate) terminal: bool,
    pub(crate) claims: Vec<PodClaim>,
    /// The claim that the scheduler made for its extended resources.
    pub(crate) extended: Option<String>,
}

impl PodView {
    pub(crate) fn new(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let statuses =
            status.and_then(|status| status.resource_claim_statuses.as_deref()).unwrap_or_default();
        let spec = pod.spec.as_ref();
        let claims = spec.and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default();
        let told = |name: &str| match statuses.iter().find(|one| one.name == name) {
            None => Told::Nothing,
            Some(status) => status.resource_claim_name.clone().map_or(Told::NotNeeded, Told::Name),
        };
        let read = |claim: &k8s_openapi::api::core::v1::PodResourceClaim| PodClaim {
            told: told(&claim.name),
            name: claim.name.clone(),
            from: match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
                (Some(name), _) => From::Claim(name.clone()),
                (None, Some(name)) => From::Template(name.clone()),
                (None, None) => From::Unknown,
            },
        };
        let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            bound: spec.and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty()),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            terminal: phase == "Succeeded" || phase == "Failed",
            claims: claims.iter().map(read).collect(),
            extended: extended.map(|status| status.resource_claim_name.clone()),
        }
    }

    /// Whether it is certain that none of its containers runs or ever will.
    pub(crate) fn is_done(&self) -> bool {
        self.terminal || self.deleting && !self.bound
    }

    /// The names of all its claims that are known.
    pub(crate) fn claim_names(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter_map(|one| one.claim().map(|(name, _)| name)).chain(self.extended.as_deref())
    }
}

/// A device that a claim was given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    pub(crate) pool: Pool,
    pub(crate) device: String,
    pub(crate) tolerations: Vec<Value>,
}

/// A claim as last seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ClaimView {
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    /// Uid of the controller, whatever that is.
    pub(crate) controller: String,
    /// Name and uid of the pod that it was made for.
    pub(crate) owner: Option<(String, String)>,
    /// Which of the pod's claims it was made for.
    pub(crate) pod_claim: Option<String>,
    /// What it was given, once it was given anything.
    pub(crate) allocation: Option<Vec<Given>>,
    /// Who may use it, each in whatever words.
    pub(crate) reserved: Vec<Value>,
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl ClaimView {
    pub(crate) fn new(claim: &Value) -> Self {
        let metadata = &claim["metadata"];
        let controller = owner::controller(owner::of(claim));
        let made_for = controller.filter(|one| one["apiVersion"] == "v1" && one["kind"] == "Pod");
        let status = &claim["status"];
        let given = |result: &Value| Given {
            pool: Pool { driver: text(result, "driver"), name: text(result, "pool") },
            device: text(result, "device"),
            tolerations: items(&result["tolerations"]).to_vec(),
        };
        let allocation = status["allocation"].as_object();
        Self {
            uid: text(metadata, "uid"),
            version: text(metadata, "resourceVersion"),
            deleting: metadata["deletionTimestamp"].is_string(),
            finalizers: texts(&metadata["finalizers"]),
            controller: controller.map(|one| text(one, "uid")).unwrap_or_default(),
            owner: made_for.map(|one| (text(one, "name"), text(one, "uid"))),
            pod_claim: metadata["annotations"][super::plan::ANNOTATION].as_str().map(str::to_owned),
            allocation: allocation
                .map(|_| items(&status["allocation"]["devices"]["results"]).iter().map(given).collect()),
            reserved: items(&status["reservedFor"]).to_vec(),
        }
    }

    /// The pods that may use it, by name and uid.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&str, &str)> {
        self.reserved.iter().filter_map(pod_of)
    }
}

/// Name and uid of a consumer that is a pod.
pub(crate) fn pod_of(consumer: &Value) -> Option<(&str, &str)> {
    let field = |name: &str| consumer[name].as_str().unwrap_or_default();
    (field("apiGroup").is_empty() && field("resource") == "pods").then(|| (field("name"), field("uid")))
}

/// A pool of devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pool {
    pub(crate) driver: String,
    pub(crate) name: String,
}

/// The taints of devices that drive pods out.
pub(crate) type Tainted = BTreeMap<String, Vec<Value>>;

/// A slice of a pool as last seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SliceView {
    pub(crate) pool: Pool,
    pub(crate) generation: i64,
    pub(crate) tainted: Tainted,
}

impl SliceView {
    pub(crate) fn new(slice: &Value) -> Self {
        let spec = &slice["spec"];
        let drives_out = |taint: &&Value| taint["effect"] == "NoExecute";
        let tainted = items(&spec["devices"]).iter().filter_map(|device| {
            let taints: Vec<Value> = items(&device["taints"]).iter().filter(drives_out).cloned().collect();
            (!taints.is_empty()).then(|| (text(device, "name"), taints))
        });
        Self {
            pool: Pool { driver: text(spec, "driver"), name: text(&spec["pool"], "name") },
            generation: spec["pool"]["generation"].as_i64().unwrap_or_default(),
            tainted: tainted.collect(),
        }
    }
}
