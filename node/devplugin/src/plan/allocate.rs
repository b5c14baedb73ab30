//! What a container is given for the ids that the kubelet chose.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use podwire_wire::device_plugin as v1beta1;

use super::{Device, Offer, cdi_name};

/// Ids that one container may ask for.
const MOST: usize = crate::config::MOST_IDS as usize;

/// Why a container is given nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{resource} has no device {id:?}")]
    Unknown { resource: String, id: String },
    #[error("device {id:?} of {resource} cannot be used: {why}")]
    Unhealthy { resource: String, id: String, why: String },
    #[error("{resource}: {count} devices are more than a container may ask for")]
    TooMany { resource: String, count: usize },
    #[error(
        "{resource}: two devices would both be at {path:?} in the container; write {{name}} or {{index}} into containerPath"
    )]
    SamePath { resource: String, path: String },
}

/// What a container is given. A device that several of its ids stand for is given once.
pub(crate) fn allocate(offer: &Offer, ids: &[String]) -> Result<v1beta1::ContainerAllocateResponse, Refusal> {
    let resource = || offer.pool.resource.clone();
    if ids.len() > MOST {
        return Err(Refusal::TooMany { resource: resource(), count: ids.len() });
    }
    let mut devices: Vec<&Device> = Vec::new();
    let mut seen = BTreeSet::new();
    for id in ids {
        let unknown = || Refusal::Unknown { resource: resource(), id: shown(id) };
        let device = offer.device(id).ok_or_else(unknown)?;
        if let Some(why) = &device.trouble {
            return Err(Refusal::Unhealthy { resource: resource(), id: id.clone(), why: why.clone() });
        }
        if seen.insert(&device.id) {
            devices.push(device);
        }
    }
    let files = files(offer, &devices)?;
    let cdi = offer.pool.cdi.as_ref();
    let named = |device: &&Device| v1beta1::CdiDevice {
        name: format!("{}={}", cdi.map(|cdi| cdi.kind.as_str()).unwrap_or_default(), cdi_name(&device.id)),
    };
    Ok(v1beta1::ContainerAllocateResponse {
        envs: environment(offer, &devices, &files),
        devices: if cdi.is_some_and(|cdi| cdi.only) { Vec::new() } else { files },
        cdi_devices: cdi.map(|_| devices.iter().map(named).collect()).unwrap_or_default(),
        ..Default::default()
    })
}

/// What was asked for, short enough for a message.
fn shown(id: &str) -> String {
    id.chars().take(256).collect()
}

/// The files, each once, and none over another.
fn files(offer: &Offer, devices: &[&Device]) -> Result<Vec<v1beta1::DeviceSpec>, Refusal> {
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    let mut files = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        for host in &device.files {
            let host_path = host.to_string_lossy().into_owned();
            let container_path = place(offer, &host_path, index);
            match places.get(&container_path) {
                Some(other) if *other == host_path => continue,
                Some(_) => {
                    return Err(Refusal::SamePath {
                        resource: offer.pool.resource.clone(),
                        path: container_path,
                    });
                }
                None => {}
            }
            places.insert(container_path.clone(), host_path.clone());
            files.push(v1beta1::DeviceSpec {
                container_path,
                host_path,
                permissions: offer.pool.permissions.clone(),
            });
        }
    }
    Ok(files)
}

fn place(offer: &Offer, host_path: &str, index: usize) -> String {
    let Some(template) = &offer.pool.container_path else { return host_path.to_owned() };
    let name = host_path.rsplit('/').next().unwrap_or_default();
    template.replace("{name}", name).replace("{index}", &index.to_string())
}

/// The names of what was given, under the name that the pool chose; virtual functions also under that which network plugins
/// know from the SR-IOV device plugin.
fn environment(offer: &Offer, devices: &[&Device], files: &[v1beta1::DeviceSpec]) -> HashMap<String, String> {
    let at = |device: &Device| {
        let host = device.files.first()?.to_string_lossy();
        files.iter().find(|file| file.host_path == host).map(|file| file.container_path.clone())
    };
    let names = devices
        .iter()
        .map(|device| device.name.clone().or_else(|| at(device)).unwrap_or_else(|| device.id.clone()));
    let names = names.collect::<Vec<_>>().join(",");
    let upper: String = offer
        .pool
        .resource
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    let own = offer.pool.env.clone().unwrap_or_else(|| format!("PODWIRE_DEVICE_{upper}"));
    let pci = devices.iter().all(|device| matches!(device.identity, crate::inventory::Identity::Pci(_)));
    let mut variables = HashMap::from([(own, names.clone())]);
    if pci && !devices.is_empty() {
        variables.insert(format!("PCIDEVICE_{upper}"), names);
    }
    variables
}
