//! What a pod or a volume refers to: the secrets, configmaps, claims and accounts that running it needs.
//!
//! Pure. The node authorizer lets a node read what its pods refer to, and admission refuses references in mirror pods;
//! both must mean the same by a reference.

use serde_json::Value;

/// Kinds of objects that nodes reach through their pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    Secret,
    ConfigMap,
    Claim,
    Account,
    ResourceClaim,
    Pod,
    Attachment,
    Slice,
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(&pod["spec"][list]))
}

/// Volumes whose secret stands in `secretRef`.
const WITH_SECRET_REF: &[&str] = &["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

/// The names of all secrets that a pod refers to.
pub(crate) fn secrets(pod: &Value) -> Vec<&str> {
    let mut out: Vec<Option<&str>> =
        items(&pod["spec"]["imagePullSecrets"]).map(|secret| text(&secret["name"])).collect();
    for container in containers(pod) {
        out.extend(items(&container["envFrom"]).map(|from| text(&from["secretRef"]["name"])));
        out.extend(items(&container["env"]).map(|env| text(&env["valueFrom"]["secretKeyRef"]["name"])));
    }
    for volume in items(&pod["spec"]["volumes"]) {
        out.push(text(&volume["azureFile"]["secretName"]));
        out.push(text(&volume["secret"]["secretName"]));
        out.push(text(&volume["csi"]["nodePublishSecretRef"]["name"]));
        out.extend(WITH_SECRET_REF.iter().map(|sort| text(&volume[*sort]["secretRef"]["name"])));
        out.extend(items(&volume["projected"]["sources"]).map(|source| text(&source["secret"]["name"])));
    }
    out.into_iter().flatten().collect()
}

/// The names of all configmaps that a pod refers to.
pub(crate) fn config_maps(pod: &Value) -> Vec<&str> {
    let mut out: Vec<Option<&str>> = Vec::new();
    for container in containers(pod) {
        out.extend(items(&container["envFrom"]).map(|from| text(&from["configMapRef"]["name"])));
        out.extend(items(&container["env"]).map(|env| text(&env["valueFrom"]["configMapKeyRef"]["name"])));
    }
    for volume in items(&pod["spec"]["volumes"]) {
        out.push(text(&volume["configMap"]["name"]));
        out.extend(items(&volume["projected"]["sources"]).map(|source| text(&source["configMap"]["name"])));
    }
    out.into_iter().flatten().collect()
}

/// The names of all volume claims of a pod; a generic ephemeral volume has one that is named after both.
pub(crate) fn claims(pod: &Value) -> Vec<String> {
    let name = text(&pod["metadata"]["name"]).unwrap_or_default();
    let of = |volume: &Value| {
        if let Some(claim) = text(&volume["persistentVolumeClaim"]["claimName"]) {
            return Some(claim.to_owned());
        }
        let own = volume["ephemeral"].is_object();
        own.then(|| format!("{name}-{}", text(&volume["name"]).unwrap_or_default()))
    };
    items(&pod["spec"]["volumes"]).filter_map(of).collect()
}

/// The names of all resource claims of a pod: those it names, and those made for it.
pub(crate) fn resource_claims(pod: &Value) -> Vec<&str> {
    let statuses = &pod["status"]["resourceClaimStatuses"];
    let of = |claim: &Value| match text(&claim["resourceClaimName"]) {
        Some(_) => None,
        None => items(statuses)
            .find(|status| status["name"] == claim["name"])
            .map(|status| &status["resourceClaimName"]),
    };
    let claims = items(&pod["spec"]["resourceClaims"]);
    let named = claims.filter_map(|claim| match of(claim) {
        Some(made) => text(made),
        None => text(&claim["resourceClaimName"]),
    });
    named.chain(text(&pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"])).collect()
}

/// Everything beside itself that a pod lets its node reach: sort and name, all in the pod's namespace.
pub(crate) fn of_pod(pod: &Value) -> Vec<(Sort, String)> {
    // A mirror pod is the node's own word; it must not open anything.
    if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Vec::new();
    }
    let account = text(&pod["spec"]["serviceAccountName"]).map(|name| (Sort::Account, name.to_owned()));
    let mut out: Vec<(Sort, String)> = account.into_iter().collect();
    out.extend(secrets(pod).into_iter().map(|name| (Sort::Secret, name.to_owned())));
    out.extend(config_maps(pod).into_iter().map(|name| (Sort::ConfigMap, name.to_owned())));
    out.extend(claims(pod).into_iter().map(|name| (Sort::Claim, name)));
    out.extend(resource_claims(pod).into_iter().map(|name| (Sort::ResourceClaim, name.to_owned())));
    out
}

/// The secrets of a volume that its node may see: namespace and name.
pub(crate) fn volume_secrets(volume: &Value) -> Vec<(String, String)> {
    let spec = &volume["spec"];
    let claim = text(&spec["claimRef"]["namespace"]).unwrap_or_default();
    let mut out = Vec::new();
    let mut push = |namespace: Option<&str>, name: Option<&str>| {
        if let Some(name) = name {
            out.push((namespace.unwrap_or_default().to_owned(), name.to_owned()));
        }
    };
    let azure = &spec["azureFile"];
    push(text(&azure["secretNamespace"]).or(Some(claim)), text(&azure["secretName"]));
    for sort in WITH_SECRET_REF {
        let secret = &spec[*sort]["secretRef"];
        // Older objects of the others mean the namespace of the claim.
        let strict = matches!(*sort, "cinder" | "storageos");
        let namespace = text(&secret["namespace"]).or_else(|| (!strict).then_some(claim));
        push(namespace, text(&secret["name"]));
    }
    for key in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
        let secret = &spec["csi"][key];
        push(text(&secret["namespace"]), text(&secret["name"]));
    }
    out
}

/// The first thing of the API that a pod refers to, in upstream's words; what is unknown counts as a reference.
pub(crate) fn first_reference(pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    if text(&spec["serviceAccountName"]).is_some() {
        return Some("serviceaccounts".into());
    }
    if !secrets(pod).is_empty() {
        return Some("secrets".into());
    }
    if !config_maps(pod).is_empty() {
        return Some("configmaps".into());
    }
    if spec["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty()) {
        return Some("resourceclaims".into());
    }
    items(&spec["volumes"]).find_map(volume_reference)
}

/// Volumes that need nothing of the API.
const PLAIN_VOLUMES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

fn volume_reference(volume: &Value) -> Option<String> {
    if PLAIN_VOLUMES.iter().any(|sort| volume[*sort].is_object()) {
        return None;
    }
    let sorts = [
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    if let Some((_, what)) = sorts.iter().find(|(sort, _)| volume[*sort].is_object()) {
        return Some((*what).to_owned());
    }
    let name = text(&volume["name"]).unwrap_or_default();
    if !volume["projected"].is_object() {
        return Some(format!("unknown volume type for volume  \"{name}\""));
    }
    let sources = [
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    items(&volume["projected"]["sources"]).find_map(|source| {
        let known =
            sources.iter().find(|(sort, _)| source[*sort].is_object()).map(|(_, what)| (*what).to_owned());
        let plain = source["downwardAPI"].is_object();
        known.or_else(|| (!plain).then(|| format!("unknown source for projected volume \"{name}\"")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_refers_to_what_its_containers_volumes_and_claims_need() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "serviceAccountName": "robot", "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}]}],
            "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "cm"}}}]}],
            "ephemeralContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "debug"}}}]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "vol"}},
                {"name": "b", "projected": {"sources": [{"configMap": {"name": "ca"}}, {"secret": {"name": "tls"}}]}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "disk"}},
                {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "own", "resourceClaimName": "nic"}],
        }, "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-1"}]}});
        assert_eq!(secrets(&pod), ["pull", "init", "debug", "vol", "tls", "csi"]);
        assert_eq!(config_maps(&pod), ["cm", "ca"]);
        assert_eq!(claims(&pod), ["disk", "p-d"]);
        assert_eq!(resource_claims(&pod), ["p-gpu-1", "nic"]);
        assert_eq!(of_pod(&pod).len(), 1 + 6 + 2 + 2 + 2);
        let mut mirror = pod;
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        assert!(of_pod(&mirror).is_empty(), "a mirror pod opens nothing");
    }

    #[test]
    fn a_mirror_pod_may_refer_to_nothing_of_the_api() {
        let spec = |spec: Value| first_reference(&json!({"spec": spec}));
        assert_eq!(spec(json!({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]})), None);
        assert_eq!(spec(json!({"serviceAccountName": "x"})).unwrap(), "serviceaccounts");
        assert_eq!(spec(json!({"imagePullSecrets": [{"name": "x"}]})).unwrap(), "secrets");
        let token = json!({"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]});
        assert_eq!(spec(token).unwrap(), "serviceaccounts (via projected volumes)");
        assert_eq!(
            spec(json!({"volumes": [{"name": "n", "novel": {}}]})).unwrap(),
            "unknown volume type for volume  \"n\""
        );
    }
}
