//! Which claims a pod means, whether it may use them, and which of their devices a container sees. Pure.
//!
//! The sentences are upstream's. <https://github.com/kubernetes/kubernetes/tree/master/staging/src/k8s.io/dynamic-resource-allocation/resourceclaim>

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{Container, Pod, PodResourceClaim},
    resource::v1::ResourceClaim,
};
use podwire_api::owner;

use super::book::{Exclusive, Wanted};
use crate::spec;

/// Why a pod cannot have a claim, whatever drivers do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    /// The claim controller has not made it yet.
    #[error("pod \"{namespace}/{pod}\": ResourceClaim not created yet")]
    NotCreated { namespace: String, pod: String },
    /// The pod says neither which claim nor from which template.
    #[error("pod \"{namespace}/{pod}\", spec.resourceClaim {claim:?}: none of the supported fields are set")]
    Unsupported { namespace: String, pod: String, claim: String },
    /// No object can have this name.
    #[error("{name:?} is not the name of a ResourceClaim")]
    Name { name: String },
    /// It is another pod's.
    #[error("ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod} (Pod is not owner)")]
    Owner { namespace: String, name: String, pod: String },
    /// It is not reserved for the pod.
    #[error("pod {pod} ({uid}) is not allowed to use ResourceClaim {name} ({claim})")]
    NotReserved { pod: String, uid: String, name: String, claim: String },
    /// It has no devices.
    #[error("ResourceClaim {name}: not allocated")]
    NotAllocated { name: String },
}

/// A claim that a pod names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// Whether it was made for the pod, which must own it then.
    pub(crate) owned: bool,
}

/// The claims of a pod, each once; those that need not exist are left out.
pub(crate) fn named(pod: &Pod) -> Result<Vec<Named>, ResolveError> {
    let mut all: Vec<Named> = Vec::new();
    let own = spec::spec(pod).resource_claims.iter().flatten().map(|claim| name_of(pod, claim));
    let extended = extended(pod).map(|name| Ok(Some(Named { name: name.to_owned(), owned: false })));
    for named in own.chain(extended) {
        let Some(named) = named? else { continue };
        if !is_name(&named.name) {
            return Err(ResolveError::Name { name: named.name });
        }
        match all.iter_mut().find(|known| known.name == named.name) {
            Some(known) => known.owned |= named.owned,
            None => all.push(named),
        }
    }
    Ok(all)
}

/// Whether the pod uses claims at all.
pub(crate) fn any(pod: &Pod) -> bool {
    spec::spec(pod).resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
        || extended(pod).is_some()
}

/// The claim that stands for extended resources.
fn extended(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?.extended_resource_claim_status.as_ref()?;
    Some(status.resource_claim_name.as_str())
}

/// It becomes part of a path.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.chars().all(plain)
}

fn name_of(pod: &Pod, claim: &PodResourceClaim) -> Result<Option<Named>, ResolveError> {
    let reference = || (pod_namespace(pod).to_owned(), pod_name(pod).to_owned());
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some(Named { name: name.clone(), owned: false }));
    }
    let (namespace, pod_name) = reference();
    if claim.resource_claim_template_name.is_none() {
        return Err(ResolveError::Unsupported { namespace, pod: pod_name, claim: claim.name.clone() });
    }
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match statuses.into_iter().find(|status| status.name == claim.name) {
        Some(status) => {
            Ok(status.resource_claim_name.as_ref().map(|name| Named { name: name.clone(), owned: true }))
        }
        None => Err(ResolveError::NotCreated { namespace, pod: pod_name }),
    }
}

fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub(crate) fn pod_namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// What is to be prepared of a claim, if the pod may use it.
pub(crate) fn check(pod: &Pod, named: &Named, claim: &ResourceClaim) -> Result<Wanted, ResolveError> {
    let (name, namespace) = (named.name.clone(), pod_namespace(pod).to_owned());
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    if named.owned {
        let controller = owner::controller(claim.metadata.owner_references.iter().flatten());
        if controller.is_none_or(|owner| owner.uid != spec::uid(pod)) {
            return Err(ResolveError::Owner { namespace, name, pod: pod_name(pod).to_owned() });
        }
    }
    let status = claim.status.clone().unwrap_or_default();
    if !status.reserved_for.iter().flatten().any(|user| user.uid == spec::uid(pod)) {
        let (pod, pod_uid) = (pod_name(pod).to_owned(), spec::uid(pod).to_owned());
        return Err(ResolveError::NotReserved { pod, uid: pod_uid, name, claim: uid });
    }
    let Some(allocation) = status.allocation else { return Err(ResolveError::NotAllocated { name }) };
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    // Administrators look at devices that others use, and shares of a device are several claims'.
    let alone = results.iter().filter(|one| one.admin_access != Some(true) && one.share_id.is_none());
    let exclusive = alone.map(|one| Exclusive {
        driver: one.driver.clone(),
        pool: one.pool.clone(),
        device: one.device.clone(),
    });
    Ok(Wanted {
        key: (namespace, name),
        uid,
        exclusive: exclusive.collect(),
        drivers: results.iter().map(|one| one.driver.clone()).collect(),
    })
}

/// A claim of a container, as it names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// The claim's name in the pod; none for the one that stands for extended resources.
    pub(crate) as_name: Option<String>,
    /// The claim's own name.
    pub(crate) claim: String,
    /// Which of its requests; empty: all.
    pub(crate) request: String,
}

/// Which requests of which claims a container uses.
pub(crate) fn used(pod: &Pod, container: &Container) -> Result<Vec<Used>, ResolveError> {
    let mut all = Vec::new();
    let wants = container.resources.as_ref().and_then(|all| all.claims.as_deref()).unwrap_or_default();
    for claim in spec::spec(pod).resource_claims.iter().flatten() {
        let requests = wants.iter().filter(|want| want.name == claim.name).map(|want| &want.request);
        for request in requests {
            let Some(named) = name_of(pod, claim)? else { continue };
            all.push(Used {
                as_name: Some(claim.name.clone()),
                claim: named.name,
                request: request.clone().unwrap_or_default(),
            });
        }
    }
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    if let Some(status) = status {
        let own = status.request_mappings.iter().filter(|mapping| mapping.container_name == container.name);
        all.extend(own.map(|mapping| Used {
            as_name: None,
            claim: status.resource_claim_name.clone(),
            request: mapping.request_name.clone(),
        }));
    }
    Ok(all)
}

/// Extended resources of a container that a claim stands for, so that no device plugin is asked for them.
pub(crate) fn covered(pod: &Pod) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    for mapping in status.iter().flat_map(|status| &status.request_mappings) {
        all.entry(&mapping.container_name).or_default().insert(&mapping.resource_name);
    }
    all
}

#[cfg(test)]
mod tests;
