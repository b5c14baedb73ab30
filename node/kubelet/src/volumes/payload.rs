//! The files of config map, secret, downward API and projected volumes.

use std::sync::Arc;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use podwire_wire::ids::ContainerName;
use serde_json::json;

use super::atomic::{File, Payload};
use crate::{
    configmaps_and_secrets::{Content, Kind},
    env,
    node::Node,
    spec,
};

const DEFAULT_MODE: i32 = 0o644;

/// Why the files of a volume cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum PayloadError {
    /// The object could not be read.
    #[error("{0}")]
    Fetch(String),
    /// There is no such object.
    #[error("{} \"{name}\" not found", kind.noun())]
    NotFound { kind: Kind, name: String },
    /// The object has no such key.
    #[error("{} references non-existent {} key: {key}", kind.noun(), kind.noun())]
    NoKey { kind: Kind, key: String },
    /// No file has such a mode.
    #[error("invalid mode {0}")]
    Mode(i32),
    /// The pod does not have what is referred to.
    #[error(transparent)]
    Reference(#[from] env::EnvError),
    /// The pod has no such container.
    #[error("container {0} not found")]
    NoContainer(ContainerName),
    /// There is no token.
    #[error("failed to fetch token: {0}")]
    Token(String),
}

/// The plugin's folder name and files of a volume; `None` when it is of another kind.
pub(super) async fn of(
    node: &Arc<Node>,
    pod: &Pod,
    volume: &Volume,
    renew_at: &mut Option<Timestamp>,
) -> Result<Option<(&'static str, Payload)>, PayloadError> {
    let mut payload = Payload::new();
    if let Some(source) = &volume.config_map {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let items = source.items.as_deref();
        let optional = source.optional.unwrap_or(false);
        keys(node, pod, Kind::ConfigMap, &source.name, items, mode, optional, &mut payload).await?;
        return Ok(Some(("kubernetes.io~configmap", payload)));
    }
    if let Some(source) = &volume.secret {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let name = source.secret_name.clone().unwrap_or_default();
        let optional = source.optional.unwrap_or(false);
        keys(node, pod, Kind::Secret, &name, source.items.as_deref(), mode, optional, &mut payload).await?;
        return Ok(Some(("kubernetes.io~secret", payload)));
    }
    if let Some(source) = &volume.downward_api {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        downward(node, pod, source.items.as_deref().unwrap_or_default(), mode, &mut payload).await?;
        return Ok(Some(("kubernetes.io~downward-api", payload)));
    }
    if let Some(source) = &volume.projected {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        for projection in source.sources.iter().flatten() {
            project(node, pod, projection, mode, renew_at, &mut payload).await?;
        }
        return Ok(Some(("kubernetes.io~projected", payload)));
    }
    Ok(None)
}

