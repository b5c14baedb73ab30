//! What is prepared, and which devices are in which sandbox. Pure; `keeper` owns it, `record` writes it down.

use std::{collections::BTreeMap, path::PathBuf};

use podwire_netdev::{Attached, Child, Inside, Snapshot};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::health::Watched;
use crate::plan::{
    configuration::Configuration,
    devices::{Offer, What},
};

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Pod {
    /// Whose path an arrow is on.
    pub(crate) fn traced(&self) -> podwire_trace::Pod<'_> {
        podwire_trace::Pod { uid: &self.uid, namespace: &self.namespace, name: &self.name }
    }
}

/// A device that is given to a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) request: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    #[serde(default)]
    pub(crate) share: Option<String>,
    pub(crate) what: What,
    /// As it was published: it is published like that as long as it is away.
    pub(crate) published: Value,
    pub(crate) configuration: Configuration,
    /// Bits per second that the claim has of a device that others share.
    #[serde(default)]
    pub(crate) bandwidth: Option<u64>,
    /// Device files that come with it.
    #[serde(default)]
    pub(crate) files: Vec<PathBuf>,
    /// While it is in a pod, or may be.
    #[serde(default)]
    pub(crate) attachment: Option<Attachment>,
}

/// Where a device is, or is being taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) sandbox: String,
    pub(crate) place: Place,
    pub(crate) inside: Inside,
    /// What it was, if it is one of the node's.
    #[serde(default)]
    pub(crate) snapshot: Option<Snapshot>,
    /// How it is made, if it is not.
    #[serde(default)]
    pub(crate) child: Option<Child>,
    /// Set once it is there with all that belongs to it.
    #[serde(default)]
    pub(crate) attached: Option<Attached>,
}

/// A network namespace, as the runtime tells it and as we hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// Device and inode: another namespace may come to be at the path.
    pub(crate) identity: (u64, u64),
    /// Where it is pinned.
    pub(crate) pin: PathBuf,
}

/// A claim that is prepared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) pod: Pod,
    pub(crate) devices: Vec<Given>,
}

/// Why a claim cannot be taken into the book.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Held {
    #[error("device {device} is still prepared for claim {namespace}/{name}")]
    Device { device: String, namespace: String, name: String },
    #[error("two devices of the pod would be called {0}")]
    Name(String),
}

/// All prepared claims, by uid.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Book {
    pub(crate) claims: BTreeMap<String, Claim>,
}

impl Book {
    /// Takes a claim in; one that is there with a device in a pod stays as it is, as whoever asks twice wants the same.
    pub(crate) fn take(&mut self, claim: Claim) -> Result<(), Held> {
        for device in &claim.devices {
            let holder = self.claims.values().find(|other| {
                other.uid != claim.uid
                    && other.devices.iter().any(|held| {
                        (&held.device, &held.pool, &held.share)
                            == (&device.device, &device.pool, &device.share)
                    })
            });
            if let Some(holder) = holder {
                let (namespace, name) = (holder.namespace.clone(), holder.name.clone());
                return Err(Held::Device { device: device.device.clone(), namespace, name });
            }
        }
        self.check_names(&claim)?;
        let away = |claim: &Claim| claim.devices.iter().any(|device| device.attachment.is_some());
        if !self.claims.get(&claim.uid).is_some_and(away) {
            self.claims.insert(claim.uid.clone(), claim);
        }
        Ok(())
    }

    fn check_names(&self, claim: &Claim) -> Result<(), Held> {
        let others =
            self.claims.values().filter(|other| other.uid != claim.uid && other.pod.uid == claim.pod.uid);
        let mut taken: Vec<&str> =
            others.flat_map(|other| &other.devices).filter_map(Given::name_inside).collect();
        for name in claim.devices.iter().filter_map(Given::name_inside) {
            if taken.contains(&name) {
                return Err(Held::Name(name.to_owned()));
            }
            taken.push(name);
        }
        Ok(())
    }

    /// The claims of a pod.
    pub(crate) fn of_pod(&self, pod: &str) -> Vec<String> {
        self.claims.values().filter(|claim| claim.pod.uid == pod).map(|claim| claim.uid.clone()).collect()
    }

    /// Claim and place of every device that is in a sandbox which `chosen` chooses, the last one first.
    pub(crate) fn away(&self, chosen: impl Fn(&Claim, &Attachment) -> bool) -> Vec<(String, usize)> {
        let mut all = Vec::new();
        for claim in self.claims.values() {
            for (at, device) in claim.devices.iter().enumerate() {
                if device.attachment.as_ref().is_some_and(|one| chosen(claim, one)) {
                    all.push((claim.uid.clone(), at));
                }
            }
        }
        all.reverse();
        all
    }

