//! `ServiceAccount`: a pod runs as an account that exists, with its pull secrets and a volume with its token.

use std::time::Duration;

use futures::future::BoxFuture;
use http::StatusCode;
use podwire_api::builtin;
use serde_json::{Value, json};

use super::{Mutating, Operation, Request};
use crate::context::Context;
use crate::handler::create::random_suffix;
use crate::status::Result;

/// Where programs look for their token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the names of volumes with tokens begin with.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// How long a new namespace's default account is waited for.
const ACCOUNT_WAIT: Duration = Duration::from_secs(1);

/// The plugin.
pub(super) struct ServiceAccount;

impl Mutating for ServiceAccount {
    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create
            && request.is_whole("", "Pod")
            && request.context.service_accounts
    }

    fn admit<'a>(&'a self, request: &'a Request<'a>, pod: &'a mut Value) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // A mirror pod runs without an account.
            if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
                complete(request, pod).await?;
            }
            Ok(())
        })
    }
}

async fn complete(request: &Request<'_>, pod: &mut Value) -> Result<()> {
    let given = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| pod["spec"][*key].as_str().filter(|name| !name.is_empty()));
    let account = given.unwrap_or("default").to_owned();
    pod["spec"]["serviceAccountName"] = account.as_str().into();
    pod["spec"]["serviceAccount"] = account.as_str().into();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let found = find_account(request.context, &namespace, &account).await.map_err(|error| {
        let cause = match error.code {
            StatusCode::NOT_FOUND => format!("serviceaccount \"{account}\" not found"),
            // A store that cannot be read says nothing about the account.
            _ => return error,
        };
        let why = format!("error looking up service account {namespace}/{account}: {cause}");
        request.forbidden(pod, &why)
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
async fn find_account(context: &Context, namespace: &str, account: &str) -> Result<Value> {
    let accounts = builtin::service_accounts();
    let mut news = context.caches.of(accounts).news();
    let deadline = tokio::time::Instant::now() + ACCOUNT_WAIT;
    loop {
        news.borrow_and_update();
        match context.object(accounts, namespace, account).await {
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
    // The volume may be there from before a webhook added containers.
    let known =
        pod["spec"]["volumes"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str());
    let known = known.into_iter().find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let is_new = known.is_none();
    let volume = known.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", random_suffix()));
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
    if !used || !is_new {
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
}