async fn project(
    node: &Arc<Node>,
    pod: &Pod,
    projection: &VolumeProjection,
    mode: i32,
    renew_at: &mut Option<Timestamp>,
    payload: &mut Payload,
) -> Result<(), PayloadError> {
    if let Some(source) = &projection.config_map {
        let optional = source.optional.unwrap_or(false);
        keys(node, pod, Kind::ConfigMap, &source.name, source.items.as_deref(), mode, optional, payload)
            .await?;
    }
    if let Some(source) = &projection.secret {
        let optional = source.optional.unwrap_or(false);
        keys(node, pod, Kind::Secret, &source.name, source.items.as_deref(), mode, optional, payload).await?;
    }
    if let Some(source) = &projection.downward_api {
        downward(node, pod, source.items.as_deref().unwrap_or_default(), mode, payload).await?;
    }
    if let Some(source) = &projection.service_account_token {
        let (token, renew) = token(node, pod, source).await?;
        *renew_at = Some(renew_at.map_or(renew, |old| old.min(renew)));
        // Another user than root must be able to read its own token, and nobody else.
        let user = spec::spec(pod).security_context.as_ref().and_then(|s| s.run_as_user);
        let owner = user.and_then(|u| u32::try_from(u).ok());
        let narrow = if owner.is_some() { 0o600 } else { bits(mode)? };
        payload.insert(source.path.clone(), File { bytes: token.into_bytes(), mode: narrow, owner });
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // One call per volume kind; a struct would only rename them.
async fn keys(
    node: &Arc<Node>,
    pod: &Pod,
    kind: Kind,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
    payload: &mut Payload,
) -> Result<(), PayloadError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let fetched =
        node.configs.get(kind, namespace, name, spec::uid(pod)).await.map_err(PayloadError::Fetch)?;
    match fetched {
        Some(content) => select(&content, kind, items, mode, optional, payload),
        None if optional => Ok(()),
        None => Err(PayloadError::NotFound { kind, name: name.to_owned() }),
    }
}

fn select(
    content: &Content,
    kind: Kind,
    items: Option<&[KeyToPath]>,
    mode: i32,
    optional: bool,
    payload: &mut Payload,
) -> Result<(), PayloadError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, bytes) in &content.data {
            payload.insert(key.clone(), File { bytes: bytes.clone(), mode: bits(mode)?, owner: None });
        }
        return Ok(());
    };
    for item in items {
        match content.data.get(&item.key) {
            Some(bytes) => {
                let file = File { bytes: bytes.clone(), mode: bits(item.mode.unwrap_or(mode))?, owner: None };
                payload.insert(item.path.clone(), file);
            }
            None if optional => {}
            None => {
                return Err(PayloadError::NoKey { kind, key: item.key.clone() });
            }
        }
    }
    Ok(())
}

fn bits(mode: i32) -> Result<u32, PayloadError> {
    u32::try_from(mode).map_err(|_| PayloadError::Mode(mode))
}

async fn downward(
    node: &Arc<Node>,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
    payload: &mut Payload,
) -> Result<(), PayloadError> {
    let facts = node.env_facts(&[], &[]);
    for item in items {
        let value = if let Some(field) = &item.field_ref {
            env::field_value(pod, &field.field_path, &facts)?
        } else if let Some(resource) = &item.resource_field_ref {
            let name = resource.container_name.as_deref().unwrap_or_default();
            let (_, container) =
                spec::find_container(pod, name).ok_or_else(|| PayloadError::NoContainer(name.into()))?;
            let divisor = resource.divisor.as_ref().map(|q| q.0.as_str());
            env::resource_value(&container, &resource.resource, divisor, &facts)?
        } else {
            String::new()
        };
        let file = File { bytes: value.into_bytes(), mode: bits(item.mode.unwrap_or(mode))?, owner: None };
        payload.insert(item.path.clone(), file);
    }
    Ok(())
}

/// A service account token bound to the pod, and when to replace it.
async fn token(
    node: &Arc<Node>,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
) -> Result<(String, Timestamp), PayloadError> {
    let account = spec::spec(pod).service_account_name.clone().filter(|n| !n.is_empty());
    let account = account.unwrap_or_else(|| "default".to_owned());
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let seconds = source.expiration_seconds.unwrap_or(3600);
    let audience = source.audience.clone().filter(|a| !a.is_empty());
    let key = format!("{}/{account}/{}/{seconds}", spec::uid(pod), audience.as_deref().unwrap_or_default());
    let now = crate::clock::now();
    if let Some(token) = node.tokens.get(&key, now) {
        return Ok(token);
    }
    let mut request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": seconds,
            "audiences": [],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid},
        },
    });
    if let Some(audience) = audience {
        request["spec"]["audiences"] = json!([audience]);
    }
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let answer = node
        .api
        .json(Method::POST, &path, &request)
        .await
        .map_err(|error| PayloadError::Token(error.message()))?;
    let token = answer["status"]["token"].as_str().unwrap_or_default().to_owned();
    if token.is_empty() {
        return Err(PayloadError::Token("the API server answered without one".to_owned()));
    }
    let expires: Timestamp = answer["status"]["expirationTimestamp"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| now + SignedDuration::from_secs(seconds));
    let life = expires.duration_since(now);
    // At 80 % of its life, or after a day, whichever comes first.
    let renew = now + (life * 4 / 5).min(SignedDuration::from_hours(24));
    node.tokens.put(key, token.clone(), renew);
    Ok((token, renew))
}
