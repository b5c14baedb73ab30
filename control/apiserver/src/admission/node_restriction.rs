//! What a node may write: itself, its lease and CSI node, mirror pods without secrets, and the state of its own pods.
//!
//! The node authorizer cannot see what is in an object; here it is looked at, with upstream's words. Everybody who is
//! no node passes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use podwire_api::{Kind, Part, builtin};
use serde_json::{Map, Value};
use x509_parser::prelude::FromDer;

use super::{Mutating, Operation, Request};
use crate::authz::{self, Attributes, references};
use crate::context::Context;
use crate::identity::Identity;
use crate::request::ResourceInfo;
use crate::status::{ApiError, Result};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels of the project itself that a kubelet may set on its node.
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Domains of such labels, with everything below them.
const OWN_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name_of(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The node that asks: none for others, a refusal for one that cannot be told.
fn asking<'a>(identity: &'a Identity, kind: &Kind, name: &str) -> Result<Option<&'a str>> {
    match identity.node_name() {
        None if identity.is_node() => {
            let why = format!("could not determine node from user \"{}\"", identity.user);
            Err(ApiError::forbidden(&kind.group, &kind.resource, name, &why))
        }
        node => Ok(node),
    }
}

fn settled(kind: &Kind, name: &str, verdict: std::result::Result<(), String>) -> Result<()> {
    verdict.map_err(|why| ApiError::forbidden(&kind.group, &kind.resource, name, &why))
}

type Verdict = std::result::Result<(), String>;

/// The plugin.
pub(super) struct NodeRestriction;

impl Mutating for NodeRestriction {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.identity.is_node()
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, object: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(check(request, object))
    }
}

async fn check(request: &Request<'_>, object: &Value) -> Result<()> {
    let Request { context, identity, kind, name, namespace, .. } = *request;
    match (request.operation, request.part, request.old) {
        (Operation::Create, None, _) => create(context, identity, kind, object).await,
        (Operation::Create, Some(Part::Binding), _) => bind(identity, kind, name),
        (Operation::Create, Some(Part::Eviction), _) => {
            evict(identity, kind, &context.object(kind, namespace, name).await?)
        }
        (Operation::Create, Some(Part::Token), _) => {
            token(context, identity, kind, namespace, name, &object["spec"]).await
        }
        (Operation::Update, part, Some(old)) => update(identity, kind, part, object, old),
        (Operation::Delete, _, Some(old)) => delete(identity, kind, old),
        _ => Ok(()),
    }
}

/// Admits a creation.
async fn create(context: &Context, identity: &Identity, kind: &Kind, object: &Value) -> Result<()> {
    let name = name_of(object);
    let Some(node) = asking(identity, kind, name)? else { return Ok(()) };
    let verdict = match (&*kind.group, &*kind.resource) {
        ("", "pods") => {
            settled(kind, name, mirror_pod(node, object))?;
            let nodes = builtin::nodes();
            let found = context.object(nodes, "", node).await?;
            owner_uid(node, object, text(&found["metadata"]["uid"]))
        }
        ("", "nodes") => own_node(node, name).and_then(|()| new_node(node, object)),
        ("", "persistentvolumeclaims") => Err("may only update PVC status".into()),
        ("coordination.k8s.io", "leases") => lease(node, object),
        ("storage.k8s.io", "csinodes") => csi_node(node, name),
        ("resource.k8s.io", "resourceslices") => slice(node, object, "create"),
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request(node, object),
        _ => Ok(()),
    };
    settled(kind, name, verdict)
}

/// Admits a change.
fn update(identity: &Identity, kind: &Kind, part: Option<Part>, new: &Value, old: &Value) -> Result<()> {
    let name = name_of(old);
    let Some(node) = asking(identity, kind, name)? else { return Ok(()) };
    let verdict = match (&*kind.group, &*kind.resource, part) {
        ("", "pods", Some(Part::Status)) => pod_status(node, new, old),
        ("", "pods", None) => Err(format!(
            "unexpected operation \"UPDATE\", node \"{node}\" can only create and delete mirror pods"
        )),
        ("", "pods", Some(part)) => Err(unexpected_part(part.as_str())),
        ("", "nodes", _) => own_node(node, name).and_then(|()| changed_node(node, new, old)),
        ("", "persistentvolumeclaims", Some(Part::Status)) => claim_status(node, new, old),
        ("", "persistentvolumeclaims", _) => Err("may only update PVC status".into()),
        ("coordination.k8s.io", "leases", _) => lease(node, old),
        ("storage.k8s.io", "csinodes", _) => csi_node(node, name),
        _ => Ok(()),
    };
    settled(kind, name, verdict)
}

