//! What the server adds to pods: service account and token volume, priority, default tolerations, where their node is.
//!
//! A runtime class must exist; what it says about overhead and scheduling is not added.

use std::time::Duration;

use http::StatusCode;
use podwire_api::builtin;
use serde_json::{Map, Value, json};

use crate::core::{self, Core};
use crate::handler::create::random_suffix;
use crate::status::{ApiError, Result};

/// Where programs look for their token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a new namespace's default account is waited for.
const ACCOUNT_WAIT: Duration = Duration::from_secs(1);

/// Completes a new pod.
pub(super) async fn create(core: &Core, pod: &mut Value) -> Result<()> {
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
        service_account(core, pod).await?;
    }
    priority(core, pod).await?;
    runtime_class(core, pod).await?;
    tolerations(pod);
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        let labels = topology(core, node);
        label(pod, labels);
    }
    Ok(())
}

/// Completes a changed pod: what was added when it was created is not lost by leaving it out.
pub(super) fn update(new: &mut Value, old: &Value) {
    for key in ["priority", "preemptionPolicy"] {
        if new["spec"][key].is_null() && !old["spec"][key].is_null() {
            new["spec"][key] = old["spec"][key].clone();
        }
    }
    tolerations(new);
}

/// The labels that say where a node is; none of a node nobody knows.
pub(crate) fn topology(core: &Core, node: &str) -> Map<String, Value> {
    let nodes = builtin::nodes();
    let Some(entry) = core.caches.of(nodes).get(&core::key(nodes, "", node)) else { return Map::new() };
    let says_where =
        |key: &str| matches!(key, "topology.kubernetes.io/zone" | "topology.kubernetes.io/region");
    let labels = entry.labels().filter(|(key, _)| says_where(key));
    labels.map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// Puts labels on a pod, over those it has.
pub(crate) fn label(pod: &mut Value, labels: Map<String, Value>) {
    if labels.is_empty() {
        return;
    }
    match pod["metadata"]["labels"].as_object_mut() {
        Some(own) => own.extend(labels),
        None => pod["metadata"]["labels"] = labels.into(),
    }
}

async fn service_account(core: &Core, pod: &mut Value) -> Result<()> {
    let given = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| pod["spec"][*key].as_str().filter(|name| !name.is_empty()));
    let account = given.unwrap_or("default").to_owned();
    pod["spec"]["serviceAccountName"] = account.as_str().into();
    pod["spec"]["serviceAccount"] = account.as_str().into();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let found = find_account(core, &namespace, &account).await.map_err(|error| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let cause = match error.code {
            StatusCode::NOT_FOUND => format!("serviceaccount \"{account}\" not found"),
            // A store that cannot be read says nothing about the account.
            _ => return error,
        };
        let why = format!("error looking up service account {namespace}/{account}: {cause}");
        ApiError::forbidden("", "pods", name, &why)
    })?;
    let secrets = &found["imagePullSecrets"];
    if pod["spec"]["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) && !secrets.is_null() {
        pod["spec"]["imagePullSecrets"] = secrets.clone();
    }
    let mount = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| found["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if mount {
        mount_token(pod);
    }
    Ok(())
}

/// Finds an account; the default one of a young namespace may take a moment to appear.
async fn find_account(core: &Core, namespace: &str, account: &str) -> Result<Value> {
    let accounts = builtin::service_accounts();
    let mut news = core.caches.of(accounts).news();
    let deadline = tokio::time::Instant::now() + ACCOUNT_WAIT;
    loop {
        news.borrow_and_update();
        match core.object(accounts, namespace, account).await {
            Err(error) if account == "default" && error.code == StatusCode::NOT_FOUND => {
                if !matches!(tokio::time::timeout_at(deadline, news.changed()).await, Ok(Ok(()))) {
                    return Err(error);
                }
            }
            other => return other,
        }
    }
}

fn mount_token(pod: &mut Value) {
    let volume = format!("kube-api-access-{}", random_suffix());
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = &mut container["volumeMounts"];
            let taken = mounts.as_array().into_iter().flatten().any(|mount| mount["mountPath"] == TOKEN_PATH);
            if taken {
                continue;
            }
            used = true;
            let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
            match mounts.as_array_mut() {
                Some(list) => list.push(mount),
                None => *mounts = json!([mount]),
            }
        }
    }
    if !used {
        return;
    }
    let projected = json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    match pod["spec"]["volumes"].as_array_mut() {
        Some(list) => list.push(projected),
        None => pod["spec"]["volumes"] = json!([projected]),
    }
}

