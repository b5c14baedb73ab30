//! What a pod's claims are to others: devices of containers, the health of these, and what agents on the node are told.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceHealth, ResourceStatus};
use podwire_wire::{
    cri,
    ids::ContainerName,
    pod_resources::{CdiDevice, ClaimResource, DynamicResource},
};
use tokio::time::Instant;

use super::{
    Claims,
    book::{Device, Entry},
    health::Condition,
    resolve::{self, ResolveError},
};
use crate::spec;

/// Why a container's devices are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GivenError {
    /// Which claims it means is not known.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The claim is not prepared for its pod.
    #[error("internal error: unable to get claim info for ResourceClaim {claim} in namespace {namespace}")]
    Unprepared { claim: String, namespace: String },
}

impl Claims {
    /// The CDI devices of a container, each once.
    pub(crate) fn given(&self, pod: &Pod, container: &Container) -> Result<Vec<cri::CdiDevice>, GivenError> {
        let namespace = resolve::pod_namespace(pod);
        let mut all: Vec<cri::CdiDevice> = Vec::new();
        let used = resolve::used(pod, container)?;
        let state = self.state();
        for one in used {
            let key = (namespace.to_owned(), one.claim);
            let Some(entry) = state.book.held(&key, spec::uid(pod)) else {
                return Err(GivenError::Unprepared { claim: key.1, namespace: key.0 });
            };
            for id in entry.cdi_ids(&one.request) {
                if all.iter().all(|known| known.name != id) {
                    all.push(cri::CdiDevice { name: id.to_owned() });
                }
            }
        }
        Ok(all)
    }

    /// The health of the pod's devices, by container.
    pub(crate) fn health(&self, pod: &Pod) -> BTreeMap<ContainerName, Vec<ResourceStatus>> {
        let mut all = BTreeMap::new();
        if !resolve::any(pod) {
            return all;
        }
        for container in &spec::spec(pod).containers {
            let found = self.health_of(pod, container);
            if !found.is_empty() {
                all.insert(container.name.as_str().into(), found);
            }
        }
        all
    }

    fn health_of(&self, pod: &Pod, container: &Container) -> Vec<ResourceStatus> {
        let (namespace, now) = (resolve::pod_namespace(pod), Instant::now());
        let mut all: Vec<ResourceStatus> = Vec::new();
        // Ignored: a pod whose claims are not known has no devices.
        for one in resolve::used(pod, container).unwrap_or_default() {
            let Some(as_name) = one.as_name else { continue };
            let name = match one.request.as_str() {
                "" => format!("claim:{as_name}"),
                request => format!("claim:{as_name}/{request}"),
            };
            let state = self.state();
            let Some(entry) = state.book.held(&(namespace.to_owned(), one.claim), spec::uid(pod)) else {
                continue;
            };
            let mut resources: Vec<ResourceHealth> = Vec::new();
            for (driver, device) in devices(entry).filter(|(_, device)| device.answers(&one.request)) {
                let condition = state.drivers.health(driver, &device.pool, &device.name, now);
                let health = of_device(driver, device, condition);
                if resources.iter().all(|known| known.resource_id != health.resource_id) {
                    resources.push(health);
                }
            }
            if !resources.is_empty() && all.iter().all(|known| known.name != name) {
                all.push(ResourceStatus { name, resources: Some(resources) });
            }
        }
        all
    }

    /// A container's claims as agents on the node are told.
    pub(crate) fn told(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
        let namespace = resolve::pod_namespace(pod);
        let mut all: Vec<DynamicResource> = Vec::new();
        let state = self.state();
        // Ignored: a pod whose claims are not known has no devices.
        for one in resolve::used(pod, container).unwrap_or_default() {
            let key = (namespace.to_owned(), one.claim);
            let Some(entry) = state.book.held(&key, spec::uid(pod)) else { continue };
            if all.iter().any(|known| known.claim_name == key.1) {
                continue;
            }
            let claim_resources = devices(entry).map(|(driver, device)| ClaimResource {
                cdi_devices: device.cdi_ids.iter().map(|id| CdiDevice { name: id.clone() }).collect(),
                driver_name: driver.to_owned(),
                pool_name: device.pool.clone(),
                device_name: device.name.clone(),
                share_id: device.share.clone(),
            });
            let claim_resources = claim_resources.collect();
            all.push(DynamicResource { claim_name: key.1, claim_namespace: key.0, claim_resources });
        }
        all
    }
}

fn devices(entry: &Entry) -> impl Iterator<Item = (&str, &Device)> {
    entry.drivers.iter().flat_map(|(driver, all)| all.iter().map(move |device| (driver.as_str(), device)))
}

fn of_device(driver: &str, device: &Device, condition: Condition) -> ResourceHealth {
    let named = || format!("{driver}/{}/{}", device.pool, device.name);
    ResourceHealth {
        resource_id: device.cdi_ids.first().cloned().unwrap_or_else(named),
        health: Some(condition.health.to_owned()),
        message: Some(condition.message).filter(|message| !message.is_empty()),
    }
}