/// Admits a deletion.
fn delete(identity: &Identity, kind: &Kind, object: &Value) -> Result<()> {
    let name = name_of(object);
    let Some(node) = asking(identity, kind, name)? else { return Ok(()) };
    let verdict = match (&*kind.group, &*kind.resource) {
        ("", "pods") if text(&object["spec"]["nodeName"]) != node => {
            Err(format!("node \"{node}\" can only delete pods with spec.nodeName set to itself"))
        }
        ("", "nodes") => own_node(node, name),
        ("", "persistentvolumeclaims") => Err("may only update PVC status".into()),
        ("coordination.k8s.io", "leases") => lease(node, object),
        ("storage.k8s.io", "csinodes") => csi_node(node, name),
        ("resource.k8s.io", "resourceslices") => slice(node, object, "delete"),
        _ => Ok(()),
    };
    settled(kind, name, verdict)
}

/// Admits an eviction of a pod.
fn evict(identity: &Identity, kind: &Kind, pod: &Value) -> Result<()> {
    let Some(node) = asking(identity, kind, name_of(pod))? else { return Ok(()) };
    let own = text(&pod["spec"]["nodeName"]) == node;
    let why = || format!("node {node} can only evict pods with spec.nodeName set to itself");
    settled(kind, name_of(pod), if own { Ok(()) } else { Err(why()) })
}

/// Admits the binding of a pod, which is no node's business.
fn bind(identity: &Identity, kind: &Kind, name: &str) -> Result<()> {
    match asking(identity, kind, name)? {
        Some(_) => settled(kind, name, Err(unexpected_part("binding"))),
        None => Ok(()),
    }
}

fn unexpected_part(subresource: &str) -> String {
    format!("unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed")
}

fn own_node(node: &str, name: &str) -> Verdict {
    if name == node {
        Ok(())
    } else {
        Err(format!("node \"{node}\" is not allowed to modify node \"{name}\""))
    }
}

fn new_node(node: &str, object: &Value) -> Verdict {
    if !object["spec"]["configSource"].is_null() {
        return Err(format!("node \"{node}\" is not allowed to create pods with a non-nil configSource"));
    }
    match forbidden_labels(&object["metadata"]["labels"], &Value::Null) {
        labels if labels.is_empty() => Ok(()),
        labels => {
            let labels = labels.join(", ");
            Err(format!("node \"{node}\" is not allowed to set the following labels: {labels}"))
        }
    }
}

fn changed_node(node: &str, new: &Value, old: &Value) -> Verdict {
    let source = &new["spec"]["configSource"];
    if !source.is_null() && *source != old["spec"]["configSource"] {
        return Err(format!(
            "node \"{node}\" is not allowed to update configSource to a new non-nil configSource"
        ));
    }
    if !same_list(&new["spec"]["taints"], &old["spec"]["taints"]) {
        return Err(format!("node \"{node}\" is not allowed to modify taints"));
    }
    if !same_list(&new["metadata"]["ownerReferences"], &old["metadata"]["ownerReferences"]) {
        return Err(format!("node \"{node}\" is not allowed to modify ownerReferences"));
    }
    match forbidden_labels(&new["metadata"]["labels"], &old["metadata"]["labels"]) {
        labels if labels.is_empty() => Ok(()),
        labels => Err(format!("is not allowed to modify labels: {}", labels.join(", "))),
    }
}

/// Lists that are equal, none being as good as an empty one.
fn same_list(one: &Value, other: &Value) -> bool {
    let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    one == other || (empty(one) && empty(other))
}

