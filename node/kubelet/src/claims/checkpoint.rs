//! The file that says which claims are prepared, as upstream's kubelet writes and reads it. Pure but for [`read`] and [`write`].
//!
//! `dra_manager_state` is JSON in a string in JSON, with a checksum over the inner text. Beside upstream's fields, which it
//! reads past, there is the boot that devices were prepared in, as nothing that a driver made outlives it, and the devices
//! that claims have for themselves, which drivers need not tell.
//! <https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet/cm/dra/state>

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

use flate2::Crc;
use podwire_wire::ids::PodUid;
use serde::{Deserialize, Serialize};

use super::book::{Book, Device, Entry, Exclusive, Key};
use crate::checkpoint;

/// The file's name in the kubelet's folder.
pub(crate) const NAME: &str = "dra_manager_state";

/// Much more than a full node writes.
const LIMIT: usize = 64 << 20;

const KIND: &str = "DRACheckpoint";
const VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Why there is no checkpoint to go on from.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// It cannot be read.
    #[error("read the checkpoint of claims")]
    Read(#[source] io::Error),
    /// It is not one.
    #[error("parse the checkpoint of claims")]
    Parse(#[from] serde_json::Error),
    /// Another version wrote it.
    #[error("the checkpoint of claims is of the version {0:?}")]
    Version(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: String,
    checksum: u32,
    #[serde(default, rename = "BootID")]
    boot_id: String,
    /// By the claim's UID.
    #[serde(default)]
    exclusive: BTreeMap<String, Vec<[String; 3]>>,
}

#[derive(Serialize, Deserialize)]
struct Data {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList")]
    claims: Option<Vec<Claim>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Claim {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(rename = "ClaimName")]
    name: String,
    namespace: String,
    #[serde(rename = "PodUIDs")]
    pods: Option<BTreeMap<String, Nothing>>,
    driver_state: Option<BTreeMap<String, Driver>>,
}

/// Go's `struct{}`.
#[derive(Serialize, Deserialize)]
struct Nothing {}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Driver {
    devices: Option<Vec<Prepared>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Prepared {
    pool_name: String,
    device_name: String,
    #[serde(rename = "ShareID", default)]
    share: Option<String>,
    request_names: Option<Vec<String>>,
    #[serde(rename = "CDIDeviceIDs")]
    cdi_ids: Option<Vec<String>>,
}

impl From<&Device> for Prepared {
    fn from(device: &Device) -> Prepared {
        Prepared {
            pool_name: device.pool.clone(),
            device_name: device.name.clone(),
            share: device.share.clone(),
            request_names: Some(device.requests.clone()),
            cdi_ids: Some(device.cdi_ids.clone()),
        }
    }
}

impl From<Prepared> for Device {
    fn from(device: Prepared) -> Device {
        Device {
            pool: device.pool_name,
            name: device.device_name,
            share: device.share,
            requests: device.request_names.unwrap_or_default(),
            cdi_ids: device.cdi_ids.unwrap_or_default(),
        }
    }
}

/// The book as a file.
pub(crate) fn encode(book: &Book, boot_id: &str) -> Vec<u8> {
    let claim = |((namespace, name), entry): (&Key, &Entry)| Claim {
        uid: entry.uid.clone(),
        name: name.clone(),
        namespace: namespace.clone(),
        pods: Some(entry.pods.iter().map(|pod| (pod.to_string(), Nothing {})).collect()),
        driver_state: Some(entry.drivers.iter().map(|(name, all)| (name.clone(), driver(all))).collect()),
    };
    let claims = Some(book.claims().iter().map(claim).collect());
    let data = Data { kind: KIND.to_owned(), api_version: VERSION.to_owned(), claims };
    let data = serde_json::to_string(&data).unwrap_or_default();
    let alone = |entry: &Entry| {
        let all = entry.exclusive.iter().cloned();
        all.map(|Exclusive { driver, pool, device }| [driver, pool, device]).collect()
    };
    let exclusive = book.claims().values().map(|entry| (entry.uid.clone(), alone(entry))).collect();
    let file = File { checksum: checksum(&data), data, boot_id: boot_id.to_owned(), exclusive };
    serde_json::to_vec(&file).unwrap_or_default()
}

fn driver(devices: &[Device]) -> Driver {
    // Go writes a list that nobody has begun as null.
    let listed = (!devices.is_empty()).then(|| devices.iter().map(Prepared::from).collect());
    Driver { devices: listed }
}

/// A book from a file. Says also whether its checksum is right: one that is not is believed all the same, as to forget a
/// claim that is prepared is worse than the contrary.
pub(crate) fn decode(bytes: &[u8], boot_id: &str) -> Result<(Book, bool), CheckpointError> {
    let file: File = serde_json::from_slice(bytes)?;
    let sound = checksum(&file.data) == file.checksum;
    let data: Data = serde_json::from_str(&file.data)?;
    if data.kind != KIND || data.api_version != VERSION {
        return Err(CheckpointError::Version(data.api_version));
    }
    let same_boot = file.boot_id.is_empty() || file.boot_id == boot_id;
    let mut alone = file.exclusive;
    let mut claims = BTreeMap::new();
    for claim in data.claims.into_iter().flatten() {
        let told = alone.remove(&claim.uid).unwrap_or_default().into_iter();
        let exclusive: BTreeSet<Exclusive> =
            told.map(|[driver, pool, device]| Exclusive { driver, pool, device }).collect();
        let devices = |driver: Driver| -> Vec<Device> {
            let all = driver.devices.into_iter().flatten().map(Device::from);
            // What a driver prepared does not outlive the boot, but that it was asked does.
            all.filter(|_| same_boot).collect()
        };
        let drivers = claim.driver_state.into_iter().flatten();
        let entry = Entry {
            uid: claim.uid,
            pods: claim.pods.into_iter().flatten().map(|(pod, _)| PodUid::from(pod.as_str())).collect(),
            drivers: drivers.map(|(name, driver)| (name, devices(driver))).collect(),
            exclusive,
            ..Entry::default()
        };
        claims.insert((claim.namespace, claim.name), entry);
    }
    Ok((Book::recovered(claims), sound))
}

fn checksum(data: &str) -> u32 {
    let mut crc = Crc::new();
    crc.update(data.as_bytes());
    crc.sum()
}

/// The book that an earlier kubelet left in `folder`; none if there was none.
pub(crate) fn read(folder: &Path, boot_id: &str) -> Result<Option<(Book, bool)>, CheckpointError> {
    match checkpoint::read(folder, NAME, LIMIT).map_err(CheckpointError::Read)? {
        None => Ok(None),
        Some(bytes) => decode(&bytes, boot_id).map(Some),
    }
}

/// Puts `bytes` in the place of the checkpoint in `folder`, wholly or not at all.
pub(crate) fn write(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    checkpoint::write(folder, NAME, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `k8s.io/kubernetes/pkg/kubelet/cm/dra/state` 1.36.4.
    const UPSTREAM: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"claim-uid-1\",\"ClaimName\":\"net\",\"Namespace\":\"default\",\"PodUIDs\":{\"pod-a\":{},\"pod-b\":{}},\"DriverState\":{\"dra.net\":{\"Devices\":[{\"PoolName\":\"node-a\",\"DeviceName\":\"eth1\",\"ShareID\":\"share-1\",\"RequestNames\":[\"nic\"],\"CDIDeviceIDs\":[\"dra.net/nic=eth1\",\"dra.net/nic=\\u003c\\u0026\\u003e\"]},{\"PoolName\":\"node-a\",\"DeviceName\":\"eth2\",\"ShareID\":null,\"RequestNames\":null,\"CDIDeviceIDs\":null}]},\"gpu.example.com\":{\"Devices\":null}}},{\"ClaimUID\":\"claim-uid-2\",\"ClaimName\":\"empty\",\"Namespace\":\"other\",\"PodUIDs\":null,\"DriverState\":null}]}","Checksum":3303392793}"#;
    const EMPTY: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[]}","Checksum":2361995144}"#;

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.to_owned(), name.to_owned())
    }

    #[test]
    fn upstreams_file_is_read_and_its_checksum_is_ours() {
        let (book, sound) = decode(UPSTREAM.as_bytes(), "boot").unwrap();
        assert!(sound);
        let entry = &book.claims()[&key("default", "net")];
        assert_eq!((entry.uid.as_str(), entry.pods.len(), entry.prepared), ("claim-uid-1", 2, false));
        let devices = &entry.drivers["dra.net"];
        assert_eq!((devices[0].name.as_str(), devices[0].share.as_deref()), ("eth1", Some("share-1")));
        assert_eq!(entry.cdi_ids("nic").collect::<Vec<_>>(), ["dra.net/nic=eth1", "dra.net/nic=<&>"]);
        assert!(entry.drivers["gpu.example.com"].is_empty());
        assert!(book.claims()[&key("other", "empty")].pods.is_empty());
        let (_, sound) = decode(UPSTREAM.replace("eth2", "eth3").as_bytes(), "boot").unwrap();
        assert!(!sound);
        assert!(decode(b"{", "boot").is_err());
        let next = EMPTY.replace("kubelet.k8s.io/v1", "kubelet.k8s.io/v2");
        assert!(matches!(decode(next.as_bytes(), "boot"), Err(CheckpointError::Version(_))));
    }

    #[test]
    fn an_empty_book_is_written_as_upstream_writes_it() {
        let ours: serde_json::Value = serde_json::from_slice(&encode(&Book::default(), "boot")).unwrap();
        let upstream: serde_json::Value = serde_json::from_str(EMPTY).unwrap();
        assert_eq!((&ours["Data"], &ours["Checksum"]), (&upstream["Data"], &upstream["Checksum"]));
    }

    #[test]
    fn what_drivers_made_does_not_outlive_the_boot_but_that_they_were_asked_does() {
        let (book, _) = decode(UPSTREAM.as_bytes(), "boot").unwrap();
        let bytes = encode(&book, "boot");
        let devices = |boot: &str| {
            let (next, sound) = decode(&bytes, boot).unwrap();
            assert!(sound);
            let entry = next.claims()[&key("default", "net")].clone();
            assert_eq!((entry.pods.len(), entry.drivers.len()), (2, 2));
            entry.drivers["dra.net"].len()
        };
        assert_eq!((devices("boot"), devices("next")), (2, 0));
    }
}
