//! What a pod lacks wherever it may run: volume claims and resource claims. Pure.
//!
//! Neither persistent volumes nor dynamic resources are bound here yet: a pod that needs them waits and says for what,
//! and never runs as if it had not asked.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use podwire_api::owner;

use crate::filter::{Plugin, Rejection};
use crate::pod::{PodInfo, VolumeClaim};

/// Namespace and name.
type Key = (String, String);

/// What matters of a volume claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    /// The volume it is bound to, or was.
    volume: String,
    lost: bool,
    deleting: bool,
    /// Uid of the pod it was made for.
    owner: Option<String>,
}

/// The cluster's volume claims.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    all: HashMap<Key, Claim>,
}

fn key(claim: &PersistentVolumeClaim) -> Key {
    (claim.metadata.namespace.clone().unwrap_or_default(), claim.metadata.name.clone().unwrap_or_default())
}

impl Claims {
    /// Takes in a claim; says whether it changed for waiting pods, and its name.
    pub(crate) fn set(&mut self, claim: &PersistentVolumeClaim) -> bool {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let owner = owner::controller(claim.metadata.owner_references.iter().flatten());
        let new = Claim {
            volume: claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default(),
            lost: phase == Some("Lost"),
            deleting: claim.metadata.deletion_timestamp.is_some(),
            owner: owner.map(|owner| owner.uid.clone()),
        };
        self.all.insert(key(claim), new.clone()).is_none_or(|old| old != new)
    }

    /// Forgets a claim; says whether there was one.
    pub(crate) fn remove(&mut self, claim: &PersistentVolumeClaim) -> bool {
        self.all.remove(&key(claim)).is_some()
    }

    /// Forgets every claim that is not in `keys`; says whether there was one.
    pub(crate) fn retain(&mut self, keys: &HashSet<Key>) -> bool {
        let before = self.all.len();
        self.all.retain(|key, _| keys.contains(key));
        self.all.len() != before
    }

    /// Why the pod cannot run on any node.
    pub(crate) fn objection(&self, pod: &PodInfo) -> Option<Rejection> {
        let rejection =
            |plugin, reason: String| Rejection { plugin, reasons: vec![reason], resolvable: false };
        if let Some(needed) = pod.volume_claims.first() {
            // The first claim that is not there at all is the better answer.
            let complaint = pod.volume_claims.iter().find_map(|needed| self.complaint(pod, needed));
            let reason = complaint.unwrap_or_else(|| {
                format!("persistentvolumeclaim \"{}\": persistent volumes are not supported yet", needed.name)
            });
            return Some(rejection(Plugin::VolumeBinding, reason));
        }
        let claim = pod.resource_claims.first()?;
        let reason = format!("pod resource claim \"{claim}\": dynamic resources are not supported yet");
        Some(rejection(Plugin::DynamicResources, reason))
    }

    /// What upstream says of a claim that cannot be used.
    fn complaint(&self, pod: &PodInfo, needed: &VolumeClaim) -> Option<String> {
        let name = &needed.name;
        let Some(claim) = self.all.get(&(pod.namespace.clone(), name.clone())) else {
            return Some(if needed.ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                )
            } else {
                format!("persistentvolumeclaim \"{name}\" not found")
            });
        };
        if claim.lost {
            return Some(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{}\"",
                claim.volume
            ));
        }
        if claim.deleting {
            return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let foreign = needed.ephemeral && claim.owner.as_deref() != Some(&pod.uid);
        foreign.then(|| {
            format!(
                "PVC {}/{name} was not created for pod {} (pod is not owner)",
                pod.namespace,
                pod.reference()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use serde_json::{Value, json};

    fn claim(name: &str, over: Value) -> PersistentVolumeClaim {
        let mut object = json!({"metadata": {"name": name, "namespace": "default"}});
        for (part, value) in over.as_object().unwrap() {
            for (key, value) in value.as_object().unwrap() {
                object[part][key] = value.clone();
            }
        }
        serde_json::from_value(object).unwrap()
    }

    fn reason(claims: &Claims, spec: Value) -> String {
        claims
            .objection(&pod(json!({"spec": spec})))
            .map(|found| found.reasons.join(", "))
            .unwrap_or_default()
    }

    #[test]
    fn a_claim_that_cannot_be_used_is_named_in_upstreams_words() {
        let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let mut claims = Claims::default();
        assert_eq!(reason(&claims, volumes.clone()), "persistentvolumeclaim \"data\" not found");
        assert!(claims.set(&claim("data", json!({}))));
        assert!(!claims.set(&claim("data", json!({}))), "nothing changed");
        assert_eq!(
            reason(&claims, volumes.clone()),
            "persistentvolumeclaim \"data\": persistent volumes are not supported yet"
        );
        claims.set(&claim("data", json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}})));
        assert_eq!(
            reason(&claims, volumes.clone()),
            "persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"pv\""
        );
        claims.set(&claim("data", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
        assert_eq!(reason(&claims, volumes.clone()), "persistentvolumeclaim \"data\" is being deleted");
        assert!(claims.remove(&claim("data", json!({}))));
        assert_eq!(reason(&claims, volumes), "persistentvolumeclaim \"data\" not found");
        assert_eq!(reason(&claims, json!({"volumes": [{"name": "v", "emptyDir": {}}]})), "");
    }

    #[test]
    fn a_claim_made_for_the_pod_is_waited_for_and_must_be_its_own() {
        let volumes = json!({"volumes": [{"name": "v", "ephemeral": {}}]});
        let mut claims = Claims::default();
        assert_eq!(
            reason(&claims, volumes.clone()),
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-v\""
        );
        claims.set(&claim("p-v", json!({})));
        assert_eq!(
            reason(&claims, volumes),
            "PVC default/p-v was not created for pod default/p (pod is not owner)"
        );
    }

    #[test]
    fn a_resource_claim_is_named() {
        let claims = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "g1"}]});
        assert_eq!(
            reason(&Claims::default(), claims),
            "pod resource claim \"gpu\": dynamic resources are not supported yet"
        );
    }
}