/// The labels that differ and that a kubelet may not touch, in order.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let none = Map::new();
    let (new, old) = (new.as_object().unwrap_or(&none), old.as_object().unwrap_or(&none));
    let differ = |key: &&String| new.get(*key) != old.get(*key);
    let mut out: Vec<String> =
        new.keys().chain(old.keys()).filter(differ).filter(|key| is_forbidden(key)).cloned().collect();
    out.sort();
    out.dedup();
    out
}

fn is_forbidden(label: &str) -> bool {
    let domain = label.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
    let within = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let known = OWN_LABELS.contains(&label) || OWN_DOMAINS.iter().any(|own| within(own));
    (within("kubernetes.io") || within("k8s.io")) && !known
}

fn mirror_pod(node: &str, pod: &Value) -> Verdict {
    if pod["metadata"]["annotations"].get(MIRROR).is_none() {
        return Err(format!(
            "pod does not have \"{MIRROR}\" annotation, node \"{node}\" can only create mirror pods"
        ));
    }
    if text(&pod["spec"]["nodeName"]) != node {
        return Err(format!("node \"{node}\" can only create pods with spec.nodeName set to itself"));
    }
    let owner = match pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [owner] => owner,
        [] => {
            return Err(format!(
                "node \"{node}\" can only create pods with an owner reference set to itself"
            ));
        }
        _ => {
            return Err(format!(
                "node \"{node}\" can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return Err(format!("node \"{node}\" can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return Err(format!(
            "node \"{node}\" can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!("node \"{node}\" must not set blockOwnerDeletion on an owner reference"));
    }
    match references::first_reference(pod) {
        None => Ok(()),
        Some(what) if what.starts_with("unknown ") => {
            Err(format!("error checking mirror pod for API references: {what}"))
        }
        Some(what) => Err(format!("node \"{node}\" can not create pods that reference {what}")),
    }
}

fn owner_uid(node: &str, pod: &Value, uid: &str) -> Verdict {
    let given = text(&pod["metadata"]["ownerReferences"][0]["uid"]);
    if given == uid { Ok(()) } else { Err(format!("node {node} UID mismatch: expected {given} got {uid}")) }
}

fn pod_status(node: &str, new: &Value, old: &Value) -> Verdict {
    if text(&old["spec"]["nodeName"]) != node {
        return Err(format!(
            "node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let none = Map::new();
    let labels = |pod: &Value| pod["metadata"]["labels"].as_object().unwrap_or(&none).clone();
    if labels(new) != labels(old) {
        return Err(format!("node \"{node}\" cannot update labels through pod status"));
    }
    if !same_list(&new["status"]["resourceClaimStatuses"], &old["status"]["resourceClaimStatuses"]) {
        return Err(format!("node \"{node}\" cannot update resource claim statues"));
    }
    if new["status"]["extendedResourceClaimStatus"] != old["status"]["extendedResourceClaimStatus"] {
        return Err(format!("node \"{node}\" cannot update extended resource claim status"));
    }
    Ok(())
}

fn claim_status(node: &str, new: &Value, old: &Value) -> Verdict {
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        let parts = [
            ("metadata", &["resourceVersion", "managedFields"] as &[&str]),
            ("status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"]),
        ];
        for (part, keys) in parts {
            if let Some(map) = claim[part].as_object_mut() {
                keys.iter().for_each(|key| drop(map.remove(*key)));
            }
        }
        claim
    };
    if rest(new) == rest(old) {
        return Ok(());
    }
    Err(format!(
        "node \"{node}\" is not allowed to update fields other than status.quantity and status.conditions"
    ))
}

fn lease(node: &str, object: &Value) -> Verdict {
    if text(&object["metadata"]["namespace"]) != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".into());
    }
    if name_of(object) != node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn csi_node(node: &str, name: &str) -> Verdict {
    if name == node {
        Ok(())
    } else {
        Err("can only access CSINode with the same name as the requesting node".into())
    }
}

fn slice(node: &str, object: &Value, verb: &str) -> Verdict {
    if text(&object["spec"]["nodeName"]) == node {
        return Ok(());
    }
    Err(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
}

/// A certificate for kubelets must be for this one.
fn signing_request(node: &str, object: &Value) -> Verdict {
    let signer = text(&object["spec"]["signerName"]);
    if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
        return Ok(());
    }
    let pem = STANDARD.decode(text(&object["spec"]["request"])).unwrap_or_default();
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&pem) else {
        return Err("unable to parse csr: PEM block type must be CERTIFICATE REQUEST".into());
    };
    let request = x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents);
    let Ok((_, request)) = request else {
        return Err("unable to parse csr: it is not a certificate request".into());
    };
    let names: Vec<&str> = request
        .certification_request_info
        .subject
        .iter_common_name()
        .filter_map(|cn| cn.as_str().ok())
        .collect();
    // The last one counts where there are several, as in Go; here all must agree.
    let wanted = format!("system:node:{node}");
    if !names.is_empty() && names.iter().all(|name| *name == wanted) {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN={wanted}"))
}

