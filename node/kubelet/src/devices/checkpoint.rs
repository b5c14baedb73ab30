//! The file that says who holds which devices, as upstream's kubelet writes and reads it. Pure but for [`read`] and [`write`].
//!
//! `kubelet_internal_checkpoint` is JSON with a checksum over Go's dump of what is in it; we make the same dump, so that a
//! kubelet of either kind goes on where one of the other kind has stopped. Beside upstream's fields there are devices that
//! are reserved but not allocated, which upstream does not know, and the boot that allocations belong to: what a plugin did
//! for a container does not outlive the machine's restart, so then it is asked again.
//! <https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/cm/devicemanager/checkpoint>

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io,
    path::Path,
};

use base64::Engine as _;
use podwire_wire::{device_plugin::ContainerAllocateResponse, ids::PodUid};
use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::ledger::{Holding, Holdings, Ledger};
use crate::{checkpoint, topology::devices::Devices};

/// The file's name in the folder of device plugins.
pub(crate) const NAME: &str = "kubelet_internal_checkpoint";

/// Much more than a full node writes.
const LIMIT: usize = 64 << 20;

/// The number of no NUMA node.
const NO_NODE: i64 = -1;

/// Why there is no checkpoint to go on from.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// It cannot be read.
    #[error("read the checkpoint of devices")]
    Read(#[source] io::Error),
    /// It is not one.
    #[error("parse the checkpoint of devices")]
    Parse(#[from] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u64,
    #[serde(default)]
    reserved: Vec<Entry>,
    #[serde(default, rename = "BootID")]
    boot_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    alloc_resp: Option<String>,
}

impl Entry {
    fn of(pod: &PodUid, container: &str, resource: &str, holding: &Holding) -> Entry {
        let mut by_node: BTreeMap<i64, Option<Vec<String>>> = BTreeMap::new();
        for (id, nodes) in &holding.devices {
            let nodes = nodes.as_deref().filter(|nodes| !nodes.is_empty()).unwrap_or(&[NO_NODE]);
            for node in nodes {
                by_node.entry(*node).or_default().get_or_insert_default().push(id.clone());
            }
        }
        let encoded = holding.response.as_ref().map(prost::Message::encode_to_vec);
        Entry {
            pod_uid: pod.to_string(),
            container_name: container.to_owned(),
            resource_name: resource.to_owned(),
            device_ids: Some(by_node),
            alloc_resp: encoded.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes)),
        }
    }

    fn response_bytes(&self) -> Option<Vec<u8>> {
        // Ignored: what is no base64 was not written by a kubelet; the plugin is asked again.
        base64::engine::general_purpose::STANDARD.decode(self.alloc_resp.as_ref()?).ok()
    }

    fn holding(&self, keep_response: bool) -> Holding {
        let mut devices = Devices::new();
        for (node, ids) in self.device_ids.iter().flatten() {
            for id in ids.iter().flatten() {
                let nodes = devices.entry(id.clone()).or_default();
                if *node != NO_NODE {
                    nodes.get_or_insert_default().push(*node);
                }
            }
        }
        let response = self.response_bytes().filter(|_| keep_response);
        // Ignored: a response that cannot be read is asked for again.
        let response = response.and_then(|bytes| ContainerAllocateResponse::decode(bytes.as_slice()).ok());
        Holding { devices, response }
    }
}

/// The ledger as a file.
pub(crate) fn encode(ledger: &Ledger, boot_id: &str) -> Vec<u8> {
    let (mut entries, mut reserved) = (Vec::new(), Vec::new());
    for (pod, holdings) in ledger.held() {
        for ((container, resource), holding) in holdings {
            let entry = Entry::of(pod, container, resource, holding);
            if holding.response.is_some() { &mut entries } else { &mut reserved }.push(entry);
        }
    }
    let listed = |ids: &BTreeSet<String>| Some(ids.iter().cloned().collect());
    let registered = ledger.resources().map(|(name, ids)| (name.to_owned(), listed(ids))).collect();
    let data = Data { pod_device_entries: Some(entries), registered_devices: Some(registered) };
    let checksum = checksum(&data);
    serde_json::to_vec(&File { data, checksum, reserved, boot_id: boot_id.to_owned() }).unwrap_or_default()
}

/// A ledger from a file. Says also whether its checksum is right: one that is not is believed all the same, as to take a
/// device for free that a pod holds is worse than the contrary.
pub(crate) fn decode(bytes: &[u8], boot_id: &str) -> Result<(Ledger, bool), serde_json::Error> {
    let file: File = serde_json::from_slice(bytes)?;
    let sound = checksum(&file.data) == file.checksum;
    let same_boot = file.boot_id.is_empty() || file.boot_id == boot_id;
    let mut held: BTreeMap<PodUid, Holdings> = BTreeMap::new();
    let allocated = file.data.pod_device_entries.iter().flatten().map(|entry| (entry, same_boot));
    for (entry, keep) in allocated.chain(file.reserved.iter().map(|entry| (entry, false))) {
        let key = (entry.container_name.as_str().into(), entry.resource_name.clone());
        held.entry(entry.pod_uid.as_str().into()).or_default().insert(key, entry.holding(keep));
    }
    let resources = file.data.registered_devices.unwrap_or_default().into_keys();
    Ok((Ledger::recovered(resources, held), sound))
}

