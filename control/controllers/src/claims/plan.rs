//! Decides which claims a pod lacks, who uses a claim no longer, and what becomes of the claim then. Pure.

pub(crate) mod taint;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use super::book::Book;
use super::view::{ClaimView, From, Place, PodView, Told, pod_of};

/// Says for which of a pod's claims a claim was made.
pub(crate) const ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps a claim while it has devices.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// What comes before the five random characters in a name that is a label as well.
const LONGEST_BASE: usize = 57;

/// One claim of a pod that comes from a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Generated {
    /// It is there, under this name.
    There { pod_claim: String, name: String },
    /// It is to be made.
    Missing { pod_claim: String, object: Value },
}

/// A claim that is to be reserved for a pod that got its node without the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reservation {
    pub(crate) claim: Place,
    pub(crate) patch: Value,
}

/// What a pod lacks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodPlan {
    /// All its claims from templates, up to one that cannot be made.
    pub(crate) generated: Vec<Generated>,
    /// Whether its status does not name all of them.
    pub(crate) tells: bool,
    pub(crate) reservations: Vec<Reservation>,
    /// The claim that cannot be made, and why.
    pub(crate) trouble: Option<(String, String)>,
}

impl PodPlan {
    fn is_empty(&self) -> bool {
        !self.tells && self.reservations.is_empty() && self.trouble.is_none()
    }
}

/// What a pod lacks, if anything.
///
/// A pod that is done needs no claims; upstream, which asks only whether it is being deleted, makes and reserves them anew.
pub(crate) fn pod(place: &Place, pod: &PodView, book: &Book) -> Option<PodPlan> {
    if pod.deleting || pod.is_done() {
        return None;
    }
    let mut plan = PodPlan::default();
    for claim in &pod.claims {
        let From::Template(template) = &claim.from else { continue };
        let told = match &claim.told {
            Told::NotNeeded => continue,
            Told::Nothing => None,
            Told::Name(name) => Some(name.as_str()),
        };
        let there = told.filter(|name| book.is_made_for(&place.beside(name), &pod.uid));
        let there = there.map(str::to_owned).or_else(|| book.made_for(place, &pod.uid, &claim.name));
        let pod_claim = claim.name.clone();
        if let Some(name) = there {
            plan.tells |= told != Some(&*name);
            plan.generated.push(Generated::There { pod_claim, name });
            continue;
        }
        plan.tells = true;
        let Some(template) = book.template(&place.beside(template)) else {
            let missing = format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            );
            plan.trouble = Some((pod_claim, missing));
            return Some(plan);
        };
        let mut object = made_from(&template, &place.name, &pod.uid, &pod_claim);
        let base = object["metadata"]["generateName"].as_str().unwrap_or_default();
        object["metadata"]["name"] = json!(format!("{base}{}", suffix(&pod.uid, &pod_claim, told)));
        plan.generated.push(Generated::Missing { pod_claim, object });
    }
    if pod.bound {
        plan.reservations = reservations(place, pod, book);
    }
    (!plan.is_empty()).then_some(plan)
}

/// Claims with devices that a pod with a node uses and that nobody reserved for it.
fn reservations(place: &Place, pod: &PodView, book: &Book) -> Vec<Reservation> {
    let mut wanted = Vec::new();
    for (name, owned) in pod.claims.iter().filter_map(|claim| claim.claim()) {
        let at = place.beside(name);
        let Some(claim) = book.claim(&at) else { continue };
        let reserved = claim.reserved.iter().any(|one| one["uid"] == *pod.uid);
        if claim.allocation.is_none() || reserved || owned && claim.controller != pod.uid {
            continue;
        }
        let mut all = claim.reserved.clone();
        all.push(json!({"resource": "pods", "name": place.name, "uid": pod.uid}));
        let patch = json!({"metadata": version(claim, &claim.version), "status": {"reservedFor": all}});
        wanted.push(Reservation { claim: at, patch });
    }
    wanted
}

/// The claim of a pod, made from a template.
fn made_from(template: &Arc<Value>, pod: &str, uid: &str, pod_claim: &str) -> Value {
    let metadata = &template["metadata"];
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(ANNOTATION.to_owned(), json!(pod_claim));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true});
    let mut made = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": base_name(pod, pod_claim),
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    });
    if metadata["labels"].is_object() {
        made["metadata"]["labels"] = metadata["labels"].clone();
    }
    made
}

