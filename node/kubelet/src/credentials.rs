//! Registry credentials from a pod's image pull secrets.

use base64::Engine;
use k8s_openapi::api::core::v1::Pod;
use podwire_api::image::ImageReference;
use podwire_wire::cri;
use serde_json::Value;

use crate::{configmaps_and_secrets::Kind, node::Node, spec};

/// The credentials for `image` among the pod's pull secrets, if any.
pub(crate) async fn lookup(node: &Node, pod: &Pod, image: &str) -> Option<cri::AuthConfig> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    for secret in spec::spec(pod).image_pull_secrets.as_deref().unwrap_or_default() {
        let fetched = node.configs.get(Kind::Secret, namespace, &secret.name, spec::uid(pod)).await;
        // A missing pull secret is not an error: the image may be public.
        let Ok(Some(content)) = fetched else { continue };
        let json = match content.type_.as_str() {
            "kubernetes.io/dockercfg" => {
                content.data.get(".dockercfg").and_then(|bytes| serde_json::from_slice(bytes).ok())
            }
            _ => content
                .data
                .get(".dockerconfigjson")
                .and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok())
                .and_then(|config| config.get("auths").cloned()),
        };
        if let Some(auth) = json.as_ref().and_then(|auths| find(auths, image)) {
            return Some(auth);
        }
    }
    None
}

/// The longest entry whose host and path the image begins with.
fn find(auths: &Value, image: &str) -> Option<cri::AuthConfig> {
    let full = ImageReference::parse(image).ok()?.repository();
    let mut best: Option<(usize, cri::AuthConfig)> = None;
    for (server, entry) in auths.as_object()? {
        let bare = server.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
        let bare = if bare == "index.docker.io/v1" || bare == "index.docker.io" { "docker.io" } else { bare };
        let bare = bare.trim_end_matches("/v1").trim_end_matches("/v2");
        let fits = full == bare || full.strip_prefix(bare).is_some_and(|rest| rest.starts_with('/'));
        if fits && best.as_ref().is_none_or(|(length, _)| bare.len() > *length) {
            best = Some((bare.len(), read(entry, server)));
        }
    }
    best.map(|(_, auth)| auth)
}

fn read(entry: &Value, server: &str) -> cri::AuthConfig {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut auth = cri::AuthConfig {
        username: text("username"),
        password: text("password"),
        identity_token: text("identitytoken"),
        server_address: server.to_owned(),
        ..Default::default()
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth")).unwrap_or_default();
    if let (true, Some((user, password))) =
        (auth.username.is_empty(), String::from_utf8_lossy(&decoded).split_once(':'))
    {
        auth.username = user.to_owned();
        auth.password = password.to_owned();
    }
    auth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_registry_entry_wins() {
        let auths = serde_json::json!({
            "reg.example": {"username": "wide", "password": "x"},
            "https://reg.example/team": {"auth": "bmFycm93OnNlY3JldA=="},
            "https://index.docker.io/v1/": {"username": "hub", "password": "y"},
        });
        assert_eq!(find(&auths, "reg.example/team/app:1").unwrap().username, "narrow");
        assert_eq!(find(&auths, "reg.example/other").unwrap().username, "wide");
        assert_eq!(find(&auths, "nginx").unwrap().username, "hub");
        assert!(find(&auths, "quay.io/x").is_none());
        assert!(find(&auths, "reg.example:5000/team/app").is_none(), "another port is another registry");
    }
}
