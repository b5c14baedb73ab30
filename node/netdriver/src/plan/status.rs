//! What is told of a claim's devices, as the claim's status has it.

use podwire_netdev::Attached;
use serde_json::{Value, json};

use super::claim::consumer;
use crate::book::{Claim, Given, Pod};

/// The longest message of a condition.
const MESSAGE: usize = 1024;

/// What became of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Became {
    /// It is in its pod.
    Attached,
    /// It is not, and why.
    Failed(&'static str, String),
    /// It was in its pod and is not any more.
    Released,
}

/// What is told of a claim, but for when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Whose path it is on, where that is known.
    pub(crate) pod: Option<Pod>,
    /// Device entries, with conditions that have no time yet.
    pub(crate) devices: Vec<Value>,
}

/// What is told of a claim whose devices all became the same.
pub(crate) fn told(driver: &str, claim: &Claim, became: &Became) -> Told {
    Told {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        pod: Some(claim.pod.clone()),
        devices: claim.devices.iter().map(|device| entry(driver, device, became)).collect(),
    }
}

/// What is told of a claim that could not even be planned, about each device that it has of ours.
pub(crate) fn unplanned(driver: &str, claim: &Value, why: &str) -> Option<Told> {
    let text = |path: &str| claim.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array)?;
    let ours = results.iter().filter(|one| one["driver"] == driver);
    let devices = ours.map(|one| {
        let mut entry = json!({"driver": driver, "pool": one["pool"], "device": one["device"]});
        if one["shareID"].is_string() {
            entry["shareID"] = one["shareID"].clone();
        }
        entry["conditions"] = conditions("False", "ClaimPrepareFailed", "ClaimPrepareFailed", why);
        entry
    });
    Some(Told {
        namespace: text("/metadata/namespace")?,
        name: text("/metadata/name")?,
        uid: text("/metadata/uid")?,
        // Ignored: a claim of no pod is on no pod's path.
        pod: consumer(claim, &text("/metadata/namespace")?).ok(),
        devices: devices.collect(),
    })
}

fn conditions(status: &str, ready: &str, network: &str, message: &str) -> Value {
    let end = (0..=MESSAGE.min(message.len())).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    let message = &message[..end];
    json!([
        {"type": "Ready", "status": status, "reason": ready, "message": message},
        {"type": "NetworkReady", "status": status, "reason": network, "message": message},
    ])
}

fn entry(driver: &str, device: &Given, became: &Became) -> Value {
    let mut entry = json!({"driver": driver, "pool": device.pool, "device": device.device});
    if let Some(share) = &device.share {
        entry["shareID"] = share.as_str().into();
    }
    entry["conditions"] = match became {
        Became::Attached => {
            conditions("True", "NetworkDeviceReady", "NetworkReady", "the device is in its pod")
        }
        Became::Failed(reason, why) => conditions("False", reason, reason, why),
        Became::Released => {
            let reason = "NetworkDeviceReleased";
            conditions("False", reason, reason, "the device is back on the node")
        }
    };
    if let (Became::Attached, Some(at)) = (became, &device.attachment) {
        let mac = at.attached.as_ref().and_then(|Attached { mac, .. }| mac.as_deref()).unwrap_or_default();
        let ips: Vec<String> = at.inside.addresses.iter().take(16).map(ToString::to_string).collect();
        entry["networkData"] = json!({"interfaceName": at.inside.name, "hardwareAddress": mac, "ips": ips});
    }
    entry
}

/// The body of the patch, with the time of what changed against what the claim says now; `None` if it says all of that.
pub(crate) fn patch(told: &Told, claim: &Value, now: &str) -> Option<Value> {
    let mut devices = told.devices.clone();
    let said =
        claim.pointer("/status/devices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut is_said = true;
    for device in &mut devices {
        let same = |other: &&Value| {
            ["driver", "pool", "device", "shareID"].iter().all(|name| other[name] == device[*name])
        };
        let before = said.iter().find(same).cloned().unwrap_or_default();
        for condition in device["conditions"].as_array_mut().into_iter().flatten() {
            let mut old = before["conditions"].as_array().into_iter().flatten();
            let old =
                old.find(|old| old["type"] == condition["type"] && old["status"] == condition["status"]);
            condition["lastTransitionTime"] =
                old.map_or_else(|| now.into(), |old| old["lastTransitionTime"].clone());
            is_said &=
                old.is_some_and(|old| ["reason", "message"].iter().all(|name| old[name] == condition[*name]));
        }
        is_said &= before["networkData"] == device["networkData"];
    }
    let patch = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": told.namespace, "name": told.name, "uid": told.uid},
        "status": {"devices": devices},
    });
    (!is_said).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_already_is_not_written_and_keeps_its_time() {
        let entry = |status: &str, why: &str| {
            let conditions = conditions(status, "R", "R", why);
            json!({"driver": "d", "pool": "p", "device": "x", "conditions": conditions})
        };
        let told = |entry: Value| Told {
            namespace: "n".into(),
            name: "c".into(),
            uid: "u".into(),
            pod: None,
            devices: vec![entry],
        };
        let first = patch(&told(entry("False", "no")), &json!({}), "one").unwrap();
        assert_eq!(first["status"]["devices"][0]["conditions"][1]["lastTransitionTime"], "one");
        assert_eq!(patch(&told(entry("False", "no")), &first, "two"), None);
        let other = patch(&told(entry("False", "still not")), &first, "two").unwrap();
        assert_eq!(
            other["status"]["devices"][0]["conditions"][0]["lastTransitionTime"], "one",
            "it did not change"
        );
        let mended = patch(&told(entry("True", "")), &first, "two").unwrap();
        assert_eq!(mended["status"]["devices"][0]["conditions"][0]["lastTransitionTime"], "two");
    }
}