/// What the name of a pod's claim begins with; of long names each part is shortened alike.
fn base_name(pod: &str, pod_claim: &str) -> String {
    let whole = format!("{pod}-{pod_claim}-");
    if whole.len() <= LONGEST_BASE {
        return whole;
    }
    let part = |name: &str| name.get(..name.len() * LONGEST_BASE / whole.len()).unwrap_or(name).to_owned();
    format!("{}-{}", part(pod), part(pod_claim))
}

/// What stands where upstream has five random characters.
///
/// It follows from the pod and from the claim that went, so that two who make the same claim find each other out: a
/// request that a killed controller sent may arrive after its successor has looked.
fn suffix(uid: &str, pod_claim: &str, lost: Option<&str>) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hasher = DefaultHasher::new();
    (uid, pod_claim, lost).hash(&mut hasher);
    let mut rest = hasher.finish();
    let letter = |_| {
        let at = usize::try_from(rest % 27).unwrap_or_default();
        rest /= 27;
        LETTERS.get(at).map(|letter| char::from(*letter))
    };
    (0..5).filter_map(letter).collect()
}

/// Whether somebody in a claim's `reservedFor` still uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Stays,
    Ends,
    /// No watch has shown this pod: the server must be asked.
    Unknown,
}

/// How it stands with everybody in a claim's `reservedFor`, in order.
pub(crate) fn uses(place: &Place, claim: &ClaimView, book: &Book) -> Vec<Use> {
    let of = |consumer: &Value| {
        // Of others than pods nothing is known here, so they stay.
        let Some((name, uid)) = pod_of(consumer) else { return Use::Stays };
        if book.has_gone(uid) {
            return Use::Ends;
        }
        match book.pod(&place.beside(name)) {
            None => Use::Unknown,
            Some(pod) if pod.uid != uid || pod.is_done() => Use::Ends,
            Some(_) => Use::Stays,
        }
    };
    claim.reserved.iter().map(of).collect()
}

/// What a claim is worth to the pod that it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// There is none, or it is not known, or it may run: the garbage collector does the rest.
    MayNeedIt,
    /// Another pod has its name, or it will not run.
    IsDone,
}

/// How the pod stands that a claim was made for.
pub(crate) fn owner(place: &Place, claim: &ClaimView, book: &Book) -> Owner {
    let Some((name, uid)) = &claim.owner else { return Owner::MayNeedIt };
    match book.pod(&place.beside(name)) {
        Some(pod) if pod.uid != *uid || pod.is_done() => Owner::IsDone,
        _ => Owner::MayNeedIt,
    }
}

/// What becomes of a claim, step by step; each is written only if nobody wrote the claim since the one before.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClaimPlan {
    /// A new status.
    pub(crate) status: Option<Value>,
    /// The finalizers that are left, when one goes.
    pub(crate) finalizers: Option<Vec<String>>,
    /// Whether it goes.
    pub(crate) deletes: bool,
}

/// What becomes of a claim, given who uses it no longer.
pub(crate) fn claim(claim: &ClaimView, uses: &[Use], owner: Owner) -> ClaimPlan {
    let remaining: Vec<&Value> = claim
        .reserved
        .iter()
        .zip(uses)
        .filter_map(|(consumer, one)| (*one != Use::Ends).then_some(consumer))
        .collect();
    let unused = remaining.is_empty();
    let protected = claim.finalizers.iter().any(|one| one == FINALIZER);
    let mut plan =
        ClaimPlan { deletes: unused && owner == Owner::IsDone && !claim.deleting, ..Default::default() };
    let mut allocated = claim.allocation.is_some();
    if remaining.len() < claim.reserved.len() {
        let mut status = json!({"reservedFor": if unused { Value::Null } else { json!(remaining) }});
        if unused && protected {
            // Devices are given back with the last use; who comes next may be elsewhere.
            status["allocation"] = Value::Null;
            allocated = false;
        }
        plan.status = Some(status);
    } else if unused && protected && claim.deleting {
        if allocated {
            plan.status = Some(json!({"allocation": null}));
            allocated = false;
        }
    } else {
        return plan;
    }
    if protected && !allocated {
        let left = claim.finalizers.iter().filter(|one| *one != FINALIZER);
        plan.finalizers = Some(left.cloned().collect());
    }
    plan
}

/// Says that a write is for this claim as it was at a version.
pub(crate) fn version(claim: &ClaimView, version: &str) -> Value {
    json!({"uid": claim.uid, "resourceVersion": version})
}

#[cfg(test)]
mod tests;