/// Admits a request for a token: only for a pod that runs on the node, and what that pod asks for.
async fn token(
    context: &Context,
    identity: &Identity,
    kind: &Kind,
    namespace: &str,
    account: &str,
    spec: &Value,
) -> Result<()> {
    let Some(node) = asking(identity, kind, account)? else { return Ok(()) };
    let refuse = |why: &str| settled(kind, account, Err(why.to_owned()));
    let bound = &spec["boundObjectRef"];
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || text(&bound["name"]).is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    let uid = text(&bound["uid"]);
    if uid.is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = context.object(builtin::pods(), namespace, text(&bound["name"])).await?;
    if text(&pod["metadata"]["uid"]) != uid {
        return refuse(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if text(&pod["spec"]["nodeName"]) != node {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match spec["audiences"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => "",
        [one] => text(one),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if names_audience(context, &pod, namespace, audience).await {
        return Ok(());
    }
    let target = ResourceInfo {
        version: "v1".into(),
        namespace: namespace.into(),
        resource: audience.into(),
        name: account.into(),
        ..ResourceInfo::default()
    };
    let asked = Attributes::resource("request-serviceaccounts-token-audience", &target);
    if authz::decide(context, identity, &asked).is_allowed() {
        return Ok(());
    }
    refuse(&format!(
        "audience \"{audience}\" not found in pod spec volume, {} is not authorized to request tokens for this audience",
        identity.user
    ))
}

/// Whether a volume of the pod, or the driver behind one, wants tokens for this audience.
async fn names_audience(context: &Context, pod: &Value, namespace: &str, audience: &str) -> bool {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for volume in items(&pod["spec"]["volumes"]) {
        let sources = items(&volume["projected"]["sources"]);
        let mut tokens =
            sources.iter().map(|source| &source["serviceAccountToken"]).filter(|token| token.is_object());
        if tokens.any(|token| text(&token["audience"]) == audience) {
            return true;
        }
        let driver = match text(&volume["csi"]["driver"]) {
            "" => claimed_driver(context, pod, namespace, &volume).await,
            driver => Some(driver.to_owned()),
        };
        let Some(driver) = driver else { continue };
        let drivers = builtin::csi_drivers();
        let Ok(driver) = context.object(drivers, "", &driver).await else { continue };
        if items(&driver["spec"]["tokenRequests"])
            .iter()
            .any(|request| text(&request["audience"]) == audience)
        {
            return true;
        }
    }
    false
}

/// The driver of the volume behind a claim.
async fn claimed_driver(context: &Context, pod: &Value, namespace: &str, volume: &Value) -> Option<String> {
    let claim = match text(&volume["persistentVolumeClaim"]["claimName"]) {
        "" if volume["ephemeral"].is_object() => format!("{}-{}", name_of(pod), text(&volume["name"])),
        "" => return None,
        name => name.to_owned(),
    };
    let claims = builtin::persistent_volume_claims();
    let claim = context.object(claims, namespace, &claim).await.ok()?;
    let volumes = builtin::persistent_volumes();
    let volume = context.object(volumes, "", text(&claim["spec"]["volumeName"])).await.ok()?;
    volume["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}