/// The ledger that an earlier kubelet left in `folder`; none if there was none.
pub(crate) fn read(folder: &Path, boot_id: &str) -> Result<Option<(Ledger, bool)>, CheckpointError> {
    match checkpoint::read(folder, NAME, LIMIT).map_err(CheckpointError::Read)? {
        None => Ok(None),
        Some(bytes) => Ok(Some(decode(&bytes, boot_id)?)),
    }
}

/// Puts `bytes` in the place of the checkpoint in `folder`, wholly or not at all.
pub(crate) fn write(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    checkpoint::write(folder, NAME, bytes)
}

/// FNV-1a of 32 bits over the dump.
fn checksum(data: &Data) -> u64 {
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    u64::from(dump(data).bytes().fold(2_166_136_261, hash))
}

/// What `spew` prints of the data with `%#v`, without addresses and with sorted keys.
fn dump(data: &Data) -> String {
    let mut out = String::from("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)");
    listed(&mut out, data.pod_device_entries.as_deref(), |out, entry| {
        // Writing to a string cannot fail.
        write!(
            out,
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA)",
            entry.pod_uid, entry.container_name, entry.resource_name
        )
        .ok();
        mapped(out, entry.device_ids.as_ref());
        out.push_str(" AllocResp:([]uint8)");
        let bytes = entry.response_bytes();
        listed(out, bytes.as_deref(), |out, byte| {
            write!(out, "{byte}").ok();
        });
        out.push('}');
    });
    out.push_str(" RegisteredDevices:(map[string][]string)");
    mapped(&mut out, data.registered_devices.as_ref());
    out.push('}');
    out
}

fn listed<T>(out: &mut String, all: Option<&[T]>, each: impl Fn(&mut String, &T)) {
    let Some(all) = all else { return out.push_str("<nil>") };
    out.push('[');
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        each(out, one);
    }
    out.push(']');
}

fn mapped<K: std::fmt::Display>(out: &mut String, all: Option<&BTreeMap<K, Option<Vec<String>>>>) {
    let Some(all) = all else { return out.push_str("<nil>") };
    out.push_str("map[");
    for (at, (key, ids)) in all.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        write!(out, "{key}:").ok();
        listed(out, ids.as_deref(), |out, id| out.push_str(id));
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Written by `k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint` 1.36.4.
    const UPSTREAM: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid-1","ContainerName":"app","ResourceName":"example.com/gpu","DeviceIDs":{"-1":["gpu-9"],"0":["gpu-0","gpu-1"]},"AllocResp":"CgYKAUESATE="},{"PodUID":"uid-2","ContainerName":"c","ResourceName":"example.com/nic","DeviceIDs":{"1":["eth"]},"AllocResp":""}],"RegisteredDevices":{"example.com/gpu":["gpu-0","gpu-1"],"example.com/nic":["eth"],"example.com/none":[]}},"Checksum":3082243347}"#;

    #[test]
    fn upstreams_file_is_read_and_its_checksum_is_ours() {
        let (ledger, sound) = decode(UPSTREAM.as_bytes(), "boot").unwrap();
        assert!(sound);
        let all: Vec<_> = ledger.held_by("uid-1", "app").collect();
        assert_eq!(all.len(), 1);
        let (resource, holding) = all[0];
        assert_eq!(resource, "example.com/gpu");
        let expected = [("gpu-0", Some(vec![0])), ("gpu-1", Some(vec![0])), ("gpu-9", None)]
            .map(|(id, n)| (id.to_owned(), n));
        assert_eq!(holding.devices, expected.into());
        assert_eq!(holding.response.as_ref().unwrap().envs["A"], "1");
        assert!(
            ["example.com/gpu", "example.com/nic", "example.com/none"].iter().all(|name| ledger.knows(name))
        );
        let empty = r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":1944006890}"#;
        let (ledger, sound) = decode(empty.as_bytes(), "boot").unwrap();
        assert!(sound && ledger.held().is_empty());
        let (_, sound) = decode(UPSTREAM.replace("gpu-9", "gpu-8").as_bytes(), "boot").unwrap();
        assert!(!sound);
        assert!(decode(b"{", "boot").is_err());
    }

    #[test]
    fn what_a_plugin_did_does_not_outlive_the_boot_but_who_holds_what_does() {
        let (ledger, _) = decode(UPSTREAM.as_bytes(), "boot").unwrap();
        let bytes = encode(&ledger, "boot");
        let responses = |boot: &str| {
            let (next, sound) = decode(&bytes, boot).unwrap();
            assert!(sound);
            let devices = |ledger: &Ledger| {
                ledger.held_by("uid-1", "app").map(|(_, holding)| holding.devices.clone()).collect::<Vec<_>>()
            };
            assert_eq!(devices(&next), devices(&ledger));
            next.held().values().flatten().filter(|(_, holding)| holding.response.is_some()).count()
        };
        assert_eq!((responses("boot"), responses("next")), (2, 0));
    }

    #[test]
    fn the_file_is_replaced_as_a_whole_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), "boot").unwrap().is_none());
        let other = dir.path().join("other");
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join(format!(".{NAME}"))).unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join(NAME)).unwrap();
        assert!(read(dir.path(), "boot").is_err(), "a link is no checkpoint");
        write(dir.path(), UPSTREAM.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
        assert!(read(dir.path(), "boot").unwrap().is_some_and(|(_, sound)| sound));
        write(dir.path(), b"{").unwrap();
        assert!(matches!(read(dir.path(), "boot"), Err(CheckpointError::Parse(_))));
    }
}