async fn priority(core: &Core, pod: &mut Value) -> Result<()> {
    let classes = builtin::priority_classes();
    let asked = pod["spec"]["priorityClassName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let refuse = |why: String| ApiError::forbidden("", "pods", &pod_name, &why);
    let class = match &asked {
        Some(name) => {
            let found = core.object(classes, "", name).await.map_err(|error| match error.code {
                StatusCode::NOT_FOUND => refuse(format!("no PriorityClass with name {name} was found")),
                _ => error,
            })?;
            Some(found)
        }
        None => default_class(core),
    };
    let (value, policy) = match &class {
        Some(class) => (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].as_str()),
        None => (0, Some("PreemptLowerPriority")),
    };
    resolve(&mut pod["spec"], value, policy).map_err(refuse)?;
    if let Some(class) = class {
        pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// Refuses a pod whose runtime class nobody has made.
async fn runtime_class(core: &Core, pod: &Value) -> Result<()> {
    let Some(class) = pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty()) else {
        return Ok(());
    };
    let classes = builtin::runtime_classes();
    core.stored(classes, "", class).await.map(drop).map_err(|error| match error.code {
        StatusCode::NOT_FOUND => {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let why = format!("pod rejected: RuntimeClass \"{class}\" not found");
            ApiError::forbidden("", "pods", name, &why)
        }
        _ => error,
    })
}

/// Sets what a class says; a pod that says otherwise is refused.
fn resolve(spec: &mut Value, value: i64, policy: Option<&str>) -> Result<(), String> {
    const BY_CLASS: &str = "must not be provided in pod spec; priority admission controller computed";
    const FROM: &str = "from the given PriorityClass name";
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
        return Err(format!("the integer value of priority ({given}) {BY_CLASS} {value} {FROM}"));
    }
    spec["priority"] = value.into();
    let Some(policy) = policy else { return Ok(()) };
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(format!("the string value of PreemptionPolicy ({given}) {BY_CLASS} {policy} {FROM}"));
    }
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

/// Refuses a second class for pods that name none.
pub(super) async fn only_default(core: &Core, class: &Value, is_new: bool) -> Result<()> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    // The cache may not have heard yet of one that was stored a moment ago.
    core.caches.wait_for(core.store.revision().await?).await?;
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let Some(default) = default_class(core) else { return Ok(()) };
    let other = default["metadata"]["name"].as_str().unwrap_or_default();
    if !is_new && other == name {
        return Ok(());
    }
    let why = format!("PriorityClass {other} is already marked as default. Only one default can exist");
    Err(ApiError::forbidden("scheduling.k8s.io", "priorityclasses", name, &why))
}

/// The class for pods that name none; the lowest of several wins.
fn default_class(core: &Core) -> Option<Value> {
    let classes = builtin::priority_classes();
    let scope = crate::cache::Scope { prefix: classes.storage_prefix.to_string(), node: None, key: None };
    let snapshot = core.caches.of(classes).snapshot(&scope);
    let marked = |tail: &[u8]| tail.windows(20).any(|part| part == b"\"globalDefault\":true");
    let marked = snapshot.entries.iter().filter(|entry| marked(&entry.tail));
    let defaults = marked.map(|entry| entry.decode(classes));
    defaults.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
}

fn tolerations(pod: &mut Value) {
    let has = |pod: &Value, key: &str| {
        pod["spec"]["tolerations"].as_array().into_iter().flatten().any(|toleration| {
            let same = toleration["key"] == key || toleration["key"].as_str().unwrap_or_default().is_empty();
            same && matches!(toleration["effect"].as_str(), None | Some("" | "NoExecute"))
        })
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if has(pod, key) {
            continue;
        }
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        match pod["spec"]["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_mounted_where_nothing_is_mounted_yet() {
        let mut pod = json!({"spec": {"containers": [
            {"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": TOKEN_PATH}]}]}});
        mount_token(&mut pod);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], TOKEN_PATH);
        assert_eq!(pod["spec"]["containers"][1]["volumeMounts"].as_array().unwrap().len(), 1);
        assert_eq!(pod["spec"]["volumes"][0]["projected"]["sources"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_priority_that_the_class_does_not_have_is_refused() {
        let mut spec = json!({});
        resolve(&mut spec, 7, Some("Never")).unwrap();
        assert_eq!(spec, json!({"priority": 7, "preemptionPolicy": "Never"}));
        resolve(&mut spec, 7, Some("Never")).unwrap();
        assert_eq!(
            resolve(&mut spec, 8, Some("Never")).unwrap_err(),
            "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 8 from the given PriorityClass name"
        );
        assert_eq!(
            resolve(&mut spec, 7, Some("PreemptLowerPriority")).unwrap_err(),
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name"
        );
    }

    #[test]
    fn what_an_update_leaves_out_is_completed() {
        let old = json!({"spec": {"priority": 5, "preemptionPolicy": "Never"}});
        let mut new = json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}});
        update(&mut new, &old);
        assert_eq!(
            (&new["spec"]["priority"], &new["spec"]["preemptionPolicy"]),
            (&json!(5), &json!("Never"))
        );
        assert_eq!(new["spec"]["tolerations"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn tolerations_are_added_once() {
        let mut pod =
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}});
        tolerations(&mut pod);
        tolerations(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }
}
