//! What is to be done for one claim: its devices of ours with their configuration, or why it cannot be done.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{
    configuration::{self, Configuration, Wrong},
    devices::{BANDWIDTH, Device, Offer, What, bits, own},
};
use crate::book::{Claim, Given, Pod};

/// Who is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) driver: &'a str,
    pub(crate) pool: &'a str,
    /// What is offered now, by name.
    pub(crate) devices: &'a BTreeMap<String, Device>,
}

/// Why a claim cannot be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the claim has another uid, {0:?}")]
    OtherUid(String),
    #[error("the claim is not allocated")]
    NotAllocated,
    #[error("the claim is reserved for {0} consumers; a network device is one pod's")]
    Consumers(usize),
    #[error("the claim is reserved for something that is no pod")]
    NoPod,
    #[error("request {request}: {why}")]
    Configuration { request: String, why: Wrong },
    #[error("request {request} has {count} configurations for this driver from the {from}; one is wanted")]
    Several { request: String, count: usize, from: &'static str },
    #[error("request {0} asks for admin access, which a network device cannot give")]
    Admin(String),
    #[error(
        "the allocation of device {0} says nothing of its bandwidth; the API server has to know consumable capacity"
    )]
    NoShare(String),
    #[error("device {0} is not on this node any more")]
    Unknown(String),
    #[error("request {request}: device {device} keeps its hardware address: interface.hardwareAddr")]
    Fixed { request: String, device: String },
}

/// The device results of a claim that are ours, with where they are in its allocation.
fn ours<'a>(claim: &'a Value, asked: Asked<'a>) -> impl Iterator<Item = &'a Value> {
    let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
    results
        .into_iter()
        .flatten()
        .filter(move |one| one["driver"] == asked.driver && one["pool"] == asked.pool)
}

/// What is to be done for a claim as the API server has it.
pub(crate) fn prepare(claim: &Value, uid: &str, asked: Asked<'_>) -> Result<Claim, Refusal> {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = text("/metadata/uid");
    if found != uid {
        return Err(Refusal::OtherUid(found));
    }
    if claim.pointer("/status/allocation").is_none_or(Value::is_null) {
        return Err(Refusal::NotAllocated);
    }
    let pod = consumer(claim, &text("/metadata/namespace"))?;
    let devices = ours(claim, asked).map(|result| given(claim, result, asked)).collect::<Result<_, _>>()?;
    Ok(Claim {
        uid: found,
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        pod,
        devices,
    })
}

/// The one pod that a claim is for.
pub(crate) fn consumer(claim: &Value, namespace: &str) -> Result<Pod, Refusal> {
    let consumers = claim.pointer("/status/reservedFor").and_then(Value::as_array);
    let consumers = consumers.map(Vec::as_slice).unwrap_or_default();
    let [consumer] = consumers else { return Err(Refusal::Consumers(consumers.len())) };
    let text = |name: &str| consumer[name].as_str().unwrap_or_default().to_owned();
    if text("resource") != "pods" || !text("apiGroup").is_empty() || text("uid").is_empty() {
        return Err(Refusal::NoPod);
    }
    Ok(Pod { uid: text("uid"), namespace: namespace.to_owned(), name: text("name") })
}

fn given(claim: &Value, result: &Value, asked: Asked<'_>) -> Result<Given, Refusal> {
    let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
    let (request, name) = (text("request"), text("device"));
    if result["adminAccess"] == true {
        return Err(Refusal::Admin(request));
    }
    let device = asked.devices.get(&name).ok_or_else(|| Refusal::Unknown(name.clone()))?;
    let configuration = configured(claim, &request, asked.driver)?;
    if let (What::Made(offer), Some(_)) = (&device.what, &configuration.mac)
        && offer.kind == podwire_netdev::ChildKind::Ipvlan
    {
        return Err(Refusal::Fixed { request, device: name });
    }
    let mut files = device.files.clone();
    files.extend(configuration.files.iter().map(|file| Path::to_owned(file.path())));
    files.sort();
    files.dedup();
    let bandwidth = share(result, &device.what)?;
    Ok(Given {
        request,
        bandwidth,
        pool: asked.pool.to_owned(),
        share: result["shareID"].as_str().map(str::to_owned),
        what: device.what.clone(),
        published: device.published(),
        device: name,
        configuration,
        files,
        attachment: None,
    })
}

/// How much of what is shared the claim has.
fn share(result: &Value, what: &What) -> Result<Option<u64>, Refusal> {
    if !matches!(what, What::Made(Offer { shared: Some(_), .. })) {
        return Ok(None);
    }
    let amount = result["consumedCapacity"][own(BANDWIDTH)].as_str().and_then(bits);
    let has = amount.filter(|_| result["shareID"].is_string());
    has.map(Some).ok_or_else(|| Refusal::NoShare(result["device"].as_str().unwrap_or_default().to_owned()))
}

/// The configuration of a request: the claim's own word, or else that of its class.
fn configured(claim: &Value, request: &str, driver: &str) -> Result<Configuration, Refusal> {
    let all = claim.pointer("/status/allocation/devices/config").and_then(Value::as_array);
    let base = request.split('/').next().unwrap_or_default();
    let about = |config: &&Value| {
        let named = config["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
        let fits = named.is_empty() || named.iter().any(|name| name == request || name == base);
        fits && config.pointer("/opaque/driver").is_some_and(|name| name == driver)
    };
    let all: Vec<&Value> = all.into_iter().flatten().filter(about).collect();
    for (source, from) in [("FromClaim", "claim"), ("FromClass", "class")] {
        let of: Vec<&&Value> = all.iter().filter(|config| config["source"] == source).collect();
        match of.as_slice() {
            [] => {}
            [one] => {
                let parameters = one.pointer("/opaque/parameters").unwrap_or(&Value::Null);
                let wrong = |why| Refusal::Configuration { request: request.to_owned(), why };
                return configuration::read(parameters).map_err(wrong);
            }
            several => {
                return Err(Refusal::Several { request: request.to_owned(), count: several.len(), from });
            }
        }
    }
    Ok(Configuration::default())
}

#[cfg(test)]
mod tests;