    pub(crate) fn device(&mut self, at: &(String, usize)) -> Option<&mut Given> {
        self.claims.get_mut(&at.0)?.devices.get_mut(at.1)
    }

    /// How devices that are away were published, by name.
    pub(crate) fn absent(&self) -> BTreeMap<String, Value> {
        let devices = self.claims.values().flat_map(|claim| &claim.devices);
        let away =
            devices.filter(|device| device.attachment.is_some() && matches!(device.what, What::Link { .. }));
        away.map(|device| (device.device.clone(), device.published.clone())).collect()
    }

    /// Devices that are in pods.
    pub(crate) fn attached(&self) -> Vec<Watched> {
        let devices = self.claims.values().flat_map(|claim| &claim.devices);
        let watched = |device: &Given| {
            let at = device.attachment.as_ref()?;
            let (pool, device) = (device.pool.clone(), device.device.clone());
            Some(Watched { pool, device, place: at.place.clone(), index: at.attached.as_ref()?.index })
        };
        devices.filter_map(watched).collect()
    }

    /// After another boot nothing is in any pod; that claims are prepared still holds.
    pub(crate) fn forget_attachments(&mut self) {
        for device in self.claims.values_mut().flat_map(|claim| &mut claim.devices) {
            device.attachment = None;
        }
    }
}

impl Given {
    /// What it will be called in its pod, where that is known before.
    fn name_inside(&self) -> Option<&str> {
        match (&self.configuration.name, &self.what) {
            (Some(name), _) | (None, What::Link { name, .. }) => Some(name),
            (None, What::Made(_)) => None,
        }
    }

    /// How it is made for a pod.
    pub(crate) fn child(&self, claim: &str) -> Option<Child> {
        let What::Made(Offer { kind, parent, .. }) = &self.what else { return None };
        let node_end = (*kind == podwire_netdev::ChildKind::Veth).then(|| {
            let share = self.share.as_deref().unwrap_or_default();
            node_end(claim, &format!("{}{share}", self.device))
        });
        Some(Child { kind: *kind, parent: parent.clone(), node_end })
    }
}

/// A name for the end of a veth that stays: its own for each claim and device, and the same each time.
fn node_end(claim: &str, device: &str) -> String {
    let bytes = claim.bytes().chain([0]).chain(device.bytes());
    // FNV-1a.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("knd{:012x}", hash & 0xffff_ffff_ffff)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn claim(uid: &str, pod: &str, device: &str, name: Option<&str>) -> Claim {
        let configuration = Configuration { name: name.map(str::to_owned), ..Configuration::default() };
        let given = Given {
            request: "r".into(),
            pool: "node1".into(),
            device: device.into(),
            share: None,
            what: What::Link { name: device.into(), index: 7 },
            published: json!({"name": device}),
            configuration,
            bandwidth: None,
            files: Vec::new(),
            attachment: None,
        };
        let pod = Pod { uid: pod.into(), namespace: "default".into(), name: pod.into() };
        Claim { uid: uid.into(), namespace: "default".into(), name: uid.into(), pod, devices: vec![given] }
    }

    #[test]
    fn a_device_is_one_claims_and_a_name_one_devices() {
        let mut book = Book::default();
        book.take(claim("c1", "p1", "eth1", None)).unwrap();
        book.take(claim("c1", "p1", "eth1", None)).unwrap();
        let held = book.take(claim("c2", "p2", "eth1", None)).unwrap_err();
        assert!(matches!(held, Held::Device { .. }), "{held}");
        assert_eq!(book.take(claim("c2", "p1", "eth2", Some("eth1"))), Err(Held::Name("eth1".into())));
        book.take(claim("c2", "p2", "eth2", Some("eth1"))).unwrap();
        assert_eq!(book.of_pod("p1"), ["c1"]);
        book.claims.remove("c1");
        book.take(claim("c3", "p3", "eth1", None)).unwrap();
    }

    #[test]
    fn names_of_node_ends_fit_and_differ() {
        let (one, other) = (node_end("c1", "br0-veth-0"), node_end("c1", "br0-veth-1"));
        assert!(one.len() == 15 && one != other && one == node_end("c1", "br0-veth-0"));
    }
}
